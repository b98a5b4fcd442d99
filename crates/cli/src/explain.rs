//! `panoply explain`: shows every stage from the expression or kernel to the device code.

mod expression;
#[cfg(feature = "wgpu")]
mod naga_translation;
mod virtual_target;

use std::collections::BTreeMap;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use panoply::internal::compile::opt::{self, optimize_observed};
use panoply::internal::compile::plan::{Options, PlanStep, plan_with};
use panoply::internal::compile::render::{GeneratedSource, render};
use panoply::internal::compile::schedule::schedule_with;
use panoply::internal::ir::kernel::Kernel;
use panoply::internal::ir::target::{Language, Style};
use panoply::internal::ir::verify::{Verified, verify};
use panoply::internal::{TracedGraph, group_size, isa, vm};
use panoply::kernels::ALL;
use panoply::nn::nearest::nearest_names;
use panoply::{AttentionOptions, ConvOptions, Device, Error, ErrorKind, Result, Rng, Tensor, eval};
use serde_json::json;

use self::virtual_target::VirtualTarget;
use crate::console;
use crate::output::{self, DeviceArgs};

/// Show every compilation stage of a kernel or tensor expression, down to device code
#[derive(Args)]
pub struct ExplainCommand {
    /// An expression, such as "softmax(x @ w + b)" or "(x.matmul(&w) + &b).softmax(-1)"; a built-in program (saxpy, reduction, …) or one of its kernels; or an example (relu, gelu, softmax_rows, layer_norm, conv2d, attention, dense, training_step)
    #[arg(allow_hyphen_values = true)]
    name: String,
    /// Shapes of the tensors of an expression, such as x=64x128,w=128x10 [default: 64x64]
    #[arg(long = "shape", value_name = "NAME=LENGTHS", value_delimiter = ',')]
    shapes: Vec<String>,
    /// Show only this stage [default: all stages]
    #[arg(long, value_enum)]
    stage: Option<Stage>,
    #[command(flatten)]
    device: DeviceArgs,
    /// Compile for a device that is not present: cuda, cuda:sm_90, rocm, rocm:gfx90a, metal, dx12, vulkan, webgpu, opencl, oneapi or cpu, with the minimum capabilities of such devices
    #[arg(long, value_name = "BACKEND[:ARCH]", conflicts_with_all = ["device", "strict"])]
    target: Option<String>,
    /// Print one JSON document on stdout
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Stage {
    /// The Rust function of a built-in kernel
    Rust,
    /// The tensor graph
    Graph,
    /// The nodes that share a kernel
    Schedule,
    /// Buffers and launches
    Plan,
    /// The kernel IR before optimization
    Ir,
    /// The effect of each optimization pass
    Passes,
    /// The kernel IR after all passes
    Optimized,
    /// The source text for the device
    Source,
}

impl Stage {
    /// Returns the spelling on the command line.
    fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }
}

struct Section {
    stage: Stage,
    title: String,
    text: String,
}

/// Builds the tensors of an example.
type Expression = fn(&mut Rng) -> Vec<Tensor>;

/// Examples by name.
const EXPRESSIONS: &[(&str, Expression)] = &[
    ("relu", |rng| vec![given(rng, &[64, 128]).relu()]),
    ("gelu", |rng| vec![given(rng, &[64, 128]).gelu()]),
    ("softmax_rows", |rng| vec![given(rng, &[64, 1000]).softmax(-1)]),
    ("layer_norm", |rng| vec![given(rng, &[64, 1000]).layer_norm(1e-5)]),
    ("dense", |rng| {
        let (x, w, b) = (given(rng, &[64, 784]), given(rng, &[784, 128]), given(rng, &[128]));
        vec![(x.matmul(&w) + &b).softmax(-1)]
    }),
    ("conv2d", |rng| {
        let (x, w) = (given(rng, &[16, 8, 32, 32]), given(rng, &[16, 8, 3, 3]));
        vec![x.conv(&w, &ConvOptions { padding: [1, 1], ..ConvOptions::default() }).relu()]
    }),
    ("attention", |rng| {
        let [q, k, v] = [0; 3].map(|_| given(rng, &[4, 8, 64, 32]));
        vec![q.scaled_dot_product_attention(
            &k,
            &v,
            &AttentionOptions { is_causal: true, ..AttentionOptions::default() },
        )]
    }),
    ("training_step", |rng| {
        let (x, w, b) = (given(rng, &[64, 64]), given(rng, &[64, 10]), given(rng, &[10]));
        let loss = (x.matmul(&w) + &b).log_softmax(-1).mean(..);
        let moved = |p: &Tensor, g: &Tensor| p - g * 0.1;
        match loss.gradients(&[&w, &b]) {
            Ok(gradients) => vec![moved(&w, &gradients[0]), moved(&b, &gradients[1]), loss],
            Err(mistake) => vec![Tensor::from_mistake(mistake)],
        }
    }),
];

fn given(rng: &mut Rng, shape: &[usize]) -> Tensor {
    let tensor = rng.uniform(shape);
    // Evaluated, so that its initialization is not explained too.
    match tensor.eval() {
        Ok(()) => tensor.detach(),
        Err(error) => Tensor::from_mistake(error),
    }
}

/// Prints the stages.
pub fn run(arguments: &ExplainCommand) -> Result<ExitCode> {
    if let Some(spelling) = &arguments.target {
        let VirtualTarget { device, note } = VirtualTarget::new(spelling)?;
        print(arguments, &device, Some(&note))?;
        return Ok(ExitCode::SUCCESS);
    }
    let choice = arguments.device.select().map_err(|error| match error.kind() {
        ErrorKind::Unavailable => {
            error.note("--target, as in --target cuda, compiles for a device that is not present")
        }
        _ => error,
    })?;
    print(arguments, choice.device(), None)?;
    Ok(ExitCode::SUCCESS)
}

fn print(arguments: &ExplainCommand, device: &Device, note: Option<&str>) -> Result<()> {
    let sections = device.scope(|| sections(arguments, device))?;
    if let Some(stage) = arguments.stage
        && sections.iter().all(|section| section.stage != stage)
    {
        let has = |stage: &&Stage| sections.iter().any(|section| section.stage == **stage);
        let known: Vec<String> = Stage::value_variants().iter().filter(has).map(|stage| stage.name()).collect();
        let message = format!("explain: {} has no stage {}; it has {}", arguments.name, stage.name(), known.join(", "));
        return Err(Error::mistake(message));
    }
    let wanted = sections.iter().filter(|section| arguments.stage.is_none_or(|stage| stage == section.stage));
    if arguments.json {
        let stages: Vec<_> = wanted
            .map(|section| json!({"stage": section.stage.name(), "title": section.title, "text": section.text}))
            .collect();
        let device = device.device_string();
        output::print_json(
            &json!({"schema": 1, "name": arguments.name, "device": device, "note": note, "stages": stages}),
        );
    } else {
        note.into_iter().for_each(|note| println!("{}: {note}\n", device.device_string()));
        wanted.for_each(|section| println!("── {} ──\n{}\n", section.title, section.text.trim_end()));
    }
    Ok(())
}

fn sections(arguments: &ExplainCommand, device: &Device) -> Result<Vec<Section>> {
    let (name, mut sections) = (arguments.name.as_str(), Vec::new());
    if name.trim().is_empty() {
        return Err(Error::mistake(
            "explain: missing expression; pass an expression such as `relu(x)`, or the name of a kernel",
        ));
    }
    if expression::is_expression(name) {
        let expression::Expression { values, names } = expression::read(name, &arguments.shapes)?;
        explain_expression(&values, &names, device, &mut sections)?;
        return Ok(sections);
    }
    if !arguments.shapes.is_empty() {
        return Err(Error::mistake(format!("explain: --shape is for expressions; {name} has fixed shapes")));
    }
    // The name of a program selects all its kernels, the name of a kernel only this one.
    let is_program = ALL.iter().any(|builtin| builtin.name == name);
    let kernels = ALL.iter().flat_map(|builtin| builtin.kernels.iter().map(move |kernel| (builtin, kernel)));
    let wanted = kernels.filter(|(builtin, (known, _))| if is_program { builtin.name == name } else { *known == name });
    let wanted: Vec<_> = wanted.collect();
    if !wanted.is_empty() {
        for (builtin, (name, build)) in wanted {
            let text = function(builtin.source, name);
            sections.push(Section { stage: Stage::Rust, title: format!("{name}: Rust"), text });
            explain_kernel(&verify(build()?)?, LONG, device, &mut sections)?;
        }
    } else if let Some((_, expression)) = EXPRESSIONS.iter().find(|(known, _)| *known == name) {
        explain_expression(&expression(&mut Rng::seed_from_u64(0)), &BTreeMap::new(), device, &mut sections)?;
    } else {
        let kernels = ALL.iter().flat_map(|builtin| builtin.kernels).map(|(known, _)| *known);
        let programs = ALL.iter().map(|builtin| builtin.name);
        let known = programs.chain(kernels).chain(EXPRESSIONS.iter().map(|(known, _)| *known)).collect();
        return Err(unknown(&format!("explain: unknown name {name}"), name, known));
    }
    Ok(sections)
}

/// Returns an error that names the three known words that are most similar to an unknown one, and with `--verbose` all.
fn unknown(what: &str, word: &str, mut known: Vec<&str>) -> Error {
    known.sort_unstable();
    known.dedup();
    let mut nearest = nearest_names(word, &known);
    nearest.truncate(3);
    let error = Error::mistake(format!("{what}; did you mean {}? `--verbose` lists all", nearest.join(", ")));
    if console::is_verbose() { error.note(format!("one of {}", known.join(", "))) } else { error }
}

/// Returns the source lines of a kernel with their numbers, from its attribute to its closing brace.
fn function(source: &str, name: &str) -> String {
    let lines: Vec<(usize, &str)> = source.lines().enumerate().collect();
    let head = format!("fn {name}");
    let at = lines.iter().position(|(_, line)| line.contains(&head)).unwrap_or(0);
    let start = lines[..at].iter().rposition(|(_, line)| line.starts_with("#[kernel")).unwrap_or(at);
    let end = lines[at..].iter().position(|(_, line)| *line == "}").map_or(lines.len(), |length| at + length + 1);
    lines[start..end].iter().map(|(number, line)| format!("{:>4}  {line}\n", number + 1)).collect()
}

/// Maps graph leaves to the names of their tensors, and slots to their numbers, one line each.
fn legend(traced: &TracedGraph<'_>, names: &BTreeMap<String, Tensor>) -> Result<String> {
    let mut lines = String::new();
    for (leaf, storage) in traced.leaves.iter().enumerate() {
        for (name, tensor) in names {
            if tensor.storage()?.ptr_eq(storage) {
                lines += &format!("leaf {leaf} is {name}, {}{}\n", tensor.dtype(), tensor.shape()?);
            }
        }
    }
    for (slot, number) in traced.slots.iter().enumerate() {
        lines += &format!("slot {slot} is {number}\n");
    }
    Ok(lines)
}

fn explain_expression(
    roots: &[Tensor],
    names: &BTreeMap<String, Tensor>,
    device: &Device,
    sections: &mut Vec<Section>,
) -> Result<()> {
    roots.iter().try_for_each(Tensor::check)?;
    let traced = TracedGraph::new(device, &roots.iter().collect::<Vec<&Tensor>>())?;
    let (target, offers) = (device.target(), |routine: &_| device.supports_routine(routine));
    let options = Options { math_mode: device.math_mode(), tf32: device.is_tf32_allowed(), ..Options::default() };
    let scheduled = schedule_with(options.math_mode, &traced.graph, target, &offers)?;
    let planned = plan_with(&options, &traced.graph, target, &offers)?;
    let mut add = |stage, title: &str, text: String| sections.push(Section { stage, title: title.into(), text });
    add(Stage::Graph, "tensor graph", format!("{}{}", legend(&traced, names)?, traced.graph));
    add(Stage::Schedule, "schedule", scheduled.to_string());
    add(Stage::Plan, "buffers and launches", planned.to_string());
    let mut shown: Vec<&str> = Vec::new();
    for step in &planned.steps {
        let (kernel, grid) = match step {
            PlanStep::Kernel { kernel, grid, .. } => (kernel, *grid),
            PlanStep::Routine { epilogue: Some(epilogue), .. } => (&epilogue.kernel, epilogue.grid),
            PlanStep::Routine { epilogue: None, .. } | PlanStep::Copy { .. } => continue,
        };
        if !shown.contains(&kernel.name.as_str()) {
            shown.push(&kernel.name);
            explain_kernel(kernel, grid, device, sections)?;
        }
    }
    eval(&roots.iter().collect::<Vec<&Tensor>>())
}

/// Grid for which a kernel without a launch is shown: at least as many items along one axis as any work-group has.
const LONG: [u64; 3] = [1 << 20, 1, 1];

/// Adds the stages of a kernel that is launched over this grid.
fn explain_kernel(
    kernel: &Verified<Kernel>,
    grid: [u64; 3],
    device: &Device,
    sections: &mut Vec<Section>,
) -> Result<()> {
    let (name, target) = (&kernel.name, device.target());
    let mut add = |stage, title: String, text: String| sections.push(Section { stage, title, text });
    add(Stage::Ir, format!("{name}: kernel IR"), kernel.to_string());
    if device.info().variant.as_deref() == Some("checked") {
        let text = "the interpreter runs the kernel IR before optimization, so that guards of the passes hide no error"
            .to_string();
        add(Stage::Source, format!("{name}: no device code"), text);
        return Ok(());
    }
    let (mut changed, mut before) = (String::new(), kernel.to_string());
    let optimized = optimize_observed(kernel.clone(), target, &opt::Options::default(), &mut |pass, after| {
        let after = after.to_string();
        let note = if after == before {
            "no change".to_string()
        } else {
            format!("{} lines → {}", before.lines().count(), after.lines().count())
        };
        changed += &format!("{:<20} {note}\n", pass.name);
        before = after;
    });
    add(Stage::Passes, format!("{name}: passes"), changed);
    add(Stage::Optimized, format!("{name}: kernel IR after the passes"), optimized.to_string());
    let (title, text) = match target.language {
        Language::Ir => {
            let Style::Cpu { .. } = target.style else { return Ok(()) };
            let cover = optimized.group_size.map_or(vm::program::TileShape::Row, vm::program::TileShape::Group);
            let program = vm::compile::compile(&optimized, cover, vm::ops::Ops::of(isa::Isa::best()))?;
            ("vector program", program.to_string())
        }
        Language::OpenClC
        | Language::Hip
        | Language::Ptx { .. }
        | Language::Wgsl
        | Language::SpirV
        | Language::CudaC
        | Language::Msl => {
            let rendered = render(&optimized, target)?;
            match translated(device, &rendered, group_size::size(target, grid, kernel.private_bytes()))? {
                Some(translated) => {
                    let title = format!("{name}: {}, which wgpu translates to the following", target.language.name());
                    add(Stage::Source, title, rendered.source);
                    translated
                }
                None => (target.language.name(), rendered.source),
            }
        }
    };
    add(Stage::Source, format!("{name}: {title}"), text);
    Ok(())
}

/// Returns the code for the system's shader compiler, if it differs from the generated source.
#[cfg(feature = "wgpu")]
fn translated(device: &Device, rendered: &GeneratedSource, group: [u32; 3]) -> Result<Option<(&'static str, String)>> {
    use panoply::Backend;
    let program = || naga_translation::Program::parse(&rendered.source, &rendered.entry, device.target(), group);
    Ok(match device.info().kind {
        Backend::Metal => Some((Language::Msl.name(), program()?.to_msl()?)),
        Backend::Dx12 => Some(("HLSL", program()?.to_hlsl()?)),
        Backend::Cuda
        | Backend::Rocm
        | Backend::OneApi
        | Backend::OpenCl
        | Backend::Vulkan
        | Backend::WebGpu
        | Backend::Cpu => None,
    })
}

/// Without `wgpu` no device needs a translation.
#[cfg(not(feature = "wgpu"))]
fn translated(_: &Device, _: &GeneratedSource, _: [u32; 3]) -> Result<Option<(&'static str, String)>> {
    Ok(None)
}
