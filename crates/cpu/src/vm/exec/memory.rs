//! Loads and stores.
//!
//! Guards are evaluated per block: a run of contiguous elements within the length needs one comparison, and only a
//! block at the edge of a buffer is checked lane by lane.

use std::mem::MaybeUninit;
use std::ptr;

use panoply_ir::kernel::Guard;

use super::mask::Lanes;
use super::{Mem, Runner};
use crate::vm::ops::memory::Pattern;
use crate::vm::program::{Access, Affine, At, Slot, Src};

/// A memory, starting at an element of a vector.
#[derive(Clone, Copy)]
struct Elements {
    ptr: *mut u8,
    len: u64,
    private: usize,
    bytes: usize,
    /// log2 of `bytes`.
    width: usize,
}

impl Elements {
    /// Returns the address of an element for a lane; it may be out of bounds.
    fn address(&self, index: u64, lane: usize) -> *mut u8 {
        let element =
            if self.private == 0 { index } else { index.wrapping_mul(self.private as u64).wrapping_add(lane as u64) };
        self.ptr.wrapping_add((element as usize).wrapping_mul(self.bytes))
    }

    /// Returns true if `n` elements at a fixed stride are all within the length.
    fn holds_run(&self, first: u64, stride: u64, n: usize) -> bool {
        self.holds(first, &Pattern { width: n, step: stride as i64, row: 0 }, n)
    }

    /// Returns true if the elements of `n` lanes are all within the length.
    fn holds(&self, first: u64, pattern: &Pattern, n: usize) -> bool {
        let reaches = [(pattern.step, pattern.width), (pattern.row, n / pattern.width)]
            .map(|(distance, count)| i128::from(distance) * (count as i128 - 1));
        let least: i128 = i128::from(first) + reaches.iter().map(|reach| (*reach).min(0)).sum::<i128>();
        let most: i128 = i128::from(first) + reaches.iter().map(|reach| (*reach).max(0)).sum::<i128>();
        least >= 0 && most < i128::from(self.len)
    }
}

impl Runner<'_> {
    fn elements(&self, access: &Access) -> Elements {
        let Mem { ptr, len, private, .. } = self.mems[access.mem.0 as usize];
        let offset = u64::from(access.offset);
        let bytes = access.bytes as usize;
        let skipped = offset as usize * bytes * private.max(1);
        Elements {
            ptr: ptr.wrapping_add(skipped),
            len: len.saturating_sub(offset),
            private,
            bytes,
            width: bytes.trailing_zeros() as usize,
        }
    }

    /// Returns true if every access must be compared with the length. Inactive lanes of a mask can have any index.
    fn is_checked(&self, access: &Access) -> bool {
        access.guard == Guard::Checked || !self.now.dense
    }

    /// Calls `f` for runs of lanes whose indices have a fixed stride. Arguments: first lane, number of lanes, first index, stride.
    #[inline(always)]
    pub(super) fn runs(&self, at: &Affine, lanes: Lanes, mut f: impl FnMut(usize, usize, u64, u64)) {
        let base = self.get(at.base);
        let Lanes { lo, hi, .. } = lanes;
        if self.flat {
            let stride = self.get(at.strides[0]);
            return f(lo, hi - lo, base.wrapping_add(stride.wrapping_mul(lo as u64)), stride);
        }
        let (extents, strides) = self.collapsed(at);
        let mut lane = lo;
        while lane < hi {
            let (row, x) = (lane / extents[0], lane % extents[0]);
            let (z, y) = (row / extents[1], row % extents[1]);
            let n = (extents[0] - x).min(hi - lane);
            let coordinates = [x, y, z];
            let first = (0..3).fold(base, |sum, d| sum.wrapping_add(strides[d].wrapping_mul(coordinates[d] as u64)));
            f(lane, n, first, strides[0]);
            lane += n;
        }
    }

    /// Returns the block's extents and strides, with axes merged along which the index continues with the same stride.
    fn collapsed(&self, at: &Affine) -> ([usize; 3], [u64; 3]) {
        let strides = at.strides.map(|stride| self.get(stride));
        if let [width, height, 1] = self.shape
            && width > 1
            && height > 1
        {
            let goes_on = strides[1] == strides[0].wrapping_mul(width as u64);
            let extents = if goes_on { [width * height, 1, 1] } else { [width, height, 1] };
            return (extents, strides);
        }
        let (mut extents, mut merged) = ([1_usize; 3], [0_u64; 3]);
        let mut axes = 0;
        for (extent, stride) in self.shape.into_iter().zip(strides) {
            if extent == 1 {
                continue;
            }
            if axes > 0 && stride == merged[axes - 1].wrapping_mul(extents[axes - 1] as u64) {
                extents[axes - 1] *= extent;
            } else {
                (extents[axes], merged[axes]) = (extent, stride);
                axes += 1;
            }
        }
        (extents, merged)
    }

    /// Returns the index of the first active lane and the pattern of the others, if they are whole rows.
    fn pattern(&self, at: &Affine) -> Option<(u64, Pattern)> {
        let Lanes { lo, hi, .. } = self.now;
        let base = self.get(at.base);
        let run = |stride: u64| {
            let first = base.wrapping_add(stride.wrapping_mul(lo as u64));
            Some((first, Pattern { width: hi - lo, step: stride as i64, row: 0 }))
        };
        if self.flat {
            return run(self.get(at.strides[0]));
        }
        let (extents, strides) = self.collapsed(at);
        if extents[1] == 1 {
            return run(strides[0]);
        }
        let (width, all) = (extents[0], extents[0] * extents[1]);
        let (row, whole) = if hi - lo == all { (0, true) } else { (lo / width, lo % width == 0 && hi % width == 0) };
        let first = base.wrapping_add(strides[1].wrapping_mul(row as u64));
        (whole && extents[2] == 1).then(|| (first, Pattern { width, step: strides[0] as i64, row: strides[1] as i64 }))
    }

    pub(super) fn iota(&self, dst: Src, at: &Affine) {
        let f = self.program.tools.iota;
        self.runs(at, self.now, |lane, n, first, stride| {
            let (first, stride): (*const u64, *const u64) = (&first, &stride);
            // SAFETY: the register has u64 lanes.
            unsafe { f(n, self.address(dst, lane), first.cast(), stride.cast(), ptr::null()) }
        });
    }

    /// Returns the address that lane 0 would have, if the active lanes are contiguous in memory and can be accessed directly.
    #[inline(always)]
    fn direct(&self, access: &Access, elements: &Elements, at: &Affine) -> Option<*mut u8> {
        let base = self.get(at.base);
        let Lanes { lo, hi, .. } = self.now;
        if elements.private > 0 {
            return (base < elements.len).then(|| elements.address(base, 0));
        }
        let (first, pattern) = self.pattern(at)?;
        if pattern.width < hi - lo || (pattern.step != 1 && hi - lo > 1) {
            return None;
        }
        let fits = access.guard != Guard::Checked || (first < elements.len && (hi - lo) as u64 <= elements.len - first);
        fits.then(|| elements.address(first, 0).wrapping_sub(lo * elements.bytes))
    }

    pub(super) fn stream(&self, cell: Slot, access: &Access, at: &Affine, temp: Src) {
        let elements = self.elements(access);
        let place = self.direct(access, &elements, at).unwrap_or_else(|| {
            self.collect(access, &elements, at, temp);
            self.address(temp, 0)
        });
        self.set(cell, place.expose_provenance() as u64);
    }

    /// Copies elements into a register.
    fn collect(&self, access: &Access, elements: &Elements, at: &Affine, temp: Src) {
        let f = self.program.tools.collect[elements.width];
        let checked = self.is_checked(access);
        let Lanes { lo, hi, .. } = self.now;
        let collect = |lane: usize, n: usize, first: u64, pattern: Pattern| {
            let (dst, from) = (self.address(temp, lane), elements.address(first, lane).cast_const());
            let pattern: *const Pattern = &pattern;
            // SAFETY: the elements are within the length or promised to be accessible, and registers do not overlap memory.
            unsafe { f(n, dst, from, pattern.cast(), ptr::null()) }
        };
        if elements.private == 0
            && let Some((first, pattern)) = self.pattern(at)
            && (!checked || elements.holds(first, &pattern, hi - lo))
        {
            return collect(lo, hi - lo, first, pattern);
        }
        self.runs(at, self.now, |lane, n, first, stride| {
            if elements.private > 0 || (checked && !elements.holds_run(first, stride, n)) {
                return self.collect_each(elements, lane, n, first, stride, self.address(temp, lane));
            }
            collect(lane, n, first, Pattern { width: n, step: stride as i64, row: 0 });
        });
    }

    fn collect_each(&self, elements: &Elements, lane: usize, n: usize, first: u64, stride: u64, dst: *mut u8) {
        for i in 0..n {
            let index = first.wrapping_add(stride.wrapping_mul(i as u64));
            // SAFETY: the register has lanes of this width; the element is read only if it is within the length.
            unsafe {
                let to = dst.add(i * elements.bytes);
                if index < elements.len {
                    ptr::copy_nonoverlapping(elements.address(index, lane + i), to, elements.bytes);
                } else {
                    ptr::write_bytes(to, 0, elements.bytes);
                }
            }
        }
    }

    pub(super) fn gather(&self, dst: Src, access: &Access, index: Src) {
        let elements = self.elements(access);
        let Lanes { lo, hi, .. } = self.now;
        let (to, indices) = (self.address(dst, lo), self.address(index, lo));
        if elements.private > 0 {
            for i in 0..hi - lo {
                // SAFETY: the index register has u64 lanes.
                let index = unsafe { *indices.cast::<u64>().add(i) };
                // SAFETY: the register has lanes of this width.
                self.collect_each(&elements, lo + i, 1, index, 0, unsafe { to.add(i * elements.bytes) });
            }
            return;
        }
        let tools = &self.program.tools;
        let f = if self.is_checked(access) { tools.gather } else { tools.gather_unchecked };
        let len: *const u64 = &elements.len;
        // SAFETY: indices are compared with the length, or promised to be below it.
        unsafe { f[elements.width](hi - lo, to, elements.ptr, indices, len.cast()) }
    }

    pub(super) fn load(&self, dst: Slot, access: &Access, index: Slot) {
        let elements = self.elements(access);
        let index = self.get(index);
        let mut bits = 0_u64;
        if access.guard != Guard::Checked || index < elements.len {
            let to: *mut u64 = &mut bits;
            // SAFETY: the element is within the length or promised to be accessible, and has at most 8 bytes.
            unsafe {
                let from = elements.address(index, 0);
                match elements.bytes {
                    1 => *to = u64::from(*from),
                    2 => *to = u64::from(*from.cast::<u16>()),
                    4 => *to = u64::from(*from.cast::<u32>()),
                    _ => *to = *from.cast::<u64>(),
                }
            }
        }
        self.set(dst, bits);
    }

    pub(super) fn out(&self, cell: Slot, access: &Access, at: &Affine, temp: Src) {
        let elements = self.elements(access);
        let place = if self.now.dense { self.direct(access, &elements, at) } else { None };
        self.set(cell, place.unwrap_or_else(|| self.address(temp, 0)).expose_provenance() as u64);
    }

    pub(super) fn commit(&self, cell: Slot, access: &Access, at: &Affine, temp: Src) {
        if self.get(cell) == self.address(temp, 0).addr() as u64 {
            self.store(access, &At::Affine(*at), temp);
        }
    }

    pub(super) fn store(&self, access: &Access, at: &At, value: Src) {
        let elements = self.elements(access);
        let Lanes { lo, hi, .. } = self.now;
        match at {
            At::Affine(at) => {
                if !self.spread(access, &elements, at, value) {
                    self.store_runs(access, &elements, at, value);
                }
            }
            At::Lanes(index) => {
                let indices = self.address(*index, lo).cast::<u64>();
                // SAFETY: the index register has u64 lanes.
                self.store_each(access, &elements, lo, hi - lo, |i| unsafe { *indices.add(i) }, value);
            }
        }
    }

    /// Writes lanes to elements at a fixed pattern. Returns false if that is not possible.
    fn spread(&self, access: &Access, elements: &Elements, at: &Affine, value: Src) -> bool {
        let Lanes { lo, hi, dense, .. } = self.now;
        if !dense || !value.is_lanes() || elements.private > 0 {
            return false;
        }
        let Some((first, pattern)) = self.pattern(at) else { return false };
        if access.guard == Guard::Checked && !elements.holds(first, &pattern, hi - lo) {
            return false;
        }
        let f = self.program.tools.spread[elements.width];
        let pattern: *const Pattern = &pattern;
        // SAFETY: the elements are within the length or promised to be accessible, and registers do not overlap memory.
        // Values streamed from the same memory were copied to a register before.
        unsafe { f(hi - lo, elements.address(first, lo), self.address(value, lo), pattern.cast(), ptr::null()) }
        true
    }

    fn store_runs(&self, access: &Access, elements: &Elements, at: &Affine, value: Src) {
        let Lanes { lo, hi, .. } = self.now;
        self.runs(at, self.now, |lane, n, first, stride| {
            if stride == 1 && elements.private == 0 && n > 1 {
                self.store_run(access, elements, lane, n, first, value);
            } else if stride == 0 && n == hi - lo && elements.private == 0 {
                // All lanes write the same element; the last one wins.
                self.store_each(access, elements, hi - 1, 1, |_| first, value);
            } else {
                let index = |i: usize| first.wrapping_add(stride.wrapping_mul(i as u64));
                self.store_each(access, elements, lane, n, index, value);
            }
        });
    }

    /// Writes lanes to contiguous elements.
    fn store_run(&self, access: &Access, elements: &Elements, lane: usize, n: usize, first: u64, value: Src) {
        if access.guard == Guard::Checked && !elements.holds_run(first, 1, n) {
            return self.store_each(access, elements, lane, n, |i| first.wrapping_add(i as u64), value);
        }
        let tools = &self.program.tools;
        let (dst, value_ptr) = (elements.address(first, lane), self.address(value, lane));
        // SAFETY: the elements are within the length or promised to be accessible for active lanes, and registers do
        // not overlap memory. Values streamed from the same memory were copied to a register before.
        unsafe {
            if self.now.dense {
                let f = if value.is_lanes() { tools.copy } else { tools.splat };
                f[elements.width](n, dst, value_ptr, ptr::null(), ptr::null());
            } else {
                let f = if value.is_lanes() { tools.masked } else { tools.masked_splat };
                f[elements.width](n, dst, self.mask_bytes(self.now, lane), value_ptr, ptr::null());
            }
        }
    }

    /// Writes lanes one at a time.
    fn store_each(
        &self,
        access: &Access,
        elements: &Elements,
        lane: usize,
        n: usize,
        index: impl Fn(usize) -> u64,
        value: Src,
    ) {
        match elements.bytes {
            1 => self.store_words::<u8>(access, elements, lane, n, index, value),
            2 => self.store_words::<u16>(access, elements, lane, n, index, value),
            4 => self.store_words::<u32>(access, elements, lane, n, index, value),
            _ => self.store_words::<u64>(access, elements, lane, n, index, value),
        }
    }

    fn store_words<T: Copy>(
        &self,
        access: &Access,
        elements: &Elements,
        lane: usize,
        n: usize,
        index: impl Fn(usize) -> u64,
        value: Src,
    ) {
        let limit = if access.guard == Guard::Checked { elements.len } else { u64::MAX };
        let (elements, dense) = (*elements, self.now.dense);
        let (values, step) = (self.address(value, lane), value.step as usize);
        let mask = self.mask_bytes(self.now, lane);
        // The set of storing lanes is unpredictable, so other lanes store to a dummy location instead of branching.
        let mut nowhere = MaybeUninit::<T>::uninit();
        for i in 0..n {
            let index = index(i);
            // SAFETY: the mask has a byte for each lane of its range.
            let meant = index < limit && (dense || unsafe { *mask.add(i) != 0 });
            let element = elements.address(index, lane + i).cast::<T>();
            let element = if meant { element } else { nowhere.as_mut_ptr() };
            // SAFETY: the element is within the length or promised to be accessible; the value has lanes of this width.
            unsafe { *element = *values.wrapping_add(i * step).cast::<T>() };
        }
    }

    /// Returns true if a lane of the current range is active.
    #[inline(always)]
    pub(super) fn is_active(&self, lane: usize) -> bool {
        // SAFETY: the mask has a byte for each lane of its range.
        self.now.dense || unsafe { *self.mask_bytes(self.now, lane) != 0 }
    }
}
