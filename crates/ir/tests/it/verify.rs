//! One kernel per rule of the verifier, and valid kernels at the limits of the rules.

use panoply_ir::kernel::*;
use panoply_ir::verify::uniformity::Uniformity;
use panoply_ir::verify::{verify, verify_proven};
use panoply_ir::{Alu, DType, Scalar, Type, text};

fn refused(source: &str, expected: &str) {
    let kernel = text::parse(source).unwrap_or_else(|error| panic!("{source}\n{error}"));
    match verify(kernel) {
        Ok(_) => panic!("{source}\nwas accepted; expected: {expected}"),
        Err(error) => {
            let error = error.to_string();
            assert!(error.contains(expected), "{source}\nexpected: {expected}\nfound: {error}");
            assert!(error.starts_with("kernel k: "), "{error}");
        }
    }
}

fn accepted(source: &str) {
    let kernel = text::parse(source).unwrap_or_else(|error| panic!("{source}\n{error}"));
    verify(kernel).unwrap_or_else(|error| panic!("{source}\n{error}"));
}

/// Applies the rules for proven guards, which only the optimizer uses.
fn proven(source: &str) -> panoply_ir::Result<panoply_ir::Verified<Kernel>> {
    let kernel = text::parse(source).unwrap_or_else(|error| panic!("{source}\n{error}"));
    // SAFETY: the kernel is never run.
    unsafe { verify_proven(kernel) }
}

#[test]
fn proven_guards_are_rejected() {
    let message = "is marked proven, which only the optimizer can do; make it checked, or unchecked";
    for (line, mem) in [
        ("let v: f32 = x[proven n]", "x"),
        ("let v: f32x4 = x[proven n; 4]", "x"),
        ("let v: f32 = own[proven 0]", "own"),
        ("y[proven n] = a", "y"),
        ("tile[proven 0] = 1u32", "tile"),
        ("if lt(n, len(y)) { y[proven n] = a }", "y"),
        ("atomic_add(h[proven n], 1u32)", "h"),
        ("let v: f32 = y[cast<index>(h[proven 0])]", "h"),
    ] {
        refused(&body(line), &format!("an access to {mem} {message}"));
        assert!(proven(&body(line)).is_ok(), "{line}");
        let given = line.replace("proven ", "");
        accepted(&body(&given));
        accepted(&body(&line.replace("proven", "unchecked")));
    }
}

/// A kernel that safe code can construct with the builder.
#[test]
fn proven_guards_of_the_builder_are_rejected() {
    let mut b = panoply_ir::builder::Builder::new("k");
    let x = b.buffer("x", DType::F32, Access::In);
    let y = b.buffer("y", DType::F32, Access::Out);
    let n = b.scalar("n", Type::Index);
    let value = b.load(x, n, Guard::Proven);
    b.store(y, n, value, Guard::Checked);
    let error = verify(b.finish().unwrap()).unwrap_err();
    assert!(error.is_mistake() && error.message().contains("an access to x is marked proven"), "{error}");
}

/// Returns a kernel with this body, every type of memory and work-groups of 8 x 4 x 1.
fn body(lines: &str) -> String {
    format!(
        "kernel k(a: f32, n: index, x: &[f32], y: &mut [f32], z: &out [f32], h: &mut [u32]) group(8, 4, 1) {{
            shared tile: [u32; 32]
            private own: [f32; 4]
            {lines}
        }}"
    )
}

#[test]
fn table_rules() {
    refused("kernel k() group(0, 1, 1) {}", "a group of 0 x 1 x 1 is empty");
    refused("kernel k() group(1024, 65, 1) {}", "a group of 66560 work-items; the maximum is 65536");
    accepted("kernel k() group(1024, 64, 1) {}");
    refused("kernel k(v: f32x4) {}", "parameter v is f32x4; pass a buffer");
    refused("kernel k() { shared s: [f32; 4] }", "shared array s in a kernel without a group size");
    refused("kernel k() { private s: [f32; 0] }", "array s has no elements");
    refused(
        "kernel k() { private s: [f64; 134217729] }",
        "increases the total size of its memory space to 1073741832 bytes",
    );
    accepted("kernel k() group(1, 1, 1) { shared s: [f64; 134217728] private p: [u8; 1073741824] }");
}

/// Errors that the text form cannot express, built by hand.
#[test]
fn invalid_tables() {
    let base = || text::parse("kernel k(x: &mut [f32]) { let a: f32 = x[0] //@ k.rs:1\n x[1] = a }").unwrap();
    let check = |change: &dyn Fn(&mut Kernel), expected: &str| {
        let mut kernel = base();
        change(&mut kernel);
        let error = verify(kernel).unwrap_err().to_string();
        assert!(error.contains(expected), "expected: {expected}\nfound: {error}");
    };
    let far = ExprId(99);
    check(&|k| k.params.clear(), "buffer x is not a parameter");
    check(&|k| k.mems.clear(), "parameter memory 0 is not a buffer");
    check(&|k| k.mems[0].space = Space::Private(1), "parameter memory 0 is not a buffer");
    check(&|k| k.params.push(Param::Buffer(MemId(0))), "buffer parameter 1 is memory 0");
    check(&|k| k.locals[0].ty = Type::Vector(DType::F32, 3), "vectors have 2, 4, 8 or 16 lanes");
    check(&|k| k.locals.clear(), "unknown local 0; there are 0");
    check(&|k| k.body[0].op = Op::Let { local: LocalId(7), value: ExprId(1) }, "unknown local 7; there are 1");
    check(&|k| k.body[0].op = Op::If { condition: far, then: vec![], otherwise: vec![] }, "unknown expression 99");
    check(&|k| k.body[0].at.file = 3, "line 1 of an unknown file 3");
    check(&|k| ignore(k.exprs.intern(Expr::Param(5), Type::Index)), "unknown parameter 5; there are 1");
    check(&|k| ignore(k.exprs.intern(Expr::Param(0), Type::Index)), "x is a buffer and has no value");
    check(&|k| ignore(k.exprs.intern(Expr::Len(MemId(4)), Type::Index)), "unknown memory 4; there are 1");
    check(&|k| ignore(k.exprs.intern(Expr::Index(9), Type::BOOL)), "it is index, not bool");
    check(&|k| ignore(k.exprs.intern(Expr::Builtin(Builtin::GlobalId(3)), Type::Index)), "axes are 0, 1 and 2");
    check(
        &|k| ignore(k.exprs.intern(Expr::Alu(Alu::Neg, Args::new(&[far])), Type::Index)),
        "operand 99 does not come before it",
    );
    let wide = Scalar { dtype: DType::U8, bits: 256 };
    check(&|k| ignore(k.exprs.intern(Expr::Const(wide), DType::U8.into())), "0x100 has more bits than a u8");
    check(
        &|k| {
            for _ in 0..100 {
                let then = std::mem::take(&mut k.body);
                let condition = k.exprs.intern(Expr::Const(true.into()), Type::BOOL);
                k.body.push(Stmt { op: Op::If { condition, then, otherwise: vec![] }, at: Loc::default() });
            }
        },
        "blocks nest deeper than 64",
    );
}

#[test]
fn expression_rules() {
    for builtin in ["local_id.x", "group_id.y", "group_size.z", "num_groups.x", "subgroup_lane_id()", "subgroup_size()"]
    {
        let source = format!("kernel k() {{ let i: index = {builtin} }}");
        assert!(text::parse(&source).unwrap_err().message().contains("in a kernel without a group size"), "{builtin}");
    }
    for (expr, expected) in [
        ("let v: f32 = z[0]", "z is write-only and cannot be read; make it an InOut buffer"),
        ("let v: f32 = x[1u32]", "x is indexed with u32, not an index"),
        ("let v: f32 = x[0; 3]", "3 lanes; a vector has 2, 4, 8 or 16"),
        ("let v: f32 = own[proven 4]", "index 4 is claimed to be proven, but own has 4 elements"),
        ("let v: f32 = own[proven 1; 4]", "index 1 is claimed to be proven, but own has 4 elements"),
        ("let v: f32 = cast<u8>(x[0; 2])", "a f32x2 cannot be cast to u8: the lanes differ"),
        ("let v: f32 = bitcast<u64>(a)", "the bits of a f32 cannot be read as u64: the widths differ"),
        ("let v: f32 = bitcast<u64>(x[0; 2])", "the bits of a f32x2 cannot be read as u64: the widths differ"),
        ("let v: f32 = bitcast<u64>(n)", "the bits of a index cannot be read as u64"),
        ("let v: f32 = splat<4>(n)", "index cannot be broadcast to 4 lanes"),
        ("let v: f32 = splat<5>(a)", "5 lanes; a vector has 2, 4, 8 or 16"),
        ("let v: f32 = extract<2>(x[0; 2])", "f32x2 has no lane 2"),
        ("let v: f32 = add(a, n)", "add: operand types f32 and index differ"),
        ("let v: f32 = exp(n)", "exp is not defined for index"),
        ("let v: f32 = shl(a, a)", "shl is not defined for f32"),
        ("let v: f32 = and(a, a)", "and is not defined for f32"),
        ("let v: f32 = add(true, true)", "add is not defined for bool"),
        ("let v: f32 = select(a, a, a)", "select: the condition is f32, not a bool of 1 lanes"),
        ("let v: f32 = neg(a, a)", "neg takes 1 operands, not 2"),
    ] {
        let error = text::parse(&body(expr)).unwrap_err();
        assert!(error.message().contains(expected), "{expr}\nexpected: {expected}\nfound: {error}");
    }
    proven(&body("let v: f32x4 = own[proven 0; 4]")).unwrap();
}

#[test]
fn statement_rules() {
    for (lines, expected) in [
        ("let v: u32 = a", "local v is u32 and cannot be assigned f32"),
        ("let v: f32 = a v = a", "local v is assigned but not mutable"),
        ("let mut v: f32 = a v = 1.0f64", "local v is f32 and cannot be assigned f64"),
        ("if true { let v: f32 = a } y[0] = v", "local v is read out of scope"),
        ("if true { let mut v: f32 = a } v = a", "local v is assigned out of scope"),
        ("for i: u8 in 0u8..9u8 { } let v: u8 = i", "local i is read out of scope"),
        ("x[0] = a", "x is read-only and cannot be written; make it an Out or InOut buffer"),
        ("y[0] = 1.0f16", "y holds f32 and cannot store f16"),
        ("y[0u8] = a", "y is indexed with u8, not an index"),
        ("y[0] = n", "y holds f32 and cannot store index"),
        ("own[proven 4] = a", "index 4 is claimed to be proven, but own has 4 elements"),
        ("own[proven 3] = x[0; 2]", "index 3 is claimed to be proven, but own has 4 elements"),
        ("atomic_add(x[0], a)", "x cannot be updated atomically; use an InOut buffer or a shared array"),
        ("atomic_add(z[0], a)", "z cannot be updated atomically"),
        ("atomic_add(own[0], a)", "own cannot be updated atomically"),
        ("atomic_min(y[0], a)", "y holds f32; atomics take u32 and i32, add and exchange also f32"),
        ("atomic_add(h[0], a)", "h holds u32 and cannot store f32"),
        (
            "atomic_add(h[0], 1u32, 2u32)",
            "an expected value is required for compare-exchange and invalid for other atomics",
        ),
        (
            "atomic_compare_exchange(h[0], 1u32)",
            "an expected value is required for compare-exchange and invalid for other atomics",
        ),
        ("let v: f32 = atomic_add(h[0], 1u32)", "local v is f32 and cannot be assigned u32"),
        ("atomic_add(h[true], 1u32)", "h is indexed with bool, not an index"),
        ("let v: index = group_sum(n)", "a collective of index; it takes one element, so cast an index to u32"),
        ("let v: bool = group_sum(true)", "a collective of bools; cast them to u32"),
        ("let v: bool = group_broadcast<32>(true)", "a broadcast from work-item 32 of a group of 32"),
        ("let v: u32 = subgroup_broadcast<1>(1u32)", "of a subgroup, which can be a single one; use 0"),
        ("let v: u32 = group_sum(a)", "local v is u32 and cannot be assigned f32"),
        (
            "let v: f32x4 = subgroup_mma<f16>(splat<4>(a), h[0], h[1], h[2], h[3], h[4], h[5])",
            "over a subgroup, whose size",
        ),
        (
            "let v: f32x4 = group_mma<f32>(splat<4>(a), h[0], h[1], h[2], h[3], h[4], h[5])",
            "a matrix product of f32; use f16 or bf16",
        ),
        (
            "let v: f32x4 = group_mma<f16>(splat<4>(a), h[0], h[1], h[2], a, h[4], h[5])",
            "from f32; fragments are u32 words",
        ),
        (
            "let v: f32 = group_mma<f16>(a, h[0], h[1], h[2], h[3], h[4], h[5])",
            "added to f32; the accumulator must be f32x4",
        ),
        (
            "let v: f32 = group_mma<f16>(splat<4>(a), h[0], h[1], h[2], h[3], h[4], h[5])",
            "local v is f32 and cannot be assigned",
        ),
        ("if a { }", "a condition is f32, not bool"),
        ("while n { }", "a condition is index, not bool"),
        ("for i: f32 in a..a step a { }", "a loop from f32 to f32 by f32: all three must have one integer type"),
        ("for i: bool in true..false step true { }", "all three must have one integer type"),
        ("for i: index in 0..9u32 { }", "a loop from index to u32 by index: all three must have one integer type"),
        ("for i: u8 in 0..9 step 1 { }", "local i is u8 and cannot be assigned index"),
        ("for i: index in 0..9 step 0 { }", "a loop with step 0; the step must be at least 1"),
        ("for i: i8 in 0i8..9i8 step -1i8 { }", "a loop with step -1; the step must be at least 1"),
        ("if true { break }", "break outside of a loop"),
        ("continue", "continue outside of a loop"),
    ] {
        refused(&body(lines), expected);
    }
    refused(&body("y[0] = 1.0f16 //@ k.rs:7"), "k.rs:7");
    refused("kernel k() { barrier() }", "a barrier in a kernel without a group size; fix one");
    refused("kernel k() { let v: u8 = group_sum(1u8) }", "a collective in a kernel without a group size; fix one");
    let product = "let v: f32x4 = group_mma<f16>(splat<4>(1.0f32), 0u32, 0u32, 0u32, 0u32, 0u32, 0u32)";
    refused(&format!("kernel k() group(16, 3, 1) {{ {product} }}"), "in a group of 48; use a multiple of 32");
    refused(&format!("kernel k() {{ {product} }}"), "a matrix product in a kernel without a group size; fix one");
    accepted(&format!("kernel k() group(16, 4, 1) {{ {product} }}"));
    accepted(&body("let v: bool = group_broadcast<31>(true) while v { if true { break } else { continue } } return"));

    let mut twice = text::parse("kernel k() { let v: u8 = 1u8 }").unwrap();
    twice.body.push(twice.body[0].clone());
    assert!(verify(twice).unwrap_err().message().contains("local v is declared twice"));
    let mut counted = text::parse("kernel k() { for i: u8 in 1u8..9u8 { } }").unwrap();
    counted.locals[0].mutable = true;
    assert!(verify(counted).unwrap_err().message().contains("the counter i is mutable"));
}

#[test]
fn barriers_need_uniform_flow() {
    for lines in [
        "if lt(local_id.x, 3) { barrier() }",
        "if lt(global_id.y, 3) { } else { barrier() }",
        "if lt(x[global_id.x], a) { let s: f32 = group_sum(a) }",
        "if lt(y[0], a) { barrier() }",
        "if lt(own[0], a) { barrier() }",
        "if lt(tile[0], 3u32) { let s: f32 = subgroup_sum(a) }",
        "if lt(subgroup_lane_id(), 1) { barrier() }",
        "if lt(local_id.x, 3) { let v: f32x4 = group_mma<f16>(splat<4>(a), h[0], h[1], h[2], h[3], h[4], h[5]) }",
        "let v: f32x4 = group_mma<f16>(splat<4>(a), h[0], h[0], h[0], h[0], h[0], h[0]) if lt(extract<0>(v), a) { barrier() }",
        "let old: u32 = atomic_add(h[0], 1u32) if eq(old, 0u32) { barrier() }",
        "let s: u32 = group_inclusive_sum(1u32) if lt(s, 3u32) { barrier() }",
        "let s: u32 = subgroup_sum(1u32) if lt(s, 3u32) { barrier() }",
        "if lt(global_id.x, n) { return } barrier()",
        "for i: index in 0..n { if lt(global_id.x, n) { return } } barrier()",
        "for i: index in 0..n { barrier() if lt(i, local_id.x) { break } }",
        "for i: index in 0..n { if lt(i, local_id.x) { continue } barrier() }",
        "for i: index in 0..n { barrier() if lt(i, local_id.x) { return } }",
        "for i: index in 0..local_id.x { barrier() }",
        "for i: index in local_id.x..n { barrier() }",
        "for i: index in 0..n step add(local_id.x, 1) { barrier() }",
        "while lt(local_id.x, n) { barrier() }",
        "let mut k: index = 0 if lt(local_id.x, n) { k = 1 } if lt(k, 1) { barrier() }",
        "let mut k: index = 0 while lt(k, local_id.x) { k = add(k, 1) } if lt(k, 1) { barrier() }",
        "let mut k: index = 0 for i: index in 0..n { if lt(k, 5) { barrier() } k = add(k, local_id.y) }",
        "let mut k: index = 0 for i: index in 0..n { k = add(k, 1) if lt(i, local_id.x) { break } } if lt(k, n) { barrier() }",
        "let mut k: index = 0 for i: index in 0..n { if lt(i, local_id.x) { continue } k = add(k, 1) } if lt(k, n) { barrier() }",
        "for i: index in 0..n { for j: index in 0..n { if lt(j, local_id.x) { return } } barrier() }",
        "for i: index in 0..n { if lt(i, local_id.x) { if lt(n, 4) { break } } barrier() }",
    ] {
        refused(&body(lines), "in control flow that differs between work-items of a group");
    }
    for lines in [
        "if lt(group_id.x, n) { barrier() }",
        "if lt(local_id.z, global_id.z) { barrier() }",
        "if lt(x[n], a) { barrier() }",
        "for i: index in 0..len(y) step group_size.x { if lt(i, local_id.x) { y[0] = a } barrier() }",
        "for i: index in 0..n { if lt(n, 4) { break } barrier() if lt(i, n) { continue } barrier() }",
        "for i: index in 0..n { for j: index in 0..n { if lt(j, local_id.x) { break } } barrier() }",
        "for i: index in 0..n { for j: index in 0..n { if lt(j, local_id.x) { continue } } barrier() }",
        "let s: f32 = group_sum(y[global_id.x]) if lt(s, a) { barrier() }",
        "let s: u32 = group_broadcast<3>(tile[0]) while lt(s, 4u32) { barrier() }",
        "let mut k: index = n while lt(0, k) { barrier() k = div(k, 2) }",
        "if lt(n, 4) { return } barrier()",
        "if lt(local_id.x, 3) { y[local_id.x] = a } barrier() if lt(local_id.x, 3) { return }",
    ] {
        accepted(&body(lines));
    }
    accepted(&format!("unchecked {}", body("if lt(local_id.x, 3) { barrier() }")));
}

#[test]
fn divergent_barrier_names_both_lines() {
    let source = "kernel k() group(8, 1, 1) {
        if lt(local_id.x, 3) { //@ k.rs:2
            return //@ k.rs:3
        }
        barrier() //@ k.rs:5
    }";
    refused(
        source,
        "a barrier in control flow that differs between work-items of a group\n  k.rs:5\n  control flow diverges since k.rs:2;",
    );
}

#[test]
fn uniformity_of_each_value() {
    let source = "kernel k(x: &[f32], y: &mut [f32]) group(8, 1, 1) {
        let same: f32 = x[group_id.x]
        let other: f32 = x[global_id.x]
        for i: index in 0..local_id.x { }
        for j: index in local_id.x..9 { }
        let one: index = global_id.y
    }";
    let kernel = verify(text::parse(source).unwrap()).unwrap();
    let uniformity = Uniformity::of(&kernel);
    let known: Vec<(&str, bool)> =
        kernel.locals.iter().enumerate().map(|(i, l)| (l.name.as_str(), uniformity.local(LocalId(i as u32)))).collect();
    assert_eq!(known, [("same", true), ("other", false), ("i", true), ("j", false), ("one", true)]);
    let loads = kernel.exprs.iter().filter(|(_, expr, _)| matches!(expr, Expr::Load { .. }));
    assert_eq!(loads.map(|(id, ..)| uniformity.expr(id)).collect::<Vec<_>>(), [true, false]);
}

/// Discards the id where only the change matters.
fn ignore(_: ExprId) {}
