//! AMD's driver library, and the functions that only it has.

use std::ffi::{CStr, c_void};
use std::path::Path;
use std::sync::{Arc, OnceLock};

use panoply_device::{Backend, BinaryFormat, Language, Peer, ProgramForm, Result, SourceText};

use super::hipblaslt::HipBlasLt;
use super::rocblas::RocBlas;
use super::{compiler, discovery, errors};
use crate::library::{DevicePtr, Handle, Opened, Words, check, functions};
use crate::stream::blas::{GemmRequest, Library};
use crate::stream::compiler::Compiler;
use crate::stream::discovery::{Api, DiscoveredDevice, Traits};
use crate::stream::functions::Functions;
use crate::stream::handles::Context;
use crate::stream::vendor::{Brand, Vendor, halves};

/// Names, messages and constants of ROCm.
pub const BRAND: Brand = Brand {
    words: Words {
        kind: Backend::Rocm.name(),
        files: if cfg!(windows) {
            &["amdhip64_7.dll", "amdhip64_6.dll", "amdhip64.dll"]
        } else {
            &[
                "libamdhip64.so.7",
                "libamdhip64.so.6",
                "libamdhip64.so.5",
                "libamdhip64.so",
                "/opt/rocm/lib/libamdhip64.so",
            ]
        },
        prefix: "hip",
        install: "install ROCm's HIP runtime if this machine has an AMD GPU",
        lacking: "so it is not a HIP runtime or is older than ROCm 5; update ROCm",
    },
    codes: errors::CODES,
    oldest_driver: 50_000_000,
    version: |number| format!("ROCm {}.{}", number / 10_000_000, number / 100_000 % 100),
    update: "update ROCm",
    takes: &[ProgramForm::Image(BinaryFormat::CodeObject), ProgramForm::Text(Language::Hip)],
    // The hardware counts work-items in 32 bits.
    max_items: u32::MAX as u64,
    launches_in_parts: false,
    copies_pageable: false,
    // hipKernelNodeParams: block, extra, function, grid, arguments, shared bytes.
    node: |launch| {
        let ([gx, gy, gz], [bx, by, bz]) = (launch.groups, launch.size);
        let params = launch.params.addr() as u64;
        [halves(bx, by), halves(bz, 0), 0, launch.function as u64, halves(gx, gy), halves(gz, 0), params, 0]
    },
    pools_attribute: 88,
};

functions! {
    /// The functions that only AMD's library has.
    Only
    needed {
        device_of_thread(*mut i32) "hipGetDevice";
        set_device_of_thread(i32) "hipSetDevice";
        copy_peer(DevicePtr, i32, DevicePtr, i32, usize, Handle) "hipMemcpyPeerAsync";
        properties(*mut c_void, i32) "hipGetDevicePropertiesR0600" "hipGetDeviceProperties";
    }
    optional {
        newer_properties(*mut c_void, i32) "hipGetDevicePropertiesR0600";
    }
}

/// Offset of `gcnArchName` in `hipDeviceProp_t`: before ROCm 6, and since.
const ARCHITECTURE_AT: [usize; 2] = [396, 1160];
/// Size of the buffer for the properties, in 64-bit words, with room for later versions; those of ROCm 7 have 1472 bytes.
const PROPERTIES_WORDS: usize = 1024;

/// The libraries for matrix products to search for.
pub struct WantedProducts {
    pub hipblaslt: GemmRequest,
    pub rocblas: GemmRequest,
}

/// Opens a library and its compiler; `None` opens the library that the system finds.
pub fn open(chosen: Option<&Path>, wanted: WantedProducts) -> Result<Api> {
    let library = Opened::open(&BRAND.words, chosen)?;
    let functions = Functions::find(&library, &BRAND.words)?;
    let only = Only::find(&library, &BRAND.words)?;
    let compiler = Compiler::of(&compiler::HIPRTC, &library)?;
    let vendor = Hip { only, compiler, wanted, hipblaslt: OnceLock::new(), rocblas: OnceLock::new() };
    Ok(Api { functions, vendor: Box::new(vendor), library })
}

/// Returns a library's compiler and the driver's version in its own counting.
pub fn compiler(chosen: Option<&Path>) -> Result<(Compiler, i32)> {
    let library = Opened::open(&BRAND.words, chosen)?;
    let functions = Functions::find(&library, &BRAND.words)?;
    let mut driver = 0;
    // SAFETY: the pointer is valid, and this function can be called before the driver is initialized.
    let known = check(unsafe { (functions.driver_version)(&mut driver) });
    known.map_err(|code| BRAND.codes.unavailable("rocm: querying the driver's version", code))?;
    Ok((Compiler::of(&compiler::HIPRTC, &library)?, driver))
}

/// ROCm as a vendor.
struct Hip {
    only: Only,
    compiler: Compiler,
    wanted: WantedProducts,
    /// The libraries for matrix products, opened after the first device was found.
    hipblaslt: OnceLock<Result<Arc<HipBlasLt>>>,
    rocblas: OnceLock<Result<Arc<RocBlas>>>,
}

impl Hip {
    /// Returns the architecture that a device's code is compiled for, such as `gfx90a`; empty if the driver does not report it.
    fn architecture(&self, device: i32) -> String {
        let mut properties = [0u64; PROPERTIES_WORDS];
        // SAFETY: the buffer is larger than the properties of any version.
        let code = unsafe { (self.only.properties)(properties.as_mut_ptr().cast(), device) };
        let at = ARCHITECTURE_AT[usize::from(self.only.newer_properties.is_some())];
        let bytes: Vec<u8> = properties.iter().flat_map(|word| word.to_ne_bytes()).skip(at).take(256).collect();
        let name = CStr::from_bytes_until_nul(&bytes).unwrap_or_default().to_string_lossy();
        // The text after a colon is the device's configuration, which code does not have to fix.
        let name = name.split(':').next().unwrap_or_default();
        if code == 0 { name.to_string() } else { String::new() }
    }
}

impl Vendor for Hip {
    fn brand(&self) -> &'static Brand {
        &BRAND
    }

    fn traits(&self, place: &DiscoveredDevice) -> Result<Traits> {
        discovery::traits(place, self.architecture(place.device))
    }

    fn retain(&self, device: i32) -> Result<Handle, i32> {
        let mut before = 0;
        // SAFETY: the pointer is valid.
        check(unsafe { (self.only.device_of_thread)(&mut before) })?;
        // Set even if it is the thread's device already: every thread begins with the first device, even if that one is broken.
        // SAFETY: the device was enumerated.
        check(unsafe { (self.only.set_device_of_thread)(device) })?;
        self.leave(device, before as Handle);
        Ok(0)
    }

    fn give_back(&self, _device: i32) {}

    fn enter(&self, device: i32, _shared: Handle) -> Result<Handle, i32> {
        let mut before = 0;
        // SAFETY: the pointer is valid.
        check(unsafe { (self.only.device_of_thread)(&mut before) })?;
        if before != device {
            // SAFETY: the device was enumerated.
            check(unsafe { (self.only.set_device_of_thread)(device) })?;
        }
        Ok(before as Handle)
    }

    fn leave(&self, device: i32, before: Handle) {
        if before as i32 != device {
            // SAFETY: it was the thread's device.
            unsafe { (self.only.set_device_of_thread)(before as i32) };
        }
    }

    fn fill_64(&self, functions: &Functions, to: DevicePtr, word: u64, count: usize, stream: Handle) -> i32 {
        // Fill the first element, then double the filled range with each copy.
        let bytes = 8 * count;
        let mut filled = 8;
        // SAFETY: the caller guarantees memory and stream; source and destination of each copy do not overlap.
        unsafe {
            let mut code = (functions.fill_32)(to, word as u32, 1, stream);
            if code == 0 {
                code = (functions.fill_32)(to + 4, (word >> 32) as u32, 1, stream);
            }
            while code == 0 && filled < bytes {
                let more = filled.min(bytes - filled);
                code = (functions.copy)(to + filled as u64, to, more, stream);
                filled += more;
            }
            code
        }
    }

    fn copy_peer(&self, to: Peer, from: Peer, bytes: usize, stream: Handle) -> i32 {
        // SAFETY: both ranges are inside live allocations of the two devices.
        unsafe { (self.only.copy_peer)(to.address, to.device, from.address, from.device, bytes, stream) }
    }

    fn products(&self, place: &DiscoveredDevice) -> Result<Vec<Arc<dyn Library>>> {
        let (kind, architecture) = (BRAND.words.kind, &place.traits.architecture);
        let open = || Ok(Arc::new(HipBlasLt::open(self.wanted.hipblaslt.path(kind)?)?));
        let hipblaslt = self.hipblaslt.get_or_init(open).clone();
        let hipblaslt =
            hipblaslt.and_then(|library| library.serves(architecture).map(|()| library as Arc<dyn Library>));
        let open = || Ok(Arc::new(RocBlas::open(self.wanted.rocblas.path(kind)?)?));
        let rocblas = self.rocblas.get_or_init(open).clone();
        let rocblas = rocblas.and_then(|library| library.serves(architecture).map(|()| library as Arc<dyn Library>));
        match (hipblaslt, rocblas) {
            (Err(other), Err(error)) => Err(error.note(other.message())),
            found => Ok([found.0, found.1].into_iter().flatten().collect()),
        }
    }

    fn compile(&self, context: &Context, text: &SourceText) -> Result<Vec<u8>> {
        compiler::compile(&self.compiler, &context.label, &context.traits.architecture, text)
    }
}
