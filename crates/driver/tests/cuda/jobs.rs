//! What child processes do.

use std::sync::Arc;

use panoply_device::{
    Arg, DType, Device, Dispatch, Driver, ErrorKind, Language, ParamType, Program, ProgramId, QueueId, Region,
    Signature, SourceText, Step,
};
use panoply_driver::CudaDriver;
use panoply_driver::cuda::CudaDevice;
use panoply_fake::{Control, library};

use crate::shared::{self, Jobs, absent, all, holding, words};

pub const ALL: Jobs = &[
    ("absent", || absent(&driver())),
    ("second of two", second_of_two),
    ("first is broken", first_is_broken),
    ("out of memory", out_of_memory),
    ("everything is given back", everything_is_given_back),
    ("queues share memory", queues_share_memory),
    ("an illegal address loses the device", lost),
    ("a failed launch is an error once", failed_launch),
    ("the driver's compiler is missing", no_compiler),
    ("refused programs", refused_programs),
    ("newer than the device", newer),
];

/// `x[i] = x[i] + a`, without looking where x ends.
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
    CudaDriver { library: Some(library()) }
}

fn device() -> Arc<CudaDevice> {
    driver().devices().unwrap().swap_remove(0)
}

fn text(source: &str) -> SourceText {
    let params = vec![ParamType::Buffer(DType::U32), ParamType::Scalar(DType::U32.into())];
    SourceText {
        language: Language::Ptx { capability: 60 },
        source: source.into(),
        entry: "add".into(),
        signature: Signature { params, index_bits: 64, hidden: false },
    }
}

fn compile(device: &dyn Device) -> ProgramId {
    device.compile(&Program::Text(text(ADD))).unwrap()
}

fn add(program: ProgramId, region: Region, items: u64, amount: u32) -> Step {
    let args = vec![Arg::Buffer(region), Arg::Scalar(amount.into())];
    Step::Dispatch(Dispatch { program, grid: [items, 1, 1], group: [1; 3], args })
}

fn works(device: &dyn Device) {
    let (program, x) = (compile(device), holding(device, &[1, 2, 3]));
    device.submit(QueueId::DEFAULT, &[add(program, x, 3, 10)], false).unwrap();
    assert_eq!(words(device, QueueId::DEFAULT, x).unwrap(), [11, 12, 13]);
    device.free(x.alloc);
    device.release(program);
}

fn second_of_two() {
    let devices = driver().devices().unwrap();
    let indices: Vec<usize> = devices.iter().map(|device| device.info().index).collect();
    assert_eq!(indices, [1], "indices are the driver's own");
    let refused = driver().refused();
    assert!(
        refused.len() == 1
            && refused[0].message().starts_with("cuda:0 (PTX interpreter 0, no card) is in a compute mode")
    );
    works(&*devices[0]);
}

fn first_is_broken() {
    let devices = driver().devices().unwrap();
    let error = devices[0].allocate(4).unwrap_err();
    assert!(error.message().starts_with("cuda:0: opening the device: CUDA_ERROR_UNKNOWN (999)"), "{error}");
    works(&*devices[1]);
    assert_eq!(devices[0].info().identity.as_deref(), Some("0000:01:00.0"));
    assert_ne!(devices[0].info().identity, devices[1].info().identity);
}

fn out_of_memory() {
    shared::out_of_memory(&*device(), works);
}

fn everything_is_given_back() {
    let control = Control::open();
    {
        let device = device();
        assert_eq!(control.live(), 0, "looking at a device takes nothing");
        works(&*device);
        let queue = device.queue().unwrap();
        let x = holding(&*device, &[7; 1000]);
        let ticket = device.read(queue, x).unwrap();
        let steps = [Step::Fill { to: x, pattern: vec![1, 2, 3, 4] }];
        assert_eq!(device.submit(QueueId::DEFAULT, &steps, true).unwrap().times().unwrap().len(), 1);
        drop(ticket);
        compile(&*device);
        assert!(control.live() > 4, "{}", control.live());
        assert_eq!(control.calls("cuCtxPushCurrent_v2"), control.calls("cuCtxPopCurrent_v2"), "contexts are popped");
    }
    assert_eq!(control.live(), 0, "objects that nobody gave back");
}

/// Memory of one queue is used on another and given back while that one works.
fn queues_share_memory() {
    let device = device();
    let other = device.queue().unwrap();
    let program = compile(&*device);
    for turn in 0..20 {
        let x = all(device.allocate(12).unwrap(), 12);
        device.write(other, x, &[turn; 12]).unwrap();
        let ticket = device.submit(other, &[add(program, x, 3, 1)], false).unwrap();
        let read = device.read(other, x).unwrap();
        device.free(x.alloc);
        // Memory that was just given back may be had again at once.
        let next = all(device.allocate(12).unwrap(), 12);
        device.write(QueueId::DEFAULT, next, &[0xFF; 12]).unwrap();
        ticket.wait().unwrap();
        let word = u32::from_le_bytes([turn; 4]) + 1;
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
    for error in [
        device.allocate(4).unwrap_err(),
        device.write(QueueId::DEFAULT, x, &[0; 12]).unwrap_err(),
        device.submit(QueueId::DEFAULT, &[add(program, x, 1, 1)], false).unwrap_err(),
        device.synchronize().unwrap_err(),
    ] {
        assert!(error.is_device_lost(), "the error stays: {error}");
    }
    // Giving back is quiet.
    device.free(x.alloc);
    device.release(program);
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
    let wide = Step::Dispatch(Dispatch { program, grid: [1, 70_000, 1], group: [1; 3], args: Vec::new() });
    assert!(device.submit(QueueId::DEFAULT, &[wide], false).unwrap_err().is_mistake(), "arguments come first");
    let args = vec![Arg::Buffer(x), Arg::Scalar(1u32.into())];
    let wide = Step::Dispatch(Dispatch { program, grid: [1, 70_000, 1], group: [1; 3], args });
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
        ("add.u32 %r3, %r3, %r1", "frob.u32 %r3, %r3, %r1", "line 15: frob.u32 %r3 , %r3 , %r1: an instruction this"),
        ("ret;", "bra $nowhere;", "no label $nowhere"),
    ] {
        let error = device.compile(&Program::Text(text(&ADD.replace(from, to)))).unwrap_err();
        assert!(error.is_build(), "{error}");
        assert_eq!(error.message(), "cuda:0: the driver's compiler refused add; its log follows");
        assert!(error.notes()[0].contains(log), "{error}");
    }
    let other = SourceText { entry: "subtract".into(), ..text(ADD) };
    let error = device.compile(&Program::Text(other)).unwrap_err();
    assert!(error.is_build() && error.message().contains("the program has no entry point subtract"), "{error}");
    let other = SourceText { language: Language::OpenClC, ..text(ADD) };
    assert!(device.compile(&Program::Text(other)).unwrap_err().is_unsupported());
    works(&*device);
}

fn newer() {
    let device = device();
    assert_eq!(device.target().language, Language::Ptx { capability: 61 });
    let newer = ADD.replace("sm_60", "sm_90");
    let error = device.compile(&Program::Text(text(&newer))).unwrap_err();
    assert!(error.is_build() && error.notes()[0].contains("the program is for a newer GPU"), "{error}");
    works(&*device);
}
