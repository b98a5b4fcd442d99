//! Guaranteed error bounds of float operations: the numeric contract, by operation, element type and target language.
//!
//! Bounds are in units in the last place (ULP) of the result's type and hold for all operands, including infinities, NaN and overflow: an
//! infinite result counts as the number that follows the largest finite one. They are those of the operands that the device uses, which can
//! be zeros in place of subnormal numbers ([`flushes_subnormals`]). `panoply selftest --exhaustive` tests them on a device, and
//! proofs about the arithmetic of devices rely on them. f64 has no bound, because its operands are too many to try.

use crate::alu::{Alu, Math};
use crate::dtype::DType;
use crate::target::Language;

/// Bound of our own implementations of transcendental functions in f32, which were tested for every operand.
pub const FUNCTION_ULPS: f64 = 2.0;

/// Bound of a correctly rounded result.
pub const ROUNDED: f64 = 0.5;

/// Languages in which kernels are compiled.
const LANGUAGES: [Language; 6] =
    [Language::Ir, Language::OpenClC, Language::Hip, Language::Ptx { capability: 0 }, Language::Wgsl, Language::SpirV];

/// Returns the largest error of an operation in ULP of its type; 0 for an exact one, `None` without a guarantee.
///
/// For the functions of OpenCL drivers these are the limits of the OpenCL specification (OpenCL C 1.2, table 7.4, full profile), for
/// quotients also those of Vulkan. Vulkan limits the error of a quotient only for divisors from 2⁻¹²⁶ to 2¹²⁶; larger divisors are scaled in
/// the WGSL of a kernel.
pub fn guaranteed(op: Alu, dtype: DType, language: Language) -> Option<f64> {
    let single = single(op, language)?;
    match dtype {
        DType::F32 => Some(single),
        DType::F16 | DType::BF16 => Some(rounded_from_single(op, single, dtype)),
        _ => None,
    }
}

/// Returns the largest of the bounds of all languages.
pub fn guaranteed_everywhere(op: Alu, dtype: DType) -> Option<f64> {
    LANGUAGES
        .into_iter()
        .map(|language| guaranteed(op, dtype, language))
        .try_fold(0.0, |most, one| Some(one?.max(most)))
}

/// Returns true if kernels in this language can replace subnormal operands and results in f32 by zeros.
pub fn flushes_subnormals(language: Language) -> bool {
    match language {
        Language::OpenClC | Language::Wgsl | Language::SpirV | Language::CudaC | Language::Msl => true,
        Language::Ir | Language::Hip | Language::Ptx { .. } => false,
    }
}

/// Returns the largest error in f32.
fn single(op: Alu, language: Language) -> Option<f64> {
    let (is_driver, is_rounded) = match language {
        Language::OpenClC | Language::SpirV => (true, false),
        Language::Wgsl => (false, false),
        Language::Ir | Language::Hip | Language::Ptx { .. } => (false, true),
        Language::CudaC | Language::Msl => return None,
    };
    Some(match op {
        Alu::Neg | Alu::Abs | Alu::Floor | Alu::Ceil | Alu::Round | Alu::Trunc | Alu::Min | Alu::Max | Alu::Select => {
            0.0
        }
        Alu::Add | Alu::Sub | Alu::Mul | Alu::Fma => ROUNDED,
        Alu::Div if !is_rounded => 2.5,
        // Vulkan: a quotient of 2.5 ULP by an inverse root of 2 ULP, which is up to twice as much near a power of two.
        Alu::Sqrt if language == Language::Wgsl => 6.5,
        Alu::Sqrt if !is_rounded => 3.0,
        Alu::Div | Alu::Sqrt => ROUNDED,
        Alu::Math(function) if is_driver => driver_function(function),
        Alu::Pow if is_driver => 16.0,
        Alu::Math(function) if !is_rounded => ours_with_quotient(function),
        Alu::Math(_) | Alu::Pow => FUNCTION_ULPS,
        _ => return None,
    })
}

fn driver_function(function: Math) -> f64 {
    match function {
        Math::Exp | Math::Exp2 | Math::Log | Math::Log2 | Math::Expm1 => 3.0,
        Math::Log1p => 2.0,
        Math::Sin | Math::Cos => 4.0,
        Math::Tan | Math::Atan => 5.0,
        Math::Erf => 16.0,
        // Ours on these devices too.
        Math::Tanh => ours_with_quotient(function),
    }
}

/// Returns the error of our own implementation where a quotient has an error of 2.5 ULP in place of 0.5 ULP: two more if the function ends with
/// a quotient, and twice as many if a small correction follows, which can move the result below a power of two. The quotient inside of a power
/// is corrected by its remainder.
fn ours_with_quotient(function: Math) -> f64 {
    match function {
        Math::Tanh => FUNCTION_ULPS + 2.0,
        Math::Tan | Math::Atan => FUNCTION_ULPS + 4.0,
        _ => FUNCTION_ULPS,
    }
}

/// Returns the error of a 16-bit result that is computed in f32 and rounded. For the five operations of IEEE 754 without fused
/// multiply-add, rounding twice is rounding once (Figueroa, *When is double rounding innocuous?*, 1995).
fn rounded_from_single(op: Alu, single: f64, dtype: DType) -> f64 {
    let is_innocuous = single == ROUNDED && op != Alu::Fma;
    if single == 0.0 || is_innocuous {
        return single;
    }
    let dropped_bits = if dtype == DType::F16 { 13 } else { 16 };
    ROUNDED + single / f64::from(1 << dropped_bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_those_of_the_specifications() {
        let exp = Alu::Math(Math::Exp);
        assert_eq!(guaranteed(exp, DType::F32, Language::Ir), Some(2.0));
        assert_eq!(guaranteed(exp, DType::F32, Language::OpenClC), Some(3.0));
        assert_eq!(guaranteed(Alu::Pow, DType::F32, Language::SpirV), Some(16.0));
        assert_eq!(guaranteed(Alu::Div, DType::F32, Language::Wgsl), Some(2.5));
        assert_eq!(guaranteed(Alu::Sqrt, DType::F32, Language::Wgsl), Some(6.5));
        assert_eq!(guaranteed(Alu::Math(Math::Tanh), DType::F32, Language::Wgsl), Some(4.0));
        assert_eq!(guaranteed(Alu::Math(Math::Tanh), DType::F32, Language::OpenClC), Some(4.0));
        assert_eq!(guaranteed(Alu::Math(Math::Tanh), DType::F32, Language::Ir), Some(2.0));
        assert_eq!(guaranteed(exp, DType::F32, Language::Wgsl), Some(2.0));
        assert_eq!(guaranteed(Alu::Sqrt, DType::F32, Language::SpirV), Some(3.0));
        assert_eq!(guaranteed(Alu::Div, DType::F16, Language::Ptx { capability: 80 }), Some(0.5));
        assert_eq!(guaranteed(exp, DType::BF16, Language::Ir), Some(0.5 + 2.0 / 65536.0));
        assert_eq!(guaranteed(exp, DType::F64, Language::Ir), None);
        assert_eq!(guaranteed(Alu::Add, DType::F32, Language::Msl), None);
        assert_eq!(guaranteed_everywhere(Alu::Math(Math::Erf), DType::F32), Some(16.0));
        assert_eq!(guaranteed_everywhere(Alu::Floor, DType::BF16), Some(0.0));
    }
}
