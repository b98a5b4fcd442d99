//! Every operation, as an expression over the primitives.
//!
//! [`elementwise`], [`view`], [`reduce`], [`scan`], [`linalg`] and [`index`] wrap a primitive each and check its operands;
//! everything in the other files is composed of those and exists on every device, fused and differentiable, from its one
//! expression.

pub mod activation;
pub mod attention;
pub mod conv;
pub mod create;
pub mod ctc;
pub mod einsum;
pub mod elementwise;
pub mod fft_options;
pub mod fourier;
pub mod functions;
pub mod index;
pub mod interpolate;
pub mod linalg;
pub mod linalg_factor;
pub mod loss;
pub mod norm;
pub mod pool;
pub mod rearrange;
pub mod reduce;
pub mod scan;
pub mod sort;
pub mod view;
pub mod window;
