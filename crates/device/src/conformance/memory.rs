//! Memory: contents, offsets and out-of-memory errors.

use std::collections::HashSet;

use panoply_ir::Result;

use super::bench::Bench;
use super::{Case, Requirement, broken, expect, expect_all};
use crate::command::{DeviceCommand, QueueId};

pub const CASES: &[Case] = &[
    Case { name: "allocations of any size are disjoint", needs: &[], run: sizes },
    Case { name: "ids of live allocations are unique", needs: &[], run: unique_ids },
    Case { name: "accesses at unaligned offsets", needs: &[], run: odd_places },
    Case { name: "empty regions and submissions", needs: &[], run: nothing },
    Case { name: "fills with every pattern length", needs: &[], run: fills },
    Case { name: "copies within and between allocations", needs: &[], run: copies },
    Case { name: "the source of a write can be reused on return", needs: &[], run: reused_source },
    Case { name: "bytes of a read are returned once", needs: &[], run: taken_once },
    Case { name: "allocation works after out of memory", needs: &[], run: out_of_memory },
    Case { name: "freed memory is reused", needs: &[Requirement::LargeMemory], run: recycling },
];

fn sizes(bench: &Bench<'_>) -> Result<()> {
    let sizes = [1u64, 2, 3, 7, 63, 64, 65, 255, 4096, 4097, 100_003];
    let memories = sizes.iter().map(|size| bench.allocate(*size)).collect::<Result<Vec<_>>>()?;
    for (i, memory) in memories.iter().enumerate() {
        bench.device.write(QueueId::DEFAULT, memory.all(), &vec![i as u8 + 1; memory.bytes as usize])?;
    }
    for (i, memory) in memories.iter().enumerate() {
        let expected = vec![i as u8 + 1; memory.bytes as usize];
        expect_all(format_args!("{} bytes", memory.bytes), &memory.bytes()?, &expected)?;
    }
    Ok(())
}

fn unique_ids(bench: &Bench<'_>) -> Result<()> {
    let mut held = (0..20).map(|_| bench.allocate(16)).collect::<Result<Vec<_>>>()?;
    for round in 0..5 {
        held.retain({
            let mut i = 0;
            move |_| {
                i += 1;
                i % 3 != round % 3
            }
        });
        while held.len() < 20 {
            held.push(bench.allocate(16)?);
        }
        let ids: HashSet<_> = held.iter().map(|memory| memory.id).collect();
        expect("ids of 20 allocations", ids.len(), 20)?;
    }
    Ok(())
}

fn odd_places(bench: &Bench<'_>) -> Result<()> {
    let mut expected: Vec<u8> = (0..=255).cycle().take(5000).collect();
    let memory = bench.holding(&expected)?;
    for (offset, length) in [(0usize, 1usize), (1, 1), (3, 3), (5, 7), (4093, 5), (4999, 1), (17, 1024), (64, 64)] {
        let bytes: Vec<u8> = (0..length).map(|i| (7 * i + offset) as u8).collect();
        let region = memory.region(offset as u64, length as u64);
        bench.device.write(QueueId::DEFAULT, region, &bytes)?;
        expected[offset..offset + length].copy_from_slice(&bytes);
        let what = format!("{length} bytes at {offset}");
        expect_all(&what, &bench.device.read(QueueId::DEFAULT, region)?.take()?, &bytes)?;
        let mut back = vec![0; length];
        bench.device.read_into(QueueId::DEFAULT, region, &mut back)?;
        expect_all(&what, &back, &bytes)?;
    }
    expect_all("all bytes", &memory.bytes()?, &expected)
}

fn nothing(bench: &Bench<'_>) -> Result<()> {
    let memory = bench.holding(&[1u8, 2, 3, 4])?;
    for offset in [0, 1, 4] {
        let none = memory.region(offset, 0);
        bench.device.write(QueueId::DEFAULT, none, &[])?;
        expect("bytes of an empty read", bench.device.read(QueueId::DEFAULT, none)?.take()?, Vec::new())?;
        bench.device.read_into(QueueId::DEFAULT, none, &mut [])?;
        let steps =
            [DeviceCommand::Copy { from: none, to: none }, DeviceCommand::Fill { to: none, pattern: vec![9, 9] }];
        bench.run(&steps)?.wait()?;
    }
    bench.run(&[])?.wait()?;
    expect("untouched bytes", memory.bytes()?, vec![1, 2, 3, 4])
}

fn fills(bench: &Bench<'_>) -> Result<()> {
    let patterns: [&[u8]; 5] = [&[0], &[1, 2], &[1, 2, 3, 4], &[1, 2, 3, 4, 5, 6, 7, 8], &[255]];
    let mut expected = vec![0xEE; 4096];
    let memory = bench.holding(&expected)?;
    let mut steps = Vec::new();
    for (i, pattern) in patterns.iter().enumerate() {
        for (j, offset) in [0usize, 8, 9, 3].into_iter().enumerate() {
            let (at, bytes) = (800 * i + 200 * j + offset, pattern.len() * (5 + 3 * j));
            steps.push(DeviceCommand::Fill { to: memory.region(at as u64, bytes as u64), pattern: pattern.to_vec() });
            (0..bytes).for_each(|k| expected[at + k] = pattern[k % pattern.len()]);
        }
    }
    bench.run(&steps)?;
    expect_all("filled bytes", &memory.bytes()?, &expected)
}

fn copies(bench: &Bench<'_>) -> Result<()> {
    let first: Vec<u8> = (0..200).collect();
    let (a, b) = (bench.holding(&first)?, bench.holding(&[0xEEu8; 100])?);
    let steps = [
        DeviceCommand::Copy { from: a.region(3, 17), to: a.region(101, 17) },
        DeviceCommand::Copy { from: a.region(99, 30), to: b.region(1, 30) },
        DeviceCommand::Copy { from: b.region(0, 50), to: b.region(50, 50) },
        DeviceCommand::Copy { from: b.region(99, 1), to: a.region(0, 1) },
    ];
    bench.run(&steps)?;
    let (mut expected_a, mut expected_b) = (first, vec![0xEE; 100]);
    expected_a.copy_within(3..20, 101);
    expected_b[1..31].copy_from_slice(&expected_a[99..129]);
    expected_b.copy_within(0..50, 50);
    expected_a[0] = expected_b[99];
    expect_all("first allocation", &a.bytes()?, &expected_a)?;
    expect_all("second allocation", &b.bytes()?, &expected_b)
}

fn reused_source(bench: &Bench<'_>) -> Result<()> {
    let count = 300u32;
    let memory = bench.allocate(u64::from(count) * 997)?;
    let mut source = vec![0u8; 997];
    for i in 0..count {
        source.fill(i as u8);
        bench.device.write(QueueId::DEFAULT, memory.region(u64::from(i) * 997, 997), &source)?;
    }
    source.fill(0xEE);
    let expected: Vec<u8> = (0..count).flat_map(|i| [i as u8; 997]).collect();
    expect_all("written bytes", &memory.bytes()?, &expected)
}

fn taken_once(bench: &Bench<'_>) -> Result<()> {
    let memory = bench.holding(&[5u8, 6, 7])?;
    let ticket = bench.device.read(QueueId::DEFAULT, memory.all())?;
    // Dropping a pending read must be harmless.
    drop(bench.device.read(QueueId::DEFAULT, memory.all())?);
    expect("the first take", ticket.take()?, vec![5, 6, 7])?;
    expect("the second take", ticket.take()?, Vec::new())
}

fn out_of_memory(bench: &Bench<'_>) -> Result<()> {
    let largest = bench.device.target().max_buffer_bytes;
    let too_many = if largest < 1 << 62 { [largest + 1, 1 << 62] } else { [1 << 61, 1 << 62] };
    for bytes in too_many {
        match bench.allocate(bytes) {
            Ok(_) => return Err(broken(format_args!("{bytes} bytes were allocated"))),
            Err(error) if error.is_out_of_memory() => {}
            Err(error) => {
                return Err(broken(format_args!("{bytes} bytes: not an out-of-memory error")).note(error.to_string()));
            }
        }
        let memory = bench.holding(&[1u8, 2, 3])?;
        expect("memory after a failed allocation", memory.bytes()?, vec![1, 2, 3])?;
    }
    Ok(())
}

/// Allocates much memory in total, but little at once. Accesses only the first and the last byte.
fn recycling(bench: &Bench<'_>) -> Result<()> {
    let bytes = (8 << 20).min(bench.device.target().max_buffer_bytes);
    for round in 0..64u8 {
        let memory = bench.allocate(bytes)?;
        let ends = [memory.region(0, 1), memory.region(bytes - 1, 1)];
        for end in ends {
            bench.device.write(QueueId::DEFAULT, end, &[round])?;
        }
        for end in ends {
            expect("first or last byte", bench.device.read(QueueId::DEFAULT, end)?.take()?, vec![round])?;
        }
    }
    Ok(())
}
