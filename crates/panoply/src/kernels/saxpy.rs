//! `y += a x`, the usual first kernel. Each work-item processes one element; the kernel is memory-bound.

use crate::kernel;

use super::job::{Data, Job, JobArg, JobLaunch, uniform};
use super::{BuiltinKernel, CheckResult, Size};

/// Adds `a` times `x` to `y`.
#[kernel]
pub fn saxpy(a: f32, x: &[f32], y: &mut [f32]) {
    let i = global_index();
    if i < y.len() {
        y[i] += a * x[i];
    }
}

pub(super) const BUILTIN: BuiltinKernel = BuiltinKernel {
    name: "saxpy",
    about: "y += a x",
    source: include_str!("saxpy.rs"),
    kernels: &[("saxpy", saxpy::build)],
    job,
};

const A: f32 = 1.7;

fn job(size: Size, seed: u64) -> Job {
    let n = size.pick(1000, 1 << 20, 1 << 24);
    let mut numbers = uniform(seed, -1.0, 1.0);
    Job {
        data: vec![Data::next_of(&mut numbers, n), Data::next_of(&mut numbers, n)],
        steps: vec![JobLaunch::new(saxpy::build, n, vec![A.into(), JobArg::Read(0), JobArg::Write(1)])],
        check,
        bytes: 12 * n as u64,
        ops: 2 * n as u64,
    }
}

/// The product and the sum are rounded separately on every device, so the comparison is exact.
fn check(job: &Job, after: &[Data]) -> CheckResult {
    let (x, y) = (job.data[0].elements::<f32>(), job.data[1].elements::<f32>());
    let want: Vec<f32> = x.iter().zip(&y).map(|(x, y)| y + A * x).collect();
    CheckResult::exact(&after[1].elements(), &want)
}
