//! Every operation, as an expression over the primitives.
//!
//! [`elementwise`], [`movement`], [`reduce`], [`running`], [`linalg`] and [`index`] wrap a primitive each and check its operands;
//! everything in the other files is composed of those and exists on every device, fused and differentiable, from its one
//! expression.

pub mod activation;
pub mod arrange;
pub mod attention;
pub mod conv;
pub mod create;
pub mod ctc;
pub mod einsum;
pub mod elementwise;
pub mod factor;
pub mod fourier;
pub mod functions;
pub mod index;
pub mod linalg;
pub mod loss;
pub mod movement;
pub mod norm;
pub mod pool;
pub mod reduce;
pub mod resize;
pub mod running;
pub mod sort;
pub mod spectrum;
pub mod window;
