//! `panoply bench training`: whole training steps, forward, backward, update and the loss read back; in f32, and with layers that
//! multiply in bf16.

use std::process::ExitCode;
use std::time::Instant;

use panoply::nn::{
    AdamW, BatchNorm, BlockShape, Cell, Conv2d, EncoderBlock, Flatten, Layer, Linear, Map, MaxPool, Mlp, Module, Pass,
    Recurrent, Sequential,
};
use panoply::{Conv, DType, Device, Profile, Result, Rng, Tensor, eval};
use serde_json::json;

use super::{Profiled, repeated};

/// A network with a batch to learn.
struct Row {
    name: &'static str,
    run: fn(&mut Bench<'_>) -> Result<()>,
}

const ROWS: &[Row] = &[
    Row { name: "MLP 784-512-256-10, batch 64", run: |bench| bench.mlp(64) },
    Row { name: "MLP 784-512-256-10, batch 1024", run: |bench| bench.mlp(1024) },
    Row { name: "CNN 28×28, batch 64", run: |bench| bench.cnn() },
    Row { name: "LSTM 64→128, T = 50, batch 32", run: |bench| bench.lstm() },
    Row { name: "transformer, d 256, 4 layers, 8 × 128", run: |bench| bench.transformer() },
];

/// One row under way.
struct Bench<'a> {
    device: &'a Device,
    budget: f64,
    profile: bool,
    /// What layers that multiply compute in.
    precision: DType,
    rng: Rng,
    /// The median of a step, once there is one.
    median: f64,
    params: usize,
}

pub fn run(Profiled { options, profile }: &Profiled) -> Result<ExitCode> {
    let choice = options.device.select()?;
    choice.explain();
    let device = choice.device();
    device.scope(|| {
        let rows =
            [DType::F32, DType::BF16].into_iter().flat_map(|precision| ROWS.iter().map(move |row| (row, precision)));
        rows.into_iter().try_for_each(|(row, precision)| {
            let (rng, budget, profile) = (Rng::seed(1), options.seconds, *profile);
            let mut bench = Bench { device, budget, profile, precision, rng, median: 0.0, params: 0 };
            (row.run)(&mut bench)?;
            let seconds = bench.median;
            let steps = 1.0 / seconds;
            let name =
                if precision == DType::F32 { row.name.to_string() } else { format!("{}, {precision}", row.name) };
            if options.json {
                let (device, dtype) = (device.spelling(), precision.to_string());
                let row = json!({
                    "schema": 1, "name": name, "device": device, "dtype": dtype, "seconds": seconds,
                    "parameters": bench.params,
                });
                println!("{row}");
            } else {
                println!("{name:<43} {:>9.3} ms a step, {steps:>8.0} steps/s", seconds * 1e3);
            }
            Ok(())
        })
    })?;
    Ok(choice.exit_code())
}

impl Bench<'_> {
    fn mlp(&mut self, batch: usize) -> Result<()> {
        let model = Mlp::new(&[784, 512, 256, 10], 0.0, &mut self.rng);
        self.classifier(model, &[batch, 784], 10)
    }

    /// Two convolutions with pooling, the first one normalised.
    fn cnn(&mut self) -> Result<()> {
        let same = Conv { padding: [1, 1], ..Conv::default() };
        let model = Sequential::new()
            .then(Conv2d::with(1, 32, [3, 3], same, &mut self.rng))
            .then(BatchNorm::new(32))
            .then(Map(Tensor::relu))
            .then(MaxPool::new([2, 2]))
            .then(Conv2d::with(32, 64, [3, 3], same, &mut self.rng))
            .then(Map(Tensor::relu))
            .then(MaxPool::new([2, 2]))
            .then(Flatten)
            .then(Linear::new(64 * 49, 10, &mut self.rng));
        self.classifier(model, &[64, 1, 28, 28], 10)
    }

    /// The last output of an LSTM through a dense layer.
    fn lstm(&mut self) -> Result<()> {
        let model = Sequential::new()
            .then(Recurrent::new(Cell::Lstm, 64, 128, 1, false, &mut self.rng))
            .then(Map(|x| x.slice((.., -1))))
            .then(Linear::new(128, 10, &mut self.rng));
        self.classifier(model, &[32, 50, 64], 10)
    }

    /// The mean over an encoder's positions through a dense layer.
    fn transformer(&mut self) -> Result<()> {
        let shape = BlockShape { width: 256, heads: 4, inner: 1024, norm_first: true, dropout: 0.0, causal: false };
        let blocks = (0..4).fold(Sequential::new(), |blocks, _| blocks.then(EncoderBlock::new(shape, &mut self.rng)));
        let model = blocks.then(Map(|x| x.mean(1))).then(Linear::new(256, 10, &mut self.rng));
        self.classifier(model, &[8, 128, 256], 10)
    }

    /// Steps of Adam on random examples that stay on the device.
    fn classifier(&mut self, mut model: impl Layer + Module, input: &[usize], classes: usize) -> Result<()> {
        let x = self.rng.normal(input);
        let y = (self.rng.uniform([input[0]]) * classes as f64).cast(DType::I32);
        eval(&[&x, &y])?;
        let (x, y): (Tensor, Tensor) = (x.detach(), y.detach());
        let mut optimiser = AdamW::new(1e-3);
        self.params = model.param_count();
        let mut step = || -> Result<f64> {
            let start = Instant::now();
            let mut pass = Pass::train(&mut self.rng);
            if self.precision != DType::F32 {
                pass = pass.in_precision(self.precision);
            }
            let loss = model.forward(&x, &mut pass).cast(DType::F32).cross_entropy(&y);
            optimiser.step(&mut model, &loss, pass)?;
            self.device.synchronize()?;
            Ok(start.elapsed().as_secs_f64())
        };
        for _ in 0..3 {
            step()?;
        }
        if self.profile {
            let profile = Profile::start(self.device)?;
            step()?;
            eprintln!("{}", profile.finish()?);
        }
        self.median = repeated(self.budget, step)?;
        Ok(())
    }
}
