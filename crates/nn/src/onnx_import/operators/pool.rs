//! Pooling.

use panoply_tensor::{DType, Error, KeepDim, Result, ScatterReduce, Tensor, Window};

use super::convolution::{Geometry, for_axes};
use super::reduce::lowest;
use super::shape::{Padding, padded};
use super::{Operands, Operator, Results, lengths, numel, scalar, shaped};

/// Name, attributes and rule of each operator.
pub const OPERATORS: &[Operator] = &[
    (
        "AveragePool",
        &["auto_pad", "ceil_mode", "count_include_pad", "dilations", "kernel_shape", "pads", "strides"],
        average_pool,
    ),
    ("GlobalAveragePool", &[], |o| over_spatial(o, |x, axes| x.mean(KeepDim(axes)))),
    ("GlobalLpPool", &["p"], |o| {
        let p = o.int("p", 2) as f64;
        over_spatial(o, |x, axes| x.abs().pow(p).sum(KeepDim(axes)).pow(1.0 / p))
    }),
    ("GlobalMaxPool", &[], |o| over_spatial(o, |x, axes| x.max(KeepDim(axes)))),
    ("LpPool", &["auto_pad", "ceil_mode", "dilations", "kernel_shape", "p", "pads", "strides"], lp_pool),
    ("MaxPool", &["auto_pad", "ceil_mode", "dilations", "kernel_shape", "pads", "storage_order", "strides"], max_pool),
    ("MaxUnpool", &["kernel_shape", "pads", "strides"], max_unpool),
];

fn over_spatial(o: &Operands<'_>, f: impl Fn(&Tensor, &[isize]) -> Tensor) -> Result<Results> {
    let axes: Vec<isize> = (2..o.dims(0)?.len() as isize).collect();
    o.map(|x| f(x, &axes))
}

fn geometry(o: &Operands<'_>) -> Result<Geometry> {
    let (sizes, dims) = (lengths(o.list("kernel_shape").unwrap_or_default())?, o.dims(0)?);
    Geometry::new(o, &sizes, dims.get(2..).unwrap_or_default())
}

fn window<const N: usize>(geometry: &Geometry) -> Window<N> {
    let [kernel_size, stride, dilation] = geometry.arrays::<N>();
    Window { kernel_size, stride, padding: [0; N], dilation }
}

/// Returns the mean of each window.
fn mean<const N: usize>(x: &Tensor, geometry: &Geometry) -> Tensor {
    x.avg_pool(&window::<N>(geometry))
}

/// Returns the windows in the last axis: `[batch, channels, positions…, elements]`.
fn windows<const N: usize>(x: &Tensor, geometry: &Geometry) -> Tensor {
    x.unfold(&window::<N>(geometry)).flatten(-(N as isize), -1)
}

fn maximum<const N: usize>(x: &Tensor, geometry: &Geometry) -> Tensor {
    x.max_pool(&window::<N>(geometry))
}

/// Returns means of the elements of each window; padding counts if the attribute says so.
fn average_pool(o: &Operands<'_>) -> Result<Results> {
    let (geometry, x) = (geometry(o)?, o.x(0)?);
    let n = geometry.sizes.len();
    let wide = if x.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
    let (zero, one) = (scalar(0.0, wide), scalar(1.0, wide));
    let padding = if o.flag("count_include_pad", false) { &one } else { &zero };
    let ones = Tensor::ones(&[&[1, 1], &o.dims(0)?[2..]].concat()[..], wide);
    let (elements, counted) = (geometry.pad(&x.cast(wide), &zero, &zero)?, geometry.pad(&ones, padding, &zero)?);
    let (sums, counts) = (for_axes!(n, mean(&elements, &geometry))?, for_axes!(n, mean(&counted, &geometry))?);
    Ok((sums / counts).cast(x.dtype()).into())
}

fn lp_pool(o: &Operands<'_>) -> Result<Results> {
    let (geometry, x, p) = (geometry(o)?, o.x(0)?, o.int("p", 2) as f64);
    let (zero, count) = (scalar(0.0, x.dtype()), numel(&geometry.sizes)? as f64);
    let powers = geometry.pad(&x.abs().pow(p), &zero, &zero)?;
    let means = for_axes!(geometry.sizes.len(), mean(&powers, &geometry))?;
    Ok((means * count).pow(1.0 / p).into())
}

fn max_pool(o: &Operands<'_>) -> Result<Results> {
    let (geometry, x) = (geometry(o)?, o.x(0)?);
    let n = geometry.sizes.len();
    let low = scalar(lowest(x.dtype()), x.dtype());
    let padded = geometry.pad(x, &low, &low)?;
    if !o.uses(1) {
        return Ok(for_axes!(n, maximum(&padded, &geometry))?.into());
    }
    let columns = for_axes!(n, windows(&padded, &geometry))?;
    let best = columns.argmax(KeepDim(-1isize));
    let values = columns.take_along_dim(&best, -1).squeeze(-1isize);
    let none = scalar(0.0, DType::I64);
    let places = geometry.pad(&positions(&o.dims(0)?, o.flag("storage_order", false))?, &none, &none)?;
    let indices =
        for_axes!(n, windows(&places, &geometry))?.take_along_dim(&best.cast(DType::I64), -1).squeeze(-1isize);
    Ok([values, indices].into())
}

/// Returns the position of each element in the flattened tensor, in which the last two axes can be in column-major order.
fn positions(dims: &[usize], is_column_major: bool) -> Result<Tensor> {
    let count = numel(dims)?;
    let row_major = Tensor::arange(count).cast(DType::I64);
    if !is_column_major {
        return Ok(shaped(&row_major, dims));
    }
    let mut reversed = dims.to_vec();
    reversed[2..].reverse();
    let order = [0, 1].into_iter().chain((2..dims.len() as isize).rev()).collect::<Vec<isize>>();
    Ok(shaped(&row_major, &reversed).permute(order))
}

/// Puts elements back at the positions that `MaxPool` gave; all others are zero.
fn max_unpool(o: &Operands<'_>) -> Result<Results> {
    let (dims, geometry) = (o.dims(0)?, geometry(o)?);
    let length = |at: usize| {
        let (before, after) = geometry.pads[at];
        let length =
            (dims[at + 2] as i64 - 1) * geometry.strides[at] as i64 + geometry.sizes[at] as i64 - before - after;
        usize::try_from(length).map_err(|_| Error::corrupt("the padding is larger than the output"))
    };
    let spatial = (0..geometry.sizes.len()).map(length).collect::<Result<Vec<usize>>>()?;
    let inferred = [&dims[..2], &spatial].concat();
    let (x, count) = (o.x(0)?.reshape([-1]), numel(&inferred)?);
    let flat = Tensor::zeros([count], x.dtype());
    let flat = flat.index_put(&[&o.x(1)?.reshape([-1])], &x, ScatterReduce::Assign);
    let mut y = shaped(&flat, &inferred);
    if o.optional(2).is_some() {
        for (axis, wanted) in lengths(&o.numbers(2)?)?.into_iter().enumerate().take(inferred.len()) {
            let more = wanted as i64 - inferred[axis] as i64;
            y = padded(&y, axis, (0, more), &Padding::Constant(scalar(0.0, y.dtype())))?;
        }
    }
    Ok(y.into())
}
