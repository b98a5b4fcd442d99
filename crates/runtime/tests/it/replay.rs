//! Command buffers: a replay equals submitting the work, with the bindings and slots of the replay.

use crate::support::all_devices;
use crate::support::test_device;

use std::sync::Arc;

use panoply_ir::builder::Builder;
use panoply_ir::kernel::{Access, Builtin, Guard, Kernel};
use panoply_ir::{Alu, DType, Error, ErrorKind, Scalar};
use panoply_runtime::{
    BindingKind, BindingSlot, Buffer, Command, CommandBuffer, CompiledKernel, Device, Grid, LaunchArg, Profiler,
    Result, Storage,
};
use test_device::{Options, build_mix, build_step, test_device};

const LEN: usize = 96;

/// Builds `x[i] = x[i] * by + i` for u32.
fn build_scale() -> Result<Kernel> {
    let mut b = Builder::new("scale");
    let by = b.scalar("by", DType::U32);
    let x = b.buffer("x", DType::U32, Access::InOut);
    let i = b.builtin(Builtin::GlobalId(0));
    let old = b.load(x, i, Guard::Checked);
    let (product, word) = (b.alu(Alu::Mul, &[old, by]), b.cast(DType::U32, i));
    let sum = b.alu(Alu::Add, &[product, word]);
    b.store(x, i, sum, Guard::Checked);
    b.finish()
}

/// Kernels of a command list.
struct Kernels([Arc<CompiledKernel>; 3]);

impl Kernels {
    fn of(device: &Device) -> Kernels {
        Kernels([build_step, build_mix, build_scale].map(|build| device.compile_fn(build).unwrap()))
    }

    /// Returns `y = 3 x + 1`, `y = y * by + i`, `arena = copy of y`, `y = y * 5 + arena`, and twelve times the second: enough for a graph.
    fn work<'a>(&'a self, x: &'a Storage, y: &'a Storage, arena: &'a Storage, by: u32) -> Vec<Command<'a>> {
        let [step, mix, scale] = &self.0;
        let (read, write) = (|s| LaunchArg::read(s, DType::U32), |s| LaunchArg::write(s, DType::U32));
        let kernel = |prepared, args| Command::Kernel { prepared, grid: Grid::from(LEN), args };
        let mut work = vec![
            kernel(step, vec![read(x), write(y)]),
            kernel(scale, vec![by.into(), write(y)]),
            Command::Copy { from: y, to: arena },
            kernel(mix, vec![read(arena), write(y)]),
        ];
        work.extend((0..12).map(|_| kernel(scale, vec![by.into(), write(y)])));
        work
    }
}

/// Returns the result of [`Kernels::work`] for `x`, computed on the host.
fn expected(x: &[u32], by: u32) -> Vec<u32> {
    let scale = |y: u32, i: usize| y.wrapping_mul(by).wrapping_add(i as u32);
    let y = x.iter().enumerate().map(|(i, x)| {
        let y = scale(x.wrapping_mul(3).wrapping_add(1), i);
        (0..12).fold(y.wrapping_mul(6), |y, _| scale(y, i))
    });
    y.collect()
}

/// Bindings 0 to 2 are x, y and an arena whose second half is used; slot 0 is the factor.
fn places() -> Vec<BindingSlot> {
    let buffer = |step, operand, binding, offset| BindingSlot {
        step,
        operand,
        source: BindingKind::Binding { binding, offset },
    };
    let slot = |step| BindingSlot { step, operand: 0, source: BindingKind::Slot(0) };
    let half = 4 * LEN as u64;
    let mut places = vec![
        buffer(0, 0, 0, 0),
        buffer(0, 1, 1, 0),
        slot(1),
        buffer(1, 1, 1, 0),
        buffer(2, 0, 1, 0),
        buffer(2, 1, 2, half),
        buffer(3, 0, 2, half),
        buffer(3, 1, 1, 0),
    ];
    places.extend((4..16).flat_map(|step| [slot(step), buffer(step, 1, 1, 0)]));
    places
}

fn words(from: u32) -> Vec<u32> {
    (from..from + LEN as u32).collect()
}

struct Memory {
    x: Buffer<u32>,
    y: Buffer<u32>,
    arena: Buffer<u32>,
    from: u32,
}

impl Memory {
    fn new(device: &Device, from: u32) -> Memory {
        let undefined = |len| device.full(len, 0xDEAD_BEEFu32).unwrap();
        Memory { x: device.buffer(&words(from)).unwrap(), y: undefined(LEN), arena: undefined(2 * LEN), from }
    }

    fn bindings(&self) -> [&Storage; 3] {
        [&self.x, &self.y, &self.arena].map(Buffer::storage)
    }

    fn record(&self, device: &Device) -> Result<CommandBuffer> {
        let [x, y, arena] = self.bindings();
        let half = arena.slice(4 * LEN as u64..8 * LEN as u64)?;
        device.record_commands(&Kernels::of(device).work(x, y, &half, 2), &[x, y, arena], &[2u32.into()], places())
    }

    fn replay(&self, recorded: &CommandBuffer, by: u32) -> Result<()> {
        recorded.replay(&self.bindings(), &[by.into()]).map(drop)
    }

    fn check(&self, by: u32, what: &str) {
        let wrong = self.y.to_vec().unwrap().into_iter().zip(expected(&words(self.from), by)).position(|(y, e)| y != e);
        assert_eq!(wrong, None, "{what}");
        let untouched = self.arena.to_vec().unwrap()[..LEN].iter().all(|word| *word == 0xDEAD_BEEF);
        assert!(untouched, "{what}: the arena's first half");
    }
}

#[test]
fn replays_equal_the_recorded_work_on_every_device() {
    for device in all_devices::devices() {
        let memories = [Memory::new(&device, 0), Memory::new(&device, 7000), Memory::new(&device, 1 << 31)];
        let recorded = memories[0].record(&device).unwrap_or_else(|error| panic!("{device}: {error}"));
        assert_eq!(format!("{recorded:?}"), format!("CommandBuffer(16 commands over 3 bindings on {device})"));
        let prepared = device.program_cache_stats();
        for (memory, by) in [(0, 2), (0, 2), (1, 3), (2, 3), (0, 0), (1, 9), (1, 10)] {
            memories[memory].replay(&recorded, by).unwrap_or_else(|error| panic!("{device}: {error}"));
            memories[memory].check(by, &format!("{device}, {by}"));
        }
        assert_eq!(device.program_cache_stats(), prepared, "{device}: nothing is compiled again");
    }
}

/// Other queues wait for the buffers of a replay and vice versa, for any execution order.
#[test]
fn replays_are_ordered_with_other_queues() {
    for seed in 0..40 {
        let (device, _) = test_device(Options { defer: Some(seed), ..Options::default() });
        let (memory, queue) = (Memory::new(&device, 5), device.queue().unwrap());
        let recorded = memory.record(&device).unwrap();
        let step = device.compile_fn(build_step).unwrap();
        let [x, y, _] = memory.bindings();
        let copy = device.zeros::<u32>(LEN).unwrap();
        memory.replay(&recorded, 3).unwrap();
        device.submit_to(&queue, &[Command::Copy { from: y, to: copy.storage() }]).unwrap();
        let args = vec![LaunchArg::read(copy.storage(), DType::U32), LaunchArg::write(x, DType::U32)];
        device.submit_to(&queue, &[Command::Kernel { prepared: &step, grid: Grid::from(LEN), args }]).unwrap();
        memory.replay(&recorded, 4).unwrap();
        let first = expected(&words(5), 3);
        let x: Vec<u32> = first.iter().map(|y| y.wrapping_mul(3).wrapping_add(1)).collect();
        assert_eq!(memory.y.to_vec().unwrap(), expected(&x, 4), "seed {seed}");
        assert_eq!(copy.to_vec().unwrap(), first, "seed {seed}");
    }
}

#[test]
fn mismatched_bindings_and_slots_are_mistakes() {
    let (device, test_device) = test_device(Options::default());
    let (memory, kernels) = (Memory::new(&device, 1), Kernels::of(&device));
    let [x, y, arena] = memory.bindings();
    let half = arena.slice(4 * LEN as u64..8 * LEN as u64).unwrap();
    let work = kernels.work(x, y, &half, 2);
    let record = |places: Vec<BindingSlot>, slots: &[Scalar]| {
        device.record_commands(&work, &[x, y, arena], slots, places).unwrap_err()
    };
    let two: [Scalar; 1] = [2u32.into()];
    let error = record(places()[1..].to_vec(), &two);
    assert_eq!(error.message(), "record: the work has 19 buffers, but 18 are parts of bindings; pass a place for each");
    // A duplicate place would hide an operand without one.
    for twice in [1, 2] {
        let mut places = places();
        places[0] = places[twice];
        let error = record(places, &two);
        assert!(error.is_mistake() && error.message().contains("is a duplicate for its operand"), "{error}");
    }
    let other = |at: usize, source| {
        let mut places = places();
        places[at].source = source;
        places
    };
    for (places, slots) in [
        (other(0, BindingKind::Binding { binding: 1, offset: 0 }), two),
        (other(0, BindingKind::Binding { binding: 9, offset: 0 }), two),
        (other(0, BindingKind::Binding { binding: 0, offset: 4 }), two),
        (other(0, BindingKind::Slot(0)), two),
        (other(2, BindingKind::Binding { binding: 0, offset: 0 }), two),
        (other(2, BindingKind::Slot(1)), two),
        (places(), [3u32.into()]),
    ] {
        let error = record(places, &slots);
        assert!(error.is_mistake() && error.message().contains("does not match an operand of the work"), "{error}");
    }
    let recorded = memory.record(&device).unwrap();
    let fails = |bindings: &[&Storage], slots: &[Scalar], message: &str| {
        let error = recorded.replay(bindings, slots).unwrap_err();
        assert!(error.is_mistake() && error.message().contains(message), "{error}");
    };
    fails(&[x, y], &two, "got 2 bindings and 1 slots, expected 3 and 1");
    fails(&[x, y, arena], &[], "got 3 bindings and 0 slots, expected 3 and 1");
    fails(&[x, y, arena], &[2i32.into()], "of the same types");
    fails(
        &[x, y, &half],
        &two,
        "binding 2 is 384 bytes at offset 384 on cpu, but 768 bytes at 0 on cpu were recorded; record again",
    );
    let odd = device.allocate(4 * LEN as u64 + 8).unwrap();
    fails(&[&odd.slice(8..8 + 4 * LEN as u64).unwrap(), y, arena], &two, "binding 0 is 384 bytes at offset 8");
    fails(&[y, y, arena], &two, "binding 1 is written and shares bytes with binding 0");
    let (elsewhere, _) = self::test_device(Options::default());
    fails(&[Memory::new(&elsewhere, 0).x.storage(), y, arena], &two, "binding 0 is 384 bytes at offset 0 on cpu");
    // A failure of the device fails the replay and poisons its outputs.
    test_device.state().refuse_submission = Some(Error::new(ErrorKind::Driver, "no"));
    assert_eq!(memory.replay(&recorded, 2).unwrap_err().kind(), ErrorKind::Driver);
    memory.replay(&recorded, 2).unwrap();
    memory.check(2, "after a failure");
}

/// Writing a part of a binding clears the failure only for that part.
#[test]
fn bytes_beyond_a_written_part_stay_poisoned() {
    let (device, test_device) = test_device(Options { defer: Some(4), ..Options::default() });
    let x = device.buffer(&words(0)).unwrap();
    let mut arena = device.zeros::<u32>(2 * LEN).unwrap();
    let half = arena.storage().slice(4 * LEN as u64..8 * LEN as u64).unwrap();
    let source = |binding, offset| BindingKind::Binding { binding, offset };
    let places = [source(0, 0), source(1, 4 * LEN as u64)];
    let places = (0..).zip(places).map(|(operand, source)| BindingSlot { step: 0, operand, source }).collect();
    let work = [Command::Copy { from: x.storage(), to: &half }];
    let recorded = device.record_commands(&work, &[x.storage(), arena.storage()], &[], places).unwrap();
    let replay = |arena: &Buffer<u32>| recorded.replay(&[x.storage(), arena.storage()], &[]);
    device.synchronize().unwrap();
    test_device.state().fail_step = Some(Error::new(ErrorKind::Driver, "test device: the step failed"));
    device.submit(&[Command::Fill { to: arena.storage(), pattern: &[1] }]).unwrap();
    assert!(arena.to_vec().is_err());
    assert_eq!(replay(&arena).unwrap_err().message(), "test device: the step failed");
    arena.write(&[7; 2 * LEN]).unwrap();
    replay(&arena).unwrap();
    assert_eq!(arena.to_vec().unwrap(), [vec![7; LEN], words(0)].concat());
}

#[test]
fn profile_names_the_commands_of_a_replay() {
    let (device, _) = test_device(Options::default());
    let memory = Memory::new(&device, 3);
    let recorded = memory.record(&device).unwrap();
    memory.replay(&recorded, 1).unwrap();
    let profile = Profiler::start(&device).unwrap();
    memory.replay(&recorded, 2).unwrap();
    memory.replay(&recorded, 3).unwrap();
    let report = profile.finish().unwrap();
    let runs = |name: &str| report.work.iter().find(|work| work.name == name).map(|work| work.calls);
    assert_eq!((runs("step"), runs("scale"), runs("mix"), runs("copy")), (Some(2), Some(26), Some(2), Some(2)));
    memory.check(3, "profiled");
}
