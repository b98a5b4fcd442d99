//! Correctly rounded conversions to 16-bit floats from types that f32 does not represent exactly. Languages convert
//! through f32 and would round twice. Here the f32 is rounded to odd instead, so that only the second rounding counts.
//!
//! Source: Boldo and Melquiond, Emulation of a FMA and Correctly Rounded Sums: Proved Algorithms Using Rounding to Odd, 2008.

use panoply_ir::interpret::scalar;
use panoply_ir::kernel::ExprId;
use panoply_ir::{DType, Type};

use super::value::V;

/// Returns true if a conversion through f32 rounds twice. An index is never converted to a 16-bit float.
pub fn rounds_twice(from: Type, to: Type) -> bool {
    matches!((from.dtype(), to.dtype()), (Some(from), Some(to)) if scalar::rounds_twice(from, to))
}

/// Converts to the nearest 16-bit floats.
pub fn cast(x: V<'_>, to: Type) -> ExprId {
    let (from, to) = (x.dtype(), to.dtype().expect("the target of a conversion has an element type"));
    let near = x.cast(DType::F32);
    let back = near.cast(from);
    // True if the f32 is farther from 0.
    let beyond = match from.is_float() {
        true => x.abs().lt(back.abs()),
        false if from.is_signed() => x.lt(x.integer(0)).then(back.lt(x), x.lt(back)),
        false => x.lt(back),
    };
    let bits = near.bits();
    let (zero, one) = (bits.integer(0), bits.integer(1));
    let truncated = bits - beyond.then(one, zero);
    (truncated | back.equal(x).then(zero, one)).float().cast(to).id
}
