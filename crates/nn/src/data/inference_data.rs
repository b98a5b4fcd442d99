//! Examples for inference as a data set with their labels.

use panoply_tensor::{Error, Result};

use super::reader::{InferenceData, Label, Task};
use super::{Dataset, Targets};

impl InferenceData {
    pub(super) fn new(
        features: Vec<f32>,
        lengths: &[usize],
        names: Vec<String>,
        right: Vec<Option<Label>>,
        classes: &[String],
    ) -> Result<InferenceData> {
        // Data without classes get their targets from `for_task`.
        let data = Dataset::classification(features, vec![0; names.len()])
            .example_shape(lengths)
            .num_classes(classes.len().max(1))
            .build()?;
        Ok(InferenceData { dataset: data, names, labels: right, offsets: Vec::new(), table: None, notes: Vec::new() })
    }

    /// The examples with their labels, as training data have them, and the number of examples without a label, which are left out.
    ///
    /// # Errors
    /// A label that is not one of the classes of training, and no labeled example at all.
    pub fn labeled(&self) -> Result<(Dataset, usize)> {
        let kept: Vec<usize> = (0..self.labels.len()).filter(|at| self.labels[*at].is_some()).collect();
        let mut data = self.dataset.select(&kept);
        data.row_numbers = data.row_numbers.or((kept.len() < self.labels.len()).then(|| kept.clone()));
        let labels = || kept.iter().filter_map(|at| self.labels[*at].as_ref());
        if kept.is_empty() {
            return Err(Error::mistake("no example has a label"));
        }
        if let Some(Label::Unknown(name)) = labels().find(|label| matches!(label, Label::Unknown(_))) {
            return Err(Error::mistake(format!("the label `{name}` is not a class of the training data")));
        }
        let offset = |at: usize| self.offsets.get(at).copied().unwrap_or(0.0);
        match &mut data.targets {
            Targets::Classes { labels: classes, .. } => {
                let class = |label: &Label| if let Label::Class(class) = label { *class } else { 0 };
                *classes = labels().map(class).collect();
            }
            Targets::Regression { values, .. } | Targets::MultiLabel { values, .. } => {
                let row = |label: &Label| match label {
                    Label::Values(row) => row.clone(),
                    Label::Class(_) | Label::Unknown(_) => Vec::new(),
                };
                let numbers =
                    |row: Vec<f64>| row.into_iter().enumerate().map(|(at, value)| (value - offset(at)) as f32);
                *values = labels().map(row).flat_map(|row| numbers(row).collect::<Vec<f32>>()).collect();
            }
        }
        Ok((data, self.labels.len() - kept.len()))
    }

    /// Changes the targets to those of a task, with `width` numbers or labels for each example.
    pub(super) fn for_task(mut self, task: Task, width: usize) -> InferenceData {
        let values = vec![0.0; self.names.len() * width];
        match task {
            Task::Classification | Task::Text => {}
            Task::Regression => self.dataset.targets = Targets::Regression { values, num_outputs: width },
            Task::MultiLabel => self.dataset.targets = Targets::MultiLabel { values, num_labels: width },
        }
        self
    }
}
