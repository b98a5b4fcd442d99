//! The rows in Burn, on its CPU backend Flex. Attention, norms and the LSTM are its own modules.

use std::error::Error;

use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::pool::{MaxPool2d, MaxPool2dConfig};
use burn::nn::transformer::{TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput};
use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig, Lstm, LstmConfig, PaddingConfig2d};
use burn::optim::{AdamWConfig, GradientsParams};
use burn::tensor::activation::relu;
use burn::tensor::{Device, Distribution, Int, Tensor};

use crate::{RATE, Row, Step, name};

pub const ROWS: &[Row] = &[
    Row { name: name::MLP_64, make: || mlp(64) },
    Row { name: name::MLP_1024, make: || mlp(1024) },
    Row { name: name::CNN, make: cnn },
    Row { name: name::LSTM, make: lstm },
    Row { name: name::TRANSFORMER, make: transformer },
];

fn device() -> Device {
    Device::flex().autodiff()
}

/// Returns a step of AdamW on one random batch.
fn steps<M: Module + 'static, const D: usize>(
    model: M,
    shape: [usize; D],
    forward: fn(&M, Tensor<D>) -> Tensor<2>,
) -> Result<Step, Box<dyn Error>> {
    let x = Tensor::<D>::random(shape, Distribution::Normal(0.0, 1.0), &device());
    let labels: Vec<i32> = (0..shape[0] as i32).map(|i| i * 7 % 10).collect();
    let y = Tensor::<1, Int>::from_ints(labels.as_slice(), &device());
    let loss = CrossEntropyLossConfig::new().init(&device());
    let mut optimizer = AdamWConfig::new().init();
    let mut model = Some(model);
    Ok(Box::new(move || {
        let now = model.take().ok_or("a step failed before this one")?;
        let loss = loss.forward(forward(&now, x.clone()), y.clone());
        let gradients = GradientsParams::from_grads(loss.backward(), &now);
        model = Some(optimizer.step(RATE, now, gradients));
        Ok(loss.into_scalar::<f32>())
    }))
}

fn mlp(batch: usize) -> Result<Step, Box<dyn Error>> {
    let layers: Vec<Linear> =
        [784, 512, 256, 10].windows(2).map(|pair| LinearConfig::new(pair[0], pair[1]).init(&device())).collect();
    steps(layers, [batch, 784], |layers, x| {
        let x = relu(layers[0].forward(x));
        layers[2].forward(relu(layers[1].forward(x)))
    })
}

#[derive(Module, Debug)]
struct Cnn {
    first: Conv2d,
    norm: BatchNorm,
    second: Conv2d,
    pool: MaxPool2d,
    out: Linear,
}

fn cnn() -> Result<Step, Box<dyn Error>> {
    let same = PaddingConfig2d::Explicit(1, 1, 1, 1);
    let conv = |channels| Conv2dConfig::new(channels, [3, 3]).with_padding(same.clone()).init(&device());
    let model = Cnn {
        first: conv([1, 32]),
        norm: BatchNormConfig::new(32).init(&device()),
        second: conv([32, 64]),
        pool: MaxPool2dConfig::new([2, 2]).init(),
        out: LinearConfig::new(64 * 49, 10).init(&device()),
    };
    steps(model, [64, 1, 28, 28], |model, x: Tensor<4>| {
        let x = model.pool.forward(relu(model.norm.forward(model.first.forward(x))));
        let x = model.pool.forward(relu(model.second.forward(x)));
        model.out.forward(x.flatten(1, 3))
    })
}

#[derive(Module, Debug)]
struct Sequence {
    lstm: Lstm,
    out: Linear,
}

fn lstm() -> Result<Step, Box<dyn Error>> {
    let model = Sequence {
        lstm: LstmConfig::new(64, 128, true).init(&device()),
        out: LinearConfig::new(128, 10).init(&device()),
    };
    steps(model, [32, 50, 64], |model, x: Tensor<3>| model.out.forward(model.lstm.forward(x, None).1.hidden))
}

#[derive(Module, Debug)]
struct Encoder {
    blocks: TransformerEncoder,
    out: Linear,
}

fn transformer() -> Result<Step, Box<dyn Error>> {
    let blocks = TransformerEncoderConfig::new(256, 1024, 4, 4).with_dropout(0.0).with_norm_first(true);
    let model = Encoder { blocks: blocks.init(&device()), out: LinearConfig::new(256, 10).init(&device()) };
    steps(model, [8, 128, 256], |model, x: Tensor<3>| {
        let seen = model.blocks.forward(TransformerEncoderInput::new(x));
        model.out.forward(seen.mean_dim(1).squeeze_dim(1))
    })
}
