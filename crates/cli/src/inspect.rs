//! `panoply inspect FILE`: shows the contents of a model file or of a data set.

mod onnx;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use panoply::nn::checkpoint::{self, TensorFile};
use panoply::nn::data::reader::{self, DataFormat, ReadOptions};
use panoply::nn::data::{npy::Array, summary};
use panoply::{DType, Device, Error, Result};
use serde_json::json;

use crate::console::escaped;
use crate::output;
use crate::train::{data_args::DataArgs, manifest::Manifest, metrics, model_file, run_dir::RunDir};

/// Show the contents of a model or of a data set
///
/// Of a model: layers, shapes, element types, sizes and the number of non-finite elements. Of an ONNX file: inputs, outputs, operators,
/// constants and metadata. Of a table: role, type, missing and distinct
/// values of each column. Of other data: what `panoply train` would read.
#[derive(Args)]
pub struct InspectCommand {
    /// A safetensors file of any origin, an ONNX file, a run folder, or data as `panoply train` takes them
    path: PathBuf,
    #[command(flatten)]
    view: DataArgs,
    /// Print one JSON document on stdout
    #[arg(long)]
    json: bool,
}

/// A tensor of the file.
struct Entry {
    name: String,
    dtype: String,
    dims: Vec<usize>,
    bytes: usize,
    not_finite: usize,
}

/// Reads the file and prints its contents.
pub fn run(arguments: &InspectCommand) -> Result<ExitCode> {
    Device::get("cpu")?.scope(|| {
        let reading = arguments.view.clone().read_options();
        if model_file::is_onnx(&arguments.path) {
            return onnx::inspect(&arguments.path, arguments.json);
        }
        let Some(path) = model_file(&arguments.path) else {
            return inspect_data(&arguments.path, &reading, arguments.json);
        };
        if reading != ReadOptions::default() {
            let message = format!("{} is a model; options for reading data do not apply", path.display());
            return Err(Error::mistake(message));
        }
        let file = TensorFile::read(&path)?;
        let mut digest = xxhash_rust::xxh3::Xxh3::new();
        let mut entries = Vec::new();
        file.each(|name, entry| {
            digest.update(name.as_bytes());
            digest.update(entry.bytes);
            entries.push(Entry::of(name, &entry));
            Ok(())
        })?;
        let digest = format!("{:032x}", digest.digest128());
        let manifest = Manifest::of_model(&file).ok();
        let summary = manifest.as_ref().map(|manifest| manifest.load(&file)?.summary()).transpose()?;
        let sum = |value: fn(&Entry) -> usize| entries.iter().map(value).sum::<usize>();
        let (elems, bytes) = (sum(|entry| entry.dims.iter().product()), sum(|entry| entry.bytes));
        let not_finite = sum(|entry| entry.not_finite);
        if arguments.json {
            let (vocab_size, context_length) =
                manifest.as_ref().map_or((None, None), |own| text_sizes(&own.data.format));
            let rows: Vec<_> = entries
                .iter()
                .map(|entry| {
                    let Entry { name, dtype, dims, bytes, not_finite } = entry;
                    json!({"name": name, "dtype": dtype, "shape": dims, "bytes": bytes, "nonfinite": not_finite})
                })
                .collect();
            output::print_json(&json!({
                "schema": 1, "model": path.to_string_lossy(), "tensors": rows, "numel": elems, "bytes": bytes,
                "nonfinite": not_finite, "digest": digest, "summary": summary, "manifest": manifest,
                "metadata": if manifest.is_none() { Some(file.metadata()?) } else { None },
                "vocab_size": vocab_size, "context_length": context_length,
            }));
            return Ok(ExitCode::SUCCESS);
        }
        if let Some(manifest) = &manifest {
            let (data, settings) = (&manifest.data, &manifest.settings);
            let [model, data_path, version] =
                [&settings.model, &data.path, &manifest.panoply_version].map(|text| escaped(text));
            println!("{model} trained on {data_path} by panoply {version}");
            let named = !data.class_names.is_empty() && !matches!(data.format, DataFormat::Text { .. });
            let classes = if named { format!(": {}", escaped(&shortened(&data.class_names))) } else { String::new() };
            println!("{}{classes}", data.learned());
            println!("optimizer {}; loss {}", settings.summary(), manifest.network.loss);
            if let Some(result) = &manifest.result {
                println!("{}", metrics::headline(manifest, &result.best_epoch_report));
            }
        }
        summary.iter().for_each(|summary| println!("\n{summary}"));
        let width = entries.iter().map(|entry| escaped(&entry.name).chars().count()).max().unwrap_or(0);
        for Entry { name, dtype, dims, bytes, not_finite } in &entries {
            let wrong = if *not_finite > 0 { format!("  {not_finite} not finite") } else { String::new() };
            println!("{:width$}  {:<20}  {bytes:>10} bytes{wrong}", escaped(name), format!("{dtype}{dims:?}"));
        }
        println!(
            "{} tensors, {elems} elements, {bytes} bytes, {not_finite} NaN or infinite; digest {digest}",
            entries.len()
        );
        Ok(ExitCode::SUCCESS)
    })
}

/// Returns the model file that the path names, itself or as the folder of a run; `None` for what `panoply train` reads: other folders, and
/// files with an extension of data.
fn model_file(path: &Path) -> Option<PathBuf> {
    if path.is_dir() {
        let run = RunDir(path.to_path_buf());
        return (run.model_path().exists() || path.join("manifest.json").exists()).then(|| run.model_path());
    }
    let name = path.file_name().map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default();
    let name = name.strip_suffix(".gz").unwrap_or(&name);
    let endings = [".csv", ".tsv", ".parquet", ".txt", ".md", ".npy", ".npz"];
    let is_data = endings.iter().any(|ending| name.ends_with(ending)) || name.contains("ubyte");
    (!is_data).then(|| path.to_path_buf())
}

/// Prints the columns of a table, or what training would read of other data.
fn inspect_data(path: &Path, reading: &ReadOptions, as_json: bool) -> Result<ExitCode> {
    if !reader::is_table(path, reading)? {
        let read = reader::open(path, reading)?;
        let (examples, shape) = (read.dataset.len(), &read.dataset.example_shape);
        let (vocab_size, context_length) = text_sizes(&read.format);
        if as_json {
            output::print_json(&json!({
                "schema": 1, "data": path.to_string_lossy(), "examples": examples, "shape": shape, "class_names": read.class_names,
                "format": read.format, "notes": read.assumptions, "vocab_size": vocab_size, "context_length": context_length,
            }));
            return Ok(ExitCode::SUCCESS);
        }
        let named = !read.class_names.is_empty() && !matches!(read.format, DataFormat::Text { .. });
        let classes =
            if named { format!(", classes {}", escaped(&shortened(&read.class_names))) } else { String::new() };
        println!("{}: {examples} examples of shape {shape:?}{classes}", escaped(&path.to_string_lossy()));
        if let (Some(size), Some(length)) = (vocab_size, context_length) {
            println!("vocabulary of {size} characters, context length {length}");
        }
        read.assumptions.iter().for_each(|note| println!("{}", escaped(note)));
        return Ok(ExitCode::SUCCESS);
    }
    let found = summary::summarize(path, reading)?;
    if as_json {
        output::print_json(&json!({
            "schema": 1, "data": path.to_string_lossy(), "rows": found.rows, "header": found.header, "columns": found.columns,
        }));
        return Ok(ExitCode::SUCCESS);
    }
    let header = if found.header { "with a header" } else { "without a header" };
    println!("{}: {} rows, {} columns, {header}", escaped(&path.to_string_lossy()), found.rows, found.columns.len());
    let named = |value: serde_json::Value| value.as_str().unwrap_or_default().replace('_', " ");
    let rows = found.columns.iter().map(|column| {
        let values = match (column.range, &column.date_range) {
            (Some((low, high)), _) => format!("{low} .. {high}"),
            (None, Some((low, high))) => format!("{low} .. {high}"),
            (None, None) => column.examples.join(", "),
        };
        [
            escaped(&column.name).into_owned(),
            named(json!(column.role)),
            named(json!(column.kind)),
            column.missing.to_string(),
            column.distinct.to_string(),
            escaped(&values).into_owned(),
        ]
    });
    let heads = ["column", "role", "type", "missing", "distinct", "values"].map(str::to_string);
    let rows: Vec<[String; 6]> = std::iter::once(heads).chain(rows).collect();
    let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
    let [name, role, kind, missing, distinct] = [0, 1, 2, 3, 4].map(width);
    for [a, b, c, d, e, f] in &rows {
        println!("{a:name$}  {b:role$}  {c:kind$}  {d:>missing$}  {e:>distinct$}  {f}");
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns vocabulary size and context length of a text.
fn text_sizes(format: &DataFormat) -> (Option<usize>, Option<usize>) {
    match format {
        DataFormat::Text { vocabulary, context_length } => (Some(vocabulary.chars().count()), Some(*context_length)),
        _ => (None, None),
    }
}

impl Entry {
    fn of(name: &str, entry: &checkpoint::Entry<'_>) -> Entry {
        Entry {
            name: name.to_string(),
            dtype: entry.dtype.map_or_else(|| entry.file_dtype.clone(), |dtype| dtype.to_string()),
            dims: entry.dims.to_vec(),
            bytes: entry.bytes.len(),
            not_finite: not_finite(entry),
        }
    }
}

/// Counts elements that are NaN or infinite. 8-bit types follow the OCP and FNUZ definitions; smaller types are always finite.
fn not_finite(entry: &checkpoint::Entry<'_>) -> usize {
    let count = |wrong: fn(u8) -> bool| entry.bytes.iter().filter(|byte| wrong(**byte)).count();
    let Some(dtype) = entry.dtype else {
        return match entry.file_dtype.as_str() {
            "F8_E5M2" => count(|byte| byte & 0x7f >= 0x7c),
            "F8_E4M3" => count(|byte| byte & 0x7f == 0x7f),
            "F8_E5M2FNUZ" | "F8_E4M3FNUZ" => count(|byte| byte == 0x80),
            "F8_E8M0" => count(|byte| byte == 0xff),
            // A complex number is a pair of f32.
            "C64" => floats(DType::F32, entry.bytes)
                .chunks_exact(2)
                .filter(|pair| !pair.iter().all(|x| x.is_finite()))
                .count(),
            _ => 0,
        };
    };
    if dtype.is_float() {
        floats(dtype, entry.bytes).into_iter().filter(|number| !number.is_finite()).count()
    } else {
        0
    }
}

fn floats(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    let array = Array { dtype, dims: vec![bytes.len() / dtype.bytes()], bytes: bytes.to_vec() };
    array.scalars().map(|number| number.to_f64()).collect()
}

fn shortened(classes: &[String]) -> String {
    match classes {
        [first @ .., _] if first.len() >= 12 => format!("{}, …", first[..12].join(", ")),
        all => all.join(", "),
    }
}
