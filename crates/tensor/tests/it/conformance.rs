//! Comparison of the results of devices with their oracles.

use panoply_tensor::conformance::{Outcome, Worst};

#[test]
fn errors_are_measured_against_the_largest_number() {
    let worst = Worst::relative(&[vec![1.0, 4.0, f64::NAN]], &[vec![1.5, 4.0, f64::NAN]]).unwrap();
    assert_eq!((worst.error, worst.place.as_str()), (0.125, "element 0 is 1, not 1.5"));
    let worst = Worst::relative(&[vec![f64::NAN]], &[vec![1.0]]).unwrap();
    assert_eq!(worst.error, f64::INFINITY);
    assert!(Worst::relative(&[vec![1.0]], &[vec![1.0, 2.0]]).is_err());
}

#[test]
fn units_in_the_last_place() {
    let next = f64::from(f32::from_bits(1.0f32.to_bits() + 1));
    let ulps = |have: f64, want: f64| Worst::in_ulps(&[0.0], &[have], &[want]).error;
    assert_eq!((ulps(next, 1.0), ulps(1.0, 1.0), ulps(0.0, 1e-40)), (1.0, 0.0, 0.0));
    assert_eq!(ulps(f64::INFINITY, f64::from(f32::MAX)), 1.0);
    assert!(ulps(0.0, 1.0) > 1e6 && ulps(f64::NAN, 0.0) == f64::INFINITY);
}

#[test]
fn failed_outcome_displays_the_location() {
    let worst = Ok(Worst { error: 0.5, place: "element 3 is 1, not 2".to_string() });
    let outcome = Outcome { name: "exp".to_string(), unit: "relative to the largest element", limit: 0.1, worst };
    assert!(!outcome.passed());
    let expected = "maximum error 5.0e-1 relative to the largest element (tolerance 1.0e-1): element 3 is 1, not 2";
    assert_eq!(outcome.to_string(), expected);
}
