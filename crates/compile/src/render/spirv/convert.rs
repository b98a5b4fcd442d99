//! Conversions, and 16-bit floats, which are computed as f32 and rounded.

use panoply_ir::{DType, Scalar};

use super::module::Writer;

impl Writer<'_> {
    /// Converts a value with the semantics of Rust's `as`.
    pub fn cast(&mut self, from: DType, to: DType, x: &str) -> String {
        if from == to {
            return x.to_string();
        }
        let ty = self.ty(to);
        match (from, to) {
            (DType::F16 | DType::BF16, DType::F32) => x.to_string(),
            (_, DType::Bool) => {
                let zero = self.constant(Scalar::from_i128(from, 0));
                self.compare(if from.is_float() { "OpFUnordNotEqual" } else { "OpINotEqual" }, &[x, &zero])
            }
            (DType::Bool, _) => {
                let [one, zero] = [1, 0].map(|value| self.constant(Scalar::from_i128(to, value)));
                self.select(&ty, x, &one, &zero)
            }
            (_, DType::F16 | DType::BF16) => {
                // Defined as a conversion through f32.
                let single = self.cast(from, DType::F32, x);
                self.rounded(to, single)
            }
            _ if from.is_float() && to.is_float() => self.op(&ty, "OpFConvert", &[x]),
            _ if from.is_float() => self.truncate(from, to, x),
            _ if to.is_float() => self.op(&ty, if from.is_signed() { "OpConvertSToF" } else { "OpConvertUToF" }, &[x]),
            _ if from.bytes() == to.bytes() => x.to_string(),
            _ => self.op(&ty, if from.is_signed() { "OpSConvert" } else { "OpUConvert" }, &[x]),
        }
    }

    /// Converts a float to an integer: truncates, saturates, maps NaN to 0. The bounds are powers of two, so they are
    /// exact in either float type.
    fn truncate(&mut self, from: DType, to: DType, x: &str) -> String {
        let (ty, bits) = (self.ty(to), to.bits() - u32::from(to.is_signed()));
        let bound = 2f64.powi(bits as i32);
        let [above, below] = [bound, -bound].map(|bound| Scalar::from_f64(from, bound));
        let (above, zero) = (self.constant(above), self.int(to, 0));
        let inside = self.op(&ty, if to.is_signed() { "OpConvertFToS" } else { "OpConvertFToU" }, &[x]);
        let lower = if to.is_signed() {
            let (below, least) = (self.constant(below), self.constant(Scalar::from_i128(to, -(1 << bits))));
            let nan = self.compare("OpFUnordNotEqual", &[x, x]);
            let number = self.select(&ty, &nan, &zero, &inside);
            let low = self.compare("OpFOrdLessThanEqual", &[x, &below]);
            self.select(&ty, &low, &least, &number)
        } else {
            let none = self.constant(Scalar::from_i128(from, 0));
            let positive = self.compare("OpFOrdGreaterThan", &[x, &none]);
            self.select(&ty, &positive, &inside, &zero)
        };
        let most = self.constant(Scalar::from_i128(to, (1 << bits) - 1));
        let high = self.compare("OpFOrdGreaterThanEqual", &[x, &above]);
        self.select(&ty, &high, &most, &lower)
    }

    /// Reinterprets the bits as another type of the same width.
    pub fn bitcast(&mut self, from: DType, to: DType, x: &str) -> String {
        let half = |dtype: DType| matches!(dtype, DType::F16 | DType::BF16);
        if from == to || from.is_int() && to.is_int() {
            return x.to_string();
        }
        if half(from) {
            let bits = self.bits_of(from, x);
            return self.bitcast(DType::U16, to, &bits);
        }
        if half(to) {
            return self.of_bits(to, x);
        }
        let ty = self.ty(to);
        self.op(&ty, "OpBitcast", &[x])
    }

    /// Rounds an f32 result to the 16-bit type that it represents.
    pub fn rounded(&mut self, dtype: DType, value: String) -> String {
        if !matches!(dtype, DType::F16 | DType::BF16) {
            return value;
        }
        let bits = self.bits_of(dtype, &value);
        self.of_bits(dtype, &bits)
    }

    /// Returns the bits of a 16-bit float.
    pub fn bits_of(&mut self, dtype: DType, value: &str) -> String {
        let ushort = self.ty(DType::U16);
        if dtype == DType::BF16 {
            return self.bf16_bits(value);
        }
        let half = self.half();
        if self.native_f16 {
            let value = self.op(&half, "OpFConvert", &[value]);
            return self.op(&ushort, "OpBitcast", &[&value]);
        }
        let (place, pointer) = self.place_of_half();
        let (void, zero) = (self.void(), self.int(DType::U64, 0));
        self.call(&void, "vstore_half_r", &[value, &zero, &pointer, "RTE"]);
        self.op(&ushort, "OpLoad", &[&place])
    }

    /// Returns the 16-bit float with these bits.
    pub fn of_bits(&mut self, dtype: DType, bits: &str) -> String {
        let (float, uint) = (self.ty(DType::F32), self.ty(DType::U32));
        if dtype == DType::BF16 {
            let sixteen = self.int(DType::U32, 16);
            let wide = self.op(&uint, "OpUConvert", &[bits]);
            let upper = self.op(&uint, "OpShiftLeftLogical", &[&wide, &sixteen]);
            return self.op(&float, "OpBitcast", &[&upper]);
        }
        let half = self.half();
        if self.native_f16 {
            let value = self.op(&half, "OpBitcast", &[bits]);
            return self.op(&float, "OpFConvert", &[&value]);
        }
        let (place, pointer) = self.place_of_half();
        self.line(format_args!("OpStore {place} {bits}"));
        let zero = self.int(DType::U64, 0);
        self.call(&float, "vload_half", &[&zero, &pointer])
    }

    /// Returns a 16-bit variable, and the pointer through which OpenCL.std converts its content: the only use of 16-bit
    /// floats that every device supports.
    fn place_of_half(&mut self) -> (String, String) {
        let (ushort, half) = (self.ty(DType::U16), self.half());
        let place = self.variable(&ushort);
        let pointer = self.pointer("Function", &half);
        let through = self.op(&pointer, "OpBitcast", &[&place]);
        (place, through)
    }

    /// Returns the bits of an f32 rounded to bf16, ties to even; a NaN remains a NaN.
    fn bf16_bits(&mut self, value: &str) -> String {
        let (uint, ushort) = (self.ty(DType::U32), self.ty(DType::U16));
        let [one, sixteen, quiet, most] = [1, 16, 64, 0x7FFF].map(|value| self.int(DType::U32, value));
        let bits = self.op(&uint, "OpBitcast", &[value]);
        let upper = self.op(&uint, "OpShiftRightLogical", &[&bits, &sixteen]);
        let odd = self.op(&uint, "OpBitwiseAnd", &[&upper, &one]);
        let half = self.op(&uint, "OpIAdd", &[&odd, &most]);
        let sum = self.op(&uint, "OpIAdd", &[&bits, &half]);
        let number = self.op(&uint, "OpShiftRightLogical", &[&sum, &sixteen]);
        let no_number = self.op(&uint, "OpBitwiseOr", &[&upper, &quiet]);
        let nan = self.compare("OpFUnordNotEqual", &[value, value]);
        let chosen = self.select(&uint, &nan, &no_number, &number);
        self.op(&ushort, "OpUConvert", &[&chosen])
    }
}
