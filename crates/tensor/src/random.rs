//! Random numbers from an explicit generator, with the same bits on every device.
//!
//! The generator is Philox4x32-10. It is counter-based: element i of a tensor is a pure function of the seed and a
//! counter, and the device keeps no state. It uses only 32-bit integer operations, which every device has.
//!
//! Source: Salmon, Moraes, Dror, Shaw, Parallel Random Numbers: As Easy as 1, 2, 3, SC'11.

mod sampling;

use std::sync::{Arc, OnceLock};

use panoply_ir::builder::Builder;
use panoply_ir::kernel::{Access, Builtin, ExprId, Guard, Kernel};
use panoply_ir::{Alu, DType, Error, Result, Scalar, Shape};

use crate::tensor::Tensor;
pub use sampling::Replacement;

/// A random number generator: a seed and the number of blocks drawn. Drawing borrows it mutably, since a clone repeats
/// the numbers, as a key of JAX does: [`Rng::fork`] makes a generator with other numbers.
#[doc(alias = "Generator")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rng {
    /// The Philox key.
    pub seed: u64,
    /// Number of blocks of four words drawn so far.
    pub counter: u64,
    /// Number of forks made so far, which is part of the seed of the next one.
    pub forks: u64,
    /// The generator that this one represents while a function is traced.
    traced: Option<TracedRng>,
}

/// A generator of a function under trace, whose numbers differ in each run.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TracedRng {
    /// The trace, and the index among its generators.
    generator: (u64, usize),
    /// Counter at the start of the trace.
    start: u64,
    /// Seed, counter and forks after the last draw; other values mean that the program has set the fields.
    left: [u64; 3],
    /// The first operation on it or a copy that a replay could not repeat.
    wrong: Arc<OnceLock<&'static str>>,
}

/// A word of seed or counter that is an argument of a draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RngWord {
    /// The trace, and the index among its generators.
    pub generator: (u64, usize),
    /// Number of blocks drawn since the trace began.
    ahead: u64,
    /// Index among the words of seed and counter.
    place: usize,
}

impl RngWord {
    /// Returns the word for a generator with this state at the start of the function.
    pub fn from(&self, rng: &Rng) -> Scalar {
        words(rng.seed, rng.counter.wrapping_add(self.ahead))[self.place].into()
    }
}

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: u32 = 10;

impl Rng {
    /// Creates a generator from a seed.
    #[doc(alias = "manual_seed")]
    pub fn seed_from_u64(seed: u64) -> Rng {
        Rng { seed, counter: 0, forks: 0, traced: None }
    }

    /// Creates an independent generator, determined by the seed and the number of earlier forks. Its numbers differ from
    /// those of this one; a clone would repeat them.
    #[doc(alias = "split")]
    pub fn fork(&mut self) -> Rng {
        self.draw_on_host();
        self.forks += 1;
        let words = philox([self.forks as u32, (self.forks >> 32) as u32, 0xF0, 0x4B], self.seed);
        Rng::seed_from_u64(u64::from(words[0]) | u64::from(words[1]) << 32)
    }

    /// Draws the next block of four words on the host.
    pub fn next_words(&mut self) -> [u32; 4] {
        self.draw_on_host();
        let words = philox([self.counter as u32, (self.counter >> 32) as u32, 0, 0], self.seed);
        self.counter = self.counter.wrapping_add(1);
        words
    }

    /// Draws a number in `0 .. below` on the host, without bias. [`Rng::randint`] draws a tensor.
    ///
    /// # Panics
    /// If `below` is 0.
    pub fn random_below(&mut self, below: u32) -> u32 {
        assert!(below > 0, "random_below: the bound must be at least 1");
        // Lemire, Fast Random Integer Generation in an Interval, 2019.
        loop {
            let wide = u64::from(self.next_words()[0]) * u64::from(below);
            if wide as u32 >= below.wrapping_neg() % below {
                return (wide >> 32) as u32;
            }
        }
    }

    /// Returns a random permutation of `0 .. len` (Fisher-Yates), on the host. [`Rng::randperm`] draws a tensor.
    pub fn permutation(&mut self, len: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..len).collect();
        for i in (1..len).rev() {
            order.swap(i, self.random_below(i as u32 + 1) as usize);
        }
        order
    }

    /// Draws u32 words with all bits equally likely.
    #[track_caller]
    pub fn bits(&mut self, shape: impl Into<Shape>) -> Tensor {
        let shape = shape.into();
        let [a, b, c, d] = self.draw(shape.numel());
        Tensor::call("random bits", [&a, &b, &c, &d], shape, bits)
    }

    /// Draws f32 numbers uniformly from [0, 1), multiples of 2^-24.
    #[doc(alias = "rand")]
    #[track_caller]
    pub fn uniform(&mut self, shape: impl Into<Shape>) -> Tensor {
        let shape = shape.into();
        let [a, b, c, d] = self.draw(shape.numel());
        Tensor::call("random uniform", [&a, &b, &c, &d], shape, uniform)
    }

    /// Draws numbers of a float type uniformly from [0, 1). They are multiples of 2^-11 for f16, 2^-8 for bf16, 2^-24
    /// for f32 and 2^-53 for f64, all equally likely. Numbers of [`Rng::uniform`] cast to f16 or bf16 would sometimes
    /// round up to 1.
    #[doc(alias = "rand")]
    #[track_caller]
    pub fn uniform_of(&mut self, shape: impl Into<Shape>, dtype: DType) -> Tensor {
        let shape = shape.into();
        let digits: u32 = match dtype {
            DType::F16 => 11,
            DType::BF16 => 8,
            DType::F32 => return self.uniform(shape),
            DType::F64 => {
                let high = self
                    .bits(shape.clone())
                    .bitwise_right_shift(&Tensor::constant(Scalar::from(5u32)))
                    .cast(DType::F64);
                let low = self.bits(shape).bitwise_right_shift(&Tensor::constant(Scalar::from(6u32))).cast(DType::F64);
                return (high * f64::from(1 << 26) + low) * (1.0 / (1u64 << 53) as f64);
            }
            DType::Bool
            | DType::I8
            | DType::I16
            | DType::I32
            | DType::I64
            | DType::U8
            | DType::U16
            | DType::U32
            | DType::U64 => {
                let message = format!("uniform_of: {dtype} has no fractions; use a float type");
                return Tensor::mistake(Error::mistake(message));
            }
        };
        let top = self.bits(shape).bitwise_right_shift(&Tensor::constant(Scalar::from(32 - digits)));
        (top.cast(DType::F32) * (1.0 / f64::from(1u32 << digits))).cast(dtype)
    }

    /// Draws f32 numbers with mean 0 and variance 1. [Box and Muller 1958]
    #[doc(alias = "randn")]
    #[track_caller]
    pub fn normal(&mut self, shape: impl Into<Shape>) -> Tensor {
        let shape = shape.into();
        let [a, b, c, d] = self.draw(shape.numel());
        let [e, f, g, h] = self.draw(shape.numel());
        Tensor::call("random normal", [&a, &b, &c, &d, &e, &f, &g, &h], shape, |[a, b, c, d, e, f, g, h], shape| {
            normal(&uniform([a, b, c, d], shape), &uniform([e, f, g, h], shape))
        })
    }

    /// Returns the numbers that [`Rng::uniform`] would draw at these row-major positions, u32 `[n]`: f32 `[n]`. The generator is not
    /// advanced.
    #[track_caller]
    pub fn uniform_at(&self, positions: &Tensor) -> Tensor {
        self.draw_on_host();
        let count = match positions.shape() {
            Ok(shape) => shape.numel(),
            Err(error) => return Tensor::mistake(error),
        };
        let [a, b, c, d] = words(self.seed, self.counter).map(|word| Tensor::constant(Scalar::from(word)));
        let [words] = Tensor::custom_kernel(words_at, &[positions, &a, &b, &c, &d], [[count].into()], count);
        fractions(&words)
    }

    /// Returns the numbers that [`Rng::normal`] would draw at these row-major positions of a tensor of `numel` elements, as
    /// [`Rng::uniform_at`] does.
    #[track_caller]
    pub fn normal_at(&self, positions: &Tensor, numel: usize) -> Tensor {
        let second = Rng { counter: self.counter.wrapping_add(numel.div_ceil(4) as u64), ..self.clone() };
        normal(&self.uniform_at(positions), &second.uniform_at(positions))
    }

    /// Draws from [`Rng::uniform`] in the shape of a tensor. An axis with a [`crate::Dim`] consumes as many numbers
    /// as its bound.
    #[doc(alias = "rand_like")]
    #[track_caller]
    pub fn uniform_like(&mut self, like: &Tensor) -> Tensor {
        if like.is_mistake() { like.clone() } else { self.uniform(like.0.shape.clone()).with_lengths_of(like) }
    }

    /// Draws from [`Rng::normal`] in the shape of a tensor; see [`Rng::uniform_like`].
    #[doc(alias = "randn_like")]
    #[track_caller]
    pub fn normal_like(&mut self, like: &Tensor) -> Tensor {
        if like.is_mistake() { like.clone() } else { self.normal(like.0.shape.clone()).with_lengths_of(like) }
    }

    /// Advances the counter by `elems` words and returns seed and counter before that as tensors.
    fn draw(&mut self, elems: usize) -> [Tensor; 4] {
        self.check_untouched();
        let start = self.counter;
        self.counter = self.counter.wrapping_add(elems.div_ceil(4) as u64);
        let left = self.fields();
        if let Some(traced) = &mut self.traced {
            traced.left = left;
        }
        let word = |place: usize| {
            let word = self.traced.as_ref().map(|TracedRng { generator, start: began, .. }| RngWord {
                generator: *generator,
                ahead: start.wrapping_sub(*began),
                place,
            });
            Tensor::slot_from(words(self.seed, start)[place].into(), word)
        };
        [0, 1, 2, 3].map(word)
    }

    /// Turns this into the placeholder of a generator argument.
    pub(crate) fn set_placeholder(&mut self, generator: (u64, usize)) {
        let (start, left) = (self.counter, self.fields());
        self.traced = Some(TracedRng { generator, start, left, wrong: Arc::default() });
    }

    /// Returns the number of blocks drawn since [`Rng::set_placeholder`], or the operation that a replay could not repeat.
    pub(crate) fn drawn_as(&self, generator: (u64, usize)) -> Result<u64, &'static str> {
        let Some(traced) = self.traced.as_ref().filter(|traced| traced.generator == generator) else {
            return Err("replaces it, which would be repeated in every call; set it outside");
        };
        self.check_untouched();
        traced.wrong.get().map_or(Ok(self.counter.wrapping_sub(traced.start)), |wrong| Err(*wrong))
    }

    fn draw_on_host(&self) {
        if let Some(TracedRng { wrong, .. }) = &self.traced {
            wrong.get_or_init(|| "draws or forks on the host, which would be the same in every call; do it outside");
        }
    }

    fn check_untouched(&self) {
        if let Some(TracedRng { wrong, .. }) = self.traced.as_ref().filter(|traced| traced.left != self.fields()) {
            wrong.get_or_init(|| "sets its fields, which would be the same in every call; set them outside");
        }
    }

    fn fields(&self) -> [u64; 3] {
        [self.seed, self.counter, self.forks]
    }
}

/// Returns seed and counter as the arguments of the kernel.
fn words(seed: u64, counter: u64) -> [u32; 4] {
    [seed as u32, (seed >> 32) as u32, counter as u32, (counter >> 32) as u32]
}

/// Returns the words from a counter under a seed. This is a custom kernel: as graph nodes its eight hundred
/// operations for each element would be a hundred arrays.
fn bits(words: [&Tensor; 4], shape: &Shape) -> Tensor {
    if shape.numel() == 0 {
        return Tensor::constant(Scalar::from(0u32)).expanded(shape);
    }
    let [bits] = Tensor::custom_kernel(blocks, &words, [[shape.numel()].into()], shape.numel().div_ceil(4));
    bits.reshaped(shape.clone())
}

fn uniform(words: [&Tensor; 4], shape: &Shape) -> Tensor {
    fractions(&bits(words, shape))
}

/// Returns the upper 24 bits of words as numbers from [0, 1).
fn fractions(words: &Tensor) -> Tensor {
    let top = words.bitwise_right_shift(&Tensor::constant(Scalar::from(8u32)));
    top.cast(DType::F32) * (1.0 / (1 << 24) as f64)
}

/// Returns normally distributed numbers from two uniform ones.
fn normal(radius: &Tensor, angle: &Tensor) -> Tensor {
    // 1 - u is in (0, 1], where the logarithm is finite.
    let radius = ((1.0 - radius).log() * -2.0).sqrt();
    radius * (angle * std::f64::consts::TAU).cos()
}

/// Computes Philox4x32-10 on the host: four words from a counter and a key.
pub fn philox(counter: [u32; 4], key: u64) -> [u32; 4] {
    let ([mut a, mut b, mut c, mut d], mut key) = (counter, [key as u32, (key >> 32) as u32]);
    for _ in 0..ROUNDS {
        let (p, q) = (u64::from(a) * u64::from(MULTIPLIERS[0]), u64::from(c) * u64::from(MULTIPLIERS[1]));
        (a, b, c, d) = ((q >> 32) as u32 ^ b ^ key[0], q as u32, (p >> 32) as u32 ^ d ^ key[1], p as u32);
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    [a, b, c, d]
}

/// Builds the kernel of [`bits`]: work-item i writes the i-th block of four words.
fn blocks() -> Result<Kernel> {
    let mut b = Builder::new("random_words");
    let words = b.buffer("words", DType::U32, Access::Out);
    let key = [b.scalar("seed_low", DType::U32), b.scalar("seed_high", DType::U32)];
    let start = [b.scalar("low", DType::U32), b.scalar("high", DType::U32)];
    let item = b.builtin(Builtin::GlobalId(0));
    let block = b.cast(DType::U32, item);
    let words_of_block = block_words(&mut b, block, key, start);
    let (four, len) = (b.index(4), b.len(words));
    let first = b.alu(Alu::Mul, &[item, four]);
    for (lane, word) in words_of_block.into_iter().enumerate() {
        let lane = b.index(lane as u64);
        let at = b.alu(Alu::Add, &[first, lane]);
        let inside = b.alu(Alu::Lt, &[at, len]);
        b.begin_if(inside);
        b.store(words, at, word, Guard::Checked);
        b.end();
    }
    b.finish()
}

/// Builds the kernel of [`Rng::uniform_at`]: work-item i writes the word at `positions[i]`.
fn words_at() -> Result<Kernel> {
    let mut b = Builder::new("random_words_at");
    let positions = b.buffer("positions", DType::U32, Access::In);
    let key = [b.scalar("seed_low", DType::U32), b.scalar("seed_high", DType::U32)];
    let start = [b.scalar("low", DType::U32), b.scalar("high", DType::U32)];
    let words = b.buffer("words", DType::U32, Access::Out);
    let item = b.builtin(Builtin::GlobalId(0));
    let position = b.load(positions, item, Guard::Checked);
    let (two, three) = (b.constant(2u32), b.constant(3u32));
    let (block, lane) = (b.alu(Alu::Shr, &[position, two]), b.alu(Alu::And, &[position, three]));
    let words_of_block = block_words(&mut b, block, key, start);
    let mut word = words_of_block[3];
    for number in (0..3u32).rev() {
        let other = b.constant(number);
        let is_here = b.alu(Alu::Eq, &[lane, other]);
        word = b.alu(Alu::Select, &[is_here, words_of_block[number as usize], word]);
    }
    b.store(words, item, word, Guard::Checked);
    b.finish()
}

/// Adds Philox4x32-10 to a kernel: the four words of a block after the counter `start`.
fn block_words(b: &mut Builder, block: ExprId, mut key: [ExprId; 2], [low, high]: [ExprId; 2]) -> [ExprId; 4] {
    let low = b.alu(Alu::Add, &[block, low]);
    let over = b.alu(Alu::Lt, &[low, block]);
    let carry = b.cast(DType::U32, over);
    let (high, zero) = (b.alu(Alu::Add, &[high, carry]), b.constant(0u32));
    let mut counter = [low, high, zero, zero];
    for round in 0..ROUNDS {
        let [(high_p, low_p), (high_q, low_q)] =
            [0, 1].map(|half| wide_product(b, counter[2 * half], MULTIPLIERS[half]));
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
    counter
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
