//! Shrinking of random kernels to the cause of a failure.

use panoply_ir::kernel::{Kernel, Op};
use panoply_ir::random::{Options, case};

fn count(kernel: &Kernel, counts: impl Fn(&Op) -> bool) -> usize {
    let mut found = 0;
    kernel.walk(&mut |stmt| found += usize::from(counts(&stmt.op)));
    found
}

fn stores(kernel: &Kernel) -> usize {
    count(kernel, |op| matches!(op, Op::Store { .. }))
}

#[test]
fn irrelevant_statements_are_removed() {
    for seed in 0..20 {
        let large = case(seed, &Options::default());
        if stores(&large.kernel) == 0 {
            continue;
        }
        let small = large.clone().shrink(|case| stores(&case.kernel) > 0);
        assert_eq!(stores(&small.kernel), 1, "seed {seed}\n{}", *small.kernel);
        let (before, after) = (count(&large.kernel, |_| true), count(&small.kernel, |_| true));
        // The statements that count a loop's iterations stay, besides the operands of the store.
        assert!(after < before && after <= 8, "seed {seed}: {before} statements became {after}\n{}", *small.kernel);
        small.interpret(1).expect("the shrunk kernel runs");
    }
}

#[test]
fn passing_case_is_not_shrunk() {
    let case = case(3, &Options::default());
    let statements = |kernel: &Kernel| count(kernel, |_| true);
    assert_eq!(statements(&case.clone().shrink(|_| false).kernel), statements(&case.kernel));
}
