//! Computes the elements of each buffer that a part of a launch accesses.
//!
//! Given the sizes of a launch and the ids of some work-items, every index has an interval, and so do the elements that
//! an access touches. An index below zero wraps to a huge one, and elements beyond a buffer's length are not accessed:
//! guards ensure this, or the author promised it. If nothing is known about an index, the access can touch the entire
//! buffer.

use std::collections::HashMap;
use std::ops::Range;

use panoply_ir::Verified;
use panoply_ir::kernel::{Builtin, Expr, ExprId, Kernel, MemId, Op, Param};

use super::index_width::{Launch, interval, leaves};
use super::range_dataflow::walk;
use super::ranges;
use super::walk::transitive_operands;

/// Returns for every parameter the interval of elements that these work-items of a launch access. `items` is the range
/// along each axis of the work-items of all groups, or of some. Parameters that are not buffers get an empty interval.
pub fn access_footprint(kernel: &Verified<Kernel>, launch: &Launch, items: &[Range<u64>; 3]) -> Vec<Range<u64>> {
    let mut touched = Footprint { kernel, launch, found: vec![0..0; kernel.params.len()] };
    let Some(mut known) = leaves(kernel, launch) else {
        touched.everything();
        return touched.found;
    };
    for (axis, items) in items.iter().enumerate() {
        let group = kernel.group_size.map_or(1, |group| u64::from(group[axis]));
        let last = items.end.saturating_sub(1).max(items.start);
        let between = |lo: u64, hi: u64| ranges::Range { lo: lo.into(), hi: hi.into() };
        let axis = axis as u8;
        known.insert(Expr::Builtin(Builtin::GlobalId(axis)), between(items.start, last));
        known.insert(Expr::Builtin(Builtin::GroupId(axis)), between(items.start / group, last / group));
    }
    walk(kernel, &known, &mut |facts, stmt| {
        let mut signed: HashMap<ExprId, ranges::Range> = HashMap::new();
        for id in transitive_operands(kernel, &stmt.op.operands()) {
            if let Some(range) = interval(kernel, facts, id, &signed) {
                signed.insert(id, range);
            }
            if let Expr::Load { mem, index, lanes, .. } = kernel.exprs.get(id) {
                touched.add(mem, signed.get(&index).copied(), lanes);
            }
        }
        match &stmt.op {
            Op::Store { mem, index, value, .. } => {
                touched.add(*mem, signed.get(index).copied(), kernel.exprs.ty(*value).lanes());
            }
            Op::Atomic { mem, index, .. } => touched.add(*mem, signed.get(index).copied(), 1),
            _ => {}
        }
    });
    touched.found
}

/// Intervals found so far.
struct Footprint<'k> {
    kernel: &'k Kernel,
    launch: &'k Launch,
    found: Vec<Range<u64>>,
}

impl Footprint<'_> {
    /// Adds `lanes` elements of a memory whose first is in an interval, or anywhere if `first` is `None`.
    fn add(&mut self, mem: MemId, first: Option<ranges::Range>, lanes: u8) {
        let of = |param: &Param| matches!(param, Param::Buffer(own) if *own == mem);
        let Some(at) = self.kernel.params.iter().position(of) else { return };
        let len = self.launch.args[at];
        let inside = |number: i128| u64::try_from(number.max(0)).map_or(len, |number| number.min(len));
        let new = first.map_or(0..len, |first| inside(first.lo)..inside(first.hi + i128::from(lanes)));
        let found = &mut self.found[at];
        *found = match (found.is_empty(), new.is_empty()) {
            (_, true) => return,
            (true, false) => new,
            (false, false) => found.start.min(new.start)..found.end.max(new.end),
        };
    }

    fn everything(&mut self) {
        for (at, param) in self.kernel.params.iter().enumerate() {
            if let Param::Buffer(_) = param {
                self.found[at] = 0..self.launch.args[at];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use panoply_ir::{text, verify::verify};

    use super::{Launch, Range, access_footprint};

    fn check(source: &str, grid: [u64; 3], args: &[u64], items: [Range<u64>; 3], expected: &[Range<u64>]) {
        let kernel = verify(text::parse(source).expect("parses")).expect("verifies");
        let launch = Launch { grid, args: args.to_vec() };
        assert_eq!(access_footprint(&kernel, &launch, &items), expected, "{source}\n{launch:?} of {items:?}");
    }

    #[test]
    fn work_items_access_their_own_elements() {
        let each = "kernel k(a: f32, x: &[f32], y: &mut [f32]) { y[global_id.x] = mul(a, x[global_id.x]) }";
        check(each, [1000, 1, 1], &[0, 1000, 900], [256..512, 0..1, 0..1], &[0..0, 256..512, 256..512]);
        check(each, [1000, 1, 1], &[0, 1000, 900], [768..1000, 0..1, 0..1], &[0..0, 768..1000, 768..900]);
        let rows = "kernel k(x: &[f32], y: &out [f32]) group(64, 1, 1) {
            for k: index in 0..100 { y[group_id.x] = x[add(mul(group_id.x, 6400), add(mul(k, 64), local_id.x))] } }";
        check(rows, [640, 1, 1], &[64_000, 10], [128..256, 0..1, 0..1], &[12_800..25_600, 2..4]);
    }

    #[test]
    fn negative_indices_access_nothing() {
        let shifted = "kernel k(x: &[f32], y: &out [f32]) { y[global_id.x] = x[sub(global_id.x, 300)] }";
        check(shifted, [1000, 1, 1], &[1000, 1000], [0..200, 0..1, 0..1], &[0..0, 0..200]);
        check(shifted, [1000, 1, 1], &[1000, 1000], [256..512, 0..1, 0..1], &[0..212, 256..512]);
    }

    #[test]
    fn loaded_indices_can_access_the_entire_buffer() {
        let gather =
            "kernel k(at: &[u32], x: &[f32], y: &out [f32]) { y[global_id.x] = x[cast<index>(at[global_id.x])] }";
        check(gather, [1000, 1, 1], &[1000, 50, 1000], [10..20, 0..1, 0..1], &[10..20, 0..50, 10..20]);
    }
}
