//! How a group divides the rows of two matrices among its work-items, and what shared memory that takes.

use panoply_ir::kernel::Mma;
use panoply_ir::{DType, Target};

/// How work is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tiling {
    /// Work-items of a line, and lines.
    pub items: [u64; 2],
    /// Of a work-item, other rows and own rows.
    pub block: [u64; 2],
    /// What the device multiplies fragments of, if it does.
    pub fragments: Option<DType>,
}

/// Work-items of a group, the block of each, and for how many groups and more such tiles are taken where nobody measures.
type Size = ([u64; 2], [u64; 2], u64);

/// The largest tiles first.
const SIZES: [Size; 5] =
    [([8, 16], [4, 4], 64), ([8, 8], [4, 4], 0), ([8, 8], [2, 4], 0), ([8, 8], [2, 2], 0), ([8, 8], [1, 2], 0)];

/// The same where the device multiplies fragments: 64 or 32 own rows, 64 or 32 others. Which is the fastest nobody has measured on a
/// card.
const OF_FRAGMENTS: [Size; 5] =
    [([4, 32], [16, 2], 64), ([4, 16], [16, 2], 0), ([4, 32], [8, 2], 64), ([4, 16], [8, 2], 0), ([4, 8], [4, 2], 0)];

/// Elements that a step of fragments sums: widths are whole steps.
pub(super) const UNIT: u64 = Mma::INNER as u64;

/// Words beyond the length of a row, so that a fragment's rows use other banks.
const SKEW: u64 = 4;

/// Words of a row of so many halves.
pub(super) fn words(width: u64) -> u64 {
    width.next_multiple_of(UNIT) / 2
}

/// Columns of a result of this width with those that fill its fragments.
pub(super) fn padded(width: u64) -> u64 {
    width.next_multiple_of(Mma::COLUMNS.into())
}

impl Tiling {
    /// Rows that a group owns.
    pub fn own(self) -> u64 {
        self.items[1] * self.block[1]
    }

    /// Rows that it walks over at a time.
    pub fn other(self) -> u64 {
        self.items[0] * self.block[0]
    }

    /// Work-items of a line.
    pub fn line(self) -> u64 {
        self.items[0]
    }

    /// Work-items for so many rows of so many matrices.
    pub fn grid(self, rows: u64, matrices: u64) -> [u64; 3] {
        [rows.div_ceil(self.own()) * self.items[0], self.items[1], matrices]
    }

    /// Those that fit a target when a group takes so many bytes: the best guess first, then what gives the same bits.
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
        let enough = |(tiling, least): &&(Tiling, u64)| rows.div_ceil(tiling.own()) * matrices >= *least;
        let Some((best, _)) = fit.iter().find(enough).or(fit.last()) else { return Vec::new() };
        // Parts of a sum are a line's work-items' own, and what was summed is scaled after so many other rows.
        let same = |tiling: &Tiling| tiling != best && (tiling.line(), tiling.other()) == (best.line(), best.other());
        std::iter::once(*best).chain(fit.iter().map(|(tiling, _)| *tiling).filter(same)).collect()
    }

    /// Bytes of shared memory for so many rows, where sums are of this type.
    pub fn bytes(self, sum: DType, rows: u64, width: u64) -> u64 {
        self.length([rows, width], false) * self.held(sum).bytes() as u64
    }

    /// The same for rows that are turned.
    pub fn turned_bytes(self, sum: DType, rows: u64, width: u64) -> u64 {
        self.length([rows, width], true) * self.held(sum).bytes() as u64
    }

    /// Bytes of shared memory for weights of each own row with each other row: fragments stay in registers.
    pub fn weights_bytes(self, sum: DType) -> u64 {
        self.fragments.map_or(self.bytes(sum, self.own(), self.other()), |_| 0)
    }

    /// Bytes of shared memory for rows that are there once as they are and once turned, beside those as they are.
    pub fn copy_bytes(self, sum: DType, rows: u64, width: u64) -> u64 {
        self.fragments.map_or(0, |_| self.turned_bytes(sum, rows, width))
    }

    /// Elements from one row to the next, of turned rows from one column to the next: one more or some, so that neighbors in a
    /// column use other banks.
    pub fn pitch(self, [rows, width]: [u64; 2], turned: bool) -> u64 {
        match self.fragments {
            None => width.next_multiple_of(self.line()) + 1,
            Some(_) => words(if turned { rows } else { width }) + SKEW,
        }
    }

    /// Elements of shared memory for so many rows, which fragments may want turned.
    pub fn length(self, [rows, width]: [u64; 2], turned: bool) -> u64 {
        let turned = turned && self.fragments.is_some();
        self.pitch([rows, width], turned) * if turned { padded(width) } else { rows }
    }

    /// What shared memory holds: two halves are a word.
    pub fn held(self, sum: DType) -> DType {
        self.fragments.map_or(sum, |_| DType::U32)
    }
}
