//! The items that most programs import: `use panoply::prelude::*;`.

pub use crate::kernel::Float;
pub use crate::{Buffer, Device, Element, Error, Queue, Result, bf16, f16, kernel, kernel_fn};
