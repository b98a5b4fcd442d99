//! Reductions: one value per block, then a tree over the blocks whose order does not depend on places.

use panoply_tensor::{DType, Error, Result, Tensor};

use super::{DArray, name, record};
use crate::arguments::In;
use crate::data::Future;

/// A reduction.
#[derive(Clone, Copy, Debug)]
enum Reduction {
    Sum,
    Max,
    Min,
}

impl Reduction {
    fn name(self) -> &'static str {
        match self {
            Reduction::Sum => "sum",
            Reduction::Max => "max",
            Reduction::Min => "min",
        }
    }

    /// Reduces one axis of a block to length 1.
    fn along(self, block: &Tensor, axis: usize) -> Tensor {
        let reduced = match self {
            Reduction::Sum => block.sum(axis),
            Reduction::Max => block.max(axis),
            Reduction::Min => block.min(axis),
        };
        reduced.unsqueeze(axis as isize)
    }

    fn combine(self, a: &Tensor, b: &Tensor) -> Tensor {
        match self {
            Reduction::Sum => a + b,
            Reduction::Max => a.maximum(b),
            Reduction::Min => a.minimum(b),
        }
    }
}

impl DArray {
    /// Returns the sum of all elements on every rank.
    ///
    /// # Errors
    /// The array has no elements, or a task that computes a block failed.
    #[track_caller]
    pub fn sum(&self) -> Result<Tensor> {
        self.reduce_all(Reduction::Sum)
    }

    /// Returns the largest element on every rank.
    ///
    /// # Errors
    /// As of [`DArray::sum`].
    #[track_caller]
    pub fn max(&self) -> Result<Tensor> {
        self.reduce_all(Reduction::Max)
    }

    /// Returns the smallest element on every rank.
    ///
    /// # Errors
    /// As of [`DArray::sum`].
    #[track_caller]
    pub fn min(&self) -> Result<Tensor> {
        self.reduce_all(Reduction::Min)
    }

    /// Returns the mean of all elements on every rank.
    ///
    /// # Errors
    /// As of [`DArray::sum`].
    #[track_caller]
    pub fn mean(&self) -> Result<Tensor> {
        Ok(self.sum()? / self.shape.iter().product::<usize>() as f64)
    }

    /// Returns the sums along an axis, which is kept with length 1.
    ///
    /// # Errors
    /// The axis does not exist or has length 0.
    #[track_caller]
    pub fn sum_axis(&self, axis: usize) -> Result<DArray> {
        record(&self.mesh, || format!("sum_axis({:?}, {axis})", self.shape));
        self.reduce(Reduction::Sum, axis)
    }

    /// Returns the largest elements along an axis, which is kept with length 1.
    ///
    /// # Errors
    /// As of [`DArray::sum_axis`].
    #[track_caller]
    pub fn max_axis(&self, axis: usize) -> Result<DArray> {
        record(&self.mesh, || format!("max_axis({:?}, {axis})", self.shape));
        self.reduce(Reduction::Max, axis)
    }

    /// Returns the smallest elements along an axis, which is kept with length 1.
    ///
    /// # Errors
    /// As of [`DArray::sum_axis`].
    #[track_caller]
    pub fn min_axis(&self, axis: usize) -> Result<DArray> {
        record(&self.mesh, || format!("min_axis({:?}, {axis})", self.shape));
        self.reduce(Reduction::Min, axis)
    }

    #[track_caller]
    fn reduce_all(&self, reduction: Reduction) -> Result<Tensor> {
        record(&self.mesh, || format!("{}({:?})", reduction.name(), self.shape));
        let axes = 0..self.shape.len();
        let one = axes.into_iter().try_fold(self.clone(), |array, axis| array.reduce(reduction, axis))?;
        Ok(one.collect()?.reshape([0usize; 0]))
    }

    /// Reduces an axis: within each block, then along the blocks as a binary tree. The result is at the place of the first block.
    fn reduce(&self, reduction: Reduction, axis: usize) -> Result<DArray> {
        let operation = reduction.name();
        if self.shape.get(axis).is_none_or(|len| *len == 0) {
            let message =
                format!("{operation}: an array of shape {:?} cannot be reduced along axis {axis}", self.shape);
            return Err(Error::mistake(message));
        }
        let example = reduction.along(&self.example(), axis);
        example.check()?;
        let (mut shape, mut block) = (self.shape.clone(), self.layout.block().to_vec());
        (shape[axis], block[axis]) = (1, 1);
        let layout = self.layout.with_block(block);
        let mut result = DArray::unfilled(&self.mesh, self.places.clone(), shape, example.dtype(), &layout)?;
        let count = self.block_counts()[axis];
        for (number, first) in result.block_positions().into_iter().enumerate() {
            let at = |index: usize| {
                let mut at = first.clone();
                at[axis] = index;
                at
            };
            let mut partial = Vec::new();
            for index in 0..count {
                let at = at(index);
                partial.push(match (self.mesh_at(&at), &self.blocks[self.number(&at)]) {
                    (Some(m), Some(block)) => {
                        Some(m.spawn(&name(operation, &at), In(block), move |x| reduction.along(x, axis))?)
                    }
                    _ => None,
                });
            }
            let form = result.form(&first);
            let mut distance = 1;
            while distance < count {
                for left in (0..count - distance).step_by(2 * distance) {
                    let right = partial[left + distance].take();
                    let combined = self.combine(
                        reduction,
                        [&at(left), &at(left + distance)],
                        [partial[left].take(), right],
                        &form,
                    );
                    partial[left] = combined?;
                }
                distance *= 2;
            }
            result.blocks[number] = partial.swap_remove(0);
        }
        Ok(result)
    }

    /// Combines the values of two blocks at the place of the left one.
    fn combine(
        &self,
        reduction: Reduction,
        [left_at, right_at]: [&[usize]; 2],
        [left, right]: [Option<Future>; 2],
        form: &(Vec<usize>, DType),
    ) -> Result<Option<Future>> {
        let to = self.place_of(left_at).rank;
        let right = self.share_of(right_at, right, form, |rank| rank == to, reduction.name())?;
        match (self.mesh_at(left_at), left, right) {
            (Some(m), Some(left), Some(right)) => {
                let body = move |(a, b): (&Tensor, &Tensor)| reduction.combine(a, b);
                Ok(Some(m.spawn(&name(reduction.name(), left_at), (In(&left), In(&right)), body)?))
            }
            _ => Ok(None),
        }
    }
}
