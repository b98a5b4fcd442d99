//! Comparison of layers, optimizers and schedules with PyTorch, from the files made by `tests/fixtures/make.py` of `panoply-tensor`.

mod layers;
mod optimizers;
mod state_dict;
mod training;

use panoply_nn::{Linear, Param};
use panoply_tensor::{DType, Device, Tensor};
use safetensors::SafeTensors;

const LAYERS: &[u8] = include_bytes!("../../../../tensor/tests/fixtures/layers.safetensors");
const PACKED: &[u8] = include_bytes!("../../../../tensor/tests/fixtures/packed.safetensors");
const OPTIMIZERS: &[u8] = include_bytes!("../../../../tensor/tests/fixtures/optimizers.safetensors");

/// Named arrays, of which those with one prefix are used.
struct Fixture {
    pub file: SafeTensors<'static>,
    pub part: String,
}

impl Fixture {
    fn new(bytes: &'static [u8], part: &str) -> Fixture {
        Fixture { file: SafeTensors::deserialize(bytes).unwrap(), part: part.to_string() }
    }

    #[track_caller]
    fn get(&self, name: &str) -> Tensor {
        let name = if self.part.is_empty() { name.to_string() } else { format!("{}/{name}", self.part) };
        let view = self.file.tensor(&name).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(view.dtype(), safetensors::Dtype::F32, "{name}");
        Tensor::from_bytes(view.data(), view.shape().to_vec(), DType::F32)
    }
}

/// Sets weight and bias of a linear layer.
fn set_linear(linear: &mut Linear, weight: &Tensor, bias: &Tensor) {
    set(&mut linear.weight, weight);
    set(linear.bias.as_mut().unwrap(), bias);
}

fn set(param: &mut Param, value: &Tensor) {
    param.set(value).unwrap();
}

#[track_caller]
fn close(what: &str, have: &Tensor, want: &Tensor, tolerance: f64) {
    assert_eq!(have.shape().unwrap(), want.shape().unwrap(), "{what}: shapes");
    let (have, want) = (have.to_vec::<f32>().unwrap(), want.to_vec::<f32>().unwrap());
    let scale = want.iter().fold(1.0f32, |top, x| top.max(x.abs()));
    for (i, (have, want)) in have.iter().zip(&want).enumerate() {
        assert!(
            f64::from((have - want).abs()) <= tolerance * f64::from(scale),
            "{what}: element {i} is {have}, expected {want}"
        );
    }
}

/// Returns a weighted sum with a different weight for each element, as in `make.py`.
fn weighted(tensor: &Tensor) -> Tensor {
    let elems = tensor.shape().unwrap().numel();
    let weights: Vec<f32> = (0..elems).map(|i| (i as f64 * 0.37 + 0.5).sin() as f32).collect();
    (tensor.reshape([-1]) * Tensor::from_slice(&weights, [elems])).sum(..)
}

fn on_cpu(work: impl FnOnce()) {
    Device::get("cpu").unwrap().scope(work);
}
