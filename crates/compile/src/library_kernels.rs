//! Kernels of our own that do a call whole on a GPU where nobody offers its routine.
//!
//! [Fusion](crate::schedule::fuse) joins what has one loop behind it. What must not store what stands between two products is
//! written here instead, as an author writes a kernel, and takes the call's place in the graph as [`Op::CustomCall`]; where it does
//! not fit the target, or is not worth it, the body runs. Nothing here knows a graph.
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

/// The kernels that do a routine, which between them give its results in these shapes, in their order: some in a wider type.
/// None where its body is better.
pub(crate) fn kernels(
    routine: &Routine,
    results: &[Shape],
    target: &Target,
    accuracy: MathMode,
) -> Option<Vec<Arc<CustomKernel>>> {
    match routine {
        Routine::Attention(of) => attention::output(of, results, target, accuracy).map(|kernel| vec![kernel]),
        Routine::AttentionBackward(of) => attention::gradient(of, results, target, accuracy).map(Vec::from),
        Routine::Gemm(_) | Routine::Conv(_) | Routine::ConvBackwardData(_) | Routine::ConvBackwardFilter(_) => None,
        Routine::MaxPoolBackward(_) | Routine::Sort(_) | Routine::Scatter(_) => None,
        Routine::SolveTriangular(_) | Routine::Cholesky(_) | Routine::Lu(_) => None,
        Routine::Qr(_) | Routine::Eigh(_) => None,
        Routine::Fourier(_) | Routine::QuantizedMatmul(_) => None,
    }
}

/// What is written so far, and over how many work-items it is launched.
type Launch = (Builder, [u64; 3]);

/// One kernel written in several ways that give the same bits, to stand in a graph; none if there is no way.
fn authored(ways: impl Iterator<Item = Launch>, results: &[Shape]) -> Option<Arc<CustomKernel>> {
    let finished = |(builder, grid): Launch| {
        let verified = builder.finish().and_then(verify);
        (Arc::new(verified.unwrap_or_else(|error| panic!("a kernel of ours is written wrongly: {error}"))), grid)
    };
    let mut ways: Vec<(Arc<Verified<Kernel>>, [u64; 3])> = ways.map(finished).collect();
    let others = ways.split_off(ways.len().min(1));
    let (kernel, grid) = ways.pop()?;
    let authored = CustomKernel::new(kernel, grid, results.to_vec());
    Some(Arc::new(
        authored.unwrap_or_else(|error| panic!("a kernel of ours does not fit: {error}")).with_variants(others),
    ))
}
