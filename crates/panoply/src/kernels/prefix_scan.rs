//! Prefix sum. Each group scans its own elements and writes its total, one group scans the totals, and a third kernel
//! adds to each group the sum of all groups before it.

use crate::kernel;

use super::job::{Data, Job, JobArg, JobLaunch, words};
use super::{BuiltinKernel, CheckResult, Size};

const GROUP: usize = 256;

/// Computes the prefix sums within each group, and each group's total.
#[kernel(group_size = GROUP)]
pub fn scan_groups(x: &[u32], y: &mut [u32], totals: &mut [u32]) {
    let i = global_index();
    let sum = group_inclusive_sum(if i < x.len() { x[i] } else { 0 });
    if i < y.len() {
        y[i] = sum;
    }
    if local_index() == GROUP - 1 {
        totals[group_id(0)] = sum;
    }
}

/// Replaces each total by the sum of those before it. Runs as one group, which carries the sum from block to block.
#[kernel(group_size = GROUP)]
pub fn scan_totals(totals: &mut [u32]) {
    let local = local_index();
    let mut carry = 0;
    for start in (0..totals.len()).step_by(GROUP) {
        let i = start + local;
        let own = if i < totals.len() { totals[i] } else { 0 };
        let before = group_exclusive_sum(own);
        if i < totals.len() {
            totals[i] = carry + before;
        }
        carry += group_sum(own);
    }
}

/// Adds to each element the sum of the groups before its own.
#[kernel(group_size = GROUP)]
pub fn add_totals(y: &mut [u32], totals: &[u32]) {
    let i = global_index();
    if i < y.len() {
        y[i] += totals[group_id(0)];
    }
}

pub(super) const BUILTIN: BuiltinKernel = BuiltinKernel {
    name: "prefix_scan",
    about: "prefix sum of an array",
    source: include_str!("prefix_scan.rs"),
    kernels: &[
        ("scan_groups", scan_groups::build),
        ("scan_totals", scan_totals::build),
        ("add_totals", add_totals::build),
    ],
    job,
};

fn job(size: Size, seed: u64) -> Job {
    let n = size.pick(1111, 1 << 20, 1 << 24);
    let x: Vec<u32> = words(seed).take(n).collect();
    Job {
        data: vec![Data::of(&x), Data::zeros::<u32>(n), Data::zeros::<u32>(n.div_ceil(GROUP))],
        steps: vec![
            JobLaunch::new(scan_groups::build, n, vec![JobArg::Read(0), JobArg::Write(1), JobArg::Write(2)]),
            JobLaunch::new(scan_totals::build, GROUP, vec![JobArg::Write(2)]),
            JobLaunch::new(add_totals::build, n, vec![JobArg::Write(1), JobArg::Read(2)]),
        ],
        check,
        bytes: 8 * n as u64,
        ops: n as u64,
    }
}

fn check(job: &Job, after: &[Data]) -> CheckResult {
    let mut sum = 0u32;
    let running = |x: u32| {
        sum = sum.wrapping_add(x);
        sum
    };
    let want: Vec<u32> = job.data[0].elements::<u32>().into_iter().map(running).collect();
    CheckResult::exact(&after[1].elements(), &want)
}
