//! Which of several kernels that do the same is the fastest on a device: measured once, and remembered beside the programs.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use panoply_ir::kernel::Kernel;
use panoply_ir::{Result, Verified};
use web_time::Instant;

use super::command::Command;
use super::{Grid, LaunchArg};
use crate::device::Device;
use crate::log;
use crate::program::compiled_kernel::CompiledKernel;

/// Runs of each that are timed, of which the shortest counts.
const RUNS: usize = 5;

impl Device {
    /// Runs the fastest of these kernels, all of which give the same bits of these arguments, and says which it is, ready to launch.
    ///
    /// They are measured unless an earlier call or an earlier process did that. What they read they may not change: each runs several times.
    pub fn run_fastest(
        &self,
        candidates: &[(&Arc<Verified<Kernel>>, Grid)],
        args: &[LaunchArg<'_>],
    ) -> Result<(Arc<CompiledKernel>, Grid)> {
        let hashes: Vec<u128> = candidates.iter().map(|(kernel, _)| panoply_ir::hash(kernel)).collect();
        let mut described = format!("fastest\0{}", self.target().name);
        for (hash, (_, Grid(grid))) in hashes.iter().zip(candidates) {
            let _ = write!(described, "\0{hash:032x} {grid:?}");
        }
        let fastest = self.programs().fastest(&described);
        if let Some(at) = fastest.and_then(|fastest| hashes.iter().position(|hash| *hash == fastest)) {
            let (kernel, grid) = candidates[at];
            let prepared = self.compile(kernel)?;
            self.submit(&[Command::Kernel { prepared: &prepared, grid, args: args.to_vec() }])?;
            return Ok((prepared, grid));
        }
        let mut best: Option<(Duration, usize, Arc<CompiledKernel>)> = None;
        for (at, (kernel, grid)) in candidates.iter().enumerate() {
            // What the device does not take, or cannot run, is none that could be chosen; but the first must run.
            let timed =
                self.compile(kernel).and_then(|prepared| Ok((self.shortest(&prepared, *grid, args)?, prepared)));
            match (timed, &best) {
                (Err(error), None) => return Err(error),
                (Err(error), Some(_)) if error.is_device_lost() => return Err(error),
                (Ok((time, _)), Some((least, ..))) if time >= *least => {}
                (Ok((time, prepared)), _) => best = Some((time, at, prepared)),
                (Err(_), Some(_)) => {}
            }
        }
        let (time, at, prepared) = best.expect("there is a first");
        log::debug(|| format!("{self}: {} is fastest as number {at} of {}: {time:.1?}", prepared.name(), hashes.len()));
        self.programs().keep_fastest(described, hashes[at]);
        Ok((prepared, candidates[at].1))
    }

    /// The shortest of some runs, by the device's clock if it has one.
    fn shortest(&self, prepared: &Arc<CompiledKernel>, grid: Grid, args: &[LaunchArg<'_>]) -> Result<Duration> {
        let work = [Command::Kernel { prepared, grid, args: args.to_vec() }];
        let queue = self.default_queue();
        let mut shortest = Duration::MAX;
        // The first run also pays for what is done only once.
        for run in 0..=RUNS {
            let start = Instant::now();
            let event = self.submit_to(&queue, &work, true)?;
            event.wait()?;
            let time = event.elapsed_time()?.unwrap_or_else(|| start.elapsed());
            shortest = if run == 0 { shortest } else { shortest.min(time) };
        }
        Ok(shortest)
    }
}
