//! Accumulation of cotangents until all users of a tensor have been visited.

use panoply_ir::graph::{Op, Slice};

use super::key;
use crate::hasher::NodeMap;
use crate::tensor::{NodeKind, Tensor};

/// Maximum number of products with one matrix whose weight gradients are summed separately. With more products the
/// gradient is one matrix product of all their rows.
const FEW_PRODUCTS: usize = 4;

/// Pending cotangents, keyed by tensor.
#[derive(Default)]
pub struct CotangentMap {
    found: NodeMap<PendingCotangent>,
}

#[derive(Default)]
struct PendingCotangent {
    sum: Option<Tensor>,
    parts: Vec<SliceCotangent>,
    /// Left operand and output cotangent of each product with this matrix.
    products: Vec<[Tensor; 2]>,
}

/// Cotangent of the elements from `start` along an axis.
struct SliceCotangent {
    axis: usize,
    start: usize,
    value: Tensor,
}

impl CotangentMap {
    /// Adds a cotangent of a tensor.
    pub fn add(&mut self, to: &Tensor, cotangent: Tensor) {
        let cotangent = cotangent.summand_of(to);
        let sum = &mut self.found.entry(key(to)).or_default().sum;
        *sum = Some(match sum.take() {
            Some(before) => before + cotangent,
            None => cotangent,
        });
    }

    /// Records the cotangent of a slice for its input. Returns false if the slice is not a contiguous range of one
    /// axis.
    pub fn add_slice(&mut self, slice: &Tensor, cotangent: &Tensor) -> bool {
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
        self.found.entry(key(from)).or_default().parts.push(SliceCotangent { axis, start, value: cotangent.clone() });
        true
    }

    /// Records the output cotangent of the product of `left` and the matrix `to`.
    pub fn add_matmul(&mut self, to: &Tensor, left: &Tensor, cotangent: &Tensor) {
        self.found.entry(key(to)).or_default().products.push([left.clone(), cotangent.clone()]);
    }

    /// Returns the accumulated cotangent of a tensor whose users have all been visited.
    pub fn of(&mut self, tensor: &Tensor) -> Option<Tensor> {
        let pending = self.found.get_mut(&key(tensor))?;
        let (parts, products) = (std::mem::take(&mut pending.parts), std::mem::take(&mut pending.products));
        let whole = |product: &[Tensor; 2]| product.iter().all(|operand| !operand.has_dynamic_dim());
        if products.len() > FEW_PRODUCTS && tensor.0.shape.ndim() == 2 && products.iter().all(whole) {
            // One product sums over all rows at once and stores no partial product. Products are in program order, as
            // slices are, so that both operands are concatenated once.
            let [left, cotangent] =
                [0, 1].map(|side| products.iter().rev().map(|of| of[side].clone()).collect::<Vec<Tensor>>());
            self.add(tensor, Tensor::concat(&left, 0).t().matmul(&Tensor::concat(&cotangent, 0)));
        } else {
            products.iter().for_each(|[left, cotangent]| self.add(tensor, left.t().matmul(cotangent)));
        }
        if !parts.is_empty() {
            self.add(tensor, gathered(tensor, parts));
        }
        self.found[&key(tensor)].sum.clone()
    }
}

impl SliceCotangent {
    fn end(&self) -> usize {
        self.start + self.value.0.shape.dims()[self.axis]
    }

    /// Returns the cotangent of the whole tensor, zero outside the slice.
    fn padded(&self, whole: &Tensor) -> Tensor {
        let mut widths = vec![(0, 0); whole.0.shape.ndim()];
        widths[self.axis] = (self.start, whole.0.shape.dims()[self.axis] - self.end());
        self.value.pad(&widths)
    }
}

/// Returns the cotangent of a whole tensor from the cotangents of its slices.
fn gathered(tensor: &Tensor, mut parts: Vec<SliceCotangent>) -> Tensor {
    parts.sort_by_key(|part| (part.axis, part.start));
    let axis = parts[0].axis;
    let along = parts.iter().all(|part| part.axis == axis);
    if !along || parts.windows(2).any(|pair| pair[0].end() > pair[1].start) {
        let padded = parts.iter().map(|part| part.padded(tensor));
        return padded.reduce(|sum, part| sum + part).expect("there is a part");
    }
    // The slices are disjoint. Adding padded slices would cost one addition over the whole tensor for each.
    let ends = [0].into_iter().chain(parts.iter().map(SliceCotangent::end));
    let starts = parts.iter().map(|part| part.start).chain([tensor.0.shape.dims()[axis]]);
    if ends.eq(starts) {
        let values: Vec<Tensor> = parts.into_iter().map(|part| part.value).collect();
        return Tensor::concat(&values, axis as isize);
    }
    if let [part] = &parts[..] {
        return part.padded(tensor);
    }
    parts.iter().fold(tensor.zeros_like(), |whole, part| whole.written(part.axis, part.start, &part.value))
}
