//! Access analysis: the element of a buffer that each work-item accesses, derived from a kernel.
//!
//! It covers kernels that traverse a buffer element by element. Callers rely on it to fuse a kernel into the producer of a buffer, or to
//! let it write in place. Where it cannot derive the accesses, the result is `None` or false.

use std::collections::HashMap;

use crate::alu::Alu;
use crate::kernel::{Builtin, Expr, ExprId, Kernel, LocalId, MemId, Op, Stmt};

/// Elements between the accesses of neighboring work-items along each axis.
pub type Strides = [u64; 3];

/// A linear function of the global ids plus a constant.
#[derive(Clone, Copy, PartialEq, Eq)]
struct AffineIndex {
    strides: Strides,
    constant: u64,
}

impl AffineIndex {
    fn times(self, factor: u64) -> Option<AffineIndex> {
        let [x, y, z] = self.strides.map(|stride| stride.checked_mul(factor));
        Some(AffineIndex { strides: [x?, y?, z?], constant: self.constant.checked_mul(factor)? })
    }

    fn plus(self, other: AffineIndex) -> Option<AffineIndex> {
        let [x, y, z] = [0, 1, 2].map(|axis| self.strides[axis].checked_add(other.strides[axis]));
        Some(AffineIndex { strides: [x?, y?, z?], constant: self.constant.checked_add(other.constant)? })
    }
}

/// Returns the strides at which a kernel's work-items access a buffer, starting at its first element, if each accesses a single
/// element.
pub fn strides(kernel: &Kernel, mem: MemId) -> Option<Strides> {
    let accesses = accesses(kernel, mem)?;
    let first = accesses[0];
    (first.constant == 0 && accesses.iter().all(|other| *other == first)).then_some(first.strides)
}

/// Returns the indices of all accesses to a buffer, at least one; `None` if one of them is not a linear function.
fn accesses(kernel: &Kernel, mem: MemId) -> Option<Vec<AffineIndex>> {
    let indices = indices(kernel);
    let mut accesses: Vec<Option<AffineIndex>> = Vec::new();
    for (_, expr, _) in kernel.exprs.iter() {
        if let Expr::Load { mem: from, index, lanes, .. } = expr
            && from == mem
        {
            accesses.push(indices[index.index()].filter(|_| lanes == 1));
        }
    }
    kernel.walk(&mut |stmt| match stmt.op {
        Op::Store { mem: to, index, value, .. } if to == mem => {
            accesses.push(indices[index.index()].filter(|_| kernel.exprs.ty(value).lanes() == 1));
        }
        Op::Atomic { mem: at, .. } if at == mem => accesses.push(None),
        _ => {}
    });
    accesses.into_iter().collect::<Option<Vec<AffineIndex>>>().filter(|accesses| !accesses.is_empty())
}

/// Returns true if the strides are the grid's linear numbering, so that each work-item accesses the element at its own linear index.
pub fn is_linear(strides: Strides, grid: [u64; 3]) -> bool {
    let mut before = 1;
    strides.into_iter().zip(grid).all(|(stride, extent)| {
        let counts = extent == 1 || stride == before;
        before *= extent;
        counts
    })
}

/// Returns true if each work-item of a grid accesses only the elements at its own linear index of a buffer plus multiples of the number of
/// work-items, and reads none after it has written one. No other work-item accesses these elements, so the kernel can write the buffer in
/// place of another that it reads at the same indices.
pub fn can_write_in_place(kernel: &Kernel, mem: MemId, grid: [u64; 3]) -> bool {
    let items: u64 = grid.iter().product();
    let own = |access: &AffineIndex| is_linear(access.strides, grid) && access.constant.is_multiple_of(items);
    let elementwise = || accesses(kernel, mem).is_some_and(|all| all.iter().all(own));
    kernel.group_size.is_none() && loads_before_stores(kernel, mem) && elementwise()
}

/// Returns true if no statement reads a buffer after one that writes it. A write in a nested statement can repeat, so the result is
/// then false.
fn loads_before_stores(kernel: &Kernel, mem: MemId) -> bool {
    let mut reads: Vec<bool> = Vec::with_capacity(kernel.exprs.len());
    for (_, expr, _) in kernel.exprs.iter() {
        let own = matches!(expr, Expr::Load { mem: from, .. } if from == mem);
        reads.push(own || expr.operands().iter().any(|operand| reads[operand.index()]));
    }
    let writes = |stmt: &Stmt| matches!(stmt.op, Op::Store { mem: to, .. } if to == mem);
    let (mut outer, mut all) = (0, 0);
    kernel.walk(&mut |stmt| all += usize::from(writes(stmt)));
    let mut late = false;
    for stmt in &kernel.body {
        let mut visit = |stmt: &Stmt| late |= outer > 0 && stmt.op.operands().iter().any(|id| reads[id.index()]);
        walk(stmt, &mut visit);
        outer += usize::from(writes(stmt));
    }
    outer == all && !late
}

/// Calls `f` for a statement and its nested statements.
fn walk(stmt: &Stmt, f: &mut impl FnMut(&Stmt)) {
    f(stmt);
    stmt.op.blocks().into_iter().flatten().for_each(|inner| walk(inner, f));
}

/// Returns every expression as a linear function, if it is one.
fn indices(kernel: &Kernel) -> Vec<Option<AffineIndex>> {
    let mut values: HashMap<LocalId, ExprId> = HashMap::new();
    kernel.walk(&mut |stmt| {
        if let Op::Let { local, value } = stmt.op
            && !kernel.local(local).mutable
        {
            values.insert(local, value);
        }
    });
    let mut indices: Vec<Option<AffineIndex>> = Vec::with_capacity(kernel.exprs.len());
    for (_, expr, _) in kernel.exprs.iter() {
        let known = |id: ExprId| indices.get(id.index()).copied().flatten();
        indices.push(match expr {
            Expr::Index(constant) => Some(AffineIndex { strides: [0; 3], constant }),
            Expr::Builtin(Builtin::GlobalId(axis)) => {
                Some(AffineIndex { strides: std::array::from_fn(|at| u64::from(at == axis as usize)), constant: 0 })
            }
            Expr::Local(local) => values.get(&local).and_then(|value| known(*value)),
            Expr::Alu(Alu::Add, args) => known(args[0]).zip(known(args[1])).and_then(|(a, b)| a.plus(b)),
            Expr::Alu(Alu::Mul, args) => known(args[0]).zip(known(args[1])).and_then(|(a, b)| match (a, b) {
                (a, AffineIndex { strides: [0, 0, 0], constant }) => a.times(constant),
                (AffineIndex { strides: [0, 0, 0], constant }, b) => b.times(constant),
                _ => None,
            }),
            _ => None,
        });
    }
    indices
}
