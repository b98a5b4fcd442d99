//! Semantics of statements, memories and work-groups, as small kernels with expected results.

use panoply_ir::interpret::{Access, AccessKind, Arg, Divergence, Observer, Overflow, WorkItem, run};
use panoply_ir::kernel::{Kernel, Loc, MemId};
use panoply_ir::verify::{Verified, verify};
use panoply_ir::{Result, Scalar, f16, text};

fn kernel(source: &str) -> Verified<Kernel> {
    let kernel = text::parse(source).unwrap_or_else(|error| panic!("{source}\n{error}"));
    verify(kernel).unwrap_or_else(|error| panic!("{source}\n{error}"))
}

fn bytes<T: Copy, const N: usize>(values: &[T], to_bytes: impl Fn(T) -> [u8; N]) -> Vec<u8> {
    values.iter().flat_map(|value| to_bytes(*value)).collect()
}

fn u32s(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks(4).map(|chunk| u32::from_ne_bytes(chunk.try_into().unwrap())).collect()
}

/// Runs a body over `h: &mut [u32]` with these initial contents; `n` is its index parameter.
fn on_u32(arrays: &str, body: &str, grid: [u64; 3], group: [u32; 3], n: u64, start: &[u32]) -> Vec<u32> {
    let [x, y, z] = group;
    let source = format!("kernel k(h: &mut [u32], n: index) group({x}, {y}, {z}) {{ {arrays} {body} }}");
    let mut data = bytes(start, u32::to_ne_bytes);
    run(&kernel(&source), grid, group, &mut [Arg::Write(&mut data), Arg::Index(n)], &mut ()).unwrap();
    u32s(&data)
}

/// Runs one work-group of eight over eight zeros.
fn eight(body: &str) -> Vec<u32> {
    on_u32("shared s: [u32; 8] private p: [u32; 4]", body, [8, 1, 1], [8, 1, 1], 8, &[0; 8])
}

#[test]
fn branches_diverge_per_work_item() {
    assert_eq!(
        eight(
            "let i: index = global_id.x let mut v: u32 = 1u32 if lt(i, 3) { v = 2u32 } else { if eq(i, 5) { v = 3u32 } } h[i] = v"
        ),
        [2, 2, 2, 1, 1, 3, 1, 1]
    );
}

#[test]
fn loops_break_continue_and_return() {
    let body = "
        let i: index = global_id.x
        let me: u32 = cast<u32>(i)
        let mut sum: u32 = 0u32
        for j: u32 in 0u32..10u32 step 2u32 {
            if eq(j, 4u32) { continue }
            if lt(me, j) { break }
            if eq(add(me, j), 8u32) { return }
            sum = add(sum, add(j, 1u32))
        }
        let mut k: u32 = 0u32
        while lt(k, me) {
            k = add(k, 1u32)
            if eq(k, 2u32) { continue }
            if eq(k, 5u32) { break }
            sum = add(sum, 100u32)
        }
        h[i] = sum";
    let expected = (0..8_u32).map(|me| {
        let mut sum = 0;
        for j in (0..10_u32).step_by(2) {
            if j == 4 {
                continue;
            }
            if me < j {
                break;
            }
            if me + j == 8 {
                return 0;
            }
            sum += j + 1;
        }
        let mut k = 0;
        while k < me {
            k += 1;
            if k == 2 {
                continue;
            }
            if k == 5 {
                break;
            }
            sum += 100;
        }
        sum
    });
    assert_eq!(eight(body), expected.collect::<Vec<u32>>());
}

#[test]
fn loop_bounds_are_evaluated_once_and_never_wrap() {
    let body = "
        let mut end: u32 = 3u32
        let mut iterations: u32 = 0u32
        for a: u32 in 0u32..end { end = 100u32 iterations = add(iterations, 1u32) }
        for b: u8 in 250u8..255u8 step 10u8 { iterations = add(iterations, 10u32) }
        for c: i8 in -3i8..2i8 step 2i8 { iterations = add(iterations, 100u32) }
        for d: i8 in 2i8..-3i8 { iterations = add(iterations, 1000u32) }
        h[global_id.x] = iterations";
    assert_eq!(eight(body), [313; 8]);
}

#[test]
fn statements_read_current_memory_and_locals() {
    let body = "
        let i: index = global_id.x
        let mut v: u32 = 5u32
        h[i] = add(v, h[i])
        v = 7u32
        h[i] = add(v, h[i])
        let w: u32 = h[i]
        h[i] = 0u32
        h[i] = add(h[i], w)";
    assert_eq!(eight(body), [12; 8]);
}

#[test]
fn barriers_make_writes_visible() {
    let body = "
        let i: index = local_id.x
        s[i] = mul(cast<u32>(i), 3u32)
        barrier()
        h[i] = s[sub(7, i)]";
    assert_eq!(eight(body), [21, 18, 15, 12, 9, 6, 3, 0]);
}

#[test]
fn private_arrays_are_per_work_item() {
    let body = "
        for j: index in 0..4 { p[j] = cast<u32>(add(global_id.x, j)) }
        h[global_id.x] = add(p[0], p[3])";
    assert_eq!(eight(body), [3, 5, 7, 9, 11, 13, 15, 17]);
}

#[test]
fn out_of_bounds_reads_are_zero_and_writes_are_dropped() {
    let far = "
        let i: index = global_id.x
        let old: u32 = atomic_add(h[add(i, 6)], 10u32)
        s[8] = 1u32
        p[99] = 1u32
        h[add(i, 4)] = add(add(h[add(i, 100)], s[8]), add(p[4], add(old, cast<u32>(len(h)))))";
    assert_eq!(eight(far), [0, 0, 0, 0, 8, 8, 8, 8]);
}

#[test]
fn vectors_are_lane_by_lane() {
    let source = "kernel k(x: &[f32], y: &mut [f32]) {
        let v: f32x4 = x[global_id.x; 4]
        let m: f32x4 = select(lt(v, splat<4>(3.0f32)), fma(v, v, splat<4>(0.5f32)), neg(v))
        y[mul(global_id.x, 3)] = m
        y[7] = extract<2>(cast<f32x4>(cast<i32x4>(m)))
    }";
    let x = bytes(&[1.0, 2.0, 3.0], f32::to_ne_bytes);
    let mut y = bytes(&[9.0; 8], f32::to_ne_bytes);
    run(&kernel(source), [1, 1, 1], [1, 1, 1], &mut [Arg::Read(&x), Arg::Write(&mut y)], &mut ()).unwrap();
    assert_eq!(y, bytes(&[1.5, 4.5, -3.0, 0.5, 9.0, 9.0, 9.0, -3.0], f32::to_ne_bytes));
    // The out-of-bounds lanes of a vector store are dropped individually.
    let mut y = bytes(&[9.0; 3], f32::to_ne_bytes);
    run(&kernel(source), [1, 1, 1], [1, 1, 1], &mut [Arg::Read(&x), Arg::Write(&mut y)], &mut ()).unwrap();
    assert_eq!(y, bytes(&[1.5, 4.5, -3.0], f32::to_ne_bytes));
}

#[test]
fn atomics_are_serialized() {
    let body = "
        let i: u32 = cast<u32>(global_id.x)
        atomic_add(h[0], i)
        atomic_max(h[1], i)
        atomic_min(h[2], i)
        let a: u32 = atomic_exchange(h[3], i)
        let b: u32 = atomic_compare_exchange(h[4], mul(i, 10u32), mul(add(i, 1u32), 10u32))
        atomic_add(h[5], a)
        atomic_add(h[6], b)";
    assert_eq!(on_u32("", body, [4, 1, 1], [4, 1, 1], 0, &[100, 1, 2, 9, 0, 0, 0]), [106, 3, 0, 3, 40, 12, 60]);

    let source = "kernel k(f: &mut [f32], i: &mut [i32]) {
        let old: f32 = atomic_add(f[0], 0.5f32)
        let first: f32 = atomic_exchange(f[1], old)
        atomic_add(f[2], first)
        atomic_min(i[0], -5i32)
        atomic_max(i[1], -5i32)
    }";
    let mut f = bytes(&[1.0, 8.0, 0.0], f32::to_ne_bytes);
    let mut i = bytes(&[3, -9], i32::to_ne_bytes);
    run(&kernel(source), [3, 1, 1], [2, 1, 1], &mut [Arg::Write(&mut f), Arg::Write(&mut i)], &mut ()).unwrap();
    assert_eq!(f, bytes(&[2.5, 2.0, 10.5], f32::to_ne_bytes));
    assert_eq!(i, bytes(&[-5, -5], i32::to_ne_bytes));
}

#[test]
fn collectives_combine_in_order_of_linear_ids() {
    let values = [5_u32, 1, 9, 2, 0, 7, 3, 4];
    let group = |collective: &str| {
        let body = format!(
            "let i: index = add(local_id.x, mul(4, local_id.y)) let v: u32 = h[i] let c: u32 = {collective}(v) h[i] = c"
        );
        on_u32("", &body, [4, 2, 1], [4, 2, 1], 0, &values)
    };
    assert_eq!(group("group_sum"), [31; 8]);
    assert_eq!(group("group_prod"), [0; 8]);
    assert_eq!(group("group_max"), [9; 8]);
    assert_eq!(group("group_min"), [0; 8]);
    assert_eq!(group("group_broadcast<5>"), [7; 8]);
    assert_eq!(group("group_inclusive_sum"), [5, 6, 15, 17, 17, 24, 27, 31]);
    assert_eq!(group("group_exclusive_sum"), [0, 5, 6, 15, 17, 17, 24, 27]);
    assert_eq!(group("group_inclusive_max"), [5, 5, 9, 9, 9, 9, 9, 9]);
    assert_eq!(group("group_exclusive_max"), [0, 5, 5, 9, 9, 9, 9, 9]);
    assert_eq!(group("group_exclusive_min"), [u32::MAX, 5, 1, 1, 1, 0, 0, 0]);
    assert_eq!(group("group_inclusive_prod"), [5, 5, 45, 90, 0, 0, 0, 0]);
    assert_eq!(group("subgroup_sum"), values);
    assert_eq!(group("subgroup_exclusive_sum"), [0; 8]);
    assert_eq!(group("subgroup_broadcast<0>"), values);
}

#[test]
fn collectives_of_floats_and_signs() {
    let source = "kernel k(x: &mut [i8], y: &mut [f16]) group(4, 1, 1) {
        let i: index = local_id.x
        let a: i8 = group_exclusive_max(x[i])
        x[i] = a
        let b: f16 = group_max(y[i])
        y[i] = b
    }";
    let mut x = bytes(&[-7, -9, 3, 1], i8::to_ne_bytes);
    let halves = |values: [f32; 4]| bytes(&values.map(f16::from_f32), f16::to_ne_bytes);
    let mut y = halves([1.0, -2.0, 0.5, 1.5]);
    run(&kernel(source), [4, 1, 1], [4, 1, 1], &mut [Arg::Write(&mut x), Arg::Write(&mut y)], &mut ()).unwrap();
    assert_eq!(x, bytes(&[-128, -7, -7, 3], i8::to_ne_bytes));
    assert_eq!(y, halves([1.5; 4]));
    let mut y = halves([1.0, f32::NAN, 0.5, 1.5]);
    run(&kernel(source), [4, 1, 1], [4, 1, 1], &mut [Arg::Write(&mut x), Arg::Write(&mut y)], &mut ()).unwrap();
    assert!(y.chunks(2).all(|half| f16::from_ne_bytes([half[0], half[1]]).is_nan()));
}

/// Fragments in the layout of the IR's table, of row-major matrices of integers, so that no sum is rounded.
#[test]
fn matrices_are_multiplied() {
    let source = "kernel k(a: &[u32], b: &[u32], c: &mut [f32]) group(16, 4, 1) {
        let item: index = add(local_id.x, mul(16, local_id.y))
        let set: index = div(item, 32)
        let g: index = div(rem(item, 32), 4)
        let t: index = rem(item, 4)
        let r: index = add(mul(128, set), add(mul(8, g), t))
        let s: index = add(mul(64, set), add(mul(8, g), t))
        let first: index = mul(4, item)
        let d: f32x4 = group_mma<f16>(c[first; 4], a[r], a[add(r, 64)], a[add(r, 4)], a[add(r, 68)], b[s], b[add(s, 4)])
        c[first] = d
    }";
    let number = |seed: usize, i: usize| ((seed * 31 + i * 17) % 23) as f32 - 11.0;
    let at =
        |set: usize, row: usize, column: usize| (number(set + 1, row * 16 + column), number(set + 5, row * 8 + column));
    let halves = |values: &mut dyn Iterator<Item = f32>| {
        bytes(&values.map(f16::from_f32).collect::<Vec<f16>>(), f16::to_ne_bytes)
    };
    let a = halves(&mut (0..512).map(|i| at(i / 256, i / 16 % 16, i % 16).0));
    // Column-major.
    let b = halves(&mut (0..256).map(|i| at(i / 128, i % 16, i / 16 % 8).1));
    let before: Vec<f32> = (0..256).map(|i| number(9, i)).collect();
    let mut c = bytes(&before, f32::to_ne_bytes);
    let args = &mut [Arg::Read(&a), Arg::Read(&b), Arg::Write(&mut c)];
    run(&kernel(source), [16, 4, 1], [16, 4, 1], args, &mut ()).unwrap();
    let expected: Vec<f32> = (0..256)
        .map(|i| {
            let (item, n) = (i / 4, i % 4);
            let (set, g, t) = (item / 32, item % 32 / 4, item % 4);
            let (row, column) = (g + n / 2 * 8, 2 * t + n % 2);
            before[i] + (0..16).map(|k| at(set, row, k).0 * at(set, k, column).1).sum::<f32>()
        })
        .collect();
    assert_eq!(c, bytes(&expected, f32::to_ne_bytes));
}

#[test]
fn ids_and_sizes() {
    let body = "
        let linear: index = add(global_id.x, mul(5, add(global_id.y, mul(3, global_id.z))))
        if and(lt(global_id.x, global_size.x), lt(global_id.y, global_size.y)) {
            h[linear] = cast<u32>(add(
                add(mul(group_id.x, 1), mul(group_id.y, 10)),
                add(add(mul(group_id.z, 100), mul(local_id.x, 1000)), mul(local_id.y, 10000))))
        }
        if eq(add(linear, local_id.z), 0) {
            h[30] = cast<u32>(add(group_size.x, add(mul(10, group_size.y), mul(100, group_size.z))))
            h[31] = cast<u32>(add(num_groups.x, add(mul(10, num_groups.y), mul(100, num_groups.z))))
            h[32] = cast<u32>(add(global_size.x, add(mul(10, global_size.y), mul(100, global_size.z))))
            h[33] = cast<u32>(add(subgroup_size(), mul(10, subgroup_lane_id())))
        }";
    let found = on_u32("", body, [5, 3, 2], [2, 2, 1], 0, &[0; 34]);
    let expected = |x: u32, y: u32, z: u32| x / 2 + y / 2 * 10 + z * 100 + x % 2 * 1000 + y % 2 * 10000;
    for (i, found) in found[..30].iter().enumerate() {
        let i = i as u32;
        assert_eq!(*found, expected(i % 5, i / 5 % 3, i / 15), "{i}");
    }
    assert_eq!(found[30..], [122, 223, 235, 1]);
}

#[test]
fn grids_are_exact_without_and_rounded_up_with_a_group_size() {
    let free = kernel("kernel k(h: &mut [u32]) { atomic_add(h[add(global_id.x, mul(8, global_id.y))], 1u32) }");
    for group in [[1, 1, 1], [4, 1, 1], [3, 2, 1], [64, 1, 2]] {
        let mut data = vec![0; 16 * 4];
        run(&free, [5, 2, 1], group, &mut [Arg::Write(&mut data)], &mut ()).unwrap();
        assert_eq!(u32s(&data), [1, 1, 1, 1, 1, 0, 0, 0, 1, 1, 1, 1, 1, 0, 0, 0]);
    }
    let body = "atomic_add(h[global_id.x], 1u32)";
    assert_eq!(on_u32("", body, [5, 1, 1], [4, 1, 1], 0, &[0; 10]), [1, 1, 1, 1, 1, 1, 1, 1, 0, 0]);
}

#[test]
fn nonzero_bytes_are_true() {
    let source = "kernel k(b: &mut [bool], x: &[bool]) { b[global_id.x] = not(x[global_id.x]) }";
    let mut b = vec![7; 3];
    run(&kernel(source), [3, 1, 1], [1, 1, 1], &mut [Arg::Write(&mut b), Arg::Read(&[0, 1, 200])], &mut ()).unwrap();
    assert_eq!(b, [1, 0, 0]);
}

#[test]
fn scalar_arguments_of_every_type() {
    let source = "kernel k(a: i64, b: bool, c: f16, n: index, y: &out [f64]) {
        y[n] = select(b, add(cast<f64>(a), cast<f64>(c)), 0.0f64)
    }";
    let mut y = vec![0; 16];
    let mut args = [
        Arg::Scalar(Scalar::from(-3_i64)),
        Arg::Scalar(true.into()),
        Arg::Scalar(f16::from_f32(0.5).into()),
        Arg::Index(1),
        Arg::Write(&mut y),
    ];
    run(&kernel(source), [1, 1, 1], [1, 1, 1], &mut args, &mut ()).unwrap();
    assert_eq!(y, bytes(&[0.0, -2.5], f64::to_ne_bytes));
}

#[test]
fn invalid_launches_are_mistakes() {
    let source =
        "kernel k(a: f32, x: &mut [u32], s: u8) group(4, 1, 1) { for i: u8 in 0u8..9u8 step s { x[0] = 1u32 } }";
    let kernel = kernel(source);
    let (a, s) = (|| Arg::Scalar(1.0_f32.into()), |step: u8| Arg::Scalar(step.into()));
    let check = |grid, group, args: &mut [Arg], expected: &str| {
        let error = run(&kernel, grid, group, args, &mut ()).unwrap_err();
        assert!(error.is_mistake() && error.message().contains(expected), "{error}, expected {expected}");
    };
    let (one, four) = ([1, 1, 1], [4, 1, 1]);
    check([0, 1, 1], four, &mut [], "a grid of [0, 1, 1] in groups of [4, 1, 1] is empty");
    check(one, [8, 1, 1], &mut [], "it has groups of [4, 1, 1], not [8, 1, 1]");
    check(one, four, &mut [a()], "it takes 3 arguments, not 1");
    check(one, four, &mut [Arg::Index(1), Arg::Write(&mut [0; 4]), s(1)], "argument 0 (a) must be one f32");
    check(
        one,
        four,
        &mut [a(), Arg::Read(&[0; 4]), s(1)],
        "argument 1 (x) must be a buffer, writable if it is written",
    );
    check(one, four, &mut [a(), Arg::Write(&mut [0; 6]), s(1)], "x has 6 bytes, not a whole number of u32");
    check(one, four, &mut [a(), Arg::Write(&mut [0; 4]), s(0)], "a loop with step 0; the step must be at least 1");
}

/// An observer that records its calls as text.
#[derive(Default)]
struct Notes(Vec<String>);

impl Observer for Notes {
    fn group(&mut self, number: u64) -> Result<()> {
        self.0.push(format!("group {number}"));
        Ok(())
    }

    fn access(&mut self, access: Access) -> Result<()> {
        let Access { touch, mem: MemId(mem), element, len, item, at } = access;
        let touch = match touch {
            AccessKind::Load => "load",
            AccessKind::Store => "store",
            AccessKind::Atomic => "atomic",
        };
        self.0.push(format!(
            "{touch} {mem}[{}] of {len} by {} on line {}",
            element.unwrap_or(u64::MAX),
            who(item),
            at.line
        ));
        Ok(())
    }

    fn barrier(&mut self, at: Loc) -> Result<()> {
        self.0.push(format!("barrier on line {}", at.line));
        Ok(())
    }

    fn diverged(&mut self, divergence: Divergence) -> Result<()> {
        let Divergence { arrived, items, witnesses: [came, missing], at } = divergence;
        let line = at.line;
        self.0.push(format!("{arrived} of {items} on line {line}: {} without {}", who(came), who(missing)));
        Ok(())
    }

    fn overflow(&mut self, overflow: Overflow) -> Result<()> {
        let [a, b] = overflow.operands;
        self.0.push(format!("{}({a}, {b}) by {} on line {}", overflow.op.name(), who(overflow.item), overflow.at.line));
        Ok(())
    }

    fn iteration(&mut self, at: Loc) -> Result<()> {
        self.0.push(format!("iteration on line {}", at.line));
        Ok(())
    }
}

fn who(item: WorkItem) -> String {
    format!("{}/{}", item.global[0], item.group)
}

fn notes(source: &str, items: u64, group: u32) -> Vec<String> {
    let mut data = vec![0; 16];
    let mut notes = Notes::default();
    run(&kernel(source), [items, 1, 1], [group, 1, 1], &mut [Arg::Write(&mut data)], &mut notes).unwrap();
    notes.0
}

#[test]
fn observers_receive_all_events() {
    let source = "unchecked kernel k(h: &mut [u32]) group(2, 1, 1) {
        let i: index = global_id.x //@ k.rs:1
        h[i] = h[sub(4, i)] //@ k.rs:2
        if eq(i, 1) {
            barrier() //@ k.rs:4
        }
        atomic_add(h[i], 1u32) //@ k.rs:5
        for j: index in 0..i { //@ k.rs:6
        }
    }";
    let expected = [
        "group 0",
        "load 0[4] of 4 by 0/0 on line 2",
        "load 0[3] of 4 by 1/0 on line 2",
        "store 0[0] of 4 by 0/0 on line 2",
        "store 0[1] of 4 by 1/0 on line 2",
        "1 of 2 on line 4: 1/0 without 0/0",
        "barrier on line 4",
        "atomic 0[0] of 4 by 0/0 on line 5",
        "atomic 0[1] of 4 by 1/0 on line 5",
        "iteration on line 6",
    ];
    assert_eq!(notes(source, 2, 2), expected);
}

#[test]
fn observers_follow_short_circuit_semantics() {
    let source = "kernel k(h: &mut [u32]) {
        let i: index = global_id.x
        let a: bool = and(lt(0, i), eq(h[sub(i, 1)], 0u32)) //@ k.rs:1
        let b: bool = or(eq(i, 0), eq(h[sub(i, 1)], 0u32)) //@ k.rs:2
        let c: u32 = select(lt(0, i), h[sub(i, 1)], 0u32) //@ k.rs:3
        let d: u32 = select(lt(0, i), h[unchecked sub(i, 1)], 0u32) //@ k.rs:4
        let e: index = sub(i, 1) //@ k.rs:5
    }";
    let far = u64::MAX;
    let expected = ["group 0", &format!("load 0[{far}] of 4 by 0/0 on line 4"), "sub(0, 1) by 0/0 on line 5"];
    assert_eq!(notes(source, 1, 1), expected);
}

#[test]
fn vector_accesses_are_reported_per_lane() {
    let source = "kernel k(h: &mut [u32]) { h[3] = h[1; 2] }";
    let expected = [
        "group 0",
        "load 0[1] of 4 by 0/0 on line 0",
        "load 0[2] of 4 by 0/0 on line 0",
        "store 0[3] of 4 by 0/0 on line 0",
        "store 0[4] of 4 by 0/0 on line 0",
    ];
    assert_eq!(notes(source, 1, 1), expected);
}

#[test]
fn observer_error_ends_the_run() {
    struct Impatient(u32);
    impl Observer for Impatient {
        fn iteration(&mut self, _: Loc) -> Result<()> {
            self.0 += 1;
            if self.0 < 10 { Ok(()) } else { Err(panoply_ir::Error::mistake("too long")) }
        }
    }
    let endless = kernel("kernel k() { while true { } }");
    let error = run(&endless, [1, 1, 1], [1, 1, 1], &mut [], &mut Impatient(0)).unwrap_err();
    assert_eq!(error.message(), "too long");
}
