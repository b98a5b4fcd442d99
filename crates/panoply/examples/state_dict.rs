//! A PyTorch `state_dict` in a safetensors file, loaded into a model whose outputs are those of PyTorch.
//!
//! `cargo run --release --example state_dict`

use std::collections::HashMap;

use panoply::nn::{ForwardContext, Layer, Linear, Lstm, checkpoint, state_dict};
use panoply::prelude::*;
use panoply::{DType, Module, Rng, Tensor};

/// Arrays of PyTorch's `nn.LSTM(3, 4)` and `nn.Linear(4, 2)` in fields of these names.
const ARRAYS: [(&str, &[usize]); 6] = [
    ("lstm.weight_ih_l0", &[16, 3]),
    ("lstm.weight_hh_l0", &[16, 4]),
    ("lstm.bias_ih_l0", &[16]),
    ("lstm.bias_hh_l0", &[16]),
    ("head.weight", &[2, 4]),
    ("head.bias", &[2]),
];

#[derive(Module, Clone)]
struct Model {
    lstm: Lstm,
    head: Linear,
}

impl Layer for Model {
    fn forward(&self, x: &Tensor, pass: &mut ForwardContext<'_>) -> Tensor {
        let last = self.lstm.forward(x, pass).slice((.., -1));
        self.head.forward(&last, pass)
    }
}

/// Returns sin(0), sin(1), … in a shape.
fn sines(shape: &[usize]) -> Tensor {
    Tensor::arange(shape.iter().product()).cast(DType::F32).sin().reshape(shape)
}

/// Writes a file as `safetensors.torch.save_file` does, loads it, and runs the model.
pub fn main() -> Result<()> {
    let file = std::env::temp_dir().join(format!("panoply-state-dict-{}.safetensors", std::process::id()));
    let arrays = ARRAYS.map(|(name, shape)| (name.to_string(), sines(shape)));
    checkpoint::save_tensors(&file, &arrays, HashMap::new())?;

    let mut rng = Rng::seed_from_u64(0);
    let mut model = Model { lstm: Lstm::new(3, 4, &mut rng), head: Linear::new(4, 2, &mut rng) };
    state_dict::load(&mut model, &file, |name| Some(name.to_string()))?;
    let outputs = model.forward(&sines(&[2, 5, 3]), &mut ForwardContext::eval());
    println!("outputs of the loaded model: {outputs}");
    // As PyTorch computes them.
    let expected = Tensor::from_slice(&[-0.020386f32, 0.499075, -0.027921, -0.040785], [2, 2]);
    assert!((outputs - expected).abs().max(..).item::<f64>()? < 1e-5, "the outputs differ from those of PyTorch");
    std::fs::remove_file(file).ok();
    Ok(())
}
