//! `panoply bench training`: whole training steps with forward, backward, update and readback of the loss, in f32 and with layers that
//! multiply in bf16. Reports the time of a step, the part of it on the host, and the memory that the first steps take.

use std::process::ExitCode;
use std::time::Instant;

use clap::Args;
use panoply::nn::{
    AdamW, BatchNorm, Conv2d, Flatten, ForwardContext, Lambda, Layer, Linear, Lstm, MaxPool, Mlp, Module, Sequential,
    TransformerConfig, TransformerEncoderLayer,
};
use panoply::{DType, Device, Error, Profiler, Result, Rng, Tensor, eval};
use serde_json::json;

use super::{ProfiledArgs, median_time, rss};

#[derive(Args)]
pub struct BenchTrainingCommand {
    #[command(flatten)]
    profiled: ProfiledArgs,
    /// Run one case by name; only then is the resident memory of its first steps reported [default: all cases]
    #[arg(long, value_name = "NAME")]
    case: Option<String>,
}

/// A network and a batch to train on.
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

/// Runs first, so that everything that any network makes the process load, threads included, is already loaded.
const FIRST: Row = Row {
    name: "a dense layer",
    run: |bench| {
        let model = Linear::new(8, 10, &mut bench.rng);
        bench.classifier(model, &[4, 8], 10)
    },
};

/// State of a running row.
struct Bench<'a> {
    device: &'a Device,
    budget: f64,
    profile: bool,
    /// Element type in which layers multiply.
    precision: DType,
    rng: Rng,
    /// Median time of a step, once measured.
    median: f64,
    params: usize,
}

/// Measurement of a row.
struct Measurement {
    /// Time of a step.
    seconds: f64,
    /// Time of a step on the host.
    host_seconds: f64,
    /// Peak of allocated device memory.
    pool_bytes: u64,
    /// Peak growth of the process, if the system reports it.
    grown: Option<u64>,
    /// Number of trained parameters.
    params: usize,
}

pub fn run(
    BenchTrainingCommand { profiled: ProfiledArgs { options, profile }, case }: &BenchTrainingCommand,
) -> Result<ExitCode> {
    let choice = options.device.select()?;
    let device = choice.device();
    let rows = [DType::F32, DType::BF16].into_iter().flat_map(|precision| ROWS.iter().map(move |row| (row, precision)));
    let wanted = |name: &str| case.as_ref().is_none_or(|case| case == name);
    let rows: Vec<_> = rows.map(|(row, precision)| (row.title(precision), row, precision)).collect();
    if !rows.iter().any(|(name, ..)| wanted(name)) {
        let names: Vec<&str> = rows.iter().map(|(name, ..)| name.as_str()).collect();
        let message = format!("--case {}: unknown case", case.as_deref().unwrap_or_default());
        return Err(Error::mistake(message).note(format!("the cases are {}", names.join("; "))));
    }
    choice.explain();
    rows.into_iter().filter(|(name, ..)| wanted(name)).try_for_each(|(name, row, precision)| {
        let taken = Measurement::by(row, precision, device, options.min_time, *profile)?;
        let Measurement { seconds, host_seconds, pool_bytes, grown, params } = taken;
        // Memory that earlier rows freed is possibly not returned to the system.
        let resident_bytes = grown.filter(|_| case.is_some());
        if options.jsonl {
            let (device, dtype) = (device.device_string(), precision.to_string());
            let row = json!({
                "schema": 1, "name": name, "device": device, "dtype": dtype, "seconds": seconds, "host_seconds": host_seconds,
                "pool_bytes": pool_bytes, "rss_bytes": resident_bytes, "num_parameters": params,
            });
            println!("{row}");
        } else {
            let (steps, host, mib) = (1.0 / seconds, host_seconds * 1e6, pool_bytes as f64 / f64::from(1 << 20));
            let took = format!("{:>9.3} ms/step, {steps:>8.0} steps/s", seconds * 1e3);
            println!("{name:<43} {took}, host {host:>6.0} µs, {mib:>7.1} MiB");
        }
        Ok(())
    })?;
    Ok(ExitCode::SUCCESS)
}

impl Measurement {
    fn by(row: &Row, precision: DType, device: &Device, budget: f64, profile: bool) -> Result<Measurement> {
        let on = |device: &Device, row: &Row, budget: f64, profile: bool| {
            device.scope(|| {
                let mut bench =
                    Bench { device, budget, profile, precision, rng: Rng::seed_from_u64(1), median: 0.0, params: 0 };
                (row.run)(&mut bench).map(|()| (bench.median, bench.params))
            })
        };
        on(device, &FIRST, 0.0, false)?;
        device.reset_peak_memory_stats();
        let before = device.memory_stats().allocated;
        let (_, grown) = rss::growth(|| on(device, row, 0.0, false))?;
        let pool_bytes = device.memory_stats().peak_allocated - before;
        let (seconds, params) = on(device, row, budget, profile)?;
        let (host_seconds, _) = on(&device.dry_run(), row, budget, false)?;
        Ok(Measurement { seconds, host_seconds, pool_bytes, grown, params })
    }
}

impl Row {
    fn title(&self, precision: DType) -> String {
        if precision == DType::F32 { self.name.to_string() } else { format!("{}, {precision}", self.name) }
    }
}

impl Bench<'_> {
    fn mlp(&mut self, batch: usize) -> Result<()> {
        let model = Mlp::new(&[784, 512, 256, 10], 0.0, &mut self.rng);
        self.classifier(model, &[batch, 784], 10)
    }

    /// Two convolutions with pooling, the first one with batch norm.
    fn cnn(&mut self) -> Result<()> {
        let model = Sequential::new()
            .add(Conv2d::new(1, 32, [3, 3], &mut self.rng).padding([1, 1]))
            .add(BatchNorm::new(32))
            .add(Lambda(Tensor::relu))
            .add(MaxPool::new([2, 2]))
            .add(Conv2d::new(32, 64, [3, 3], &mut self.rng).padding([1, 1]))
            .add(Lambda(Tensor::relu))
            .add(MaxPool::new([2, 2]))
            .add(Flatten)
            .add(Linear::new(64 * 49, 10, &mut self.rng));
        self.classifier(model, &[64, 1, 28, 28], 10)
    }

    /// A linear layer on the last output of an LSTM.
    fn lstm(&mut self) -> Result<()> {
        let model = Sequential::new()
            .add(Lstm::new(64, 128, &mut self.rng))
            .add(Lambda(|x| x.slice((.., -1))))
            .add(Linear::new(128, 10, &mut self.rng));
        self.classifier(model, &[32, 50, 64], 10)
    }

    /// A linear layer on the mean over the positions of an encoder.
    fn transformer(&mut self) -> Result<()> {
        let shape = TransformerConfig {
            d_model: 256,
            num_heads: 4,
            dim_feedforward: 1024,
            norm_first: true,
            dropout: 0.0,
            is_causal: false,
        };
        let blocks =
            (0..4).fold(Sequential::new(), |blocks, _| blocks.add(TransformerEncoderLayer::new(shape, &mut self.rng)));
        let model = blocks.add(Lambda(|x| x.mean(1))).add(Linear::new(256, 10, &mut self.rng));
        self.classifier(model, &[8, 128, 256], 10)
    }

    /// Measures AdamW steps on random examples that stay on the device.
    fn classifier(&mut self, mut model: impl Layer + Module, input: &[usize], classes: usize) -> Result<()> {
        let x = self.rng.normal(input);
        let y = (self.rng.uniform([input[0]]) * classes as f64).cast(DType::I32);
        eval(&[&x, &y])?;
        let (x, y): (Tensor, Tensor) = (x.detach(), y.detach());
        let mut optimizer = AdamW::new(1e-3);
        self.params = model.num_parameters();
        let mut step = || -> Result<f64> {
            let start = Instant::now();
            let mut pass = ForwardContext::train(&mut self.rng);
            if self.precision != DType::F32 {
                pass = pass.autocast(self.precision);
            }
            let loss = model.forward(&x, &mut pass).cast(DType::F32).cross_entropy(&y);
            optimizer.step(&mut model, loss, pass)?;
            self.device.synchronize()?;
            Ok(start.elapsed().as_secs_f64())
        };
        for _ in 0..3 {
            step()?;
        }
        if self.profile {
            let profile = Profiler::start(self.device)?;
            step()?;
            eprintln!("{}", profile.finish()?);
        }
        self.median = median_time(self.budget, step)?;
        Ok(())
    }
}
