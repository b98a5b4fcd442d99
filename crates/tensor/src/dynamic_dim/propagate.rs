//! Propagation of dynamic dimensions through primitives.
//!
//! [`carried`] matches over the primitives. It returns the dynamic axes of the result, and inputs with masked padding
//! where a primitive combines elements along such an axis.

use std::collections::HashSet;
use std::sync::Arc;

use panoply_ir::graph::{Op, Slice};
use panoply_ir::{DType, Error, Result, Scalar, Shape};

use super::{DynamicDim, DynamicDims, MAX_BOUND, ValidLengths, product};
use crate::tensor::{Node, NodeKind, Tensor};

/// Creates a primitive over inputs with dynamic axes.
#[track_caller]
pub(crate) fn primitive(op: Op, inputs: &[&Tensor], shape: Shape, dtype: DType) -> Tensor {
    if let Some(mistake) = Tensor::leftmost(inputs.iter().copied()) {
        return mistake;
    }
    match carried(&op, inputs, &shape) {
        Ok((inputs, dynamic_dims)) => {
            Tensor::over(NodeKind::Op(op), inputs, shape, dtype, ValidLengths::of(dynamic_dims))
        }
        Err(error) => Tensor::mistake(error),
    }
}

/// Returns the inputs with masked padding, and the dynamic axes of the result.
fn carried(op: &Op, inputs: &[&Tensor], shape: &Shape) -> Result<(Vec<Tensor>, DynamicDims)> {
    let x = inputs[0];
    let same = || inputs.iter().map(|input| (*input).clone()).collect::<Vec<Tensor>>();
    let (dynamic_dims, name) = (x.dynamic_dims(), op.to_string());
    let whole = |is_whole: &dyn Fn(usize) -> bool| {
        let kept = (0..dynamic_dims.len()).all(|axis| dynamic_dims[axis].is_none() || is_whole(axis));
        if kept { Ok(dynamic_dims.clone()) } else { Err(x.needs_length(&name)) }
    };
    let (dims, rank) = (x.0.shape.dims(), dynamic_dims.len());
    let given = match op {
        Op::Alu(_) => {
            let meeting = |axis| meet(&name, &inputs.iter().map(|input| (*input, axis)).collect::<Vec<_>>());
            (same(), (0..rank).map(meeting).collect::<Result<DynamicDims>>()?)
        }
        // A scan reads only earlier elements, which are valid.
        Op::Cast | Op::Bitcast | Op::Scan(..) | Op::ControlDependency => (same(), dynamic_dims),
        Op::Reduce(reduce, axes) => {
            let filled = x.mask_padding(axes, reduce.identity(x.dtype()));
            let dynamic_dims = filled.dynamic_dims();
            (vec![filled], dynamic_dims)
        }
        Op::Reshape => (same(), reshaped(x, shape)?),
        Op::Permute(perm) => (same(), perm.iter().map(|axis| dynamic_dims[*axis].clone()).collect()),
        Op::Expand => (same(), whole(&|axis| dims[axis] == shape.dims()[axis])?),
        Op::Pad(widths) => (same(), whole(&|axis| widths[axis] == (0, 0))?),
        Op::Slice(slices) => (same(), whole(&|axis| slices[axis] == Slice { start: 0, step: 1, len: dims[axis] })?),
        Op::MatMul => {
            let y = inputs[1];
            let meeting = |axis| meet(&name, &[(x, axis), (y, axis)]);
            let mut dynamic_dims = (0..rank - 2).map(meeting).collect::<Result<DynamicDims>>()?;
            let inner = meet(&name, &[(x, rank - 1), (y, rank - 2)])?;
            dynamic_dims.extend([x.valid_length(rank - 2).cloned(), y.valid_length(rank - 1).cloned()]);
            let zero = Scalar::from_i128(x.dtype(), 0);
            let filled =
                |x: &Tensor, axis| inner.as_ref().map_or(x.clone(), |part| x.mask_padding_of(&[(axis, part)], zero));
            (vec![filled(x, rank - 1), filled(y, rank - 2)], dynamic_dims)
        }
        Op::Gather(axis) => {
            let (positions, mut dynamic_dims) = (inputs[1], dynamic_dims);
            let known = dynamic_dims[*axis].take().map_or(positions.clone(), |part| positions.within_part(&part));
            dynamic_dims.splice(*axis..=*axis, positions.dynamic_dims());
            (vec![x.clone(), known], dynamic_dims)
        }
        Op::ScatterAdd(axis) => scattered(&name, *axis, [x, inputs[1], inputs[2]])?,
        Op::SliceScatter(along) => {
            if inputs[1].valid_length(*along).is_some() {
                return Err(inputs[1].needs_length(&name));
            }
            let other = |axis: usize| match axis == *along {
                true => Ok(dynamic_dims[axis].clone()),
                false => meet(&name, &[(x, axis), (inputs[1], axis)]),
            };
            (same(), (0..rank).map(other).collect::<Result<DynamicDims>>()?)
        }
        Op::CustomCall(..) => {
            if let Some(dynamic) = inputs.iter().find(|input| input.has_dynamic_dim()) {
                return Err(dynamic.needs_length(&name));
            }
            (same(), vec![None; shape.ndim()])
        }
        Op::Input(_) | Op::Const(_) | Op::ScalarInput(_) | Op::Iota => unreachable!("it has no inputs"),
        Op::Call(..) => unreachable!("tensors hold the body itself"),
    };
    Ok(given)
}

/// Rows beyond the valid length get position -1, which is dropped.
fn scattered(name: &str, along: usize, [x, positions, rows]: [&Tensor; 3]) -> Result<(Vec<Tensor>, DynamicDims)> {
    let count = positions.0.shape.ndim();
    let mut dynamic_dims = Vec::new();
    for axis in 0..x.0.shape.ndim() {
        let row = if axis < along { axis } else { axis + count - 1 };
        dynamic_dims.push(if axis == along {
            x.valid_length(axis).cloned()
        } else {
            meet(name, &[(x, axis), (rows, row)])?
        });
    }
    let mut beyond = Vec::new();
    for axis in 0..count {
        beyond.extend(meet(name, &[(positions, axis), (rows, along + axis)])?.map(|part| (axis, part)));
    }
    let beyond: Vec<(usize, &DynamicDim<Tensor>)> = beyond.iter().map(|(axis, part)| (*axis, part)).collect();
    let known = positions.mask_padding_of(&beyond, Scalar::from_i128(positions.dtype(), -1));
    Ok((vec![x.clone(), known, rows.clone()], dynamic_dims))
}

/// Returns the common valid part of axes that an operation aligns.
pub(crate) fn meet(op: &str, axes: &[(&Tensor, usize)]) -> Result<Option<DynamicDim<Tensor>>> {
    let found = axes.iter().find_map(|(tensor, axis)| Some((*tensor, tensor.valid_length(*axis)?)));
    let Some((first, part)) = found else { return Ok(None) };
    for (tensor, axis) in axes {
        let wrong = match tensor.valid_length(*axis) {
            Some(other) if (&other.dim, other.multiple) != (&part.dim, part.multiple) => "have different Dims",
            Some(other) if !other.length.is_same_length(&part.length) => "are not known to be equally long",
            None if !tensor.is_free(*axis) => "must match, but only one has a Dim",
            Some(_) | None => continue,
        };
        let message = format!("{op}: axes of {first:?} and {tensor:?} {wrong}");
        return Err(Error::mistake(message).note("give both the same Dim with `.mark_dynamic(axis, &dim)`"));
    }
    Ok(Some(part.clone()))
}

/// Returns the dynamic axes after a reshape. The valid elements of an axis stay a prefix if the new axis has the same
/// number of elements before it and a length that is a multiple of the bound. Inner axes can be merged with it or
/// split off.
fn reshaped(x: &Tensor, shape: &Shape) -> Result<DynamicDims> {
    let (from, to) = (x.0.shape.dims(), shape.dims());
    let mut dynamic_dims: DynamicDims = vec![None; to.len()];
    for (axis, part) in x.dynamic_dims().into_iter().enumerate() {
        let Some(part) = part else { continue };
        let bound = part.dim.bound;
        let at = (0..to.len()).find(|at| {
            product(&to[..*at]) == product(&from[..axis])
                && to[*at].is_multiple_of(bound)
                && to[*at] <= MAX_BOUND
                && dynamic_dims[*at].is_none()
        });
        let at = at.ok_or_else(|| x.needs_length("reshape"))?;
        dynamic_dims[at] = Some(DynamicDim { multiple: to[at] / bound, ..part });
    }
    Ok(dynamic_dims)
}

impl Tensor {
    /// Replaces positions beyond the valid part of an axis by -1.
    fn within_part(&self, part: &DynamicDim<Tensor>) -> Tensor {
        let inside = self.lt(&part.count(self.dtype()));
        self.where_self(&inside, &self.literal(-1.0))
    }

    /// Returns true if the tensor is data-free along an axis: constant or counting. It is then valid for any length.
    pub(super) fn is_free(&self, axis: usize) -> bool {
        let mut waiting = vec![(self, axis)];
        let mut seen: HashSet<(*const Node, usize)> = HashSet::new();
        while let Some((tensor, axis)) = waiting.pop() {
            let node = &tensor.0;
            if !seen.insert((Arc::as_ptr(node), axis)) {
                continue;
            }
            let any =
                node.valid_lengths.as_ref().is_some_and(|valid_lengths| valid_lengths.data_free_axes.contains(&axis));
            if any || node.shape.dims()[axis] == 1 {
                continue;
            }
            let input = node.inputs.first();
            match (&node.source, input) {
                (NodeKind::Op(Op::Iota), _) => {}
                (NodeKind::Op(Op::Expand), Some(input)) if input.0.shape.dims()[axis] == 1 => {}
                (NodeKind::Op(Op::Alu(_) | Op::Cast | Op::Bitcast | Op::Expand | Op::Scan(..)), _) => {
                    waiting.extend(node.inputs.iter().map(|input| (input, axis)));
                }
                (NodeKind::Op(Op::Permute(perm)), Some(input)) => waiting.push((input, perm[axis])),
                (NodeKind::Op(Op::Reduce(_, axes)), Some(input)) if !axes.contains(&axis) => {
                    waiting.push((input, axis))
                }
                (NodeKind::Op(Op::Pad(widths)), Some(input)) if widths[axis] == (0, 0) => waiting.push((input, axis)),
                (NodeKind::Op(Op::SliceScatter(along)), _) if *along != axis => {
                    waiting.extend(node.inputs[..2].iter().map(|input| (input, axis)));
                }
                (NodeKind::Op(Op::Reshape), Some(input)) => {
                    let (from, to) = (input.0.shape.dims(), node.shape.dims());
                    let same = |at: &usize| from[*at] == to[axis] && product(&from[..*at]) == product(&to[..axis]);
                    match (0..from.len()).find(same) {
                        Some(at) => waiting.push((input, at)),
                        None => return false,
                    }
                }
                _ => return false,
            }
        }
        true
    }
}
