//! HIP C++ executed on the host. Clang compiles the text unchanged between two headers, which define the built-ins of AMD's compiler and
//! run the work-items one after the other up to the points where they wait for each other.
//!
//! Undefined behavior of the text (an overflowing sum, a shift beyond the width) ends the process. Work-items run in reverse order, because
//! no kernel may depend on their order. The device's inexact functions are inexact here too.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use dlopen2::raw::Library;

const BEFORE: &str = include_str!("before.hpp");
const AFTER: &str = include_str!("after.hpp");

/// The launch function of a compiled program.
type Launch = unsafe extern "C" fn(*const u32, *const u32, u32, *const *const u64) -> i32;

/// A program compiled for the host.
pub struct Program {
    launch: Launch,
    _library: Library,
}

impl Program {
    /// Compiles a text; returns the error message if clang rejects it or is not installed.
    pub fn new(text: &str) -> Result<Program, String> {
        let entry = entry(text).ok_or("no entry point")?;
        // Shared arrays become static: only one work-group runs at a time.
        let text = text.replace("__attribute__((shared)) ", "static ");
        static PROGRAMS: AtomicU32 = AtomicU32::new(0);
        let name =
            format!("panoply-driver-sim-hip-{}-{}", std::process::id(), PROGRAMS.fetch_add(1, Ordering::Relaxed));
        let [source, library] = ["cpp", "so"].map(|end| std::env::temp_dir().join(format!("{name}.{end}")));
        std::fs::write(&source, format!("{BEFORE}{text}{AFTER}")).map_err(|error| error.to_string())?;
        let compiled = compile(&source, &library, entry);
        let opened = compiled.and_then(|()| Library::open(&library).map_err(|error| error.to_string()));
        // A loaded library does not need its file.
        let _ = std::fs::remove_file(library);
        let _ = std::fs::remove_file(source);
        let opened = opened?;
        // SAFETY: the header defines this function with this type.
        let launch: Launch = unsafe { opened.symbol("panoply_launch") }.map_err(|error| error.to_string())?;
        Ok(Program { launch, _library: opened })
    }

    /// Runs a launch; returns false on deadlock.
    ///
    /// # Safety
    /// The arguments must have the program's types. Its pointers must lead to memory that is not accessed elsewhere, and the program must
    /// access nothing beyond it.
    pub unsafe fn launch(&self, groups: &[u32; 3], size: &[u32; 3], wave: u32, arguments: &[u64]) -> bool {
        let pointers: Vec<*const u64> = arguments.iter().map(std::ptr::from_ref).collect();
        // SAFETY: guaranteed by the caller; the pointers lead to the bytes of each argument.
        unsafe { (self.launch)(groups.as_ptr(), size.as_ptr(), wave, pointers.as_ptr()) == 0 }
    }
}

/// Returns true if a line declares an entry point, in the syntax of the renderer or of handwritten code.
pub fn is_entry(line: &str) -> bool {
    line.contains("__attribute__((global))") || line.contains("__global__")
}

fn entry(text: &str) -> Option<&str> {
    let line = text.lines().find(|line| is_entry(line))?;
    line.split("void ").nth(1)?.split('(').next()
}

fn compile(source: &PathBuf, library: &PathBuf, entry: &str) -> Result<(), String> {
    let mut clang = Command::new("clang-19");
    clang.args(["-x", "c++", "-std=c++17", "-O1", "-w", "-march=native", "-ffp-contract=off", "-fPIC", "-shared"]);
    clang.args(["-fsanitize=undefined", "-fsanitize-trap=undefined", &format!("-DENTRY={entry}")]);
    let output = clang.arg(source).arg("-o").arg(library).output().map_err(|error| format!("clang-19: {error}"))?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}
