//! The text form: its format, exact round trips, and robustness of the parser.

use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use panoply_ir::builder::Builder;
use panoply_ir::kernel::{Access, Builtin, Guard, Kernel};
use panoply_ir::random::Random;
use panoply_ir::verify::{verify, verify_proven};
use panoply_ir::{Alu, DType, Scalar, Type, hash, text};

/// Maximum time per text.
const SECOND: Duration = Duration::from_secs(1);

/// Every construct of the language once, in the form in which it is printed.
const EVERYTHING: &str = include_str!("../data/everything.kernel");

fn saxpy(first_line: u32) -> Kernel {
    let mut b = Builder::new("saxpy");
    let a = b.scalar("a", DType::F32);
    let x = b.buffer("x", DType::F32, Access::In);
    let y = b.buffer("y", DType::F32, Access::InOut);
    b.loc("src/x.rs", first_line);
    let i = b.builtin(Builtin::GlobalId(0));
    let i = b.bind("i", i);
    b.loc("src/x.rs", first_line + 1);
    let len = b.len(y);
    let inside = b.alu(Alu::Lt, &[i, len]);
    b.begin_if(inside);
    b.loc("src/x.rs", first_line + 2);
    let (xi, yi) = (b.load(x, i, Guard::Checked), b.load(y, i, Guard::Proven));
    let product = b.alu(Alu::Mul, &[a, xi]);
    let sum = b.alu(Alu::Add, &[product, yi]);
    b.store(y, i, sum, Guard::Proven);
    b.end();
    b.finish().expect("saxpy is well formed")
}

#[test]
fn text_form_resembles_rust() {
    let expected = "\
kernel saxpy(a: f32, x: &[f32], y: &mut [f32]) {
    let i: index = global_id.x //@ src/x.rs:12
    if lt(i, len(y)) { //@ src/x.rs:13
        y[proven i] = add(mul(a, x[i]), y[proven i]) //@ src/x.rs:14
    }
}
";
    assert_eq!(saxpy(12).to_string(), expected);
}

#[test]
fn every_construct_round_trips() {
    let kernel = text::parse(EVERYTHING).unwrap();
    assert_eq!(text::print(&kernel), EVERYTHING);
    // SAFETY: the kernel is never run.
    unsafe { verify_proven(kernel) }.unwrap();
}

#[test]
fn hash_ignores_only_locations() {
    assert_eq!(hash(&saxpy(12)), hash(&saxpy(99)));
    let kernel = saxpy(12);
    let changed = text::print(&kernel).replace("add(", "sub(");
    assert_ne!(hash(&kernel), hash(&text::parse(&changed).unwrap()));
}

#[test]
fn shared_and_deep_expressions_stay_linear() {
    let mut b = Builder::new("deep");
    let y = b.buffer("y", DType::F32, Access::InOut);
    let i = b.builtin(Builtin::GlobalId(0));
    let mut value = b.load(y, i, Guard::Checked);
    for _ in 0..20_000 {
        value = b.alu(Alu::Mul, &[value, value]);
    }
    b.store(y, i, value, Guard::Checked);
    let kernel = b.finish().unwrap();
    let printed = text::print(&kernel);
    assert!(printed.len() < 20_000 * 40, "{} bytes", printed.len());
    assert_eq!(text::print(&text::parse(&printed).unwrap()), printed);
}

#[test]
fn names_can_repeat_and_need_quoting() {
    let mut b = Builder::new("a kernel\n\"so\"");
    let x = b.buffer("let", DType::U32, Access::InOut);
    b.loc("a file\n.rs", 3);
    let i = b.builtin(Builtin::GlobalId(0));
    let first = b.load(x, i, Guard::Checked);
    let first = b.bind("x", first);
    let second = b.alu(Alu::Add, &[first, first]);
    let second = b.bind("x", second);
    let third = b.bind("größe", second);
    b.store(x, i, third, Guard::Checked);
    let kernel = b.finish().unwrap();
    let expected = r#"kernel "a kernel\n\"so\""("let": &mut [u32]) {
    let x.0: u32 = "let"[global_id.x] //@ "a file\n.rs":3
    let x.1: u32 = add(x.0, x.0) //@ "a file\n.rs":3
    let "gr\u{f6}\u{df}e": u32 = x.1 //@ "a file\n.rs":3
    "let"[global_id.x] = "gr\u{f6}\u{df}e" //@ "a file\n.rs":3
}
"#;
    assert_eq!(text::print(&kernel), expected);
    let back = text::parse(expected).unwrap();
    assert_eq!(text::print(&back), expected);
    assert_eq!((back.name.as_str(), back.locals[2].name.as_str()), ("a kernel\n\"so\"", "größe"));
}

#[test]
fn constants_round_trip_bitwise() {
    let mut bits: Vec<u64> = (0..64).flat_map(|shift| [1 << shift, !0 >> shift, !(1 << shift)]).collect();
    bits.extend([0, 0x3dcccccd, 0x3fb999999999999a, 0x7f800001, 0x7fc00001, 0x7ff0000000000001, 0x7e01, 0x7fc1]);
    for dtype in DType::ALL {
        for bits in &bits {
            let mask = u64::MAX >> (64 - dtype.bits());
            let value = Scalar { dtype, bits: bits & mask };
            let mut b = Builder::new("k");
            let constant = b.constant(value);
            b.bind("c", constant);
            let printed = text::print(&b.finish().unwrap());
            let back = text::parse(&printed).unwrap_or_else(|error| panic!("{printed}{error}"));
            let found = back
                .exprs
                .iter()
                .any(|(_, expr, ty)| expr == panoply_ir::kernel::Expr::Const(value) && ty == Type::Scalar(dtype));
            assert!(found, "{printed}");
        }
    }
}

#[test]
fn errors_name_line_and_column() {
    let cases = [
        ("", "line 1, column 1: expected `kernel`, but the text ends"),
        ("kernel k() {\n  x = 1\n}", "line 2, column 5: x is not defined here"),
        ("kernel k(a: f31) {}", "line 1, column 13: f31 is not a type"),
        (
            "kernel k(a: f32, a: f32) {}",
            "line 1, column 24: a is already defined; number repeated names as in a.0, a.1",
        ),
        ("kernel k() { let a: u8 = 256u8 }", "line 1, column 26: 256 is not a valid u8"),
        ("kernel k() { let a: f16 = 1e9f16 }", "line 1, column 27: 1e9 is too large for f16"),
        ("kernel k() { let a: u8 = add(1u8, 2i8) }", "line 1, column 40: add: operand types u8 and i8 differ"),
        ("kernel k() { let a: f32x4 = group_mma<index>(a) }", "line 1, column 45: matrices have elements, not indices"),
        ("kernel k() { let a: f32x4 = group_mma<f16>(1u32) }", "line 1, column 48: expected `,`"),
        ("kernel k() { let a: u8 = %1 }", "line 1, column 26: %1 is not defined yet"),
        ("kernel k() { \u{fc} }", "line 1, column 14: invalid token"),
    ];
    for (text, expected) in cases {
        let error = text::parse(text).unwrap_err();
        assert!(error.is_corrupt());
        assert_eq!(error.message(), format!("kernel text, {expected}"), "{text}");
    }
    let blocks = format!("kernel k() {{ {} }}", "if true { ".repeat(100_000));
    assert!(text::parse(&blocks).unwrap_err().message().contains("blocks nest deeper than 64"));
    let exprs = format!("kernel k() {{ let a: u8 = {}", "neg(".repeat(100_000));
    assert!(text::parse(&exprs).unwrap_err().message().contains("expressions nest deeper than 64"));
}

/// Returns the kernel texts of this repository: every construct, the renderers' golden files, and the inputs of the optimizer tests.
fn sources() -> Vec<String> {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../compile/tests");
    let files = |folder: &str, ending: &str| -> Vec<String> {
        let files = std::fs::read_dir(tests.join(folder)).expect("the folder exists").flatten().map(|file| file.path());
        let mut files: Vec<PathBuf> =
            files.filter(|path| path.extension().is_some_and(|known| known == ending)).collect();
        files.sort();
        files.iter().map(|path| std::fs::read_to_string(path).expect("the file is text")).collect()
    };
    let cases = files("opt", "txt").concat();
    let cases = cases.split("---\n").flat_map(|case| case.split("=>\n")).map(str::to_string);
    [EVERYTHING.to_string()].into_iter().chain(files("golden", "ir")).chain(cases).collect()
}

/// Returns a text with words removed, duplicated, swapped and replaced, and in every second text also bytes.
fn mutated(seed: u64, sources: &[String]) -> String {
    const SIGNS: &[&str] = &[
        "(",
        ")",
        "{",
        "}",
        "[",
        "%0",
        ":=",
        "..",
        "-",
        "0x",
        "\"",
        "\\",
        ".",
        "//@ :",
        "f32::",
        "ß",
        "99999999999999999999",
    ];
    let mut random = Random::new(seed);
    let mut below = move |count: usize| random.below(count.max(1) as u64) as usize;
    let source = &sources[below(sources.len())];
    let mut words: Vec<&str> = source.split_inclusive([' ', '(', '\n', ',']).collect();
    for _ in 0..below(5) {
        let (at, other) = (below(words.len()), below(words.len()));
        match below(5) {
            _ if words.is_empty() => {}
            0 => drop(words.remove(at)),
            1 => words.insert(at, words[other]),
            2 => words.swap(at, other),
            3 => words[at] = SIGNS[below(SIGNS.len())],
            _ => words.truncate(at + 1),
        }
    }
    let mut bytes = words.concat().into_bytes();
    for _ in 0..below(2) * below(6) {
        let at = below(bytes.len());
        match below(4) {
            _ if bytes.is_empty() => {}
            0 => drop(bytes.remove(at)),
            1 => bytes.insert(at, below(256) as u8),
            2 => bytes[at] ^= 1 << below(8),
            _ => bytes[at] = b"0.\"%-x\0(}"[below(9)],
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Parses a text. If it is a kernel, checks that it round-trips and returns true.
fn is_accepted(text: &str) -> bool {
    let Ok(kernel) = text::parse(text) else { return false };
    let printed = text::print(&kernel);
    let again = text::parse(&printed).unwrap_or_else(|error| panic!("{printed}\n{error}"));
    assert_eq!(text::print(&again), printed);
    let _ = verify(kernel);
    true
}

/// `PANOPLY_TEST_SEED` sets the first seed; `PANOPLY_TEST_FULL=1` runs ten times the number of texts.
#[test]
fn parser_never_panics() {
    let variable = |name: &str| std::env::var(name).ok();
    let first: u64 = variable("PANOPLY_TEST_SEED").map_or(1, |seed| seed.parse().expect("a number"));
    let full = variable("PANOPLY_TEST_FULL").is_some_and(|value| value == "1");
    let count = if full { 60_000 } else { 6_000 };
    println!("seeds from {first} on");
    let (sources, mut accepted) = (sources(), 0);
    for seed in first..first + count {
        let text = mutated(seed, &sources);
        let timed = || {
            let started = Instant::now();
            let accepted = catch_unwind(|| is_accepted(&text));
            (accepted.unwrap_or_else(|_| panic!("seed {seed}\n{text}")), started.elapsed())
        };
        let (is_kernel, took) = timed();
        // Retries once, because the test can have been interrupted.
        assert!(took < SECOND || timed().1 < SECOND, "seed {seed} takes {took:?}\n{text}");
        accepted += u64::from(is_kernel);
    }
    assert!(accepted > count / 60, "only {accepted} of {count} texts were accepted");
}
