//! Runs the node test cases of the Python package `onnx`: each is a folder with a model, its inputs and its outputs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;

use panoply_nn::onnx::{Imported, read_tensor};
use panoply_tensor::{DType, Device, Tensor};

/// Relative tolerance, as in ONNX's own runner.
const RELATIVE: f64 = 1e-3;
/// Absolute tolerance, relative to the largest expected number.
const ABSOLUTE: f64 = 1e-6;

/// The result of a test case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All outputs are as expected.
    Passed,
    /// The importer does not support the model, for this reason.
    Refused(String),
    /// An output differs from the expected one, as described here.
    Wrong(String),
}

/// A test case and its result.
pub struct Case {
    /// Name of the folder.
    pub name: String,
    /// The result.
    pub outcome: Outcome,
}

/// Returns the folder of the node test cases of the package `onnx` of a Python interpreter; `None` if it has no such package.
pub fn folder(python: &str) -> Option<PathBuf> {
    let script =
        "import onnx, os; print(os.path.join(os.path.dirname(onnx.__file__), 'backend', 'test', 'data', 'node'))";
    let output = Command::new(python).args(["-c", script]).output().ok().filter(|output| output.status.success())?;
    let path = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
    path.is_dir().then_some(path)
}

/// Runs the cases of a folder whose names contain `filter`, in alphabetical order.
pub fn run(folder: &Path, filter: &str, mut each: impl FnMut(&Case)) -> Vec<Case> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.join("model.onnx").is_file());
    paths.sort();
    let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
    let device = Device::get("cpu").unwrap();
    let run = |path: PathBuf| {
        let result = device.scope(|| catch_unwind(AssertUnwindSafe(|| run_case(&path))));
        let case =
            Case { name: name(&path), outcome: result.unwrap_or_else(|_| Outcome::Wrong("it panicked".to_string())) };
        each(&case);
        case
    };
    paths.into_iter().filter(|path| name(path).contains(filter)).map(run).collect()
}

/// Returns the files `input_0.pb`, `input_1.pb`, … of a data set.
fn files(folder: &Path, kind: &str) -> Vec<PathBuf> {
    (0..).map(|n| folder.join(format!("{kind}_{n}.pb"))).take_while(|path| path.is_file()).collect()
}

fn run_case(folder: &Path) -> Outcome {
    let network = match Imported::open(&folder.join("model.onnx")) {
        Ok(network) => network,
        Err(error) => return Outcome::Refused(error.message().to_string()),
    };
    let read = |kind: &str| {
        let paths = files(&folder.join("test_data_set_0"), kind);
        paths.iter().map(|path| read_tensor(path)).collect::<Result<Vec<Tensor>, _>>()
    };
    let (mut inputs, mut wanted) = match (read("input"), read("output")) {
        (Ok(inputs), Ok(wanted)) => (inputs, wanted),
        (Err(error), _) | (_, Err(error)) => return Outcome::Refused(error.message().to_string()),
    };
    // The files of some versions store bf16 as u16.
    for (tensor, input) in inputs.iter_mut().zip(&network.inputs) {
        restore_bf16(tensor, input.dtype);
    }
    let outputs = match network.forward(&inputs) {
        Ok(outputs) => outputs,
        Err(error) => return Outcome::Refused(format!("{error:#}").replace('\n', "; ")),
    };
    wanted.iter_mut().zip(&outputs).for_each(|(wanted, output)| restore_bf16(wanted, output.dtype()));
    if outputs.len() != wanted.len() {
        return Outcome::Wrong(format!("{} outputs instead of {}", outputs.len(), wanted.len()));
    }
    let differences = outputs.iter().zip(&wanted).enumerate();
    differences.fold(Outcome::Passed, |outcome, (n, (output, wanted))| match outcome {
        Outcome::Passed => compare(n, output, wanted),
        failed => failed,
    })
}

fn restore_bf16(tensor: &mut Tensor, dtype: DType) {
    if tensor.dtype() == DType::U16 && dtype == DType::BF16 {
        *tensor = tensor.bitcast(dtype);
    }
}

/// Compares an output with the expected one: shape, element type and elements.
fn compare(n: usize, output: &Tensor, wanted: &Tensor) -> Outcome {
    let shape = |tensor: &Tensor| tensor.shape().map(|shape| shape.dims().to_vec());
    let (own, expected) = match (shape(output), shape(wanted)) {
        (Ok(own), Ok(expected)) => (own, expected),
        (Err(error), _) | (_, Err(error)) => return Outcome::Refused(error.message().to_string()),
    };
    if own != expected || output.dtype() != wanted.dtype() {
        let (own_type, wanted_type) = (output.dtype(), wanted.dtype());
        return Outcome::Wrong(format!("output {n} is {own_type}{own:?} instead of {wanted_type}{expected:?}"));
    }
    if !output.dtype().is_float() {
        return match (output.to_bytes(), wanted.to_bytes()) {
            (Ok(own), Ok(expected)) if own == expected => Outcome::Passed,
            (Ok(_), Ok(_)) => Outcome::Wrong(format!("output {n} has other {} than expected", output.dtype())),
            (Err(error), _) | (_, Err(error)) => Outcome::Refused(error.message().to_string()),
        };
    }
    let numbers = |tensor: &Tensor| tensor.cast(DType::F64).to_vec::<f64>();
    let (own, expected) = match (numbers(output), numbers(wanted)) {
        (Ok(own), Ok(expected)) => (own, expected),
        (Err(error), _) | (_, Err(error)) => return Outcome::Refused(error.message().to_string()),
    };
    let largest = expected.iter().filter(|value| value.is_finite()).fold(0.0, |most: f64, value| most.max(value.abs()));
    let equal = |a: f64, b: f64| {
        a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= RELATIVE * b.abs() + ABSOLUTE * largest
    };
    match own.iter().zip(&expected).position(|(a, b)| !equal(*a, *b)) {
        None => Outcome::Passed,
        Some(at) => Outcome::Wrong(format!("output {n} has {} instead of {} at {at}", own[at], expected[at])),
    }
}
