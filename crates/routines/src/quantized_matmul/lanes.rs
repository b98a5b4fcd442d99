//! Registers of 32-bit words whose lanes are rows of a packed matrix.
//!
//! Unpacking is shifts and masks of words, and a product adds four bytes at once, so one text over [`Lanes`] serves every instruction set.
//! Sums of integers are exact on all of them; those of floats may be fused or not.

#[cfg(target_arch = "x86_64")]
mod x86;

use panoply_host::isa::{Isa, Portable, Simd};
use panoply_host::simd::Task;
use panoply_ir::f16;

use super::activations::{BLOCK, round};

/// Bytes of a line of the cache, which [`Lanes::prefetch`] loads.
pub const LINE: usize = 64;

/// Bytes from what is multiplied to what is prefetched (figures: `docs/measured/quantized-matmul-cpu.md`).
pub const PREFETCH: usize = 4608;

/// Returns true if weights are prefetched.
pub fn prefetches() -> bool {
    #[cfg(target_arch = "x86_64")]
    return panoply_host::isa::needs_software_prefetch();
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Words from one word of a block to its next: that of all rows of an interleaved group lie between them.
pub const STRIDE: usize = panoply_ir::INTERLEAVED_ROWS;

/// A register of 32-bit words, and one of as many f32.
///
/// The methods are plain instructions: they may only run where [`Simd::run`] has enabled them.
pub trait Lanes: Copy + 'static {
    /// Number of lanes.
    const COUNT: usize;
    /// Columns whose sums fit the registers at once.
    const COLUMNS: usize;
    /// Rows and columns of floats whose sums fit the registers at once.
    const FLOAT_TILE: [usize; 2];
    /// As many f32.
    type Float: Copy;
    /// A machine with the instructions.
    type Simd: Simd;

    /// Words from memory, aligned or not.
    ///
    /// # Safety
    /// The machine has the instructions, as for all of these; the pointer is valid for reads of all lanes.
    unsafe fn load(from: *const u32) -> Self;

    /// Writes all lanes, aligned or not.
    ///
    /// # Safety
    /// The pointer is valid for writes of all lanes.
    unsafe fn store(self, to: *mut u32);

    /// The same word in all lanes.
    ///
    /// # Safety
    /// As for all.
    unsafe fn splat(word: u32) -> Self;

    /// Bits that are set in the mask as well.
    ///
    /// # Safety
    /// As for all.
    unsafe fn and(self, mask: u32) -> Self;

    /// Bits of either.
    ///
    /// # Safety
    /// As for all.
    unsafe fn or(self, with: Self) -> Self;

    /// Bits that differ from the mask.
    ///
    /// # Safety
    /// As for all.
    unsafe fn xor(self, mask: u32) -> Self;

    /// Sums that wrap.
    ///
    /// # Safety
    /// As for all.
    unsafe fn add(self, word: u32) -> Self;

    /// Products that wrap.
    ///
    /// # Safety
    /// As for all.
    unsafe fn mul(self, by: u32) -> Self;

    /// Words shifted down by fewer than 32 bits, zeros in front.
    ///
    /// # Safety
    /// As for all.
    unsafe fn shr(self, bits: u32) -> Self;

    /// Words shifted up by fewer than 32 bits.
    ///
    /// # Safety
    /// As for all.
    unsafe fn shl(self, bits: u32) -> Self;

    /// Words shifted down by fewer than 32 bits, the sign in front.
    ///
    /// # Safety
    /// As for all.
    unsafe fn sar(self, bits: u32) -> Self;

    /// The sum and, in each lane, the products of its four unsigned bytes with four signed ones from memory. Unless `wide`, the unsigned
    /// bytes are below 128.
    ///
    /// # Safety
    /// The pointer is valid for reads of four bytes.
    unsafe fn dot(self, x: *const i8, sum: Self, wide: bool) -> Self;

    /// The numbers whose bits, with a sign, the words are.
    ///
    /// # Safety
    /// As for all.
    unsafe fn to_float(self) -> Self::Float;

    /// The f16 in the lower half of each word.
    ///
    /// # Safety
    /// As for all.
    unsafe fn low_half(self) -> Self::Float;

    /// Writes the lower half of each word.
    ///
    /// # Safety
    /// The pointer is valid for writes of all lanes.
    unsafe fn store_low_halves(self, to: *mut u16);

    /// The f32 of these bits.
    ///
    /// # Safety
    /// As for all.
    unsafe fn as_float(self) -> Self::Float;

    /// f16 from memory.
    ///
    /// # Safety
    /// The pointer is valid for reads of all lanes.
    unsafe fn halves(from: *const u16) -> Self::Float;

    /// 16-bit words from memory, zeros in front.
    ///
    /// # Safety
    /// The pointer is valid for reads of all lanes.
    unsafe fn widened(from: *const u16) -> Self;

    /// f32 from memory.
    ///
    /// # Safety
    /// The pointer is valid for reads of all lanes.
    unsafe fn load_float(from: *const f32) -> Self::Float;

    /// Writes all lanes.
    ///
    /// # Safety
    /// The pointer is valid for writes of all lanes.
    unsafe fn store_float(value: Self::Float, to: *mut f32);

    /// The same number in all lanes.
    ///
    /// # Safety
    /// As for all.
    unsafe fn splat_float(value: f32) -> Self::Float;

    /// Products.
    ///
    /// # Safety
    /// As for all.
    unsafe fn mul_float(a: Self::Float, b: Self::Float) -> Self::Float;

    /// `a · b + c`, rounded once where that is one instruction.
    ///
    /// # Safety
    /// As for all.
    unsafe fn mul_add(a: Self::Float, b: Self::Float, c: Self::Float) -> Self::Float;

    /// Loads a line of memory into the second-level cache, if the address is valid.
    ///
    /// # Safety
    /// As for all.
    #[inline(always)]
    unsafe fn prefetch(_: *const u8) {}

    /// The sum of all lanes, in an order of its own that is always the same.
    ///
    /// # Safety
    /// As for all.
    unsafe fn sum(value: Self::Float) -> f32;

    /// Rounds 32 activations, as [`round`] does.
    ///
    /// # Safety
    /// As for all.
    #[inline(always)]
    unsafe fn round(values: &[f32; BLOCK], bytes: &mut [i8; BLOCK]) -> (f32, [i32; 2]) {
        round(values, bytes)
    }

    /// A word of each row, `stride` bytes apart, aligned or not.
    ///
    /// # Safety
    /// The words are valid for reads, and the last is less than 2 GiB behind the first.
    unsafe fn gather(rows: *const u8, stride: usize) -> Self;

    /// Four words of each row, from 16 bytes of it, as four registers, which are written [`STRIDE`] words apart: [`Lanes::COUNT`] rows,
    /// `stride` bytes apart.
    ///
    /// # Safety
    /// The 16 bytes of all rows are valid for reads, four registers for writes.
    unsafe fn transpose(rows: *const u8, stride: usize, to: *mut u32);
}

/// Work that is compiled for every kind of lanes.
pub trait LanesTask {
    /// Does it; to be marked `#[inline(always)]`, as all that it calls with registers.
    ///
    /// # Safety
    /// The machine has the instructions, and what the task itself asks for holds.
    unsafe fn run<L: Lanes>(self);
}

/// A task of [`simd`] that is one of lanes.
struct With<L, T>(T, std::marker::PhantomData<L>);

impl<L: Lanes, T: LanesTask> Task for With<L, T> {
    #[inline(always)]
    unsafe fn run<M: Simd>(self) {
        // SAFETY: the caller's promise: the lanes were chosen with the machine.
        unsafe { self.0.run::<L>() }
    }
}

/// Does a task with the lanes of an instruction set.
///
/// # Safety
/// The conditions of the task hold, and the machine has the instruction set.
pub unsafe fn run<T: LanesTask>(isa: Isa, task: T) {
    // SAFETY: the caller's promise.
    unsafe {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 if panoply_host::isa::has_avx512_vnni() => run_alone::<std::arch::x86_64::__m512i, T>(task),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 | Isa::Avx2 => run_alone::<std::arch::x86_64::__m256i, T>(task),
            // The vectors of NEON are part of the baseline.
            _ => run_alone::<Words, T>(task),
        }
    }
}

/// Does a task with lanes, in a function of its own.
///
/// # Safety
/// The conditions of the task hold, and the machine has the instructions.
pub unsafe fn run_alone<L: Lanes, T: LanesTask>(task: T) {
    // SAFETY: the caller's promise.
    unsafe { L::Simd::run(With::<L, T>(task, std::marker::PhantomData)) }
}

/// Lanes without instructions of their own; LLVM finds those that are there.
#[derive(Clone, Copy)]
pub struct Words([u32; 8]);

impl Words {
    #[inline(always)]
    fn map(self, f: impl Fn(u32) -> u32) -> Words {
        Words(self.0.map(f))
    }
}

impl Lanes for Words {
    const COUNT: usize = 8;
    const COLUMNS: usize = 2;
    const FLOAT_TILE: [usize; 2] = [2, 2];
    type Float = [f32; 8];
    type Simd = Portable;

    #[inline(always)]
    unsafe fn load(from: *const u32) -> Self {
        // SAFETY: the caller's promise; arrays are read unaligned.
        Words(unsafe { from.cast::<[u32; 8]>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u32) {
        // SAFETY: the caller's promise.
        unsafe { to.cast::<[u32; 8]>().write_unaligned(self.0) }
    }

    #[inline(always)]
    unsafe fn splat(word: u32) -> Self {
        Words([word; 8])
    }

    #[inline(always)]
    unsafe fn and(self, mask: u32) -> Self {
        self.map(|word| word & mask)
    }

    #[inline(always)]
    unsafe fn or(self, with: Self) -> Self {
        Words(std::array::from_fn(|i| self.0[i] | with.0[i]))
    }

    #[inline(always)]
    unsafe fn xor(self, mask: u32) -> Self {
        self.map(|word| word ^ mask)
    }

    #[inline(always)]
    unsafe fn add(self, word: u32) -> Self {
        self.map(|lane| lane.wrapping_add(word))
    }

    #[inline(always)]
    unsafe fn mul(self, by: u32) -> Self {
        self.map(|word| word.wrapping_mul(by))
    }

    #[inline(always)]
    unsafe fn shr(self, bits: u32) -> Self {
        self.map(|word| word >> bits)
    }

    #[inline(always)]
    unsafe fn shl(self, bits: u32) -> Self {
        self.map(|word| word << bits)
    }

    #[inline(always)]
    unsafe fn sar(self, bits: u32) -> Self {
        self.map(|word| (word as i32 >> bits) as u32)
    }

    #[inline(always)]
    unsafe fn dot(self, x: *const i8, sum: Self, _: bool) -> Self {
        // SAFETY: the caller's promise.
        let x = unsafe { x.cast::<[i8; 4]>().read_unaligned() }.map(i32::from);
        let lane = |i: usize| {
            let bytes = self.0[i].to_le_bytes().map(i32::from);
            let products = bytes[0] * x[0] + bytes[1] * x[1] + bytes[2] * x[2] + bytes[3] * x[3];
            sum.0[i].wrapping_add(products as u32)
        };
        Words(std::array::from_fn(lane))
    }

    #[inline(always)]
    unsafe fn to_float(self) -> [f32; 8] {
        self.0.map(|word| word as i32 as f32)
    }

    #[inline(always)]
    unsafe fn low_half(self) -> [f32; 8] {
        self.0.map(|word| f16::from_bits(word as u16).to_f32())
    }

    #[inline(always)]
    unsafe fn store_low_halves(self, to: *mut u16) {
        // SAFETY: the caller's promise.
        unsafe { to.cast::<[u16; 8]>().write_unaligned(self.0.map(|word| word as u16)) }
    }

    #[inline(always)]
    unsafe fn as_float(self) -> [f32; 8] {
        self.0.map(f32::from_bits)
    }

    #[inline(always)]
    unsafe fn halves(from: *const u16) -> [f32; 8] {
        // SAFETY: the caller's promise.
        unsafe { from.cast::<[u16; 8]>().read_unaligned() }.map(|bits| f16::from_bits(bits).to_f32())
    }

    #[inline(always)]
    unsafe fn widened(from: *const u16) -> Self {
        // SAFETY: the caller's promise.
        Words(unsafe { from.cast::<[u16; 8]>().read_unaligned() }.map(u32::from))
    }

    #[inline(always)]
    unsafe fn load_float(from: *const f32) -> [f32; 8] {
        // SAFETY: the caller's promise.
        unsafe { from.cast::<[f32; 8]>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn store_float(value: [f32; 8], to: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe { to.cast::<[f32; 8]>().write_unaligned(value) }
    }

    #[inline(always)]
    unsafe fn splat_float(value: f32) -> [f32; 8] {
        [value; 8]
    }

    #[inline(always)]
    unsafe fn mul_float(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        std::array::from_fn(|i| a[i] * b[i])
    }

    #[inline(always)]
    unsafe fn mul_add(a: [f32; 8], b: [f32; 8], c: [f32; 8]) -> [f32; 8] {
        std::array::from_fn(|i| a[i] * b[i] + c[i])
    }

    #[inline(always)]
    unsafe fn sum(value: [f32; 8]) -> f32 {
        let [a, b, c, d, e, f, g, h] = value;
        ((a + e) + (c + g)) + ((b + f) + (d + h))
    }

    #[inline(always)]
    unsafe fn gather(rows: *const u8, stride: usize) -> Self {
        // SAFETY: the caller's promise.
        Words(std::array::from_fn(|row| unsafe { rows.add(row * stride).cast::<u32>().read_unaligned() }))
    }

    #[inline(always)]
    unsafe fn transpose(rows: *const u8, stride: usize, to: *mut u32) {
        for row in 0..8 {
            // SAFETY: the caller's promise.
            unsafe {
                let words = rows.add(row * stride).cast::<[u32; 4]>().read_unaligned();
                words.iter().enumerate().for_each(|(n, word)| to.add(n * STRIDE + row).write(word.to_le()));
            }
        }
    }
}
