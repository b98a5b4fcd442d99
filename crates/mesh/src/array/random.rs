//! Random numbers by position: an element depends on the seed and its position in the array, not on blocks or devices.
//!
//! The numbers are those of [`panoply_tensor::Rng`] for a tensor of the same shape, so the generator is Philox4x32-10.
//! Source: Salmon, Moraes, Dror, Shaw, Parallel Random Numbers: As Easy as 1, 2, 3, SC'11.

use panoply_ir::builder::Builder;
use panoply_ir::kernel::{Access, Builtin, ExprId, Guard, Kernel};
use panoply_ir::{Alu, DType};
use panoply_tensor::{Result, Tensor};

use super::layout::strides;
use crate::span::Span;

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: u32 = 10;

/// Returns the f32 numbers from [0, 1) of a region of an array, as [`panoply_tensor::Rng::uniform`] draws them.
pub fn uniform(seed: u64, shape: &[usize], region: &[Span]) -> Tensor {
    uniform_from(seed, 0, shape, region)
}

/// Returns the f32 numbers of a region with mean 0 and variance 1, as [`panoply_tensor::Rng::normal`] draws them.
pub fn normal(seed: u64, shape: &[usize], region: &[Span]) -> Tensor {
    // The second draw starts behind the blocks of four words of the first.
    let behind = shape.iter().product::<usize>().div_ceil(4) as u64;
    let (radius, angle) = (uniform_from(seed, 0, shape, region), uniform_from(seed, behind, shape, region));
    let radius = ((1.0 - radius).log() * -2.0).sqrt();
    radius * (angle * std::f64::consts::TAU).cos()
}

fn uniform_from(seed: u64, counter: u64, shape: &[usize], region: &[Span]) -> Tensor {
    let lengths: Vec<usize> = region.iter().map(|span| span.len).collect();
    // At least one axis, so that there is a position.
    let mut positions = Tensor::zeros([1], DType::U32);
    for ((axis, span), stride) in region.iter().enumerate().zip(strides(shape)) {
        let along: Vec<u32> = (0..span.len).map(|index| (span.at(index) * stride) as u32).collect();
        let mut around = vec![1; region.len()];
        around[axis] = span.len;
        positions += Tensor::from_slice(&along, around);
    }
    let positions = positions.broadcast_to(lengths.clone());
    let number = |word: u64| Tensor::scalar(word as u32);
    let inputs =
        [&positions.flatten(0, -1), &number(seed), &number(seed >> 32), &number(counter), &number(counter >> 32)];
    let count: usize = lengths.iter().product();
    let [words] = Tensor::custom_kernel(words_at_positions, &inputs, [[count].into()], count);
    let top = words.reshape(lengths).bitwise_right_shift(&Tensor::scalar(8u32));
    top.cast(DType::F32) * (1.0 / f64::from(1 << 24))
}

/// Builds the kernel: work-item i writes the word of the generator at `positions[i]`.
fn words_at_positions() -> Result<Kernel> {
    let mut b = Builder::new("random_words_at");
    let positions = b.buffer("positions", DType::U32, Access::In);
    let mut key = [b.scalar("seed_low", DType::U32), b.scalar("seed_high", DType::U32)];
    let (low, high) = (b.scalar("low", DType::U32), b.scalar("high", DType::U32));
    let words = b.buffer("words", DType::U32, Access::Out);
    let item = b.builtin(Builtin::GlobalId(0));
    let position = b.load(positions, item, Guard::Checked);
    let (two, three, zero) = (b.constant(2u32), b.constant(3u32), b.constant(0u32));
    let block = b.alu(Alu::Shr, &[position, two]);
    let lane = b.alu(Alu::And, &[position, three]);
    let low = b.alu(Alu::Add, &[block, low]);
    let over = b.alu(Alu::Lt, &[low, block]);
    let carry = b.cast(DType::U32, over);
    let high = b.alu(Alu::Add, &[high, carry]);
    let mut counter = [low, high, zero, zero];
    for round in 0..ROUNDS {
        let [(high_p, low_p), (high_q, low_q)] =
            [0, 1].map(|half| wide_product(&mut b, counter[2 * half], MULTIPLIERS[half]));
        let mut mixed = |high, word, key| {
            let both = b.alu(Alu::Xor, &[high, word]);
            let mixed = b.alu(Alu::Xor, &[both, key]);
            b.bind(&format!("round{round}"), mixed)
        };
        counter = [mixed(high_q, counter[1], key[0]), low_q, mixed(high_p, counter[3], key[1]), low_p];
        key = [0, 1].map(|half| {
            let step = b.constant(WEYL[half]);
            b.alu(Alu::Add, &[key[half], step])
        });
    }
    let mut word = counter[3];
    for number in (0..3u32).rev() {
        let number_here = b.constant(number);
        let here = b.alu(Alu::Eq, &[lane, number_here]);
        word = b.alu(Alu::Select, &[here, counter[number as usize], word]);
    }
    b.store(words, item, word, Guard::Checked);
    b.finish()
}

/// Returns the high and low word of a 32 × 32-bit product, from 16-bit halves: not every device has wider integers.
fn wide_product(b: &mut Builder, x: ExprId, y: u32) -> (ExprId, ExprId) {
    let [y, y_low, y_high, low_mask, half] = [y, y & 0xFFFF, y >> 16, 0xFFFF, 16].map(|word| b.constant(word));
    let (x_low, x_high) = (b.alu(Alu::And, &[x, low_mask]), b.alu(Alu::Shr, &[x, half]));
    let low_low = b.alu(Alu::Mul, &[x_low, y_low]);
    let carried = b.alu(Alu::Shr, &[low_low, half]);
    let high_low = b.alu(Alu::Mul, &[x_high, y_low]);
    let cross = b.alu(Alu::Add, &[high_low, carried]);
    let (cross_low, cross_high) = (b.alu(Alu::And, &[cross, low_mask]), b.alu(Alu::Shr, &[cross, half]));
    let low_high = b.alu(Alu::Mul, &[x_low, y_high]);
    let middle = b.alu(Alu::Add, &[low_high, cross_low]);
    let middle = b.alu(Alu::Shr, &[middle, half]);
    let high_high = b.alu(Alu::Mul, &[x_high, y_high]);
    let high = b.alu(Alu::Add, &[high_high, cross_high]);
    (b.alu(Alu::Add, &[high, middle]), b.alu(Alu::Mul, &[x, y]))
}
