//! The MSL and HLSL into which `wgpu` translates every built-in kernel and the kernels of the op table. naga translates
//! our WGSL with the settings that `wgpu` uses on those systems, and as `panoply explain` shows them. MSL is C++, so
//! clang parses it, with our header `metal/metal_stdlib` in place of Apple's. Khronos' glslang parses HLSL as far as it
//! supports it. Neither is executed.

#[path = "../../../cli/src/explain/naga_translation.rs"]
mod translated;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use panoply::internal::NullDevice;
use panoply::internal::conformance::row::{Row, weighted};
use panoply::internal::conformance::rows;
use panoply::runtime::DeviceOptions;
use panoply::{Device, Tensor, eval, kernels};
use panoply_compile::opt::{self, optimize};
use panoply_compile::render::{Options, render_with};
use panoply_device::DeviceCommand;
use panoply_ir::kernel::Kernel;
use panoply_ir::random::{Options as Random, case};
use panoply_ir::verify::verify;
use panoply_ir::{DType, Target, Verified};
use translated::Program;

/// Three GPUs: one without 64-bit integers (emulated by pairs of 32-bit words), without f16 (stored as parts of words)
/// and without subgroups; one with all of them; and one of Apple's that has only f16.
fn targets() -> [Target; 3] {
    let poor = Target { max_bindings: 28, shared_bytes: 32 << 10, ..Target::webgpu_minimum() };
    let halves = Target { f16: true, ..poor.clone() };
    [poor.clone(), Target { int64: true, f16: true, subgroup: 32, ..poor }, halves]
}

/// Returns the translator's program of a kernel, and its entry point.
fn program(kernel: &Verified<Kernel>, target: &Target) -> (Program, String) {
    let kernel = optimize(kernel.clone(), target, &opt::Options::default());
    let text = render_with(&kernel, target, &Options { index_bits: 32 }).expect("the kernel renders");
    let program = Program::parse(&text.source, &text.entry, target, [4; 3]);
    (program.unwrap_or_else(|error| panic!("{error}\n{}", text.source)), text.entry)
}

/// Compiles the source of a kernel.
fn read(mut compiler: Command, folder: &Path, name: &str, text: &str) {
    let file = folder.join(name);
    std::fs::write(&file, text).unwrap();
    let output = compiler.arg(&file).output().unwrap();
    let log = [output.stdout, output.stderr].map(|log| String::from_utf8_lossy(&log).into_owned()).concat();
    assert!(output.status.success(), "{name}: {log}\n{text}");
}

/// Returns the command that parses MSL.
fn clang() -> Command {
    let headers = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/metal");
    let mut clang = Command::new("clang++-19");
    clang.args(["-x", "c++", "-std=c++17", "-fsyntax-only", "-nostdinc", "-nostdinc++", "-Wno-unknown-attributes"]);
    clang.arg("-I").arg(headers);
    clang
}

/// Returns the command that parses HLSL.
fn glslang(entry: &str) -> Command {
    let mut glslang = Command::new("glslangValidator");
    glslang.args(["-D", "-S", "comp", "-V", "-o", if cfg!(windows) { "NUL" } else { "/dev/null" }, "-e", entry]);
    glslang
}

/// Returns true if a compiler is installed; else prints that the test is skipped.
fn is_here(compiler: &str, loses: &str) -> bool {
    let here = Command::new(compiler).arg("--version").output().is_ok_and(|output| output.status.success());
    if !here {
        eprintln!("SKIPPED: parsing of {loses}: {compiler} is not installed; `cargo xtask install` installs it");
    }
    here
}

#[test]
fn builtin_kernels_translate_to_msl_and_hlsl() {
    let folder = std::env::temp_dir().join(format!("panoply-translated-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let [clang_here, glslang_here] =
        [("clang++-19", "MSL"), ("glslangValidator", "HLSL")].map(|(name, loses)| is_here(name, loses));
    let mut count = 0;
    for target in targets() {
        let builtin = kernels::ALL.iter().flat_map(|builtin| builtin.kernels.iter());
        let builtin = builtin
            .map(|(name, build)| (name.to_string(), verify(build().expect("it builds")).expect("it verifies"), true));
        let random = (1..=15).map(|seed| {
            let dtypes = DType::ALL.into_iter().filter(|dtype| *dtype != DType::F64).collect();
            let options = Random { dtypes, transcendentals: seed % 5 == 0, ..Random::default() };
            (format!("random-{seed}"), case(seed, &options).kernel, false)
        });
        for (name, kernel, ships) in builtin.chain(random) {
            let (program, entry) = program(&kernel, &target);
            let metal = program.to_msl().expect("it translates to MSL");
            let direct3d = program.to_hlsl().expect("it translates to HLSL");
            assert!(metal.contains("kernel void") && direct3d.contains("[numthreads("), "{name}: {metal}\n{direct3d}");
            if clang_here {
                read(clang(), &folder, &format!("{name}.metal"), &metal);
            }
            // glslang supports neither 64-bit integers nor naga's initializers of zeroed arrays.
            if glslang_here && ships && !target.f16 {
                read(glslang(&entry), &folder, &format!("{name}.hlsl"), &direct3d);
            }
            count += 1;
        }
    }
    assert!(count >= 3 * (16 + 15), "{count}");
    std::fs::remove_dir_all(folder).unwrap();
}

/// Rows that compute in f64, which neither language has.
const IN_F64: [&str; 1] = ["cast and back"];

/// Returns the results of a row, followed by its gradients.
fn results(row: &Row) -> Vec<Vec<Tensor>> {
    let value = (row.op)(&row.tensors(DType::F32));
    let inputs = row.tensors(DType::F32);
    let wanted: Vec<&Tensor> = inputs.iter().filter(|input| input.dtype().is_float()).collect();
    let gradients =
        || weighted(&(row.op)(&inputs)).and_then(|loss| loss.gradients(&wanted)).expect("the row is differentiable");
    [vec![value]].into_iter().chain(row.differentiable.then(gradients)).collect()
}

/// Returns the source of every program that the op table runs on such a device, with its entry point and the first row
/// that uses it.
fn asked(target: &Target) -> BTreeMap<String, (String, &'static str)> {
    let null = Arc::new(NullDevice::new(target.clone()));
    let device = Device::new(null.clone(), DeviceOptions::default());
    let mut found = BTreeMap::new();
    device.scope(|| {
        for row in rows() {
            for results in results(row) {
                let done = eval(&results.iter().collect::<Vec<&Tensor>>());
                assert_eq!(done.is_err(), IN_F64.contains(&row.name), "{}: {done:?}", row.name);
                for (_, step) in null.take_steps() {
                    let DeviceCommand::Dispatch(dispatch) = step else { continue };
                    let (entry, source) = (null.entry(dispatch.program), null.source(dispatch.program));
                    let (entry, source) = entry.zip(source).expect("the device keeps the programs that it runs");
                    found.entry(source).or_insert((entry, row.name));
                }
            }
        }
    });
    found
}

/// Checks that the programs of the op table translate to both languages, and that clang parses their MSL as one file.
fn the_op_table_has_forms(target: &Target) {
    let mut all = String::new();
    let asked = asked(target);
    for (number, (source, (entry, row))) in asked.iter().enumerate() {
        let wrong = |error: panoply::Error| -> ! { panic!("{entry} of {row}: {error}\n{source}") };
        let program = Program::parse(source, entry, target, [4; 3]).unwrap_or_else(|error| wrong(error));
        let metal = program.to_msl().unwrap_or_else(|error| wrong(error));
        let direct3d = program.to_hlsl().unwrap_or_else(|error| wrong(error));
        assert!(metal.contains("kernel void") && direct3d.contains("[numthreads("), "{row}: {metal}\n{direct3d}");
        let (heads, body): (Vec<&str>, Vec<&str>) = metal.lines().partition(|line| line.starts_with("#include"));
        if number == 0 {
            all = heads.join("\n");
        }
        all += &format!("\nnamespace program_{number} {{ // {row}\n{}\n}}\n", body.join("\n"));
    }
    // Each row has at least one kernel, and rows share few of them.
    assert!(asked.len() > rows().count(), "{}", asked.len());
    if is_here("clang++-19", "MSL") {
        let file = format!("panoply-rows-{}-{}", std::process::id(), target.int64);
        let folder = std::env::temp_dir().join(file);
        std::fs::create_dir_all(&folder).unwrap();
        read(clang(), &folder, "rows.metal", &all);
        std::fs::remove_dir_all(folder).unwrap();
    }
}

#[test]
fn op_table_kernels_translate_for_a_minimal_gpu() {
    the_op_table_has_forms(&targets()[0]);
}

#[test]
fn op_table_kernels_translate_for_a_full_featured_gpu() {
    the_op_table_has_forms(&targets()[1]);
}
