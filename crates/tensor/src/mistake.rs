//! The error that a tensor carries in place of a value.
//!
//! The first read of a result returns the error. A program that never reads the result would lose it silently;
//! therefore an error that was never reported is logged when the last handle to its tensor is dropped.

use std::sync::atomic::{AtomicBool, Ordering};

use panoply_ir::Error;
use panoply_runtime::log;

use crate::tensor::Tensor;

/// An error of the caller, and whether it was reported.
pub(crate) struct Mistake {
    error: Error,
    reported: AtomicBool,
}

impl Mistake {
    pub fn new(error: Error) -> Mistake {
        Mistake { error, reported: AtomicBool::new(false) }
    }

    /// Returns the error and marks it as reported.
    pub fn report(&self) -> Error {
        self.reported.store(true, Ordering::Relaxed);
        self.error.clone()
    }

    /// Returns the message, for the `Debug` output of the tensor.
    pub fn message(&self) -> &str {
        self.error.message()
    }
}

impl Tensor {
    /// Returns the leftmost mistake among the operands. The other mistakes are marked as reported and not logged:
    /// once the first is fixed, the next is reported.
    pub(crate) fn leftmost<'t>(operands: impl IntoIterator<Item = &'t Tensor>) -> Option<Tensor> {
        let mut mistakes = operands.into_iter().filter(|operand| operand.is_mistake());
        let first = mistakes.next()?;
        mistakes.filter(|other| !other.ptr_eq(first)).for_each(|other| drop(other.check()));
        Some(first.clone())
    }
}

impl Drop for Mistake {
    fn drop(&mut self) {
        if !*self.reported.get_mut() {
            let lines = || self.error.to_string().lines().map(str::trim).collect::<Vec<&str>>().join("; ");
            log::warn(|| format!("a mistake was never reported: {}", lines()));
        }
    }
}
