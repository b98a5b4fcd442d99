//! One time step of an all-pairs n-body simulation. A group loads one body for each of its work-items into shared
//! memory, and each work-item interacts with all of them.

use crate::{kernel, kernel_fn};

use super::job::{Data, Job, JobArg, JobLaunch, uniform};
use super::{BuiltinKernel, CheckResult, Size};

const GROUP: usize = 128;

/// Softening term: the squared distance below which attraction fades, so that close bodies are not flung apart.
const SOFTENING: f32 = 1e-2;

/// Returns the contribution of a body at relative position `(x, y, z)` to the acceleration of another.
#[kernel_fn]
pub fn attraction(x: f32, y: f32, z: f32, mass: f32) -> (f32, f32, f32) {
    let square = x * x + y * y + z * z + SOFTENING;
    let pull = mass / (square * square.sqrt());
    (x * pull, y * pull, z * pull)
}

/// Advances every body by a time step. `bodies` are x, y, z and mass, `speeds` are x, y, z and an unused element;
/// `moved` receives the new positions.
#[kernel(group_size = GROUP)]
pub fn nbody(bodies: &[f32], speeds: &mut [f32], moved: &mut [f32], step: f32) {
    let mut tile = shared::<f32>(GROUP * 4);
    let (i, local) = (global_index() * 4, local_index() * 4);
    let count = bodies.len() / 4;
    let (x, y, z) = if i < bodies.len() { (bodies[i], bodies[i + 1], bodies[i + 2]) } else { (0.0, 0.0, 0.0) };
    let mut ax = 0.0;
    let mut ay = 0.0;
    let mut az = 0.0;
    for start in (0..count).step_by(GROUP) {
        let from = start * 4 + local;
        for part in 0..4 {
            // Bodies beyond the last one have no mass.
            tile[local + part] = if from < bodies.len() { bodies[from + part] } else { 0.0 };
        }
        barrier();
        for other in (0..GROUP * 4).step_by(4) {
            let (px, py, pz) = attraction(tile[other] - x, tile[other + 1] - y, tile[other + 2] - z, tile[other + 3]);
            ax += px;
            ay += py;
            az += pz;
        }
        barrier();
    }
    if i < bodies.len() {
        let (vx, vy, vz) = (speeds[i] + ax * step, speeds[i + 1] + ay * step, speeds[i + 2] + az * step);
        speeds[i] = vx;
        speeds[i + 1] = vy;
        speeds[i + 2] = vz;
        moved[i] = x + vx * step;
        moved[i + 1] = y + vy * step;
        moved[i + 2] = z + vz * step;
        moved[i + 3] = bodies[i + 3];
    }
}

pub(super) const BUILTIN: BuiltinKernel = BuiltinKernel {
    name: "nbody",
    about: "all-pairs n-body simulation",
    source: include_str!("nbody.rs"),
    kernels: &[("nbody", nbody::build)],
    job,
};

const STEP: f32 = 0.01;

fn job(size: Size, seed: u64) -> Job {
    let count = size.pick(150, 2048, 16384);
    let mut numbers = uniform(seed, -1.0, 1.0);
    let mut place = || numbers.next().expect("the sequence is endless");
    let bodies: Vec<f32> = (0..count).flat_map(|_| [place(), place(), place(), 1.0 / count as f32]).collect();
    let args = vec![JobArg::Read(0), JobArg::Write(1), JobArg::Write(2), STEP.into()];
    Job {
        data: vec![Data::of(&bodies), Data::zeros::<f32>(4 * count), Data::zeros::<f32>(4 * count)],
        steps: vec![JobLaunch::new(nbody::build, count, args)],
        check,
        bytes: 64 * count as u64,
        // Counted as twenty operations for each pair, as is customary.
        ops: 20 * (count * count) as u64,
    }
}

/// Computes in f64, pair by pair. Bodies start at rest, so the speeds are one step of acceleration.
fn check(job: &Job, after: &[Data]) -> CheckResult {
    let bodies: Vec<[f64; 4]> =
        job.data[0].elements::<f32>().chunks(4).map(|body| std::array::from_fn(|i| body[i] as f64)).collect();
    let step = STEP as f64;
    let (mut speeds, mut moved) = (Vec::new(), Vec::new());
    for body in &bodies {
        let mut speed = [0.0; 4];
        for other in &bodies {
            let away: [f64; 3] = std::array::from_fn(|axis| other[axis] - body[axis]);
            let square = away.iter().map(|away| away * away).sum::<f64>() + SOFTENING as f64;
            (0..3).for_each(|axis| speed[axis] += away[axis] * other[3] * square.powf(-1.5) * step);
        }
        speeds.extend(speed);
        moved.extend((0..4).map(|axis| body[axis] + speed[axis] * step));
    }
    CheckResult::close(&after[1].elements(), &speeds, 1e-4).and(CheckResult::close(&after[2].elements(), &moved, 1e-5))
}
