//! `y += a x`, the first kernel of everybody. Each work-item does one element; memory is the limit.

use crate::kernel;

use super::job::{Data, Job, Pass, Samples, Step};
use super::{Shipped, Size, Verdict};

/// Adds `a` times `x` to `y`.
#[kernel]
pub fn saxpy(a: f32, x: &[f32], y: &mut [f32]) {
    let i = global_index();
    if i < y.len() {
        y[i] += a * x[i];
    }
}

pub(super) const SHIPPED: Shipped = Shipped {
    name: "saxpy",
    about: "y += a x",
    source: include_str!("saxpy.rs"),
    kernels: &[("saxpy", saxpy::build)],
    job,
};

const A: f32 = 1.7;

fn job(size: Size, seed: u64) -> Job {
    let n = size.pick(1000, 1 << 20, 1 << 24);
    let mut samples = Samples::new(seed);
    Job {
        data: vec![Data::of(&samples.signed(n)), Data::of(&samples.signed(n))],
        steps: vec![Step::new(saxpy::build, n, vec![A.into(), Pass::Read(0), Pass::Write(1)])],
        check,
        bytes: 12 * n as u64,
        ops: 2 * n as u64,
    }
}

/// Product and sum are rounded separately on every device, so the result is exact.
fn check(job: &Job, after: &[Data]) -> Verdict {
    let (x, y) = (job.data[0].elements::<f32>(), job.data[1].elements::<f32>());
    let want: Vec<f32> = x.iter().zip(&y).map(|(x, y)| y + A * x).collect();
    Verdict::exact(&after[1].elements(), &want)
}
