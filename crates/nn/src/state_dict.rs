//! Parameters under others' names: a `state_dict` of PyTorch, saved as safetensors, becomes a model's parameters.
//!
//! Dense layers, filters and norms have the same names and shapes here and there. What differs is a table ([`translated`]): recurrent
//! layers keep all depths and directions in one module, attention keeps three weights in one array.

use std::collections::BTreeMap;
use std::path::Path;

use panoply_tensor::{Result, Tensor};

use crate::checkpoint::{self, Arrays};
use crate::module::Module;

/// Loads a `state_dict`, all or nothing. `rename` says what the model calls a parameter of the file, none for one to be left out; then
/// the names of PyTorch's modules are translated to those of ours. What is missing, extra or of another shape is listed.
///
/// In Python: `safetensors.torch.save_file(module.state_dict(), "model.safetensors")`.
pub fn load(model: &mut dyn Module, path: &Path, rename: impl Fn(&str) -> Option<String>) -> Result<()> {
    let own: Vec<String> = model.named_params().into_iter().map(|(name, _)| name).collect();
    let mut arrays = BTreeMap::new();
    for (name, tensor) in Arrays::read(path)?.arrays {
        // A count of batches that nothing here depends on.
        let Some(name) = rename(&name).filter(|name| !name.ends_with("num_batches_tracked")) else { continue };
        for (name, tensor) in translated(&name, tensor, &own) {
            arrays.insert(name, tensor);
        }
    }
    checkpoint::put(model, &arrays, path)
}

/// The parameters that an array of PyTorch's holds, by our names; itself if the model has one of its name or none of ours.
fn translated(name: &str, tensor: Tensor, own: &[String]) -> Vec<(String, Tensor)> {
    if own.iter().any(|known| known == name) {
        return vec![(name.to_string(), tensor)];
    }
    let parts: Vec<String> = name.split('.').map(part).collect();
    let ours = parts.join(".");
    let (prefix, last) = ours.rsplit_once('.').unwrap_or(("", &ours));
    let joined = |rest: &str| if prefix.is_empty() { rest.to_string() } else { format!("{prefix}.{rest}") };
    if let Some(kind) = last.strip_prefix("in_proj_") {
        let rows = tensor.shape().map_or(0, |shape| shape.dims().first().copied().unwrap_or(0) / 3);
        let split = ["query", "key", "value"].iter().enumerate();
        return split.map(|(i, part)| (joined(&format!("{part}.{kind}")), tensor.narrow(0, i * rows, rows))).collect();
    }
    vec![(recurrent(last).map_or(ours.clone(), |rest| joined(&rest)), tensor)]
}

/// One part of a dotted name.
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

/// `weight_ih_l1_reverse` as `layers.1.directions.1.input_weight`.
fn recurrent(theirs: &str) -> Option<String> {
    let (rest, side) = theirs.strip_suffix("_reverse").map_or((theirs, 0), |rest| (rest, 1));
    let (what, depth) = rest.rsplit_once("_l")?;
    let depth: usize = depth.parse().ok()?;
    let what = match what {
        "weight_ih" => "input_weight",
        "weight_hh" => "hidden_weight",
        "bias_ih" => "input_bias",
        "bias_hh" => "hidden_bias",
        _ => return None,
    };
    Some(format!("layers.{depth}.directions.{side}.{what}"))
}
