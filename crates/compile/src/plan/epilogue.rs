//! Fuses kernels into routines as epilogues: bias, activation, residual, cast, applied before the output leaves the
//! cache.
//!
//! Rule: a kernel is fused into a routine as its epilogue if work-item *i* reads only element *i* of the routine's
//! first output, regardless of its other accesses. The fused routine runs at the kernel's position. If no other step
//! needs the output, it is never written.
//!
//! This applies only if the routine runs on the processor that runs the kernels. On a GPU a vendor's routine is a
//! separate launch of a closed library, and our own products are kernels, into which [fusion](crate::schedule::fuse)
//! already placed their users. One pattern can be fused into a vendor's matrix product: a kernel that only adds the same
//! vector to every row, if the device offers a product with bias. Both round the sum before the bias is added, so the
//! bits are the same.

use panoply_ir::kernel::{Access, Expr, ExprId, Kernel, MemId, Op, Param, Stmt};
use panoply_ir::routine::{Gemm, Routine};
use panoply_ir::target::Style;
use panoply_ir::{Alu, Target, strides};

use super::{BufferId, PlanArg, PlanBuffer, PlanEpilogue, PlanStep, Role, bound};

/// Fuses kernels into routines as epilogues where the rule allows it. The fused routine replaces the kernel; the
/// routine's own position becomes `None`. `offers` returns true for routines that the device implements.
pub fn fuse_epilogues(
    target: &Target,
    offers: &dyn Fn(&Routine) -> bool,
    buffers: &[PlanBuffer],
    steps: Vec<PlanStep>,
) -> Vec<Option<PlanStep>> {
    let mut steps: Vec<Option<PlanStep>> = steps.into_iter().map(Some).collect();
    let mut writers = vec![None; buffers.len()];
    let mut last_use = vec![0; buffers.len()];
    for (at, step) in steps.iter().flatten().enumerate() {
        step.buffers().for_each(|id| last_use[id.index()] = at);
    }
    for at in 0..steps.len() {
        let uses = Uses { writers: &writers, last_use: &last_use };
        if let Some((producer, with_epilogue)) = try_fuse(target, offers, buffers, &steps, uses, at) {
            steps[at] = Some(with_epilogue);
            steps[producer] = None;
        }
        for (id, access) in steps[at].iter().flat_map(PlanStep::touches) {
            if access != Access::In {
                writers[id.index()] = Some(at);
            }
        }
    }
    steps
}

/// Steps that access each buffer.
#[derive(Clone, Copy)]
struct Uses<'a> {
    /// The last step so far that writes it.
    writers: &'a [Option<usize>],
    /// The last step of the plan that accesses it.
    last_use: &'a [usize],
}

/// Returns the index of the routine into which the kernel at step `at` is fused, and the fused step.
fn try_fuse(
    target: &Target,
    offers: &dyn Fn(&Routine) -> bool,
    buffers: &[PlanBuffer],
    steps: &[Option<PlanStep>],
    uses: Uses<'_>,
    at: usize,
) -> Option<(usize, PlanStep)> {
    let Some(PlanStep::Kernel { kernel, grid, args }) = &steps[at] else { return None };
    let has_one_elem_per_item = |id: BufferId| buffers[id.index()].elems == grid.iter().product();
    let candidates = bound(kernel, args).filter(|(id, access)| *access == Access::In && has_one_elem_per_item(*id));
    let candidates =
        candidates.filter_map(|(id, _)| Some((uses.writers[id.index()].filter(|at| produces(&steps[*at], id))?, id)));
    let fitting = candidates.filter(|(producer, id)| fits(target, &steps[*producer..at], kernel, *grid, args, *id));
    let (producer, result) = fitting.max()?;
    let kept = matches!(buffers[result.index()].role, Role::Output | Role::Donated(_));
    let keep_output = kept || uses.last_use[result.index()] > at;
    let Some(PlanStep::Routine { routine, buffers: operands, .. }) = &steps[producer] else { return None };
    if matches!(target.style, Style::Cpu { .. }) {
        let epilogue = PlanEpilogue { kernel: kernel.clone(), grid: *grid, args: args.clone(), keep_output };
        let (routine, buffers) = (*routine, operands.clone());
        return Some((producer, PlanStep::Routine { routine, buffers, epilogue: Some(Box::new(epilogue)) }));
    }
    let biased = fuse_bias(routine, kernel, *grid, args, result);
    let (routine, bias, sum) = biased.filter(|(routine, ..)| !keep_output && offers(routine))?;
    // A plan whose routine fails is restarted from the beginning, so nothing may overwrite a donated input before the last
    // routine has run.
    let writes_donated = |step: &PlanStep| {
        step.touches().any(|(id, access)| access != Access::In && matches!(buffers[id.index()].role, Role::Donated(_)))
    };
    if steps[producer + 1..=at].iter().flatten().any(writes_donated) {
        return None;
    }
    let buffers = vec![operands[0], operands[1], bias, sum];
    Some((producer, PlanStep::Routine { routine, buffers, epilogue: None }))
}

/// Returns the product with bias that replaces a product followed by this kernel, the bias, and the output buffer.
/// Returns `None` unless the kernel exactly adds one vector to every row.
fn fuse_bias(
    routine: &Routine,
    kernel: &Kernel,
    grid: [u64; 3],
    args: &[PlanArg],
    result: BufferId,
) -> Option<(Routine, BufferId, BufferId)> {
    let Routine::Gemm(gemm) = *routine else { return None };
    let [Stmt { op: Op::Store { mem: sum, value, .. }, .. }] = &kernel.body[..] else { return None };
    let Expr::Alu(Alu::Add, operands) = kernel.exprs.get(*value) else { return None };
    let read = |id: ExprId| match kernel.exprs.get(id) {
        Expr::Load { mem, .. } => Some((mem, buffer(kernel, args, mem)?)),
        _ => None,
    };
    let (first, second) = (read(operands[0])?, read(operands[1])?);
    let (bias, from) = if first.1 == result { second } else { first };
    let rows = grid[0] == gemm.n as u64 && strides::strides(kernel, bias) == Some([1, 0, 0]);
    let elementwise = strides::strides(kernel, *sum).is_some_and(|own| strides::is_linear(own, grid));
    let (biased, to) = (Routine::Gemm(Gemm { bias: true, ..gemm }), buffer(kernel, args, *sum)?);
    // With one row the bias has as many elements as the output, so both could be the same donated buffer.
    let disjoint = from != result && from != to;
    (rows && elementwise && disjoint && !gemm.bias).then_some((biased, from, to))
}

/// Returns the plan's buffer that is bound to a memory of the kernel; `None` for shared and private memory.
fn buffer(kernel: &Kernel, args: &[PlanArg], mem: MemId) -> Option<BufferId> {
    kernel.params.iter().zip(args).find_map(|(param, arg)| match (param, arg) {
        (Param::Buffer(own), PlanArg::Buffer(id)) if *own == mem => Some(*id),
        _ => None,
    })
}

/// Returns true if this step is a routine without an epilogue whose first output is the buffer.
fn produces(step: &Option<PlanStep>, id: BufferId) -> bool {
    let Some(PlanStep::Routine { routine, buffers, epilogue: None }) = step else { return false };
    let mut results = routine.operands().zip(buffers).filter(|(operand, _)| operand.access != Access::In);
    results.next().is_some_and(|(_, result)| *result == id)
}

/// Returns true if the kernel can be the epilogue of the first of these steps, all of which precede it.
fn fits(
    target: &Target,
    steps: &[Option<PlanStep>],
    kernel: &Kernel,
    grid: [u64; 3],
    args: &[PlanArg],
    result: BufferId,
) -> bool {
    let [Some(routine), between @ ..] = steps else { return false };
    let own = kernel.params.iter().zip(args).find_map(|(param, arg)| match (param, arg) {
        (Param::Buffer(mem), PlanArg::Buffer(id)) if *id == result => Some(*mem),
        _ => None,
    });
    // A custom kernel can receive the output twice, and read it in another order as well.
    let once = args.iter().filter(|arg| **arg == PlanArg::Buffer(result)).count() == 1;
    let elementwise =
        own.and_then(|mem| strides::strides(kernel, mem)).is_some_and(|own| strides::is_linear(own, grid));
    // No step in between changes the routine's operands, and the kernel's writes do not overlap them.
    let conflicts = |(id, access): (BufferId, Access)| {
        routine.touches().any(|(other, ours)| other == id && (access != Access::In || ours != Access::In))
    };
    let movable = !between.iter().flatten().any(|step| step.touches().any(conflicts));
    let disjoint = !bound(kernel, args).filter(|(id, _)| *id != result).any(conflicts);
    let bindings = routine.buffers().count() + bound(kernel, args).count();
    once && elementwise
        && movable
        && disjoint
        && kernel.group_size.is_none()
        && bindings <= target.max_bindings as usize
}
