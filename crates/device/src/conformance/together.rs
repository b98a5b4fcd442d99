//! Cooperation of work-items: results of atomics, and bitwise results of work-group and subgroup collectives.

use panoply_ir::kernel::{AtomicOp, CollectiveOp, Scope};
use panoply_ir::reduce::ReduceOp;
use panoply_ir::{DType, Result};

use super::bench::{Bench, launch};
use super::kernels::{COMBINED, atomics, atomics_of, combinations, crowd};
use super::{Case, Requirement, expect, expect_all};
use crate::command::Arg;

pub const CASES: &[Case] = &[
    Case { name: "atomics return the previous value", needs: &[Requirement::Computing], run: before },
    Case { name: "atomics lose no update under contention", needs: &[Requirement::Computing], run: crowded },
    Case {
        name: "work-group collectives are bitwise exact",
        needs: &[Requirement::Computing, Requirement::Groups],
        run: groups,
    },
    Case {
        name: "subgroup collectives are bitwise exact",
        needs: &[Requirement::Computing, Requirement::Groups],
        run: subgroups,
    },
];

/// Returns values of both signs whose float sums round differently in different orders.
fn words(count: u32) -> Vec<u32> {
    let one = |i: u32| ((i * 37 % 101) as f32 - 49.7) * 0.1 * (1u32 << (i * 5 % 22)) as f32;
    (0..count).map(|i| one(i).to_bits()).collect()
}

/// Each work-item has separate elements, so the previous values are known.
fn before(bench: &Bench<'_>) -> Result<()> {
    for dtype in [DType::U32, DType::I32, DType::F32] {
        let (ops, count) = (atomics_of(dtype), 40usize);
        let data = words(((ops.len() + 1) * count) as u32);
        let (values, x) = data.split_at(count);
        // Every second compare-exchange finds its expected value.
        let compared = ops.iter().position(|op| *op == AtomicOp::CompareExchange).unwrap_or(0);
        let expected: Vec<u32> = (0..count).map(|i| x[ops.len() * i + compared] ^ (i as u32 & 1)).collect();
        let program = bench.compile(atomics(dtype))?;
        let memories = [bench.holding(x)?, bench.holding(values)?, bench.holding(&expected)?, bench.holding(x)?];
        let args = memories.iter().map(|memory| Arg::Buffer(memory.all())).collect();
        bench.run(&[launch(&program, [count as u64, 1, 1], bench.group([16, 1, 1]), args)])?;
        expect_all(format_args!("values returned by atomics on {dtype}"), &memories[3].words()?, x)?;
        let after = |(at, old): (usize, &u32)| {
            let (i, old) = (at / ops.len(), *old);
            match ops[at % ops.len()] {
                AtomicOp::Add => pair(ReduceOp::Sum, dtype, old, values[i]),
                AtomicOp::Min => pair(ReduceOp::Min, dtype, old, values[i]),
                AtomicOp::Max => pair(ReduceOp::Max, dtype, old, values[i]),
                AtomicOp::CompareExchange if old != expected[i] => old,
                AtomicOp::Exchange | AtomicOp::CompareExchange => values[i],
            }
        };
        let left: Vec<u32> = x.iter().enumerate().map(after).collect();
        expect_all(format_args!("values after atomics on {dtype}, {ops:?} in turn"), &memories[0].words()?, &left)?;
    }
    Ok(())
}

fn crowded(bench: &Bench<'_>) -> Result<()> {
    let (program, count) = (bench.compile(crowd())?, 1000usize);
    let (counters, sum) = (bench.holding(&[0i32, -1, 5000])?, bench.holding(&[0f32])?);
    let taken = bench.holding(&vec![-1i32; count])?;
    let args = [&counters, &sum, &taken].map(|memory| Arg::Buffer(memory.all())).to_vec();
    bench.run(&[launch(&program, [count as u64, 1, 1], bench.group([64, 1, 1]), args)])?;
    expect("count, maximum and minimum", counters.words()?, vec![count as u32, count as u32 - 1, 0])?;
    expect("a sum of ones", sum.words()?, vec![(count as f32).to_bits()])?;
    let mut numbers = taken.words()?;
    numbers.sort_unstable();
    expect_all("the numbers taken", &numbers, &Vec::from_iter(0..count as u32))
}

fn groups(bench: &Bench<'_>) -> Result<()> {
    // The second size has two axes and is not a power of two.
    for group in [[16, 1, 1], [5, 3, 1]] {
        let (found, _) = combined(bench, group, Scope::Group)?;
        let items = (group[0] * group[1]) as usize;
        let members: Vec<usize> = (0..GROUPS).map(|_| items).collect();
        expect_combined(&format!("groups of {group:?}"), &found, &members)?;
    }
    Ok(())
}

fn subgroups(bench: &Bench<'_>) -> Result<()> {
    let (found, lanes) = combined(bench, [16, 1, 1], Scope::Subgroup)?;
    let (size, mut members) = (lanes[0] / 100, Vec::new());
    expect("a subgroup has work-items", size > 0, true)?;
    for (i, lane) in lanes.iter().enumerate() {
        // Lanes are consecutive work-items; the last subgroup of a work-group can be smaller.
        let next = i as u32 % 16 % size;
        expect(format_args!("lane of work-item {i} and 100 times the size {size}"), *lane, 100 * size + next)?;
        match members.last_mut() {
            Some(last) if next > 0 => *last += 1,
            _ => members.push(1),
        }
    }
    expect_combined(&format!("subgroups of {size}"), &found, &members)
}

/// Number of work-groups in a launch.
const GROUPS: usize = 3;

/// Runs the collectives; returns their results and the lanes.
fn combined(bench: &Bench<'_>, group: [u32; 3], scope: Scope) -> Result<(Vec<u32>, Vec<u32>)> {
    let items = GROUPS * (group[0] * group[1]) as usize;
    let program = bench.compile(combinations(group, scope))?;
    let x = bench.holding(&words(items as u32))?;
    let (out, lanes) = (bench.holding(&vec![0u32; items * COMBINED.len()])?, bench.holding(&vec![0u32; items])?);
    let args = [&x, &out, &lanes].map(|memory| Arg::Buffer(memory.all())).to_vec();
    bench.run(&[launch(&program, [GROUPS as u64 * u64::from(group[0]), group[1].into(), 1], group, args)])?;
    Ok((out.words()?, lanes.words()?))
}

/// Checks the results of consecutive groups of `members` work-items against the IR's semantics.
fn expect_combined(what: &str, found: &[u32], members: &[usize]) -> Result<()> {
    let x = words(members.iter().sum::<usize>() as u32);
    let mut start = 0;
    for count in members {
        let mine = &x[start..start + count];
        for (c, (op, dtype)) in COMBINED.iter().enumerate() {
            let expected: Vec<u32> = match op {
                CollectiveOp::Reduce(op) => vec![by_halves(*op, *dtype, mine); *count],
                CollectiveOp::InclusiveScan(op) => (1..=*count).map(|n| in_order(*op, *dtype, &mine[..n])).collect(),
                CollectiveOp::ExclusiveScan(op) => (0..*count).map(|n| in_order(*op, *dtype, &mine[..n])).collect(),
                CollectiveOp::Broadcast(from) => vec![mine[*from as usize]; *count],
                CollectiveOp::Shuffle(_) | CollectiveOp::Mma(_) => mine.to_vec(),
            };
            let results = found.iter().skip(c).step_by(COMBINED.len()).skip(start).take(*count);
            let results: Vec<u32> = results.copied().collect();
            expect_all(format_args!("{what}: {op:?} of {dtype} from work-item {start} on"), &results, &expected)?;
        }
        start += count;
    }
    Ok(())
}

/// Reduces as the IR defines: for each width, halved every step, element `l` takes in element `l + width`.
fn by_halves(op: ReduceOp, dtype: DType, values: &[u32]) -> u32 {
    let mut values = values.to_vec();
    let mut width = values.len().next_power_of_two() / 2;
    while width > 0 {
        for l in 0..width.min(values.len() - width) {
            values[l] = pair(op, dtype, values[l], values[l + width]);
        }
        width /= 2;
    }
    values[0]
}

/// Scans in order; the result of these operations does not depend on the order.
fn in_order(op: ReduceOp, dtype: DType, values: &[u32]) -> u32 {
    let nothing = op.identity(dtype).bits as u32;
    values.iter().fold(nothing, |sum, value| pair(op, dtype, sum, *value))
}

fn pair(op: ReduceOp, dtype: DType, a: u32, b: u32) -> u32 {
    let (x, y) = (f32::from_bits(a), f32::from_bits(b));
    match (op, dtype) {
        (ReduceOp::Sum, DType::F32) => (x + y).to_bits(),
        (ReduceOp::Prod, DType::F32) => (x * y).to_bits(),
        (ReduceOp::Max, DType::F32) => x.max(y).to_bits(),
        (ReduceOp::Min, DType::F32) => x.min(y).to_bits(),
        (ReduceOp::Sum, _) => a.wrapping_add(b),
        (ReduceOp::Prod, _) => a.wrapping_mul(b),
        (ReduceOp::Max, DType::I32) => (a as i32).max(b as i32) as u32,
        (ReduceOp::Min, DType::I32) => (a as i32).min(b as i32) as u32,
        (ReduceOp::Max, _) => a.max(b),
        (ReduceOp::Min, _) => a.min(b),
    }
}
