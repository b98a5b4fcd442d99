//! The sizes of a test run.

/// The size of a test run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// For use while working.
    Quick,
    /// All checks that a change must pass.
    Default,
    /// With the exhaustive sweeps.
    Full,
}
