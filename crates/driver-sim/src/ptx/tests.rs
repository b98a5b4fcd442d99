//! Tests single instructions against the ISA's document, and the rejection of invalid ones.

use super::memory::Memory;
use super::module;
use super::run::{FAILED, Fault, ILLEGAL_ADDRESS, Launch, MISALIGNED, run};

/// Returns a program whose only thread stores `%rd9` at the address of its argument.
fn program(body: &str) -> String {
    format!(
        ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 out)\n{{\n\
         .reg .pred %p<4>;\n.reg .b16 %h<4>;\n.reg .b32 %r<6>;\n.reg .b64 %rd<10>;\n.reg .f32 %f<6>;\n.reg .f64 %fd<6>;\n\
         .shared .align 8 .b8 held[256];\n.local .align 8 .b8 own[16];\n\
         ld.param.u64 %rd1, [out];\n{body}\nst.global.u64 [%rd1], %rd9;\nret;\n}}\n"
    )
}

fn launch(source: &str, block: [u32; 3]) -> Result<u64, Fault> {
    let module = module(source).unwrap_or_else(|why| panic!("{why}\n{source}"));
    let mut memory = Memory::default();
    let out = memory.allocate(8);
    run(&Launch { entry: &module.entries["k"], grid: [1; 3], block, params: &[out] }, &mut memory)?;
    Ok(u64::from_le_bytes(memory.at(out, 8).unwrap().try_into().unwrap()))
}

/// Returns the value of `%rd9` after a body.
fn result(body: &str) -> u64 {
    launch(&program(body), [1; 3]).unwrap_or_else(|fault| panic!("{fault:?}: {body}"))
}

fn int(instruction: &str) -> u64 {
    result(&format!("{instruction};\ncvt.u64.u32 %rd9, %r1;"))
}

fn single(instruction: &str) -> f32 {
    f32::from_bits(result(&format!("{instruction};\nmov.b32 %r1, %f1;\ncvt.u64.u32 %rd9, %r1;")) as u32)
}

fn predicate(instruction: &str) -> bool {
    result(&format!("{instruction};\nselp.b64 %rd9, 1, 0, %p1;")) == 1
}

#[test]
fn integers() {
    let table: [(&str, u64); 18] = [
        ("add.u32 %r1, 4294967295, 2", 1),
        ("sub.s32 %r1, 3, 5", u64::from(-2i32 as u32)),
        ("mul.lo.s32 %r1, -3, 5", u64::from(-15i32 as u32)),
        ("mad.lo.u32 %r1, 3, 5, 7", 22),
        ("div.s32 %r1, -7, 2", u64::from(-3i32 as u32)),
        ("rem.s32 %r1, -7, 2", u64::from(-1i32 as u32)),
        ("div.u32 %r1, 4294967295, 2", 0x7FFF_FFFF),
        ("min.s32 %r1, -1, 1", 0xFFFF_FFFF),
        ("min.u32 %r1, 4294967295, 1", 1),
        ("shl.b32 %r1, 1, 31", 0x8000_0000),
        ("shl.b32 %r1, 1, 32", 0),
        ("shr.s32 %r1, -8, 40", 0xFFFF_FFFF),
        ("shr.u32 %r1, -8, 1", 0x7FFF_FFFC),
        ("not.b32 %r1, 0", 0xFFFF_FFFF),
        ("xor.b32 %r1, 6, 3", 5),
        ("clz.b64 %r1, 1", 63),
        ("popc.b32 %r1, -1", 32),
        ("popc.b64 %r1, -2", 63),
    ];
    for (instruction, expected) in table {
        assert_eq!(int(instruction), expected, "{instruction}");
    }
    assert_eq!(result("mul.wide.u32 %rd9, 4294967295, 4294967295;"), 0xFFFF_FFFE_0000_0001);
    assert_eq!(result("mul.wide.s32 %rd9, -2, 3;"), -6i64 as u64);
    assert_eq!(result("mov.u64 %rd2, 5;\nmad.wide.u32 %rd9, 2, 3, %rd2;"), 11);
    assert_eq!(result("shr.u64 %rd9, -1, 63;"), 1);
    assert_eq!(result("rem.u64 %rd9, 17, 5;"), 2);
}

#[test]
fn floats() {
    let (one, three, nan) = ("0f3F800000", "0f40400000", "0f7FC00000");
    assert_eq!(single(&format!("div.rn.f32 %f1, {one}, {three}")), 1.0 / 3.0);
    assert_eq!(single(&format!("fma.rn.f32 %f1, {three}, {three}, {one}")), 10.0);
    assert_eq!(single(&format!("sqrt.rn.f32 %f1, {three}")), 3f32.sqrt());
    assert_eq!(single(&format!("min.f32 %f1, {nan}, {three}")), 3.0, "a single NaN is not the result");
    assert_eq!(single("add.rn.f32 %f1, 0f00000001, 0f00000001"), f32::from_bits(2), "denormals are kept");
    assert_eq!(single("cvt.rni.f32.f32 %f1, 0f40200000"), 2.0, "2.5 is rounded to even");
    assert_eq!(single("cvt.rpi.f32.f32 %f1, 0fBF000000").to_bits(), (-0.0f32).to_bits());
    assert!(
        predicate(&format!("setp.neu.f32 %p1, {nan}, {nan}")) && !predicate(&format!("setp.ne.f32 %p1, {nan}, {one}"))
    );
    assert!(
        predicate(&format!("setp.nan.f32 %p1, {one}, {nan}")) && !predicate(&format!("setp.le.f32 %p1, {one}, {nan}"))
    );
    assert!(predicate(&format!("setp.nan.f32 %p2, {nan}, {nan};\nsetp.gt.or.f32 %p1, {one}, {three}, %p2")));
}

#[test]
fn conversions() {
    for (value, expected) in
        [("0fC0200000", -2i32), ("0f4F800000", i32::MAX), ("0fFF800000", i32::MIN), ("0f7FC00000", 0)]
    {
        assert_eq!(int(&format!("cvt.rzi.s32.f32 %r1, {value}")), u64::from(expected as u32), "{value}");
    }
    assert_eq!(int("cvt.rzi.s32.f64 %r1, 0d7FF8000000000000"), 0x8000_0000, "NaN of f64 is the highest bit");
    assert_eq!(result("cvt.rzi.u64.f32 %rd9, 0f7FC00000;"), 1 << 63);
    assert_eq!(result("cvt.s64.s32 %rd9, -1;"), u64::MAX);
    assert_eq!(result("cvt.u64.u32 %rd9, -1;"), 0xFFFF_FFFF);
    assert_eq!(single("cvt.rn.f16.f32 %h1, 0f477FFF00;\ncvt.f32.f16 %f1, %h1"), f32::INFINITY);
    assert_eq!(single("cvt.rn.f32.s32 %f1, 16777217"), 16_777_216.0);
    assert_eq!(int("mov.u32 %r2, 511;\nst.local.u8 [own], %r2;\nld.local.s8 %r1, [own]"), 0xFFFF_FFFF);
    assert_eq!(int("mov.u32 %r2, 511;\nst.local.u8 [own], %r2;\nld.local.u8 %r1, [own]"), 0xFF);
}

#[test]
fn atomics() {
    let global = "mov.u32 %r2, 1;\nst.global.u32 [%rd1], %r2;\natom.global";
    assert_eq!(int(&format!("{global}.add.u32 %r3, [%rd1], 5;\nld.global.u32 %r1, [%rd1]")), 6);
    assert_eq!(int(&format!("{global}.cas.b32 %r1, [%rd1], 1, 9")), 1, "it returns the old value");
    assert_eq!(int(&format!("{global}.cas.b32 %r3, [%rd1], 2, 9;\nld.global.u32 %r1, [%rd1]")), 1);
    assert_eq!(int(&format!("{global}.max.s32 %r3, [%rd1], -1;\nld.global.u32 %r1, [%rd1]")), 1);
    let denormal = "mov.f32 %f2, 0f00000001;\nst.SPACE.f32 [PLACE], %f2;\natom.SPACE.add.f32 %f3, [PLACE], 0f00000001;\nld.SPACE.u32 %r1, [PLACE]";
    assert_eq!(int(&denormal.replace("SPACE", "shared").replace("PLACE", "held")), 2);
    assert_eq!(
        int(&denormal.replace("SPACE", "global").replace("PLACE", "%rd1")),
        0,
        "global memory flushes denormals"
    );
}

#[test]
fn vectors_are_aligned_to_their_total_size() {
    let filled = "mov.u32 %r1, 7;\nmov.u32 %r2, 70;\nst.shared.u32 [held+16], %r1;\nst.shared.u32 [held+20], %r2;";
    let read = |wide: &str| result(&format!("{filled}\n{wide}\nsub.u32 %r1, %r4, %r3;\ncvt.u64.u32 %rd9, %r1;"));
    assert_eq!(read("ld.shared.v2.u32 {%r3, %r4}, [held+16];"), 63);
    // The array is aligned to 8 bytes: a multiple of 16 is 8 bytes into it.
    assert_eq!(read("ld.shared.v4.u32 {%r1, %r2, %r3, %r4}, [held+8];"), 63);
    for read in
        ["v4.u32 {%r1, %r2, %r3, %r4}, [held+16];", "v2.u32 {%r1, %r2}, [held+12];", "v2.f64 {%fd1, %fd2}, [held];"]
    {
        let fault = launch(&program(&format!("ld.shared.{read}")), [1; 3]).unwrap_err();
        assert_eq!(fault.code, MISALIGNED, "{read}: {fault:?}");
    }
}

#[test]
fn threads_meet_at_barriers() {
    // Each thread writes its index; the first one adds up all of them.
    let body = "mov.u32 %r1, %tid.x;\nmul.wide.u32 %rd2, %r1, 4;\nmov.u64 %rd3, held;\nadd.s64 %rd3, %rd3, %rd2;\n\
                st.shared.u32 [%rd3], %r1;\nbar.sync 0;\nsetp.ne.u32 %p1, %r1, 0;\n@%p1 ret;\nmov.u32 %r2, 0;\n\
                mov.u32 %r3, 0;\nmov.u64 %rd3, held;\n$again:\nld.shared.u32 %r4, [%rd3];\nadd.u32 %r2, %r2, %r4;\n\
                add.s64 %rd3, %rd3, 4;\nadd.u32 %r3, %r3, 1;\nsetp.lt.u32 %p2, %r3, 64;\n@%p2 bra $again;\n\
                cvt.u64.u32 %rd9, %r2;";
    assert_eq!(launch(&program(body), [64, 1, 1]), Ok(63 * 32));
    let apart = "mov.u32 %r1, %tid.x;\nsetp.eq.u32 %p1, %r1, 0;\n@%p1 bra $other;\nbar.sync 0;\n$other:\nbar.sync 0;\nmov.u64 %rd9, 0;";
    assert_eq!(launch(&program(apart), [2, 1, 1]).unwrap_err().code, FAILED);
}

/// One lane sets the element of A in row 8 and column 1 to 2, another that of B in row 1 and column 5 to 3; all elements of C are 1. So the
/// element in row 8 and column 5 is 7, which is the fourth register of exactly one lane.
#[test]
fn mma_uses_the_fragment_layout_of_the_isa() {
    let body = |shown: u32, register: u32| {
        format!(
            "mov.u32 %r1, %tid.x;\nsetp.eq.u32 %p1, %r1, 0;\nselp.b32 %r2, 1073741824, 0, %p1;\nsetp.eq.u32 %p2, %r1, 20;\n\
             selp.b32 %r3, 1077936128, 0, %p2;\nmov.u32 %r4, 0;\nmov.f32 %f1, 0f3F800000;\n\
             mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {{%f2, %f3, %f4, %f5}}, {{%r4, %r2, %r4, %r4}}, {{%r3, %r4}}, \
             {{%f1, %f1, %f1, %f1}};\nsetp.ne.u32 %p3, %r1, {shown};\n@%p3 ret;\nmov.b32 %r1, %f{register};\ncvt.u64.u32 %rd9, %r1;"
        )
    };
    let shown = |lane: u32, register: u32| {
        f32::from_bits(launch(&program(&body(lane, register)), [32, 1, 1]).expect("it runs") as u32)
    };
    for lane in 0..32 {
        for register in 2..6 {
            let expected = if (lane, register) == (2, 5) { 7.0 } else { 1.0 };
            assert_eq!(shown(lane, register), expected, "lane {lane}, register {register}");
        }
    }
    let fault = launch(&program(&body(0, 2)), [31, 1, 1]).expect_err("a thread is missing");
    assert!(fault.what.contains("without all of its threads"), "{fault:?}");
    let older = program(&body(0, 2)).replace("sm_80", "sm_75");
    assert!(module(&older).err().expect("it is rejected").contains("requires sm_80"));
}

#[test]
fn stray_accesses_are_faults() {
    for (body, code) in [
        ("ld.global.u32 %r1, [%rd1+8];", ILLEGAL_ADDRESS),
        ("ld.global.u32 %r1, [%rd1+2];", MISALIGNED),
        ("mov.u64 %rd2, 264;\nld.shared.u32 %r1, [%rd2];", ILLEGAL_ADDRESS),
        ("mov.u64 %rd2, 0;\nld.global.u32 %r1, [%rd2];", ILLEGAL_ADDRESS),
    ] {
        assert_eq!(launch(&program(body), [1; 3]).unwrap_err().code, code, "{body}");
    }
}

#[test]
fn invalid_and_unknown_instructions_are_rejected_with_their_line() {
    for (body, why) in [
        ("add.f32 %f1, %f2, %f3;", "unknown instruction"),
        ("add.rn.ftz.f32 %f1, %f2, %f3;", "flushed"),
        ("ex2.approx.f32 %f1, %f2;", "approximate"),
        ("add.u32 %r1, %r2, %rd3;", "%rd3 is B(64), not U(32)"),
        ("add.rn.f32 %f1, %f2, %fd3;", "%fd3 is F(64), not F(32)"),
        ("add.u32 %rd1, %r2, %r3;", "the result is U(32), its register B(64)"),
        ("mov.u32 %r1, %r9;", "%r9 is not an operand"),
        ("add.u32 %r1, %r2, 4294967296;", "4294967296 is not an operand"),
        ("add.u32 %r1, %r2;", "a comma is missing"),
        ("cvt.f32.f64 %f1, %fd1;", "no such conversion, or not with this rounding"),
        ("cvt.s32.f32 %r1, %f1;", "no such conversion, or not with this rounding"),
        ("bra nowhere;", "no label nowhere"),
        ("@%r1 bra x;", "the guard is not a predicate"),
        ("ld.param.u32 %r1, [out];", "parameter out has 8 bytes"),
        ("atom.local.add.u32 %r1, [own], 1;", "no atomic add"),
        ("ld.shared.v4.f64 {%fd1, %fd2, %fd3, %fd4}, [held];", "vectors of 4 elements of 64 bits are not supported"),
        ("ld.shared.v4.u32 {%r1, %r2}, [held];", "expected 4 registers in braces, found 2"),
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.bf16.f32 {%f1}, {%r1}, {%r1}, {%f1};", "unknown instruction"),
        (
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1, %f2}, {%r1}, {%r1}, {%f1};",
            "expected 4 registers in braces, found 2",
        ),
        (
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1, %f2, %f3, %rd1}, {%r1}, {%r1}, {%f1};",
            "its register B(64)",
        ),
    ] {
        let error = module(&program(body)).err().unwrap_or_else(|| panic!("{body} was accepted"));
        assert!(error.starts_with("line 15: ") && error.contains(why), "{body}: {error}");
    }
}
