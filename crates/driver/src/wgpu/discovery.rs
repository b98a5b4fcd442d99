//! Finds the adapters of an API, and the reason why there are none.

use panoply_device::{Backend, Error, Result};
use wgpu::{Adapter, Backends, Instance, InstanceDescriptor, InstanceFlags};

#[cfg(not(target_family = "wasm"))]
use crate::library_search;

/// A usable adapter.
pub struct DiscoveredDevice {
    /// The adapter; it keeps the API's library open.
    pub adapter: Adapter,
    /// The API.
    pub kind: Backend,
    /// Its position in the API's enumeration.
    pub index: usize,
}

/// Enumerates an API's adapters. The future is pending only in browsers.
pub async fn enumerate(kind: Backend) -> Result<Vec<DiscoveredDevice>> {
    let backend = match kind {
        Backend::Metal => wgpu::Backend::Metal,
        Backend::Dx12 => wgpu::Backend::Dx12,
        Backend::WebGpu => wgpu::Backend::BrowserWebGpu,
        _ => wgpu::Backend::Vulkan,
    };
    if let Some(missing) = missing(kind) {
        return Err(missing);
    }
    let backends = Backends::from(backend);
    let descriptor = InstanceDescriptor {
        backends,
        // No validation layers: they are for driver development, and change performance.
        flags: InstanceFlags::empty(),
        ..InstanceDescriptor::new_without_display_handle()
    };
    let instance = Instance::new(descriptor);
    let mut adapters = instance.enumerate_adapters(backends).await;
    adapters.retain(|adapter| adapter.get_info().backend == backend);
    if adapters.is_empty() {
        return Err(Error::unavailable(match kind {
            Backend::Metal => "metal: no GPU supports Metal; use a Mac with a Metal GPU and macOS 10.13 or later",
            Backend::Dx12 => "dx12: no adapter supports DirectX 12; update the GPU's driver",
            Backend::WebGpu => {
                "webgpu: the browser gives this page no GPU; use a browser with WebGPU (Chrome 113, Safari 26, Firefox 141 or newer) on a \
                 page from https or localhost"
            }
            _ => {
                "vulkan: the loader found no driver; install the GPU's driver (on Linux mesa-vulkan-drivers or NVIDIA's), and if \
                 VK_ICD_FILENAMES or VK_DRIVER_FILES is set check that the files it names exist"
            }
        }));
    }
    let place = |(index, adapter)| DiscoveredDevice { adapter, kind, index };
    Ok(adapters.into_iter().enumerate().map(place).collect())
}

/// Returns the error for an API that cannot exist on this system or whose loader is missing.
fn missing(kind: Backend) -> Option<Error> {
    let elsewhere =
        |name: &str, system: &str| Some(Error::unavailable(format!("{kind}: {name} exists on {system} only")));
    match kind {
        Backend::Metal if cfg!(not(target_vendor = "apple")) => elsewhere("Metal", "macOS"),
        Backend::Dx12 if cfg!(not(windows)) => elsewhere("DirectX 12", "Windows"),
        Backend::WebGpu if cfg!(not(target_family = "wasm")) => elsewhere("WebGPU", "pages in browsers"),
        Backend::Vulkan if cfg!(any(target_vendor = "apple", target_family = "wasm")) => {
            elsewhere("Vulkan", "Linux, Windows and Android")
        }
        Backend::Vulkan => no_loader(),
        _ => None,
    }
}

/// Searches for Vulkan's loader in the same way as `wgpu`, which does not report whether it found it.
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
    Some(library_search::passed_over(names).into_iter().fold(error.note(failure), Error::note))
}

#[cfg(target_family = "wasm")]
fn no_loader() -> Option<Error> {
    None
}
