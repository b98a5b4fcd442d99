//! The rows in candle, on its CPU backend. It has no transformer block; this one follows those in candle's models, with the variants of
//! norm and softmax that are differentiable.

use std::error::Error;

use candle_core::{DType, Device, Module, Result, Tensor, Var};
use candle_nn::ops::{layer_norm_slow, softmax};
use candle_nn::{
    AdamW, BatchNorm, Conv2d, Conv2dConfig, LSTM, LSTMConfig, Linear, Optimizer, RNN, VarBuilder, VarMap, batch_norm,
    conv2d, linear, loss, lstm,
};

use crate::{RATE, Row, Step, name};

pub const ROWS: &[Row] = &[
    Row { name: name::MLP_64, make: || mlp(64) },
    Row { name: name::MLP_1024, make: || mlp(1024) },
    Row { name: name::CNN, make: cnn },
    Row { name: name::LSTM, make: sequence },
    Row { name: name::TRANSFORMER, make: transformer },
];

/// Returns a step of AdamW on one random batch, with the forward function that `make` creates from the parameters.
fn steps<F: Fn(&Tensor) -> Result<Tensor> + 'static>(
    shape: &[usize],
    make: impl FnOnce(VarBuilder<'_>) -> Result<F>,
) -> std::result::Result<Step, Box<dyn Error>> {
    let map = VarMap::new();
    let forward = make(VarBuilder::from_varmap(&map, DType::F32, &Device::Cpu))?;
    let x = Tensor::randn(0f32, 1.0, shape, &Device::Cpu)?;
    let labels: Vec<u32> = (0..shape[0] as u32).map(|i| i * 7 % 10).collect();
    let y = Tensor::new(labels, &Device::Cpu)?;
    let vars: Vec<Var> = map.all_vars();
    let mut optimizer = AdamW::new_lr(vars, RATE)?;
    Ok(Box::new(move || {
        let loss = loss::cross_entropy(&forward(&x)?, &y)?;
        optimizer.backward_step(&loss)?;
        Ok(loss.to_scalar::<f32>()?)
    }))
}

fn mlp(batch: usize) -> std::result::Result<Step, Box<dyn Error>> {
    steps(&[batch, 784], |vb| {
        let [first, second] = [linear(784, 512, vb.pp("0"))?, linear(512, 256, vb.pp("1"))?];
        let out = linear(256, 10, vb.pp("2"))?;
        Ok(move |x: &Tensor| out.forward(&second.forward(&first.forward(x)?.relu()?)?.relu()?))
    })
}

fn cnn() -> std::result::Result<Step, Box<dyn Error>> {
    let same = Conv2dConfig { padding: 1, ..Conv2dConfig::default() };
    steps(&[64, 1, 28, 28], |vb| {
        let (first, second): (Conv2d, Conv2d) =
            (conv2d(1, 32, 3, same, vb.pp("0"))?, conv2d(32, 64, 3, same, vb.pp("1"))?);
        let (norm, out): (BatchNorm, Linear) = (batch_norm(32, 1e-5, vb.pp("2"))?, linear(64 * 49, 10, vb.pp("3"))?);
        Ok(move |x: &Tensor| {
            let x = norm.forward_train(&first.forward(x)?)?.relu()?.max_pool2d(2)?;
            let x = second.forward(&x)?.relu()?.max_pool2d(2)?;
            out.forward(&x.flatten_from(1)?)
        })
    })
}

fn sequence() -> std::result::Result<Step, Box<dyn Error>> {
    steps(&[32, 50, 64], |vb| {
        let layer: LSTM = lstm(64, 128, LSTMConfig::default(), vb.pp("0"))?;
        let out = linear(128, 10, vb.pp("1"))?;
        Ok(move |x: &Tensor| {
            let states = layer.seq(x)?;
            out.forward(states[states.len() - 1].h())
        })
    })
}

/// A pre-norm transformer block.
struct Block {
    joint: Linear,
    output: Linear,
    up: Linear,
    down: Linear,
    /// Scale and shift of both norms.
    norms: [(Tensor, Tensor); 2],
}

const WIDTH: usize = 256;
const HEADS: usize = 4;

impl Block {
    fn new(vb: &VarBuilder<'_>) -> Result<Block> {
        let norm = |name: &str| -> Result<(Tensor, Tensor)> {
            let own = vb.pp(name);
            let weight = own.get_with_hints(WIDTH, "weight", candle_nn::Init::Const(1.0))?;
            Ok((weight, own.get_with_hints(WIDTH, "bias", candle_nn::Init::Const(0.0))?))
        };
        Ok(Block {
            joint: linear(WIDTH, 3 * WIDTH, vb.pp("joint"))?,
            output: linear(WIDTH, WIDTH, vb.pp("output"))?,
            up: linear(WIDTH, 4 * WIDTH, vb.pp("up"))?,
            down: linear(4 * WIDTH, WIDTH, vb.pp("down"))?,
            norms: [norm("first")?, norm("second")?],
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (batch, time, _) = x.dims3()?;
        let normal = |x: &Tensor, at: usize| layer_norm_slow(x, &self.norms[at].0, &self.norms[at].1, 1e-5);
        let joint = self.joint.forward(&normal(x, 0)?)?.reshape((batch, time, 3, HEADS, WIDTH / HEADS))?;
        let part = |at: usize| joint.narrow(2, at, 1)?.squeeze(2)?.transpose(1, 2)?.contiguous();
        let (query, key, value) = (part(0)?, part(1)?, part(2)?);
        let scores = (query.matmul(&key.t()?.contiguous()?)? * (1.0 / ((WIDTH / HEADS) as f64).sqrt()))?;
        let taken = softmax(&scores, 3)?.matmul(&value)?.transpose(1, 2)?.reshape((batch, time, WIDTH))?;
        let x = (x + self.output.forward(&taken)?)?;
        let inner = self.up.forward(&normal(&x, 1)?)?.gelu_erf()?;
        &x + self.down.forward(&inner)?
    }
}

fn transformer() -> std::result::Result<Step, Box<dyn Error>> {
    steps(&[8, 128, WIDTH], |vb| {
        let blocks = (0..4).map(|at| Block::new(&vb.pp(at))).collect::<Result<Vec<Block>>>()?;
        let out = linear(WIDTH, 10, vb.pp("out"))?;
        Ok(move |x: &Tensor| {
            let seen = blocks.iter().try_fold(x.clone(), |x, block| block.forward(&x))?;
            out.forward(&seen.mean(1)?)
        })
    })
}
