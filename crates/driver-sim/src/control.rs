//! Steering the shared library from a test: where it is, what it counts, what shall fail.

use std::ffi::{CString, c_char};
use std::path::PathBuf;

use dlopen2::raw::Library;

/// The shared library that cargo built beside the test that runs.
pub fn library() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its own path");
    let name = format!("{}panoply_driver_sim{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let places =
        test.ancestors().skip(1).take(3).flat_map(|folder| [folder.join(&name), folder.join("deps").join(&name)]);
    let found: Vec<PathBuf> = places.filter(|path| path.exists()).collect();
    found.first().cloned().unwrap_or_else(|| panic!("no {name} near {}; depend on panoply-driver-sim", test.display()))
}

/// The library of this process, opened once more.
pub struct Control(Library);

impl Control {
    /// Opens the library.
    pub fn open() -> Control {
        let path = library();
        Control(Library::open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
    }

    /// Makes calls of a function answer with a code, from the next one after `skip` others on, `times` times.
    pub fn fail(&self, function: &str, code: i32, skip: u32, times: u32) {
        let name = CString::new(function).expect("a name has no zero byte");
        // SAFETY: the library defines this function with this type.
        let fail: extern "C" fn(*const c_char, i32, u32, u32) =
            unsafe { self.0.symbol("panoply_driver_sim_fail") }.expect("the library is ours");
        fail(name.as_ptr(), code, skip, times);
    }

    /// How often a function was called.
    pub fn calls(&self, function: &str) -> u64 {
        let name = CString::new(function).expect("a name has no zero byte");
        // SAFETY: the library defines this function with this type.
        let calls: extern "C" fn(*const c_char) -> u64 =
            unsafe { self.0.symbol("panoply_driver_sim_calls") }.expect("the library is ours");
        calls(name.as_ptr())
    }

    /// From now on HIP's kernels are executed; false if there is no clang to do it.
    pub fn execute(&self) -> bool {
        let clang = std::process::Command::new("clang-19").arg("--version").output();
        if !clang.is_ok_and(|said| said.status.success()) {
            return false;
        }
        // SAFETY: the library defines this function with this type.
        let execute: extern "C" fn() =
            unsafe { self.0.symbol("panoply_driver_sim_execute") }.expect("the library is ours");
        execute();
        // Once more, for good: a library that everybody closed forgets.
        std::mem::forget(Control::open());
        true
    }

    /// Whether Level Zero's kernels are executed: an OpenCL driver must be here that takes SPIR-V and any address.
    pub fn executes_spirv(&self) -> bool {
        // SAFETY: the library defines this function with this type.
        let executes: extern "C" fn() -> bool =
            unsafe { self.0.symbol("panoply_driver_sim_executes_spirv") }.expect("the library is ours");
        executes()
    }

    /// The position of the device that is this thread's; none if it has none.
    pub fn current(&self) -> Option<u64> {
        // SAFETY: the library defines this function with this type.
        let current: extern "C" fn() -> u64 =
            unsafe { self.0.symbol("panoply_driver_sim_current") }.expect("the library is ours");
        current().checked_sub(1)
    }

    /// How many objects of all kinds (contexts, streams, events, modules, allocations) are held.
    pub fn live(&self) -> u64 {
        // SAFETY: the library defines this function with this type.
        let live: extern "C" fn() -> u64 =
            unsafe { self.0.symbol("panoply_driver_sim_live") }.expect("the library is ours");
        live()
    }
}
