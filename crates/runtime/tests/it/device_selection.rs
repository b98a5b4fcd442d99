//! Device selection and its reasons, with drivers that succeed, fail, panic and hang.

use crate::support::test_device;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use panoply_device::{Driver, RawDevice};
use panoply_ir::{Error, Result};
use panoply_runtime::{Backend, Device, DeviceOptions, Registry, SelectedBy};
use test_device::{Options, TestDevice};

/// A driver whose probe calls a closure.
struct Scripted {
    kind: Backend,
    asked: AtomicUsize,
    #[expect(clippy::type_complexity, reason = "it is the signature of `probe`")]
    answer: Box<dyn Fn() -> Result<Vec<Arc<dyn RawDevice>>> + Send + Sync>,
    refused: Vec<Error>,
}

impl Driver for Scripted {
    fn kind(&self) -> Backend {
        self.kind
    }

    unsafe fn probe(&self) -> Result<Vec<Arc<dyn RawDevice>>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        (self.answer)()
    }

    fn rejected(&self) -> Vec<Error> {
        self.refused.clone()
    }
}

fn driver(
    kind: Backend,
    answer: impl Fn() -> Result<Vec<Arc<dyn RawDevice>>> + Send + Sync + 'static,
) -> Arc<Scripted> {
    Arc::new(Scripted { kind, asked: AtomicUsize::new(0), answer: Box::new(answer), refused: Vec::new() })
}

/// Creates a driver with hardware (`false`) and software (`true`) devices.
fn devices(kind: Backend, software: &'static [bool]) -> Arc<Scripted> {
    driver(kind, move || {
        let make = |(index, software): (usize, &bool)| -> Arc<dyn RawDevice> {
            TestDevice::new(Options { kind, index, software: *software, ..Options::default() })
        };
        Ok(software.iter().enumerate().map(make).collect())
    })
}

fn registry(drivers: Vec<Arc<Scripted>>) -> Registry {
    let drivers = drivers.into_iter().map(|driver| driver as Arc<dyn Driver>).collect();
    Registry::new(drivers, DeviceOptions::default())
}

const HARDWARE: &[bool] = &[false];

#[test]
fn auto_selects_the_best_hardware() {
    let registry = registry(vec![
        devices(Backend::Cpu, HARDWARE),
        devices(Backend::Vulkan, HARDWARE),
        devices(Backend::OpenCl, &[true, false]),
        driver(Backend::Cuda, || Err(Error::unavailable("libcuda.so.1 is not here; install NVIDIA's driver"))),
    ]);
    let selection = registry.device_report().unwrap().recommended;
    assert_eq!(selection.device.device_string(), "opencl:1");
    assert_eq!((selection.selected_by, selection.is_fallback), (SelectedBy::Auto, false));
    let refused: Vec<String> = selection.rejected.iter().map(|(name, why)| format!("{name}: {why}")).collect();
    assert_eq!(
        refused,
        [
            "cuda: libcuda.so.1 is not here; install NVIDIA's driver",
            "rocm: no driver is registered; register one",
            "metal: no driver is registered; register one",
            "oneapi: no driver is registered; register one",
            "opencl:0: TestDevice is a software implementation and is not chosen automatically; name opencl:0 explicitly to use it",
        ]
    );
    assert_eq!(registry.get("auto").unwrap(), selection.device);
    assert_eq!(selection.to_string(), "opencl:1 (TestDevice), best available device");
}

#[test]
fn cpu_is_reported_as_fallback_without_hardware() {
    let registry = registry(vec![devices(Backend::OpenCl, &[true, true]), devices(Backend::Cpu, HARDWARE)]);
    let selection = registry.device_report().unwrap().recommended;
    assert_eq!(selection.device.device_string(), "cpu");
    assert!(selection.is_fallback);
    assert_eq!(selection.rejected.len(), 9, "seven missing backends, two software devices: {selection:?}");
    assert_eq!(selection.to_string(), "cpu (TestDevice), no accelerator was found");
}

#[test]
fn error_without_devices_lists_every_reason() {
    let registry = registry(vec![driver(Backend::Cpu, || Err(Error::unavailable("no cores")))]);
    let error = registry.device_report().unwrap_err();
    assert!(error.is_unavailable());
    assert_eq!(error.message(), "no usable device");
    assert_eq!(error.notes().len(), 9);
    assert_eq!(error.notes()[8], "cpu: no cores");
}

#[test]
fn devices_are_found_by_name() {
    let registry = registry(vec![
        devices(Backend::Cpu, HARDWARE),
        devices(Backend::OpenCl, &[true, false]),
        driver(Backend::Cuda, || Err(Error::unavailable("libcuda.so.1 is not here; install NVIDIA's driver"))),
        driver(Backend::Rocm, || Ok(Vec::new())),
    ]);
    assert_eq!(registry.get("cpu").unwrap().device_string(), "cpu");
    assert_eq!(registry.get("opencl").unwrap().device_string(), "opencl:0", "explicitly named devices can be software");
    assert_eq!(registry.get("opencl:1").unwrap(), registry.get("opencl:1").unwrap(), "the same device every time");
    for (spelling, message) in [
        (
            "opencl:7",
            "opencl:7: device not found; 2 OpenCL devices here (opencl:0, TestDevice; opencl:1, TestDevice); \
             try opencl:0 or `panoply devices`",
        ),
        (
            "cpu:checked",
            "cpu:checked: device not found; 1 CPU device here (cpu, TestDevice); try cpu or `panoply devices`",
        ),
        ("cuda:0", "cuda:0: device not found; no CUDA here: libcuda.so.1 is not here; install NVIDIA's driver"),
        (
            "dx12",
            "dx12: device not found; no DirectX 12 here: no driver is registered; \
             register one",
        ),
        ("rocm:0", "rocm:0: device not found; no ROCm here: the driver found no devices; see `panoply devices`"),
    ] {
        let error = registry.get(spelling).unwrap_err();
        assert!(error.is_unavailable(), "{error:?}");
        assert_eq!(error.message(), message);
    }
    let error = registry.get("gpu").unwrap_err();
    assert!(error.is_mistake());
}

#[test]
fn hanging_driver_is_abandoned() {
    let (release, hold): (_, Receiver<()>) = channel();
    let hold = Mutex::new(hold);
    let hangs = driver(Backend::Cuda, move || {
        let _ = hold.lock().unwrap().recv();
        Ok(Vec::new())
    });
    let registry = Registry::with_deadline(vec![hangs], DeviceOptions::default(), Duration::from_millis(20));
    for _ in 0..2 {
        assert_eq!(
            registry.get("cuda:0").unwrap_err().message(),
            "cuda:0: device not found; no CUDA here: the driver did not respond within 20ms, its library hangs; \
             try the vendor's own information tool, and reinstall or remove the driver"
        );
    }
    drop(release);
}

/// OpenCL drivers change environment variables, which the libraries of the others read.
#[test]
fn opencl_is_probed_while_no_other_library_is() {
    let both = Arc::new(Barrier::new(2));
    let (running, overlapped) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let (begins, opencl_begins) = channel();
    let opencl_begins = Arc::new(Mutex::new(opencl_begins));
    let other = |kind| {
        let (both, running, opencl_begins) = (both.clone(), running.clone(), opencl_begins.clone());
        driver(kind, move || {
            running.fetch_add(1, Ordering::SeqCst);
            // Passes only if both are probed at the same time.
            both.wait();
            // Time in which OpenCL could begin too.
            let _ = opencl_begins.lock().unwrap().recv_timeout(Duration::from_millis(100));
            running.fetch_sub(1, Ordering::SeqCst);
            Ok(Vec::new())
        })
    };
    let seen = (running.clone(), overlapped.clone());
    let opencl = driver(Backend::OpenCl, move || {
        let (running, overlapped) = &seen;
        overlapped.store(running.load(Ordering::SeqCst) > 0, Ordering::SeqCst);
        let _ = begins.send(());
        Ok(Vec::new())
    });
    let registry =
        registry(vec![other(Backend::Cuda), opencl.clone(), other(Backend::Vulkan), devices(Backend::Cpu, HARDWARE)]);
    registry.device_report().unwrap();
    assert_eq!(opencl.asked.load(Ordering::Relaxed), 1);
    assert!(!overlapped.load(Ordering::SeqCst), "OpenCL was probed beside another library");
}

#[test]
fn opencl_is_probed_although_another_driver_hangs() {
    let (release, hold): (_, Receiver<()>) = channel();
    let hold = Mutex::new(hold);
    let hangs = driver(Backend::Vulkan, move || {
        let _ = hold.lock().unwrap().recv();
        Ok(Vec::new())
    });
    let drivers: Vec<Arc<dyn Driver>> = vec![devices(Backend::OpenCl, HARDWARE), hangs];
    let registry = Registry::with_deadline(drivers, DeviceOptions::default(), Duration::from_millis(200));
    assert_eq!(registry.device_report().unwrap().recommended.device.device_string(), "opencl:0");
    drop(release);
}

#[test]
fn panicking_driver_is_reported() {
    let registry = registry(vec![driver(Backend::OpenCl, || panic!("on purpose")), devices(Backend::Cpu, HARDWARE)]);
    let report = registry.device_report().unwrap();
    assert_eq!(report.recommended.device.device_string(), "cpu");
    assert_eq!(
        registry.get("opencl:0").unwrap_err().message(),
        "opencl:0: device not found; no OpenCL here: the driver panicked during device discovery (on purpose); \
         report this bug"
    );
}

#[test]
fn drivers_are_probed_once_and_only_when_needed() {
    let (cpu, cuda) = (devices(Backend::Cpu, HARDWARE), devices(Backend::Cuda, HARDWARE));
    let registry = registry(vec![cpu.clone(), cuda.clone()]);
    registry.get("cpu").unwrap();
    registry.get("cpu").unwrap();
    assert_eq!((cpu.asked.load(Ordering::Relaxed), cuda.asked.load(Ordering::Relaxed)), (1, 0));
    registry.device_report().unwrap();
    registry.device_report().unwrap();
    assert_eq!((cpu.asked.load(Ordering::Relaxed), cuda.asked.load(Ordering::Relaxed)), (1, 1));
}

#[test]
fn third_party_drivers_can_be_registered() {
    let registry = registry(vec![devices(Backend::Cpu, HARDWARE)]);
    assert_eq!(registry.device_report().unwrap().recommended.device.device_string(), "cpu");
    assert_eq!(registry.recommended().unwrap().device.device_string(), "cpu");
    registry.register(devices(Backend::Metal, HARDWARE));
    assert_eq!(registry.recommended().unwrap().device.device_string(), "metal:0");
    assert_eq!(registry.device_report().unwrap().recommended.device.device_string(), "metal:0");
    assert_eq!(registry.devices(Backend::Metal).unwrap().len(), 1);
}

#[test]
fn device_report_is_formatted() {
    let registry = registry(vec![
        devices(Backend::Cpu, HARDWARE),
        driver(Backend::OpenCl, || Err(Error::unavailable("no platform; install a driver such as pocl-opencl-icd"))),
    ]);
    let broken = Error::unavailable("vulkan: old.so does not load; reinstall it").note("wrong architecture");
    registry.register(Arc::new(Scripted {
        kind: Backend::Vulkan,
        asked: AtomicUsize::new(0),
        answer: Box::new(|| {
            Ok(vec![TestDevice::new(Options { kind: Backend::Vulkan, ..Options::default() }) as Arc<dyn RawDevice>])
        }),
        refused: vec![broken],
    }));
    registry.register(devices(Backend::OneApi, &[true]));
    let report = registry.device_report().unwrap();
    assert_eq!(report.devices().count(), 3);
    let text = report.to_string();
    for line in [
        "✗ CUDA: no driver is registered\n    register one\n",
        "✗ OpenCL: no platform\n    install a driver such as pocl-opencl-icd\n",
        "✓ oneAPI, software only\n    oneapi:0  TestDevice (tests, test device 1), 1 units, 1.0 GiB, software\n",
        "✓ CPU\n    cpu  TestDevice (tests, test device 1), 1 units, 1.0 GiB\n",
        "✓ Vulkan\n    vulkan:0  TestDevice (tests, test device 1), 1 units, 1.0 GiB\n    ✗ old.so does not load; reinstall it\n",
        "Recommended: vulkan:0 (TestDevice), best available device",
    ] {
        assert!(text.contains(line), "{text}");
    }
}

#[test]
fn device_is_selected_by_free_memory() {
    let sized = |kind, memory| {
        driver(kind, move || {
            Ok(vec![TestDevice::new(Options { kind, memory, ..Options::default() }) as Arc<dyn RawDevice>])
        })
    };
    let registry = registry(vec![sized(Backend::OpenCl, 4 << 30), sized(Backend::Cpu, 16 << 30)]);
    assert_eq!(registry.with_free_memory(3 << 30).unwrap().device_string(), "opencl:0");
    let _held = registry.get("opencl:0").unwrap().allocate(2 << 20).unwrap();
    assert_eq!(registry.with_free_memory(4 << 30).unwrap().device_string(), "cpu");
    let error = registry.with_free_memory(17 << 30).unwrap_err();
    assert!(error.is_out_of_memory());
    assert_eq!(error.message(), "no device has room for 17.0 GiB; use a smaller batch or model");
    assert_eq!(error.notes(), ["opencl:0: 4.0 GiB free of 4.0 GiB", "cpu: 16.0 GiB free of 16.0 GiB"]);
}

/// A single test, because the default is global to the process.
#[test]
fn scope_overrides_the_process_default() {
    let (outer, inner) =
        (test_device::test_device(Options::default()).0, test_device::test_device(Options::default()).0);
    let default = test_device::test_device(Options::default()).0;
    let current = || Device::current().unwrap();
    default.set_default();
    assert_eq!(current(), default);
    assert_eq!(panoply_runtime::select_device(None).unwrap().selected_by, SelectedBy::Default);
    outer.scope(|| {
        assert_eq!(panoply_runtime::select_device(None).unwrap().selected_by, SelectedBy::Scope);
        inner.scope(|| assert_eq!(current(), inner));
        assert_eq!(current(), outer);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| inner.scope(|| panic!("on purpose"))));
        assert!(panicked.is_err());
        assert_eq!(current(), outer, "restored after a panic");
        std::thread::scope(|threads| {
            threads.spawn(|| assert_eq!(current(), default, "scopes belong to a thread"));
        });
    });
    assert_eq!(current(), default);
    Device::clear_default();
}
