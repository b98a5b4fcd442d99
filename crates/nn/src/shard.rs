//! Rows of a batch that one forward pass computes.

use std::ops::Range;

use panoply_tensor::Tensor;

/// Rows of a batch that are computed together.
#[derive(Clone, Debug)]
pub(crate) struct Shard {
    pub rows: Range<usize>,
    /// Number of rows of the whole batch.
    pub batch: usize,
    /// Weight of these rows in a mean over the batch.
    pub weight: f64,
}

impl Shard {
    /// Returns a shard of a batch; the numbers of rows of shards differ by at most one. `mass` returns the weight of a range of rows. A shard
    /// without rows computes the first rows with weight 0: two, since batch norm needs two.
    pub fn new(number: usize, shards: usize, batch: usize, mass: impl Fn(Range<usize>) -> f64) -> Shard {
        let rows = batch * number / shards..batch * (number + 1) / shards;
        match rows.is_empty() {
            true => Shard { rows: 0..batch.min(2), batch, weight: 0.0 },
            false => Shard { weight: mass(rows.clone()) / mass(0..batch), rows, batch },
        }
    }

    /// Returns these rows of a tensor whose first axis is the batch.
    pub fn of(&self, whole: &Tensor) -> Tensor {
        whole.narrow(0, self.rows.start, self.rows.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_cover_a_batch_once_and_their_weights_sum_to_1() {
        for (batch, shards) in [(1, 2), (7, 3), (64, 2), (30, 4), (2, 5)] {
            let mass = |rows: Range<usize>| rows.map(|row| 1.0 + row as f64).sum();
            let all: Vec<Shard> = (0..shards).map(|number| Shard::new(number, shards, batch, mass)).collect();
            let counted = all.iter().filter(|shard| shard.weight > 0.0);
            let rows: Vec<usize> = counted.clone().flat_map(|shard| shard.rows.clone()).collect();
            assert_eq!(rows, (0..batch).collect::<Vec<usize>>(), "{batch} rows in {shards}");
            let lens: Vec<usize> = counted.map(|shard| shard.rows.len()).collect();
            assert!(lens.iter().max().unwrap() - lens.iter().min().unwrap() <= 1);
            assert!((all.iter().map(|shard| shard.weight).sum::<f64>() - 1.0).abs() < 1e-12);
        }
    }
}
