//! Construction of a data set from vectors, with checks that they fit together.

use panoply_tensor::{Error, Result};

use super::{Dataset, Targets};

/// A data set before its numbers are checked against each other; see [`Dataset::classification`].
#[derive(Clone, Debug)]
pub struct DatasetBuilder {
    features: Vec<f32>,
    targets: Targets,
    targets_per_example: usize,
    example_shape: Option<Vec<usize>>,
    num_classes: Option<usize>,
}

impl Dataset {
    /// Begins a data set with class labels: one for each example, or by [`DatasetBuilder::targets_per_example`] one for each time step of a
    /// sequence. [`DatasetBuilder::num_classes`] sets the number of classes [default: the largest label + 1].
    ///
    /// ```
    /// # use panoply_nn::data::Dataset;
    /// let two = Dataset::classification(vec![0.5, 1.0, 0.0, 2.0, 0.1, 0.2], vec![0, 1]).build()?;
    /// assert_eq!((two.len(), two.num_features, two.num_classes()), (2, 3, 2));
    /// # Ok::<(), panoply_tensor::Error>(())
    /// ```
    pub fn classification(features: Vec<f32>, labels: Vec<i32>) -> DatasetBuilder {
        DatasetBuilder::new(features, Targets::Classes { labels, num_classes: 0, labels_per_example: 1 })
    }

    /// Begins a data set with regression targets: one for each example, or [`DatasetBuilder::targets_per_example`].
    pub fn regression(features: Vec<f32>, values: Vec<f32>) -> DatasetBuilder {
        DatasetBuilder::new(features, Targets::Regression { values, num_outputs: 1 })
    }

    /// Begins a data set with independent yes/no labels, 1 for yes and 0 for no: one for each example, or
    /// [`DatasetBuilder::targets_per_example`].
    pub fn multilabel(features: Vec<f32>, values: Vec<f32>) -> DatasetBuilder {
        DatasetBuilder::new(features, Targets::MultiLabel { values, num_labels: 1 })
    }
}

impl DatasetBuilder {
    fn new(features: Vec<f32>, targets: Targets) -> DatasetBuilder {
        DatasetBuilder { features, targets, targets_per_example: 1, example_shape: None, num_classes: None }
    }

    /// Sets the number of labels or values of an example [default: 1].
    #[must_use]
    pub fn targets_per_example(mut self, count: usize) -> DatasetBuilder {
        self.targets_per_example = count;
        self
    }

    /// Sets the shape of an example [default: one axis, of the number of features divided by the number of examples].
    #[must_use]
    pub fn example_shape(mut self, lengths: &[usize]) -> DatasetBuilder {
        self.example_shape = Some(lengths.to_vec());
        self
    }

    /// Sets the number of classes, for classes of which there may be no example [default: the largest label + 1].
    #[must_use]
    pub fn num_classes(mut self, count: usize) -> DatasetBuilder {
        self.num_classes = Some(count);
        self
    }

    /// Checks the numbers and builds the data set.
    ///
    /// # Errors
    /// - The numbers of features and targets do not fit together.
    /// - A label is not in 0 .. the number of classes, a regression target is not finite, or a yes/no label is neither 0 nor 1.
    pub fn build(self) -> Result<Dataset> {
        let DatasetBuilder { features, targets, targets_per_example: each, example_shape, num_classes } = self;
        let count = match &targets {
            Targets::Classes { labels, .. } => labels.len(),
            Targets::Regression { values, .. } | Targets::MultiLabel { values, .. } => values.len(),
        };
        if each == 0 || !count.is_multiple_of(each) {
            return Err(Error::mistake(format!("{count} targets are not {each} for each example")));
        }
        let rows = count / each;
        let shape = match example_shape {
            Some(shape) => shape,
            None if rows > 0 && features.len().is_multiple_of(rows) => vec![features.len() / rows],
            None => {
                let message = format!("{} features do not divide among {rows} examples", features.len());
                return Err(Error::mistake(message).note("`example_shape` sets the shape of an example"));
            }
        };
        let width = shape.iter().try_fold(1usize, |size, length| size.checked_mul(*length)).unwrap_or(0);
        if width == 0 || width.checked_mul(rows) != Some(features.len()) {
            return Err(Error::mistake(format!("{} features are not {rows} examples of {shape:?}", features.len())));
        }
        if let (Some(_), Targets::Regression { .. } | Targets::MultiLabel { .. }) = (num_classes, &targets) {
            return Err(Error::mistake("`num_classes` needs class labels, and these targets have none"));
        }
        let targets = checked(targets, each, num_classes)?;
        Ok(Dataset {
            features,
            num_features: width,
            targets,
            example_shape: shape,
            seq_lengths: None,
            row_numbers: None,
        })
    }
}

/// Returns targets with their counts, or an error about the first invalid one.
fn checked(targets: Targets, each: usize, num_classes: Option<usize>) -> Result<Targets> {
    Ok(match targets {
        Targets::Classes { labels, .. } => {
            let most = labels.iter().max().map_or(0, |most| usize::try_from(*most).unwrap_or(0) + 1);
            let num_classes = num_classes.unwrap_or(most);
            if let Some(at) = labels.iter().position(|label| !(0..num_classes as i64).contains(&i64::from(*label))) {
                let (example, label) = (at / each, labels[at]);
                let message = format!("example {example} has class {label}, which is not in 0 .. {num_classes}");
                return Err(Error::mistake(message));
            }
            Targets::Classes { labels, num_classes, labels_per_example: each }
        }
        Targets::Regression { values, .. } => {
            if let Some(at) = values.iter().position(|value| !value.is_finite()) {
                let (example, value) = (at / each, values[at]);
                let message = format!("example {example} has the target {value}, which is not a finite number");
                return Err(Error::mistake(message));
            }
            Targets::Regression { values, num_outputs: each }
        }
        Targets::MultiLabel { values, .. } => {
            if let Some(at) = values.iter().position(|value| ![0.0, 1.0].contains(value)) {
                let (example, value) = (at / each, values[at]);
                let message = format!("example {example} has the label {value}, which is neither 0 nor 1");
                return Err(Error::mistake(message));
            }
            Targets::MultiLabel { values, num_labels: each }
        }
    })
}
