//! Heat diffusion on a plate: each point moves towards the mean of its four neighbors; the boundary is fixed. The two
//! buffers are swapped after each step.

use crate::kernel;

use super::job::{Data, Job, JobArg, JobLaunch, uniform};
use super::{BuiltinKernel, CheckResult, Size};

/// Computes one time step; `rate` is the fraction of each difference that is exchanged, stable up to 0.25.
#[kernel]
pub fn heat(now: &[f32], next: &mut [f32], width: usize, height: usize, rate: f32) {
    let (x, y) = (global_id(0), global_id(1));
    let i = y * width + x;
    if x > 0 && x + 1 < width && y > 0 && y + 1 < height {
        let around = now[i - 1] + now[i + 1] + now[i - width] + now[i + width];
        next[i] = now[i] + rate * (around - 4.0 * now[i]);
    } else {
        next[i] = now[i];
    }
}

pub(super) const BUILTIN: BuiltinKernel = BuiltinKernel {
    name: "stencil",
    about: "heat diffusion stencil",
    source: include_str!("stencil.rs"),
    kernels: &[("heat", heat::build)],
    job,
};

const RATE: f32 = 0.2;
const STEPS: usize = 4;

fn job(size: Size, seed: u64) -> Job {
    let (width, height) = (size.pick(33, 1024, 4096), size.pick(17, 512, 2048));
    let n = width * height;
    let step = |turn: usize| {
        let (from, to) = (turn % 2, (turn + 1) % 2);
        let args = vec![JobArg::Read(from), JobArg::Write(to), width.into(), height.into(), RATE.into()];
        JobLaunch::over(heat::build, (width, height), args)
    };
    Job {
        data: vec![Data::next_of(&mut uniform(seed, -1.0, 1.0), n), Data::zeros::<f32>(n)],
        steps: (0..STEPS).map(step).collect(),
        check,
        bytes: 8 * (n * STEPS) as u64,
        ops: 7 * (n * STEPS) as u64,
    }
}

/// Adds in the same order, row by row; the comparison is exact because nothing is contracted.
fn check(job: &Job, after: &[Data]) -> CheckResult {
    let JobArg::Index(width) = job.steps[0].args[2] else { return CheckResult::exact(&[0], &[1]) };
    let mut plate: Vec<Vec<f32>> = job.data[0].elements::<f32>().chunks(width as usize).map(<[f32]>::to_vec).collect();
    for _ in 0..STEPS {
        let mut next = plate.clone();
        for (rows, next) in plate.windows(3).zip(&mut next[1..]) {
            for x in 1..next.len() - 1 {
                let [above, own, below] = [&rows[0], &rows[1], &rows[2]];
                let around = own[x - 1] + own[x + 1] + above[x] + below[x];
                next[x] += RATE * (around - 4.0 * own[x]);
            }
        }
        plate = next;
    }
    CheckResult::exact(&after[STEPS % 2].elements(), &plate.concat())
}
