//! Comparison with PyTorch, from the files in `fixtures/` (made by `fixtures/make.py`): values and gradients of operations, and results for
//! NaN, infinities, signed zeros, denormals, huge and tiny numbers.

mod cases;
mod dtypes;
mod edges;
mod gradients;

use panoply_tensor::{DType, Device, Tensor};
use safetensors::SafeTensors;

/// Returns the devices that are compared. The op table compares every operation on every device with the oracle. OpenCL, whose compilers
/// are slow, therefore runs only the tests with `some_kernels`, except in the full run.
fn devices(some_kernels: bool) -> Vec<Device> {
    let compiled = is_full() || (some_kernels && !is_set("PANOPLY_TEST_QUICK"));
    let names: &[&str] = if compiled { &["cpu", "opencl:0"] } else { &["cpu"] };
    let found = names.iter().filter_map(|name| match Device::get(name) {
        Ok(device) => Some(device),
        Err(error) => {
            eprintln!("SKIPPED: comparison with PyTorch on {name}: {}", error.message());
            None
        }
    });
    found.collect()
}

fn is_set(name: &str) -> bool {
    std::env::var(name).is_ok_and(|value| value == "1")
}

fn is_full() -> bool {
    is_set("PANOPLY_TEST_FULL")
}

/// A file of named arrays.
struct Fixture<'a>(SafeTensors<'a>);

impl Fixture<'_> {
    fn new(bytes: &[u8]) -> Fixture<'_> {
        Fixture(SafeTensors::deserialize(bytes).unwrap())
    }

    /// Returns the array of this name as a tensor, if there is one.
    fn tensor(&self, name: &str) -> Option<Tensor> {
        let view = self.0.tensor(name).ok()?;
        let dtype = match view.dtype() {
            safetensors::Dtype::BOOL => DType::Bool,
            safetensors::Dtype::I8 => DType::I8,
            safetensors::Dtype::I16 => DType::I16,
            safetensors::Dtype::I32 => DType::I32,
            safetensors::Dtype::I64 => DType::I64,
            safetensors::Dtype::U8 => DType::U8,
            safetensors::Dtype::U16 => DType::U16,
            safetensors::Dtype::U32 => DType::U32,
            safetensors::Dtype::U64 => DType::U64,
            safetensors::Dtype::F16 => DType::F16,
            safetensors::Dtype::BF16 => DType::BF16,
            safetensors::Dtype::F32 => DType::F32,
            safetensors::Dtype::F64 => DType::F64,
            other => panic!("{name} holds {other:?}"),
        };
        Some(Tensor::from_bytes(view.data(), view.shape().to_vec(), dtype))
    }

    #[track_caller]
    fn get(&self, name: &str) -> Tensor {
        self.tensor(name).unwrap_or_else(|| panic!("no {name} in the fixture"))
    }
}

fn values(tensor: &Tensor) -> Vec<f64> {
    let plain = if tensor.dtype() == DType::Bool { tensor.cast(DType::I32) } else { tensor.clone() };
    plain.cast(DType::F64).to_vec::<f64>().unwrap()
}

#[track_caller]
fn close(what: &str, have: &Tensor, want: &Tensor, tolerance: f64) {
    assert_eq!(have.shape().unwrap(), want.shape().unwrap(), "{what}: shapes");
    let (have, want) = (values(have), values(want));
    let scale = want.iter().filter(|x| x.is_finite()).fold(1.0f64, |top, x| top.max(x.abs()));
    for (i, (have, want)) in have.iter().zip(&want).enumerate() {
        let same = (have.is_nan() && want.is_nan()) || have == want || (have - want).abs() <= tolerance * scale;
        assert!(same, "{what}: element {i} is {have}, expected {want}");
    }
}
