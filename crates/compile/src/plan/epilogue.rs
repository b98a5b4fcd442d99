//! What a routine's result goes through before it leaves the cache: bias, activation, residual, cast.
//!
//! THE rule of epilogues: a kernel becomes a routine's if each of its work-items reads of the routine's first result the
//! element of its own number and no other, whatever else it reads and writes. The routine then runs where the kernel stood. If
//! nobody else wants the result, it is never written.
//!
//! Only where a routine runs on the processor that runs the kernels: a GPU's is somebody else's program and a launch of its
//! own. Our products on a GPU are kernels, and [fusion](crate::schedule::fuse) has put there what follows from them. Of a kernel
//! behind somebody else's product one kind can go: that which adds the same vector to every row and does nothing else, where
//! a product with that bias is offered. Both round the sum, then what is added to it: the bits are the same.

use panoply_ir::kernel::{Access, Expr, ExprId, Kernel, MemId, Op, Param, Stmt};
use panoply_ir::routine::{Gemm, Routine};
use panoply_ir::target::Style;
use panoply_ir::{Alu, Target, strides};

use super::{BufferId, PlanArg, PlanBuffer, PlanEpilogue, PlanStep, Role, bound};

/// Makes kernels the epilogues of routines wherever the rule allows it: the routine is where the kernel was, and none where it was
/// itself.
pub fn fuse_epilogues(
    target: &Target,
    offers: &dyn Fn(&Routine) -> bool,
    buffers: &[PlanBuffer],
    steps: Vec<PlanStep>,
) -> Vec<Option<PlanStep>> {
    let mut steps: Vec<Option<PlanStep>> = steps.into_iter().map(Some).collect();
    let mut writers = vec![None; buffers.len()];
    for at in 0..steps.len() {
        if let Some((maker, with_epilogue)) = try_fuse(target, offers, buffers, &steps, &writers, at) {
            steps[at] = Some(with_epilogue);
            steps[maker] = None;
        }
        for (id, access) in steps[at].iter().flat_map(PlanStep::touches) {
            if access != Access::In {
                writers[id.index()] = Some(at);
            }
        }
    }
    steps
}

/// The routine whose epilogue the kernel at this step becomes, where it stands, and what stands here then. `writers` are the last steps
/// before that write each buffer.
fn try_fuse(
    target: &Target,
    offers: &dyn Fn(&Routine) -> bool,
    buffers: &[PlanBuffer],
    steps: &[Option<PlanStep>],
    writers: &[Option<usize>],
    at: usize,
) -> Option<(usize, PlanStep)> {
    let Some(PlanStep::Kernel { kernel, grid, args }) = &steps[at] else { return None };
    let parts = |id: BufferId| buffers[id.index()].elems == grid.iter().product();
    let own = bound(kernel, args).filter(|(id, access)| *access == Access::In && parts(*id));
    let own = own.filter_map(|(id, _)| Some((writers[id.index()].filter(|at| makes(&steps[*at], id))?, id)));
    let fitting = own.filter(|(maker, id)| fits(target, &steps[*maker..at], kernel, *grid, args, *id));
    let (maker, result) = fitting.max()?;
    let wanted = |step: &PlanStep| step.buffers().any(|id| id == result);
    let asked = matches!(buffers[result.index()].role, Role::Output | Role::Donated(_));
    let keeps = asked || steps[at + 1..].iter().flatten().any(wanted);
    let Some(PlanStep::Routine { routine, buffers: operands, .. }) = &steps[maker] else { return None };
    if matches!(target.style, Style::Cpu { .. }) {
        let epilogue = PlanEpilogue { kernel: kernel.clone(), grid: *grid, args: args.clone(), keep_output: keeps };
        let (routine, buffers) = (*routine, operands.clone());
        return Some((maker, PlanStep::Routine { routine, buffers, epilogue: Some(Box::new(epilogue)) }));
    }
    let biased = fuse_bias(routine, kernel, *grid, args, result);
    let (routine, bias, sum) = biased.filter(|(routine, ..)| !keeps && offers(routine))?;
    // Until the last routine has run all leaves stay: one that fails is made up for from the beginning.
    let spends = |step: &PlanStep| {
        step.touches().any(|(id, access)| access != Access::In && matches!(buffers[id.index()].role, Role::Donated(_)))
    };
    if steps[maker + 1..=at].iter().flatten().any(spends) {
        return None;
    }
    let buffers = vec![operands[0], operands[1], bias, sum];
    Some((maker, PlanStep::Routine { routine, buffers, epilogue: None }))
}

/// The product that does what this kernel does with a product's result besides, what it adds, and where it leaves the sum; none if that
/// is more or less than adding one vector to every row.
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
    let whole = strides::strides(kernel, *sum).is_some_and(|own| strides::count(own, grid));
    let (biased, to) = (Routine::Gemm(Gemm { bias: true, ..gemm }), buffer(kernel, args, *sum)?);
    // In one row the sum may be to lie where the bias does.
    let apart = from != result && from != to;
    (rows && whole && apart && !gemm.bias).then_some((biased, from, to))
}

/// What a kernel is given as one of its memories.
fn buffer(kernel: &Kernel, args: &[PlanArg], mem: MemId) -> Option<BufferId> {
    kernel.params.iter().zip(args).find_map(|(param, arg)| match (param, arg) {
        (Param::Buffer(own), PlanArg::Buffer(id)) if *own == mem => Some(*id),
        _ => None,
    })
}

/// Whether this step is a routine that may be given an epilogue, and the buffer its result.
fn makes(step: &Option<PlanStep>, id: BufferId) -> bool {
    let Some(PlanStep::Routine { routine, buffers, epilogue: None }) = step else { return false };
    let mut results = routine.operands().zip(buffers).filter(|(operand, _)| operand.access != Access::In);
    results.next().is_some_and(|(_, result)| *result == id)
}

/// Whether a kernel may be the epilogue of the first of these steps, all of which stand before it.
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
    // An author's kernel may be given the result twice, and read it in another order as well.
    let once = args.iter().filter(|arg| **arg == PlanArg::Buffer(result)).count() == 1;
    let numbered = own.and_then(|mem| strides::strides(kernel, mem)).is_some_and(|own| strides::count(own, grid));
    // What the routine reads and writes stays as it is until the kernel's place, and what the kernel writes is apart from it.
    let clash = |(id, access): (BufferId, Access)| {
        routine.touches().any(|(other, ours)| other == id && (access != Access::In || ours != Access::In))
    };
    let moves = !between.iter().flatten().any(|step| step.touches().any(clash));
    let apart = !bound(kernel, args).filter(|(id, _)| *id != result).any(clash);
    let bindings = routine.buffers().count() + bound(kernel, args).count();
    once && numbered && moves && apart && kernel.group_size.is_none() && bindings <= target.max_bindings as usize
}
