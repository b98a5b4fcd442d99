//! Comparison of results with the expected ones.

use std::fmt;

/// Outcome of a comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckResult {
    /// Number of compared values.
    pub compared: usize,
    /// Number of wrong values.
    pub wrong: usize,
    /// Largest error, relative to the scale of the results; the fraction of wrong values if they must be exact.
    pub error: f64,
    /// Largest acceptable error; 0 if values must be exact.
    pub tolerance: f64,
    /// Description of the first wrong value.
    pub first: Option<String>,
}

impl CheckResult {
    /// Returns true if values were compared and all are right.
    pub fn passed(&self) -> bool {
        self.wrong == 0 && self.compared > 0
    }

    /// Requires every value to be equal.
    pub fn exact<T: PartialEq + fmt::Debug>(have: &[T], want: &[T]) -> CheckResult {
        let wrong = |(i, (have, want)): (usize, (&T, &T))| (have != want).then(|| mismatch(i, have, want));
        let mut wrong: Vec<String> = have.iter().zip(want).enumerate().filter_map(wrong).collect();
        if have.len() != want.len() {
            wrong.push(format!("expected {1} values, found {0}", have.len(), want.len()));
        }
        let error = wrong.len() as f64 / want.len().max(1) as f64;
        let (count, first) = (wrong.len(), wrong.into_iter().next());
        CheckResult { compared: want.len(), wrong: count, error, tolerance: 0.0, first }
    }

    /// Requires every value to be within `tolerance` of the expected one, relative to the larger of its magnitude and
    /// the scale (the root mean square of the expected values).
    pub fn close(have: &[f32], want: &[f64], tolerance: f64) -> CheckResult {
        let square: f64 = want.iter().map(|want| want * want).sum();
        let scale = (square / want.len().max(1) as f64).sqrt();
        let mut verdict = CheckResult { compared: want.len(), wrong: 0, error: 0.0, tolerance, first: None };
        for (i, (have, want)) in have.iter().zip(want).enumerate() {
            let error = (*have as f64 - want).abs() / want.abs().max(scale).max(f64::MIN_POSITIVE);
            // Not `>`: NaN must fail.
            let right = error <= tolerance;
            verdict.error = if error.is_nan() { f64::INFINITY } else { verdict.error.max(error) };
            if !right {
                verdict.wrong += 1;
                verdict.first.get_or_insert_with(|| mismatch(i, have, want));
            }
        }
        if have.len() != want.len() {
            verdict.wrong += 1;
            verdict.first.get_or_insert_with(|| format!("expected {1} values, found {0}", have.len(), want.len()));
        }
        verdict
    }

    /// Combines two results.
    pub fn and(self, other: CheckResult) -> CheckResult {
        CheckResult {
            compared: self.compared + other.compared,
            wrong: self.wrong + other.wrong,
            error: self.error.max(other.error),
            tolerance: self.tolerance.max(other.tolerance),
            first: self.first.or(other.first),
        }
    }
}

#[cold]
fn mismatch(i: usize, have: &impl fmt::Debug, want: &impl fmt::Debug) -> String {
    format!("value {i} is {have:?}, expected {want:?}")
}

impl fmt::Display for CheckResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.first, self.tolerance) {
            (Some(first), _) => write!(f, "{} of {} wrong: {first}", self.wrong, self.compared),
            (None, 0.0) => write!(f, "exact"),
            (None, tolerance) => write!(f, "error {:.1e} of {tolerance:.0e}", self.error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_wrong_value_is_reported() {
        assert!(CheckResult::exact(&[1, 2], &[1, 2]).passed());
        let verdict = CheckResult::exact(&[1, 5, 6], &[1, 2, 3]);
        assert!(!verdict.passed());
        assert_eq!(verdict.to_string(), "2 of 3 wrong: value 1 is 5, expected 2");
        assert!(!CheckResult::exact::<u32>(&[], &[]).passed(), "comparing nothing does not pass");
        assert!(!CheckResult::exact(&[1], &[1, 2]).passed());
    }

    #[test]
    fn nan_is_never_close() {
        assert!(CheckResult::close(&[1.0, 2.0], &[1.0, 2.0000001], 1e-6).passed());
        assert!(!CheckResult::close(&[1.0, f32::NAN], &[1.0, 2.0], 1e-6).passed());
        assert!(!CheckResult::close(&[1.0, 2.1], &[1.0, 2.0], 1e-6).passed());
        assert!(!CheckResult::close(&[1.0], &[1.0, 2.0], 1e-6).passed());
        assert!(
            CheckResult::close(&[1e-9, 1.0], &[0.0, 1.0], 1e-6).passed(),
            "the error is small relative to the scale"
        );
    }
}
