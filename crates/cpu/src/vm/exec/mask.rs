//! Masks: sets of active lanes.
//!
//! A mask is a range of lanes and, unless it is dense, one byte per lane that selects lanes of the range. The first and
//! last lane of the range are always active. Bytes outside the range are ignored.

use std::ptr;

use super::Runner;
use crate::vm::ops::mask::Extent;
use crate::vm::program::{Compare, Condition, Kind, Mask, ROUND_LANES, Range, Src};

/// The range of a mask, with a flag for masks without holes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lanes {
    /// The first active lane.
    pub lo: usize,
    /// One past the last active lane.
    pub hi: usize,
    /// True if the mask has no holes; otherwise `mask_bytes` gives the active lanes.
    pub dense: bool,
    /// The mask that owns those bytes.
    pub mask: u32,
}

impl Lanes {
    /// Returns true if no lane is active.
    pub fn is_empty(self) -> bool {
        self.lo == self.hi
    }

    /// Copies the value field by field. A mask is entered right after its fields were written, and one wide read would
    /// defeat store forwarding: it would wait until these and all earlier stores have reached the cache.
    pub fn by_parts(&self) -> Lanes {
        // SAFETY: references are readable; volatile only keeps the reads separate.
        unsafe {
            Lanes {
                lo: ptr::read_volatile(&self.lo),
                hi: ptr::read_volatile(&self.hi),
                dense: ptr::read_volatile(&self.dense),
                mask: ptr::read_volatile(&self.mask),
            }
        }
    }

    /// Returns the range rounded outwards to `ROUND_LANES`; registers and masks have room for it.
    pub fn rounded(self) -> (usize, usize) {
        (self.lo / ROUND_LANES * ROUND_LANES, self.hi.next_multiple_of(ROUND_LANES))
    }

    /// Creates a dense mask of the lanes `lo..hi`.
    pub fn range(lo: usize, hi: usize) -> Lanes {
        if lo < hi { Lanes { lo, hi, dense: true, mask: 0 } } else { Lanes::default() }
    }
}

/// Lanes of a range for which a comparison holds.
enum RangeCompare {
    Range(usize, usize),
    AllBut(usize),
    /// The result is not a range: the values wrap, or the rows of the block differ.
    Unknown,
}

impl Runner<'_> {
    /// Returns the address of the bytes of a mask with holes, starting at a lane.
    pub(super) fn mask_bytes(&self, lanes: Lanes, lane: usize) -> *mut u8 {
        self.bytes(Mask(lanes.mask), lane)
    }

    fn bytes(&self, mask: Mask, lane: usize) -> *mut u8 {
        let at = self.program.mask_at as usize + mask.0 as usize * self.program.mask_stride as usize;
        // SAFETY: the masks' bytes are in the frame.
        unsafe { self.frame.add(at + lane) }
    }

    fn state(&self, mask: Mask) -> Lanes {
        self.masks[mask.0 as usize]
    }

    fn keep(&mut self, mask: Mask, lanes: Lanes) {
        self.masks[mask.0 as usize] = Lanes { mask: mask.0, ..lanes };
    }

    /// Computes the active range of a mask from its bytes.
    fn scan(&mut self, mask: Mask, lo: usize, hi: usize) {
        let extent = self.extent(self.bytes(mask, lo), hi - lo);
        self.keep_extent(mask, lo, extent);
    }

    fn extent(&self, bytes: *const u8, n: usize) -> Extent {
        let mut extent = Extent::default();
        let to: *mut Extent = &mut extent;
        // SAFETY: the callers pass `n` bytes, and `to` is an extent.
        unsafe { (self.program.tools.extent)(n, to.cast(), bytes, ptr::null(), ptr::null()) };
        extent
    }

    fn keep_extent(&mut self, mask: Mask, lo: usize, Extent { first, end, count }: Extent) {
        let lanes = Lanes { lo: lo + first, hi: lo + end, dense: count == end - first, mask: mask.0 };
        self.keep(mask, if count == 0 { Lanes::default() } else { lanes });
    }

    pub(super) fn copy_mask(&mut self, from: Mask, to: Mask) {
        let lanes = self.state(from);
        if from == to {
            return;
        }
        if !lanes.dense && !lanes.is_empty() {
            self.copy_bytes(from, to, lanes);
        }
        self.keep(to, lanes);
    }

    fn copy_bytes(&self, from: Mask, to: Mask, lanes: Lanes) {
        let Lanes { lo, hi, .. } = lanes;
        // SAFETY: two masks' bytes do not overlap.
        unsafe { ptr::copy_nonoverlapping(self.bytes(from, lo), self.bytes(to, lo), hi - lo) }
    }

    fn fill_bytes(&self, mask: Mask, lo: usize, hi: usize, value: u8) {
        // SAFETY: the range is within the mask's bytes.
        unsafe { ptr::write_bytes(self.bytes(mask, lo), value, hi - lo) }
    }

    pub(super) fn narrow(&mut self, from: Mask, to: Mask, when: &Condition) {
        let lanes = self.state(from);
        if lanes.is_empty() {
            return self.keep(to, lanes);
        }
        match when {
            Condition::Lanes { value, holds } => self.narrow_by_lanes(from, to, lanes, *value, *holds),
            Condition::Uniform { value, holds } => match (self.get(*value) & 0xff != 0) == *holds {
                true => self.copy_mask(from, to),
                false => self.keep(to, Lanes::default()),
            },
            Condition::Range(range) => match self.kept(lanes, range) {
                RangeCompare::Range(lo, hi) => self.narrow_to_range(from, to, lanes, lo, hi),
                RangeCompare::AllBut(lane) => {
                    self.materialize(from, to, lanes);
                    self.fill_bytes(to, lane, lane + 1, 0);
                    self.scan(to, lanes.lo, lanes.hi);
                }
                RangeCompare::Unknown => {
                    self.materialize(from, to, lanes);
                    self.by_runs(lanes, range, |lo, hi, holds| {
                        if !holds {
                            self.fill_bytes(to, lo, hi, 0);
                        }
                    });
                    self.scan(to, lanes.lo, lanes.hi);
                }
            },
        }
    }

    /// Writes the result of a comparison to bool lanes.
    pub(super) fn compare(&self, dst: Src, range: &Range) {
        let lanes = self.now;
        let fill = |lo: usize, hi: usize, holds: bool| {
            // SAFETY: the register has a byte for each active lane.
            unsafe { ptr::write_bytes(self.address(dst, lo), u8::from(holds), hi - lo) }
        };
        match self.kept(lanes, range) {
            RangeCompare::Unknown if self.compare_plane(dst, range, fill) => {}
            RangeCompare::Unknown => self.by_runs(lanes, range, fill),
            kept => kept.report(lanes.lo, lanes.hi, fill),
        }
    }

    /// Evaluates a comparison along one axis of a block with rows once for all rows or all columns. Returns false if it
    /// cannot be evaluated this way.
    fn compare_plane(&self, dst: Src, range: &Range, fill: impl Fn(usize, usize, bool)) -> bool {
        let ([width, height, depth], Lanes { lo, hi, .. }) = (self.shape, self.now);
        if depth > 1 || lo > 0 || hi < width * height {
            return false;
        }
        let (base, bound) = (self.get(range.at.base), self.get(range.bound));
        let [along, across, _] = range.at.strides.map(|stride| self.get(stride));
        let (count, stride) = match (along, across) {
            (0, stride) => (height, stride),
            (stride, 0) => (width, stride),
            _ => return false,
        };
        let kept = range.kept_of_run(0, count, [base, stride], bound);
        if matches!(kept, RangeCompare::Unknown) {
            return false;
        }
        if along == 0 {
            kept.report(0, height, |from, to, holds| fill(from * width, to * width, holds));
            return true;
        }
        kept.report(0, width, fill);
        let first = self.address(dst, 0);
        for row in 1..height {
            // SAFETY: the register has a byte for each lane, and rows do not overlap.
            unsafe { ptr::copy_nonoverlapping(first, self.address(dst, row * width), width) };
        }
        true
    }

    fn narrow_by_lanes(&mut self, from: Mask, to: Mask, lanes: Lanes, value: Src, holds: bool) {
        let Lanes { lo, hi, dense, .. } = lanes;
        if dense && holds {
            // If the bools leave no holes, their bytes need not be kept.
            let extent = self.extent(self.address(value, lo), hi - lo);
            if extent.count == extent.end - extent.first {
                return self.keep_extent(to, lo, extent);
            }
        }
        let tools = &self.program.tools;
        let f = match (dense, from == to, holds) {
            (true, _, true) => tools.copy[0],
            (true, _, false) => tools.not,
            (false, true, true) => tools.keep,
            (false, true, false) => tools.remove,
            (false, false, true) => tools.and,
            (false, false, false) => tools.and_not,
        };
        // A mask's bytes outside its range are ignored.
        let (first, end) = if value.kind == Kind::Reg { lanes.rounded() } else { (lo, hi) };
        let (dst, own, value) = (self.bytes(to, first), self.bytes(from, first), self.address(value, first));
        let a = if dense { value } else { own };
        // SAFETY: masks and bools are bytes; a loop that reads `own` either updates in place or has another destination.
        unsafe { f(end - first, dst, a, value, ptr::null()) };
        self.scan(to, lo, hi);
    }

    fn narrow_to_range(&mut self, from: Mask, to: Mask, lanes: Lanes, lo: usize, hi: usize) {
        if lo >= hi {
            return self.keep(to, Lanes::default());
        }
        if lanes.dense {
            return self.keep(to, Lanes::range(lo, hi));
        }
        if from != to {
            self.copy_bytes(from, to, Lanes { lo, hi, ..lanes });
        }
        self.scan(to, lo, hi);
    }

    /// Writes the bytes of mask `from` to mask `to`, or creates them if `from` is dense.
    fn materialize(&self, from: Mask, to: Mask, lanes: Lanes) {
        if lanes.dense {
            self.fill_bytes(to, lanes.lo, lanes.hi, 1);
        } else if from != to {
            self.copy_bytes(from, to, lanes);
        }
    }

    /// Evaluates a comparison run by run and calls `report` with ranges of lanes and the result for each.
    fn by_runs(&self, lanes: Lanes, range: &Range, report: impl Fn(usize, usize, bool)) {
        let bound = self.get(range.bound);
        self.runs(&range.at, lanes, |lane, n, first, stride| {
            match range.kept_of_run(lane, n, [first, stride], bound) {
                RangeCompare::Unknown => (0..n).for_each(|i| {
                    let index = first.wrapping_add(stride.wrapping_mul(i as u64));
                    report(lane + i, lane + i + 1, holds(range.compare, index, bound, range.signed));
                }),
                kept => kept.report(lane, lane + n, &report),
            }
        });
    }

    /// Returns the lanes of the range for which a comparison holds, if the ends of the range decide it.
    fn kept(&self, lanes: Lanes, range: &Range) -> RangeCompare {
        let Lanes { lo, hi, .. } = lanes;
        let (at, bound) = (range.at, self.get(range.bound));
        let (base, strides) = (self.get(at.base), at.strides.map(|stride| self.get(stride)));
        if self.flat {
            let first = base.wrapping_add(strides[0].wrapping_mul(lo as u64));
            let wraps = strides[0] as i64 as i128 * lo as i128 + range.value(base) != range.value(first);
            return if wraps {
                RangeCompare::Unknown
            } else {
                range.kept_of_run(lo, hi - lo, [first, strides[0]], bound)
            };
        }
        let reach: [i128; 3] = std::array::from_fn(|d| i128::from(strides[d] as i64) * (self.shape[d] - 1) as i128);
        let end =
            |far: fn(i128, i128) -> i128| range.value(base) + reach.iter().map(|reach| far(*reach, 0)).sum::<i128>();
        let ends = [end(i128::min), end(i128::max)];
        let all = if range.fits(&ends) { range.of_all(ends, range.value(bound)) } else { None };
        all.map_or(
            RangeCompare::Unknown,
            |holds| if holds { RangeCompare::Range(lo, hi) } else { RangeCompare::Range(lo, lo) },
        )
    }

    pub(super) fn minus(&mut self, from: Mask, take: Mask, to: Mask) {
        let (all, gone) = (self.state(from), self.state(take));
        if gone.is_empty() || all.is_empty() {
            return self.copy_mask(from, to);
        }
        if gone.dense && gone.lo <= all.lo && gone.hi >= all.hi {
            return self.keep(to, Lanes::default());
        }
        if all.dense && gone.dense && gone.lo == all.lo {
            return self.keep(to, Lanes::range(gone.hi, all.hi));
        }
        if all.dense && gone.dense && gone.hi == all.hi {
            return self.keep(to, Lanes::range(all.lo, gone.lo));
        }
        self.materialize(from, to, all);
        if gone.dense {
            self.fill_bytes(to, gone.lo, gone.hi, 0);
        } else {
            let (dst, gone_bytes) = (self.bytes(to, gone.lo), self.bytes(take, gone.lo));
            let f = self.program.tools.remove;
            // SAFETY: two masks' bytes do not overlap.
            unsafe { f(gone.hi - gone.lo, dst, ptr::null(), gone_bytes, ptr::null()) };
        }
        self.scan(to, all.lo, all.hi);
    }

    /// Removes the active lanes from the given masks, of which the last is the current one.
    pub(super) fn leave(&mut self, masks: &[Mask]) {
        let Some((current, others)) = masks.split_last() else { return };
        for mask in others {
            self.minus(*mask, *current, *mask);
        }
        self.keep(*current, Lanes::default());
        self.now = Lanes::default();
    }
}

impl RangeCompare {
    /// Calls `report` with ranges of the lanes `lo..hi` and the result of the comparison for each.
    #[inline(always)]
    fn report(self, lo: usize, hi: usize, report: impl Fn(usize, usize, bool)) {
        let (from, to, within) = match self {
            RangeCompare::Range(from, to) if from < to => (from, to, true),
            RangeCompare::Range(..) => (lo, lo, true),
            RangeCompare::AllBut(lane) => (lane, lane + 1, false),
            RangeCompare::Unknown => unreachable!("the caller handles `Unknown`"),
        };
        for (from, to, holds) in [(lo, from, !within), (from, to, within), (to, hi, !within)] {
            if from < to {
                report(from, to, holds);
            }
        }
    }
}

impl Range {
    fn value(&self, bits: u64) -> i128 {
        if self.signed { i128::from(bits as i64) } else { i128::from(bits) }
    }

    /// Returns true if the values between these ends are representable in 64 bits.
    fn fits(&self, ends: &[i128; 2]) -> bool {
        let limits = if self.signed { i64::MIN.into()..=i64::MAX.into() } else { 0..=i128::from(u64::MAX) };
        ends.iter().all(|end| limits.contains(end))
    }

    /// Returns the result of the comparison if it is the same for all values between two.
    fn of_all(&self, [least, most]: [i128; 2], bound: i128) -> Option<bool> {
        let same = |at_least: bool, at_most: bool| (at_least == at_most).then_some(at_least);
        match self.compare {
            Compare::Lt => same(least < bound, most < bound),
            Compare::Le => same(least <= bound, most <= bound),
            Compare::Ge => same(least >= bound, most >= bound),
            Compare::Gt => same(least > bound, most > bound),
            Compare::Eq | Compare::Ne if bound < least || bound > most => Some(self.compare == Compare::Ne),
            Compare::Eq | Compare::Ne => (least == most).then_some(self.compare == Compare::Eq),
        }
    }

    /// Returns the lanes for which a comparison holds, among `n` lanes from `lo` on whose values start at `first` and
    /// increase by `stride`.
    #[inline(always)]
    fn kept_of_run(&self, lo: usize, n: usize, [first, stride]: [u64; 2], bound: u64) -> RangeCompare {
        let (hi, first, stride, bound) = (lo + n, self.value(first), i128::from(stride as i64), self.value(bound));
        let last = first + stride * (n - 1) as i128;
        let ends = [first.min(last), first.max(last)];
        let none = RangeCompare::Range(lo, lo);
        if !self.fits(&ends) {
            return RangeCompare::Unknown;
        }
        if let Some(holds) = self.of_all(ends, bound) {
            return if holds { RangeCompare::Range(lo, hi) } else { none };
        }
        // The stride is not 0; otherwise the result would be the same for all lanes.
        let steps = |distance: i128| if stride == 1 { distance } else { distance.div_euclid(stride.abs()) };
        let lane = |steps: i128| lo + steps.clamp(0, n as i128) as usize;
        let (limit, below) = match self.compare {
            Compare::Lt => (bound, true),
            Compare::Le => (bound + 1, true),
            Compare::Ge => (bound, false),
            Compare::Gt => (bound + 1, false),
            Compare::Eq | Compare::Ne => {
                let is = self.compare == Compare::Eq;
                let at = lane((bound - first) / stride);
                return match ((bound - first) % stride == 0, is) {
                    (false, true) => none,
                    (false, false) => RangeCompare::Range(lo, hi),
                    (true, true) => RangeCompare::Range(at, at + 1),
                    (true, false) => RangeCompare::AllBut(at),
                };
            }
        };
        // The other comparisons reduce to being below a limit.
        if stride > 0 {
            let first_above = lane(steps(limit - first + stride - 1));
            if below { RangeCompare::Range(lo, first_above) } else { RangeCompare::Range(first_above, hi) }
        } else {
            let first_below = lane(steps(first - limit) + 1);
            if below { RangeCompare::Range(first_below, hi) } else { RangeCompare::Range(lo, first_below) }
        }
    }
}

fn holds(compare: Compare, index: u64, bound: u64, signed: bool) -> bool {
    let order = if signed { (index as i64).cmp(&(bound as i64)) } else { index.cmp(&bound) };
    match compare {
        Compare::Lt => order.is_lt(),
        Compare::Le => order.is_le(),
        Compare::Gt => order.is_gt(),
        Compare::Ge => order.is_ge(),
        Compare::Eq => order.is_eq(),
        Compare::Ne => order.is_ne(),
    }
}
