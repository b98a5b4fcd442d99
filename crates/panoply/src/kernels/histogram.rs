//! Histogram of bytes. A group counts in shared memory, where most of the contention occurs, and adds its counts to the
//! global ones at the end.

use crate::kernel;

use super::job::{Data, Job, JobArg, JobLaunch, uniform};
use super::{BuiltinKernel, CheckResult, Size};

const GROUP: usize = 256;
const BINS: usize = 256;

/// Adds the number of occurrences of each byte to `counts`.
#[kernel(group_size = GROUP)]
pub fn histogram(x: &[u8], counts: &mut [u32]) {
    let mut own = shared::<u32>(BINS);
    let local = local_index();
    own[local] = 0;
    barrier();
    for i in (global_index()..x.len()).step_by(num_groups(0) * GROUP) {
        atomic_add(&mut own[x[i] as usize], 1);
    }
    barrier();
    atomic_add(&mut counts[local], own[local]);
}

pub(super) const BUILTIN: BuiltinKernel = BuiltinKernel {
    name: "histogram",
    about: "histogram of bytes with atomic additions",
    source: include_str!("histogram.rs"),
    kernels: &[("histogram", histogram::build)],
    job,
};

fn job(size: Size, seed: u64) -> Job {
    let n = size.pick(3000, 1 << 20, 1 << 25);
    // Squaring makes small bytes frequent, which causes contention.
    let x: Vec<u8> = uniform(seed, 0.0, 1.0).take(n).map(|x| (x.powi(2) * 256.0) as u8).collect();
    Job {
        data: vec![Data::of(&x), Data::zeros::<u32>(BINS)],
        steps: vec![JobLaunch::new(
            histogram::build,
            size.pick(3, 64, 256) * GROUP,
            vec![JobArg::Read(0), JobArg::Write(1)],
        )],
        check,
        bytes: n as u64,
        ops: n as u64,
    }
}

fn check(job: &Job, after: &[Data]) -> CheckResult {
    let mut want = vec![0u32; BINS];
    for byte in &job.data[0].bytes {
        want[*byte as usize] += 1;
    }
    CheckResult::exact(&after[1].elements(), &want)
}
