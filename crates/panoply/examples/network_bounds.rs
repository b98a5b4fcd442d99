//! Bounds of the outputs of ONNX networks over boxes of inputs (CROWN), with the time that they take: what `cargo xtask peers bounds`
//! compares with a Python library.
//!
//! ```sh
//! cargo run --release -p panoply --example network_bounds -- FOLDER
//! ```
//!
//! FOLDER has pairs of files `NAME.onnx` and `NAME.json`, which holds the lists `lower` and `upper`. A line of JSON is printed for each.

use std::path::Path;
use std::time::Instant;

use panoply::nn::onnx::Imported;
use panoply::verify::backward::{Rows, lower, tightened};
use panoply::verify::{Arithmetic, Interval, fuse};
use panoply::{Error, Result, Tensor};
use serde_json::{Value, json};

/// Passes whose median time is taken.
const PASSES: usize = 31;

fn main() -> Result<()> {
    let Some(folder) = std::env::args().nth(1) else {
        return Err(Error::mistake("usage: network_bounds FOLDER"));
    };
    let failed = |error| Error::io(format!("cannot read {folder}"), error);
    let mut networks = Vec::new();
    for entry in std::fs::read_dir(&folder).map_err(failed)? {
        networks.push(entry.map_err(failed)?.path());
    }
    networks.retain(|path| path.extension().is_some_and(|extension| extension == "onnx"));
    networks.sort();
    networks.iter().try_for_each(|path| bounds(path).map(|line| println!("{line}")))
}

/// Returns name, bounds and time of a network.
fn bounds(path: &Path) -> Result<Value> {
    let text = std::fs::read(path.with_extension("json"));
    let text = text.map_err(|error| Error::io(format!("cannot read the box of {}", path.display()), error))?;
    let input_box: Value = serde_json::from_slice(&text).map_err(|error| Error::corrupt(error.to_string()))?;
    let side = |name: &str| input_box[name].as_array().into_iter().flatten().filter_map(Value::as_f64);
    let input: Vec<Interval> = side("lower").zip(side("upper")).map(|(lo, hi)| Interval { lo, hi }).collect();
    if input.is_empty() {
        let message = format!("{}: its JSON file has no lists `lower` and `upper`", path.display());
        return Err(Error::corrupt(message));
    }

    let network = Imported::open(path)?;
    let zeros = Tensor::from_slice(&vec![0f32; input.len()], [input.len()]);
    let run = |x: &[Tensor]| Ok(vec![network.forward(&[x[0].unsqueeze(0)])?.swap_remove(0).flatten(0, -1)]);
    let steps = fuse::compile(&panoply::program(run, &[&zeros])?, Arithmetic::Real)?;
    let outputs = steps.steps[steps.output].numel;
    // Each output, and its negative for the upper bound.
    let mut rows = vec![0.0; 2 * outputs * outputs];
    for at in 0..outputs {
        rows[2 * at * outputs + at] = 1.0;
        rows[(2 * at + 1) * outputs + at] = -1.0;
    }
    let pass = || {
        let (bounds, _) = tightened(&steps, &input, &[]);
        lower(&steps, &bounds, steps.output, Rows { count: 2 * outputs, output: rows.clone(), input: Vec::new() })
            .bounds
    };
    let mut seconds: Vec<f64> = (0..PASSES)
        .map(|_| {
            let start = Instant::now();
            pass();
            start.elapsed().as_secs_f64()
        })
        .collect();
    seconds.sort_by(f64::total_cmp);
    let found = pass();
    let lower: Vec<f64> = found.iter().step_by(2).copied().collect();
    let upper: Vec<f64> = found.iter().skip(1).step_by(2).map(|bound| -bound).collect();
    let name = path.file_stem().map(|name| name.to_string_lossy().into_owned());
    Ok(json!({"name": name, "lower": lower, "upper": upper, "median_seconds": seconds[PASSES / 2]}))
}
