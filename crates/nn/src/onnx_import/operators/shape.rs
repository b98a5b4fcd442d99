//! Operators that change the shape or the element type, or move elements.

use panoply_tensor::{DType, Error, Result, Shape, Tensor};

use super::super::graph::Value;
use super::{Operands, Operator, Results, as_matrix, axes_of, axis_of, lengths, numel, scalar, shaped, slice_ranges};

/// Name, attributes and rule of each operator.
pub const OPERATORS: &[Operator] = &[
    ("BitCast", &["to"], |o| {
        let dtype = o.dtype("to")?.ok_or_else(|| Error::corrupt("the element type is missing"))?;
        o.map(|x| x.bitcast(dtype))
    }),
    ("Cast", &["round_mode", "saturate", "to"], |o| {
        let dtype = o.dtype("to")?.ok_or_else(|| Error::corrupt("the element type is missing"))?;
        o.map(|x| cast(x, dtype))
    }),
    ("CastLike", &["round_mode", "saturate"], |o| o.zip(|x, like| cast(x, like.dtype()))),
    ("CenterCropPad", &["axes"], center_crop_pad),
    ("Concat", &["axis"], |o| Ok(Tensor::concat(o.all()?, o.axis(0)? as isize).into())),
    ("DepthToSpace", &["blocksize", "mode"], depth_to_space),
    ("Expand", &[], expand),
    ("Flatten", &["axis"], flatten),
    ("Identity", &[], |o| Ok(o.value(0)?.clone().into())),
    ("Pad", &["mode", "pads", "value"], pad),
    ("Reshape", &["allowzero", "shape"], reshape),
    ("Slice", &["axes", "ends", "starts"], |o| {
        let dims = o.dims(0)?;
        let ranges = slice_ranges(o)?.into_iter().zip(dims).enumerate();
        Ok(ranges.fold(o.x(0)?.clone(), |x, (axis, (range, length))| range.of(&x, axis, length)).into())
    }),
    ("SpaceToDepth", &["blocksize"], space_to_depth),
    ("Split", &["axis", "num_outputs", "split"], split),
    ("Squeeze", &["axes"], squeeze),
    ("Tile", &[], |o| {
        let repeats = lengths(&o.numbers(1)?)?;
        match repeats.len() == o.dims(0)?.len() {
            true => o.map(|x| x.tile(&repeats)),
            false => Err(Error::corrupt(format!("{repeats:?} is not a number of repeats for each axis"))),
        }
    }),
    ("Transpose", &["perm"], transpose),
    ("Trilu", &["upper"], |o| {
        let (k, is_upper) = (o.number(1)?.unwrap_or(0), o.flag("upper", true));
        let k = k.clamp(-(i32::MAX as i64), i32::MAX as i64) as isize;
        o.map(|x| if is_upper { x.triu(k) } else { x.tril(k) })
    }),
    ("Unsqueeze", &["axes"], unsqueeze),
];

/// Converts elements; numbers other than 0 become true.
fn cast(x: &Tensor, dtype: DType) -> Tensor {
    if dtype == DType::Bool && x.dtype() != DType::Bool { x.ne(x.zeros_like()) } else { x.cast(dtype) }
}

fn squeeze(o: &Operands<'_>) -> Result<Results> {
    let dims = o.dims(0)?;
    let ones = || (0..dims.len() as i64).filter(|axis| dims[*axis as usize] == 1).collect();
    let axes = axes_of(&o.ints("axes", 1)?.unwrap_or_else(ones), dims.len())?;
    o.map(|x| x.squeeze(axes))
}

fn unsqueeze(o: &Operands<'_>) -> Result<Results> {
    let axes = o.ints("axes", 1)?.unwrap_or_default();
    let mut axes = axes_of(&axes, o.dims(0)?.len() + axes.len())?;
    axes.sort_unstable();
    o.map(|x| axes.iter().fold(x.clone(), |x, axis| x.unsqueeze(*axis as isize)))
}

/// Flattens to two axes: those before `axis` and those from it on.
fn flatten(o: &Operands<'_>) -> Result<Results> {
    let (dims, axis) = (o.dims(0)?, o.int("axis", 1));
    let axis = if axis == dims.len() as i64 { dims.len() } else { axis_of(axis, dims.len())? };
    o.map(|x| shaped(x, &as_matrix(&dims, axis)))
}

/// Broadcasts in both directions.
fn expand(o: &Operands<'_>) -> Result<Results> {
    let (dims, wanted) = (o.dims(0)?, lengths(&o.numbers(1)?)?);
    let fail = |_| Error::corrupt(format!("{dims:?} cannot be broadcast to {wanted:?}"));
    let shape = Shape::from(&dims[..]).broadcast(&Shape::from(&wanted[..])).map_err(fail)?;
    o.map(|x| x.broadcast_to(shape))
}

/// Reshapes: a length of 0 copies the input's, −1 is inferred.
fn reshape(o: &Operands<'_>) -> Result<Results> {
    let (x, dims) = (o.x(0)?, o.dims(0)?);
    let asked = o.ints("shape", 1)?.ok_or_else(|| Error::corrupt("the shape is missing"))?;
    let fail = || Error::corrupt(format!("{dims:?} cannot be reshaped to {asked:?}"));
    let kept = |(n, length): (usize, &i64)| match *length {
        0 if o.int("allowzero", 0) == 0 => dims.get(n).copied().map(Some).ok_or_else(fail),
        -1 => Ok(None),
        length => usize::try_from(length).map(Some).map_err(|_| fail()),
    };
    let lengths = asked.iter().enumerate().map(kept).collect::<Result<Vec<Option<usize>>>>()?;
    let known = lengths.iter().flatten().try_fold(1usize, |all, length| all.checked_mul(*length)).ok_or_else(fail)?;
    let open = lengths.iter().filter(|length| length.is_none()).count();
    let numel = Shape::from(&dims[..]).numel();
    let fits = if open == 0 { known == numel } else { open == 1 && known > 0 && numel.is_multiple_of(known) };
    if !fits {
        return Err(fail());
    }
    let lengths: Vec<usize> = lengths.into_iter().map(|length| length.unwrap_or_else(|| numel / known)).collect();
    Ok(if lengths == dims { o.value(0)?.clone() } else { Value::from(shaped(x, &lengths)) }.into())
}

/// Permutes the axes; reverses them by default.
fn transpose(o: &Operands<'_>) -> Result<Results> {
    let rank = o.dims(0)?.len();
    let reversed: Vec<i64> = (0..rank as i64).rev().collect();
    let order = axes_of(o.list("perm").unwrap_or(&reversed), rank)?;
    o.map(|x| x.permute(order))
}

/// Splits an axis into lengths that are an attribute or an operand, or into equal parts of which the last can be shorter.
fn split(o: &Operands<'_>) -> Result<Results> {
    let axis = o.axis(0)?;
    let (length, count) = (o.dims(0)?[axis], o.int("num_outputs", o.is_used.len() as i64));
    let parts = match o.ints("split", 1)? {
        Some(parts) => lengths(&parts)?,
        None => {
            let count = usize::try_from(count).ok().filter(|count| (1..=o.is_used.len()).contains(count));
            let count = count.ok_or_else(|| Error::corrupt("the number of parts does not fit the results"))?;
            let each = length.div_ceil(count);
            (0..count).map(|n| length.saturating_sub(n * each).min(each)).collect()
        }
    };
    Ok(o.x(0)?.split(&parts, axis as isize).into())
}

fn block(o: &Operands<'_>) -> Result<usize> {
    let size = usize::try_from(o.int("blocksize", 0)).ok().filter(|size| *size > 0);
    size.ok_or_else(|| Error::corrupt("the block size must be at least 1"))
}

fn space_to_depth(o: &Operands<'_>) -> Result<Results> {
    let ([n, c, h, w], b) = (o.x(0)?.dims::<4>()?, block(o)?);
    if !h.is_multiple_of(b) || !w.is_multiple_of(b) {
        return Err(Error::corrupt(format!("{h} × {w} elements are not divisible into blocks of {b}")));
    }
    let blocks = o.x(0)?.reshape([n, c, h / b, b, w / b, b]).permute([0, 3, 5, 1, 2, 4]);
    Ok(blocks.reshape([n, c * b * b, h / b, w / b]).into())
}

fn depth_to_space(o: &Operands<'_>) -> Result<Results> {
    let ([n, c, h, w], b) = (o.x(0)?.dims::<4>()?, block(o)?);
    let depth = b.checked_mul(b).filter(|blocks| c.is_multiple_of(*blocks)).map(|blocks| c / blocks);
    let depth = depth.ok_or_else(|| Error::corrupt(format!("{c} channels are not divisible into blocks of {b}")))?;
    let x = match o.text("mode", "DCR") {
        "DCR" => o.x(0)?.reshape([n, b, b, depth, h, w]).permute([0, 3, 4, 1, 5, 2]),
        "CRD" => o.x(0)?.reshape([n, depth, b, b, h, w]).permute([0, 1, 4, 2, 5, 3]),
        other => return Err(Error::corrupt(format!("the mode `{other}` is neither DCR nor CRD"))),
    };
    Ok(x.reshape([n, depth, h * b, w * b]).into())
}

/// Crops or pads axes at both sides to given lengths.
fn center_crop_pad(o: &Operands<'_>) -> Result<Results> {
    let (mut x, dims, wanted) = (o.x(0)?.clone(), o.dims(0)?, lengths(&o.numbers(1)?)?);
    let axes = o.list("axes").map_or_else(|| Ok((0..dims.len()).collect()), |axes| axes_of(axes, dims.len()))?;
    if axes.len() != wanted.len() {
        return Err(Error::corrupt(format!("{wanted:?} does not have a length for each axis")));
    }
    for (axis, length) in axes.into_iter().zip(wanted) {
        let old = dims[axis];
        if old >= length {
            x = x.narrow(axis as isize, (old - length) / 2, length);
        } else {
            let before = (length - old) / 2;
            x = padded(&x, axis, (before as i64, (length - old - before) as i64), &Padding::Constant(zero(&x)))?;
        }
    }
    Ok(x.into())
}

/// Elements that are added at the ends of an axis.
pub enum Padding {
    /// This number.
    Constant(Tensor),
    /// Elements mirrored at the first and last one.
    Reflect,
    /// The first and last element.
    Edge,
    /// Elements from the other end.
    Wrap,
}

fn zero(x: &Tensor) -> Tensor {
    scalar(0.0, x.dtype())
}

/// Pads an axis; negative widths remove elements.
pub fn padded(x: &Tensor, axis: usize, (before, after): (i64, i64), padding: &Padding) -> Result<Tensor> {
    let mut dims = x.shape()?.dims().to_vec();
    let cut = |width: i64| usize::try_from(width.saturating_neg().max(0)).unwrap_or(usize::MAX);
    let (first, last) = (cut(before), cut(after));
    let rank = dims.len();
    let out_of_range = || Error::corrupt(format!("axis {axis} is out of range for a tensor with {rank} axes"));
    let length = dims.get(axis).copied().ok_or_else(out_of_range)?;
    let kept = length.checked_sub(first).and_then(|rest| rest.checked_sub(last));
    let kept = kept.ok_or_else(|| Error::corrupt(format!("negative padding removes more than axis {axis} has")))?;
    let x = x.narrow(axis as isize, first, kept);
    let [before, after] = [before, after].map(|width| usize::try_from(width.max(0)).unwrap_or(usize::MAX));
    if (before, after) == (0, 0) {
        return Ok(x);
    }
    let whole = before.checked_add(after).and_then(|width| width.checked_add(kept));
    let whole = whole.ok_or_else(|| Error::corrupt("the padding is too wide"))?;
    dims[axis] = whole;
    numel(&dims)?;
    let mut constant = |width: usize, value: &Tensor| {
        dims[axis] = width;
        value.reshape(()).broadcast_to(dims.clone())
    };
    if let Padding::Constant(value) = padding {
        let parts = [constant(before, value), x, constant(after, value)];
        return Ok(Tensor::concat(parts, axis as isize));
    }
    if kept == 0 || whole > i32::MAX as usize {
        return Err(Error::corrupt(format!("axis {axis} with {kept} elements cannot be padded in this mode")));
    }
    let places: Vec<usize> = (0..whole).map(|at| source(at as i64 - before as i64, kept, padding)).collect();
    Ok(x.index_select(axis as isize, &Tensor::from_indices(&places)))
}

/// Returns the position of the element that is copied to a position, which can be outside of the axis.
fn source(at: i64, length: usize, padding: &Padding) -> usize {
    let length = length as i64;
    let found = match padding {
        Padding::Edge | Padding::Constant(_) => at.clamp(0, length - 1),
        Padding::Wrap => at.rem_euclid(length),
        Padding::Reflect if length == 1 => 0,
        Padding::Reflect => {
            let along = at.rem_euclid(2 * (length - 1));
            along.min(2 * (length - 1) - along)
        }
    };
    found as usize
}

fn pad(o: &Operands<'_>) -> Result<Results> {
    let (mut x, rank) = (o.x(0)?.clone(), o.dims(0)?.len());
    let pads = o.ints("pads", 1)?.ok_or_else(|| Error::corrupt("the widths of the padding are missing"))?;
    let axes = o.optional(3).map_or_else(|| Ok((0..rank).collect()), |_| axes_of(&o.numbers(3)?, rank))?;
    if pads.len() != 2 * axes.len() {
        return Err(Error::corrupt(format!("{} widths do not fit {} padded axes", pads.len(), axes.len())));
    }
    let padding = match o.text("mode", "constant") {
        "constant" => Padding::Constant(match o.optional(2) {
            Some(value) => value.clone(),
            None => scalar(o.float("value", 0.0), x.dtype()),
        }),
        "reflect" => Padding::Reflect,
        "edge" => Padding::Edge,
        "wrap" => Padding::Wrap,
        other => return Err(super::unsupported(format!("padding in the mode `{other}`"))),
    };
    for (n, axis) in axes.iter().enumerate() {
        x = padded(&x, *axis, (pads[n], pads[n + axes.len()]), &padding)?;
    }
    Ok(x.into())
}
