//! The checking interpreter: each planted defect is reported with its line, and correct kernels have none.

use panoply_cpu::checked::run_checked;
use panoply_ir::interpret::Arg;
use panoply_ir::kernel::Kernel;
use panoply_ir::random::{CaseArg, Options, case};
use panoply_ir::verify::{Verified, verify};
use panoply_ir::{Result, text};

fn kernel(source: &str) -> Verified<Kernel> {
    let kernel = text::parse(source).unwrap_or_else(|error| panic!("{source}\n{error}"));
    verify(kernel).unwrap_or_else(|error| panic!("{source}\n{error}"))
}

/// Runs a body over `x: &[u32]` and `y: &mut [u32]` of eight elements, in groups of four.
fn on_eight(arrays: &str, body: &str) -> Result<()> {
    let source = format!("unchecked kernel k(x: &[u32], y: &mut [u32]) group(4, 1, 1) {{ {arrays}\n{body}\n}}");
    let mut y = vec![0; 32];
    run_checked(&kernel(&source), [8, 1, 1], [4, 1, 1], &mut [Arg::Read(&[0; 32]), Arg::Write(&mut y)])
}

fn found(arrays: &str, body: &str, expected: &str) {
    let error = on_eight(arrays, body).expect_err(body);
    assert!(error.is_mistake());
    assert_eq!(error.to_string(), expected, "{body}");
}

fn clean(arrays: &str, body: &str) {
    on_eight(arrays, body).unwrap_or_else(|error| panic!("{body}\n{error}"));
}

#[test]
fn out_of_bounds_accesses_are_reported() {
    found(
        "",
        "let i: index = global_id.x //@ k.rs:1
         y[i] = x[add(i, 1)] //@ k.rs:2",
        "kernel k: reads x[8], beyond its 8 elements\n  k.rs:2\n  by work-item 7 of group 1",
    );
    found(
        "",
        "y[add(global_id.x, 2)] = 1u32 //@ k.rs:3",
        "kernel k: writes y[8], beyond its 8 elements\n  k.rs:3\n  by work-item 6 of group 1; 1 more like it",
    );
    found(
        "private p: [u32; 2]",
        "p[2] = 1u32 //@ k.rs:4",
        "kernel k: writes p[2], beyond its 2 elements\n  k.rs:4\n  by work-item 0 of group 0; 7 more like it",
    );
    found(
        "shared s: [u32; 4]",
        "atomic_add(s[add(4, global_id.x)], 1u32) //@ k.rs:5",
        "kernel k: atomically updates s[4], beyond its 4 elements\n  k.rs:5\n  by work-item 0 of group 0; 7 more like it",
    );
    clean("", "if lt(add(global_id.x, 1), len(x)) { y[global_id.x] = x[add(global_id.x, 1)] }");
    clean("", "y[global_id.x] = select(lt(add(global_id.x, 1), len(x)), x[add(global_id.x, 1)], 0u32)");
}

#[test]
fn races_within_a_group_are_reported() {
    found(
        "shared s: [u32; 4]",
        "let l: index = local_id.x //@ k.rs:1
         s[l] = 1u32 //@ k.rs:2
         let v: u32 = s[sub(3, l)] //@ k.rs:3",
        "kernel k: data race on s[3]\n  k.rs:3\n  work-item 0 of group 0 reads it, work-item 3 of group 0 writes it at k.rs:2; \
         put a barrier between them, or use an atomic; 7 more like it",
    );
    found(
        "shared s: [u32; 4]",
        "s[0] = 1u32 //@ k.rs:4",
        "kernel k: data race on s[0]\n  k.rs:4\n  work-item 1 of group 0 writes it, work-item 0 of group 0 writes it at k.rs:4; \
         put a barrier between them, or use an atomic; 5 more like it",
    );
    // Reading before another work-item writes is a race too, and so is a plain read of an element that others update atomically.
    found(
        "",
        "let l: index = local_id.x
         let v: u32 = y[mul(4, group_id.x)] //@ k.rs:5
         if eq(l, 2) {
             y[mul(4, group_id.x)] = v //@ k.rs:6
         }",
        "kernel k: data race on y[0]\n  k.rs:6\n  work-item 2 of group 0 writes it, work-item 3 of group 0 reads it at k.rs:5; \
         put a barrier between them, or use an atomic; 1 more like it",
    );
    found(
        "shared s: [u32; 4]",
        "s[local_id.x] = 0u32
         barrier()
         atomic_add(s[0], 1u32) //@ k.rs:7
         y[global_id.x] = s[0] //@ k.rs:8",
        "kernel k: data race on s[0]\n  k.rs:8\n  work-item 0 of group 0 reads it, work-item 3 of group 0 atomically updates it at k.rs:7; \
         put a barrier between them, or use an atomic; 7 more like it",
    );
    clean(
        "shared s: [u32; 4]",
        "let l: index = local_id.x
         for k: index in 0..3 {
             s[l] = 1u32
             barrier()
             y[global_id.x] = add(s[sub(3, l)], s[0])
             barrier()
         }
         atomic_add(s[0], 1u32)
         barrier()
         if eq(l, 1) { s[0] = add(s[0], s[0]) }",
    );
}

#[test]
fn races_between_groups_are_reported() {
    found(
        "",
        "y[local_id.x] = 1u32 //@ k.rs:1",
        "kernel k: data race on y[0]\n  k.rs:1\n  work-item 4 of group 1 writes it, work-item 0 of group 0 writes it at k.rs:1; \
         work-groups are not ordered; use an atomic, or two launches; 3 more like it",
    );
    // A barrier does not help, and a read by another group is remembered however often the own group reads.
    found(
        "",
        "if eq(group_id.x, 0) {
             let a: u32 = y[5] //@ k.rs:2
         } else {
             if eq(local_id.x, 1) {
                 let b: u32 = y[5] //@ k.rs:3
                 y[5] = b //@ k.rs:4
             }
         }",
        "kernel k: data race on y[5]\n  k.rs:4\n  work-item 5 of group 1 writes it, work-item 3 of group 0 reads it at k.rs:2; \
         work-groups are not ordered; use an atomic, or two launches",
    );
    clean("", "atomic_add(y[0], 1u32) if lt(0, global_id.x) { y[global_id.x] = x[0] }");
}

/// Without a group size the grouping is arbitrary, so the race is the same for any grouping and the report names no groups.
#[test]
fn races_without_a_group_size_are_reported() {
    let kernel = kernel("kernel k(y: &mut [u32]) { y[div(global_id.x, 2)] = 1u32 //@ k.rs:1\n }");
    for group in [1, 2, 3, 8] {
        let mut y = [0; 16];
        let error = run_checked(&kernel, [4, 1, 1], [group, 1, 1], &mut [Arg::Write(&mut y)]).unwrap_err().to_string();
        assert!(
            error.starts_with("kernel k: data race on y[0]\n  k.rs:1\n  work-item 1 writes it, work-item 0 writes it"),
            "{error}"
        );
    }
}

#[test]
fn uninitialized_reads_are_reported() {
    found(
        "shared s: [u32; 4]",
        "if lt(local_id.x, 3) { s[local_id.x] = 1u32 }
         barrier()
         let v: u32 = s[sub(3, local_id.x)] //@ k.rs:1",
        "kernel k: reads shared s[3], which is uninitialized; fill the array first\n  k.rs:1\n  \
         by work-item 0 of group 0; 1 more like it",
    );
    found(
        "private p: [u32; 2]",
        "p[0] = 1u32
         if eq(global_id.x, 5) { let v: u32 = p[1] //@ k.rs:2
         }",
        "kernel k: reads private p[1], which is uninitialized; fill the array first\n  k.rs:2\n  by work-item 5 of group 1",
    );
    found(
        "shared s: [u32; 4]",
        "atomic_add(s[1], 1u32) //@ k.rs:3",
        "kernel k: reads shared s[1], which is uninitialized; fill the array first\n  k.rs:3\n  \
         by work-item 0 of group 0; 1 more like it",
    );
    clean("private p: [u32; 2]", "for i: index in 0..2 { p[i] = 1u32 } y[global_id.x] = add(p[0], p[1])");
}

#[test]
fn divergent_barriers_are_reported() {
    found(
        "",
        "if lt(local_id.x, 3) {
             barrier() //@ k.rs:1
         }",
        "kernel k: a barrier or collective is reached by 3 of 4 work-items of a group\n  k.rs:1\n  \
         by work-item 0 of group 0, not by work-item 3 of group 0; 1 more like it",
    );
    found(
        "",
        "if eq(global_id.x, 0) { return }
         let v: u32 = group_sum(1u32) //@ k.rs:2",
        "kernel k: a barrier or collective is reached by 3 of 4 work-items of a group\n  k.rs:2\n  \
         by work-item 1 of group 0, not by work-item 0 of group 0",
    );
    clean("", "if lt(y[mul(global_id.x, 0)], 3u32) { barrier() }");
}

#[test]
fn index_overflow_is_reported() {
    let cases = [
        ("sub(global_id.x, 1)", "the index 0 - 1 is negative", "0 of group 0"),
        ("div(3, global_id.x)", "the index 3 / 0 divides by zero", "0 of group 0"),
        ("rem(3, global_id.x)", "the index 3 % 0 divides by zero", "0 of group 0"),
        (
            "add(sub(18446744073709551615, 6), global_id.x)",
            "the index 18446744073709551609 + 7 overflows 64 bits",
            "7 of group 1",
        ),
    ];
    for (index, sentence, who) in cases {
        let body = format!("let i: index = {index} //@ k.rs:1");
        found("", &body, &format!("kernel k: {sentence}\n  k.rs:1\n  by work-item {who}"));
    }
    clean("", "if lt(0, global_id.x) { let i: index = sub(global_id.x, 1) }");
    clean("", "if and(lt(0, global_id.x), lt(sub(global_id.x, 1), 5)) { }");
}

#[test]
fn all_defects_are_in_one_error() {
    let body = "y[local_id.x] = x[8] //@ k.rs:1
                let i: index = sub(3, global_id.x) //@ k.rs:2";
    found(
        "",
        body,
        "kernel k: reads x[8], beyond its 8 elements\n  k.rs:1\n  by work-item 0 of group 0; 7 more like it\n  \
         also data race on y[0]\n    k.rs:1\n    work-item 4 of group 1 writes it, work-item 0 of group 0 writes it at k.rs:1; \
         work-groups are not ordered; use an atomic, or two launches; 3 more like it\n  \
         also the index 3 - 4 is negative\n    k.rs:2\n    by work-item 4 of group 1; 3 more like it",
    );
    let many: String = (1..=20).map(|line| format!("let v{line}: u32 = x[9] //@ k.rs:{line}\n")).collect();
    assert!(on_eight("", &many).unwrap_err().to_string().ends_with("and 12 further defects"));
}

#[test]
fn effects_and_launch_errors_equal_the_interpreters() {
    let kernel = kernel("kernel k(y: &mut [u32]) { y[global_id.x] = 7u32 }");
    let mut y = [0; 12];
    run_checked(&kernel, [3, 1, 1], [2, 1, 1], &mut [Arg::Write(&mut y)]).unwrap();
    assert_eq!(y, *[7_u32.to_ne_bytes(); 3].as_flattened());
    let error = run_checked(&kernel, [3, 1, 1], [2, 1, 1], &mut []).unwrap_err();
    assert!(error.message().contains("takes 1 arguments, not 0"));
}

/// Realistic kernels without a defect.
#[test]
fn correct_kernels_have_no_defects() {
    let reduction = "kernel k(x: &[f32], sums: &out [f32]) group(8, 1, 1) {
        shared s: [f32; 8]
        let l: index = local_id.x
        let i: index = global_id.x
        s[l] = select(lt(i, len(x)), x[i], 0.0f32)
        let mut half: index = 4
        while lt(0, half) {
            barrier()
            if lt(l, half) { s[l] = add(s[l], s[add(l, half)]) }
            half = div(half, 2)
        }
        if eq(l, 0) { sums[group_id.x] = s[0] }
    }";
    let x: Vec<u8> = (0..19).flat_map(|i| (i as f32).to_ne_bytes()).collect();
    let mut sums = [0; 12];
    run_checked(&kernel(reduction), [19, 1, 1], [8, 1, 1], &mut [Arg::Read(&x), Arg::Write(&mut sums)]).unwrap();
    assert_eq!(sums, *[28.0_f32, 92.0, 51.0].map(f32::to_ne_bytes).as_flattened());

    let histogram = "kernel k(x: &[u8], h: &mut [u32]) group(4, 1, 1) {
        shared s: [u32; 3]
        if lt(local_id.x, 3) { s[local_id.x] = 0u32 }
        barrier()
        if lt(global_id.x, len(x)) { atomic_add(s[rem(cast<index>(x[global_id.x]), 3)], 1u32) }
        barrier()
        if lt(local_id.x, 3) { atomic_add(h[local_id.x], s[local_id.x]) }
    }";
    let mut h = [0; 12];
    let x = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9];
    run_checked(&kernel(histogram), [10, 1, 1], [4, 1, 1], &mut [Arg::Read(&x), Arg::Write(&mut h)]).unwrap();
    assert_eq!(h, *[4_u32, 3, 3].map(u32::to_ne_bytes).as_flattened());
}

#[test]
fn random_kernels_have_only_out_of_bounds_defects() {
    let full = std::env::var("PANOPLY_TEST_FULL").is_ok_and(|value| value == "1");
    let kernels = if full { 10_000 } else { 300 };
    let mut beyond = 0;
    for seed in 0..kernels {
        let check = |options: &Options| {
            let case = case(seed, options);
            let expected = case.interpret(1).unwrap();
            let mut buffers = case.buffers();
            let args = case.args.iter().zip(&mut buffers).map(|(given, bytes)| match given {
                CaseArg::Buffer(_) => Arg::Write(bytes),
                CaseArg::Scalar(value) => Arg::Scalar(*value),
                CaseArg::Index(value) => Arg::Index(*value),
            });
            let result = run_checked(&case.kernel, case.grid, case.group, &mut args.collect::<Vec<Arg>>());
            case.compare(&expected, &buffers, 0.0).unwrap();
            result.map_err(|error| format!("random kernel {seed}: {error}\n{}", *case.kernel))
        };
        check(&Options { out_of_bounds: false, ..Options::default() }).unwrap_or_else(|error| panic!("{error}"));
        if let Err(error) = check(&Options::default()) {
            assert!(error.contains(", beyond its ") && !error.contains("race"), "{error}");
            beyond += 1;
        }
    }
    assert!(beyond > kernels / 2, "{beyond}");
}
