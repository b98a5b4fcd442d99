//! Snapshot of a transformer training step as compiled for each target: launches, bytes, memory, and a hash of every
//! kernel.
//!
//! Nothing is computed: a recording device simulates each target. The result is kept in `docs/measured/schedules.md`,
//! where a change of the compiler shows its effects; `UPDATE_GOLDEN=1` rewrites it.

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use panoply::internal::NullDevice;
use panoply::nn::{
    AdamW, ForwardContext, Lambda, Layer, Linear, Module, Sequential, TransformerConfig, TransformerEncoderLayer,
};
use panoply::runtime::DeviceOptions;
use panoply::{DType, Device, Rng, eval};
use panoply_device::{DeviceCommand, ProgramId};
use panoply_ir::Target;
use xxhash_rust::xxh3::xxh3_64;

/// Commands of one step.
#[derive(Default)]
struct Asked {
    launches: usize,
    routines: BTreeMap<String, usize>,
    copies: usize,
    fills: usize,
    /// Bytes of all buffers that are bound to launches and routines, or copied.
    bytes: u64,
    /// Peak memory beyond the data, the parameters and the optimizer state.
    peak: u64,
    /// Number of launches of each kernel.
    kernels: BTreeMap<Kernel, usize>,
}

/// A kernel in the target's language.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Kernel {
    name: String,
    lines: usize,
    hash: u64,
}

/// Exceeds the number of operands of any launch or routine.
const MAX_OPERANDS: usize = 256;

/// Returns every kind of target, and whether it offers library routines.
fn targets() -> Vec<(Target, bool)> {
    let texts = [
        Target::opencl_minimum(),
        Target::spirv_minimum(),
        Target::cuda_minimum(80),
        Target::hip_minimum(32),
        Target::webgpu_minimum(),
    ];
    std::iter::once((Target::cpu(), true)).chain(texts.map(|target| (target, false))).collect()
}

/// Returns the second step of training an encoder; the first one also initializes.
fn step(target: Target, offers: bool) -> Asked {
    let null = NullDevice::new(target);
    let null = Arc::new(if offers { null.with_routines(panoply_routines::offers) } else { null });
    let device = Device::new(null.clone(), DeviceOptions::default());
    device.scope(|| {
        let mut rng = Rng::seed_from_u64(1);
        let shape = TransformerConfig {
            d_model: 256,
            num_heads: 4,
            dim_feedforward: 1024,
            norm_first: true,
            dropout: 0.0,
            is_causal: false,
        };
        let blocks =
            (0..4).fold(Sequential::new(), |blocks, _| blocks.add(TransformerEncoderLayer::new(shape, &mut rng)));
        let mut model = blocks.add(Lambda(|x| x.mean(1))).add(Linear::new(256, 10, &mut rng));
        let (x, y) = (rng.normal([4, 128, 256]), (rng.uniform([4]) * 10.0).cast(DType::I32));
        eval(&[&x, &y]).unwrap();
        let (x, y) = (x.detach(), y.detach());
        let mut optimizer = AdamW::new(1e-3);
        let mut asked = Asked::default();
        for _ in 0..2 {
            let mut pass = ForwardContext::train(&mut rng);
            let loss = model.forward(&x, &mut pass).cross_entropy(&y);
            // The first call creates the parameters.
            let planned = optimizer.memory_plan(&model, &loss, &pass).unwrap().allocated_bytes();
            null.take_steps();
            device.reset_peak_memory_stats();
            let before = device.memory_stats().allocated;
            optimizer.step(&mut model, loss, pass).unwrap();
            let peak = device.memory_stats().peak_allocated - before;
            assert!(planned.abs_diff(peak) * 20 <= peak, "{peak} bytes, {planned} planned");
            asked = Asked { peak, ..Asked::of(&null) };
        }
        assert_eq!(model.num_parameters(), 3_161_610);
        asked
    })
}

impl Asked {
    /// Returns the commands since the last call of `take_steps`.
    fn of(null: &NullDevice) -> Asked {
        let mut asked = Asked::default();
        for (_, step) in null.take_steps() {
            asked.bytes += (0..MAX_OPERANDS).filter_map(|at| step.region(at)).map(|region| region.bytes).sum::<u64>();
            match &step {
                DeviceCommand::Dispatch(dispatch) => {
                    asked.launches += 1;
                    *asked.kernels.entry(Kernel::of(null, dispatch.program)).or_default() += 1;
                }
                DeviceCommand::Routine(routine, _, epilogue) => {
                    let behind = epilogue.as_ref().map(|epilogue| Kernel::of(null, epilogue.dispatch.program).name);
                    let called = behind.map_or(routine.to_string(), |name| format!("{routine}, {name}"));
                    *asked.routines.entry(called).or_default() += 1;
                }
                DeviceCommand::Copy { .. } => asked.copies += 1,
                DeviceCommand::Fill { .. } => asked.fills += 1,
                DeviceCommand::Wait(_) => {}
            }
        }
        asked
    }
}

impl Kernel {
    fn of(null: &NullDevice, program: ProgramId) -> Kernel {
        let (name, source) = (null.entry(program), null.source(program));
        let (name, source) = (
            name.expect("the device keeps the programs that it runs"),
            source.expect("kernels of a plan have source text"),
        );
        Kernel { name, lines: source.lines().count(), hash: xxh3_64(source.as_bytes()) }
    }
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Asked { launches, routines, copies, fills, bytes, peak, kernels } = self;
        writeln!(f, "| launches | kernels | routines | copies | fills | bytes bound | peak bytes |")?;
        writeln!(f, "|---|---|---|---|---|---|---|")?;
        let (kinds, calls) = (kernels.len(), routines.values().sum::<usize>());
        writeln!(f, "| {launches} | {kinds} | {calls} | {copies} | {fills} | {bytes} | {peak} |\n\n```")?;
        for (routine, count) in routines {
            writeln!(f, "{count:>3} × {routine}")?;
        }
        for (Kernel { name, lines, hash }, count) in kernels {
            writeln!(f, "{count:>3} × {name}, {lines} lines, {hash:016x}")?;
        }
        writeln!(f, "```")
    }
}

#[test]
fn a_training_step_compiles_to_the_recorded_commands() {
    let mut table = String::from(
        "# A training step of a transformer on every target\n\n\
         Written by `UPDATE_GOLDEN=1 cargo test -p panoply --test it fusion_snapshot`: what a step of AdamW on an encoder (4 blocks, width 256, 4 heads, \n\
         4 examples of 128) asks of a device, as one that only records was asked it. Bytes bound are those of all buffers of all steps: what would\n\
         move if nothing stayed in a cache. The peak is what the step holds beside data, parameters and moments. Behind each kernel: launches, lines\n\
         of its text in the target's language (the kernel IR's for the CPU), and a hash of that text.\n",
    );
    for (target, offers) in targets() {
        let name = target.name.clone();
        let routines = if offers { ", which offers routines" } else { "" };
        write!(table, "\n## {name}{routines}\n\n{}", step(target, offers)).unwrap();
    }
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/measured/schedules.md");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &table).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == table, "{} differs; UPDATE_GOLDEN=1 accepts this:\n{table}", path.display());
}
