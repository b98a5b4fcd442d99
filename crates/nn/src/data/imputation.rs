//! Replacements of missing values in the columns of a table, learned again from some of its examples.
//!
//! [`super::tables`] reads a table with replacements that are learned from all of its examples. Those of a split depend on the training
//! examples alone, as in scikit-learn's `SimpleImputer` that is fitted after `train_test_split`.

use std::collections::BTreeMap;

use super::Dataset;
use super::reader::{DataFormat, LabeledData, MissingValues, Replacement};
use super::tables::{most_frequent, replacement};

/// Rows of a table whose missing values were replaced.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MissingRows {
    /// The treatment of missing values.
    pub policy: Option<MissingValues>,
    /// The positions of rows without a value by column, ascending. The rows of a sequence are followed by its padding.
    pub rows: BTreeMap<String, Vec<usize>>,
}

/// A column whose missing values are replaced anew.
pub(super) struct ReplacedColumn {
    /// The rows without a value, ascending.
    rows: Vec<usize>,
    /// Position of the first feature in a row.
    start: usize,
    /// The features of the replacement.
    features: Vec<f32>,
}

impl ReplacedColumn {
    /// Replaces the missing values of the examples of `part`, which have these positions in the whole data set.
    pub fn apply(&self, part: &mut Dataset, examples: &[usize]) {
        let (time, width) = layout(part);
        for (at, example) in examples.iter().enumerate() {
            let rows = example * time..(example + 1) * time;
            let from = self.rows.partition_point(|row| *row < rows.start);
            for row in self.rows[from..].iter().take_while(|row| **row < rows.end) {
                let start = (at * time + row - rows.start) * width + self.start;
                part.features[start..start + self.features.len()].copy_from_slice(&self.features);
            }
        }
    }
}

/// The number of rows of an example, and of features of a row.
fn layout(data: &Dataset) -> (usize, usize) {
    let time = if data.seq_lengths.is_some() { data.example_shape[0] } else { 1 };
    (time, data.num_features / time)
}

impl LabeledData {
    /// Learns the replacements of missing values from these examples, writes them to `format`, and returns those of the columns with
    /// missing values. `dataset` stays as it is.
    pub(super) fn learn_replacements(&mut self, examples: &[usize]) -> Vec<ReplacedColumn> {
        let DataFormat::Csv { feature_columns, categories, offsets, scales, imputation, .. } = &mut self.format else {
            return Vec::new();
        };
        let (time, width) = layout(&self.dataset);
        let length = |example: usize| self.dataset.seq_lengths.as_ref().map_or(1, |lengths| lengths[example] as usize);
        let rows = || examples.iter().flat_map(|example| (0..length(*example)).map(move |at| example * time + at));
        let (mut start, mut replaced) = (0, Vec::new());
        for name in feature_columns.iter() {
            let names = categories.get(name);
            let count = names.map_or(1, Vec::len);
            let Some(filled) = imputation.get_mut(name) else {
                start += count;
                continue;
            };
            let missing = self.missing.rows.get(name).map_or(&[][..], Vec::as_slice);
            let present = rows().filter(|row| missing.binary_search(row).is_err());
            let features = |row: usize| &self.dataset.features[row * width + start..][..count];
            let value = match names {
                Some(names) => {
                    let category = |row: usize| features(row).iter().position(|feature| *feature == 1.0);
                    let most = most_frequent(present.filter_map(category));
                    filled.value = Replacement::Category(most.map_or_else(String::new, |at| names[at].clone()));
                    (0..count).map(|at| f32::from(u8::from(Some(at) == most))).collect()
                }
                None => {
                    let numbers: Vec<f64> = present.map(|row| f64::from(features(row)[0])).collect();
                    let number = replacement(&numbers, self.missing.policy);
                    let (offset, scale) = (offsets.get(name).unwrap_or(&0.0), scales.get(name).unwrap_or(&1.0));
                    filled.value = Replacement::Number(number * scale + offset);
                    vec![number as f32]
                }
            };
            if !missing.is_empty() {
                replaced.push(ReplacedColumn { rows: missing.to_vec(), start, features: value });
            }
            start += count + usize::from(filled.indicator);
        }
        replaced
    }
}
