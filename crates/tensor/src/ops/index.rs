//! Indexing: gather, scatter, slice_scatter, one-hot.
//!
//! A small kernel ([`last_writers`]) decides which of several values for one position is kept. Everything else is
//! composed of primitives, so scattered values have gradients.

use panoply_ir::builder::Builder;
use panoply_ir::graph::Op;
use panoply_ir::kernel::{Access, AtomicOp, Builtin, Guard, Kernel};
use panoply_ir::routine::{Routine, Scatter};
use panoply_ir::{Alu, DType, Error, Scalar, Shape, Type};

use crate::call::CompositeOp;
use crate::dynamic_dim;
use crate::tensor::Tensor;

/// Combination of scattered values with the existing elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScatterReduce {
    /// All values are added to the element.
    Add,
    /// The last value in row-major order replaces the element.
    Assign,
}

/// Number of columns from which a kernel has enough lanes to add rows one after another.
const MANY_COLUMNS: usize = 32;
/// Number of (element, position) pairs up to which a kernel that compares all pairs is fast.
const MUCH: usize = 1 << 16;

/// Creates the [`Op::ScatterAdd`] node.
#[track_caller]
fn scattered(operands: [&Tensor; 3], axis: usize) -> Tensor {
    let [x, ..] = operands;
    Tensor::primitive(Op::ScatterAdd(axis), &operands, x.0.shape.clone(), x.dtype())
}

/// Replaces the rows at `places` by the last value for each.
#[track_caller]
fn replaced([rows, places, values]: [&Tensor; 3]) -> Tensor {
    let (length, mut column) = (rows.0.shape.dims()[0], vec![1; rows.0.shape.ndim()]);
    column[0] = length;
    let none = Tensor::full([length], -1i32);
    let [last] = Tensor::custom_kernel(last_writers, &[&none, places], [[length].into()], places.0.shape.numel());
    let hit = last.ge(&last.literal(0.0)).reshaped(column.into());
    values.index_select(0, &last).where_self(&hit, rows)
}

impl Tensor {
    /// Returns the elements at positions along the first axes, NumPy's `x[i, j]`: one index tensor (i32 or i64) for
    /// each axis. The index tensors broadcast, and their axes replace the indexed axes. Positions out of range, negative
    /// ones included, give zero.
    #[doc(alias = "getitem")]
    #[track_caller]
    pub fn index(&self, indices: &[&Tensor]) -> Tensor {
        match self.at_leading("index", indices) {
            Ok((rows, places)) => rows.index_select(0, &places),
            Err(mistake) => mistake,
        }
    }

    /// Returns `self` with `values` written to positions along the first axes, NumPy's `x[i, j] = v` and `x[i, j] +=
    /// v`. There is one index tensor (i32 or i64) for each axis; they broadcast. `values` broadcast to the shape of
    /// [`Tensor::index`]. Positions out of range, negative ones included, are dropped. Deterministic.
    #[doc(alias = "setitem")]
    #[track_caller]
    pub fn index_put(&self, indices: &[&Tensor], values: &Tensor, reduce: ScatterReduce) -> Tensor {
        let (rows, places) = match self.at_leading("index_put", indices) {
            Ok(found) => found,
            Err(mistake) => return mistake,
        };
        let wanted = [places.0.shape.dims(), &rows.0.shape.dims()[1..]].concat();
        rows.put_rows("index_put", &places, values, wanted.into(), reduce).reshaped(self.0.shape.clone())
    }

    /// Returns `self` with the elements of `src` written along an axis at the positions `index` (i32 or i64), which
    /// are the elements that [`Tensor::gather`] reads. Positions out of range, negative ones included, are dropped.
    /// `index` has the shape of `self` except along the axis; `src` broadcasts to it. Deterministic.
    #[doc(alias = "scatter_reduce")]
    #[track_caller]
    pub fn scatter(&self, axis: isize, index: &Tensor, src: &Tensor, reduce: ScatterReduce) -> Tensor {
        self.scattered_along("scatter", axis, index, src, reduce)
    }

    /// Returns `self` plus the elements of `src` at the positions `index` along an axis: [`Tensor::scatter`] with
    /// [`ScatterReduce::Add`]. [`Tensor::index_add`] adds whole rows.
    #[track_caller]
    pub fn scatter_add(&self, axis: isize, index: &Tensor, src: &Tensor) -> Tensor {
        self.scattered_along("scatter_add", axis, index, src, ScatterReduce::Add)
    }

    #[track_caller]
    fn scattered_along(&self, op: &str, axis: isize, index: &Tensor, src: &Tensor, reduce: ScatterReduce) -> Tensor {
        let places = match self.at_along(op, index, axis) {
            Ok(places) => places,
            Err(mistake) => return mistake,
        };
        let line = self.reshaped([self.0.shape.numel()].into());
        if line.is_mistake() {
            return line;
        }
        let wanted = index.0.shape.clone();
        line.put_rows(op, &places, src, wanted, reduce).reshaped(self.0.shape.clone())
    }

    /// Returns the elements at the positions `index` (i32 or i64) along an axis. Positions out of range, negative ones
    /// included, give zero. `index` has the shape of `self` except along the axis.
    #[track_caller]
    pub fn gather(&self, axis: isize, index: &Tensor) -> Tensor {
        self.gathered_along("gather", axis, index)
    }

    /// Returns [`Tensor::gather`] with the argument order of `torch.take_along_dim` and `numpy.take_along_axis`.
    #[doc(alias = "take_along_axis")]
    #[track_caller]
    pub fn take_along_dim(&self, indices: &Tensor, axis: isize) -> Tensor {
        self.gathered_along("take_along_dim", axis, indices)
    }

    #[track_caller]
    fn gathered_along(&self, op: &str, axis: isize, index: &Tensor) -> Tensor {
        match self.at_along(op, index, axis) {
            Ok(places) => self.reshaped([self.0.shape.numel()].into()).index_select(0, &places),
            Err(mistake) => mistake,
        }
    }

    /// Merges the indexed first axes into one, and returns it with the positions along that axis; -1 for out of
    /// range.
    #[track_caller]
    fn at_leading(&self, op: &str, positions: &[&Tensor]) -> Result<(Tensor, Tensor), Tensor> {
        if let Some(mistake) = [self].iter().chain(positions).find(|operand| operand.is_mistake()) {
            return Err((*mistake).clone());
        }
        let dims = self.0.shape.dims();
        if positions.is_empty() || positions.len() > dims.len() {
            let message = format!("{op}: positions for {} of the {} axes of {self:?}", positions.len(), dims.len());
            return Err(Tensor::mistake(Error::mistake(message)));
        }
        let (lead, rest) = dims.split_at(positions.len());
        let mut places = Tensor::constant(0i32.into());
        let mut inside = Tensor::constant(true.into());
        for (axis, (along, length)) in positions.iter().zip(lead).enumerate() {
            self.indexed(op, axis as isize, along)?;
            let (within, along) = along.within(*length);
            let stride: usize = lead[axis + 1..].iter().product();
            places += &along * along.literal(stride as f64);
            inside = inside.bitwise_and(&within);
        }
        let rows = self.reshaped([&[lead.iter().product()], rest].concat().into());
        if rows.is_mistake() {
            return Err(rows);
        }
        rows.counted(op)?;
        let places = places.where_self(&inside, &places.literal(-1.0));
        if let Err(error) = places.check() {
            let message = format!("{op}: the positions do not broadcast");
            return Err(Tensor::mistake(Error::mistake(message).note(error.message())));
        }
        Ok((rows, places))
    }

    /// Converts positions along an axis to positions in the flattened tensor; -1 for out of range.
    #[track_caller]
    fn at_along(&self, op: &str, positions: &Tensor, axis: isize) -> Result<Tensor, Tensor> {
        let place = self.indexed(op, axis, positions)?;
        let (dims, wanted) = (self.0.shape.dims(), positions.0.shape.dims());
        let fits = dims.len() == wanted.len() && (0..dims.len()).all(|i| i == place || dims[i] == wanted[i]);
        if !fits {
            let message = format!("{op}: {positions:?} is not a valid index along axis {axis} of {self:?}");
            let note = "the index must have the lengths of the tensor beside that axis";
            return Err(Tensor::mistake(Error::mistake(message).note(note)));
        }
        self.counted(op)?;
        let mut dynamic_dims = positions.dynamic_dims();
        for i in (0..dims.len()).filter(|i| *i != place) {
            dynamic_dims[i] = dynamic_dim::meet(op, &[(self, i), (positions, i)]).map_err(Tensor::mistake)?;
        }
        let strides = self.0.shape.strides();
        let (inside, along) = positions.within(dims[place]);
        let mut places = &along * along.literal(strides[place] as f64);
        for (i, stride) in strides.into_iter().enumerate().filter(|(i, _)| *i != place) {
            let mut around = vec![1; dims.len()];
            around[i] = dims[i];
            let along = Tensor::arange(dims[i]);
            places += (&along * along.literal(stride as f64)).reshaped(Shape::new(around));
        }
        Ok(places.where_self(&inside, &places.literal(-1.0)).with_lengths(&dynamic_dims))
    }

    /// Returns which positions are in 0 .. length, and the positions as i32, or as i64 if the length does not fit in
    /// an i32.
    pub(crate) fn within(&self, length: usize) -> (Tensor, Tensor) {
        let wide = if i32::try_from(length).is_ok() { DType::I32 } else { DType::I64 };
        let places = if wide == DType::I64 { self.cast(wide) } else { self.clone() };
        let end = Tensor::constant(Scalar::from_i128(places.dtype(), length as i128));
        let inside = places.ge(&places.literal(0.0)).bitwise_and(&places.lt(&end));
        (inside, places.cast(wide))
    }

    /// Returns a mistake if an i32 cannot count the elements.
    #[track_caller]
    pub(crate) fn counted(&self, op: &str) -> Result<(), Tensor> {
        if self.0.shape.numel() <= i32::MAX as usize {
            return Ok(());
        }
        Err(Tensor::mistake(Error::mistake(format!("{op}: {self:?} has more elements than an i32 can count"))))
    }

    /// Writes values to rows; `wanted` is the shape of values for all places.
    #[track_caller]
    fn put_rows(&self, op: &str, places: &Tensor, values: &Tensor, wanted: Shape, reduce: ScatterReduce) -> Tensor {
        if values.is_mistake() {
            return values.clone();
        }
        let fits = values.0.shape.broadcast(&wanted).ok().as_ref() == Some(&wanted);
        if !fits || values.dtype() != self.dtype() {
            let message =
                format!("{op}: {values:?} cannot be written to elements of shape {wanted} and type {}", self.dtype());
            return Tensor::mistake(Error::mistake(message));
        }
        for operand in [self, places, values] {
            if let Err(mistake) = operand.check_static(op, 0..operand.0.shape.ndim()) {
                return mistake;
            }
        }
        let count = places.0.shape.numel();
        let places = places.reshaped([count].into());
        let values = values.expanded(&wanted).reshaped([&[count], &self.0.shape.dims()[1..]].concat().into());
        // Without values both modes are the same.
        if reduce == ScatterReduce::Add || count == 0 || self.0.shape.numel() == 0 {
            return self.index_add(0, &places, &values);
        }
        if let Err(mistake) = places.counted(op) {
            return mistake;
        }
        if !self.is_put_whole(0, &places) {
            return replaced([self, &places, &values]);
        }
        let operation = CompositeOp {
            name: "index_put",
            body: |operands, ()| [replaced(operands)],
            gradient: None,
            routine: |[x, places, _], ()| Some(x.putting(0, places, false)),
        };
        let [whole] = operation.apply([self, &places, &values], ());
        whole
    }

    /// Returns the elements at positions (i32 or i64) along an axis, which the axes of `index` replace. Positions out
    /// of range, negative ones included, give zero.
    #[doc(alias = "embedding")]
    #[track_caller]
    pub fn index_select(&self, axis: isize, index: &Tensor) -> Tensor {
        let axis = match self.indexed("index_select", axis, index) {
            Ok(axis) => axis,
            Err(mistake) => return mistake,
        };
        let dims = self.0.shape.dims();
        let shape = [&dims[..axis], index.0.shape.dims(), &dims[axis + 1..]].concat();
        Tensor::primitive(Op::Gather(axis), &[self, index], shape, self.dtype())
    }

    /// Returns `self` plus `source` added at positions (i32 or i64) along an axis. Positions out of range, negative ones
    /// included, are dropped. Deterministic.
    #[track_caller]
    pub fn index_add(&self, axis: isize, index: &Tensor, source: &Tensor) -> Tensor {
        let axis = match self.indexed("index_add", axis, index) {
            Ok(axis) => axis,
            Err(mistake) => return mistake,
        };
        if source.is_mistake() {
            return source.clone();
        }
        let dims = self.0.shape.dims();
        let shape = Shape::new([&dims[..axis], index.0.shape.dims(), &dims[axis + 1..]].concat());
        if source.0.shape != shape || source.dtype() != self.dtype() {
            let message = format!("index_add: {source:?} are not rows of shape {shape} and type {}", self.dtype());
            return Tensor::mistake(Error::mistake(message));
        }
        let lengths =
            [self, index, source].iter().any(|x| (0..x.0.shape.ndim()).any(|axis| x.valid_length(axis).is_some()));
        if lengths || !self.is_put_whole(axis, index) {
            return scattered([self, index, source], axis);
        }
        let operation = CompositeOp {
            name: "scatter add",
            body: |[x, index, source], axis| [scattered([x, index, source], *axis)],
            gradient: None,
            routine: |[x, index, _], axis| Some(x.putting(*axis, index, true)),
        };
        let [sum] = operation.apply([self, index, source], axis);
        sum
    }

    /// Returns true if a routine is faster than kernels: many pairs and few columns.
    fn is_put_whole(&self, axis: usize, positions: &Tensor) -> bool {
        let columns: usize = self.0.shape.dims()[axis + 1..].iter().product();
        let pairs = self.0.shape.numel().saturating_mul(positions.0.shape.numel());
        columns < MANY_COLUMNS && pairs >= MUCH
    }

    /// Returns the routine that scatters rows.
    fn putting(&self, axis: usize, positions: &Tensor, adds: bool) -> Routine {
        let (dims, dtype) = (self.0.shape.dims(), self.dtype());
        let (batch, columns) = (dims[..axis].iter().product(), dims[axis + 1..].iter().product());
        let (length, count) = (dims[axis], positions.0.shape.numel());
        Routine::Scatter(Scatter {
            dtype,
            positions: positions.dtype(),
            accumulate: adds,
            batch,
            length,
            count,
            columns,
        })
    }

    /// Returns `self` with `src` in place of the elements from `start` on along an axis; the other lengths must be
    /// equal. `start` is a single i32 or i64: a [`Tensor::scalar`] can change from run to run of one program, as for a
    /// KV cache. Elements beyond the axis are dropped. Runs in place if `self` is not used otherwise.
    #[doc(alias = "dynamic_update_slice")]
    #[track_caller]
    pub fn slice_scatter(&self, src: &Tensor, axis: isize, start: &Tensor) -> Tensor {
        let axis = match self.indexed("slice_scatter", axis, start) {
            Ok(axis) => axis,
            Err(mistake) => return mistake,
        };
        if src.is_mistake() {
            return src.clone();
        }
        let (whole, given) = (self.0.shape.dims(), src.0.shape.dims());
        let fits = |at: usize| if at == axis { given[at] <= whole[at] } else { given[at] == whole[at] };
        if whole.len() != given.len() || !(0..whole.len()).all(fits) || src.dtype() != self.dtype() {
            let message = format!("slice_scatter: {src:?} does not fit into {self:?} along axis {axis}");
            return Tensor::mistake(Error::mistake(message));
        }
        if start.0.shape.ndim() > 0 {
            let message = format!("slice_scatter: the start is {start:?}, not a single number");
            return Tensor::mistake(Error::mistake(message).note("reshape it with `.reshape(())`"));
        }
        Tensor::primitive(Op::SliceScatter(axis), &[self, src, start], self.0.shape.clone(), self.dtype())
    }

    /// [`Tensor::slice_scatter`] at a constant position.
    pub(crate) fn written(&self, axis: usize, position: usize, part: &Tensor) -> Tensor {
        let position = Tensor::constant((position as i64).into());
        Tensor::primitive(Op::SliceScatter(axis), &[self, part, &position], self.0.shape.clone(), self.dtype())
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

    /// Encodes integer classes of shape `[…]` as `[…, classes]`: one at the class and zero elsewhere.
    #[track_caller]
    pub fn one_hot(&self, num_classes: usize, dtype: DType) -> Tensor {
        if !self.is_mistake() && !self.dtype().is_int() {
            return Tensor::mistake(Error::mistake(format!("one_hot: classes are {self:?}, not integers")));
        }
        // For example 256 is 0 in u8.
        let wide = if self.dtype().bytes() < 4 { self.cast(DType::I32) } else { self.clone() };
        wide.unsqueeze(-1).eq(&Tensor::arange(num_classes).cast(wide.dtype())).cast(dtype)
    }
}

/// Builds the kernel that finds for each place the index of the last position that names it; -1, the initial value,
/// if none does.
fn last_writers() -> panoply_ir::Result<Kernel> {
    let mut b = Builder::new("last_writers");
    let last = b.buffer("last", DType::I32, Access::InOut);
    let positions = b.buffer("positions", DType::I32, Access::In);
    let (item, count) = (b.builtin(Builtin::GlobalId(0)), b.len(positions));
    let inside = b.alu(Alu::Lt, &[item, count]);
    b.begin_if(inside);
    let place = b.load(positions, item, Guard::Checked);
    let place = b.bind("place", place);
    let zero = b.constant(0i32);
    let known = b.alu(Alu::Le, &[zero, place]);
    b.begin_if(known);
    let at = b.cast(Type::Index, place);
    let number = b.cast(DType::I32, item);
    b.atomic(AtomicOp::Max, last, at, number, None, Guard::Checked);
    b.end();
    b.end();
    b.finish()
}
