//! `panoply bench tensors`: tensor operations, relative to the peak rate that bounds them on this device.

use std::process::ExitCode;
use std::time::Instant;

use panoply::{AttentionOptions, ConvOptions, DType, Device, Profiler, Result, Tensor, Triangle, eval, jit_with_state};
use serde_json::json;

use super::peaks::Limits;
use super::{ProfiledArgs, median_time};

/// A row of the tensor benchmark.
struct Row {
    name: &'static str,
    /// Shapes of the inputs.
    inputs: &'static [&'static [usize]],
    /// Element type of the inputs.
    dtype: DType,
    op: fn(&[Tensor]) -> Tensor,
    /// Minimum number of bytes moved.
    bytes: f64,
    /// Floating-point operations, if these bound the operation.
    flops: f64,
    /// True if the operation is captured by jit, false if it is traced each time.
    captured: bool,
}

const MILLION: usize = 1 << 20;
const SQUARE: &[usize] = &[4096, 4096];

const PLAIN: Row =
    Row { name: "", inputs: &[], dtype: DType::F32, op: |x| x[0].clone(), bytes: 0.0, flops: 0.0, captured: false };

const fn moving(
    name: &'static str,
    inputs: &'static [&'static [usize]],
    op: fn(&[Tensor]) -> Tensor,
    bytes: usize,
) -> Row {
    Row { name, inputs, op, bytes: bytes as f64, ..PLAIN }
}

/// Creates a row that is bound by the host.
const fn small(
    name: &'static str,
    inputs: &'static [&'static [usize]],
    op: fn(&[Tensor]) -> Tensor,
    captured: bool,
) -> Row {
    Row { name, inputs, op, captured, ..PLAIN }
}

/// Creates a row for a factorization of `cubes` · n³ floating-point operations.
const fn factoring(name: &'static str, op: fn(&[Tensor]) -> Tensor, cubes: f64) -> Row {
    const N: usize = 512;
    Row {
        name,
        inputs: &[&[N, N], &[N, N]],
        op,
        bytes: (12 * N * N) as f64,
        flops: cubes * (N * N * N) as f64,
        ..PLAIN
    }
}

/// Makes the diagonal dominant, so that the matrix can be factored.
fn heavy(x: &Tensor) -> Tensor {
    x + Tensor::eye(512, DType::F32) * 64.0
}

/// Builds a graph of a hundred nodes, a third of them matrix products.
fn hundred(x: &[Tensor]) -> Tensor {
    (0..33).fold(-&x[0], |y, _| (y.matmul(&x[1]) + &x[2]).tanh())
}

macro_rules! product {
    ($n:literal) => {
        product!($n, concat!("matmul ", $n), DType::F32)
    };
    ($n:literal, $name:expr, $dtype:expr) => {
        Row {
            name: $name,
            inputs: &[&[$n, $n], &[$n, $n]],
            dtype: $dtype,
            op: |x| x[0].matmul(&x[1]),
            bytes: (3 * $n * $n * $dtype.bytes()) as f64,
            flops: 2.0 * ($n as f64) * ($n as f64) * ($n as f64),
            captured: false,
        }
    };
}

const ROWS: &[Row] = &[
    product!(256),
    product!(512),
    product!(1024),
    product!(2048),
    product!(4096),
    product!(1024, "matmul bf16 1024", DType::BF16),
    product!(2048, "matmul bf16 2048", DType::BF16),
    Row {
        name: "matmul i8 1024",
        op: |x| x[0].cast(DType::I32).matmul(&x[1].cast(DType::I32)),
        // Inputs are i8, the output is i32.
        bytes: (6 * 1024 * 1024) as f64,
        ..product!(1024, "", DType::I8)
    },
    moving("x + a, 16 M", &[&[16 * MILLION]], |x| &x[0] + 1.5, 128 * MILLION),
    moving(
        "exp(a x + 1) tanh(x), 16 M",
        &[&[16 * MILLION]],
        |x| (&x[0] * 0.5 + 1.0).exp() * x[0].tanh(),
        128 * MILLION,
    ),
    moving("sum of 16 M", &[&[16 * MILLION]], |x| x[0].sum(..), 64 * MILLION),
    moving("sum over axis 0, 4096²", &[SQUARE], |x| x[0].sum(0), 64 * MILLION),
    moving("softmax of rows, 4096²", &[SQUARE], |x| x[0].softmax(-1), 128 * MILLION),
    moving("layer norm of rows, 4096²", &[SQUARE], |x| x[0].layer_norm(1e-5), 128 * MILLION),
    moving("transpose copy, 4096²", &[SQUARE], |x| x[0].t().reshape([-1]) * 1.0, 128 * MILLION),
    Row {
        name: "attention, 16 × 1024 × 64, causal",
        inputs: &[&[1, 16, 1024, 64], &[1, 16, 1024, 64], &[1, 16, 1024, 64]],
        op: |x| {
            x[0].scaled_dot_product_attention(
                &x[1],
                &x[2],
                &AttentionOptions { is_causal: true, ..AttentionOptions::default() },
            )
        },
        bytes: 16.0 * 16.0 * 65536.0,
        flops: 4.0 * 16.0 * 1024.0 * 1024.0 * 64.0,
        ..PLAIN
    },
    Row {
        name: "conv 64→64, 3×3, 56², batch 8",
        inputs: &[&[8, 64, 56, 56], &[64, 64, 3, 3]],
        op: |x| x[0].conv(&x[1], &ConvOptions { padding: [1, 1], ..ConvOptions::default() }),
        bytes: 8.0 * 8.0 * 64.0 * 3136.0,
        flops: 2.0 * 8.0 * 3136.0 * 64.0 * 576.0,
        ..PLAIN
    },
    factoring("cholesky of x xᵀ, 512", |x| heavy(&x[0].matmul(&x[0].t())).cholesky(), 2.0 + 1.0 / 3.0),
    factoring("triangular solve, 512", |x| heavy(&x[0]).solve_triangular(&x[1], Triangle::Lower), 1.0),
    factoring("lu, 512", |x| heavy(&x[0]).lu().l, 2.0 / 3.0),
    factoring("qr, 512", |x| heavy(&x[0]).qr().q, 8.0 / 3.0),
    small("add of two f32[32]", &[&[32], &[32]], |x| &x[0] + &x[1], false),
    small("add of two f32[32], captured", &[&[32], &[32]], |x| &x[0] + &x[1], true),
    small("100 nodes of f32[8, 8]", &[&[8, 8], &[8, 8], &[8, 8]], hundred, false),
    small("100 nodes of f32[8, 8], captured", &[&[8, 8], &[8, 8], &[8, 8]], hundred, true),
];

/// Prints a row for each operation.
pub fn run(arguments: &ProfiledArgs) -> Result<ExitCode> {
    let options = &arguments.options;
    let choice = options.device.select()?;
    choice.explain();
    let device = choice.device();
    device.scope(|| {
        measure(device, options.min_time, arguments.profile, &mut |measured| {
            if options.jsonl {
                let mut document = measured.json();
                document["schema"] = 1.into();
                document["device"] = device.device_string().into();
                println!("{document}");
            } else {
                println!("{}", measured.line());
            }
            Ok(())
        })
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Measures every operation on the current device, for at least `min_time` seconds each; with `profile` also prints their kernels.
pub fn measure(
    device: &Device,
    min_time: f64,
    profile: bool,
    see: &mut dyn FnMut(Measured) -> Result<()>,
) -> Result<()> {
    let limits = Limits::new(device, min_time);
    ROWS.iter().try_for_each(|row| {
        let seconds = median(device, row, min_time, profile)?;
        let host = if row.is_small() { Some(host(device, row, min_time)?) } else { None };
        see(Measured { row, seconds, host, limit: row.limit(&limits)? })
    })
}

/// A measured operation.
pub struct Measured {
    row: &'static Row,
    seconds: f64,
    /// Time of the host, for operations that it bounds.
    host: Option<f64>,
    /// Peak rate that bounds the operation, in 10⁹/s.
    limit: Option<f64>,
}

impl Measured {
    /// Returns the row for JSON.
    pub fn json(&self) -> serde_json::Value {
        let Measured { row, seconds, host, limit } = self;
        json!({
            "name": row.name, "dtype": row.dtype.to_string(), "seconds": seconds,
            "gb_per_s": (!row.is_small()).then_some(row.bytes / seconds / 1e9),
            "gflop_per_s": (row.flops > 0.0).then_some(row.flops / seconds / 1e9),
            "peak": limit, "fraction_of_peak": limit.map(|limit| row.rate(*seconds) / limit),
            "jitted": row.captured, "host_seconds": host,
        })
    }

    fn line(&self) -> String {
        let Measured { row, seconds, host, limit } = self;
        if row.is_small() {
            let host = host.unwrap_or_default() * 1e6;
            return format!("{:<32} {:>9.3} µs, host {host:.3} µs", row.name, seconds * 1e6);
        }
        let (rate, unit) = (row.rate(*seconds), if row.flops > 0.0 { "GFLOP/s" } else { "GB/s" });
        let fraction = |limit: f64| format!("  {:>3.0} % of {limit:.0}", 100.0 * rate / limit);
        let fraction = limit.map_or(String::new(), fraction);
        format!("{:<32} {:>9.3} ms {rate:>8.1} {unit:<7}{fraction}", row.name, seconds * 1e3)
    }
}

impl Row {
    /// Returns random inputs: floats in -0.5 .. 0.5, integers in -100 .. 100.
    fn random(&self) -> Vec<Tensor> {
        let mut rng = panoply::Rng::seed_from_u64(1);
        let size = if self.dtype.is_int() { 200.0 } else { 1.0 };
        self.inputs.iter().map(|shape| ((rng.uniform(*shape) - 0.5) * size).cast(self.dtype)).collect()
    }

    fn is_small(&self) -> bool {
        self.bytes == 0.0
    }

    /// Returns the peak rate that bounds the operation, arithmetic or memory, in 10⁹/s.
    fn limit(&self, limits: &Limits<'_>) -> Result<Option<f64>> {
        match (self.flops > 0.0, self.is_small()) {
            (true, _) => limits.gflops(self.dtype),
            (false, false) => limits.gbps().map(Some),
            (false, true) => Ok(None),
        }
    }

    /// Returns the achieved rate in 10⁹/s, in the unit of the peak rate.
    fn rate(&self, seconds: f64) -> f64 {
        (if self.flops > 0.0 { self.flops } else { self.bytes }) / seconds / 1e9
    }
}

/// Measures the operation on a device that computes nothing: the time of the host, including that device's checks.
fn host(device: &Device, row: &Row, min_time: f64) -> Result<f64> {
    let idle = device.dry_run();
    idle.scope(|| median(&idle, row, min_time, false))
}

/// Returns the median time of one evaluation after a warm-up.
fn median(device: &Device, row: &Row, min_time: f64, profile: bool) -> Result<f64> {
    let inputs = row.random();
    eval(&inputs.iter().collect::<Vec<&Tensor>>())?;
    let mut inputs: Vec<Tensor> = inputs.iter().map(Tensor::detach).collect();
    let captured = jit_with_state(|inputs: &mut Vec<Tensor>, []| [(row.op)(inputs)]);
    let mut run = || -> Result<f64> {
        let start = Instant::now();
        match row.captured {
            true => captured.call_with_state(&mut inputs, []).map(drop)?,
            false => (row.op)(&inputs).eval()?,
        }
        device.synchronize()?;
        Ok(start.elapsed().as_secs_f64())
    };
    run()?;
    if profile {
        let profile = Profiler::start(device)?;
        run()?;
        eprintln!("{}\n{}", row.name, profile.finish()?);
    }
    median_time(min_time, run)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Inputs of products are nonzero except for a few, and have both signs.
    #[test]
    fn product_inputs_are_nonzero_with_both_signs() {
        Device::get("cpu").unwrap().scope(|| {
            for row in ROWS.iter().filter(|row| row.name.ends_with(" 1024")) {
                for input in row.random() {
                    let numbers = input.cast(DType::F32).to_vec::<f32>().unwrap();
                    let fraction = |of: fn(f32) -> bool| {
                        numbers.iter().filter(|number| of(**number)).count() as f32 / numbers.len() as f32
                    };
                    assert!(fraction(|number| number == 0.0) < 0.02, "{}", row.name);
                    assert!(
                        fraction(|number| number > 0.0) > 0.48 && fraction(|number| number < 0.0) > 0.48,
                        "{}",
                        row.name
                    );
                }
            }
        });
    }
}
