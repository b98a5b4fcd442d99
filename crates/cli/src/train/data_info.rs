//! The description of the data in a manifest, and the name that a run takes from it.

use std::path::{Path, PathBuf};

use panoply::nn::data::Dataset;
use panoply::nn::data::reader::{DataFormat, LabeledData, ReadOptions};

use super::manifest::{DataInfo, TrainSettings};
use super::val_split::ValSplit;

/// The fingerprint of examples, in hexadecimal.
pub fn fingerprint(data: &Dataset) -> String {
    format!("{:032x}", data.fingerprint())
}

/// The manifest's description of the data and of its two parts.
pub fn data_info(
    path: &str,
    labeled: LabeledData,
    reading: ReadOptions,
    (train, held): (&Dataset, &Dataset),
    settings: &TrainSettings,
) -> DataInfo {
    let is_builtin = labeled.format == DataFormat::Digits;
    let absolute = std::path::absolute(path).ok().filter(|_| !is_builtin);
    DataInfo {
        path: path.to_string(),
        absolute: absolute.and_then(|path| path.to_str().map(str::to_string)),
        train_examples: train.len(),
        val_examples: held.len(),
        fingerprint: fingerprint(&labeled.dataset),
        val_fingerprint: matches!(settings.val_split, ValSplit::File(_)).then(|| fingerprint(held)),
        format: labeled.format,
        is_format_fixed: false,
        class_names: labeled.class_names,
        reading,
    }
}

/// Returns the base name of run folders for this data.
pub fn stem(data: &str) -> String {
    let path = Path::new(data).canonicalize().unwrap_or_else(|_| PathBuf::from(data));
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let plain = Path::new(name.strip_suffix(".gz").unwrap_or(&name));
    plain.file_stem().map_or_else(|| "data".to_string(), |stem| stem.to_string_lossy().into_owned())
}

/// Returns the classes without an example.
pub fn missing_classes<'a>(train: &Dataset, classes: &'a [String]) -> Vec<&'a str> {
    let mut there = vec![false; classes.len()];
    train.labels().iter().for_each(|label| there[*label as usize] = true);
    classes.iter().zip(there).filter(|(_, there)| !there).map(|(class, _)| class.as_str()).collect()
}
