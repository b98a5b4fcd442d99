//! Division of the rows of two matrices among a group's work-items, and the shared memory it needs.

use panoply_ir::kernel::Mma;
use panoply_ir::{DType, Target};

/// A division of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tiling {
    /// Work-items per line, and lines.
    pub items: [u64; 2],
    /// Streamed rows and owned rows of a work-item.
    pub block: [u64; 2],
    /// Element type of the device's matrix fragments, if used.
    pub fragments: Option<DType>,
}

/// Work-items of a group, block of each work-item, and the minimum number of groups for which the size is chosen
/// without measurement.
type Size = ([u64; 2], [u64; 2], u64);

/// Sizes, the largest first.
const SIZES: [Size; 5] =
    [([8, 16], [4, 4], 64), ([8, 8], [4, 4], 0), ([8, 8], [2, 4], 0), ([8, 8], [2, 2], 0), ([8, 8], [1, 2], 0)];

/// Sizes with fragments: 64, 32 or 16 owned rows, and 64, 32 or 16 streamed rows. The choice has not been tuned by
/// measurement on a GPU.
const OF_FRAGMENTS: [Size; 5] =
    [([4, 32], [16, 2], 64), ([4, 16], [16, 2], 0), ([4, 32], [8, 2], 64), ([4, 16], [8, 2], 0), ([4, 8], [4, 2], 0)];

/// Elements summed by one fragment step; widths are padded to whole steps.
pub(super) const UNIT: u64 = Mma::K as u64;

/// Words of padding per row, so that a fragment's rows use different banks.
const SKEW: u64 = 4;

/// Returns the words of a row of `width` 16-bit floats.
pub(super) fn words(width: u64) -> u64 {
    width.next_multiple_of(UNIT) / 2
}

/// Returns the width of a result padded to whole fragments.
pub(super) fn padded(width: u64) -> u64 {
    width.next_multiple_of(Mma::COLUMNS.into())
}

impl Tiling {
    /// Returns the number of rows that a group owns.
    pub fn owned(self) -> u64 {
        self.items[1] * self.block[1]
    }

    /// Returns the number of streamed rows processed at a time.
    pub fn streamed(self) -> u64 {
        self.items[0] * self.block[0]
    }

    /// Returns the number of work-items per line.
    pub fn line(self) -> u64 {
        self.items[0]
    }

    /// Returns the grid for a number of matrices with this many rows.
    pub fn grid(self, rows: u64, matrices: u64) -> [u64; 3] {
        [rows.div_ceil(self.owned()) * self.items[0], self.items[1], matrices]
    }

    /// Returns the tilings that fit a target if a group needs `bytes(tiling)` of shared memory: the best estimate
    /// first, then those that give the same bits.
    pub fn fitting(
        target: &Target,
        fragments: Option<DType>,
        [rows, matrices]: [u64; 2],
        bytes: impl Fn(Tiling) -> u64,
    ) -> Vec<Tiling> {
        let sizes = if fragments.is_some() { &OF_FRAGMENTS } else { &SIZES };
        let all =
            sizes.iter().map(|(items, block, least)| (Tiling { items: *items, block: *block, fragments }, *least));
        let fits = |(tiling, _): &(Tiling, u64)| {
            let [x, y] = tiling.items;
            x * y <= target.max_group_items.into()
                && x <= target.max_group[0].into()
                && y <= target.max_group[1].into()
                && bytes(*tiling) <= target.shared_bytes.into()
        };
        let fit: Vec<(Tiling, u64)> = all.filter(fits).collect();
        let enough = |(tiling, least): &&(Tiling, u64)| rows.div_ceil(tiling.owned()) * matrices >= *least;
        let Some((best, _)) = fit.iter().find(enough).or(fit.last()) else { return Vec::new() };
        // Results depend on the division of sums among a line's work-items, and on the number of streamed rows between
        // rescalings.
        let same =
            |tiling: &Tiling| tiling != best && (tiling.line(), tiling.streamed()) == (best.line(), best.streamed());
        std::iter::once(*best).chain(fit.iter().map(|(tiling, _)| *tiling).filter(same)).collect()
    }

    /// Returns the bytes of shared memory for a tile of rows, with the given accumulation type.
    pub fn bytes(self, sum: DType, rows: u64, width: u64) -> u64 {
        self.length([rows, width], false) * self.held(sum).bytes() as u64
    }

    /// Returns the same for transposed rows.
    pub fn transposed_bytes(self, sum: DType, rows: u64, width: u64) -> u64 {
        self.length([rows, width], true) * self.held(sum).bytes() as u64
    }

    /// Returns the bytes of shared memory for weights of each owned row with each streamed row; fragments stay in registers.
    pub fn weights_bytes(self, sum: DType) -> u64 {
        self.fragments.map_or(self.bytes(sum, self.owned(), self.streamed()), |_| 0)
    }

    /// Returns the bytes of shared memory for an additional transposed copy of rows; 0 if none is needed.
    pub fn copy_bytes(self, sum: DType, rows: u64, width: u64) -> u64 {
        self.fragments.map_or(0, |_| self.transposed_bytes(sum, rows, width))
    }

    /// Returns the elements from one row to the next, or for transposed rows from one column to the next. Padding makes
    /// neighbors in a column use different banks.
    pub fn pitch(self, [rows, width]: [u64; 2], transposed: bool) -> u64 {
        match self.fragments {
            None => width.next_multiple_of(self.line()) + 1,
            Some(_) => words(if transposed { rows } else { width }) + SKEW,
        }
    }

    /// Returns the elements of shared memory for a tile of rows, which fragments can need transposed.
    pub fn length(self, [rows, width]: [u64; 2], transposed: bool) -> u64 {
        let transposed = transposed && self.fragments.is_some();
        self.pitch([rows, width], transposed) * if transposed { padded(width) } else { rows }
    }

    /// Returns the element type in shared memory: two 16-bit floats form a word.
    pub fn held(self, sum: DType) -> DType {
        self.fragments.map_or(sum, |_| DType::U32)
    }
}
