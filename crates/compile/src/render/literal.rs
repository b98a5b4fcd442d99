//! Renders constants as C literals with exactly the same bits.

use panoply_ir::{DType, Scalar};

use super::c_dialect::CDialect;

/// Returns the constant in the type of its register: an f16 or bf16 as the f32 of the same value.
pub(super) fn literal(dialect: &CDialect, value: Scalar) -> String {
    match value.dtype {
        DType::Bool => value.is_true().to_string(),
        DType::F16 | DType::BF16 | DType::F32 => f32_literal(dialect, value.to_f64() as f32),
        DType::F64 => f64_literal(dialect, f64::from_bits(value.bits)),
        DType::I8 | DType::I16 | DType::I32 | DType::I64 | DType::U8 | DType::U16 | DType::U32 | DType::U64 => {
            int_literal(dialect, value.dtype, value.to_i128())
        }
    }
}

fn int_literal(dialect: &CDialect, dtype: DType, value: i128) -> String {
    let suffix = match dtype {
        DType::U32 => "u",
        DType::I64 => dialect.suffix_64[0],
        DType::U64 => dialect.suffix_64[1],
        _ => "",
    };
    // The minimum has no literal: C parses a minus sign and a number too large for the type.
    let least = -(1i128 << (dtype.bits() - 1));
    match value {
        _ if value >= 0 => format!("{value}{suffix}"),
        _ if value == least => format!("({}{suffix} - 1)", value + 1),
        _ => format!("({value}{suffix})"),
    }
}

fn f32_literal(dialect: &CDialect, value: f32) -> String {
    if !value.is_finite() {
        return format!("{}({:#x}u)", dialect.bits_as(DType::F32), value.to_bits());
    }
    signed(format!("{value:?}f"))
}

fn f64_literal(dialect: &CDialect, value: f64) -> String {
    if !value.is_finite() {
        return format!("{}({:#x}{})", dialect.bits_as(DType::F64), value.to_bits(), dialect.suffix_64[1]);
    }
    signed(format!("{value:?}"))
}

fn signed(text: String) -> String {
    if text.starts_with('-') { format!("({text})") } else { text }
}

#[cfg(test)]
mod tests {
    use panoply_ir::{Scalar, bf16, f16};

    use super::literal;
    use crate::render::opencl::DIALECT;

    #[test]
    fn literals_are_exact() {
        let cases: [(Scalar, &str); 16] = [
            (true.into(), "true"),
            (7i8.into(), "7"),
            ((-128i8).into(), "(-127 - 1)"),
            ((-3i32).into(), "(-3)"),
            (i32::MIN.into(), "(-2147483647 - 1)"),
            (u32::MAX.into(), "4294967295u"),
            (i64::MIN.into(), "(-9223372036854775807L - 1)"),
            (u64::MAX.into(), "18446744073709551615UL"),
            (0.1f32.into(), "0.1f"),
            ((-0.0f32).into(), "(-0.0f)"),
            (1e-45f32.into(), "1e-45f"),
            (f32::INFINITY.into(), "as_float(0x7f800000u)"),
            (0.1f64.into(), "0.1"),
            (f64::NEG_INFINITY.into(), "as_double(0xfff0000000000000UL)"),
            (f16::from_f32(0.1).into(), "0.099975586f"),
            (bf16::from_f32(0.1).into(), "0.100097656f"),
        ];
        for (value, text) in cases {
            assert_eq!(literal(&DIALECT, value), text);
        }
    }
}
