//! `mma.m16n8k16` of 16-bit floats, with the fragment layouts of the ISA's section *Matrix Fragments for mma.m16n8k16 with floating point
//! type*.
//!
//! The ISA does not specify the order of additions. Here an element's products and the addend are summed in f64 from the last product to
//! the first, and rounded once, because no kernel may rely on another order.

use half::{bf16, f16};

/// Returns the result registers of each thread, from the registers of A, B and C of each thread.
pub fn multiply(is_bf16: bool, a: &[Vec<u64>], b: &[Vec<u64>], c: &[Vec<u64>]) -> Vec<Vec<u64>> {
    let element = |registers: &[u64], i: usize| {
        let bits = (registers[i / 2] >> (16 * (i % 2))) as u16;
        if is_bf16 { bf16::from_bits(bits).to_f64() } else { f16::from_bits(bits).to_f64() }
    };
    let (mut left, mut right) = ([[0.0; 16]; 16], [[0.0; 8]; 16]);
    for lane in 0..32 {
        let (group_id, thread_in_group) = (lane >> 2, lane % 4);
        for i in 0..8 {
            let row = if i < 2 || (4..6).contains(&i) { group_id } else { group_id + 8 };
            let column = thread_in_group * 2 + (i & 1) + if i < 4 { 0 } else { 8 };
            left[row][column] = element(&a[lane], i);
        }
        for i in 0..4 {
            let row = thread_in_group * 2 + (i & 1) + if i < 2 { 0 } else { 8 };
            right[row][group_id] = element(&b[lane], i);
        }
    }
    let result = |lane: usize, i: usize| {
        let row = if i < 2 { lane >> 2 } else { (lane >> 2) + 8 };
        let column = (lane % 4) * 2 + (i & 1);
        let products = (0..16).rev().map(|k| left[row][k] * right[k][column]);
        let sum = products.sum::<f64>() + f64::from(f32::from_bits(c[lane][i] as u32));
        u64::from((sum as f32).to_bits())
    };
    (0..32).map(|lane| (0..4).map(|i| result(lane, i)).collect()).collect()
}
