//! What every device must do, as tests that are given a device and a renderer.
//!
//! The contract says what a device is asked; this says what it must answer. Kernels are built in IR, so one suite serves
//! every language: the `render` that it is given makes the device's program of a kernel. Whoever brings both together runs
//! it on every device there is.
//!
//! A case has a name, what it **needs** ([`Requirement`]), and a body that returns an error that says what was expected. A device
//! that lacks what a case needs skips it, with the reason; nothing is skipped in silence ([`report`]).
//!
//! The oracle is arithmetic in Rust over a few integers: the suite tests that a device runs what it is given where and when
//! it is told, not that programs mean what the IR says, which is the business of random kernels.

mod bench;
mod dispatch;
mod kernels;
mod matrices;
mod memory;
mod order;
mod programs;
mod replay;
mod together;

use std::fmt;
use std::sync::Arc;

use panoply_ir::kernel::Kernel;
use panoply_ir::{Error, ErrorKind, Result, Target, Verified};

use crate::driver_api::RawDevice;
use crate::program::Program;
use bench::Bench;

/// Makes a device's program of a kernel.
pub type Render<'a> = &'a (dyn Fn(&Arc<Verified<Kernel>>, &Target) -> Result<Program> + Sync);

/// One thing a device must do.
#[derive(Clone, Copy)]
pub struct Case {
    /// What it must do, in a few words; unique.
    pub name: &'static str,
    /// What a device must have for it.
    pub needs: &'static [Requirement],
    run: fn(&Bench<'_>) -> Result<()>,
}

/// What some devices lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Requirement {
    /// Programs run, rather than being recorded.
    Computing,
    /// Groups of 16 work-items with shared memory.
    Groups,
    /// Groups of 32 work-items and the shared memory that products of their matrices take.
    Mma,
    /// Accesses beyond a buffer's end give zero or are dropped, rather than being reported.
    BoundsGuards,
    /// Programs are text, which can be wrong.
    Text,
    /// Calls from several threads at once.
    Threads,
    /// Half a gigabyte, bit by bit.
    LargeMemory,
}

/// How a case ended.
#[derive(Clone, Debug)]
pub enum CaseResult {
    /// The device did it.
    Passed,
    /// It was not asked, for this reason.
    Skipped(String),
    /// It did not, or answered with this error.
    Failed(Error),
}

/// A case and how it ended.
#[derive(Clone, Debug)]
pub struct CaseOutcome {
    /// The case's name.
    pub name: &'static str,
    /// How it ended.
    pub verdict: CaseResult,
}

/// Every case, in the order in which they run: what later ones build on comes first.
pub fn cases() -> Vec<Case> {
    [memory::CASES, programs::CASES, dispatch::CASES, together::CASES, matrices::CASES, order::CASES, replay::CASES]
        .concat()
}

/// Runs every case but those that `skip` has a reason to leave out.
pub fn run_all(device: &dyn RawDevice, render: Render<'_>, skip: &dyn Fn(&Case) -> Option<String>) -> Vec<CaseOutcome> {
    let run = |case: Case| {
        let why = skip(&case).or_else(|| lacks(device, &case));
        let verdict = match why {
            Some(why) => CaseResult::Skipped(why),
            None => match (case.run)(&Bench { device, render }) {
                Ok(()) => CaseResult::Passed,
                Err(error) => CaseResult::Failed(error),
            },
        };
        CaseOutcome { name: case.name, verdict }
    };
    cases().into_iter().map(run).collect()
}

/// What a device itself says it cannot do.
fn lacks(device: &dyn RawDevice, case: &Case) -> Option<String> {
    let (target, checked) = (device.target(), device.info().variant.as_deref() == Some("checked"));
    let lack = |need: &Requirement| match need {
        Requirement::Groups if target.max_group[0] < 16 || target.shared_bytes < 64 => {
            Some("it has no groups of 16".to_string())
        }
        Requirement::Mma if target.max_group[0].min(target.max_group_items) < 32 || target.shared_bytes < 1024 => {
            Some("it has no groups of 32".to_string())
        }
        Requirement::Text if target.language == panoply_ir::target::Language::Ir => {
            Some("it takes no text".to_string())
        }
        Requirement::BoundsGuards if checked => Some("it reports what guards would drop".to_string()),
        Requirement::Groups | Requirement::Mma | Requirement::BoundsGuards | Requirement::Text => None,
        Requirement::Computing | Requirement::Threads | Requirement::LargeMemory => None,
    };
    case.needs.iter().find_map(lack)
}

/// One line for every skipped case and a count of the others, or an error that names every failure.
pub fn report(device: &dyn RawDevice, outcomes: &[CaseOutcome]) -> Result<String> {
    let name = format!("{} ({})", device.info().device_string(), device.info().name);
    let mut lines = String::new();
    let (mut passed, mut failures) = (0, Vec::new());
    for CaseOutcome { name: case, verdict } in outcomes {
        match verdict {
            CaseResult::Passed => passed += 1,
            CaseResult::Skipped(why) => lines += &format!("SKIPPED: conformance of {name}: {case}: {why}\n"),
            CaseResult::Failed(error) => failures.push(format!("{case}: {error}")),
        }
    }
    if failures.is_empty() {
        return Ok(format!("{lines}conformance of {name}: {passed} of {} cases passed", outcomes.len()));
    }
    let message = format!("{name} fails {} of {} conformance cases", failures.len(), outcomes.len());
    Err(failures.into_iter().fold(Error::new(ErrorKind::Driver, message), Error::note))
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.name, self.needs)
    }
}

/// A broken promise, as the error of a case.
fn broken(what: impl fmt::Display) -> Error {
    Error::new(ErrorKind::Driver, what.to_string())
}

/// Holds if `found` is what was expected.
fn expect<T: PartialEq + fmt::Debug>(what: impl fmt::Display, found: T, expected: T) -> Result<()> {
    match found == expected {
        true => Ok(()),
        false => Err(broken(format_args!("{what}: expected {expected:?}, found {found:?}"))),
    }
}

/// Holds if two long lists are equal; names the first difference.
fn expect_all<T: PartialEq + fmt::Debug>(what: impl fmt::Display, found: &[T], expected: &[T]) -> Result<()> {
    expect(format_args!("{what}: length"), found.len(), expected.len())?;
    match found.iter().zip(expected).position(|(found, expected)| found != expected) {
        None => Ok(()),
        Some(i) => expect(format_args!("{what}: element {i}"), &found[i], &expected[i]),
    }
}

#[cfg(test)]
mod tests;
