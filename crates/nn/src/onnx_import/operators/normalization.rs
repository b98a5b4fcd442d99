//! Normalization.

use panoply_tensor::{DType, Error, KeepDim, Result, Tensor};

use super::{Operands, Operator, Results, axes_of, in_f32, unsupported};

/// Name, attributes and rule of each operator.
pub const OPERATORS: &[Operator] = &[
    ("BatchNormalization", &["epsilon", "is_test", "momentum", "spatial", "training_mode"], |o| {
        if o.int("spatial", 1) != 1 {
            return Err(unsupported("statistics of each element (spatial = 0)"));
        }
        if o.flag("training_mode", false) || is_early_training(o) {
            return Err(Error::unsupported("the training mode is not supported; export the model in evaluation mode"));
        }
        let (x, dtype) = (o.x(0)?, o.x(0)?.dtype());
        let [scale, bias, mean, variance] = [1, 2, 3, 4].map(|n| o.x(n).map(|vector| vector.cast(dtype)));
        let normal = x.batch_norm(&mean?, &variance?, epsilon(o));
        Ok((normal * scale?.unsqueeze_like_channels(x) + bias?.unsqueeze_like_channels(x)).into())
    }),
    ("Dropout", &["is_test", "ratio", "seed"], dropout),
    ("GroupNormalization", &["epsilon", "num_groups", "stash_type"], group_normalization),
    ("InstanceNormalization", &["epsilon"], |o| {
        let (x, channels) = (o.x(0)?, o.dims(0)?.get(1).copied().unwrap_or(0));
        let normal = x.group_norm(channels, epsilon(o));
        Ok((normal * o.x(1)?.unsqueeze_like_channels(x) + o.x(2)?.unsqueeze_like_channels(x)).into())
    }),
    ("LRN", &["alpha", "beta", "bias", "size"], local_response_normalization),
    ("LayerNormalization", &["axis", "epsilon", "stash_type"], layer_normalization),
    ("LpNormalization", &["axis", "p"], |o| {
        let (axis, p) = (o.axis(-1)? as isize, o.int("p", 2));
        let norm = |x: &Tensor| match p {
            1 => x.abs().sum(KeepDim(axis)),
            _ => x.square().sum(KeepDim(axis)).sqrt(),
        };
        o.map(|x| {
            let norm = norm(x);
            (x / &norm).where_self(&norm.ne(norm.zeros_like()), x.zeros_like())
        })
    }),
    ("MeanVarianceNormalization", &["axes"], |o| {
        let axes = axes_of(o.list("axes").unwrap_or(&[0, 2, 3]), o.dims(0)?.len())?;
        o.map(|x| {
            let centered = x - x.mean(KeepDim(&axes[..]));
            let deviation = centered.square().mean(KeepDim(&axes[..])).sqrt();
            centered / (deviation + 1e-9)
        })
    }),
    ("RMSNormalization", &["axis", "epsilon", "stash_type"], |o| {
        let (axes, x) = (trailing_axes(o)?, o.x(0)?);
        let normal = in_f32(x, |x| x * (x.square().mean(KeepDim(&axes[..])) + epsilon(o)).rsqrt());
        Ok((normal * o.x(1)?).into())
    }),
];

fn epsilon(o: &Operands<'_>) -> f64 {
    o.float("epsilon", f64::from(1e-5f32))
}

/// Returns true for opset 6, if the attribute that selects the evaluation mode is not set.
fn is_early_training(o: &Operands<'_>) -> bool {
    o.opset < 7 && !o.flag("is_test", false)
}

/// Returns the axes from `axis` on.
fn trailing_axes(o: &Operands<'_>) -> Result<Vec<isize>> {
    Ok((o.axis(-1)? as isize..o.dims(0)?.len() as isize).collect())
}

/// Returns the input: elements are dropped in training only.
fn dropout(o: &Operands<'_>) -> Result<Results> {
    let is_training = o.optional(2).is_some() && o.numbers(2)? != [0];
    let keeps_all = o.optional(1).is_some() && o.reals(1)? == [0.0];
    if (is_training && !keeps_all) || is_early_training(o) {
        return Err(Error::unsupported("the training mode is not supported; export the model in evaluation mode"));
    }
    let mask = Tensor::full(o.dims(0)?, true);
    Ok(Results(vec![Some(o.value(0)?.clone()), Some(mask.into())]))
}

fn group_normalization(o: &Operands<'_>) -> Result<Results> {
    let (x, dims, count) = (o.x(0)?, o.dims(0)?, o.int("num_groups", 0));
    let channels = dims.get(1).copied().unwrap_or(0);
    let groups = usize::try_from(count).ok().filter(|groups| *groups > 0 && channels.is_multiple_of(*groups));
    let groups =
        groups.ok_or_else(|| Error::corrupt(format!("{channels} channels are not divisible into {count} groups")))?;
    // Before opset 21, scale and bias have a number for each group.
    let of_channel = |n: usize| {
        let vector = o.x(n)?;
        let repeats = if o.opset < 21 { channels / groups } else { 1 };
        Ok::<Tensor, Error>(vector.repeat_interleave(repeats, 0).unsqueeze_like_channels(x))
    };
    Ok((x.group_norm(groups, epsilon(o)) * of_channel(1)? + of_channel(2)?).into())
}

/// Normalizes over the axes from `axis` on; the other results are the mean and the inverse standard deviation in f32.
fn layer_normalization(o: &Operands<'_>) -> Result<Results> {
    let (axes, x) = (trailing_axes(o)?, o.x(0)?);
    let wide = if x.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
    let wide_x = x.cast(wide);
    let mean = wide_x.mean(KeepDim(&axes[..]));
    let centered = wide_x - &mean;
    let inverse = (centered.square().mean(KeepDim(&axes[..])) + epsilon(o)).sqrt().reciprocal();
    let scaled = (centered * &inverse).cast(x.dtype()) * o.x(1)?;
    let y = o.optional(2).map_or_else(|| scaled.clone(), |bias| &scaled + bias);
    Ok([y, mean, inverse].into())
}

/// Divides by a power of the sum of squares over neighboring channels.
fn local_response_normalization(o: &Operands<'_>) -> Result<Results> {
    let (x, dims, size) = (o.x(0)?, o.dims(0)?, o.int("size", 0));
    let (Some(channels), Some(size)) =
        (dims.get(1), usize::try_from(size).ok().filter(|size| (1..=1 << 16).contains(size)))
    else {
        return Err(Error::corrupt(format!("{size} channels of {dims:?} cannot be normalized together")));
    };
    let mut widths = vec![(0, 0); dims.len()];
    widths[1] = ((size - 1) / 2, size / 2);
    let squares = x.square().pad(&widths);
    let sums = (1..size).fold(squares.narrow(1, 0, *channels), |sum, at| sum + squares.narrow(1, at, *channels));
    let [alpha, beta, bias] =
        [("alpha", 1e-4f32), ("beta", 0.75), ("bias", 1.0)].map(|(name, value)| o.float(name, value.into()));
    Ok((x / (sums * (alpha / size as f64) + bias).pow(beta)).into())
}
