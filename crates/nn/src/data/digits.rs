//! The handwritten digits that are built into Panoply: 1797 images of 8 × 8 pixels in 0 ..= 16.
//!
//! Source: E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI Machine Learning Repository, 1998,
//! licensed CC BY 4.0 (the test part of the original).

use std::io::Read;

use panoply_tensor::{Error, Result};

use super::Dataset;

const FILE: &[u8] = include_bytes!("../../data/digits.csv.gz");

/// Loads the digits, with pixels scaled to 0 ..= 1.
///
/// # Errors
/// If the embedded data are corrupt.
pub fn load() -> Result<Dataset> {
    let mut text = String::new();
    let read = flate2::read::GzDecoder::new(FILE).read_to_string(&mut text);
    read.map_err(|error| Error::io("cannot decompress the built-in digits", error))?;
    parse(&text)
}

fn parse(text: &str) -> Result<Dataset> {
    let (mut features, mut labels) = (Vec::new(), Vec::new());
    for (number, line) in text.lines().enumerate() {
        let wrong = |what: &str| Error::corrupt(format!("digits.csv:{}: {what}", number + 1));
        let cells: Result<Vec<u8>, _> = line.split(',').map(str::parse).collect();
        let cells = cells.map_err(|error| wrong(&error.to_string()))?;
        match cells.split_last() {
            Some((label, points)) if points.len() == 64 && *label < 10 && points.iter().all(|p| *p <= 16) => {
                features.extend(points.iter().map(|point| f32::from(*point) / 16.0));
                labels.push(i32::from(*label));
            }
            _ => return Err(wrong("expected 64 pixels in 0 ..= 16 and a digit")),
        }
    }
    Dataset::classification(features, labels).example_shape(&[64]).num_classes(10).build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_digits_are_there() {
        let digits = load().unwrap();
        assert_eq!((digits.len(), digits.num_features, digits.num_classes()), (1797, 64, 10));
        // Counts of the digits 0 to 9, as published with the data set.
        let counts: Vec<usize> = (0..10).map(|d| digits.labels().iter().filter(|label| **label == d).count()).collect();
        assert_eq!(counts, [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]);
    }

    #[test]
    fn parse_errors_name_the_line() {
        let text = format!("{}0\n1,2,x\n", "0,".repeat(64));
        let error = parse(&text).unwrap_err();
        assert!(error.is_corrupt() && error.message().starts_with("digits.csv:2: "), "{error}");
    }
}
