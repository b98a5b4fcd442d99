//! Compares the rendered text of the kernels in `golden/*.ir` with the files beside them. `UPDATE_GOLDEN=1` rewrites
//! these.
//!
//! Together the kernels cover everything that the renderers emit. These texts are not executed here: that compilers
//! accept them and compute the same as the interpreter is tested on a device, with random kernels, generated kernels
//! and the conformance suite.

use std::path::PathBuf;

use naga::valid::Capabilities;
use panoply_compile::render::{Options, render, render_with};
use panoply_ir::builder::Builder;
use panoply_ir::kernel::{Access, Builtin, Guard, Kernel};
use panoply_ir::target::Language;
use panoply_ir::verify::{verify, verify_proven};
use panoply_ir::{Alu, DType, Target, Verified, text};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// Loads the kernel of a file.
fn kernel(name: &str) -> Verified<Kernel> {
    let source = std::fs::read_to_string(folder().join(name)).expect("the kernel's file exists");
    // SAFETY: nothing runs it.
    unsafe { verify_proven(text::parse(&source).expect("the kernel parses")) }.expect("the kernel verifies")
}

/// Returns a device with f64 and otherwise the minimum.
fn target() -> Target {
    Target { f64: true, ..Target::opencl_minimum() }
}

fn check(name: &str, text: &str) {
    let path = folder().join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, text).expect("the golden folder can be written");
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(golden == text, "{name} differs; UPDATE_GOLDEN=1 accepts this text:\n{text}");
}

#[test]
fn rendered_text_matches_golden_files() {
    let files = std::fs::read_dir(folder()).expect("the golden folder exists");
    let mut names: Vec<String> =
        files.map(|file| file.expect("the entry is readable").file_name().into_string().expect("ASCII")).collect();
    names.retain(|name| name.ends_with(".ir"));
    assert!(names.len() >= 10, "{names:?}");
    for name in names {
        let rendered = render(&kernel(&name), &target()).expect("the kernel renders");
        assert_eq!(rendered.index_bits, 64);
        check(&name.replace(".ir", ".cl"), &rendered.source);
        let rendered = render(&kernel(&name), &spirv_target()).expect("the kernel renders");
        check(&name.replace(".ir", ".spvasm"), &rendered.source);
        let rendered = render(&kernel(&name), &Target::cuda_minimum(75)).expect("the kernel renders");
        // The text of all expanded float functions is too long to review; devices and `expand_math` test it.
        if name != "floats.ir" {
            check(&name.replace(".ir", ".ptx"), &rendered.source);
            let rendered = render(&kernel(&name), &Target::hip_minimum(64)).expect("the kernel renders");
            check(&name.replace(".ir", ".hip"), &rendered.source);
        }
    }
}

/// Returns the same device with SPIR-V.
fn spirv_target() -> Target {
    Target { f64: true, ..Target::spirv_minimum() }
}

/// Returns a device with all extensions of WebGPU.
fn web_target() -> Target {
    Target { f64: true, int64: true, max_bindings: 32, shared_bytes: 32 << 10, ..Target::webgpu_minimum() }
}

#[test]
fn wgsl_matches_golden_files_and_is_valid() {
    for name in [
        "collectives",
        "halves",
        "histogram",
        "integers",
        "loops",
        "mandelbrot",
        "mma",
        "saxpy",
        "tree_sum",
        "vectors",
        "floats",
    ] {
        let kernel = kernel(&format!("{name}.ir"));
        for index_bits in [32, 64] {
            let rendered = render_with(&kernel, &web_target(), &Options { index_bits }).expect("the kernel renders");
            assert_eq!(rendered.index_bits, index_bits);
            validate(&rendered.source, Capabilities::all());
            if index_bits == 32 && name != "floats" {
                check(&format!("{name}.wgsl"), &rendered.source);
            }
        }
    }
    let kernel = kernel("loops.ir");
    check("loops.64.wgsl", &render(&kernel, &web_target()).expect("the kernel renders").source);
    // If the device has f16, elements are stored natively.
    let halves = Target { f16: true, ..web_target() };
    let rendered = render(&self::kernel("halves.ir"), &halves).expect("the kernel renders");
    validate(&rendered.source, Capabilities::FLOAT64 | Capabilities::SHADER_INT64 | Capabilities::SHADER_FLOAT16);
    check("halves.f16.wgsl", &rendered.source);
    // If the device has subgroups, words are exchanged by shuffles.
    let lanes = Target { subgroup: 8, ..web_target() };
    let shuffling = "kernel shuffling(x: &mut [f32], y: &mut [i64]) group(32, 1, 1) {
        let sum: f32 = group_sum(x[global_id.x])
        let other: i64 = subgroup_shuffle(y[global_id.x], xor(cast<u32>(subgroup_lane_id()), 5u32))
        x[global_id.x] = sum
        y[global_id.x] = add(other, cast<i64>(subgroup_size()))
    }";
    let shuffling = verify(text::parse(shuffling).expect("parses")).expect("verifies");
    let rendered = render_with(&shuffling, &lanes, &Options { index_bits: 32 }).expect("the kernel renders");
    validate(&rendered.source, Capabilities::SHADER_INT64 | Capabilities::SUBGROUP);
    check("subgroups.wgsl", &rendered.source);
    // Without 64-bit numbers, 64-bit integers are pairs of words.
    let poor = Target { int64: false, f64: false, ..web_target() };
    for name in ["integers", "loops", "saxpy"] {
        let rendered = render(&self::kernel(&format!("{name}.ir")), &poor).expect("the kernel renders");
        validate(&rendered.source, Capabilities::empty());
        check(&format!("{name}.pairs.wgsl"), &rendered.source);
    }
    for (function, scales) in
        [("sin(x[0])", false), ("pow(x[0], 0.3f32)", true), ("div(x[0], x[1])", true), ("div(x[0], 3.0f32)", false)]
    {
        let kernel = format!("kernel k(x: &mut [f32]) {{\n    x[0] = {function}\n}}\n");
        let kernel = verify(text::parse(&kernel).expect("parses")).expect("verifies");
        let source = render(&kernel, &poor).expect("the kernel renders").source;
        // WGSL limits the error of a quotient by a divisor up to 2^126.
        assert_eq!(source.contains("quotient("), scales, "{source}");
        validate(&source, Capabilities::empty());
    }
}

/// Validates the source with naga, the shader compiler of `wgpu`.
fn validate(source: &str, capabilities: Capabilities) {
    let module = naga::front::wgsl::parse_str(source);
    let module = module.unwrap_or_else(|error| panic!("{}\n{source}", error.emit_to_string(source)));
    let mut validator = naga::valid::Validator::new(naga::valid::ValidationFlags::all(), capabilities);
    if let Err(error) = validator.validate(&module) {
        panic!("{}\n{source}", error.emit_to_string(source));
    }
}

#[test]
fn missing_wgsl_features_are_reported() {
    let message = "kernel halves needs f64, which webgpu does not have; compute in f32, or choose another device";
    let error = render(&kernel("halves.ir"), &Target::webgpu_minimum()).expect_err(message);
    assert_eq!(error.to_string(), message);
    let small = Target { shared_bytes: 1027, ..web_target() };
    let error = render(&kernel("histogram.ir"), &small).expect_err("too little shared memory");
    assert!(error.to_string().contains("shared memory"), "{error}");
}

#[test]
fn narrow_indices_and_native_f16() {
    let rendered = render_with(&kernel("loops.ir"), &target(), &Options { index_bits: 32 }).expect("renders");
    assert_eq!((rendered.index_bits, rendered.entry.as_str()), (32, "float_"));
    check("loops.32.cl", &rendered.source);
    let rendered = render_with(&kernel("loops.ir"), &Target::cuda_minimum(120), &Options { index_bits: 32 });
    check("loops.32.ptx", &rendered.expect("renders").source);
    let rendered = render(&kernel("mma.ir"), &Target::cuda_minimum(80)).expect("renders");
    check("mma.80.ptx", &rendered.source);
    let rendered = render_with(&kernel("loops.ir"), &Target::hip_minimum(32), &Options { index_bits: 32 });
    check("loops.32.hip", &rendered.expect("renders").source);
    let rendered = render(&kernel("halves.ir"), &Target { f16: true, ..target() }).expect("renders");
    check("halves.f16.cl", &rendered.source);
}

#[test]
fn missing_device_features_are_reported() {
    let (floats, shared) = (kernel("floats.ir"), kernel("histogram.ir"));
    let minimum = Target::opencl_minimum();
    let cases = [
        (
            &floats,
            minimum.clone(),
            "kernel floats needs f64, which opencl does not have; compute in f32, or choose another device",
        ),
        (
            &floats,
            Target { int64: false, ..target() },
            "kernel floats needs i64, which opencl does not have; compute in 32 bits, or choose another device",
        ),
        (
            &shared,
            Target { shared_bytes: 1000, ..minimum.clone() },
            "kernel histogram has 1028 bytes of shared memory, opencl allows 1000 at most; use smaller shared arrays or groups",
        ),
        (
            &shared,
            Target { max_group_items: 16, ..minimum.clone() },
            "kernel histogram has groups of 32 work-items, opencl allows 16 at most",
        ),
        (
            &shared,
            Target { max_group: [16, 1, 1], ..minimum.clone() },
            "kernel histogram has groups of 2 along axis 1, opencl allows 1 at most",
        ),
        (
            &shared,
            Target { max_bindings: 2, ..minimum.clone() },
            "kernel histogram has 4 buffers, opencl allows 2 at most; split the kernel",
        ),
        (
            &floats,
            Target { language: Language::Ir, ..Target::cpu() },
            "kernel floats: vm executes the kernel IR directly and has no text format; use a device with a text format, such as opencl",
        ),
    ];
    for (kernel, target, message) in cases {
        let error = render(kernel, &target).expect_err(message);
        assert!(error.is_unsupported());
        assert_eq!(error.to_string(), message);
    }
    let narrow = Options { index_bits: 64 };
    let error = render_with(&shared, &Target { int64: false, ..minimum }, &narrow).expect_err("64-bit indices");
    assert_eq!(
        error.to_string(),
        "kernel histogram needs 64-bit indices, which opencl does not have; use 32-bit indices"
    );
}

/// Each value is used twice by the next: text for every path would have 2²⁰⁰⁰ parts.
#[test]
fn shared_nodes_are_written_once() {
    let mut b = Builder::new("diamonds");
    let x = b.buffer("x", DType::F32, Access::InOut);
    let i = b.builtin(Builtin::GlobalId(0));
    let mut value = b.load(x, i, Guard::Checked);
    for _ in 0..2000 {
        value = b.alu(Alu::Mul, &[value, value]);
    }
    b.store(x, i, value, Guard::Checked);
    let kernel = verify(b.finish().expect("builds")).expect("verifies");
    let text = render(&kernel, &target()).expect("renders").source;
    assert!(text.len() < 2000 * 50, "{} bytes", text.len());
}
