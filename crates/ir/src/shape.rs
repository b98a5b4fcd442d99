//! Shapes, broadcasting and axes, with NumPy's rules.

use std::fmt;
use std::sync::Arc;

use crate::error::{Error, Result};

/// Lengths of a tensor's axes, outermost first. No axes is a single element. A copy shares them: most nodes of a graph have a shape of others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Shape(Arc<[usize]>);

impl Shape {
    /// A shape of these lengths.
    pub fn new(dims: impl Into<Arc<[usize]>>) -> Shape {
        Shape(dims.into())
    }

    /// The lengths.
    pub fn dims(&self) -> &[usize] {
        &self.0
    }

    /// How many axes.
    pub fn ndim(&self) -> usize {
        self.0.len()
    }

    /// How many elements; the largest number where there are more.
    pub fn numel(&self) -> usize {
        let product = self.0.iter().try_fold(1usize, |product, length| product.checked_mul(*length));
        product.unwrap_or(if self.0.contains(&0) { 0 } else { usize::MAX })
    }

    /// Elements from one position to the next along each axis, row-major.
    pub fn strides(&self) -> Vec<usize> {
        let mut strides = vec![1usize; self.ndim()];
        for axis in (1..self.ndim()).rev() {
            strides[axis - 1] = strides[axis].saturating_mul(self.0[axis]);
        }
        strides
    }

    /// The position of an axis that may be counted from the end.
    pub fn axis(&self, axis: isize) -> Result<usize> {
        let rank = self.ndim() as isize;
        let position = if axis < 0 { axis + rank } else { axis };
        if (0..rank).contains(&position) {
            Ok(position as usize)
        } else {
            Err(Error::mistake(format!("axis {axis} is out of range for {self} with {rank} axes")))
        }
    }

    /// The shape both broadcast to: axes align at the end, a length of 1 stretches.
    pub fn broadcast(&self, other: &Shape) -> Result<Shape> {
        if self == other {
            return Ok(self.clone());
        }
        let rank = self.ndim().max(other.ndim());
        let length = |shape: &Shape, axis: usize| {
            (axis + shape.ndim()).checked_sub(rank).map_or(1, |position| shape.0[position])
        };
        let joined = (0..rank).map(|axis| match (length(self, axis), length(other, axis)) {
            (a, b) if a == b || b == 1 => Ok(a),
            (1, b) => Ok(b),
            (a, b) => Err(Error::mistake(format!("shapes {self} and {other} do not broadcast: {a} against {b}"))),
        });
        joined.collect::<Result<Vec<usize>>>().map(Shape::new)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dims: Vec<String> = self.0.iter().map(usize::to_string).collect();
        write!(f, "[{}]", dims.join(", "))
    }
}

impl<const N: usize> From<[usize; N]> for Shape {
    fn from(dims: [usize; N]) -> Shape {
        Shape::new(dims)
    }
}

impl From<&[usize]> for Shape {
    fn from(dims: &[usize]) -> Shape {
        Shape::new(dims)
    }
}

impl From<Vec<usize>> for Shape {
    fn from(dims: Vec<usize>) -> Shape {
        Shape::new(dims)
    }
}
