//! Random numbers from an explicit generator; the same bits on every device.
//!
//! Philox4x32-10: a counter-based generator, so that element i of a tensor is a pure function of the seed and a counter and
//! needs no state on the device. Only 32-bit integer operations are used, which every device has.
//!
//! Source: Salmon, Moraes, Dror, Shaw, Parallel Random Numbers: As Easy as 1, 2, 3, SC'11.

use panoply_ir::{DType, Scalar, Shape};

use crate::tensor::Tensor;

/// A seed and how many numbers were drawn; copying it repeats the numbers, so it is borrowed mutably.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rng {
    /// The key.
    pub seed: u64,
    /// Blocks of four words drawn so far.
    pub counter: u64,
    /// Forks drawn so far; part of the seed of the next.
    pub forks: u64,
}

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: u32 = 10;

impl Rng {
    /// A generator whose every number is determined by the seed.
    pub fn seed(seed: u64) -> Rng {
        Rng { seed, counter: 0, forks: 0 }
    }

    /// An independent generator, determined by this one's seed and how many forks it made before.
    pub fn fork(&mut self) -> Rng {
        self.forks += 1;
        let words = philox([self.forks as u32, (self.forks >> 32) as u32, 0xF0, 0x4B], self.seed);
        Rng::seed(u64::from(words[0]) | u64::from(words[1]) << 32)
    }

    /// The next block of four words, on the host.
    pub fn next_words(&mut self) -> [u32; 4] {
        let words = philox([self.counter as u32, (self.counter >> 32) as u32, 0, 0], self.seed);
        self.counter += 1;
        words
    }

    /// A number in `0 .. below`, on the host, without bias.
    pub fn below(&mut self, below: u32) -> u32 {
        assert!(below > 0, "there is no number below 0");
        // Lemire, Fast Random Integer Generation in an Interval, 2019.
        loop {
            let wide = u64::from(self.next_words()[0]) * u64::from(below);
            if wide as u32 >= below.wrapping_neg() % below {
                return (wide >> 32) as u32;
            }
        }
    }

    /// The numbers 0 .. len in random order (Fisher-Yates), on the host.
    pub fn permutation(&mut self, len: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..len).collect();
        for i in (1..len).rev() {
            order.swap(i, self.below(i as u32 + 1) as usize);
        }
        order
    }

    /// u32 words of all bits equally likely.
    #[track_caller]
    pub fn bits(&mut self, shape: impl Into<Shape>) -> Tensor {
        let shape = shape.into();
        let [a, b, c, d] = self.draw(shape.elems());
        Tensor::call("random bits", [&a, &b, &c, &d], shape, bits)
    }

    /// f32 in 0 .. 1, multiples of 2^-24.
    #[track_caller]
    pub fn uniform(&mut self, shape: impl Into<Shape>) -> Tensor {
        let shape = shape.into();
        let [a, b, c, d] = self.draw(shape.elems());
        Tensor::call("random uniform", [&a, &b, &c, &d], shape, uniform)
    }

    /// f32 with mean 0 and variance 1. [Box and Muller 1958]
    #[track_caller]
    pub fn normal(&mut self, shape: impl Into<Shape>) -> Tensor {
        let shape = shape.into();
        let [a, b, c, d] = self.draw(shape.elems());
        let [e, f, g, h] = self.draw(shape.elems());
        Tensor::call("random normal", [&a, &b, &c, &d, &e, &f, &g, &h], shape, |[a, b, c, d, e, f, g, h], shape| {
            let (radius, angle) = (uniform([a, b, c, d], shape), uniform([e, f, g, h], shape));
            // 1 - u lies in (0, 1], where the logarithm is finite.
            let radius = (radius.rsub(1.0).ln() * -2.0).sqrt();
            radius * (angle * std::f64::consts::TAU).cos()
        })
    }

    /// Seed and counter as words, for this many numbers.
    fn draw(&mut self, elems: usize) -> [Tensor; 4] {
        let start = self.counter;
        self.counter += elems.div_ceil(4) as u64;
        [self.seed, self.seed >> 32, start, start >> 32].map(|word| Tensor::scalar(Scalar::from(word as u32)))
    }
}

/// The words that start at a counter under a seed.
fn bits([seed_low, seed_high, low, high]: [&Tensor; 4], shape: &Shape) -> Tensor {
    let constant = |value: u32| Tensor::constant(Scalar::from(value));
    // Element i is word i % 4 of block i / 4, so one expression gives all and nothing is interleaved afterwards.
    let position = Tensor::iota(shape.elems()).cast(DType::U32);
    let (block, lane) = (position.shr(&constant(2)), position.bitand(&constant(3)));
    let low = &block + low;
    let high = low.lt(&block).cast(DType::U32) + high;
    let zero = block.zeros_like();
    let [a, b, c, d] = rounds([low, high, zero.clone(), zero], [seed_low.clone(), seed_high.clone()]);
    let even = lane.bitand(&constant(1)).eq(&constant(0));
    a.where_(&even, &b).where_(&lane.lt(&constant(2)), &c.where_(&even, &d)).reshaped(shape.clone())
}

fn uniform(words: [&Tensor; 4], shape: &Shape) -> Tensor {
    let top = bits(words, shape).shr(&Tensor::constant(Scalar::from(8u32)));
    top.cast(DType::F32) * (1.0 / (1 << 24) as f64)
}

/// Philox4x32-10 on the host: four words from a counter and a key.
pub fn philox(counter: [u32; 4], key: u64) -> [u32; 4] {
    let ([mut a, mut b, mut c, mut d], mut key) = (counter, [key as u32, (key >> 32) as u32]);
    for _ in 0..ROUNDS {
        let (p, q) = (u64::from(a) * u64::from(MULTIPLIERS[0]), u64::from(c) * u64::from(MULTIPLIERS[1]));
        (a, b, c, d) = ((q >> 32) as u32 ^ b ^ key[0], q as u32, (p >> 32) as u32 ^ d ^ key[1], p as u32);
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    [a, b, c, d]
}

/// The same on tensors.
fn rounds([mut a, mut b, mut c, mut d]: [Tensor; 4], mut key: [Tensor; 2]) -> [Tensor; 4] {
    let word = |value: u32| Tensor::constant(Scalar::from(value));
    for _ in 0..ROUNDS {
        let (high_p, low_p) = wide_product(&a, MULTIPLIERS[0]);
        let (high_q, low_q) = wide_product(&c, MULTIPLIERS[1]);
        (a, b, c, d) = (high_q.bitxor(&b).bitxor(&key[0]), low_q, high_p.bitxor(&d).bitxor(&key[1]), low_p);
        key = [&key[0] + word(WEYL[0]), &key[1] + word(WEYL[1])];
    }
    [a, b, c, d]
}

/// High and low word of a 32 × 32-bit product, from 16-bit halves.
fn wide_product(x: &Tensor, y: u32) -> (Tensor, Tensor) {
    let word = |value: u32| Tensor::constant(Scalar::from(value));
    let (low_mask, half) = (word(0xFFFF), word(16));
    let (x_low, x_high) = (x.bitand(&low_mask), x.shr(&half));
    let (y_low, y_high) = (word(y & 0xFFFF), word(y >> 16));
    let low_low = &x_low * &y_low;
    let cross = &x_high * &y_low + low_low.shr(&half);
    let middle = &x_low * &y_high + cross.bitand(&low_mask);
    let high = &x_high * &y_high + cross.shr(&half) + middle.shr(&half);
    (high, x * word(y))
}
