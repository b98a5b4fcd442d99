//! Interval arithmetic on integers (LLVM's `ConstantRange`): the interval of an operation's result, given those of its
//! operands.
//!
//! Intervals are of mathematical values, in i128. If a result might not fit its type, the operation can wrap, and the
//! interval is that of the entire type. An index is treated as 64 bits here; [`super::index_width`] analyzes 32 bits.

use panoply_ir::kernel::{Builtin, Expr, ExprId, Kernel, MAX_LAUNCH_SIZE, Space};
use panoply_ir::{Alu, DType, Type};

/// The integers from `lo` to `hi`, inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub lo: i128,
    pub hi: i128,
}

impl Range {
    /// Returns the interval of one number.
    pub const fn singleton(value: i128) -> Range {
        Range { lo: value, hi: value }
    }

    /// Returns all values of an integer type or bool; `None` for floats and vectors.
    pub fn of_type(ty: Type) -> Option<Range> {
        let dtype = match ty {
            Type::Index => DType::U64,
            Type::Scalar(dtype) if !dtype.is_float() => dtype,
            Type::Scalar(_) | Type::Vector(..) => return None,
        };
        let most = (1i128 << (dtype.bits() - u32::from(dtype.is_signed()))) - 1;
        Some(Range { lo: if dtype.is_signed() { -most - 1 } else { 0 }, hi: most })
    }

    /// Returns true if an interval is contained in this one.
    pub fn contains(self, other: Range) -> bool {
        self.lo <= other.lo && other.hi <= self.hi
    }

    /// Returns the smallest interval that contains both.
    pub fn join(self, other: Range) -> Range {
        Range { lo: self.lo.min(other.lo), hi: self.hi.max(other.hi) }
    }

    /// Returns the intersection, or the first interval if the intersection is empty, which is possible only in
    /// unreachable code.
    pub fn meet(self, other: Range) -> Range {
        let met = Range { lo: self.lo.max(other.lo), hi: self.hi.min(other.hi) };
        if met.lo <= met.hi { met } else { self }
    }

    /// Returns the smallest interval that contains all numbers.
    fn of_values(values: impl IntoIterator<Item = i128>) -> Range {
        let mut values = values.into_iter();
        let first = Range::singleton(values.next().expect("the caller passes at least one number"));
        values.fold(first, |range, value| range.join(Range::singleton(value)))
    }
}

/// Largest length, size, id or count of any launch, if nothing more is known.
pub(crate) const MAX_SIZE: i128 = MAX_LAUNCH_SIZE as i128;

/// Returns the interval of a builtin in any launch.
pub(crate) fn builtin(kernel: &Kernel, builtin: Builtin) -> Range {
    let size = |axis: u8| kernel.group_size.map_or(MAX_SIZE, |group| group[axis as usize] as i128);
    match builtin {
        Builtin::LocalId(axis) => Range { lo: 0, hi: size(axis) - 1 },
        Builtin::GroupSize(axis) if kernel.group_size.is_some() => Range::singleton(size(axis)),
        Builtin::GlobalSize(_) | Builtin::GroupSize(_) | Builtin::GroupCount(_) => Range { lo: 1, hi: MAX_SIZE },
        Builtin::GlobalId(_) | Builtin::GroupId(_) => Range { lo: 0, hi: MAX_SIZE - 1 },
        Builtin::SubgroupLane => Range { lo: 0, hi: 1023 },
        Builtin::SubgroupSize => Range { lo: 1, hi: 1024 },
    }
}

/// Returns the interval of an integer expression, given its operands' intervals and additional knowledge about leaves
/// (lengths, parameters, locals, builtins); `None` for non-integers.
pub(crate) fn range(
    kernel: &Kernel,
    id: ExprId,
    leaf: impl Fn(Expr) -> Option<Range>,
    operand: impl Fn(ExprId) -> Option<Range>,
) -> Option<Range> {
    let leaf = |expr: Expr, whole: Range| leaf(expr).map_or(whole, |known| whole.meet(known));
    let whole = Range::of_type(kernel.exprs.ty(id))?;
    let unbounded = match kernel.exprs.get(id) {
        Expr::Const(value) => Some(Range::singleton(value.to_i128())),
        Expr::Index(value) => Some(Range::singleton(value as i128)),
        Expr::Len(mem) => match kernel.mem(mem).space {
            Space::Shared(len) | Space::Private(len) => Some(Range::singleton(len as i128)),
            Space::Buffer(_) => Some(leaf(Expr::Len(mem), Range { lo: 0, hi: MAX_SIZE })),
        },
        expr @ Expr::Builtin(number) => Some(leaf(expr, builtin(kernel, number))),
        expr @ (Expr::Param(_) | Expr::Local(_)) => Some(leaf(expr, whole)),
        Expr::Alu(op, args) => {
            let ranges: Option<Vec<Range>> = args.iter().map(|arg| operand(*arg)).collect();
            ranges.and_then(|ranges| operation(op, &ranges, whole))
        }
        // An integer that the new type can represent is unchanged; the check below discards others. A float operand has no
        // interval: it can saturate to any value of the type. A cast to bool compares with zero.
        Expr::Cast(_, x) => operand(x).filter(|_| !kernel.exprs.ty(id).is_bool()),
        Expr::Load { .. } | Expr::Bitcast(..) | Expr::Splat(..) | Expr::Extract(..) => None,
    };
    Some(unbounded.filter(|range| whole.contains(*range)).unwrap_or(whole))
}

/// Returns the interval of a result as if the type were unbounded; `None` if no useful bound is known.
fn operation(op: Alu, x: &[Range], whole: Range) -> Option<Range> {
    let positive = |range: Range| range.lo > 0;
    let nonnegative = |range: Range| range.lo >= 0;
    let pairs = || [(x[0].lo, x[1].lo), (x[0].lo, x[1].hi), (x[0].hi, x[1].lo), (x[0].hi, x[1].hi)];
    let bits = whole.hi.count_ones() + u32::from(whole.lo < 0);
    Some(match op {
        Alu::Neg => Range { lo: -x[0].hi, hi: -x[0].lo },
        Alu::Abs if nonnegative(x[0]) => x[0],
        Alu::Abs => Range { lo: 0, hi: x[0].hi.max(-x[0].lo) },
        Alu::PopCount if nonnegative(x[0]) => Range { lo: 0, hi: (128 - x[0].hi.leading_zeros()).into() },
        Alu::PopCount => Range { lo: 0, hi: bits.into() },
        Alu::Add => Range { lo: x[0].lo + x[1].lo, hi: x[0].hi + x[1].hi },
        Alu::Sub => Range { lo: x[0].lo - x[1].hi, hi: x[0].hi - x[1].lo },
        Alu::Mul => Range::of_values(pairs().map(|(a, b)| a.saturating_mul(b))),
        Alu::Div if positive(x[1]) => Range::of_values(pairs().map(|(a, b)| a / b)),
        Alu::Rem if positive(x[1]) => {
            let most = x[1].hi - 1;
            Range {
                lo: if nonnegative(x[0]) { 0 } else { x[0].lo.max(-most) },
                hi: if x[0].hi > 0 { x[0].hi.min(most) } else { 0 },
            }
        }
        // For a zero divisor the remainder is the dividend.
        Alu::Rem if nonnegative(x[0]) && nonnegative(x[1]) => Range { lo: 0, hi: x[0].hi },
        Alu::Div if nonnegative(x[0]) && nonnegative(x[1]) => Range { lo: 0, hi: x[0].hi },
        Alu::Min => Range { lo: x[0].lo.min(x[1].lo), hi: x[0].hi.min(x[1].hi) },
        Alu::Max => Range { lo: x[0].lo.max(x[1].lo), hi: x[0].hi.max(x[1].hi) },
        Alu::And if nonnegative(x[0]) || nonnegative(x[1]) => {
            let of = |range: Range| if nonnegative(range) { range.hi } else { i128::MAX };
            Range { lo: 0, hi: of(x[0]).min(of(x[1])) }
        }
        Alu::Or | Alu::Xor if nonnegative(x[0]) && nonnegative(x[1]) => {
            Range { lo: 0, hi: (1 << (128 - (x[0].hi | x[1].hi).leading_zeros())) - 1 }
        }
        Alu::Shl if nonnegative(x[1]) && x[1].hi < bits as i128 => {
            Range::of_values(pairs().map(|(a, b)| a.saturating_mul(1 << b)))
        }
        Alu::Shr if nonnegative(x[1]) && x[1].hi < bits as i128 => Range::of_values(pairs().map(|(a, b)| a >> b)),
        Alu::Shr if nonnegative(x[0]) => Range { lo: 0, hi: x[0].hi },
        Alu::Select => x[1].join(x[2]),
        Alu::Not | Alu::Div | Alu::Rem | Alu::And | Alu::Or | Alu::Xor | Alu::Shl | Alu::Shr => return None,
        Alu::Lt | Alu::Le | Alu::Eq | Alu::Ne => return None,
        Alu::Math(_) | Alu::Sqrt | Alu::Floor | Alu::Ceil | Alu::Round | Alu::Trunc => return None,
        Alu::Pow | Alu::Fma => return None,
    })
}
