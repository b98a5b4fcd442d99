//! Executes a program on a block of work-items.
//!
//! A [`Runner`] belongs to one thread: it owns the frame, holds the launch's memories and slots, and runs one block
//! after the other. This module has the instruction loop; the submodules implement memory accesses, masks, atomics and
//! collectives.
//!
//! The code trusts the program, which `compile` built from a verified kernel: operands are in the frame, loops get
//! lanes of the width they were chosen for, and no loop's destination overlaps a source it reads after writing.

mod atomic;
mod collective;
mod frame;
mod mask;
mod memory;

use std::ptr;

use super::lane::{Lane, Round};
use super::program::{IndexOp, Instr, Kind, Program, Slot, Src, Target, VectorLoop, known};
use panoply_host::half;

pub use self::frame::Scratch;
use self::mask::Lanes;

/// A buffer of a launch.
#[derive(Clone, Copy, Debug)]
pub struct Buffer {
    /// Address of the first element.
    pub ptr: *mut u8,
    /// Number of elements.
    pub len: u64,
}

/// The parameters of a launch, shared by all threads.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    /// The grid size in work-items.
    pub grid: [u64; 3],
    /// The grid size in groups.
    pub groups: [u64; 3],
    /// Buffers, indexed by memory; entries for arrays are ignored.
    pub buffers: &'a [Buffer],
    /// Scalars, indexed by parameter; entries for buffers are ignored. 16-bit floats are f32 bits.
    pub scalars: &'a [u64],
    /// True if only this thread runs the launch.
    pub alone: bool,
}

/// A memory as used by instructions.
#[derive(Clone, Copy)]
struct Mem {
    ptr: *mut u8,
    len: u64,
    /// Number of lanes between consecutive elements of a lane's private array; 0 for memory shared by all lanes.
    private: usize,
    /// True if other threads may access it.
    contended: bool,
}

/// Executes the blocks of a launch on one thread.
pub struct Runner<'a> {
    program: &'a Program,
    frame: *mut u8,
    mems: Vec<Mem>,
    masks: Vec<Lanes>,
    /// Extents of the block along the axes.
    shape: [usize; 3],
    /// True if the block is a row.
    flat: bool,
    /// The active lanes.
    now: Lanes,
}

impl<'a> Runner<'a> {
    /// Prepares a thread for the blocks of a launch.
    ///
    /// # Safety
    /// Buffers are valid for their lengths and aligned for their elements. During the launch they are accessed only by
    /// the launch's own blocks. The program was compiled for this machine.
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
                    // SAFETY: arrays are in the frame.
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
                _ => unreachable!("the launch section contains only slot arithmetic"),
            }
        }
    }

    /// Sets another address for a buffer, for the following blocks.
    ///
    /// # Safety
    /// The elements those blocks access are valid at this address, and nothing else accesses them meanwhile.
    pub unsafe fn place(&mut self, mem: usize, ptr: *mut u8) {
        self.mems[mem].ptr = ptr;
    }

    /// Runs a block.
    ///
    /// # Safety
    /// As [`Runner::new`]. The block is within the grid or is a complete group, and has at most the program's lanes.
    // Inlined, because otherwise the extents would be written to memory and read back at once, after all stores of the
    // previous block.
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
                Instr::Label(_) | Instr::LoopBegin | Instr::LoopEnd => unreachable!("the layout pass removes marks"),
            }
        }
    }

    // Operands.

    fn slot_ptr(&self, slot: Slot) -> *mut u64 {
        // SAFETY: slots are at the start of the frame.
        unsafe { self.frame.cast::<u64>().add(slot.0 as usize) }
    }

    fn get(&self, slot: Slot) -> u64 {
        // SAFETY: slots are in the frame and aligned.
        unsafe { *self.slot_ptr(slot) }
    }

    fn set(&self, slot: Slot, bits: u64) {
        // SAFETY: slots are in the frame and aligned.
        unsafe { *self.slot_ptr(slot) = bits }
    }

    /// Returns the address of an operand's lane, or of its uniform value.
    #[inline(always)]
    fn address(&self, src: Src, lane: usize) -> *mut u8 {
        // SAFETY: operands are in the frame.
        let place = unsafe { self.frame.add(src.at as usize) };
        let offset = lane * src.step as usize;
        if src.kind == Kind::Cell {
            // SAFETY: a cell is a slot in which an earlier instruction stored an address.
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

    fn merge(&self, work: &VectorLoop, direct: Option<panoply_host::isa::VecFn>, temp: Src) {
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

    fn update(&self, work: &VectorLoop, direct: panoply_host::isa::VecFn, operand: u8) {
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

    /// Reads a slot as an integer of a lane type.
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

    /// Adds the step and returns true if the counter is still below its end.
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

/// Rounds an f32 lane to a narrower float type.
fn rounded(value: f32, round: Round) -> f32 {
    match round {
        Round::None => value,
        Round::F16 => half::f16_to_f32(half::f32_to_f16(value)),
        Round::BF16 => half::bf16_to_f32(half::f32_to_bf16(value)),
    }
}
