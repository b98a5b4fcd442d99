//! Every operation, as an expression over the primitives.
//!
//! [`elementwise`], [`movement`], [`reduce`], [`linalg`] and [`index`] wrap a primitive each and check its operands;
//! everything in [`activation`], [`norm`] and [`loss`] is composed of those and exists on every device, fused and
//! differentiable, from its one expression.

pub mod activation;
pub mod create;
pub mod elementwise;
pub mod index;
pub mod linalg;
pub mod loss;
pub mod movement;
pub mod norm;
pub mod reduce;
