//! Routines: library operations that a device can implement better than a generated kernel.
//!
//! A routine is optional: the planner always has generated kernels as fallback and as reference. A matrix product is a primitive of the
//! graph and becomes a [`Gemm`] on devices that support it. Every other routine is named by a [`Call`](crate::graph::Call) with an
//! equivalent body. The call's first inputs and all its outputs are the routine's buffers, row-major, inputs first; further inputs are
//! used only by the body.
//!
//! A new routine needs a variant here with its operands, its name in a call of `tensor`, and a device that supports it.

mod attention;
mod cached_attention;
mod check;
mod conv;
mod expert_matmul;
mod factor;
mod fourier;
mod gemm;
mod pool;
mod quantized_matmul;
mod scatter;
mod sort;

use std::fmt;

pub use attention::{Attention, Mask};
pub use cached_attention::CachedAttention;
use conv::ConvGradient;
pub use conv::{Conv, ConvAxis};
pub use expert_matmul::ExpertMatmul;
pub use factor::{Cholesky, Eigh, Lu, Qr, Triangular};
pub use fourier::{Fourier, FourierKind};
pub use gemm::{Gemm, Layout};
pub use pool::{Pool, PoolAxis};
pub use quantized_matmul::QuantizedMatmul;
pub use scatter::Scatter;
pub use sort::Sort;

use crate::dtype::{DType, Scalar};
use crate::kernel::Access;

/// A library operation that a device can support.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Routine {
    /// Batched matrix product. Buffers: a, b, optional bias (In), c (Out).
    Gemm(Gemm),
    /// Convolution. Buffers: input, filters (In), output (Out).
    Conv(Conv),
    /// Gradient of a convolution's input. Buffers: gradient of the output, filters (In), gradient of the input (Out).
    ConvBackwardData(Conv),
    /// Gradient of a convolution's filters. Buffers: gradient of the output, input (In), gradient of the filters (Out).
    ConvBackwardFilter(Conv),
    /// Attention. Buffers: queries, keys, values, optional mask (In); the output and, for each query, the logarithm of the sum of the
    /// exponentials of its scores (Out).
    Attention(Attention),
    /// Gradients of attention. Buffers: queries, keys, values, optional mask, both outputs of [`Routine::Attention`], gradient of
    /// the output
    /// (In); gradients of queries, keys and values (Out).
    AttentionBackward(Attention),
    /// Gradient of max pooling; tied maxima share the gradient. Buffers: input, output, gradient of the output (In); gradient of the input
    /// (Out).
    MaxPoolBackward(Pool),
    /// Sort of each row. Buffers: input (In); values, indices (Out).
    Sort(Sort),
    /// Solution of a triangular system. Buffers: triangle, right-hand side (In), solution (Out).
    SolveTriangular(Triangular),
    /// Cholesky decomposition. Buffers: matrix (In), factor (Out).
    Cholesky(Cholesky),
    /// LU decomposition with partial pivoting. Buffers: matrix (In); both factors, permutation of the rows (Out).
    Lu(Lu),
    /// Q of the QR decomposition by Householder reflections. Buffers: matrix (In), Q (Out).
    Qr(Qr),
    /// Eigenvectors and eigenvalues of symmetric matrices. Buffers: matrix (In); vectors, values (Out).
    Eigh(Eigh),
    /// Scatter of rows to indices. Buffers: array, indices, rows (In), output (Out).
    Scatter(Scatter),
    /// Fourier transforms. Buffers: input (In), output (Out).
    Fourier(Fourier),
    /// A product with packed weights. Buffers: activations, weights (In), output (Out).
    QuantizedMatmul(QuantizedMatmul),
    /// Products with the packed weights of chosen experts. Buffers: activations, weights, ids (In), output (Out).
    ExpertMatmul(ExpertMatmul),
    /// Attention to a key-value cache. Buffers: queries, keys, values, rows (In), output (Out).
    CachedAttention(CachedAttention),
}

/// A buffer of a routine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operand {
    /// Name in messages.
    pub name: &'static str,
    /// Element type.
    pub dtype: DType,
    /// Access; a written buffer overlaps no other.
    pub access: Access,
    /// One more than the index of the last element accessed; `None` if it exceeds 64 bits.
    pub elems: Option<u64>,
}

impl Operand {
    fn read(name: &'static str, dtype: DType, elems: Option<u64>) -> Operand {
        Operand { name, dtype, access: Access::In, elems }
    }

    fn written(name: &'static str, dtype: DType, elems: Option<u64>) -> Operand {
        Operand { name, dtype, access: Access::Out, elems }
    }
}

impl Routine {
    /// Returns the name.
    pub fn name(&self) -> &'static str {
        match self {
            Routine::Gemm(_) => "gemm",
            Routine::Conv(_) => "conv",
            Routine::ConvBackwardData(_) => "conv_backward_data",
            Routine::ConvBackwardFilter(_) => "conv_backward_filter",
            Routine::Attention(_) => "attention",
            Routine::AttentionBackward(_) => "attention_gradient",
            Routine::MaxPoolBackward(_) => "max_pool_gradient",
            Routine::Sort(_) => "sort",
            Routine::SolveTriangular(_) => "solve_triangular",
            Routine::Cholesky(_) => "cholesky",
            Routine::Lu(_) => "lu",
            Routine::Qr(_) => "qr",
            Routine::Eigh(_) => "eigh",
            Routine::Scatter(_) => "scatter",
            Routine::Fourier(_) => "fourier",
            Routine::QuantizedMatmul(_) => "quantized_matmul",
            Routine::ExpertMatmul(_) => "expert_matmul",
            Routine::CachedAttention(_) => "cached_attention",
        }
    }

    /// Returns true if it sums floats, in an unspecified order.
    pub fn accumulates_floats(&self) -> bool {
        match self {
            Routine::Gemm(gemm) => gemm.dtype.is_float(),
            Routine::Conv(_)
            | Routine::ConvBackwardData(_)
            | Routine::ConvBackwardFilter(_)
            | Routine::MaxPoolBackward(_) => true,
            Routine::Attention(_) | Routine::AttentionBackward(_) => true,
            Routine::SolveTriangular(_) | Routine::Cholesky(_) | Routine::Lu(_) => true,
            Routine::Qr(_) | Routine::Eigh(_) => true,
            Routine::Scatter(of) => of.accumulate && of.dtype.is_float(),
            Routine::Fourier(_)
            | Routine::QuantizedMatmul(_)
            | Routine::ExpertMatmul(_)
            | Routine::CachedAttention(_) => true,
            Routine::Sort(_) => false,
        }
    }

    /// Returns its buffers, the inputs before the outputs.
    pub fn operands(&self) -> impl Iterator<Item = Operand> + Clone + use<> {
        let routine = *self;
        (0..).map_while(move |at| match &routine {
            Routine::Gemm(gemm) => gemm.operand(at),
            Routine::Conv(conv) => conv.operand(at, None),
            Routine::ConvBackwardData(conv) => conv.operand(at, Some(ConvGradient::Input)),
            Routine::ConvBackwardFilter(conv) => conv.operand(at, Some(ConvGradient::Filters)),
            Routine::Attention(attention) => attention.operand(at),
            Routine::AttentionBackward(attention) => attention.gradient_operand(at),
            Routine::MaxPoolBackward(pool) => pool.operand(at),
            Routine::Sort(sort) => sort.operand(at),
            Routine::SolveTriangular(of) => of.operand(at),
            Routine::Cholesky(of) => of.operand(at),
            Routine::Lu(of) => of.operand(at),
            Routine::Qr(of) => of.operand(at),
            Routine::Eigh(of) => of.operand(at),
            Routine::Scatter(of) => of.operand(at),
            Routine::Fourier(of) => of.operand(at),
            Routine::QuantizedMatmul(of) => of.operand(at),
            Routine::ExpertMatmul(of) => of.operand(at),
            Routine::CachedAttention(of) => of.operand(at),
        })
    }

    /// Returns the number of input buffers, which come first.
    pub fn input_count(&self) -> usize {
        self.operands().filter(|operand| operand.access == Access::In).count()
    }

    /// Returns the routine with f32 in place of f16 or bf16, for devices that support only that. `None` for graph primitives, for routines
    /// that only move elements, and if nothing changes.
    pub fn in_f32(&self) -> Option<Routine> {
        let wide = |dtype: DType| if matches!(dtype, DType::F16 | DType::BF16) { DType::F32 } else { dtype };
        let conv = |conv: Conv| Conv { dtype: wide(conv.dtype), ..conv };
        let attention = |of: Attention| Attention {
            dtype: wide(of.dtype),
            scale: Scalar::from_f64(wide(of.dtype), of.scale.to_f64()),
            mask: of.mask.map(|mask| Mask { dtype: wide(mask.dtype), ..mask }),
            ..of
        };
        let widened = match *self {
            Routine::Gemm(_) | Routine::Sort(_) | Routine::Scatter(_) => return None,
            Routine::SolveTriangular(_) | Routine::Cholesky(_) | Routine::Lu(_) => return None,
            Routine::Qr(_) | Routine::Eigh(_) => return None,
            Routine::Fourier(_)
            | Routine::QuantizedMatmul(_)
            | Routine::ExpertMatmul(_)
            | Routine::CachedAttention(_) => return None,
            Routine::Conv(of) => Routine::Conv(conv(of)),
            Routine::ConvBackwardData(of) => Routine::ConvBackwardData(conv(of)),
            Routine::ConvBackwardFilter(of) => Routine::ConvBackwardFilter(conv(of)),
            Routine::Attention(of) => Routine::Attention(attention(of)),
            Routine::AttentionBackward(of) => Routine::AttentionBackward(attention(of)),
            Routine::MaxPoolBackward(of) => Routine::MaxPoolBackward(Pool { dtype: wide(of.dtype), ..of }),
        };
        (widened != *self).then_some(widened)
    }

    /// Returns true if it accesses no element of one of its buffers.
    pub fn is_empty(&self) -> bool {
        self.operands().any(|operand| operand.elems == Some(0))
    }
}

impl fmt::Display for Routine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.name())?;
        match self {
            Routine::Gemm(gemm) => gemm.fmt(f),
            Routine::Conv(conv) | Routine::ConvBackwardData(conv) | Routine::ConvBackwardFilter(conv) => conv.fmt(f),
            Routine::Attention(attention) | Routine::AttentionBackward(attention) => attention.fmt(f),
            Routine::MaxPoolBackward(pool) => pool.fmt(f),
            Routine::Sort(sort) => sort.fmt(f),
            Routine::SolveTriangular(of) => of.fmt(f),
            Routine::Cholesky(of) => of.fmt(f),
            Routine::Lu(of) => of.fmt(f),
            Routine::Qr(of) => of.fmt(f),
            Routine::Eigh(of) => of.fmt(f),
            Routine::Scatter(of) => of.fmt(f),
            Routine::Fourier(of) => of.fmt(f),
            Routine::QuantizedMatmul(of) => of.fmt(f),
            Routine::ExpertMatmul(of) => of.fmt(f),
            Routine::CachedAttention(of) => of.fmt(f),
        }
    }
}

/// Returns the product of lengths; `None` if it exceeds 64 bits.
fn product(lengths: &[usize]) -> Option<u64> {
    lengths.iter().try_fold(1u64, |product, length| product.checked_mul(*length as u64))
}

/// Returns one more than the index of the last element of an array with these lengths and strides, after an offset; `None` beyond 64
/// bits.
fn reach(offset: usize, axes: &[(usize, usize)]) -> Option<u64> {
    if axes.iter().any(|(length, _)| *length == 0) {
        return Some(0);
    }
    let last = axes.iter().try_fold(offset as u64, |last, (length, stride)| {
        last.checked_add((*length as u64 - 1).checked_mul(*stride as u64)?)
    });
    last?.checked_add(1)
}
