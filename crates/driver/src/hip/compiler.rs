//! ROCm's runtime compiler, hiprtc: text to machine code for one architecture.

use panoply_device::{Backend, Result, SourceText};

use crate::library::Words;
use crate::stream::compiler::{Compiler, Rtcs};

/// hiprtc.
pub const HIPRTC: Rtcs = Rtcs {
    words: Words {
        kind: Backend::Rocm.name(),
        files: if cfg!(windows) {
            &["hiprtc0701.dll", "hiprtc0700.dll", "hiprtc0604.dll", "hiprtc0602.dll", "hiprtc.dll"]
        } else {
            &["libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so.5", "libhiprtc.so", "/opt/rocm/lib/libhiprtc.so"]
        },
        prefix: "hiprtc",
        install: "install hiprtc, ROCm's runtime compiler, beside the HIP runtime",
        lacking: "so it is not hiprtc of ROCm 5 or later; update ROCm",
    },
    name: "hiprtc",
    update: "update ROCm",
    file: c"kernel.hip",
};

/// Compiles a text to machine code for an architecture that the compiler supports.
pub fn compile(compiler: &Compiler, label: &str, architecture: &str, text: &SourceText) -> Result<Vec<u8>> {
    compiler.compile(label, &[&format!("--offload-arch={architecture}"), "-O3", "-ffp-contract=off"], text)
}
