//! Tests of optimization passes: each pass on example kernels, and all passes against the interpreter.
//!
//! `opt/<pass>.txt` contains cases: a kernel, `=>`, and the pass's result. `UPDATE_GOLDEN=1` rewrites the results. The
//! interpreter runs every kernel of these files before and after the pass, with equal results.

use std::path::PathBuf;

use panoply_compile::opt::{Options, PASSES, Pass, optimize};
use panoply_ir::kernel::Kernel;
use panoply_ir::verify::verify_proven;
use panoply_ir::{Target, Verified, text};

mod products;
mod random;
mod run;

/// Returns the cases of a file: the texts before and after each arrow.
fn cases(pass: &str) -> (PathBuf, Vec<(String, String)>) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/opt/{pass}.txt"));
    let file = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let case = |text: &str| {
        let (before, after) = text.split_once("=>\n").expect("a case has an arrow");
        (before.to_string(), after.to_string())
    };
    (path, file.split("---\n").map(case).collect())
}

fn kernel(source: &str) -> Verified<Kernel> {
    let kernel = text::parse(source).unwrap_or_else(|error| panic!("{error}\n{source}"));
    proven(kernel).unwrap_or_else(|error| panic!("{error}\n{source}"))
}

/// Verifies a kernel with guards marked as proven.
fn proven(kernel: Kernel) -> panoply_ir::Result<Verified<Kernel>> {
    // SAFETY: no device runs it, only the interpreter, which checks every index.
    unsafe { verify_proven(kernel) }
}

fn check(pass: &Pass) {
    let (path, cases) = cases(pass.name);
    let mut file = Vec::new();
    for (before, after) in cases {
        let made = pass.apply(kernel(&before), &Target::opencl_minimum(), &Options::default());
        run::compare(&kernel(&before), &made);
        let text = made.to_string();
        if std::env::var_os("UPDATE_GOLDEN").is_none() {
            assert!(text == after, "{}: UPDATE_GOLDEN=1 accepts this:\n{before}=>\n{text}", path.display());
        }
        file.push(format!("{before}=>\n{text}"));
    }
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        // Other tests can read the file at the same time.
        let new = path.with_extension("new");
        std::fs::write(&new, file.join("---\n")).expect("the cases can be written");
        std::fs::rename(new, path).expect("the cases can be replaced");
    }
}

#[test]
fn passes_match_their_cases() {
    PASSES.iter().map(|pass| pass.name).collect::<std::collections::BTreeSet<_>>().into_iter().for_each(|name| {
        check(PASSES.iter().find(|pass| pass.name == name).expect("the name is that of a pass"));
    });
}

#[test]
fn all_passes_together_preserve_results() {
    for pass in PASSES {
        for (before, _) in cases(pass.name).1 {
            for target in [Target::cpu(), Target::opencl_minimum()] {
                run::compare(&kernel(&before), &optimize(kernel(&before), &target, &Options::default()));
            }
        }
    }
}

/// Any amount of fuel preserves the results.
#[test]
fn any_fuel_preserves_results() {
    for pass in PASSES {
        for (before, _) in cases(pass.name).1 {
            for fuel in 0..40 {
                let options = Options { fuel: Some(fuel) };
                run::compare(&kernel(&before), &optimize(kernel(&before), &Target::opencl_minimum(), &options));
            }
        }
    }
}

/// Returns a kernel's text without unused arrays, whose removal uses no fuel.
fn compacted(kernel: &Kernel) -> String {
    let text = text::print(kernel);
    let unused = |line: &str| {
        let declared = line.trim_start().strip_prefix("shared ").or(line.trim_start().strip_prefix("private "));
        let name = declared.and_then(|rest| rest.split_once(':')).map(|(name, _)| name);
        name.is_some_and(|name| !text.contains(&format!("{name}[")) && !text.contains(&format!("len({name})")))
    };
    text.lines().filter(|line| !unused(line)).map(|line| format!("{line}\n")).collect()
}

/// Without fuel a kernel is unchanged, and with sufficient fuel the result is the same as without a limit.
#[test]
fn zero_fuel_makes_no_rewrites() {
    let target = Target::opencl_minimum();
    for pass in PASSES {
        for (before, _) in cases(pass.name).1 {
            let with = |fuel| pass.apply(kernel(&before), &target, &Options { fuel }).to_string();
            let all = |fuel| optimize(kernel(&before), &target, &Options { fuel }).to_string();
            assert_eq!(compacted(&kernel(&with(Some(0)))), compacted(&kernel(&before)), "{}", pass.name);
            assert_eq!(compacted(&kernel(&all(Some(0)))), compacted(&kernel(&before)), "all passes");
            assert_eq!((with(Some(1000)), all(Some(1000))), (with(None), all(None)), "{}", pass.name);
        }
    }
}

/// For each pass a body, of which three copies are rewritten, and a text whose number of occurrences changes by one
/// with each rewrite.
const THREEFOLD: &[(&str, &str, &str)] = &[
    ("fold", "x[N] = add(Nu32, 7u32)", "add("),
    ("dce", "let unread.N: u32 = x[N]", "unread"),
    ("unroll", "for jN: u32 in 0u32..2u32 { x[N] = jN }", "for "),
    ("bounds", "if lt(add(a, N), len(x)) { x[add(a, N)] = 1u32 }", "proven"),
    ("guards", "if lt(a, N) { x[add(a, N)] = add(x[add(a, N)], 1u32) }", "len(x)"),
    ("licm", "for jN: index in 0..a { y[jN] = exp(cast<f32>(add(a, N))) }", "let fixed"),
    ("cse", "y[N] = exp(cast<f32>(add(a, N))) y[add(N, 3)] = exp(cast<f32>(add(a, N)))", "let common"),
];

/// The number of rewrites equals the units of fuel.
#[test]
fn a_unit_of_fuel_is_one_rewrite() {
    for pass in PASSES {
        let (name, body, word) = THREEFOLD.iter().find(|(name, ..)| *name == pass.name).expect("every pass has a row");
        let bodies: String = (0..3).map(|place| body.replace('N', &place.to_string()) + "\n").collect();
        let source = format!("kernel k(a: index, x: &mut [u32], y: &mut [f32]) {{\n{bodies}}}");
        let count = |fuel: u32| {
            let made =
                pass.apply(kernel(&source), &Target::opencl_minimum(), &Options { fuel: Some(fuel) }).to_string();
            made.lines().filter(|line| line.contains(word)).count()
        };
        let rewritten: Vec<usize> = (0..5).map(|fuel| count(fuel).abs_diff(count(0))).collect();
        assert_eq!(rewritten, [0, 1, 2, 3, 3], "{name}");
    }
}
