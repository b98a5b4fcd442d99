//! Operators that gather from or scatter to positions.

use panoply_tensor::{DType, Error, Result, ScatterReduce, Tensor};

use super::{Operands, Operator, Results, along_axis, as_matrix, axis_of, numel, shaped, unsupported};

/// Name, attributes and rule of each operator.
pub const OPERATORS: &[Operator] = &[
    ("Gather", &["axis"], |o| {
        let axis = o.axis(0)?;
        let positions = from_front(o.x(1)?, o.dims(0)?[axis]);
        Ok(o.x(0)?.index_select(axis as isize, &positions).into())
    }),
    ("GatherElements", &["axis"], gather_elements),
    ("GatherND", &["batch_dims"], gather_nd),
    ("OneHot", &["axis"], one_hot),
    ("ReverseSequence", &["batch_axis", "time_axis"], reverse_sequence),
    ("Scatter", &["axis"], scatter_elements),
    ("ScatterElements", &["axis", "reduction"], scatter_elements),
    ("ScatterND", &["reduction"], scatter_nd),
    ("TensorScatter", &["axis", "mode"], tensor_scatter),
];

/// Returns positions along an axis as i64, with negative ones counted from the end.
fn from_front(positions: &Tensor, length: usize) -> Tensor {
    let positions = positions.cast(DType::I64);
    (&positions + length).where_self(&positions.lt(0), &positions)
}

fn gather_elements(o: &Operands<'_>) -> Result<Results> {
    let (axis, dims, wanted) = (o.axis(0)?, o.dims(0)?, o.dims(1)?);
    if wanted.len() != dims.len() {
        return Err(Error::corrupt(format!("indices {wanted:?} have other axes than the data {dims:?}")));
    }
    let positions = from_front(o.x(1)?, dims[axis]);
    let others = (0..dims.len()).filter(|other| *other != axis);
    let x = others.fold(o.x(0)?.clone(), |x, other| x.narrow(other as isize, 0, wanted[other]));
    Ok(x.take_along_dim(&positions, axis as isize).into())
}

/// Returns each component of index vectors in the last axis, counted from the front of the axes that they index.
fn components(positions: &Tensor, lengths: &[usize]) -> Result<Vec<Tensor>> {
    let parts = positions.unbind(-1);
    match parts.len() == lengths.len() {
        true => Ok(parts.iter().zip(lengths).map(|(part, length)| from_front(part, *length)).collect()),
        false => Err(Error::corrupt("the index vectors do not fit the axes of the data")),
    }
}

/// Returns the number of components of the index vectors (operand 1) after `batch` axes.
fn depth(o: &Operands<'_>, batch: usize) -> Result<usize> {
    let (dims, wanted) = (o.dims(0)?, o.dims(1)?);
    let depth =
        wanted.last().copied().filter(|depth| *depth > 0 && batch + depth <= dims.len() && batch < wanted.len());
    depth.ok_or_else(|| Error::corrupt(format!("index vectors {wanted:?} do not fit the data {dims:?}")))
}

fn gather_nd(o: &Operands<'_>) -> Result<Results> {
    let batch = usize::try_from(o.int("batch_dims", 0)).map_err(|_| Error::corrupt("batch_dims is negative"))?;
    let (dims, wanted, depth) = (o.dims(0)?, o.dims(1)?, depth(o, batch)?);
    let mut positions: Vec<Tensor> = (0..batch)
        .map(|axis| along_axis(&Tensor::arange(dims[axis]).cast(DType::I64), axis, wanted.len() - 1))
        .collect();
    positions.extend(components(o.x(1)?, &dims[batch..batch + depth])?);
    Ok(o.x(0)?.index(&positions.iter().collect::<Vec<&Tensor>>()).into())
}

/// Returns one value at the class and another elsewhere, in a new axis.
fn one_hot(o: &Operands<'_>) -> Result<Results> {
    let depth = o.number(1)?.and_then(|depth| usize::try_from(depth).ok());
    let depth = depth.ok_or_else(|| Error::corrupt("the number of classes is negative or missing"))?;
    let rank = o.dims(0)?.len() + 1;
    let axis = axis_of(o.int("axis", -1), rank)?;
    let values = o.x(2)?;
    let classes = along_axis(&Tensor::arange(depth).cast(DType::I64), axis, rank);
    let hit = from_front(o.x(0)?, depth).unsqueeze(axis as isize).eq(classes);
    let [off, on] = [0, 1].map(|at| values.narrow(0, at, 1).reshape(()));
    Ok(on.where_self(&hit, off).into())
}

/// Reverses the first elements of each sequence, as many as operand 1 says.
fn reverse_sequence(o: &Operands<'_>) -> Result<Results> {
    let dims = o.dims(0)?;
    let [time, batch] =
        [("time_axis", 0), ("batch_axis", 1)].map(|(name, value)| axis_of(o.int(name, value), dims.len()));
    let (time, batch) = (time?, batch?);
    let at = along_axis(&Tensor::arange(dims[time]).cast(DType::I64), time, dims.len());
    let valid = along_axis(&o.x(1)?.cast(DType::I64), batch, dims.len());
    let positions = (&valid - &at - 1).where_self(&at.lt(&valid), &at);
    Ok(o.x(0)?.take_along_dim(&positions.broadcast_to(dims), time as isize).into())
}

/// Combines `values` with the elements of a vector or with the rows of a matrix at positions.
fn scatter(x: &Tensor, positions: &Tensor, values: &Tensor, reduction: &str) -> Result<Tensor> {
    let put =
        |x: &Tensor, positions: &Tensor, values: &Tensor| x.index_put(&[positions], values, ScatterReduce::Assign);
    let combine: fn(&Tensor, &Tensor) -> Tensor = match reduction {
        "none" => return Ok(put(x, positions, values)),
        "add" => return Ok(x.index_put(&[positions], values, ScatterReduce::Add)),
        "mul" => |a, b| a * b,
        "max" => |a, b| a.maximum(b),
        "min" => |a, b| a.minimum(b),
        other => return Err(Error::corrupt(format!("the reduction `{other}` is unknown"))),
    };
    let read = positions.cast(DType::I64).to_vec::<i64>();
    let places =
        read.map_err(|error| unsupported("a reduction at positions that depend on the inputs").note(error.message()))?;
    // In each round every position occurs once at most.
    let mut rounds: Vec<Vec<usize>> = Vec::new();
    let mut seen = std::collections::BTreeMap::new();
    for (n, place) in places.iter().enumerate() {
        let round: &mut usize = seen.entry(place).or_insert(0);
        if *round == rounds.len() {
            rounds.push(Vec::new());
        }
        rounds[*round].push(n);
        *round += 1;
    }
    Ok(rounds.iter().fold(x.clone(), |x, round| {
        let chosen = Tensor::from_indices(round);
        let (at, new) = (positions.index_select(0, &chosen), values.index_select(0, &chosen));
        put(&x, &at, &combine(&x.index_select(0, &at), &new))
    }))
}

/// Returns positions in the flattened tensor of this shape.
fn flat_positions(parts: &[Tensor], dims: &[usize]) -> Tensor {
    let first = Tensor::from_slice(&[0i64], []);
    parts.iter().zip(dims).fold(first, |sum, (part, length)| sum * *length + part)
}

fn scatter_elements(o: &Operands<'_>) -> Result<Results> {
    let (axis, dims, wanted) = (o.axis(0)?, o.dims(0)?, o.dims(1)?);
    if wanted.len() != dims.len() {
        return Err(Error::corrupt(format!("indices {wanted:?} have other axes than the data {dims:?}")));
    }
    let index = from_front(o.x(1)?, dims[axis]);
    let along = |other: usize| match other == axis {
        true => index.clone(),
        false => along_axis(&Tensor::arange(wanted[other]).cast(DType::I64), other, dims.len()),
    };
    let parts: Vec<Tensor> = (0..dims.len()).map(along).collect();
    let positions = flat_positions(&parts, &dims).broadcast_to(wanted).reshape([-1]);
    let x = scatter(&o.x(0)?.reshape([-1]), &positions, &o.x(2)?.reshape([-1]), o.text("reduction", "none"))?;
    Ok(shaped(&x, &dims).into())
}

fn scatter_nd(o: &Operands<'_>) -> Result<Results> {
    let (dims, depth) = (o.dims(0)?, depth(o, 0)?);
    let parts = components(o.x(1)?, &dims[..depth])?;
    let positions = flat_positions(&parts, &dims[..depth]).reshape([-1]);
    let [rows, columns] = as_matrix(&dims, depth);
    let values = o.x(2)?.reshape([positions.numel()?, columns]);
    let x = scatter(&o.x(0)?.reshape([rows, columns]), &positions, &values, o.text("reduction", "none"))?;
    Ok(shaped(&x, &dims).into())
}

/// Writes an update to a cache at a position along an axis, which can differ between the elements of the batch.
fn tensor_scatter(o: &Operands<'_>) -> Result<Results> {
    let (dims, update) = (o.dims(0)?, o.dims(1)?);
    let axis = axis_of(o.int("axis", -2), dims.len())?;
    let (batch, rank) = (dims[0], dims.len());
    if axis == 0 || update.len() != rank || numel(&dims)? == 0 {
        return Err(Error::corrupt(format!("an update {update:?} does not fit the cache {dims:?}")));
    }
    let starts = match o.optional(2) {
        Some(starts) => starts.cast(DType::I64),
        None => Tensor::zeros([batch], DType::I64),
    };
    let along = |other: usize| {
        let own = along_axis(&Tensor::arange(update[other]).cast(DType::I64), other, rank);
        let place = if other == axis { own + along_axis(&starts, 0, rank) } else { own };
        if other == axis && o.text("mode", "linear") == "circular" { place % dims[axis] } else { place }
    };
    let parts: Vec<Tensor> = (0..rank).map(along).collect();
    let positions = flat_positions(&parts, &dims).broadcast_to(update).reshape([-1]);
    let x = scatter(&o.x(0)?.reshape([-1]), &positions, &o.x(1)?.reshape([-1]), "none")?;
    Ok(shaped(&x, &dims).into())
}
