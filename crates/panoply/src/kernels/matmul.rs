//! Tiled matrix product: a group keeps a tile of each factor in shared memory and reads every element `N` times from there. This is
//! the textbook algorithm; a device's library routine is several times faster.

use crate::kernel;
use crate::kernel::Float;

use super::job::{Data, Job, JobArg, JobLaunch, uniform};
use super::{BuiltinKernel, CheckResult, Size};

/// `c[m, n] = a[m, k] b[k, n]`, all row-major, in tiles of `N` by `N`.
#[kernel(group_size = (N, N))]
pub fn matmul<T: Float, const N: usize>(a: &[T], b: &[T], c: &mut [T], m: usize, k: usize, n: usize) {
    let mut left = shared::<T>(N * N);
    let mut right = shared::<T>(N * N);
    let (x, y) = (local_id(0), local_id(1));
    let (column, row) = (global_id(0), global_id(1));
    let mut sum = T::ZERO;
    for start in (0..k).step_by(N) {
        // Zeros beyond the edges add nothing to the sum.
        left[y * N + x] = if row < m && start + x < k { a[row * k + start + x] } else { T::ZERO };
        right[y * N + x] = if column < n && start + y < k { b[(start + y) * n + column] } else { T::ZERO };
        barrier();
        for i in 0..N {
            sum += left[y * N + i] * right[i * N + x];
        }
        barrier();
    }
    if row < m && column < n {
        c[row * n + column] = sum;
    }
}

pub(super) const BUILTIN: BuiltinKernel = BuiltinKernel {
    name: "matmul",
    about: "matrix product with tiles in shared memory",
    source: include_str!("matmul.rs"),
    kernels: &[("matmul", matmul::build::<f32, TILE>)],
    job,
};

const TILE: usize = 16;

fn shape(size: Size) -> [usize; 3] {
    match size {
        Size::Tiny => [19, 35, 21],
        Size::Small => [256, 256, 256],
        Size::Large => [1024, 1024, 1024],
    }
}

fn job(size: Size, seed: u64) -> Job {
    let [m, k, n] = shape(size);
    let mut numbers = uniform(seed, -1.0, 1.0);
    let args = vec![JobArg::Read(0), JobArg::Read(1), JobArg::Write(2), m.into(), k.into(), n.into()];
    Job {
        data: vec![Data::next_of(&mut numbers, m * k), Data::next_of(&mut numbers, k * n), Data::zeros::<f32>(m * n)],
        steps: vec![JobLaunch::over(matmul::build::<f32, TILE>, (n, m), args)],
        check,
        bytes: 4 * (m * k + k * n + m * n) as u64,
        ops: 2 * (m * k * n) as u64,
    }
}

/// Computes in f64, row by row of `b`.
fn check(job: &Job, after: &[Data]) -> CheckResult {
    let (a, b) = (job.data[0].elements::<f32>(), job.data[1].elements::<f32>());
    let dim = |at: usize| match job.steps[0].args[at] {
        JobArg::Index(dim) => dim as usize,
        JobArg::Scalar(_) | JobArg::Read(_) | JobArg::Write(_) => 0,
    };
    let (k, n) = (dim(4), dim(5));
    let mut want = Vec::new();
    for row in a.chunks(k) {
        let mut sums = vec![0.0; n];
        for (a, b) in row.iter().zip(b.chunks(n)) {
            sums.iter_mut().zip(b).for_each(|(sum, b)| *sum += *a as f64 * *b as f64);
        }
        want.extend(sums);
    }
    CheckResult::close(&after[2].elements(), &want, 1e-5)
}
