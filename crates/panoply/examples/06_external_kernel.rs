//! A custom kernel in the languages of the devices: `x * x + 1`, launched like any other on the current device.
//!
//! `cargo run --example 06_external_kernel`; `PANOPLY_DEVICE=vulkan:0` chooses another device and with it another
//! program.

use panoply::prelude::*;
use panoply::{ExternalKernel, Launch};

/// Source for both CUDA and HIP: compiled by NVRTC or hiprtc, if present.
const CPP: &str = r#"
extern "C" __global__ void square(unsigned n, const float *x, float *y) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * x[i] + 1.0f;
}
"#;

const OPENCL_C: &str = r#"
kernel void square(uint n, global const float *x, global float *y) {
    uint i = get_global_id(0);
    if (i < n) y[i] = x[i] * x[i] + 1.0f;
}
"#;

/// Scalars are in a uniform at binding 0, buffers at bindings from 1 on.
const WGSL: &str = r#"
@group(0) @binding(0) var<uniform> n: u32;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(64) fn square(@builtin(global_invocation_id) at: vec3<u32>) {
    if at.x < n { y[at.x] = x[at.x] * x[at.x] + 1.0; }
}
"#;

/// Describes the kernel: its entry point, group size and parameters, and its programs in the order in which they are
/// tried.
fn square() -> ExternalKernel {
    ExternalKernel::new("square", [64, 1, 1])
        .scalar::<u32>("n")
        .input::<f32>("x")
        .output::<f32>("y")
        .cuda_c(CPP)
        .hip_cpp(CPP)
        .opencl_c(OPENCL_C)
        .wgsl(WGSL)
        .cpu_fn(|call| {
            let (x, y) = (call.read::<f32>(1)?, call.write::<f32>(2)?);
            y.iter_mut().zip(x).for_each(|(y, x)| *y = x * x + 1.0);
            Ok(())
        })
}

/// Squares numbers on the best device.
pub fn main() -> Result<()> {
    let device = Device::current()?;
    let square = square();
    let x = device.buffer(&[0.0f32, 1.0, 2.0, 3.0])?;
    let mut y = device.zeros::<f32>(4)?;
    let args = vec![(x.len() as u32).into(), (&x).into(), (&mut y).into()];
    // SAFETY: every program above reads and writes only the first n elements, and both buffers have n elements.
    unsafe { Launch::external(&square, args).launch_unchecked(x.len())? };
    println!("{:?} on {device}", y.to_vec()?);
    Ok(())
}
