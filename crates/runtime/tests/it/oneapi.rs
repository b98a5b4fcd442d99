//! The oneAPI backend: Intel GPUs in a registry, with or without other drivers that reach them.

use std::sync::Arc;

use panoply_device::null::{NullDevice, NullDriver};
use panoply_device::{DeviceInfo, Driver, RawDevice};
use panoply_driver::OneApiDriver;
use panoply_ir::{Error, Result, Target};
use panoply_runtime::{Backend, DeviceOptions, Registry};

/// Creates a device with the given properties; `identity` is its address on the bus.
fn device(kind: Backend, index: usize, vendor: &str, ty: &str, identity: Option<&str>) -> Arc<NullDevice> {
    let target = if kind == Backend::Vulkan { Target::webgpu_minimum() } else { Target::spirv_minimum() };
    let null = NullDevice::new(target);
    let info = DeviceInfo {
        kind,
        index,
        variant: None,
        name: format!("{vendor} {ty} {index}"),
        vendor: vendor.into(),
        driver: format!("{vendor} 24.1"),
        is_software: ty == "cpu",
        physical_id: identity.map(str::to_string),
        details: vec![("type".into(), ty.into())],
        ..null.info().clone()
    };
    Arc::new(null.with_info(info))
}

fn driver(kind: Backend, devices: Result<Vec<Arc<NullDevice>>>) -> Arc<dyn Driver> {
    Arc::new(NullDriver { kind, devices, refused: Vec::new() })
}

fn registry(opencl: Result<Vec<Arc<NullDevice>>>, vulkan: Result<Vec<Arc<NullDevice>>>) -> Registry {
    let routes = vec![driver(Backend::OpenCl, opencl.clone()), driver(Backend::Vulkan, vulkan)];
    let oneapi = OneApiDriver { routes, bus: None, software: false };
    Registry::new(vec![Arc::new(oneapi), driver(Backend::OpenCl, opencl)], DeviceOptions::default())
}

const INTEL: &str = "Intel(R) Corporation";

#[test]
fn oneapi_uses_the_driver_that_reaches_the_gpu() {
    let opencl = vec![
        device(Backend::OpenCl, 0, INTEL, "cpu", None),
        device(Backend::OpenCl, 1, "NVIDIA Corporation", "gpu", Some("0000:01:00.0")),
        device(Backend::OpenCl, 2, INTEL, "accelerator", None),
        device(Backend::OpenCl, 3, INTEL, "gpu", Some("0000:00:02.0")),
        // Mesa's OpenCL lists the same GPU again.
        device(Backend::OpenCl, 4, "Intel", "gpu", Some("0000:00:02.0")),
        device(Backend::OpenCl, 5, INTEL, "gpu", Some("0000:03:00.0")),
        device(Backend::OpenCl, 6, INTEL, "gpu", None),
    ];
    let counted = opencl[3].clone();
    let registry = registry(Ok(opencl), Err(Error::unavailable("vulkan: must not be probed")));
    let found = registry.devices(Backend::OneApi).unwrap();
    let lines: Vec<String> = found.iter().map(|found| format!("{found}: {}", found.info().driver)).collect();
    let through = |index: usize, opencl: usize| format!("oneapi:{index}: {INTEL} 24.1, through opencl:{opencl}");
    assert_eq!(lines, [through(0, 3), through(1, 5), through(2, 6)]);
    assert_eq!(found[0].info().details.last().unwrap(), &("served through".to_string(), "opencl:3".to_string()));
    assert_eq!(registry.recommended().unwrap().device, found[0], "it is preferred to the same GPU through OpenCL");
    // The underlying device does the work.
    let held = found[0].allocate(1000).unwrap();
    assert_eq!(counted.counts().allocations, 1);
    drop(held);
}

/// Rejections of the underlying driver are passed on; unused drivers report nothing.
#[test]
fn rejections_of_the_route_are_passed_on() {
    let route = |kind, vendor: &str| -> Arc<dyn Driver> {
        let refused = vec![Error::unavailable(format!("{kind}:1: too old; update it"))];
        Arc::new(NullDriver { kind, devices: Ok(vec![device(kind, 0, vendor, "gpu", None)]), refused })
    };
    for (opencl, expected) in [(INTEL, "opencl:1: too old; update it"), ("AMD", "vulkan:1: too old; update it")] {
        let routes = vec![route(Backend::OpenCl, opencl), route(Backend::Vulkan, INTEL)];
        let refused = OneApiDriver { routes, bus: None, software: false }.rejected();
        assert_eq!(refused.iter().map(Error::message).collect::<Vec<_>>(), [expected]);
    }
    let routes = vec![route(Backend::OpenCl, "AMD")];
    assert!(OneApiDriver { routes, bus: None, software: false }.rejected().is_empty());
}

#[test]
fn vulkan_is_used_if_opencl_is_missing() {
    let gpu = || Ok(vec![device(Backend::Vulkan, 0, "Intel", "gpu", Some("0000:00:02.0"))]);
    for opencl in
        [Err(Error::unavailable("opencl: libOpenCL.so.1 cannot be loaded; install the loader")), Ok(Vec::new())]
    {
        let found = registry(opencl, gpu()).devices(Backend::OneApi).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].info().driver, "Intel 24.1, through vulkan:0");
    }
}

#[test]
fn reason_is_correct_without_a_gpu() {
    let missing = || Err(Error::unavailable("opencl: libOpenCL.so.1 cannot be loaded; install the loader"));
    let absent = || Err(Error::unavailable("vulkan: its loader libvulkan.so.1 cannot be opened; install it"));
    let others =
        || Ok(vec![device(Backend::OpenCl, 0, INTEL, "cpu", None), device(Backend::OpenCl, 1, "AMD", "gpu", None)]);
    for (opencl, vulkan, expected, notes) in [
        (
            missing(),
            absent(),
            "oneapi: no driver for Intel GPUs is installed; install Intel's GPU driver (package intel-opencl-icd), \
             or Mesa's for Vulkan (package mesa-vulkan-drivers)",
            2,
        ),
        (
            others(),
            absent(),
            "oneapi: no Intel GPU was found, OpenCL has 2 other devices; if this machine has one, install its driver \
             (package intel-opencl-icd)",
            1,
        ),
        (
            others(),
            Ok(vec![device(Backend::Vulkan, 0, "Mesa", "cpu", None)]),
            "oneapi: no Intel GPU was found, OpenCL has 2 other devices and Vulkan has one other device; if this machine \
             has one, install its driver (package intel-opencl-icd)",
            0,
        ),
    ] {
        let error = registry(opencl, vulkan).devices(Backend::OneApi).unwrap_err();
        assert!(error.is_unavailable());
        assert_eq!((error.message(), error.notes().len()), (expected, notes));
    }
}

/// A simulated bus with devices, each with vendor and class as Linux formats them.
#[test]
fn probed_drivers_depend_on_the_bus() {
    let scratch = std::env::temp_dir().join(format!("panoply-bus-{}", std::process::id()));
    let unavailable = || driver(Backend::OpenCl, Err(Error::unavailable("opencl: asked")));
    for (name, devices, asked) in [
        ("none", &[("0x10de", "0x030000"), ("0x8086", "0x020000")][..], false),
        ("gpu", &[("0x10de", "0x030200"), ("0x8086", "0x038000")], true),
        ("empty", &[], true),
    ] {
        let bus = scratch.join(name);
        std::fs::create_dir_all(&bus).unwrap();
        for (at, (vendor, class)) in devices.iter().enumerate() {
            let place = bus.join(format!("0000:00:{at:02x}.0"));
            std::fs::create_dir_all(&place).unwrap();
            std::fs::write(place.join("vendor"), format!("{vendor}\n")).unwrap();
            std::fs::write(place.join("class"), format!("{class}\n")).unwrap();
        }
        for bus in [bus, scratch.join("not there")] {
            let asked = asked || bus.ends_with("not there");
            let error =
                // SAFETY: no device is used.
                unsafe { OneApiDriver { routes: vec![unavailable()], bus: Some(bus), software: false }.probe() }.map(drop).unwrap_err();
            let because = if asked { "no driver for Intel GPUs is" } else { "no Intel GPU is on this machine's bus" };
            assert!(error.is_unavailable() && error.message().contains(because), "{name}: {error}");
        }
    }
    std::fs::remove_dir_all(scratch).unwrap();
}
