//! Discrete Fourier transforms, window functions and mel filters.

use panoply_tensor::{DType, Error, Result, Tensor, Window};

use super::{Operands, Operator, Results, axis_of, unsupported};

/// Attributes of all window functions.
const WINDOW: &[&str] = &["output_datatype", "periodic"];

/// Name, attributes and rule of each operator.
pub const OPERATORS: &[Operator] = &[
    ("BlackmanWindow", WINDOW, |o| window(o, &[0.42, -0.5, 0.08])),
    ("DFT", &["axis", "inverse", "onesided"], dft),
    ("HammingWindow", WINDOW, |o| window(o, &[25.0 / 46.0, -21.0 / 46.0])),
    ("HannWindow", WINDOW, |o| window(o, &[0.5, -0.5])),
    ("MelWeightMatrix", &["output_datatype"], mel_weights),
    ("STFT", &["onesided"], stft),
];

fn output_dtype(o: &Operands<'_>) -> Result<DType> {
    Ok(o.dtype("output_datatype")?.unwrap_or(DType::F32))
}

/// Returns a cosine-sum window, Σ coefficients[n] · cos(2π · n · position / period), of the length in operand 0.
fn window(o: &Operands<'_>, coefficients: &[f64]) -> Result<Results> {
    let length = o.number(0)?.and_then(|length| usize::try_from(length).ok()).filter(|length| *length <= 1 << 24);
    let length = length.ok_or_else(|| Error::corrupt("the length of the window is not valid"))?;
    let period = if o.flag("periodic", true) { length } else { length.saturating_sub(1) }.max(1) as f64;
    let value = |at: usize| {
        let angle = std::f64::consts::TAU * at as f64 / period;
        coefficients.iter().enumerate().map(|(n, coefficient)| coefficient * (n as f64 * angle).cos()).sum::<f64>()
            as f32
    };
    let values: Vec<f32> = (0..length).map(value).collect();
    Ok(Tensor::from_slice(&values, [length]).cast(output_dtype(o)?).into())
}

/// Adds imaginary parts of 0 to a real signal: `[…, 1]` becomes `[…, 2]`; a complex signal `[…, 2]` is unchanged.
fn complex(x: &Tensor) -> Result<Tensor> {
    match x.shape()?.dims().last() {
        Some(1) => Ok(Tensor::concat([x.clone(), x.zeros_like()], -1)),
        Some(2) => Ok(x.clone()),
        _ => Err(Error::corrupt("the last axis of a signal must have length 1 (real) or 2 (real and imaginary part)")),
    }
}

/// Truncates an axis, or pads it with zeros at its end.
fn with_length(x: &Tensor, axis: usize, length: usize) -> Result<Tensor> {
    let dims = x.shape()?.dims();
    let mut widths = vec![(0, 0); dims.len()];
    widths[axis].1 = length.saturating_sub(dims[axis]);
    Ok(x.pad(&widths).narrow(axis as isize, 0, length))
}

/// Operands: signal, length of the transform, axis (since opset 20).
fn dft(o: &Operands<'_>) -> Result<Results> {
    let (dims, x) = (o.dims(0)?, o.x(0)?);
    let rank = dims.len();
    let axis = match o.attributes.get("axis") {
        Some(attribute) => attribute.int,
        None => o.number(2)?.unwrap_or(if o.opset < 20 { 1 } else { -2 }),
    };
    let axis = axis_of(axis, rank)?;
    if axis + 1 >= rank {
        return Err(Error::corrupt("a DFT along the last axis, that of real and imaginary parts, is not possible"));
    }
    let length = match o.number(1)? {
        Some(length) => {
            usize::try_from(length).map_err(|_| Error::corrupt("the length of the transform is negative"))?
        }
        None => dims[axis],
    };
    let (is_inverse, is_onesided) = (o.flag("inverse", false), o.flag("onesided", false));
    if is_inverse && is_onesided {
        let spectrum = with_length(&complex(x)?, axis, length / 2 + 1)?;
        return Ok(spectrum.irfft(length, axis as isize - rank as isize + 1).unsqueeze(-1).into());
    }
    let signal = with_length(&complex(x)?, axis, length)?;
    // Relative to the end of the complex tensor, which has no axis of real and imaginary parts.
    let at = axis as isize - rank as isize + 1;
    let y = if is_inverse { signal.ifft(at) } else { signal.fft(at) };
    Ok(if is_onesided { y.narrow(axis as isize, 0, length / 2 + 1) } else { y }.into())
}

/// Returns the short-time Fourier transform, `[batch, frames, frequencies, 2]`. Operands: signal, frame step, window, frame length.
fn stft(o: &Operands<'_>) -> Result<Results> {
    let signal = match o.dims(0)?.len() {
        2 => o.x(0)?.unsqueeze(-1),
        _ => o.x(0)?.clone(),
    };
    let [_, samples, _] = signal.dims::<3>()?;
    let frame = match o.number(3)? {
        Some(length) => length,
        None => o.optional(2).map_or(Ok(0), Tensor::numel)? as i64,
    };
    let (step, frame) = (o.number(1)?.unwrap_or(0), usize::try_from(frame).unwrap_or(0));
    let step = usize::try_from(step).unwrap_or(0);
    if step == 0 || frame == 0 || frame > samples {
        return Err(Error::corrupt(format!(
            "an STFT with frame length {frame} and frame step {step} is not possible for {samples} samples"
        )));
    }
    let windows = Window { stride: [step], ..Window::new([frame]) };
    let mut frames = signal.transpose(1, 2).unfold(&windows).permute([0, 2, 3, 1]);
    if let Some(window) = o.optional(2) {
        frames *= window.reshape([1, 1, frame, 1]);
    }
    let y = complex(&frames)?.fft(-1);
    Ok(if o.flag("onesided", true) { y.narrow(2, 0, frame / 2 + 1) } else { y }.into())
}

/// Returns triangular filters, equally spaced on the mel scale: `[frequencies, filters]`.
fn mel_weights(o: &Operands<'_>) -> Result<Results> {
    let [bins, length, rate] = [o.number(0)?, o.number(1)?, o.number(2)?].map(|value| value.unwrap_or(0));
    let [low, high] = [o.reals(3)?, o.reals(4)?].map(|values| values.first().copied().unwrap_or(0.0));
    if !(1..=1 << 16).contains(&bins) || !(1..=1 << 24).contains(&length) || rate < 1 {
        return Err(unsupported(format!("{bins} mel filters for a DFT of length {length} at a sample rate of {rate}")));
    }
    let (filters, frequencies) = (bins as usize, length as usize / 2 + 1);
    super::numel(&[filters, frequencies])
        .ok()
        .filter(|count| *count <= 1 << 26)
        .ok_or_else(|| unsupported(format!("a mel weight matrix of {frequencies} × {filters}")))?;
    let mel = |frequency: f64| 2595.0 * (1.0 + frequency / 700.0).log10();
    let (start, step) = (mel(low), (mel(high) - mel(low)) / (bins + 2) as f64);
    let bin = |n: usize| {
        let frequency = 700.0 * (10f64.powf((start + step * n as f64) / 2595.0) - 1.0);
        (((length + 1) as f64 * frequency / rate as f64).floor()).max(0.0) as usize
    };
    let mut weights = vec![0f32; frequencies * filters];
    for filter in 0..filters {
        let [lower, center, upper] = [0, 1, 2].map(|n| bin(filter + n));
        let mut set = |at: usize, value: f64| {
            if at < frequencies {
                weights[at * filters + filter] = value as f32;
            }
        };
        if lower == center {
            set(center, 1.0);
        }
        for at in lower..center.min(frequencies) + usize::from(lower != center) {
            set(at, (at - lower) as f64 / (center - lower).max(1) as f64);
        }
        for at in center..upper.min(frequencies) {
            set(at, (upper - at) as f64 / (upper - center) as f64);
        }
    }
    Ok(Tensor::from_slice(&weights, [frequencies, filters]).cast(output_dtype(o)?).into())
}
