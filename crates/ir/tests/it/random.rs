//! Random kernels: they verify, round-trip through the text form, cover the language, and do not depend on choices that an executor is free
//! to make.

use std::collections::HashSet;

use panoply_ir::kernel::{Expr, Op};
use panoply_ir::random::{CaseArg, Options, Random, case};
use panoply_ir::{Alu, DType, hash, text};

fn options() -> [Options; 3] {
    let all = Options::default();
    let plain = Options {
        dtypes: vec![DType::I32, DType::F32],
        transcendentals: true,
        vectors: false,
        groups: false,
        subgroups: false,
        matrices: false,
        atomics: false,
        out_of_bounds: false,
        statements: 10,
    };
    [all.clone(), Options { transcendentals: true, matrices: true, ..all }, plain]
}

#[test]
fn every_kernel_round_trips_through_text() {
    for seed in 0..300 {
        for options in options() {
            let kernel = case(seed, &options).kernel;
            let printed = text::print(&kernel);
            let back = text::parse(&printed).unwrap_or_else(|error| panic!("{printed}\n{error}"));
            assert_eq!(text::print(&back), printed);
            assert_eq!(hash(&back), hash(&kernel), "{printed}");
        }
    }
}

#[test]
fn equal_seeds_give_equal_cases() {
    for options in options() {
        let (a, b) = (case(7, &options), case(7, &options));
        assert_eq!((hash(&a.kernel), a.grid, a.group, a.args), (hash(&b.kernel), b.grid, b.group, b.args));
    }
}

#[test]
fn results_do_not_depend_on_an_unfixed_group_size() {
    let mut tried = 0;
    for seed in 0..120 {
        let mut case = case(seed, &Options::default());
        let expected = case.interpret(1).unwrap();
        if case.kernel.group_size.is_none() {
            for group in [[1, 1, 1], [64, 1, 1], [3, 2, 2]] {
                case.group = group;
                tried += 1;
                case.compare(&expected, &case.interpret(1).unwrap(), 0.0).unwrap();
            }
        }
    }
    assert!(tried > 60, "{tried}");
}

#[test]
fn random_kernels_cover_the_language() {
    let (mut ops, mut statements, mut exprs) = (HashSet::new(), HashSet::new(), HashSet::new());
    let (mut collectives, mut written) = (HashSet::new(), 0);
    for seed in 0..400 {
        let case = case(seed, &options()[1]);
        for (_, expr, ty) in case.kernel.exprs.iter() {
            exprs.insert(std::mem::discriminant(&expr));
            if let Expr::Alu(op, _) = expr {
                ops.insert((op, ty.dtype()));
            }
        }
        case.kernel.walk(&mut |stmt| {
            statements.insert(std::mem::discriminant(&stmt.op));
            if let Op::Collective { op, .. } = &stmt.op {
                collectives.insert(std::mem::discriminant(op));
            }
        });
        let (before, after) = (case.buffers(), case.interpret(1).unwrap());
        written += usize::from(before != after);
    }
    let used: HashSet<Alu> = ops.iter().map(|(op, _)| *op).collect();
    let missing: Vec<Alu> = Alu::ALL.into_iter().filter(|op| !used.contains(op)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    assert!(ops.len() > 250, "{} operations on types", ops.len());
    assert_eq!((statements.len(), exprs.len(), collectives.len()), (12, 12, 6));
    assert!(written > 380, "{written} of 400 kernels changed anything");
}

#[test]
fn kernels_use_only_the_given_types() {
    for seed in 0..50 {
        let case = case(seed, &options()[2]);
        for (_, _, ty) in case.kernel.exprs.iter() {
            let allowed = [None, Some(DType::Bool), Some(DType::U32), Some(DType::I32), Some(DType::F32)];
            assert!(allowed.contains(&ty.dtype()) && ty.lanes() == 1, "{ty}");
        }
    }
}

#[test]
fn comparison_allows_only_nans_and_ulps() {
    let options = &options()[1];
    let case = (0..).map(|seed| case(seed, options)).find(|case| {
        let f32s = |position: usize| case.kernel.params.get(position).is_some();
        case.approximate.is_some_and(f32s) && case.kernel.to_string().contains("t: &out [f32]")
    });
    let case = case.unwrap();
    let place = case.approximate.unwrap();
    let with = |value: f32| {
        let mut buffers = case.buffers();
        buffers[place][..4].copy_from_slice(&value.to_ne_bytes());
        buffers
    };
    let agree = |a: f32, b: f32, ulps: f64| case.compare(&with(a), &with(b), ulps).is_ok();
    assert!(agree(f32::NAN, -f32::NAN, 0.0));
    assert!(agree(1.0, f32::from_bits(1.0_f32.to_bits() + 2), 2.0));
    assert!(!agree(1.0, f32::from_bits(1.0_f32.to_bits() + 2), 1.0));
    assert!(!agree(1.0, -1.0, 100.0));
    assert!(!agree(1.0, f32::NAN, 100.0));
    assert!(agree(f32::MAX, f32::INFINITY, 1.0));
    assert!(!agree(1e38, f32::INFINITY, 1.0));
    assert!(agree(0.0, f32::from_bits(2), 2.0));
    let exact = (0..case.args.len()).find(|i| case.is_written(*i) && *i != place).unwrap();
    let mut changed = case.buffers();
    changed[exact][0] ^= 1;
    assert!(case.compare(&case.buffers(), &changed, 1e9).unwrap_err().contains("expected"));
}

#[test]
fn random_numbers_match_published_values() {
    // SplitMix64 from state 0, as in the JDK's and Vigna's tests.
    let mut random = Random::new(0);
    assert_eq!(
        [random.bits(), random.bits(), random.bits()],
        [0xe220a8397b1dcdaf, 0x6e789e6aa1b965f4, 0x06c45d188009454f]
    );
    let given = case(1, &Options::default()).args;
    assert!(given.iter().any(|given| matches!(given, CaseArg::Buffer(bytes) if !bytes.is_empty())));
}
