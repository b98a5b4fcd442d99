//! What flows back into each tensor, gathered until all of its users have been seen.

use panoply_ir::graph::{Op, Slice};

use super::key;
use crate::hasher::NodeMap;
use crate::tensor::{NodeKind, Tensor};

/// Products with one matrix from which what flows to it is one product of all their rows, rather than a sum of products.
const FEW_PRODUCTS: usize = 4;

/// The flows into tensors, by tensor.
#[derive(Default)]
pub struct CotangentMap {
    found: NodeMap<PendingCotangent>,
}

#[derive(Default)]
struct PendingCotangent {
    sum: Option<Tensor>,
    parts: Vec<SliceCotangent>,
    /// What was multiplied by the tensor, and what flows into the product.
    products: Vec<[Tensor; 2]>,
}

/// What flows into the elements from `start` on along an axis.
struct SliceCotangent {
    axis: usize,
    start: usize,
    flow: Tensor,
}

impl CotangentMap {
    /// Adds what flows into a tensor.
    pub fn add(&mut self, to: &Tensor, flow: Tensor) {
        let flow = flow.summand_of(to);
        let sum = &mut self.found.entry(key(to)).or_default().sum;
        *sum = Some(match sum.take() {
            Some(before) => before + flow,
            None => flow,
        });
    }

    /// Keeps what flows into the part of its input that a slice took; false if it is no single stretch of an axis.
    pub fn add_slice(&mut self, slice: &Tensor, flow: &Tensor) -> bool {
        let NodeKind::Op(Op::Slice(slices)) = &slice.0.source else { return false };
        let from = &slice.0.inputs[0];
        let dims = from.0.shape.dims();
        let taken = |axis: &usize| slices[*axis] != Slice { start: 0, step: 1, len: dims[*axis] };
        let axes: Vec<usize> = (0..dims.len()).filter(taken).collect();
        let [axis] = axes[..] else { return false };
        let Slice { start, step, len } = slices[axis];
        if step != 1 || len == 0 {
            return false;
        }
        self.found.entry(key(from)).or_default().parts.push(SliceCotangent { axis, start, flow: flow.clone() });
        true
    }

    /// Keeps what flows into the product of `left` and a matrix.
    pub fn add_matmul(&mut self, to: &Tensor, left: &Tensor, flow: &Tensor) {
        self.found.entry(key(to)).or_default().products.push([left.clone(), flow.clone()]);
    }

    /// All that flows into a tensor whose users have been seen.
    pub fn of(&mut self, tensor: &Tensor) -> Option<Tensor> {
        let flow = self.found.get_mut(&key(tensor))?;
        let (parts, products) = (std::mem::take(&mut flow.parts), std::mem::take(&mut flow.products));
        let whole = |product: &[Tensor; 2]| product.iter().all(|operand| !operand.has_dynamic_dim());
        if products.len() > FEW_PRODUCTS && tensor.0.shape.ndim() == 2 && products.iter().all(whole) {
            // Each sum goes once over all rows, and no product of a few of them is ever stored.
            // In the program's order, as parts are: what flows into both is then joined once.
            let [left, flow] =
                [0, 1].map(|side| products.iter().rev().map(|of| of[side].clone()).collect::<Vec<Tensor>>());
            self.add(tensor, Tensor::concat(&left, 0).t().matmul(&Tensor::concat(&flow, 0)));
        } else {
            products.iter().for_each(|[left, flow]| self.add(tensor, left.t().matmul(flow)));
        }
        if !parts.is_empty() {
            self.add(tensor, gathered(tensor, parts));
        }
        self.found[&key(tensor)].sum.clone()
    }
}

impl SliceCotangent {
    fn end(&self) -> usize {
        self.start + self.flow.0.shape.dims()[self.axis]
    }

    /// The flow into all of a tensor: zeros beside the part.
    fn padded(&self, whole: &Tensor) -> Tensor {
        let mut widths = vec![(0, 0); whole.0.shape.ndim()];
        widths[self.axis] = (self.start, whole.0.shape.dims()[self.axis] - self.end());
        self.flow.pad(&widths)
    }
}

/// What flows into all of a tensor, from what flows into parts of it.
fn gathered(tensor: &Tensor, mut parts: Vec<SliceCotangent>) -> Tensor {
    parts.sort_by_key(|part| (part.axis, part.start));
    let axis = parts[0].axis;
    let along = parts.iter().all(|part| part.axis == axis);
    if !along || parts.windows(2).any(|pair| pair[0].end() > pair[1].start) {
        let padded = parts.iter().map(|part| part.padded(tensor));
        return padded.reduce(|sum, part| sum + part).expect("there is a part");
    }
    // They are apart. Added, each would be an addition over the whole tensor.
    let ends = [0].into_iter().chain(parts.iter().map(SliceCotangent::end));
    let starts = parts.iter().map(|part| part.start).chain([tensor.0.shape.dims()[axis]]);
    if ends.eq(starts) {
        let flows: Vec<Tensor> = parts.into_iter().map(|part| part.flow).collect();
        return Tensor::concat(&flows, axis as isize);
    }
    if let [part] = &parts[..] {
        return part.padded(tensor);
    }
    parts.iter().fold(tensor.zeros_like(), |whole, part| whole.written(part.axis, part.start, &part.flow))
}
