//! Finds the reason why a driver does not work on this machine, and how to fix it.

use panoply::internal::library_search::Library;
use panoply::runtime::Backend;

use crate::machine::{Card, Machine};

const NVIDIA: u16 = 0x10de;
const AMD: u16 = 0x1002;
const INTEL: u16 = 0x8086;

/// A problem and its fix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnosis {
    /// The problem.
    pub problem: String,
    /// The fix.
    pub fix: String,
}

impl Diagnosis {
    fn new(problem: impl Into<String>, fix: impl Into<String>) -> Option<Diagnosis> {
        Some(Diagnosis { problem: problem.into(), fix: fix.into() })
    }
}

/// Returns the library of a backend, if there is one.
pub fn library(kind: Backend, machine: &Machine) -> Option<Library> {
    names(kind).iter().find_map(|name| machine.library(name))
}

/// Returns the possible names of that library, the most likely first.
fn names(kind: Backend) -> &'static [&'static str] {
    match kind {
        Backend::Cuda => &["libcuda.so.1"],
        Backend::Rocm => &["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"],
        Backend::OneApi => &["libOpenCL.so.1", "libvulkan.so.1", "libze_loader.so.1"],
        Backend::OpenCl => &["libOpenCL.so.1"],
        Backend::Vulkan => &["libvulkan.so.1"],
        Backend::Metal | Backend::Dx12 | Backend::WebGpu | Backend::Cpu => &[],
    }
}

/// Returns true if this machine can have devices of a backend: the system has the interface, and there is a card, or the bus is not visible.
pub fn has_hardware(kind: Backend, machine: &Machine) -> bool {
    let exists = match kind {
        Backend::Metal => cfg!(target_vendor = "apple"),
        Backend::Dx12 => cfg!(windows),
        Backend::Cuda | Backend::Rocm | Backend::OneApi | Backend::Vulkan => cfg!(not(target_vendor = "apple")),
        Backend::WebGpu => false,
        Backend::OpenCl | Backend::Cpu => true,
    };
    let is_hidden = !machine.bus || machine.wsl;
    let of = |vendor: u16| machine.cards_of(vendor).next().is_some();
    let has_card = match kind {
        Backend::Cuda => of(NVIDIA) || machine.nvidia_module.is_some(),
        Backend::Rocm => of(AMD),
        Backend::OneApi => of(INTEL),
        Backend::OpenCl | Backend::Vulkan | Backend::Metal | Backend::Dx12 | Backend::WebGpu => {
            machine.cards.iter().any(is_gpu)
        }
        Backend::Cpu => true,
    };
    exists && (is_hidden || has_card)
}

/// Returns true unless the card only shows the screen of a virtual machine.
fn is_gpu(card: &Card) -> bool {
    card.maker() != "virtual" && card.maker() != "other"
}

/// Returns why a backend without devices has none although the hardware is present; `None` if nothing is wrong.
pub fn diagnose(kind: Backend, machine: &Machine) -> Option<Diagnosis> {
    match kind {
        Backend::Cuda => cuda(machine),
        Backend::Rocm => rocm(machine),
        Backend::OpenCl | Backend::Vulkan => loader(kind, machine).or_else(|| render_nodes(machine)),
        Backend::OneApi | Backend::Metal | Backend::Dx12 | Backend::WebGpu | Backend::Cpu => None,
    }
}

fn cuda(machine: &Machine) -> Option<Diagnosis> {
    let card = machine.cards_of(NVIDIA).next();
    // In WSL the card is not on the PCI bus; the library exists if the card is from NVIDIA.
    let through_windows = machine.wsl && library(Backend::Cuda, machine).is_some();
    if card.is_none() && machine.nvidia_module.is_none() && !through_windows {
        return None;
    }
    let what = card.map_or("an NVIDIA card".to_string(), |card| format!("the NVIDIA card at {}", card.address));
    if let Some(denied) = machine.nodes_under("/dev/nvidia").find(|node| !node.allowed) {
        return Diagnosis::new(
            format!("{} cannot be opened by this user", denied.path),
            "join the group that owns it, or ask for access by a udev rule",
        );
    }
    let nodes = machine.nodes_under("/dev/nvidia").any(|node| node.path != "/dev/nvidia-uvm");
    if !through_windows && !nodes {
        if let Some(container) = machine.container {
            return Diagnosis::new(
                format!("{what} is not passed to this container ({container}): /dev/nvidia0 is missing"),
                "start the container with `--gpus all`, which needs the NVIDIA Container Toolkit on the host",
            );
        }
        return match (&machine.nvidia_module, card.and_then(|card| card.driver.as_deref())) {
            (Some(_), _) => {
                Diagnosis::new("NVIDIA's kernel module is loaded, but /dev/nvidia0 is missing", "run `nvidia-modprobe`")
            }
            (None, Some(other)) => Diagnosis::new(
                format!("{what} uses the kernel driver {other}, which CUDA cannot use"),
                "install NVIDIA's driver and restart",
            ),
            (None, None) => {
                Diagnosis::new(format!("{what} has no kernel driver"), "install NVIDIA's driver and restart")
            }
        };
    }
    let Some(library) = library(Backend::Cuda, machine) else {
        let version = machine.nvidia_module.as_ref().map_or(String::new(), |version| format!(" of version {version}"));
        return Diagnosis::new(
            format!("{what} is present, but its library libcuda.so.1 is not"),
            match machine.container {
                Some(_) => {
                    "start the container with `--gpus all` and NVIDIA_DRIVER_CAPABILITIES=compute,utility".to_string()
                }
                None => format!(
                    "install NVIDIA's user-space driver{version} (the package is called libcuda1 or nvidia-utils)"
                ),
            },
        );
    };
    if let Some(flaw) = library.flaw {
        return Diagnosis::new(
            format!("{} {flaw}", library.path.display()),
            "remove its folder from LD_LIBRARY_PATH, or install NVIDIA's driver for this architecture",
        );
    }
    let file = library.path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let version = file.strip_prefix("libcuda.so.").filter(|version| version.contains('.'));
    // A container can hold a newer compatibility library for an older module.
    let compatible = machine.container.is_some() || library.path.components().any(|part| part.as_os_str() == "compat");
    if let (Some(library), Some(module)) = (version, &machine.nvidia_module)
        && library != module
        && !compatible
    {
        return Diagnosis::new(
            format!("libcuda has version {library}, but the kernel module has version {module}"),
            "restart the machine or reload the module, so that both versions are equal",
        );
    }
    None
}

fn rocm(machine: &Machine) -> Option<Diagnosis> {
    let card = machine.cards_of(AMD).next()?;
    let what = format!("the AMD card at {}", card.address);
    if let Some(denied) =
        machine.nodes_under("/dev/kfd").chain(machine.nodes_under("/dev/dri/")).find(|node| !node.allowed)
    {
        return Diagnosis::new(
            format!("{} cannot be opened by this user", denied.path),
            "join the groups `render` and `video`, and log in again",
        );
    }
    if machine.nodes_under("/dev/kfd").next().is_none() {
        if let Some(container) = machine.container {
            return Diagnosis::new(
                format!("{what} is not passed to this container ({container}): /dev/kfd is missing"),
                "start the container with `--device=/dev/kfd --device=/dev/dri`",
            );
        }
        return Diagnosis::new(
            format!("{what} has no /dev/kfd"),
            "install the amdgpu kernel driver of ROCm and restart",
        );
    }
    match library(Backend::Rocm, machine) {
        Some(Library { path, flaw }) => {
            Diagnosis::new(format!("{} {}", path.display(), flaw?), "install ROCm for this architecture")
        }
        None => Diagnosis::new(
            format!("{what} is present, but ROCm's library is not"),
            "install the HIP runtime of ROCm 5 or newer, or use the card as opencl or vulkan",
        ),
    }
}

/// Checks the loader library of the interface, which is separate from the drivers.
fn loader(kind: Backend, machine: &Machine) -> Option<Diagnosis> {
    let card = machine.cards.iter().find(|card| is_gpu(card))?;
    let name = names(kind).first()?;
    let package = if kind == Backend::OpenCl { "ocl-icd-libopencl1" } else { "libvulkan1" };
    match library(kind, machine) {
        Some(library) => {
            let flaw = library.flaw?;
            Diagnosis::new(format!("{} {flaw}", library.path.display()), format!("install the package {package}"))
        }
        None => Diagnosis::new(
            format!("a card by {} is present, but the loader {name} is not", card.maker()),
            format!("install the package {package} and the card's own driver"),
        ),
    }
}

fn render_nodes(machine: &Machine) -> Option<Diagnosis> {
    let denied = machine.nodes_under("/dev/dri/").find(|node| !node.allowed)?;
    Diagnosis::new(
        format!("{} cannot be opened by this user", denied.path),
        "join the groups `render` and `video`, and log in again",
    )
}

#[cfg(test)]
mod tests;
