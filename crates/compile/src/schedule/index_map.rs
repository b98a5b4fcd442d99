//! Movement operations as index arithmetic: maps coordinates of a node's element to coordinates in its input.
//!
//! From a result towards its inputs, a reshape, permutation, expansion, slice or padding is only a change of
//! coordinates. Padding additionally gives bounds outside which the element is zero.

use panoply_ir::graph::{Node, Op};
use panoply_ir::shape::Shape;

use super::affine::AffineExpr;

/// One index expression for each axis of a tensor.
pub type IndexExprs = Vec<AffineExpr>;

/// A condition on an element: `0 <= index < extent`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BoundsCheck {
    /// Expression that must be in range.
    pub index: AffineExpr,
    /// Exclusive end of the range.
    pub extent: u64,
}

/// Returns true if a node only rearranges elements of its input.
pub fn is_movement(op: &Op) -> bool {
    matches!(op, Op::Reshape | Op::Permute(_) | Op::Expand | Op::Pad(_) | Op::Slice(_))
}

/// Returns the coordinates in the input of an element of a movement node, and the bounds within which it exists.
pub fn index_map(node: &Node, input: &Shape, coords: &[AffineExpr]) -> (IndexExprs, Vec<BoundsCheck>) {
    let pulled = match &node.op {
        Op::Reshape => reshape(coords, node.shape.dims(), input.dims()),
        Op::Permute(perm) => {
            let mut from = vec![AffineExpr::default(); perm.len()];
            perm.iter().zip(coords).for_each(|(axis, index)| from[*axis] = index.clone());
            from
        }
        Op::Expand => {
            let along =
                |(index, dim): (&AffineExpr, &usize)| if *dim == 1 { AffineExpr::default() } else { index.clone() };
            coords.iter().zip(input.dims()).map(along).collect()
        }
        Op::Slice(slices) => {
            let along = |(index, dim): (&AffineExpr, &panoply_ir::graph::Slice)| {
                index.mul(dim.step as i64).add_const(dim.start as i64)
            };
            coords.iter().zip(slices).map(along).collect()
        }
        Op::Pad(widths) => {
            let from: IndexExprs =
                coords.iter().zip(widths).map(|(index, (before, _))| index.add_const(-(*before as i64))).collect();
            let open = open_bounds(&from, input);
            return (from, open);
        }
        Op::Input(_)
        | Op::Const(_)
        | Op::ScalarInput(_)
        | Op::Iota
        | Op::Alu(_)
        | Op::Cast
        | Op::Bitcast
        | Op::Reduce(..) => {
            unreachable!("not a movement")
        }
        Op::Scan(..) | Op::MatMul | Op::Gather(_) | Op::ScatterAdd(_) | Op::SliceScatter(_) => {
            unreachable!("not a movement")
        }
        Op::Call(..) | Op::CustomCall(..) | Op::ControlDependency => unreachable!("not a movement"),
    };
    (pulled, Vec::new())
}

/// Returns the conditions under which coordinates are within a shape, without those that always hold.
pub fn open_bounds(coords: &[AffineExpr], shape: &Shape) -> Vec<BoundsCheck> {
    let bounds =
        coords.iter().zip(shape.dims()).map(|(index, dim)| BoundsCheck { index: index.clone(), extent: *dim as u64 });
    bounds.filter(|bound| !stays_below(&bound.index, bound.extent)).collect()
}

/// Returns true if an expression is always in `0 .. extent`.
pub fn stays_below(index: &AffineExpr, extent: u64) -> bool {
    index.guaranteed_range().is_some_and(|(low, high)| low >= 0 && high < extent as i64)
}

/// Returns true if coordinates are always within a shape.
pub fn is_within(coords: &[AffineExpr], shape: &Shape) -> bool {
    coords.iter().zip(shape.dims()).all(|(index, dim)| stays_below(index, *dim as u64))
}

/// Returns the index of an element in a row-major buffer of this shape.
pub fn linear(coords: &[AffineExpr], shape: &Shape) -> AffineExpr {
    let strides = shape.strides();
    coords.iter().zip(strides).fold(AffineExpr::default(), |sum, (index, stride)| sum.add_scaled(index, stride as i64))
}

/// Returns the coordinates in shape `dims` of the element at a row-major index.
pub fn unflatten(position: &AffineExpr, dims: &[usize]) -> IndexExprs {
    let mut rest = position.clone();
    let mut coords = vec![AffineExpr::default(); dims.len()];
    for (axis, dim) in dims.iter().enumerate().rev() {
        if axis == 0 {
            coords[0] = rest;
            break;
        }
        coords[axis] = rest.rem_euclid(*dim as u64);
        rest = rest.floor_div(*dim as u64);
    }
    coords
}

/// Converts coordinates in shape `from` to coordinates in shape `to`, which has the same number of elements. Runs of
/// axes with equal products are converted separately, so that axes common to both are unchanged.
fn reshape(coords: &[AffineExpr], from: &[usize], to: &[usize]) -> IndexExprs {
    let (mut i, mut j) = (0, 0);
    let mut result = IndexExprs::with_capacity(to.len());
    loop {
        i += from[i..].iter().take_while(|dim| **dim == 1).count();
        let ones = to[j..].iter().take_while(|dim| **dim == 1).count();
        result.extend(std::iter::repeat_n(AffineExpr::default(), ones));
        j += ones;
        if i == from.len() || j == to.len() {
            return result;
        }
        let (first_i, first_j) = (i, j);
        let (mut left, mut right) = (from[i], to[j]);
        (i, j) = (i + 1, j + 1);
        while left != right {
            if left < right {
                left *= from[i];
                i += 1;
            } else {
                right *= to[j];
                j += 1;
            }
        }
        let run = Shape::from(&from[first_i..i]);
        result.extend(unflatten(&linear(&coords[first_i..i], &run), &to[first_j..j]));
    }
}
