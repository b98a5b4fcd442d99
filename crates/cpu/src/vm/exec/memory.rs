//! Reading and writing memory.
//!
//! What a guard costs is decided per block: a run of elements side by side that lies within the length needs one
//! comparison, and only a block at the edge looks at each lane.

use std::ptr;

use panoply_ir::kernel::Guard;

use super::mask::Lanes;
use super::{Mem, Runner};
use crate::vm::program::{Access, Affine, At, Slot, Src};

/// A memory from a position in a vector on.
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
    /// The address of an element as a lane sees it; it may lie anywhere.
    fn address(&self, index: u64, lane: usize) -> *mut u8 {
        let element =
            if self.private == 0 { index } else { index.wrapping_mul(self.private as u64).wrapping_add(lane as u64) };
        self.ptr.wrapping_add((element as usize).wrapping_mul(self.bytes))
    }

    /// Whether `n` elements a fixed distance apart are all within the length.
    fn holds_run(&self, first: u64, stride: u64, n: usize) -> bool {
        let last = i128::from(first) + i128::from(stride as i64) * (n as i128 - 1);
        first < self.len && (0..i128::from(self.len)).contains(&last)
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

    /// Whether every access must be compared with the length. Lanes in the holes of a mask may mean any element.
    fn is_checked(&self, access: &Access) -> bool {
        access.guard == Guard::Checked || !self.now.dense
    }

    /// Calls `f` for runs of lanes whose indices are a fixed distance apart: first lane, lanes, first index, distance.
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

    /// The block's extents with axes merged along which the index goes on as before.
    fn collapsed(&self, at: &Affine) -> ([usize; 3], [u64; 3]) {
        let mut extents = [1_usize; 3];
        let mut strides = [0_u64; 3];
        let mut axes = 0;
        for d in 0..3 {
            let (extent, stride) = (self.shape[d], self.get(at.strides[d]));
            if extent == 1 {
                continue;
            }
            if axes > 0 && stride == strides[axes - 1].wrapping_mul(extents[axes - 1] as u64) {
                extents[axes - 1] *= extent;
            } else {
                (extents[axes], strides[axes]) = (extent, stride);
                axes += 1;
            }
        }
        (extents, strides)
    }

    /// The first index and the distance, if all lanes are one run.
    fn single_run(&self, at: &Affine) -> Option<u64> {
        if self.flat {
            return Some(self.get(at.strides[0]));
        }
        let (extents, strides) = self.collapsed(at);
        (extents[1] == 1).then_some(strides[0])
    }

    pub(super) fn iota(&self, dst: Src, at: &Affine) {
        let f = self.program.tools.iota;
        self.runs(at, self.now, |lane, n, first, stride| {
            let (first, stride): (*const u64, *const u64) = (&first, &stride);
            // SAFETY: the register has u64 lanes.
            unsafe { f(n, self.address(dst, lane), first.cast(), stride.cast(), ptr::null()) }
        });
    }

    /// Where lane 0 of a block would be in memory, if its active lanes lie side by side and may be accessed directly.
    #[inline(always)]
    fn direct(&self, access: &Access, elements: &Elements, at: &Affine) -> Option<*mut u8> {
        let base = self.get(at.base);
        let Lanes { lo, hi, .. } = self.now;
        if elements.private > 0 {
            return (base < elements.len).then(|| elements.address(base, 0));
        }
        let stride = self.single_run(at)?;
        if stride != 1 && hi - lo > 1 {
            return None;
        }
        let first = base.wrapping_add(stride.wrapping_mul(lo as u64));
        let fits = access.guard != Guard::Checked || (first < elements.len && (hi - lo) as u64 <= elements.len - first);
        fits.then(|| elements.address(first, 0).wrapping_sub(lo * elements.bytes))
    }

    pub(super) fn stream(&self, cell: Slot, access: &Access, at: &Affine, temp: Src) {
        let elements = self.elements(access);
        let place = self.direct(access, &elements, at).unwrap_or_else(|| {
            self.collect(access, &elements, at, temp);
            self.address(temp, 0)
        });
        self.set(cell, place as u64);
    }

    /// Copies elements to a register.
    fn collect(&self, access: &Access, elements: &Elements, at: &Affine, temp: Src) {
        let checked = self.is_checked(access);
        let tools = &self.program.tools;
        self.runs(at, self.now, |lane, n, first, stride| {
            let dst = self.address(temp, lane);
            if elements.private > 0 || (checked && !elements.holds_run(first, stride, n)) {
                return self.collect_each(elements, lane, n, first, stride, dst);
            }
            let from = elements.address(first, lane).cast_const();
            let distance: *const u64 = &stride;
            // SAFETY: the elements are within the length, or promised to be accessible, and no register is in memory.
            unsafe {
                match stride {
                    0 => tools.splat[elements.width](n, dst, from, ptr::null(), ptr::null()),
                    1 => tools.copy[elements.width](n, dst, from, ptr::null(), ptr::null()),
                    _ => tools.strided[elements.width](n, dst, from, distance.cast(), ptr::null()),
                }
            }
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
            // SAFETY: the element is within the length, or promised to be accessible, and at most 8 bytes.
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
        self.set(cell, place.unwrap_or_else(|| self.address(temp, 0)) as u64);
    }

    pub(super) fn commit(&self, cell: Slot, access: &Access, at: &Affine, temp: Src) {
        if self.get(cell) == self.address(temp, 0) as u64 {
            self.store(access, &At::Affine(*at), temp);
        }
    }

    pub(super) fn store(&self, access: &Access, at: &At, value: Src) {
        let elements = self.elements(access);
        let Lanes { lo, hi, .. } = self.now;
        match at {
            At::Affine(at) => self.runs(at, self.now, |lane, n, first, stride| {
                if stride == 1 && elements.private == 0 && n > 1 {
                    self.store_run(access, &elements, lane, n, first, value);
                } else if stride == 0 && n == hi - lo && elements.private == 0 {
                    // All lanes mean one element; the last one wins.
                    self.store_each(access, &elements, hi - 1, 1, |_| first, value);
                } else {
                    self.store_each(
                        access,
                        &elements,
                        lane,
                        n,
                        |i| first.wrapping_add(stride.wrapping_mul(i as u64)),
                        value,
                    );
                }
            }),
            At::Lanes(index) => {
                let indices = self.address(*index, lo).cast::<u64>();
                // SAFETY: the index register has u64 lanes.
                self.store_each(access, &elements, lo, hi - lo, |i| unsafe { *indices.add(i) }, value);
            }
        }
    }

    /// Writes lanes side by side.
    fn store_run(&self, access: &Access, elements: &Elements, lane: usize, n: usize, first: u64, value: Src) {
        if access.guard == Guard::Checked && !elements.holds_run(first, 1, n) {
            return self.store_each(access, elements, lane, n, |i| first.wrapping_add(i as u64), value);
        }
        let tools = &self.program.tools;
        let (dst, value_ptr) = (elements.address(first, lane), self.address(value, lane));
        // SAFETY: the elements are within the length, or promised to be accessible where the mask holds, and no register is
        // in memory. Values streamed from the same memory were copied to a register before.
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

    /// Writes lanes one by one.
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
        for i in 0..n {
            let index = index(i);
            if index < limit && self.is_active(lane + i) {
                // SAFETY: the element is within the length, or promised to be accessible; the value has lanes of this width.
                unsafe {
                    let value = *self.address(value, lane + i).cast::<T>();
                    *elements.address(index, lane + i).cast::<T>() = value;
                }
            }
        }
    }

    /// Whether a lane of the current range is active.
    #[inline(always)]
    pub(super) fn is_active(&self, lane: usize) -> bool {
        // SAFETY: the mask has a byte for each lane of its range.
        self.now.dense || unsafe { *self.mask_bytes(self.now, lane) != 0 }
    }
}
