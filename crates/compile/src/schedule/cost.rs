//! Cost of recomputing a value relative to storing it, used by the fusion rule.
//!
//! The unit is one element read from or written to memory sequentially. The estimates are deliberately rough: they only
//! distinguish an addition from an exponential, and a short chain from a long one.

use panoply_ir::alu::Alu;
use panoply_ir::graph::{Graph, NodeId, Op};

/// Fixed cost of an additional kernel launch, in elements.
pub(super) const LAUNCH: f64 = 8192.0;

/// Cost of one element of a node when everything down to the nearest stored value is recomputed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    /// Elements read.
    reads: f64,
    /// Cost of arithmetic.
    work: f64,
}

/// The costs of all nodes of a graph.
pub struct Costs(Vec<Cost>);

impl Costs {
    /// Estimates the costs of all nodes, inputs first. Shared nodes that are worth storing are assumed to be stored.
    pub fn new(graph: &Graph) -> Costs {
        let mut users = vec![0usize; graph.nodes.len()];
        graph.nodes.iter().flat_map(|node| &node.inputs).for_each(|input| users[input.index()] += 1);
        let mut costs: Vec<Cost> = Vec::with_capacity(graph.nodes.len());
        for (at, node) in graph.nodes.iter().enumerate() {
            let mut inputs: Vec<NodeId> = node.inputs.clone();
            inputs.sort_unstable();
            inputs.dedup();
            let sum = |extra: f64| {
                let below = inputs.iter().map(|input| costs[input.index()]);
                below.fold(Cost { reads: 0.0, work: extra }, |sum, cost| Cost {
                    reads: sum.reads + cost.reads,
                    work: sum.work + cost.work,
                })
            };
            let mut cost = match &node.op {
                Op::Input(_) | Op::Reduce(..) | Op::Scan(..) | Op::MatMul | Op::ScatterAdd(_) => STORED,
                Op::SliceScatter(_) | Op::CustomCall(..) | Op::Call(..) => STORED,
                Op::Const(_) | Op::ScalarInput(_) | Op::Iota => Cost::default(),
                Op::Alu(alu) => sum(alu_cost(*alu)),
                Op::Cast => sum(0.03),
                Op::Bitcast | Op::Reshape | Op::Permute(_) | Op::Slice(_) | Op::ControlDependency => sum(0.0),
                Op::Pad(_) => sum(0.1),
                Op::Gather(_) => sum(0.5),
                Op::Expand => {
                    let share = graph.node(node.inputs[0]).shape.numel() as f64 / node.shape.numel().max(1) as f64;
                    let input = sum(0.0);
                    Cost { reads: input.reads * share, work: input.work }
                }
            };
            if users[at] > 1 && !cost.is_cheap(2, node.shape.numel()) {
                cost = STORED;
            }
            costs.push(cost);
        }
        Costs(costs)
    }

    /// Returns true if computing a node in each of `kernels` kernels is cheaper than storing it once.
    pub fn is_cheap(&self, graph: &Graph, id: NodeId, kernels: usize) -> bool {
        self.0[id.index()].is_cheap(kernels, graph.node(id).shape.numel())
    }

    /// Returns true if computing each element of a node `times` times within one kernel is cheaper than storing it.
    pub fn is_cheap_repeated(&self, graph: &Graph, id: NodeId, times: f64) -> bool {
        let elems = graph.node(id).shape.numel() as f64;
        let again = self.0[id.index()].work * (times - 1.0);
        again * elems <= 2.0 * elems + LAUNCH
    }
}

const STORED: Cost = Cost { reads: 1.0, work: 0.0 };

impl Cost {
    fn is_cheap(self, kernels: usize, elems: usize) -> bool {
        let (kernels, elems) = (kernels as f64, elems as f64);
        let again = (kernels - 1.0) * (self.reads + self.work) * elems;
        let stored = (kernels + 1.0) * elems + LAUNCH.min(elems * 8.0);
        again <= stored
    }
}

/// Returns the cost of an operation in units of a sequential element access.
fn alu_cost(alu: Alu) -> f64 {
    use Alu::*;
    match alu {
        Neg | Not | Abs | PopCount | Floor | Ceil | Round | Trunc | Add | Sub | Mul | Min | Max | And | Or | Xor
        | Shl | Shr => 0.05,
        Lt | Le | Eq | Ne | Select | Fma => 0.05,
        Div | Sqrt => 0.2,
        Rem => 0.4,
        Math(_) => 0.5,
        Pow => 1.0,
    }
}
