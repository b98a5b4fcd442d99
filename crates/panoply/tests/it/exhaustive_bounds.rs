//! The exhaustive test of error bounds: the CPU keeps them, and a wrong result at a single operand is found.

use std::sync::Arc;

use panoply::internal::conformance::exhaustive::{Sweep, sweeps};
use panoply::runtime::DeviceOptions;
use panoply::{DType, Device};
use panoply_device::RawDevice;

use crate::faulty_device::FaultyDevice;
use crate::verified_compile::{cpu, wrapped};

fn full() -> bool {
    std::env::var("PANOPLY_TEST_FULL").is_ok_and(|value| value == "1")
}

fn sweep(name: &str, dtype: DType) -> Sweep {
    sweeps().into_iter().find(|sweep| sweep.name == name && sweep.dtype == dtype).unwrap()
}

/// All operands of 16-bit types, and a part of the others; with `PANOPLY_TEST_FULL=1` all of them.
#[test]
fn the_cpu_keeps_its_bounds() {
    let cpu = Device::get("cpu").unwrap();
    let all = sweeps();
    assert_eq!(all.len(), 3 * 29);
    for mut sweep in all {
        let is_unary = sweep.operands.end == 1 << sweep.dtype.bits();
        assert!(is_unary || sweep.operands.end > 1 << 22, "{}", sweep.name);
        if !full() && sweep.operands.end > 1 << 16 {
            // Near 1, and the boundaries of some exponents.
            let start = if sweep.operands.end == 1 << 32 { 0x3f7f_0000 } else { 0 };
            sweep.operands = start..start + (1 << 17);
        }
        let mut last = 0;
        let outcome = sweep.run(&cpu, &mut |done| last = done);
        assert!(outcome.passed(), "{}: {outcome}", outcome.name);
        assert_eq!(last, sweep.len());
    }
}

/// A kernel whose hyperbolic tangent is wrong at one number, by a few ULP in f32.
#[test]
fn a_wrong_result_at_one_operand_is_found() {
    let raw: Arc<dyn RawDevice> = cpu();
    let text = |kernel| {
        wrapped(kernel, "tanh(", |call, argument| {
            format!("select(eq({argument}, 0.75f32), mul({call}, 1.000001f32), {call})")
        })
    };
    let target = raw.target().clone();
    let wrong = Device::new(Arc::new(FaultyDevice { cpu: raw.clone(), target, text }), DeviceOptions::default());
    let right = Device::new(raw, DeviceOptions::default());
    let mut tanh = sweep("tanh", DType::F32);
    let bits = u64::from(0.75f32.to_bits());
    tanh.operands = bits - 5000..bits + 5000;
    assert!(tanh.run(&right, &mut |_| {}).passed());
    let outcome = tanh.run(&wrong, &mut |_| {});
    assert!(!outcome.passed() && outcome.worst.as_ref().unwrap().place.starts_with("at 7.5e-1 it is "), "{outcome}");
    // Without the wrong operand it passes.
    tanh.operands = bits + 1..bits + 5000;
    assert!(tanh.run(&wrong, &mut |_| {}).passed());
}
