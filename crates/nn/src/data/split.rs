//! Division of a data set into training and validation examples. Those of [`LabeledData`] learn the replacements of missing values from
//! the training examples.

use std::collections::HashSet;

use panoply_tensor::{Error, Result, Rng};

use super::reader::LabeledData;
use super::{Dataset, Targets};

impl Dataset {
    /// Splits into training and validation examples; `fraction` in `0.0..1.0` of them are for validation.
    ///
    /// Classes are stratified: each gives the same fraction, chosen at random. A text gives its last part, since neighbors depend on each
    /// other. Other examples are chosen at random. Both parts keep the order of the examples, and their row numbers.
    ///
    /// # Errors
    /// A fraction outside of `0.0..1.0`.
    #[doc(alias = "random_split")]
    pub fn train_test_split(&self, fraction: f64, rng: &mut Rng) -> Result<(Dataset, Dataset)> {
        Ok(self.divided(self.random_examples(fraction, rng)?))
    }

    fn random_examples(&self, fraction: f64, rng: &mut Rng) -> Result<Vec<usize>> {
        check(fraction)?;
        let out = |count: usize| (count as f64 * fraction).round() as usize;
        let order = rng.permutation(self.len());
        let mut held = Vec::new();
        let mut divide = |members: &[usize]| {
            // The only example of a class is for training.
            let count = out(members.len()).min(members.len().saturating_sub(1));
            held.extend(&members[..count]);
        };
        match &self.targets {
            Targets::Classes { labels, num_classes: classes, labels_per_example: 1 } => {
                let mut members = vec![Vec::new(); *classes];
                order.iter().for_each(|example| members[labels[*example] as usize].push(*example));
                members.iter().for_each(|members| divide(members));
            }
            Targets::Classes { .. } => divide(&(0..self.len()).rev().collect::<Vec<usize>>()),
            Targets::Regression { .. } | Targets::MultiLabel { .. } => divide(&order),
        }
        Ok(held)
    }

    /// Splits off the last examples for validation, as for a time series; `fraction` in `0.0..1.0` of them, at least one.
    ///
    /// # Errors
    /// A fraction outside of `0.0..1.0`, and fewer than two examples.
    pub fn split_last(&self, fraction: f64) -> Result<(Dataset, Dataset)> {
        Ok(self.divided(self.last_examples(fraction)?))
    }

    fn last_examples(&self, fraction: f64) -> Result<Vec<usize>> {
        check(fraction)?;
        if self.len() < 2 {
            return Err(Error::mistake(format!("{} examples cannot be divided into two parts", self.len())));
        }
        let count = ((self.len() as f64 * fraction).round() as usize).clamp(1, self.len() - 1);
        Ok((self.len() - count..self.len()).collect())
    }

    /// Splits so that examples with the same number in `groups` are in the same part. Groups are chosen at random until at least
    /// `fraction` of the examples are for validation; one group at least is left for training.
    ///
    /// # Errors
    /// A fraction outside of `0.0..1.0`, a number of groups other than that of the examples, and fewer than two groups.
    #[doc(alias = "GroupShuffleSplit")]
    pub fn split_groups(&self, groups: &[u32], fraction: f64, rng: &mut Rng) -> Result<(Dataset, Dataset)> {
        Ok(self.divided(self.grouped_examples(groups, fraction, rng)?))
    }

    fn grouped_examples(&self, groups: &[u32], fraction: f64, rng: &mut Rng) -> Result<Vec<usize>> {
        check(fraction)?;
        if groups.len() != self.len() {
            return Err(Error::mistake(format!(
                "{} groups are not one for each of {} examples",
                groups.len(),
                self.len()
            )));
        }
        // In the order of their first examples, so that the split depends on nothing but the seed.
        let mut names = Vec::new();
        let mut known = HashSet::new();
        groups.iter().for_each(|group| {
            if known.insert(*group) {
                names.push(*group)
            }
        });
        if names.len() < 2 {
            return Err(Error::mistake("all examples are in one group; a split by groups needs two"));
        }
        let wanted = (self.len() as f64 * fraction).round().max(1.0) as usize;
        let mut held = HashSet::new();
        let mut count = 0;
        for at in rng.permutation(names.len()) {
            if count >= wanted || held.len() + 1 == names.len() {
                break;
            }
            held.insert(names[at]);
            count += groups.iter().filter(|group| **group == names[at]).count();
        }
        Ok((0..self.len()).filter(|example| held.contains(&groups[*example])).collect())
    }

    /// The examples outside of `held`, and those in it.
    fn divided(&self, held: Vec<usize>) -> (Dataset, Dataset) {
        let (kept, held) = self.positions(held);
        (self.select_numbered(&kept), self.select_numbered(&held))
    }

    /// The positions outside of `held`, and those in it, sorted.
    fn positions(&self, mut held: Vec<usize>) -> (Vec<usize>, Vec<usize>) {
        held.sort_unstable();
        let mut is_held = vec![false; self.len()];
        held.iter().for_each(|example| is_held[*example] = true);
        ((0..self.len()).filter(|example| !is_held[*example]).collect(), held)
    }

    /// The number of examples whose features also occur among those of `other`, bit for bit (by their 128-bit hashes).
    ///
    /// # Errors
    /// Examples of another width.
    pub fn count_shared(&self, other: &Dataset) -> Result<usize> {
        if self.num_features != other.num_features {
            let message = format!("examples of {} and {} features", self.num_features, other.num_features);
            return Err(Error::mistake(message));
        }
        let hashes = |data: &'_ Dataset| -> Vec<u128> {
            let rows = data.features.chunks_exact(data.num_features);
            rows.map(|row| xxhash_rust::xxh3::xxh3_128(bytemuck::cast_slice(row))).collect()
        };
        let rows: HashSet<u128> = hashes(other).into_iter().collect();
        Ok(hashes(self).into_iter().filter(|row| rows.contains(row)).count())
    }
}

impl LabeledData {
    /// Splits as [`Dataset::train_test_split`]. In both parts missing values are replaced by what is learned from the training examples, and
    /// `format` holds these replacements from then on.
    ///
    /// # Errors
    /// As for [`Dataset::train_test_split`].
    pub fn train_test_split(&mut self, fraction: f64, rng: &mut Rng) -> Result<(Dataset, Dataset)> {
        let held = self.dataset.random_examples(fraction, rng)?;
        Ok(self.divided(held))
    }

    /// Splits as [`Dataset::split_last`], with replacements of missing values as in [`LabeledData::train_test_split`].
    ///
    /// # Errors
    /// As for [`Dataset::split_last`].
    pub fn split_last(&mut self, fraction: f64) -> Result<(Dataset, Dataset)> {
        let held = self.dataset.last_examples(fraction)?;
        Ok(self.divided(held))
    }

    /// Splits by its groups as [`Dataset::split_groups`], with replacements of missing values as in [`LabeledData::train_test_split`].
    ///
    /// # Errors
    /// As for [`Dataset::split_groups`], and data without groups.
    pub fn split_groups(&mut self, fraction: f64, rng: &mut Rng) -> Result<(Dataset, Dataset)> {
        let groups = self.groups.as_ref().ok_or_else(|| {
            Error::mistake("the examples have no groups").note("`ReadOptions::group_column` names their column")
        })?;
        let held = self.dataset.grouped_examples(groups, fraction, rng)?;
        Ok(self.divided(held))
    }

    fn divided(&mut self, held: Vec<usize>) -> (Dataset, Dataset) {
        let (kept, held) = self.dataset.positions(held);
        let replaced = self.learn_replacements(&kept);
        let part = |examples: &[usize]| {
            let mut part = self.dataset.select_numbered(examples);
            replaced.iter().for_each(|column| column.apply(&mut part, examples));
            part
        };
        (part(&kept), part(&held))
    }
}

fn check(fraction: f64) -> Result<()> {
    match (0.0..1.0).contains(&fraction) {
        true => Ok(()),
        false => Err(Error::mistake(format!("the validation fraction {fraction} is not in [0, 1)"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(count: usize) -> Dataset {
        Dataset::regression((0..count).map(|at| at as f32).collect(), vec![0.0; count]).build().unwrap()
    }

    #[test]
    fn the_last_examples_validate() {
        let (train, held) = data(10).split_last(0.25).unwrap();
        assert_eq!((train.len(), &held.features[..]), (7, &[7.0, 8.0, 9.0][..]));
        assert_eq!(held.row_numbers.as_deref(), Some(&[7, 8, 9][..]));
        // Those of a part are positions in the whole data set.
        let (_, part) = held.split_last(0.6).unwrap();
        assert_eq!([part.row_number(0), part.row_number(1)], [8, 9]);
        assert_eq!(data(10).split_last(0.0).unwrap().1.len(), 1);
        assert!(data(1).split_last(0.5).is_err() && data(9).split_last(1.0).is_err());
    }

    #[test]
    fn a_group_stays_together() {
        let groups: Vec<u32> = (0..60).map(|at| at / 5 % 12).collect();
        for seed in 0..20 {
            let (train, held) = data(60).split_groups(&groups, 0.2, &mut Rng::seed_from_u64(seed)).unwrap();
            let of = |data: &Dataset| data.features.iter().map(|at| groups[*at as usize]).collect::<HashSet<u32>>();
            assert!(of(&train).is_disjoint(&of(&held)));
            assert_eq!((train.len(), held.len()), (45, 15), "three groups of five are the first to reach 12 examples");
        }
        assert!(data(3).split_groups(&[1, 1, 1], 0.2, &mut Rng::seed_from_u64(0)).is_err());
        let (train, held) = data(3).split_groups(&[1, 1, 2], 0.9, &mut Rng::seed_from_u64(0)).unwrap();
        assert!(!train.is_empty() && !held.is_empty());
    }

    #[test]
    fn shared_rows_are_counted() {
        let (a, b) = (data(5), data(3));
        assert_eq!((a.count_shared(&b).unwrap(), b.count_shared(&a).unwrap()), (3, 3));
    }
}
