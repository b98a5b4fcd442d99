//! Random kernels: the interpreter and the vector machine agree, with every instruction set of this machine.

mod compared;

use std::sync::Arc;

use compared::executed;
use panoply_cpu::pool::Pool;
use panoply_cpu::vm::isa::Isa;
use panoply_cpu::vm::launch::Compiled;
use panoply_ir::kernel::{Block, LocalId, Op, Param};
use panoply_ir::random::{self, Case, Options};
use panoply_ir::verify::verify;

/// How many kernels a run looks at; more with `PANOPLY_RANDOM_KERNELS`.
fn count(usual: u64) -> u64 {
    std::env::var("PANOPLY_RANDOM_KERNELS").ok().and_then(|count| count.parse().ok()).unwrap_or(usual)
}

/// How two executors disagree about a case, if they do.
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
            Param::Buffer(_) => buffers.next().expect("one for each"),
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
                    let smaller = shrink(case, |case| disagreement(case, *isa, pool).is_some());
                    panic!("seed {seed}: {}", disagreement(&smaller, *isa, pool).expect("it still fails"));
                }
            }
        }
    }
}

/// A case that still fails, with as few statements as removing them one by one leaves.
fn shrink(case: Case, fails: impl Fn(&Case) -> bool) -> Case {
    let mut case = case;
    let mut position = 0;
    loop {
        let mut statements = 0;
        case.kernel.walk(&mut |_| statements += 1);
        if position >= statements {
            return case;
        }
        // Later statements first, for earlier ones declare what they use.
        let number = statements - 1 - position;
        let smaller = [true, false].into_iter().find_map(|whole| {
            let mut kernel = case.kernel.clone().into_inner();
            let counts_turns = |local: &LocalId| case.kernel.local(*local).name == "turn";
            let removed = removed(&mut kernel.body, &mut { number }, whole)?;
            // Without its count a loop would not end.
            if matches!(&removed, Op::Assign { local, .. } if counts_turns(local)) {
                return None;
            }
            let smaller = Case { kernel: verify(kernel).ok()?, ..case.clone() };
            fails(&smaller).then_some(smaller)
        });
        match smaller {
            Some(smaller) => case = smaller,
            None => position += 1,
        }
    }
}

/// Removes a statement by its number, or only what stands around its blocks.
fn removed(block: &mut Block, number: &mut usize, whole: bool) -> Option<Op> {
    for at in 0..block.len() {
        if *number == 0 {
            let stmt = block.remove(at);
            let inner = match &stmt.op {
                _ if whole => Vec::new(),
                Op::If { then, otherwise, .. } => [then.clone(), otherwise.clone()].concat(),
                Op::While { body, .. } => body.clone(),
                _ => Vec::new(),
            };
            block.splice(at..at, inner);
            return Some(stmt.op);
        }
        *number -= 1;
        let op = match &mut block[at].op {
            Op::If { then, otherwise, .. } => {
                removed(then, number, whole).or_else(|| removed(otherwise, number, whole))
            }
            Op::For { body, .. } | Op::While { body, .. } => removed(body, number, whole),
            _ => None,
        };
        if op.is_some() {
            return op;
        }
    }
    None
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
