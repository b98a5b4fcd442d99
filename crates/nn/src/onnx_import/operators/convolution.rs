//! Convolutions.

use panoply_tensor::{ConvOptions, ConvTransposeOptions, DType, Error, Result, ScatterReduce, Tensor};

use super::shape::{Padding, padded};
use super::{Operands, Operator, Results, lengths, scalar, shaped, unsupported};

/// Attributes of convolutions.
const CONV: &[&str] = &["auto_pad", "dilations", "group", "kernel_shape", "pads", "strides"];

/// Name, attributes and rule of each operator.
pub const OPERATORS: &[Operator] = &[
    ("Col2Im", &["dilations", "pads", "strides"], col2im),
    ("Conv", CONV, |o| {
        let y = convolve(o, o.x(0)?, o.x(1)?)?;
        Ok(match o.optional(2) {
            Some(bias) => &y + bias.unsqueeze_like_channels(&y),
            None => y,
        }
        .into())
    }),
    ("ConvInteger", CONV, |o| {
        let x = super::linear::without_zero_point(o.x(0)?, o.optional(2), super::linear::Side::Row)?;
        Ok(convolve(o, &x, &filters_without_zero_point(o.x(1)?, o.optional(3))?)?.into())
    }),
    (
        "ConvTranspose",
        &["auto_pad", "dilations", "group", "kernel_shape", "output_padding", "output_shape", "pads", "strides"],
        conv_transpose,
    ),
];

/// Maximum size, stride, dilation and padding of windows.
const MAX_WINDOW: usize = 1 << 24;

/// Sizes, strides, dilations and padding of windows over the last axes.
pub struct Geometry {
    /// Size of a window along each axis.
    pub sizes: Vec<usize>,
    /// Distance between windows.
    pub strides: Vec<usize>,
    /// Distance between the elements of a window.
    pub dilations: Vec<usize>,
    /// Elements added before and after each axis.
    pub pads: Vec<(i64, i64)>,
    /// Elements after the padding that the last window covers in ceil mode.
    pub overhang: Vec<i64>,
}

impl Geometry {
    /// Reads the attributes for windows of these sizes over an input of these lengths.
    pub fn new(o: &Operands<'_>, sizes: &[usize], inputs: &[usize]) -> Result<Geometry> {
        let n = sizes.len();
        let list = |name: &str| match o.list(name) {
            Some(list) => lengths(list),
            None => Ok(vec![1; n]),
        };
        let (strides, dilations) = (list("strides")?, list("dilations")?);
        let is_valid = |list: &[usize]| list.len() == n && list.iter().all(|value| (1..=MAX_WINDOW).contains(value));
        if n == 0 || inputs.len() != n || ![sizes, &strides, &dilations].iter().all(|list| is_valid(list)) {
            return Err(Error::corrupt("sizes, strides and dilations must be positive, one for each spatial axis"));
        }
        let mut geometry =
            Geometry { sizes: sizes.to_vec(), strides, dilations, pads: Vec::new(), overhang: vec![0; n] };
        geometry.pads = geometry.padding(o, inputs)?;
        let is_wide = |width: &i64| width.unsigned_abs() > MAX_WINDOW as u64;
        if geometry.pads.iter().any(|(before, after)| is_wide(before) || is_wide(after)) {
            return Err(Error::corrupt("the padding is too wide"));
        }
        if o.flag("ceil_mode", false) {
            geometry.overhang = (0..n).map(|at| geometry.overhang_along(at, inputs[at])).collect();
        }
        Ok(geometry)
    }

    /// Returns the number of elements from the first to the last of a window.
    pub fn span(&self, at: usize) -> i64 {
        ((self.sizes[at] - 1).saturating_mul(self.dilations[at]) + 1) as i64
    }

    fn padding(&self, o: &Operands<'_>, inputs: &[usize]) -> Result<Vec<(i64, i64)>> {
        let n = self.sizes.len();
        let given = o.list("pads").map_or_else(|| vec![0; 2 * n], <[i64]>::to_vec);
        match o.text("auto_pad", "NOTSET") {
            "" | "NOTSET" if given.len() == 2 * n => Ok((0..n).map(|at| (given[at], given[at + n])).collect()),
            "" | "NOTSET" => Err(Error::corrupt(format!("{} widths of padding do not fit {n} axes", given.len()))),
            "VALID" => Ok(vec![(0, 0); n]),
            mode @ ("SAME_UPPER" | "SAME_LOWER") => Ok((0..n)
                .map(|at| {
                    let count = inputs[at].div_ceil(self.strides[at]) as i64;
                    let total = ((count - 1) * self.strides[at] as i64 + self.span(at) - inputs[at] as i64).max(0);
                    let (less, more) = (total / 2, total - total / 2);
                    if mode == "SAME_UPPER" { (less, more) } else { (more, less) }
                })
                .collect()),
            other => Err(unsupported(format!("auto_pad {other}"))),
        }
    }

    /// Returns how far the last window of ceil mode reaches beyond the padding; it must begin before the padding at the end.
    fn overhang_along(&self, at: usize, input: usize) -> i64 {
        let (stride, (before, after)) = (self.strides[at] as i64, self.pads[at]);
        let room = input as i64 + before + after - self.span(at);
        let mut last = (room + stride - 1).div_euclid(stride);
        if last * stride >= input as i64 + before {
            last -= 1;
        }
        (last * stride - room).max(0)
    }

    /// Pads the last axes, with `beyond` where windows of ceil mode reach beyond the padding.
    pub fn pad(&self, x: &Tensor, value: &Tensor, beyond: &Tensor) -> Result<Tensor> {
        let lead = x.shape()?.ndim().saturating_sub(self.pads.len());
        let mut x = x.clone();
        for (at, pads) in self.pads.iter().enumerate() {
            x = padded(&x, lead + at, *pads, &Padding::Constant(value.clone()))?;
            x = padded(&x, lead + at, (0, self.overhang[at]), &Padding::Constant(beyond.clone()))?;
        }
        Ok(x)
    }

    /// Returns the settings along N axes as arrays: sizes, strides, dilations.
    pub fn arrays<const N: usize>(&self) -> [[usize; N]; 3] {
        [&self.sizes, &self.strides, &self.dilations].map(|list| std::array::from_fn(|at| list[at]))
    }
}

/// Calls a function that is generic in the number of spatial axes.
macro_rules! for_axes {
    ($n:expr, $function:ident($($argument:expr),*)) => {
        match $n {
            1 => Ok($function::<1>($($argument),*)),
            2 => Ok($function::<2>($($argument),*)),
            3 => Ok($function::<3>($($argument),*)),
            n => Err($crate::onnx_import::operators::unsupported(format!("a window over {n} axes"))),
        }
    };
}
pub(super) use for_axes;

fn group(o: &Operands<'_>) -> Result<usize> {
    usize::try_from(o.int("group", 1)).map_err(|_| Error::corrupt("the number of groups is negative"))
}

/// Returns the lengths after batch and channels.
fn spatial(x: &Tensor) -> Result<Vec<usize>> {
    let dims = x.shape()?.dims();
    dims.get(2..).map(<[usize]>::to_vec).ok_or_else(|| Error::corrupt(format!("{dims:?} has no spatial axes")))
}

/// Convolves; padding is zero. Padding that is equal at both ends of an axis is left to the convolution, so that the input is not copied for it.
pub fn convolve(o: &Operands<'_>, x: &Tensor, weight: &Tensor) -> Result<Tensor> {
    let mut geometry = Geometry::new(o, &spatial(weight)?, &spatial(x)?)?;
    let mut padding = Vec::with_capacity(geometry.pads.len());
    for (before, after) in &mut geometry.pads {
        let both = (*before).min(*after).max(0);
        (*before, *after) = (*before - both, *after - both);
        padding.push(both as usize);
    }
    let zero = scalar(0.0, x.dtype());
    let (padded, groups) = (geometry.pad(x, &zero, &zero)?, group(o)?);
    for_axes!(geometry.sizes.len(), conv(&padded, weight, &geometry, &padding, groups))
}

fn conv<const N: usize>(x: &Tensor, weight: &Tensor, geometry: &Geometry, padding: &[usize], groups: usize) -> Tensor {
    let [_, stride, dilation] = geometry.arrays::<N>();
    let padding = std::array::from_fn(|along| padding[along]);
    x.conv(weight, &ConvOptions { stride, padding, dilation, groups })
}

/// Returns integer filters less their zero point, one number or one for each output.
pub fn filters_without_zero_point(weight: &Tensor, zero: Option<&Tensor>) -> Result<Tensor> {
    let wide = weight.cast(DType::I32);
    let Some(zero) = zero else { return Ok(wide) };
    let zero = zero.cast(DType::I32);
    let rank = wide.shape()?.ndim();
    Ok(if zero.numel()? == 1 { wide - zero.reshape(()) } else { wide - super::along_axis(&zero, 0, rank) })
}

/// Computes the whole output, of which padding then removes the edges.
fn conv_transpose(o: &Operands<'_>) -> Result<Results> {
    let (x, weight) = (o.x(0)?, o.x(1)?);
    let (inputs, sizes) = (spatial(x)?, spatial(weight)?);
    let geometry = Geometry::new(o, &sizes, &inputs)?;
    let n = sizes.len();
    let extra = o.list("output_padding").map_or_else(|| vec![0; n], <[i64]>::to_vec);
    let mode = o.text("auto_pad", "NOTSET");
    let wanted = match (o.list("output_shape"), mode) {
        (Some(shape), _) => Some(shape[shape.len().saturating_sub(n)..].to_vec()),
        (None, "SAME_UPPER" | "SAME_LOWER") => {
            Some((0..n).map(|at| (inputs[at] * geometry.strides[at]) as i64).collect())
        }
        _ => None,
    };
    let is_wide = |length: &i64| length.unsigned_abs() > 1 << 40;
    if extra.iter().chain(wanted.iter().flatten()).any(is_wide) {
        return Err(Error::corrupt("output_padding or output_shape is too large"));
    }
    if extra.len() != n || wanted.as_ref().is_some_and(|shape| shape.len() != n) {
        return Err(Error::corrupt("output_padding and output_shape must have a number for each spatial axis"));
    }
    let groups = group(o)?;
    let mut y = for_axes!(n, transposed(x, weight, &geometry, groups))?;
    for at in 0..n {
        let whole = (inputs[at] as i64 - 1) * geometry.strides[at] as i64 + geometry.span(at) + extra[at];
        let (before, after) = match &wanted {
            None => geometry.pads[at],
            Some(shape) => {
                let total = whole - shape[at];
                if total < 0 && o.list("output_shape").is_none() {
                    return Err(unsupported(format!("auto_pad {mode} with a stride that is larger than the filter")));
                }
                let (less, more) = (total.div_euclid(2), total - total.div_euclid(2));
                match mode {
                    // Zeros at the end, as in onnxruntime.
                    _ if total < 0 => (0, total),
                    "SAME_UPPER" => (less, more),
                    _ => (more, less),
                }
            }
        };
        y = padded(&y, 2 + at, (-before, extra[at] - after), &Padding::Constant(scalar(0.0, y.dtype())))?;
    }
    Ok(match o.optional(2) {
        Some(bias) => &y + bias.unsqueeze_like_channels(&y),
        None => y,
    }
    .into())
}

fn transposed<const N: usize>(x: &Tensor, weight: &Tensor, geometry: &Geometry, groups: usize) -> Tensor {
    let [_, stride, dilation] = geometry.arrays::<N>();
    x.conv_transpose(weight, &ConvTransposeOptions { stride, dilation, groups, ..ConvTransposeOptions::default() })
}

/// Adds columns of window elements into an image.
fn col2im(o: &Operands<'_>) -> Result<Results> {
    let (image, block) = (lengths(&o.numbers(1)?)?, lengths(&o.numbers(2)?)?);
    let geometry = Geometry::new(o, &block, &image)?;
    let [batch, rows, columns] = o.x(0)?.dims::<3>()?;
    let elements = super::numel(&block)?;
    if geometry.pads.iter().any(|(before, after)| *before < 0 || *after < 0)
        || image.iter().any(|length| *length > 1 << 31)
    {
        return Err(Error::corrupt("the image is too large, or its padding is negative"));
    }
    let whole: Vec<usize> =
        (0..image.len()).map(|at| image[at] + (geometry.pads[at].0 + geometry.pads[at].1) as usize).collect();
    let counts: Vec<usize> = (0..image.len())
        .map(|at| ((whole[at] as i64 - geometry.span(at)).max(-1) / geometry.strides[at] as i64 + 1) as usize)
        .collect();
    if elements == 0 || !rows.is_multiple_of(elements) || super::numel(&counts)? != columns {
        return Err(Error::corrupt(format!("{rows} × {columns} columns do not fit blocks of {block:?} in {image:?}")));
    }
    let along = |at: usize| {
        let within = Tensor::arange(block[at]) * geometry.dilations[at];
        within.unsqueeze(1) + (Tensor::arange(counts[at]) * geometry.strides[at]).unsqueeze(0)
    };
    // Positions in the padded image, [block…, windows…].
    let mut positions = Tensor::from_slice(&[0i32], []);
    let n = image.len();
    for at in 0..n {
        let mut dims = vec![1; 2 * n];
        (dims[at], dims[n + at]) = (block[at], counts[at]);
        positions = positions * whole[at] + shaped(&along(at), &dims);
    }
    let pixels = super::numel(&whole)?;
    let channels = rows / elements;
    let values = o.x(0)?.reshape([batch * channels, elements * columns]).t();
    let empty = Tensor::zeros([pixels, batch * channels], values.dtype());
    let sums = empty.index_put(&[&positions.reshape([-1])], &values, ScatterReduce::Add).t();
    let mut y = shaped(&sums, &[&[batch, channels], &whole[..]].concat());
    for (at, length) in image.iter().enumerate() {
        y = y.narrow(2 + at as isize, geometry.pads[at].0.max(0) as usize, *length);
    }
    Ok(y.into())
}
