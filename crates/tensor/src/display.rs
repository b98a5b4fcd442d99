//! How tensors print: `Debug` never evaluates, `Display` does and prints as NumPy does.

use std::fmt;

use panoply_ir::DType;

use crate::tensor::{Source, Tensor};

/// Axes longer than twice this are shortened to this many elements at each end.
const EDGE: usize = 3;

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let node = &self.0;
        if let Source::Mistake(error) = &node.source {
            return write!(f, "mistake ({})", error.message());
        }
        match &node.live {
            Some(live) => write!(f, "{}{}", node.dtype, live.shown(&node.shape))?,
            None => write!(f, "{}{}", node.dtype, node.shape)?,
        }
        if matches!(node.source, Source::Input(_)) {
            return Ok(());
        }
        if let Some(device) = &node.device {
            write!(f, " on {device}")?;
        }
        if node.value.get().is_none() {
            f.write_str(", pending")?;
        }
        write!(f, ", {}:{}", node.place.file(), node.place.line())
    }
}

impl fmt::Display for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = match self.dtype() {
            DType::Bool => self.cast(DType::I32),
            _ => self.clone(),
        };
        match shown.cast(DType::F64).to_vec::<f64>().and_then(|values| Ok((values, self.shape()?))) {
            Err(error) => write!(f, "{error}"),
            Ok((values, shape)) => {
                let texts: Vec<String> = values.iter().map(|value| text(self.dtype(), *value)).collect();
                axis(f, &texts, shape.dims(), 0)
            }
        }
    }
}

fn text(dtype: DType, value: f64) -> String {
    match dtype {
        DType::Bool => (value != 0.0).to_string(),
        _ if dtype.is_int() => format!("{value}"),
        _ if value != 0.0 && !(1e-4..1e8).contains(&value.abs()) && value.is_finite() => format!("{value:.4e}"),
        _ => format!("{value:.4}"),
    }
}

/// Prints the elements of `values` under these lengths, `depth` brackets in.
fn axis(f: &mut fmt::Formatter<'_>, values: &[String], dims: &[usize], depth: usize) -> fmt::Result {
    let Some((len, inner)) = dims.split_first() else {
        return f.write_str(values.first().map_or("", String::as_str));
    };
    let stride: usize = inner.iter().product();
    f.write_str("[")?;
    for i in 0..*len {
        if i == EDGE && *len > 2 * EDGE {
            f.write_str(if inner.is_empty() { ", …" } else { ",\n…" })?;
        }
        if *len > 2 * EDGE && (EDGE..len - EDGE).contains(&i) {
            continue;
        }
        match (i, inner.is_empty()) {
            (0, _) => {}
            (_, true) => f.write_str(", ")?,
            (_, false) => write!(f, ",\n{}", " ".repeat(depth + 1))?,
        }
        axis(f, &values[i * stride..(i + 1) * stride], inner, depth + 1)?;
    }
    f.write_str("]")
}
