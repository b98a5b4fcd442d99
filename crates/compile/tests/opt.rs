//! Passes, each on kernels before and after, and all of them against the interpreter.
//!
//! `opt/<pass>.txt` holds cases: a kernel, `=>`, and what the pass makes of it. `UPDATE_GOLDEN=1` rewrites what stands behind
//! the arrows. Every kernel of these files is run before and after by the interpreter, which must see no difference.

use std::path::PathBuf;

use panoply_compile::opt::{Options, PASSES, Pass, optimize};
use panoply_ir::kernel::Kernel;
use panoply_ir::verify::verify;
use panoply_ir::{Target, Verified, text};

#[path = "opt/random.rs"]
mod random;
#[path = "opt/run.rs"]
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
    verify(kernel).unwrap_or_else(|error| panic!("{error}\n{source}"))
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

/// With any fuel the kernel means the same, with none it is the same.
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
