//! `panoply inspect FILE.onnx`: shows inputs, outputs, operators, constants and metadata of an ONNX file.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use panoply::nn::onnx::{Constant, FileInfo, Imported};
use panoply::{DType, Result};
use serde_json::json;

use crate::console::escaped;
use crate::output;

/// Number of characters of a metadata value that are printed.
const SHOWN: usize = 100;

/// Reads the file and prints its contents.
pub fn inspect(path: &Path, as_json: bool) -> Result<ExitCode> {
    let network = Imported::open(path)?;
    let FileInfo { opset, ir_version, producer, producer_version, operators, outputs, constants, metadata } =
        &*network.info;
    let trained: u128 = constants.iter().filter(|constant| constant.is_trainable).map(Constant::numel).sum();
    let elements: u128 = constants.iter().map(Constant::numel).sum();
    let bytes: u128 = constants.iter().map(size).sum();
    if as_json {
        let value = |name: &str, dtype: Option<DType>, dims: &[Option<usize>]| json!({"name": name, "dtype": dtype.map(|dtype| dtype.to_string()), "shape": dims});
        let constant = |constant: &Constant| {
            json!({
                "name": constant.name, "dtype": constant.dtype.to_string(), "shape": constant.dims,
                "bytes": size(constant) as u64, "trainable": constant.is_trainable,
            })
        };
        output::print_json(&json!({
            "schema": 1, "model": path.to_string_lossy(), "opset": opset, "ir_version": ir_version, "producer": producer,
            "producer_version": producer_version,
            "inputs": network.inputs.iter().map(|input| value(&input.name, Some(input.dtype), &input.dims)).collect::<Vec<_>>(),
            "outputs": outputs.iter().map(|output| value(&output.name, output.dtype, &output.dims)).collect::<Vec<_>>(),
            "operators": operators, "constants": constants.iter().map(constant).collect::<Vec<_>>(),
            "num_parameters": trained as u64, "numel": elements as u64, "bytes": bytes as u64, "metadata": metadata,
        }));
        return Ok(ExitCode::SUCCESS);
    }
    let by = if producer.is_empty() { String::new() } else { format!(", written by {producer} {producer_version}") };
    println!("{}", escaped(format!("ONNX opset {opset}, IR version {ir_version}{by}").trim_end()));
    for input in &network.inputs {
        println!("input   {}  {}{}", escaped(&input.name), input.dtype, listed(&input.dims));
    }
    for found in outputs {
        let dtype = found.dtype.map_or("unknown type".to_string(), |dtype| dtype.to_string());
        println!("output  {}  {dtype}{}", escaped(&found.name), listed(&found.dims));
    }
    let named: Vec<String> = operators.iter().map(|(name, count)| format!("{name} × {count}")).collect();
    println!("{} operators: {}", operators.values().sum::<usize>(), escaped(&named.join(", ")));
    for (key, value) in metadata {
        let short: String = value.chars().take(SHOWN).collect();
        let more = if value.chars().count() > SHOWN { "…" } else { "" };
        println!("metadata {} = {}{more}", escaped(key), escaped(&short));
    }
    println!();
    let width = constants.iter().map(|constant| escaped(&constant.name).chars().count()).max().unwrap_or(0);
    for constant in constants {
        let Constant { name, dtype, dims, is_trainable } = constant;
        let kept = if *is_trainable { "" } else { "  not trained" };
        println!("{:width$}  {:<20}  {:>10} bytes{kept}", escaped(name), format!("{dtype}{dims:?}"), size(constant));
    }
    let mut types: BTreeMap<String, u128> = BTreeMap::new();
    constants.iter().for_each(|constant| *types.entry(constant.dtype.to_string()).or_default() += size(constant));
    let types: Vec<String> = types.iter().map(|(dtype, bytes)| format!("{bytes} in {dtype}")).collect();
    let types = if types.is_empty() { String::new() } else { format!(" ({})", types.join(", ")) };
    println!(
        "{} constants, {elements} elements, {bytes} bytes{types}; {trained} trainable parameters",
        constants.len()
    );
    Ok(ExitCode::SUCCESS)
}

fn size(constant: &Constant) -> u128 {
    constant.numel().saturating_mul(constant.dtype.bytes() as u128)
}

/// Formats a shape; `?` is a dynamic length.
fn listed(dims: &[Option<usize>]) -> String {
    let dims: Vec<String> = dims.iter().map(|dim| dim.map_or("?".to_string(), |dim| dim.to_string())).collect();
    format!("[{}]", dims.join(", "))
}
