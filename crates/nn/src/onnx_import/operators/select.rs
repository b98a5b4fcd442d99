//! Operators whose results depend on the order or the number of elements with a property. The number is read back.

use std::cmp::Ordering;

use panoply_tensor::{DType, Error, Result, SortOrder, Tensor};

use super::{Operands, Operator, Results, axis_of, host_reals, numel, unsupported};

/// Name, attributes and rule of each operator.
pub const OPERATORS: &[Operator] = &[
    ("Compress", &["axis"], compress),
    ("NonMaxSuppression", &["center_point_box"], non_max_suppression),
    ("NonZero", &[], non_zero),
    ("TopK", &["axis", "k", "largest", "sorted"], topk),
    ("Unique", &["axis", "sorted"], unique),
];

fn topk(o: &Operands<'_>) -> Result<Results> {
    let axis = o.axis(-1)?;
    let count = match o.attributes.get("k") {
        Some(attribute) => Some(attribute.int),
        None => o.number(1)?,
    };
    let count = count
        .and_then(|count| usize::try_from(count).ok())
        .filter(|count| o.dims(0).is_ok_and(|dims| *count <= dims[axis]));
    let count =
        count.ok_or_else(|| Error::corrupt(format!("there are fewer elements along axis {axis} than requested")))?;
    let (x, at) = (o.x(0)?, axis as isize);
    if o.flag("largest", true) {
        let top = x.topk(count, at);
        return Ok([top.values, top.indices.cast(DType::I64)].into());
    }
    let indices = x.argsort(at, SortOrder::Ascending).narrow(at, 0, count);
    Ok([x.take_along_dim(&indices, at), indices.cast(DType::I64)].into())
}

/// Returns the elements, or the parts along an axis, for which a condition holds.
fn compress(o: &Operands<'_>) -> Result<Results> {
    let holds = o.numbers(1)?;
    let (x, axis) = match o.attributes.get("axis") {
        Some(attribute) => (o.x(0)?.clone(), axis_of(attribute.int, o.dims(0)?.len())?),
        None => (o.x(0)?.reshape([-1]), 0),
    };
    let chosen: Vec<usize> = (0..holds.len()).filter(|n| holds[*n] != 0).collect();
    if chosen.last().is_some_and(|last| *last >= x.shape().map_or(0, |shape| shape.dims()[axis])) {
        return Err(Error::corrupt("the condition is longer than the axis"));
    }
    Ok(x.index_select(axis as isize, &Tensor::from_indices(&chosen)).into())
}

/// Returns the positions of elements that are not zero, one row for each axis.
fn non_zero(o: &Operands<'_>) -> Result<Results> {
    let (dims, values) = (o.dims(0)?, o.reals(0)?);
    let found: Vec<usize> = (0..values.len()).filter(|at| values[*at] != 0.0).collect();
    let mut rows = Vec::with_capacity(found.len() * dims.len());
    for axis in 0..dims.len() {
        let stride = numel(&dims[axis + 1..])?;
        rows.extend(found.iter().map(|at| (at / stride % dims[axis]) as i64));
    }
    Ok(Tensor::from_slice(&rows, [dims.len(), found.len()]).into())
}

/// Returns the distinct elements or parts along an axis; their first positions; for each element the position of its equal; counts.
fn unique(o: &Operands<'_>) -> Result<Results> {
    if matches!(o.x(0)?.dtype(), DType::I64 | DType::U64)
        && o.reals(0)?.iter().any(|value| value.abs() >= (1u64 << 53) as f64)
    {
        return Err(unsupported("Unique of integers of more than 53 bits"));
    }
    let (x, axis) = match o.attributes.get("axis") {
        Some(attribute) => (o.x(0)?.clone(), axis_of(attribute.int, o.dims(0)?.len())?),
        None => (o.x(0)?.reshape([-1]), 0),
    };
    let count = x.shape()?.dims()[axis];
    let values = host_reals(&x.movedim(axis as isize, 0))?;
    let width = values.len().checked_div(count).unwrap_or(0);
    let row = |n: usize| &values[n * width..(n + 1) * width];
    let compare = |a: &[f64], b: &[f64]| {
        let orders = a.iter().zip(b).map(|(a, b)| a.total_cmp(b));
        orders.into_iter().find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    };
    let mut sorted: Vec<usize> = (0..count).collect();
    sorted.sort_by(|a, b| compare(row(*a), row(*b)));
    // Groups of equal rows; the sort is stable, so the first of a group is its first position.
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for n in sorted {
        match groups.last_mut() {
            Some(group) if compare(row(group[0]), row(n)).is_eq() => group.push(n),
            _ => groups.push(vec![n]),
        }
    }
    if !o.flag("sorted", true) {
        groups.sort_by_key(|group| group[0]);
    }
    let mut inverse = vec![0i64; count];
    for (n, group) in groups.iter().enumerate() {
        group.iter().for_each(|member| inverse[*member] = n as i64);
    }
    let first: Vec<usize> = groups.iter().map(|group| group[0]).collect();
    let counts: Vec<i64> = groups.iter().map(|group| group.len() as i64).collect();
    let integers = |values: &[i64]| Tensor::from_slice(values, [values.len()]);
    let distinct = x.index_select(axis as isize, &Tensor::from_indices(&first));
    Ok([distinct, Tensor::from_indices(&first).cast(DType::I64), integers(&inverse), integers(&counts)].into())
}

/// A box as its lower and upper corner.
type Corners = [f64; 4];

fn corners(values: &[f64], is_center: bool) -> Corners {
    let &[a, b, c, d] = values else { return [0.0; 4] };
    match is_center {
        true => [b - d / 2.0, a - c / 2.0, b + d / 2.0, a + c / 2.0],
        false => [a.min(c), b.min(d), a.max(c), b.max(d)],
    }
}

/// Returns the intersection of two boxes divided by their union.
fn overlap(a: &Corners, b: &Corners) -> f64 {
    let area = |c: &Corners| (c[2] - c[0]) * (c[3] - c[1]);
    let sides = [0, 1].map(|at| (a[at + 2].min(b[at + 2]) - a[at].max(b[at])).max(0.0));
    let common = sides[0] * sides[1];
    let all = area(a) + area(b) - common;
    if all > 0.0 { common / all } else { 0.0 }
}

/// Selects boxes by their score, without those that overlap a box with a higher score.
fn non_max_suppression(o: &Operands<'_>) -> Result<Results> {
    let ([batches, boxes, four], [_, classes, scored]) = (o.x(0)?.dims::<3>()?, o.x(1)?.dims::<3>()?);
    if four != 4 || scored != boxes || o.dims(1)?[0] != batches {
        return Err(Error::corrupt("the boxes and their scores do not fit together"));
    }
    let (places, scores) = (o.reals(0)?, o.reals(1)?);
    let most = usize::try_from(o.number(2)?.unwrap_or(0)).unwrap_or(0);
    let limit = |n: usize| Ok::<_, Error>(if o.optional(n).is_some() { o.reals(n)?.first().copied() } else { None });
    let (most_overlap, least_score) = (limit(3)?.unwrap_or(0.0), limit(4)?.unwrap_or(f64::NEG_INFINITY));
    let is_center = o.flag("center_point_box", false);
    let mut selected: Vec<i64> = Vec::new();
    for (batch, class) in (0..batches).flat_map(|batch| (0..classes).map(move |class| (batch, class))) {
        let score = |n: usize| scores[(batch * classes + class) * boxes + n];
        let corners = |n: usize| corners(&places[(batch * boxes + n) * 4..][..4], is_center);
        let mut order: Vec<usize> = (0..boxes).filter(|n| score(*n) > least_score).collect();
        order.sort_by(|a, b| score(*b).total_cmp(&score(*a)));
        let mut kept: Vec<Corners> = Vec::new();
        for n in order {
            let candidate = corners(n);
            if kept.len() < most && kept.iter().all(|other| overlap(other, &candidate) <= most_overlap) {
                kept.push(candidate);
                selected.extend([batch as i64, class as i64, n as i64]);
            }
        }
    }
    Ok(Tensor::from_slice(&selected, [selected.len() / 3, 3]).into())
}
