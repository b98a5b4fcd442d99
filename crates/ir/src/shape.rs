//! Shapes, broadcasting and axes, with NumPy's rules.

use std::fmt;
use std::sync::Arc;

use crate::error::{Error, Result};

/// Lengths of a tensor's axes, outermost first. A shape without axes is a single element. Clones share the lengths, because most nodes
/// of a graph have the shape of another.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Shape(Arc<[usize]>);

impl Shape {
    /// Creates a shape with these lengths.
    pub fn new(dims: impl Into<Arc<[usize]>>) -> Shape {
        Shape(dims.into())
    }

    /// Returns the lengths of the axes.
    pub fn dims(&self) -> &[usize] {
        &self.0
    }

    /// Returns the number of axes.
    pub fn ndim(&self) -> usize {
        self.0.len()
    }

    /// Returns the number of elements, saturated at `usize::MAX`.
    pub fn numel(&self) -> usize {
        let product = self.0.iter().try_fold(1usize, |product, length| product.checked_mul(*length));
        product.unwrap_or(if self.0.contains(&0) { 0 } else { usize::MAX })
    }

    /// Returns the row-major strides in elements.
    pub fn strides(&self) -> Vec<usize> {
        let mut strides = vec![1usize; self.ndim()];
        for axis in (1..self.ndim()).rev() {
            strides[axis - 1] = strides[axis].saturating_mul(self.0[axis]);
        }
        strides
    }

    /// Converts an axis, which can be negative to count from the end, into an index.
    ///
    /// # Errors
    /// The axis is out of range.
    pub fn axis(&self, axis: isize) -> Result<usize> {
        let rank = self.ndim() as isize;
        let position = if axis < 0 { axis + rank } else { axis };
        if (0..rank).contains(&position) {
            Ok(position as usize)
        } else {
            Err(Error::mistake(format!("axis {axis} is out of range for {self} with {rank} axes")))
        }
    }

    /// Returns the shape that both broadcast to: axes align at the end, and a length of 1 is stretched.
    ///
    /// # Errors
    /// The shapes do not broadcast.
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

impl<const N: usize> From<&[usize; N]> for Shape {
    fn from(dims: &[usize; N]) -> Shape {
        Shape::new(*dims)
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

impl From<&Vec<usize>> for Shape {
    fn from(dims: &Vec<usize>) -> Shape {
        Shape::new(dims.as_slice())
    }
}

/// Clones the handle, for functions that take a shape by value.
impl From<&Shape> for Shape {
    fn from(shape: &Shape) -> Shape {
        shape.clone()
    }
}
