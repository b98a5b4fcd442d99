//! Random numbers and elements, and the comparison of elements.

use crate::dtype::{DType, Scalar};

/// Pseudo-random number generator: SplitMix64 (Steele, Lea and Flood, 2014). Platform-independent; sufficient for tests.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Creates a generator from a seed.
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x2545_f491_4f6c_dd1d))
    }

    /// Returns 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below a positive bound.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.bits() % bound
    }

    /// Returns a number in an inclusive range.
    pub fn between(&mut self, first: u64, last: u64) -> u64 {
        first + self.below(last - first + 1)
    }

    /// Returns true with this probability in percent.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Returns one of several values.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    /// Returns a random element: small, at the limits of its type, or arbitrary; floats are mostly of moderate magnitude.
    pub fn element(&mut self, dtype: DType) -> Scalar {
        if dtype == DType::Bool {
            return (self.chance(50)).into();
        }
        let bits = dtype.bits();
        if dtype.is_float() {
            let special = [0.0, -0.0, 1.0, -1.0, 0.5, f64::INFINITY, f64::NEG_INFINITY, f64::NAN];
            return match self.below(8) {
                0 => Scalar::from_f64(dtype, self.pick(&special)),
                1 => Scalar { dtype, bits: self.bits() >> (64 - bits) },
                2 | 3 => Scalar::from_f64(dtype, self.between(0, 40) as f64 - 20.0),
                _ => Scalar::from_f64(dtype, (self.bits() as i64 as f64) * 2.0_f64.powi(-61)),
            };
        }
        let signed = dtype.is_signed();
        let most = (1_i128 << (bits - u32::from(signed))) - 1;
        let least = if signed { -most - 1 } else { 0 };
        match self.below(4) {
            0 => Scalar::from_i128(dtype, self.pick(&[0, 1, 2, 3, least, least + 1, most, most - 1])),
            1 => Scalar { dtype, bits: self.bits() >> (64 - bits) },
            _ => Scalar::from_i128(dtype, self.between(0, 20) as i128 - if signed { 10 } else { 0 }),
        }
    }

    /// Returns the bytes of random elements.
    pub fn elements(&mut self, dtype: DType, len: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        for _ in 0..len {
            let bits = self.element(dtype).bits;
            match dtype.bytes() {
                1 => bytes.push(bits as u8),
                2 => bytes.extend((bits as u16).to_ne_bytes()),
                4 => bytes.extend((bits as u32).to_ne_bytes()),
                _ => bytes.extend(bits.to_ne_bytes()),
            }
        }
        bytes
    }
}

/// Reads an element from its bytes.
pub(super) fn read(dtype: DType, bytes: &[u8]) -> Scalar {
    let bits = match *bytes {
        [a] if dtype == DType::Bool => u64::from(a != 0),
        [a] => a as u64,
        [a, b] => u16::from_ne_bytes([a, b]) as u64,
        [a, b, c, d] => u32::from_ne_bytes([a, b, c, d]) as u64,
        _ => u64::from_ne_bytes(std::array::from_fn(|i| bytes[i])),
    };
    Scalar { dtype, bits }
}

/// Returns true if the bits are equal or both are NaN.
pub(super) fn same(a: Scalar, b: Scalar) -> bool {
    a == b || a.dtype.is_float() && a.to_f64().is_nan() && b.to_f64().is_nan()
}

/// Returns true if two floats differ by at most `ulps` units in the last place of the larger one, or of the smallest normal number.
pub(super) fn within(a: Scalar, b: Scalar, ulps: f64) -> bool {
    let (digits, least, most) = match a.dtype {
        DType::F16 => (10, -14, 65504.0),
        DType::BF16 => (7, -126, 3.3895e38),
        DType::F32 => (23, -126, f32::MAX as f64),
        _ => (52, -1022, f64::MAX),
    };
    // One can overflow where the other barely does not: infinity is replaced by the largest finite number.
    let finite = |x: Scalar| x.to_f64().clamp(-most, most);
    if a.to_f64().is_nan() || b.to_f64().is_nan() {
        return false;
    }
    let (a, b) = (finite(a), finite(b));
    let exponent = a.abs().max(b.abs()).max(2.0_f64.powi(least)).log2().floor();
    (a - b).abs() <= ulps * (exponent - digits as f64).exp2()
}
