//! Tests of the null device: recording, memory, validation and injected failures.

use std::sync::Arc;

use panoply_ir::builder::Builder;
use panoply_ir::kernel::{Access, Builtin, Guard};
use panoply_ir::routine::{Gemm, Layout};
use panoply_ir::verify::verify;
use panoply_ir::{DType, Scalar};

use super::*;
use crate::command::{Arg, Dispatch};
use crate::program::SourceText;

/// Compiles a kernel with work-groups of 8 that takes a scalar, an index and a buffer of u32.
fn program(device: &NullDevice) -> ProgramId {
    let mut b = Builder::new("scale");
    b.group_size([8, 1, 1]);
    let factor = b.scalar("factor", DType::U32);
    b.scalar("from", panoply_ir::Type::Index);
    let x = b.buffer("x", DType::U32, Access::Out);
    let i = b.builtin(Builtin::GlobalId(0));
    b.store(x, i, factor, Guard::Checked);
    device.compile(&Program::Ir(Arc::new(verify(b.finish().unwrap()).unwrap()))).unwrap()
}

fn text() -> SourceText {
    let signature = Signature { params: Vec::new(), index_bits: 32, hidden: true };
    SourceText { language: Language::OpenClC, source: "source".into(), entry: "entry".into(), signature }
}

fn region(alloc: AllocId, offset: u64, bytes: u64) -> Region {
    Region { alloc, offset, bytes }
}

fn submit(device: &NullDevice, step: DeviceCommand) -> Result<Ticket> {
    device.submit(QueueId::DEFAULT, &[step], false)
}

#[test]
fn operations_are_counted_and_recorded() {
    let device = NullDevice::new(Target::cpu());
    let (a, b) = (device.allocate(64).unwrap(), device.allocate(32).unwrap());
    let (program, queue) = (program(&device), device.queue().unwrap());
    device.write(queue, region(a, 0, 4), &[1, 2, 3, 4]).unwrap();
    let args = vec![Arg::Scalar(3u32.into()), Arg::Index(9), Arg::Buffer(region(a, 0, 64))];
    let dispatch =
        DeviceCommand::Dispatch(Dispatch { program, grid: [5, 1, 1], group_size: [8, 1, 1], args, parts: Vec::new() });
    let steps = [
        DeviceCommand::Fill { to: region(b, 0, 8), pattern: vec![7, 8] },
        DeviceCommand::Copy { from: region(b, 0, 3), to: region(a, 1, 3) },
        dispatch,
        DeviceCommand::Wait(Ticket::Done),
    ];
    device.submit(queue, &steps, false).unwrap();
    assert_eq!(
        device.read(queue, region(a, 0, 5)).unwrap().take().unwrap(),
        [1, 7, 8, 7, 0],
        "launches change nothing"
    );
    device.free(b);
    let expected = Counts {
        allocations: 1,
        bytes: 64,
        peak_bytes: 96,
        allocated: 2,
        programs: 1,
        compiled: 1,
        queues: 2,
        submits: 1,
        dispatches: 1,
        copies: 1,
        fills: 1,
        waits: 1,
        bytes_written: 4,
        bytes_read: 5,
        ..Counts::default()
    };
    assert_eq!(device.counts(), expected);
    let recorded = device.take_steps();
    assert!(recorded.len() == 4 && recorded.iter().all(|(on, _)| *on == queue), "{recorded:?}");
    assert!(device.take_steps().is_empty());
    assert_eq!(device.entry(program).as_deref(), Some("scale"));
}

#[test]
fn device_without_memory_stores_nothing() {
    let device = NullDevice::new(Target::cpu()).without_memory();
    let a = device.allocate(1 << 29).unwrap();
    device.write(QueueId::DEFAULT, region(a, 0, 2), &[1, 2]).unwrap();
    submit(&device, DeviceCommand::Fill { to: region(a, 0, 1 << 29), pattern: vec![9] }).unwrap();
    assert_eq!(device.read(QueueId::DEFAULT, region(a, 0, 2)).unwrap().take().unwrap(), [0, 0]);
    assert!(device.take_steps().is_empty() && device.counts().fills == 1);
}

#[test]
fn injected_failures_occur_once_and_device_loss_is_permanent() {
    let device = NullDevice::new(Target::opencl_minimum()).in_memory(100);
    device.fail(InjectedFailure::Allocation { after: 1 });
    let first = device.allocate(10).unwrap();
    assert!(device.allocate(10).unwrap_err().is_out_of_memory());
    device.allocate(10).unwrap();
    let error = device.allocate(81).unwrap_err();
    assert!(error.is_out_of_memory() && error.message().contains("needs 81 bytes, 80 free of 100"), "{error}");
    device.fail(InjectedFailure::Build { log: "line 3: no".into() });
    let error = device.compile(&Program::Text(text())).unwrap_err();
    assert!(error.is_compile_failed() && error.notes() == ["line 3: no"], "{error}");
    device.compile(&Program::Text(text())).unwrap();
    device.fail(InjectedFailure::Lost { after: 2 });
    let fill = || DeviceCommand::Fill { to: region(first, 0, 1), pattern: vec![1] };
    submit(&device, fill()).unwrap();
    submit(&device, fill()).unwrap();
    device.synchronize().unwrap();
    assert!(submit(&device, fill()).unwrap_err().is_device_lost());
    assert!(device.synchronize().unwrap_err().is_device_lost());
    assert!(device.read(QueueId::DEFAULT, region(first, 0, 1)).unwrap_err().is_device_lost());
    assert!(device.allocate(1).unwrap_err().is_device_lost());
}

#[test]
fn held_tickets_stay_pending_until_waited_for() {
    let device = NullDevice::new(Target::cpu());
    let a = device.allocate(4).unwrap();
    device.hold();
    let ticket = device.submit(QueueId::DEFAULT, &[], false).unwrap();
    let read = device.read(QueueId::DEFAULT, region(a, 0, 4)).unwrap();
    assert!(!ticket.poll().unwrap() && !read.poll().unwrap());
    submit(&device, DeviceCommand::Wait(ticket.clone())).unwrap();
    assert!(!ticket.poll().unwrap(), "a wait on a queue does not complete the host's ticket");
    assert_eq!(read.take().unwrap(), [0; 4]);
    assert!(ticket.poll().unwrap(), "earlier submissions are complete as well");
    let later = device.submit(QueueId::DEFAULT, &[], false).unwrap();
    assert!(!later.poll().unwrap());
    device.release_pending();
    assert!(later.poll().unwrap());
    assert!(matches!(device.submit(QueueId::DEFAULT, &[], false).unwrap(), Ticket::Done));
}

#[test]
fn binaries_are_identified_by_their_source() {
    let device = NullDevice::new(Target::opencl_minimum());
    let first = device.compile(&Program::Text(text())).unwrap();
    let bytes = device.binary(first).unwrap();
    device.compile(&Program::Binary { bytes: bytes.clone(), text: text() }).unwrap();
    let other = SourceText { source: "other".into(), ..text() };
    device.compile(&Program::Binary { bytes, text: other }).unwrap();
    let counts = device.counts();
    assert_eq!((counts.compiled, counts.taken_from_binary), (2, 1));
}

#[test]
fn invalid_calls_are_rejected() {
    let device = NullDevice::new(Target::cpu());
    let (a, freed) = (device.allocate(64).unwrap(), device.allocate(8).unwrap());
    device.free(freed);
    let program = program(&device);
    let good = Dispatch {
        program,
        grid: [8, 1, 1],
        group_size: [8, 1, 1],
        args: vec![Arg::Scalar(1u32.into()), Arg::Index(0), Arg::Buffer(region(a, 4, 8))],
        parts: Vec::new(),
    };
    submit(&device, DeviceCommand::Dispatch(good.clone())).unwrap();
    let args = |args: Vec<Arg>| DeviceCommand::Dispatch(Dispatch { args, ..good.clone() });
    let [scalar, index, buffer] = [good.args[0], good.args[1], good.args[2]];
    let nothing = Layout { offset: 0, batch: 0, row: 0, column: 0 };
    let gemm = Gemm {
        dtype: DType::F32,
        tf32: false,
        bias: false,
        batch: 1,
        m: 1,
        n: 1,
        k: 1,
        a: nothing,
        b: nothing,
        c: nothing,
    };
    let foreign = NullDevice::new(Target::cpu()).read(QueueId(7), region(a, 0, 1));
    assert!(foreign.unwrap_err().is_mistake(), "a nonexistent queue");
    let table = [
        ("an empty grid", DeviceCommand::Dispatch(Dispatch { grid: [8, 0, 1], ..good.clone() })),
        (
            "a work-group size other than the kernel's",
            DeviceCommand::Dispatch(Dispatch { group_size: [4, 1, 1], ..good.clone() }),
        ),
        (
            "a work-group beyond the limit",
            DeviceCommand::Dispatch(Dispatch { group_size: [8, 1, 2000], ..good.clone() }),
        ),
        ("an unknown program", DeviceCommand::Dispatch(Dispatch { program: ProgramId(99), ..good.clone() })),
        ("a missing argument", args(vec![scalar, index])),
        ("arguments in another order", args(vec![index, scalar, buffer])),
        ("another scalar type", args(vec![Arg::Scalar(Scalar::from(1.0f32)), index, buffer])),
        ("an unaligned region", args(vec![scalar, index, Arg::Buffer(region(a, 2, 8))])),
        ("a region with a partial element", args(vec![scalar, index, Arg::Buffer(region(a, 0, 6))])),
        ("a region beyond the end", args(vec![scalar, index, Arg::Buffer(region(a, 60, 8))])),
        ("a freed allocation", DeviceCommand::Fill { to: region(freed, 0, 8), pattern: vec![0] }),
        ("a pattern of three bytes", DeviceCommand::Fill { to: region(a, 0, 9), pattern: vec![1, 2, 3] }),
        ("a pattern that does not divide the region", DeviceCommand::Fill { to: region(a, 0, 5), pattern: vec![1, 2] }),
        ("a copy of unequal lengths", DeviceCommand::Copy { from: region(a, 0, 4), to: region(a, 8, 5) }),
        ("a copy onto itself", DeviceCommand::Copy { from: region(a, 0, 4), to: region(a, 3, 4) }),
        ("an unsupported routine", DeviceCommand::Routine(Routine::Gemm(gemm), Vec::new(), None)),
    ];
    for (what, step) in table {
        let error = submit(&device, step).unwrap_err();
        assert!(error.is_mistake(), "{what}: {error}");
    }
    assert!(device.allocate(0).unwrap_err().is_mistake());
    assert!(device.compile(&Program::Text(text())).unwrap_err().is_unsupported());
}

#[test]
#[allow(unsafe_code, reason = "probing a driver is unsafe")]
fn driver_returns_its_devices() {
    let device = Arc::new(NullDevice::new(Target::cpu()));
    let refused = vec![Error::unavailable("opencl:1: too old; update it")];
    let driver = NullDriver { kind: Backend::OpenCl, devices: Ok(vec![device]), refused };
    // SAFETY: these devices validate their arguments.
    let found = unsafe { driver.probe() }.unwrap();
    assert_eq!((found.len(), driver.rejected().len(), driver.kind()), (1, 1, Backend::OpenCl));
    let none = NullDriver { kind: Backend::Cuda, devices: Err(Error::unavailable("no")), refused: Vec::new() };
    // SAFETY: these devices validate their arguments.
    assert!(unsafe { none.probe() }.unwrap_err().is_unavailable());
}
