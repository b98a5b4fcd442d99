//! What a tensor carries in place of a value when its expression makes no sense.
//!
//! Whoever first asks is told. A program that never asks goes on without what it meant to compute, and without a word it would never be known
//! why: what nobody was told of is logged when the last who could have asked has gone.

use std::sync::atomic::{AtomicBool, Ordering};

use panoply_ir::Error;
use panoply_runtime::log;

use crate::tensor::Tensor;

/// What the caller did wrong, and whether anybody was told.
pub(crate) struct Mistake {
    error: Error,
    told: AtomicBool,
}

impl Mistake {
    pub fn new(error: Error) -> Mistake {
        Mistake { error, told: AtomicBool::new(false) }
    }

    /// The error, for who asks for a result.
    pub fn report(&self) -> Error {
        self.told.store(true, Ordering::Relaxed);
        self.error.clone()
    }

    /// Its sentence, for what else is said of the tensor.
    pub fn message(&self) -> &str {
        self.error.message()
    }
}

impl Tensor {
    /// The leftmost mistake among operands. It stands for the others, which are not logged: who mends it meets the next.
    pub(crate) fn leftmost<'t>(operands: impl IntoIterator<Item = &'t Tensor>) -> Option<Tensor> {
        let mut mistakes = operands.into_iter().filter(|operand| operand.is_mistake());
        let first = mistakes.next()?;
        mistakes.filter(|other| !other.ptr_eq(first)).for_each(|other| drop(other.check()));
        Some(first.clone())
    }
}

impl Drop for Mistake {
    fn drop(&mut self) {
        if !*self.told.get_mut() {
            let lines = || self.error.to_string().lines().map(str::trim).collect::<Vec<&str>>().join("; ");
            log::warn(|| format!("a mistake that nobody was told of: {}", lines()));
        }
    }
}
