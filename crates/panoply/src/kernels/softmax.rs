//! Softmax of each row: a group processes a row, reduces its maximum and the sum of exponentials, and writes the
//! quotients.

use crate::kernel;

use super::job::{Data, Job, JobArg, JobLaunch, uniform};
use super::{BuiltinKernel, CheckResult, Size};

const GROUP: usize = 256;

/// `y[row, i] = exp(x[row, i]) / Σ exp(x[row, ..])`, shifted by the largest element to avoid overflow.
#[kernel(group_size = GROUP)]
pub fn softmax(x: &[f32], y: &mut [f32], width: usize) {
    let first = group_id(0) * width;
    let mut largest = f32::NEG_INFINITY;
    for i in (local_index()..width).step_by(GROUP) {
        largest = largest.max(x[first + i]);
    }
    let largest = group_max(largest);
    let mut sum = 0.0;
    for i in (local_index()..width).step_by(GROUP) {
        sum += (x[first + i] - largest).exp();
    }
    let sum = group_sum(sum);
    for i in (local_index()..width).step_by(GROUP) {
        y[first + i] = (x[first + i] - largest).exp() / sum;
    }
}

pub(super) const BUILTIN: BuiltinKernel = BuiltinKernel {
    name: "softmax",
    about: "softmax of each row",
    source: include_str!("softmax.rs"),
    kernels: &[("softmax", softmax::build)],
    job,
};

fn job(size: Size, seed: u64) -> Job {
    let (rows, width) = (size.pick(3, 512, 4096), size.pick(300, 1000, 2048));
    let x: Vec<f32> = uniform(seed, -10.0, 10.0).take(rows * width).collect();
    Job {
        data: vec![Data::of(&x), Data::zeros::<f32>(rows * width)],
        steps: vec![JobLaunch::new(
            softmax::build,
            rows * GROUP,
            vec![JobArg::Read(0), JobArg::Write(1), width.into()],
        )],
        check,
        bytes: 8 * (rows * width) as u64,
        ops: 5 * (rows * width) as u64,
    }
}

/// Computes in f64, without the shift: the exponents here are small enough.
fn check(job: &Job, after: &[Data]) -> CheckResult {
    let x = job.data[0].elements::<f32>();
    let JobArg::Index(width) = job.steps[0].args[2] else { return CheckResult::exact(&[0], &[1]) };
    let mut want = Vec::with_capacity(x.len());
    for row in x.chunks(width as usize) {
        let exps: Vec<f64> = row.iter().map(|x| (*x as f64).exp()).collect();
        let sum: f64 = exps.iter().sum();
        want.extend(exps.iter().map(|exp| exp / sum));
    }
    CheckResult::close(&after[1].elements(), &want, 3e-6)
}
