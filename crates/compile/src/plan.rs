//! Compiles a graph to an executable plan.
//!
//! A [`Plan`] consists of buffers and steps. It contains no device and no address: leaves and outputs are numbered as
//! in the graph, and temporaries are offsets in an arena. The arena's size, and with it the plan's peak memory, is
//! known before anything runs. Equal kernels share one [`Arc`], so a repeated block compiles once. Equal graphs give
//! equal plans.

mod arena;
mod donation;
mod epilogue;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use panoply_ir::custom_kernel::Role as Passed;
use panoply_ir::graph::{Graph, NodeId, Op};
use panoply_ir::kernel::{Access, Kernel, Param, Space};
use panoply_ir::routine::{Gemm, Routine};
use panoply_ir::{DType, Error, MathMode, Result, Scalar, Target, Verified};

use crate::lower::{Argument, Lowered, lower, variants};
use crate::schedule::custom_kernel::CustomKernelCall;
use crate::schedule::loop_nest::LoopNest;
use crate::schedule::routine_match::RoutineMatch;
use crate::schedule::{Schedule, ScheduledOp, schedule_with};

/// Buffers and the steps that run on them, compiled from a graph.
#[derive(Clone, Debug)]
pub struct Plan {
    /// All buffers.
    pub buffers: Vec<PlanBuffer>,
    /// Steps, in execution order.
    pub steps: Vec<PlanStep>,
    /// Buffer of each graph output, in their order. An output can be a leaf, and two outputs can share a buffer.
    pub outputs: Vec<BufferId>,
    /// Bytes of each arena that holds temporaries: one arena, or several on a device with a small maximum buffer size.
    pub arenas: Vec<u64>,
    /// Bytes of temporaries and outputs together: the memory needed in addition to the leaves.
    pub peak_bytes: u64,
    /// For some kernel steps, keyed by step index: alternative kernels with the same arguments and bit-identical
    /// results.
    pub variants: BTreeMap<usize, Vec<Variant>>,
}

/// An alternative to a step's kernel.
#[derive(Clone, Debug)]
pub struct Variant {
    /// Kernel to launch.
    pub kernel: Arc<Verified<Kernel>>,
    /// Work-items along each axis.
    pub grid: [u64; 3],
}

/// Options of planning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Options {
    /// Permitted transformations of float arithmetic.
    pub math_mode: MathMode,
    /// True to compute f32 matrix products in TF32 if the device offers such a routine.
    pub tf32: bool,
    /// True to generate [`Plan::variants`], for autotuning.
    pub variants: bool,
}

/// Identifier of a plan's buffer: its index in [`Plan::buffers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BufferId(pub u32);

impl BufferId {
    /// Returns the index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A buffer of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanBuffer {
    /// Element type.
    pub dtype: DType,
    /// Number of elements.
    pub elems: u64,
    /// Owner and lifetime.
    pub role: Role,
}

impl PlanBuffer {
    /// Returns the size in bytes.
    pub fn bytes(&self) -> u64 {
        self.elems * self.dtype.bytes() as u64
    }
}

/// Owner and lifetime of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The n-th leaf, supplied by the caller and only read.
    Leaf(u32),
    /// The n-th leaf, donated by the caller: read first, then overwritten by the output that reuses its memory.
    Donated(u32),
    /// A graph output; the caller allocates it and keeps it. Every element is written.
    Output,
    /// A temporary, which lives only while the plan runs: bytes of an arena.
    Temp {
        /// Index of the arena in [`Plan::arenas`].
        arena: usize,
        /// Offset of the first byte, a multiple of [`arena::ALIGN`].
        offset: u64,
    },
}

/// One step of a plan.
#[derive(Clone, Debug)]
pub enum PlanStep {
    /// A launch of a kernel.
    Kernel {
        /// Kernel to launch.
        kernel: Arc<Verified<Kernel>>,
        /// Work-items along each axis.
        grid: [u64; 3],
        /// Arguments, in the order of the kernel's parameters.
        args: Vec<PlanArg>,
    },
    /// A library routine of the device.
    Routine {
        /// The routine.
        routine: Routine,
        /// Buffers, in the order of the routine's operands.
        buffers: Vec<BufferId>,
        /// Kernel fused into the routine that processes its first output.
        epilogue: Option<Box<PlanEpilogue>>,
    },
    /// A copy of an entire buffer.
    Copy {
        /// Source.
        from: BufferId,
        /// Destination, of the same length.
        to: BufferId,
    },
}

/// A kernel fused into a routine, applied to tiles of the routine's first output as they are produced. Work-item *i*
/// reads only element *i* of that output.
#[derive(Clone, Debug)]
pub struct PlanEpilogue {
    /// Kernel to run.
    pub kernel: Arc<Verified<Kernel>>,
    /// Work-items along each axis.
    pub grid: [u64; 3],
    /// Arguments, in the order of the kernel's parameters.
    pub args: Vec<PlanArg>,
    /// True if another step or the caller also needs the routine's output; if false, it need not be written.
    pub keep_output: bool,
}

/// An argument of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanArg {
    /// An entire buffer.
    Buffer(BufferId),
    /// The n-th scalar slot, passed at launch.
    ScalarInput(u32),
    /// A constant of the program.
    Scalar(Scalar),
}

/// Plans a graph with default [`Options`].
///
/// `offers` returns true for the routines that the target provides.
///
/// # Errors
///
/// Returns an error if the graph is invalid or cannot be lowered.
pub fn plan(graph: &Graph, target: &Target, offers: &dyn Fn(&Routine) -> bool) -> Result<Plan> {
    plan_with(&Options::default(), graph, target, offers)
}

/// Plans a graph like [`plan`], with options.
///
/// # Errors
///
/// Returns an error if the graph is invalid or cannot be lowered.
pub fn plan_with(options: &Options, graph: &Graph, target: &Target, offers: &dyn Fn(&Routine) -> bool) -> Result<Plan> {
    let mut schedule = schedule_with(options.math_mode, graph, target, offers)?;
    if options.tf32 {
        schedule.steps.iter_mut().for_each(|step| use_tf32(step, offers));
    }
    let taken = donation::assign_donations(&mut schedule, &graph.donated, target, options.math_mode)?;
    let mut planner = Planner {
        schedule: &schedule,
        options,
        buffers: Vec::new(),
        of: BTreeMap::new(),
        kernels: HashMap::new(),
        variants: BTreeMap::new(),
    };
    let outputs: Vec<BufferId> = schedule.graph.outputs.iter().map(|output| planner.output(*output)).collect();
    planner.apply_donations(&taken);
    planner.update_in_place();
    let mut steps = Vec::with_capacity(schedule.steps.len());
    for step in &schedule.steps {
        planner.step(step, target, &mut steps)?;
    }
    let Planner { mut buffers, variants, .. } = planner;
    let attached = epilogue::fuse_epilogues(target, offers, &buffers, steps);
    let stays = |at: usize| matches!(attached[at], Some(PlanStep::Kernel { .. }));
    let mut count = 0;
    let numbers: Vec<usize> = attached.iter().map(|step| (count, count += usize::from(step.is_some())).0).collect();
    let variants = variants.into_iter().filter(|(at, _)| stays(*at)).map(|(at, of)| (numbers[at], of)).collect();
    let steps: Vec<PlanStep> = attached.into_iter().flatten().collect();
    let arenas = arena::assign_offsets(&mut buffers, &steps, target.max_buffer_bytes);
    let kept = buffers.iter().filter(|buffer| buffer.role == Role::Output).map(PlanBuffer::bytes);
    let peak_bytes = arenas.iter().sum::<u64>() + kept.sum::<u64>();
    Ok(Plan { buffers, steps, outputs, arenas, peak_bytes, variants })
}

/// Switches an f32 matrix product to TF32 if the device offers that routine.
fn use_tf32(step: &mut ScheduledOp, offers: &dyn Fn(&Routine) -> bool) {
    if let ScheduledOp::Routine(RoutineMatch { routine, .. }) = step
        && let Routine::Gemm(gemm) = *routine
    {
        let short = Routine::Gemm(Gemm { tf32: true, ..gemm });
        if gemm.dtype == DType::F32 && offers(&short) {
            *routine = short;
        }
    }
}

struct Planner<'a> {
    schedule: &'a Schedule,
    options: &'a Options,
    buffers: Vec<PlanBuffer>,
    /// Buffer of each node.
    of: BTreeMap<NodeId, BufferId>,
    kernels: HashMap<u128, Arc<Verified<Kernel>>>,
    variants: BTreeMap<usize, Vec<Variant>>,
}

impl Planner<'_> {
    fn buffer(&mut self, id: NodeId, role: Role) -> BufferId {
        let node = self.schedule.graph.node(id);
        let role = match node.op {
            Op::Input(n) => Role::Leaf(n),
            _ => role,
        };
        *self.of.entry(id).or_insert_with(|| {
            self.buffers.push(PlanBuffer { dtype: node.dtype, elems: node.shape.numel() as u64, role });
            BufferId(self.buffers.len() as u32 - 1)
        })
    }

    fn output(&mut self, id: NodeId) -> BufferId {
        self.buffer(id, Role::Output)
    }

    /// Assigns donated leaves' memory to nodes.
    fn apply_donations(&mut self, taken: &[(NodeId, NodeId)]) {
        for (leaf, node) in taken {
            let buffer = self.used(*node);
            let Op::Input(number) = self.schedule.graph.node(*leaf).op else { unreachable!("only leaves are donated") };
            self.buffers[buffer.index()].role = Role::Donated(number);
            self.of.insert(*leaf, buffer);
        }
    }

    /// Gives an array that is updated in place, and not read afterwards, the buffer of the updated array.
    ///
    /// The kernel must not also load the array: another work-item could already have changed the element.
    fn update_in_place(&mut self) {
        let mut needed: BTreeSet<NodeId> = self.schedule.graph.outputs.iter().copied().collect();
        for step in self.schedule.steps.iter().rev() {
            let read = step.reads();
            if let ScheduledOp::Nest(LoopNest { updates_in_place: Some((before, after)), .. }) = step {
                let leaf = matches!(self.schedule.graph.node(*before).op, Op::Input(_));
                if !leaf && !needed.contains(before) && !read.contains(before) {
                    let buffer = self.used(*after);
                    self.of.insert(*before, buffer);
                }
                needed.insert(*before);
            }
            needed.extend(read);
        }
    }

    /// Returns the buffer of a node that a step reads or writes; its offset in the arena is assigned later.
    fn used(&mut self, id: NodeId) -> BufferId {
        self.buffer(id, Role::Temp { arena: 0, offset: 0 })
    }

    fn step(&mut self, step: &ScheduledOp, target: &Target, steps: &mut Vec<PlanStep>) -> Result<()> {
        match step {
            ScheduledOp::Routine(routine_match) => {
                let mut buffers: Vec<BufferId> = routine_match.inputs.iter().map(|id| self.used(*id)).collect();
                let written = routine_match.routine.operands().skip(routine_match.inputs.len());
                for (operand, output) in written.zip(&routine_match.outputs) {
                    buffers.push(match output {
                        Some(output) => self.used(*output),
                        None => self.scratch(operand.elems.unwrap_or(u64::MAX), operand.dtype),
                    });
                }
                steps.push(PlanStep::Routine { routine: routine_match.routine, buffers, epilogue: None });
            }
            ScheduledOp::Kernel(call) => self.custom_kernel(call, steps)?,
            ScheduledOp::Nest(nest) => {
                let (lowered, others) = self.lowered(nest, target)?;
                let kernel = self.shared(lowered.kernel);
                if let Some((before, after)) = nest.updates_in_place {
                    let (from, to) = (self.used(before), self.used(after));
                    if from != to {
                        steps.push(PlanStep::Copy { from, to });
                    }
                }
                let arg = |argument: &Argument| match argument {
                    Argument::Node(id) => PlanArg::Buffer(self.used(*id)),
                    Argument::ScalarInput(n) => PlanArg::ScalarInput(*n),
                };
                let args = lowered.arguments.iter().map(arg).collect();
                if !others.is_empty() {
                    self.variants.insert(steps.len(), others);
                }
                steps.push(PlanStep::Kernel { kernel, grid: lowered.grid, args });
            }
        }
        Ok(())
    }

    /// Lowers a nest to a kernel, and to its variants if the options ask for them.
    fn lowered(&mut self, nest: &LoopNest, target: &Target) -> Result<(Lowered, Vec<Variant>)> {
        let (graph, math_mode) = (&self.schedule.graph, self.options.math_mode);
        // If outputs alias inputs, only this kernel was checked to load elements before it stores them.
        if !self.options.variants || !nest.aliases.is_empty() {
            return Ok((lower(graph, nest, target, math_mode)?, Vec::new()));
        }
        let mut all = variants(graph, nest, target, math_mode)?;
        let others = all.split_off(1).into_iter();
        let others = others.map(|Lowered { kernel, grid, .. }| Variant { kernel: self.shared(kernel), grid }).collect();
        Ok((all.remove(0), others))
    }

    /// Returns the plan's shared instance of a kernel.
    fn shared(&mut self, kernel: Arc<Verified<Kernel>>) -> Arc<Verified<Kernel>> {
        self.kernels.entry(panoply_ir::hash(&kernel)).or_insert(kernel).clone()
    }

    /// Adds a custom kernel, preceded by copies of the arrays that it updates.
    fn custom_kernel(&mut self, call: &CustomKernelCall, steps: &mut Vec<PlanStep>) -> Result<()> {
        let kernel = &call.custom_kernel.kernel;
        let (mut inputs, mut outputs) = (call.inputs.iter(), call.outputs.iter().zip(&call.custom_kernel.outputs));
        let mut args = Vec::with_capacity(call.custom_kernel.roles.len());
        for role in &call.custom_kernel.roles {
            let input = if matches!(role, Passed::Write(_)) { None } else { inputs.next().copied() };
            let output = role.written().and_then(|_| outputs.next()).map(|(node, (shape, dtype))| match node {
                Some(node) => self.used(*node),
                None => self.scratch(shape.numel() as u64, *dtype),
            });
            args.push(match (output, input) {
                (None, Some(number)) if matches!(role, Passed::Scalar(_)) => {
                    match self.schedule.graph.node(number).op {
                        Op::ScalarInput(n) => PlanArg::ScalarInput(n),
                        Op::Const(value) => PlanArg::Scalar(value),
                        _ => {
                            let message =
                                format!("kernel {}: a scalar argument is computed on the device", kernel.name);
                            return Err(
                                Error::mistake(message).note("pass a scalar from the host, or a buffer of one element")
                            );
                        }
                    }
                }
                (None, Some(read)) => PlanArg::Buffer(self.used(read)),
                (Some(written), before) => {
                    if let Some(before) = before {
                        steps.push(PlanStep::Copy { from: self.used(before), to: written });
                    }
                    PlanArg::Buffer(written)
                }
                (None, None) => unreachable!("every parameter has an input or an output"),
            });
        }
        let changes = call.custom_kernel.roles.iter().any(|role| matches!(role, Passed::ReadWrite(_)));
        if self.options.variants && !changes && !call.custom_kernel.variants.is_empty() {
            let others = call.custom_kernel.variants.iter();
            let others = others.map(|(kernel, grid)| Variant { kernel: kernel.clone(), grid: *grid });
            self.variants.insert(steps.len(), others.collect());
        }
        steps.push(PlanStep::Kernel { kernel: kernel.clone(), grid: call.custom_kernel.grid, args });
        Ok(())
    }

    /// Adds a temporary for a result that is not used.
    fn scratch(&mut self, elems: u64, dtype: DType) -> BufferId {
        self.buffers.push(PlanBuffer { dtype, elems, role: Role::Temp { arena: 0, offset: 0 } });
        BufferId(self.buffers.len() as u32 - 1)
    }
}

impl PlanStep {
    /// Returns the kernel that the step runs, alone or as an epilogue, if any.
    pub fn kernel(&self) -> Option<&Arc<Verified<Kernel>>> {
        match self {
            PlanStep::Kernel { kernel, .. } => Some(kernel),
            PlanStep::Routine { epilogue, .. } => epilogue.as_ref().map(|epilogue| &epilogue.kernel),
            PlanStep::Copy { .. } => None,
        }
    }

    /// Returns the buffers that the step accesses.
    pub fn buffers(&self) -> impl Iterator<Item = BufferId> + '_ {
        self.touches().map(|(id, _)| id)
    }

    /// Returns the buffers that the step accesses, and the access to each.
    pub fn touches(&self) -> impl Iterator<Item = (BufferId, Access)> + '_ {
        let (launched, routine, copied): (Option<(&Kernel, &[PlanArg])>, _, _) = match self {
            PlanStep::Kernel { kernel, args, .. } => (Some((kernel, args)), None, None),
            PlanStep::Routine { routine, buffers, epilogue } => {
                let launched = epilogue.as_ref().map(|end| (&**end.kernel, &end.args[..]));
                (launched, Some((routine, buffers)), None)
            }
            PlanStep::Copy { from, to } => (None, None, Some([(*from, Access::In), (*to, Access::Out)])),
        };
        let launched = launched.into_iter().flat_map(|(kernel, args)| bound(kernel, args));
        let routine = routine.into_iter().flat_map(|(routine, buffers)| {
            buffers.iter().copied().zip(routine.operands().map(|operand| operand.access))
        });
        routine.chain(launched).chain(copied.into_iter().flatten())
    }
}

/// Returns the buffers bound to a kernel's parameters, and the kernel's access to each.
fn bound<'a>(kernel: &'a Kernel, args: &'a [PlanArg]) -> impl Iterator<Item = (BufferId, Access)> + 'a {
    kernel.params.iter().zip(args).filter_map(|pair| match pair {
        (Param::Buffer(mem), PlanArg::Buffer(id)) => match kernel.mem(*mem).space {
            Space::Buffer(access) => Some((*id, access)),
            Space::Shared(_) | Space::Private(_) => None,
        },
        (_, PlanArg::Buffer(_) | PlanArg::ScalarInput(_) | PlanArg::Scalar(_)) => None,
    })
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (id, buffer) in self.buffers.iter().enumerate() {
            write!(f, "b{id}: {} × {}, ", buffer.dtype, buffer.elems)?;
            match buffer.role {
                Role::Leaf(n) => writeln!(f, "leaf {n}")?,
                Role::Donated(n) => writeln!(f, "leaf {n}, donated")?,
                Role::Output => writeln!(f, "output")?,
                Role::Temp { arena: 0, offset } => writeln!(f, "arena at {offset}")?,
                Role::Temp { arena, offset } => writeln!(f, "arena {arena} at {offset}")?,
            }
        }
        for step in &self.steps {
            match step {
                PlanStep::Kernel { kernel, grid, args } => writeln!(f, "{}", launch(kernel, *grid, args))?,
                PlanStep::Copy { from, to } => writeln!(f, "copy b{} to b{}", from.0, to.0)?,
                PlanStep::Routine { routine, buffers, epilogue } => {
                    let all: Vec<String> = buffers.iter().map(|id| format!("b{}", id.0)).collect();
                    let read = routine.operands().filter(|operand| operand.access == Access::In).count();
                    let (inputs, outputs) = all.split_at(read);
                    writeln!(f, "{} = {}({}): {routine}", outputs.join(", "), routine.name(), inputs.join(", "))?;
                    if let Some(PlanEpilogue { kernel, grid, args, keep_output: keeps }) = epilogue.as_deref() {
                        let passing = if *keeps { "" } else { "; the routine's output is not kept" };
                        writeln!(f, "  epilogue {}{passing}", launch(kernel, *grid, args))?;
                    }
                }
            }
        }
        let outputs: Vec<String> = self.outputs.iter().map(|id| format!("b{}", id.0)).collect();
        writeln!(f, "outputs {}; {} bytes in addition to the leaves", outputs.join(", "), self.peak_bytes)
    }
}

fn launch(kernel: &Kernel, [x, y, z]: [u64; 3], args: &[PlanArg]) -> String {
    let args: Vec<String> = args.iter().map(PlanArg::to_string).collect();
    let group = kernel.group_size.map_or(String::new(), |group| format!(" in groups of {}", group[0]));
    format!("{}({}) over {x} × {y} × {z}{group}", kernel.name, args.join(", "))
}

impl fmt::Display for PlanArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlanArg::Buffer(id) => write!(f, "b{}", id.0),
            PlanArg::ScalarInput(n) => write!(f, "slot {n}"),
            PlanArg::Scalar(value) => write!(f, "{value}"),
        }
    }
}
