//! `panoply predict MODEL RESULT`: runs a model on the input of a counterexample that `panoply verify --result` wrote.

use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

use panoply::verify::{Counterexample, vnncomp};
use panoply::{Error, Result, Tensor};
use serde_json::json;

use super::PredictCommand;
use crate::output::{DeviceSelection, print_json};
use crate::verify::network::Network;

/// Number of bytes at the beginning of a file by which its form is recognized.
const BEGINNING: u64 = 4096;

/// Returns true if a file is a result of VNN-COMP, by its first characters.
pub fn is_result(path: &Path) -> bool {
    // A pipe can be read only once.
    if !path.metadata().is_ok_and(|metadata| metadata.is_file()) {
        return false;
    }
    let mut beginning = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(BEGINNING).read_to_end(&mut beginning));
    // The part before a character that is not UTF-8 or not complete.
    let valid = beginning.utf8_chunks().next().map_or("", |chunk| chunk.valid());
    read.is_ok() && vnncomp::is_result(valid)
}

/// Prints the outputs of the model beside the stored ones.
pub fn run(arguments: &PredictCommand, choice: &DeviceSelection, path: &Path) -> Result<ExitCode> {
    let options = [
        ("--output", arguments.output.is_some()),
        ("--num-examples", arguments.num_examples.is_some()),
        ("--max-new-tokens", arguments.max_new_tokens.is_some()),
    ];
    if let Some((option, _)) = options.iter().find(|(_, is_used)| *is_used) {
        let message = format!("{option}: {} is a counterexample of one input; remove the option", path.display());
        return Err(Error::mistake(message));
    }
    let Counterexample { input, output: stored } = vnncomp::read(path)?;
    let network = Network::open(&arguments.model)?;
    let shape = network.input_shape()?;
    let fail = |found: usize, what: &str, own: usize| {
        let (path, model) = (path.display(), arguments.model.display());
        Err(Error::mistake(format!("{path}: the counterexample has {found} {what}, but {model} has {own}")))
    };
    let inputs = shape.iter().product();
    if input.len() != inputs {
        return fail(input.len(), "inputs", inputs);
    }
    let output = network.forward(&Tensor::from_slice(&input, shape))?.to_vec::<f32>()?;
    if !stored.is_empty() && stored.len() != output.len() {
        return fail(stored.len(), "outputs", output.len());
    }
    let largest = (!stored.is_empty()).then(|| largest_difference(&output, &stored));
    if arguments.json {
        let stored = (!stored.is_empty()).then_some(&stored);
        print_json(&choice.document(json!({
            "input": input, "output": output, "stored_output": stored, "largest_difference": largest,
        })));
        return Ok(ExitCode::SUCCESS);
    }
    input.iter().enumerate().for_each(|(n, x)| println!("X_{n} = {x}"));
    for (n, y) in output.iter().enumerate() {
        let stored = stored.get(n).map_or_else(String::new, |stored| format!(" (stored {stored})"));
        println!("Y_{n} = {y}{stored}");
    }
    if let Some(largest) = largest {
        println!("largest difference from the stored outputs: {largest}");
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the largest difference; infinite if only one of two outputs is finite.
fn largest_difference(output: &[f32], stored: &[f32]) -> f64 {
    let difference = |(y, stored): (&f32, &f32)| {
        let difference = (f64::from(*y) - f64::from(*stored)).abs();
        match y == stored || (y.is_nan() && stored.is_nan()) {
            true => 0.0,
            false if difference.is_nan() => f64::INFINITY,
            false => difference,
        }
    };
    output.iter().zip(stored).map(difference).fold(0.0, f64::max)
}
