//! Convolution as sums over shifted planes.
//!
//! The source of a convolution is copied into padded planes, one for each remainder by the stride. Every tap of a
//! filter is then one offset: the result at position q is the sum over taps of the element at q + offset, for *all*
//! positions of a plane at once. Vectors run along positions across the ends of rows; the few positions that are not
//! results are computed and dropped. No data is copied once per tap.
//!
//! The input gradient is a convolution of the output gradient. Each remainder by the stride has its own taps; it is a
//! [`ConvSweep`] whose results are not adjacent.

use panoply_ir::routine::{Conv, ConvAxis};

use crate::tile::each_row;

/// The results that are computed together along an axis, and their sources.
#[derive(Clone, Debug)]
struct Along {
    /// The first result.
    start: usize,
    /// Distance between results.
    step: usize,
    /// Number of results.
    count: usize,
    /// Number of elements of the source.
    length: usize,
    /// Distance in the source between adjacent elements of a plane.
    source_step: usize,
    /// Index in the source of each plane's first element; it may be negative.
    origins: Vec<isize>,
    /// For each used tap of the filter, in order: its index, its plane and its shift in the plane.
    taps: Vec<[usize; 3]>,
}

/// Part of a row: elements of a channel, and the place of their copies or of their sums.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Index of the first element in the channel.
    pub channel: usize,
    /// Index of the first element in the planes, or among the positions of a band.
    pub plane: usize,
    /// Number of elements, contiguous in the planes.
    pub count: usize,
}

/// Returns the set of results of the output along an axis.
fn output_axis(axis: &ConvAxis) -> Vec<Along> {
    let ConvAxis { length, size, positions, stride, dilation, padding } = *axis;
    let mut remainders: Vec<usize> = Vec::new();
    let mut taps = Vec::with_capacity(size);
    for tap in 0..size {
        let (shift, remainder) = (tap * dilation / stride, tap * dilation % stride);
        let plane = remainders.iter().position(|known| *known == remainder).unwrap_or_else(|| {
            remainders.push(remainder);
            remainders.len() - 1
        });
        taps.push([tap, plane, shift]);
    }
    let origins = remainders.into_iter().map(|remainder| remainder as isize - padding as isize).collect();
    vec![Along { start: 0, step: 1, count: positions, length, source_step: stride, origins, taps }]
}

/// Returns the sets of results of the input gradient along an axis, one for each remainder by the stride.
fn input_axis(axis: &ConvAxis) -> Vec<Along> {
    let ConvAxis { length, size, positions, stride, dilation, padding } = *axis;
    let set = |start: usize| {
        let reach = |tap: usize| (start + padding) as isize - (tap * dilation) as isize;
        let counting: Vec<usize> = (0..size).filter(|tap| reach(*tap).rem_euclid(stride as isize) == 0).collect();
        let shift = |tap: usize| reach(tap).div_euclid(stride as isize);
        let origin = counting.iter().map(|tap| shift(*tap)).min().unwrap_or(0);
        let taps = counting.iter().map(|tap| [*tap, 0, (shift(*tap) - origin) as usize]).collect();
        Along {
            start,
            step: stride,
            count: (length - start).div_ceil(stride),
            length: positions,
            source_step: 1,
            origins: vec![origin],
            taps,
        }
    };
    (0..stride.min(length)).map(set).collect()
}

/// Results that are computed together, in bands along one axis.
#[derive(Clone, Debug)]
pub struct ConvSweep {
    axes: [Along; 3],
    /// Lengths of the result.
    lengths: [usize; 3],
    /// The axis that is divided into bands.
    axis: usize,
    /// Number of results of a band along that axis.
    band: usize,
    /// Extents of a plane that holds a band.
    extents: [usize; 3],
    /// Elements from one plane to the next.
    plane: usize,
    /// Indices of the used taps of a filter.
    pub taps: Vec<usize>,
    /// Offsets of these taps in a channel's planes.
    pub offsets: Vec<usize>,
}

/// Maximum number of elements after a channel that a vector may read.
const SLACK: usize = 64;

impl ConvSweep {
    /// Returns the sweeps that compute the output.
    pub fn output(conv: &Conv) -> Vec<ConvSweep> {
        ConvSweep::all(conv, conv.positions(), output_axis)
    }

    /// Returns the sweeps that compute the input gradient.
    pub fn input(conv: &Conv) -> Vec<ConvSweep> {
        ConvSweep::all(conv, conv.lengths(), input_axis)
    }

    fn all(conv: &Conv, lengths: [usize; 3], axis: fn(&ConvAxis) -> Vec<Along>) -> Vec<ConvSweep> {
        let [first, second, third] = [0, 1, 2].map(|at| axis(&conv.axes[at]));
        let mut passes = Vec::with_capacity(first.len() * second.len() * third.len());
        for a in &first {
            for b in &second {
                for c in &third {
                    passes.push(ConvSweep::new(conv.sizes(), lengths, [a.clone(), b.clone(), c.clone()]));
                }
            }
        }
        passes
    }

    fn new(sizes: [usize; 3], lengths: [usize; 3], axes: [Along; 3]) -> ConvSweep {
        let axis = (0..3).find(|axis| axes[*axis].count > 1).unwrap_or(2);
        let band = axes[axis].count;
        let taps = ConvSweep::combined(&axes, |[a, b, c]| (a[0] * sizes[1] + b[0]) * sizes[2] + c[0]);
        let mut pass = ConvSweep { axes, lengths, axis, band, extents: [0; 3], plane: 0, taps, offsets: Vec::new() };
        pass.set_band(band);
        pass
    }

    /// Returns `f` of each combination of taps along the axes, the last axis fastest.
    fn combined(axes: &[Along; 3], f: impl Fn([[usize; 3]; 3]) -> usize) -> Vec<usize> {
        let mut all = Vec::with_capacity(axes.iter().map(|along| along.taps.len()).product());
        for a in &axes[0].taps {
            for b in &axes[1].taps {
                for c in &axes[2].taps {
                    all.push(f([*a, *b, *c]));
                }
            }
        }
        all
    }

    /// Sets the size of bands to at most `band` results along their axis.
    fn set_band(&mut self, band: usize) {
        self.band = band.clamp(1, self.axes[self.axis].count.max(1));
        self.extents = std::array::from_fn(|axis| {
            let along = &self.axes[axis];
            let count = if axis == self.axis { self.band } else { along.count };
            count + along.taps.iter().map(|[_, _, shift]| *shift).max().unwrap_or(0)
        });
        let [_, height, width] = self.extents;
        self.plane = self.extents.iter().product();
        let (plane, planes) = (self.plane, [1, 2].map(|axis: usize| self.axes[axis].origins.len()));
        self.offsets = ConvSweep::combined(&self.axes, |[a, b, c]| {
            let number = (a[1] * planes[0] + b[1]) * planes[1] + c[1];
            number * plane + (a[2] * height + b[2]) * width + c[2]
        });
    }

    /// Chooses bands such that the planes of one channel have at most `elems` elements and there are at least `bands`
    /// bands, if possible.
    pub fn divide(&mut self, elems: usize, bands: usize) {
        let count = self.axes[self.axis].count;
        let mut band = count.div_ceil(bands.max(1)).max(1);
        self.set_band(band);
        while band > 1 && self.channel() > elems {
            band = band.div_ceil(2);
            self.set_band(band);
        }
        // Makes bands of nearly equal size.
        self.set_band(count.div_ceil(count.div_ceil(band).max(1)));
    }

    /// Returns the number of bands.
    pub fn bands(&self) -> usize {
        self.axes[self.axis].count.div_ceil(self.band)
    }

    /// Returns the first result of a band along its axis, and the number of results.
    fn rows(&self, band: usize) -> (usize, usize) {
        let start = band * self.band;
        (start, self.band.min(self.axes[self.axis].count - start))
    }

    /// Returns the number of results of a band along each axis.
    fn counts(&self, band: usize) -> [usize; 3] {
        let rows = self.rows(band).1;
        std::array::from_fn(|axis| if axis == self.axis { rows } else { self.axes[axis].count })
    }

    /// Returns the start of a band in a channel of the source, if its planes would be an exact copy.
    pub fn in_place(&self, band: usize) -> Option<usize> {
        let plain = |along: &Along| {
            along.taps.len() == 1 && along.origins == [0] && along.source_step == 1 && along.count == along.length
        };
        let row = || self.axes[self.axis + 1..].iter().map(|along| along.length).product::<usize>();
        self.axes.iter().all(plain).then(|| self.rows(band).0 * row())
    }

    /// Returns the number of planes of a channel.
    fn planes(&self) -> usize {
        self.axes.iter().map(|along| along.origins.len()).product()
    }

    /// Returns the elements from one channel's planes to the next channel's.
    pub fn channel(&self) -> usize {
        let elems = (self.planes() * self.plane + SLACK).next_multiple_of(16);
        // Channels at a distance of a power of two would share few cache sets.
        if elems.is_multiple_of(256) { elems + 16 } else { elems }
    }

    /// Returns the number of positions that are computed for a band.
    pub fn positions(&self, band: usize) -> usize {
        let [depth, rows, columns] = self.counts(band);
        ((depth - 1) * self.extents[1] + rows - 1) * self.extents[2] + columns
    }

    /// Returns the rows of a channel of the result that a band's positions hold. Adjacent results of a row are [`ConvSweep::step`] apart.
    pub fn result_rows(&self, band: usize) -> Vec<Row> {
        let ([depth, rows, columns], first) = (self.counts(band), self.rows(band).0);
        let result = |axis: usize, at: usize| {
            let at = if axis == self.axis { first + at } else { at };
            self.axes[axis].start + at * self.axes[axis].step
        };
        let row = |a: usize, b: usize| Row {
            channel: (result(0, a) * self.lengths[1] + result(1, b)) * self.lengths[2] + result(2, 0),
            plane: (a * self.extents[1] + b) * self.extents[2],
            count: columns,
        };
        (0..depth).flat_map(|a| (0..rows).map(move |b| (a, b))).map(|(a, b)| row(a, b)).collect()
    }

    /// Returns the distance between adjacent results of a row.
    pub fn step(&self) -> usize {
        self.axes[2].step
    }

    /// Returns the rows of a channel of the source that a band's planes hold.
    pub fn source_rows(&self, band: usize) -> Vec<Row> {
        let (first, rows) = self.rows(band);
        let [a, b, c] = &self.axes;
        let skipped = |axis: usize| if axis == self.axis { first } else { 0 };
        // A shorter last band needs fewer elements.
        let needed = |axis: usize| self.extents[axis] - if axis == self.axis { self.band - rows } else { 0 };
        let at = |along: &Along, origin: isize, index: usize| {
            let place = origin + (index * along.source_step) as isize;
            (0..along.length as isize).contains(&place).then_some(place as usize)
        };
        let (step, count, mut plane, mut found) = (c.source_step, needed(2), 0, Vec::new());
        for origin_a in &a.origins {
            for origin_b in &b.origins {
                for origin_c in &c.origins {
                    let origin = origin_c + (skipped(2) * step) as isize;
                    let before = ((-origin).max(0) as usize).div_ceil(step).min(count);
                    let inside = (c.length as isize - origin).max(0) as usize;
                    let end = inside.div_ceil(step).clamp(before, count);
                    for i in (0..needed(0)).filter(|_| end > before) {
                        for j in 0..needed(1) {
                            let row = (at(a, *origin_a, skipped(0) + i), at(b, *origin_b, skipped(1) + j));
                            if let (Some(of_a), Some(of_b)) = row {
                                let start = (origin + (before * step) as isize) as usize;
                                found.push(Row {
                                    channel: (of_a * b.length + of_b) * c.length + start,
                                    plane: plane + (i * self.extents[1] + j) * self.extents[2] + before,
                                    count: end - before,
                                });
                            }
                        }
                    }
                    plane += self.plane;
                }
            }
        }
        found
    }

    /// Packs the [`source_rows`](ConvSweep::source_rows) of some channels into planes; `lane` combines one element of each channel. If
    /// `clears` is false, the planes have zeros where the band is outside the source, as after an earlier call with these rows.
    ///
    /// # Safety
    /// Each source holds a channel, and `to` has room for [`ConvSweep::channel`] elements.
    #[inline(always)]
    pub unsafe fn pack<T: Copy, L: Copy + Default, const D: usize>(
        &self,
        rows: &[Row],
        sources: [*const T; D],
        to: *mut L,
        clears: bool,
        lane: impl Fn([T; D]) -> L,
    ) {
        if clears {
            // SAFETY: the caller's promise.
            (0..self.planes() * self.plane).for_each(|at| unsafe { *to.add(at) = L::default() });
        }
        for row in rows {
            let (from, to) = (sources.map(|source| source.wrapping_add(row.channel)), to.wrapping_add(row.plane));
            // SAFETY: the caller's promise; a row is within its channel and within its plane.
            let copy = |step: usize| unsafe {
                in_chunks(row.count, |i| lane(from.map(|from| *from.add(i * step))), |i, elem| *to.add(i) = elem);
            };
            // Constant steps, which a compiler can vectorize.
            match self.axes[2].source_step {
                1 => copy(1),
                2 => copy(2),
                step => copy(step),
            }
        }
    }
}

/// Number of elements of a chunk, and of a short one.
const CHUNK: usize = 8;
const SHORT_CHUNK: usize = 4;

/// Writes what `read` returns for each number below `count`, in chunks. The last chunk overlaps the one before it, so some elements are read
/// and written twice.
#[inline(always)]
pub fn in_chunks<T: Copy>(count: usize, read: impl Fn(usize) -> T, write: impl Fn(usize, T)) {
    if count >= CHUNK {
        (0..count / CHUNK).for_each(|number| chunk::<T, CHUNK>(number * CHUNK, &read, &write));
        if !count.is_multiple_of(CHUNK) {
            chunk::<T, CHUNK>(count - CHUNK, &read, &write);
        }
    } else if count >= SHORT_CHUNK {
        chunk::<T, SHORT_CHUNK>(0, &read, &write);
        chunk::<T, SHORT_CHUNK>(count - SHORT_CHUNK, &read, &write);
    } else {
        (0..count).for_each(|at| write(at, read(at)));
    }
}

/// Reads N elements, then writes them.
#[inline(always)]
fn chunk<T: Copy, const N: usize>(start: usize, read: &impl Fn(usize) -> T, write: &impl Fn(usize, T)) {
    let elems: [T; N] = each_row(|i| read(start + i));
    elems.into_iter().enumerate().for_each(|(i, elem)| write(start + i, elem));
}
