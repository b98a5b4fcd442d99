//! The guaranteed error bounds of float operations, tested at every operand of f16, bf16 and f32 for operations of one operand, and at
//! boundaries of two operands.
//!
//! The reference is the scalar interpreter in f64, whose own error is below 2⁻²⁸ ULP of an f32. The pairs of two operands are all pairs of
//! the numbers with five significands of each exponent and sign, and random ones.

use std::ops::Range;

use panoply_ir::interpret::scalar;
use panoply_ir::target::Language;
use panoply_ir::{Alu, DType, Error, Result, Scalar, accuracy, bf16, f16};

use super::functions::FUNCTIONS;
use super::{Outcome, Worst};
use crate::{Device, Tensor};

/// Number of operands computed at a time.
const BLOCK: u64 = 1 << 20;
/// Number of random pairs.
const RANDOM_PAIRS: u64 = 1 << 22;
/// Part of a bound that the error of the reference can add.
const REFERENCE_ERROR: f64 = 1.0 / (1 << 20) as f64;

/// Implementations on tensors.
type Unary = fn(&Tensor) -> Tensor;
type Binary = fn(&Tensor, &Tensor) -> Tensor;

/// Operations of one operand, besides the transcendental functions.
const UNARY: [(Alu, Unary); 7] = [
    (Alu::Neg, |x| -x),
    (Alu::Abs, Tensor::abs),
    (Alu::Floor, Tensor::floor),
    (Alu::Ceil, Tensor::ceil),
    (Alu::Round, Tensor::round),
    (Alu::Trunc, Tensor::trunc),
    (Alu::Sqrt, Tensor::sqrt),
];

/// Operations of two operands.
const BINARY: [(Alu, Binary); 7] = [
    (Alu::Add, |x, y| x + y),
    (Alu::Sub, |x, y| x - y),
    (Alu::Mul, |x, y| x * y),
    (Alu::Div, |x, y| x / y),
    (Alu::Min, |x, y| x.minimum(y)),
    (Alu::Max, |x, y| x.maximum(y)),
    (Alu::Pow, |x, y| x.pow(y)),
];

/// An operation with its implementation on tensors.
#[derive(Clone, Copy, Debug)]
enum Operation {
    Unary(Alu, Unary),
    /// 1 / x.
    Reciprocal,
    /// A conversion to another float type.
    Cast(DType),
    Binary(Alu, Binary),
}

/// A test of an operation on operands of one type.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// Name of the operation.
    pub name: &'static str,
    /// Element type of the operands.
    pub dtype: DType,
    /// Indices of the operands; for an operation of one operand they are their bits.
    pub operands: Range<u64>,
    operation: Operation,
}

/// Returns the tests of all operations, for f16, bf16 and f32.
pub fn sweeps() -> Vec<Sweep> {
    [DType::F16, DType::BF16, DType::F32].into_iter().flat_map(of_type).collect()
}

fn of_type(dtype: DType) -> Vec<Sweep> {
    let sweep = |name: &'static str, operation: Operation| {
        let format = Format::of(dtype);
        let operands = match operation {
            Operation::Binary(..) => 0..format.boundaries().pow(2) + RANDOM_PAIRS,
            _ => 0..1 << format.bits,
        };
        Sweep { name, dtype, operands, operation }
    };
    let functions = FUNCTIONS.map(|(function, run)| (Alu::Math(function), run));
    let casts = [DType::F16, DType::BF16, DType::F32].into_iter().filter(|to| *to != dtype);
    let unary = UNARY.into_iter().chain(functions).map(|(op, run)| sweep(op.name(), Operation::Unary(op, run)));
    let name = |to: DType| match to {
        DType::F16 => "cast to f16",
        DType::BF16 => "cast to bf16",
        _ => "cast to f32",
    };
    let casts = casts.map(|to| sweep(name(to), Operation::Cast(to)));
    let binary = BINARY.into_iter().map(|(op, run)| sweep(op.name(), Operation::Binary(op, run)));
    let reciprocal = sweep("recip", Operation::Reciprocal);
    unary.chain([reciprocal]).chain(casts).chain(binary).collect()
}

impl Sweep {
    /// Returns the number of operands, or of pairs of operands.
    pub fn len(&self) -> u64 {
        self.operands.end - self.operands.start
    }

    /// Returns true if there are no operands.
    pub fn is_empty(&self) -> bool {
        self.operands.is_empty()
    }

    /// Returns the guaranteed bound in ULP on a device; `None` without a guarantee.
    pub fn bound(&self, device: &Device) -> Option<f64> {
        let language = device.target().language;
        match self.operation {
            Operation::Unary(op, _) | Operation::Binary(op, _) => accuracy::guaranteed(op, self.dtype, language),
            Operation::Reciprocal => accuracy::guaranteed(Alu::Div, self.dtype, language),
            Operation::Cast(DType::F32) => Some(0.0),
            Operation::Cast(_) => Some(accuracy::ROUNDED),
        }
    }

    /// Computes all operands on a device and measures the largest error. Calls `progress` with the number of operands so far.
    pub fn run(&self, device: &Device, progress: &mut dyn FnMut(u64)) -> Outcome {
        let bound = self.bound(device);
        let worst = match bound {
            Some(_) => device.scope(|| self.worst(device.target().language, progress)),
            None => Err(Error::unsupported(format!("no error bound is guaranteed on {device}"))),
        };
        let limit = bound.unwrap_or(0.0) * (1.0 + REFERENCE_ERROR);
        Outcome { name: format!("{}, {}", self.name, self.dtype), unit: "ulp", limit, worst }
    }

    fn worst(&self, language: Language, progress: &mut dyn FnMut(u64)) -> Result<Worst> {
        let mut worst = Worst::default();
        let threads = std::thread::available_parallelism().map_or(1, Into::into);
        let mut start = self.operands.start;
        while start < self.operands.end {
            let block = start..(start + BLOCK).min(self.operands.end);
            let [x, y] = self.block(block.clone());
            let have = self.compute(&x, &y)?;
            if have.len() != x.len() {
                let message = format!("{} elements came out, not {}", have.len(), x.len());
                return Err(Error::new(panoply_ir::ErrorKind::Driver, message));
            }
            let part = |range: Range<usize>| {
                let mut worst = Worst::default();
                for at in range {
                    self.compare([x[at], y[at]], have[at], language, &mut worst);
                }
                worst
            };
            let size = x.len().div_ceil(threads).max(1);
            let ranges = (0..x.len()).step_by(size).map(|from| from..(from + size).min(x.len()));
            let parts: Vec<Worst> = if threads == 1 {
                ranges.map(part).collect()
            } else {
                let part = &part;
                std::thread::scope(|scope| {
                    let workers: Vec<_> = ranges.map(|range| scope.spawn(move || part(range))).collect();
                    workers.into_iter().map(|worker| worker.join().expect("a comparison does not panic")).collect()
                })
            };
            parts.into_iter().filter(|part| part.error > 0.0).for_each(|part| worst.see(part.error, || part.place));
            start = block.end;
            progress(start - self.operands.start);
        }
        Ok(worst)
    }

    /// Returns the operands of a block, the second ones unused by operations of one operand.
    fn block(&self, block: Range<u64>) -> [Vec<f32>; 2] {
        let format = Format::of(self.dtype);
        match self.operation {
            Operation::Binary(..) => {
                let (x, y) = block.map(|index| format.pair(index)).unzip();
                [x, y]
            }
            _ => {
                let x: Vec<f32> = block.map(|bits| format.number(bits)).collect();
                [x.clone(), x]
            }
        }
    }

    /// Computes the results on the current device.
    fn compute(&self, x: &[f32], y: &[f32]) -> Result<Vec<f32>> {
        let x = tensor(x, self.dtype);
        let result = match self.operation {
            Operation::Unary(_, run) => run(&x),
            Operation::Reciprocal => x.reciprocal(),
            Operation::Cast(to) => x.cast(to),
            Operation::Binary(_, run) => run(&x, &tensor(y, self.dtype)),
        };
        // Converted on the host, so that only this operation runs on the device.
        Ok(match result.dtype() {
            DType::F16 => result.to_vec::<f16>()?.into_iter().map(f16::to_f32).collect(),
            DType::BF16 => result.to_vec::<bf16>()?.into_iter().map(bf16::to_f32).collect(),
            _ => result.to_vec::<f32>()?,
        })
    }

    /// Returns the exact result, rounded to f64.
    fn reference(&self, [x, y]: [f64; 2]) -> f64 {
        let alu = |op: Alu, operands: &[Scalar]| scalar::alu(op, operands).to_f64();
        match self.operation {
            Operation::Unary(op, _) => alu(op, &[x.into()]),
            Operation::Reciprocal => 1.0 / x,
            Operation::Cast(_) => x,
            Operation::Binary(op, _) => alu(op, &[x.into(), y.into()]),
        }
    }

    fn compare(&self, operands: [f32; 2], have: f32, language: Language, worst: &mut Worst) {
        let to = if let Operation::Cast(to) = self.operation { to } else { self.dtype };
        let format = Format::of(to);
        let [x, y] = operands.map(f64::from);
        let (have, want) = (f64::from(have), self.reference([x, y]));
        let mut error = format.ulps(have, want);
        if error > worst.error && accuracy::flushes_subnormals(language) {
            let tiny = |x: f64| x.abs() < f64::from(f32::MIN_POSITIVE);
            let flushed = |x: f64| if tiny(x) { 0.0 } else { x };
            for x in [x, flushed(x)] {
                for y in [y, flushed(y)] {
                    let want = self.reference([x, y]);
                    let nearest = if have == 0.0 && tiny(want) { 0.0 } else { format.ulps(have, want) };
                    error = error.min(nearest);
                }
            }
        }
        worst.see(error, || match self.operation {
            Operation::Binary(..) => format!("at {x:e} and {y:e} it is {have:e}, not {want:e}"),
            _ => format!("at {x:e} it is {have:e}, not {want:e}"),
        });
    }
}

/// Creates a tensor of numbers that the type represents.
fn tensor(numbers: &[f32], dtype: DType) -> Tensor {
    let shape = [numbers.len()];
    match dtype {
        DType::F16 => Tensor::from_slice(&numbers.iter().map(|x| f16::from_f32(*x)).collect::<Vec<f16>>(), shape),
        DType::BF16 => Tensor::from_slice(&numbers.iter().map(|x| bf16::from_f32(*x)).collect::<Vec<bf16>>(), shape),
        _ => Tensor::from_slice(numbers, shape),
    }
}

/// A float format.
#[derive(Clone, Copy, Debug)]
struct Format {
    dtype: DType,
    bits: u32,
    /// Number of bits of the significand that are stored.
    stored: u32,
    /// Exponent of the smallest normal and of the largest number.
    least: i32,
    largest: i32,
}

impl Format {
    /// Returns the format of f16, bf16 or f32.
    fn of(dtype: DType) -> Format {
        match dtype {
            DType::F16 => Format { dtype, bits: 16, stored: 10, least: -14, largest: 15 },
            DType::BF16 => Format { dtype, bits: 16, stored: 7, least: -126, largest: 127 },
            _ => Format { dtype, bits: 32, stored: 23, least: -126, largest: 127 },
        }
    }

    /// Returns the number with these bits.
    fn number(self, bits: u64) -> f32 {
        match self.dtype {
            DType::F16 => f16::from_bits(bits as u16).to_f32(),
            DType::BF16 => bf16::from_bits(bits as u16).to_f32(),
            _ => f32::from_bits(bits as u32),
        }
    }

    /// Returns the number of boundary numbers: five significands for each sign and exponent, infinities and NaN included.
    fn boundaries(self) -> u64 {
        5 << (self.bits - self.stored)
    }

    fn boundary(self, index: u64) -> f32 {
        let ones = (1 << self.stored) - 1;
        let significand = [0, 1, ones / 2, ones / 2 + 1, ones][(index % 5) as usize];
        self.number(((index / 5) << self.stored) | significand)
    }

    /// Returns a pair of operands: first all pairs of boundary numbers, then random ones.
    fn pair(self, index: u64) -> (f32, f32) {
        let count = self.boundaries();
        if index < count * count {
            return (self.boundary(index / count), self.boundary(index % count));
        }
        // SplitMix64 (Steele, Lea, Flood 2014).
        let z = index.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        let z = z ^ z >> 31;
        let mask = (1 << self.bits) - 1;
        (self.number(z & mask), self.number(z >> 32 & mask))
    }

    /// Returns the difference of a result from the exact one in units in the last place. Infinity counts as the number that follows the
    /// largest one, and all NaNs are equal.
    fn ulps(self, have: f64, want: f64) -> f64 {
        if have == want || (have.is_nan() && want.is_nan()) {
            return 0.0;
        }
        let top = power(self.largest + 1);
        let (have, want) = (have.clamp(-top, top), want.clamp(-top, top));
        let exponent = ((want.to_bits() >> 52 & 0x7ff) as i32 - 1023).clamp(self.least, self.largest);
        let error = (have - want).abs() * power(self.stored as i32 - exponent);
        if error.is_nan() { f64::INFINITY } else { error }
    }
}

/// Returns a power of two with a normal exponent.
fn power(exponent: i32) -> f64 {
    f64::from_bits(((exponent + 1023) as u64) << 52)
}
