//! Mean and standard deviation of regression targets, which scale the loss and the output.

use panoply::Result;
use panoply::nn::Standardize;
use panoply::nn::data::{Dataset, Targets};

/// Returns mean and standard deviation of the regression targets.
pub fn target_stats(train: &Dataset) -> Option<Standardize> {
    match &train.targets {
        Targets::Regression { values, num_outputs: width } => Some(Standardize::from_rows(values, &[*width])),
        Targets::Classes { .. } | Targets::MultiLabel { .. } => None,
    }
}

/// Returns the standard deviation of each target.
pub fn deviations(measured: &Standardize) -> Result<Vec<f64>> {
    Ok(measured.std.tensor().to_vec::<f32>()?.into_iter().map(f64::from).collect())
}

/// Returns a number with four significant digits, for messages.
pub fn rounded(number: f64) -> f64 {
    format!("{number:.3e}").parse().unwrap_or(number)
}
