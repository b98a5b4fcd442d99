//! `panoply bench mesh`: tasks, distributed arrays and data-parallel training on the CPU, beside the same work without a mesh.
//!
//! A training step is measured by processes of its own: one with two threads, and two ranks of a launcher with one thread each. Both run this
//! command with `--step`, in turns.

use std::ops::ControlFlow;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::Instant;

use clap::Args;
use panoply::mesh::{DArray, Layout, Mesh, MpiLauncher, RankGroup};
use panoply::nn::data::{Dataset, Targets};
use panoply::nn::trainer::{Callback, StepReport};
use panoply::nn::{Mlp, ProcessGroup, Sgd, TrainConfig, Trainer};
use panoply::{DType, Device, Error, Result, Rng, Tensor, eval};
use serde_json::{Value, json};

use super::{duration, median_time, seconds};

#[derive(Args)]
pub struct BenchMeshCommand {
    /// Minimum seconds of measuring per row
    #[arg(long, visible_alias = "seconds", default_value_t = 1.0, value_parser = seconds)]
    min_time: f64,
    /// Print JSON lines on stdout, one document per row
    #[arg(long, visible_alias = "json")]
    jsonl: bool,
    /// Small sizes, to try the command
    #[arg(long)]
    quick: bool,
    /// Measure only the training step, of this process or of the ranks of a launcher, and print its seconds
    #[arg(long, hide = true)]
    step: bool,
}

/// Sizes of the rows.
struct Sizes {
    tasks: usize,
    /// Rows and columns of the product, and of its blocks.
    product: [usize; 2],
    /// Rows and columns of the factorized matrix, and of its tiles.
    cholesky: [usize; 2],
    layers: &'static [usize],
    batch: usize,
}

const FULL: Sizes =
    Sizes { tasks: 10_000, product: [4096, 1024], cholesky: [4096, 512], layers: &[784, 512, 256, 10], batch: 1024 };

const QUICK: Sizes = Sizes { tasks: 1000, product: [256, 64], cholesky: [256, 32], layers: &[64, 32, 10], batch: 64 };

/// Number of batches in an epoch of the training row.
const BATCHES: usize = 8;

/// Number of turns of the processes that measure a training step.
const TURNS: usize = 3;

/// Threads of the process that trains alone, and number of ranks with one thread each.
const WORKERS: usize = 2;

pub fn run(arguments: &BenchMeshCommand) -> Result<ExitCode> {
    let sizes = if arguments.quick { QUICK } else { FULL };
    let device = Device::get("cpu")?;
    if arguments.step {
        return device.scope(|| step(arguments, &sizes));
    }
    let mesh = Mesh::open()?;
    if let Some(group) = mesh.group() {
        let error = Error::mistake("`panoply bench mesh` starts the ranks that it needs; run it without a launcher");
        eprintln!("panoply: rank {}: {error}", group.rank());
        group.abort(1);
    }
    let print = |row: Value, line: String| match arguments.jsonl {
        true => println!("{row}"),
        false => println!("{line}"),
    };
    device.scope(|| {
        let (row, line) = empty_task(&mesh, &sizes, arguments.min_time)?;
        print(row, line);
        let (row, line) = product(&mesh, &sizes, arguments.min_time)?;
        print(row, line);
        let (row, line) = cholesky(&mesh, &sizes, arguments.min_time)?;
        print(row, line);
        match MpiLauncher::find() {
            Ok(_) => {
                let (row, line) = training(arguments, &sizes)?;
                print(row, line);
            }
            Err(error) => note!("no training row: {error}"),
        }
        Ok::<(), Error>(())
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Measures tasks without arguments, from the first call of `spawn` to the end of the last task.
fn empty_task(mesh: &Mesh, sizes: &Sizes, min_time: f64) -> Result<(Value, String)> {
    let run = || {
        let start = Instant::now();
        for _ in 0..sizes.tasks {
            mesh.spawn("empty", (), |()| ())?;
        }
        mesh.wait()?;
        Ok(start.elapsed().as_secs_f64() / sizes.tasks as f64)
    };
    let seconds = median_time(min_time / sizes.tasks as f64, run)?;
    let name = "empty task";
    let row = json!({ "schema": 1, "name": name, "seconds": seconds, "tasks_per_s": 1.0 / seconds });
    Ok((row, format!("{name:<40} {:>10}", duration(seconds))))
}

/// Median seconds of two kinds of work that take turns.
fn in_turns(
    min_time: f64,
    mut first: impl FnMut() -> Result<()>,
    mut second: impl FnMut() -> Result<()>,
) -> Result<[f64; 2]> {
    let timed = |work: &mut dyn FnMut() -> Result<()>| {
        let start = Instant::now();
        work().map(|()| start.elapsed().as_secs_f64())
    };
    first()?;
    second()?;
    let mut others = Vec::new();
    let one = median_time(min_time, || {
        others.push(timed(&mut second)?);
        timed(&mut first)
    })?;
    others.sort_by(f64::total_cmp);
    Ok([one, others[others.len() / 2]])
}

/// Returns an evaluated symmetric positive definite matrix: a random one plus a multiple of the identity.
fn positive_definite(mesh: &Mesh, size: usize, layout: &Layout) -> Result<DArray> {
    let half = DArray::uniform(mesh, 2, [size, size], layout)?;
    let identity = DArray::distribute(mesh, &(Tensor::eye(size, DType::F32) * size as f64), layout)?;
    half.zip(&half.t()?, |x, y| (x + y) * 0.5)?.zip(&identity, |x, y| x + y)
}

/// Measures a product of blocks beside the product of two tensors.
fn product(mesh: &Mesh, sizes: &Sizes, min_time: f64) -> Result<(Value, String)> {
    let [size, block] = sizes.product;
    let layout = Layout::blocks([block, block]);
    let (a, b) = (DArray::uniform(mesh, 1, [size, size], &layout)?, DArray::uniform(mesh, 2, [size, size], &layout)?);
    let (whole_a, whole_b) = (a.collect()?, b.collect()?);
    eval(&[&whole_a, &whole_b])?;
    let blocks = || {
        a.matmul(&b)?;
        mesh.wait()
    };
    let plain = || whole_a.matmul(&whole_b).eval();
    let [seconds, plain] = in_turns(min_time, blocks, plain)?;
    let (ratio, rate) = (seconds / plain, 2.0 * (size as f64).powi(3) / seconds / 1e9);
    let name = format!("matmul {size}², blocks of {block}");
    let row = json!({
        "schema": 1, "name": name, "seconds": seconds, "plain_seconds": plain, "ratio": ratio, "gflop_per_s": rate,
    });
    Ok((row, format!("{name:<40} {:>10}, {ratio:.3} × the plain product", duration(seconds))))
}

/// Measures a Cholesky factorization by tiles beside the plain product of the same size, whose rate it can approach.
fn cholesky(mesh: &Mesh, sizes: &Sizes, min_time: f64) -> Result<(Value, String)> {
    let [size, tile] = sizes.cholesky;
    let matrix = positive_definite(mesh, size, &Layout::blocks([tile, tile]))?;
    let whole = matrix.collect()?;
    let mut factor = None;
    let factorize = || {
        factor = Some(matrix.cholesky()?);
        mesh.wait()
    };
    let [seconds, product] = in_turns(min_time, factorize, || whole.matmul(&whole).eval())?;
    let factor = factor.expect("it was factorized").collect()?;
    let residual = (factor.matmul(&factor.t()) - &whole).square().sum(..).sqrt() / whole.square().sum(..).sqrt();
    let residual: f64 = residual.item()?;
    let cube = (size as f64).powi(3);
    let (rate, product_rate) = (cube / 3.0 / seconds / 1e9, 2.0 * cube / product / 1e9);
    let fraction = rate / product_rate;
    let name = format!("cholesky {size}², tiles of {tile}");
    let row = json!({
        "schema": 1, "name": name, "seconds": seconds, "gflop_per_s": rate, "product_gflop_per_s": product_rate,
        "fraction_of_product": fraction, "residual": residual,
    });
    let share = 100.0 * fraction;
    let line =
        format!("{name:<40} {:>10}, {share:.0} % of the rate of products, residual {residual:.1e}", duration(seconds));
    Ok((row, line))
}

/// Measures a training step of one process with several threads, and of as many ranks with one thread each, which `panoply mesh run` starts.
fn training(arguments: &BenchMeshCommand, sizes: &Sizes) -> Result<(Value, String)> {
    let own = std::env::current_exe().map_err(|error| Error::io("cannot find this program", error))?;
    let measure = |ranks: usize| -> Result<f64> {
        let mut command = Command::new(&own);
        if ranks > 1 {
            command.args(["mesh", "run", "-n", &ranks.to_string(), "--"]);
        }
        let min_time = arguments.min_time / TURNS as f64;
        command.args(["bench", "mesh", "--step", "--min-time", &min_time.to_string()]);
        command.args(arguments.quick.then_some("--quick"));
        command.env("PANOPLY_THREADS", (WORKERS / ranks).to_string()).stdin(Stdio::null());
        let output = command.output().map_err(|error| Error::io("cannot run this program again", error))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let seconds = serde_json::from_str::<Value>(text.trim()).ok().and_then(|document| document["seconds"].as_f64());
        seconds.filter(|_| output.status.success()).ok_or_else(|| {
            let why = String::from_utf8_lossy(&output.stderr).trim().to_string();
            Error::unavailable(format!("the training step on {ranks} ranks could not be measured: {why}"))
        })
    };
    let (mut one, mut several) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        one.push(measure(1)?);
        several.push(measure(WORKERS)?);
    }
    let median = |mut times: Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    };
    let (one, several) = (median(one), median(several));
    let layers: Vec<String> = sizes.layers.iter().map(usize::to_string).collect();
    let name = format!("SGD step, MLP {}, batch {}", layers.join("-"), sizes.batch);
    let ratio = several / one;
    let row = json!({
        "schema": 1, "name": name, "ranks": WORKERS, "seconds": several, "one_process_seconds": one, "ratio": ratio,
    });
    let line = format!(
        "{name:<40} {:>10}, {WORKERS} ranks with one thread: {ratio:.3} × one process with {WORKERS} threads",
        duration(several)
    );
    Ok((row, line))
}

/// Times of training steps, from one report to the next.
struct StepTimes {
    min_time: f64,
    start: Instant,
    last: Option<Instant>,
    seconds: Vec<f64>,
}

impl Callback for StepTimes {
    fn on_train_batch_end(&mut self, report: &StepReport) -> ControlFlow<()> {
        let now = Instant::now();
        // The first steps of an epoch follow an evaluation, and those of the first one compile.
        if let (Some(last), true) = (self.last, report.step > 2 && report.epoch > 1) {
            self.seconds.push((now - last).as_secs_f64());
        }
        self.last = Some(now);
        let done = report.epoch > 2 && (now - self.start).as_secs_f64() >= self.min_time;
        if done { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// Prints the median seconds of a step of this process, or of all ranks of the launcher that started it.
fn step(arguments: &BenchMeshCommand, sizes: &Sizes) -> Result<ExitCode> {
    let group = RankGroup::open()?;
    let rank = group.as_ref().map_or(0, ProcessGroup::rank);
    let mut rng = Rng::seed_from_u64(1);
    let (width, classes) = (sizes.layers[0], sizes.layers[sizes.layers.len() - 1]);
    let mut examples = |count: usize| -> Result<Dataset> {
        let labels = (0..count).map(|_| rng.random_below(classes as u32) as i32).collect();
        Ok(Dataset {
            features: rng.normal([count, width]).to_vec::<f32>()?,
            num_features: width,
            targets: Targets::Classes { labels, num_classes: classes, labels_per_example: 1 },
            example_shape: vec![width],
            seq_lengths: None,
            row_numbers: None,
        })
    };
    let (train, held) = (examples(BATCHES * sizes.batch)?, examples(2)?);
    let model = Mlp::new(sizes.layers, 0.0, &mut rng);
    let training = TrainConfig {
        group: group.clone().map(|group| Arc::new(group) as Arc<dyn ProcessGroup>),
        ..TrainConfig::new(usize::MAX, sizes.batch)
    };
    let mut times = StepTimes { min_time: arguments.min_time, start: Instant::now(), last: None, seconds: Vec::new() };
    let done = Trainer::new(model, Sgd::new(0.01), rng).fit(&training, &train, &held, &mut times);
    if let Some(group) = group {
        if let Err(error) = done {
            eprintln!("panoply: rank {rank}: {error}");
            group.abort(1);
        }
        group.close()?;
    } else {
        done?;
    }
    times.seconds.sort_by(f64::total_cmp);
    if rank == 0 {
        println!("{}", json!({ "seconds": times.seconds[times.seconds.len() / 2] }));
    }
    Ok(ExitCode::SUCCESS)
}
