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
const MAX_METADATA_CHARS: usize = 100;

/// Totals over the constants of a network.
struct Totals {
    parameters: u128,
    elements: u128,
    bytes: u128,
}

/// Reads the file and prints its contents.
pub fn inspect(path: &Path, as_json: bool) -> Result<ExitCode> {
    let network = Imported::open(path)?;
    let constants = &network.info.constants;
    let totals = Totals {
        parameters: constants.iter().filter(|constant| constant.is_trainable).map(Constant::numel).sum(),
        elements: constants.iter().map(Constant::numel).sum(),
        bytes: constants.iter().map(size).sum(),
    };
    if as_json {
        output::print_json(&document(path, &network, &totals));
        return Ok(ExitCode::SUCCESS);
    }
    print_graph(&network);
    println!();
    print_constants(constants, &totals);
    Ok(ExitCode::SUCCESS)
}

fn document(path: &Path, network: &Imported, totals: &Totals) -> serde_json::Value {
    let FileInfo { opset, ir_version, producer, producer_version, operators, outputs, constants, metadata } =
        &*network.info;
    let value = |name: &str, dtype: Option<DType>, dims: &[Option<usize>]| json!({"name": name, "dtype": dtype.map(|dtype| dtype.to_string()), "shape": dims});
    let constant = |constant: &Constant| {
        json!({
            "name": constant.name, "dtype": constant.dtype.to_string(), "shape": constant.dims,
            "bytes": size(constant) as u64, "trainable": constant.is_trainable,
        })
    };
    json!({
        "schema": 1, "model": path.to_string_lossy(), "opset": opset, "ir_version": ir_version, "producer": producer,
        "producer_version": producer_version,
        "inputs": network.inputs.iter().map(|input| value(&input.name, Some(input.dtype), &input.dims)).collect::<Vec<_>>(),
        "outputs": outputs.iter().map(|output| value(&output.name, output.dtype, &output.dims)).collect::<Vec<_>>(),
        "operators": operators, "constants": constants.iter().map(constant).collect::<Vec<_>>(),
        "num_parameters": totals.parameters as u64, "numel": totals.elements as u64, "bytes": totals.bytes as u64,
        "metadata": metadata,
    })
}

/// Prints everything but the constants.
fn print_graph(network: &Imported) {
    let FileInfo { opset, ir_version, producer, producer_version, operators, outputs, metadata, .. } = &*network.info;
    let by = if producer.is_empty() { String::new() } else { format!(", written by {producer} {producer_version}") };
    println!("{}", escaped(format!("ONNX opset {opset}, IR version {ir_version}{by}").trim_end()));
    for input in &network.inputs {
        println!("input   {}  {}{}", escaped(&input.name), input.dtype, shape_text(&input.dims));
    }
    for output in outputs {
        let dtype = output.dtype.map_or("unknown type".to_string(), |dtype| dtype.to_string());
        println!("output  {}  {dtype}{}", escaped(&output.name), shape_text(&output.dims));
    }
    let counts: Vec<String> = operators.iter().map(|(name, count)| format!("{name} × {count}")).collect();
    println!("{} operators: {}", operators.values().sum::<usize>(), escaped(&counts.join(", ")));
    for (key, value) in metadata {
        let short: String = value.chars().take(MAX_METADATA_CHARS).collect();
        let more = if value.chars().count() > MAX_METADATA_CHARS { "…" } else { "" };
        println!("metadata {} = {}{more}", escaped(key), escaped(&short));
    }
}

/// Prints a line for each constant, and the totals.
fn print_constants(constants: &[Constant], totals: &Totals) {
    let width = constants.iter().map(|constant| escaped(&constant.name).chars().count()).max().unwrap_or(0);
    for constant in constants {
        let Constant { name, dtype, dims, is_trainable } = constant;
        let note = if *is_trainable { "" } else { "  not trained" };
        println!("{:width$}  {:<20}  {:>10} bytes{note}", escaped(name), format!("{dtype}{dims:?}"), size(constant));
    }
    let mut types: BTreeMap<String, u128> = BTreeMap::new();
    constants.iter().for_each(|constant| *types.entry(constant.dtype.to_string()).or_default() += size(constant));
    let types: Vec<String> = types.iter().map(|(dtype, bytes)| format!("{bytes} in {dtype}")).collect();
    let types = if types.is_empty() { String::new() } else { format!(" ({})", types.join(", ")) };
    let Totals { parameters, elements, bytes } = totals;
    println!(
        "{} constants, {elements} elements, {bytes} bytes{types}; {parameters} trainable parameters",
        constants.len()
    );
}

/// Returns the size of a constant in bytes.
fn size(constant: &Constant) -> u128 {
    constant.numel().saturating_mul(constant.dtype.bytes() as u128)
}

/// Formats a shape; `?` is a dynamic length.
fn shape_text(dims: &[Option<usize>]) -> String {
    let dims: Vec<String> = dims.iter().map(|dim| dim.map_or("?".to_string(), |dim| dim.to_string())).collect();
    format!("[{}]", dims.join(", "))
}
