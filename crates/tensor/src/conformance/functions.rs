//! The numeric contract: maximum errors of a device's math functions.

use panoply_ir::Result;
use panoply_ir::alu::Math;
use panoply_ir::target::Language;

use super::oracle::both;
use super::{Outcome, Worst};
use crate::{Device, Tensor};

/// Number of samples of each function, besides edge cases.
const SAMPLES: u64 = 1 << 14;

/// A function, its tensor method, and the ULP limit of driver implementations: that of OpenCL (OpenCL C 1.2, table
/// 7.4; full profile), or our own limit for functions implemented by us there as well.
type Function = (Math, fn(&Tensor) -> Tensor, f64);

const FUNCTIONS: [Function; 12] = [
    (Math::Exp, Tensor::exp, 3.0),
    (Math::Exp2, Tensor::exp2, 3.0),
    (Math::Log, Tensor::log, 3.0),
    (Math::Log2, Tensor::log2, 3.0),
    (Math::Log1p, Tensor::log1p, 2.0),
    (Math::Expm1, Tensor::expm1, 3.0),
    (Math::Sin, Tensor::sin, 4.0),
    (Math::Cos, Tensor::cos, 4.0),
    (Math::Tan, Tensor::tan, 5.0),
    (Math::Atan, Tensor::atan, 5.0),
    (Math::Tanh, Tensor::tanh, OURS),
    (Math::Erf, Tensor::erf, 16.0),
];

/// ULP limit of our own implementations.
const OURS: f64 = 2.0;

/// Measures the error of every function in f32, at normal numbers of all magnitudes.
pub fn functions(device: &Device) -> impl Iterator<Item = Outcome> {
    let own = matches!(device.target().language, Language::OpenClC | Language::SpirV);
    FUNCTIONS.into_iter().map(move |(math, function, allowed)| Outcome {
        name: math.name().to_string(),
        unit: "ulp",
        limit: if own { allowed } else { OURS },
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
