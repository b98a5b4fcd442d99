//! The fusion rule: decides which nodes run in one kernel. No other module decides this, except for [horizontal
//! fusion](super::horizontal_fusion).
//!
//! Nodes are visited in reverse order, users first. Each open group (a future kernel) *demands* nodes at coordinates
//! over its loop variables. When a node is visited, all groups that demand it are known, and it is either computed
//! inside each of them or stored once and loaded by the others.
//!
//! - **Movement operations and constants** are always computed inside: they are index arithmetic and use no memory.
//! - **Element-wise nodes and gathers** are computed inside unless several groups demand them and [`Costs`] finds
//!   storing cheaper, or a broadcast would repeat expensive work. A cast that only widens 16-bit floats is never stored
//!   on a device with matrix units for them.
//! - **Reductions** are computed inside a group if the reduction's results correspond one to one to the group's rows
//!   (the *outer* variables). Softmax or layer norm is then one kernel with rows outside and several consecutive loops
//!   inside a row. All reductions of a group share its rows.
//! - **Scans, scatters and writes** are the root of a group. A write binds the memory it updates, which must not be
//!   computed inside.
//! - **Routines and custom kernels** (matrix products, calls) form separate groups and load their inputs.
//! - A stored node is stored by a group that computes it anyway, if that group visits each element once and the others
//!   can wait for it. Otherwise it becomes the root of a new group. So a kernel can have several outputs.
//! - A group never accesses more buffers than the target can bind.
//!
//! Dependencies between kernels never form a cycle: every load is an edge, and edges are checked when they are added.

use std::collections::{BTreeSet, HashMap};

use panoply_ir::alu::Alu;
use panoply_ir::graph::{Graph, Node, NodeId, Op};
use panoply_ir::reduce::ReduceOp;
use panoply_ir::{DType, MathMode, Target};

use super::affine::{AffineExpr, LoopVar};
use super::cost::Costs;
use super::custom_kernel::CustomKernelCall;
use super::dependencies::Dependencies;
use super::fusion_group::{FusionGroup, LibraryKernel, extent};
use super::index_map::{self, IndexExprs};
use super::routine_match::RoutineMatch;
use super::{horizontal_fusion, topological_order};

/// Maximum number of nodes computed inside one kernel, each counted once per place.
pub(super) const MAX_VISITS: usize = 320;
/// Maximum number of places at which one node is computed within a kernel.
const MAX_PLACES: usize = 4;
/// Number of rows below which a reduction is not fused with its users, because one work-group per row would leave the
/// device idle.
pub(super) const FEW_ROWS: u64 = 16;
/// Number of elements below which a kernel's launch costs more than its work.
pub(super) const SMALL: u64 = 1 << 15;

struct Fusion<'a> {
    graph: &'a Graph,
    target: &'a Target,
    /// True if the device has matrix units for 16-bit floats.
    halves: bool,
    ordering_deps: &'a [Vec<NodeId>],
    costs: Costs,
    groups: Vec<FusionGroup>,
    dependencies: Dependencies,
    /// Groups of routines and custom kernels, by the inputs of their roots.
    library_groups: HashMap<&'a [NodeId], Vec<usize>>,
    /// Groups that demand each node.
    users: Vec<BTreeSet<usize>>,
    /// For reductions, and for nodes computed element-wise from one: the number of elements combined.
    combined: Vec<Option<u64>>,
}

/// Divides a graph into groups, in an order in which they can run. Every [`Op::MatMul`] and every [`Op::Call`] becomes
/// a routine. `ordering_deps` lists for each node the nodes that must be computed before it.
pub fn fuse(graph: &Graph, target: &Target, math_mode: MathMode, ordering_deps: &[Vec<NodeId>]) -> Vec<FusionGroup> {
    let users = vec![BTreeSet::new(); graph.nodes.len()];
    let (costs, combined) = (Costs::new(graph), combined(graph));
    let halves = target.mma && math_mode != MathMode::Exact;
    let (groups, dependencies, library_groups) = Default::default();
    let mut fusion =
        Fusion { graph, target, halves, ordering_deps, costs, groups, dependencies, library_groups, users, combined };
    let mut is_output = vec![false; graph.nodes.len()];
    graph.outputs.iter().for_each(|output| is_output[output.index()] = graph.node(*output).shape.numel() > 0);
    for at in (0..graph.nodes.len()).rev() {
        let id = NodeId(at as u32);
        if is_output[at] || !fusion.users[at].is_empty() {
            fusion.assign(id, is_output[at]);
        }
    }
    let sparing = ordering_deps.iter().any(|before| !before.is_empty());
    let Fusion { groups, mut dependencies, .. } = fusion;
    let groups = horizontal_fusion::fuse_horizontally(graph, target, groups, &mut dependencies);
    topological_order::topological_order(graph, sparing, groups, &dependencies)
}

impl Fusion<'_> {
    /// Decides where a node is computed, after all its users are decided.
    fn assign(&mut self, id: NodeId, is_output: bool) {
        let users = std::mem::take(&mut self.users[id.index()]);
        let op = &self.graph.node(id).op;
        if matches!(op, Op::Input(_)) {
            users.iter().for_each(|group| self.add_load(*group, id, None));
            return;
        }
        let (fit, unfit): (Vec<usize>, Vec<usize>) = users.iter().partition(|group| self.fits(**group, id));
        let shareable = match op {
            Op::Reduce(..) | Op::Scan(..) | Op::MatMul | Op::ScatterAdd(_) | Op::SliceScatter(_) => users.len() <= 1,
            Op::CustomCall(..) | Op::Call(..) => users.len() <= 1,
            op if is_free(op) => true,
            _ => users.len() <= 1 || self.costs.is_cheap(self.graph, id, users.len()),
        };
        if !is_output && unfit.is_empty() && shareable {
            users.iter().for_each(|group| self.inline(*group, id));
            return;
        }
        // A group without loops uses all lanes of the device for the node, a reduction only those of its rows.
        let hosts = fit.iter().copied().filter(|group| self.can_host(*group, id, &users));
        let host = hosts.max_by_key(|group| (self.groups[*group].loops.is_empty(), *group));
        let host = match host {
            Some(group) => {
                let coords = self.groups[group].pending[&id][0].clone();
                let position = index_map::linear(&coords, &self.graph.node(id).shape);
                if self.shares_rows(group, id) {
                    self.groups[group].fix(&coords);
                }
                self.inline(group, id);
                self.groups[group].stores.push((id, position));
                group
            }
            None => self.new_group(id),
        };
        for group in users.into_iter().filter(|group| *group != host) {
            if is_free(op) && fit.contains(&group) {
                self.inline(group, id);
            } else {
                self.add_load(group, id, Some(host));
            }
        }
    }

    /// Opens a new group with a node as its root.
    fn new_group(&mut self, id: NodeId) -> usize {
        let node = self.graph.node(id);
        if let Some(number) = self.library_group_of(id) {
            return number;
        }
        let library_kernel = match &node.op {
            Op::CustomCall(custom_kernel, _) => {
                Some(LibraryKernel::Kernel(CustomKernelCall::new(self.graph, id, custom_kernel)))
            }
            _ => RoutineMatch::new(self.graph, id).map(LibraryKernel::Routine),
        };
        let mut group = FusionGroup::new(id, library_kernel);
        let number = self.groups.len();
        if let Some(library_kernel) = &group.library_kernel {
            let operands = match library_kernel {
                LibraryKernel::Routine(routine_match) => routine_match.inputs.clone(),
                LibraryKernel::Kernel(call) => call.stored().collect(),
            };
            group.stores.push((id, AffineExpr::default()));
            self.push(group);
            self.library_groups.entry(&self.graph.node(id).inputs).or_default().push(number);
            operands.into_iter().for_each(|operand| self.request(number, operand, IndexExprs::new()));
            self.add_dependency(number, id);
            return number;
        }
        let walked = if matches!(node.op, Op::SliceScatter(_)) { self.graph.node(node.inputs[1]) } else { node };
        let vars: Vec<LoopVar> = walked.shape.dims().iter().map(|extent| group.fresh(*extent)).collect();
        let coords: IndexExprs = vars.iter().map(|var| AffineExpr::var(*var)).collect();
        let long = |vars: &[LoopVar]| vars.iter().copied().filter(|var| var.extent > 1).collect::<Vec<LoopVar>>();
        if let Op::ScatterAdd(axis) = node.op {
            return self.new_scatter_group(group, axis);
        }
        if let Op::Scan(_, axis) = node.op {
            group.rows_fixed = true;
            group.loops.push(vec![vars[axis]]);
            group.outer = long(&[&vars[..axis], &vars[axis + 1..]].concat());
        } else {
            group.rows_fixed = matches!(node.op, Op::Reduce(..));
            group.outer = long(&vars);
        }
        if matches!(node.op, Op::SliceScatter(_)) {
            group.write_vars = vars;
        }
        group.stores.push((id, index_map::linear(&coords, &walked.shape)));
        group.pending.insert(id, vec![coords]);
        self.push(group);
        self.inline(number, id);
        number
    }

    fn push(&mut self, group: FusionGroup) {
        self.groups.push(group);
        self.dependencies.push();
    }

    /// Finds the group of a routine or custom kernel that already computes a node as another of its outputs.
    fn library_group_of(&mut self, id: NodeId) -> Option<usize> {
        let same = |number: &usize| {
            let root = self.groups[*number].root;
            self.ordering_deps[id.index()] == self.ordering_deps[root.index()]
                && match (&self.graph.node(id).op, &self.graph.node(root).op) {
                    (Op::CustomCall(kernel, _), Op::CustomCall(other, _)) => kernel == other,
                    (Op::Call(call, _), Op::Call(other, _)) => call == other,
                    _ => false,
                }
        };
        let number = self.library_groups.get(&self.graph.node(id).inputs[..])?.iter().copied().find(same)?;
        let group = &mut self.groups[number];
        group.stores.push((id, AffineExpr::default()));
        let output = match self.graph.node(id).op {
            Op::CustomCall(_, output) | Op::Call(_, output) => output as usize,
            _ => unreachable!("only calls have several outputs"),
        };
        match &mut group.library_kernel {
            Some(LibraryKernel::Kernel(call)) => call.outputs[output] = Some(id),
            Some(LibraryKernel::Routine(routine_match)) => routine_match.outputs[output] = Some(id),
            None => unreachable!("its root is a routine or custom kernel"),
        }
        Some(number)
    }

    /// Opens a new scatter-add group: a work-item owns a column, and loops first along the column, then over the rows
    /// to add.
    fn new_scatter_group(&mut self, mut group: FusionGroup, axis: usize) -> usize {
        let number = self.groups.len();
        let inputs: Vec<&[usize]> =
            self.graph.node(group.root).inputs.iter().map(|input| self.graph.node(*input).shape.dims()).collect();
        let vars: Vec<LoopVar> = inputs[0].iter().map(|extent| group.fresh(*extent)).collect();
        let places: Vec<LoopVar> = inputs[1].iter().map(|extent| group.fresh(*extent)).collect();
        group.rows_fixed = true;
        group.outer = [&vars[..axis], &vars[axis + 1..]].concat();
        group.loops = vec![vec![vars[axis]], places];
        group.scatter = vars;
        let coords = group.scatter_coords();
        group.stores.push((group.root, AffineExpr::default()));
        let root = group.root;
        group.pending.insert(root, vec![coords]);
        self.push(group);
        self.inline(number, root);
        number
    }

    /// Computes a node inside a group, which then demands the node's inputs.
    fn inline(&mut self, number: usize, id: NodeId) {
        let places = self.groups[number].pending.remove(&id).expect("the group demands the node");
        for coords in &places {
            for (input, coords) in self.groups[number].inputs(self.graph, id, coords) {
                self.request(number, input, coords);
            }
        }
        self.groups[number].visits.insert(id, places);
        self.add_dependency(number, id);
    }

    /// Adds the ordering dependencies of a node to the group that computes it; the nodes it waits for are then stored.
    fn add_dependency(&mut self, number: usize, id: NodeId) {
        for before in &self.ordering_deps[id.index()] {
            self.groups[number].ordering_deps.insert(*before);
            self.users[before.index()].insert(number);
        }
    }

    /// Loads a stored node in a group, or only waits for it.
    fn add_load(&mut self, number: usize, id: NodeId, stored_by: Option<usize>) {
        let group = &mut self.groups[number];
        if let Some(places) = group.pending.remove(&id) {
            group.loads.insert(id, places);
        }
        if let Some(producer) = stored_by {
            self.dependencies.add(number, producer);
        }
    }

    fn request(&mut self, number: usize, id: NodeId, coords: IndexExprs) {
        let places = self.groups[number].pending.entry(id).or_default();
        if !places.contains(&coords) {
            places.push(coords);
        }
        self.users[id.index()].insert(number);
    }

    /// Returns true if a group can compute a node that it demands.
    fn fits(&self, number: usize, id: NodeId) -> bool {
        let group = &self.groups[number];
        if group.ordering_deps.contains(&id) {
            return false;
        }
        let node = self.graph.node(id);
        let places = &group.pending[&id];
        let visits = group.visits.values().map(Vec::len).sum::<usize>() + self.waiting(number, id);
        let bound = places.iter().any(|coords| coords.len() != node.shape.ndim());
        if group.library_kernel.is_some() || bound || visits + places.len() > MAX_VISITS {
            return false;
        }
        match &node.op {
            op if is_free(op) => self.fits_binding_limit(number, id, 0),
            Op::Alu(_) | Op::Cast | Op::Bitcast | Op::Gather(_) => {
                let times = places.iter().map(|coords| group.times(coords)).sum::<f64>();
                let repeated = times / node.shape.numel() as f64;
                let cheap = self.costs.is_cheap_repeated(self.graph, id, repeated) || self.shares_rows(number, id);
                let cheap = cheap || self.widens_factor(node);
                places.len() <= MAX_PLACES && cheap && self.fits_binding_limit(number, id, 0)
            }
            Op::Reduce(..) => self.shares_rows(number, id) && self.fits_binding_limit(number, id, 0),
            Op::Input(_) | Op::Scan(..) | Op::MatMul | Op::ScatterAdd(_) | Op::SliceScatter(_) => false,
            Op::CustomCall(..) | Op::Call(..) => false,
            Op::Const(_) | Op::ScalarInput(_) | Op::Iota | Op::Reshape | Op::Permute(_) | Op::Expand => {
                unreachable!("free")
            }
            Op::Pad(_) | Op::Slice(_) => unreachable!("free"),
            Op::ControlDependency => unreachable!("released"),
        }
    }

    /// Returns true if a node only widens 16-bit floats for which the device has matrix units. If it were stored, they
    /// could not be used.
    fn widens_factor(&self, node: &Node) -> bool {
        let from = node.inputs.first().map(|input| self.graph.node(*input).dtype);
        let widens = node.op == Op::Cast && node.dtype == DType::F32;
        self.halves && widens && matches!(from, Some(DType::F16 | DType::BF16))
    }

    /// Returns true if a reduction, or a node computed from one, gives one number for each row of a group, and
    /// computing it there is profitable.
    fn shares_rows(&self, number: usize, id: NodeId) -> bool {
        let (group, node) = (&self.groups[number], self.graph.node(id));
        let (Some(length), [coords]) = (self.combined[id.index()], &group.pending[&id][..]) else { return false };
        if group.is_scatter() {
            return false;
        }
        let rows = group.vars_of(coords);
        if !index_map::is_within(coords, &node.shape) || !index_map::linear(coords, &node.shape).is_injective(&rows) {
            return false;
        }
        let (outer, inner): (Vec<LoopVar>, Vec<LoopVar>) = group.outer.iter().partition(|var| rows.contains(var));
        if outer.len() != rows.len() || (group.rows_fixed && !inner.is_empty()) {
            return false;
        }
        // A matrix product is lowered with its own loop structure.
        let sums = group.visits.keys().filter(|visited| matches!(self.graph.node(**visited).op, Op::Reduce(..)));
        let sums: Vec<NodeId> = sums.copied().chain([id]).collect();
        if sums.len() > 1 && sums.iter().any(|sum| is_product(self.graph, *sum)) {
            return false;
        }
        let (count, across) = (extent(&rows), extent(&inner));
        let small = count * length <= SMALL;
        if group.rows_fixed || inner.is_empty() {
            return small || group.loops.is_empty() || group.loops.iter().any(|vars| extent(vars) == length);
        }
        across <= 8 * length && (count >= FEW_ROWS || small && count * across <= SMALL)
    }

    /// Returns true if the buffers that a group accesses stay within the target's limit after it computes a node, with
    /// `stores` additional stores. Each demanded node counts as the buffers that loading it would bind.
    fn fits_binding_limit(&self, number: usize, id: NodeId, stores: usize) -> bool {
        let group = &self.groups[number];
        let mut buffers: BTreeSet<NodeId> = group.loads.keys().copied().collect();
        let inputs = self.graph.node(id).inputs.iter();
        let wanted = group.pending.keys().filter(|wanted| **wanted != id).chain(inputs);
        buffers.extend(wanted.flat_map(|wanted| self.factors(wanted)).filter_map(|wanted| self.stored_behind(*wanted)));
        buffers.len() + group.stores.len() + stores <= self.target.max_bindings as usize
    }

    /// Returns the factors of the products that a matrix product sums, which must never be stored; for other nodes the
    /// node itself.
    fn factors<'n>(&'n self, id: &'n NodeId) -> &'n [NodeId] {
        if is_outer_product(self.graph, *id) { &self.graph.node(*id).inputs } else { std::slice::from_ref(id) }
    }

    /// Returns the number of visits to memory-free nodes still to come after a group computes a node. Room is reserved
    /// for them: if they had to be stored, they would be buffers beyond those that [`Fusion::fits_binding_limit`]
    /// counts.
    fn waiting(&self, number: usize, id: NodeId) -> usize {
        let (node, demands) = (self.graph.node(id), &self.groups[number].pending);
        if is_free(&node.op) {
            return 0;
        }
        let free = |mut id: NodeId| {
            let mut count = 0;
            while index_map::is_movement(&self.graph.node(id).op) {
                (id, count) = (self.graph.node(id).inputs[0], count + 1);
            }
            count + usize::from(is_free(&self.graph.node(id).op))
        };
        let inputs = node.inputs.iter().map(|input| free(*input) * demands[&id].len());
        demands.iter().map(|(id, places)| free(*id) * places.len()).chain(inputs).sum()
    }

    /// Returns the node behind movement operations, unless it uses no memory.
    fn stored_behind(&self, id: NodeId) -> Option<NodeId> {
        let node = self.graph.node(id);
        match &node.op {
            Op::Const(_) | Op::ScalarInput(_) | Op::Iota => None,
            op if index_map::is_movement(op) => self.stored_behind(node.inputs[0]),
            _ => Some(id),
        }
    }

    /// Returns true if a group that computes a node can also store it for the other users.
    fn can_host(&self, number: usize, id: NodeId, users: &BTreeSet<usize>) -> bool {
        let (group, node) = (&self.groups[number], self.graph.node(id));
        let position = index_map::linear(&group.pending[&id][0], &node.shape);
        let covers = |vars: &[LoopVar]| position.is_bijective(vars, node.shape.numel() as u64);
        let covered = covers(&group.outer)
            || group.loops.iter().any(|vars| covers(&[&group.outer[..], vars].concat()))
            || (self.shares_rows(number, id) && covers(&group.vars_of(&group.pending[&id][0])));
        covered && self.fits_binding_limit(number, id, 1) && !self.dependencies.may_depend(number, users)
    }
}

/// Returns true if a node uses neither memory nor significant arithmetic.
fn is_free(op: &Op) -> bool {
    index_map::is_movement(op) || matches!(op, Op::Const(_) | Op::ScalarInput(_) | Op::Iota)
}

/// Returns true if a node is a matrix product: a sum over products of expanded operands.
pub(super) fn is_product(graph: &Graph, id: NodeId) -> bool {
    let node = graph.node(id);
    matches!(node.op, Op::Reduce(ReduceOp::Sum, _)) && is_outer_product(graph, node.inputs[0])
}

/// Returns true if a node is a product of operands expanded along different axes.
fn is_outer_product(graph: &Graph, id: NodeId) -> bool {
    let node = graph.node(id);
    let repeats = |id: &NodeId| matches!(graph.node(*id).op, Op::Expand);
    node.op == Op::Alu(Alu::Mul) && node.inputs.iter().all(repeats)
}

/// Returns [`Fusion::combined`] for each node.
fn combined(graph: &Graph) -> Vec<Option<u64>> {
    let mut combined: Vec<Option<u64>> = Vec::with_capacity(graph.nodes.len());
    for node in &graph.nodes {
        let elems = node.shape.numel();
        let input = |id: &NodeId| (graph.node(*id).shape.numel() == elems).then(|| combined[id.index()]).flatten();
        combined.push(match &node.op {
            Op::Reduce(..) if elems > 0 => Some((graph.node(node.inputs[0]).shape.numel() / elems) as u64),
            Op::Alu(_) | Op::Cast | Op::Bitcast | Op::Reshape | Op::Permute(_) => {
                node.inputs.iter().filter_map(input).max()
            }
            _ => None,
        });
    }
    combined
}
