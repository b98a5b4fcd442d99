//! From loop nests to kernels.
//!
//! [`lower`] is the table of contents: variables are merged and split ([`loop_transforms`]), values are placed ([`compute_at`]),
//! variables are mapped to the machine ([`thread_mapping`]), and kernel IR is written: row_kernel ([`row_kernel`]) for nearly everything,
//! tiled_matmuls ([`tiled_matmul`]) for products of matrices on a GPU, both on top of [`emit_scalar`].

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

/// A kernel with how to launch it.
#[derive(Clone, Debug)]
pub struct Lowered {
    /// The kernel.
    pub kernel: Arc<Verified<Kernel>>,
    /// Work-items along each axis.
    pub grid: [u64; 3],
    /// What each parameter is given.
    pub arguments: Vec<Argument>,
}

/// The kernel of a nest on a target.
pub fn lower(graph: &Graph, nest: &LoopNest, target: &Target, accuracy: MathMode) -> Result<Lowered> {
    Variants::new(nest, target, accuracy).lower(0, graph, target, accuracy)
}

/// Kernels of a nest that give the same bits of the same arguments, the one [`lower`] gives first: which is the fastest only a device can say.
pub fn variants(graph: &Graph, nest: &LoopNest, target: &Target, accuracy: MathMode) -> Result<Vec<Lowered>> {
    let ways = Variants::new(nest, target, accuracy);
    let first = ways.lower(0, graph, target, accuracy)?;
    let mut all = vec![first];
    // Sums of lanes side by side are rounded otherwise than those of one after the other.
    for way in (1..ways.count())
        .filter(|way| ways.combines_lanes(*way, target, accuracy) == ways.combines_lanes(0, target, accuracy))
    {
        let other = ways.lower(way, graph, target, accuracy)?;
        let new = |known: &Lowered| panoply_ir::hash(&known.kernel) != panoply_ir::hash(&other.kernel);
        if other.arguments == all[0].arguments && all.iter().all(new) {
            all.push(other);
        }
    }
    Ok(all)
}

/// A nest with the ways in which its kernel may be written.
struct Variants {
    nest: LoopNest,
    levels: compute_at::ComputeLevels,
    /// As a product of matrices; rows if there is none.
    tilings: Vec<tiled_matmul::MatmulTiling>,
    mapping: thread_mapping::ThreadMapping,
    /// How long the innermost variable is made; as it is if there is none.
    lengths: Vec<loop_transforms::InnerExtent>,
}

impl Variants {
    fn new(nest: &LoopNest, target: &Target, accuracy: MathMode) -> Variants {
        let nest = loop_transforms::simplify_loops(nest.clone());
        let levels = compute_at::ComputeLevels::new(&nest);
        let tilings = tiled_matmul::tilings(&nest, &levels, target, accuracy);
        let mapping = thread_mapping::map(&nest, &levels, target, accuracy);
        let lengths = mapping.lengths(&nest, target);
        Variants { nest, levels, tilings, mapping, lengths }
    }

    fn count(&self) -> usize {
        self.tilings.len().max(self.lengths.len()).max(1)
    }

    /// Whether lanes share the turns of a loop.
    fn combines_lanes(&self, way: usize, target: &Target, accuracy: MathMode) -> bool {
        match (self.tilings.get(way), self.lengths.get(way)) {
            (None, Some(length)) => {
                let nest = loop_transforms::with_inner_extent(self.nest.clone(), *length);
                thread_mapping::map(&nest, &compute_at::ComputeLevels::new(&nest), target, accuracy).lanes.is_some()
            }
            (Some(_), _) | (None, None) => self.mapping.lanes.is_some(),
        }
    }

    fn lower(&self, way: usize, graph: &Graph, target: &Target, accuracy: MathMode) -> Result<Lowered> {
        let Variants { nest, levels, tilings, mapping, lengths } = self;
        let emitted = match (tilings.get(way), lengths.get(way)) {
            (Some(tiling), _) => tiled_matmul::emit(graph, nest, levels, tiling)?,
            (None, None) => row_kernel::emit(graph, nest, levels, mapping)?,
            (None, Some(length)) => {
                let nest = loop_transforms::with_inner_extent(nest.clone(), *length);
                let levels = compute_at::ComputeLevels::new(&nest);
                row_kernel::emit(graph, &nest, &levels, &thread_mapping::map(&nest, &levels, target, accuracy))?
            }
        };
        let contracts = accuracy == MathMode::Fast && contract::fuses(target);
        let kernel = if contracts { contract(emitted.kernel) } else { emitted.kernel };
        let kernel = verify(kernel).unwrap_or_else(|error| panic!("lowering wrote a wrong kernel: {error}\n{nest}"));
        Ok(Lowered { kernel: Arc::new(kernel), grid: emitted.grid, arguments: emitted.arguments })
    }
}

/// Sizes at which lowering decides otherwise, with what they are of: tests take sizes on both sides of each.
pub fn thresholds(style: Style) -> Vec<(&'static str, usize)> {
    let all = [
        ("turns of a loop that are written out", row_kernel::FEW_TURNS),
        ("rows that are joined to fill a CPU's blocks", thread_mapping::SHORTEST_ROW),
        ("elements of a row that a group shares", thread_mapping::SHORT_ROW),
        ("elements of a row that a group shares across memory", thread_mapping::LONG_ROW),
        ("elements of a row that one group takes at once", thread_mapping::GPU_GROUP as u64),
        ("rows that keep a device busy", thread_mapping::BUSY_ROWS),
        ("rows and columns of a tile", tiled_matmul::SMALLEST),
    ];
    let block = match style {
        Style::Cpu { block } => vec![("work-items of a CPU's block", block as u64)],
        Style::Gpu => Vec::new(),
    };
    all.into_iter().chain(block).map(|(of, size)| (of, size as usize)).collect()
}
