//! Errors of invalid arguments: each names operands, limit and remedy, and the device still works afterwards.

#[cfg(target_os = "linux")]
mod guard;
use crate::support::test_device;
mod routines;

use panoply_ir::builder::Builder;
use panoply_ir::kernel::{Access, Builtin, Guard, Kernel};
use panoply_ir::target::Target;
use panoply_ir::{DType, Error, ErrorKind, Result, Type};
use panoply_runtime::{Buffer, Command, Device, Grid, Launch, LaunchArg};
use test_device::{
    Options, build_count, build_grouped, build_mix, build_saxpy, build_typed, build_unchecked, saxpy, test_device,
};

#[cfg(target_os = "linux")]
#[global_allocator]
static ALLOCATOR: guard::Guarded = guard::Guarded;

fn device() -> Device {
    test_device(Options::default()).0
}

/// Checks the error's kind and message, that the device still works, and that no memory leaks.
fn check(device: &Device, error: Error, kind: ErrorKind, message: &str) {
    assert_eq!(error.message(), message);
    assert_eq!(error.kind(), kind, "{error}");
    let (before, x) = (device.memory_stats().buffers, device.buffer(&[1.0f32, 2.0]).unwrap());
    let mut y = device.buffer(&[10.0f32, 20.0]).unwrap();
    saxpy(3.0, &x, &mut y).launch(2).unwrap();
    assert_eq!(y.to_vec().unwrap(), [13.0, 26.0]);
    drop((x, y));
    assert_eq!(device.memory_stats().buffers, before);
}

fn mistake(device: &Device, answer: Result<impl Sized>, message: &str) {
    check(device, answer.err().expect("a mistake"), ErrorKind::Mistake, message);
}

#[test]
fn mismatched_lengths() {
    let device = device();
    let mut x = device.zeros::<f32>(12).unwrap();
    let y = device.zeros::<f32>(10).unwrap();
    let write = x.write(&[0.0; 10]);
    mistake(&device, write, "write: a buffer of 12 elements, but 10 elements given; take a slice of the longer one");
    let copy = x.copy_from(&y);
    mistake(&device, copy, "copy: a buffer of 12 elements, but 10 elements given; take a slice of the longer one");
    let read = x.read_into(&mut [0.0; 13]);
    mistake(&device, read, "read: a buffer of 12 elements, but 13 elements given; take a slice of the longer one");
    mistake(&device, x.slice(5..13), "elements 5..13 are not within a buffer of 12");
    mistake(&device, x.slice_mut(7..=usize::MAX), &format!("elements 7..{} are not within a buffer of 12", usize::MAX));
    #[expect(clippy::reversed_empty_ranges, reason = "the reversed range is the tested mistake")]
    let backwards = x.slice(5..3);
    mistake(&device, backwards, "elements 5..3 are not within a buffer of 12");
    let far = x.storage().slice(0..49);
    mistake(&device, far, "bytes 0..49 are not within a storage of 48");
    let odd = Buffer::<f32>::from_storage(x.storage().slice(2..10).unwrap());
    mistake(&device, odd, "8 bytes at offset 2 are not a whole number of aligned f32 elements of 4 bytes");
    let bytes = x.storage().write_bytes(&[0; 7]);
    mistake(&device, bytes, "write: 48 bytes on the device, but 7 bytes given; the sizes must be equal");
}

#[test]
fn mistakes_name_the_callers_line() {
    let device = device();
    let (x, mut y) = (device.zeros::<f32>(2).unwrap(), device.zeros::<f32>(2).unwrap());
    let here = |error: Error| assert!(error.to_string().contains("tests/it/invalid_arguments.rs:"), "{error}");
    here(y.write(&[1.0]).unwrap_err());
    here(x.slice(3..).err().unwrap());
    here(Launch::new(build_saxpy, vec![(&x).into()]).launch(1).unwrap_err());
}

#[test]
fn wrong_arguments() {
    let device = device();
    let (x, mut y) = (device.zeros::<f32>(4).unwrap(), device.zeros::<f32>(4).unwrap());
    let doubles = device.zeros::<f64>(4).unwrap();
    let launch = |args: Vec<LaunchArg<'_>>, message: &str| {
        mistake(&device, Launch::new(build_saxpy, args).launch(4), message);
    };
    launch(vec![(&x).into(), (&x).into()], "kernel saxpy takes 3 arguments (a: f32, x: &[f32], y: &mut [f32]), not 2");
    launch(
        vec![2.0f64.into(), (&x).into(), (&mut y).into()],
        "kernel saxpy: argument 1 (a) is a f32, not a f64; convert it",
    );
    launch(
        vec![(&x).into(), (&x).into(), (&mut y).into()],
        "kernel saxpy: argument 1 (a) is a f32, not a buffer of f32; convert it",
    );
    launch(
        vec![2.0f32.into(), 7usize.into(), (&mut y).into()],
        "kernel saxpy: argument 2 (x) is a buffer of f32, not an index; convert it",
    );
    launch(
        vec![2.0f32.into(), (&doubles).into(), (&mut y).into()],
        "kernel saxpy: argument 2 (x) is a buffer of f32, not a buffer of f64; convert it",
    );
    launch(
        vec![2.0f32.into(), (&x).into(), (&y).into()],
        "kernel saxpy: argument 3 (y) is written, but was passed as read-only; pass `&mut y`",
    );
    let mut counts = device.zeros::<u32>(4).unwrap();
    let answer = Launch::new(build_count, vec![1u32.into(), (&mut counts).into()]).launch(4);
    mistake(&device, answer, "kernel count: argument 1 (n) is an index, not a u32; convert it");
    let odd = x.storage().slice(2..14).unwrap();
    let answer =
        Launch::new(build_saxpy, vec![1f32.into(), LaunchArg::read(&odd, DType::F32), (&mut y).into()]).launch(4);
    mistake(
        &device,
        answer,
        "kernel saxpy: argument 2 (x) has 12 bytes at offset 2, not a whole number of aligned f32 elements of 4 bytes",
    );
}

#[test]
fn aliased_written_buffers() {
    let device = device();
    let y = device.zeros::<u32>(8).unwrap();
    let (low, high) = (y.storage().slice(0..20).unwrap(), y.storage().slice(12..32).unwrap());
    let launch = |from, to| {
        Launch::new(build_mix, vec![LaunchArg::read(from, DType::U32), LaunchArg::write(to, DType::U32)]).launch(4)
    };
    let message = "kernel mix: to is written and shares bytes with from; pass a copy of one";
    mistake(&device, launch(y.storage(), y.storage()), message);
    mistake(&device, launch(&low, &high), message);
    mistake(&device, launch(&high, y.storage()), message);
    launch(&low, &y.storage().slice(20..32).unwrap()).unwrap();
}

#[test]
fn empty_and_oversized_grids() {
    let device = device();
    let mut y = device.zeros::<u32>(4).unwrap();
    let mut launch = |grid: Grid, message: &str| {
        mistake(&device, Launch::new(build_count, vec![0usize.into(), (&mut y).into()]).launch(grid), message);
    };
    launch(0.into(), "kernel count: a grid of 0×1×1 has no work-items; launch at least one along each axis");
    launch((4, 0).into(), "kernel count: a grid of 4×0×1 has no work-items; launch at least one along each axis");
    launch((4, 2, 0).into(), "kernel count: a grid of 4×2×0 has no work-items; launch at least one along each axis");
    launch(
        Grid([1 << 40, 1 << 40, 1]),
        "kernel count: a grid of 1099511627776×1099511627776×1 exceeds the index range of cpu; launch it in parts",
    );
    launch(
        Grid([u64::MAX, 1, 1]),
        "kernel count: a grid of 18446744073709551615×1×1 exceeds the index range of cpu; launch it in parts",
    );
    // The optimizer proves bounds for grids of at most 2^48 - 1 work-items, including whole work-groups.
    launch(
        Grid([1 << 48, 1, 1]),
        "kernel count: a grid of 281474976710656×1×1 exceeds the index range of cpu; launch it in parts",
    );
    launch(
        Grid([1 << 16, 1 << 16, 1 << 16]),
        "kernel count: a grid of 65536×65536×65536 exceeds the index range of cpu; launch it in parts",
    );
    launch(
        Grid([usize::MAX as u64 - (1 << 40) + 1, 1, 1]),
        "kernel count: a grid of 18446742974197923840×1×1 exceeds the index range of cpu; launch it in parts",
    );
}

/// Work-groups at the edge extend beyond the grid, and their work-items count.
#[test]
fn rounded_up_grids_beyond_the_limit() {
    fn build() -> Result<Kernel> {
        let mut kernel = build_count()?;
        kernel.group_size = Some([64, 4, 1]);
        Ok(kernel)
    }
    let device = device();
    let mut y = device.zeros::<u32>(4).unwrap();
    let mut launch = |grid: Grid| Launch::new(build, vec![0usize.into(), (&mut y).into()]).launch(grid);
    for grid in [[(1 << 48) - 1, 1, 1], [1 << 40, 1, 1 << 6], [1, (1 << 42) - 1, 1]] {
        let error = launch(Grid(grid)).unwrap_err();
        assert!(error.is_mistake() && error.message().contains("exceeds the index range of cpu"), "{grid:?}: {error}");
    }
}

/// A hand-built kernel with proven guards is rejected at every entry point.
#[test]
fn proven_guards_are_rejected() {
    fn build() -> Result<Kernel> {
        let mut b = Builder::new("proven");
        let x = b.buffer("x", DType::F32, Access::In);
        let y = b.buffer("y", DType::F32, Access::Out);
        let n = b.scalar("n", Type::Index);
        let i = b.builtin(Builtin::GlobalId(0));
        let value = b.load(x, n, Guard::Proven);
        b.store(y, i, value, Guard::Checked);
        b.finish()
    }
    let device = device();
    let x = device.buffer(&[1.0f32; 64]).unwrap();
    let mut y = device.zeros::<f32>(1).unwrap();
    let message = "kernel proven: an access to x is marked proven, which only the optimizer can do; make it checked, or unchecked \
                   and launch it with `unsafe`";
    for n in [0usize, 64, 1 << 44] {
        mistake(&device, Launch::new(build, vec![(&x).into(), (&mut y).into(), n.into()]).launch(1), message);
    }
    mistake(&device, device.compile_fn(build).map(drop), message);
    let error = panoply_ir::verify::verify(build().unwrap()).map(drop);
    mistake(&device, error, message);
}

#[test]
fn requirements_beyond_the_device() {
    let target =
        Target { max_group: [64, 64, 4], max_group_items: 256, shared_bytes: 1024, max_bindings: 2, ..Target::cpu() };
    let target = Target { f64: false, int64: false, ..target };
    let (device, _) = test_device(Options { target, ..Options::default() });
    let lacks = |build: fn() -> Result<Kernel>, message: &str| {
        check(&device, device.compile_fn(build).unwrap_err(), ErrorKind::Unsupported, message);
    };
    lacks(
        || build_grouped([64, 8, 1], 0, 1),
        "kernel tile: a group of 64×8×1 has 512 work-items, cpu allows 256; use a smaller group",
    );
    lacks(
        || build_grouped([8, 1, 8], 0, 1),
        "kernel tile: a group of 8×1×8 is 8 work-items along axis 2, cpu allows 4; use a smaller group",
    );
    lacks(
        || build_grouped([64, 1, 1], 300, 1),
        "kernel tile: a group needs 1.2 KiB of shared memory, cpu has 1.0 KiB; make the shared arrays smaller",
    );
    lacks(
        || build_grouped([64, 1, 1], 0, 3),
        "kernel tile: takes 3 buffers, cpu can bind 2; split the kernel or join buffers",
    );
    lacks(
        || build_typed(DType::F64),
        "kernel typed: y is f64, which cpu (TestDevice) does not have; use f32 or another device",
    );
    lacks(
        || build_typed(DType::U64),
        "kernel typed: y is u64, which cpu (TestDevice) does not have; use u32 or another device",
    );
    for dtype in [DType::F16, DType::BF16, DType::I8] {
        let kernel = panoply_ir::verify::verify(build_typed(dtype).unwrap()).unwrap();
        device.compile(&std::sync::Arc::new(kernel)).expect("storage of small types exists everywhere");
    }
}

#[test]
fn buffers_of_another_device() {
    let (device, other) =
        (device(), test_device(Options { index: 1, kind: panoply_runtime::Backend::OpenCl, ..Options::default() }).0);
    let x = other.zeros::<f32>(4).unwrap();
    let mut y = device.zeros::<f32>(4).unwrap();
    let answer = saxpy(1.0, &x, &mut y).launch(4);
    mistake(
        &device,
        answer,
        "kernel saxpy: argument 3 (y) is on cpu, but the launch is on opencl:1; copy it with `.to(&device)`",
    );
    let mut z = other.zeros::<f32>(4).unwrap();
    let answer = saxpy(1.0, &x, &mut z).on(&device.default_queue()).launch(4);
    mistake(
        &device,
        answer,
        "kernel saxpy: its buffers are on opencl:1, the queue is on cpu; take a queue of opencl:1",
    );
    let answer = device.submit(&[Command::Copy { from: y.storage(), to: x.storage() }]);
    mistake(&device, answer, "a buffer on opencl:1 was passed to work for cpu; copy it with `.to(&device)`");
    let event = other.default_queue().record_event().unwrap();
    let answer = device.default_queue().wait_event(&event);
    mistake(&device, answer, "a queue of cpu cannot wait for an event of opencl:1; wait for it on the host");
    let prepared = other.compile_fn(build_saxpy).unwrap();
    let answer = device.submit(&[Command::Kernel { prepared: &prepared, grid: 1.into(), args: vec![] }]);
    mistake(
        &device,
        answer,
        "kernel saxpy(a: f32, x: &[f32], y: &mut [f32]) on opencl:1 cannot be launched on cpu; compile it there",
    );
}

#[test]
fn invalid_copies_and_fills() {
    let device = device();
    let storage = device.allocate(16).unwrap();
    let part = |range| storage.slice(range).unwrap();
    let copy = device.submit(&[Command::Copy { from: &part(0..8), to: &part(4..12) }]);
    mistake(&device, copy, "copy: the source and the destination share bytes; copy through a third buffer");
    let copy = device.submit(&[Command::Copy { from: &part(0..8), to: &part(8..12) }]);
    mistake(&device, copy, "copy: 4 bytes on the device, but 8 bytes given; the sizes must be equal");
    let fill = device.submit(&[Command::Fill { to: &part(0..6), pattern: &[0; 4] }]);
    mistake(
        &device,
        fill,
        "fill: a pattern of 4 bytes does not fit 6 bytes at offset 0; its length must be 1, 2, 4 or 8 and divide both",
    );
    let fill = device.submit(&[Command::Fill { to: &part(0..6), pattern: &[] }]);
    mistake(
        &device,
        fill,
        "fill: a pattern of 0 bytes does not fit 6 bytes at offset 0; its length must be 1, 2, 4 or 8 and divide both",
    );
}

#[test]
fn unchecked_kernels_need_an_unsafe_launch() {
    let device = device();
    let mut y = device.zeros::<u32>(4).unwrap();
    let answer = Launch::new(build_unchecked, vec![(&mut y).into()]).launch(4);
    let message = "kernel daring: its author marked it unchecked; launch it with `unsafe { … .launch_unchecked(n) }`";
    mistake(&device, answer, message);
    let prepared = device.compile_fn(build_unchecked).unwrap();
    assert!(prepared.is_unchecked());
    let args = vec![(&mut y).into()];
    let answer = device.submit(&[Command::Kernel { prepared: &prepared, grid: 4.into(), args }]);
    mistake(&device, answer, "kernel daring: its author marked it unchecked; it cannot be part of a command list");
    // SAFETY: the grid is as long as the buffer, and the kernel writes at its work-item's index.
    unsafe { Launch::new(build_unchecked, vec![(&mut y).into()]).launch_unchecked(4) }.unwrap();
    assert_eq!(y.to_vec().unwrap(), [1; 4]);
}

#[test]
fn command_lists_are_submitted_completely_or_not_at_all() {
    let (device, test_device) = test_device(Options::default());
    let storage = device.upload(&[1; 8]).unwrap();
    let before = test_device.counts().submissions;
    let good = Command::Fill { to: &storage, pattern: &[2] };
    let bad = Command::Fill { to: &storage, pattern: &[0; 3] };
    assert!(device.submit(&[good, bad]).unwrap_err().is_mistake());
    assert_eq!(test_device.counts().submissions, before);
    assert_eq!(storage.read().unwrap(), [1; 8]);
}

#[test]
fn failing_compiler_or_queue() {
    let (device, test_device) = test_device(Options::default());
    let refusal =
        || Error::new(ErrorKind::CompileFailed, "kernel mix does not build on test device").note("line 1: no");
    test_device.state().refuse_program = Some(refusal());
    let (x, mut y) = (device.zeros::<u32>(4).unwrap(), device.zeros::<u32>(4).unwrap());
    fn launch(x: &Buffer<u32>, y: &mut Buffer<u32>) -> Result<()> {
        Launch::new(build_mix, vec![x.into(), y.into()]).launch(4)
    }
    let error = launch(&x, &mut y).unwrap_err();
    assert_eq!(error.notes(), ["line 1: no"]);
    check(&device, error, ErrorKind::CompileFailed, "kernel mix does not build on test device");
    launch(&x, &mut y).expect("failures are not cached");
    test_device.state().refuse_submission = Some(Error::new(ErrorKind::DeviceLost, "test device is gone"));
    let error = launch(&x, &mut y).unwrap_err();
    check(&device, error, ErrorKind::DeviceLost, "test device is gone");
    drop((x, y));
    assert_eq!(device.memory_stats().buffers, 0);
}

#[test]
fn invalid_kernel_is_rejected() {
    let device = device();
    fn build() -> Result<Kernel> {
        let mut kernel = build_mix()?;
        kernel.mems[1].space = panoply_ir::kernel::Space::Buffer(panoply_ir::kernel::Access::In);
        Ok(kernel)
    }
    let mut y = device.zeros::<u32>(4).unwrap();
    let error = Launch::new(build, vec![(&mut y).into(), 1u32.into()]).launch(4).unwrap_err();
    assert!(error.is_mistake() && error.message().starts_with("kernel mix: "), "{error}");
}
