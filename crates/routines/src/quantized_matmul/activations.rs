//! Activations as f32, and as bytes with a scale for 32 of them.

use panoply_ir::DType;

use super::lanes::Lanes;

/// Elements that share a scale.
pub const BLOCK: usize = 32;
/// Smallest scale, so that its inverse is a number: elements below half of it become zero.
const MIN_SCALE: f32 = f32::from_bits(7 << 23);
/// Adding and subtracting it rounds a small number to an integer, to the even one of two as near.
const ROUNDER: f32 = 12_582_912.0;

/// Rows of activations as bytes: `x = scale · byte`, with an error of at most half a scale.
///
/// Blocks of one place in all rows lie together, so that what is multiplied at once is found at fixed distances.
#[derive(Clone, Copy)]
pub struct Bytes {
    /// `[k / 32, m, 32]`.
    pub bytes: *mut i8,
    /// `[k / 32, m]`; NaN for a block with an element that is not finite.
    pub scales: *mut f32,
    /// `[k / 32, m, 32 / sub]`: sums of the bytes of `sub` elements, times minus the offset of weights, or, for weights with a minimum,
    /// times the scale, as f32.
    pub sums: *mut u32,
    /// Rows.
    pub m: usize,
    /// Elements of a row.
    pub k: usize,
}

// SAFETY: they are only addresses; whoever writes through them answers for the parts being disjoint.
unsafe impl Send for Bytes {}
// SAFETY: as above.
unsafe impl Sync for Bytes {}

impl Bytes {
    /// 32-bit words that `m` rows take.
    pub fn words(m: usize, k: usize, sub: usize) -> usize {
        m * (k / 4 + k / BLOCK + k / sub)
    }

    /// Rows in memory of [`Bytes::words`].
    pub fn new(start: *mut u32, m: usize, k: usize) -> Bytes {
        let scales = start.wrapping_add(m * k / 4);
        Bytes { bytes: start.cast(), scales: scales.cast(), sums: scales.wrapping_add(m * (k / BLOCK)), m, k }
    }

    /// Rounds a row, with sums of `SUB` elements, 16 or 32. `offset` is that of the weights, none if they have minimums.
    ///
    /// # Safety
    /// The row of `x` and this are valid, and no other thread uses this row of it.
    #[inline(always)]
    pub unsafe fn round<L: Lanes>(&self, row: usize, x: *const u8, dtype: DType, sub: usize, offset: Option<i32>) {
        for block in 0..self.k / BLOCK {
            let mut values = [0.0f32; BLOCK];
            // SAFETY: the caller's promise.
            unsafe { read::<L>(x, dtype, block * BLOCK, &mut values) };
            let mut bytes = [0i8; BLOCK];
            // SAFETY: the caller's promise.
            let (scale, mut sums) = unsafe { L::round(&values, &mut bytes) };
            if sub == BLOCK {
                sums[0] = sums[0].wrapping_add(sums[1]);
            }
            let at = block * self.m + row;
            // SAFETY: the caller's promise.
            unsafe {
                self.bytes.add(at * BLOCK).cast::<[i8; BLOCK]>().write(bytes);
                self.scales.add(at).write(scale);
                for (n, sum) in sums[..BLOCK / sub].iter().enumerate() {
                    let word =
                        offset.map_or((scale * *sum as f32).to_bits(), |offset| sum.wrapping_mul(-offset) as u32);
                    self.sums.add(at * (BLOCK / sub) + n).write(word);
                }
            }
        }
    }
}

/// Rounds a block: its scale, NaN if an element is not finite, and the sums of its halves.
#[inline(always)]
pub fn round(values: &[f32; BLOCK], bytes: &mut [i8; BLOCK]) -> (f32, [i32; 2]) {
    let mut largest = 0;
    for value in values {
        largest = largest.max(value.to_bits() & 0x7fff_ffff);
    }
    let (scale, inverse) = scales(largest);
    let mut sums = [0; 2];
    for (at, value) in values.iter().enumerate() {
        let rounded = ((value * inverse + ROUNDER).to_bits() as i32).wrapping_sub(ROUNDER.to_bits() as i32) as i8;
        bytes[at] = rounded;
        sums[at / 16] += i32::from(rounded);
    }
    (scale, sums)
}

/// The scale for the bits of the largest magnitude, NaN if it is not finite, and its inverse. Magnitudes have the order of their bits, with
/// infinity and NaN above all others.
#[inline(always)]
pub fn scales(largest: u32) -> (f32, f32) {
    if largest >= f32::INFINITY.to_bits() {
        return (f32::NAN, 0.0);
    }
    let scale = (f32::from_bits(largest) / 127.0).max(MIN_SCALE);
    (scale, 1.0 / scale)
}

/// Reads elements as f32.
///
/// # Safety
/// They are valid for reads.
#[inline(always)]
pub unsafe fn read<L: Lanes>(x: *const u8, dtype: DType, first: usize, to: &mut [f32]) {
    // SAFETY: the caller's promise, for all of them.
    unsafe {
        match dtype {
            DType::F16 => {
                let from = x.cast::<u16>().add(first);
                let whole = to.len() / L::COUNT * L::COUNT;
                for at in (0..whole).step_by(L::COUNT) {
                    L::store_float(L::halves(from.add(at)), to.as_mut_ptr().add(at));
                }
                for (at, to) in to.iter_mut().enumerate().skip(whole) {
                    *to = panoply_ir::f16::from_bits(from.add(at).read()).to_f32();
                }
            }
            DType::BF16 => {
                let from = x.cast::<u16>().add(first);
                for (at, to) in to.iter_mut().enumerate() {
                    *to = f32::from_bits(u32::from(from.add(at).read()) << 16);
                }
            }
            // F32: the routine takes no others.
            _ => std::ptr::copy_nonoverlapping(x.cast::<f32>().add(first), to.as_mut_ptr(), to.len()),
        }
    }
}

/// Writes elements of an output.
///
/// # Safety
/// They are valid for writes.
#[inline(always)]
pub unsafe fn write(from: &[f32], out: *mut u8, dtype: DType, first: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        match dtype {
            DType::F16 | DType::BF16 => write_halves(from, out.cast::<u16>().add(first), dtype),
            _ => from.iter().enumerate().for_each(|(at, value)| out.cast::<f32>().add(first + at).write(*value)),
        }
    }
}

/// Writes elements of 16 bits. Not inlined: the conversions are long, and run once per sum.
#[inline(never)]
unsafe fn write_halves(from: &[f32], to: *mut u16, dtype: DType) {
    for (at, value) in from.iter().enumerate() {
        let bits = match dtype {
            DType::F16 => panoply_ir::f16::from_f32(*value).to_bits(),
            _ => panoply_ir::bf16::from_f32(*value).to_bits(),
        };
        // SAFETY: the caller's promise.
        unsafe { to.add(at).write(bits) };
    }
}
