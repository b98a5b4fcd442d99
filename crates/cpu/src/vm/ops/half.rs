//! f16 and bf16 in terms of f32 bits, free of branches so that loops over them are vectorised.

/// The value of an f16. Exact.
#[inline(always)]
pub fn f16_to_f32(bits: u16) -> f32 {
    let sign = (bits as u32 & 0x8000) << 16;
    let magnitude = (bits as u32 & 0x7fff) << 13;
    // The exponent is off by the difference of the biases, 112: one exact product mends it, subnormals included.
    let value = (f32::from_bits(magnitude) * f32::from_bits((127 + 112) << 23)).to_bits();
    let special = magnitude | 0xff << 23;
    f32::from_bits(if magnitude >= 31 << 23 { special } else { value } | sign)
}

/// The nearest f16, ties to even.
#[inline(always)]
pub fn f32_to_f16(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = ((bits >> 16) & 0x8000) as u16;
    let magnitude = bits & 0x7fff_ffff;
    // Adding 0.5 leaves the subnormal's bits, rounded by the addition, at the low end.
    let subnormal = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
    let normal = magnitude.wrapping_sub(112 << 23).wrapping_add(0xfff + ((magnitude >> 13) & 1)) >> 13;
    let finite = if magnitude < 113 << 23 { subnormal } else { normal };
    // What rounds to 2^16 or more is infinite; 65520 is the first such value.
    let finite = if magnitude >= 65520f32.to_bits() { 0x7c00 } else { finite };
    // A NaN that was widened gets its bits back; one whose bits would be lost gets another.
    let payload = (magnitude >> 13) & 0x3ff;
    let nan = 0x7c00 | if payload == 0 { 0x200 } else { payload };
    sign | (if magnitude > 0xff << 23 { nan } else { finite }) as u16
}

/// The value of a bf16. Exact.
#[inline(always)]
pub fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits((bits as u32) << 16)
}

/// The nearest bf16, ties to even.
#[inline(always)]
pub fn f32_to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
    let nan = (bits >> 16) | if bits & 0x7f_0000 == 0 { 0x40 } else { 0 };
    (if bits & 0x7fff_ffff > 0xff << 23 { nan } else { rounded }) as u16
}

#[cfg(test)]
mod tests {
    use panoply_ir::{bf16, f16};

    use super::*;

    #[test]
    fn every_f16_and_bf16_widens_as_in_half() {
        for bits in 0..=u16::MAX {
            let (ours, theirs) = (f16_to_f32(bits), f16::from_bits(bits).to_f32());
            assert!(ours.to_bits() == theirs.to_bits() || (ours.is_nan() && theirs.is_nan()), "{bits:#x}");
            let (ours, theirs) = (bf16_to_f32(bits), bf16::from_bits(bits).to_f32());
            assert!(ours.to_bits() == theirs.to_bits() || (ours.is_nan() && theirs.is_nan()), "{bits:#x}");
        }
    }

    #[test]
    fn every_bit_pattern_survives_a_round_trip() {
        for bits in 0..=u16::MAX {
            assert_eq!(f32_to_f16(f16_to_f32(bits)), bits);
            assert_eq!(f32_to_bf16(bf16_to_f32(bits)), bits);
        }
    }

    #[test]
    fn narrowing_rounds_as_in_half() {
        // Every f16 and bf16, the midpoints between neighbours, and one f32 to either side of both.
        for narrow in 0..=u16::MAX {
            for wide in [(f16::from_bits(narrow).to_f32()).to_bits(), (narrow as u32) << 16] {
                for bits in [0, 1 << 12, 1 << 15].map(|half| wide.wrapping_add(half)) {
                    for bits in [bits.wrapping_sub(1), bits, bits.wrapping_add(1)] {
                        let value = f32::from_bits(bits);
                        if value.is_nan() {
                            assert!(f16::from_bits(f32_to_f16(value)).is_nan(), "{bits:#x}");
                            assert!(bf16::from_bits(f32_to_bf16(value)).is_nan(), "{bits:#x}");
                        } else {
                            assert_eq!(f32_to_f16(value), f16::from_f32(value).to_bits(), "{bits:#x}");
                            assert_eq!(f32_to_bf16(value), bf16::from_f32(value).to_bits(), "{bits:#x}");
                        }
                    }
                }
            }
        }
    }
}
