//! Escape times of z² + c. Neighboring points take different numbers of iterations, so this tests divergence. It uses
//! only +, - and *, so the counts are the same on every device.

use crate::{kernel, kernel_fn};

use super::job::{Data, Job, JobArg, JobLaunch};
use super::{BuiltinKernel, CheckResult, Size};

/// Returns the number of iterations until |z| exceeds 2, at most `most`.
#[kernel_fn]
pub fn escape(re: f32, im: f32, most: u32) -> u32 {
    let mut x = 0.0;
    let mut y = 0.0;
    let mut turns = 0;
    while turns < most && x * x + y * y <= 4.0 {
        let next = x * x - y * y + re;
        y = 2.0 * x * y + im;
        x = next;
        turns += 1;
    }
    turns
}

/// Computes the escape times of `[-2, 1] × [-1, 1]`, row by row.
#[kernel]
pub fn mandelbrot(turns: &mut [u32], width: usize, height: usize, most: u32) {
    let (column, row) = (global_id(0), global_id(1));
    let re = column as f32 * (3.0 / width as f32) - 2.0;
    let im = row as f32 * (2.0 / height as f32) - 1.0;
    turns[row * width + column] = escape(re, im, most);
}

pub(super) const BUILTIN: BuiltinKernel = BuiltinKernel {
    name: "mandelbrot",
    about: "escape times of the Mandelbrot set",
    source: include_str!("mandelbrot.rs"),
    kernels: &[("mandelbrot", mandelbrot::build)],
    job,
};

fn job(size: Size, _seed: u64) -> Job {
    let (width, height) = (size.pick(30, 600, 3000), size.pick(20, 400, 2000));
    let most = size.pick(50, 200, 500) as u32;
    let args = vec![JobArg::Write(0), width.into(), height.into(), most.into()];
    // An iteration is 10 operations; the number of iterations depends on the points, so it is computed here.
    let turns: u64 = picture(width, height, most).map(u64::from).sum();
    Job {
        data: vec![Data::zeros::<u32>(width * height)],
        steps: vec![JobLaunch::over(mandelbrot::build, (width, height), args)],
        check,
        bytes: 4 * (width * height) as u64,
        ops: 10 * turns,
    }
}

fn check(job: &Job, after: &[Data]) -> CheckResult {
    let (JobArg::Index(width), JobArg::Index(height), JobArg::Scalar(most)) =
        (job.steps[0].args[1], job.steps[0].args[2], job.steps[0].args[3])
    else {
        return CheckResult::exact(&[0], &[1]);
    };
    let want: Vec<u32> = picture(width as usize, height as usize, most.bits as u32).collect();
    CheckResult::exact(&after[0].elements(), &want)
}

/// Computes the expected escape times with complex numbers as pairs, one point at a time.
fn picture(width: usize, height: usize, most: u32) -> impl Iterator<Item = u32> {
    let scale = (3.0f32 / width as f32, 2.0f32 / height as f32);
    let point = move |i: usize| ((i % width) as f32 * scale.0 - 2.0, (i / width) as f32 * scale.1 - 1.0);
    let square = |(x, y): (f32, f32)| (x * x - y * y, 2.0 * x * y);
    (0..width * height).map(move |i| {
        let c = point(i);
        let step = |z: &(f32, f32)| {
            let (x, y) = square(*z);
            Some((x + c.0, y + c.1))
        };
        let inside = |z: &(f32, f32)| z.0 * z.0 + z.1 * z.1 <= 4.0;
        std::iter::successors(Some((0.0, 0.0)), step).take(most as usize).take_while(inside).count() as u32
    })
}
