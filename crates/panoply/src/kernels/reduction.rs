//! Sum as a tree reduction. Each work-item adds up a strided subset of the elements, and the group halves the partial
//! sums in shared memory until one remains. A second launch reduces the sums of all groups.

use crate::kernel;

use super::job::{Data, Job, JobArg, JobLaunch, uniform};
use super::{BuiltinKernel, CheckResult, Size};

const GROUP: usize = 256;

/// Computes one sum for each group.
#[kernel(group_size = GROUP)]
pub fn sum(x: &[f32], sums: &mut [f32]) {
    let local = local_index();
    let mut total = 0.0;
    for i in (global_index()..x.len()).step_by(num_groups(0) * GROUP) {
        total += x[i];
    }
    let mut part = shared::<f32>(GROUP);
    part[local] = total;
    barrier();
    let mut half = GROUP / 2;
    while half > 0 {
        if local < half {
            part[local] += part[local + half];
        }
        barrier();
        half /= 2;
    }
    if local == 0 {
        sums[group_id(0)] = part[0];
    }
}

pub(super) const BUILTIN: BuiltinKernel = BuiltinKernel {
    name: "reduction",
    about: "sum of an array",
    source: include_str!("reduction.rs"),
    kernels: &[("sum", sum::build)],
    job,
};

fn job(size: Size, seed: u64) -> Job {
    let n = size.pick(3000, 1 << 20, 1 << 24);
    let groups = size.pick(3, 256, 1024);
    let steps = vec![
        JobLaunch::new(sum::build, groups * GROUP, vec![JobArg::Read(0), JobArg::Write(1)]),
        JobLaunch::new(sum::build, GROUP, vec![JobArg::Read(1), JobArg::Write(2)]),
    ];
    let x: Vec<f32> = uniform(seed, 0.0, 1.0).take(n).collect();
    Job {
        data: vec![Data::of(&x), Data::zeros::<f32>(groups), Data::zeros::<f32>(1)],
        steps,
        check,
        bytes: 4 * n as u64,
        ops: n as u64,
    }
}

/// Computes in f64, sequentially. A work-item adds at most 64 numbers before the tree, so each path has few roundings.
fn check(job: &Job, after: &[Data]) -> CheckResult {
    let want: f64 = job.data[0].elements::<f32>().into_iter().map(f64::from).sum();
    CheckResult::close(&after[2].elements(), &[want], 4e-6)
}
