//! Bitonic sorting network (Batcher 1968): the compared positions do not depend on the values, so all pairs of a step
//! are independent. Steps whose partners are far apart are one launch each; the rest of a merge is done in shared
//! memory.

use crate::kernel;

use super::job::{Data, Job, JobArg, JobLaunch, words};
use super::{BuiltinKernel, CheckResult, Size};

const GROUP: usize = 256;

/// Compares each element with the one at distance `distance`, so that runs of `run` elements become alternately
/// ascending and descending. `distance`, `run` and the length are powers of two; there is one work-item for each pair.
#[kernel]
pub fn compare_far(x: &mut [u32], distance: usize, run: usize) {
    let pair = global_index();
    let low = pair & (distance - 1);
    let i = (pair - low) * 2 + low;
    let (a, b) = (x[i], x[i + distance]);
    if (a > b) == ((i & run) == 0) {
        x[i] = b;
        x[i + distance] = a;
    }
}

/// Does the steps of a merge whose pairs lie within the `2 * GROUP` elements of a group.
#[kernel(group_size = GROUP)]
pub fn merge_near(x: &mut [u32], run: usize) {
    let mut own = shared::<u32>(2 * GROUP);
    let local = local_index();
    let first = group_id(0) * (2 * GROUP);
    own[local] = x[first + local];
    own[local + GROUP] = x[first + local + GROUP];
    let mut distance = (run / 2).min(GROUP);
    while distance > 0 {
        barrier();
        let low = local & (distance - 1);
        let i = (local - low) * 2 + low;
        let (a, b) = (own[i], own[i + distance]);
        if (a > b) == (((first + i) & run) == 0) {
            own[i] = b;
            own[i + distance] = a;
        }
        distance /= 2;
    }
    barrier();
    x[first + local] = own[local];
    x[first + local + GROUP] = own[local + GROUP];
}

pub(super) const BUILTIN: BuiltinKernel = BuiltinKernel {
    name: "bitonic_sort",
    about: "bitonic sort",
    source: include_str!("bitonic_sort.rs"),
    kernels: &[("merge_near", merge_near::build), ("compare_far", compare_far::build)],
    job,
};

fn job(size: Size, seed: u64) -> Job {
    let n = size.pick(1 << 11, 1 << 16, 1 << 20);
    // Some values occur twice.
    let x: Vec<u32> = words(seed).take(n).map(|word| word % (n as u32)).collect();
    let (mut steps, mut compared) = (Vec::new(), 0);
    let mut run = 2;
    while run <= n {
        let mut distance = run / 2;
        while distance > GROUP {
            let args = vec![JobArg::Write(0), distance.into(), run.into()];
            steps.push(JobLaunch::new(compare_far::build, n / 2, args));
            distance /= 2;
        }
        steps.push(JobLaunch::new(merge_near::build, n / 2, vec![JobArg::Write(0), run.into()]));
        compared += n as u64 / 2 * run.ilog2() as u64;
        run *= 2;
    }
    let bytes = 8 * (n * steps.len()) as u64;
    Job { data: vec![Data::of(&x)], steps, check, bytes, ops: compared }
}

fn check(job: &Job, after: &[Data]) -> CheckResult {
    let mut want = job.data[0].elements::<u32>();
    want.sort_unstable();
    CheckResult::exact(&after[0].elements(), &want)
}
