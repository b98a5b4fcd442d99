//! NVIDIA's assembler compiles the PTX of every built-in kernel and of random kernels, for GPUs from Maxwell to
//! Blackwell.
//!
//! The register counts and spills that it reports are in `docs/measured/ptxas.md`; `UPDATE_GOLDEN=1` rewrites it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use panoply::internal::TracedGraph;
use panoply::{AttentionOptions, Device, Tensor, kernels};
use panoply_compile::opt::{self, optimize};
use panoply_compile::plan::{self, PlanStep};
use panoply_compile::render::{Options, render_with};
use panoply_ir::graph::{Graph, Op};
use panoply_ir::kernel::{Kernel, Space};
use panoply_ir::random::{Options as Random, case};
use panoply_ir::verify::verify;
use panoply_ir::{DType, MathMode, Target, Verified};

/// The oldest supported GPU, three in between and the newest.
const CAPABILITIES: [u32; 5] = [50, 75, 80, 90, 120];

/// Resources of a kernel as reported by the assembler.
struct Cost {
    registers: u32,
    spilled_bytes: u32,
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the assembler installed by `cargo xtask install`; without it prints that the test is skipped.
fn ptxas() -> Option<PathBuf> {
    let versions = std::fs::read_dir(root().join(".tools/venv/lib")).ok().into_iter().flatten().flatten();
    let at = |version: std::fs::DirEntry| version.path().join("site-packages/nvidia/cuda_nvcc/bin/ptxas");
    let found = versions.map(at).find(|file| file.is_file());
    if found.is_none() {
        eprintln!("SKIPPED: compilation of PTX: NVIDIA's ptxas is not installed; `cargo xtask install` installs it");
    }
    found
}

/// Returns the registers with 32-bit indices, which must not spill, and with 64-bit ones.
fn costs(ptxas: &Path, name: &str, kernel: &Verified<Kernel>, capability: u32) -> String {
    let [narrow, wide] = [32, 64].map(|bits| assemble(ptxas, kernel, capability, bits));
    assert_eq!(narrow.spilled_bytes, 0, "{name} spills on sm_{capability}");
    let spilled =
        if wide.spilled_bytes > 0 { format!(" ({} bytes spilled)", wide.spilled_bytes) } else { String::new() };
    format!(" {} / {}{spilled} |", narrow.registers, wide.registers)
}

/// Returns a matrix product in every tile that is made of MMA fragments, the largest first, with names.
fn products(capability: u32) -> Vec<(String, Arc<Verified<Kernel>>)> {
    let mut graph = Graph::default();
    let [a, b] = [0, 1].map(|leaf| graph.push(Op::Input(leaf), &[], [2048, 2048], DType::BF16));
    let product = graph.push(Op::MatMul, &[a, b], [2048, 2048], DType::BF16);
    graph.outputs.push(product);
    let options = plan::Options { math_mode: MathMode::Standard, variants: true, ..plan::Options::default() };
    let plan = plan::plan_with(&options, &graph, &Target::cuda_minimum(capability), &|_| false).expect("it plans");
    let PlanStep::Kernel { kernel, .. } = &plan.steps[0] else { panic!("no kernel: {plan}") };
    let others = plan.variants.values().flatten().map(|variant| variant.kernel.clone());
    let mut kernels: Vec<_> = others.chain([kernel.clone()]).collect();
    kernels.iter().for_each(|kernel| assert!(kernel.to_string().contains("group_mma<bf16>")));
    kernels.sort_by_key(|kernel| std::cmp::Reverse(kernel.shared_bytes()));
    let items = |kernel: &Kernel| kernel.group_size.map_or(1, |group| group.iter().product::<u32>());
    // A row or column of a tile in shared memory takes 20 words.
    let name = |kernel: &Kernel| {
        let lines = kernel
            .mems
            .iter()
            .filter_map(|mem| if let Space::Shared(words) = mem.space { Some(words / 20) } else { None });
        let lines: Vec<String> = lines.map(|lines| lines.to_string()).collect();
        format!("product of bf16, {} tile, {} threads", lines.join(" × "), items(kernel))
    };
    kernels.into_iter().map(|kernel| (name(&kernel), kernel)).collect()
}

/// Returns the kernels of attention (16 heads, 1024 positions) and of its gradients as they are selected, with names.
fn attentions(capability: u32) -> Vec<(String, Arc<Verified<Kernel>>)> {
    let device = Device::get("cpu").expect("the CPU is always present");
    let of = |(dtype, width): (DType, usize)| {
        let [q, k, v] = [0, 1, 2].map(|_| Tensor::zeros([16, 1024, width], dtype));
        let y = q.scaled_dot_product_attention(
            &k,
            &v,
            &AttentionOptions { is_causal: true, ..AttentionOptions::default() },
        );
        let mut roots = y.cast(DType::F32).square().sum(..).gradients(&[&q, &k, &v]).expect("attention has gradients");
        roots.insert(0, y);
        let traced = TracedGraph::new(&device, &roots.iter().collect::<Vec<&Tensor>>()).expect("it is traced");
        let plan = plan::plan(&traced.graph, &Target::cuda_minimum(capability), &|_| false).expect("it plans");
        let kernels = plan.steps.iter().filter_map(|step| step.kernel().cloned());
        let own = kernels.filter(|kernel| kernel.name.starts_with("attention"));
        own.map(|kernel| (format!("`{}` of {dtype}, {width} wide", kernel.name), kernel)).collect::<Vec<_>>()
    };
    device.scope(|| [(DType::F32, 64), (DType::F32, 128), (DType::BF16, 64), (DType::BF16, 128)].map(of).concat())
}

fn assemble(ptxas: &Path, kernel: &Verified<Kernel>, capability: u32, index_bits: u32) -> Cost {
    let target = Target::cuda_minimum(capability);
    let kernel = optimize(kernel.clone(), &target, &opt::Options::default());
    let text = render_with(&kernel, &target, &Options { index_bits }).expect("the kernel renders").source;
    // A folder for each call: tests run in parallel.
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let call = CALLS.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("panoply-ptxas-{}-{call}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join(format!("{}-{capability}-{index_bits}.ptx", kernel.name));
    std::fs::write(&file, &text).unwrap();
    let mut command = Command::new(ptxas);
    command.args(["--verbose", "--gpu-name", &format!("sm_{capability}"), "--output-file"]);
    let output = command.arg(file.with_extension("cubin")).arg(&file).output().unwrap();
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{} for sm_{capability}: {log}\n{text}", kernel.name);
    std::fs::remove_dir_all(folder).unwrap();
    let before = |words: &str| {
        let end = log.find(words).unwrap_or_else(|| panic!("no {words:?} in {log}"));
        log[..end].split_whitespace().last().and_then(|number| number.parse().ok()).expect("a number")
    };
    let spilled_bytes: u32 = before(" bytes spill stores");
    Cost { registers: before(" registers"), spilled_bytes }
}

/// Returns every built-in kernel with its name.
fn builtin() -> Vec<(&'static str, Verified<Kernel>)> {
    let all = kernels::ALL.iter().flat_map(|builtin| builtin.kernels.iter());
    all.map(|(name, build)| (*name, verify(build().expect("it builds")).expect("it verifies"))).collect()
}

#[test]
fn builtin_kernels_compile_without_spills() {
    let Some(ptxas) = ptxas() else { return };
    let mut table = "\
# Registers of the built-in kernels

Written by `UPDATE_GOLDEN=1 cargo test -p panoply --test it ptxas`: what ptxas 12.9.86 makes of the PTX of each kernel that ships, and of
products by fragments (2048 × 2048) and attention (16 heads of 1024, causal), with 32-bit indices and, after the stroke, 64-bit ones. Registers of a thread; what spills
says so. These are counts, not timings; [timings of an H100](cuda-h100.md) are elsewhere.

| kernel |"
        .to_string();
    CAPABILITIES.iter().for_each(|capability| table += &format!(" sm_{capability} |"));
    table += &format!("\n|---|{}\n", "---|".repeat(CAPABILITIES.len()));
    for (name, kernel) in builtin() {
        table += &format!("| `{name}` |");
        for capability in CAPABILITIES {
            let costs = costs(&ptxas, name, &kernel, capability);
            assert!(!costs.contains("spilled"), "{name} on sm_{capability}: {costs}");
            table += &costs;
        }
        table.push('\n');
    }
    let with: Vec<u32> = CAPABILITIES.into_iter().filter(|level| Target::cuda_minimum(*level).mma).collect();
    for (number, (name, _)) in products(with[0]).iter().enumerate() {
        table += &format!("| {name} |{}", " – |".repeat(CAPABILITIES.len() - with.len()));
        for capability in &with {
            table += &costs(&ptxas, name, &products(*capability)[number].1, *capability);
        }
        table.push('\n');
    }
    for (number, (name, _)) in attentions(CAPABILITIES[0]).iter().enumerate() {
        table += &format!("| {name} |");
        for capability in CAPABILITIES {
            table += &costs(&ptxas, name, &attentions(capability)[number].1, capability);
        }
        table.push('\n');
    }
    let path = root().join("docs/measured/ptxas.md");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &table).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == table, "{} differs; UPDATE_GOLDEN=1 accepts this:\n{table}", path.display());
}

#[test]
fn random_kernels_compile() {
    let Some(ptxas) = ptxas() else { return };
    for seed in 1..=15 {
        let case = case(seed, &Random { transcendentals: seed % 5 == 0, matrices: true, ..Random::default() });
        let capability = CAPABILITIES[seed as usize % CAPABILITIES.len()];
        assemble(&ptxas, &case.kernel, capability, 64);
    }
}
