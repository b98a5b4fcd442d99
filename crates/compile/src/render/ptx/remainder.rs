//! Exact remainder of floats, by integer division of the significands, 11 bits of the quotient at a time.

use panoply_ir::DType;

use super::writer::{Class, Writer};

impl Writer<'_> {
    /// Returns the remainder of truncated division, with the sign of the dividend (C's `fmod`).
    pub fn remainder(&mut self, dtype: DType, args: &[&str]) -> String {
        if dtype == DType::F64 {
            return self.remainder_f64(args[0], args[1]);
        }
        // The remainder of two f32 is representable as f32, and equals that of the same numbers in f64.
        let [x, y] = [args[0], args[1]].map(|x| {
            let x = self.in_register(Class::F32, x);
            self.op(Class::F64, "cvt.f64.f32", &[&x])
        });
        let rest = self.remainder_f64(&x, &y);
        self.op(Class::F32, "cvt.rn.f32.f64", &[&rest])
    }

    fn remainder_f64(&mut self, x: &str, y: &str) -> String {
        let (long, word) = (Class::B64, Class::B32);
        let [a, b] = [x, y].map(|x| {
            let x = self.in_register(Class::F64, x);
            self.op(long, "mov.b64", &[&x])
        });
        let sign = self.op(long, "and.b64", &[&a, &i64::MIN.to_string()]);
        let [a, b] = [a, b].map(|bits| self.op(long, "and.b64", &[&bits, &i64::MAX.to_string()]));
        let result = self.register(long);
        let (end, signed) = (self.label(), self.label());
        const INFINITY: u64 = 0x7FF << 52;
        // The result is NaN unless x is finite and y is neither NaN nor 0.
        self.set(long, &result, &(INFINITY | 1 << 51).to_string());
        for (relation, bits, bound) in [("ge", &a, INFINITY), ("gt", &b, INFINITY), ("eq", &b, 0)] {
            let undefined = self.compare(&format!("setp.{relation}.u64"), &[bits, &bound.to_string()]);
            self.branch(&undefined, true, &end);
        }
        self.set(long, &result, &a);
        let less = self.compare("setp.lt.u64", &[&a, &b]);
        self.branch(&less, true, &signed);
        let [(ea, ma), (eb, mb)] = [&a, &b].map(|bits| self.parts(bits));
        let rest = self.op(long, "rem.u64", &[&ma, &mb]);
        let distance = self.op(word, "sub.u32", &[&ea, &eb]);
        let (head, done) = (self.label(), self.label());
        self.bind_label(&head);
        let none = self.compare("setp.eq.u32", &[&distance, "0"]);
        self.branch(&none, true, &done);
        let step = self.op(word, "min.u32", &[&distance, "11"]);
        let shifted = self.op(long, "shl.b64", &[&rest, &step]);
        self.line(format_args!("rem.u64 {rest}, {shifted}, {mb}"));
        self.line(format_args!("sub.u32 {distance}, {distance}, {step}"));
        self.line(format_args!("bra {head}"));
        self.bind_label(&done);
        self.assemble(&rest, &eb, &result);
        self.bind_label(&signed);
        self.line(format_args!("or.b64 {result}, {result}, {sign}"));
        self.bind_label(&end);
        self.op(Class::F64, "mov.b64", &[&result])
    }

    /// Returns the exponent, at least 1, and the significand with its leading bit.
    fn parts(&mut self, bits: &str) -> (String, String) {
        let exponent = self.op(Class::B64, "shr.u64", &[bits, "52"]);
        let exponent = self.op(Class::B32, "cvt.u32.u64", &[&exponent]);
        let fraction = self.op(Class::B64, "and.b64", &[bits, &((1u64 << 52) - 1).to_string()]);
        let whole = self.op(Class::B64, "or.b64", &[&fraction, &(1u64 << 52).to_string()]);
        let denormal = self.compare("setp.eq.u32", &[&exponent, "0"]);
        let significand = self.op(Class::B64, "selp.b64", &[&fraction, &whole, &denormal]);
        (self.op(Class::B32, "max.u32", &[&exponent, "1"]), significand)
    }

    /// Assembles the bits of a number from its significand, which can have leading zeros, and its exponent.
    fn assemble(&mut self, significand: &str, exponent: &str, result: &str) {
        let zeros = self.op(Class::B32, "clz.b64", &[significand]);
        let missing = self.op(Class::B32, "sub.u32", &[&zeros, "11"]);
        let most = self.op(Class::B32, "sub.u32", &[exponent, "1"]);
        let shift = self.op(Class::B32, "min.u32", &[&missing, &most]);
        let aligned = self.op(Class::B64, "shl.b64", &[significand, &shift]);
        // The leading bit, if present, adds 1 to the exponent.
        let base = self.op(Class::B32, "sub.u32", &[&most, &shift]);
        let base = self.op(Class::B64, "cvt.u64.u32", &[&base]);
        let base = self.op(Class::B64, "shl.b64", &[&base, "52"]);
        let bits = self.op(Class::B64, "add.u64", &[&base, &aligned]);
        let zero = self.compare("setp.eq.u64", &[significand, "0"]);
        self.line(format_args!("selp.b64 {result}, 0, {bits}, {zero}"));
    }
}
