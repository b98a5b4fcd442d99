//! The loops that convert 16-bit floats, on every instruction set, against the portable conversions.

use panoply_cpu::vm::lane::Round;
use panoply_cpu::vm::ops::Ops;
use panoply_host::half::{f16_to_f32, f32_to_f16};
use panoply_host::isa::Isa;

#[test]
fn every_instruction_set_converts_identically() {
    // Numbers near every f16, including all types of NaN, in separate vectors and mixed with numbers.
    let halves: Vec<u16> = (0..=u16::MAX).chain((0..=u16::MAX).map(|i| i.wrapping_mul(40_503))).collect();
    let near = |bits: &u16| f16_to_f32(*bits).to_bits().wrapping_add(u32::from(*bits) % 0x3001);
    let wide: Vec<f32> = halves.iter().map(|bits| f32::from_bits(near(bits))).collect();
    for isa in Isa::available() {
        let ops = Ops::of(isa);
        let [widen, narrow, round] = [ops.widen, ops.narrow, ops.round].map(|f| f(Round::F16).expect("a loop"));
        let (mut widened, mut narrowed) = (vec![0u32; halves.len()], vec![0u16; halves.len()]);
        let mut rounded = vec![0u32; halves.len()];
        let (n, none) = (halves.len(), std::ptr::null());
        // SAFETY: all slices have the same number of lanes.
        unsafe {
            widen(n, widened.as_mut_ptr().cast(), halves.as_ptr().cast(), none, none);
            narrow(n, narrowed.as_mut_ptr().cast(), wide.as_ptr().cast(), none, none);
            round(n, rounded.as_mut_ptr().cast(), wide.as_ptr().cast(), none, none);
        }
        for at in 0..n {
            assert_eq!(widened[at], f16_to_f32(halves[at]).to_bits(), "{isa}: {:#x}", halves[at]);
            let narrow = f32_to_f16(wide[at]);
            assert_eq!(narrowed[at], narrow, "{isa}: {:#x}", wide[at].to_bits());
            assert_eq!(rounded[at], f16_to_f32(narrow).to_bits(), "{isa}: {:#x}", wide[at].to_bits());
        }
    }
}
