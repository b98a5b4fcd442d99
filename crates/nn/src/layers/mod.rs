//! The layers, one file each.

mod dropout;
mod linear;
mod mlp;

pub use dropout::Dropout;
pub use linear::Linear;
pub use mlp::Mlp;
