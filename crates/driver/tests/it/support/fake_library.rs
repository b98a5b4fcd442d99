//! Tests on a simulated vendor library.
//!
//! The configuration of the simulated driver is fixed for a process, so each configuration is a child process: the test binary again, with
//! `child` as its only test and the environment set.

use std::process::Command;
use std::sync::Arc;

use panoply_device::{
    AllocId, Arg, DType, DeviceCommand, Dispatch, Driver, ErrorKind, Language, ParamType, Program, ProgramId, QueueId,
    RawDevice, Region, Signature, SourceText,
};
use panoply_driver_sim::Control;

const JOB: &str = "PANOPLY_TEST_CHILD";

/// The jobs of child processes, by name.
pub type Jobs = &'static [(&'static str, fn())];

/// Runs the job that the parent process named; does nothing otherwise.
pub fn child(jobs: Jobs) {
    let Ok(job) = std::env::var(JOB) else { return };
    let known = jobs.iter().find(|(name, _)| *name == job);
    known.unwrap_or_else(|| panic!("no job {job}")).1();
}

/// The name by which the test harness knows the test `child` of a module.
fn child_test(module: &str) -> String {
    let (_, module) = module.split_once("::").expect("a module of a test program");
    format!("{module}::child")
}

/// Runs a job of a module in a separate process with these environment variables.
pub fn run(module: &str, job: &str, settings: &[(&str, &str)]) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([&child_test(module), "--exact", "--nocapture"]).env(JOB, job).envs(settings.iter().copied());
    let output = command.output().unwrap();
    let log = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(
        output.status.success() && log.contains("1 passed"),
        "{job} with {settings:?} failed ({}):\n{log}",
        output.status
    );
}

/// Returns the devices of a driver.
pub fn devices(driver: &dyn Driver) -> Vec<Arc<dyn RawDevice>> {
    // SAFETY: these tests pass only valid arguments.
    unsafe { driver.probe() }.unwrap()
}

/// Returns the source of a program `add` whose parameters are a buffer and a number.
pub fn text(language: Language, source: &str) -> SourceText {
    let params = vec![ParamType::Buffer(DType::U32), ParamType::Scalar(DType::U32.into())];
    let signature = Signature { params, index_bits: 64, hidden: false };
    SourceText { language, source: source.into(), entry: "add".into(), signature }
}

/// Returns a launch of such a program.
pub fn add(program: ProgramId, region: Region, grid: [u64; 3], width: u32, amount: u32) -> DeviceCommand {
    let args = vec![Arg::Buffer(region), Arg::Scalar(amount.into())];
    DeviceCommand::Dispatch(Dispatch { program, grid, group_size: [width, 1, 1], args, parts: Vec::new() })
}

/// Compiles a program, launches it once over as many work-items as `before` has elements, and checks the buffer after it.
pub fn launches(device: &dyn RawDevice, text: SourceText, width: u32, before: &[u32], after: &[u32]) {
    let program = device.compile(&Program::Text(text)).unwrap();
    launches_program(device, program, width, before, after);
}

/// Launches a program like [`launches`], and releases it.
pub fn launches_program(device: &dyn RawDevice, program: ProgramId, width: u32, before: &[u32], after: &[u32]) {
    let x = holding(device, before);
    let command = add(program, x, [before.len() as u64, 1, 1], width, 10);
    device.submit(QueueId::DEFAULT, &[command], false).unwrap().wait().unwrap();
    assert_eq!(words(device, QueueId::DEFAULT, x).unwrap(), after);
    device.free(x.alloc);
    device.release(program);
}

/// Checks that the first of two devices fails to open with this message, and that the second one works.
pub fn first_is_broken(driver: &dyn Driver, message: &str, works: fn(&dyn RawDevice)) {
    let devices = devices(driver);
    let error = devices[0].allocate(4).unwrap_err();
    assert!(error.message().starts_with(message), "{error}");
    works(&*devices[1]);
    assert_ne!(devices[0].info().physical_id, devices[1].info().physical_id);
}

/// Checks that discovery creates no objects, and that a dropped device releases all of its objects.
pub fn objects_are_released(driver: &dyn Driver, text: SourceText, works: fn(&dyn RawDevice)) {
    let control = Control::open();
    {
        let device = devices(driver).swap_remove(0);
        assert_eq!(control.live(), 0, "discovery creates no objects");
        works(&*device);
        let queue = device.queue().unwrap();
        let x = holding(&*device, &[7; 1000]);
        let ticket = device.read(queue, x).unwrap();
        let steps = [DeviceCommand::Fill { to: x, pattern: vec![1, 2, 3, 4] }, DeviceCommand::Wait(ticket)];
        assert_eq!(device.submit(QueueId::DEFAULT, &steps, true).unwrap().times().unwrap().len(), 2);
        device.compile(&Program::Text(text)).unwrap();
        assert!(control.live() > 4, "{}", control.live());
    }
    assert_eq!(control.live(), 0, "objects that were not released");
}

/// Checks that every call on a lost device fails, except those that free memory and programs.
pub fn stays_lost(device: &dyn RawDevice, program: ProgramId, x: Region, launch: &DeviceCommand) {
    for error in [
        device.allocate(4).unwrap_err(),
        device.write(QueueId::DEFAULT, x, &vec![0; x.bytes as usize]).unwrap_err(),
        device.submit(QueueId::DEFAULT, std::slice::from_ref(launch), false).map(drop).unwrap_err(),
        device.synchronize().unwrap_err(),
    ] {
        assert!(error.is_device_lost(), "the error is permanent: {error}");
    }
    // Freeing reports no error.
    device.free(x.alloc);
    device.release(program);
}

/// Checks that a program without the entry point is refused, and one in OpenCL C with this message.
pub fn refuses_other_programs(device: &dyn RawDevice, text: SourceText, message: &str) {
    let error = device.compile(&Program::Text(SourceText { entry: "subtract".into(), ..text.clone() })).unwrap_err();
    assert!(
        error.is_compile_failed() && error.message().contains("the program has no entry point subtract"),
        "{error}"
    );
    let error = device.compile(&Program::Text(SourceText { language: Language::OpenClC, ..text })).unwrap_err();
    assert!(error.is_unsupported() && error.message().contains(message), "{error}");
}

/// Checks that discovery fails with the message in `EXPECT`, and fails in the same way again.
pub fn absent(driver: &dyn Driver) {
    let expected = std::env::var("EXPECT").unwrap();
    // SAFETY: no device is used.
    let error = unsafe { driver.probe() }.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let text = std::iter::once(error.message()).chain(error.notes().iter().map(String::as_str)).collect::<Vec<_>>();
    assert!(text.join("; ").contains(&expected), "{text:?}");
    // SAFETY: no device is used.
    let again = unsafe { driver.probe() }.unwrap_err();
    assert_eq!(again.to_string(), error.to_string(), "the second call returns the same error");
}

/// Checks that a device of 16 MiB reports exhausted memory, and works after memory is freed.
pub fn out_of_memory(device: &dyn RawDevice, works: fn(&dyn RawDevice)) {
    let total = 16 << 20;
    assert_eq!(device.memory().total, total);
    let held = device.allocate(total - 4096).unwrap();
    let error = device.allocate(1 << 20).unwrap_err();
    assert!(error.is_out_of_memory(), "{error}");
    let spelling = device.info().device_string();
    assert_eq!(
        error.message(),
        format!(
            "out of memory on {spelling}: needs 1048576 bytes, 4096 free of 16777216; free buffers or use smaller ones"
        )
    );
    assert_eq!(device.memory().free, Some(4096));
    device.free(held);
    works(device);
    let again = device.allocate(total - 4096).unwrap();
    device.free(again);
}

/// Compares fills of every width at unaligned offsets, copies, and uploads too large to be staged with the same operations on slices.
pub fn bytes_arrive(device: &dyn RawDevice) {
    let bytes = (3 << 20) + 24;
    let source: Vec<u8> = (0..bytes as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let (x, y) = (all(device.allocate(bytes).unwrap(), bytes), all(device.allocate(bytes).unwrap(), bytes));
    device.write(QueueId::DEFAULT, x, &source).unwrap();
    let mut expected = source.clone();
    let mut steps = vec![DeviceCommand::Copy { from: x, to: y }];
    for (pattern, offset, length) in
        [(&[9][..], 3, 5), (&[1, 2], 1000, 10), (&[1, 2, 3, 4], 2001, 90), (&[1, 2, 3, 4, 5, 6, 7, 8], 4096, 8 * 777)]
    {
        let to = Region { offset, bytes: length, ..y };
        steps.push(DeviceCommand::Fill { to, pattern: pattern.to_vec() });
        let part = &mut expected[offset as usize..(offset + length) as usize];
        part.iter_mut().enumerate().for_each(|(i, byte)| *byte = pattern[i % pattern.len()]);
    }
    device.submit(QueueId::DEFAULT, &steps, false).unwrap();
    assert!(device.read(QueueId::DEFAULT, y).unwrap().take().unwrap() == expected);
    let mut again = vec![0; bytes as usize];
    device.read_into(QueueId::DEFAULT, x, &mut again).unwrap();
    assert!(again == source);
}

/// Returns the region of a whole allocation.
pub fn all(alloc: AllocId, bytes: u64) -> Region {
    Region { alloc, offset: 0, bytes }
}

/// Allocates memory and writes words to it.
pub fn holding(device: &dyn RawDevice, words: &[u32]) -> Region {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let region = all(device.allocate(bytes.len() as u64).unwrap(), bytes.len() as u64);
    device.write(QueueId::DEFAULT, region, &bytes).unwrap();
    region
}

/// Reads the words of a region.
pub fn words(device: &dyn RawDevice, queue: QueueId, region: Region) -> panoply_device::Result<Vec<u32>> {
    let bytes = device.read(queue, region)?.take()?;
    Ok(bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect())
}
