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
        assert_eq!(vnncomp::parse(&text).unwrap(), found);
        assert_eq!(vnncomp::parse(text.strip_prefix("sat\n").unwrap()).unwrap(), found);
    }
    assert_eq!(vnncomp::result(&Verdict::Proven), "unsat\n");
    assert_eq!(vnncomp::result(&Verdict::Undecided("the time limit of 3 s is reached".to_string())), "timeout\n");
    assert_eq!(vnncomp::result(&Verdict::Undecided("no bounds are known".to_string())), "unknown\n");
}

#[test]
fn malformed_counterexamples_are_refused() {
    for (text, expected) in [
        ("", "1:1: expected assignments such as `((X_0 0.5) (X_1 1))`, found the end of the file"),
        ("sat\n", "2:1: expected assignments"),
        ("(X_0 1)", "1:2: expected `(` or `)`, found `X_0`"),
        ("unsat\n", "1:1: the verdict is `unsat`; the file contains no counterexample"),
        ("()", "1:3: the assignments have no input `X_0`"),
        ("((Y_0 1))", "1:10: the assignments have no input `X_0`"),
        ("((X_0 1) (X_2 1))", "1:18: X_1 has no value"),
        ("((X_0 1) (Y_1 1))", "1:18: Y_0 has no value"),
        ("((X_0 1)\n(X_0 1))", "2:2: X_0 has two values"),
        ("sat\n((X_0 one))", "2:7: expected the value of X_0, found `one`"),
        ("((X_0))", "1:6: expected the value of X_0, found `)`"),
        ("((X_0 1 2))", "1:9: expected `)` after the value of X_0, found `2`"),
        ("((Z_0 1))", "1:3: expected a variable `X_i` or `Y_j`, found `Z_0`"),
        ("((X_99999999999 1))", "1:3: the index of `X_99999999999` is not a number below 1048576"),
        ("((X_+1 1))", "1:3: the index of `X_+1` is not a number below 1048576"),
        ("((X_0 1) 3 (X_1 1))", "1:10: expected `(` or `)`, found `3`"),
        ("((X_0 1)", "1:9: expected `(` or `)`, found the end of the file"),
        ("((X_0 1))\n é (X_1 1)", "2:2: expected the end of the file after the assignments, found `é`"),
    ] {
        let message = vnncomp::parse(text).map_or_else(|message| message, |found| format!("{found:?}"));
        assert!(message.starts_with(expected), "{text}: {message}");
    }
}

#[test]
fn results_are_recognized_by_their_first_characters() {
    for text in ["sat\n((X_0 1))", "\n sat (", "((X_0 1))", "( (\nY_0 1))", "unsat\n", "timeout", " unknown"] {
        assert!(vnncomp::is_result(text), "{text}");
    }
    for text in ["", "sat", "sat,sun\n1,2\n", "saturday (evening)", "(X_0 1)", "((Z_0 1))", "unsatisfied", "a,b\n1,2\n"]
    {
        assert!(!vnncomp::is_result(text), "{text}");
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
