//! Work the CPU does better whole than as a kernel: copies, fills, and the [`Routine`]s it offers.

mod attention;
mod conv;
mod eigh;
mod element_format;
mod factor;
pub(crate) mod fourier;
mod gemm;
mod lu;
mod panel;
mod pool;
mod qr;
mod quantized_matmul;
mod reflections;
mod scatter;
mod sort;
mod tile;

use std::ptr;

use panoply_device::Result;
use panoply_ir::kernel::Access;
use panoply_ir::routine::{Routine, Scatter, Sort};
use panoply_ir::{DType, bf16, f16};

use crate::pool::Pool;
use crate::vm::isa::Isa;
use crate::vm::launch::{Chunks, RunChunk};

/// Bytes from which a copy or a fill is divided among threads: less is done before another has woken up.
const PARALLEL_BYTES: usize = 1 << 20;

/// An address that several threads use for parts of their own.
#[derive(Clone, Copy)]
struct Shared(*mut u8);

// SAFETY: it is only an address; whoever writes through it answers for the parts being disjoint.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    fn at(self, offset: usize) -> *mut u8 {
        self.0.wrapping_add(offset)
    }
}

/// Whether the CPU takes a routine.
pub fn offers(routine: &Routine) -> bool {
    match routine {
        Routine::Gemm(gemm) => !gemm.tf32 && !gemm.bias && (gemm.dtype.is_float() || gemm.dtype == DType::I8),
        Routine::Conv(conv) | Routine::ConvBackwardData(conv) | Routine::ConvBackwardFilter(conv) => {
            conv.dtype.is_float() && !routine.is_empty() && conv::has_moderate_scratch(conv)
        }
        Routine::Attention(attention) | Routine::AttentionBackward(attention) => {
            is_whole(attention.dtype) && !routine.is_empty()
        }
        Routine::MaxPoolBackward(pool) => is_whole(pool.dtype) && !routine.is_empty(),
        Routine::SolveTriangular(of) => is_whole(of.dtype) && !routine.is_empty(),
        Routine::Cholesky(of) => is_whole(of.dtype) && !routine.is_empty(),
        Routine::Lu(of) => is_whole(of.dtype) && of.size <= i32::MAX as usize && !routine.is_empty(),
        Routine::Qr(of) => is_whole(of.dtype) && of.columns <= of.rows && !routine.is_empty(),
        Routine::Eigh(of) => is_whole(of.dtype) && !routine.is_empty(),
        Routine::Scatter(of) => {
            let at = matches!(of.positions, DType::I32 | DType::I64);
            at && putter(of).is_some() && !routine.is_empty()
        }
        Routine::Fourier(of) => is_whole(of.dtype) && !routine.is_empty(),
        Routine::QuantizedMatmul(of) => quantized_matmul::offers(of) && !routine.is_empty(),
        Routine::Sort(sort) => sorter(sort.dtype).is_some() && sort.length <= i32::MAX as usize && !routine.is_empty(),
    }
}

/// Whether elements are as wide as they are summed in.
fn is_whole(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F64)
}

/// What sorts elements of a type.
fn sorter(dtype: DType) -> Option<unsafe fn(&Pool, &Sort, &[*mut u8])> {
    match dtype {
        DType::F32 => Some(sort::rows::<f32>),
        DType::F64 => Some(sort::rows::<f64>),
        DType::I32 => Some(sort::rows::<i32>),
        DType::I64 => Some(sort::rows::<i64>),
        DType::U32 => Some(sort::rows::<u32>),
        DType::U64 => Some(sort::rows::<u64>),
        DType::F16 => Some(sort::rows::<f16>),
        DType::BF16 => Some(sort::rows::<bf16>),
        DType::I8 => Some(sort::rows::<i8>),
        DType::I16 => Some(sort::rows::<i16>),
        DType::U8 => Some(sort::rows::<u8>),
        DType::U16 => Some(sort::rows::<u16>),
        DType::Bool => None,
    }
}

/// What puts rows of a type at positions.
fn putter(of: &Scatter) -> Option<unsafe fn(&Pool, &Scatter, &[*mut u8])> {
    match (of.dtype, of.dtype.bytes()) {
        (DType::F32, _) if of.accumulate => Some(scatter::add::<f32>),
        (DType::F64, _) if of.accumulate => Some(scatter::add::<f64>),
        (DType::I32, _) if of.accumulate => Some(scatter::add::<i32>),
        (DType::I64, _) if of.accumulate => Some(scatter::add::<i64>),
        _ if of.accumulate => None,
        (_, 1) => Some(scatter::replace::<u8>),
        (_, 2) => Some(scatter::replace::<u16>),
        (_, 4) => Some(scatter::replace::<u32>),
        _ => Some(scatter::replace::<u64>),
    }
}

/// What a routine's first result goes through while it is made.
#[derive(Clone, Copy)]
pub struct Epilogue<'a> {
    /// What runs on each part.
    pub pieces: &'a Chunks<'a>,
    /// Whether the result is written too.
    pub keep_output: bool,
}

/// Whether a routine can let its first result go through something part by part.
pub fn supports_epilogue(routine: &Routine) -> bool {
    matches!(routine, Routine::Gemm(gemm) if gemm::can_end(gemm))
}

/// Bytes of a result up to which it is still in some cache when the routine is done.
const CACHED_BYTES: u64 = 32 << 20;

/// Whether letting the first result of a routine that can do so go through something that reads so many bytes besides is
/// faster than a kernel afterwards.
///
/// Shorter blocks of the vector machine are the price of not reading the result again. On two Zen 4 cores with 32 MiB of cache,
/// in processor time and against a kernel afterwards: bias and relu over 8192 × 4096 f32 took 0.95 at 32 numbers along `k` and
/// 0.93 at 256, a cast to bf16 0.92; over 4096 × 512, which the cache holds, 1.1, and over 1024 × 4096 at 1024 along `k` 1.0;
/// with a residual, whose short rows no prefetcher follows, 1.02 to 1.09, and of bf16, rounded first, 1.05.
pub fn epilogue_pays_off(routine: &Routine, read_besides: u64) -> bool {
    let result = routine.operands().find(|operand| operand.access == Access::Out);
    let bytes = result.and_then(|result| result.elems?.checked_mul(result.dtype.bytes() as u64));
    let fast = matches!(routine, Routine::Gemm(gemm) if gemm::is_shallow(gemm) && is_whole(gemm.dtype));
    fast && bytes.is_some_and(|bytes| bytes > CACHED_BYTES && read_besides < bytes / 16)
}

/// Calls `f` with what runs an epilogue's pieces on this thread, if there is one.
///
/// # Safety
/// As [`Chunks::here`].
unsafe fn with_pieces(epilogue: Option<Epilogue<'_>>, f: impl FnOnce(Option<&mut RunChunk<'_>>)) {
    match epilogue {
        None => f(None),
        // SAFETY: the caller's promise.
        Some(Epilogue { pieces, .. }) => unsafe { pieces.here(|run| f(Some(run))) },
    }
}

/// Runs a routine on its buffers, whose first bytes are given in the order the routine names.
///
/// # Safety
/// The buffers are as long as the routine's strides and extents say, aligned for their elements; what is written overlaps
/// nothing else. The instruction set is available.
pub unsafe fn run(pool: &Pool, isa: Isa, routine: &Routine, buffers: &[*mut u8]) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe { run_with_epilogue(pool, isa, routine, buffers, None) }
}

/// Runs a routine whose first result goes through an epilogue, if there is one.
///
/// # Safety
/// As [`run`]. Only what [`supports_epilogue`] has an epilogue, over as many work-items as its result has elements; the buffers of that
/// are apart from the routine's, and hold what the kernel may touch.
pub unsafe fn run_with_epilogue(
    pool: &Pool,
    isa: Isa,
    routine: &Routine,
    buffers: &[*mut u8],
    epilogue: Option<Epilogue<'_>>,
) -> Result<()> {
    // SAFETY: the caller's promise, for all of them.
    unsafe {
        match routine {
            Routine::Gemm(gemm) => gemm::run(pool, isa, gemm, [buffers[0], buffers[1], buffers[2]], epilogue),
            Routine::Conv(conv) => conv::run(pool, isa, conv, conv::ConvDirection::Forward, buffers),
            Routine::ConvBackwardData(conv) => conv::run(pool, isa, conv, conv::ConvDirection::BackwardData, buffers),
            Routine::ConvBackwardFilter(conv) => {
                conv::run(pool, isa, conv, conv::ConvDirection::BackwardFilter, buffers)
            }
            Routine::Attention(like) if like.dtype == DType::F64 => attention::output::<f64>(pool, isa, like, buffers),
            Routine::Attention(like) => attention::output::<f32>(pool, isa, like, buffers),
            Routine::AttentionBackward(like) if like.dtype == DType::F64 => {
                attention::gradient::<f64>(pool, isa, like, buffers);
            }
            Routine::AttentionBackward(like) => attention::gradient::<f32>(pool, isa, like, buffers),
            Routine::MaxPoolBackward(like) if like.dtype == DType::F64 => {
                pool::max_gradient::<f64>(pool, isa, like, buffers)
            }
            Routine::MaxPoolBackward(like) => pool::max_gradient::<f32>(pool, isa, like, buffers),
            Routine::SolveTriangular(of) if of.dtype == DType::F64 => factor::solve::<f64>(pool, isa, of, buffers),
            Routine::SolveTriangular(of) => factor::solve::<f32>(pool, isa, of, buffers),
            Routine::Cholesky(of) if of.dtype == DType::F64 => factor::cholesky::<f64>(pool, isa, of, buffers),
            Routine::Cholesky(of) => factor::cholesky::<f32>(pool, isa, of, buffers),
            Routine::Lu(of) if of.dtype == DType::F64 => lu::lu::<f64>(pool, isa, of, buffers),
            Routine::Lu(of) => lu::lu::<f32>(pool, isa, of, buffers),
            Routine::Qr(of) if of.dtype == DType::F64 => qr::qr::<f64>(pool, isa, of, buffers),
            Routine::Qr(of) => qr::qr::<f32>(pool, isa, of, buffers),
            Routine::Eigh(of) if of.dtype == DType::F64 => eigh::eigh::<f64>(pool, isa, of, buffers),
            Routine::Eigh(of) => eigh::eigh::<f32>(pool, isa, of, buffers),
            Routine::Sort(sort) => sorter(sort.dtype).expect("only what is offered is run")(pool, sort, buffers),
            Routine::Scatter(of) => putter(of).expect("only what is offered is run")(pool, of, buffers),
            Routine::Fourier(of) if of.dtype == DType::F64 => fourier::transform::<f64>(pool, isa, of, buffers),
            Routine::Fourier(of) => fourier::transform::<f32>(pool, isa, of, buffers),
            Routine::QuantizedMatmul(of) => quantized_matmul::run(pool, isa, of, buffers),
        }
    }
    Ok(())
}

/// Multiplications and additions from which work is divided among threads.
const PARALLEL_FLOPS: usize = 1 << 18;

/// Calls `f` with each number, on several threads if that is worth it.
fn in_numbers(pool: &Pool, count: usize, work: usize, f: impl Fn(usize) + Sync) {
    if work < PARALLEL_FLOPS { (0..count).for_each(f) } else { pool.run(count, &f) }
}

/// Copies bytes.
///
/// # Safety
/// Both ranges are valid and do not overlap.
pub unsafe fn copy(pool: &Pool, from: *const u8, to: *mut u8, bytes: usize) {
    let (from, to) = (Shared(from.cast_mut()), Shared(to));
    in_parts(pool, bytes, |start, len| {
        // SAFETY: the caller's promise; the parts are disjoint.
        unsafe { ptr::copy_nonoverlapping(from.at(start), to.at(start), len) }
    });
}

/// Repeats a pattern over a range.
///
/// # Safety
/// The range is valid, and a whole number of patterns long.
pub unsafe fn fill(pool: &Pool, to: *mut u8, bytes: usize, pattern: &[u8]) {
    // All patterns are of 1, 2, 4 or 8 bytes, so 8 bytes hold them whole and parts start at whole ones.
    let word: [u8; 8] = std::array::from_fn(|i| pattern[i % pattern.len()]);
    let to = Shared(to);
    in_parts(pool, bytes, |start, len| {
        // SAFETY: the caller's promise; the parts are disjoint.
        let part = unsafe { std::slice::from_raw_parts_mut(to.at(start), len) };
        let (words, rest) = part.as_chunks_mut::<8>();
        words.fill(word);
        rest.copy_from_slice(&word[..rest.len()]);
    });
}

/// Calls `f` with start and length of parts of a range, on several threads if it is long.
fn in_parts(pool: &Pool, bytes: usize, f: impl Fn(usize, usize) + Sync) {
    if bytes < PARALLEL_BYTES || pool.threads() == 1 {
        return f(0, bytes);
    }
    let part = bytes.div_ceil(pool.threads()).next_multiple_of(4096);
    pool.run(bytes.div_ceil(part), &|number| {
        let start = number * part;
        f(start, part.min(bytes - start));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_copies_and_fills_reach_every_byte() {
        let pool = Pool::new(3);
        for bytes in [0, 1, 7, 4096, PARALLEL_BYTES - 1, PARALLEL_BYTES + 8 * 1001] {
            let from: Vec<u8> = (0..bytes).map(|i| (i * 7 + i / 256) as u8).collect();
            let mut to = vec![0; bytes];
            // SAFETY: both are vectors of this length.
            unsafe { copy(&pool, from.as_ptr(), to.as_mut_ptr(), bytes) };
            assert!(from == to, "{bytes}");
            for pattern in [&[9][..], &[1, 2], &[1, 2, 3, 4], &[1, 2, 3, 4, 5, 6, 7, 8]] {
                let whole = bytes / pattern.len() * pattern.len();
                // SAFETY: the vector is at least as long.
                unsafe { fill(&pool, to.as_mut_ptr(), whole, pattern) };
                assert!((0..whole).all(|i| to[i] == pattern[i % pattern.len()]), "{bytes} of {pattern:?}");
            }
        }
    }
}
