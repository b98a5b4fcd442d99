//! Fewer and better loop variables: neighbours merge where all positions agree, variables split where that removes
//! quotients.
//!
//! Walking through four axes of a contiguous tensor is walking through one; a reshape that cannot be a stride becomes a
//! split loop. What cannot be helped stays a quotient, computed by each work-item.

use crate::schedule::affine::{Atom, Form, Var};
use crate::schedule::nest::{Nest, Value};
use crate::schedule::pull::Bound;

/// The same nest over as few variables as possible.
pub fn tidy(mut nest: Nest) -> Nest {
    let mut next = largest_id(&nest) + 1;
    let scanned = |nest: &Nest, number: usize| {
        nest.values.iter().any(|(value, _)| matches!(value, Value::Scanned(_, _, along) if *along == number))
    };
    for list in 0..=nest.loops.len() {
        // The turns of a scan keep their order either way; one plain loop is what its lowering takes.
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

/// List 0 is the outer variables, list n + 1 those of loop n.
fn vars(nest: &Nest, list: usize) -> &Vec<Var> {
    if list == 0 { &nest.outer } else { &nest.loops[list - 1] }
}

fn with_vars(mut nest: Nest, list: usize, next: Vec<Var>) -> Nest {
    if list == 0 {
        nest.outer = next;
    } else {
        nest.loops[list - 1] = next;
    }
    nest
}

fn largest_id(nest: &Nest) -> u32 {
    nest.outer.iter().chain(nest.loops.iter().flatten()).map(|var| var.id).max().unwrap_or(0)
}

/// A variable in two parts, if fewer quotients and remainders are left then.
fn find_split(nest: &Nest, list: usize, next: u32) -> Option<(usize, Nest)> {
    let before = divisions(nest);
    if before == 0 {
        return None;
    }
    for (at, var) in vars(nest, list).iter().enumerate() {
        for unit in units(nest, *var) {
            let slow = Var { id: next, extent: var.extent / unit };
            let fast = Var { id: next + 1, extent: unit };
            let whole = Form::var(slow).times(unit as i64).plus(&Form::var(fast));
            let split = substituted(nest, &|atom| (*atom == Atom::Var(*var)).then(|| whole.clone()));
            if divisions(&split) < before {
                let mut list_vars = vars(nest, list).clone();
                list_vars.splice(at..=at, [slow, fast]);
                return Some((at, with_vars(split, list, list_vars)));
            }
        }
    }
    None
}

/// The numbers a variable is divided by that divide its extent.
fn units(nest: &Nest, var: Var) -> Vec<u64> {
    let mut units = Vec::new();
    forms(nest).for_each(|form| {
        form.any_atom(&mut |atom| {
            if let Atom::Div(inner, n) | Atom::Rem(inner, n) = atom
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

/// Two neighbours as one variable, if no quotient or remainder appears by that.
fn find_merge(nest: &Nest, list: usize, next: u32) -> Option<Nest> {
    let before = divisions(nest);
    let known = vars(nest, list);
    (1..known.len()).rev().find_map(|at| {
        let (slow, fast) = (known[at - 1], known[at]);
        let both = Var { id: next, extent: slow.extent * fast.extent };
        let merged = merged(nest, slow, fast, both);
        (divisions(&merged) <= before).then(|| {
            let mut list_vars = known.clone();
            list_vars.splice(at - 1..=at, [both]);
            with_vars(merged, list, list_vars)
        })
    })
}

/// The same positions with one variable in place of two.
fn merged(nest: &Nest, slow: Var, fast: Var, both: Var) -> Nest {
    let (quotient, rest) = (Form::var(both).over(fast.extent), Form::var(both).modulo(fast.extent));
    substituted(nest, &|atom| match atom {
        Atom::Var(var) if *var == slow => Some(quotient.clone()),
        Atom::Var(var) if *var == fast => Some(rest.clone()),
        Atom::Var(_) | Atom::Read(..) | Atom::Div(..) | Atom::Rem(..) => None,
    })
}

/// How long the innermost outer variable is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Length {
    /// So many values.
    pub wanted: u64,
    /// Rows shorter than this are walked together even if memory is then no longer walked in even steps.
    pub short: u64,
}

impl Length {
    /// As it is.
    pub const OWN: Length = Length { wanted: 1, short: 0 };
}

/// Axes of a grid.
const GRID: usize = 3;

/// The innermost outer variables as one until it takes this many values: for a machine whose every step along the others is a
/// program run anew. Quotients in bounds are its price, and for short rows quotients in positions too. What has no axis of the grid is
/// then one with the outermost, for positions that both go through evenly are even in their product.
pub fn lengthened(mut nest: Nest, Length { wanted, short }: Length) -> Nest {
    let mut next = largest_id(&nest) + 1;
    while let [.., slow, fast] = nest.outer[..]
        && fast.extent < wanted
    {
        let both = Var { id: next, extent: slow.extent * fast.extent };
        next += 1;
        let longer = merged(&nest, slow, fast, both);
        if fast.extent >= short && uneven(&longer) > uneven(&nest) {
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
        let both = Var { id: next, extent: slow.extent * fast.extent };
        next += 1;
        let mut outer = nest.outer.clone();
        outer.splice(..2, [both]);
        nest = with_vars(merged(&nest, slow, fast, both), 0, outer);
    }
    nest
}

/// Quotients and remainders in the positions of what is read and written.
fn uneven(nest: &Nest) -> usize {
    let loads = nest.values.iter().filter_map(|(value, _)| match value {
        Value::Load(_, form) => Some(form),
        _ => None,
    });
    loads.chain(nest.stores.iter().map(|store| &store.at)).map(Form::divisions).sum()
}

fn forms(nest: &Nest) -> impl Iterator<Item = &Form> {
    let values = nest.values.iter().filter_map(|(value, _)| value.form());
    values.chain(nest.stores.iter().map(|store| &store.at))
}

fn divisions(nest: &Nest) -> usize {
    forms(nest).map(Form::divisions).sum()
}

fn substituted(nest: &Nest, f: &dyn Fn(&Atom) -> Option<Form>) -> Nest {
    let mut next = nest.clone();
    for (value, _) in &mut next.values {
        match value {
            Value::Load(_, form) | Value::Position(form) | Value::Inside(Bound { form, .. }) => {
                *form = form.substitute(f)
            }
            Value::Const(_) | Value::Slot(_) | Value::Alu(..) | Value::Cast(_) | Value::Bitcast(_) => {}
            Value::Reduced(..) | Value::Scanned(..) => {}
        }
    }
    next.stores.iter_mut().for_each(|store| store.at = store.at.substitute(f));
    next
}
