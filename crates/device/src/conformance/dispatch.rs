//! Launches: the executed work-items and their arguments.

use panoply_ir::routine::{Gemm, Layout, Routine};
use panoply_ir::{DType, Result, Scalar};

use super::bench::{Bench, Memory, launch};
use super::kernels::{census, collectives, keep, keep_indices, many, neighbors, places, reverse_groups, whole_groups};
use super::{Case, Requirement, expect, expect_all};
use crate::command::{Arg, DeviceCommand};

pub const CASES: &[Case] = &[
    Case { name: "grids in one to three dimensions are exact", needs: &[Requirement::Computing], run: grids },
    Case { name: "every work-item runs once", needs: &[Requirement::Computing], run: once },
    Case { name: "fixed work-groups are complete", needs: &[Requirement::Computing, Requirement::Groups], run: groups },
    Case { name: "barriers order shared memory", needs: &[Requirement::Computing, Requirement::Groups], run: barriers },
    Case { name: "work-group collectives", needs: &[Requirement::Computing, Requirement::Groups], run: combining },
    Case { name: "scalars of every type", needs: &[Requirement::Computing], run: scalars },
    Case { name: "index arguments", needs: &[Requirement::Computing], run: indices },
    Case { name: "many arguments", needs: &[Requirement::Computing], run: arguments },
    Case { name: "regions start at their offset", needs: &[Requirement::Computing], run: regions },
    Case {
        name: "accesses beyond a region are guarded",
        needs: &[Requirement::Computing, Requirement::BoundsGuards],
        run: guards,
    },
    Case { name: "supported routines are correct", needs: &[Requirement::Computing], run: routines },
];

fn grids(bench: &Bench<'_>) -> Result<()> {
    let program = bench.compile(places())?;
    let grids = [
        [1, 1, 1],
        [2, 1, 1],
        [31, 1, 1],
        [64, 1, 1],
        [65, 1, 1],
        [99, 1, 1],
        [7, 5, 1],
        [1, 9, 1],
        [5, 4, 3],
        [1, 1, 7],
    ];
    let groups = [[1, 1, 1], [16, 1, 1], [64, 1, 1], [4, 2, 1], [2, 2, 2], [1, 8, 1]];
    for grid in grids {
        let items = grid.iter().product::<u64>() as usize;
        for group in groups.map(|group| bench.group(group)) {
            // A surplus work-item would write into the rest.
            let out = bench.holding(&vec![0u32; items + 300])?;
            bench.run(&[launch(&program, grid, group, vec![Arg::Buffer(out.all())])])?;
            let mut expected = Vec::new();
            for z in 0..grid[2] {
                for y in 0..grid[1] {
                    expected.extend((0..grid[0]).map(|x| (10_000 * z + 100 * y + x + 1) as u32));
                }
            }
            expected.resize(items + 300, 0);
            expect_all(format_args!("{grid:?} in groups of {group:?}"), &out.words()?, &expected)?;
        }
    }
    Ok(())
}

fn once(bench: &Bench<'_>) -> Result<()> {
    let program = bench.compile(census())?;
    let (counters, n) = (bench.holding(&[0u32, 0])?, 10_007u64);
    let args = vec![Arg::Buffer(counters.all())];
    bench.run(&[launch(&program, [n, 1, 1], bench.group([64, 1, 1]), args)])?;
    expect("number of work-items and sum of their ids", counters.words()?, vec![n as u32, (n * (n - 1) / 2) as u32])
}

fn groups(bench: &Bench<'_>) -> Result<()> {
    let program = bench.compile(whole_groups())?;
    let out = bench.holding(&[0u32; 64])?;
    bench.run(&[launch(&program, [37, 1, 1], [16, 1, 1], vec![Arg::Buffer(out.all())])])?;
    let number = |i: u32| if i < 48 { 370_000 + 100 * (i / 16) + i % 16 } else { 0 };
    expect_all("37 work-items in groups of 16", &out.words()?, &Vec::from_iter((0..64).map(number)))
}

fn barriers(bench: &Bench<'_>) -> Result<()> {
    let program = bench.compile(reverse_groups())?;
    let x = bench.holding(&Vec::from_iter(0..160u32))?;
    let step = launch(&program, [160, 1, 1], [16, 1, 1], vec![Arg::Buffer(x.all())]);
    bench.run(std::slice::from_ref(&step))?;
    let reversed = (0..160u32).map(|i| i / 16 * 16 + 15 - i % 16);
    expect_all("reversed work-groups", &x.words()?, &Vec::from_iter(reversed))?;
    bench.run(&[step])?;
    expect_all("reversed twice", &x.words()?, &Vec::from_iter(0..160))
}

fn combining(bench: &Bench<'_>) -> Result<()> {
    let program = bench.compile(collectives())?;
    let values: Vec<u32> = (0..48).map(|i| i * 7 % 11).collect();
    let x = bench.holding(&values)?;
    bench.run(&[launch(&program, [48, 1, 1], [16, 1, 1], vec![Arg::Buffer(x.all())])])?;
    let expected = values.chunks(16).flat_map(|group| {
        let largest = group.iter().max().copied().unwrap_or(0);
        (1..=16).map(move |n| 1000 * largest + group[..n].iter().sum::<u32>())
    });
    expect_all("inclusive scans and maxima", &x.words()?, &Vec::from_iter(expected))
}

fn scalars(bench: &Bench<'_>) -> Result<()> {
    let target = bench.device.target();
    let missing = |dtype: DType| match dtype {
        DType::I64 | DType::U64 => !target.int64,
        DType::F64 => !target.f64,
        _ => false,
    };
    for dtype in DType::ALL.into_iter().filter(|dtype| !missing(*dtype)) {
        let program = bench.compile(keep(dtype))?;
        for value in [0.0, 1.0, -1.0, 0.375, 57.0, -57.25] {
            // Every float type represents these values exactly, so the bits must be equal.
            let scalar = Scalar::from_f64(dtype, value);
            let (out, others) = (bench.holding(&[0xEEu8; 8])?, bench.holding(&[0u32, 0])?);
            let args = vec![
                Arg::Scalar(0xDEAD_BEEFu32.into()),
                Arg::Scalar(scalar),
                Arg::Buffer(out.region(0, dtype.bytes() as u64)),
                Arg::Scalar(0xA5u8.into()),
                Arg::Buffer(others.all()),
            ];
            bench.run(&[launch(&program, [1; 3], [1; 3], args)])?;
            let mut expected = [0xEE; 8];
            expected[..dtype.bytes()].copy_from_slice(&scalar.bits.to_le_bytes()[..dtype.bytes()]);
            expect(format_args!("{scalar}"), out.bytes()?, expected.to_vec())?;
            expect(format_args!("neighbors of {scalar}"), others.words()?, vec![0xDEAD_BEEF, 0xA5])?;
        }
    }
    Ok(())
}

fn indices(bench: &Bench<'_>) -> Result<()> {
    let int64 = bench.device.target().int64;
    let program = bench.compile(keep_indices(int64))?;
    let values: [u64; 2] = if int64 { [0x1234_5678_9ABC_DEF0, 3] } else { [0x1234_5678, 3] };
    let out = bench.holding(&[0u32; 4])?;
    let args = vec![Arg::Index(values[0]), Arg::Index(values[1]), Arg::Buffer(out.all())];
    bench.run(&[launch(&program, [1; 3], [1; 3], args)])?;
    let halves = [values[0], values[1], values[0] >> 32, values[1] >> 32].map(|value| value as u32);
    expect("the halves of two indices", out.words()?, halves.to_vec())
}

fn arguments(bench: &Bench<'_>) -> Result<()> {
    let count = bench.device.target().max_bindings.min(24) as usize;
    let program = bench.compile(many(count))?;
    let memories =
        (0..count).map(|k| bench.holding(&[100 * k as u32, 100 * k as u32 + 1])).collect::<Result<Vec<_>>>()?;
    let args = memories.iter().enumerate();
    let args = args.flat_map(|(k, memory)| [Arg::Buffer(memory.all()), Arg::Scalar((k as u32 + 5).into())]).collect();
    bench.run(&[launch(&program, [2, 1, 1], [1; 3], args)])?;
    for (k, memory) in memories.iter().enumerate() {
        let first = 101 * k as u32 + 5;
        expect(format_args!("buffer {k} of {count}"), memory.words()?, vec![first, first + 1])?;
    }
    Ok(())
}

/// Launches fewer work-items than elements: every access is in bounds.
fn regions(bench: &Bench<'_>) -> Result<()> {
    shifted(bench, |length| length.saturating_sub(1))
}

/// Launches more work-items than elements: out-of-bounds loads return zero and out-of-bounds stores are dropped.
fn guards(bench: &Bench<'_>) -> Result<()> {
    shifted(bench, |length| length + 10)
}

fn shifted(bench: &Bench<'_>, items: impl Fn(u64) -> u64) -> Result<()> {
    let program = bench.compile(neighbors())?;
    let words: Vec<u32> = (0..50).collect();
    for (skip, length) in [(0u64, 10u64), (1, 10), (3, 7), (16, 2), (48, 2), (49, 1), (20, 0)] {
        let items = items(length);
        if items == 0 {
            continue;
        }
        let (x, y) = (bench.holding(&words)?, bench.holding(&[7u32; 50])?);
        let part = |memory: &Memory<'_>| Arg::Buffer(memory.region(4 * skip, 4 * length));
        bench.run(&[launch(&program, [items, 1, 1], bench.group([4, 1, 1]), vec![part(&x), part(&y)])])?;
        let mut expected = vec![7; 50];
        for i in 0..length.min(items) {
            let next = if i + 1 < length { words[(skip + i + 1) as usize] } else { 0 };
            expected[(skip + i) as usize] = next + 100 * length as u32;
        }
        expect_all(format_args!("{length} elements from {skip} on"), &y.words()?, &expected)?;
    }
    Ok(())
}

/// Uses small integers, whose sums are exact in every order, so that the expected result is unique.
fn routines(bench: &Bench<'_>) -> Result<()> {
    let (batch, m, n, k) = (2, 17, 9, 13);
    let dense = |rows: usize, columns: usize| Layout { offset: 0, batch: rows * columns, row: columns, column: 1 };
    let transposed = |rows: usize, columns: usize| Layout { offset: 0, batch: rows * columns, row: 1, column: rows };
    for (a, b) in [(dense(m, k), dense(k, n)), (transposed(m, k), dense(k, n)), (dense(m, k), transposed(k, n))] {
        let gemm = Gemm { dtype: DType::F32, tf32: false, bias: false, batch, m, n, k, a, b, c: dense(m, n) };
        let routine = Routine::Gemm(gemm);
        if !bench.device.supports_routine(&routine) {
            continue;
        }
        let left: Vec<f32> = (0..batch * m * k).map(|i| (i % 7) as f32 - 3.0).collect();
        let right: Vec<f32> = (0..batch * k * n).map(|i| (i % 5) as f32 - 2.0).collect();
        let memories = [bench.holding(&left)?, bench.holding(&right)?, bench.holding(&vec![0f32; batch * m * n])?];
        let step = DeviceCommand::Routine(routine, memories.iter().map(|memory| memory.all()).collect(), None);
        bench.run(&[step])?;
        let at = |layout: Layout, i: usize, r: usize, c: usize| {
            layout.offset + i * layout.batch + r * layout.row + c * layout.column
        };
        let mut expected = vec![0f32; batch * m * n];
        for (i, row, column) in (0..batch * m * n).map(|at| (at / (m * n), at / n % m, at % n)) {
            let sum = (0..k).map(|l| left[at(a, i, row, l)] * right[at(b, i, l, column)]).sum();
            expected[at(gemm.c, i, row, column)] = sum;
        }
        let found: Vec<f32> = memories[2].words()?.into_iter().map(f32::from_bits).collect();
        expect_all(format_args!("{gemm:?}"), &found, &expected)?;
    }
    Ok(())
}
