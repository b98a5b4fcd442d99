//! Masks: which lanes are active.
//!
//! A mask is a range of lanes, and bytes that say which of the range are meant unless it is dense. Its ends are always
//! active lanes. Bytes outside the range mean nothing.

use std::{ptr, slice};

use super::Runner;
use crate::vm::ops::mask::Extent;
use crate::vm::program::{Compare, Condition, Kind, Mask, ROUND_LANES, Range, Src};

/// A mask's range, and whether all of the range is active.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lanes {
    /// The first active lane.
    pub lo: usize,
    /// One past the last active lane.
    pub hi: usize,
    /// Whether the mask has no holes; otherwise [`Lanes::bytes`] says which lanes are active.
    pub dense: bool,
    /// Which mask's bytes those are.
    pub mask: u32,
}

impl Lanes {
    /// Whether no lane is active.
    pub fn is_empty(self) -> bool {
        self.lo == self.hi
    }

    /// A copy made field by field. A mask is entered right after it was written in parts, and one wide read of those would
    /// wait until they, and all that was stored before them, have reached the cache.
    pub fn by_parts(&self) -> Lanes {
        // SAFETY: references are readable; that the reads are volatile only keeps them apart.
        unsafe {
            Lanes {
                lo: ptr::read_volatile(&self.lo),
                hi: ptr::read_volatile(&self.hi),
                dense: ptr::read_volatile(&self.dense),
                mask: ptr::read_volatile(&self.mask),
            }
        }
    }

    /// The range, rounded outwards; registers and masks have room for it.
    pub fn rounded(self) -> (usize, usize) {
        (self.lo / ROUND_LANES * ROUND_LANES, self.hi.next_multiple_of(ROUND_LANES))
    }

    /// All lanes from `lo` to below `hi`.
    pub fn range(lo: usize, hi: usize) -> Lanes {
        if lo < hi { Lanes { lo, hi, dense: true, mask: 0 } } else { Lanes::default() }
    }
}

/// What a comparison leaves of a range.
enum Kept {
    Range(usize, usize),
    AllBut(usize),
    /// The values wrap, or the block has rows: each lane must be compared.
    EachLane,
}

impl Runner<'_> {
    /// The bytes of a mask with holes, from a lane on.
    pub(super) fn mask_bytes(&self, lanes: Lanes, lane: usize) -> *mut u8 {
        self.bytes(Mask(lanes.mask), lane)
    }

    fn bytes(&self, mask: Mask, lane: usize) -> *mut u8 {
        let at = self.program.mask_at as usize + mask.0 as usize * self.program.mask_stride as usize;
        // SAFETY: the masks' bytes lie in the frame.
        unsafe { self.frame.add(at + lane) }
    }

    fn state(&self, mask: Mask) -> Lanes {
        self.masks[mask.0 as usize]
    }

    fn keep(&mut self, mask: Mask, lanes: Lanes) {
        self.masks[mask.0 as usize] = Lanes { mask: mask.0, ..lanes };
    }

    /// Finds the active lanes of a range by the mask's bytes.
    fn scan(&mut self, mask: Mask, lo: usize, hi: usize) {
        let extent = self.extent(self.bytes(mask, lo), hi - lo);
        self.keep_extent(mask, lo, extent);
    }

    fn extent(&self, bytes: *const u8, n: usize) -> Extent {
        let mut extent = Extent::default();
        let to: *mut Extent = &mut extent;
        // SAFETY: the callers give as many bytes, and `to` is an extent.
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
        // SAFETY: the range lies within the mask's bytes.
        unsafe { ptr::write_bytes(self.bytes(mask, lo), value, hi - lo) }
    }

    pub(super) fn narrow(&mut self, from: Mask, to: Mask, when: &Condition) {
        let lanes = self.state(from);
        if lanes.is_empty() {
            return self.keep(to, lanes);
        }
        match when {
            Condition::Lanes { value, holds } => self.narrow_by_lanes(from, to, lanes, *value, *holds),
            Condition::Together { value, holds } => match (self.get(*value) & 0xff != 0) == *holds {
                true => self.copy_mask(from, to),
                false => self.keep(to, Lanes::default()),
            },
            Condition::Range(range) => match self.kept(lanes, range) {
                Kept::Range(lo, hi) => self.narrow_to_range(from, to, lanes, lo, hi),
                Kept::AllBut(lane) => {
                    self.materialise(from, to, lanes);
                    self.fill_bytes(to, lane, lane + 1, 0);
                    self.scan(to, lanes.lo, lanes.hi);
                }
                Kept::EachLane => {
                    self.materialise(from, to, lanes);
                    self.compare_each(lanes, range, self.bytes(to, 0), |byte, holds| *byte &= u8::from(holds));
                    self.scan(to, lanes.lo, lanes.hi);
                }
            },
        }
    }

    /// Writes the outcome of a comparison to bool lanes.
    pub(super) fn compare(&self, dst: Src, range: &Range) {
        let lanes = self.now;
        let fill = |lo: usize, hi: usize, holds: bool| {
            // SAFETY: the register has a byte for each active lane.
            unsafe { ptr::write_bytes(self.address(dst, lo), u8::from(holds), hi - lo) }
        };
        match self.kept(lanes, range) {
            Kept::Range(lo, hi) => {
                let (lo, hi) = if lo < hi { (lo, hi) } else { (lanes.lo, lanes.lo) };
                fill(lanes.lo, lo, false);
                fill(lo, hi, true);
                fill(hi, lanes.hi, false);
            }
            Kept::AllBut(lane) => {
                fill(lanes.lo, lanes.hi, true);
                fill(lane, lane + 1, false);
            }
            Kept::EachLane => {
                self.compare_each(lanes, range, self.address(dst, 0), |byte, holds| *byte = u8::from(holds));
            }
        }
    }

    fn narrow_by_lanes(&mut self, from: Mask, to: Mask, lanes: Lanes, value: Src, holds: bool) {
        let Lanes { lo, hi, dense, .. } = lanes;
        if dense && holds {
            // Where the bools leave no holes their own bytes need not be kept.
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
        // What a mask has outside its range means nothing.
        let (first, end) = if value.kind == Kind::Reg { lanes.rounded() } else { (lo, hi) };
        let (dst, own, value) = (self.bytes(to, first), self.bytes(from, first), self.address(value, first));
        let a = if dense { value } else { own };
        // SAFETY: masks and bools are bytes; a loop that reads `own` either is an update or has another destination.
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

    /// Writes a mask's bytes to another, or to itself if it has none yet.
    fn materialise(&self, from: Mask, to: Mask, lanes: Lanes) {
        if lanes.dense {
            self.fill_bytes(to, lanes.lo, lanes.hi, 1);
        } else if from != to {
            self.copy_bytes(from, to, lanes);
        }
    }

    /// Compares lane by lane and notes the outcome in the lane's byte.
    fn compare_each(&self, lanes: Lanes, range: &Range, bytes: *mut u8, note: impl Fn(&mut u8, bool)) {
        let bound = self.get(range.bound);
        self.runs(&range.at, lanes, |lane, n, first, stride| {
            // SAFETY: the lanes have bytes, which nothing else refers to.
            let bytes = unsafe { slice::from_raw_parts_mut(bytes.add(lane), n) };
            for (i, byte) in bytes.iter_mut().enumerate() {
                let index = first.wrapping_add(stride.wrapping_mul(i as u64));
                note(byte, holds(range.compare, index, bound, range.signed));
            }
        });
    }

    /// What a comparison leaves, if that can be told from the ends of the range.
    fn kept(&self, lanes: Lanes, range: &Range) -> Kept {
        let Range { at, compare, signed, .. } = *range;
        let bound = self.get(range.bound);
        let widen = |bits: u64| if signed { i128::from(bits as i64) } else { i128::from(bits) };
        let limits = if signed { i128::from(i64::MIN)..=i128::from(i64::MAX) } else { 0..=i128::from(u64::MAX) };
        let (base, bound) = (widen(self.get(at.base)), widen(bound));
        let strides = at.strides.map(|stride| i128::from(self.get(stride) as i64));
        let Lanes { lo, hi, .. } = lanes;
        let (least, most) = if self.flat {
            let (a, b) = (base + strides[0] * lo as i128, base + strides[0] * (hi - 1) as i128);
            (a.min(b), a.max(b))
        } else {
            let reach: [i128; 3] = std::array::from_fn(|d| strides[d] * (self.shape[d] - 1) as i128);
            (
                base + reach.iter().map(|reach| (*reach).min(0)).sum::<i128>(),
                base + reach.iter().map(|reach| (*reach).max(0)).sum::<i128>(),
            )
        };
        if !limits.contains(&least) || !limits.contains(&most) {
            return Kept::EachLane;
        }
        // Everything is a question of being below a limit, or of being one value.
        let (limit, below) = match compare {
            Compare::Below => (bound, true),
            Compare::AtMost => (bound + 1, true),
            Compare::AtLeast => (bound, false),
            Compare::Above => (bound + 1, false),
            Compare::Is | Compare::IsNot => return self.one(lanes, base, strides[0], [least, most], compare, bound),
        };
        if most < limit {
            return if below { Kept::Range(lo, hi) } else { Kept::Range(lo, lo) };
        }
        if least >= limit {
            return if below { Kept::Range(lo, lo) } else { Kept::Range(lo, hi) };
        }
        if !self.flat {
            return Kept::EachLane;
        }
        // The stride is not 0, or one of the cases above would have held.
        let stride = strides[0];
        let clamp = |lane: i128| lane.clamp(lo as i128, hi as i128) as usize;
        if stride > 0 {
            let first_above = clamp((limit - base + stride - 1).div_euclid(stride));
            if below { Kept::Range(lo, first_above) } else { Kept::Range(first_above, hi) }
        } else {
            let first_below = clamp((base - limit).div_euclid(-stride) + 1);
            if below { Kept::Range(first_below, hi) } else { Kept::Range(lo, first_below) }
        }
    }

    /// What is left by being, or not being, one value.
    fn one(
        &self,
        lanes: Lanes,
        base: i128,
        stride: i128,
        [least, most]: [i128; 2],
        compare: Compare,
        bound: i128,
    ) -> Kept {
        let Lanes { lo, hi, .. } = lanes;
        let is = compare == Compare::Is;
        let none = if is { Kept::Range(lo, lo) } else { Kept::Range(lo, hi) };
        if bound < least || bound > most {
            return none;
        }
        if least == most {
            return if is { Kept::Range(lo, hi) } else { Kept::Range(lo, lo) };
        }
        if !self.flat {
            return Kept::EachLane;
        }
        let distance = bound - base;
        if distance % stride != 0 {
            return none;
        }
        let lane = (distance / stride) as usize;
        match (is, lane) {
            (true, lane) => Kept::Range(lane, lane + 1),
            (false, lane) if lane == lo => Kept::Range(lo + 1, hi),
            (false, lane) if lane == hi - 1 => Kept::Range(lo, hi - 1),
            (false, lane) => Kept::AllBut(lane),
        }
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
        self.materialise(from, to, all);
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

    /// The active lanes leave these masks, of which the last is the current one.
    pub(super) fn leave(&mut self, masks: &[Mask]) {
        let Some((current, others)) = masks.split_last() else { return };
        for mask in others {
            self.minus(*mask, *current, *mask);
        }
        self.keep(*current, Lanes::default());
        self.now = Lanes::default();
    }
}

fn holds(compare: Compare, index: u64, bound: u64, signed: bool) -> bool {
    let order = if signed { (index as i64).cmp(&(bound as i64)) } else { index.cmp(&bound) };
    match compare {
        Compare::Below => order.is_lt(),
        Compare::AtMost => order.is_le(),
        Compare::Above => order.is_gt(),
        Compare::AtLeast => order.is_ge(),
        Compare::Is => order.is_eq(),
        Compare::IsNot => order.is_ne(),
    }
}
