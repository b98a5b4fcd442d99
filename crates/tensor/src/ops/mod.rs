//! Every operation, as an expression over the primitives.
//!
//! [`elementwise`], [`view`], [`reduce`], [`scan`], [`linalg`] and [`index`] each wrap primitives and check operands.
//! The operations in the other modules are composed of them: one expression makes each available on every device,
//! fused and differentiable.

// In the order of a tensor's page: creation, arithmetic, reductions, products, then the others.
pub mod create;

pub mod elementwise;

pub mod reduce;

pub mod linalg;

pub mod view;

pub mod activation;
pub mod attention;
pub mod axes;
pub mod conv;
pub mod ctc;
pub mod einsum;
pub mod fft_options;
pub mod fourier;
pub mod functions;
pub mod index;
pub mod interpolate;
pub mod linalg_factor;
pub mod loss;
pub mod norm;
pub mod operand;
pub mod pool;
pub mod rearrange;
pub mod scan;
pub mod sort;
pub mod window;
