//! The order in which lanes are reduced.

use panoply_cpu::vm::lane::{Lane, Round};
use panoply_cpu::vm::ops::Ops;
use panoply_host::isa::Isa;
use panoply_ir::kernel::ReduceOp;

/// Reference: combines numbers in the documented order; their sums differ between orders.
fn by_the_book(given: &[f32]) -> f32 {
    let mut kept = given.to_vec();
    while kept.len() > 1 {
        let width = kept.len().next_power_of_two() / 2;
        let high = kept.split_off(width);
        kept.iter_mut().zip(high).for_each(|(low, high)| *low += high);
    }
    kept[0]
}

#[test]
fn reduction_order_is_by_halves() {
    for isa in Isa::available() {
        let sum = (Ops::of(isa).reduce)(ReduceOp::Sum, Lane::F32, Round::None);
        for n in (1..100).chain([127, 128, 500, 512, 1000, 1024, 1025, 4096]) {
            let given: Vec<f32> = (0..n).map(|i| ((i * 7919) % 1009) as f32 * 1.000_123).collect();
            let mut result = 0f32;
            let to: *mut f32 = &mut result;
            // SAFETY: there are `n` lanes and one result.
            unsafe { sum(n, to.cast(), given.as_ptr().cast(), std::ptr::null(), std::ptr::null()) };
            assert_eq!(result, by_the_book(&given), "{isa}: {n} lanes");
        }
    }
}
