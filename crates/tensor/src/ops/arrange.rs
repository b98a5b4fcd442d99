//! Elements at other places, composed of movement: triangles, diagonals, rolling, tiling, splitting, picking.

use panoply_ir::{DType, Error, Shape};

use crate::tensor::Tensor;

impl Tensor {
    /// Matrices with zeros above the diagonal that many places right of the main one.
    #[track_caller]
    pub fn tril(&self, diagonal: isize) -> Tensor {
        self.triangle("tril", |row, column| column.le(row), diagonal)
    }

    /// Matrices with zeros below the diagonal that many places right of the main one.
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
            return Tensor::mistake(Error::mistake(format!("{op}: {self:?} is no matrix")));
        };
        let shift = Tensor::constant((diagonal as i32).into());
        let kept = kept(&(Tensor::iota(rows).unsqueeze(1) + shift), &Tensor::iota(columns));
        self.where_(&kept, &self.literal(0.0))
    }

    /// The main diagonal of square matrices: `[…, n, n]` becomes `[…, n]`.
    #[track_caller]
    pub fn diagonal(&self) -> Tensor {
        if self.is_mistake() {
            return self.clone();
        }
        match *self.0.shape.dims() {
            [.., rows, columns] if rows == columns => {
                let line = self.flatten(-2);
                let axis = line.0.shape.rank() - 1;
                let mut slices = line.whole();
                (slices[axis].step, slices[axis].len) = (rows as isize + 1, rows);
                line.sliced(slices)
            }
            _ => Tensor::mistake(Error::mistake(format!("diagonal: {self:?} is no square matrix"))),
        }
    }

    /// Ones on the diagonal, zeros elsewhere: `[size, size]`.
    #[track_caller]
    pub fn eye(size: usize, dtype: DType) -> Tensor {
        Tensor::iota(size).one_hot(size, dtype)
    }

    /// Moved along an axis by that many places; what leaves at the end comes back at the beginning.
    #[track_caller]
    pub fn roll(&self, shift: isize, axis: isize) -> Tensor {
        let place = match self.axis("roll", axis) {
            Ok(place) => place,
            Err(mistake) => return mistake,
        };
        let length = self.0.shape.dims()[place];
        if length == 0 {
            return self.clone();
        }
        let cut = (-shift).rem_euclid(length as isize) as usize;
        if cut == 0 {
            return self.clone();
        }
        let (front, back) = (self.narrow(axis, 0, cut), self.narrow(axis, cut, length - cut));
        Tensor::concat(&[back, front], axis)
    }

    /// Repeated that many times along an axis.
    #[track_caller]
    pub fn tile(&self, times: usize, axis: isize) -> Tensor {
        let place = match self.axis("tile", axis) {
            Ok(place) => place,
            Err(mistake) => return mistake,
        };
        let dims = self.0.shape.dims();
        let repeated = Shape::new([&dims[..place], &[times], &dims[place..]].concat());
        let joined = Shape::new([&dims[..place], &[times * dims[place]], &dims[place + 1..]].concat());
        self.unsqueeze(place as isize).expand_to(&repeated).reshaped(joined)
    }

    /// Parts of an axis of these lengths, which add up to it.
    #[track_caller]
    pub fn split(&self, lengths: &[usize], axis: isize) -> Vec<Tensor> {
        let place = match self.axis("split", axis) {
            Ok(place) => place,
            Err(mistake) => return vec![mistake; lengths.len()],
        };
        if lengths.iter().sum::<usize>() != self.0.shape.dims()[place] {
            let message = format!("split: {lengths:?} do not add up to axis {axis} of {self:?}");
            return vec![Tensor::mistake(Error::mistake(message)); lengths.len()];
        }
        let starts = lengths.iter().scan(0, |end, length| {
            *end += length;
            Some(*end - length)
        });
        starts.zip(lengths).map(|(start, length)| self.narrow(axis, start, *length)).collect()
    }

    /// Along an axis the element at each of `positions` (i32), which has this tensor's shape but for that axis. Positions
    /// count from 0 and lie within the axis.
    #[track_caller]
    pub fn take_along(&self, positions: &Tensor, axis: isize) -> Tensor {
        let place = match self.axis("take_along", axis) {
            Ok(place) => place,
            Err(mistake) => return mistake,
        };
        if positions.is_mistake() {
            return positions.clone();
        }
        let (dims, wanted) = (self.0.shape.dims(), positions.0.shape.dims());
        let fits = dims.len() == wanted.len() && (0..dims.len()).all(|i| i == place || dims[i] == wanted[i]);
        if !fits || positions.dtype() != DType::I32 {
            let message = format!("take_along: {positions:?} are no i32 positions along axis {axis} of {self:?}");
            return Tensor::mistake(Error::mistake(message));
        }
        let strides = self.0.shape.strides();
        let mut flat = positions * positions.literal(strides[place] as f64);
        for (i, stride) in strides.into_iter().enumerate().filter(|(i, _)| *i != place) {
            let mut around = vec![1; dims.len()];
            around[i] = dims[i];
            let along = Tensor::iota(dims[i]);
            flat = flat + (&along * along.literal(stride as f64)).reshaped(Shape::new(around));
        }
        self.reshaped([self.0.shape.elems()].into()).index_select(0, &flat)
    }
}
