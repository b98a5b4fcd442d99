//! Offsets for columns of large, closely spaced numbers: subtracting them in f64 leaves values that fit into f32.

/// Minimum ratio of mean to standard deviation for an offset: f32 then has fewer than four digits for the variation.
const FAR: f64 = 1000.0;

/// Smallest magnitude at which f32 cannot represent every integer.
const WHOLE: f64 = (1 << 24) as f64;

/// Returns the offset of a column with these sampled values; `None` if they are near 0 relative to their deviation.
pub(super) fn offset(sample: &[f64]) -> Option<f64> {
    let first = *sample.first()?;
    let count = sample.len() as f64;
    // Differences from a value of the column avoid cancellation.
    let mean = sample.iter().map(|value| value - first).sum::<f64>() / count;
    let deviation = (sample.iter().map(|value| (value - first - mean).powi(2)).sum::<f64>() / count).sqrt();
    let mean = first + mean;
    let within = sample.iter().all(|value| (-1.0..=1.0).contains(value));
    let far = if deviation > 0.0 { mean.abs() > FAR * deviation } else { mean.abs() >= WHOLE };
    (far && !within && mean.is_finite()).then_some(mean)
}

/// Returns the divisor of a column whose values are all too small or too large for the arithmetic of f32: a power of ten near their
/// largest magnitude; `None` if they are not.
pub(super) fn scale(values: &[f64]) -> Option<f64> {
    // Between these, squares and sums of squares of standardized columns stay normal numbers.
    const SMALL: f32 = 1e-30;
    const LARGE: f32 = 1e30;
    let most = values.iter().fold(0.0f64, |most, value| most.max(value.abs()));
    (most > 0.0 && most.is_finite() && !(SMALL..=LARGE).contains(&(most as f32)))
        .then(|| 10f64.powf(most.log10().floor()))
}

/// Returns a warning if more than 1 % of the distinct values coincide in f32, otherwise `None`.
pub(super) fn loss(sample: &[f64], offset: f64) -> Option<String> {
    let distinct = |mut bits: Vec<f64>| {
        bits.sort_by(f64::total_cmp);
        bits.dedup();
        bits.len()
    };
    let all = distinct(sample.to_vec());
    let kept = distinct(sample.iter().map(|value| f64::from((value - offset) as f32)).collect());
    (kept < all - all / 100).then(|| {
        format!("{all} distinct values among {} samples become {kept} in f32, which has 7 digits; use smaller numbers, such as differences", sample.len())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiny_and_huge_values_have_a_scale() {
        assert_eq!((scale(&[1e-40, -3e-40]), scale(&[2e200])), (Some(1e-40), Some(1e200)));
        assert_eq!((scale(&[0.0]), scale(&[1e-29]), scale(&[1e29, 1e-60]), scale(&[])), (None, None, None, None));
    }

    #[test]
    fn values_far_from_zero_are_moved() {
        let near: Vec<f64> = (0..100).map(|at| f64::from(at) * 0.01).collect();
        let far: Vec<f64> = near.iter().map(|value| 1e9 + value).collect();
        assert_eq!(offset(&near), None);
        assert!((offset(&far).unwrap() - (1e9 + 0.495)).abs() < 1e-6);
        assert_eq!((loss(&near, 0.0), loss(&far, offset(&far).unwrap())), (None, None));
        assert!(loss(&far, 0.0).unwrap().starts_with("100 distinct values among 100 samples become 1 in f32"));
        assert_eq!((offset(&[3.0; 9]), offset(&[3e9; 9]), offset(&[])), (None, Some(3e9), None));
    }
}
