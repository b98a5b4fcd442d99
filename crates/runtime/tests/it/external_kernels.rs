//! User-supplied kernels on every available device: their results, and the errors of unsuitable ones.

use crate::support::all_devices;

use std::sync::Arc;

use panoply_device::{BinaryFormat, Language, ProgramForm};
use panoply_runtime::{
    Backend, Buffer, Command, Device, DeviceOptions, Error, ErrorKind, ExternalKernel, Grid, HostCall, Launch, Result,
};

const CL: &str = "\
#pragma OPENCL FP_CONTRACT OFF
kernel void square(uint n, global const float *x, global float *y) {
    uint i = get_global_id(0);
    if (i < n) y[i] = x[i] * x[i] + 1.0f;
}
";

/// Source for both CUDA and HIP.
const CPP: &str = "\
extern \"C\" __global__ void square(unsigned n, const float *x, float *y) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * x[i] + 1.0f;
}
";

const WGSL: &str = "\
@group(0) @binding(0) var<uniform> n: u32;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(64) fn square(@builtin(global_invocation_id) at: vec3<u32>) {
    let i = at.x;
    if i < n { y[i] = x[i] * x[i] + 1.0; }
}
";

const PTX: &str = include_str!("../external_kernels/square.ptx");
/// The flavour that Vulkan takes.
const SPIR_V: &[u8] = include_bytes!("../external_kernels/square.spv");
/// The flavour that OpenCL and Level Zero take.
const KERNEL_SPIR_V: &[u8] = include_bytes!("../external_kernels/square.cl.spv");

fn square_on_cpu(call: &mut HostCall<'_>) -> Result<()> {
    let (n, x, y) = (call.scalar::<u32>(0)?, call.read::<f32>(1)?, call.write::<f32>(2)?);
    y.iter_mut().zip(x).take(n as usize).for_each(|(y, x)| *y = x * x + 1.0);
    Ok(())
}

/// Returns the kernel without programs.
fn square() -> ExternalKernel {
    ExternalKernel::new("square", [64, 1, 1]).scalar::<u32>("n").input::<f32>("x").output::<f32>("y")
}

/// Adds a program for every device.
fn everywhere(kernel: ExternalKernel) -> ExternalKernel {
    let kernel = kernel.spir_v(SPIR_V).spir_v(KERNEL_SPIR_V).ptx(PTX).hip_cpp(CPP).opencl_c(CL).wgsl(WGSL);
    kernel.cpu_fn(square_on_cpu)
}

fn launch<'a>(kernel: &'a ExternalKernel, n: u32, x: &'a Buffer<f32>, y: &'a mut Buffer<f32>) -> Launch<'a> {
    Launch::external(kernel, vec![n.into(), x.into(), y.into()])
}

/// Launches a kernel of this file, all of which stay within their buffers.
fn run(launch: Launch<'_>, grid: impl Into<Grid>) -> Result<()> {
    // SAFETY: see the doc comment.
    unsafe { launch.launch_unchecked(grid) }
}

fn refused(device: &Device, kernel: &ExternalKernel) -> Error {
    device.load_external(kernel).expect_err("the kernel is rejected")
}

/// Returns the devices with a compiler for the sources of this file.
fn compiling() -> impl Iterator<Item = Device> {
    let known = [Language::OpenClC, Language::Hip, Language::Wgsl].map(ProgramForm::Text);
    let compiling = all_devices::raw_devices()
        .iter()
        .filter(move |raw| raw.accepted_forms().iter().any(|form| known.contains(form)));
    compiling.map(|raw| Device::new(raw.clone(), DeviceOptions::default()))
}

/// Returns the devices of one backend.
fn devices(kind: Backend) -> Vec<Device> {
    all_devices::devices().into_iter().filter(|device| device.info().kind == kind).collect()
}

#[test]
fn external_kernel_runs_on_every_device() {
    let kernel = everywhere(square());
    for device in all_devices::devices() {
        let values: Vec<f32> = (0..1000).map(|i| (i as f32 - 500.0) / 7.0).collect();
        let (x, mut y) = (device.buffer(&values).unwrap(), device.full(1000, -1.0f32).unwrap());
        for n in [1u32, 63, 64, 900] {
            run(launch(&kernel, n, &x, &mut y), n as usize).unwrap_or_else(|error| panic!("{device}: {error}"));
            let expected = values.iter().enumerate().map(|(i, x)| if i < n as usize { x * x + 1.0 } else { -1.0 });
            let wrong = y.to_vec().unwrap().into_iter().zip(expected).position(|(y, expected)| y != expected);
            assert_eq!(wrong, None, "{device}, {n} elements");
        }
        let counts = device.program_cache_stats();
        assert_eq!(counts.memory_hits, 3, "{device}: compiled once");
        // A clone is the same kernel.
        let (again, first) = (device.load_external(&kernel.clone()).unwrap(), device.load_external(&kernel).unwrap());
        assert!(Arc::ptr_eq(&again, &first), "{device}");
        assert_eq!(format!("{first:?}"), format!("kernel square(n: u32, x: &[f32], y: &mut [f32]) on {device}"));
    }
}

/// Launches on one queue see the writes of another, as with any kernel.
#[test]
fn queues_are_ordered_by_accesses_of_external_kernels() {
    let kernel = everywhere(square());
    for device in all_devices::devices() {
        let queues = [device.queue().unwrap(), device.queue().unwrap()];
        let mut values = [device.full(64, 0.0f32).unwrap(), device.full(64, 0.0f32).unwrap()];
        for round in 0..5 {
            let [a, b] = &mut values;
            let (x, y) = if round % 2 == 0 { (a, b) } else { (b, a) };
            run(launch(&kernel, 64, x, y).on(&queues[round % 2]), 64).unwrap();
        }
        // 0, 1, 2, 5, 26, 677.
        assert_eq!(values[1].to_vec().unwrap(), [677.0; 64], "{device}");
    }
}

/// Work-groups and grids with two and three axes: each work-item stores its position.
#[test]
fn work_items_along_three_axes() {
    let kernel = ExternalKernel::new("place", [4, 2, 2])
        .scalar::<u32>("nx")
        .scalar::<u32>("ny")
        .scalar::<u32>("nz")
        .output::<u32>("at")
        .opencl_c(
            "kernel void place(uint nx, uint ny, uint nz, global uint *at) {
                uint x = get_global_id(0), y = get_global_id(1), z = get_global_id(2);
                if (x < nx && y < ny && z < nz) at[(z * ny + y) * nx + x] = x + 100 * y + 10000 * z;
            }",
        )
        .hip_cpp(
            "extern \"C\" __global__ void place(unsigned nx, unsigned ny, unsigned nz, unsigned *at) {
                unsigned x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
                unsigned z = blockIdx.z * blockDim.z + threadIdx.z;
                if (x < nx && y < ny && z < nz) at[(z * ny + y) * nx + x] = x + 100 * y + 10000 * z;
            }",
        )
        .wgsl(
            "struct Sizes { x: u32, y: u32, z: u32 }
            @group(0) @binding(0) var<uniform> n: Sizes;
            @group(0) @binding(1) var<storage, read_write> at: array<u32>;
            @compute @workgroup_size(4, 2, 2) fn place(@builtin(global_invocation_id) i: vec3<u32>) {
                if i.x < n.x && i.y < n.y && i.z < n.z {
                    at[(i.z * n.y + i.y) * n.x + i.x] = i.x + 100u * i.y + 10000u * i.z;
                }
            }",
        )
        .cpu_fn(|call| {
            let [nx, ny, _] = call.grid;
            let at = call.write::<u32>(3)?;
            for (i, at) in (0..).zip(at) {
                *at = (i % nx + 100 * (i / nx % ny) + 10000 * (i / nx / ny)) as u32;
            }
            Ok(())
        });
    for device in compiling().chain(devices(Backend::Cpu)) {
        let (nx, ny, nz) = (9usize, 5, 3);
        let mut at = device.zeros::<u32>(nx * ny * nz).unwrap();
        let args = vec![(nx as u32).into(), (ny as u32).into(), (nz as u32).into(), (&mut at).into()];
        run(Launch::external(&kernel, args), (nx, ny, nz)).unwrap_or_else(|error| panic!("{device}: {error}"));
        let place = |i: usize| (i % nx + 100 * (i / nx % ny) + 10000 * (i / nx / ny)) as u32;
        assert_eq!(at.to_vec().unwrap(), (0..nx * ny * nz).map(place).collect::<Vec<u32>>(), "{device}");
    }
}

#[test]
fn invalid_launches_are_rejected_before_the_device_is_called() {
    let kernel = everywhere(square());
    for device in all_devices::devices() {
        let (x, mut y) = (device.zeros::<f32>(8).unwrap(), device.zeros::<f32>(8).unwrap());
        let (wide, mut words) = (device.zeros::<f64>(8).unwrap(), device.zeros::<u32>(8).unwrap());
        let fails = |launch: Launch<'_>, grid: usize, message: &str| {
            let error = run(launch, grid).unwrap_err();
            assert!(error.is_mistake() && error.message().contains(message), "{device}: {error}");
            assert!(error.to_string().contains("external_kernels.rs:"), "the caller's line: {error}");
        };
        let error = launch(&kernel, 8, &x, &mut y).launch(8).unwrap_err();
        assert!(
            error.message().starts_with("kernel square: its accesses cannot be verified; launch it with `unsafe"),
            "{error}"
        );
        fails(
            Launch::external(&kernel, vec![8u32.into(), (&x).into()]),
            8,
            "takes 3 arguments (n: u32, x: &[f32], y: &mut [f32])",
        );
        fails(
            Launch::external(&kernel, vec![8i32.into(), (&x).into(), (&mut y).into()]),
            8,
            "argument 1 (n) is a u32, not a i32",
        );
        fails(
            Launch::external(&kernel, vec![8usize.into(), (&x).into(), (&mut y).into()]),
            8,
            "argument 1 (n) is a u32, not an index",
        );
        fails(
            Launch::external(&kernel, vec![8u32.into(), (&wide).into(), (&mut y).into()]),
            8,
            "argument 2 (x) is a buffer of f32",
        );
        fails(
            Launch::external(&kernel, vec![8u32.into(), (&x).into(), (&mut words).into()]),
            8,
            "argument 3 (y) is a buffer of f32",
        );
        fails(Launch::external(&kernel, vec![8u32.into(), (&x).into(), (&x).into()]), 8, "argument 3 (y) is written");
        fails(launch(&kernel, 8, &x, &mut y), 0, "has no work-items");
    }
}

#[test]
fn unsupported_group_sizes_and_bindings_are_rejected() {
    for device in all_devices::devices() {
        let empty = refused(&device, &ExternalKernel::new("square", [64, 0, 1]).cpu_fn(square_on_cpu));
        assert!(empty.is_mistake() && empty.message().contains("a group of 64×0×1 has no work-items"), "{empty}");
        let large = refused(&device, &ExternalKernel::new("square", [1 << 14, 1, 1]).cpu_fn(square_on_cpu));
        assert!(large.is_unsupported() && large.message().contains("use a smaller group"), "{large}");
        let many = (0..=device.target().max_bindings.min(1000))
            .fold(square(), |kernel, i| kernel.input::<f32>(&format!("x{i}")));
        if device.target().max_bindings < 1000 {
            let many = refused(&device, &many.cpu_fn(square_on_cpu));
            assert!(many.is_unsupported() && many.message().contains("split the kernel or join buffers"), "{many}");
        }
    }
}

#[test]
fn unsupported_forms_are_listed_in_the_error() {
    for device in all_devices::devices() {
        let error = refused(&device, &square().metallib(b"MTLB").msl("kernel void square() {}"));
        assert!(error.is_unsupported(), "{error}");
        let expected = format!("none of its programs (a Metal library, MSL) is usable on {device}, which accepts ");
        assert!(error.message().contains(&expected) && error.message().ends_with("; add one of those"), "{error}");
        let error = refused(&device, &square());
        assert!(error.message().contains("none of its programs (nothing) is usable on"), "{error}");
    }
}

#[test]
fn compile_error_quotes_the_source_line() {
    let wrong = |source: &str| source.replace("* x[i] + 1.0", "* x[i] + missing");
    let kernel = square().hip_cpp(&wrong(CPP)).opencl_c(&wrong(CL)).wgsl(&wrong(WGSL)).cpu_fn(square_on_cpu);
    for device in compiling() {
        let error = refused(&device, &kernel);
        assert!(error.is_compile_failed(), "{device}: {error}");
        assert!(error.message().contains("square"), "{device}: {error}");
        let notes = error.notes().join("\n");
        assert!(notes.contains("missing") && notes.contains("y[i] = x[i] * x[i] + missing"), "{device}: {error}");
    }
}

#[test]
fn missing_entry_point_is_named() {
    let other = |source: &str| source.replace("square(", "cube(");
    let kernel = square()
        .spir_v(&rename_entry(SPIR_V))
        .spir_v(&rename_entry(KERNEL_SPIR_V))
        .ptx(&other(PTX))
        .hip_cpp(&other(CPP))
        .opencl_c(&other(CL))
        .wgsl(&other(WGSL));
    for device in all_devices::devices().into_iter().filter(|device| device.info().kind != Backend::Cpu) {
        let error = refused(&device, &kernel);
        let message = error.to_string();
        assert!(message.contains("no entry point") || message.contains("no kernel"), "{device}: {message}");
        assert!(message.contains("square"), "{device}: {message}");
    }
}

/// Returns the module with its entry point renamed to `cubist`.
fn rename_entry(module: &[u8]) -> Vec<u8> {
    let at = module.windows(6).position(|name| name == b"square").expect("the name occurs");
    [&module[..at], b"cubist", &module[at + 6..]].concat()
}

#[test]
fn failing_cpu_function_fails_the_launch() {
    let failing = square().cpu_fn(|call| call.read::<f64>(2).map(drop));
    let panicking = square().cpu_fn(|_| panic!("on purpose"));
    for device in devices(Backend::Cpu) {
        let (x, mut y) = (device.zeros::<f32>(8).unwrap(), device.zeros::<f32>(8).unwrap());
        let error = run(launch(&failing, 8, &x, &mut y), 8).unwrap_err();
        let message = "its CPU function requests argument 3 as read f64, but it is 32 bytes to write";
        assert!(error.is_mistake() && error.message().contains(message), "{error}");
        let error = run(launch(&panicking, 8, &x, &mut y), 8).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Driver, "{error}");
        assert!(error.message().contains("kernel square: its CPU function panicked"), "{error}");
        // The device still works.
        run(launch(&square().cpu_fn(square_on_cpu), 8, &x, &mut y), 8).unwrap();
        assert_eq!(y.to_vec().unwrap(), [1.0; 8]);
    }
}

#[test]
fn wgsl_bindings_and_group_size_must_match() {
    for device in devices(Backend::Vulkan) {
        let elsewhere = square().wgsl(&WGSL.replace("@binding(2)", "@binding(5)"));
        let error = refused(&device, &elsewhere);
        assert!(
            error.is_compile_failed()
                && error.message().contains("has y at group 0, binding 5; a launch binds its 2 buffers"),
            "{error}"
        );
        let wide = square().wgsl(&WGSL.replace("@workgroup_size(64)", "@workgroup_size(8, 8)"));
        let (x, mut y) = (device.zeros::<f32>(8).unwrap(), device.zeros::<f32>(8).unwrap());
        let error = run(launch(&wide, 8, &x, &mut y), 8).unwrap_err();
        let message = "square has groups of 8×8×1 in its source and 64×1×1 in the launch; make them equal";
        assert!(error.is_mistake() && error.message().contains(message), "{error}");
    }
}

/// PTX for newer GPUs is skipped like machine code, and its error is kept in the notes.
#[test]
fn ptx_for_a_newer_gpu_is_skipped() {
    let newer = PTX.replace(".target sm_50", ".target sm_90");
    for device in devices(Backend::Cuda) {
        let kernel = square().ptx(&newer).ptx(PTX);
        let (x, mut y) = (device.zeros::<f32>(8).unwrap(), device.zeros::<f32>(8).unwrap());
        run(launch(&kernel, 8, &x, &mut y), 8).unwrap_or_else(|error| panic!("{device}: {error}"));
        assert_eq!(y.to_vec().unwrap(), [1.0; 8], "{device}");
        if device.target().language == (Language::Ptx { capability: 61 }) {
            let error = refused(&device, &square().ptx(&newer));
            assert!(error.is_unsupported(), "{error}");
            assert!(error.notes().join("\n").contains("the program is for a newer GPU"), "{error}");
        }
    }
}

/// A checked launch of an external kernel reaches no compiler, and command lists reject external kernels.
#[test]
fn external_kernels_need_unchecked_single_launches() {
    for device in devices(Backend::Cpu) {
        let (x, mut y) = (device.zeros::<f32>(8).unwrap(), device.zeros::<f32>(8).unwrap());
        let nowhere = square().metallib(b"MTLB");
        let error = launch(&nowhere, 8, &x, &mut y).launch(8).unwrap_err();
        assert!(error.is_mistake() && error.message().contains("its accesses cannot be verified"), "{error}");
        let prepared = device.load_external(&everywhere(square())).unwrap();
        let args = vec![8u32.into(), (&x).into(), (&mut y).into()];
        let error = device.submit(&[Command::Kernel { prepared: &prepared, grid: Grid::from(8), args }]).unwrap_err();
        let message = "kernel square: its accesses cannot be verified; it cannot be part of a command list";
        assert!(error.is_mistake() && error.message() == message, "{error}");
    }
}

/// Code for other hardware is skipped, and named if no program is left.
#[test]
fn damaged_and_foreign_code_is_skipped() {
    for device in all_devices::devices() {
        let cut = [&b"\x7FELF"[..], &[0; 20]].concat();
        let images = || square().cubin(&cut).code_object(&cut).spir_v(&SPIR_V[..200]).spir_v(b"no code");
        let kernel = everywhere(images());
        let (x, mut y) = (device.zeros::<f32>(8).unwrap(), device.zeros::<f32>(8).unwrap());
        run(launch(&kernel, 8, &x, &mut y), 8).unwrap_or_else(|error| panic!("{device}: {error}"));
        assert_eq!(y.to_vec().unwrap(), [1.0; 8], "{device}");
        let error = refused(&device, &images());
        assert!(error.is_unsupported(), "{device}: {error}");
        let notes = error.notes().join("\n");
        match device.info().kind {
            Backend::Cuda => assert!(notes.contains("square as a cubin is truncated to 24 bytes"), "{error}"),
            Backend::Rocm => {
                assert!(notes.contains("square as an AMD code object is truncated to 24 bytes"), "{error}")
            }
            Backend::Vulkan | Backend::OneApi => {
                assert!(notes.contains("square as SPIR-V is truncated or damaged: 200 bytes"), "{error}");
            }
            _ => {}
        }
    }
}

/// Regression test: a driver read past the end of an empty source until the process crashed.
#[test]
fn empty_sources_and_zero_bytes_are_rejected() {
    for device in all_devices::devices() {
        for (source, what) in [
            ("", "source is empty"),
            (" \n", "source is empty"),
            ("kernel void f(\0) {}", "source contains a zero byte"),
        ] {
            let f = || ExternalKernel::new("f", [1, 1, 1]).output::<f32>("y");
            for kernel in [
                f().opencl_c(source),
                f().wgsl(source),
                f().cuda_c(source),
                f().hip_cpp(source),
                f().ptx(source),
                f().msl(source),
            ] {
                let error = refused(&device, &kernel);
                assert!(error.is_mistake() && error.message().contains(what), "{device}: {error}");
            }
        }
        for name in ["", "f\0"] {
            let error = refused(&device, &everywhere(ExternalKernel::new(name, [1, 1, 1])));
            assert!(error.is_mistake() && error.message().contains("a kernel cannot be called"), "{device}: {error}");
        }
    }
}

#[test]
fn source_without_a_kernel_is_reported() {
    for device in devices(Backend::OpenCl) {
        let error = refused(&device, &square().opencl_c("// nothing"));
        let text = error.to_string();
        assert!(
            error.is_compile_failed() && text.contains("the program has no kernel square; it has: none"),
            "{text:?}"
        );
        assert!(!text.contains('\0'), "{text:?}");
    }
}

#[test]
fn conflicting_group_size_is_reported() {
    for device in devices(Backend::OpenCl).into_iter().filter(|device| !device.info().name.contains("Oclgrind")) {
        for items in [32, 128] {
            let source = format!(
                "kernel __attribute__((reqd_work_group_size({items}, 1, 1))) void square(uint n, global const float *x, global float *y) {{}}"
            );
            let kernel = square().opencl_c(&source);
            let (x, mut y) = (device.full(64, 1.0f32).unwrap(), device.full(64, 1.0f32).unwrap());
            let error = run(launch(&kernel, 64, &x, &mut y), 64).expect_err("the groups differ");
            let wanted =
                format!("square has groups of {items}×1×1 in its source and 64×1×1 in the launch; make them equal");
            assert!(error.to_string().contains(&wanted), "{device}: {error}");
        }
    }
}

/// A driver would interpret a scalar as an address where the kernel takes a buffer.
#[test]
fn mismatched_parameter_types_are_rejected() {
    for device in devices(Backend::OpenCl) {
        let taken =
            |source: &str| ExternalKernel::new("f", [1, 1, 1]).scalar::<u64>("n").output::<f32>("y").opencl_c(source);
        let fits = taken("kernel void f(ulong n, global float *y) { y[0] = n; }");
        device.load_external(&fits).unwrap_or_else(|error| panic!("{device}: {error}"));
        for (source, what) in [
            (
                "kernel void f(global float *n, global float *y) { y[0] = n[0]; }",
                "argument 1 of f is a buffer, its signature gives a number",
            ),
            ("kernel void f(ulong n, ulong y) {}", "argument 2 of f is a number, its signature gives a buffer"),
            (
                "kernel void f(ulong n, local float *y) {}",
                "argument 2 of f is local memory, its signature gives a buffer",
            ),
        ] {
            let error = refused(&device, &taken(source));
            assert!(error.is_compile_failed() && error.to_string().contains(what), "{device}: {error}");
        }
    }
}

/// A reader that continues past the end of a truncated module would crash.
#[test]
fn truncated_spir_v_is_rejected_on_every_device() {
    let spir_v = ProgramForm::Image(BinaryFormat::SpirV);
    let taking = all_devices::raw_devices().iter().filter(|raw| raw.accepted_forms().contains(&spir_v));
    for device in taking.map(|raw| Device::new(raw.clone(), DeviceOptions::default())) {
        for length in [0, 3, 4, 19, 20, 22, SPIR_V.len() / 2, SPIR_V.len() - 1] {
            let error = refused(&device, &square().spir_v(&SPIR_V[..length]));
            assert!(error.notes().join(" ").contains("truncated or damaged"), "{device}, {length} bytes: {error}");
        }
    }
}
