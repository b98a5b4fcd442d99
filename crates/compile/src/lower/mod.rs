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
use panoply_ir::verify::verify;
use panoply_ir::{Result, Target, Verified};

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
pub fn lower(graph: &Graph, nest: &Nest, target: &Target) -> Result<Lowered> {
    let nest = axes::tidy(nest.clone());
    let levels = levels::Levels::new(&nest);
    let emitted = match tile::tiling(&nest, &levels, target) {
        Some(tiling) => tile::emit(graph, &nest, &levels, &tiling)?,
        None => {
            let mapping = mapping::map(&nest, &levels, target);
            match mapping.short(&nest, target) {
                None => rows::emit(graph, &nest, &levels, &mapping)?,
                Some(length) => {
                    let nest = axes::lengthened(nest.clone(), length);
                    let levels = levels::Levels::new(&nest);
                    rows::emit(graph, &nest, &levels, &mapping::map(&nest, &levels, target))?
                }
            }
        }
    };
    let kernel =
        verify(emitted.kernel).unwrap_or_else(|error| panic!("lowering wrote a wrong kernel: {error}\n{nest}"));
    Ok(Lowered { kernel: Arc::new(kernel), grid: emitted.grid, arguments: emitted.arguments })
}
