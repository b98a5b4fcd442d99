//! Conversion of 16-bit floats, which must be exact on every device.

use panoply::{DType, Device, Tensor, f16};

/// Panics unless every f16 converts to the f32 of the same value and back, and values in between round to the nearest
/// f16. The oracle is the `half` crate.
#[track_caller]
pub fn convert(device: &Device) {
    let halves: Vec<f16> = (0..=u16::MAX).map(f16::from_bits).collect();
    let single: Vec<f32> = halves.iter().map(|half| half.to_f32()).collect();
    let between: Vec<f32> = single.iter().map(|x| f32::from_bits(x.to_bits() ^ 0x1000)).collect();
    let rounded: Vec<f16> = between.iter().map(|x| f16::from_f32(*x)).collect();
    let same = |a: f16, b: f16| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
    device.scope(|| {
        let wide = Tensor::from_slice(&halves, [halves.len()]).cast(DType::F32).to_vec::<f32>().unwrap();
        let exact = wide.iter().zip(&single).all(|(a, b)| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan());
        assert!(exact, "{device}: f16 to f32");
        for (from, expected) in [(&single, &halves), (&between, &rounded)] {
            let found = Tensor::from_slice(from, [from.len()]).cast(DType::F16).to_vec::<f16>().unwrap();
            let wrong = found.iter().zip(expected).position(|(a, b)| !same(*a, *b));
            assert_eq!(wrong, None, "{device}: f32 to f16 of {:e}", from[wrong.unwrap_or(0)]);
        }
    });
}
