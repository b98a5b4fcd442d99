//! NVIDIA's driver library, and the functions that only it has.

use std::ffi::{c_char, c_void};
use std::path::Path;
use std::ptr;
use std::sync::{Arc, OnceLock};

use panoply_device::{Backend, BinaryFormat, Error, ErrorKind, Language, Peer, ProgramForm, Result, SourceText};

use super::cublaslt::CublasLt;
use super::{compiler, discovery, errors};
use crate::library::{DevicePtr, Handle, Opened, Words, check, functions};
use crate::stream::blas::{GemmRequest, Library};
use crate::stream::compiler::Compiler;
use crate::stream::discovery::{Api, DiscoveredDevice, Traits};
use crate::stream::functions::Functions;
use crate::stream::handles::Context;
use crate::stream::program::{LOG_BYTES, refusal, source};
use crate::stream::vendor::{Brand, Vendor, halves};

/// Values of `CUjit_option` and `CUjitInputType` in NVIDIA's header.
const ERROR_LOG: i32 = 5;
const ERROR_LOG_BYTES: i32 = 6;
const INPUT_PTX: i32 = 1;

/// Names, messages and constants of CUDA.
pub const BRAND: Brand = Brand {
    words: Words {
        kind: Backend::Cuda.name(),
        // The last one is for Linux under Windows (WSL).
        files: if cfg!(windows) {
            &["nvcuda.dll"]
        } else {
            &["libcuda.so.1", "libcuda.so", "/usr/lib/wsl/lib/libcuda.so.1"]
        },
        prefix: "cu",
        install: "install NVIDIA's driver, which contains it, if this machine has an NVIDIA GPU",
        lacking: "so it is not NVIDIA's driver or is older than CUDA 9; update the driver",
    },
    codes: errors::CODES,
    // The first version whose PTX supports every device from Volta on and that has all the functions.
    oldest_driver: 9000,
    version: |number| format!("CUDA {}.{}", number / 1000, number % 1000 / 10),
    update: "update NVIDIA's driver",
    takes: &[
        ProgramForm::Image(BinaryFormat::Cubin),
        ProgramForm::Text(Language::Ptx { capability: 0 }),
        ProgramForm::Text(Language::CudaC),
    ],
    max_items: u64::MAX,
    launches_in_parts: true,
    copies_pageable: true,
    // CUDA_KERNEL_NODE_PARAMS in the version that every driver takes: function, grid, block, shared bytes, arguments, extra.
    node: |launch| {
        let ([gx, gy, gz], [bx, by, bz]) = (launch.groups, launch.size);
        let params = launch.params.addr() as u64;
        [launch.function as u64, halves(gx, gy), halves(gz, bx), halves(by, bz), 0, params, 0, 0]
    },
    pools_attribute: 115,
};

functions! {
    /// The functions that only NVIDIA's library has.
    Only
    needed {
        retain(*mut Handle, i32) "cuDevicePrimaryCtxRetain";
        release(i32) "cuDevicePrimaryCtxRelease_v2" "cuDevicePrimaryCtxRelease";
        push(Handle) "cuCtxPushCurrent_v2";
        pop(*mut Handle) "cuCtxPopCurrent_v2";
        fill_rows(DevicePtr, usize, u32, usize, usize, Handle) "cuMemsetD2D32Async";
        copy_peer(DevicePtr, Handle, DevicePtr, Handle, usize, Handle) "cuMemcpyPeerAsync";
        link_create(u32, *const i32, *const *mut c_void, *mut Handle) "cuLinkCreate_v2";
        link_add(Handle, i32, *const c_void, usize, *const c_char, u32, *const i32, *const *mut c_void) "cuLinkAddData_v2";
        link_complete(Handle, *mut *const c_void, *mut usize) "cuLinkComplete";
        link_destroy(Handle) "cuLinkDestroy";
    }
    optional {}
}

/// Opens a library; `None` opens the one that the system finds.
pub fn open(chosen: Option<&Path>, products: GemmRequest) -> Result<Api> {
    let library = Opened::open(&BRAND.words, chosen)?;
    let functions = Functions::find(&library, &BRAND.words)?;
    let only = Only::find(&library, &BRAND.words)?;
    let vendor = Cuda { only, compiler: OnceLock::new(), wanted: products, products: OnceLock::new() };
    Ok(Api { functions, vendor: Box::new(vendor), library })
}

/// CUDA as a vendor.
struct Cuda {
    only: Only,
    /// NVRTC, opened at first use.
    compiler: OnceLock<Compiler>,
    wanted: GemmRequest,
    /// The library for matrix products, opened after the first device was found.
    products: OnceLock<Result<Arc<dyn Library>>>,
}

impl Vendor for Cuda {
    fn brand(&self) -> &'static Brand {
        &BRAND
    }

    fn traits(&self, place: &DiscoveredDevice) -> Result<Traits> {
        discovery::traits(place)
    }

    fn retain(&self, device: i32) -> Result<Handle, i32> {
        let mut context = 0;
        // SAFETY: the pointer is valid and the device was enumerated.
        check(unsafe { (self.only.retain)(&mut context, device) }).map(|()| context)
    }

    fn give_back(&self, device: i32) {
        // SAFETY: this releases the one reference that `retain` took.
        unsafe { (self.only.release)(device) };
    }

    fn enter(&self, _device: i32, context: Handle) -> Result<Handle, i32> {
        // SAFETY: the caller retained the context. The context that was current before stays below it on the stack.
        check(unsafe { (self.only.push)(context) }).map(|()| 0)
    }

    fn leave(&self, _device: i32, _before: Handle) {
        // SAFETY: it was pushed on this thread; null is allowed.
        unsafe { (self.only.pop)(ptr::null_mut()) };
    }

    fn fill_64(&self, _functions: &Functions, to: DevicePtr, word: u64, count: usize, stream: Handle) -> i32 {
        // Rows of one 32-bit word with a pitch of 8 bytes: first the low halves, then the high ones.
        // SAFETY: the caller's memory and stream.
        unsafe {
            match (self.only.fill_rows)(to, 8, word as u32, 1, count, stream) {
                0 => (self.only.fill_rows)(to + 4, 8, (word >> 32) as u32, 1, count, stream),
                code => code,
            }
        }
    }

    fn copy_peer(&self, to: Peer, from: Peer, bytes: usize, stream: Handle) -> i32 {
        // SAFETY: both ranges are inside live allocations of the two devices, whose contexts are retained.
        unsafe { (self.only.copy_peer)(to.address, to.context, from.address, from.context, bytes, stream) }
    }

    fn products(&self, place: &DiscoveredDevice) -> Result<Vec<Arc<dyn Library>>> {
        let open =
            || Ok(Arc::new(CublasLt::open(self.wanted.path(BRAND.words.kind)?, place.driver)?) as Arc<dyn Library>);
        self.products.get_or_init(open).clone().map(|library| vec![library])
    }

    /// Compiles with the driver's linker, because it returns the machine code, which a disk cache can keep.
    fn compile(&self, context: &Context, text: &SourceText) -> Result<Vec<u8>> {
        if text.language == Language::CudaC {
            let capability = context.traits.architecture.trim_start_matches("sm_").parse().unwrap_or_default();
            let ptx = compiler::compile(self.compiler(&context.api.library)?, &context.label, capability, text)?;
            return self.link(context, &ptx);
        }
        self.link(context, text)
    }
}

impl Cuda {
    fn compiler(&self, driver: &Opened) -> Result<&Compiler> {
        if self.compiler.get().is_none() {
            let _ = self.compiler.set(Compiler::of(&compiler::NVRTC, driver)?);
        }
        Ok(self.compiler.get().expect("the compiler was set above or by another thread"))
    }

    /// Compiles PTX to machine code.
    fn link(&self, context: &Context, text: &SourceText) -> Result<Vec<u8>> {
        let entry = &text.entry;
        let source = source(&context.label, text)?;
        let mut log = vec![0u8; LOG_BYTES];
        let options = [ERROR_LOG, ERROR_LOG_BYTES];
        // The linker reads these arrays during its whole lifetime, and overwrites the second value with the length of the log.
        let mut values = [log.as_mut_ptr().cast::<c_void>(), ptr::without_provenance_mut(LOG_BYTES)];
        let mut link = Link { raw: 0, context, only: &self.only };
        // SAFETY: the arrays have two elements, and the log outlives the link.
        context.ask(format_args!("compiling {entry}"), |_| unsafe {
            (self.only.link_create)(2, options.as_ptr(), values.as_mut_ptr().cast_const(), &mut link.raw)
        })?;
        let bytes = source.as_bytes_with_nul();
        let (mut image, mut length) = (ptr::null(), 0);
        let linked = context.ask(format_args!("compiling {entry}"), |_| {
            let (start, name, none) = (bytes.as_ptr().cast(), c"kernel".as_ptr(), ptr::null());
            // SAFETY: the text outlives the call; there are no options.
            let added =
                unsafe { (self.only.link_add)(link.raw, INPUT_PTX, start, bytes.len(), name, 0, none, ptr::null()) };
            // SAFETY: the pointers are valid.
            if added == 0 { unsafe { (self.only.link_complete)(link.raw, &mut image, &mut length) } } else { added }
        });
        linked.map_err(|error| refused(context, error, entry, &log))?;
        // SAFETY: the linker returned address and length of the image, which lives as long as the link.
        Ok(unsafe { std::slice::from_raw_parts(image.cast::<u8>(), length) }.to_vec())
    }
}

/// Returns the error of a failed compilation: the compiler's rejection with its log, or `error` itself if its kind is another.
fn refused(context: &Context, error: Error, entry: &str, log: &[u8]) -> Error {
    if error.kind() != ErrorKind::CompileFailed {
        return error;
    }
    refusal(&context.label, "the driver's compiler", entry, log, error.message())
}

/// A linker invocation (`CUlinkState`).
struct Link<'a> {
    raw: Handle,
    context: &'a Context,
    only: &'a Only,
}

impl Drop for Link<'_> {
    fn drop(&mut self) {
        if self.raw != 0 {
            // SAFETY: this is the only reference to the link.
            let _ = self.context.ask("compiling", |_| unsafe { (self.only.link_destroy)(self.raw) });
        }
    }
}
