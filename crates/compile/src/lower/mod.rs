//! Lowers loop nests to kernels.
//!
//! [`lower`] runs these steps: variables are merged and split ([`loop_transforms`]), values are assigned to loop levels
//! ([`compute_at`]), and variables are mapped to the target ([`thread_mapping`]). Then kernel IR is emitted, on top of
//! [`emit_scalar`]: by [`row_kernel`] for most nests, by [`tiled_matmul`] for matrix products on a GPU.

pub mod compute_at;
pub mod emit_scalar;
pub mod loop_transforms;
pub mod row_kernel;
pub mod thread_mapping;
pub mod tiled_matmul;
mod tiled_transpose;

use std::sync::Arc;

use panoply_ir::graph::Graph;
use panoply_ir::kernel::Kernel;
use panoply_ir::target::Style;
use panoply_ir::{MathMode, Result, Target, Verified};

use crate::opt::contract::{self, contract};
use crate::proven::verify;
use crate::schedule::loop_nest::LoopNest;
pub use emit_scalar::Argument;

/// A kernel with its launch parameters.
#[derive(Clone, Debug)]
pub struct Lowered {
    /// The kernel.
    pub kernel: Arc<Verified<Kernel>>,
    /// Work-items along each axis.
    pub grid: [u64; 3],
    /// Argument of each parameter.
    pub arguments: Vec<Argument>,
}

/// Lowers a nest to the kernel for a target.
///
/// # Errors
///
/// Returns an error if the kernel cannot be built.
///
/// # Panics
///
/// Panics if the emitted kernel does not verify, which is a bug.
pub fn lower(graph: &Graph, nest: &LoopNest, target: &Target, math_mode: MathMode) -> Result<Lowered> {
    Variants::new(nest, target, math_mode).lower(0, graph, target, math_mode)
}

/// Returns kernels of a nest with bit-identical results for the same arguments, the one of [`lower`] first. The fastest
/// one must be determined by measurement on the device.
///
/// # Errors
///
/// Returns an error if a kernel cannot be built.
///
/// # Panics
///
/// Panics if an emitted kernel does not verify, which is a bug.
pub fn variants(graph: &Graph, nest: &LoopNest, target: &Target, math_mode: MathMode) -> Result<Vec<Lowered>> {
    let variants = Variants::new(nest, target, math_mode);
    let first = variants.lower(0, graph, target, math_mode)?;
    let mut all = vec![first];
    // Sums across lanes are rounded differently from sequential sums.
    for variant in (1..variants.count()).filter(|variant| {
        variants.combines_lanes(*variant, target, math_mode) == variants.combines_lanes(0, target, math_mode)
    }) {
        let other = variants.lower(variant, graph, target, math_mode)?;
        let new = |known: &Lowered| panoply_ir::hash(&known.kernel) != panoply_ir::hash(&other.kernel);
        if other.arguments == all[0].arguments && all.iter().all(new) {
            all.push(other);
        }
    }
    Ok(all)
}

/// A nest with the alternatives for emitting its kernel.
struct Variants {
    nest: LoopNest,
    levels: compute_at::ComputeLevels,
    /// Tilings as a matrix product; empty if the nest is not one.
    tilings: Vec<tiled_matmul::MatmulTiling>,
    mapping: thread_mapping::ThreadMapping,
    /// Alternative extents of the innermost variable; empty if it stays unchanged.
    lengths: Vec<loop_transforms::InnerExtent>,
}

impl Variants {
    fn new(nest: &LoopNest, target: &Target, math_mode: MathMode) -> Variants {
        let nest = loop_transforms::simplify_loops(nest.clone());
        let levels = compute_at::ComputeLevels::new(&nest);
        let tilings = tiled_matmul::tilings(&nest, &levels, target, math_mode);
        let mapping = thread_mapping::map(&nest, &levels, target, math_mode);
        if let Some((nest, mapping)) = thread_mapping::interleaved(&nest, &mapping, target) {
            let levels = compute_at::ComputeLevels::new(&nest);
            return Variants { nest, levels, tilings: Vec::new(), mapping, lengths: Vec::new() };
        }
        let lengths = mapping.inner_extents(&nest, target);
        Variants { nest, levels, tilings, mapping, lengths }
    }

    fn count(&self) -> usize {
        self.tilings.len().max(self.lengths.len()).max(1)
    }

    /// Returns true if lanes share the iterations of a loop.
    fn combines_lanes(&self, variant: usize, target: &Target, math_mode: MathMode) -> bool {
        match (self.tilings.get(variant), self.lengths.get(variant)) {
            (None, Some(length)) => {
                let nest = loop_transforms::with_inner_extent(self.nest.clone(), *length);
                thread_mapping::map(&nest, &compute_at::ComputeLevels::new(&nest), target, math_mode).lanes.is_some()
            }
            (Some(_), _) | (None, None) => self.mapping.lanes.is_some(),
        }
    }

    fn lower(&self, variant: usize, graph: &Graph, target: &Target, math_mode: MathMode) -> Result<Lowered> {
        let Variants { nest, levels, tilings, mapping, lengths } = self;
        let emitted = match (tilings.get(variant), lengths.get(variant)) {
            (Some(tiling), _) => tiled_matmul::emit(graph, nest, levels, tiling)?,
            (None, None) => row_kernel::emit(graph, nest, levels, mapping)?,
            (None, Some(length)) => {
                let nest = loop_transforms::with_inner_extent(nest.clone(), *length);
                let levels = compute_at::ComputeLevels::new(&nest);
                row_kernel::emit(graph, &nest, &levels, &thread_mapping::map(&nest, &levels, target, math_mode))?
            }
        };
        let contracts = math_mode == MathMode::Fast && contract::fuses(target);
        let kernel = if contracts { contract(emitted.kernel) } else { emitted.kernel };
        let kernel =
            verify(kernel).unwrap_or_else(|error| panic!("lowering emitted an invalid kernel: {error}\n{nest}"));
        Ok(Lowered { kernel: Arc::new(kernel), grid: emitted.grid, arguments: emitted.arguments })
    }
}

/// Returns the sizes at which lowering decisions change, with descriptions. Tests use sizes on both sides of each.
pub fn thresholds(style: Style) -> Vec<(&'static str, usize)> {
    let all = [
        ("iterations of a loop that is unrolled", row_kernel::MAX_UNROLLED_ITERATIONS),
        ("rows that are merged to fill a CPU's blocks", thread_mapping::SHORTEST_ROW),
        ("elements of a row that a group shares", thread_mapping::SHORT_ROW),
        ("elements of a strided row that a group shares", thread_mapping::LONG_ROW),
        ("elements of a row that a group processes at once", thread_mapping::MAX_GPU_GROUP_SIZE as u64),
        ("rows that keep a device busy", thread_mapping::BUSY_ROWS),
        ("elements from which a work-item computes several", thread_mapping::INTERLEAVED),
        ("rows and columns of a tile", tiled_matmul::MIN_EXTENT),
    ];
    let block = match style {
        Style::Cpu { block } => vec![("work-items of a CPU's block", block as u64)],
        Style::Gpu => Vec::new(),
    };
    all.into_iter().chain(block).map(|(of, size)| (of, size as usize)).collect()
}
