//! Copies between two cards of one driver, which go past the host, on libraries that only pretend to be NVIDIA's and AMD's. They do a
//! stream's work as late as they may, so a copy that does not wait for what it copies brings something else.
//!
//! How many cards there are is fixed for a process, so each job is a process of its own: the test binary again, with `child` as its one
//! test.

use std::process::Command;
use std::sync::Arc;

use panoply::runtime::{DeviceOptions, Driver, Registry};
use panoply::{Buffer, Device, ErrorKind};
use panoply_driver::{CudaDriver, HipDriver};
use panoply_fake::{Control, library};

const CHILD: &str = "PANOPLY_TEST_PEERS";

#[test]
fn child() {
    match std::env::var(CHILD).as_deref() {
        Ok("cuda") => {
            exchange(Arc::new(CudaDriver { library: Some(library()), ..CudaDriver::default() }), "cuMemcpyPeerAsync")
        }
        Ok("rocm") => {
            exchange(Arc::new(HipDriver { library: Some(library()), ..HipDriver::default() }), "hipMemcpyPeerAsync")
        }
        Ok(job) => panic!("no job {job}"),
        Err(_) => {}
    }
}

#[test]
fn cards_of_one_driver_exchange_without_the_host() {
    for (job, setting) in [("cuda", "PANOPLY_FAKE_CUDA"), ("rocm", "PANOPLY_FAKE_HIP")] {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["child", "--exact", "--nocapture"]).env(CHILD, job).env(setting, "devices=2");
        let output = command.output().unwrap();
        let log = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{job} failed ({}):\n{log}", output.status);
    }
}

fn exchange(driver: Arc<dyn Driver>, function: &str) {
    let control = Control::open();
    let registry = Registry::new(vec![driver.clone()], DeviceOptions::default());
    let [one, two]: [Device; 2] = registry.devices(driver.kind()).unwrap().try_into().unwrap();
    let words = |factor: u32| -> Vec<u32> { (0..700_001).map(|i: u32| i.wrapping_mul(factor)).collect() };

    // What writes it is under way, on two queues of the other card.
    let mut x = one.buffer(&words(2_654_435_761)).unwrap();
    let queue = one.queue().unwrap();
    x.slice_mut(..1000).unwrap().write_on(&queue, &[7; 1000]).unwrap();
    x.slice_mut(999..1003).unwrap().fill(9).unwrap();
    let mut expected = words(2_654_435_761);
    expected[..1000].fill(7);
    expected[999..1003].fill(9);
    let before = (one.stats().downloaded, two.stats().uploaded);
    let mut y = x.to(&two).unwrap();
    assert_eq!((one.stats().downloaded, two.stats().uploaded), before, "no byte went through the host");
    assert_eq!(control.calls(function), 1);
    // Written after the copy: it has the bytes of before.
    x.fill(1).unwrap();
    assert!(y.to_vec().unwrap() == expected);

    // Parts at odd places, and back.
    y.slice_mut(3..8).unwrap().copy_from(&x.slice(100..105).unwrap()).unwrap();
    x.slice_mut(..10).unwrap().copy_from(&y.slice(..10).unwrap()).unwrap();
    assert_eq!(x.slice(..11).unwrap().to_vec().unwrap(), [7, 7, 7, 1, 1, 1, 1, 1, 7, 7, 1]);
    assert_eq!(control.calls(function), 3);

    // A failure is told, with the card that was to be written, and both go on.
    control.fail(function, 1, 0, 1);
    let error = y.copy_from(&x).unwrap_err();
    assert!(error.message().starts_with(&format!("{two}: copying 2800004 bytes of another device: ")), "{error}");
    assert_eq!(error.kind(), ErrorKind::Driver, "{error}");
    y.copy_from(&x).unwrap();
    assert_eq!(y.slice(9..12).unwrap().to_vec().unwrap(), [7, 1, 1]);

    // From anywhere else through the host, which counts.
    let calls = control.calls(function);
    let cpu = Device::get("cpu").unwrap();
    let uploaded = two.stats().uploaded;
    let z: Buffer<u32> = cpu.buffer(&[1, 2, 3]).unwrap().to(&two).unwrap();
    assert_eq!(z.to(&cpu).unwrap().to_vec().unwrap(), [1, 2, 3]);
    assert_eq!((control.calls(function), two.stats().uploaded - uploaded), (calls, 12));
}
