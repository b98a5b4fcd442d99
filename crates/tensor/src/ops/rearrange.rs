//! Rearranging of elements: triangles, diagonals, rolling, tiling, splitting, searching.

use panoply_ir::{DType, Error, Shape};

use super::operand::Operand;
use crate::tensor::Tensor;

/// Side of equal elements on which [`Tensor::searchsorted`] finds the position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Before them.
    Left,
    /// After them.
    Right,
}

/// Maximum number of sorted elements that a search compares exhaustively.
const COMPARED: usize = 64;

impl Tensor {
    /// Zeroes the elements of matrices above a diagonal: the main one for 0, right of it for a positive number.
    #[track_caller]
    pub fn tril(&self, diagonal: isize) -> Tensor {
        self.triangle("tril", |row, column| column.le(row), diagonal)
    }

    /// Zeroes the elements of matrices below a diagonal: the main one for 0, right of it for a positive number.
    #[track_caller]
    pub fn triu(&self, diagonal: isize) -> Tensor {
        self.triangle("triu", |row, column| column.ge(row), diagonal)
    }

    #[track_caller]
    fn triangle(&self, op: &str, kept: fn(&Tensor, &Tensor) -> Tensor, diagonal: isize) -> Tensor {
        if self.is_mistake() {
            return self.clone();
        }
        let &[.., rows, columns] = self.0.shape.dims() else {
            return Tensor::mistake(Error::mistake(format!("{op}: {self:?} is not a matrix")));
        };
        // A shift beyond the last row or column is equivalent to one to it.
        let farthest = rows.max(columns).min(i32::MAX as usize) as isize;
        let shift = Tensor::constant((diagonal.clamp(-farthest, farthest) as i32).into());
        let kept = kept(&(Tensor::arange(rows).unsqueeze(1) + shift), &Tensor::arange(columns));
        self.where_self(&kept, &self.literal(0.0))
    }

    /// Returns a diagonal of matrices, `[…, m, n]` to `[…, k]`: the main one for `offset` 0, above it for positive offsets, below it
    /// for negative ones. Axes are the last two, as in `numpy.linalg.diagonal`; `torch.diagonal` defaults to the first two.
    #[track_caller]
    pub fn diagonal(&self, offset: isize) -> Tensor {
        if self.is_mistake() {
            return self.clone();
        }
        let &[.., rows, columns] = self.0.shape.dims() else {
            return Tensor::mistake(Error::mistake(format!("diagonal: {self:?} is not a matrix")));
        };
        let (right, down) = (offset.max(0) as usize, offset.min(0).unsigned_abs());
        if (right, down) != (0, 0) && (right >= columns || down >= rows) {
            let message = format!("diagonal: {self:?} has no diagonal {offset} places right of the main one");
            return Tensor::mistake(Error::mistake(message));
        }
        let rank = self.0.shape.ndim();
        if let Err(mistake) = self.check_static("diagonal", rank - 2..rank) {
            return mistake;
        }
        let line = self.flatten(-2, -1);
        let mut slices = line.whole();
        let slice = slices.last_mut().expect("a line has an axis");
        slice.start = right + down * columns;
        (slice.step, slice.len) = (columns as isize + 1, (rows - down).min(columns - right));
        line.sliced(slices)
    }

    /// Returns the identity matrix `[size, size]`. A rectangular one is `Tensor::arange(rows).one_hot(columns, dtype)`.
    #[track_caller]
    pub fn eye(size: usize, dtype: DType) -> Tensor {
        Tensor::arange(size).one_hot(size, dtype)
    }

    /// Rolls the elements along an axis by `shift` positions; elements beyond the end reappear at the start.
    #[track_caller]
    pub fn roll(&self, shift: isize, axis: isize) -> Tensor {
        let place = match self.static_axis("roll", axis) {
            Ok(place) => place,
            Err(mistake) => return mistake,
        };
        let length = self.0.shape.dims()[place];
        if length == 0 {
            return self.clone();
        }
        let cut = (length - shift.rem_euclid(length as isize) as usize) % length;
        if cut == 0 {
            return self.clone();
        }
        let (front, back) = (self.narrow(axis, 0, cut), self.narrow(axis, cut, length - cut));
        Tensor::concat([back, front], axis)
    }

    /// Repeats the whole tensor along its axes, aligned at the end: `[a, b]` tiled by 2 becomes `[a, b, a, b]`. More
    /// numbers than axes add leading axes.
    #[doc(alias = "repeat")]
    #[track_caller]
    pub fn tile(&self, repeats: impl AsRef<[usize]>) -> Tensor {
        if self.is_mistake() {
            return self.clone();
        }
        let repeats = repeats.as_ref();
        let added = vec![1; repeats.len().saturating_sub(self.0.shape.ndim())];
        let whole = self.reshaped([&added, self.0.shape.dims()].concat().into());
        let first = whole.0.shape.ndim() - repeats.len();
        let mut tiled = whole;
        for (at, times) in repeats.iter().enumerate() {
            tiled = tiled.tiled(first + at, *times);
        }
        tiled
    }

    /// Repeats one axis.
    #[track_caller]
    fn tiled(&self, axis: usize, times: usize) -> Tensor {
        if times == 1 || self.is_mistake() {
            return self.clone();
        }
        if let Err(mistake) = self.check_static("tile", [axis]) {
            return mistake;
        }
        let dims = self.0.shape.dims();
        let repeated = Shape::new([&dims[..axis], &[times], &dims[axis..]].concat());
        let joined = Shape::new([&dims[..axis], &[times.saturating_mul(dims[axis])], &dims[axis + 1..]].concat());
        self.unsqueeze(axis as isize).expanded(&repeated).reshaped(joined)
    }

    /// Splits an axis into parts of these lengths, which must add up to its length. [`Tensor::chunk`] splits it into
    /// equal parts.
    #[doc(alias = "split_with_sizes")]
    #[track_caller]
    pub fn split(&self, lengths: impl AsRef<[usize]>, axis: isize) -> Vec<Tensor> {
        let lengths = lengths.as_ref();
        let place = match self.static_axis("split", axis) {
            Ok(place) => place,
            Err(mistake) => return vec![mistake; lengths.len()],
        };
        if lengths.iter().fold(0usize, |sum, length| sum.saturating_add(*length)) != self.0.shape.dims()[place] {
            let message = format!("split: {lengths:?} do not add up to axis {axis} of {self:?}");
            return vec![Tensor::mistake(Error::mistake(message)); lengths.len()];
        }
        let starts = lengths.iter().scan(0, |end, length| {
            *end += length;
            Some(*end - length)
        });
        starts.zip(lengths).map(|(start, length)| self.narrow(axis, start, *length)).collect()
    }

    /// Splits an axis into at most `chunks` parts of equal length; the last one can be shorter. The result is a single
    /// mistake if the axis is invalid or `chunks` is 0.
    #[doc(alias = "tensor_split")]
    #[track_caller]
    pub fn chunk(&self, chunks: usize, axis: isize) -> Vec<Tensor> {
        let length = match self.static_axis("chunk", axis) {
            Ok(place) => self.0.shape.dims()[place],
            Err(mistake) => return vec![mistake],
        };
        if chunks == 0 {
            return vec![Tensor::mistake(Error::mistake(format!("chunk: {self:?} cannot be split into 0 parts")))];
        }
        let part = length.div_ceil(chunks).max(1);
        let starts = (0..length.max(1)).step_by(part);
        starts.map(|start| self.narrow(axis, start, part.min(length - start))).collect()
    }

    /// Returns the slices along an axis, which is removed. The result is a single mistake if the axis is invalid.
    #[doc(alias = "unstack")]
    #[track_caller]
    pub fn unbind(&self, axis: isize) -> Vec<Tensor> {
        match self.static_axis("unbind", axis) {
            Ok(place) => (0..self.0.shape.dims()[place]).map(|at| self.narrow(axis, at, 1).squeeze(place)).collect(),
            Err(mistake) => vec![mistake],
        }
    }

    /// Repeats each element along an axis `repeats` times: `[a, b]` becomes `[a, a, b, b]`.
    #[track_caller]
    pub fn repeat_interleave(&self, repeats: usize, axis: isize) -> Tensor {
        let place = match self.axis("repeat_interleave", axis) {
            Ok(place) => place,
            Err(mistake) => return mistake,
        };
        let dims = self.0.shape.dims();
        let repeated = Shape::new([&dims[..=place], &[repeats], &dims[place + 1..]].concat());
        let joined = Shape::new([&dims[..place], &[repeats.saturating_mul(dims[place])], &dims[place + 1..]].concat());
        self.unsqueeze(place as isize + 1).expanded(&repeated).reshaped(joined)
    }

    /// Moves an axis to another position; the others keep their order.
    #[track_caller]
    pub fn movedim(&self, source: isize, destination: isize) -> Tensor {
        match (self.axis("movedim", source), self.axis("movedim", destination)) {
            (Ok(source), Ok(destination)) => {
                let mut perm: Vec<usize> = (0..self.0.shape.ndim()).collect();
                perm.remove(source);
                perm.insert(destination, source);
                self.permuted(perm)
            }
            (Err(mistake), _) | (_, Err(mistake)) => mistake,
        }
    }

    /// Returns the coordinates of a grid: for vectors of lengths a, b, … the same number of tensors of shape `[a, b,
    /// …]`, each varying along its own axis (NumPy's `meshgrid` with `indexing="ij"`).
    #[track_caller]
    pub fn meshgrid(vectors: &[&Tensor]) -> Vec<Tensor> {
        let wrong = vectors.iter().find(|vector| vector.is_mistake() || vector.0.shape.ndim() != 1);
        if let Some(wrong) = wrong {
            let message = format!("meshgrid: {wrong:?} is not a vector");
            let mistake = if wrong.is_mistake() { (*wrong).clone() } else { Tensor::mistake(Error::mistake(message)) };
            return vec![mistake; vectors.len()];
        }
        let shape = Shape::new(vectors.iter().map(|vector| vector.0.shape.numel()).collect::<Vec<usize>>());
        let dynamic_dims = vectors.iter().map(|vector| vector.valid_length(0).cloned()).collect();
        let mut grid = Vec::with_capacity(vectors.len());
        for (axis, vector) in vectors.iter().enumerate() {
            let mut dims = vec![1; vectors.len()];
            dims[axis] = vector.0.shape.numel();
            grid.push(vector.reshaped(dims.into()).expanded(&shape).with_lengths(&dynamic_dims));
        }
        grid
    }

    /// Returns matrices with these elements on the main diagonal and zeros elsewhere: `[…, n]` becomes `[…, n, n]`.
    #[track_caller]
    pub fn diag_embed(&self) -> Tensor {
        let size = match self.static_axis("diag_embed", -1) {
            Ok(axis) => self.0.shape.dims()[axis],
            Err(mistake) => return mistake,
        };
        let places = Tensor::arange(size);
        self.unsqueeze(-1).where_self(&places.unsqueeze(1).eq(&places), &self.literal(0.0))
    }

    /// Returns the sum of the main diagonal of square matrices: `[…, n, n]` becomes `[…]`.
    #[track_caller]
    pub fn trace(&self) -> Tensor {
        self.diagonal(0).sum(-1)
    }

    /// Returns the differences of adjacent elements along an axis, which becomes one shorter.
    #[track_caller]
    pub fn diff(&self, axis: isize) -> Tensor {
        let length = match self.static_axis("diff", axis) {
            Ok(place) => self.0.shape.dims()[place],
            Err(mistake) => return mistake,
        };
        let rest = length.saturating_sub(1);
        self.narrow(axis, length - rest, rest) - self.narrow(axis, 0, rest)
    }

    /// Returns `value` where the mask is true, `self` elsewhere.
    #[track_caller]
    pub fn masked_fill(&self, mask: &Tensor, value: impl Into<Operand>) -> Tensor {
        value.into().beside(self).where_self(mask, self)
    }

    /// Returns for each of `values` the number of elements of this sorted vector below it, or for [`Side::Right`] not
    /// above it, as i32. NaN counts as larger than everything, as in [`Tensor::sort`]. Short vectors are compared
    /// exhaustively, longer ones by binary search.
    #[doc(alias = "bucketize")]
    #[doc(alias = "digitize")]
    #[track_caller]
    pub fn searchsorted(&self, values: &Tensor, side: Side) -> Tensor {
        if let Some(mistake) = [self, values].into_iter().find(|operand| operand.is_mistake()) {
            return mistake.clone();
        }
        if self.0.shape.ndim() != 1 {
            return Tensor::mistake(Error::mistake(format!("searchsorted: {self:?} is not a vector")));
        }
        if let Err(mistake) = self.has_positions("searchsorted", 0) {
            return mistake;
        }
        let or_equal = side == Side::Right;
        let is_before = |x: &Tensor, value: &Tensor| {
            let before = if or_equal { x.le(value) } else { x.lt(value) };
            match (x.dtype().is_float(), or_equal) {
                (false, _) => before,
                (true, true) => before.bitwise_or(&value.is_nan()),
                (true, false) => before.bitwise_or(&value.is_nan().bitwise_and(&x.eq(x))),
            }
        };
        let length = self.0.shape.numel();
        if length <= COMPARED || self.valid_length(0).is_some() {
            return is_before(self, &values.unsqueeze(-1)).cast(DType::I32).sum(-1);
        }
        let number = |number: usize| Tensor::scalar(number as i32);
        let (mut count, mut step) = (Tensor::zeros(values.0.shape.clone(), DType::I32), 1 << length.ilog2());
        while step > 0 {
            let more = &count + &number(step);
            let last = self.index_select(0, &(&more - &number(1)));
            let fits = more.le(&number(length)).bitwise_and(&is_before(&last, values));
            count = more.where_self(&fits, &count);
            step /= 2;
        }
        count
    }

    /// Counts the occurrences of each integer in `0 .. classes`: i32 `[classes]`. Other integers are ignored.
    #[track_caller]
    pub fn bincount(&self, length: usize) -> Tensor {
        if self.is_mistake() {
            return self.clone();
        }
        if let Err(mistake) = self.counted("bincount") {
            return mistake;
        }
        let line = self.reshaped([self.0.shape.numel()].into());
        Tensor::zeros([length], DType::I32).index_add(0, &line, &Tensor::ones([self.0.shape.numel()], DType::I32))
    }
}
