//! Vectorizing map: a function of one example applied to a batch, as a transform of the graph.
//!
//! The function is traced once on placeholders without the batch axis. Every node that depends on a placeholder is
//! then rebuilt with a leading batch axis ([`VmapBatch::step`] defines this for each primitive). All other nodes are
//! computed once and shared. Everything the function is made of, gradients included, is fused and runs for the whole
//! batch.

use std::sync::Arc;

use panoply_ir::graph::{Op, Slice};
use panoply_ir::{DType, Error, Shape};

use crate::eval::topological_order;
use crate::hasher::NodeMap;
use crate::tensor::{NodeKind, Tensor};

impl Tensor {
    /// Applies `body` to each element along the first axis of the inputs and stacks the results along a new first
    /// axis. Tensors that `body` captures are shared by all elements.
    ///
    /// ```
    /// # use panoply_tensor::Tensor;
    /// let (x, w) = (Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0], [2, 2]), Tensor::from_slice(&[1.0f32, 10.0], [2]));
    /// // The gradient of each example's loss, by itself.
    /// let [each] = Tensor::vmap([&x], |[x]| {
    ///     let loss = x.dot(&w).square();
    ///     [loss.gradients(&[&w]).map_or_else(Tensor::from_mistake, |mut gradients| gradients.remove(0))]
    /// });
    /// assert_eq!(each.to_vec::<f32>()?, [42.0, 84.0, 258.0, 344.0]);
    /// # Ok::<(), panoply_tensor::Error>(())
    /// ```
    #[track_caller]
    pub fn vmap<const N: usize, const M: usize>(
        inputs: [&Tensor; N],
        body: impl FnOnce([&Tensor; N]) -> [Tensor; M],
    ) -> [Tensor; M] {
        let fail = |mistake: Tensor| std::array::from_fn(|_| mistake.clone());
        if let Some(mistake) = inputs.iter().find(|input| input.is_mistake()) {
            return fail((*mistake).clone());
        }
        if let Some(dynamic) = inputs.iter().find(|input| input.has_dynamic_dim()) {
            return fail(Tensor::mistake(dynamic.needs_length("vmap")));
        }
        let lengths = inputs.map(|input| input.0.shape.dims().first().copied());
        let common = lengths.first().filter(|first| lengths.iter().all(|length| length == *first));
        let Some(Some(count)) = common.copied() else {
            let error = Error::mistake("vmap: the first axes of the inputs differ in length");
            let error = inputs.iter().fold(error, |error, input| error.note(format!("input {input:?}")));
            return fail(Tensor::mistake(error));
        };
        let singles = inputs.map(|input| input.single());
        let results = body(std::array::from_fn(|n| &singles[n]));
        if let Some(mistake) = results.iter().find(|result| result.is_mistake()) {
            return fail(mistake.clone());
        }
        let batch = VmapBatch { count };
        let given = singles.iter().zip(inputs).map(|(single, whole)| (single, whole.clone()));
        let whole = batch.apply(given, &results);
        std::array::from_fn(|n| whole[n].clone())
    }

    /// Creates the placeholder for one element along the first axis.
    #[track_caller]
    pub(crate) fn single(&self) -> Tensor {
        let shape = Shape::from(&self.0.shape.dims()[1..]);
        Tensor::new(NodeKind::Input(0), Vec::new(), shape, self.dtype(), self.0.device.clone())
    }
}

/// A batch of `count` examples.
#[derive(Clone, Copy)]
pub(crate) struct VmapBatch {
    pub count: usize,
}

/// An input of a node: with a batch axis if `each`, otherwise shared by all examples.
struct BatchedInput {
    tensor: Tensor,
    each: bool,
}

impl BatchedInput {
    /// Returns the lengths of the axes of one example.
    fn dims(&self) -> &[usize] {
        &self.tensor.0.shape.dims()[usize::from(self.each)..]
    }
}

impl VmapBatch {
    /// Rebuilds `results` for the batch, with each placeholder of `given` replaced by its batched tensor.
    #[track_caller]
    pub fn apply<'a>(self, given: impl Iterator<Item = (&'a Tensor, Tensor)>, results: &[Tensor]) -> Vec<Tensor> {
        let key = |tensor: &Tensor| Arc::as_ptr(&tensor.0);
        let mut whole: NodeMap<Tensor> = given.map(|(single, whole)| (key(single), whole)).collect();
        let roots: Vec<&Tensor> = results.iter().collect();
        for tensor in topological_order(&roots, |tensor| tensor.0.value.get().is_some()) {
            if whole.contains_key(&key(tensor)) || tensor.0.value.get().is_some() {
                continue;
            }
            let inputs = tensor.0.inputs.iter().map(|input| match whole.get(&key(input)) {
                Some(each) => BatchedInput { tensor: each.clone(), each: true },
                None => BatchedInput { tensor: input.clone(), each: false },
            });
            let inputs: Vec<BatchedInput> = inputs.collect();
            if inputs.iter().any(|input| input.each) {
                whole.insert(key(tensor), self.step(tensor, &inputs));
            }
        }
        let one = |result: &Tensor| match whole.get(&key(result)) {
            Some(whole) => whole.clone(),
            None => self.lift(&BatchedInput { tensor: result.clone(), each: false }),
        };
        results.iter().map(one).collect()
    }

    /// Returns the shape with the batch axis in front.
    pub fn shape(self, shape: &Shape) -> Shape {
        Shape::new([&[self.count], shape.dims()].concat())
    }

    /// Broadcasts an input to the batch.
    #[track_caller]
    fn lift(self, input: &BatchedInput) -> Tensor {
        if input.each {
            return input.tensor.clone();
        }
        let shape = &input.tensor.0.shape;
        input.tensor.reshaped(Shape::new([&[1], shape.dims()].concat())).expanded(&self.shape(shape))
    }

    /// Rebuilds one node for the batch.
    #[track_caller]
    fn step(self, one: &Tensor, inputs: &[BatchedInput]) -> Tensor {
        let node = &one.0;
        if let Some(dynamic) =
            [one].into_iter().chain(inputs.iter().map(|input| &input.tensor)).find(|x| x.has_dynamic_dim())
        {
            return Tensor::mistake(dynamic.needs_length("vmap"));
        }
        let shape = self.shape(&node.shape);
        let op = match &node.source {
            NodeKind::Op(op) => op,
            NodeKind::Call(body, output) => {
                let whole = || inputs.iter().map(|input| self.lift(input)).collect();
                if let Some(result) = body.batched_output(*output, whole) {
                    return result;
                }
                let each: Vec<bool> = inputs.iter().map(|input| input.each).collect();
                let inputs: Vec<&Tensor> = inputs.iter().map(|input| &input.tensor).collect();
                return match body.batch(self, &each) {
                    Ok(body) => body.apply(&inputs, *output),
                    Err(error) => Tensor::mistake(error),
                };
            }
            NodeKind::Detach => return Tensor::step(NodeKind::Detach, &[&inputs[0].tensor], shape, node.dtype, None),
            NodeKind::Checkpoint(from) => {
                let whole = [self.lift(&inputs[0])];
                let inputs: Vec<&Tensor> = whole.iter().chain(inputs[1..].iter().map(|input| &input.tensor)).collect();
                return Tensor::step(NodeKind::Checkpoint(*from), &inputs, shape, node.dtype, None);
            }
            NodeKind::Mistake(_) => return one.clone(),
            NodeKind::Host(_)
            | NodeKind::Table(_)
            | NodeKind::ScalarArg(..)
            | NodeKind::Materialized
            | NodeKind::Input(_) => {
                unreachable!("a leaf has no inputs")
            }
        };
        let behind = |axes: &[usize]| axes.iter().map(|axis| axis + 1).collect::<Vec<usize>>();
        let op = match op {
            Op::Alu(_) | Op::Cast | Op::Bitcast | Op::Reshape | Op::Expand => op.clone(),
            Op::Reduce(op, axes) => Op::Reduce(*op, behind(axes)),
            Op::Scan(op, axis) => Op::Scan(*op, axis + 1),
            Op::Permute(perm) => Op::Permute([&[0], &behind(perm)[..]].concat()),
            Op::Pad(widths) => Op::Pad([&[(0, 0)], &widths[..]].concat()),
            Op::Slice(slices) => Op::Slice([&[Slice { start: 0, step: 1, len: self.count }], &slices[..]].concat()),
            // One matrix product with all rows of the batch.
            Op::MatMul if !inputs[1].each && inputs[1].dims().len() == 2 => {
                return inputs[0].tensor.matmul(&inputs[1].tensor);
            }
            Op::MatMul => Op::MatMul,
            Op::Gather(axis) => return self.gather(*axis, &inputs[0], &inputs[1]),
            Op::ScatterAdd(axis) => return self.scatter_add(*axis, inputs),
            Op::SliceScatter(axis) => return self.write(*axis, inputs),
            Op::ControlDependency => {
                let whole = self.lift(&inputs[0]);
                return Tensor::primitive(Op::ControlDependency, &[&whole, &inputs[1].tensor], shape, node.dtype);
            }
            Op::CustomCall(..) => return self.sequential_vmap(one, op, inputs),
            Op::Input(_) | Op::Const(_) | Op::ScalarInput(_) | Op::Iota => unreachable!("it has no inputs"),
            Op::Call(..) => unreachable!("tensors hold the body itself"),
        };
        let whole: Vec<Tensor> = inputs.iter().map(|input| self.lift(input)).collect();
        Tensor::primitive(op, &whole.iter().collect::<Vec<&Tensor>>(), shape, node.dtype)
    }

    /// Launches a custom kernel once for each example.
    #[track_caller]
    fn sequential_vmap(self, one: &Tensor, op: &Op, inputs: &[BatchedInput]) -> Tensor {
        if self.count == 0 {
            return Tensor::zeros(self.shape(&one.0.shape), one.dtype());
        }
        let run = |number: usize| {
            let part = |input: &BatchedInput| match input.each {
                true => input.tensor.narrow(0, number, 1).reshaped(Shape::from(input.dims())),
                false => input.tensor.clone(),
            };
            let parts: Vec<Tensor> = inputs.iter().map(part).collect();
            let parts: Vec<&Tensor> = parts.iter().collect();
            Tensor::primitive(op.clone(), &parts, one.0.shape.clone(), one.dtype())
        };
        Tensor::stack((0..self.count).map(run), 0)
    }

    #[track_caller]
    fn gather(self, axis: usize, x: &BatchedInput, positions: &BatchedInput) -> Tensor {
        let along = axis as isize;
        if !positions.each {
            return x.tensor.index_select(along + 1, &positions.tensor);
        }
        if !x.each {
            return x.tensor.index_select(along, &positions.tensor).movedim(along, 0);
        }
        let taken = self.rows(axis, &x.tensor).index_select(0, &self.places(x.dims()[axis], &positions.tensor));
        // The axes of the positions come first; the result has them in place of the indexed axis.
        let count = positions.dims().len();
        let rest = 1 + count + axis;
        let axes = [0].into_iter().chain(1 + count..rest).chain(1..=count).chain(rest..taken.0.shape.ndim());
        taken.permuted(axes.collect())
    }

    #[track_caller]
    fn scatter_add(self, axis: usize, inputs: &[BatchedInput]) -> Tensor {
        let [x, positions, rows] = inputs else { unreachable!("it has three inputs") };
        let (whole, added) = (self.lift(x), self.lift(rows));
        if !positions.each {
            return whole.index_add(axis as isize + 1, &positions.tensor, &added);
        }
        let count = positions.dims().len();
        let (first, last) = (1 + axis, 1 + axis + count);
        let axes = [0].into_iter().chain(first..last).chain(1..first).chain(last..added.0.shape.ndim());
        let places = self.places(x.dims()[axis], &positions.tensor);
        let sums = self.rows(axis, &whole).index_add(0, &places, &added.permuted(axes.collect()));
        let moved = whole.movedim(axis as isize + 1, 1).0.shape.clone();
        sums.reshaped(moved).movedim(1, axis as isize + 1)
    }

    #[track_caller]
    fn write(self, axis: usize, inputs: &[BatchedInput]) -> Tensor {
        let [x, part, position] = inputs else { unreachable!("it has three inputs") };
        let (whole, part) = (self.lift(x), self.lift(part));
        if !position.each {
            return whole.slice_scatter(&part, axis as isize + 1, &position.tensor);
        }
        let (rank, length) = (whole.0.shape.ndim(), x.dims()[axis]);
        let places = Tensor::arange(length) - position.tensor.cast(DType::I32).unsqueeze(1);
        let (inside, _) = places.within(part.0.shape.dims()[axis + 1]);
        let written =
            self.gather(axis, &BatchedInput { tensor: part, each: true }, &BatchedInput { tensor: places, each: true });
        let mut dims = vec![1; rank];
        (dims[0], dims[axis + 1]) = (self.count, length);
        written.where_self(&inside.reshaped(dims.into()), &whole)
    }

    /// Moves an axis behind the batch axis and merges both into rows.
    #[track_caller]
    fn rows(self, axis: usize, whole: &Tensor) -> Tensor {
        let moved = whole.movedim(axis as isize + 1, 1);
        let dims = moved.0.shape.dims();
        moved.reshaped([&[dims[0] * dims[1]], &dims[2..]].concat().into())
    }

    /// Returns the positions of all examples as positions among those rows; -1 if out of range.
    #[track_caller]
    fn places(self, length: usize, positions: &Tensor) -> Tensor {
        let mut column = vec![1; positions.0.shape.ndim()];
        column[0] = self.count;
        let (inside, along) = positions.within(length);
        let dtype = if self.count.saturating_mul(length) > i32::MAX as usize { DType::I64 } else { DType::I32 };
        let examples = Tensor::arange(self.count).cast(dtype);
        let first = &examples * examples.literal(length as f64);
        let places = along.cast(dtype) + first.reshaped(column.into());
        places.where_self(&inside, &places.literal(-1.0))
    }
}
