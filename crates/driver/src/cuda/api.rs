//! The functions of NVIDIA's driver library, found by name when it is opened.
//!
//! Handles are addresses of the driver's own objects and are never looked into. A function that older drivers lack is an `Option`.

use std::ffi::{c_char, c_void};
use std::mem::ManuallyDrop;
use std::path::Path;
use std::sync::Arc;

use dlopen2::raw::Library;
use panoply_device::{Error, Result};

/// An object of the driver.
pub type Handle = usize;
/// An address in a device's memory.
pub type DevicePtr = u64;

/// Where the library is called what, in the order in which names are tried. The last one is Windows' Linux.
#[cfg(not(windows))]
const NAMES: [&str; 3] = ["libcuda.so.1", "libcuda.so", "/usr/lib/wsl/lib/libcuda.so.1"];
#[cfg(windows)]
const NAMES: [&str; 1] = ["nvcuda.dll"];

macro_rules! functions {
    (
        needed { $($name:ident $(or $older:ident)? ($($ty:ty),*);)* }
        optional { $($option:ident ($($option_ty:ty),*);)* }
    ) => {
        /// The library's functions; each is what NVIDIA's documentation says.
        #[allow(non_snake_case, reason = "NVIDIA's names")]
        pub struct Api {
            $(pub $name: unsafe extern "system" fn($($ty),*) -> i32,)*
            $(pub $option: Option<unsafe extern "system" fn($($option_ty),*) -> i32>,)*
            /// Never closed: the driver has threads of its own, and others may use it.
            _library: ManuallyDrop<Library>,
        }

        impl Api {
            fn find(library: Library, file: &str) -> Result<Api> {
                let missing = |name: &str| {
                    Error::unavailable(format!(
                        "cuda: {file} lacks {name}, so it is no NVIDIA driver or one before CUDA 9; update the driver"
                    ))
                };
                Ok(Api {
                    // SAFETY: the types are those of NVIDIA's header `cuda.h`.
                    $($name: unsafe { library.symbol(stringify!($name)) }
                        $(.or_else(|_| {
                            // SAFETY: as above.
                            unsafe { library.symbol(stringify!($older)) }
                        }))?
                        .map_err(|_| missing(stringify!($name)))?,)*
                    // SAFETY: as above.
                    $($option: unsafe { library.symbol(stringify!($option)) }.ok(),)*
                    _library: ManuallyDrop::new(library),
                })
            }
        }
    };
}

functions! {
    needed {
        cuInit(u32);
        cuDriverGetVersion(*mut i32);
        cuDeviceGetCount(*mut i32);
        cuDeviceGet(*mut i32, i32);
        cuDeviceGetName(*mut c_char, i32, i32);
        cuDeviceTotalMem_v2(*mut usize, i32);
        cuDeviceGetAttribute(*mut i32, i32, i32);
        cuDevicePrimaryCtxRetain(*mut Handle, i32);
        cuDevicePrimaryCtxRelease_v2 or cuDevicePrimaryCtxRelease(i32);
        cuCtxPushCurrent_v2(Handle);
        cuCtxPopCurrent_v2(*mut Handle);
        cuMemGetInfo_v2(*mut usize, *mut usize);
        cuMemAlloc_v2(*mut DevicePtr, usize);
        cuMemFree_v2(DevicePtr);
        cuMemHostAlloc(*mut *mut c_void, usize, u32);
        cuMemFreeHost(*mut c_void);
        cuMemcpyHtoDAsync_v2(DevicePtr, *const c_void, usize, Handle);
        cuMemcpyDtoHAsync_v2(*mut c_void, DevicePtr, usize, Handle);
        cuMemcpyDtoDAsync_v2(DevicePtr, DevicePtr, usize, Handle);
        cuMemsetD8Async(DevicePtr, u8, usize, Handle);
        cuMemsetD16Async(DevicePtr, u16, usize, Handle);
        cuMemsetD32Async(DevicePtr, u32, usize, Handle);
        cuMemsetD2D32Async(DevicePtr, usize, u32, usize, usize, Handle);
        cuStreamCreate(*mut Handle, u32);
        cuStreamDestroy_v2(Handle);
        cuStreamSynchronize(Handle);
        cuStreamWaitEvent(Handle, Handle, u32);
        cuEventCreate(*mut Handle, u32);
        cuEventRecord(Handle, Handle);
        cuEventQuery(Handle);
        cuEventSynchronize(Handle);
        cuEventElapsedTime(*mut f32, Handle, Handle);
        cuEventDestroy_v2(Handle);
        cuLinkCreate_v2(u32, *const i32, *const *mut c_void, *mut Handle);
        cuLinkAddData_v2(Handle, i32, *const c_void, usize, *const c_char, u32, *const i32, *const *mut c_void);
        cuLinkComplete(Handle, *mut *const c_void, *mut usize);
        cuLinkDestroy(Handle);
        cuModuleLoadData(*mut Handle, *const c_void);
        cuModuleUnload(Handle);
        cuModuleGetFunction(*mut Handle, Handle, *const c_char);
        cuLaunchKernel(Handle, u32, u32, u32, u32, u32, u32, u32, Handle, *const *const c_void, *const *const c_void);
    }
    optional {
        cuMemAllocAsync(*mut DevicePtr, usize, Handle);
        cuMemFreeAsync(DevicePtr, Handle);
    }
}

impl Api {
    /// Opens a library, or the one the system finds.
    pub fn open(chosen: Option<&Path>) -> Result<Arc<Api>> {
        let names: Vec<&Path> = chosen.map_or_else(|| NAMES.iter().map(Path::new).collect(), |path| vec![path]);
        let mut why = Vec::new();
        for name in names {
            match Library::open(name) {
                Ok(library) => return Ok(Arc::new(Api::find(library, &name.display().to_string())?)),
                Err(error) => why.push((name, error.to_string())),
            }
        }
        let absent = Error::unavailable(format!(
            "cuda: {} cannot be loaded; install NVIDIA's driver, of which it is a part, if an NVIDIA GPU is here",
            chosen.unwrap_or(Path::new(NAMES[0])).display()
        ));
        // That a file is not there is no news; that it is there and does not load is.
        let broken = why.into_iter().filter(|(_, why)| !why.contains("No such file"));
        Err(broken.fold(absent, |error, (name, why)| error.note(format!("{}: {why}", name.display()))))
    }
}

/// A code as a result.
pub fn check(code: i32) -> Result<(), i32> {
    if code == 0 { Ok(()) } else { Err(code) }
}
