//! Labels as text: which spellings are one class, the order of classes, and whether numbers are classes.

use std::collections::{HashMap, HashSet};

use panoply_tensor::large_vec;

use super::reader::{Label, Task};
use super::tables;

/// Whole numbers of at most this many values are classes.
const FEW_VALUES: usize = 20;

/// Labels that are numbers, which are either classes or numbers to predict.
pub(super) struct NumericLabels {
    /// True for many values, and for values with fractions.
    is_regression: bool,
}

impl NumericLabels {
    /// Whole numbers are classes if there are at most [`FEW_VALUES`], or if each comes often.
    pub fn of(labels: &[f64]) -> NumericLabels {
        if labels.iter().any(|label| label.fract() != 0.0) {
            return NumericLabels { is_regression: true };
        }
        // Most labels are among the first few, for which a search is faster than a hash.
        let mut few: Vec<f64> = Vec::with_capacity(FEW_VALUES);
        let mut more = HashSet::new();
        for label in labels {
            match few.contains(label) {
                true => {}
                false if few.len() < FEW_VALUES => few.push(*label),
                false => drop(more.insert(label.to_bits())),
            }
        }
        let distinct = few.len() + more.len();
        NumericLabels { is_regression: distinct > FEW_VALUES && distinct > labels.len() / FEW_VALUES }
    }

    /// Classification or regression.
    pub fn task(&self) -> Task {
        if self.is_regression { Task::Regression } else { Task::Classification }
    }
}

/// Words, with each spelling once.
pub(super) struct Spellings<'a> {
    /// The spellings in the order in which they come first.
    pub distinct: Vec<&'a str>,
    /// Index of the spelling of each word.
    pub indices: Vec<u32>,
}

impl<'a> Spellings<'a> {
    /// Finds the spellings of words, of which there are fewer than 2^32.
    pub fn of(words: &[&'a str]) -> Spellings<'a> {
        // The spelling that was last seen for the first bytes and the length of a word, to hash few words.
        const SEEN: usize = 256;
        let mut seen: Vec<Option<u32>> = vec![None; SEEN];
        let mut places: HashMap<&str, u32> = HashMap::new();
        let (mut distinct, mut indices) = (Vec::new(), large_vec(words.len()));
        for word in words.iter().copied() {
            let start =
                word.bytes().take(8).fold(word.len() as u64, |bits, byte| bits << 8 ^ bits >> 56 ^ u64::from(byte));
            let slot = &mut seen[(start.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize];
            let index = slot.filter(|index| distinct[*index as usize] == word).unwrap_or_else(|| {
                *places.entry(word).or_insert_with(|| {
                    distinct.push(word);
                    (distinct.len() - 1) as u32
                })
            });
            *slot = Some(index);
            indices.push(index);
        }
        Spellings { distinct, indices }
    }
}

/// Each word once: in the order of the numbers if all are numbers, of the letters otherwise.
pub(super) fn sorted(words: &[&str]) -> Vec<String> {
    let mut classes: Vec<&str> = words.to_vec();
    classes.sort_unstable();
    classes.dedup();
    let numbers: Option<Vec<f64>> = classes.iter().map(|class| class.parse().ok()).collect();
    if let Some(numbers) = numbers {
        let mut order: Vec<usize> = (0..classes.len()).collect();
        order.sort_by(|a, b| numbers[*a].total_cmp(&numbers[*b]));
        return order.into_iter().map(|at| classes[at].to_string()).collect();
    }
    classes.into_iter().map(str::to_string).collect()
}

/// A key that equal labels share however they are spelled: the number, for numbers and `true` and `false`, or the trimmed text.
pub(super) fn label_key(label: &str) -> String {
    let label = label.trim();
    match label.parse::<f64>() {
        // Without a sign of zero.
        Ok(number) if number.is_finite() => (number + 0.0).to_string(),
        _ if label.eq_ignore_ascii_case("true") => "1".to_string(),
        _ if label.eq_ignore_ascii_case("false") => "0".to_string(),
        _ => label.to_string(),
    }
}

/// Classes by what their spellings have in common.
pub(super) struct Keys(HashMap<String, i32>);

impl Keys {
    /// Of these names; of equal ones the first counts.
    pub fn of(names: &[String]) -> Keys {
        let mut keys = HashMap::new();
        for (at, name) in names.iter().enumerate() {
            keys.entry(label_key(name)).or_insert(at as i32);
        }
        Keys(keys)
    }

    /// The class of a label; `None` if it is missing.
    pub fn right(&self, label: &str) -> Option<Label> {
        match self.class(label) {
            Some(class) => Some(Label::Class(class)),
            None if tables::is_missing(label) => None,
            None => Some(Label::Unknown(label.to_string())),
        }
    }

    /// The class of a label, if it is one.
    pub fn class(&self, label: &str) -> Option<i32> {
        self.0.get(&label_key(label)).copied()
    }
}

/// The classes among some labels in the order of [`sorted`], each once: of the spellings of one value the shortest.
pub(super) fn classes_among(labels: &[&str]) -> Vec<String> {
    let mut shortest: HashMap<String, &str> = HashMap::new();
    let mut distinct = Spellings::of(labels).distinct;
    distinct.sort_unstable();
    for label in distinct {
        let kept = shortest.entry(label_key(label)).or_insert(label);
        if label.len() < kept.len() {
            *kept = label;
        }
    }
    sorted(&shortest.into_values().collect::<Vec<&str>>())
}
