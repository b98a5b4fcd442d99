//! Fusion groups, created by [fusion](super::fuse): the nodes a future kernel computes, at coordinates over its loop
//! variables.

use std::collections::{BTreeMap, BTreeSet};

use panoply_ir::graph::{Graph, NodeId, Op};

use super::affine::{AffineExpr, LoopVar};
use super::custom_kernel::CustomKernelCall;
use super::decompose;
use super::index_map::{self, IndexExprs};
use super::routine_match::RoutineMatch;

/// Index of a scatter's loop over its positions; the loop before it runs along a column.
pub(super) const POSITIONS: usize = 1;

/// A future kernel: the nodes it computes and their coordinates, its loads and its stores.
#[derive(Debug)]
pub struct FusionGroup {
    /// Node for which the group was opened.
    pub root: NodeId,
    /// Routine or custom kernel that computes the root, if any.
    pub library_kernel: Option<LibraryKernel>,
    /// Variables that distinguish work-items.
    pub outer: Vec<LoopVar>,
    /// True if reductions have determined which variables are outer. Until then all of them are.
    pub rows_fixed: bool,
    /// Variables of the loops inside a row; loops of equal lengths share them.
    pub loops: Vec<Vec<LoopVar>>,
    /// Nodes computed inside, with their coordinates.
    pub visits: BTreeMap<NodeId, Vec<IndexExprs>>,
    /// Stored nodes that are loaded, with their coordinates.
    pub loads: BTreeMap<NodeId, Vec<IndexExprs>>,
    /// Nodes stored, with the index of the element.
    pub stores: Vec<(NodeId, AffineExpr)>,
    /// Indices loaded from memory: the node and coordinates of each [`super::affine::AffineTerm::Read`].
    pub reads: Vec<(NodeId, IndexExprs)>,
    /// Nodes that must be stored before this group runs, even if it does not load them.
    pub(super) ordering_deps: BTreeSet<NodeId>,
    /// Nodes demanded at coordinates and not yet visited.
    pub(super) pending: BTreeMap<NodeId, Vec<IndexExprs>>,
    /// Variables of the array's axes, for a scatter.
    pub(super) scatter: Vec<LoopVar>,
    /// Variables of the axes of the written part, for a write.
    pub(super) write_vars: Vec<LoopVar>,
    next_var: u32,
}

/// A routine or custom kernel, with its operands in separate buffers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LibraryKernel {
    /// A library routine of the device.
    Routine(RoutineMatch),
    /// A custom kernel.
    Kernel(CustomKernelCall),
}

impl FusionGroup {
    /// Creates a group that computes nothing yet.
    pub(super) fn new(root: NodeId, library_kernel: Option<LibraryKernel>) -> FusionGroup {
        FusionGroup {
            root,
            library_kernel,
            outer: Vec::new(),
            rows_fixed: false,
            loops: Vec::new(),
            visits: BTreeMap::new(),
            loads: BTreeMap::new(),
            stores: Vec::new(),
            reads: Vec::new(),
            ordering_deps: BTreeSet::new(),
            pending: BTreeMap::new(),
            scatter: Vec::new(),
            write_vars: Vec::new(),
            next_var: 0,
        }
    }

    /// Creates a new variable.
    pub(super) fn fresh(&mut self, extent: usize) -> LoopVar {
        self.next_var += 1;
        LoopVar { id: self.next_var - 1, extent: extent as u64 }
    }

    /// Returns the inputs of a node at coordinates, with their coordinates. Repeated calls give the same result.
    pub fn inputs(&mut self, graph: &Graph, id: NodeId, coords: &IndexExprs) -> Vec<(NodeId, IndexExprs)> {
        let node = graph.node(id);
        let shape = |input: usize| &graph.node(node.inputs[input]).shape;
        match &node.op {
            Op::Const(_) | Op::ScalarInput(_) | Op::Iota => Vec::new(),
            Op::Alu(_) | Op::Cast | Op::Bitcast => node.inputs.iter().map(|input| (*input, coords.clone())).collect(),
            Op::Reshape | Op::Permute(_) | Op::Expand | Op::Pad(_) | Op::Slice(_) => {
                vec![(node.inputs[0], index_map::index_map(node, shape(0), coords).0)]
            }
            Op::Gather(axis) => {
                let (before, rest) = coords.split_at(*axis);
                let (place, after) = rest.split_at(shape(1).ndim());
                let read = (node.inputs[1], place.to_vec());
                let number = self.reads.iter().position(|known| *known == read).unwrap_or_else(|| {
                    self.reads.push(read.clone());
                    self.reads.len() - 1
                });
                let position = AffineExpr::read(number as u32, shape(0).dims()[*axis] as u64);
                vec![(node.inputs[0], [before, &[position], after].concat()), read]
            }
            Op::Reduce(_, axes) => {
                let extents: Vec<usize> = axes.iter().map(|axis| shape(0).dims()[*axis]).collect();
                self.fix(coords);
                let vars = self.inner_loop(&extents);
                let mut inside = coords.clone();
                axes.iter().zip(vars).for_each(|(axis, var)| inside[*axis] = AffineExpr::var(var));
                vec![(node.inputs[0], inside)]
            }
            Op::Scan(..) => vec![(node.inputs[0], coords.clone())],
            Op::ScatterAdd(axis) => {
                let place: IndexExprs = self.loops[POSITIONS].iter().map(|var| AffineExpr::var(*var)).collect();
                let read = (node.inputs[1], place.clone());
                if !self.reads.contains(&read) {
                    self.reads.push(read.clone());
                }
                let row = [&coords[..*axis], &place, &coords[axis + 1..]].concat();
                vec![(node.inputs[0], coords.clone()), read, (node.inputs[2], row)]
            }
            Op::SliceScatter(_) => {
                let mut inputs = Vec::with_capacity(node.inputs.len());
                for pair in node.inputs[1..].chunks(2) {
                    let read = (pair[1], IndexExprs::new());
                    if !self.reads.contains(&read) {
                        self.reads.push(read.clone());
                    }
                    inputs.extend([(pair[0], coords.clone()), read]);
                }
                // An array that is overwritten completely is not bound.
                inputs.extend((!decompose::overwrites_all(graph, id)).then(|| (node.inputs[0], IndexExprs::new())));
                inputs
            }
            Op::Input(_) | Op::MatMul | Op::Call(..) | Op::CustomCall(..) | Op::ControlDependency => {
                unreachable!("not computed inside a group")
            }
        }
    }

    /// Returns true if the root is a scatter.
    pub fn is_scatter(&self) -> bool {
        !self.scatter.is_empty()
    }

    /// Returns the coordinates of the scatter's array along its columns.
    pub fn scatter_coords(&self) -> IndexExprs {
        self.scatter.iter().map(|var| AffineExpr::var(*var)).collect()
    }

    /// Returns true if the root is a write.
    pub fn is_write(&self) -> bool {
        !self.write_vars.is_empty()
    }

    /// Returns the coordinates of the written part.
    pub fn written_coords(&self) -> IndexExprs {
        self.write_vars.iter().map(|var| AffineExpr::var(*var)).collect()
    }

    /// Makes the variables of these coordinates the rows, unless the rows are already fixed.
    pub(super) fn fix(&mut self, rows: &IndexExprs) {
        if !self.rows_fixed {
            let rows = self.vars_of(rows);
            let (outer, inner): (Vec<LoopVar>, Vec<LoopVar>) = self.outer.iter().partition(|var| rows.contains(var));
            self.outer = outer;
            self.loops.extend((!inner.is_empty()).then_some(inner));
            self.rows_fixed = true;
        }
    }

    /// Returns the variables of the loop with these lengths, creating it if needed.
    pub(super) fn inner_loop(&mut self, extents: &[usize]) -> Vec<LoopVar> {
        let fits = |vars: &&Vec<LoopVar>| vars.iter().map(|var| var.extent as usize).eq(extents.iter().copied());
        if let Some(vars) = self.loops.iter().find(fits) {
            return vars.clone();
        }
        let vars: Vec<LoopVar> = extents.iter().map(|extent| self.fresh(*extent)).collect();
        self.loops.push(vars.clone());
        vars
    }

    /// Returns the group's variables on which coordinates depend.
    pub(super) fn vars_of(&self, coords: &[AffineExpr]) -> Vec<LoopVar> {
        let all = self.outer.iter().chain(self.loops.iter().flatten());
        all.copied().filter(|var| coords.iter().any(|index| index.uses(*var))).collect()
    }

    /// Returns how often a value at these coordinates is computed: once for each combination of the variables of its
    /// loop level.
    pub(super) fn times(&self, coords: &[AffineExpr]) -> f64 {
        let used = self.vars_of(coords);
        match self.loops.iter().find(|vars| vars.iter().any(|var| used.contains(var))) {
            Some(vars) => (extent(&self.outer) * extent(vars)) as f64,
            None if used.is_empty() => 1.0,
            None => extent(&self.outer) as f64,
        }
    }
}

/// Returns the product of the variables' extents.
pub(super) fn extent(vars: &[LoopVar]) -> u64 {
    vars.iter().map(|var| var.extent).product()
}
