//! Scatters rows to positions. Rows are applied in order whatever the number of threads: threads divide the rows of the
//! output, or the batch.

use std::slice;

use panoply_host::pool::Pool;
use panoply_ir::DType;
use panoply_ir::routine::Scatter;

use super::{Shared, copy};

/// Number of elements from which the work is divided among threads.
const PARALLEL_ELEMS: usize = 1 << 14;
/// Number of positions whose range is checked together before any is used.
const LOOKED_AT: usize = 256;
/// Maximum number of threads that each scan all positions for their own rows.
const MAX_PARTS: usize = 8;

/// A type whose elements are added; integers wrap.
pub trait Element: Copy {
    /// Returns the sum.
    fn plus(self, other: Self) -> Self;
}

macro_rules! element {
    ($($ty:ty: $plus:expr;)*) => {$(
        impl Element for $ty {
            #[inline(always)]
            fn plus(self, other: $ty) -> $ty {
                let plus: fn($ty, $ty) -> $ty = $plus;
                plus(self, other)
            }
        }
    )*};
}

element! {
    f32: |a, b| a + b;
    f64: |a, b| a + b;
    i32: i32::wrapping_add;
    i64: i64::wrapping_add;
}

/// Adds the rows to the output.
///
/// # Safety
/// As [`super::run`].
pub unsafe fn add<T: Element>(pool: &Pool, of: &Scatter, buffers: &[*mut u8]) {
    // SAFETY: the caller's promise.
    unsafe { put(pool, of, buffers, T::plus) }
}

/// Overwrites rows of the output.
///
/// # Safety
/// As [`super::run`].
pub unsafe fn replace<T: Copy>(pool: &Pool, of: &Scatter, buffers: &[*mut u8]) {
    // SAFETY: the caller's promise.
    unsafe { put(pool, of, buffers, |_: T, new| new) }
}

unsafe fn put<T: Copy>(pool: &Pool, of: &Scatter, buffers: &[*mut u8], combine: impl Fn(T, T) -> T + Sync) {
    // SAFETY: the caller's promise.
    unsafe {
        match of.positions {
            DType::I32 => put_at::<T, i32>(pool, of, buffers, combine),
            _ => put_at::<T, i64>(pool, of, buffers, combine),
        }
    }
}

unsafe fn put_at<T: Copy, I: Copy + Sync + Ord + Into<i64>>(
    pool: &Pool,
    of: &Scatter,
    buffers: &[*mut u8],
    combine: impl Fn(T, T) -> T + Sync,
) {
    let Scatter { batch, length, count, columns, .. } = *of;
    let [array, rows, output] = [0, 2, 3].map(|at| Shared(buffers[at]));
    let (table, put) = (length * columns, count * columns);
    // SAFETY: the caller's promise: the buffers have the lengths of the routine, and the output does not overlap the others.
    let positions = unsafe {
        copy(pool, array.0, output.0, batch * table * size_of::<T>());
        slice::from_raw_parts(buffers[1].cast::<I>(), count)
    };
    let parts = if batch * put < PARALLEL_ELEMS { 1 } else { pool.threads().min(MAX_PARTS) };
    let by_batch = batch >= parts;
    let share = |whole: usize, part: usize| whole * part / parts..whole * (part + 1) / parts;
    pool.run(parts, &|part| {
        let (batch, own) = if by_batch { (share(batch, part), 0..length) } else { (0..batch, share(length, part)) };
        for b in batch {
            // SAFETY: as above; no other thread writes these rows of the output.
            let (rows, output) = unsafe {
                let rows = rows.at(b * put * size_of::<T>()).cast::<T>();
                let output = output.at((b * table + own.start * columns) * size_of::<T>()).cast::<T>();
                (slice::from_raw_parts(rows, put), slice::from_raw_parts_mut(output, own.len() * columns))
            };
            let start = own.start as i64;
            let ends = (start, own.end as i64);
            for (positions, rows) in positions.chunks(LOOKED_AT).zip(rows.chunks(LOOKED_AT.saturating_mul(columns))) {
                put_near(positions, rows, columns, output, ends, &combine);
            }
        }
    });
}

/// Scatters rows whose positions are within a range. Often all or none of the positions are, for example along the rows
/// of a matrix.
#[inline(always)]
fn put_near<T: Copy, I: Copy + Ord + Into<i64>>(
    positions: &[I],
    rows: &[T],
    columns: usize,
    output: &mut [T],
    (start, end): (i64, i64),
    combine: &impl Fn(T, T) -> T,
) {
    let (least, most) =
        positions.iter().fold((positions[0], positions[0]), |(least, most), at| (least.min(*at), most.max(*at)));
    if most.into() < start || least.into() >= end {
        return;
    }
    if columns == 1 && least.into() >= start && most.into() < end {
        for (position, value) in positions.iter().zip(rows) {
            let to = &mut output[((*position).into() - start) as usize];
            *to = combine(*to, *value);
        }
        return;
    }
    for (position, row) in positions.iter().zip(rows.chunks_exact(columns)) {
        let position = (*position).into();
        if (start..end).contains(&position) {
            let to = &mut output[(position - start) as usize * columns..][..columns];
            to.iter_mut().zip(row).for_each(|(to, row)| *to = combine(*to, *row));
        }
    }
}
