//! Dependencies between fusion groups: which groups load the results of which others. They never form a cycle.
//!
//! Before two groups are joined, or a group stores a node for others, a search excludes a cycle. It visits a bounded number of groups, so
//! that scheduling takes linear time in programs with thousands of layers.

use std::collections::{BTreeSet, VecDeque};

/// Groups after which a search stops and reports a possible dependency.
const MAX_SEARCH: usize = 256;

/// Dependencies of groups, which are numbered from 0.
#[derive(Debug, Default)]
pub struct Dependencies {
    /// Groups whose results a group loads.
    producers: Vec<BTreeSet<usize>>,
    /// Groups that load results of a group.
    consumers: Vec<BTreeSet<usize>>,
    /// Length of the longest chain of consumers after a group. A producer's is larger than each of its consumers'.
    heights: Vec<usize>,
}

impl Dependencies {
    /// Adds the next group.
    pub fn push(&mut self) {
        self.producers.push(BTreeSet::new());
        self.consumers.push(BTreeSet::new());
        self.heights.push(0);
    }

    /// Returns the groups whose results a group loads.
    pub fn producers(&self, group: usize) -> &BTreeSet<usize> {
        &self.producers[group]
    }

    /// Lets one group load a result of another.
    pub fn add(&mut self, consumer: usize, producer: usize) {
        if !self.producers[consumer].insert(producer) {
            return;
        }
        self.consumers[producer].insert(consumer);
        let mut open = VecDeque::from([(producer, self.heights[consumer] + 1)]);
        while let Some((group, height)) = open.pop_front() {
            if self.heights[group] < height {
                self.heights[group] = height;
                open.extend(self.producers[group].iter().map(|producer| (*producer, height + 1)));
            }
        }
    }

    /// Gives the dependencies of the second group to the first. Neither depends on the other.
    pub fn merge(&mut self, first: usize, second: usize) {
        for producer in std::mem::take(&mut self.producers[second]) {
            self.consumers[producer].remove(&second);
            self.add(first, producer);
        }
        for consumer in std::mem::take(&mut self.consumers[second]) {
            self.producers[consumer].remove(&second);
            self.add(consumer, first);
        }
    }

    /// Returns false if a group certainly depends on none of the others, directly or indirectly.
    pub fn may_depend(&self, group: usize, others: &BTreeSet<usize>) -> bool {
        let others = || others.iter().copied().filter(|other| *other != group);
        let Some(highest) = others().map(|other| self.heights[other]).max() else { return false };
        let mut seen = BTreeSet::new();
        let mut open: Vec<usize> = self.producers[group].iter().copied().collect();
        while let Some(at) = open.pop() {
            if others().any(|other| other == at) || seen.len() > MAX_SEARCH {
                return true;
            }
            // A producer is higher than its consumers, so no group of at least the greatest height depends on any of the others.
            if self.heights[at] < highest && seen.insert(at) {
                open.extend(&self.producers[at]);
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The transitive closure by depth-first search, without limits.
    fn depends(edges: &[(usize, usize)], from: usize, to: usize) -> bool {
        edges.iter().any(|(consumer, producer)| *consumer == from && (*producer == to || depends(edges, *producer, to)))
    }

    #[test]
    fn small_searches_are_exact() {
        let mut state = 7u64;
        let mut below = |count: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % count
        };
        for _ in 0..200 {
            let count = 2 + below(9);
            let mut known = Dependencies::default();
            (0..count).for_each(|_| known.push());
            // Edges from a lower number to a higher one, in any order, form no cycle.
            let mut edges = Vec::new();
            for _ in 0..below(2 * count) {
                let producer = 1 + below(count - 1);
                edges.push((below(producer), producer));
                known.add(edges[edges.len() - 1].0, producer);
            }
            let ask = |known: &Dependencies, edges: &[(usize, usize)], skipped: Option<usize>| {
                for (from, to) in (0..count).flat_map(|from| (0..count).map(move |to| (from, to))) {
                    if from != to && ![Some(from), Some(to)].contains(&skipped) {
                        assert_eq!(known.may_depend(from, &[to].into()), depends(edges, from, to), "{from} on {to}");
                    }
                }
            };
            ask(&known, &edges, None);
            let (first, second) = (below(count), below(count));
            if first != second && !depends(&edges, first, second) && !depends(&edges, second, first) {
                known.merge(first, second);
                let moved = |group: usize| if group == second { first } else { group };
                let edges: Vec<(usize, usize)> = edges.iter().map(|(a, b)| (moved(*a), moved(*b))).collect();
                ask(&known, &edges, Some(second));
            }
        }
    }

    #[test]
    fn long_searches_end() {
        let mut chain = Dependencies::default();
        (0..100_000).for_each(|_| chain.push());
        (0..99_999).for_each(|at| chain.add(at, at + 1));
        // A group beside the chain, and one at its start.
        chain.push();
        assert!(!chain.may_depend(0, &[100_000].into()) && !chain.may_depend(100_000, &[0].into()));
        assert!(!chain.may_depend(50_000, &[0, 49_999].into()) && chain.may_depend(50_000, &[50_001].into()));
        assert!(chain.may_depend(0, &[99_999].into()));
    }
}
