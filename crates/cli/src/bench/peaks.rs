//! Peak rates of a device, to which benchmark rows are relative.
//!
//! Each rate is measured on first use, on the device of the rows: memory by the STREAM triad, arithmetic by chains of multiply-adds in
//! registers. On the CPU the chains are native code, like its routines; the vector interpreter does not reach this rate.

use std::cell::OnceCell;
use std::time::Duration;

use panoply::kernels::{BuiltinKernel, CheckResult, Data, Job, JobArg, JobLaunch, Size};
use panoply::{Backend, DType, Device, Result, internal, kernel};

use super::kernels::TRIAD;

/// Peak rates of one device.
pub struct Limits<'a> {
    device: &'a Device,
    seconds: f64,
    gbps: OnceCell<f64>,
    gflops: OnceCell<f64>,
    gflops_bf16: OnceCell<f64>,
}

impl<'a> Limits<'a> {
    /// Creates peak rates that take `seconds` each to measure.
    pub fn new(device: &'a Device, seconds: f64) -> Limits<'a> {
        let (gbps, gflops, gflops_bf16) = Default::default();
        Limits { device, seconds, gbps, gflops, gflops_bf16 }
    }

    /// Returns the memory bandwidth in 10⁹ bytes/s.
    pub fn gbps(&self) -> Result<f64> {
        once(&self.gbps, || Ok(self.builtin(&TRIAD)?.gb_per_s()))
    }

    /// Returns the arithmetic peak for an element type in 10⁹ FLOP/s; `None` if it cannot be measured.
    pub fn gflops(&self, dtype: DType) -> Result<Option<f64>> {
        let native = self.device.info().kind == Backend::Cpu;
        match dtype {
            DType::F32 if !native => once(&self.gflops, || Ok(self.builtin(&CHAINS)?.gop_per_s())).map(Some),
            DType::F32 => once(&self.gflops, || Ok(self.native(dtype))).map(Some),
            DType::BF16 if native => once(&self.gflops_bf16, || Ok(self.native(dtype))).map(Some),
            _ => Ok(None),
        }
    }

    fn builtin(&self, builtin: &BuiltinKernel) -> Result<panoply::kernels::BenchResult> {
        builtin.run(self.device, Size::Large, 0, Duration::from_secs_f64(self.seconds))
    }

    fn native(&self, dtype: DType) -> f64 {
        let threads = self.device.info().compute_units as usize;
        internal::flops(threads, dtype, Duration::from_secs_f64(self.seconds)) / 1e9
    }
}

fn once(cell: &OnceCell<f64>, measure: impl FnOnce() -> Result<f64>) -> Result<f64> {
    if let Some(known) = cell.get() {
        return Ok(*known);
    }
    measure().map(|rate| *cell.get_or_init(|| rate))
}

/// Independent multiply-adds per work-item and iteration.
const SIDE_BY_SIDE: u64 = 8;
/// Number of iterations.
const TURNS: u32 = 1024;

/// Chains of multiply-adds in registers.
#[kernel]
fn chains(y: &mut [f32], turns: u32, by: f32) {
    let i = global_index();
    if i < y.len() {
        let start = y[i];
        let mut a = start + 0.0;
        let mut b = start + 1.0;
        let mut c = start + 2.0;
        let mut d = start + 3.0;
        let mut e = start + 4.0;
        let mut f = start + 5.0;
        let mut g = start + 6.0;
        let mut h = start + 7.0;
        for _ in 0..turns {
            a = a.mul_add(by, by);
            b = b.mul_add(by, by);
            c = c.mul_add(by, by);
            d = d.mul_add(by, by);
            e = e.mul_add(by, by);
            f = f.mul_add(by, by);
            g = g.mul_add(by, by);
            h = h.mul_add(by, by);
        }
        y[i] = a + b + c + d + e + f + g + h;
    }
}

const CHAINS: BuiltinKernel = BuiltinKernel {
    name: "multiply-adds",
    about: "in registers, the limit",
    kernels: &[("chains", chains::build)],
    source: include_str!("peaks.rs"),
    job: |size, _| {
        let n = size.pick(100, 1 << 16, 1 << 20);
        Job {
            data: vec![Data::zeros::<f32>(n)],
            steps: vec![JobLaunch::new(chains::build, n, vec![JobArg::Write(0), TURNS.into(), 0.5.into()])],
            // x = x / 2 + 1 / 2 converges to 1. Each chain starts at another value, so that no compiler merges two of them.
            check: |_, after| {
                let have = after[0].elements::<f32>();
                CheckResult::exact(&have, &vec![SIDE_BY_SIDE as f32; have.len()])
            },
            bytes: 0,
            ops: 2 * SIDE_BY_SIDE * u64::from(TURNS) * n as u64,
        }
    },
};
