//! Errors in units in the last place, and numbers to measure them at.

/// The largest error so far, and where it occurred.
#[derive(Clone, Debug, Default)]
pub struct Worst {
    pub ulps: f64,
    pub place: String,
}

impl Worst {
    pub fn see(&mut self, ulps: f64, place: impl FnOnce() -> String) {
        if ulps > self.ulps {
            self.ulps = ulps;
            self.place = place();
        }
    }

    pub fn merge(&mut self, other: Worst) {
        if other.ulps > self.ulps {
            *self = other;
        }
    }
}

/// Returns the difference of `got` and `exact` in units in the last place of an f32 of that magnitude; infinite if the
/// class is wrong (NaN, infinity, sign of zero).
#[inline(always)]
pub fn ulps_f32(got: f32, exact: f64) -> f64 {
    // Infinity counts as the number that would follow the largest one.
    const BEYOND: f64 = 2.0 * (1u128 << 127) as f64;
    let (close, near) = (exact.clamp(-BEYOND, BEYOND), (got as f64).clamp(-BEYOND, BEYOND));
    // Multiplied by 2^23 and divided by the power of two below the true value, or by the smallest normal number.
    let exponent = (close.to_bits() >> 52 & 0x7ff).clamp(1023 - 126, 1023 + 127);
    let ulps = (near - close).abs() * f64::from_bits((2046 + 23 - exponent) << 52);
    let wrong = got == 0.0 && (got.to_bits() >> 31) as u64 != exact.to_bits() >> 63;
    let ulps = if wrong { f64::INFINITY } else { ulps };
    if exact.is_nan() != got.is_nan() {
        f64::INFINITY
    } else if got.is_nan() {
        0.0
    } else {
        ulps
    }
}

/// Returns the number of f64 values between the two; infinite if the class is wrong (NaN, sign of zero).
pub fn ulps_f64(got: f64, exact: f64) -> f64 {
    if exact.is_nan() || got.is_nan() {
        return if exact.is_nan() && got.is_nan() { 0.0 } else { f64::INFINITY };
    }
    if got.is_sign_negative() != exact.is_sign_negative() {
        return f64::INFINITY;
    }
    got.to_bits().abs_diff(exact.to_bits()) as f64
}

/// Random numbers that include extreme values.
pub mod random {
    /// SplitMix64 (Steele, Lea, Flood 2014).
    pub fn bits(state: &mut u64) -> u64 {
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number with a random significand and sign, and an exponent within `-reach..reach`.
    fn within(state: &mut u64, reach: u64) -> f64 {
        let bits = bits(state);
        let exponent = 1023 - reach + (bits >> 1 & 0x3ff) % (2 * reach);
        f64::from_bits(bits & !(0x7ff << 52) | exponent << 52)
    }

    /// Returns any bit pattern, a number of moderate magnitude, or a number with magnitude close to 1.
    pub fn float(state: &mut u64, n: usize) -> f64 {
        match n % 4 {
            0 => f64::from_bits(bits(state)),
            1 => within(state, 60),
            2 => within(state, 10),
            _ => within(state, 2),
        }
    }

    /// Returns a base and an exponent whose power is mostly finite.
    pub fn powers(state: &mut u64, n: usize) -> (f64, f64) {
        match n % 6 {
            0 => (f64::from_bits(bits(state)), f64::from_bits(bits(state))),
            1 => (within(state, 120), within(state, 4)),
            2 => (within(state, 4), within(state, 7)),
            3 => (1.0 + within(state, 60) * 2f64.powi(-60), within(state, 40)),
            4 => (within(state, 20), (bits(state) % 41) as f64 - 20.0),
            _ => (within(state, 1000), within(state, 2)),
        }
    }

    /// Returns three numbers, of which the third often has about the magnitude of the product of the others.
    pub fn products(state: &mut u64, n: usize) -> [f32; 3] {
        let [a, b] = [within(state, 60) as f32, within(state, 60) as f32];
        let near = -(a as f64 * b as f64);
        let c = match n % 5 {
            0 => near * (1.0 + within(state, 30) * 2f64.powi(-30)),
            1 => near * (1.0 + 2f64.powi(-((bits(state) % 60) as i32))),
            2 => within(state, 126),
            3 => near * 2f64.powi((bits(state) % 80) as i32 - 40),
            _ => return [f32::from_bits(bits(state) as u32), f32::from_bits(bits(state) as u32), a],
        };
        if n.is_multiple_of(2) { [a, b, c as f32] } else { [a, b * 1e-30, c as f32 * 1e-30] }
    }
}
