//! What `wgpu` hands to Apple's and to Microsoft's compiler for every kernel that ships: its translator makes Metal's language and HLSL
//! of our WGSL, with the settings that it has on those systems, and as `panoply explain` shows them. Metal's is C++, so clang reads it, with a header of ours
//! (`metal/metal_stdlib`) in place of Apple's. HLSL is read by Khronos' glslang, as far as that knows it. Neither is executed.

#[path = "../../cli/src/explain/translated.rs"]
mod translated;

use std::path::{Path, PathBuf};
use std::process::Command;

use panoply::kernels;
use panoply_compile::opt::{self, optimize};
use panoply_compile::render::{Options, render_with};
use panoply_ir::kernel::Kernel;
use panoply_ir::random::{Options as Random, case};
use panoply_ir::verify::verify;
use panoply_ir::{DType, Target, Verified};
use translated::Program;

/// A GPU without 64-bit integers, which are pairs of words there, without f16, which are parts of words, and without subgroups; one with
/// all of them; and one of Apple's that has f16 alone.
fn targets() -> [Target; 3] {
    let poor = Target { max_bindings: 28, shared_bytes: 32 << 10, ..Target::webgpu_minimum() };
    let halves = Target { f16: true, ..poor.clone() };
    [poor.clone(), Target { int64: true, f16: true, subgroup: 32, ..poor }, halves]
}

/// The kernel for the translator, and its entry point.
fn program(kernel: &Verified<Kernel>, target: &Target) -> (Program, String) {
    let kernel = optimize(kernel.clone(), target, &opt::Options::default());
    let text = render_with(&kernel, target, &Options { index_bits: 32 }).expect("the kernel renders");
    let program = Program::read(&text.source, &text.entry, target, [4; 3]);
    (program.unwrap_or_else(|error| panic!("{error}\n{}", text.source)), text.entry)
}

/// Has a compiler read a text of a kernel.
fn read(mut compiler: Command, folder: &Path, name: &str, text: &str) {
    let file = folder.join(name);
    std::fs::write(&file, text).unwrap();
    let output = compiler.arg(&file).output().unwrap();
    let log = [output.stdout, output.stderr].map(|log| String::from_utf8_lossy(&log).into_owned()).concat();
    assert!(output.status.success(), "{name}: {log}\n{text}");
}

/// Reads Metal's language.
fn clang() -> Command {
    let headers = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/metal");
    let mut clang = Command::new("clang++-19");
    clang.args(["-x", "c++", "-std=c++17", "-fsyntax-only", "-nostdinc", "-nostdinc++", "-Wno-unknown-attributes"]);
    clang.arg("-I").arg(headers);
    clang
}

/// Reads HLSL.
fn glslang(entry: &str) -> Command {
    let mut glslang = Command::new("glslangValidator");
    glslang.args(["-D", "-S", "comp", "-V", "-o", if cfg!(windows) { "NUL" } else { "/dev/null" }, "-e", entry]);
    glslang
}

/// Whether a compiler is here; without it one loud line.
fn is_here(compiler: &str, loses: &str) -> bool {
    let here = Command::new(compiler).arg("--version").output().is_ok_and(|said| said.status.success());
    if !here {
        eprintln!("SKIPPED: nobody read {loses}: {compiler} is not installed; `cargo xtask install` installs it");
    }
    here
}

#[test]
fn the_kernels_that_ship_have_forms_for_metal_and_direct3d() {
    let folder = std::env::temp_dir().join(format!("panoply-translated-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let [clang_here, glslang_here] =
        [("clang++-19", "Metal's language"), ("glslangValidator", "HLSL")].map(|(name, loses)| is_here(name, loses));
    let mut count = 0;
    for target in targets() {
        let shipped = kernels::ALL.iter().flat_map(|shipped| shipped.kernels.iter());
        let shipped = shipped.map(|(name, build)| (name.to_string(), build().expect("it builds"), true));
        let random = (1..=15).map(|seed| {
            let dtypes = DType::ALL.into_iter().filter(|dtype| *dtype != DType::F64).collect();
            let options = Random { dtypes, transcendentals: seed % 5 == 0, ..Random::default() };
            (format!("random-{seed}"), Kernel::clone(&case(seed, &options).kernel), false)
        });
        for (name, kernel, ships) in shipped.chain(random) {
            let (program, entry) = program(&verify(kernel).expect("it verifies"), &target);
            let metal = program.metal().expect("it has a form in Metal's language");
            let direct3d = program.direct3d().expect("it has a form in HLSL");
            assert!(metal.contains("kernel void") && direct3d.contains("[numthreads("), "{name}: {metal}\n{direct3d}");
            if clang_here {
                read(clang(), &folder, &format!("{name}.metal"), &metal);
            }
            // It knows neither integers of 64 bits nor the zero of an array as the translator writes it.
            if glslang_here && ships && !target.f16 {
                read(glslang(&entry), &folder, &format!("{name}.hlsl"), &direct3d);
            }
            count += 1;
        }
    }
    assert!(count >= 3 * (16 + 15), "{count}");
    std::fs::remove_dir_all(folder).unwrap();
}
