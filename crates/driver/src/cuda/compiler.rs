//! NVRTC, the CUDA C++ compiler of NVIDIA's toolkit: source text to PTX. Only a user's own source needs it.

use panoply_device::{Backend, Error, Result, SourceText};

use crate::library::Words;
use crate::stream::compiler::{Compiler, Rtcs};

/// NVRTC.
pub const NVRTC: Rtcs = Rtcs {
    words: Words {
        kind: Backend::Cuda.name(),
        files: if cfg!(windows) {
            &["nvrtc64_130_0.dll", "nvrtc64_120_0.dll", "nvrtc64_112_0.dll"]
        } else {
            &[
                "libnvrtc.so.13",
                "libnvrtc.so.12",
                "libnvrtc.so.11.2",
                "libnvrtc.so",
                "/usr/local/cuda/lib64/libnvrtc.so",
            ]
        },
        prefix: "nvrtc",
        install: "install the CUDA toolkit's NVRTC, which compiles CUDA C++, or pass PTX or a cubin",
        lacking: "so it is not NVRTC; update the CUDA toolkit",
    },
    name: "NVRTC",
    update: "update the CUDA toolkit",
    file: c"kernel.cu",
};

/// Compiles a text to PTX for a device of this compute capability; 86 is 8.6.
///
/// As on every device, a product and a sum are not contracted: use `fmaf` for a fused multiply-add.
pub fn compile(compiler: &Compiler, label: &str, capability: i32, text: &SourceText) -> Result<SourceText> {
    let known = compiler.architectures();
    let best = known.iter().copied().filter(|known| *known <= capability).max();
    let best = match (best, known.iter().min()) {
        (Some(best), _) => best,
        (None, None) => capability,
        (None, Some(least)) => {
            return Err(Error::unavailable(format!(
                "{label}: the installed NVRTC compiles for compute capability {}.{} and later, this GPU has {}.{}; install an older \
                 NVRTC or pass PTX",
                least / 10,
                least % 10,
                capability / 10,
                capability % 10
            )));
        }
    };
    let ptx = compiler.compile(label, &[&format!("--gpu-architecture=compute_{best}"), "--fmad=false"], text)?;
    let end = ptx.iter().position(|byte| *byte == 0).unwrap_or(ptx.len());
    Ok(SourceText { source: String::from_utf8_lossy(&ptx[..end]).into_owned(), ..text.clone() })
}
