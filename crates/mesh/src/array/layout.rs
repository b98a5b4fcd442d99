//! Block layouts: the shape of the blocks of an array, and the place of each block.

use panoply_tensor::{Error, Result};

use crate::span::Span;

/// A block layout: the shape of the blocks, and a grid of places over which they are distributed cyclically. Blocks at the end of
/// an axis can be smaller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Lengths of the blocks.
    block: Vec<usize>,
    /// For each axis the number of places and the distance of their numbers; empty until the layout is used.
    grid: Vec<(usize, usize)>,
}

impl Layout {
    /// Creates a layout of blocks of this shape, distributed over a nearly square grid of all places.
    pub fn blocks(block: impl Into<Vec<usize>>) -> Layout {
        Layout { block: block.into(), grid: Vec::new() }
    }

    /// Distributes the blocks over a grid of places with these lengths: block (i, j) is at the place in row i modulo `grid[0]` and
    /// column j modulo `grid[1]`, counted in row-major order. `[places, 1]` distributes rows of blocks, `[1, places]` columns.
    #[must_use]
    pub fn over(mut self, grid: &[usize]) -> Layout {
        self.grid = strides(grid).into_iter().zip(grid).map(|(stride, len)| (*len, stride)).collect();
        self
    }

    /// Returns the lengths of the blocks.
    pub fn block(&self) -> &[usize] {
        &self.block
    }

    /// Returns the layout for an array of this shape over this number of places.
    ///
    /// # Errors
    /// The number of axes differs, a block has no elements, or the grid has more places than there are.
    pub(crate) fn resolved(&self, shape: &[usize], places: usize) -> Result<Layout> {
        let Layout { block, grid } = self;
        if block.len() != shape.len() || block.contains(&0) {
            let message = format!("layout: blocks of shape {block:?} do not fit an array of shape {shape:?}");
            return Err(Error::mistake(message).note("each axis of the array needs a block length of at least 1"));
        }
        if grid.is_empty() && !shape.is_empty() {
            return Ok(self.clone().over(&near_square(places, shape.len())));
        }
        let used = grid.iter().try_fold(1usize, |used, (len, _)| used.checked_mul(*len));
        if grid.len() != shape.len() || !used.is_some_and(|used| (1..=places).contains(&used)) {
            let lengths: Vec<usize> = grid.iter().map(|(len, _)| *len).collect();
            let message = format!("layout: a grid of {lengths:?} places does not fit {shape:?} over {places} places");
            return Err(Error::mistake(message));
        }
        Ok(self.clone())
    }

    /// Returns the layout of the transposed array, with each block at the same place.
    pub(crate) fn transposed(&self) -> Layout {
        let reversed = |axes: &Vec<(usize, usize)>| axes.iter().rev().copied().collect();
        Layout { block: self.block.iter().rev().copied().collect(), grid: reversed(&self.grid) }
    }

    /// Returns the layout with other blocks at the same places.
    pub(crate) fn with_block(&self, block: Vec<usize>) -> Layout {
        Layout { block, grid: self.grid.clone() }
    }

    /// Returns the number of blocks along each axis.
    pub(crate) fn counts(&self, shape: &[usize]) -> Vec<usize> {
        shape.iter().zip(&self.block).map(|(len, block)| len.div_ceil(*block)).collect()
    }

    /// Returns the region of a block.
    pub(crate) fn region(&self, shape: &[usize], at: &[usize]) -> Vec<Span> {
        let span = |((len, block), at): ((&usize, &usize), &usize)| {
            let start = at * block;
            Span { start, len: (*block).min(len - start), step: 1 }
        };
        shape.iter().zip(&self.block).zip(at).map(span).collect()
    }

    /// Returns the number of the place of a block.
    pub(crate) fn place(&self, at: &[usize]) -> usize {
        self.grid.iter().zip(at).map(|((len, stride), at)| at % len * stride).sum()
    }
}

/// Returns the distance of neighbors along each axis of a row-major array.
pub(crate) fn strides(lengths: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; lengths.len()];
    for axis in (1..lengths.len()).rev() {
        // A layout that overflows is refused when it is used.
        strides[axis - 1] = usize::saturating_mul(strides[axis], lengths[axis]);
    }
    strides
}

/// Returns all positions of a row-major array in order.
pub(crate) fn positions(lengths: &[usize]) -> Vec<Vec<usize>> {
    let strides = strides(lengths);
    let position = |number: usize| strides.iter().zip(lengths).map(|(stride, len)| number / stride % len).collect();
    (0..lengths.iter().product()).map(position).collect()
}

/// Returns a grid of exactly this number of places whose first two axes are as equal as possible; the others have length 1.
fn near_square(places: usize, axes: usize) -> Vec<usize> {
    let mut grid = vec![1; axes];
    if axes == 1 {
        grid[0] = places;
    } else {
        let columns = (1..=places.isqrt()).rev().find(|columns| places.is_multiple_of(*columns)).unwrap_or(1);
        (grid[0], grid[1]) = (places / columns, columns);
    }
    grid
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_cover_an_array_once() {
        for (shape, block, places) in [
            (vec![10], vec![3], 4),
            (vec![7, 9], vec![2, 4], 6),
            (vec![4, 5, 3], vec![4, 2, 3], 3),
            (vec![], vec![], 2),
        ] {
            let layout = Layout::blocks(block).resolved(&shape, places).unwrap();
            let mut seen = vec![0; shape.iter().product()];
            for at in positions(&layout.counts(&shape)) {
                let region = layout.region(&shape, &at);
                let lengths: Vec<usize> = region.iter().map(|span| span.len).collect();
                for inside in positions(&lengths) {
                    let place = inside.iter().zip(&region).zip(strides(&shape));
                    seen[place.map(|((index, span), stride)| span.at(*index) * stride).sum::<usize>()] += 1;
                }
                assert!(layout.place(&at) < places);
                let mut other = at.clone();
                other.reverse();
                assert_eq!(layout.transposed().place(&other), layout.place(&at));
            }
            assert!(seen.iter().all(|count| *count == 1), "{shape:?}: {seen:?}");
        }
    }

    #[test]
    fn grids_use_all_places() {
        for (places, grid) in [(1, [1, 1]), (2, [2, 1]), (4, [2, 2]), (6, [3, 2]), (7, [7, 1])] {
            assert_eq!(near_square(places, 2), grid);
        }
        let layout = Layout::blocks([2, 2]).over(&[2, 3]);
        let used: std::collections::BTreeSet<usize> = positions(&[4, 6]).iter().map(|at| layout.place(at)).collect();
        assert_eq!(used.into_iter().collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
        assert!(layout.resolved(&[8, 8], 5).is_err() && layout.resolved(&[8], 6).is_err());
        assert!(Layout::blocks([2, 2]).over(&[usize::MAX, 2]).resolved(&[8, 8], 4).is_err());
        assert!(Layout::blocks([0]).resolved(&[8], 1).is_err());
    }
}
