//! SPIR-V of every built-in kernel and of random kernels: Khronos' tools validate it and assemble it to the same words
//! as our assembler, and Intel's OpenCL runtime for CPUs executes it.

use crate::f16_conversion;
use crate::training_steps;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use panoply::kernels::{self, Size};
use panoply::runtime::{DeviceOptions, Registry};
use panoply::{Backend, Device};
use panoply_compile::opt::{self, optimize};
use panoply_compile::render::{Options, render_with};
use panoply_device::{Language, Signature, SourceText};
use panoply_driver::{OneApiDriver, OpenClDriver, spirv};
use panoply_ir::builder::Builder;
use panoply_ir::kernel::{Access, Builtin, Guard, Kernel};
use panoply_ir::random::{Options as Random, case};
use panoply_ir::verify::verify;
use panoply_ir::{Alu, DType, Target, Verified};

const SEED: u64 = 0x5eed;

fn tools() -> bool {
    let answers =
        |program: &str| Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success());
    let here = answers("spirv-as") && answers("spirv-val");
    if !here {
        eprintln!("SKIPPED: SPIR-V validation: spirv-tools is not installed; `cargo xtask install` installs it");
    }
    here
}

/// Returns two targets: one with all features, one with only the required ones.
fn targets() -> [Target; 2] {
    let least = Target::spirv_minimum();
    [Target { f64: true, f16: true, subgroup: 16, ..least.clone() }, Target { f64: true, ..least }]
}

fn render(kernel: &Verified<Kernel>, target: &Target, index_bits: u32) -> SourceText {
    let kernel = optimize(kernel.clone(), target, &opt::Options::default());
    let text = render_with(&kernel, target, &Options { index_bits }).expect("the kernel renders");
    let signature = Signature::of(&kernel, index_bits);
    SourceText { language: Language::SpirV, source: text.source, entry: text.entry, signature }
}

/// Runs one of Khronos' tools on files, for the SPIR-V version of a program.
fn run(tool: &str, target: &str, arguments: &[&Path], text: &SourceText) {
    let mut command = Command::new(tool);
    let output = command.args(["--target-env", target]).args(arguments).output().unwrap();
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{tool}: {}: {log}\n{}", text.entry, text.source);
}

/// Checks that our words equal those of `spirv-as`, except for the generator word of the header, and that they are
/// valid for OpenCL.
fn check(text: &SourceText) {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let call = CALLS.fetch_add(1, Ordering::Relaxed);
    let file = |end: &str| -> PathBuf {
        std::env::temp_dir().join(format!("panoply-spirv-{}-{call}.{end}", std::process::id()))
    };
    let (source, module) = (file("spvasm"), file("spv"));
    std::fs::write(&source, &text.source).unwrap();
    let version = if text.source.contains("; Version: 1.0") { "spv1.0" } else { "spv1.1" };
    run("spirv-as", version, &[&source, Path::new("-o"), &module], text);
    // OpenCL 2.1 accepts only version 1.0, 2.2 versions up to 1.2. In both, f16 arithmetic is an extension.
    let rules = match version {
        _ if text.source.contains("OpCapability Float16\n") => version,
        "spv1.0" => "opencl2.1",
        _ => "opencl2.2",
    };
    run("spirv-val", rules, &[&module], text);
    let mut theirs = std::fs::read(&module).unwrap();
    theirs[8..12].fill(0);
    let ours = spirv::assemble("test", text).unwrap_or_else(|error| panic!("{error}\n{}", text.source));
    let differ = ours.chunks(4).zip(theirs.chunks(4)).position(|(ours, theirs)| ours != theirs);
    assert!(ours == theirs, "{}: the words differ at {differ:?}\n{}", text.entry, text.source);
    [source, module].iter().for_each(|file| std::fs::remove_file(file).unwrap());
}

#[test]
fn builtin_kernels_are_valid() {
    if !tools() {
        return;
    }
    for (_, build) in kernels::ALL.iter().flat_map(|builtin| builtin.kernels.iter()) {
        let kernel = verify(build().expect("it builds")).expect("it verifies");
        for target in targets() {
            [32, 64].iter().for_each(|bits| check(&render(&kernel, &target, *bits)));
        }
    }
}

#[test]
fn random_kernels_are_valid() {
    if !tools() {
        return;
    }
    for seed in 1..=60 {
        let case = case(seed, &Random { transcendentals: seed % 4 == 0, ..Random::default() });
        check(&render(&case.kernel, &targets()[seed as usize % 2], 64));
    }
}

/// One variable's name is a suffix of another's.
#[test]
fn the_subgroup_lane_can_be_declared_before_the_local_id() {
    if !tools() {
        return;
    }
    let mut b = Builder::new("lane_then_place");
    b.group_size([32, 1, 1]);
    let y = b.buffer("y", DType::U32, Access::Out);
    let [lane, place, at] =
        [Builtin::SubgroupLane, Builtin::LocalId(0), Builtin::GlobalId(0)].map(|builtin| b.builtin(builtin));
    let sum = b.alu(Alu::Add, &[lane, place]);
    let word = b.cast(DType::U32, sum);
    b.store(y, at, word, Guard::Checked);
    let kernel = verify(b.finish().unwrap()).unwrap();
    let text = render(&kernel, &targets()[0], 64);
    let names = ["%SubgroupLocalInvocationId = OpVariable", "%LocalInvocationId = OpVariable"];
    let [lane, place] = names.map(|name| text.source.find(&format!("\n{name}")));
    assert!(lane.is_some() && lane < place, "{}", text.source);
    check(&text);
}

/// Returns Intel's GPU, or Intel's CPU runtime, which accepts the same programs.
fn device() -> Option<Device> {
    let driver = OneApiDriver { software: true, ..OneApiDriver::default() };
    let registry = Registry::new(vec![Arc::new(driver)], DeviceOptions::default());
    match registry.devices(Backend::OneApi) {
        Ok(mut devices) => Some(devices.swap_remove(0)),
        Err(error) => {
            eprintln!("SKIPPED: execution of SPIR-V: {}", error.message());
            None
        }
    }
}

#[test]
fn a_network_trains_as_on_the_cpu() {
    let Some(device) = device() else { return };
    training_steps::agree(&device);
}

/// Returns the same device without native f16 support.
fn without_f16() -> Option<Device> {
    // SAFETY: only `runtime` uses the devices, and it validates what it passes on.
    let devices = unsafe { OpenClDriver { spirv: true }.devices() }.unwrap_or_default();
    let takes = |device: &Arc<panoply_driver::opencl::OpenClDevice>| {
        panoply_device::RawDevice::target(&**device).language == Language::SpirV
    };
    let raw = Arc::try_unwrap(devices.into_iter().find(takes)?).ok()?;
    let poorer = raw.with_target(|target| target.f16 = false);
    Some(Device::new(Arc::new(poorer), DeviceOptions::default()))
}

#[test]
fn builtin_kernels_agree() {
    for device in device().into_iter().chain(without_f16()) {
        for builtin in kernels::ALL {
            let verdict =
                builtin.check(&device, Size::Tiny, SEED).unwrap_or_else(|error| panic!("{}: {error}", builtin.name));
            assert!(verdict.passed(), "{}: {verdict}", builtin.name);
        }
        assert_eq!(device.memory_stats().buffers, 0, "every buffer is freed");
    }
}

#[test]
fn every_f16_is_converted_exactly() {
    device().iter().chain(&without_f16()).for_each(f16_conversion::convert);
}
