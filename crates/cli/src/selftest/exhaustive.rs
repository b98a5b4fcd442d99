//! `panoply selftest --exhaustive`: checks the guaranteed error bounds of float operations at every input, with a progress line.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use clap::Args;
use clap::builder::PossibleValuesParser;
use indicatif::{ProgressBar, ProgressStyle};
use panoply::internal::conformance::Outcome;
use panoply::internal::conformance::exhaustive::{Sweep, sweeps};
use panoply::{Device, Error, Result};

use crate::console;

/// Options of the exhaustive checks.
#[derive(Args)]
pub struct ExhaustiveArgs {
    /// In the suite `functions`, check the error bound of every float operation at all f16, bf16 and f32 inputs, and at boundaries of
    /// two inputs, instead of samples of the functions; takes tens of minutes
    #[arg(long)]
    pub exhaustive: bool,
    /// Check only these operations with `--exhaustive`; `--suite functions` leaves out the other suites [default: all]
    #[arg(long, requires = "exhaustive", value_name = "NAME", value_delimiter = ',', value_parser = operations())]
    operations: Vec<String>,
    /// Check only these element types with `--exhaustive` [default: all]
    #[arg(long, requires = "exhaustive", value_name = "DTYPE", value_delimiter = ',', value_parser = ["f16", "bf16", "f32"])]
    dtypes: Vec<String>,
}

/// Returns the names of the operations that can be checked.
fn operations() -> PossibleValuesParser {
    let mut names: Vec<&'static str> = Vec::new();
    for sweep in sweeps() {
        if !names.contains(&sweep.name) {
            names.push(sweep.name);
        }
    }
    PossibleValuesParser::new(names)
}

impl ExhaustiveArgs {
    fn selects(&self, sweep: &Sweep) -> bool {
        (self.operations.is_empty() || self.operations.iter().any(|name| name == sweep.name))
            && (self.dtypes.is_empty() || self.dtypes.contains(&sweep.dtype.to_string()))
    }

    /// Checks that the operations and element types select a check.
    ///
    /// # Errors
    /// If they select none.
    pub fn check(&self) -> Result<()> {
        match sweeps().iter().any(|sweep| self.selects(sweep)) {
            true => Ok(()),
            false => {
                let (operations, dtypes) = (self.operations.join(", "), self.dtypes.join(", "));
                Err(Error::mistake(format!("--exhaustive does not check {operations} in {dtypes}")))
            }
        }
    }

    /// Runs the selected checks on a device and calls `on_outcome` after each.
    pub fn run(&self, device: &Device, on_outcome: &mut dyn FnMut(Outcome)) {
        let selected: Vec<Sweep> = sweeps().into_iter().filter(|sweep| self.selects(sweep)).collect();
        let total: u64 = selected.iter().map(Sweep::len).sum();
        let bar = bar();
        let (started, mut before) = (Instant::now(), 0);
        for sweep in &selected {
            let mut show = |done: u64| bar.set_message(progress_line(sweep, before + done, total, started.elapsed()));
            let outcome = sweep.run(device, &mut show);
            before += sweep.len();
            bar.suspend(|| on_outcome(outcome));
        }
        bar.finish_and_clear();
    }
}

/// Creates a progress line on stderr, hidden under `--quiet` and without a terminal.
fn bar() -> ProgressBar {
    if console::is_quiet() || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{msg}").unwrap_or_else(|_| ProgressStyle::default_spinner());
    ProgressBar::new_spinner().with_style(style)
}

/// Returns the progress line: `exp, f32: 12.3 % of 9.4e10 inputs · 74 M/s · 21 min left`.
fn progress_line(sweep: &Sweep, done: u64, total: u64, elapsed: Duration) -> String {
    let rate = done as f64 / elapsed.as_secs_f64().max(1e-9);
    let left = (total - done.min(total)) as f64 / rate.max(1.0);
    let fraction = 100.0 * done as f64 / total.max(1) as f64;
    let (name, dtype, millions) = (&sweep.name, sweep.dtype, rate / 1e6);
    format!(
        "{name}, {dtype}: {fraction:.1} % of {:.1e} inputs · {millions:.0} M/s · {:.0} min left",
        total as f64,
        left / 60.0
    )
}
