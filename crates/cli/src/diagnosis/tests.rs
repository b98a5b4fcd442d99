//! Diagnoses of faulty set-ups.

use super::*;
use crate::machine::Node;
use crate::machine::tests::{Root, THIS_MACHINE};

#[track_caller]
fn diagnosis(kind: Backend, machine: &Machine) -> (String, String) {
    let Diagnosis { problem, fix } = diagnose(kind, machine).expect("a problem is found");
    (problem, fix)
}

fn card(root: &Root, driver: Option<&str>) {
    root.device("0000:01:00.0", "0x030200\n", "0x10de\n", driver);
}

fn node(path: &str, allowed: bool) -> Node {
    Node { path: path.to_string(), allowed }
}

#[test]
fn machine_without_a_card_has_no_diagnosis() {
    let machine = Root::new("no-card").machine();
    for kind in Backend::ALL {
        assert_eq!(diagnose(kind, &machine), None, "{kind}");
    }
}

#[test]
fn hardware_is_found_by_vendor() {
    let root = Root::new("hardware");
    card(&root, None);
    let mut machine = root.machine();
    assert!(has_hardware(Backend::Cuda, &machine) && !has_hardware(Backend::Rocm, &machine));
    assert!(!has_hardware(Backend::WebGpu, &machine));
    // Cards are not on the bus of WSL.
    machine.wsl = true;
    assert!(has_hardware(Backend::Rocm, &machine));
}

#[cfg(unix)]
#[test]
fn cuda() {
    let root = Root::new("cuda");
    card(&root, Some("nouveau"));
    let (problem, fix) = diagnosis(Backend::Cuda, &root.machine());
    assert_eq!(problem, "the NVIDIA card at 0000:01:00.0 uses the kernel driver nouveau, which CUDA cannot use");
    assert!(fix.contains("install NVIDIA's driver"));

    root.file("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14  Thu\n");
    assert!(diagnosis(Backend::Cuda, &root.machine()).1.contains("nvidia-modprobe"));
    root.file(".dockerenv", "");
    let (problem, fix) = diagnosis(Backend::Cuda, &root.machine());
    assert!(
        problem.contains("not passed to this container (Docker)") && fix.contains("--gpus all"),
        "{problem}; {fix}"
    );

    root.file("dev/nvidia0", "").file("dev/nvidiactl", "");
    let (problem, fix) = diagnosis(Backend::Cuda, &root.machine());
    assert!(problem.ends_with("libcuda.so.1 is not") && fix.contains("NVIDIA_DRIVER_CAPABILITIES"), "{problem}; {fix}");

    root.library("usr/lib64/libcuda.so.1", 3);
    assert!(diagnosis(Backend::Cuda, &root.machine()).0.ends_with("is for another architecture"));
    root.library("searched/stubs/libcuda.so.1", THIS_MACHINE);
    let stub = Machine::read(root.path(), root.path().join("searched/stubs").as_os_str());
    assert!(diagnosis(Backend::Cuda, &stub).0.ends_with("is a stub for linking, not a driver"));

    let mut machine = root.machine();
    machine.loaded = vec!["/usr/lib64/libcuda.so.535.104.05".into()];
    assert_eq!(diagnose(Backend::Cuda, &machine), None, "the library of a container can differ from the module");
    machine.container = None;
    let (problem, fix) = diagnosis(Backend::Cuda, &machine);
    assert_eq!(problem, "libcuda has version 535.104.05, but the kernel module has version 550.54.14");
    assert!(fix.contains("restart"));

    machine.nodes = vec![node("/dev/nvidia0", false)];
    assert_eq!(diagnosis(Backend::Cuda, &machine).0, "/dev/nvidia0 cannot be opened by this user");
}

#[test]
fn wsl_without_a_pci_bus_is_diagnosed_by_its_library() {
    let root = Root::new("wsl");
    root.file("proc/version", "Linux version 5.15.90.1-microsoft-standard-WSL2").file("dev/dxg", "");
    assert_eq!(diagnose(Backend::Cuda, &root.machine()), None);
    root.library("usr/lib/wsl/lib/libcuda.so.1", 3);
    assert!(diagnosis(Backend::Cuda, &root.machine()).0.ends_with("is for another architecture"));
}

#[test]
fn rocm() {
    let root = Root::new("rocm");
    root.device("0000:03:00.0", "0x038000\n", "0x1002\n", None);
    assert!(diagnosis(Backend::Rocm, &root.machine()).1.contains("amdgpu"));
    root.file("run/.containerenv", "");
    assert!(diagnosis(Backend::Rocm, &root.machine()).1.contains("--device=/dev/kfd"));
    let mut machine = root.machine();
    machine.nodes = vec![node("/dev/kfd", false)];
    let (problem, fix) = diagnosis(Backend::Rocm, &machine);
    assert!(problem.starts_with("/dev/kfd cannot") && fix.contains("`render`"), "{problem}; {fix}");
    machine.nodes = vec![node("/dev/kfd", true)];
    assert!(diagnosis(Backend::Rocm, &machine).1.contains("ROCm 5"));
    root.library("usr/lib64/libamdhip64.so.6", THIS_MACHINE);
    machine = root.machine();
    machine.nodes = vec![node("/dev/kfd", true)];
    assert_eq!(diagnose(Backend::Rocm, &machine), None, "the reason of the driver is kept");
}

#[test]
fn loaders_and_render_nodes() {
    let root = Root::new("loaders");
    root.device("0000:00:02.0", "0x030000\n", "0x8086\n", None);
    let (problem, fix) = diagnosis(Backend::OpenCl, &root.machine());
    assert_eq!(problem, "a card by Intel is present, but the loader libOpenCL.so.1 is not");
    assert!(fix.contains("ocl-icd-libopencl1"));
    root.library("usr/lib64/libvulkan.so.1", THIS_MACHINE);
    let mut machine = root.machine();
    assert_eq!(diagnose(Backend::Vulkan, &machine), None, "the reason of the driver is kept");
    machine.nodes = vec![node("/dev/dri/renderD128", false)];
    assert!(diagnosis(Backend::Vulkan, &machine).0.starts_with("/dev/dri/renderD128 cannot"));
}
