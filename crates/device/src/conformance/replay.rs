//! Command buffers: a replay does the same as its commands, with the given bindings and slots.

use panoply_ir::Result;

use super::bench::{Bench, Memory, launch};
use super::kernels::double_add;
use super::{Case, Requirement, broken, expect_all};
use crate::command::{Arg, DeviceCommand, QueueId, Region};
use crate::command_buffer::{BindingKind, BindingSlot, RawCommandBuffer};

pub const CASES: &[Case] = &[
    Case { name: "a replay equals its commands", needs: &[Requirement::Computing], run: replays },
    Case { name: "a replay copies and fills between launches", needs: &[], run: moves },
    Case { name: "replays on several queues", needs: &[Requirement::Computing], run: queues },
    Case {
        name: "a command buffer is destroyed while it is replayed",
        needs: &[Requirement::Computing],
        run: forgotten,
    },
];

/// Number of recorded launches: enough for every device to use its accelerated path.
const LAUNCHES: u32 = 24;

/// A command buffer that is destroyed on drop.
struct RecordedBuffer<'a>(Bench<'a>, Option<RawCommandBuffer>);

impl<'a> RecordedBuffer<'a> {
    fn new(bench: &Bench<'a>, steps: Vec<DeviceCommand>, places: Vec<BindingSlot>) -> Result<RecordedBuffer<'a>> {
        Ok(RecordedBuffer(*bench, Some(bench.device.record(steps, places)?)))
    }

    fn replay(&mut self, queue: QueueId, bindings: &[Region], slots: &[u32]) -> Result<crate::driver_api::Ticket> {
        let slots: Vec<_> = slots.iter().map(|slot| (*slot).into()).collect();
        let command_buffer = self.1.as_mut().ok_or_else(|| broken("the command buffer was destroyed"))?;
        self.0.device.replay(queue, command_buffer, bindings, &slots)
    }
}

impl Drop for RecordedBuffer<'_> {
    fn drop(&mut self) {
        if let Some(command_buffer) = self.1.take() {
            self.0.device.destroy_command_buffer(command_buffer);
        }
    }
}

/// Records launches of `double_add` on alternating halves of binding 0, adding slot 0, slot 1 and the launch's index in turn.
fn command_buffer<'a>(
    bench: &Bench<'a>,
    program: &super::bench::HeldProgram<'_>,
    over: &Memory<'_>,
) -> Result<RecordedBuffer<'a>> {
    let half = over.bytes / 2;
    let (mut steps, mut places) = (Vec::new(), Vec::new());
    for step in 0..LAUNCHES {
        let offset = u64::from(step % 2) * half;
        let args = vec![Arg::Scalar(step.into()), Arg::Buffer(over.region(offset, half))];
        steps.push(launch(program, [half / 4, 1, 1], bench.group([16, 1, 1]), args));
        if step % 3 != 2 {
            places.push(BindingSlot { step, operand: 0, source: BindingKind::Slot(step % 3) });
        }
        places.push(BindingSlot { step, operand: 1, source: BindingKind::Binding { binding: 0, offset } });
    }
    RecordedBuffer::new(bench, steps, places)
}

/// Returns the words after a replay of the command buffer.
fn expected(mut words: Vec<u32>, slots: [u32; 2]) -> Vec<u32> {
    let half = words.len() / 2;
    for step in 0..LAUNCHES {
        let add = slots.get(step as usize % 3).copied().unwrap_or(step);
        let start = step as usize % 2 * half;
        words[start..start + half].iter_mut().for_each(|word| *word = word.wrapping_mul(2).wrapping_add(add));
    }
    words
}

fn replays(bench: &Bench<'_>) -> Result<()> {
    let program = bench.compile(double_add())?;
    let words = |from: u32| Vec::from_iter(from..from + 128);
    let memories = [bench.holding(&words(0))?, bench.holding(&words(1000))?];
    let mut recorded = command_buffer(bench, &program, &memories[0])?;
    let mut known = [words(0), words(1000)];
    // The same again, other slots, another binding; then a range of a larger allocation.
    for (memory, slots) in [(0, [1, 2]), (0, [1, 2]), (0, [3, 4]), (1, [3, 4]), (0, [5, 6]), (1, [7, 8])] {
        recorded.replay(QueueId::DEFAULT, &[memories[memory].all()], &slots)?;
        known[memory] = expected(std::mem::take(&mut known[memory]), slots);
    }
    let large = bench.holding(&words(0).repeat(3))?;
    recorded.replay(QueueId::DEFAULT, &[large.region(512, 512)], &[9, 10])?;
    for (memory, known) in memories.iter().zip(&known) {
        expect_all("after six replays", &memory.words()?, known)?;
    }
    let middle = [words(0), expected(words(0), [9, 10]), words(0)].concat();
    expect_all("the middle third", &large.words()?, &middle)
}

fn moves(bench: &Bench<'_>) -> Result<()> {
    let (a, b) = (bench.holding(&Vec::from_iter(0..64u32))?, bench.holding(&[0u32; 64])?);
    let steps = vec![
        DeviceCommand::Copy { from: a.region(0, 128), to: b.region(128, 128) },
        DeviceCommand::Fill { to: b.region(0, 64), pattern: vec![1, 2, 3, 4] },
        DeviceCommand::Copy { from: b.region(0, 64), to: b.region(64, 64) },
    ];
    let at = |step, operand, binding, offset| BindingSlot {
        step,
        operand,
        source: BindingKind::Binding { binding, offset },
    };
    let places = vec![at(0, 0, 0, 0), at(0, 1, 1, 128), at(1, 0, 1, 0), at(2, 0, 1, 0), at(2, 1, 1, 64)];
    let mut recorded = RecordedBuffer::new(bench, steps, places)?;
    let (c, d) = (bench.holding(&Vec::from_iter(500..564u32))?, bench.holding(&[7u32; 64])?);
    for (from, to, first) in [(&a, &b, 0), (&c, &d, 500), (&a, &d, 0), (&c, &b, 500)] {
        recorded.replay(QueueId::DEFAULT, &[from.all(), to.all()], &[])?;
        let words = (0..64).map(|i| if i < 32 { 0x0403_0201 } else { first + i - 32 });
        expect_all("copies and fills", &to.words()?, &Vec::from_iter(words))?;
    }
    Ok(())
}

fn queues(bench: &Bench<'_>) -> Result<()> {
    let program = bench.compile(double_add())?;
    let other = bench.device.queue()?;
    let memories = [bench.holding(&[1u32; 64])?, bench.holding(&[2u32; 64])?];
    bench.device.synchronize()?;
    let mut recorded = command_buffer(bench, &program, &memories[0])?;
    let mut tickets = Vec::new();
    for (queue, memory) in [(other, 0), (QueueId::DEFAULT, 1), (other, 0), (QueueId::DEFAULT, 1)] {
        tickets.push(recorded.replay(queue, &[memories[memory].all()], &[1, 1])?);
    }
    tickets.iter().try_for_each(|ticket| ticket.wait())?;
    for (memory, first) in memories.iter().zip([1, 2]) {
        let words = expected(expected(vec![first; 64], [1, 1]), [1, 1]);
        expect_all("two replays on each of two queues", &memory.words()?, &words)?;
    }
    Ok(())
}

fn forgotten(bench: &Bench<'_>) -> Result<()> {
    let memory = bench.holding(&[3u32; 64])?;
    for slot in 1..=3 {
        let program = bench.compile(double_add())?;
        let mut recorded = command_buffer(bench, &program, &memory)?;
        let ticket = recorded.replay(QueueId::DEFAULT, &[memory.all()], &[slot, slot])?;
        drop(recorded);
        drop(program);
        ticket.wait()?;
    }
    let words = (1..=3).fold(vec![3; 64], |words, slot| expected(words, [slot, slot]));
    expect_all("three command buffers", &memory.words()?, &words)
}
