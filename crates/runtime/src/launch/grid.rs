//! Launch grids.

use std::fmt;

/// The number of work-items along up to three axes; the first is contiguous in linear ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grid(pub [u64; 3]);

impl From<usize> for Grid {
    fn from(x: usize) -> Grid {
        Grid([x as u64, 1, 1])
    }
}

impl From<(usize, usize)> for Grid {
    fn from((x, y): (usize, usize)) -> Grid {
        Grid([x as u64, y as u64, 1])
    }
}

impl From<(usize, usize, usize)> for Grid {
    fn from((x, y, z): (usize, usize, usize)) -> Grid {
        Grid([x as u64, y as u64, z as u64])
    }
}

impl From<[u64; 3]> for Grid {
    fn from(axes: [u64; 3]) -> Grid {
        Grid(axes)
    }
}

impl fmt::Display for Grid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [x, y, z] = self.0;
        write!(f, "{x}×{y}×{z}")
    }
}
