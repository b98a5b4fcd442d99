//! Controls the shared library from a test: its path, its call counts, and failures on request.

use std::ffi::{CString, c_char};
use std::path::PathBuf;

use dlopen2::raw::Library;

/// Returns the path of the shared library that cargo built beside the running test.
///
/// # Panics
///
/// The library was not built.
pub fn library() -> PathBuf {
    let test = std::env::current_exe().expect("the path of the test binary is known");
    let name = format!("{}panoply_driver_sim{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let places =
        test.ancestors().skip(1).take(3).flat_map(|folder| [folder.join(&name), folder.join("deps").join(&name)]);
    let found: Vec<PathBuf> = places.filter(|path| path.exists()).collect();
    found.first().cloned().unwrap_or_else(|| panic!("no {name} near {}; depend on panoply-driver-sim", test.display()))
}

/// A handle of the library, opened in this process.
pub struct Control(Library);

impl Control {
    /// Opens the library.
    ///
    /// # Panics
    ///
    /// The library was not built or does not load.
    pub fn open() -> Control {
        let path = library();
        Control(Library::open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
    }

    /// Makes calls of a function return a code: skips the next `skip` calls, then fails `times` calls.
    pub fn fail(&self, function: &str, code: i32, skip: u32, times: u32) {
        let name = CString::new(function).expect("a name contains no zero byte");
        // SAFETY: the library defines this function with this type.
        let fail: extern "C" fn(*const c_char, i32, u32, u32) =
            unsafe { self.0.symbol("panoply_driver_sim_fail") }.expect("the library is ours");
        fail(name.as_ptr(), code, skip, times);
    }

    /// Returns the number of calls of a function.
    pub fn calls(&self, function: &str) -> u64 {
        let name = CString::new(function).expect("a name contains no zero byte");
        // SAFETY: the library defines this function with this type.
        let calls: extern "C" fn(*const c_char) -> u64 =
            unsafe { self.0.symbol("panoply_driver_sim_calls") }.expect("the library is ours");
        calls(name.as_ptr())
    }

    /// Enables the execution of HIP kernels; returns false if clang is not installed.
    pub fn execute(&self) -> bool {
        let clang = std::process::Command::new("clang-19").arg("--version").output();
        if !clang.is_ok_and(|output| output.status.success()) {
            return false;
        }
        // SAFETY: the library defines this function with this type.
        let execute: extern "C" fn() =
            unsafe { self.0.symbol("panoply_driver_sim_execute") }.expect("the library is ours");
        execute();
        // Opened once more and never closed, because a library without handles is unloaded with its state.
        std::mem::forget(Control::open());
        true
    }

    /// Returns true if Level Zero kernels are executed, which requires an OpenCL driver that supports SPIR-V and arbitrary addresses.
    pub fn executes_spirv(&self) -> bool {
        // SAFETY: the library defines this function with this type.
        let executes: extern "C" fn() -> bool =
            unsafe { self.0.symbol("panoply_driver_sim_executes_spirv") }.expect("the library is ours");
        executes()
    }

    /// Returns the index of the thread's current device, if there is one.
    pub fn current(&self) -> Option<u64> {
        // SAFETY: the library defines this function with this type.
        let current: extern "C" fn() -> u64 =
            unsafe { self.0.symbol("panoply_driver_sim_current") }.expect("the library is ours");
        current().checked_sub(1)
    }

    /// Returns the number of live objects of all types (contexts, streams, events, modules, allocations).
    pub fn live(&self) -> u64 {
        // SAFETY: the library defines this function with this type.
        let live: extern "C" fn() -> u64 =
            unsafe { self.0.symbol("panoply_driver_sim_live") }.expect("the library is ours");
        live()
    }
}
