//! Compilers for AMD GPUs accept the HIP C++ of every built-in kernel and of random kernels, for GPUs from Vega to RDNA
//! 4. A simulated HIP library runs it, compiled by clang for the host.
//!
//! The register counts and spills that clang reports are in `docs/measured/hip.md`; `UPDATE_GOLDEN=1` rewrites it. The
//! runtime compiler runs in a child process, so that one that ends its process is a failure with a log.

use crate::training_steps;

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use panoply::kernels::{self, Size};
use panoply::runtime::{DeviceOptions, Registry};
use panoply::{Backend, Device, Tensor};
use panoply_compile::opt::{self, optimize};
use panoply_compile::render::{Options, render_with};
use panoply_device::{Language, Signature, SourceText};
use panoply_driver::hip::{self, HipDriver};
use panoply_ir::kernel::Kernel;
use panoply_ir::random::{Options as Random, case};
use panoply_ir::verify::verify;
use panoply_ir::{Target, Verified};

/// GPUs from Vega on with their wavefront sizes: three for data centers, three for desktops.
const ARCHITECTURES: [(&str, u32); 6] =
    [("gfx906", 64), ("gfx90a", 64), ("gfx942", 64), ("gfx1030", 32), ("gfx1100", 32), ("gfx1201", 32)];

fn clang() -> bool {
    let answers =
        |program: &str| Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success());
    let here = answers("clang-19") && answers("ld.lld-19");
    if !here {
        eprintln!(
            "SKIPPED: compilation of HIP: clang-19 and lld-19 are not installed; `cargo xtask install` installs them"
        );
    }
    here
}

fn render(kernel: &Verified<Kernel>, wave: u32, index_bits: u32) -> SourceText {
    let target = Target::hip_minimum(wave);
    let kernel = optimize(kernel.clone(), &target, &opt::Options::default());
    let text = render_with(&kernel, &target, &Options { index_bits }).expect("the kernel renders");
    let signature = Signature::of(&kernel, index_bits);
    SourceText { language: Language::Hip, source: text.source, entry: text.entry, signature }
}

fn text(kernel: &Verified<Kernel>, wave: u32, index_bits: u32) -> String {
    render(kernel, wave, index_bits).source
}

/// Compiles a program with clang and returns the assembly.
fn compile(name: &str, text: &str, architecture: &str) -> String {
    // A file for each call: tests run in parallel.
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let call = CALLS.fetch_add(1, Ordering::Relaxed);
    let file = std::env::temp_dir().join(format!("panoply-hip-{}-{call}.hip", std::process::id()));
    std::fs::write(&file, text).unwrap();
    let mut clang = Command::new("clang-19");
    clang.args(["-x", "hip", "--offload-device-only", "--no-gpu-bundle-output", "-nogpuinc", "-nogpulib", "-O3", "-S"]);
    clang.args(["-ffp-contract=off", "-o", "-", &format!("--offload-arch={architecture}")]).arg(&file);
    let output = clang.output().unwrap();
    std::fs::remove_file(file).unwrap();
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} for {architecture}: {log}\n{text}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns a number that the assembly states for its only kernel.
fn stated(assembly: &str, name: &str) -> u32 {
    let line = assembly.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':'));
    line.and_then(|number| number.trim().parse().ok()).unwrap_or_else(|| panic!("no {name} in\n{assembly}"))
}

/// Returns every built-in kernel with its name.
fn builtin() -> Vec<(&'static str, Verified<Kernel>)> {
    let all = kernels::ALL.iter().flat_map(|builtin| builtin.kernels.iter());
    all.map(|(name, build)| (*name, verify(build().expect("it builds")).expect("it verifies"))).collect()
}

#[test]
fn builtin_kernels_compile_without_spills() {
    if !clang() {
        return;
    }
    let mut table = "\
# Registers of the built-in kernels on AMD GPUs

Written by `UPDATE_GOLDEN=1 cargo test -p panoply --test it hip`: what clang 19 makes of the HIP C++ of each kernel that ships, with
32-bit indices and, after the stroke, 64-bit ones. Vector registers of a work-item; none spills. These are counts, not timings: no
card has run them.

| kernel |"
        .to_string();
    ARCHITECTURES.iter().for_each(|(architecture, _)| table += &format!(" {architecture} |"));
    table += &format!("\n|---|{}\n", "---|".repeat(ARCHITECTURES.len()));
    for (name, kernel) in builtin() {
        table += &format!("| `{name}` |");
        for (architecture, wave) in ARCHITECTURES {
            let [narrow, wide] = [32, 64].map(|bits| {
                let assembly = compile(name, &text(&kernel, wave, bits), architecture);
                assert_eq!(stated(&assembly, ".wavefront_size"), wave, "{architecture}");
                let spilled = stated(&assembly, ".vgpr_spill_count") + stated(&assembly, ".sgpr_spill_count");
                assert_eq!(spilled, 0, "{name} spills on {architecture}");
                stated(&assembly, ".vgpr_count")
            });
            table += &format!(" {narrow} / {wide} |");
        }
        table.push('\n');
    }
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/measured/hip.md");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &table).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == table, "{} differs; UPDATE_GOLDEN=1 accepts this:\n{table}", path.display());
}

#[test]
fn random_kernels_compile() {
    if !clang() {
        return;
    }
    for seed in 1..=18 {
        let case = case(seed, &Random { transcendentals: seed % 6 == 0, ..Random::default() });
        let (architecture, wave) = ARCHITECTURES[seed as usize % ARCHITECTURES.len()];
        compile(&case.kernel.name, &text(&case.kernel, wave, 64), architecture);
    }
}

/// A product and a sum stay two instructions, denormals are not flushed, and a subgroup sum exchanges values between
/// lanes.
#[test]
fn arithmetic_compiles_to_the_expected_instructions() {
    if !clang() {
        return;
    }
    let source = "\
kernel k(x: &mut [f32]) group(64, 1, 1) {
    let sum: f32 = subgroup_sum(x[global_id.x])
    x[global_id.x] = add(mul(x[global_id.x], 2.5f32), sum)
}
";
    let kernel = verify(panoply_ir::text::parse(source).expect("parses")).expect("verifies");
    for (architecture, wave) in ARCHITECTURES {
        let assembly = compile("k", &text(&kernel, wave, 32), architecture);
        assert!(!assembly.contains("v_fma") && !assembly.contains("v_mac"), "{architecture} contracts:\n{assembly}");
        assert!(assembly.contains(".amdhsa_float_denorm_mode_32 3"), "{architecture} flushes:\n{assembly}");
        // The steps of the butterfly, and the first lane's sum for all.
        let exchanges = assembly.matches("ds_bpermute").count();
        assert_eq!(exchanges, wave.ilog2() as usize + 1, "{architecture}:\n{assembly}");
    }
}

const CHILD: &str = "PANOPLY_TEST_HIP";

/// Does the job that a parent process requests: the simulated driver or the real compiler needs a separate process.
#[test]
fn child() {
    match std::env::var(CHILD).as_deref() {
        Ok("hiprtc") => runtime_compiler(),
        Ok(_) => builtin_kernels_agree(),
        Err(_) => {}
    }
}

/// Runs [`child`] and prints the lines about skipped tests.
fn in_a_process(job: &str, choices: &str) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["hip::child", "--exact", "--nocapture"]).env(CHILD, job).env("PANOPLY_FAKE_HIP", choices);
    let output = command.output().unwrap();
    let log = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && log.contains("1 passed"), "{job} with {choices}: {}: {log}", output.status);
    log.lines().filter(|line| line.contains("SKIPPED")).for_each(|line| eprintln!("{line}"));
}

#[test]
fn the_runtime_compiler_accepts_builtin_kernels() {
    in_a_process("hiprtc", "");
}

#[test]
fn waves_of_32_compute_the_same() {
    in_a_process("waves", "architecture=1100");
}

/// Compiles every kernel with the driver's runtime compiler, for every GPU that it supports.
fn runtime_compiler() {
    let kernels = builtin();
    let Err(absent) = hip::compile(None, "", &render(&kernels[0].1, 64, 64)) else {
        panic!("an empty architecture was accepted")
    };
    if absent.message().contains("cannot be loaded") {
        return println!("SKIPPED: compilation by ROCm's runtime compiler: {}", absent.message());
    }
    for (architecture, wave) in ARCHITECTURES {
        for (name, kernel) in &kernels {
            match hip::compile(None, architecture, &render(kernel, wave, 64)) {
                Ok(binary) => assert!(binary.starts_with(b"\x7fELF"), "{name} for {architecture}"),
                // An architecture for which the compiler would end the process.
                Err(error) if error.is_unavailable() => {
                    println!("SKIPPED: {architecture} with ROCm's runtime compiler: {}", error.message());
                    break;
                }
                Err(error) => panic!("{name} for {architecture}: {error}"),
            }
        }
    }
    let wrong = SourceText { source: "int x = ;".into(), ..render(&kernels[0].1, 64, 64) };
    let error = hip::compile(None, "gfx906", &wrong).expect_err("invalid C++");
    assert!(error.is_compile_failed() && error.notes()[0].contains("error: expected expression"), "{error}");
}

const SEED: u64 = 0x5eed;

/// Returns the simulated device, whose inexact functions have the largest errors that the hardware can have.
fn rocm() -> Option<Device> {
    if !panoply_driver_sim::Control::open().execute() {
        eprintln!("SKIPPED: execution of HIP: clang-19 is not installed; `cargo xtask install` installs it");
        return None;
    }
    let driver = HipDriver { library: Some(panoply_driver_sim::library()), ..HipDriver::default() };
    let registry = Registry::new(vec![Arc::new(driver)], DeviceOptions::default());
    Some(registry.devices(Backend::Rocm).expect("the simulated driver has a device").swap_remove(0))
}

#[test]
fn builtin_kernels_agree() {
    let Some(device) = rocm() else { return };
    for builtin in kernels::ALL {
        let verdict =
            builtin.check(&device, Size::Tiny, SEED).unwrap_or_else(|error| panic!("{}: {error}", builtin.name));
        assert!(verdict.passed(), "{}: {verdict}", builtin.name);
    }
    assert_eq!(device.memory_stats().buffers, 0, "every buffer is freed");
}

#[test]
fn a_network_trains_as_on_the_cpu() {
    let Some(device) = rocm() else { return };
    training_steps::agree(&device);
}

/// Returns bit patterns of all classes of floats: denormals, the smallest and largest numbers, infinities and NaN.
fn patterns(count: u64, bits: u32) -> impl Iterator<Item = u64> {
    let mut state = SEED;
    (0..count).map(move |i| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let word = state.rotate_left(state as u32 >> 27) >> (64 - bits);
        // Two of sixteen have an exponent of all zeros or all ones.
        let exponent = if bits == 32 { 0xFFu64 << 23 } else { 0x7FF << 52 };
        match i % 16 {
            3 => word & !exponent,
            11 => word | exponent,
            _ => word,
        }
    })
}

/// The simulated device's `sqrt` is off by one unit in the last place, its f64 reciprocal square root has half the
/// bits, and it has no remainder function.
#[test]
fn roots_and_remainders_are_exact() {
    let Some(device) = rocm() else { return };
    const COUNT: usize = 1 << 18;
    let single: Vec<f32> = patterns(COUNT as u64, 32).map(|bits| f32::from_bits(bits as u32)).collect();
    let squares = single.iter().enumerate().map(|(i, x)| if i % 4 == 0 { x * x } else { *x });
    let mut single: Vec<f32> = squares.collect();
    single[0] = -0.0;
    let double: Vec<f64> = patterns(COUNT as u64, 64).map(f64::from_bits).collect();
    let agree = |what: &str, found: Vec<f64>, expected: Vec<f64>| {
        let differ = |(a, b): (&f64, &f64)| a.to_bits() != b.to_bits() && !(a.is_nan() && b.is_nan());
        let wrong: Vec<usize> = (0..found.len()).filter(|at| differ((&found[*at], &expected[*at]))).collect();
        let first = wrong.first().map(|at| format!("{:e}, expected {:e}", found[*at], expected[*at]));
        assert!(wrong.is_empty(), "{what}: {} wrong, at {:?}: {first:?}", wrong.len(), &wrong[..wrong.len().min(9)]);
    };
    let wide = |values: Vec<f32>| values.into_iter().map(f64::from).collect::<Vec<f64>>();
    let half = COUNT / 2;
    device.scope(|| {
        let root = Tensor::from_slice(&single, [COUNT]).sqrt().to_vec().unwrap();
        agree("sqrt of f32", wide(root), wide(single.iter().map(|x| x.sqrt()).collect()));
        let root = Tensor::from_slice(&double, [COUNT]).sqrt().to_vec().unwrap();
        agree("sqrt of f64", root, double.iter().map(|x| x.sqrt()).collect());
        let [x, y] = [&single[..half], &single[half..]].map(|part| Tensor::from_slice(part, [half]));
        let expected = single[..half].iter().zip(&single[half..]).map(|(x, y)| x % y);
        agree("remainder of f32", wide((x % y).to_vec().unwrap()), wide(expected.collect()));
        let [x, y] = [&double[..half], &double[half..]].map(|part| Tensor::from_slice(part, [half]));
        let expected = double[..half].iter().zip(&double[half..]).map(|(x, y)| x % y);
        agree("remainder of f64", (x % y).to_vec().unwrap(), expected.collect());
    });
}
