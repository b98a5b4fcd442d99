//! A kernel to be, as [fusion](super::fuse) makes it: the nodes it computes, at coordinates over the variables of its loops.

use std::collections::{BTreeMap, BTreeSet};

use panoply_ir::graph::{Graph, NodeId, Op};

use super::affine::{Form, Var};
use super::authored::Call;
use super::claim::Claim;
use super::expand;
use super::pull::{self, Coords};

/// The loop of a scatter over its positions; the one before it walks along a column.
pub(super) const POSITIONS: usize = 1;

/// A kernel to be: what it computes, where, and what it reads and writes.
#[derive(Debug)]
pub struct Group {
    /// The node it was opened for.
    pub root: NodeId,
    /// What does it whole, if something does.
    pub whole: Option<Whole>,
    /// Variables that tell work-items apart.
    pub outer: Vec<Var>,
    /// Whether reductions have decided which variables are outer. Until then all of them are.
    pub fixed: bool,
    /// Variables of the loops inside a row; loops of equal lengths share them.
    pub loops: Vec<Vec<Var>>,
    /// Nodes computed inside and at which coordinates.
    pub visits: BTreeMap<NodeId, Vec<Coords>>,
    /// Stored nodes read, and at which coordinates.
    pub loads: BTreeMap<NodeId, Vec<Coords>>,
    /// Nodes written and at which position.
    pub stores: Vec<(NodeId, Form)>,
    /// Positions read from memory: the node and coordinates behind each [`super::affine::Atom::Read`].
    pub reads: Vec<(NodeId, Coords)>,
    /// Groups whose results it loads.
    pub after: BTreeSet<usize>,
    /// Nodes that are stored before it runs, whether it reads them or not.
    pub(super) waits: BTreeSet<NodeId>,
    /// Nodes wanted at coordinates, their turn not having come.
    pub(super) demands: BTreeMap<NodeId, Vec<Coords>>,
    /// For a scatter, the variables of the array's axes.
    pub(super) scatter: Vec<Var>,
    /// For a write, the variables of the axes of what is written.
    pub(super) written: Vec<Var>,
    next_var: u32,
}

/// What is done whole, with its operands in memory of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whole {
    /// A routine of the device.
    Routine(Claim),
    /// A kernel of its author's.
    Kernel(Call),
}

impl Group {
    /// A group that computes nothing yet.
    pub(super) fn new(root: NodeId, whole: Option<Whole>) -> Group {
        Group {
            root,
            whole,
            outer: Vec::new(),
            fixed: false,
            loops: Vec::new(),
            visits: BTreeMap::new(),
            loads: BTreeMap::new(),
            stores: Vec::new(),
            reads: Vec::new(),
            after: BTreeSet::new(),
            waits: BTreeSet::new(),
            demands: BTreeMap::new(),
            scatter: Vec::new(),
            written: Vec::new(),
            next_var: 0,
        }
    }

    /// A variable of its own.
    pub(super) fn fresh(&mut self, extent: usize) -> Var {
        self.next_var += 1;
        Var { id: self.next_var - 1, extent: extent as u64 }
    }

    /// What a node at coordinates reads, and where. Called again it gives the same.
    pub fn inputs(&mut self, graph: &Graph, id: NodeId, coords: &Coords) -> Vec<(NodeId, Coords)> {
        let node = graph.node(id);
        let shape = |input: usize| &graph.node(node.inputs[input]).shape;
        match &node.op {
            Op::Const(_) | Op::Slot(_) | Op::Iota => Vec::new(),
            Op::Alu(_) | Op::Cast | Op::Bitcast => node.inputs.iter().map(|input| (*input, coords.clone())).collect(),
            Op::Reshape | Op::Permute(_) | Op::Expand | Op::Pad(_) | Op::Slice(_) => {
                vec![(node.inputs[0], pull::pull(node, shape(0), coords).0)]
            }
            Op::Gather(axis) => {
                let (before, rest) = coords.split_at(*axis);
                let (place, after) = rest.split_at(shape(1).rank());
                let read = (node.inputs[1], place.to_vec());
                let number = self.reads.iter().position(|known| *known == read).unwrap_or_else(|| {
                    self.reads.push(read.clone());
                    self.reads.len() - 1
                });
                let position = Form::read(number as u32, shape(0).dims()[*axis] as u64);
                vec![(node.inputs[0], [before, &[position], after].concat()), read]
            }
            Op::Reduce(_, axes) => {
                let extents: Vec<usize> = axes.iter().map(|axis| shape(0).dims()[*axis]).collect();
                self.fix(coords);
                let vars = self.inner_loop(&extents);
                let mut inside = coords.clone();
                axes.iter().zip(vars).for_each(|(axis, var)| inside[*axis] = Form::var(var));
                vec![(node.inputs[0], inside)]
            }
            Op::Scan(..) => vec![(node.inputs[0], coords.clone())],
            Op::ScatterAdd(axis) => {
                let place: Coords = self.loops[POSITIONS].iter().map(|var| Form::var(*var)).collect();
                let read = (node.inputs[1], place.clone());
                if !self.reads.contains(&read) {
                    self.reads.push(read.clone());
                }
                let row = [&coords[..*axis], &place, &coords[axis + 1..]].concat();
                vec![(node.inputs[0], coords.clone()), read, (node.inputs[2], row)]
            }
            Op::Write(_) => {
                let mut inputs = Vec::with_capacity(node.inputs.len());
                for pair in node.inputs[1..].chunks(2) {
                    let read = (pair[1], Coords::new());
                    if !self.reads.contains(&read) {
                        self.reads.push(read.clone());
                    }
                    inputs.extend([(pair[0], coords.clone()), read]);
                }
                // What is written over everywhere is not bound.
                inputs.extend((!expand::covers(graph, id)).then(|| (node.inputs[0], Coords::new())));
                inputs
            }
            Op::Leaf(_) | Op::MatMul | Op::Call(..) | Op::Kernel(..) | Op::After => {
                unreachable!("never computed inside a group")
            }
        }
    }

    /// Whether its root is a scatter.
    pub fn is_scatter(&self) -> bool {
        !self.scatter.is_empty()
    }

    /// The coordinates of a scatter's array along its columns.
    pub fn scatter_coords(&self) -> Coords {
        self.scatter.iter().map(|var| Form::var(*var)).collect()
    }

    /// Whether its root is a write.
    pub fn is_write(&self) -> bool {
        !self.written.is_empty()
    }

    /// The coordinates of what is written.
    pub fn written_coords(&self) -> Coords {
        self.written.iter().map(|var| Form::var(*var)).collect()
    }

    /// Makes the variables of these coordinates the rows, if nothing has decided that yet.
    pub(super) fn fix(&mut self, rows: &Coords) {
        if !self.fixed {
            let rows = self.vars_of(rows);
            let (outer, inner): (Vec<Var>, Vec<Var>) = self.outer.iter().partition(|var| rows.contains(var));
            self.outer = outer;
            self.loops.extend((!inner.is_empty()).then_some(inner));
            self.fixed = true;
        }
    }

    /// The variables of the loop of these lengths.
    pub(super) fn inner_loop(&mut self, extents: &[usize]) -> Vec<Var> {
        let fits = |vars: &&Vec<Var>| vars.iter().map(|var| var.extent as usize).eq(extents.iter().copied());
        if let Some(vars) = self.loops.iter().find(fits) {
            return vars.clone();
        }
        let vars: Vec<Var> = extents.iter().map(|extent| self.fresh(*extent)).collect();
        self.loops.push(vars.clone());
        vars
    }

    /// The group's variables that coordinates depend on.
    pub(super) fn vars_of(&self, coords: &[Form]) -> Vec<Var> {
        let all = self.outer.iter().chain(self.loops.iter().flatten());
        all.copied().filter(|var| coords.iter().any(|form| form.uses(*var))).collect()
    }

    /// How often something at these coordinates is computed: once for each value of the variables of its level.
    pub(super) fn times(&self, coords: &[Form]) -> f64 {
        let used = self.vars_of(coords);
        match self.loops.iter().find(|vars| vars.iter().any(|var| used.contains(var))) {
            Some(vars) => (extent(&self.outer) * extent(vars)) as f64,
            None if used.is_empty() => 1.0,
            None => extent(&self.outer) as f64,
        }
    }
}

/// How many values variables take together.
pub(super) fn extent(vars: &[Var]) -> u64 {
    vars.iter().map(|var| var.extent).product()
}
