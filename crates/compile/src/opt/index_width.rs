//! Determines whether 32-bit indices suffice for a launch.
//!
//! Given the sizes of a launch, every index expression has an interval. 32 bits suffice if each is at least -2³¹ and less than
//! 2³¹: addition, subtraction, multiplication and comparison then give the same results in 32 bits as in 64, where a
//! negative index is a huge one either way. Operations for which a negative index would give a different result (a
//! quotient, a shift, a cast) must not have one.

use std::collections::HashMap;

use panoply_ir::kernel::{Builtin, Expr, ExprId, Kernel, Param};
use panoply_ir::{Alu, Type, Verified};

use super::facts::Facts;
use super::range_dataflow::{Leaves, walk};
use super::ranges::Range;
use super::walk::transitive_operands;

/// The sizes of a launch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Launch {
    /// Requested work-items along each axis.
    pub grid: [u64; 3],
    /// For every parameter: a buffer's length in elements, or an index's value; arbitrary for other scalars.
    pub args: Vec<u64>,
}

/// Returns 32 if every index of this launch fits, otherwise 64. It takes some microseconds for a small kernel, so
/// callers should cache the result.
pub fn index_bits(kernel: &Verified<Kernel>, launch: &Launch) -> u32 {
    let narrow = leaves(kernel, launch).is_some_and(|leaves| {
        let mut fits = true;
        walk(kernel, &leaves, &mut |facts, stmt| fits = fits && all_fit(kernel, facts, &stmt.op.operands()));
        fits
    });
    if narrow { 32 } else { 64 }
}

const NARROW: Range = Range { lo: -(1 << 31), hi: (1 << 31) - 1 };

/// Returns the intervals of leaves given by a launch; `None` if a size alone is too large.
pub(super) fn leaves(kernel: &Kernel, launch: &Launch) -> Option<Leaves> {
    let mut leaves = Leaves::new();
    for (position, (param, size)) in kernel.params.iter().zip(&launch.args).enumerate() {
        let leaf = match param {
            Param::Buffer(mem) => Expr::Len(*mem),
            Param::Scalar { ty: Type::Index, .. } => Expr::Param(position as u32),
            Param::Scalar { .. } => continue,
        };
        leaves.insert(leaf, Range::singleton(*size as i128));
    }
    for axis in 0..3 {
        let (size, group) = (launch.grid[axis] as i128, kernel.group_size.map_or(1, |group| group[axis] as i128));
        let groups = (size + group - 1) / group;
        let axis = axis as u8;
        leaves.insert(Expr::Builtin(Builtin::GlobalSize(axis)), Range::singleton(size));
        leaves.insert(Expr::Builtin(Builtin::GroupCount(axis)), Range::singleton(groups));
        leaves.insert(Expr::Builtin(Builtin::GroupId(axis)), Range { lo: 0, hi: groups - 1 });
        leaves.insert(Expr::Builtin(Builtin::GlobalId(axis)), Range { lo: 0, hi: groups * group - 1 });
    }
    leaves.values().all(|range| NARROW.contains(*range)).then_some(leaves)
}

fn all_fit(kernel: &Kernel, facts: &Facts<'_>, roots: &[ExprId]) -> bool {
    let mut signed: HashMap<ExprId, Range> = HashMap::new();
    transitive_operands(kernel, roots).into_iter().all(|id| {
        if kernel.exprs.ty(id) == Type::Index {
            let Some(range) = interval(kernel, facts, id, &signed) else { return false };
            signed.insert(id, range);
        }
        same_in_32_bits(kernel, facts, id, &signed)
    })
}

/// Returns the interval of an index, negative where it would wrap; `None` if it does not fit in 32 bits.
pub(super) fn interval(
    kernel: &Kernel,
    facts: &Facts<'_>,
    id: ExprId,
    signed: &HashMap<ExprId, Range>,
) -> Option<Range> {
    let known = facts.range(id).filter(|range| NARROW.contains(*range));
    let expr = kernel.exprs.get(id);
    let computed = || match expr {
        Expr::Cast(_, x) => facts.range(x),
        Expr::Alu(op, args) => {
            let x = |at: usize| signed.get(&args[at]).copied();
            Some(match op {
                Alu::Neg => Range { lo: -x(0)?.hi, hi: -x(0)?.lo },
                Alu::Add => Range { lo: x(0)?.lo + x(1)?.lo, hi: x(0)?.hi + x(1)?.hi },
                Alu::Sub => Range { lo: x(0)?.lo - x(1)?.hi, hi: x(0)?.hi - x(1)?.lo },
                Alu::Select => x(1)?.join(x(2)?),
                _ => return None,
            })
        }
        _ => None,
    };
    known.or_else(computed).filter(|range| NARROW.contains(*range))
}

/// Returns true if an operation on indices that fit gives the same result in 32 bits.
fn same_in_32_bits(kernel: &Kernel, facts: &Facts<'_>, id: ExprId, signed: &HashMap<ExprId, Range>) -> bool {
    let natural = |id: ExprId| signed.get(&id).is_none_or(|range| range.lo >= 0);
    let (op, args) = match kernel.exprs.get(id) {
        Expr::Alu(op, args) => (op, args),
        Expr::Cast(_, x) => return natural(x),
        Expr::Const(_) | Expr::Index(_) | Expr::Param(_) | Expr::Builtin(_) | Expr::Len(_) => return true,
        // Indices among their operands are checked separately.
        Expr::Local(_) | Expr::Load { .. } | Expr::Bitcast(..) | Expr::Splat(..) | Expr::Extract(..) => return true,
    };
    match op {
        Alu::Shl | Alu::Shr if kernel.exprs.ty(id) == Type::Index => {
            let few = facts.range(args[1]).is_some_and(|amount| amount.lo >= 0 && amount.hi < 32);
            few && (op == Alu::Shl || natural(args[0]))
        }
        Alu::PopCount | Alu::Div | Alu::Rem | Alu::And | Alu::Or | Alu::Xor | Alu::Abs | Alu::Min | Alu::Max => {
            args.iter().all(|arg| natural(*arg))
        }
        // An inverted index has its high bits set, so `interval` has already rejected it.
        Alu::Not | Alu::Neg | Alu::Add | Alu::Sub | Alu::Mul | Alu::Shl | Alu::Shr => true,
        Alu::Lt | Alu::Le | Alu::Eq | Alu::Ne | Alu::Select => true,
        Alu::Math(_) | Alu::Sqrt | Alu::Floor | Alu::Ceil | Alu::Round | Alu::Trunc | Alu::Pow | Alu::Fma => true,
    }
}

#[cfg(test)]
mod tests {
    use panoply_ir::{text, verify::verify};

    use super::{Launch, index_bits};

    fn check(source: &str, grid: [u64; 3], args: &[u64], bits: u32) {
        let kernel = verify(text::parse(source).expect("parses")).expect("verifies");
        let launch = Launch { grid, args: args.to_vec() };
        assert_eq!(index_bits(&kernel, &launch), bits, "{source}\n{launch:?}");
    }

    const MATRIX: &str = "kernel k(x: &mut [f32], width: index) {
        for k: index in 0..width { x[add(mul(global_id.y, width), k)] = x[sub(k, 1)] } }";

    #[test]
    fn index_width_depends_on_launch_sizes() {
        check(MATRIX, [1, 1000, 1], &[1_000_000, 1000], 32);
        check(MATRIX, [1, 1000, 1], &[1 << 31, 1000], 64);
        check(MATRIX, [1, 1 << 31, 1], &[1000, 1000], 64);
        check(MATRIX, [1, 3_000_000, 1], &[1_000_000, 1000], 64);
    }

    #[test]
    fn operations_that_expose_the_width_need_64_bits() {
        let with = |index: &str| format!("kernel k(x: &mut [f32], y: &[f32], n: &[i32]) {{ x[{index}] = y[0] }}");
        for narrow in [
            "sub(global_id.x, 1)",
            "cast<index>(cast<u8>(n[0]))",
            "sub(div(global_id.x, 3), 5)",
            "shl(global_id.x, 4)",
            "count_ones(global_id.x)",
            "cast<index>(n[0])",
            "select(lt(sub(global_id.x, 1), len(x)), 1, 2)",
        ] {
            check(&with(narrow), [100, 1, 1], &[100, 100, 100], 32);
        }
        for wide in [
            "div(sub(global_id.x, 1), 2)",
            "cast<index>(y[0])",
            "shr(global_id.x, 40)",
            "not(global_id.x)",
            "count_ones(sub(global_id.x, 1))",
            "cast<index>(cast<u32>(sub(global_id.x, 1)))",
            "mul(mul(global_id.x, 100000), 100000)",
            "4294967296",
        ] {
            check(&with(wide), [100, 1, 1], &[100, 100, 100], 64);
        }
    }
}
