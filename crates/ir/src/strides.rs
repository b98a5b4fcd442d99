//! Which element of a buffer each work-item touches, read off a kernel.
//!
//! Enough for kernels that walk through a buffer element by element, so that others may rely on who reads what: whoever runs
//! a kernel on the parts of a buffer as they are made, or lets it write where it reads. Of what it cannot read off it says
//! nothing.

use std::collections::HashMap;

use crate::alu::Alu;
use crate::kernel::{Builtin, Expr, ExprId, Kernel, LocalId, MemId, Op, Stmt};

/// Elements between what neighboring work-items along each axis touch.
pub type Strides = [u64; 3];

/// A sum of work-items' numbers along the axes, and a constant.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Sum {
    strides: Strides,
    constant: u64,
}

impl Sum {
    fn times(self, factor: u64) -> Option<Sum> {
        let [x, y, z] = self.strides.map(|stride| stride.checked_mul(factor));
        Some(Sum { strides: [x?, y?, z?], constant: self.constant.checked_mul(factor)? })
    }

    fn plus(self, other: Sum) -> Option<Sum> {
        let [x, y, z] = [0, 1, 2].map(|axis| self.strides[axis].checked_add(other.strides[axis]));
        Some(Sum { strides: [x?, y?, z?], constant: self.constant.checked_add(other.constant)? })
    }
}

/// The strides at which a kernel's work-items touch a buffer, the first of them its first element, if each touches one
/// element alone.
pub fn strides(kernel: &Kernel, mem: MemId) -> Option<Strides> {
    let sums = sums(kernel);
    let mut touched: Vec<Option<Sum>> = Vec::new();
    for (_, expr, _) in kernel.exprs.iter() {
        if let Expr::Load { mem: from, index, lanes, .. } = expr
            && from == mem
        {
            touched.push(sums[index.index()].filter(|_| lanes == 1));
        }
    }
    kernel.walk(&mut |stmt| match stmt.op {
        Op::Store { mem: to, index, value, .. } if to == mem => {
            touched.push(sums[index.index()].filter(|_| kernel.exprs.ty(value).lanes() == 1));
        }
        Op::Atomic { mem: at, .. } if at == mem => touched.push(None),
        _ => {}
    });
    let first = touched.first().copied().flatten()?;
    (first.constant == 0 && touched.iter().all(|other| *other == Some(first))).then_some(first.strides)
}

/// Whether these are the strides at which a grid counts its work-items: each touches the element of its own number.
pub fn count(strides: Strides, grid: [u64; 3]) -> bool {
    let mut before = 1;
    strides.into_iter().zip(grid).all(|(stride, extent)| {
        let counts = extent == 1 || stride == before;
        before *= extent;
        counts
    })
}

/// Whether each work-item of a grid touches the element of its own number of a buffer and no other, and never reads it after it
/// has written it: what was read there may be another buffer's before.
pub fn replaces(kernel: &Kernel, mem: MemId, grid: [u64; 3]) -> bool {
    let numbered = || strides(kernel, mem).is_some_and(|own| count(own, grid));
    kernel.group_size.is_none() && reads_first(kernel, mem) && numbered()
}

/// Whether no statement reads a buffer behind one that writes it. A write inside another statement may come round again: of
/// that nothing is said.
fn reads_first(kernel: &Kernel, mem: MemId) -> bool {
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

/// Calls `f` for a statement and those inside it.
fn walk(stmt: &Stmt, f: &mut impl FnMut(&Stmt)) {
    f(stmt);
    stmt.op.blocks().into_iter().flatten().for_each(|inner| walk(inner, f));
}

/// Every expression as a sum, where it is one.
fn sums(kernel: &Kernel) -> Vec<Option<Sum>> {
    let mut values: HashMap<LocalId, ExprId> = HashMap::new();
    kernel.walk(&mut |stmt| {
        if let Op::Let { local, value } = stmt.op
            && !kernel.local(local).mutable
        {
            values.insert(local, value);
        }
    });
    let mut sums: Vec<Option<Sum>> = Vec::with_capacity(kernel.exprs.len());
    for (_, expr, _) in kernel.exprs.iter() {
        let known = |id: ExprId| sums.get(id.index()).copied().flatten();
        sums.push(match expr {
            Expr::Index(constant) => Some(Sum { strides: [0; 3], constant }),
            Expr::Builtin(Builtin::GlobalId(axis)) => {
                Some(Sum { strides: std::array::from_fn(|at| u64::from(at == axis as usize)), constant: 0 })
            }
            Expr::Local(local) => values.get(&local).and_then(|value| known(*value)),
            Expr::Alu(Alu::Add, args) => known(args[0]).zip(known(args[1])).and_then(|(a, b)| a.plus(b)),
            Expr::Alu(Alu::Mul, args) => known(args[0]).zip(known(args[1])).and_then(|(a, b)| match (a, b) {
                (a, Sum { strides: [0, 0, 0], constant }) => a.times(constant),
                (Sum { strides: [0, 0, 0], constant }, b) => b.times(constant),
                _ => None,
            }),
            _ => None,
        });
    }
    sums
}
