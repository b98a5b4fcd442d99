//! The text form: what it looks like, that it is read back exactly, and that no text makes the parser panic.

use panoply_ir::builder::Builder;
use panoply_ir::kernel::{Access, Builtin, Guard, Kernel};
use panoply_ir::verify::verify;
use panoply_ir::{Alu, DType, Scalar, Type, hash, text};

/// Every construct of the language once, in the form in which it is printed.
const EVERYTHING: &str = include_str!("data/everything.kernel");

fn saxpy(first_line: u32) -> Kernel {
    let mut b = Builder::new("saxpy");
    let a = b.scalar("a", DType::F32);
    let x = b.buffer("x", DType::F32, Access::In);
    let y = b.buffer("y", DType::F32, Access::InOut);
    b.at("src/x.rs", first_line);
    let i = b.builtin(Builtin::GlobalId(0));
    let i = b.bind("i", i);
    b.at("src/x.rs", first_line + 1);
    let len = b.len(y);
    let inside = b.alu(Alu::Lt, &[i, len]);
    b.begin_if(inside);
    b.at("src/x.rs", first_line + 2);
    let (xi, yi) = (b.load(x, i, Guard::Checked), b.load(y, i, Guard::Proven));
    let product = b.alu(Alu::Mul, &[a, xi]);
    let sum = b.alu(Alu::Add, &[product, yi]);
    b.store(y, i, sum, Guard::Proven);
    b.end();
    b.finish().expect("saxpy is well formed")
}

#[test]
fn reads_like_rust() {
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
fn everything_is_read_back_exactly() {
    let kernel = text::parse(EVERYTHING).unwrap();
    assert_eq!(text::print(&kernel), EVERYTHING);
    verify(kernel).unwrap();
}

#[test]
fn the_hash_forgets_places_and_nothing_else() {
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
fn names_need_be_neither_unique_nor_words() {
    let mut b = Builder::new("a kernel\n\"so\"");
    let x = b.buffer("let", DType::U32, Access::InOut);
    b.at("a file\n.rs", 3);
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
fn every_constant_is_read_back_bit_for_bit() {
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
        ("", "line 1, column 1: `kernel` is expected, but the text ends"),
        ("kernel k() {\n  x = 1\n}", "line 2, column 5: x is unknown here"),
        ("kernel k(a: f31) {}", "line 1, column 13: f31 is no type"),
        ("kernel k(a: f32, a: f32) {}", "line 1, column 24: a is there already; count names as in a.0, a.1"),
        ("kernel k() { let a: u8 = 256u8 }", "line 1, column 26: 256 is no u8"),
        ("kernel k() { let a: f16 = 1e9f16 }", "line 1, column 27: 1e9 is too large for f16"),
        ("kernel k() { let a: u8 = add(1u8, 2i8) }", "line 1, column 40: add: operand types u8 and i8 differ"),
        ("kernel k() { let a: u8 = %1 }", "line 1, column 26: %1 is not defined yet"),
        ("kernel k() { \u{fc} }", "line 1, column 14: this is no word, number or sign of the language"),
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

/// Bytes cut out, doubled, swapped and replaced: an error or a kernel comes back, and what is a kernel prints and parses.
#[test]
fn no_text_makes_the_parser_panic() {
    let mut state = 1_u64;
    let mut random = move |below: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % below
    };
    let pieces: Vec<&str> = EVERYTHING.split_inclusive([' ', '(', '\n', ',']).collect();
    let signs = [
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
    let mut accepted = 0;
    for _ in 0..6_000 {
        let mut mutated: Vec<&str> = pieces.clone();
        for _ in 0..=random(4) {
            if mutated.is_empty() {
                break;
            }
            let (at, other) = (random(mutated.len()), random(mutated.len()));
            match random(5) {
                0 => drop(mutated.remove(at)),
                1 => mutated.insert(at, mutated[other]),
                2 => mutated.swap(at, other),
                3 => mutated[at] = signs[random(signs.len())],
                _ => mutated.truncate(at + 1),
            }
        }
        let mut mutated = mutated.concat();
        if random(2) == 0 {
            let at = random(mutated.len() + 1);
            let at = (0..=at).rev().find(|at| mutated.is_char_boundary(*at)).unwrap_or(0);
            mutated.insert(at, ['0', '.', '"', '%', '-', 'x', '\u{0}', '\u{2028}', '\u{1d11e}'][random(9)]);
        }
        if let Ok(kernel) = text::parse(&mutated) {
            accepted += 1;
            let printed = text::print(&kernel);
            let again = text::parse(&printed).unwrap_or_else(|error| panic!("{printed}\n{error}"));
            assert_eq!(text::print(&again), printed);
            let _ = verify(kernel);
        }
    }
    assert!(accepted > 100, "only {accepted} texts were accepted");
}
