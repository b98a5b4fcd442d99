//! Random kernels: the interpreter and the vector machine agree, with every instruction set of this machine.

mod common;

use std::sync::Arc;

use common::executed;
use panoply_cpu::pool::Pool;
use panoply_cpu::vm::isa::Isa;
use panoply_cpu::vm::launch::Compiled;
use panoply_ir::kernel::Param;
use panoply_ir::random::{self, Options};

/// How many kernels a run looks at; more with `PANOPLY_RANDOM_KERNELS`.
fn count(usual: u64) -> u64 {
    std::env::var("PANOPLY_RANDOM_KERNELS").ok().and_then(|count| count.parse().ok()).unwrap_or(usual)
}

fn agree(first: u64, usual: u64, options: &Options) {
    let pools = [Pool::new(1), Pool::new(2)];
    let isas = Isa::available();
    for seed in first..first + count(usual) {
        let case = random::case(seed, options);
        let expected = case.interpret().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        for isa in &isas {
            let compiled = Compiled::new(Arc::new(case.kernel.clone()), *isa);
            let compiled = compiled.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            for pool in &pools {
                let mut buffers = executed(&compiled, pool, case.grid, &case.args).into_iter();
                let found: Vec<Vec<u8>> = case
                    .kernel
                    .params
                    .iter()
                    .map(|param| match param {
                        Param::Buffer(_) => buffers.next().expect("one for each"),
                        Param::Scalar { .. } => Vec::new(),
                    })
                    .collect();
                if let Err(message) = case.compare(&expected, &found, 4.0) {
                    panic!("{message}\n{isa}, {} threads, {:?}\n{}", pool.threads(), case.grid, compiled.program());
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
