//! Jobs that run in child processes.

use std::sync::Arc;

use panoply_device::command_buffer::{BindingKind, BindingSlot};
use panoply_device::{
    BinaryFormat, DeviceCommand, Driver, ErrorKind, Image, Language, Program, ProgramId, QueueId, RawDevice, Region,
    SourceText,
};
use panoply_driver::HipDriver;
use panoply_driver_sim::{Control, library};

use crate::support::fake_library::{self, Jobs, absent, devices, holding};

pub const JOBS: Jobs = &[
    ("absent", || absent(&driver())),
    ("programs are compiled for the device", programs),
    ("a wavefront of 64", || describes("gfx90a", 64, "yes")),
    ("a wavefront of 32", || describes("gfx1100", 32, "no")),
    ("first is broken", first_is_broken),
    ("out of memory", out_of_memory),
    ("all objects are released", objects_are_released),
    ("bytes are copied", || fake_library::bytes_arrive(&*device())),
    ("the thread keeps its device", keeps_device),
    ("a fault loses the device", lost),
    ("a refused launch is an error once", refused_launch),
    ("refused programs", refused_programs),
    ("graphs", graphs),
    ("compiled code", compiled_code),
];

/// Takes a buffer and a number. The simulated driver does not execute it.
const ADD: &str = "\
extern \"C\" __attribute__((global)) __attribute__((amdgpu_flat_work_group_size(4, 4))) void add(unsigned *x, unsigned a)
{
    x[__builtin_amdgcn_workgroup_id_x()] += a;
}
";

fn driver() -> HipDriver {
    HipDriver { library: Some(library()), ..HipDriver::default() }
}

fn device() -> Arc<dyn RawDevice> {
    devices(&driver()).swap_remove(0)
}

fn text(source: &str) -> SourceText {
    fake_library::text(Language::Hip, source)
}

fn compile(device: &dyn RawDevice) -> ProgramId {
    device.compile(&Program::Text(text(ADD))).unwrap()
}

fn add(program: ProgramId, region: Region, grid: [u64; 3], width: u32) -> DeviceCommand {
    fake_library::add(program, region, grid, width, 1)
}

/// Checks that bytes are copied to the device and back, and that a launch is accepted.
fn works(device: &dyn RawDevice) {
    // Kernels are not executed.
    fake_library::launches(device, text(ADD), 4, &[1, 2, 3, 4], &[1, 2, 3, 4]);
}

fn programs() {
    let (device, control) = (device(), Control::open());
    let program = compile(&*device);
    assert_eq!(control.calls("hiprtcCompileProgram"), 1);
    let bytes = device.binary(program).unwrap();
    device.compile(&Program::Binary { bytes, text: text(ADD) }).unwrap();
    assert_eq!(control.calls("hiprtcCompileProgram"), 1, "a binary is not compiled");
    device.compile(&Program::Binary { bytes: vec![7; 99], text: text(ADD) }).unwrap();
    assert_eq!(control.calls("hiprtcCompileProgram"), 2, "for invalid bytes the text is compiled");
    works(&*device);
}

fn describes(architecture: &str, wave: u32, pools: &str) {
    let device = device();
    let (info, target) = (device.info(), device.target());
    assert_eq!((info.name.as_str(), info.vendor.as_str()), ("HIP simulator 0, no card", "AMD"));
    assert_eq!((info.device_string(), info.driver.as_str()), ("rocm:0".to_string(), "ROCm 6.0"));
    assert_eq!((info.compute_units, info.is_software, info.unified_memory), (4, false, false));
    assert_eq!(info.physical_id.as_deref(), Some("0000:01:00.0"));
    let details: Vec<&str> = info.details.iter().map(|(_, value)| value.as_str()).collect();
    let waves = format!("{wave} work-items");
    assert_eq!(details, [architecture, "1000 MHz", &waves, "65536 bytes per work-group", pools]);
    assert_eq!((target.language, target.subgroup, target.shared_bytes), (Language::Hip, wave, 64 << 10));
    assert!(target.name.starts_with(&format!("HIP {architecture}; ROCm 6.0 (60032831); ")), "{}", target.name);
}

fn first_is_broken() {
    fake_library::first_is_broken(&driver(), "rocm:0: opening the device: hipErrorUnknown (999)", works);
}

fn out_of_memory() {
    fake_library::out_of_memory(&*device(), works);
}

fn objects_are_released() {
    fake_library::objects_are_released(&driver(), text(ADD), works);
    let control = Control::open();
    assert_eq!(control.calls("hiprtcCreateProgram"), control.calls("hiprtcDestroyProgram"));
}

fn keeps_device() {
    let control = Control::open();
    let devices = devices(&driver());
    works(&*devices[1]);
    assert_eq!(control.current(), Some(0), "the device that HIP makes current on every new thread");
    works(&*devices[0]);
    assert_eq!(control.current(), Some(0));
}

fn lost() {
    let device = device();
    let x = holding(&*device, &[1, 2, 3, 4]);
    let faulty = ADD.replace("x[", "__builtin_trap(); x[");
    let program = device.compile(&Program::Text(text(&faulty))).unwrap();
    let ticket = device.submit(QueueId::DEFAULT, &[add(program, x, [4, 1, 1], 4)], false).unwrap();
    let error = ticket.wait().unwrap_err();
    assert!(error.is_device_lost(), "{error}");
    assert_eq!(
        error.message(),
        "rocm:0: running work: hipErrorLaunchFailure (719); its buffers are gone; restart the program"
    );
    fake_library::stays_lost(&*device, program, x, &add(program, x, [4, 1, 1], 4));
}

fn refused_launch() {
    let (device, control) = (device(), Control::open());
    let (program, x) = (compile(&*device), holding(&*device, &[1, 2, 3, 4]));
    control.fail("hipModuleLaunchKernel", 701, 0, 1);
    let launch = |grid, width| device.submit(QueueId::DEFAULT, &[add(program, x, grid, width)], false);
    let error = launch([4, 1, 1], 4).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.message().contains("launching add over [4, 1, 1] in groups of [4, 1, 1]"), "{error}");
    launch([4, 1, 1], 4).unwrap().wait().unwrap();
    let error = launch([3, 1, 1], 1).unwrap_err();
    assert!(error.is_unsupported() && error.message().contains("hipErrorInvalidConfiguration (9)"), "{error}");
    let launches = control.calls("hipModuleLaunchKernel");
    // The hardware counts work-items in 32 bits.
    for (grid, message) in [
        ([1u64 << 32, 1, 1], "1073741824 groups along axis 0, 1073741823 at most"),
        ([4, 65_537, 1], "65537 groups along axis 1, 65536 at most"),
    ] {
        let error = launch(grid, 4).unwrap_err();
        assert!(error.is_unsupported() && error.message().contains(message), "{error}");
    }
    assert_eq!(control.calls("hipModuleLaunchKernel"), launches, "the driver was not called");
    launch([4, 65_536, 1], 4).unwrap().wait().unwrap();
}

fn refused_programs() {
    let (device, control) = (device(), Control::open());
    let wrong = format!("#error this does not compile\n{ADD}");
    let error = device.compile(&Program::Text(text(&wrong))).unwrap_err();
    assert!(error.is_compile_failed(), "{error}");
    assert_eq!(error.message(), "rocm:0: hiprtc refused add; its log follows");
    assert!(error.notes()[0].starts_with("kernel.hip:1:2: error: this does not compile\n#error"), "{error}");
    control.fail("hiprtcCompileProgram", 11, 0, 1);
    let error = device.compile(&Program::Text(text(ADD))).unwrap_err();
    assert!(error.notes()[0].contains("compiling add: hiprtc returned 11; update ROCm"), "{error}");
    let message = "rocm:0: accepts an AMD code object, HIP C++; add is OpenCL C";
    fake_library::refuses_other_programs(&*device, text(ADD), message);
    works(&*device);
    assert_eq!(driver().rejected().len(), 0);
}

/// The calls are CUDA's under other names, but the structure of a launch is HIP's: with another one the entry point would be wrong.
fn graphs() {
    let (device, control) = (device(), Control::open());
    let (program, x) = (compile(&*device), holding(&*device, &[1, 2, 3, 4]));
    let steps: Vec<DeviceCommand> = (0..10).map(|_| add(program, x, [4, 2, 3], 4)).collect();
    let slots = (0..10).map(|step| BindingSlot { step, operand: 1, source: BindingKind::Slot(0) });
    let buffers =
        (0..10).map(|step| BindingSlot { step, operand: 0, source: BindingKind::Binding { binding: 0, offset: 0 } });
    let mut command_buffer = device.record(steps, slots.chain(buffers).collect()).unwrap();
    for slot in [7u32, 7, 8] {
        device.replay(QueueId::DEFAULT, &mut command_buffer, &[x], &[slot.into()]).unwrap().wait().unwrap();
    }
    device.destroy_command_buffer(command_buffer);
    for (function, calls) in [
        ("hipGraphAddKernelNode", 10),
        ("hipGraphInstantiateWithFlags", 1),
        ("hipGraphExecKernelNodeSetParams", 10),
        ("hipGraphLaunch", 3),
        ("hipGraphExecDestroy", 1),
        ("hipGraphDestroy", 1),
        ("hipModuleLaunchKernel", 0),
    ] {
        assert_eq!(control.calls(function), calls, "{function}");
    }
}

fn compiled_code() {
    let (device, control) = (device(), Control::open());
    let image = |architecture: &str| {
        let code = format!("{architecture}\n{ADD}");
        let bytes = [b"\x7FFAKEHIP", &(code.len() as u64).to_le_bytes()[..], code.as_bytes()].concat();
        let SourceText { entry, signature, .. } = text(ADD);
        Program::Image(Image { format: BinaryFormat::CodeObject, bytes: bytes.into(), entry, signature })
    };
    let (program, x) = (device.compile(&image("gfx90a")).unwrap(), holding(&*device, &[1, 2, 3, 4]));
    device.submit(QueueId::DEFAULT, &[add(program, x, [4, 1, 1], 4)], false).unwrap().wait().unwrap();
    assert_eq!(control.calls("hiprtcCompileProgram"), 0, "nothing is compiled");
    let error = device.compile(&image("gfx1100")).unwrap_err();
    assert!(error.is_compile_failed(), "{error}");
    assert!(error.message().contains("hipErrorNoBinaryForGpu (209); the program is for another GPU"), "{error}");
}
