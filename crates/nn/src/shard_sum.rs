//! Sums of the values of shards in a fixed binary tree over shard numbers.
//!
//! A node of the tree is a range of shards; its children are the two halves. Every node is the sum of its left and its right child, whichever
//! process adds them, so the bits of the total depend only on the values and the number of shards. Each process owns consecutive shards.

use std::borrow::Cow;
use std::ops::Range;

use panoply_tensor::{AlignedBuffer, Result};

use crate::process_group::ProcessGroup;

/// Distribution of shards over processes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShardLayout {
    pub shards: usize,
    pub ranks: usize,
}

/// Values of a process's shards, summed as far as they form nodes of the tree.
#[derive(Debug)]
pub(crate) struct PartialSums {
    layout: ShardLayout,
    /// Number of the first bucket, which chooses the process that adds it up.
    first_bucket: usize,
    /// Number of the shard that is added next.
    next: usize,
    sums: Vec<(Range<usize>, AlignedBuffer)>,
}

/// Returns the first shard of the right child of a node with at least two shards.
fn middle(node: &Range<usize>) -> usize {
    node.start + node.len() / 2
}

impl ShardLayout {
    /// Returns the shards of a process. Their numbers differ by at most one.
    pub fn shards_of(self, rank: usize) -> Range<usize> {
        self.shards * rank / self.ranks..self.shards * (rank + 1) / self.ranks
    }

    /// Returns the process that owns a shard.
    fn owner(self, shard: usize) -> usize {
        ((shard + 1) * self.ranks).div_ceil(self.shards) - 1
    }

    /// Returns the process that computes the sum of a node. At each level a bit of `bucket` chooses between the processes of the two children,
    /// so all processes add up about as many buckets.
    fn holder(self, node: &Range<usize>, bucket: usize) -> usize {
        let (first, last) = (self.owner(node.start), self.owner(node.end - 1));
        match first == last {
            true => first,
            false if bucket.is_multiple_of(2) => self.holder(&(node.start..middle(node)), bucket / 2),
            false => self.holder(&(middle(node)..node.end), bucket / 2),
        }
    }

    /// Returns true if this range of shards is a node of the tree.
    fn is_node(self, range: &Range<usize>) -> bool {
        let mut node = 0..self.shards;
        while node != *range && node.len() > 1 {
            let middle = middle(&node);
            match (range.end <= middle, range.start >= middle) {
                (true, _) => node.end = middle,
                (_, true) => node.start = middle,
                (false, false) => return false,
            }
        }
        node == *range
    }

    /// Returns the largest number of values that a process holds at once to compute the total of vectors of this length, with those that
    /// are kept for the next step. A step in several parts, which are summed one after the other, holds about as many at most.
    pub fn values_held(self, rank: usize, length: usize, bucket: usize) -> usize {
        let (mut sums, mut vectors) = (PartialSums::new(self, rank, 0), 0);
        for _ in self.shards_of(rank) {
            vectors = vectors.max(sums.sums.len() + 1);
            sums.push(AlignedBuffer::default());
        }
        if self.ranks == 1 {
            return vectors * length;
        }
        let bucket = bucket.max(1);
        let buckets: Vec<usize> = (0..length).step_by(bucket).map(|at| bucket.min(length - at)).collect();
        vectors.max(sums.sums.len() + 1) * length + self.held_below(rank, (&(0..self.shards), 0), &buckets)
    }

    /// Returns the largest number of values of nodes below this one that a process holds at once; see [`PartialSums::combine`].
    fn held_below(self, rank: usize, (node, depth): (&Range<usize>, u32), buckets: &[usize]) -> usize {
        let [left, right] = [node.start..middle(node), middle(node)..node.end].map(|child| {
            let owners = self.owner(child.start)..=self.owner(child.end - 1);
            if owners.start() == owners.end() || !owners.contains(&rank) {
                return (0, 0);
            }
            let holds = |number: usize| self.holder(&child, number >> (depth + 1)) == rank;
            let own: usize = buckets.iter().enumerate().filter(|(number, _)| holds(*number)).map(|(_, len)| len).sum();
            (own, own + self.held_below(rank, (&child, depth + 1), buckets))
        });
        // The sums of the left child are kept while those of the right one are computed.
        left.1.max(left.0 + right.1)
    }
}

impl PartialSums {
    /// Creates the sums of a process that has added no shard. The buckets are numbered from `first_bucket`.
    pub fn new(layout: ShardLayout, rank: usize, first_bucket: usize) -> PartialSums {
        PartialSums { layout, first_bucket, next: layout.shards_of(rank).start, sums: Vec::new() }
    }

    /// Adds the values of the next shard. Returns the vectors that are not needed any more.
    pub fn push(&mut self, values: AlignedBuffer) -> Vec<AlignedBuffer> {
        let (mut range, mut right, mut spare) = (self.next..self.next + 1, values, Vec::new());
        self.next += 1;
        while let Some((left, _)) = self.sums.last()
            && self.layout.is_node(&(left.start..range.end))
        {
            let (left, mut sum) = self.sums.pop().expect("the last one was seen");
            add(&mut sum, &right);
            spare.push(right);
            (range, right) = (left.start..range.end, sum);
        }
        self.sums.push((range, right));
        spare
    }

    /// Computes the sum over all shards, which is the same on all processes, in messages of at most `bucket` values. Every process must have
    /// added all its shards. The sum is written to the vector that `spare` returns, of any length, or is one of the vectors that were added.
    ///
    /// # Errors
    /// If the communication fails.
    pub fn total(
        &mut self,
        group: Option<&dyn ProcessGroup>,
        bucket: usize,
        spare: impl FnOnce() -> AlignedBuffer,
    ) -> Result<AlignedBuffer> {
        let Some(group) = group.filter(|group| group.ranks() > 1) else {
            return Ok(self.sums.pop().expect("there is at least one shard").1);
        };
        let (length, bucket, root) = (self.sums[0].1.len(), bucket.max(1), 0..self.layout.shards);
        let ranges: Vec<Range<usize>> = (0..length).step_by(bucket).map(|at| at..length.min(at + bucket)).collect();
        let mut total = spare();
        total.resize(length);
        self.combine(group, (&root, 0), &ranges, total.chunks_mut(bucket).collect())?;
        let holders: Vec<usize> =
            (self.first_bucket..).take(ranges.len()).map(|number| self.layout.holder(&root, number)).collect();
        broadcast(group, total.chunks_mut(bucket).zip(holders).collect())?;
        Ok(total)
    }

    /// Returns the vectors that are left.
    pub fn into_vectors(self) -> impl Iterator<Item = AlignedBuffer> {
        self.sums.into_iter().map(|(_, sum)| sum)
    }

    /// Returns the sum of the node at this depth of the tree for each bucket, if this process holds it.
    fn node(
        &self,
        group: &dyn ProcessGroup,
        (node, depth): (&Range<usize>, u32),
        buckets: &[Range<usize>],
    ) -> Result<Vec<Option<Cow<'_, [f32]>>>> {
        if let Some((_, sum)) = self.sums.iter().find(|(own, _)| own == node) {
            return Ok(buckets.iter().map(|range| Some(Cow::Borrowed(&sum[range.clone()]))).collect());
        }
        if self.layout.owner(node.start) == self.layout.owner(node.end - 1) {
            return Ok(vec![None; buckets.len()]);
        }
        let holds = |number: usize| self.layout.holder(node, number >> depth) == group.rank();
        let place = |(number, range): (usize, &Range<usize>)| vec![0f32; if holds(number) { range.len() } else { 0 }];
        let mut sums: Vec<Vec<f32>> = (self.first_bucket..).zip(buckets).map(place).collect();
        self.combine(group, (node, depth), buckets, sums.iter_mut().map(Vec::as_mut_slice).collect())?;
        let sums = (self.first_bucket..).zip(sums);
        Ok(sums.map(|(number, sum)| holds(number).then_some(Cow::Owned(sum))).collect())
    }

    /// Adds the children of a node that several processes own, and writes the sum of each bucket that this process holds to its place. The
    /// messages of all buckets travel at the same time.
    fn combine(
        &self,
        group: &dyn ProcessGroup,
        (node, depth): (&Range<usize>, u32),
        buckets: &[Range<usize>],
        places: Vec<&mut [f32]>,
    ) -> Result<()> {
        let children = [node.start..middle(node), middle(node)..node.end];
        let left = self.node(group, (&children[0], depth + 1), buckets)?;
        let right = self.node(group, (&children[1], depth + 1), buckets)?;
        let (mut sends, mut receives, mut terms) = (Vec::new(), Vec::new(), Vec::new());
        for (number, ((left, right), place)) in (self.first_bucket..).zip(left.iter().zip(&right).zip(places)) {
            let holder = self.layout.holder(node, number >> depth);
            let [left_holder, right_holder] =
                [0, 1].map(|child| self.layout.holder(&children[child], number >> (depth + 1)));
            match (left, right) {
                (Some(left), Some(right)) => {
                    place.copy_from_slice(left);
                    add(place, right);
                }
                (Some(own), None) | (None, Some(own)) if group.rank() == holder => {
                    receives.push((if left_holder == holder { right_holder } else { left_holder }, place));
                    terms.push(own);
                }
                (Some(own), None) | (None, Some(own)) => sends.push((holder, &**own)),
                (None, None) => {}
            }
        }
        exchange(group, &sends, &mut receives)?;
        // The addition of two numbers is commutative.
        receives.into_iter().zip(terms).for_each(|((_, sum), own)| add(sum, own));
        Ok(())
    }
}

fn add(sum: &mut [f32], values: &[f32]) {
    sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
}

/// Exchanges messages, if there are any.
fn exchange(group: &dyn ProcessGroup, sends: &[(usize, &[f32])], receives: &mut [(usize, &mut [f32])]) -> Result<()> {
    if sends.is_empty() && receives.is_empty() { Ok(()) } else { group.exchange(sends, receives) }
}

/// Copies the values of each bucket from the process with this number to all others, along binomial trees.
fn broadcast(group: &dyn ProcessGroup, mut buckets: Vec<(&mut [f32], usize)>) -> Result<()> {
    let ranks = group.ranks();
    let mut bit = ranks.next_power_of_two();
    while bit > 1 {
        bit /= 2;
        let (mut sends, mut receives) = (Vec::new(), Vec::new());
        for (values, root) in &mut buckets {
            let relative = (group.rank() + ranks - *root) % ranks;
            let rank = |relative: usize| (relative + *root) % ranks;
            // The lowest bit of a relative rank that is set leads to its parent; the ranks below that bit are its children.
            if relative % (2 * bit) == bit {
                receives.push((rank(relative - bit), &mut **values));
            } else if relative.is_multiple_of(2 * bit) && relative + bit < ranks {
                sends.push((rank(relative + bit), &**values));
            }
        }
        exchange(group, &sends, &mut receives)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::{Arc, Condvar, Mutex};

    use super::*;

    /// Messages between the threads of a test, by sender and receiver.
    type Messages = Arc<(Mutex<Vec<Vec<VecDeque<Vec<f32>>>>>, Condvar)>;

    #[derive(Debug)]
    struct Thread {
        rank: usize,
        ranks: usize,
        messages: Messages,
    }

    impl ProcessGroup for Thread {
        fn rank(&self) -> usize {
            self.rank
        }

        fn ranks(&self) -> usize {
            self.ranks
        }

        fn all_reduce(&self, _: &mut [f32]) -> Result<()> {
            unreachable!("the sum uses messages")
        }

        fn broadcast(&self, _: &mut [f64]) -> Result<()> {
            unreachable!("the sum uses messages")
        }

        /// Waits until the messages are received, as MPI can.
        fn exchange(&self, sends: &[(usize, &[f32])], receives: &mut [(usize, &mut [f32])]) -> Result<()> {
            let (messages, changed) = &*self.messages;
            let mut state = messages.lock().unwrap();
            sends.iter().for_each(|(to, values)| state[self.rank][*to].push_back(values.to_vec()));
            changed.notify_all();
            for (from, values) in receives {
                state = changed.wait_while(state, |state| state[*from][self.rank].is_empty()).unwrap();
                values.copy_from_slice(&state[*from][self.rank].pop_front().unwrap());
                changed.notify_all();
            }
            let received =
                |state: &[Vec<VecDeque<Vec<f32>>>]| sends.iter().all(|(to, _)| state[self.rank][*to].is_empty());
            drop(changed.wait_while(state, |state| !received(state)).unwrap());
            Ok(())
        }
    }

    fn on_ranks(layout: ShardLayout, [first_bucket, bucket]: [usize; 2], values: &[Vec<f32>]) -> Vec<Vec<f32>> {
        let ranks = layout.ranks;
        let messages: Messages = Arc::new((Mutex::new(vec![vec![VecDeque::new(); ranks]; ranks]), Condvar::new()));
        std::thread::scope(|threads| {
            let start = |rank: usize| {
                let group = Thread { rank, ranks, messages: messages.clone() };
                threads.spawn(move || {
                    let mut sums = PartialSums::new(layout, rank, first_bucket);
                    layout.shards_of(rank).for_each(|shard| drop(sums.push(values[shard].as_slice().into())));
                    sums.total(Some(&group), bucket, || [7.0; 3].as_slice().into()).unwrap().to_vec()
                })
            };
            let threads: Vec<_> = (0..ranks).map(start).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    /// The definition of the sum.
    fn expected(values: &[Vec<f32>]) -> Vec<f32> {
        match values {
            [one] => one.clone(),
            _ => {
                let (left, right) = values.split_at(values.len() / 2);
                expected(left).iter().zip(expected(right)).map(|(left, right)| left + right).collect()
            }
        }
    }

    /// The number of values is counted by hand, in vectors of 8 values and buckets of one.
    #[test]
    fn values_that_a_process_holds_are_counted() {
        let held = |shards, ranks, rank| ShardLayout { shards, ranks }.values_held(rank, 8, 1);
        // One vector for each node that is not complete and for the shard that is added.
        assert_eq!([1, 2, 3, 4, 8].map(|shards| held(shards, 1, 0)), [8, 16, 24, 24, 32]);
        // The sum of the own shards and the total.
        assert_eq!([held(2, 2, 0), held(2, 2, 1), held(4, 2, 1)], [16; 3]);
        // The first two ranks also hold half of the sum of their shards.
        assert_eq!([0, 1, 2].map(|rank| held(4, 3, rank)), [20, 20, 16]);
        assert_eq!([0, 1, 2, 3].map(|rank| held(4, 4, rank)), [20; 4]);
        // A quarter of the sum of four ranks' shards, and half of the sum of two.
        assert_eq!([0, 3, 5, 7].map(|rank| held(8, 8, rank)), [22; 4]);
    }

    #[test]
    fn every_number_of_processes_gets_the_bits_of_the_tree() {
        let mut order_matters = false;
        for shards in 1..=9 {
            let number = |shard: usize, at: usize| ((shard * 37 + at * 11) as f32 * 0.7).sin() * 10f32.powi(at as i32);
            let values: Vec<Vec<f32>> = (0..shards).map(|shard| (0..7).map(|at| number(shard, at)).collect()).collect();
            let want = expected(&values);
            let in_sequence = |at: usize| values.iter().map(|values| values[at]).reduce(|sum, value| sum + value);
            order_matters |= (0..7).any(|at| in_sequence(at) != Some(want[at]));
            for (ranks, bucket) in (1..=shards).flat_map(|ranks| [(ranks, 7), (ranks, 2), (ranks, 100)]) {
                let layout = ShardLayout { shards, ranks };
                let owned: Vec<usize> = (0..ranks).flat_map(|rank| layout.shards_of(rank)).collect();
                assert_eq!(owned, (0..shards).collect::<Vec<usize>>());
                assert!((0..ranks).all(|rank| layout.shards_of(rank).all(|shard| layout.owner(shard) == rank)));
                for have in on_ranks(layout, [ranks % 3, bucket], &values) {
                    assert_eq!(have, want, "{shards} shards on {ranks}, buckets of {bucket}");
                }
            }
        }
        assert!(order_matters, "the values cannot tell one order from another");
    }
}
