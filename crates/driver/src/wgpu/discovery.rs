//! Which adapters are here, and why there are none.

use panoply_device::{Error, Kind, Result};
use wgpu::{Adapter, Backend, Backends, Instance, InstanceDescriptor, InstanceFlags};

#[cfg(not(target_family = "wasm"))]
use crate::loader;

/// An adapter that can be used.
pub struct Place {
    /// The adapter; it keeps the interface's library open.
    pub adapter: Adapter,
    /// The interface.
    pub kind: Kind,
    /// Its position in the interface's enumeration.
    pub index: usize,
}

/// Asks an interface for its adapters. Browsers answer only after the program has given way to them, all others at once.
pub async fn enumerate(kind: Kind) -> Result<Vec<Place>> {
    let backend = match kind {
        Kind::Metal => Backend::Metal,
        Kind::Dx12 => Backend::Dx12,
        Kind::WebGpu => Backend::BrowserWebGpu,
        _ => Backend::Vulkan,
    };
    if let Some(missing) = missing(kind) {
        return Err(missing);
    }
    let backends = Backends::from(backend);
    let descriptor = InstanceDescriptor {
        backends,
        // No validation layers: they are for the development of drivers, and change what is measured.
        flags: InstanceFlags::empty(),
        ..InstanceDescriptor::new_without_display_handle()
    };
    let instance = Instance::new(descriptor);
    let mut adapters = instance.enumerate_adapters(backends).await;
    adapters.retain(|adapter| adapter.get_info().backend == backend);
    if adapters.is_empty() {
        return Err(Error::unavailable(match kind {
            Kind::Metal => "metal: no GPU here has Metal; macOS 10.13 on a Mac with a Metal GPU is the least",
            Kind::Dx12 => "dx12: no adapter here has DirectX 12; update the GPU's driver",
            Kind::WebGpu => {
                "webgpu: the browser gives this page no GPU; use a browser with WebGPU (Chrome 113, Safari 26, Firefox 141 or newer) on a \
                 page from https or localhost"
            }
            _ => {
                "vulkan: the loader is here but no driver for it; install the GPU's driver (on Linux mesa-vulkan-drivers or \
                 NVIDIA's), and if VK_ICD_FILENAMES or VK_DRIVER_FILES is set look whether the files it names are there"
            }
        }));
    }
    let place = |(index, adapter)| Place { adapter, kind, index };
    Ok(adapters.into_iter().enumerate().map(place).collect())
}

/// Why an interface cannot be here at all.
fn missing(kind: Kind) -> Option<Error> {
    let elsewhere = |name: &str, system: &str| {
        Some(Error::unavailable(format!("{kind}: {name} exists on {system} only; use another kind here")))
    };
    match kind {
        Kind::Metal if cfg!(not(target_vendor = "apple")) => elsewhere("Metal", "macOS"),
        Kind::Dx12 if cfg!(not(windows)) => elsewhere("DirectX 12", "Windows"),
        Kind::WebGpu if cfg!(not(target_family = "wasm")) => elsewhere("WebGPU", "pages in browsers"),
        Kind::Vulkan if cfg!(any(target_vendor = "apple", target_family = "wasm")) => {
            elsewhere("Vulkan", "Linux, Windows and Android")
        }
        Kind::Vulkan => no_loader(),
        _ => None,
    }
}

/// `wgpu` does not say whether it found Vulkan's loader, so it is looked for as `wgpu` does.
#[cfg(not(target_family = "wasm"))]
fn no_loader() -> Option<Error> {
    let names: &[&str] = if cfg!(windows) { &["vulkan-1.dll"] } else { &["libvulkan.so.1", "libvulkan.so"] };
    let opened = names.iter().map(dlopen2::raw::Library::open::<&&str>);
    let mut failure = String::new();
    for library in opened {
        match library {
            Ok(_) => return None,
            Err(error) => failure = error.to_string(),
        }
    }
    let package =
        if cfg!(windows) { "the GPU's driver" } else { "libvulkan1 and the GPU's driver (mesa-vulkan-drivers)" };
    let error = Error::unavailable(format!("vulkan: its loader {} cannot be opened; install {package}", names[0]));
    Some(loader::passed_over(names).into_iter().fold(error.note(failure), Error::note))
}

#[cfg(target_family = "wasm")]
fn no_loader() -> Option<Error> {
    None
}
