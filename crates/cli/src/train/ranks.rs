//! One model on several ranks: the processes of a launcher, or the devices of one process.

use std::panic::resume_unwind;
use std::process::ExitCode;
use std::sync::Arc;

use panoply::mesh::{RankGroup, ThreadWire};
use panoply::nn::ProcessGroup;
use panoply::{Error, Result};

use super::arguments::TrainCommand;
use super::{progress, train};
use crate::output::DeviceArgs;

/// Stack of a thread that trains, as large as that of the main thread.
const STACK: usize = 8 << 20;

/// Trains, reports and saves. Rank 0 of several also does all but the training.
pub fn run(arguments: &TrainCommand) -> Result<ExitCode> {
    let ranks = RankGroup::open()?;
    let done = match &arguments.devices {
        Some(_) if ranks.is_some() => {
            Err(Error::mistake("--devices is for one process; ranks of a launcher have one device each, by --device"))
        }
        Some(list) => return train_on_devices(arguments, list),
        None => arguments.device.select().and_then(|choice| train(arguments, &[choice], ranks.as_ref())),
    };
    match (ranks, done) {
        (Some(ranks), Ok(code)) => ranks.close().map(|()| code),
        // All ranks found the same error; rank 0 saves the best model and reports.
        (Some(ranks), Err(error)) if error.is_diverged() && ranks.rank() != 0 => {
            ranks.close().map(|()| ExitCode::FAILURE)
        }
        (Some(ranks), Err(error)) => {
            eprintln!("panoply: rank {}: {error}", ranks.rank());
            ranks.abort(1)
        }
        (None, done) => done,
    }
}

/// Returns true if this rank or another was asked to stop. All ranks must call it, after training.
pub fn any_stopped(ranks: Option<&RankGroup>, stopped: bool) -> Result<bool> {
    let mut stops = [f32::from(u8::from(stopped))];
    ranks.map_or(Ok(()), |ranks| ranks.all_reduce(&mut stops))?;
    Ok(stops[0] > 0.0)
}

/// Trains on several devices of this process: each is a rank with a thread of its own.
fn train_on_devices(arguments: &TrainCommand, list: &str) -> Result<ExitCode> {
    let choices = DeviceArgs::select_all(list)?;
    if choices.len() == 1 {
        return train(arguments, &choices, None);
    }
    // Before the other threads start: the first call decides whether Ctrl-C prints a message.
    progress::stop_flag(false)?;
    let run = |wire: ThreadWire| {
        let wire = Arc::new(wire);
        let group = RankGroup::new(wire.clone());
        let done = train(arguments, &choices, Some(&group));
        let done = done.map_err(|error| match group.rank() {
            0 => error,
            rank => error.note(format!("on {}", choices[rank].device().device_string())),
        });
        wire.end(done.as_ref().err());
        done
    };
    let names = choices.iter().map(|choice| choice.device().device_string().to_string()).collect();
    let mut wires = ThreadWire::connected_devices(names);
    let first = wires.remove(0);
    std::thread::scope(|threads| {
        let run = &run;
        let start = |wire: ThreadWire| {
            let thread = std::thread::Builder::new().stack_size(STACK).spawn_scoped(threads, move || run(wire));
            thread.map_err(|error| Error::io("cannot start a thread for a device", error))
        };
        let others = wires.into_iter().map(start).collect::<Result<Vec<_>>>()?;
        let done = run(first);
        let ended = others.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
        // Rank 0 has reported the error that ended it, which another may have passed on.
        let ended = ended.collect::<Vec<_>>().into_iter().find_map(Result::err);
        done.and_then(|code| ended.map_or(Ok(code), Err))
    })
}
