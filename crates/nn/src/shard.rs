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
    /// Returns the rows of a shard of a batch; none if the batch has fewer than two rows for each shard and the last shards get none. The
    /// numbers of rows of the other shards differ by at most one.
    pub fn rows(number: usize, shards: usize, batch: usize) -> Range<usize> {
        let filled = Shard::filled(shards, batch);
        if number < filled { batch * number / filled..batch * (number + 1) / filled } else { 0..0 }
    }

    /// Returns the number of shards with rows: each has at least two, which batch norm needs, if the batch has two.
    pub fn filled(shards: usize, batch: usize) -> usize {
        shards.min((batch / 2).max(1))
    }

    /// Returns a shard of a batch. `mass` returns the weight of a range of rows. A shard without rows computes the first rows with weight 0.
    pub fn new(number: usize, shards: usize, batch: usize, mass: impl Fn(Range<usize>) -> f64) -> Shard {
        let rows = Shard::rows(number, shards, batch);
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
        for (batch, shards) in [(1, 2), (7, 3), (64, 2), (30, 4), (2, 5), (5, 4), (4, 4), (3, 2)] {
            let mass = |rows: Range<usize>| rows.map(|row| 1.0 + row as f64).sum();
            let all: Vec<Shard> = (0..shards).map(|number| Shard::new(number, shards, batch, mass)).collect();
            let counted = all.iter().filter(|shard| shard.weight > 0.0);
            let rows: Vec<usize> = counted.clone().flat_map(|shard| shard.rows.clone()).collect();
            assert_eq!(rows, (0..batch).collect::<Vec<usize>>(), "{batch} rows in {shards}");
            let lens: Vec<usize> = counted.map(|shard| shard.rows.len()).collect();
            assert!(lens.iter().max().unwrap() - lens.iter().min().unwrap() <= 1);
            assert!(all.iter().all(|shard| shard.rows.len() >= batch.min(2)), "{batch} rows in {shards}");
            assert!((all.iter().map(|shard| shard.weight).sum::<f64>() - 1.0).abs() < 1e-12);
        }
    }
}
