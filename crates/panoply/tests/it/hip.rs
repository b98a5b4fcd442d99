//! The compilers of AMD's GPUs take the HIP C++ of every kernel that ships, and of random ones, for GPUs from Vega to RDNA 4; and a
//! library that only pretends to be AMD's runs it, compiled by clang for the host.
//!
//! What clang says of registers and spills stands in `docs/measured/hip.md`; `UPDATE_GOLDEN=1` writes that anew. The
//! runtime compiler is asked in a child process, so that one which ends its process is a failure with a log.

use crate::steps;

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

/// GPUs from Vega on, and how many work-items their waves have: three of data centers, three of desktops.
const ARCHITECTURES: [(&str, u32); 6] =
    [("gfx906", 64), ("gfx90a", 64), ("gfx942", 64), ("gfx1030", 32), ("gfx1100", 32), ("gfx1201", 32)];

fn clang() -> bool {
    let answers =
        |program: &str| Command::new(program).arg("--version").output().is_ok_and(|said| said.status.success());
    let here = answers("clang-19") && answers("ld.lld-19");
    if !here {
        eprintln!(
            "SKIPPED: no HIP was compiled: clang-19 and lld-19 are not installed; `cargo xtask install` installs them"
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

/// What clang makes of a program: assembly.
fn compile(name: &str, text: &str, architecture: &str) -> String {
    // A file for each call: tests run side by side.
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

/// A number that the assembly states of its only kernel.
fn stated(assembly: &str, name: &str) -> u32 {
    let line = assembly.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':'));
    line.and_then(|number| number.trim().parse().ok()).unwrap_or_else(|| panic!("no {name} in\n{assembly}"))
}

/// Every kernel that ships, by its name.
fn shipped() -> Vec<(&'static str, Verified<Kernel>)> {
    let all = kernels::ALL.iter().flat_map(|shipped| shipped.kernels.iter());
    all.map(|(name, build)| (*name, verify(build().expect("it builds")).expect("it verifies"))).collect()
}

#[test]
fn the_kernels_that_ship_compile_without_spills() {
    if !clang() {
        return;
    }
    let mut table = "\
# Registers of the shipped kernels on AMD's GPUs

Written by `UPDATE_GOLDEN=1 cargo test -p panoply --test it hip`: what clang 19 makes of the HIP C++ of each kernel that ships, with
32-bit indices and, after the stroke, 64-bit ones. Vector registers of a work-item; none spills. These are counts, not timings: no
card has run them.

| kernel |"
        .to_string();
    ARCHITECTURES.iter().for_each(|(architecture, _)| table += &format!(" {architecture} |"));
    table += &format!("\n|---|{}\n", "---|".repeat(ARCHITECTURES.len()));
    for (name, kernel) in shipped() {
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

/// A product and a sum stay two instructions, denormals stay numbers, and what every lane has goes through the lanes.
#[test]
fn arithmetic_is_what_the_kernel_says() {
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
        assert!(!assembly.contains("v_fma") && !assembly.contains("v_mac"), "{architecture} fuses:\n{assembly}");
        assert!(assembly.contains(".amdhsa_float_denorm_mode_32 3"), "{architecture} flushes:\n{assembly}");
        // The steps of the butterfly, and the first lane's sum for all.
        let exchanges = assembly.matches("ds_bpermute").count();
        assert_eq!(exchanges, wave.ilog2() as usize + 1, "{architecture}:\n{assembly}");
    }
}

const CHILD: &str = "PANOPLY_TEST_HIP";

/// Does what a parent process asks for, where the pretended driver or the real compiler needs a process of its own.
#[test]
fn child() {
    match std::env::var(CHILD).as_deref() {
        Ok("hiprtc") => runtime_compiler(),
        Ok(_) => the_kernels_that_ship_agree(),
        Err(_) => {}
    }
}

/// Runs [`child`], and says what it skipped.
fn in_a_process(job: &str, choices: &str) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["hip::child", "--exact", "--nocapture"]).env(CHILD, job).env("PANOPLY_FAKE_HIP", choices);
    let output = command.output().unwrap();
    let log = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && log.contains("1 passed"), "{job} with {choices}: {}: {log}", output.status);
    log.lines().filter(|line| line.contains("SKIPPED")).for_each(|line| eprintln!("{line}"));
}

#[test]
fn the_runtime_compiler_takes_the_kernels_that_ship() {
    in_a_process("hiprtc", "");
}

#[test]
fn waves_of_32_compute_the_same() {
    in_a_process("waves", "architecture=1100");
}

/// Every kernel through the compiler that a driver would use, for every GPU that it knows.
fn runtime_compiler() {
    let kernels = shipped();
    let Err(absent) = hip::compile(None, "", &render(&kernels[0].1, 64, 64)) else { panic!("no architecture at all") };
    if absent.message().contains("cannot be loaded") {
        return println!("SKIPPED: nothing went through ROCm's runtime compiler: {}", absent.message());
    }
    for (architecture, wave) in ARCHITECTURES {
        for (name, kernel) in &kernels {
            match hip::compile(None, architecture, &render(kernel, wave, 64)) {
                Ok(binary) => assert!(binary.starts_with(b"\x7fELF"), "{name} for {architecture}"),
                // One that it would end the process over.
                Err(error) if error.is_unavailable() => {
                    println!("SKIPPED: {architecture} with ROCm's runtime compiler: {}", error.message());
                    break;
                }
                Err(error) => panic!("{name} for {architecture}: {error}"),
            }
        }
    }
    let wrong = SourceText { source: "int x = ;".into(), ..render(&kernels[0].1, 64, 64) };
    let error = hip::compile(None, "gfx906", &wrong).expect_err("no C++");
    assert!(error.is_compile_failed() && error.notes()[0].contains("error: expected expression"), "{error}");
}

const SEED: u64 = 0x5eed;

/// The pretended device, whose inexact functions are as inexact as the hardware's may be.
fn rocm() -> Option<Device> {
    if !panoply_driver_sim::Control::open().execute() {
        eprintln!("SKIPPED: no HIP was executed: clang-19 is not installed; `cargo xtask install` installs it");
        return None;
    }
    let driver = HipDriver { library: Some(panoply_driver_sim::library()), ..HipDriver::default() };
    let registry = Registry::new(vec![Arc::new(driver)], DeviceOptions::default());
    Some(registry.devices(Backend::Rocm).expect("the pretended driver has a device").swap_remove(0))
}

#[test]
fn the_kernels_that_ship_agree() {
    let Some(device) = rocm() else { return };
    for shipped in kernels::ALL {
        let verdict =
            shipped.check(&device, Size::Tiny, SEED).unwrap_or_else(|error| panic!("{}: {error}", shipped.name));
        assert!(verdict.passed(), "{}: {verdict}", shipped.name);
    }
    assert_eq!(device.memory_stats().buffers, 0, "every buffer came back");
}

#[test]
fn a_network_trains_as_on_the_cpu() {
    let Some(device) = rocm() else { return };
    steps::agree(&device);
}

/// Bits of all kinds: denormals, the least and the largest, infinities, NaN, squares and what lies beside them.
fn patterns(count: u64, bits: u32) -> impl Iterator<Item = u64> {
    let mut state = SEED;
    (0..count).map(move |i| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let word = state.rotate_left(state as u32 >> 27) >> (64 - bits);
        // Every eighth has an exponent of zero or ones only.
        let exponent = if bits == 32 { 0xFFu64 << 23 } else { 0x7FF << 52 };
        match i % 16 {
            3 => word & !exponent,
            11 => word | exponent,
            _ => word,
        }
    })
}

/// The device's root is off by one unit in the last place, its reciprocal root of f64 by half the bits, and it has no remainder at all.
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
        let first = wrong.first().map(|at| format!("{:e}, not {:e}", found[*at], expected[*at]));
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
