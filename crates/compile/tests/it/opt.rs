//! Passes, each on kernels before and after, and all of them against the interpreter.
//!
//! `opt/<pass>.txt` holds cases: a kernel, `=>`, and what the pass makes of it. `UPDATE_GOLDEN=1` rewrites what stands behind
//! the arrows. Every kernel of these files is run before and after by the interpreter, which must see no difference.

use std::path::PathBuf;

use panoply_compile::opt::{Options, PASSES, Pass, optimize};
use panoply_ir::kernel::Kernel;
use panoply_ir::verify::verify_proven;
use panoply_ir::{Target, Verified, text};

mod products;
mod random;
mod run;

/// The cases of a file: what stands before and behind each arrow.
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

/// Verifies a kernel some of whose guards were proven.
fn proven(kernel: Kernel) -> panoply_ir::Result<Verified<Kernel>> {
    // SAFETY: no device runs it, only the interpreter, which compares every index.
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
        // Other tests read the file at any time.
        let new = path.with_extension("new");
        std::fs::write(&new, file.join("---\n")).expect("the cases can be written");
        std::fs::rename(new, path).expect("the cases can be replaced");
    }
}

#[test]
fn every_pass_does_what_its_cases_say() {
    PASSES.iter().map(|pass| pass.name).collect::<std::collections::BTreeSet<_>>().into_iter().for_each(|name| {
        check(PASSES.iter().find(|pass| pass.name == name).expect("it is one of them"));
    });
}

#[test]
fn all_passes_together_keep_the_meaning() {
    for pass in PASSES {
        for (before, _) in cases(pass.name).1 {
            for target in [Target::cpu(), Target::opencl_minimum()] {
                run::compare(&kernel(&before), &optimize(kernel(&before), &target, &Options::default()));
            }
        }
    }
}

/// With any fuel the kernel means the same.
#[test]
fn fuel_stops_anywhere() {
    for pass in PASSES {
        for (before, _) in cases(pass.name).1 {
            for fuel in 0..40 {
                let options = Options { fuel: Some(fuel) };
                run::compare(&kernel(&before), &optimize(kernel(&before), &Target::opencl_minimum(), &options));
            }
        }
    }
}

/// A kernel's text without arrays that nothing names, which cost no fuel.
fn compacted(kernel: &Kernel) -> String {
    let text = text::print(kernel);
    let unused = |line: &str| {
        let declared = line.trim_start().strip_prefix("shared ").or(line.trim_start().strip_prefix("private "));
        let name = declared.and_then(|rest| rest.split_once(':')).map(|(name, _)| name);
        name.is_some_and(|name| !text.contains(&format!("{name}[")) && !text.contains(&format!("len({name})")))
    };
    text.lines().filter(|line| !unused(line)).map(|line| format!("{line}\n")).collect()
}

/// Without fuel a kernel stays as it is, and with enough it becomes what it becomes without a limit.
#[test]
fn no_fuel_is_no_rewrite() {
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

/// Each pass on three places that it rewrites, `body` behind one another, with a word of which each rewrite takes one away or adds one.
const THREEFOLD: &[(&str, &str, &str)] = &[
    ("fold", "x[N] = add(Nu32, 7u32)", "add("),
    ("dce", "let unread.N: u32 = x[N]", "unread"),
    ("unroll", "for jN: u32 in 0u32..2u32 { x[N] = jN }", "for "),
    ("bounds", "if lt(add(a, N), len(x)) { x[add(a, N)] = 1u32 }", "proven"),
    ("guards", "if lt(a, N) { x[add(a, N)] = add(x[add(a, N)], 1u32) }", "len(x)"),
    ("licm", "for jN: index in 0..a { y[jN] = exp(cast<f32>(add(a, N))) }", "let fixed"),
    ("cse", "y[N] = exp(cast<f32>(add(a, N))) y[add(N, 3)] = exp(cast<f32>(add(a, N)))", "let common"),
];

/// So many units of fuel, so many rewrites: neither more nor fewer.
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
