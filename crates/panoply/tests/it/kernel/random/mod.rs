//! Random kernel functions, run by rustc and on every device present, must agree bit for bit.
//!
//! `generated.in` is the output of [`generate`] for one seed; `UPDATE_GOLDEN=1` rewrites it. With
//! `PANOPLY_TEST_FULL=1`, cargo also compiles functions of a fresh seed, which `PANOPLY_TEST_SEED` sets; a failure
//! prints the seed.

mod generate;
mod inputs;

use std::path::{Path, PathBuf};
use std::process::Command;

use panoply::runtime::DeviceOptions;
use panoply::{Backend, Device};
use panoply_cpu::CpuDriver;
use panoply_device::Driver;
use panoply_driver::{CudaDriver, OpenClDriver, WgpuDriver};

#[allow(warnings, clippy::all, reason = "the generated programs are unidiomatic")]
mod generated {
    use panoply::{Device, bf16, f16, kernel, kernel_fn};

    use super::inputs;

    include!("generated.in");
}

const SEED: u64 = 21;
const KERNELS: usize = 24;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/kernel/random")
}

#[test]
fn the_generated_functions_are_up_to_date() {
    let (path, text) = (folder().join("generated.in"), generate::module(SEED, KERNELS));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &text).expect("it can be written");
    }
    let kept = std::fs::read_to_string(&path).expect("it is committed");
    assert!(kept == text, "{} is out of date; UPDATE_GOLDEN=1 rewrites it", path.display());
}

/// Returns the CPU devices (including the checked CPU), a simulated CUDA device that interprets PTX, and the OpenCL and
/// Vulkan devices that are present.
fn devices() -> Vec<Device> {
    let pretended = CudaDriver { library: Some(panoply_driver_sim::library()), ..CudaDriver::default() };
    let drivers: [(&str, Box<dyn Driver>); 4] = [
        ("the CPU", Box::new(CpuDriver::default())),
        ("PTX", Box::new(pretended)),
        ("OpenCL", Box::new(OpenClDriver::default())),
        ("Vulkan", Box::new(WgpuDriver::new(Backend::Vulkan))),
    ];
    let mut devices = Vec::new();
    for (name, driver) in drivers {
        // SAFETY: `Device` validates everything that it passes on.
        match unsafe { driver.probe() } {
            Ok(found) => devices.extend(found.into_iter().map(|raw| Device::new(raw, DeviceOptions::default()))),
            Err(error) => eprintln!("SKIPPED: random functions on {name}: {error}"),
        }
    }
    // SwiftShader flushes subnormal numbers to zero and takes minutes to compile.
    devices.retain(|device| !device.info().name.contains("SwiftShader"));
    devices
}

#[test]
fn random_functions_give_rustcs_bits() {
    let differ: Vec<String> =
        devices().iter().flat_map(|device| inputs::differences(device, &generated::ALL)).collect();
    assert!(differ.is_empty(), "seed {SEED}:\n{}", differ.join("\n"));
}

/// Compiles a crate of newly generated functions with cargo, in the target folder of this build.
#[test]
fn fresh_functions_give_rustcs_bits() {
    if !std::env::var("PANOPLY_TEST_FULL").is_ok_and(|value| value == "1") {
        return;
    }
    let seed = std::env::var("PANOPLY_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs());
    let seed: u64 = seed.unwrap_or(now);
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("random_functions");
    let source = place.join("src");
    std::fs::create_dir_all(&source).expect("the folder of the build can be written");
    let write = |name: &str, text: &str| std::fs::write(place.join(name), text).expect("it can be written");
    let facade = env!("CARGO_MANIFEST_DIR");
    write(
        "Cargo.toml",
        &format!(
            "[package]\nname = \"random_functions\"\nedition = \"2024\"\n\n[dependencies]\npanoply = {{ path = {facade:?} }}\n\n\
             [workspace]\n"
        ),
    );
    write(
        "src/main.rs",
        "mod inputs;\n#[allow(warnings)]\nmod generated {\n    use panoply::{Device, bf16, f16, kernel, kernel_fn};\n\n    \
         use super::inputs;\n\n    include!(\"generated.in\");\n}\n\nfn main() {\n    let devices = panoply::Device::list().expect(\"they \
         can be listed\");\n    let hardly = |device: &&panoply::Device| !device.info().name.contains(\"SwiftShader\");\n    let differ: \
         Vec<String> = devices.iter().filter(hardly).flat_map(|device| inputs::differences(device, &generated::ALL)).collect();\n    \
         print!(\"{}\", differ.join(\"\\n\"));\n}\n",
    );
    write("src/inputs.rs", include_str!("inputs.rs"));
    write("src/generated.in", &generate::module(seed, 4 * KERNELS));
    let lock = Path::new(facade).join("../../Cargo.lock");
    std::fs::copy(lock, place.join("Cargo.lock")).expect("the workspace has a lock file");
    let ran = Command::new(env!("CARGO"))
        .args(["run", "--quiet", "--offline"])
        .current_dir(&place)
        .env("CARGO_TARGET_DIR", place.join("target"))
        .output()
        .expect("cargo runs");
    let (out, log) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success() && out.is_empty(), "seed {seed}:\n{out}\n{log}");
}
