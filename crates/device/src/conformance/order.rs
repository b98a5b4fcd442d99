//! Ordering within a queue, between queues and between threads, and the state of tickets.

use panoply_ir::Result;

use super::bench::{Bench, launch};
use super::kernels::{double_add, slow};
use super::{Case, Requirement, broken, expect, expect_all};
use crate::command::{Arg, DeviceCommand, QueueId};
use crate::driver_api::Ticket;

pub const CASES: &[Case] = &[
    Case { name: "commands of a queue execute in order", needs: &[Requirement::Computing], run: in_order },
    Case { name: "reads and writes execute in order", needs: &[Requirement::Computing], run: with_the_host },
    Case { name: "memory is freed while in use", needs: &[Requirement::Computing], run: freed_in_use },
    Case { name: "queues wait for each other", needs: &[Requirement::Computing], run: across_queues },
    Case { name: "waits for completed work", needs: &[], run: done_before },
    Case { name: "an empty submission completes after earlier ones", needs: &[Requirement::Computing], run: empty },
    Case { name: "tickets complete", needs: &[Requirement::Computing], run: polling },
    Case { name: "tickets can be dropped", needs: &[Requirement::Computing], run: dropped },
    Case { name: "synchronize waits for every queue", needs: &[Requirement::Computing], run: synchronize },
    Case { name: "times of commands do not overlap", needs: &[], run: timed },
    Case {
        name: "threads with separate queues",
        needs: &[Requirement::Computing, Requirement::Threads],
        run: own_queues,
    },
    Case { name: "threads on one queue", needs: &[Requirement::Computing, Requirement::Threads], run: one_queue },
    Case {
        name: "threads that allocate and compile",
        needs: &[Requirement::Computing, Requirement::Threads],
        run: own_everything,
    },
];

/// Returns the result of applying `double_add` repeatedly.
fn double_adds(start: u32, adds: impl IntoIterator<Item = u32>) -> u32 {
    adds.into_iter().fold(start, |x, add| x.wrapping_mul(2).wrapping_add(add))
}

fn in_order(bench: &Bench<'_>) -> Result<()> {
    let program = bench.compile(double_add())?;
    let (x, y) = (bench.allocate(4)?, bench.holding(&[0u32])?);
    let double_add = |add: u32| launch(&program, [1; 3], [1; 3], vec![Arg::Scalar(add.into()), Arg::Buffer(x.all())]);
    let mut steps = vec![DeviceCommand::Fill { to: x.all(), pattern: 3u32.to_le_bytes().to_vec() }];
    steps.extend((0..10).map(double_add));
    steps.push(DeviceCommand::Copy { from: x.all(), to: y.all() });
    steps.extend((10..20).map(double_add));
    bench.run(&steps[..7])?;
    bench.run(&steps[7..])?;
    expect("after ten launches", y.words()?, vec![double_adds(3, 0..10)])?;
    expect("after twenty launches", x.words()?, vec![double_adds(3, 0..20)])
}

fn with_the_host(bench: &Bench<'_>) -> Result<()> {
    let program = bench.compile(double_add())?;
    let x = bench.allocate(4)?;
    let step = launch(&program, [1; 3], [1; 3], vec![Arg::Scalar(1u32.into()), Arg::Buffer(x.all())]);
    let mut reads = Vec::new();
    for value in 0..20u32 {
        bench.device.write(QueueId::DEFAULT, x.all(), &value.to_le_bytes())?;
        bench.run(std::slice::from_ref(&step))?;
        reads.push(bench.device.read(QueueId::DEFAULT, x.all())?);
    }
    for (value, read) in (0u32..).zip(reads) {
        expect(format_args!("read {value}"), read.take()?, (2 * value + 1).to_le_bytes().to_vec())?;
    }
    Ok(())
}

fn freed_in_use(bench: &Bench<'_>) -> Result<()> {
    let program = bench.compile(slow())?;
    let out = bench.holding(&[0u32; 8])?;
    for i in 0..8u64 {
        let x = bench.holding(&[0u32])?;
        let args = vec![Arg::Scalar((20_000 + i as u32).into()), Arg::Buffer(x.all())];
        let copy = DeviceCommand::Copy { from: x.all(), to: out.region(4 * i, 4) };
        bench.run(&[launch(&program, [1; 3], [1; 3], args), copy])?;
        // `x` is freed here; the next iteration can reuse its memory.
    }
    expect_all("copies of freed memory", &out.words()?, &Vec::from_iter(20_000..20_008))
}

fn across_queues(bench: &Bench<'_>) -> Result<()> {
    let (program, slow) = (bench.compile(double_add())?, bench.compile(slow())?);
    let (x, other) = (bench.holding(&[1u32])?, bench.holding(&[0u32])?);
    let queues = [QueueId::DEFAULT, bench.device.queue()?, bench.device.queue()?];
    bench.device.synchronize()?;
    let mut last = Ticket::Done;
    for round in 0..30u32 {
        let args = vec![Arg::Scalar(round.into()), Arg::Buffer(x.all())];
        let delay = vec![Arg::Scalar((round % 3 * 3000).into()), Arg::Buffer(other.all())];
        let step = launch(&program, [1; 3], [1; 3], args);
        let steps = [DeviceCommand::Wait(last.clone()), launch(&slow, [1; 3], [1; 3], delay), step];
        last = bench.device.submit(queues[round as usize * 7 % 3], &steps, false)?;
    }
    bench.run(&[DeviceCommand::Wait(last)])?;
    expect("thirty launches on three queues", x.words()?, vec![double_adds(1, 0..30)])?;
    expect("delay counter", other.words()?, vec![30 * 3000])
}

fn done_before(bench: &Bench<'_>) -> Result<()> {
    let x = bench.holding(&[0u8; 4])?;
    let queue = bench.device.queue()?;
    let fill = |value: u8| DeviceCommand::Fill { to: x.all(), pattern: vec![value] };
    bench.device.synchronize()?;
    let ticket = bench.device.submit(queue, &[fill(1)], false)?;
    ticket.wait()?;
    bench.run(&[
        DeviceCommand::Wait(ticket.clone()),
        DeviceCommand::Wait(Ticket::Done),
        fill(2),
        DeviceCommand::Wait(ticket),
    ])?;
    let read = bench.device.read(QueueId::DEFAULT, x.all())?;
    read.wait()?;
    bench.run(&[DeviceCommand::Wait(read.clone())])?.wait()?;
    expect("bytes", read.take()?, vec![2; 4])
}

fn empty(bench: &Bench<'_>) -> Result<()> {
    let (program, x) = (bench.compile(slow())?, bench.holding(&[0u32])?);
    let args = vec![Arg::Scalar(60_000u32.into()), Arg::Buffer(x.all())];
    let work = bench.run(&[launch(&program, [1; 3], [1; 3], args)])?;
    bench.run(&[])?.wait()?;
    expect("earlier work is complete", work.poll()?, true)
}

fn polling(bench: &Bench<'_>) -> Result<()> {
    let (program, x) = (bench.compile(slow())?, bench.holding(&[0u32])?);
    for _ in 0..5 {
        let args = vec![Arg::Scalar(10_000u32.into()), Arg::Buffer(x.all())];
        let ticket = bench.run(&[launch(&program, [1; 3], [1; 3], args)])?;
        while !ticket.poll()? {
            std::thread::yield_now();
        }
        expect("poll after completion", ticket.poll()?, true)?;
        ticket.wait()?;
    }
    expect("result of the polled work", x.words()?, vec![50_000])
}

fn dropped(bench: &Bench<'_>) -> Result<()> {
    let (program, x) = (bench.compile(double_add())?, bench.holding(&[0u32])?);
    for round in 0..200u32 {
        let args = vec![Arg::Scalar(round.into()), Arg::Buffer(x.all())];
        drop(bench.run(&[launch(&program, [1; 3], [1; 3], args)])?);
    }
    expect("two hundred launches", x.words()?, vec![double_adds(0, 0..200)])
}

fn synchronize(bench: &Bench<'_>) -> Result<()> {
    let program = bench.compile(slow())?;
    let queues = [QueueId::DEFAULT, bench.device.queue()?];
    let memories = [bench.holding(&[0u32])?, bench.holding(&[0u32])?];
    bench.device.synchronize()?;
    let mut tickets = Vec::new();
    for (queue, x) in queues.into_iter().zip(&memories) {
        let args = vec![Arg::Scalar(30_000u32.into()), Arg::Buffer(x.all())];
        tickets.push(bench.device.submit(queue, &[launch(&program, [1; 3], [1; 3], args)], false)?);
    }
    bench.device.synchronize()?;
    for ticket in tickets {
        expect("work is complete", ticket.poll()?, true)?;
    }
    memories.iter().try_for_each(|x| expect("its result", x.words()?, vec![30_000]))
}

fn timed(bench: &Bench<'_>) -> Result<()> {
    let (x, y) = (bench.holding(&[0u8; 4096])?, bench.holding(&[0u8; 4096])?);
    let fill = DeviceCommand::Fill { to: x.all(), pattern: vec![1, 2] };
    let copy = DeviceCommand::Copy { from: x.all(), to: y.all() };
    let steps = [fill.clone(), DeviceCommand::Wait(Ticket::Done), copy, fill, DeviceCommand::Wait(Ticket::Done)];
    let mut before = 0;
    for _ in 0..3 {
        let times = bench.device.submit(QueueId::DEFAULT, &steps, true)?.times()?;
        expect("number of times of five commands", times.len(), steps.len())?;
        for time in times {
            if time.start_ns < before || time.end_ns < time.start_ns {
                return Err(broken(format_args!("{time:?} after a command that ended at {before}")));
            }
            before = time.end_ns;
        }
    }
    expect("number of times without timing", bench.run(&steps)?.times()?.len(), 0)
}

fn own_queues(bench: &Bench<'_>) -> Result<()> {
    let program = bench.compile(double_add())?;
    let program = &program;
    in_threads(|thread| {
        let (queue, x) = (bench.device.queue()?, bench.holding(&[thread])?);
        bench.device.synchronize()?;
        for add in 0..100 {
            let args = vec![Arg::Scalar((add + thread).into()), Arg::Buffer(x.all())];
            bench.device.submit(queue, &[launch(program, [1; 3], [1; 3], args)], false)?;
        }
        let bytes = bench.device.read(queue, x.all())?.take()?;
        let expected = double_adds(thread, (0..100).map(|add| add + thread));
        expect(format_args!("thread {thread}"), bytes, expected.to_le_bytes().to_vec())
    })
}

fn one_queue(bench: &Bench<'_>) -> Result<()> {
    let program = bench.compile(double_add())?;
    let program = &program;
    in_threads(|thread| {
        let x = bench.holding(&[thread])?;
        for pair in 0..50 {
            let step = |add: u32| launch(program, [1; 3], [1; 3], vec![Arg::Scalar(add.into()), Arg::Buffer(x.all())]);
            bench.run(&[step(pair), step(thread)])?;
        }
        expect(
            format_args!("thread {thread}"),
            x.words()?,
            vec![double_adds(thread, (0..50).flat_map(|pair| [pair, thread]))],
        )
    })
}

fn own_everything(bench: &Bench<'_>) -> Result<()> {
    in_threads(|thread| {
        for round in 0..3 {
            let program = bench.compile(double_add())?;
            let x = bench.holding(&[thread; 100])?;
            let args = vec![Arg::Scalar(round.into()), Arg::Buffer(x.all())];
            bench.run(&[launch(&program, [100, 1, 1], bench.group([10, 1, 1]), args)])?;
            expect_all(format_args!("thread {thread}"), &x.words()?, &[double_adds(thread, [round]); 100])?;
        }
        Ok(())
    })
}

/// Runs the same work on four threads and returns the first failure.
fn in_threads(work: impl Fn(u32) -> Result<()> + Sync) -> Result<()> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                scope.spawn({
                    let work = &work;
                    move || work(thread)
                })
            })
            .collect();
        let ends = threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(broken("a thread panicked"))));
        // All threads are joined before the first failure is returned.
        Vec::from_iter(ends).into_iter().collect()
    })
}
