//! The numeric contract: maximum errors of a device's math functions.

use panoply_ir::alu::Math;
use panoply_ir::{Alu, DType, Result, accuracy};

use super::oracle::both;
use super::{Outcome, Worst};
use crate::{Device, Tensor};

/// Number of samples of each function, besides edge cases.
const SAMPLES: u64 = 1 << 14;

/// A function and its tensor method.
pub(super) type Function = (Math, fn(&Tensor) -> Tensor);

/// All functions.
pub(super) const FUNCTIONS: [Function; 12] = [
    (Math::Exp, Tensor::exp),
    (Math::Exp2, Tensor::exp2),
    (Math::Log, Tensor::log),
    (Math::Log2, Tensor::log2),
    (Math::Log1p, Tensor::log1p),
    (Math::Expm1, Tensor::expm1),
    (Math::Sin, Tensor::sin),
    (Math::Cos, Tensor::cos),
    (Math::Tan, Tensor::tan),
    (Math::Atan, Tensor::atan),
    (Math::Tanh, Tensor::tanh),
    (Math::Erf, Tensor::erf),
];

/// Measures the error of every function in f32, at normal numbers of all magnitudes.
pub fn functions(device: &Device) -> impl Iterator<Item = Outcome> {
    let language = device.target().language;
    FUNCTIONS.into_iter().map(move |(math, function)| Outcome {
        name: math.name().to_string(),
        unit: "ulp",
        limit: accuracy::guaranteed(Alu::Math(math), DType::F32, language).unwrap_or(accuracy::FUNCTION_ULPS),
        worst: device.scope(|| worst(function)),
    })
}

fn worst(function: fn(&Tensor) -> Tensor) -> Result<Worst> {
    let numbers = numbers();
    let result = function(&Tensor::from_slice(&numbers, [numbers.len()]));
    let (have, want) = both(&[&result])?;
    Ok(Worst::in_ulps(&numbers, &have[0], &want[0]))
}

/// Returns random numbers uniform over all exponents, and edge cases. Without subnormal numbers, which a device may
/// flush to 0.
fn numbers() -> Vec<f32> {
    let mut state = 1u64;
    // SplitMix64 (Steele, Lea, Flood 2014).
    let mut next = move || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (state ^ state >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    };
    let any = (0..SAMPLES).map(|_| f32::from_bits((next() >> 32) as u32)).collect::<Vec<f32>>();
    // Most functions are constant or undefined at most of those numbers, so as many are near 0.
    let near = (0..SAMPLES).map(|_| (next() >> 40) as f32 / (1u64 << 19) as f32 - 16.0);
    let edges =
        [0.0, -0.0, 1.0, -1.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MAX, f32::MIN_POSITIVE, 88.7, -87.3];
    near.chain(any).filter(|x| !x.is_subnormal()).chain(edges).collect()
}
