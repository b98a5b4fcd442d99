//! Jobs that run in child processes.

use std::sync::Arc;

use panoply_device::command_buffer::{BindingKind, BindingSlot};
use panoply_device::{
    Arg, BinaryFormat, DeviceCommand, Dispatch, Driver, ErrorKind, Image, Language, Program, ProgramId, QueueId,
    RawCommandBuffer, RawDevice, Region, SourceText,
};
use panoply_driver::CudaDriver;
use panoply_driver_sim::{Control, library};

use crate::support::fake_library::{self, Jobs, absent, all, devices, holding, words};

pub const JOBS: Jobs = &[
    ("absent", || absent(&driver())),
    ("second of two", second_of_two),
    ("first is broken", first_is_broken),
    ("out of memory", out_of_memory),
    ("all objects are released", objects_are_released),
    ("queues share memory", queues_share_memory),
    ("an illegal address loses the device", lost),
    ("a failed launch is an error once", failed_launch),
    ("the driver's compiler is missing", no_compiler),
    ("refused programs", refused_programs),
    ("newer than the device", newer),
    ("compiled code", compiled_code),
    ("CUDA C++", cuda_c),
    ("no NVRTC", no_nvrtc),
    ("graphs", graphs),
    ("no graphs", no_graphs),
];

/// `x[i] = x[i] + a`, without a bounds check.
const ADD: &str = "\
.version 6.0
.target sm_60
.address_size 64
.visible .entry add(.param .u64 x, .param .u32 a)
{
    .reg .b32 %r<4>;
    .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [x];
    ld.param.u32 %r1, [a];
    cvta.to.global.u64 %rd2, %rd1;
    mov.u32 %r2, %ctaid.x;
    mul.wide.u32 %rd3, %r2, 4;
    add.s64 %rd4, %rd2, %rd3;
    ld.global.u32 %r3, [%rd4];
    add.u32 %r3, %r3, %r1;
    st.global.u32 [%rd4], %r3;
    ret;
}
";

fn driver() -> CudaDriver {
    CudaDriver { library: Some(library()), ..CudaDriver::default() }
}

fn device() -> Arc<dyn RawDevice> {
    devices(&driver()).swap_remove(0)
}

fn text(source: &str) -> SourceText {
    fake_library::text(Language::Ptx { capability: 60 }, source)
}

fn compile(device: &dyn RawDevice) -> ProgramId {
    device.compile(&Program::Text(text(ADD))).unwrap()
}

fn add(program: ProgramId, region: Region, items: u64, amount: u32) -> DeviceCommand {
    fake_library::add(program, region, [items, 1, 1], 1, amount)
}

fn works(device: &dyn RawDevice) {
    fake_library::launches(device, text(ADD), 1, &[1, 2, 3], &[11, 12, 13]);
}

fn second_of_two() {
    let devices = devices(&driver());
    let indices: Vec<usize> = devices.iter().map(|device| device.info().index).collect();
    assert_eq!(indices, [1], "indices are those of the driver");
    let refused = driver().rejected();
    assert!(
        refused.len() == 1
            && refused[0].message().starts_with("cuda:0 (PTX interpreter 0, no card) is in compute mode Prohibited")
    );
    works(&*devices[0]);
}

fn first_is_broken() {
    fake_library::first_is_broken(&driver(), "cuda:0: opening the device: CUDA_ERROR_UNKNOWN (999)", works);
    assert_eq!(device().info().physical_id.as_deref(), Some("0000:01:00.0"));
}

fn out_of_memory() {
    fake_library::out_of_memory(&*device(), works);
}

fn objects_are_released() {
    fake_library::objects_are_released(&driver(), text(ADD), works);
    let control = Control::open();
    assert_eq!(
        control.calls("cuCtxPushCurrent_v2"),
        control.calls("cuCtxPopCurrent_v2"),
        "every pushed context is popped"
    );
}

/// Memory of one queue is used on another and freed while that one works.
fn queues_share_memory() {
    let device = device();
    let other = device.queue().unwrap();
    let program = compile(&*device);
    for round in 0..20 {
        let x = all(device.allocate(12).unwrap(), 12);
        device.write(other, x, &[round; 12]).unwrap();
        let ticket = device.submit(other, &[add(program, x, 3, 1)], false).unwrap();
        let read = device.read(other, x).unwrap();
        device.free(x.alloc);
        // Memory that was just freed can be allocated again immediately.
        let next = all(device.allocate(12).unwrap(), 12);
        device.write(QueueId::DEFAULT, next, &[0xFF; 12]).unwrap();
        ticket.wait().unwrap();
        let word = u32::from_le_bytes([round; 4]) + 1;
        assert_eq!(read.take().unwrap(), word.to_le_bytes().repeat(3));
        device.free(next.alloc);
    }
    device.synchronize().unwrap();
}

fn lost() {
    let device = device();
    let (program, x) = (compile(&*device), holding(&*device, &[1, 2, 3]));
    let ticket = device.submit(QueueId::DEFAULT, &[add(program, x, 1000, 1)], false).unwrap();
    let error = ticket.wait().unwrap_err();
    assert!(error.is_device_lost(), "{error}");
    assert_eq!(
        error.message(),
        "cuda:0: running work: CUDA_ERROR_ILLEGAL_ADDRESS (700); its buffers are gone; restart the program"
    );
    fake_library::stays_lost(&*device, program, x, &add(program, x, 1, 1));
}

fn failed_launch() {
    let (device, control) = (device(), Control::open());
    let (program, x) = (compile(&*device), holding(&*device, &[1, 2, 3]));
    control.fail("cuLaunchKernel", 701, 0, 1);
    let error = device.submit(QueueId::DEFAULT, &[add(program, x, 3, 1)], false).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.message().contains("launching add over [3, 1, 1] in groups of [1, 1, 1]"), "{error}");
    device.submit(QueueId::DEFAULT, &[add(program, x, 3, 1)], false).unwrap();
    assert_eq!(words(&*device, QueueId::DEFAULT, x).unwrap(), [2, 3, 4]);
    let wide = DeviceCommand::Dispatch(Dispatch {
        program,
        grid: [1, 70_000, 1],
        group_size: [1; 3],
        args: Vec::new(),
        parts: Vec::new(),
    });
    assert!(device.submit(QueueId::DEFAULT, &[wide], false).unwrap_err().is_mistake(), "arguments are checked first");
    let args = vec![Arg::Buffer(x), Arg::Scalar(1u32.into())];
    let wide = DeviceCommand::Dispatch(Dispatch {
        program,
        grid: [1, 70_000, 1],
        group_size: [1; 3],
        args,
        parts: Vec::new(),
    });
    let error = device.submit(QueueId::DEFAULT, &[wide], false).unwrap_err();
    assert!(error.is_unsupported() && error.message().contains("70000 groups along axis 1, 65535 at most"), "{error}");
    assert_eq!(words(&*device, QueueId::DEFAULT, x).unwrap(), [2, 3, 4]);
}

fn no_compiler() {
    let (device, control) = (device(), Control::open());
    control.fail("cuLinkAddData_v2", 221, 0, 1);
    let error = device.compile(&Program::Text(text(ADD))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.message().contains("the driver's PTX compiler is missing"), "{error}");
    // A binary needs no compiler.
    let program = compile(&*device);
    let bytes = device.binary(program).unwrap();
    let compiled = control.calls("cuLinkComplete");
    device.compile(&Program::Binary { bytes, text: text(ADD) }).unwrap();
    assert_eq!(control.calls("cuLinkComplete"), compiled);
}

fn refused_programs() {
    let device = device();
    for (from, to, log) in [
        ("add.u32 %r3, %r3, %r1", "add.u32 %r3, %r3, %rd1", "line 15: add.u32 %r3 , %r3 , %rd1: %rd1 is B(64)"),
        ("add.u32 %r3, %r3, %r1", "frob.u32 %r3, %r3, %r1", "line 15: frob.u32 %r3 , %r3 , %r1: unknown instruction"),
        ("ret;", "bra $nowhere;", "no label $nowhere"),
    ] {
        let error = device.compile(&Program::Text(text(&ADD.replace(from, to)))).unwrap_err();
        assert!(error.is_compile_failed(), "{error}");
        assert_eq!(error.message(), "cuda:0: the driver's compiler refused add; its log follows");
        assert!(error.notes()[0].contains(log), "{error}");
    }
    fake_library::refuses_other_programs(&*device, text(ADD), "add is OpenCL C");
    works(&*device);
}

fn newer() {
    let device = device();
    assert_eq!(device.target().language, Language::Ptx { capability: 61 });
    let newer = ADD.replace("sm_60", "sm_90");
    let error = device.compile(&Program::Text(text(&newer))).unwrap_err();
    assert!(error.is_compile_failed() && error.notes()[0].contains("the program is for a newer GPU"), "{error}");
    works(&*device);
}

/// Returns an image in the format of the simulated driver's linker.
fn cubin(text: &str) -> Image {
    let bytes = [b"\x7FFAKEPTX", &(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat();
    let SourceText { entry, signature, .. } = self::text(text);
    Image { format: BinaryFormat::Cubin, bytes: bytes.into(), entry, signature }
}

fn compiled_code() {
    let (device, control) = (device(), Control::open());
    let (program, x) = (device.compile(&Program::Image(cubin(ADD))).unwrap(), holding(&*device, &[1, 2, 3]));
    device.submit(QueueId::DEFAULT, &[add(program, x, 3, 10)], false).unwrap();
    assert_eq!(words(&*device, QueueId::DEFAULT, x).unwrap(), [11, 12, 13]);
    assert_eq!(control.calls("cuLinkComplete"), 0, "nothing is compiled");
    let refused = |image: Image| device.compile(&Program::Image(image)).unwrap_err();
    let error = refused(cubin(&ADD.replace("sm_60", "sm_90")));
    assert!(error.is_compile_failed(), "{error}");
    assert!(
        error.message().contains("loading add: CUDA_ERROR_NO_BINARY_FOR_GPU (209); the program is for a newer GPU"),
        "{error}"
    );
    let error = refused(Image { entry: "subtract".into(), ..cubin(ADD) });
    assert!(
        error.is_compile_failed() && error.message().contains("the program has no entry point subtract"),
        "{error}"
    );
    // A truncated ELF file: its program and section headers are beyond its end.
    let mut elf = [&b"\x7FELF\x02\x01\x01"[..], &[0; 57]].concat();
    (elf[32], elf[54], elf[56]) = (64, 56, 2);
    let error = refused(Image { bytes: elf.into(), ..cubin(ADD) });
    assert!(
        error.is_compile_failed() && error.message().contains("add as a cubin is truncated to 64 bytes"),
        "{error}"
    );
    // A fat binary is truncated if it is shorter than its header says.
    let fat = |bytes: u8| [&[0x50, 0xED, 0x55, 0xBA, 1, 0, 16, 0, bytes][..], &[0; 7 + 32]].concat();
    for (bytes, message) in [
        (fat(33), "add as a cubin is truncated to 48 bytes"),
        (fat(32)[..12].to_vec(), "add as a cubin is truncated to 12 bytes"),
        (fat(32), "CUDA_ERROR_INVALID_IMAGE (200)"),
    ] {
        let error = refused(Image { bytes: bytes.into(), ..cubin(ADD) });
        assert!(error.is_compile_failed() && error.message().contains(message), "{error}");
    }
    let error = refused(Image { bytes: (*b"nothing").into(), ..cubin(ADD) });
    assert!(error.is_compile_failed() && error.message().contains("CUDA_ERROR_INVALID_IMAGE (200)"), "{error}");
    let error = refused(Image { format: BinaryFormat::CodeObject, ..cubin(ADD) });
    assert_eq!(error.message(), "cuda:0: accepts a cubin, PTX, CUDA C++; add is an AMD code object");
    works(&*device);
}

/// The same as [`ADD`] in CUDA C++.
const ADD_C: &str = "\
extern \"C\" __global__ void add(unsigned *x, unsigned a) {
    x[blockIdx.x] += a;
}
";

/// NVIDIA's own compiler generates the PTX that the simulated driver runs.
fn cuda_c() {
    let device = device();
    let text = |source: &str| SourceText { language: Language::CudaC, ..text(source) };
    let (program, x) = (device.compile(&Program::Text(text(ADD_C))).unwrap(), holding(&*device, &[1, 2, 3]));
    device.submit(QueueId::DEFAULT, &[add(program, x, 3, 10)], false).unwrap();
    assert_eq!(words(&*device, QueueId::DEFAULT, x).unwrap(), [11, 12, 13]);
    let bytes = device.binary(program).unwrap();
    device.compile(&Program::Binary { bytes, text: text(ADD_C) }).unwrap();
    let error = device.compile(&Program::Text(text(&ADD_C.replace("+= a", "+= b")))).unwrap_err();
    assert!(error.is_compile_failed(), "{error}");
    assert_eq!(error.message(), "cuda:0: NVRTC refused add; its log follows");
    assert!(error.notes()[0].contains("kernel.cu(2): error: identifier \"b\" is undefined"), "{error}");
    let mangled = ADD_C.replace("extern \"C\" ", "");
    let error = device.compile(&Program::Text(text(&mangled))).unwrap_err();
    assert!(error.is_compile_failed() && error.message().contains("the program has no entry point add"), "{error}");
    works(&*device);
}

fn no_nvrtc() {
    let device = device();
    let error = device.compile(&Program::Text(SourceText { language: Language::CudaC, ..text(ADD_C) })).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(
        error.message().ends_with("install the CUDA toolkit's NVRTC, which compiles CUDA C++, or pass PTX or a cubin"),
        "{error}"
    );
    works(&*device);
}

/// Records a command buffer of ten launches: binding 0 is the buffer they add to, slot 0 the number that the even ones add.
fn command_buffer(device: &dyn RawDevice, program: ProgramId, x: Region) -> RawCommandBuffer {
    let steps: Vec<DeviceCommand> = (0..10).map(|step| add(program, x, 3, step)).collect();
    let place = |step: u32| {
        let slot = BindingSlot { step, operand: 1, source: BindingKind::Slot(0) };
        let binding = BindingSlot { step, operand: 0, source: BindingKind::Binding { binding: 0, offset: 0 } };
        if step.is_multiple_of(2) { vec![slot, binding] } else { vec![binding] }
    };
    device.record(steps, (0..10).flat_map(place).collect()).unwrap()
}

/// Replays a command buffer; ten launches add 5 times the slot and 1 + 3 + 5 + 7 + 9.
fn replay(device: &dyn RawDevice, command_buffer: &mut RawCommandBuffer, x: Region, slot: u32, before: u32) {
    device.replay(QueueId::DEFAULT, command_buffer, &[x], &[slot.into()]).unwrap();
    let after = before + 5 * slot + 25;
    assert_eq!(words(device, QueueId::DEFAULT, x).unwrap(), [after; 3]);
}

fn graphs() {
    let (device, control) = (device(), Control::open());
    let calls = |name: &str| control.calls(name);
    let counts = || {
        [
            "cuGraphAddKernelNode",
            "cuGraphInstantiateWithFlags",
            "cuGraphExecKernelNodeSetParams",
            "cuGraphLaunch",
            "cuLaunchKernel",
        ]
        .map(calls)
    };
    let program = compile(&*device);
    let (x, y) = (holding(&*device, &[0; 3]), holding(&*device, &[100; 3]));
    let mut command_buffer = command_buffer(&*device, program, x);
    replay(&*device, &mut command_buffer, x, 1, 0);
    assert_eq!(counts(), [10, 1, 0, 1, 0], "a graph of ten nodes is created and launched");
    replay(&*device, &mut command_buffer, x, 1, 30);
    assert_eq!(counts(), [10, 1, 0, 2, 0], "nothing changed: one call");
    replay(&*device, &mut command_buffer, x, 2, 60);
    assert_eq!(counts(), [10, 1, 5, 3, 0], "five arguments changed");
    replay(&*device, &mut command_buffer, y, 2, 100);
    assert_eq!(counts(), [10, 1, 15, 4, 0], "all buffers changed");
    let live = control.live();
    let waits = calls("cuStreamSynchronize");
    device.destroy_command_buffer(command_buffer);
    assert!(calls("cuStreamSynchronize") > waits, "a running graph is waited for");
    assert_eq!(control.live(), live - 2, "the graph and its instance are destroyed");
    assert_eq!((calls("cuGraphDestroy"), calls("cuGraphExecDestroy")), (1, 1));
    // Short runs of launches, and other commands, are enqueued individually.
    let mut few = device
        .record(vec![add(program, x, 3, 7), DeviceCommand::Fill { to: x, pattern: vec![0] }], Vec::new())
        .unwrap();
    device.replay(QueueId::DEFAULT, &mut few, &[], &[]).unwrap();
    assert_eq!(words(&*device, QueueId::DEFAULT, x).unwrap(), [0; 3]);
    assert_eq!((calls("cuGraphLaunch"), calls("cuLaunchKernel")), (4, 1));
    let waits = calls("cuStreamSynchronize");
    device.destroy_command_buffer(few);
    assert_eq!(calls("cuStreamSynchronize"), waits, "without a graph there is no wait");
}

/// Launches run even if the driver rejects a graph operation.
fn no_graphs() {
    let (device, control) = (device(), Control::open());
    let program = compile(&*device);
    for (function, replays) in [
        ("cuGraphCreate", 1),
        ("cuGraphAddKernelNode", 1),
        ("cuGraphInstantiateWithFlags", 1),
        ("cuGraphExecKernelNodeSetParams", 2),
    ] {
        let x = holding(&*device, &[0; 3]);
        let mut command_buffer = command_buffer(&*device, program, x);
        control.fail(function, 801, 0, 1);
        let (mut before, launched) = (0, control.calls("cuLaunchKernel"));
        for round in 1..=3 {
            replay(&*device, &mut command_buffer, x, round, before);
            before += 5 * round + 25;
        }
        assert_eq!(control.calls("cuLaunchKernel") - launched, 10 * (4 - replays), "{function}");
        device.destroy_command_buffer(command_buffer);
    }
    // A graph launch that fails is the error of the replay.
    let x = holding(&*device, &[0; 3]);
    let mut command_buffer = command_buffer(&*device, program, x);
    control.fail("cuGraphLaunch", 2, 0, 1);
    let error = device.replay(QueueId::DEFAULT, &mut command_buffer, &[x], &[1u32.into()]).map(drop).unwrap_err();
    assert!(error.is_out_of_memory() && error.message().contains("launching 10 kernels"), "{error}");
    replay(&*device, &mut command_buffer, x, 1, 0);
    device.destroy_command_buffer(command_buffer);
    assert_eq!(control.calls("cuGraphCreate") - 1, control.calls("cuGraphDestroy"), "graphs are destroyed");
}
