//! Operations of Panoply written by hand for the CPU, where that is faster than a kernel: copies, fills, and the supported [`Routine`]s.
//!
//! Every operation is one module. It is written once over the vectors of [`panoply_host::simd`] and compiled for each instruction set;
//! threads are those of [`panoply_host::pool`].

mod attention;
mod cached_attention;
mod conv;
mod eigh;
pub mod element_format;
mod factor;
pub mod fourier;
pub mod gemm;
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

use panoply_host::isa::Isa;
use panoply_host::pool::Pool;
use panoply_ir::kernel::Access;
use panoply_ir::routine::{Routine, Scatter, Sort};
use panoply_ir::{DType, bf16, f16};

/// Size in bytes from which a copy or fill is split among threads: a shorter one finishes before another thread wakes up.
const PARALLEL_BYTES: usize = 1 << 20;

/// Minimum number of parts into which a sum over a batch or over queries is divided. It does not depend on the number of threads, so that
/// the bits of the result do not either.
const PARTS: usize = 16;

/// An address that several threads use for disjoint parts.
#[derive(Clone, Copy)]
struct Shared(*mut u8);

// SAFETY: it is only an address; code that writes through it must ensure that the parts are disjoint.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    fn at(self, offset: usize) -> *mut u8 {
        self.0.wrapping_add(offset)
    }
}

/// Returns true if the CPU supports a routine.
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
        Routine::ExpertMatmul(of) => quantized_matmul::experts::offers(of) && !routine.is_empty(),
        Routine::CachedAttention(_) => !routine.is_empty(),
        Routine::Sort(sort) => sorter(sort.dtype).is_some() && sort.length <= i32::MAX as usize && !routine.is_empty(),
    }
}

/// Returns true if elements are accumulated in their own type.
fn is_whole(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F64)
}

/// Returns the function that sorts rows of an element type.
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

/// Returns the function that scatters rows of an element type.
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

/// Runs one chunk of a kernel: the first work-item, the number of work-items, and the address of their elements.
pub type RunChunk<'a> = dyn FnMut(u64, usize, *mut u8) + 'a;

/// A launch of a kernel that runs chunk by chunk, each chunk on newly produced elements of one of its buffers.
pub trait Chunks: Sync {
    /// Calls `f` once with a function that runs chunks on the calling thread.
    ///
    /// # Safety
    /// The buffers of the launch have the lengths that its kernel accesses. Chunks are inside the grid and disjoint across all threads, and
    /// each chunk's address holds one element per work-item.
    unsafe fn here(&self, f: &mut dyn FnMut(&mut RunChunk<'_>));
}

/// A kernel fused into a routine, which processes the first output while it is produced.
#[derive(Clone, Copy)]
pub struct Epilogue<'a> {
    /// The fused kernel, run chunk by chunk.
    pub pieces: &'a dyn Chunks,
    /// True if the output is written to memory too.
    pub keep_output: bool,
}

/// Returns true if a routine can process its first output chunk by chunk with an epilogue.
pub fn supports_epilogue(routine: &Routine) -> bool {
    matches!(routine, Routine::Gemm(gemm) if gemm::supports_epilogue(gemm))
}

/// Size in bytes up to which an output is still in a cache when the routine is done.
const CACHED_BYTES: u64 = 32 << 20;

/// Returns true if fusing an epilogue that reads `read_besides` other bytes is faster than a separate kernel. The
/// routine must support epilogues.
///
/// Fusing avoids reading the output again but runs shorter blocks of the vector machine. Measured on two Zen 4 cores
/// with 32 MiB of cache, as processor time relative to a separate kernel: bias and ReLU over 8192 × 4096 f32 took 0.95
/// at `k` = 32 and 0.93 at `k` = 256, a cast to bf16 0.92. Over 4096 × 512, which fits the cache, it took 1.1, and over
/// 1024 × 4096 at `k` = 1024 1.0. With a residual, whose short rows defeat the prefetcher, it took 1.02 to 1.09, and
/// with bf16, rounded first, 1.05.
pub fn epilogue_pays_off(routine: &Routine, read_besides: u64) -> bool {
    let result = routine.operands().find(|operand| operand.access == Access::Out);
    let bytes = result.and_then(|result| result.elems?.checked_mul(result.dtype.bytes() as u64));
    let fast = matches!(routine, Routine::Gemm(gemm) if gemm::is_shallow(gemm) && is_whole(gemm.dtype));
    fast && bytes.is_some_and(|bytes| bytes > CACHED_BYTES && read_besides < bytes / 16)
}

/// Calls `f` with the function that runs the epilogue's chunks on this thread, or with `None` without an epilogue.
///
/// # Safety
/// As [`Chunks::here`].
unsafe fn with_pieces(epilogue: Option<Epilogue<'_>>, f: impl FnOnce(Option<&mut RunChunk<'_>>)) {
    match epilogue {
        None => f(None),
        // SAFETY: the caller's promise.
        Some(Epilogue { pieces, .. }) => unsafe {
            let mut f = Some(f);
            pieces.here(&mut |run| f.take().expect("chunks are asked for once")(Some(run)));
        },
    }
}

/// Runs a routine on its buffers, given by their addresses in the routine's operand order.
///
/// # Safety
/// The buffers have the lengths that the routine's strides and extents imply and are aligned for their elements.
/// Written memory overlaps nothing else. The instruction set is available.
pub unsafe fn run(pool: &Pool, isa: Isa, routine: &Routine, buffers: &[*mut u8]) {
    // SAFETY: the caller's promise.
    unsafe { run_with_epilogue(pool, isa, routine, buffers, None) }
}

/// Runs a routine, and its epilogue if there is one.
///
/// # Safety
/// As [`run`]. There is an epilogue only if [`supports_epilogue`] is true, and its number of work-items equals the
/// number of elements of the output. The epilogue's other buffers do not overlap the routine's and are large enough for
/// the kernel's accesses.
pub unsafe fn run_with_epilogue(
    pool: &Pool,
    isa: Isa,
    routine: &Routine,
    buffers: &[*mut u8],
    epilogue: Option<Epilogue<'_>>,
) {
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
            Routine::Sort(sort) => sorter(sort.dtype).expect("the routine is supported")(pool, sort, buffers),
            Routine::Scatter(of) => putter(of).expect("the routine is supported")(pool, of, buffers),
            Routine::Fourier(of) if of.dtype == DType::F64 => fourier::transform::<f64>(pool, isa, of, buffers),
            Routine::Fourier(of) => fourier::transform::<f32>(pool, isa, of, buffers),
            Routine::QuantizedMatmul(of) => quantized_matmul::run(pool, isa, of, buffers),
            Routine::ExpertMatmul(of) => quantized_matmul::experts::run_experts(pool, isa, of, buffers),
            Routine::CachedAttention(of) => cached_attention::run(pool, isa, of, buffers),
        }
    }
}

/// Number of multiply-adds from which work is split among threads.
const PARALLEL_FLOPS: usize = 1 << 18;

/// Calls `f` with each number below `count`, on several threads if `work` is large enough.
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

/// Fills a range with a repeated pattern.
///
/// # Safety
/// The range is valid, and its length is a multiple of the pattern's.
pub unsafe fn fill(pool: &Pool, to: *mut u8, bytes: usize, pattern: &[u8]) {
    // Patterns have 1, 2, 4 or 8 bytes, so 8 bytes hold a whole number of patterns and parts start at pattern boundaries.
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

/// Calls `f` with the start and length of parts of a range, on several threads if it is long.
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
