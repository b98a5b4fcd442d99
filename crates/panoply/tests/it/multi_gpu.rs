//! Several GPUs, on simulated NVIDIA and AMD libraries: copies between two GPUs bypass the host, and a broken GPU is
//! skipped. The libraries delay the work of a stream as long as possible, so a copy that does not wait for its source
//! copies stale data.
//!
//! The number of GPUs is fixed for a process, so each job runs in a separate process: the test binary again, with
//! `child` as its only test.

use std::process::Command;
use std::sync::Arc;

use panoply::runtime::{DeviceOptions, Driver, Registry};
use panoply::{Backend, Buffer, Device, ErrorKind, Rejection};
use panoply_cpu::CpuDriver;
use panoply_device::null::{NullDevice, NullDriver};
use panoply_device::{DeviceInfo, RawDevice as _};
use panoply_driver::{CudaDriver, HipDriver};
use panoply_driver_sim::{Control, library};
use panoply_ir::Target;

const CHILD: &str = "PANOPLY_TEST_CARDS";

#[test]
fn child() {
    match std::env::var(CHILD).as_deref() {
        Ok("cuda") => exchange(cuda(), "cuMemcpyPeerAsync"),
        Ok("two, the first broken") => the_second_is_taken(),
        Ok("one, broken") => another_way_is_taken(),
        Ok("rocm") => {
            exchange(Arc::new(HipDriver { library: Some(library()), ..HipDriver::default() }), "hipMemcpyPeerAsync")
        }
        Ok(job) => panic!("no job {job}"),
        Err(_) => {}
    }
}

/// Runs a job in a separate process whose driver has the devices of the setting.
fn run(job: &str, (name, value): (&str, &str)) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["multi_gpu::child", "--exact", "--nocapture"]).env(CHILD, job).env(name, value);
    let output = command.output().unwrap();
    let log = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && log.contains("1 passed"), "{job} failed ({}):\n{log}", output.status);
}

fn cuda() -> Arc<dyn Driver> {
    Arc::new(CudaDriver { library: Some(library()), ..CudaDriver::default() })
}

#[test]
fn a_gpu_that_cannot_be_opened_is_skipped() {
    run("two, the first broken", ("PANOPLY_FAKE_CUDA", "devices=2,broken=0"));
    run("one, broken", ("PANOPLY_FAKE_CUDA", "broken=0"));
}

const BROKEN: &str = "cuda:0: opening the device: CUDA_ERROR_UNKNOWN (999)";

fn the_second_is_taken() {
    let registry = Registry::new(vec![cuda()], DeviceOptions::default());
    let selection = registry.recommended().unwrap();
    assert_eq!((selection.device.device_string(), selection.is_fallback), ("cuda:1", false));
    let [(candidate, why)] = &*selection.rejected else { panic!("{:?}", selection.rejected) };
    assert!(candidate == "cuda:0" && why.reason.starts_with(BROKEN) && why.fix.is_some(), "{why:?}");
    assert_eq!(registry.with_free_memory(1 << 20).unwrap().device_string(), "cuda:1");
    let error = registry.with_free_memory(1 << 40).unwrap_err();
    assert!(error.notes()[0].starts_with(BROKEN) && error.notes()[1].starts_with("cuda:1: 256.0 MiB free"), "{error}");
}

/// Another interface to the same GPU is used, or the CPU if there is none.
fn another_way_is_taken() {
    let same = NullDevice::new(Target::webgpu_minimum());
    let (kind, identity) = (Backend::Vulkan, Some("0000:01:00.0".to_string()));
    let info = DeviceInfo { kind, physical_id: identity, variant: None, is_software: false, ..same.info().clone() };
    let devices = Ok(vec![Arc::new(same.with_info(info))]);
    let vulkan = NullDriver { kind: Backend::Vulkan, devices, refused: Vec::new() };
    let both = Registry::new(vec![cuda(), Arc::new(vulkan), Arc::new(CpuDriver::default())], DeviceOptions::default());
    let report = both.device_report().unwrap();
    let vulkan = report.devices().find(|device| device.device_string() == "vulkan:0").unwrap();
    assert_eq!(report.alias_of(vulkan).map(Device::device_string), Some("cuda:0"));
    assert_eq!(report.devices().filter(|device| report.alias_of(device).is_some()).count(), 1);
    assert!(report.to_string().contains(", the same GPU as cuda:0\n"), "{report}");
    let selection = both.recommended().unwrap();
    assert_eq!((selection.device.device_string(), selection.is_fallback), ("vulkan:0", false));
    let is_reported = |(candidate, why): &(String, Rejection)| candidate == "cuda:0" && why.reason.starts_with(BROKEN);
    assert!(selection.rejected.iter().any(is_reported), "{:?}", selection.rejected);

    let alone = Registry::new(vec![cuda(), Arc::new(CpuDriver::default())], DeviceOptions::default());
    let selection = alone.recommended().unwrap();
    assert_eq!((selection.device.device_string(), selection.is_fallback), ("cpu", true));
    assert!(selection.rejected.iter().any(is_reported), "{:?}", selection.rejected);
}

#[test]
fn gpus_of_one_driver_copy_without_the_host() {
    run("cuda", ("PANOPLY_FAKE_CUDA", "devices=2"));
    run("rocm", ("PANOPLY_FAKE_HIP", "devices=2"));
}

fn exchange(driver: Arc<dyn Driver>, function: &str) {
    let control = Control::open();
    let registry = Registry::new(vec![driver.clone()], DeviceOptions::default());
    let [one, two]: [Device; 2] = registry.devices(driver.kind()).unwrap().try_into().unwrap();
    let words = |factor: u32| -> Vec<u32> { (0..700_001).map(|i: u32| i.wrapping_mul(factor)).collect() };

    // The writes that the copy must wait for are pending on two queues of the source GPU.
    let mut x = one.buffer(&words(2_654_435_761)).unwrap();
    let queue = one.queue().unwrap();
    x.slice_mut(..1000).unwrap().write_on(&queue, &[7; 1000]).unwrap();
    x.slice_mut(999..1003).unwrap().fill(9).unwrap();
    let mut expected = words(2_654_435_761);
    expected[..1000].fill(7);
    expected[999..1003].fill(9);
    let before = (one.memory_stats().downloaded, two.memory_stats().uploaded);
    let mut y = x.to(&two).unwrap();
    assert_eq!((one.memory_stats().downloaded, two.memory_stats().uploaded), before, "no byte passes through the host");
    assert_eq!(control.calls(function), 1);
    // This write follows the copy, which must not see it.
    x.fill(1).unwrap();
    assert!(y.to_vec().unwrap() == expected);

    // Slices at odd offsets, and a copy back.
    y.slice_mut(3..8).unwrap().copy_from(&x.slice(100..105).unwrap()).unwrap();
    x.slice_mut(..10).unwrap().copy_from(&y.slice(..10).unwrap()).unwrap();
    assert_eq!(x.slice(..11).unwrap().to_vec().unwrap(), [7, 7, 7, 1, 1, 1, 1, 1, 7, 7, 1]);
    assert_eq!(control.calls(function), 3);

    // A failure names the destination GPU, and both GPUs remain usable.
    control.fail(function, 1, 0, 1);
    let error = y.copy_from(&x).unwrap_err();
    assert!(error.message().starts_with(&format!("{two}: copying 2800004 bytes from another device: ")), "{error}");
    assert_eq!(error.kind(), ErrorKind::Driver, "{error}");
    y.copy_from(&x).unwrap();
    assert_eq!(y.slice(9..12).unwrap().to_vec().unwrap(), [7, 1, 1]);

    // Copies from other devices pass through the host and are counted.
    let calls = control.calls(function);
    let cpu = Device::get("cpu").unwrap();
    let uploaded = two.memory_stats().uploaded;
    let z: Buffer<u32> = cpu.buffer(&[1, 2, 3]).unwrap().to(&two).unwrap();
    assert_eq!(z.to(&cpu).unwrap().to_vec().unwrap(), [1, 2, 3]);
    assert_eq!((control.calls(function), two.memory_stats().uploaded - uploaded), (calls, 12));
}
