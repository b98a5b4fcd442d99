//! From loop nests to kernels.
//!
//! [`lower`] is the table of contents: variables are merged and split ([`axes`]), values are placed ([`levels`]),
//! variables are mapped to the machine ([`mapping`]), and kernel IR is written: rows ([`rows`]) for nearly everything,
//! tiles ([`tile`]) for products of matrices on a GPU, both on top of [`scalar`].

pub mod axes;
pub mod levels;
pub mod mapping;
pub mod rows;
pub mod scalar;
mod stage;
pub mod tile;

use std::sync::Arc;

use panoply_ir::graph::Graph;
use panoply_ir::kernel::Kernel;
use panoply_ir::target::Style;
use panoply_ir::{Accuracy, Result, Target, Verified};

use crate::opt::contract::{self, contract};
use crate::proven::verify;
use crate::schedule::nest::Nest;
pub use scalar::Argument;

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
pub fn lower(graph: &Graph, nest: &Nest, target: &Target, accuracy: Accuracy) -> Result<Lowered> {
    Ways::new(nest, target, accuracy).write(0, graph, target, accuracy)
}

/// Kernels of a nest that give the same bits of the same arguments, the one [`lower`] gives first: which is the fastest only a device can say.
pub fn variants(graph: &Graph, nest: &Nest, target: &Target, accuracy: Accuracy) -> Result<Vec<Lowered>> {
    let ways = Ways::new(nest, target, accuracy);
    let first = ways.write(0, graph, target, accuracy)?;
    let mut all = vec![first];
    // Sums of lanes side by side are rounded otherwise than those of one after the other.
    for way in (1..ways.count())
        .filter(|way| ways.combines_lanes(*way, target, accuracy) == ways.combines_lanes(0, target, accuracy))
    {
        let other = ways.write(way, graph, target, accuracy)?;
        let new = |known: &Lowered| panoply_ir::hash(&known.kernel) != panoply_ir::hash(&other.kernel);
        if other.arguments == all[0].arguments && all.iter().all(new) {
            all.push(other);
        }
    }
    Ok(all)
}

/// A nest with the ways in which its kernel may be written.
struct Ways {
    nest: Nest,
    levels: levels::Levels,
    /// As a product of matrices; rows if there is none.
    tilings: Vec<tile::Tiling>,
    mapping: mapping::Mapping,
    /// How long the innermost variable is made; as it is if there is none.
    lengths: Vec<axes::Length>,
}

impl Ways {
    fn new(nest: &Nest, target: &Target, accuracy: Accuracy) -> Ways {
        let nest = axes::tidy(nest.clone());
        let levels = levels::Levels::new(&nest);
        let tilings = tile::tilings(&nest, &levels, target, accuracy);
        let mapping = mapping::map(&nest, &levels, target, accuracy);
        let lengths = mapping.lengths(&nest, target);
        Ways { nest, levels, tilings, mapping, lengths }
    }

    fn count(&self) -> usize {
        self.tilings.len().max(self.lengths.len()).max(1)
    }

    /// Whether lanes share the turns of a loop.
    fn combines_lanes(&self, way: usize, target: &Target, accuracy: Accuracy) -> bool {
        match (self.tilings.get(way), self.lengths.get(way)) {
            (None, Some(length)) => {
                let nest = axes::lengthened(self.nest.clone(), *length);
                mapping::map(&nest, &levels::Levels::new(&nest), target, accuracy).lanes.is_some()
            }
            (Some(_), _) | (None, None) => self.mapping.lanes.is_some(),
        }
    }

    fn write(&self, way: usize, graph: &Graph, target: &Target, accuracy: Accuracy) -> Result<Lowered> {
        let Ways { nest, levels, tilings, mapping, lengths } = self;
        let emitted = match (tilings.get(way), lengths.get(way)) {
            (Some(tiling), _) => tile::emit(graph, nest, levels, tiling)?,
            (None, None) => rows::emit(graph, nest, levels, mapping)?,
            (None, Some(length)) => {
                let nest = axes::lengthened(nest.clone(), *length);
                let levels = levels::Levels::new(&nest);
                rows::emit(graph, &nest, &levels, &mapping::map(&nest, &levels, target, accuracy))?
            }
        };
        let contracts = accuracy == Accuracy::Fast && contract::fuses(target);
        let kernel = if contracts { contract(emitted.kernel) } else { emitted.kernel };
        let kernel = verify(kernel).unwrap_or_else(|error| panic!("lowering wrote a wrong kernel: {error}\n{nest}"));
        Ok(Lowered { kernel: Arc::new(kernel), grid: emitted.grid, arguments: emitted.arguments })
    }
}

/// Sizes at which lowering decides otherwise, with what they are of: tests take sizes on both sides of each.
pub fn thresholds(style: Style) -> Vec<(&'static str, usize)> {
    let all = [
        ("turns of a loop that are written out", rows::FEW_TURNS),
        ("rows that are joined to fill a CPU's blocks", mapping::SHORTEST_ROW),
        ("elements of a row that a group shares", mapping::SHORT_ROW),
        ("elements of a row that a group shares across memory", mapping::LONG_ROW),
        ("elements of a row that one group takes at once", mapping::GPU_GROUP as u64),
        ("rows that keep a device busy", mapping::BUSY_ROWS),
        ("rows and columns of a tile", tile::SMALLEST),
    ];
    let block = match style {
        Style::Cpu { block } => vec![("work-items of a CPU's block", block as u64)],
        Style::Gpu => Vec::new(),
    };
    all.into_iter().chain(block).map(|(of, size)| (of, size as usize)).collect()
}
