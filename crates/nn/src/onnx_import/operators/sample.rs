//! Sampling at computed coordinates.

use panoply_tensor::{DType, Error, Result, Tensor};

use super::convolution::Geometry;
use super::{Operands, Operator, Results, along_axis, lengths, numel, scalar, shaped, unsupported};

/// Name, attributes and rule of each operator.
pub const OPERATORS: &[Operator] = &[
    ("AffineGrid", &["align_corners"], affine_grid),
    ("DeformConv", &["dilations", "group", "kernel_shape", "offset_group", "pads", "strides"], deform_conv),
    ("GridSample", &["align_corners", "mode", "padding_mode"], grid_sample),
    (
        "RoiAlign",
        &["coordinate_transformation_mode", "mode", "output_height", "output_width", "sampling_ratio", "spatial_scale"],
        roi_align,
    ),
];

/// Returns the coordinates −1 … 1 of the elements of an axis: of their centers, or with the first and last at the ends.
fn centers(length: usize, align_corners: bool, dtype: DType) -> Tensor {
    let at = Tensor::arange(length).cast(dtype);
    match align_corners {
        true if length > 1 => at * (2.0 / (length - 1) as f64) - 1.0,
        true => at - 1.0,
        false => (at * 2.0 + 1.0) / length as f64 - 1.0,
    }
}

/// Returns the coordinates of a grid of the size in operand 1 after affine transformations.
fn affine_grid(o: &Operands<'_>) -> Result<Results> {
    let (theta, size) = (o.x(0)?, lengths(&o.numbers(1)?)?);
    let Some(spatial) = size.get(2..).filter(|spatial| (2..=3).contains(&spatial.len())) else {
        return Err(Error::corrupt(format!("{size:?} is not the size of a batch of images or volumes")));
    };
    let n = spatial.len();
    let ones = scalar(1.0, theta.dtype()).broadcast_to(spatial.to_vec());
    let along = |axis: usize| {
        let vector = centers(spatial[axis], o.flag("align_corners", false), theta.dtype());
        along_axis(&vector, axis, n).broadcast_to(spatial.to_vec())
    };
    // The last coordinate is that of the first spatial axis.
    let coordinates: Vec<Tensor> = (0..n).rev().map(along).chain([ones]).collect();
    let points = Tensor::stack(&coordinates, -1).reshape([numel(spatial)?, n + 1]);
    let grid = points.unsqueeze(0).matmul(&theta.t());
    Ok(shaped(&grid, &[&[size[0]], spatial, &[n]].concat()).into())
}

/// Reflects coordinates at two bounds.
fn reflected(x: &Tensor, low: f64, high: f64) -> Tensor {
    let span = high - low;
    if span <= 0.0 {
        return x.zeros_like();
    }
    let along = (x - low).abs().remainder(scalar(2.0 * span, x.dtype()));
    along.minimum(along.rsub(2.0 * span)) + low
}

/// An image from which elements are read, `[batch, channels, pixels]`.
struct Image<'a> {
    pixels: Tensor,
    lengths: &'a [usize],
    padding: &'a str,
    align_corners: bool,
}

impl Image<'_> {
    /// Moves a coordinate along an axis into the image, as the padding mode says.
    fn inside(&self, at: &Tensor, axis: usize) -> Tensor {
        let length = self.lengths[axis] as f64;
        let last = scalar(length - 1.0, at.dtype());
        let clamped = |x: &Tensor| x.maximum(x.zeros_like()).minimum(&last);
        match self.padding {
            "border" => clamped(at),
            "reflection" if self.align_corners => clamped(&reflected(at, 0.0, length - 1.0)),
            "reflection" => clamped(&reflected(at, -0.5, length - 0.5)),
            _ => at.clone(),
        }
    }

    /// Returns the elements at whole coordinates, `[batch, channels, points]`; those outside are 0.
    fn read(&self, places: &[Tensor]) -> Result<Tensor> {
        let mut flat = places[0].zeros_like();
        let mut valid = flat.eq(&flat);
        for (axis, place) in places.iter().enumerate() {
            let place = self.inside(place, axis);
            let last = scalar(self.lengths[axis] as f64 - 1.0, place.dtype());
            valid = valid & place.ge(place.zeros_like()) & place.le(&last);
            flat = flat * self.lengths[axis] as f64 + place.maximum(place.zeros_like()).minimum(&last);
        }
        let dims = self.pixels.dims::<3>()?;
        let points = flat.shape()?.dims().last().copied().unwrap_or(0);
        let index = flat.cast(DType::I64).unsqueeze(1).broadcast_to([dims[0], dims[1], points]);
        let found = self.pixels.take_along_dim(&index, 2);
        Ok(found.where_self(&valid.unsqueeze(1), found.zeros_like()))
    }

    /// Sums products of weights over the elements around a point. `taps` has for each axis places and weights.
    fn weighted(&self, taps: &[Vec<(Tensor, Tensor)>]) -> Result<Tensor> {
        let mut choices: Vec<Vec<&(Tensor, Tensor)>> = vec![Vec::new()];
        for axis in taps {
            choices = choices.iter().flat_map(|chosen| axis.iter().map(|tap| [&chosen[..], &[tap]].concat())).collect();
        }
        let mut sum: Option<Tensor> = None;
        for chosen in choices {
            let places: Vec<Tensor> = chosen.iter().map(|(place, _)| place.clone()).collect();
            let weights = chosen.iter().skip(1).fold(chosen[0].1.clone(), |product, (_, weight)| product * weight);
            let term = self.read(&places)? * weights.unsqueeze(1);
            sum = Some(sum.map_or_else(|| term.clone(), |sum| sum + &term));
        }
        sum.ok_or_else(|| Error::corrupt("an image has no spatial axes"))
    }
}

/// Returns the weight of an element in cubic interpolation.
fn cubic(distance: &Tensor) -> Tensor {
    let (a, d) = (-0.75, distance.abs());
    let near = ((&d * (a + 2.0) - (a + 3.0)) * &d * &d) + 1.0;
    let far = ((&d * a - 5.0 * a) * &d + 8.0 * a) * &d - 4.0 * a;
    let far = far.where_self(&d.lt(2.0), d.zeros_like());
    near.where_self(&d.le(1.0), far)
}

/// Returns places and weights of the elements around a coordinate.
fn taps(at: &Tensor, mode: &str) -> Vec<(Tensor, Tensor)> {
    let below = at.floor();
    match mode {
        "nearest" => vec![(at.round(), at.ones_like())],
        "cubic" | "bicubic" => {
            (-1..=2).map(|step| &below + step).map(|place| (place.clone(), cubic(&(at - &place)))).collect()
        }
        _ => (0..=1).map(|step| &below + step).map(|place| (place.clone(), 1.0 - (at - &place).abs())).collect(),
    }
}

fn grid_sample(o: &Operands<'_>) -> Result<Results> {
    let (dims, grid_dims) = (o.dims(0)?, o.dims(1)?);
    let n = dims.len().saturating_sub(2);
    if !(1..=3).contains(&n)
        || grid_dims.len() != n + 2
        || grid_dims[n + 1] != n
        || grid_dims[0] != dims[0]
        || numel(&dims)? == 0
    {
        return Err(Error::corrupt(format!("a grid {grid_dims:?} does not fit the image {dims:?}")));
    }
    let (mode, padding) = (o.text("mode", "linear"), o.text("padding_mode", "zeros"));
    if !["linear", "bilinear", "nearest", "cubic", "bicubic"].contains(&mode) {
        return Err(unsupported(format!("sampling in the mode {mode}")));
    }
    let align_corners = o.flag("align_corners", false);
    let points = numel(&grid_dims[1..=n])?;
    let grid = o.x(1)?.reshape([dims[0], points, n]);
    let pixels = o.x(0)?.reshape([dims[0], dims[1], numel(&dims[2..])?]);
    let image = Image { pixels, lengths: &dims[2..], padding, align_corners };
    let along = |axis: usize| {
        let at = grid.narrow(-1, n - 1 - axis, 1).squeeze(-1isize) + 1.0;
        let length = dims[2 + axis] as f64;
        let at = if align_corners { at * ((length - 1.0) / 2.0) } else { (at * length - 1.0) / 2.0 };
        // Cubic interpolation moves the elements around a point into the image, other modes the point.
        if mode.ends_with("cubic") { at } else { image.inside(&at, axis) }
    };
    let taps: Vec<Vec<(Tensor, Tensor)>> = (0..n).map(|axis| taps(&along(axis), mode)).collect();
    let values = image.weighted(&taps)?;
    Ok(shaped(&values.cast(o.x(0)?.dtype()), &[&dims[..2], &grid_dims[1..=n]].concat()).into())
}

/// Convolves with filters whose elements are moved by offsets. Operands: x, filters, offsets, bias, mask.
fn deform_conv(o: &Operands<'_>) -> Result<Results> {
    let ([batch, channels, height, width], [outputs, depth, rows, columns]) =
        (o.x(0)?.dims::<4>()?, o.x(1)?.dims::<4>()?);
    let geometry = Geometry::new(o, &[rows, columns], &[height, width])?;
    let [_, _, out_h, out_w] = o.x(2)?.dims::<4>()?;
    let count = |name: &str| usize::try_from(o.int(name, 1)).ok().filter(|count| *count > 0);
    let (Some(groups), Some(moved)) = (count("group"), count("offset_group")) else {
        return Err(Error::corrupt("the number of groups must be at least 1"));
    };
    let fits =
        channels.is_multiple_of(moved) && outputs.is_multiple_of(groups) && depth.checked_mul(groups) == Some(channels);
    if !fits || numel(&[height, width])? == 0 {
        return Err(Error::corrupt("the channels of a deformable convolution do not fit its groups"));
    }
    // [batch, groups, elements, components, out_h, out_w]
    let offsets = o.x(2)?.reshape([batch, moved, rows * columns, 2, out_h, out_w]);
    let mask = o.optional(4).map(|mask| mask.reshape([batch, moved, 1, rows * columns * out_h * out_w]));
    let sizes = [(rows, out_h), (columns, out_w)];
    let coordinates = |group: usize, axis: usize| {
        let (size, out) = sizes[axis];
        let within = along_axis(&(Tensor::arange(size) * geometry.dilations[axis]), axis, 4);
        let start = along_axis(&(Tensor::arange(out) * geometry.strides[axis]), 2 + axis, 4);
        let place = (within + start - geometry.pads[axis].0).cast(o.x(0)?.dtype());
        let place = place.broadcast_to([rows, columns, out_h, out_w]).reshape([1, rows * columns, out_h, out_w]);
        let offset = offsets.narrow(1, group, 1).narrow(3, axis, 1).reshape([batch, rows * columns, out_h, out_w]);
        Ok::<Tensor, Error>((place + offset).reshape([batch, rows * columns * out_h * out_w]))
    };
    let mut parts = Vec::new();
    for group in 0..moved {
        let part = o.x(0)?.narrow(1, group * (channels / moved), channels / moved);
        let pixels = part.reshape([batch, channels / moved, height * width]);
        let image = Image { pixels, lengths: &[height, width], padding: "zeros", align_corners: false };
        let values =
            image.weighted(&[taps(&coordinates(group, 0)?, "linear"), taps(&coordinates(group, 1)?, "linear")])?;
        parts.push(match &mask {
            Some(mask) => values * mask.narrow(1, group, 1).squeeze(1isize),
            None => values,
        });
    }
    let columns = Tensor::concat(parts, 1).reshape([batch, groups, depth * rows * columns, out_h * out_w]);
    let weight = o.x(1)?.reshape([groups, outputs / groups, depth * sizes[0].0 * sizes[1].0]);
    let y = weight.matmul(&columns).reshape([batch, outputs, out_h, out_w]);
    Ok(match o.optional(3) {
        Some(bias) => &y + bias.unsqueeze_like_channels(&y),
        None => y,
    }
    .into())
}

/// Pools interpolated elements of regions. The number of samples must not depend on the regions.
fn roi_align(o: &Operands<'_>) -> Result<Results> {
    let [_, channels, height, width] = o.x(0)?.dims::<4>()?;
    let regions = o.dims(1)?.first().copied().unwrap_or(0);
    let (scale, ratio) = (o.float("spatial_scale", 1.0), o.int("sampling_ratio", 0));
    let sizes = [o.int("output_height", 1), o.int("output_width", 1)];
    let early = if o.opset < 16 { "output_half_pixel" } else { "half_pixel" };
    let is_half_pixel = o.text("coordinate_transformation_mode", early) == "half_pixel";
    if ratio <= 0 || sizes.iter().any(|size| !(1..=1 << 16).contains(size)) || ratio > 1 << 16 {
        return Err(unsupported("RoiAlign with an adaptive number of samples (sampling_ratio = 0)"));
    }
    let offset = if is_half_pixel { 0.5 } else { 0.0 };
    let corners = o.x(1)? * scale - offset;
    let corner = |n: usize| corners.narrow(1, n, 1);
    // Coordinates of the samples along an axis, [regions, size · ratio].
    let along = |axis: usize, length: usize| {
        let (first, last) = (corner(1 - axis), corner(3 - axis));
        let extent = &last - &first;
        let extent = if is_half_pixel { extent } else { extent.maximum(extent.ones_like()) };
        let count = sizes[axis] * ratio;
        let at = (Tensor::arange(count as usize).cast(corners.dtype()) + 0.5) / count as f64;
        let at = first + extent * at.unsqueeze(0);
        let inside = at.ge(-1.0) & at.le(length as f64);
        let clamped = at.maximum(at.zeros_like()).minimum(scalar(length as f64 - 1.0, at.dtype()));
        (clamped, inside)
    };
    let ((y, y_inside), (x, x_inside)) = (along(0, height), along(1, width));
    let images = o.x(0)?.index_select(0, &o.x(2)?.cast(DType::I64)).reshape([regions, channels, height * width]);
    let image = Image { pixels: images, lengths: &[height, width], padding: "zeros", align_corners: false };
    let (rows, columns) = ((sizes[0] * ratio) as usize, (sizes[1] * ratio) as usize);
    let grid = |tensor: &Tensor, axis: isize| {
        tensor.unsqueeze(axis).broadcast_to([regions, rows, columns]).reshape([regions, rows * columns])
    };
    let [y_taps, x_taps] = [taps(&grid(&y, 2), "linear"), taps(&grid(&x, 1), "linear")];
    let inside = grid(&y_inside, 2) & grid(&x_inside, 1);
    let [out_h, out_w, each] = [sizes[0] as usize, sizes[1] as usize, ratio as usize];
    let pooled = |values: Tensor| values.reshape([regions, channels, out_h, each, out_w, each]);
    let masked = |values: Tensor| values.where_self(&inside.unsqueeze(1), values.zeros_like());
    match o.text("mode", "avg") {
        "avg" => Ok(pooled(masked(image.weighted(&[y_taps, x_taps])?)).mean([3isize, 5]).into()),
        // ONNX takes the maximum of the weighted elements, not of their sums.
        "max" => {
            let mut best: Option<Tensor> = None;
            for (y, x) in y_taps.iter().flat_map(|y| x_taps.iter().map(move |x| (y, x))) {
                let term = masked(image.weighted(&[vec![y.clone()], vec![x.clone()]])?);
                best = Some(best.map_or_else(|| term.clone(), |best| best.maximum(&term)));
            }
            let best = best.ok_or_else(|| Error::corrupt("an image has no spatial axes"))?;
            Ok(pooled(best).max([3isize, 5]).into())
        }
        other => Err(unsupported(format!("RoiAlign in the mode {other}"))),
    }
}
