//! Autotuning: measures once which of several equivalent kernels is the fastest, and saves the choice with the compiled programs.

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

/// Number of timed runs per kernel; the shortest counts.
const RUNS: usize = 5;

impl Device {
    /// Runs the fastest of several kernels that compute bitwise equal results from these arguments, and returns it.
    ///
    /// They are measured unless this or an earlier process did so before. The kernels must not modify their inputs, because each runs
    /// several times.
    ///
    /// # Errors
    /// The first kernel does not compile or run, or the device is lost.
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
            // Candidates that do not compile or run are skipped; the first must run.
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
        let (time, at, prepared) = best.expect("there is at least one candidate");
        log::debug(|| format!("{self}: {} is fastest as number {at} of {}: {time:.1?}", prepared.name(), hashes.len()));
        self.programs().keep_fastest(described, hashes[at]);
        Ok((prepared, candidates[at].1))
    }

    /// Returns the shortest of several runs, on the device's clock if it has one.
    fn shortest(&self, prepared: &Arc<CompiledKernel>, grid: Grid, args: &[LaunchArg<'_>]) -> Result<Duration> {
        let work = [Command::Kernel { prepared, grid, args: args.to_vec() }];
        let queue = self.default_queue();
        let mut shortest = Duration::MAX;
        // The first run includes one-time costs and is not timed.
        for run in 0..=RUNS {
            let start = Instant::now();
            let event = self.submit_timed(&queue, &work)?;
            event.wait()?;
            let time = event.elapsed_time()?.unwrap_or_else(|| start.elapsed());
            shortest = if run == 0 { shortest } else { shortest.min(time) };
        }
        Ok(shortest)
    }
}
