//! Work on several queues gives the same results as in program order, for any execution order of the device.
//!
//! The reference is a host model that executes everything immediately in program order. The device under test defers its work and picks the
//! next command at random among all that queue order and waits allow.

mod exclusion;
use crate::support::test_device;

use std::collections::BTreeMap;

use panoply_ir::random::Random;
use panoply_ir::{DType, Error, ErrorKind};
use panoply_runtime::{Buffer, Command, Grid, Launch, LaunchArg, Queue};
use test_device::{Options, build_mix, build_step, test_device};

const ELEMS: usize = 24;

#[test]
fn queues_agree_with_program_order() {
    for seed in 0..400 {
        run(seed, 60, 12, 4);
    }
}

/// With a large backlog, the uses of one queue are merged.
#[test]
fn queues_agree_with_program_order_under_a_backlog() {
    for seed in 1000..1100 {
        run(seed, 300, 1, 10_000);
    }
}

/// Runs a random program over a few buffers with changing lifetimes, accessing up to `most` + 1 elements at a time.
fn run(seed: u64, steps: usize, most: u64, progress: u64) {
    let mut random = Random::new(seed);
    let (device, test_device) = test_device(Options { defer: Some(seed ^ 0x5EED), progress, ..Options::default() });
    let queues: Vec<Queue> =
        std::iter::once(device.default_queue()).chain((0..3).map(|_| device.queue().unwrap())).collect();
    let mut buffers: Vec<(Buffer<u32>, Vec<u32>)> = Vec::new();
    let mut readings = BTreeMap::new();
    for step in 0..steps {
        let queue = &queues[random.below(queues.len() as u64) as usize];
        if buffers.len() < 4 {
            let data: Vec<u32> = (0..ELEMS).map(|_| random.bits() as u32).collect();
            let mut buffer = device.empty(ELEMS).unwrap();
            buffer.write_on(queue, &data).unwrap();
            buffers.push((buffer, data));
            continue;
        }
        let at = random.below(buffers.len() as u64) as usize;
        let (mut target, mut model) = buffers.swap_remove(at);
        let (source, source_model) = &buffers[random.below(buffers.len() as u64) as usize];
        let start = random.below(ELEMS as u64 - most) as usize;
        let range = start..start + 1 + random.below(most) as usize;
        let pairs = || range.clone().map(|i| (i, source_model[i]));
        let dice = if progress > 100 { random.below(40) } else { random.below(8) };
        match dice {
            0 => {
                let data: Vec<u32> = range.clone().map(|_| random.bits() as u32).collect();
                target.slice_mut(range.clone()).unwrap().write_on(queue, &data).unwrap();
                model[range].copy_from_slice(&data);
            }
            1 => {
                let (from, mut to) = (source.slice(range.clone()).unwrap(), target.slice_mut(range.clone()).unwrap());
                let args = vec![LaunchArg::from(&*from), LaunchArg::from(&mut *to)];
                Launch::new(build_step, args).on(queue).launch(range.len()).unwrap();
                pairs().for_each(|(i, value)| model[i] = value.wrapping_mul(3).wrapping_add(1));
            }
            2 | 3 | 8.. => {
                let (from, mut to) = (source.slice(range.clone()).unwrap(), target.slice_mut(range.clone()).unwrap());
                let args = vec![LaunchArg::from(&*from), LaunchArg::from(&mut *to)];
                Launch::new(build_mix, args).on(queue).launch(range.len()).unwrap();
                pairs().for_each(|(i, value)| model[i] = model[i].wrapping_mul(5).wrapping_add(value));
            }
            4 => {
                let prepared = device.compile_fn(build_mix).unwrap();
                let args =
                    vec![LaunchArg::read(source.storage(), DType::U32), LaunchArg::write(target.storage(), DType::U32)];
                let fill = target.storage().slice(0..4).unwrap();
                let work = [
                    Command::Kernel { prepared: &prepared, grid: Grid::from(ELEMS), args },
                    Command::Fill { to: &fill, pattern: &[7] },
                ];
                device.submit_to(queue, &work).unwrap();
                (0..ELEMS).for_each(|i| model[i] = model[i].wrapping_mul(5).wrapping_add(source_model[i]));
                model[0] = 0x0707_0707;
            }
            5 => {
                // Dropped with work pending: the next buffer reuses its memory.
                continue;
            }
            6 => {
                readings.insert(step, (target.read_async_on(queue).unwrap(), model.clone()));
            }
            7 => assert_eq!(target.to_vec().unwrap(), model, "seed {seed}, step {step}"),
        }
        buffers.push((target, model));
    }
    for (step, (reading, model)) in readings {
        assert_eq!(reading.wait().unwrap(), model, "seed {seed}, reading of step {step}");
    }
    for (buffer, model) in buffers {
        assert_eq!(buffer.to_vec().unwrap(), model, "seed {seed}, at the end");
    }
    drop(queues);
    assert_eq!(device.memory_stats().buffers, 0, "seed {seed}");
    device.synchronize().unwrap();
    drop(device);
    let state = test_device.state();
    assert!(state.live.is_empty() && state.programs.is_empty(), "seed {seed}: everything was released");
}

#[test]
fn reads_do_not_wait_for_each_other() {
    let (device, test_device) = test_device(Options { defer: Some(1), ..Options::default() });
    let x = device.buffer(&[1u32; ELEMS]).unwrap();
    device.synchronize().unwrap();
    let (one, two) = (device.queue().unwrap(), device.queue().unwrap());
    let before = test_device.counts().submissions;
    let (first, second) = (x.read_async_on(&one).unwrap(), x.read_async_on(&two).unwrap());
    assert_eq!(test_device.counts().submissions - before, 2, "two reads, no wait");
    assert_eq!(second.wait().unwrap(), first.wait().unwrap());
}

#[test]
fn halves_of_a_buffer_are_independent() {
    let (device, test_device) = test_device(Options { defer: Some(2), ..Options::default() });
    let mut x = device.buffer(&[1u32; 2 * ELEMS]).unwrap();
    device.synchronize().unwrap();
    let queues = [device.queue().unwrap(), device.queue().unwrap()];
    let source = device.buffer(&[2u32; ELEMS]).unwrap();
    device.synchronize().unwrap();
    device.compile_fn(build_step).unwrap();
    let before = test_device.counts().submissions;
    let (mut low, mut high) = x.split_at_mut(ELEMS).unwrap();
    for (half, queue) in [&mut *low, &mut *high].into_iter().zip(&queues) {
        Launch::new(build_step, vec![(&source).into(), half.into()]).on(queue).launch(ELEMS).unwrap();
    }
    assert_eq!(test_device.counts().submissions - before, 2, "two launches, no wait");
    assert_eq!(x.to_vec().unwrap(), [7; 2 * ELEMS]);
}

#[test]
fn events_order_queues() {
    let (device, _) = test_device(Options { defer: Some(3), ..Options::default() });
    let (one, two) = (device.queue().unwrap(), device.queue().unwrap());
    let mut x = device.zeros::<u32>(ELEMS).unwrap();
    let source = device.buffer(&[1u32; ELEMS]).unwrap();
    let event = Launch::new(build_mix, vec![(&source).into(), (&mut x).into()]).on(&one).launch_timed(ELEMS).unwrap();
    two.wait_event(&event).unwrap();
    let mark = two.record_event().unwrap();
    mark.wait().unwrap();
    assert!(event.is_done().unwrap());
    assert_eq!(event.elapsed_time().unwrap().unwrap().as_nanos(), 1000);
}

#[test]
fn failed_work_poisons_its_outputs() {
    let (device, test_device) = test_device(Options { defer: Some(4), ..Options::default() });
    let source = device.buffer(&[1u32; ELEMS]).unwrap();
    let mut x = device.buffer(&[2u32; ELEMS]).unwrap();
    device.synchronize().unwrap();
    test_device.state().fail_step = Some(Error::new(ErrorKind::Driver, "test device: the step failed"));
    Launch::new(build_mix, vec![(&source).into(), (&mut x).into()]).launch(ELEMS).unwrap();

    let error = x.to_vec().unwrap_err();
    assert_eq!(error.message(), "test device: the step failed");
    assert_eq!(error.notes(), ["the work that should have written this buffer failed; write it again"]);
    let mut other = device.zeros(ELEMS).unwrap();
    let launch = |x: &Buffer<u32>, y: &mut Buffer<u32>| Launch::new(build_mix, vec![x.into(), y.into()]).launch(ELEMS);
    assert_eq!(launch(&x, &mut other).unwrap_err().message(), "test device: the step failed");
    assert_eq!(source.to_vec().unwrap(), [1; ELEMS], "its inputs are intact");

    x.write(&[3; ELEMS]).unwrap();
    assert_eq!(x.to_vec().unwrap(), [3; ELEMS], "overwriting clears the failure");
    launch(&x, &mut other).unwrap();
    assert_eq!(other.to_vec().unwrap(), [3; ELEMS]);
}

#[test]
fn memory_of_failed_work_is_usable_after_reuse() {
    let (device, test_device) = test_device(Options { defer: Some(5), ..Options::default() });
    let source = device.buffer(&[1u32; ELEMS]).unwrap();
    let mut x = device.buffer(&[2u32; ELEMS]).unwrap();
    device.synchronize().unwrap();
    test_device.state().fail_step = Some(Error::new(ErrorKind::Driver, "test device: the step failed"));
    Launch::new(build_mix, vec![(&source).into(), (&mut x).into()]).launch(ELEMS).unwrap();
    drop(x);
    let next: Buffer<u32> = device.empty(ELEMS).unwrap();
    assert_eq!(device.memory_stats().reused, 1);
    next.to_vec().unwrap();
}
