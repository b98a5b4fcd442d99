//! The compilers of AMD's GPUs take the HIP C++ of every kernel that ships, and of random ones, for GPUs from Vega to RDNA 4.
//!
//! What clang says of registers and spills stands in `docs/measured/hip.md`; `UPDATE_GOLDEN=1` writes that anew.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use panoply::kernels;
use panoply_compile::opt::{self, optimize};
use panoply_compile::render::{Options, render_with};
use panoply_ir::kernel::Kernel;
use panoply_ir::random::{Options as Random, case};
use panoply_ir::verify::verify;
use panoply_ir::{Target, Verified};

/// GPUs from Vega on, and how many work-items their waves have: three of data centres, three of desktops.
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

fn text(kernel: &Verified<Kernel>, wave: u32, index_bits: u32) -> String {
    let target = Target::hip_minimum(wave);
    let kernel = optimize(kernel.clone(), &target, &opt::Options::default());
    render_with(&kernel, &target, &Options { index_bits }).expect("the kernel renders").source
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

Written by `UPDATE_GOLDEN=1 cargo test -p panoply --test hip`: what clang 19 makes of the HIP C++ of each kernel that ships, with
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
