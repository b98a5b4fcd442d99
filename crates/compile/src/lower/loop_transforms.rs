//! Simplifies loop variables: merges neighbors where all index expressions allow it, and splits variables where that
//! removes quotients.
//!
//! Four axes of a contiguous tensor become one loop; a reshape that cannot be expressed by strides becomes a split
//! loop. Remaining quotients are computed by each work-item.

use crate::schedule::affine::{AffineExpr, AffineTerm, LoopVar};
use crate::schedule::index_map::BoundsCheck;
use crate::schedule::loop_nest::{LoopNest, Value};

/// Returns an equivalent nest with as few variables as possible.
pub fn simplify_loops(mut nest: LoopNest) -> LoopNest {
    let mut next = largest_id(&nest) + 1;
    let scanned = |nest: &LoopNest, number: usize| {
        nest.values.iter().any(|(value, _)| matches!(value, Value::Scan(_, _, along) if *along == number))
    };
    for list in 0..=nest.loops.len() {
        // A scan keeps the order of its iterations in any case, and its lowering needs a single plain loop.
        if list > 0 && scanned(&nest, list - 1) {
            continue;
        }
        while let Some((at, split)) = find_split(&nest, list, next) {
            next += 2;
            nest = split;
            debug_assert!(at < vars(&nest, list).len());
        }
        while let Some(merged) = find_merge(&nest, list, next) {
            next += 1;
            nest = merged;
        }
    }
    nest
}

/// Returns a list of variables: list 0 is the outer variables, list n + 1 those of loop n.
fn vars(nest: &LoopNest, list: usize) -> &Vec<LoopVar> {
    if list == 0 { &nest.outer } else { &nest.loops[list - 1] }
}

fn with_vars(mut nest: LoopNest, list: usize, next: Vec<LoopVar>) -> LoopNest {
    if list == 0 {
        nest.outer = next;
    } else {
        nest.loops[list - 1] = next;
    }
    nest
}

fn largest_id(nest: &LoopNest) -> u32 {
    nest.outer.iter().chain(nest.loops.iter().flatten()).map(|var| var.id).max().unwrap_or(0)
}

/// Splits a variable in two, if that removes quotients and remainders.
fn find_split(nest: &LoopNest, list: usize, next: u32) -> Option<(usize, LoopNest)> {
    let before = divisions(nest);
    if before == 0 {
        return None;
    }
    for (at, var) in vars(nest, list).iter().enumerate() {
        for unit in units(nest, *var) {
            let (both, split) = split(nest, *var, unit, next);
            if divisions(&split) < before {
                let mut list_vars = vars(nest, list).clone();
                list_vars.splice(at..=at, both);
                return Some((at, with_vars(split, list, list_vars)));
            }
        }
    }
    None
}

/// Splits the outermost variable into `rounds` parts of equal length, the part first; `None` if it is not divisible, or if that adds
/// quotients or remainders.
pub fn split_outermost(nest: &LoopNest, rounds: u64) -> Option<LoopNest> {
    let var = *nest.outer.first()?;
    if !var.extent.is_multiple_of(rounds) || var.extent == rounds {
        return None;
    }
    let split = split(nest, var, var.extent / rounds, largest_id(nest) + 1);
    let mut outer = nest.outer.clone();
    outer.splice(..1, split.0);
    (divisions(&split.1) <= divisions(nest)).then(|| with_vars(split.1, 0, outer))
}

/// Substitutes a variable by two, slow · unit + fast, with new ids from `next` on.
fn split(nest: &LoopNest, var: LoopVar, unit: u64, next: u32) -> ([LoopVar; 2], LoopNest) {
    let slow = LoopVar { id: next, extent: var.extent / unit };
    let fast = LoopVar { id: next + 1, extent: unit };
    let whole = AffineExpr::var(slow).mul(unit as i64).add(&AffineExpr::var(fast));
    let split = substituted(nest, &|term| (*term == AffineTerm::Var(var)).then(|| whole.clone()));
    ([slow, fast], split)
}

/// Returns the divisors of a variable in index expressions that divide its extent.
fn units(nest: &LoopNest, var: LoopVar) -> Vec<u64> {
    let mut units = Vec::new();
    index_exprs(nest).for_each(|index| {
        index.any_term(&mut |term| {
            if let AffineTerm::Div(inner, n) | AffineTerm::Rem(inner, n) = term
                && inner.uses(var)
            {
                units.push(*n);
            }
            false
        });
    });
    units.sort_unstable();
    units.dedup();
    units.retain(|unit| *unit > 1 && *unit < var.extent && var.extent.is_multiple_of(*unit));
    units
}

/// Merges two neighboring variables, if that adds no quotient or remainder.
fn find_merge(nest: &LoopNest, list: usize, next: u32) -> Option<LoopNest> {
    let before = divisions(nest);
    let known = vars(nest, list);
    (1..known.len()).rev().find_map(|at| {
        let (slow, fast) = (known[at - 1], known[at]);
        let both = LoopVar { id: next, extent: slow.extent * fast.extent };
        let merged = merged(nest, slow, fast, both);
        (divisions(&merged) <= before).then(|| {
            let mut list_vars = known.clone();
            list_vars.splice(at - 1..=at, [both]);
            with_vars(merged, list, list_vars)
        })
    })
}

/// Returns the nest with two variables replaced by one.
fn merged(nest: &LoopNest, slow: LoopVar, fast: LoopVar, both: LoopVar) -> LoopNest {
    let (quotient, rest) =
        (AffineExpr::var(both).floor_div(fast.extent), AffineExpr::var(both).rem_euclid(fast.extent));
    substituted(nest, &|term| match term {
        AffineTerm::Var(var) if *var == slow => Some(quotient.clone()),
        AffineTerm::Var(var) if *var == fast => Some(rest.clone()),
        AffineTerm::Var(_) | AffineTerm::Read(..) | AffineTerm::Div(..) | AffineTerm::Rem(..) => None,
    })
}

/// Target extent of the innermost outer variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InnerExtent {
    /// Minimum number of values.
    pub wanted: u64,
    /// Rows shorter than this are merged even if memory accesses then no longer have constant strides.
    pub short: u64,
}

impl InnerExtent {
    /// Leaves the extent unchanged.
    pub const UNCHANGED: InnerExtent = InnerExtent { wanted: 1, short: 0 };
}

/// Axes of a launch grid.
const GRID: usize = 3;

/// Merges the innermost outer variables until the last has this extent, for targets where each step along the other
/// axes restarts the program. The cost is quotients in bounds checks, and for short rows also in index expressions.
/// Variables beyond the grid's axes are merged with the outermost one; index expressions that are linear in both
/// usually stay linear in the merged variable.
pub fn with_inner_extent(mut nest: LoopNest, InnerExtent { wanted, short }: InnerExtent) -> LoopNest {
    let mut next = largest_id(&nest) + 1;
    while let [.., slow, fast] = nest.outer[..]
        && fast.extent < wanted
    {
        let both = LoopVar { id: next, extent: slow.extent * fast.extent };
        next += 1;
        let longer = merged(&nest, slow, fast, both);
        if fast.extent >= short && div_rem_count(&longer) > div_rem_count(&nest) {
            break;
        }
        let mut outer = nest.outer.clone();
        outer.truncate(outer.len() - 2);
        outer.push(both);
        nest = with_vars(longer, 0, outer);
    }
    while let [slow, fast, ..] = nest.outer[..]
        && nest.outer.len() > GRID
    {
        let both = LoopVar { id: next, extent: slow.extent * fast.extent };
        next += 1;
        let mut outer = nest.outer.clone();
        outer.splice(..2, [both]);
        nest = with_vars(merged(&nest, slow, fast, both), 0, outer);
    }
    nest
}

/// Counts quotients and remainders in the indices of loads and stores.
fn div_rem_count(nest: &LoopNest) -> usize {
    let loads = nest.values.iter().filter_map(|(value, _)| match value {
        Value::Load(_, index) => Some(index),
        _ => None,
    });
    loads.chain(nest.stores.iter().map(|store| &store.at)).map(AffineExpr::divisions).sum()
}

fn index_exprs(nest: &LoopNest) -> impl Iterator<Item = &AffineExpr> {
    let values = nest.values.iter().filter_map(|(value, _)| value.index_expr());
    values.chain(nest.stores.iter().map(|store| &store.at))
}

fn divisions(nest: &LoopNest) -> usize {
    index_exprs(nest).map(AffineExpr::divisions).sum()
}

fn substituted(nest: &LoopNest, f: &dyn Fn(&AffineTerm) -> Option<AffineExpr>) -> LoopNest {
    let mut next = nest.clone();
    for (value, _) in &mut next.values {
        match value {
            Value::Load(_, index) | Value::Index(index) | Value::InBounds(BoundsCheck { index, .. }) => {
                *index = index.substitute(f)
            }
            Value::Const(_) | Value::ScalarInput(_) | Value::Alu(..) | Value::Cast(_) | Value::Bitcast(_) => {}
            Value::Reduce(..) | Value::Scan(..) => {}
        }
    }
    next.stores.iter_mut().for_each(|store| store.at = store.at.substitute(f));
    next
}
