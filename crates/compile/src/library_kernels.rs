//! Hand-written kernels that compute an entire call on a GPU without a vendor routine for it.
//!
//! [Fusion](crate::schedule::fuse) merges nodes that share loops. Operations that must not store the intermediate
//! between two products, such as attention, are written here instead, in the same way as custom kernels, and replace
//! the call in the graph as [`Op::CustomCall`]. If a kernel does not fit the target, or is not profitable, the call's
//! body runs. This module does not access the graph.
//!
//! [`Op::CustomCall`]: panoply_ir::graph::Op::CustomCall

mod attention;
mod tiles;
mod tiling;

use std::sync::Arc;

use panoply_ir::builder::Builder;
use panoply_ir::custom_kernel::CustomKernel;
use panoply_ir::kernel::Kernel;
use panoply_ir::routine::Routine;
use panoply_ir::{MathMode, Shape, Target, Verified};

use crate::proven::verify;

/// Returns the kernels that compute a routine. Together they give its results in these shapes, in their order, some in
/// a wider type. Returns `None` if the body is faster.
pub(crate) fn kernels(
    routine: &Routine,
    results: &[Shape],
    target: &Target,
    math_mode: MathMode,
) -> Option<Vec<Arc<CustomKernel>>> {
    match routine {
        Routine::Attention(of) => attention::output(of, results, target, math_mode).map(|kernel| vec![kernel]),
        Routine::AttentionBackward(of) => attention::gradient(of, results, target, math_mode).map(Vec::from),
        Routine::Gemm(_) | Routine::Conv(_) | Routine::ConvBackwardData(_) | Routine::ConvBackwardFilter(_) => None,
        Routine::MaxPoolBackward(_) | Routine::Sort(_) | Routine::Scatter(_) => None,
        Routine::SolveTriangular(_) | Routine::Cholesky(_) | Routine::Lu(_) => None,
        Routine::Qr(_) | Routine::Eigh(_) => None,
        Routine::Fourier(_) | Routine::QuantizedMatmul(_) | Routine::ExpertMatmul(_) | Routine::CachedAttention(_) => {
            None
        }
    }
}

/// A kernel under construction, and its grid.
type Launch = (Builder, [u64; 3]);

/// Creates a custom kernel with variants that give the same bits; returns `None` if there is no variant.
fn custom_kernel(variants: impl Iterator<Item = Launch>, results: &[Shape]) -> Option<Arc<CustomKernel>> {
    let finished = |(builder, grid): Launch| {
        let verified = builder.finish().and_then(verify);
        (Arc::new(verified.unwrap_or_else(|error| panic!("library kernel is invalid: {error}"))), grid)
    };
    let mut variants: Vec<(Arc<Verified<Kernel>>, [u64; 3])> = variants.map(finished).collect();
    let others = variants.split_off(variants.len().min(1));
    let (kernel, grid) = variants.pop()?;
    let custom_kernel = CustomKernel::new(kernel, grid, results.to_vec());
    Some(Arc::new(
        custom_kernel
            .unwrap_or_else(|error| panic!("library kernel does not match its results: {error}"))
            .with_variants(others),
    ))
}
