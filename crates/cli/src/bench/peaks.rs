//! What a device reaches when nothing is in the way: the rates that rows of a benchmark are shares of.
//!
//! Each is measured when a row first asks, on the device that the rows run on: bytes by STREAM's triad, arithmetic by chains of
//! multiply-adds that touch no memory. The CPU's chains are native code, as its routines are; its vector machine does not reach them.

use std::cell::OnceCell;
use std::time::Duration;

use panoply::kernels::{BuiltinKernel, CheckResult, Data, Job, JobArg, JobLaunch, Size};
use panoply::{Backend, DType, Device, Result, internal, kernel};

use super::kernels::TRIAD;

/// The limits of one device.
pub struct Limits<'a> {
    device: &'a Device,
    seconds: f64,
    gbps: OnceCell<f64>,
    gflops: OnceCell<f64>,
    gflops_bf16: OnceCell<f64>,
}

impl<'a> Limits<'a> {
    /// Limits that so many seconds are spent on, each.
    pub fn new(device: &'a Device, seconds: f64) -> Limits<'a> {
        let (gbps, gflops, gflops_bf16) = Default::default();
        Limits { device, seconds, gbps, gflops, gflops_bf16 }
    }

    /// 10⁹ bytes a second of the memory.
    pub fn gbps(&self) -> Result<f64> {
        once(&self.gbps, || Ok(self.shipped(&TRIAD)?.gb_per_s()))
    }

    /// 10⁹ floating-point operations a second on elements of a type; none if nothing here measures them.
    pub fn gflops(&self, dtype: DType) -> Result<Option<f64>> {
        let native = self.device.info().kind == Backend::Cpu;
        match dtype {
            DType::F32 if !native => once(&self.gflops, || Ok(self.shipped(&CHAINS)?.gop_per_s())).map(Some),
            DType::F32 => once(&self.gflops, || Ok(self.native(dtype))).map(Some),
            DType::BF16 if native => once(&self.gflops_bf16, || Ok(self.native(dtype))).map(Some),
            _ => Ok(None),
        }
    }

    fn shipped(&self, shipped: &BuiltinKernel) -> Result<panoply::kernels::BenchResult> {
        shipped.run(self.device, Size::Large, 0, Duration::from_secs_f64(self.seconds))
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

/// Multiply-adds of a work-item in a turn, none of which waits for another.
const SIDE_BY_SIDE: u64 = 8;
/// Turns.
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
            // x = x / 2 + 1 / 2 goes to 1 and stays there; each chain begins elsewhere, so that no compiler takes two for one.
            check: |_, after| {
                let have = after[0].elements::<f32>();
                CheckResult::exact(&have, &vec![SIDE_BY_SIDE as f32; have.len()])
            },
            bytes: 0,
            ops: 2 * SIDE_BY_SIDE * u64::from(TURNS) * n as u64,
        }
    },
};
