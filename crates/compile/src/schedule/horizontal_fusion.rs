//! Horizontal fusion: merges independent groups over the same rows that load the same memory.
//!
//! This is the second half of the fusion rule. [`super::fuse`] fuses a node with its users; the remaining groups can be
//! independent but load the same node, such as two sums over the columns of one matrix. Merged, they load it once.

use std::collections::{BTreeMap, BTreeSet};

use panoply_ir::Target;
use panoply_ir::graph::{Graph, NodeId, Op};

use super::affine::{AffineExpr, AffineTerm, LoopVar};
use super::dependencies::Dependencies;
use super::fuse::{MAX_VISITS, is_product};
use super::fusion_group::FusionGroup;
use super::index_map::IndexExprs;

/// Groups after a group with which it is compared, among those that load the same node. Thousands can load one: the updates of all
/// parameters load the gradient's norm.
const MAX_CANDIDATES: usize = 128;

/// Merges groups where possible. A group that was merged into another becomes `None`.
pub fn fuse_horizontally(
    graph: &Graph,
    target: &Target,
    groups: Vec<FusionGroup>,
    dependencies: &mut Dependencies,
) -> Vec<Option<FusionGroup>> {
    let mut groups: Vec<Option<FusionGroup>> = groups.into_iter().map(Some).collect();
    let mut readers: BTreeMap<NodeId, Vec<usize>> = BTreeMap::new();
    for (number, group) in groups.iter().enumerate() {
        let loads = group.iter().flat_map(|group| group.loads.keys());
        loads.for_each(|load| readers.entry(*load).or_default().push(number));
    }
    for readers in readers.values() {
        for (at, first) in readers.iter().enumerate() {
            for second in readers[at + 1..].iter().take(MAX_CANDIDATES) {
                if fits(graph, target, &groups, dependencies, (*first, *second)) {
                    merge_groups(&mut groups, *first, *second);
                    dependencies.merge(*first, *second);
                }
            }
        }
    }
    groups
}

fn fits(
    graph: &Graph,
    target: &Target,
    groups: &[Option<FusionGroup>],
    dependencies: &Dependencies,
    (first, second): (usize, usize),
) -> bool {
    let (Some(a), Some(b)) = (&groups[first], &groups[second]) else { return false };
    let alone = |group: &FusionGroup| {
        let special = |id: &NodeId| matches!(graph.node(*id).op, Op::Scan(..)) || is_product(graph, *id);
        group.library_kernel.is_some() || group.is_scatter() || group.is_write() || group.visits.keys().any(special)
    };
    let extents = |(a, b): (&LoopVar, &LoopVar)| a.extent == b.extent;
    // There can be thousands of candidate pairs, so cheap checks come first.
    let room = (target.max_bindings as usize).saturating_sub(a.stores.len() + b.stores.len());
    let loads = || a.loads.keys().chain(b.loads.keys()).collect::<BTreeSet<&NodeId>>().len();
    let visits = || a.visits.values().chain(b.visits.values()).map(Vec::len).sum::<usize>();
    a.loads.len().max(b.loads.len()) <= room
        && a.rows_fixed == b.rows_fixed
        && a.outer.len() == b.outer.len()
        && a.outer.iter().zip(&b.outer).all(extents)
        && loads() <= room
        && visits() <= MAX_VISITS
        && !alone(a)
        && !alone(b)
        && !dependencies.may_depend(first, &[second].into())
        && !dependencies.may_depend(second, &[first].into())
}

/// Merges the second group into the first.
fn merge_groups(groups: &mut [Option<FusionGroup>], first: usize, second: usize) {
    let (Some(b), Some(a)) = (groups[second].take(), &mut groups[first]) else { return };
    let mut vars: BTreeMap<LoopVar, LoopVar> = b.outer.iter().copied().zip(a.outer.iter().copied()).collect();
    for inner in &b.loops {
        let extents: Vec<usize> = inner.iter().map(|var| var.extent as usize).collect();
        vars.extend(inner.iter().copied().zip(a.inner_loop(&extents)));
    }
    let mut reads: Vec<u32> = Vec::new();
    for (id, coords) in &b.reads {
        // An index can itself be loaded at a loaded index; such inner indices come first.
        let read = (*id, moved_all(coords, &vars, &reads));
        let known = a.reads.iter().position(|known| *known == read);
        reads.push(known.unwrap_or(a.reads.len()) as u32);
        if known.is_none() {
            a.reads.push(read);
        }
    }
    for (into, from) in [(&mut a.visits, &b.visits), (&mut a.loads, &b.loads)] {
        for (id, places) in from {
            let known = into.entry(*id).or_default();
            for coords in places {
                let coords = moved_all(coords, &vars, &reads);
                if !known.contains(&coords) {
                    known.push(coords);
                }
            }
        }
    }
    a.stores.extend(b.stores.iter().map(|(id, at)| (*id, renumbered(at, &vars, &reads))));
}

fn moved_all(coords: &IndexExprs, vars: &BTreeMap<LoopVar, LoopVar>, reads: &[u32]) -> IndexExprs {
    coords.iter().map(|index| renumbered(index, vars, reads)).collect()
}

fn renumbered(index: &AffineExpr, vars: &BTreeMap<LoopVar, LoopVar>, reads: &[u32]) -> AffineExpr {
    index.substitute(&|term| match term {
        AffineTerm::Var(var) => vars.get(var).map(|var| AffineExpr::var(*var)),
        AffineTerm::Read(number, extent) => Some(AffineExpr::read(reads[*number as usize], *extent)),
        AffineTerm::Div(..) | AffineTerm::Rem(..) => None,
    })
}
