//! Conversions, narrow integers and 16-bit floats, which are held in 32-bit registers.

use panoply_ir::{DType, Scalar};

use super::super::ops::bare;
use super::expr::Writer;
use super::ops::call;
use super::soft_float::Function;

impl Writer<'_> {
    /// Extends an 8- or 16-bit integer to its register representation: sign- or zero-extended.
    pub fn narrow(&self, dtype: DType, text: String) -> String {
        let unused = 32 - dtype.bits().min(32);
        match dtype {
            DType::I8 | DType::I16 => format!("(({text} << {unused}u) >> {unused}u)"),
            DType::U8 => format!("({text} & 0xffu)"),
            DType::U16 => format!("({text} & 0xffffu)"),
            _ => text,
        }
    }

    /// Converts a value with the semantics of Rust's `as`.
    pub fn cast(&mut self, from: Option<DType>, to: Option<DType>, text: &str) -> String {
        let (from, to) = (from.unwrap_or(self.index), to.unwrap_or(self.index));
        if from == to {
            return text.to_string();
        }
        let (source, target) = (self.register(Some(from)), self.register(Some(to)));
        // A 16-bit float is converted through f32, and a bool selects between two constants, for every integer type.
        if (self.is_pair(source) || self.is_pair(target))
            && from != DType::Bool
            && !matches!(to, DType::F16 | DType::BF16)
        {
            let word = self.wide_cast(source, target, text);
            return self.narrow(to, word);
        }
        let plain = |ty: &str| format!("{ty}({})", bare(text));
        match (from, to) {
            (DType::F16 | DType::BF16, DType::F32) => text.to_string(),
            (_, DType::Bool) if from.is_float() => format!("(!({text} == {}))", self.zero(source)),
            (_, DType::Bool) => format!("({text} != {})", self.zero(source)),
            (DType::Bool, _) => {
                let zero = self.literal(Scalar::from_i128(target, 0));
                format!("select({zero}, {}, {})", self.one(target), bare(text))
            }
            (_, DType::F16 | DType::BF16) => {
                // Defined as a conversion through f32.
                let single = self.cast(Some(from), Some(DType::F32), text);
                self.rounded(to, single)
            }
            _ if from.is_float() && !to.is_float() => self.soft(Function::Saturate(source, to), &[text.to_string()]),
            _ if to.is_float() => {
                if source == target {
                    text.to_string()
                } else {
                    plain(self.type_name(to))
                }
            }
            _ => {
                // First convert to the target's width with the source's sign, then to its type.
                let widened = match (source.bytes(), target.bytes()) {
                    (4, 8) => plain(if source.is_signed() { "i64" } else { "u64" }),
                    (8, 4) => plain(if source.is_signed() { "i32" } else { "u32" }),
                    _ => text.to_string(),
                };
                let word = if source.is_signed() == target.is_signed() {
                    widened
                } else {
                    format!("bitcast<{}>({})", self.type_name(to), bare(&widened))
                };
                self.narrow(to, word)
            }
        }
    }

    /// Reinterprets the bits as another type of the same width.
    pub fn bitcast(&mut self, from: Option<DType>, to: Option<DType>, text: &str) -> String {
        let (from, to) = (from.unwrap_or(self.index), to.unwrap_or(self.index));
        if from == to {
            return text.to_string();
        }
        if self.is_pair(from) {
            return text.to_string();
        }
        if from.bytes() >= 4 {
            return format!("bitcast<{}>({})", self.type_name(to), bare(text));
        }
        let bits = self.word_of(from, text);
        self.read_word(to, &bits, "0u")
    }

    /// Extracts an element of at most 32 bits from a word, `shift` bits from its low end.
    pub fn read_word(&mut self, dtype: DType, word: &str, shift: &str) -> String {
        let shifted = if shift == "0u" { word.to_string() } else { format!("({word} >> {shift})") };
        match dtype {
            DType::U32 => word.to_string(),
            DType::I32 | DType::F32 => format!("bitcast<{}>({word})", self.type_name(dtype)),
            DType::Bool => format!("(({shifted} & 0xffu) != 0u)"),
            DType::U8 | DType::U16 => self.narrow(dtype, shifted),
            DType::I8 | DType::I16 => self.narrow(dtype, format!("bitcast<i32>({})", bare(&shifted))),
            DType::F16 | DType::BF16 => {
                let bits = format!("({shifted} & 0xffffu)");
                call(&self.soft.bits(dtype, false), &[bits])
            }
            DType::I64 | DType::U64 | DType::F64 => unreachable!("{dtype} is wider than a word"),
        }
    }

    /// Returns the bits of an element of at most 16 bits in the low end of a word.
    pub fn word_of(&mut self, dtype: DType, text: &str) -> String {
        match dtype {
            DType::Bool => format!("u32({})", bare(text)),
            DType::U8 | DType::U16 => text.to_string(),
            DType::I8 => format!("(bitcast<u32>({}) & 0xffu)", bare(text)),
            DType::I16 => format!("(bitcast<u32>({}) & 0xffffu)", bare(text)),
            DType::F16 | DType::BF16 => {
                // The conversion rounds anyway, so a preceding rounding is redundant.
                let text = text.strip_prefix(&format!("round_{dtype}")).map_or(text, bare);
                call(&self.soft.bits(dtype, true), &[text.to_string()])
            }
            _ => unreachable!("{dtype} is not narrower than a word"),
        }
    }

    /// Rounds an f32 result to the 16-bit type that it represents.
    pub fn rounded(&mut self, dtype: DType, text: String) -> String {
        match dtype {
            DType::F16 | DType::BF16 => self.soft(Function::Round(dtype), &[text]),
            _ => text,
        }
    }
}
