//! Matrix transpose. A group reads a tile row by row into shared memory and writes it column by column, so that both
//! reads and writes of global memory are contiguous. One column of padding keeps the columns in different banks.

use crate::kernel;
use crate::kernel::Number;

use super::job::{Data, Job, JobArg, JobLaunch, uniform};
use super::{BuiltinKernel, CheckResult, Size};

/// Writes the transpose of `x[height, width]` to `y[width, height]`, in tiles of `N` by `N`.
#[kernel(group_size = (N, N))]
pub fn transpose<T: Number, const N: usize>(x: &[T], y: &mut [T], width: usize, height: usize) {
    let mut tile = shared::<T>(N * (N + 1));
    let (local_x, local_y) = (local_id(0), local_id(1));
    let (column, row) = (group_id(0) * N + local_x, group_id(1) * N + local_y);
    if column < width && row < height {
        tile[local_y * (N + 1) + local_x] = x[row * width + column];
    }
    barrier();
    let (column, row) = (group_id(1) * N + local_x, group_id(0) * N + local_y);
    if column < height && row < width {
        y[row * height + column] = tile[local_x * (N + 1) + local_y];
    }
}

pub(super) const BUILTIN: BuiltinKernel = BuiltinKernel {
    name: "transpose",
    about: "matrix transpose with tiles in shared memory",
    source: include_str!("transpose.rs"),
    kernels: &[("transpose", transpose::build::<f32, TILE>)],
    job,
};

const TILE: usize = 16;

fn shape(size: Size) -> (usize, usize) {
    (size.pick(37, 1024, 4096), size.pick(21, 768, 4096))
}

fn job(size: Size, seed: u64) -> Job {
    let (width, height) = shape(size);
    let n = width * height;
    let args = vec![JobArg::Read(0), JobArg::Write(1), width.into(), height.into()];
    Job {
        data: vec![Data::next_of(&mut uniform(seed, -1.0, 1.0), n), Data::zeros::<f32>(n)],
        steps: vec![JobLaunch::over(transpose::build::<f32, TILE>, (width, height), args)],
        check,
        bytes: 8 * n as u64,
        ops: n as u64,
    }
}

fn check(job: &Job, after: &[Data]) -> CheckResult {
    let x = job.data[0].elements::<f32>();
    let (JobArg::Index(width), JobArg::Index(height)) = (job.steps[0].args[2], job.steps[0].args[3]) else {
        return CheckResult::exact(&[0], &[1]);
    };
    let (width, height) = (width as usize, height as usize);
    let mut want = Vec::with_capacity(x.len());
    for column in 0..width {
        want.extend((0..height).map(|row| x[row * width + column]));
    }
    CheckResult::exact(&after[1].elements(), &want)
}
