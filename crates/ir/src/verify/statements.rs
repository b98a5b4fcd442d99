//! Checks of statements: scopes, types and positions.

use super::typing::{name_of, proven};
use super::{MAX_DEPTH, broken};
use crate::dtype::{DType, Type};
use crate::error::Result;
use crate::kernel::*;

/// Checks every statement.
pub(super) fn check(kernel: &Kernel) -> Result<()> {
    let mut checker = Checker {
        kernel,
        local_free: local_free(kernel),
        seen: vec![0; kernel.exprs.len()],
        visit: 0,
        introduced: vec![false; kernel.locals.len()],
        in_scope: vec![false; kernel.locals.len()],
        loops: 0,
        depth: 0,
    };
    checker.block(&kernel.body)
}

struct Checker<'k> {
    kernel: &'k Kernel,
    /// True if no local is read in an expression, so that there is nothing to check.
    local_free: Vec<bool>,
    /// Number of the last visit to each expression; each is visited once per statement.
    seen: Vec<u32>,
    visit: u32,
    introduced: Vec<bool>,
    in_scope: Vec<bool>,
    loops: usize,
    depth: usize,
}

fn local_free(kernel: &Kernel) -> Vec<bool> {
    let mut free: Vec<bool> = Vec::with_capacity(kernel.exprs.len());
    for (_, expr, _) in kernel.exprs.iter() {
        let is_free = !matches!(expr, Expr::Local(_)) && expr.operands().iter().all(|operand| free[operand.index()]);
        free.push(is_free);
    }
    free
}

impl Checker<'_> {
    fn block(&mut self, block: &Block) -> Result<()> {
        self.depth += 1;
        if let (true, Some(first)) = (self.depth > MAX_DEPTH, block.first()) {
            let message = format!("blocks nest deeper than {MAX_DEPTH}; split the kernel");
            return Err(broken(self.kernel, first.at, message));
        }
        let mut introduced = Vec::new();
        for stmt in block {
            self.statement(stmt, &mut introduced).map_err(|why| why.at(self.kernel, stmt.at))?;
        }
        for local in introduced {
            self.in_scope[local] = false;
        }
        self.depth -= 1;
        Ok(())
    }

    fn statement(&mut self, stmt: &Stmt, introduced: &mut Vec<usize>) -> Result<(), RuleError> {
        let kernel = self.kernel;
        if stmt.at.line > 0 && stmt.at.file as usize >= kernel.files.len() {
            return Err(format!("line {} of an unknown file {}", stmt.at.line, stmt.at.file).into());
        }
        for operand in stmt.op.operands() {
            if operand.index() >= kernel.exprs.len() {
                return Err(format!("unknown expression {}; there are {}", operand.0, kernel.exprs.len()).into());
            }
            self.reads(operand)?;
        }
        self.types(&stmt.op)?;
        match &stmt.op {
            Op::Let { local, .. } => introduced.push(self.introduce(*local)?),
            Op::Atomic { old: Some(local), .. } => introduced.push(self.introduce(*local)?),
            Op::Collective { result, .. } => introduced.push(self.introduce(*result)?),
            Op::If { then, otherwise, .. } => {
                self.block(then)?;
                self.block(otherwise)?;
            }
            Op::For { counter, body, .. } => {
                let counter = self.introduce(*counter)?;
                self.repeated(body)?;
                self.in_scope[counter] = false;
            }
            Op::While { body, .. } => self.repeated(body)?,
            Op::Break if self.loops == 0 => return Err("break outside of a loop".to_string().into()),
            Op::Continue if self.loops == 0 => return Err("continue outside of a loop".to_string().into()),
            Op::Assign { .. }
            | Op::Store { .. }
            | Op::Atomic { old: None, .. }
            | Op::Barrier
            | Op::Break
            | Op::Continue
            | Op::Return => {}
        }
        Ok(())
    }

    fn repeated(&mut self, body: &Block) -> Result<(), RuleError> {
        self.loops += 1;
        self.block(body)?;
        self.loops -= 1;
        Ok(())
    }

    fn introduce(&mut self, local: LocalId) -> Result<usize, String> {
        let at = local.index();
        if self.introduced[at] {
            return Err(format!("local {} is declared twice", self.kernel.local(local).name));
        }
        self.introduced[at] = true;
        self.in_scope[at] = true;
        Ok(at)
    }

    /// Checks that every local read in an expression is in scope.
    fn reads(&mut self, root: ExprId) -> Result<(), String> {
        self.visit += 1;
        let mut pending = vec![root];
        while let Some(id) = pending.pop() {
            if self.local_free[id.index()] || self.seen[id.index()] == self.visit {
                continue;
            }
            self.seen[id.index()] = self.visit;
            let expr = self.kernel.exprs.get(id);
            if let Expr::Local(local) = expr
                && !self.in_scope[local.index()]
            {
                return Err(format!("local {} is read out of scope", self.kernel.local(local).name));
            }
            pending.extend(expr.operands().iter());
        }
        Ok(())
    }

    fn types(&self, op: &Op) -> Result<(), String> {
        let ty = |id: ExprId| self.kernel.exprs.ty(id);
        match op {
            Op::Let { local, value } => self.takes(*local, ty(*value)),
            Op::Assign { local, value } => {
                self.takes(*local, ty(*value))?;
                let target = self.kernel.local(*local);
                if !self.in_scope[local.index()] {
                    return Err(format!("local {} is assigned out of scope", target.name));
                }
                if target.mutable { Ok(()) } else { Err(format!("local {} is assigned but not mutable", target.name)) }
            }
            Op::Store { mem, index, value, guard } => self.store(*mem, *index, ty(*value), *guard),
            Op::Atomic { op, mem, index, value, expected, old, guard } => {
                let operands = [Some(*value), *expected];
                self.atomic(*op, *mem, operands.into_iter().flatten().map(ty).collect(), *old)?;
                self.index(*mem, *index, 1, *guard)
            }
            Op::Collective { op, scope, value, result } => {
                match op {
                    CollectiveOp::Mma(mma) => self.product(mma, *scope, ty(*value))?,
                    _ => self.collective(*op, *scope, ty(*value))?,
                }
                self.takes(*result, ty(*value))
            }
            Op::Barrier if self.kernel.group_size.is_none() => {
                Err("a barrier in a kernel without a group size; fix one".to_string())
            }
            Op::If { condition, .. } | Op::While { condition, .. } if ty(*condition) != Type::BOOL => {
                Err(format!("a condition is {}, not bool", ty(*condition)))
            }
            Op::For { counter, start, end, step, .. } => self.counting(*counter, *start, *end, *step),
            Op::Barrier | Op::If { .. } | Op::While { .. } | Op::Break | Op::Continue | Op::Return => Ok(()),
        }
    }

    fn takes(&self, local: LocalId, have: Type) -> Result<(), String> {
        match self.kernel.locals.get(local.index()) {
            None => Err(format!("unknown local {}; there are {}", local.0, self.kernel.locals.len())),
            Some(known) if known.ty == have => Ok(()),
            Some(known) => Err(format!("local {} is {} and cannot be assigned {have}", known.name, known.ty)),
        }
    }

    fn index(&self, mem: MemId, index: ExprId, lanes: u8, guard: Guard) -> Result<(), String> {
        let ty = self.kernel.exprs.ty(index);
        if ty != Type::Index {
            return Err(format!("{} is indexed with {ty}, not an index", self.kernel.mem(mem).name));
        }
        proven(self.kernel, mem, index, lanes, guard)
    }

    fn store(&self, mem: MemId, index: ExprId, have: Type, guard: Guard) -> Result<(), String> {
        let name = name_of(self.kernel, mem)?;
        let memory = self.kernel.mem(mem);
        if memory.space == Space::Buffer(Access::In) {
            return Err(format!("{name} is read-only and cannot be written; make it an Out or InOut buffer"));
        }
        if have.dtype() != Some(memory.dtype) {
            return Err(format!("{name} holds {} and cannot store {have}", memory.dtype));
        }
        self.index(mem, index, have.lanes(), guard)
    }

    fn atomic(&self, op: AtomicOp, mem: MemId, operands: Vec<Type>, old: Option<LocalId>) -> Result<(), String> {
        let name = name_of(self.kernel, mem)?;
        let memory = self.kernel.mem(mem);
        match memory.space {
            Space::Buffer(Access::InOut) | Space::Shared(_) => {}
            Space::Buffer(Access::In | Access::Out) | Space::Private(_) => {
                return Err(format!("{name} cannot be updated atomically; use an InOut buffer or a shared array"));
            }
        }
        let fits = match op {
            AtomicOp::Add | AtomicOp::Exchange => matches!(memory.dtype, DType::U32 | DType::I32 | DType::F32),
            AtomicOp::Min | AtomicOp::Max | AtomicOp::CompareExchange => {
                matches!(memory.dtype, DType::U32 | DType::I32)
            }
        };
        if !fits {
            return Err(format!("{name} holds {}; atomics take u32 and i32, add and exchange also f32", memory.dtype));
        }
        if (op == AtomicOp::CompareExchange) != (operands.len() == 2) {
            return Err("an expected value is required for compare-exchange and invalid for other atomics".to_string());
        }
        if let Some(have) = operands.into_iter().find(|have| *have != Type::Scalar(memory.dtype)) {
            return Err(format!("{name} holds {} and cannot store {have}", memory.dtype));
        }
        old.map_or(Ok(()), |old| self.takes(old, Type::Scalar(memory.dtype)))
    }

    fn collective(&self, op: CollectiveOp, scope: Scope, have: Type) -> Result<(), String> {
        let Some(group) = self.kernel.group_size else {
            return Err("a collective in a kernel without a group size; fix one".to_string());
        };
        let Type::Scalar(dtype) = have else {
            return Err(format!(
                "a collective of {have}; it takes one element, so cast an index to u32 or extract lanes"
            ));
        };
        match (op, scope) {
            (CollectiveOp::Broadcast(from), Scope::Group) => {
                let items: u64 = group.iter().map(|size| *size as u64).product();
                if (from as u64) < items {
                    return Ok(());
                }
                Err(format!("a broadcast from work-item {from} of a group of {items}"))
            }
            (CollectiveOp::Broadcast(0), Scope::Subgroup) => Ok(()),
            (CollectiveOp::Broadcast(from), Scope::Subgroup) => {
                Err(format!("a broadcast from work-item {from} of a subgroup, which can be a single one; use 0"))
            }
            (CollectiveOp::Shuffle(_), Scope::Group) => {
                Err("a shuffle over a group; shuffle over a subgroup, or use a shared array".to_string())
            }
            (CollectiveOp::Shuffle(lane), Scope::Subgroup) => match self.kernel.exprs.ty(lane) {
                Type::Scalar(DType::U32) => Ok(()),
                _ => Err("a shuffle whose lane is not a u32; cast it".to_string()),
            },
            (CollectiveOp::Mma(_), _) => unreachable!("matrix products are checked separately"),
            (CollectiveOp::Reduce(_) | CollectiveOp::InclusiveScan(_) | CollectiveOp::ExclusiveScan(_), _) => {
                if dtype != DType::Bool {
                    return Ok(());
                }
                Err("a collective of bools; cast them to u32".to_string())
            }
        }
    }

    fn product(&self, mma: &Mma, scope: Scope, have: Type) -> Result<(), String> {
        let Some(group) = self.kernel.group_size else {
            return Err("a matrix product in a kernel without a group size; fix one".to_string());
        };
        let items: u64 = group.iter().map(|size| *size as u64).product();
        let words = mma.a.iter().chain(&mma.b).map(|word| self.kernel.exprs.ty(*word));
        let wrong = words.clone().find(|ty| *ty != Type::Scalar(DType::U32));
        if !items.is_multiple_of(Mma::LANES as u64) {
            return Err(format!("a matrix product in a group of {items}; use a multiple of {}", Mma::LANES));
        }
        if scope == Scope::Subgroup {
            return Err(
                "a matrix product over a subgroup, whose size is unknown; use the scope of the group".to_string()
            );
        }
        if !matches!(mma.dtype, DType::F16 | DType::BF16) {
            return Err(format!("a matrix product of {}; use f16 or bf16", mma.dtype));
        }
        if let Some(ty) = wrong {
            return Err(format!("a matrix product from {ty}; fragments are u32 words of two elements"));
        }
        if have != Type::Vector(DType::F32, Mma::ELEMENTS) {
            return Err(format!("a matrix product added to {have}; the accumulator must be f32x{}", Mma::ELEMENTS));
        }
        Ok(())
    }

    fn counting(&self, counter: LocalId, start: ExprId, end: ExprId, step: ExprId) -> Result<(), String> {
        let exprs = &self.kernel.exprs;
        let ty = exprs.ty(start);
        if !ty.is_int() || ty.lanes() > 1 || exprs.ty(end) != ty || exprs.ty(step) != ty {
            let message = format!("a loop from {ty} to {} by {}", exprs.ty(end), exprs.ty(step));
            return Err(format!("{message}: all three must have one integer type"));
        }
        self.takes(counter, ty)?;
        if self.kernel.local(counter).mutable {
            return Err(format!("the counter {} is mutable", self.kernel.local(counter).name));
        }
        let step = match exprs.get(step) {
            Expr::Index(step) => Some(step as i128),
            Expr::Const(step) => Some(step.to_i128()),
            _ => None,
        };
        match step {
            Some(step) if step < 1 => Err(format!("a loop with step {step}; the step must be at least 1")),
            Some(_) | None => Ok(()),
        }
    }
}

/// A violated rule, either without a location yet or as a complete error from a nested block.
enum RuleError {
    Here(String),
    Inside(crate::error::Error),
}

impl RuleError {
    fn at(self, kernel: &Kernel, at: Loc) -> crate::error::Error {
        match self {
            RuleError::Here(message) => broken(kernel, at, message),
            RuleError::Inside(error) => error,
        }
    }
}

impl From<String> for RuleError {
    fn from(message: String) -> RuleError {
        RuleError::Here(message)
    }
}

impl From<crate::error::Error> for RuleError {
    fn from(error: crate::error::Error) -> RuleError {
        RuleError::Inside(error)
    }
}
