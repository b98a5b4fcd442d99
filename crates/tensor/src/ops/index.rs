//! By position: gather, scatter, write, one-hot.

use panoply_ir::graph::Op;
use panoply_ir::{DType, Error, Shape};

use crate::tensor::Tensor;

impl Tensor {
    /// Elements at positions along an axis, which is replaced by the axes of `positions` (i32 or i64). Out of range: zero.
    #[track_caller]
    pub fn index_select(&self, axis: isize, positions: &Tensor) -> Tensor {
        let axis = match self.indexed("index_select", axis, positions) {
            Ok(axis) => axis,
            Err(mistake) => return mistake,
        };
        let dims = self.0.shape.dims();
        let shape = [&dims[..axis], positions.0.shape.dims(), &dims[axis + 1..]].concat();
        Tensor::primitive(Op::Gather(axis), &[self, positions], shape, self.dtype())
    }

    /// `self` plus the rows of `rows` added at positions along an axis. Out of range: dropped. Deterministic.
    #[track_caller]
    pub fn scatter_add(&self, axis: isize, positions: &Tensor, rows: &Tensor) -> Tensor {
        let axis = match self.indexed("scatter_add", axis, positions) {
            Ok(axis) => axis,
            Err(mistake) => return mistake,
        };
        if rows.is_mistake() {
            return rows.clone();
        }
        let dims = self.0.shape.dims();
        let shape = Shape::new([&dims[..axis], positions.0.shape.dims(), &dims[axis + 1..]].concat());
        if rows.0.shape != shape || rows.dtype() != self.dtype() {
            let message = format!("scatter_add: {rows:?} are not rows of shape {shape} and type {}", self.dtype());
            return Tensor::mistake(Error::mistake(message));
        }
        Tensor::primitive(Op::ScatterAdd(axis), &[self, positions, rows], self.0.shape.clone(), self.dtype())
    }

    /// `self` with `part` in place of what stands from `position` on along an axis; the other lengths are equal. `position` is
    /// a single i32 or i64: a [`Tensor::scalar`] may change from run to run of one program, as in a cache that fills up. What
    /// would lie beyond the axis is dropped. Where nobody else needs `self`, its memory is changed and nothing is copied.
    #[track_caller]
    pub fn write(&self, axis: isize, position: &Tensor, part: &Tensor) -> Tensor {
        let axis = match self.indexed("write", axis, position) {
            Ok(axis) => axis,
            Err(mistake) => return mistake,
        };
        if part.is_mistake() {
            return part.clone();
        }
        let (whole, given) = (self.0.shape.dims(), part.0.shape.dims());
        let fits = |at: usize| if at == axis { given[at] <= whole[at] } else { given[at] == whole[at] };
        if whole.len() != given.len() || !(0..whole.len()).all(fits) || part.dtype() != self.dtype() {
            let message = format!("write: {part:?} is no part of {self:?} along axis {axis}");
            return Tensor::mistake(Error::mistake(message));
        }
        if position.0.shape.rank() > 0 {
            let message = format!("write: the position is {position:?}, not a single number");
            return Tensor::mistake(Error::mistake(message).note("take one with `.reshape([])`"));
        }
        Tensor::primitive(Op::Write(axis), &[self, part, position], self.0.shape.clone(), self.dtype())
    }

    /// [`Tensor::write`] at a position of the program.
    pub(crate) fn written(&self, axis: usize, position: usize, part: &Tensor) -> Tensor {
        let position = Tensor::constant((position as i64).into());
        Tensor::primitive(Op::Write(axis), &[self, part, &position], self.0.shape.clone(), self.dtype())
    }

    #[track_caller]
    fn indexed(&self, op: &str, axis: isize, positions: &Tensor) -> Result<usize, Tensor> {
        let axis = self.axis(op, axis)?;
        if positions.is_mistake() {
            return Err(positions.clone());
        }
        if !matches!(positions.dtype(), DType::I32 | DType::I64) {
            let message = format!("{op}: positions are {positions:?}, not i32 or i64");
            return Err(Tensor::mistake(Error::mistake(message)));
        }
        Ok(axis)
    }

    /// For integer classes of shape `[…]`, ones at the class and zeros elsewhere: `[…, classes]`.
    #[track_caller]
    pub fn one_hot(&self, classes: usize, dtype: DType) -> Tensor {
        if !self.is_mistake() && !self.dtype().is_int() {
            return Tensor::mistake(Error::mistake(format!("one_hot: classes are {self:?}, not integers")));
        }
        self.unsqueeze(-1).eq(&Tensor::iota(classes).cast(self.dtype())).cast(dtype)
    }
}
