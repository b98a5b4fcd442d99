//! Conversions, and 16-bit floats, which are computed as f32 and rounded.

use panoply_ir::DType;

use super::writer::{Class, Writer, float_name, int_name};

impl Writer<'_> {
    /// Converts a value with the semantics of Rust's `as`.
    pub fn cast(&mut self, from: DType, to: DType, x: &str) -> String {
        let (class, wide) = (Class::of(to), to.bytes() == 8);
        if from == to {
            return x.to_string();
        }
        let x = self.in_register(Class::of(from), x);
        let x = x.as_str();
        match (from, to) {
            (DType::F16 | DType::BF16, DType::F32) => x.to_string(),
            (_, DType::Bool) if from.is_float() => {
                let zero = if from == DType::F64 { "0d0000000000000000" } else { "0f00000000" };
                self.compare(&format!("setp.neu.{}", float_name(from)), &[x, zero])
            }
            (_, DType::Bool) => self.compare(&format!("setp.ne.{}", int_name(from)), &[x, "0"]),
            (DType::Bool, _) if to.is_float() => {
                let (one, zero) = if to == DType::F64 {
                    ("0d3FF0000000000000", "0d0000000000000000")
                } else {
                    ("0f3F800000", "0f00000000")
                };
                self.op(class, &format!("selp.{}", class.name()), &[one, zero, x])
            }
            (DType::Bool, _) => self.op(class, &format!("selp.{}", class.name()), &["1", "0", x]),
            (_, DType::F16 | DType::BF16) => {
                // Defined as a conversion through f32.
                let single = self.cast(from, DType::F32, x);
                self.rounded(to, single)
            }
            (DType::F64, DType::F32) => self.op(class, "cvt.rn.f32.f64", &[x]),
            _ if from.is_float() && to == DType::F64 => self.op(class, "cvt.f64.f32", &[x]),
            _ if from.is_float() => self.truncate(from, to, x),
            _ if to.is_float() => self.op(class, &format!("cvt.rn.{}.{}", float_name(to), int_name(from)), &[x]),
            _ if wide && from.bytes() == 8 => x.to_string(),
            _ if wide => {
                let name = if from.is_signed() { "cvt.s64.s32" } else { "cvt.u64.u32" };
                self.op(class, name, &[x])
            }
            _ => {
                let word = if from.bytes() == 8 { self.op(Class::B32, "cvt.u32.u64", &[x]) } else { x.to_string() };
                // A narrower type of the same sign already has the same representation.
                let held = from.bytes() < to.bytes() && (from.is_signed() == to.is_signed() || !from.is_signed());
                if held { word } else { self.narrow(to, word) }
            }
        }
    }

    /// Converts a float to an integer: truncates, saturates, maps NaN to 0.
    fn truncate(&mut self, from: DType, to: DType, x: &str) -> String {
        let (class, source) = (Class::of(to), float_name(from));
        let target = if to.bytes() == 8 {
            int_name(to)
        } else if to == DType::U32 {
            "u32"
        } else {
            "s32"
        };
        let result = self.op(class, &format!("cvt.rzi.{target}.{source}"), &[x]);
        // The instruction saturates to 32 or 64 bits; its result for NaN depends on the types.
        let clamped = match to {
            DType::I8 | DType::I16 | DType::U8 | DType::U16 => {
                let (low, high) = match to {
                    DType::I8 => ("-128", "127"),
                    DType::I16 => ("-32768", "32767"),
                    DType::U8 => ("0", "255"),
                    _ => ("0", "65535"),
                };
                let above = self.op(class, "max.s32", &[&result, low]);
                self.op(class, "min.s32", &[&above, high])
            }
            _ => result,
        };
        let nan = self.compare(&format!("setp.nan.{source}"), &[x, x]);
        self.op(class, &format!("selp.{}", class.name()), &["0", &clamped, &nan])
    }

    /// Reinterprets the bits as another type of the same width.
    pub fn bitcast(&mut self, from: DType, to: DType, x: &str) -> String {
        if from == to {
            return x.to_string();
        }
        let x = &self.in_register(Class::of(from), x);
        match from {
            DType::F16 | DType::BF16 => {
                let bits = self.bits_of(from, x);
                self.bitcast(DType::U16, to, &bits)
            }
            DType::F32 | DType::F64 => {
                let class = Class::of(to);
                self.op(class, &format!("mov.b{}", from.bits()), &[x])
            }
            _ => match to {
                DType::F16 | DType::BF16 => {
                    let bits = self.op(Class::B32, "and.b32", &[x, "65535"]);
                    self.of_bits(to, &bits)
                }
                DType::F32 | DType::F64 => self.op(Class::of(to), &format!("mov.b{}", to.bits()), &[x]),
                _ => self.narrow(to, x.clone()),
            },
        }
    }

    /// Rounds an f32 result to the 16-bit type that it represents.
    pub fn rounded(&mut self, dtype: DType, value: String) -> String {
        if !matches!(dtype, DType::F16 | DType::BF16) {
            return value;
        }
        let value = self.in_register(Class::F32, &value);
        match dtype {
            DType::F16 => {
                let half = self.op(Class::B16, "cvt.rn.f16.f32", &[&value]);
                self.op(Class::F32, "cvt.f32.f16", &[&half])
            }
            DType::BF16 => {
                let bits = self.bf16_upper(&value);
                self.op(Class::F32, "mov.b32", &[&bits])
            }
            _ => value,
        }
    }

    /// Returns the bits of a 16-bit float in the low half of a 32-bit register.
    pub fn bits_of(&mut self, dtype: DType, value: &str) -> String {
        match (dtype, self.read.get(value).cloned()) {
            (DType::F16, Some(half)) => return self.op(Class::B32, "cvt.u32.u16", &[&half]),
            (_, Some(bits)) => return bits,
            (_, None) => {}
        }
        let value = &self.in_register(Class::F32, value);
        if dtype == DType::F16 {
            let half = self.op(Class::B16, "cvt.rn.f16.f32", &[value]);
            return self.op(Class::B32, "cvt.u32.u16", &[&half]);
        }
        let upper = self.bf16_upper(value);
        self.op(Class::B32, "shr.u32", &[&upper, "16"])
    }

    /// Returns the 16-bit float with these bits in the low half of a 32-bit register.
    pub fn of_bits(&mut self, dtype: DType, bits: &str) -> String {
        if dtype == DType::F16 {
            let half = self.op(Class::B16, "cvt.u16.u32", &[bits]);
            return self.op(Class::F32, "cvt.f32.f16", &[&half]);
        }
        let upper = self.op(Class::B32, "shl.b32", &[bits, "16"]);
        self.op(Class::F32, "mov.b32", &[&upper])
    }

    /// Returns the bits of an f32 rounded to bf16, ties to even; a NaN remains a NaN.
    fn bf16_upper(&mut self, value: &str) -> String {
        let bits = self.op(Class::B32, "mov.b32", &[value]);
        let lowest = self.op(Class::B32, "shr.u32", &[&bits, "16"]);
        let odd = self.op(Class::B32, "and.b32", &[&lowest, "1"]);
        let half = self.op(Class::B32, "add.u32", &[&odd, "32767"]);
        let sum = self.op(Class::B32, "add.u32", &[&bits, &half]);
        let quiet = self.op(Class::B32, "or.b32", &[&bits, "4194304"]);
        let nan = self.compare("setp.nan.f32", &[value, value]);
        let chosen = self.op(Class::B32, "selp.b32", &[&quiet, &sum, &nan]);
        self.op(Class::B32, "and.b32", &[&chosen, "-65536"])
    }
}
