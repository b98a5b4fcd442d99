//! Conversions of 16-bit floats against the crate `half`.

use panoply_host::half::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16};
use panoply_ir::{bf16, f16};

#[test]
fn widening_equals_the_half_crate() {
    for bits in 0..=u16::MAX {
        let (ours, theirs) = (f16_to_f32(bits), f16::from_bits(bits).to_f32());
        assert!(ours.to_bits() == theirs.to_bits() || (ours.is_nan() && theirs.is_nan()), "{bits:#x}");
        let (ours, theirs) = (bf16_to_f32(bits), bf16::from_bits(bits).to_f32());
        assert!(ours.to_bits() == theirs.to_bits() || (ours.is_nan() && theirs.is_nan()), "{bits:#x}");
    }
}

#[test]
fn every_bit_pattern_round_trips() {
    for bits in 0..=u16::MAX {
        assert_eq!(f32_to_f16(f16_to_f32(bits)), bits);
        assert_eq!(f32_to_bf16(bf16_to_f32(bits)), bits);
    }
}

#[test]
fn narrowing_equals_the_half_crate() {
    // Every f16 and bf16, the midpoints between neighbors, and one f32 to either side of both.
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
