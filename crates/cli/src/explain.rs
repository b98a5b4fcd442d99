//! `panoply explain`: every stage, from the expression or the kernel to what the device runs.

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
use panoply::internal::{TracedGraph, group_size, vm};
use panoply::kernels::ALL;
use panoply::{AttentionOptions, ConvOptions, Device, Error, Result, Rng, Tensor, eval};
use serde_json::json;

use self::virtual_target::VirtualTarget;
use crate::output::{self, DeviceArgs};

/// Every stage of a kernel or tensor expression, down to the device's own text.
#[derive(Args)]
pub struct ExplainCommand {
    /// An expression, as "softmax(x @ w + b)" or "(x.matmul(&w) + &b).softmax(-1)"; a shipped program (saxpy, reduction …) or one of its kernels; or an example (relu, gelu, softmax_rows, layer_norm, conv2d, attention, dense, training_step).
    #[arg(allow_hyphen_values = true)]
    name: String,
    /// The shapes of the tensors an expression names, as x=64x128,w=128x10; the others are 64 × 64.
    #[arg(long = "shape", value_name = "NAME=LENGTHS", value_delimiter = ',')]
    shapes: Vec<String>,
    /// Only this stage.
    #[arg(long, value_enum)]
    stage: Option<Stage>,
    #[command(flatten)]
    device: DeviceArgs,
    /// For a device that is not here: cuda, cuda:sm_90, rocm, rocm:gfx90a, metal, dx12, vulkan, webgpu, opencl, oneapi or cpu, with the least that such devices have.
    #[arg(long, value_name = "KIND[:MODEL]", conflicts_with_all = ["device", "strict"])]
    target: Option<String>,
    /// One JSON document on stdout.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Stage {
    /// The Rust function, for a kernel that ships.
    Rust,
    /// The tensor graph.
    Graph,
    /// Which nodes share a kernel.
    Schedule,
    /// Buffers and launches.
    Plan,
    /// The kernel IR as it was built.
    Ir,
    /// Which passes changed it.
    Passes,
    /// The kernel IR after all passes.
    Optimized,
    /// What the device is given.
    Device,
}

impl Stage {
    /// As it is written on the command line.
    fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }
}

struct Section {
    stage: Stage,
    title: String,
    text: String,
}

/// Makes the tensors of an expression.
type Expression = fn(&mut Rng) -> Vec<Tensor>;

/// Examples that can be explained by name.
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
    // A value of its own, so that its making is not explained too.
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
    let choice = arguments.device.select()?;
    print(arguments, choice.device(), None)?;
    Ok(choice.exit_code())
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
            "explain: nothing is asked for; give an expression, as `relu(x)`, or a kernel's name",
        ));
    }
    if expression::is_expression(name) {
        let expression::Expression { values, names } = expression::read(name, &arguments.shapes)?;
        explain_expression(&values, &names, device, &mut sections)?;
        return Ok(sections);
    }
    if !arguments.shapes.is_empty() {
        return Err(Error::mistake(format!("explain: --shape is for expressions, and {name} has shapes of its own")));
    }
    // A program of several kernels is all of them, a kernel's own name that one.
    let is_program = ALL.iter().any(|shipped| shipped.name == name);
    let kernels = ALL.iter().flat_map(|shipped| shipped.kernels.iter().map(move |kernel| (shipped, kernel)));
    let wanted = kernels.filter(|(shipped, (known, _))| if is_program { shipped.name == name } else { *known == name });
    let wanted: Vec<_> = wanted.collect();
    if !wanted.is_empty() {
        for (shipped, (name, build)) in wanted {
            let text = function(shipped.source, name);
            sections.push(Section { stage: Stage::Rust, title: format!("{name}: Rust"), text });
            explain_kernel(&verify(build()?)?, LONG, device, &mut sections)?;
        }
    } else if let Some((_, expression)) = EXPRESSIONS.iter().find(|(known, _)| *known == name) {
        explain_expression(&expression(&mut Rng::seed_from_u64(0)), &BTreeMap::new(), device, &mut sections)?;
    } else {
        let kernels = ALL.iter().flat_map(|shipped| shipped.kernels).map(|(known, _)| *known);
        let programs = ALL.iter().map(|shipped| shipped.name);
        let mut known: Vec<&str> = programs.chain(kernels).chain(EXPRESSIONS.iter().map(|(known, _)| *known)).collect();
        known.sort_unstable();
        known.dedup();
        let message = format!(
            "explain: nothing is called {name}; give an expression, as `relu(x)`, or one of {}",
            known.join(", ")
        );
        return Err(Error::mistake(message));
    }
    Ok(sections)
}

/// The lines of a kernel with their numbers, from its attribute to its last brace.
fn function(source: &str, name: &str) -> String {
    let lines: Vec<(usize, &str)> = source.lines().enumerate().collect();
    let head = format!("fn {name}");
    let at = lines.iter().position(|(_, line)| line.contains(&head)).unwrap_or(0);
    let start = lines[..at].iter().rposition(|(_, line)| line.starts_with("#[kernel")).unwrap_or(at);
    let end = lines[at..].iter().position(|(_, line)| *line == "}").map_or(lines.len(), |length| at + length + 1);
    lines[start..end].iter().map(|(number, line)| format!("{:>4}  {line}\n", number + 1)).collect()
}

/// Which leaf of a graph is which tensor, a line for each that has a name, and which number stands in which slot.
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
    let options = Options { accuracy: device.math_mode(), tf32: device.is_tf32_allowed(), ..Options::default() };
    let scheduled = schedule_with(options.accuracy, &traced.graph, target, &offers)?;
    let planned = plan_with(&options, &traced.graph, target, &offers)?;
    let mut add = |stage, title: &str, text: String| sections.push(Section { stage, title: title.into(), text });
    add(Stage::Graph, "what was asked for", format!("{}{}", legend(&traced, names)?, traced.graph));
    add(Stage::Schedule, "what shares a kernel", scheduled.to_string());
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

/// The launch that a kernel is shown for where nothing launches it: as many items along one axis as any group has.
const LONG: [u64; 3] = [1 << 20, 1, 1];

/// A kernel that is launched over so many items along each axis.
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
        let text = "the interpreter runs the kernel IR as it was built, so that its guards hide nothing".to_string();
        add(Stage::Device, format!("{name}: no text"), text);
        return Ok(());
    }
    let (mut changed, mut before) = (String::new(), kernel.to_string());
    let optimized = optimize_observed(kernel.clone(), target, &opt::Options::default(), &mut |pass, after| {
        let after = after.to_string();
        let note = if after == before {
            "nothing to do".to_string()
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
            let program = vm::compile::compile(&optimized, cover, vm::ops::Ops::of(vm::isa::Isa::best()))?;
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
                    let title = format!("{name}: {}, of which wgpu makes what follows", target.language.name());
                    add(Stage::Device, title, rendered.source);
                    translated
                }
                None => (target.language.name(), rendered.source),
            }
        }
    };
    add(Stage::Device, format!("{name}: {title}"), text);
    Ok(())
}

/// What a system's own compiler is given where that is not what was rendered.
#[cfg(feature = "wgpu")]
fn translated(device: &Device, rendered: &GeneratedSource, group: [u32; 3]) -> Result<Option<(&'static str, String)>> {
    use panoply::Backend;
    let program = || naga_translation::Program::read(&rendered.source, &rendered.entry, device.target(), group);
    Ok(match device.info().kind {
        Backend::Metal => Some((Language::Msl.name(), program()?.metal()?)),
        Backend::Dx12 => Some(("HLSL", program()?.direct3d()?)),
        Backend::Cuda
        | Backend::Rocm
        | Backend::OneApi
        | Backend::OpenCl
        | Backend::Vulkan
        | Backend::WebGpu
        | Backend::Cpu => None,
    })
}

/// Without `wgpu` there is no such device.
#[cfg(not(feature = "wgpu"))]
fn translated(_: &Device, _: &GeneratedSource, _: [u32; 3]) -> Result<Option<(&'static str, String)>> {
    Ok(None)
}
