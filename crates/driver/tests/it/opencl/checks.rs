//! Checks of an OpenCL device, with handwritten OpenCL C kernels. Each compares with a reference in Rust.

use std::sync::Arc;

use panoply_device::{
    AllocId, Arg, DType, DeviceCommand, Dispatch, Language, ParamType, Program, ProgramId, QueueId, RawDevice, Region,
    Scalar, Signature, SourceText, Ticket, Type,
};
use panoply_driver::opencl::OpenClDevice;

type Check = fn(&Arc<OpenClDevice>);

/// Checks that oclgrind does not support: it is not thread-safe, and stores many bytes for every byte of a buffer.
pub const BEYOND_OCLGRIND: &[&str] = &["threads", "out of memory", "many small writes and a large one"];

/// Every check and its name.
pub const ALL: &[(&str, Check)] = &[
    ("describes itself", describes_itself),
    ("saxpy", saxpy),
    ("saxpy with 32-bit indices", saxpy_32),
    ("raw source", raw_source),
    ("scalars of every type", scalars),
    ("unaligned bytes", odd_bytes),
    ("a refused program", refused_program),
    ("a program from its binary", binaries),
    ("queues wait for each other", queues),
    ("timed steps", timed),
    ("many small writes and a large one", writes),
    ("out of memory", out_of_memory),
    ("stale ids", stale_ids),
    ("a dropped read", dropped_read),
    ("threads", threads),
    ("nothing leaks", nothing_leaks),
];

const SAXPY: &str = "
kernel void saxpy(
    const float a,
    global const float *restrict x, const INDEX xoff, const INDEX xlen,
    global float *restrict y, const INDEX yoff, const INDEX ylen,
    const INDEX size0, const INDEX size1, const INDEX size2
) {
    const INDEX i = get_global_id(0);
    if (i >= size0 || i >= xlen || i >= ylen) return;
    y[yoff + i] = y[yoff + i] + a * x[xoff + i];
}
";

fn text(source: &str, entry: &str, params: Vec<ParamType>, hidden: bool, index_bits: u32) -> SourceText {
    let index = if index_bits == 32 { "uint" } else { "ulong" };
    SourceText {
        language: Language::OpenClC,
        source: format!("#pragma OPENCL FP_CONTRACT OFF\n{}", source.replace("INDEX", index)),
        entry: entry.into(),
        signature: Signature { params, index_bits, hidden },
    }
}

fn saxpy_text(index_bits: u32) -> SourceText {
    let buffer = ParamType::Buffer(DType::F32);
    text(SAXPY, "saxpy", vec![ParamType::Scalar(DType::F32.into()), buffer, buffer], true, index_bits)
}

/// A buffer that is freed on drop.
struct Held<'a> {
    device: &'a OpenClDevice,
    alloc: AllocId,
    bytes: u64,
}

impl Held<'_> {
    fn region(&self, offset: u64, bytes: u64) -> Region {
        assert!(offset + bytes <= self.bytes);
        Region { alloc: self.alloc, offset, bytes }
    }

    fn all(&self) -> Region {
        self.region(0, self.bytes)
    }

    fn read(&self) -> Vec<u8> {
        self.device.read(QueueId::DEFAULT, self.all()).unwrap().take().unwrap()
    }

    fn floats(&self) -> Vec<f32> {
        self.read().chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect()
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.device.free(self.alloc);
    }
}

fn holding<'a>(device: &'a OpenClDevice, bytes: &[u8]) -> Held<'a> {
    let held = Held { device, alloc: device.allocate(bytes.len() as u64).unwrap(), bytes: bytes.len() as u64 };
    device.write(QueueId::DEFAULT, held.all(), bytes).unwrap();
    held
}

fn floats(values: impl IntoIterator<Item = f32>) -> Vec<u8> {
    values.into_iter().flat_map(f32::to_le_bytes).collect()
}

fn launch(program: ProgramId, grid: [u64; 3], group: [u32; 3], args: Vec<Arg>) -> DeviceCommand {
    DeviceCommand::Dispatch(Dispatch { program, grid, group_size: group, args, parts: Vec::new() })
}

fn run(device: &OpenClDevice, steps: &[DeviceCommand]) -> Ticket {
    device.submit(QueueId::DEFAULT, steps, false).unwrap()
}

fn describes_itself(device: &Arc<OpenClDevice>) {
    let (info, target) = (device.info(), device.target());
    assert!(!info.name.is_empty() && !info.vendor.is_empty() && !info.driver.is_empty(), "{info:?}");
    assert!(info.is_software, "tests run only on CPUs: {info:?}");
    assert!(info.compute_units > 0 && device.memory().total > 0, "{info:?}");
    assert!(target.max_group_items >= target.max_group[0] && target.max_group[0] > 0, "{target:?}");
    assert!(target.max_bindings >= 8 && target.shared_bytes >= 16 << 10 && target.int64, "{target:?}");
    assert!(target.name.contains(&info.driver) && target.name.contains(&info.name), "{target:?}");
}

pub fn saxpy(device: &Arc<OpenClDevice>) {
    saxpy_with(device, 64);
}

fn saxpy_32(device: &Arc<OpenClDevice>) {
    saxpy_with(device, 32);
}

/// Uses regions in the middle of their allocations, a grid that is not a multiple of the work-group size, and an argument that changes.
fn saxpy_with(device: &Arc<OpenClDevice>, index_bits: u32) {
    let program = device.compile(&Program::Text(saxpy_text(index_bits))).unwrap();
    let (n, skip) = (1000usize, 5usize);
    let xs: Vec<f32> = (0..n + skip).map(|i| i as f32).collect();
    let ys: Vec<f32> = (0..n + 2 * skip).map(|i| 0.5 * i as f32).collect();
    let (x, y) = (holding(device, &floats(xs.clone())), holding(device, &floats(ys.clone())));
    let bytes = 4 * n as u64;
    let steps = [3.0f32, 0.25].map(|a| {
        let args = vec![
            Arg::Scalar(a.into()),
            Arg::Buffer(x.region(4 * skip as u64, bytes)),
            Arg::Buffer(y.region(4 * skip as u64, bytes)),
        ];
        launch(program, [n as u64 - 1, 1, 1], [64, 1, 1], args)
    });
    run(device, &steps).wait().unwrap();
    let mut expected = ys;
    for a in [3.0f32, 0.25] {
        for i in 0..n - 1 {
            expected[skip + i] += a * xs[skip + i];
        }
    }
    assert_eq!(y.floats(), expected);
    device.release(program);
}

/// Regions at a nonzero offset become sub-buffers, if the device's alignment allows it.
fn raw_source(device: &Arc<OpenClDevice>) {
    let source = "kernel void ids(global uint *out) {
        const size_t i = get_global_id(0) + get_global_size(0) * (get_global_id(1) + get_global_size(1) * get_global_id(2));
        out[i] = 100 * get_local_id(2) + 10 * get_local_id(1) + get_local_id(0);
    }";
    let text = text(source, "ids", vec![ParamType::Buffer(DType::U32)], false, 64);
    let program = device.compile(&Program::Text(text)).unwrap();
    let (skip, n) = (4096, 8 * 6 * 4);
    let out = holding(device, &vec![0xFF; skip + 4 * n]);
    let part = out.region(skip as u64, 4 * n as u64);
    // A grid of 7 by 5 by 3 in work-groups of 4 by 3 by 2 is rounded up to 8 by 6 by 4.
    run(device, &[launch(program, [7, 5, 3], [4, 3, 2], vec![Arg::Buffer(part)])]).wait().unwrap();
    let ids = (0..n).map(|i| (100 * (i / 48 % 2) + 10 * (i / 8 % 6 % 3) + i % 8 % 4) as u32);
    let expected: Vec<u8> = std::iter::repeat_n(0xFF, skip).chain(ids.flat_map(u32::to_le_bytes)).collect();
    assert_eq!(out.read(), expected);
    let odd = launch(program, [1; 3], [1; 3], vec![Arg::Buffer(out.region(4, 4))]);
    let error = device.submit(QueueId::DEFAULT, &[odd], false).unwrap_err();
    assert!(error.is_unsupported() && error.message().contains("multiple of"), "{error}");
    device.release(program);
}

fn scalars(device: &Arc<OpenClDevice>) {
    let types = [
        (DType::U8, "uchar", 0xA1u64),
        (DType::I16, "short", 0xB2B1),
        (DType::U32, "uint", 0xC4C3_C2C1),
        (DType::F32, "float", 0xD4D3_D2D1),
        (DType::I64, "long", 0xE8E7_E6E5_E4E3_E2E1),
        (DType::F16, "ushort", 0xF2F1),
        (DType::Bool, "uchar", 1),
    ];
    let declare = |i: usize, ty: &str| format!("const {ty} a{i}, ");
    let store = |i: usize, ty: &str| format!("*(global {ty} *)(out + {}) = a{i};\n", 8 * i);
    let declared: String = types.iter().enumerate().map(|(i, (_, ty, _))| declare(i, ty)).collect();
    let stored: String = types.iter().enumerate().map(|(i, (_, ty, _))| store(i, ty)).collect();
    let source = format!(
        "kernel void keep({declared}const INDEX last, global uchar *out) {{\n{stored}\
         *(global INDEX *)(out + {}) = last;\n}}",
        8 * types.len()
    );
    let mut params: Vec<ParamType> = types.iter().map(|(dtype, ..)| ParamType::Scalar((*dtype).into())).collect();
    params.extend([ParamType::Scalar(Type::Index), ParamType::Buffer(DType::U8)]);
    let program = device.compile(&Program::Text(text(&source, "keep", params, false, 64))).unwrap();
    let out = holding(device, &vec![0; 8 * (types.len() + 1)]);
    let mut args: Vec<Arg> =
        types.iter().map(|(dtype, _, bits)| Arg::Scalar(Scalar { dtype: *dtype, bits: *bits })).collect();
    args.extend([Arg::Index(0x1122_3344_5566_7788), Arg::Buffer(out.all())]);
    run(device, &[launch(program, [1; 3], [1; 3], args)]);
    let expected: Vec<u8> =
        types.iter().map(|(.., bits)| *bits).chain([0x1122_3344_5566_7788]).flat_map(u64::to_le_bytes).collect();
    assert_eq!(out.read(), expected);
    let wrong = launch(program, [1; 3], [1; 3], vec![Arg::Index(0)]);
    assert!(device.submit(QueueId::DEFAULT, &[wrong], false).unwrap_err().is_mistake());
    device.release(program);
}

fn odd_bytes(device: &Arc<OpenClDevice>) {
    let mut expected: Vec<u8> = (0..=255).collect();
    let (memory, other) = (holding(device, &expected), holding(device, &[9; 64]));
    for (offset, length) in [(1u64, 1usize), (3, 7), (250, 6), (17, 0), (64, 33)] {
        let bytes: Vec<u8> = (0..length).map(|i| 200 - i as u8).collect();
        device.write(QueueId::DEFAULT, memory.region(offset, length as u64), &bytes).unwrap();
        expected[offset as usize..][..length].copy_from_slice(&bytes);
        let mut back = vec![0; length];
        device.read_into(QueueId::DEFAULT, memory.region(offset, length as u64), &mut back).unwrap();
        assert_eq!(back, bytes);
    }
    let steps = [
        DeviceCommand::Fill { to: memory.region(101, 24), pattern: (1..=8).collect() },
        DeviceCommand::Fill { to: memory.region(9, 0), pattern: vec![1, 2] },
        DeviceCommand::Copy { from: memory.region(101, 11), to: memory.region(131, 11) },
        DeviceCommand::Copy { from: memory.region(0, 13), to: other.region(51, 13) },
        DeviceCommand::Copy { from: memory.region(0, 0), to: other.region(5, 0) },
    ];
    run(device, &steps);
    (0..24).for_each(|i| expected[101 + i] = (i % 8) as u8 + 1);
    expected.copy_within(101..112, 131);
    assert_eq!(memory.read(), expected);
    let mut copied = vec![9; 64];
    copied[51..].copy_from_slice(&expected[..13]);
    assert_eq!(other.read(), copied);
}

fn refused_program(device: &Arc<OpenClDevice>) {
    let bad = text("kernel void bad(global int *x) { x[0] = undeclared_name; }", "bad", vec![], false, 64);
    let error = device.compile(&Program::Text(bad)).unwrap_err();
    assert!(error.is_compile_failed() && error.notes().join("\n").contains("undeclared_name"), "{error}");
    let mut elsewhere = saxpy_text(64);
    elsewhere.entry = "daxpy".into();
    let error = device.compile(&Program::Text(elsewhere)).unwrap_err();
    assert!(error.is_compile_failed() && error.message().contains("no kernel daxpy; it has: saxpy"), "{error}");
    let mut short = saxpy_text(64);
    short.signature.params.pop();
    let error = device.compile(&Program::Text(short)).unwrap_err();
    assert!(
        error.is_compile_failed() && error.message().contains("takes 10 arguments, its signature gives 7"),
        "{error}"
    );
    // A length of 0 means that the text is zero-terminated, so the driver would search for the terminator.
    let empty = SourceText { source: String::new(), ..saxpy_text(64) };
    let error = device.compile(&Program::Text(empty)).unwrap_err();
    assert!(error.is_compile_failed() && error.message().contains("no kernel saxpy; it has: none"), "{error}");
    saxpy(device);
}

fn binaries(device: &Arc<OpenClDevice>) {
    let text = saxpy_text(64);
    let program = device.compile(&Program::Text(text.clone())).unwrap();
    let bytes = device.binary(program).expect("every driver here returns binaries");
    device.release(program);
    // The text is not used if the binary is valid.
    let unused = SourceText { source: "not C at all".into(), ..text.clone() };
    device.release(device.compile(&Program::Binary { bytes: bytes.clone(), text: unused }).unwrap());
    // Half a binary crashes some drivers, so it must not reach them; the text is compiled instead.
    let half = bytes[..bytes.len() / 2].to_vec();
    for bytes in [bytes, half, b"not a program".to_vec(), Vec::new()] {
        let program = device.compile(&Program::Binary { bytes, text: text.clone() }).unwrap();
        let (x, y) = (holding(device, &floats([1.0, 2.0])), holding(device, &floats([10.0, 20.0])));
        let args = vec![Arg::Scalar(2.0f32.into()), Arg::Buffer(x.all()), Arg::Buffer(y.all())];
        run(device, &[launch(program, [2, 1, 1], [1; 3], args)]);
        assert_eq!(y.floats(), [12.0, 24.0]);
        device.release(program);
    }
}

/// Each round doubles on one queue and adds on the other, so any other order gives another result.
fn queues(device: &Arc<OpenClDevice>) {
    let source = "kernel void double_add(const uint add, global uint *x) { x[get_global_id(0)] = 2 * x[get_global_id(0)] + add; }";
    let params = vec![ParamType::Scalar(DType::U32.into()), ParamType::Buffer(DType::U32)];
    let program = device.compile(&Program::Text(text(source, "double_add", params, false, 64))).unwrap();
    let x = holding(device, &1u32.to_le_bytes());
    let queues = [device.queue().unwrap(), device.queue().unwrap()];
    device.synchronize().unwrap();
    let (mut last, mut expected) = (Ticket::Done, 1u32);
    for round in 0..20u32 {
        let args = vec![Arg::Scalar(round.into()), Arg::Buffer(x.all())];
        let steps = [DeviceCommand::Wait(last.clone()), launch(program, [1; 3], [1; 3], args)];
        last = device.submit(queues[round as usize % 2], &steps, false).unwrap();
        expected = expected.wrapping_mul(2).wrapping_add(round);
    }
    // A submission with only a wait is complete when the awaited work is.
    let only = device.submit(QueueId::DEFAULT, &[DeviceCommand::Wait(last.clone())], false).unwrap();
    while !only.poll().unwrap() {}
    assert!(last.poll().unwrap());
    assert_eq!(x.read(), expected.to_le_bytes());
    let none = device.submit(QueueId(99), &[], false).unwrap_err();
    assert!(none.is_mistake() && none.message().contains("no queue 99; the last one is"), "{none}");
    device.release(program);
}

fn timed(device: &Arc<OpenClDevice>) {
    let program = device.compile(&Program::Text(saxpy_text(64))).unwrap();
    let (x, y) = (holding(device, &vec![0; 1 << 16]), holding(device, &vec![0; 1 << 16]));
    let args = vec![Arg::Scalar(1.0f32.into()), Arg::Buffer(x.all()), Arg::Buffer(y.all())];
    let dispatch = launch(program, [1 << 14, 1, 1], [64, 1, 1], args);
    // Oclgrind treats filled bytes as uninitialized, so no kernel reads these.
    let filled = holding(device, &[0; 64]);
    let fill = DeviceCommand::Fill { to: filled.all(), pattern: vec![0] };
    let steps =
        [DeviceCommand::Wait(Ticket::Done), dispatch.clone(), fill, DeviceCommand::Wait(Ticket::Done), dispatch];
    let times = device.submit(QueueId::DEFAULT, &steps, true).unwrap().times().unwrap();
    assert_eq!(times.len(), steps.len());
    assert!(times.iter().all(|time| time.start_ns <= time.end_ns && time.end_ns > 0), "{times:?}");
    assert!(times.windows(2).all(|pair| pair[0].end_ns <= pair[1].start_ns), "{times:?}");
    assert!(device.submit(QueueId::DEFAULT, &steps, false).unwrap().times().unwrap().is_empty());
    device.release(program);
}

fn writes(device: &Arc<OpenClDevice>) {
    let mut expected = vec![0u8; 40 << 20];
    let memory = holding(device, &expected);
    let mut source = vec![0u8; 700_000];
    for round in 0..60u64 {
        source.fill(round as u8 + 1);
        let at = round * 650_000;
        device.write(QueueId::DEFAULT, memory.region(at, source.len() as u64), &source).unwrap();
        expected[at as usize..][..source.len()].copy_from_slice(&source);
    }
    source.fill(0xEE);
    assert!(memory.read() == expected, "the source of a write can be reused immediately");
}

fn out_of_memory(device: &Arc<OpenClDevice>) {
    let largest = device.target().max_buffer_bytes;
    for bytes in [largest + 1, u64::MAX] {
        let error = device.allocate(bytes).unwrap_err();
        assert!(error.is_out_of_memory() && error.message().contains(&largest.to_string()), "{error}");
    }
    // Many buffers that are too large together. Their pages are never touched, so no host memory is used.
    let mut held = Vec::new();
    let error = loop {
        match device.allocate(largest) {
            Ok(alloc) => held.push(alloc),
            Err(error) => break error,
        }
        assert!(held.len() < 1000, "allocation never failed");
    };
    assert!(error.is_out_of_memory(), "{error}");
    held.into_iter().for_each(|alloc| device.free(alloc));
    saxpy(device);
}

fn stale_ids(device: &Arc<OpenClDevice>) {
    let freed = device.allocate(64).unwrap();
    device.free(freed);
    device.free(freed);
    let region = Region { alloc: freed, offset: 0, bytes: 4 };
    assert!(device.write(QueueId::DEFAULT, region, &[0; 4]).unwrap_err().is_mistake());
    assert!(device.read(QueueId::DEFAULT, region).unwrap_err().is_mistake());
    let fill = DeviceCommand::Fill { to: region, pattern: vec![0] };
    assert!(device.submit(QueueId::DEFAULT, &[fill], false).unwrap_err().is_mistake());
    let program = device.compile(&Program::Text(saxpy_text(64))).unwrap();
    device.release(program);
    device.release(program);
    assert!(device.binary(program).is_none());
    let launch = launch(program, [1; 3], [1; 3], vec![]);
    assert!(device.submit(QueueId::DEFAULT, &[launch], false).unwrap_err().is_mistake());
}

/// The driver writes into the bytes until the read is complete; dropping the ticket must not free them earlier.
fn dropped_read(device: &Arc<OpenClDevice>) {
    let memory = holding(device, &vec![7; 8 << 20]);
    for _ in 0..10 {
        drop(device.read(QueueId::DEFAULT, memory.all()).unwrap());
    }
    let ticket = device.read(QueueId::DEFAULT, memory.region(1, 3)).unwrap();
    assert_eq!(ticket.take().unwrap(), [7; 3]);
    assert!(ticket.take().unwrap().is_empty(), "bytes are returned once");
}

/// Launches one program on many threads: arguments of one launch must not reach another.
fn threads(device: &Arc<OpenClDevice>) {
    let program = device.compile(&Program::Text(saxpy_text(64))).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                let queue = if thread < 2 { QueueId::DEFAULT } else { device.queue().unwrap() };
                let (x, y) = (holding(device, &floats([1.0; 8])), holding(device, &floats([0.0; 8])));
                device.synchronize().unwrap();
                for _ in 0..50 {
                    let args = vec![Arg::Scalar((thread as f32).into()), Arg::Buffer(x.all()), Arg::Buffer(y.all())];
                    device.submit(queue, &[launch(program, [8, 1, 1], [8, 1, 1], args)], false).unwrap();
                }
                device.submit(queue, &[], false).unwrap().wait().unwrap();
                assert_eq!(y.floats(), [50.0 * thread as f32; 8]);
            });
        }
    });
    device.release(program);
}

fn nothing_leaks(device: &Arc<OpenClDevice>) {
    device.synchronize().unwrap();
    let live = device.live()();
    assert_eq!((live.buffers, live.programs, live.kernels), (0, 0, 0), "{live:?}");
}

/// Checks that a wait for work of another device is rejected.
pub fn tickets_of_other_devices_are_refused(a: &OpenClDevice, b: &OpenClDevice) {
    let foreign = b.submit(QueueId::DEFAULT, &[], false).unwrap();
    let error = a.submit(QueueId::DEFAULT, &[DeviceCommand::Wait(foreign)], false).unwrap_err();
    assert!(error.is_mistake() && error.message().contains("another device"), "{error}");
}
