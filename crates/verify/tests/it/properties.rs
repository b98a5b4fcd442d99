//! Parsing of VNN-LIB files, and errors with line and column.

#[path = "../../../nn/tests/it/file_formats/fuzz/limited.rs"]
pub mod limited;

use panoply_verify::{Interval, vnnlib};

use limited::{FULL, Random, each_seed, in_child, mutate};

const DECLARED: &str = "; a comment\n(declare-const X_0 Real)\n(declare-const X_1 Real)\n(declare-const Y_0 Real)\n(declare-const Y_1 Real)\n";
const BOX: &str = "(assert (<= X_0 0.5))(assert (>= X_0 -0.45))(assert (and (<= X_1 1) (>= X_1 0)))\n";

fn error(text: &str) -> String {
    vnnlib::parse(text).map(|_| ()).unwrap_err().message().to_string()
}

#[test]
fn boxes_and_constraints_are_read() {
    let property =
        vnnlib::parse(&format!("{DECLARED}{BOX}(assert (<= Y_0 Y_1))(assert (>= (+ (* 2 Y_0) X_1 -0.5) (- Y_1)))"))
            .unwrap();
    assert_eq!((property.inputs, property.outputs, property.cases.len()), (2, 2, 1));
    let case = &property.cases[0];
    // A decimal that is not representable is enclosed; the outer range contains it.
    let outer = case.ranges[0].outer();
    assert!(outer.lo < -0.45 && outer.hi == 0.5, "{outer:?}");
    assert!(case.ranges[0].contains(0.5) && !case.ranges[0].contains(-0.45) && case.ranges[0].contains(-0.449));
    assert_eq!(case.ranges[1].outer(), Interval { lo: 0.0, hi: 1.0 });
    let point = Interval::point;
    assert_eq!(case.constraints[0].output, [point(1.0), point(-1.0)]);
    // 2·Y_0 + X_1 - 0.5 ≥ -Y_1 is -Y_1 - 2·Y_0 - X_1 + 0.5 ≤ 0.
    let second = &case.constraints[1];
    assert_eq!(
        (&second.output[..], &second.input[..]),
        (&[point(-2.0), point(-1.0)][..], &[point(0.0), point(-1.0)][..])
    );
    assert_eq!(second.constant, point(0.5));
    let value = second.value(&[point(0.0), point(1.0)], &[point(3.0), point(4.0)]);
    assert!(value.lo <= -10.5 && value.hi >= -10.5 && value.hi - value.lo < 1e-12, "{value:?}");
}

#[test]
fn alternatives_become_cases() {
    let asserted =
        "(assert (or (and (<= X_1 0.25)) (and (>= X_1 0.75))))(assert (or (<= Y_0 0) (and (<= Y_1 0) (>= Y_0 1))))";
    let property = vnnlib::parse(&format!("{DECLARED}{BOX}{asserted}")).unwrap();
    let shown: Vec<(f64, f64, usize)> = property
        .cases
        .iter()
        .map(|case| (case.ranges[1].outer().lo, case.ranges[1].outer().hi, case.constraints.len()))
        .collect();
    assert_eq!(shown, [(0.0, 0.25, 1), (0.0, 0.25, 2), (0.75, 1.0, 1), (0.75, 1.0, 2)]);
    // A case that is certainly empty is dropped, and a property without cases is an error.
    let half = "(assert (or (and (<= X_1 -1) (<= Y_0 0)) (<= Y_1 0)))";
    assert_eq!(vnnlib::parse(&format!("{DECLARED}{BOX}{half}")).unwrap().cases.len(), 1);
    let none = format!("{DECLARED}{BOX}(assert (<= X_1 -1))(assert (<= Y_0 0))");
    assert!(error(&none).contains("the set of inputs is empty"), "{}", error(&none));
}

#[test]
fn errors_name_line_and_column() {
    let many = "(".repeat(100);
    let wide = (0..20).map(|_| "(assert (or (<= Y_0 0) (<= Y_1 0)))").collect::<String>();
    for (text, expected) in [
        ("(declare-const X_0 Real", "1:1: unclosed bracket"),
        ("\n )", "2:2: unexpected `)`"),
        ("(declare-const Z_0 Real)", "1:16: `Z_0` is not a variable"),
        ("(declare-const X_99999999999999999999 Real)", "is not a variable"),
        ("(declare-const X_0 Real)(declare-const X_0 Real)", "1:40: `X_0` is declared twice"),
        ("(declare-const X_1 Real)(declare-const Y_0 Real)", "X_0 is not declared"),
        ("(declare-fun X_0 () Real)", "expected `(declare-const NAME Real)` or `(assert …)`"),
        (&many, "1:65: more than 64 nested brackets"),
        (&format!("{DECLARED}(assert (<= X_7 0))"), "6:13: `X_7` is not declared"),
        (&format!("{DECLARED}(assert (< X_0 0))"), "6:9: expected `<=`, `>=`, `and` or `or`"),
        (&format!("{DECLARED}(assert (<= X_0 zero))"), "6:17: `zero` is not a number"),
        (&format!("{DECLARED}(assert (<= X_0 nan))"), "6:17: `nan` is not a number"),
        (&format!("{DECLARED}(assert (<= (* Y_0 Y_1) 1))"), "6:13: a product of two variables is not linear"),
        (&format!("{DECLARED}(assert (<= X_0 1))(assert (<= Y_0 0))"), "X_0 has no lower bound"),
        (&format!("{DECLARED}{BOX}(assert (<= X_0 X_1))(assert (<= Y_0 0))"), "several inputs"),
        (&format!("{DECLARED}{BOX}"), "no comparison of an output"),
        (&format!("{DECLARED}{BOX}(assert (or))"), "has 0 operands"),
        (&format!("{DECLARED}{BOX}{wide}"), "more than 16384 cases"),
        (&format!("{DECLARED}{BOX}()"), "expected `(declare-const"),
        ("word", "1:1: unexpected `word`"),
    ] {
        let message = error(text);
        assert!(message.contains(expected), "{expected}: {message}");
    }
}

/// Mutated texts, also compressed, are parsed or rejected in a process with little memory: 300 of each, or 200,000 with
/// `PANOPLY_TEST_FULL=1`.
#[test]
fn mutated_files_are_read_or_refused() {
    let Some(folder) = in_child("properties::mutated_files_are_read_or_refused", "64MiB") else { return };
    let text = format!("{DECLARED}{BOX}(assert (or (<= (* 2.5e-1 Y_0) Y_1) (and (>= (- Y_0 X_1) 0.3))))");
    for (name, bytes) in [("a.vnnlib", text.clone().into_bytes()), ("a.vnnlib.gz", packed(text.as_bytes()))] {
        let path = folder.join(name);
        each_seed(&folder, name, 25 * FULL, |seed| {
            let mut bytes = bytes.clone();
            mutate(&mut bytes, &mut Random(seed));
            std::fs::write(&path, bytes).unwrap();
            if let Err(error) = vnnlib::read(&path) {
                assert!(!error.message().is_empty(), "{name}, seed {seed}");
            }
        });
    }
}

/// Small files that would become much: alternatives multiply, each with the range of every input.
#[test]
fn a_property_takes_no_more_memory_than_the_limit() {
    let Some(folder) = in_child("properties::a_property_takes_no_more_memory_than_the_limit", "64MiB") else { return };
    let path = folder.join("a.vnnlib.gz");
    let refused = |text: &str| {
        std::fs::write(&path, packed(text.as_bytes())).unwrap();
        let error = vnnlib::read(&path).unwrap_err().to_string();
        assert!(error.contains("a.vnnlib.gz: reading it takes more than 64 MiB of memory"), "{error}");
    };
    refused(&" ".repeat(100 << 20));
    refused(&"x ".repeat(1 << 20));
    refused(&format!("{DECLARED}(assert (and {}))", "(<= X_0 1)".repeat(100_000)));
    let inputs = |line: fn(usize) -> String| (0..2000).map(line).collect::<String>();
    let declared = inputs(|n| format!("(declare-const X_{n} Real)")) + "(declare-const Y_0 Real)";
    let ranges = inputs(|n| format!("(assert (<= X_{n} 1))(assert (>= X_{n} 0))"));
    let or = "(assert (or (<= Y_0 0) (>= Y_0 1)))";
    let property = |alternatives: usize| format!("{declared}{}{ranges}", or.repeat(alternatives));
    std::fs::write(&path, packed(property(6).as_bytes())).unwrap();
    assert_eq!(vnnlib::read(&path).unwrap().cases.len(), 64);
    refused(&property(8));
    // 8,192 cases of 4,000 comparisons each.
    std::fs::write(&path, packed(property(13).as_bytes())).unwrap();
    let error = vnnlib::read(&path).unwrap_err();
    assert!(error.message().contains("more than 16384 cases or 1048576 comparisons"), "{error}");
}

/// A conjunction is joined without copies: as many steps as comparisons, where copies would take seconds.
#[test]
fn long_conjunctions_are_read_in_linear_time() {
    let ranges = "(assert (<= X_0 1))".repeat(100_000);
    let property = vnnlib::parse(&format!("{DECLARED}{BOX}{ranges}{}(assert (<= Y_0 0))", "(assert (and))".repeat(99)));
    assert_eq!(property.unwrap().cases.len(), 1);
}

/// Compresses with gzip.
fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    std::io::Write::write_all(&mut packed, bytes).unwrap();
    packed.finish().unwrap()
}

#[test]
fn packed_files_are_read() {
    let path = std::env::temp_dir().join(format!("panoply-verify-{}.vnnlib.gz", std::process::id()));
    std::fs::write(&path, packed(format!("{DECLARED}{BOX}(assert (<= Y_0 0))").as_bytes())).unwrap();
    assert_eq!(vnnlib::read(&path).unwrap().cases.len(), 1);
    std::fs::write(&path, b"no gzip").unwrap();
    assert!(vnnlib::read(&path).is_err());
    std::fs::remove_file(&path).unwrap();
    assert!(vnnlib::read(&path).unwrap_err().message().starts_with("cannot read"));
}
