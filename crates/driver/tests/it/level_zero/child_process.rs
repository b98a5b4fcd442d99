//! Jobs that run in child processes.

use std::sync::Arc;

use panoply_device::{
    DeviceCommand, Driver, ErrorKind, Language, Program, ProgramId, QueueId, RawDevice, Region, SourceText,
};
use panoply_driver::LevelZeroDriver;
use panoply_driver_sim::{Control, library};

use crate::support::fake_library::{self, Jobs, absent, devices, holding, words};

pub const JOBS: Jobs = &[
    ("absent", || absent(&driver())),
    ("describes itself", describes_itself),
    ("one of two is a GPU", one_of_two),
    ("computes", computes),
    ("out of memory", out_of_memory),
    ("all objects are released", || fake_library::objects_are_released(&driver(), text(ADD), works)),
    ("bytes are copied", || fake_library::bytes_arrive(&*device())),
    ("a lost device", lost),
    ("a refused launch is an error once", refused_launch),
    ("refused programs", refused_programs),
];

/// Adds a number to each word of a buffer.
const ADD: &str = "\
; Version: 1.0
OpCapability Addresses
OpCapability Kernel
OpCapability Int64
OpMemoryModel Physical64 OpenCL
OpEntryPoint Kernel %add \"add\" %GlobalInvocationId
OpDecorate %GlobalInvocationId BuiltIn GlobalInvocationId
%uint = OpTypeInt 32 0
%ulong = OpTypeInt 64 0
%place = OpTypeVector %ulong 3
%pointer = OpTypePointer Input %place
%GlobalInvocationId = OpVariable %pointer Input
%words = OpTypePointer CrossWorkgroup %uint
%void = OpTypeVoid
%kernel = OpTypeFunction %void %words %uint
%add = OpFunction %void None %kernel
%x = OpFunctionParameter %words
%a = OpFunctionParameter %uint
%begin = OpLabel
%1 = OpLoad %place %GlobalInvocationId
%2 = OpCompositeExtract %ulong %1 0
%3 = OpInBoundsPtrAccessChain %words %x %2
%4 = OpLoad %uint %3 Aligned 4
%5 = OpIAdd %uint %4 %a
OpStore %3 %5 Aligned 4
OpReturn
OpFunctionEnd
";

fn driver() -> LevelZeroDriver {
    LevelZeroDriver { library: Some(library()) }
}

fn device() -> Arc<dyn RawDevice> {
    devices(&driver()).swap_remove(0)
}

fn text(source: &str) -> SourceText {
    fake_library::text(Language::SpirV, source)
}

fn compile(device: &dyn RawDevice) -> ProgramId {
    device.compile(&Program::Text(text(ADD))).unwrap()
}

fn add(program: ProgramId, region: Region, grid: [u64; 3], width: u32) -> DeviceCommand {
    fake_library::add(program, region, grid, width, 10)
}

/// Returns four words after ten was added, or the original words if kernels are not executed.
fn expected() -> [u32; 4] {
    if Control::open().executes_spirv() { [11, 12, 13, 14] } else { [1, 2, 3, 4] }
}

fn works_as(device: &dyn RawDevice, program: ProgramId) {
    fake_library::launches_program(device, program, 4, &[1, 2, 3, 4], &expected());
}

fn works(device: &dyn RawDevice) {
    works_as(device, compile(device));
}

fn describes_itself() {
    let device = device();
    let (info, target) = (device.info(), device.target());
    assert_eq!((info.name.as_str(), info.vendor.as_str()), ("SPIR-V simulator 0, no card", "Intel"));
    assert_eq!((info.device_string(), info.driver.as_str()), ("oneapi:0".to_string(), "Level Zero 1.3.30001"));
    assert_eq!((info.compute_units, info.is_software, info.unified_memory), (8, false, false));
    assert_eq!(info.physical_id.as_deref(), Some("0000:03:00.0"));
    assert_eq!(device.memory().total, 256 << 20);
    let details: Vec<&str> = info.details.iter().map(|(_, value)| value.as_str()).collect();
    assert_eq!(details, ["gpu", "SPIR-V 1.2", "0 MHz", "268435456 bytes"]);
    assert_eq!((target.language, target.subgroup, target.shared_bytes), (Language::SpirV, 16, 64 << 10));
    assert_eq!((target.f16, target.f64, target.max_group, target.max_group_items), (true, true, [1024; 3], 1024));
    assert_eq!(target.max_bindings, 79, "(2048 - 19 × 8) / 24");
}

fn one_of_two() {
    let devices = devices(&driver());
    assert_eq!(devices.len(), 1);
    assert!(driver().rejected().is_empty());
    works(&*devices[0]);
}

fn computes() {
    let (device, control) = (device(), Control::open());
    if !control.executes_spirv() {
        println!("SKIPPED: no kernel was executed: no OpenCL driver supports SPIR-V with arbitrary addresses");
    }
    let program = compile(&*device);
    let bytes = device.binary(program).unwrap();
    works_as(&*device, program);
    for bytes in [bytes.clone(), bytes[..bytes.len() / 2].to_vec(), vec![7; 99]] {
        works_as(&*device, device.compile(&Program::Binary { bytes, text: text(ADD) }).unwrap());
    }
    // A grid that is not a multiple of the work-group size is rounded up, so the buffer is larger.
    let (program, x) = (compile(&*device), holding(&*device, &[1; 8]));
    let ticket = device.submit(QueueId::DEFAULT, &[add(program, x, [5, 1, 1], 4)], true).unwrap();
    assert_eq!(ticket.times().unwrap().len(), 1);
    let found = words(&*device, QueueId::DEFAULT, x).unwrap();
    assert_eq!(found, [expected()[0]; 8]);
}

fn out_of_memory() {
    let device = device();
    let held = device.allocate((16 << 20) - 4096).unwrap();
    for bytes in [1 << 20, 1 << 40] {
        let error = device.allocate(bytes).unwrap_err();
        assert!(error.is_out_of_memory(), "{error}");
        let message =
            format!("out of memory on oneapi:0: needs {bytes} bytes of 16777216; free buffers or use smaller ones");
        assert_eq!(error.message(), message);
    }
    device.free(held);
    works(&*device);
    device.free(device.allocate((16 << 20) - 4096).unwrap());
}

fn lost() {
    let (device, control) = (device(), Control::open());
    let (program, x) = (compile(&*device), holding(&*device, &[1, 2, 3, 4]));
    for function in ["zeCommandListAppendLaunchKernel", "zeMemAllocDevice", "zeCommandListAppendMemoryCopy"] {
        control.fail(function, 0x7000_0001, 0, 1);
    }
    for error in [
        device.submit(QueueId::DEFAULT, &[add(program, x, [4, 1, 1], 4)], false).map(drop).unwrap_err(),
        device.allocate(4).unwrap_err(),
        device.write(QueueId::DEFAULT, x, &[0; 16]).unwrap_err(),
    ] {
        assert!(error.is_device_lost(), "{error}");
        assert!(
            error
                .message()
                .ends_with("ZE_RESULT_ERROR_DEVICE_LOST (1879048193); its buffers are gone; restart the program")
        );
    }
    // Freeing reports no error.
    device.free(x.alloc);
    device.release(program);
}

fn refused_launch() {
    let (device, control) = (device(), Control::open());
    let (program, x) = (compile(&*device), holding(&*device, &[1, 2, 3, 4]));
    let launch = |grid, width| device.submit(QueueId::DEFAULT, &[add(program, x, grid, width)], false);
    let error = launch([4, 1, 1], 4096).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.message().contains("launching add over [4, 1, 1] in groups of [4096, 1, 1]"), "{error}");
    let launches = control.calls("zeCommandListAppendLaunchKernel");
    for (grid, message) in [
        ([1u64 << 40, 1, 1], "274877906944 groups along axis 0, 1048576 at most"),
        ([4, (1 << 20) + 1, 1], "1048577 groups along axis 1, 1048576 at most"),
    ] {
        let error = launch(grid, 4).map(drop).unwrap_err();
        assert!(error.is_unsupported() && error.message().contains(message), "{error}");
    }
    assert_eq!(control.calls("zeCommandListAppendLaunchKernel"), launches, "the driver was not called");
    device.release(program);
    works(&*device);
    let error = launch([4, 1, 1], 4).map(drop).unwrap_err();
    assert!(error.is_mistake() && error.message().contains("was released"), "{error}");
}

fn refused_programs() {
    let (device, control) = (device(), Control::open());
    let wrong = format!("{ADD}this is not a program;\n");
    let error = device.compile(&Program::Text(text(&wrong))).unwrap_err();
    assert!(error.is_compile_failed(), "{error}");
    assert_eq!(error.message(), "oneapi:0: add is not valid SPIR-V assembly; the first error follows");
    assert_eq!(error.notes(), ["line 28: unknown instruction this\nthis is not a program;"]);
    control.fail("zeModuleCreate", 0x7000_0004, 0, 1);
    let error = device.compile(&Program::Text(text(ADD))).unwrap_err();
    assert_eq!(error.message(), "oneapi:0: the driver's compiler refused add; its log follows");
    assert!(error.notes()[0].contains("ZE_RESULT_ERROR_MODULE_BUILD_FAILURE (1879048196)"), "{error}");
    fake_library::refuses_other_programs(&*device, text(ADD), "oneapi:0: accepts SPIR-V; add is OpenCL C");
    works(&*device);
}
