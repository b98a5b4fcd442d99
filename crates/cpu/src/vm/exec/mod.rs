//! Running a program on a block of work-items.
//!
//! A [`Runner`] belongs to one thread: it has the frame, knows the launch's memories and slots, and runs one block after
//! the other. Here is the loop over instructions; what memories, masks, atomics and collectives do stands beside it.
//!
//! Everything here trusts the program, which `compile` made of a verified kernel: operands lie in the frame, loops get
//! lanes of the width they were chosen for, and no loop's destination overlaps a source it reads after writing.

mod atomic;
mod collective;
mod frame;
mod mask;
mod memory;

use std::ptr;

use super::lane::{Lane, Round};
use super::ops::half;
use super::program::{IndexOp, Instr, Kind, Program, Slot, Src, Target, VectorLoop, known};

pub use self::frame::Scratch;
use self::mask::Lanes;

/// A buffer of a launch.
#[derive(Clone, Copy, Debug)]
pub struct Buffer {
    /// Its first element.
    pub ptr: *mut u8,
    /// Elements.
    pub len: u64,
}

/// What a launch gives to every thread.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    /// Work-items asked for.
    pub grid: [u64; 3],
    /// Groups.
    pub groups: [u64; 3],
    /// By memory; arrays have entries that are not looked at.
    pub buffers: &'a [Buffer],
    /// By parameter; buffers have entries that are not looked at. 16-bit floats are f32 bits.
    pub scalars: &'a [u64],
    /// Whether this thread is the only one that runs the launch.
    pub alone: bool,
}

/// A memory as instructions see it.
#[derive(Clone, Copy)]
struct Mem {
    ptr: *mut u8,
    len: u64,
    /// Distance of a lane's elements; 0 for memory that lanes share.
    private: usize,
    /// Whether other threads may touch it.
    contended: bool,
}

/// Runs blocks.
pub struct Runner<'a> {
    program: &'a Program,
    frame: *mut u8,
    mems: Vec<Mem>,
    masks: Vec<Lanes>,
    /// Extents of the block along its axes.
    shape: [usize; 3],
    /// Whether the block is a row.
    flat: bool,
    /// The active lanes.
    now: Lanes,
}

impl<'a> Runner<'a> {
    /// Prepares a thread for the blocks of a launch.
    ///
    /// # Safety
    /// Buffers are valid for their lengths, aligned for their elements, and used by nobody else for the time of the launch
    /// but as the kernel's other blocks do. The program was made for this machine.
    pub unsafe fn new(program: &'a Program, launch: &Launch<'_>, scratch: &'a mut Scratch) -> Runner<'a> {
        let frame = scratch.frame(program);
        let mut mems = Vec::with_capacity(program.arrays.len());
        for (position, array) in program.arrays.iter().enumerate() {
            mems.push(match array {
                None => {
                    let buffer = launch.buffers[position];
                    Mem { ptr: buffer.ptr, len: buffer.len, private: 0, contended: !launch.alone }
                }
                Some(array) => Mem {
                    // SAFETY: arrays lie within the frame.
                    ptr: unsafe { frame.add(array.at as usize) },
                    len: u64::from(array.len),
                    private: if array.private { program.lanes } else { 0 },
                    contended: false,
                },
            });
        }
        let masks = vec![Lanes::default(); program.masks as usize];
        let runner = Runner { program, frame, mems, masks, shape: [1; 3], flat: true, now: Lanes::range(0, 1) };
        runner.fill_slots(launch);
        runner
    }

    fn fill_slots(&self, launch: &Launch<'_>) {
        for (slot, bits) in self.program.slots.iter().enumerate() {
            self.set(Slot(slot as u32), *bits);
        }
        for axis in 0..3 {
            self.set(Slot(known::SIZE + axis), launch.grid[axis as usize]);
            self.set(Slot(known::GROUPS + axis), launch.groups[axis as usize]);
        }
        for (param, bits) in self.program.params.iter().zip(launch.scalars) {
            if let Some((slot, _)) = param {
                self.set(*slot, *bits);
            }
        }
        for (length, mem) in self.program.lengths.iter().zip(&self.mems) {
            if let Some(slot) = length {
                self.set(*slot, mem.len);
            }
        }
        for instr in &self.program.launch {
            match instr {
                Instr::Index { op, dst, a, b } => self.index(*op, *dst, *a, *b),
                Instr::Scalar(work) => self.scalar(work),
                _ => unreachable!("before the blocks there is only arithmetic on slots"),
            }
        }
    }

    /// Gives a buffer another place for the blocks that follow.
    ///
    /// # Safety
    /// What those touch of it is there, and used by nobody else for the time.
    pub unsafe fn place(&mut self, mem: usize, ptr: *mut u8) {
        self.mems[mem].ptr = ptr;
    }

    /// Runs a block.
    ///
    /// # Safety
    /// As [`Runner::new`]; the block lies within the grid, or is a whole group, and has at most the program's lanes.
    // Inlined, or the extents would be written to memory and read back at once, behind all stores of the block before.
    #[inline(always)]
    pub unsafe fn block(&mut self, origin: [u64; 3], group: [u64; 3], shape: [usize; 3]) {
        for axis in 0..3 {
            self.set(Slot(known::GLOBAL + axis), origin[axis as usize]);
            self.set(Slot(known::GROUP + axis), group[axis as usize]);
        }
        self.shape = shape;
        self.flat = shape[1] == 1 && shape[2] == 1;
        let lanes = shape[0] * shape[1] * shape[2];
        debug_assert!(lanes <= self.program.lanes, "the block fits the registers");
        self.now = Lanes::range(0, lanes);
        self.masks[0] = self.now.by_parts();
        self.run();
    }

    #[inline(never)]
    fn run(&mut self) {
        let program = self.program;
        let mut at = 0;
        let go = |target: Target| target.0 as usize;
        loop {
            let instr = &program.body[at];
            at += 1;
            match instr {
                Instr::Vector(work) => self.vector(work),
                Instr::Merge { work, direct, temp } => self.merge(work, *direct, *temp),
                Instr::Update { work, direct, operand } => self.update(work, *direct, *operand),
                Instr::Scalar(work) => self.scalar(work),
                Instr::Index { op, dst, a, b } => self.index(*op, *dst, *a, *b),
                Instr::Iota { dst, at } => self.iota(*dst, at),
                Instr::Compare { dst, range } => self.compare(*dst, range),
                Instr::Stream { cell, access, at, temp } => self.stream(*cell, access, at, *temp),
                Instr::Gather { dst, access, index } => self.gather(*dst, access, *index),
                Instr::Load { dst, access, index } => self.load(*dst, access, *index),
                Instr::PrepareStore { cell, access, at, temp } => self.out(*cell, access, at, *temp),
                Instr::CommitStore { cell, access, at, temp } => self.commit(*cell, access, at, *temp),
                Instr::Store { access, at, value } => self.store(access, at, *value),
                Instr::Atomic(atomic) => self.atomic(atomic),
                Instr::Collective(collective) => self.collective(collective),
                Instr::Jump(target) => at = go(*target),
                Instr::Branch { condition, otherwise } => {
                    if self.get(*condition) & 0xff == 0 {
                        at = go(*otherwise);
                    }
                }
                Instr::LoopTest { counter, end, lane, exit } => {
                    if self.wide(*counter, *lane) >= self.wide(*end, *lane) {
                        at = go(*exit);
                    }
                }
                Instr::Next { counter, end, step, lane, back } => {
                    if self.advance(*counter, *end, *step, *lane) {
                        at = go(*back);
                    }
                }
                Instr::Narrow { from, to, when } => self.narrow(*from, *to, when),
                Instr::MaskAndNot { from, take, to } => self.minus(*from, *take, *to),
                Instr::CopyMask { from, to } => self.copy_mask(*from, *to),
                Instr::Enter { mask, if_empty } => {
                    self.now = self.masks[mask.0 as usize].by_parts();
                    if self.now.is_empty() {
                        at = go(*if_empty);
                    }
                }
                Instr::Leave(masks) => self.leave(masks),
                Instr::Done => return,
                Instr::Label(_) | Instr::LoopBegin | Instr::LoopEnd => unreachable!("the layout removes marks"),
            }
        }
    }

    // Operands.

    fn slot_ptr(&self, slot: Slot) -> *mut u64 {
        // SAFETY: slots lie at the start of the frame.
        unsafe { self.frame.cast::<u64>().add(slot.0 as usize) }
    }

    fn get(&self, slot: Slot) -> u64 {
        // SAFETY: slots lie in the frame, aligned.
        unsafe { *self.slot_ptr(slot) }
    }

    fn set(&self, slot: Slot, bits: u64) {
        // SAFETY: slots lie in the frame, aligned.
        unsafe { *self.slot_ptr(slot) = bits }
    }

    /// The address of an operand's lane, or of its value.
    #[inline(always)]
    fn address(&self, src: Src, lane: usize) -> *mut u8 {
        // SAFETY: operands lie in the frame.
        let place = unsafe { self.frame.add(src.at as usize) };
        let offset = lane * src.step as usize;
        if src.kind == Kind::Cell {
            // SAFETY: a cell is a slot in which an instruction before this one left an address.
            let address = unsafe { *place.cast::<u64>() };
            return std::ptr::with_exposed_provenance_mut::<u8>(address as usize).wrapping_add(offset);
        }
        place.wrapping_add(offset)
    }

    // Loops.

    #[inline(always)]
    fn vector(&self, work: &VectorLoop) {
        let (lo, hi) = if work.may_overcompute { self.now.rounded() } else { (self.now.lo, self.now.hi) };
        let [a, b, c] = &work.args;
        let (a, b, c) = (self.address(*a, lo), self.address(*b, lo), self.address(*c, lo));
        // SAFETY: the program gives each loop the operands it was chosen for.
        unsafe { (work.f)(hi - lo, self.address(work.dst, lo), a, b, c) }
    }

    fn merge(&self, work: &VectorLoop, direct: Option<super::isa::VecFn>, temp: Src) {
        if let (Some(f), true) = (direct, self.now.dense) {
            return self.vector(&VectorLoop { f, ..*work });
        }
        self.vector(&VectorLoop { dst: temp, ..*work });
        let Lanes { lo, hi, dense, .. } = self.now;
        let (dst, result) = (self.address(work.dst, lo), self.address(temp, lo));
        let width = work.dst.step.trailing_zeros() as usize;
        let tools = &self.program.tools;
        // SAFETY: both registers have lanes of this width, and differ.
        unsafe {
            if dense {
                tools.copy[width](hi - lo, dst, result, ptr::null(), ptr::null());
            } else {
                tools.blend[width](hi - lo, dst, self.mask_bytes(self.now, lo), result, ptr::null());
            }
        }
    }

    fn update(&self, work: &VectorLoop, direct: super::isa::VecFn, operand: u8) {
        let lo = self.now.lo;
        if self.address(work.args[operand as usize], lo) == self.address(work.dst, lo) {
            self.vector(&VectorLoop { f: direct, ..*work });
        } else {
            self.vector(work);
        }
    }

    fn scalar(&self, work: &VectorLoop) {
        let [a, b, c] = work.args.map(|arg| self.address(arg, 0).cast_const());
        // SAFETY: a slot is one lane, and no slot is both operand and result.
        unsafe { (work.f)(1, self.address(work.dst, 0), a, b, c) }
    }

    #[inline(always)]
    fn index(&self, op: IndexOp, dst: Slot, a: Slot, b: Slot) {
        self.set(dst, op.eval(self.get(a), self.get(b)));
    }

    // Counters.

    /// An integer of a lane's type in a slot.
    fn wide(&self, slot: Slot, lane: Lane) -> i128 {
        let bits = self.get(slot);
        match lane {
            Lane::I8 => i128::from(bits as i8),
            Lane::I16 => i128::from(bits as i16),
            Lane::I32 => i128::from(bits as i32),
            Lane::I64 => i128::from(bits as i64),
            Lane::U8 | Lane::Bool => i128::from(bits as u8),
            Lane::U16 => i128::from(bits as u16),
            Lane::U32 | Lane::F32 => i128::from(bits as u32),
            Lane::U64 | Lane::F64 => i128::from(bits),
        }
    }

    /// Adds the step; whether the counter is still below its end.
    #[inline(always)]
    fn advance(&self, counter: Slot, end: Slot, step: Slot, lane: Lane) -> bool {
        if lane == Lane::U64 {
            let (now, end, step) = (self.get(counter), self.get(end), self.get(step));
            let more = end - now > step;
            self.set(counter, if more { now + step } else { now });
            return more;
        }
        let next = self.wide(counter, lane) + self.wide(step, lane);
        self.set(counter, next as u64);
        next < self.wide(end, lane)
    }
}

/// Rounds an f32 lane.
fn rounded(value: f32, round: Round) -> f32 {
    match round {
        Round::None => value,
        Round::F16 => half::f16_to_f32(half::f32_to_f16(value)),
        Round::BF16 => half::bf16_to_f32(half::f32_to_bf16(value)),
    }
}
