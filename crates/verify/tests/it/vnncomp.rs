//! Files of VNN-COMP: results, counterexamples that read back, and malformed ones.

use panoply_tensor::{Device, Rng, Tensor};
use panoply_verify::attack::uniform;
use panoply_verify::{Counterexample, Verdict, check, vnncomp};

use super::property;

#[test]
fn counterexamples_read_back_as_the_same_numbers() {
    let mut rng = Rng::seed_from_u64(3);
    for _ in 0..200 {
        let mut numbers = |count: usize| -> Vec<f32> {
            let number = |_| f32::from_bits((uniform(&mut rng) * f64::from(u32::MAX)) as u32);
            (0..count).map(number).map(|x| if x.is_finite() { x } else { 1e-40 }).collect()
        };
        let found = Counterexample { input: numbers(5), output: numbers(2) };
        let text = vnncomp::result(&Verdict::Counterexample(found.clone()));
        assert!(text.starts_with("sat\n((X_0 ") && text.ends_with("))\n"), "{text}");
        assert_eq!(vnncomp::parse_input(&text).unwrap(), found.input);
        assert_eq!(vnncomp::parse_input(text.strip_prefix("sat\n").unwrap()).unwrap(), found.input);
    }
    assert_eq!(vnncomp::result(&Verdict::Proven), "unsat\n");
    assert_eq!(vnncomp::result(&Verdict::Undecided("the time limit of 3 s is reached".to_string())), "timeout\n");
    assert_eq!(vnncomp::result(&Verdict::Undecided("no bounds are known".to_string())), "unknown\n");
}

#[test]
fn malformed_counterexamples_are_refused() {
    for (text, expected) in [
        ("", "expected assignments"),
        ("sat", "expected assignments"),
        ("unsat\n", "the verdict is `unsat`; the file contains no counterexample"),
        ("()", "there is no input"),
        ("((X_0 1) (X_2 1))", "X_1 has no value"),
        ("((X_0 1) (X_0 1))", "X_0 has two values"),
        ("((X_0 one))", "has no number"),
        ("((X_0))", "is not a variable with its value"),
        ("((Z_0 1))", "is not a variable `X_i` or `Y_j`"),
        ("((X_99999999999 1))", "index of an input is wrong"),
        ("((X_0 1) 3 (X_1 1))", "unexpected text"),
        ("((X_0 1)", "a bracket is not closed"),
    ] {
        let message = vnncomp::parse_input(text).map_or_else(|message| message, |input| format!("{input:?}"));
        assert!(message.contains(expected), "{text}: {message}");
    }
}

#[test]
fn only_counterexamples_pass_the_check() {
    Device::get("cpu").unwrap().scope(|| {
        let run = |x: &Tensor| Ok(x * 2.0);
        let property = property(2, 2, (0.0, 1.0), "(assert (>= Y_0 1.5))");
        let checked = |x: [f32; 2]| check(&run, [2], &property, &x).unwrap();
        assert_eq!(checked([1.0, 0.0]), Some(Counterexample { input: vec![1.0, 0.0], output: vec![2.0, 0.0] }));
        // Another output, outside of the set, and not a number.
        assert_eq!(checked([0.5, 1.0]), None);
        assert_eq!(checked([1.5, 0.5]), None);
        assert_eq!(checked([f32::NAN, 0.5]), None);
        assert!(check(&run, [2], &property, &[1.0]).unwrap_err().message().contains("has 1 inputs, the property 2"));
    });
}
