//! The conformance suite: tests that every device must pass.
//!
//! The contract defines the requests; the suite defines the required results. Kernels are built in IR, so one suite serves every
//! language: the `render` argument converts a kernel into the device's program.
//!
//! A case has a name, **requirements** ([`Requirement`]), and a body that returns an error with the expected result. A device that does
//! not meet the requirements skips the case; [`report`] prints the reason.
//!
//! The expected values are computed in Rust from a few integers. The suite tests that a device runs the right program at the right time
//! on the right memory. The random-kernel tests check that programs implement the IR's semantics.

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

/// Converts a kernel into the device's program.
pub type Render<'a> = &'a (dyn Fn(&Arc<Verified<Kernel>>, &Target) -> Result<Program> + Sync);

/// A test case of the suite.
#[derive(Clone, Copy)]
pub struct Case {
    /// Short unique description of the tested property.
    pub name: &'static str,
    /// Requirements of the case.
    pub needs: &'static [Requirement],
    run: fn(&Bench<'_>) -> Result<()>,
}

/// A property that some devices lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Requirement {
    /// The device executes programs instead of only recording them.
    Computing,
    /// Work-groups of 16 work-items with shared memory.
    Groups,
    /// Work-groups of 32 work-items, and shared memory for their matrix products.
    Mma,
    /// Out-of-bounds loads return zero and out-of-bounds stores are dropped, instead of being reported.
    BoundsGuards,
    /// Programs are source text, which can fail to compile.
    Text,
    /// Concurrent calls from several threads.
    Threads,
    /// Half a gigabyte of memory, addressed bit by bit.
    LargeMemory,
}

/// Result of a case.
#[derive(Clone, Debug)]
pub enum CaseResult {
    /// The device passed.
    Passed,
    /// The case was skipped for this reason.
    Skipped(String),
    /// The device failed with this error.
    Failed(Error),
}

/// A case's name and result.
#[derive(Clone, Debug)]
pub struct CaseOutcome {
    /// Name of the case.
    pub name: &'static str,
    /// Result of the case.
    pub verdict: CaseResult,
}

/// Returns every case in execution order; later cases rely on what earlier ones test.
pub fn cases() -> Vec<Case> {
    [memory::CASES, programs::CASES, dispatch::CASES, together::CASES, matrices::CASES, order::CASES, replay::CASES]
        .concat()
}

/// Runs every case except those for which `skip` returns a reason, each when the iterator reaches it: if a driver crashes the process, the
/// outcomes of the cases before are known.
pub fn run_all<'a>(
    device: &'a dyn RawDevice,
    render: Render<'a>,
    skip: impl Fn(&Case) -> Option<String> + 'a,
) -> impl Iterator<Item = CaseOutcome> + 'a {
    let run = move |case: Case| {
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
    cases().into_iter().map(run)
}

/// Returns the requirement that the device lacks according to its own description, if any.
fn lacks(device: &dyn RawDevice, case: &Case) -> Option<String> {
    let (target, checked) = (device.target(), device.info().variant.as_deref() == Some("checked"));
    let lack = |need: &Requirement| match need {
        Requirement::Groups if target.max_group[0] < 16 || target.shared_bytes < 64 => {
            Some("it has no work-groups of 16".to_string())
        }
        Requirement::Mma if target.max_group[0].min(target.max_group_items) < 32 || target.shared_bytes < 1024 => {
            Some("it has no work-groups of 32".to_string())
        }
        Requirement::Text if target.language == panoply_ir::target::Language::Ir => {
            Some("it accepts no source text".to_string())
        }
        Requirement::BoundsGuards if checked => Some("it reports out-of-bounds accesses".to_string()),
        Requirement::Groups | Requirement::Mma | Requirement::BoundsGuards | Requirement::Text => None,
        Requirement::Computing | Requirement::Threads | Requirement::LargeMemory => None,
    };
    case.needs.iter().find_map(lack)
}

/// Returns one line per skipped case and the number of passed ones.
///
/// # Errors
/// A case failed; the error lists every failure.
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

/// Creates the error of a failed case.
fn broken(what: impl fmt::Display) -> Error {
    Error::new(ErrorKind::Driver, what.to_string())
}

/// Returns an error unless `found` equals `expected`.
fn expect<T: PartialEq + fmt::Debug>(what: impl fmt::Display, found: T, expected: T) -> Result<()> {
    match found == expected {
        true => Ok(()),
        false => Err(broken(format_args!("{what}: expected {expected:?}, found {found:?}"))),
    }
}

/// Returns an error with the first difference unless both slices are equal.
fn expect_all<T: PartialEq + fmt::Debug>(what: impl fmt::Display, found: &[T], expected: &[T]) -> Result<()> {
    expect(format_args!("{what}: length"), found.len(), expected.len())?;
    match found.iter().zip(expected).position(|(found, expected)| found != expected) {
        None => Ok(()),
        Some(i) => expect(format_args!("{what}: element {i}"), &found[i], &expected[i]),
    }
}

#[cfg(test)]
mod tests;
