//! The cache of FFT plans.

use std::sync::Arc;

use panoply_host::isa::Isa;
use panoply_ir::routine::FourierKind;
use panoply_routines::fourier::line::{Element, FftPlans, KEPT};

#[test]
fn plan_cache_is_bounded_by_total_length() {
    let transforms = FftPlans::default();
    let line = |n| f32::line(&transforms, Isa::best(), FourierKind::Forward, n);
    let first = line(KEPT / 4);
    assert!(Arc::ptr_eq(&first, &line(KEPT / 4)));
    for n in 1..4 {
        line(KEPT / 4 - n);
    }
    let kept: usize = f32::kept(&transforms).lock().unwrap().keys().map(|(.., length)| length).sum();
    assert!(kept <= KEPT, "{kept}");
    line(KEPT / 4 - 4);
    assert_eq!(f32::kept(&transforms).lock().unwrap().len(), 1);
    assert_eq!(line(KEPT * 2).length, KEPT * 2);
}
