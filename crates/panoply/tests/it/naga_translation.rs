//! What `wgpu` hands to Apple's and to Microsoft's compiler for every kernel that ships, and for those of the op table: its translator makes Metal's language and HLSL
//! of our WGSL, with the settings that it has on those systems, and as `panoply explain` shows them. Metal's is C++, so clang reads it, with a header of ours
//! (`metal/metal_stdlib`) in place of Apple's. HLSL is read by Khronos' glslang, as far as that knows it. Neither is executed.

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
        let shipped = shipped
            .map(|(name, build)| (name.to_string(), verify(build().expect("it builds")).expect("it verifies"), true));
        let random = (1..=15).map(|seed| {
            let dtypes = DType::ALL.into_iter().filter(|dtype| *dtype != DType::F64).collect();
            let options = Random { dtypes, transcendentals: seed % 5 == 0, ..Random::default() };
            (format!("random-{seed}"), case(seed, &options).kernel, false)
        });
        for (name, kernel, ships) in shipped.chain(random) {
            let (program, entry) = program(&kernel, &target);
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

/// The rows that compute in f64, which neither has.
const IN_F64: [&str; 1] = ["cast and back"];

/// The results of a row, and then its gradients.
fn results(row: &Row) -> Vec<Vec<Tensor>> {
    let value = (row.op)(&row.tensors(DType::F32));
    let inputs = row.tensors(DType::F32);
    let wanted: Vec<&Tensor> = inputs.iter().filter(|input| input.dtype().is_float()).collect();
    let gradients = || weighted(&(row.op)(&inputs)).and_then(|loss| loss.gradients(&wanted)).expect("it has gradients");
    [vec![value]].into_iter().chain(row.differentiable.then(gradients)).collect()
}

/// Every program that the op table comes to on such a device: its text, and its entry point with the row that was first.
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
                    let (entry, source) = entry.zip(source).expect("it holds what it runs");
                    found.entry(source).or_insert((entry, row.name));
                }
            }
        }
    });
    found
}

/// The op table's programs have forms for both, and clang reads Metal's, all in one text.
fn the_op_table_has_forms(target: &Target) {
    let mut all = String::new();
    let asked = asked(target);
    for (number, (source, (entry, row))) in asked.iter().enumerate() {
        let wrong = |error: panoply::Error| -> ! { panic!("{entry} of {row}: {error}\n{source}") };
        let program = Program::read(source, entry, target, [4; 3]).unwrap_or_else(|error| wrong(error));
        let metal = program.metal().unwrap_or_else(|error| wrong(error));
        let direct3d = program.direct3d().unwrap_or_else(|error| wrong(error));
        assert!(metal.contains("kernel void") && direct3d.contains("[numthreads("), "{row}: {metal}\n{direct3d}");
        let (heads, body): (Vec<&str>, Vec<&str>) = metal.lines().partition(|line| line.starts_with("#include"));
        if number == 0 {
            all = heads.join("\n");
        }
        all += &format!("\nnamespace program_{number} {{ // {row}\n{}\n}}\n", body.join("\n"));
    }
    // Each row is at least one kernel, and few are another row's.
    assert!(asked.len() > rows().count(), "{}", asked.len());
    if is_here("clang++-19", "Metal's language") {
        let file = format!("panoply-rows-{}-{}", std::process::id(), target.int64);
        let folder = std::env::temp_dir().join(file);
        std::fs::create_dir_all(&folder).unwrap();
        read(clang(), &folder, "rows.metal", &all);
        std::fs::remove_dir_all(folder).unwrap();
    }
}

#[test]
fn the_op_table_has_forms_for_the_least_gpu() {
    the_op_table_has_forms(&targets()[0]);
}

#[test]
fn the_op_table_has_forms_for_a_rich_gpu() {
    the_op_table_has_forms(&targets()[1]);
}
