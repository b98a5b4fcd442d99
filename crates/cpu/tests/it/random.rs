//! Random kernels: the interpreter and the vector machine agree, with every instruction set of this machine.
//!
//! All tests together check 380 kernels, or 12,920 with `PANOPLY_TEST_FULL=1`. A failure reports the seed.

use std::sync::Arc;

use differential::executed;
use panoply_cpu::vm::launch::Compiled;
use panoply_host::isa::Isa;
use panoply_host::pool::Pool;
use panoply_ir::kernel::Param;
use panoply_ir::random::{self, Case, Options};

use crate::support::differential;

/// Returns the number of kernels that a run checks.
fn count(usual: u64) -> u64 {
    let full = std::env::var("PANOPLY_TEST_FULL").is_ok_and(|value| value == "1");
    if full { usual * 34 } else { usual }
}

/// Returns a description of how two executors disagree about a case, if they do.
fn disagreement(case: &Case, isa: Isa, pool: &Pool) -> Option<String> {
    let expected = match case.interpret(1) {
        Ok(expected) => expected,
        Err(error) => return Some(format!("{error}")),
    };
    let compiled = match Compiled::new(Arc::new(case.kernel.clone()), isa) {
        Ok(compiled) => compiled,
        Err(error) => return Some(format!("{error}")),
    };
    let mut buffers = executed(&compiled, pool, case.grid, &case.args).into_iter();
    let mut found = Vec::new();
    for param in &case.kernel.params {
        found.push(match param {
            Param::Buffer(_) => buffers.next().expect("there is a buffer for each buffer parameter"),
            Param::Scalar { .. } => Vec::new(),
        });
    }
    let message = case.compare(&expected, &found, 4.0).err()?;
    Some(format!("{message}\n{isa}, {} threads, {:?}\n{}", pool.threads(), case.grid, compiled.program()))
}

fn agree(first: u64, usual: u64, options: &Options) {
    let pools = [Pool::new(1), Pool::new(2)];
    let isas = Isa::available();
    for seed in first..first + count(usual) {
        let case = random::case(seed, options);
        for isa in &isas {
            for pool in &pools {
                if disagreement(&case, *isa, pool).is_some() {
                    let smaller = case.shrink(|case| disagreement(case, *isa, pool).is_some());
                    panic!("seed {seed}: {}", disagreement(&smaller, *isa, pool).expect("it still fails"));
                }
            }
        }
    }
}

#[test]
fn random_kernels_agree() {
    agree(0, 300, &Options::default());
}

#[test]
fn random_kernels_with_functions_agree() {
    agree(100_000, 60, &Options { transcendentals: true, ..Options::default() });
}

#[test]
fn long_random_kernels_agree() {
    agree(200_000, 20, &Options { statements: 120, ..Options::default() });
}
