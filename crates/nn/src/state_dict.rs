//! Import of a PyTorch `state_dict` that was saved as safetensors.
//!
//! Linear, convolution and norm layers have the same names and shapes as in PyTorch. The exceptions are in a table ([`translated`]):
//! PyTorch keeps all depths and directions of a recurrent layer in one module, and the three projections of attention in one array. A name
//! that the model itself has is never translated.

use std::collections::BTreeMap;
use std::path::Path;

use panoply_tensor::{DType, Error, Result, Scalar, Tensor};

use crate::checkpoint::{self, Entry, TensorFile};
use crate::module::Module;

/// Loads a `state_dict`, all or nothing. `key_map` maps a name in the file to the model's name, or to `None` to skip the array. Names of
/// PyTorch's modules are then translated, unless the model has a parameter of that name.
///
/// Floats of another type (f16, bf16, f32, f64) are converted to the parameter's type, rounded to nearest. A `state_dict` holds no
/// settings: activation and epsilon of transformer blocks and the nonlinearity of a plain recurrent layer are those of the model. PyTorch's
/// `TransformerEncoderLayer` defaults to ReLU, [`crate::TransformerEncoderLayer`] to GELU.
///
/// In Python: `safetensors.torch.save_file(module.state_dict(), "model.safetensors")`.
///
/// # Errors
/// - Parameters are missing, extra or of another shape; all are listed.
/// - Two arrays map to the same parameter; both are named.
/// - A finite number is not representable in the parameter's type.
#[doc(alias = "load_state_dict")]
pub fn load(model: &mut dyn Module, path: &Path, key_map: impl Fn(&str) -> Option<String>) -> Result<()> {
    let own = Own::of(model)?;
    let file = TensorFile::read(path)?;
    let mut sources = BTreeMap::<String, String>::new();
    let mut arrays = BTreeMap::new();
    file.each(|theirs, entry| {
        let Some(name) = key_map(theirs).filter(|name| own.0.contains_key(name) || !is_batch_count(name)) else {
            return Ok(());
        };
        for (name, tensor) in converted(&file, theirs, &name, &entry, &own)? {
            if let Some(other) = sources.insert(name.clone(), theirs.to_string()) {
                let message =
                    format!("{}: {other} and {theirs} both become {name}; nothing was loaded", path.display());
                return Err(Error::mistake(message).note("`key_map` must return None for one of them"));
            }
            arrays.insert(name, tensor);
        }
        Ok(())
    })?;
    checkpoint::assign(model, &arrays, path, "`key_map` must return the names of the model, or None to skip an array")
}

/// Element types and shapes of the model's parameters by name.
struct Own(BTreeMap<String, (DType, Vec<usize>)>);

impl Own {
    fn of(model: &dyn Module) -> Result<Own> {
        let own = model.named_parameters().into_iter().map(|(name, param)| {
            let tensor = param.tensor();
            Ok((name, (tensor.dtype(), tensor.shape()?.dims().to_vec())))
        });
        Ok(Own(own.collect::<Result<_>>()?))
    }

    /// Returns true if the name of a parameter begins with a prefix.
    fn begins(&self, prefix: &str) -> bool {
        self.0.range(prefix.to_string()..).next().is_some_and(|(name, _)| name.starts_with(prefix))
    }
}

/// Returns true for PyTorch's batch counter of norms, which has no counterpart here.
fn is_batch_count(name: &str) -> bool {
    name.rsplit('.').next() == Some("num_batches_tracked")
}

/// Converts an array of the file to the model's parameters, with their names and element types.
fn converted(
    file: &TensorFile,
    theirs: &str,
    renamed: &str,
    entry: &Entry<'_>,
    own: &Own,
) -> Result<Vec<(String, Tensor)>> {
    let dtype = file.known_dtype(theirs, entry)?;
    let names = translated(renamed, own);
    if names.iter().any(|name| !own.0.contains_key(name)) {
        // Not in the model: the error lists the name in the file, not its translation.
        let listed = if renamed == theirs { theirs.to_string() } else { format!("{theirs} (renamed to {renamed})") };
        return Ok(vec![(listed, file.tensor(theirs, entry.bytes, entry.dims, dtype)?)]);
    }
    let stacked = names.len() > 1;
    if stacked {
        is_stacked(file, theirs, dtype, entry, &names, own)?;
    }
    let (mut rest, mut parts) = (entry.bytes, Vec::new());
    for name in names {
        let (wanted, dims) = &own.0[&name];
        let wanted = *wanted;
        let dims = if stacked { &dims[..] } else { entry.dims };
        let size = if stacked { dims.iter().product::<usize>() * dtype.bytes() } else { rest.len() };
        let (bytes, after) = rest.split_at(size);
        rest = after;
        let tensor = if dtype != wanted && dtype.is_float() && wanted.is_float() {
            let bytes = cast(bytes, dtype, wanted).ok_or_else(|| {
                let message =
                    format!("{}: {theirs} holds {dtype} values outside the range of {wanted}", file.path().display());
                Error::corrupt(message).note("nothing was loaded")
            })?;
            file.tensor(theirs, &bytes, dims, wanted)?
        } else {
            file.tensor(theirs, bytes, dims, dtype)?
        };
        parts.push((name, tensor));
    }
    Ok(parts)
}

/// Fails unless the array is the concatenation of several parameters along the first axis.
fn is_stacked(
    file: &TensorFile,
    theirs: &str,
    dtype: DType,
    entry: &Entry<'_>,
    names: &[String],
    own: &Own,
) -> Result<()> {
    let rows: usize = names.iter().map(|name| own.0[name].1.first().copied().unwrap_or(0)).sum();
    let wanted: Vec<usize> = [rows].into_iter().chain(own.0[&names[0]].1.iter().skip(1).copied()).collect();
    if entry.dims == wanted {
        return Ok(());
    }
    let message = format!(
        "{}: {theirs} is {dtype}{:?}, not {wanted:?}, the concatenation of {}; nothing was loaded",
        file.path().display(),
        entry.dims,
        names.join(", ")
    );
    Err(Error::mistake(message))
}

/// Converts little-endian floats to another type; `None` if a finite value overflows.
fn cast(bytes: &[u8], from: DType, to: DType) -> Option<Vec<u8>> {
    let mut cast = Vec::with_capacity(bytes.len() / from.bytes() * to.bytes());
    for element in bytes.chunks_exact(from.bytes()) {
        let mut bits = [0; 8];
        bits[..element.len()].copy_from_slice(element);
        let number = Scalar { dtype: from, bits: u64::from_le_bytes(bits) }.to_f64();
        let rounded = Scalar::from_f64(to, number);
        if number.is_finite() && !rounded.to_f64().is_finite() {
            return None;
        }
        cast.extend(&rounded.bits.to_le_bytes()[..to.bytes()]);
    }
    Some(cast)
}

/// Returns the model's names of the parameters in a PyTorch array.
fn translated(name: &str, own: &Own) -> Vec<String> {
    if own.0.contains_key(name) {
        return vec![name.to_string()];
    }
    let mut parts: Vec<&str> = name.split('.').collect();
    let last = parts.pop().unwrap_or_default();
    let mut prefix = String::new();
    for theirs in parts {
        let kept = format!("{prefix}{theirs}.");
        prefix = if own.begins(&kept) { kept } else { format!("{prefix}{}.", part(theirs)) };
    }
    if own.0.contains_key(&format!("{prefix}{last}")) {
        return vec![format!("{prefix}{last}")];
    }
    if let Some(kind) = last.strip_prefix("in_proj_") {
        return ["query", "key", "value"].map(|part| format!("{prefix}{part}.{kind}")).to_vec();
    }
    vec![format!("{prefix}{}", recurrent(last).as_deref().unwrap_or(last))]
}

/// Translates one component of a dotted name.
fn part(theirs: &str) -> String {
    match theirs {
        "self_attn" => "attention".to_string(),
        "multihead_attn" => "cross".to_string(),
        "out_proj" => "output".to_string(),
        "linear1" => "dense.up".to_string(),
        "linear2" => "dense.down".to_string(),
        other => match other.strip_prefix("norm").and_then(|number| number.parse::<usize>().ok()?.checked_sub(1)) {
            Some(at) => format!("norms.{at}"),
            None => other.to_string(),
        },
    }
}

/// Translates `weight_ih_l1_reverse` to `layers.1.directions.1.weight_ih`.
fn recurrent(theirs: &str) -> Option<String> {
    let (rest, side) = theirs.strip_suffix("_reverse").map_or((theirs, 0), |rest| (rest, 1));
    let (what, depth) = rest.rsplit_once("_l")?;
    let depth: usize = depth.parse().ok()?;
    let what = match what {
        "weight_ih" | "weight_hh" | "bias_ih" | "bias_hh" => what,
        _ => return None,
    };
    Some(format!("layers.{depth}.directions.{side}.{what}"))
}
