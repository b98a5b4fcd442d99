//! Resizing. Every axis is resized on its own: by copying elements, or by a matrix of interpolation weights.

use panoply_tensor::{DType, Error, Result, Tensor};

use super::{Operands, Operator, Results, axes_of, lengths, unsupported};

/// Name, attributes and rule of each operator.
pub const OPERATORS: &[Operator] = &[
    (
        "Resize",
        &[
            "antialias",
            "axes",
            "coordinate_transformation_mode",
            "cubic_coeff_a",
            "exclude_outside",
            "extrapolation_value",
            "keep_aspect_ratio_policy",
            "mode",
            "nearest_mode",
        ],
        resize,
    ),
    ("Upsample", &["mode", "scales"], resize),
];

/// Resizing of one axis.
struct Resizing {
    old: usize,
    new: usize,
    scale: f64,
    /// Region of interest, as fractions of the length.
    region: (f64, f64),
}

/// Returns scale and new length for each resized axis.
fn resizings(o: &Operands<'_>) -> Result<Vec<(usize, Resizing)>> {
    let dims = o.dims(0)?;
    let is_early = o.opset < 11;
    let axes = o.list("axes").map_or_else(|| Ok((0..dims.len()).collect()), |axes| axes_of(axes, dims.len()))?;
    let given = |n: usize| o.optional(n).is_some_and(|tensor| tensor.numel().is_ok_and(|count| count > 0));
    let at = if is_early { 1 } else { 2 };
    let scales = match o.attributes.get("scales") {
        Some(attribute) => Some(attribute.floats.iter().map(|scale| f64::from(*scale)).collect()),
        None => {
            if given(at) {
                Some(o.reals(at)?)
            } else {
                None
            }
        }
    };
    let sizes = if given(3) { Some(lengths(&o.numbers(3)?)?) } else { None };
    let region =
        if !is_early && given(1) { o.reals(1)? } else { [vec![0.0; axes.len()], vec![1.0; axes.len()]].concat() };
    let fits = [scales.as_ref().map(Vec::len), sizes.as_ref().map(Vec::len)]
        .iter()
        .flatten()
        .all(|count| *count == axes.len());
    if o.flag("antialias", false) && o.text("coordinate_transformation_mode", "") == "tf_crop_and_resize" {
        return Err(unsupported("antialias of a cropped region"));
    }
    if !fits || region.len() != 2 * axes.len() || (scales.is_none() && sizes.is_none()) {
        return Err(Error::corrupt("scales or sizes must have a number for each resized axis"));
    }
    let mut all = Vec::new();
    for (n, axis) in axes.iter().enumerate() {
        let old = dims[*axis];
        let (scale, new) = match (&scales, &sizes) {
            (Some(scales), _) => {
                let crop = o.text("coordinate_transformation_mode", "") == "tf_crop_and_resize";
                let part = if crop { region[n + axes.len()] - region[n] } else { 1.0 };
                (scales[n], (old as f64 * part * scales[n]).floor())
            }
            (None, Some(sizes)) => (sizes[n] as f64 / old as f64, sizes[n] as f64),
            (None, None) => (1.0, old as f64),
        };
        if !(scale.is_finite() && scale > 0.0 && (1.0..f64::from(i32::MAX)).contains(&new)) || old == 0 {
            return Err(Error::corrupt(format!("axis {axis} of {old} elements cannot be resized by {scale}")));
        }
        all.push((*axis, Resizing { old, new: new as usize, scale, region: (region[n], region[n + axes.len()]) }));
    }
    keep_aspect_ratio(o, &mut all, sizes.is_some())?;
    Ok(all)
}

/// Uses the smallest or largest scale for all axes if the attribute says so.
fn keep_aspect_ratio(o: &Operands<'_>, all: &mut [(usize, Resizing)], has_sizes: bool) -> Result<()> {
    let scales = all.iter().map(|(_, resizing)| resizing.scale);
    let scale = match o.text("keep_aspect_ratio_policy", "stretch") {
        "not_larger" if has_sizes => scales.fold(f64::INFINITY, f64::min),
        "not_smaller" if has_sizes => scales.fold(0.0, f64::max),
        "stretch" | "not_larger" | "not_smaller" => return Ok(()),
        other => return Err(unsupported(format!("the policy {other}"))),
    };
    for (_, resizing) in all {
        resizing.scale = scale;
        resizing.new = (scale * resizing.old as f64 + 0.5).floor().max(1.0) as usize;
    }
    Ok(())
}

/// Returns the input coordinate of an output position.
fn coordinate(o: &Operands<'_>, at: usize, r: &Resizing) -> Result<f64> {
    // In f32 as in onnxruntime: where a coordinate lies between two elements, its rounding decides which is nearer.
    let (at, new, old, scale) = (at as f32, r.new as f32, r.old as f32, r.scale as f32);
    let (start, end) = (r.region.0 as f32, r.region.1 as f32);
    let early = if o.opset < 11 { "asymmetric" } else { "half_pixel" };
    // The length before rounding, on which some modes depend.
    let exact = scale * old;
    let found = match o.text("coordinate_transformation_mode", early) {
        "half_pixel" => (at + 0.5) / scale - 0.5,
        "half_pixel_symmetric" => {
            let (adjustment, center) = (new / exact, old / 2.0);
            center * (1.0 - adjustment) + (at + 0.5) / scale - 0.5
        }
        "pytorch_half_pixel" if new > 1.0 => (at + 0.5) / scale - 0.5,
        "pytorch_half_pixel" => 0.0,
        "align_corners" if new > 1.0 => at * (old - 1.0) / (exact - 1.0),
        "align_corners" => 0.0,
        "asymmetric" => at / scale,
        "tf_half_pixel_for_nn" => (at + 0.5) / scale,
        "tf_crop_and_resize" if new > 1.0 => start * (old - 1.0) + at * (end - start) * (old - 1.0) / (new - 1.0),
        "tf_crop_and_resize" => 0.5 * (start + end) * (old - 1.0),
        other => return Err(unsupported(format!("the coordinates {other}"))),
    };
    Ok(found.into())
}

/// Returns the position of the nearest element.
fn nearest(o: &Operands<'_>, at: f64) -> Result<f64> {
    let early = if o.opset < 11 { "floor" } else { "round_prefer_floor" };
    Ok(match o.text("nearest_mode", early) {
        "round_prefer_floor" => (at - 0.5).ceil(),
        "round_prefer_ceil" => (at + 0.5).floor(),
        "floor" => at.floor(),
        "ceil" => at.ceil(),
        other => return Err(unsupported(format!("the nearest element by {other}"))),
    })
}

/// Returns the weight of an element at a distance.
fn kernel(o: &Operands<'_>, distance: f64) -> f64 {
    let d = distance.abs();
    if o.text("mode", "nearest") != "cubic" {
        return (1.0 - d).max(0.0);
    }
    let a = o.float("cubic_coeff_a", -0.75);
    match d {
        d if d <= 1.0 => ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0,
        d if d < 2.0 => ((a * d - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a,
        _ => 0.0,
    }
}

/// Returns the weights of the elements of an axis for an output position.
fn weights(o: &Operands<'_>, at: f64, r: &Resizing) -> Vec<f64> {
    let mut weights = vec![0.0; r.old];
    let stretch = if o.flag("antialias", false) { r.scale.min(1.0) } else { 1.0 };
    let reach = if o.text("mode", "nearest") == "cubic" { 2.0 } else { 1.0 } / stretch;
    let (first, last) = ((at - reach).floor() as i64, (at + reach).ceil() as i64);
    let skips_outside = o.flag("exclude_outside", false);
    let mut total = 0.0;
    for place in first..=last {
        let weight = kernel(o, (place as f64 - at) * stretch);
        let is_inside = (0..r.old as i64).contains(&place);
        if is_inside || !skips_outside {
            weights[place.clamp(0, r.old as i64 - 1) as usize] += weight;
            total += weight;
        }
    }
    weights.iter_mut().for_each(|weight| *weight /= total);
    weights
}

/// Creates a matrix without using f64 on devices that lack it.
fn matrix_of(values: &[f64], shape: [usize; 2], dtype: DType) -> Tensor {
    match dtype {
        DType::F64 => Tensor::from_slice(values, shape),
        _ => Tensor::from_slice(&values.iter().map(|value| *value as f32).collect::<Vec<f32>>(), shape),
    }
}

/// Resizes an axis.
fn resize_axis(o: &Operands<'_>, x: &Tensor, axis: usize, r: &Resizing) -> Result<Tensor> {
    let places = (0..r.new).map(|at| coordinate(o, at, r)).collect::<Result<Vec<f64>>>()?;
    let axis = axis as isize;
    let resized = match o.text("mode", "nearest") {
        "nearest" => {
            let clamp = |at: f64| at.clamp(0.0, r.old as f64 - 1.0) as usize;
            let chosen = places.iter().map(|at| nearest(o, *at).map(clamp)).collect::<Result<Vec<usize>>>()?;
            x.index_select(axis, &Tensor::from_indices(&chosen))
        }
        "linear" | "cubic" | "bilinear" => {
            super::numel(&[r.new, r.old]).and_then(|count| match count <= 1 << 26 {
                true => Ok(()),
                false => Err(unsupported(format!("interpolation of {} to {} elements", r.old, r.new))),
            })?;
            let matrix: Vec<f64> = places.iter().flat_map(|at| weights(o, *at, r)).collect();
            let dtype = if x.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
            let matrix = matrix_of(&matrix, [r.new, r.old], dtype);
            let wide = x.cast(dtype).movedim(axis, -1).matmul(&matrix.t()).movedim(-1, axis);
            if x.dtype().is_float() { wide.cast(x.dtype()) } else { wide.round().cast(x.dtype()) }
        }
        other => return Err(unsupported(format!("resizing in the mode {other}"))),
    };
    if o.text("coordinate_transformation_mode", "") != "tf_crop_and_resize" {
        return Ok(resized);
    }
    let outside: Vec<bool> = places.iter().map(|at| *at < 0.0 || *at > r.old as f64 - 1.0).collect();
    let mask = super::along_axis(&Tensor::from_slice(&outside, [r.new]), axis as usize, x.shape()?.ndim());
    let value = super::scalar(o.float("extrapolation_value", 0.0), resized.dtype());
    Ok(value.where_self(&mask, &resized))
}

fn resize(o: &Operands<'_>) -> Result<Results> {
    let mut x = o.x(0)?.clone();
    for (axis, resizing) in resizings(o)? {
        // A scale of 1 changes nothing, except in a region of interest.
        let crops =
            o.text("coordinate_transformation_mode", "") == "tf_crop_and_resize" && resizing.region != (0.0, 1.0);
        if resizing.scale != 1.0 || resizing.new != resizing.old || crops {
            x = resize_axis(o, &x, axis, &resizing)?;
        }
    }
    Ok(x.into())
}
