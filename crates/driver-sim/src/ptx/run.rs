//! Executes grids: blocks one after the other, the warps of a block in turns between barriers, and the threads of a warp in turns between
//! shuffles and matrix products.

use super::decode::{self, Address, Instruction, Kind, Multiply, PtxOperand, Space};
use super::matrix;
use super::memory::Memory;
use super::parse::Entry;

/// The reason why a grid was aborted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The error code of the driver.
    pub code: i32,
    /// The description, with the line of the text.
    pub what: String,
}

/// CUDA_ERROR_ILLEGAL_ADDRESS.
pub const ILLEGAL_ADDRESS: i32 = 700;
/// CUDA_ERROR_LAUNCH_TIMEOUT.
pub const TIMEOUT: i32 = 702;
/// CUDA_ERROR_MISALIGNED_ADDRESS.
pub const MISALIGNED: i32 = 716;
/// CUDA_ERROR_LAUNCH_FAILED.
pub const FAILED: i32 = 719;

/// Number of instructions after which a thread is aborted.
const PATIENCE: u64 = 1 << 32;

/// Number of threads of a warp.
const WARP: usize = 32;

/// The contents of uninitialized registers and arrays.
const GARBAGE: u64 = 0xA5A5_A5A5_A5A5_A5A5;

/// A launch.
pub struct Launch<'a> {
    /// The entry point.
    pub entry: &'a Entry,
    /// Number of blocks along each axis.
    pub grid: [u32; 3],
    /// Number of threads of a block along each axis.
    pub block: [u32; 3],
    /// The bits of every parameter.
    pub params: &'a [u64],
}

struct Thread {
    registers: Vec<u64>,
    local: Vec<u8>,
    tid: [u32; 3],
    pc: usize,
    steps: u64,
    done: bool,
}

struct Block<'a> {
    launch: &'a Launch<'a>,
    index: [u32; 3],
    shared: Vec<u8>,
    memory: &'a mut Memory,
}

/// Runs a grid to completion.
pub fn run(launch: &Launch<'_>, memory: &mut Memory) -> Result<(), Fault> {
    let [gx, gy, gz] = launch.grid;
    let mut threads: Vec<Thread> = Vec::new();
    for z in 0..gz {
        for y in 0..gy {
            for x in 0..gx {
                let shared = vec![GARBAGE as u8; launch.entry.shared as usize];
                let mut block = Block { launch, index: [x, y, z], shared, memory };
                block.run(&mut threads)?;
            }
        }
    }
    Ok(())
}

impl Block<'_> {
    fn run(&mut self, threads: &mut Vec<Thread>) -> Result<(), Fault> {
        let [bx, by, bz] = self.launch.block;
        let count = (bx * by * bz) as usize;
        threads.truncate(count);
        while threads.len() < count {
            let at = threads.len() as u32;
            let tid = [at % bx, at / bx % by, at / (bx * by)];
            let entry = self.launch.entry;
            let (registers, local) = (vec![0; entry.registers], vec![0; entry.local as usize]);
            threads.push(Thread { registers, local, tid, pc: 0, steps: 0, done: false });
        }
        for thread in threads.iter_mut() {
            (thread.pc, thread.steps, thread.done) = (0, 0, false);
            thread.registers.fill(GARBAGE);
            thread.local.fill(GARBAGE as u8);
        }
        loop {
            threads.chunks_mut(WARP).try_for_each(|warp| self.advance_warp(warp))?;
            let mut waiting = threads.iter().filter(|thread| !thread.done).map(|thread| thread.pc);
            let Some(barrier) = waiting.next() else { return Ok(()) };
            if let Some(here) = waiting.find(|here| *here != barrier) {
                return Err(self.fault(here - 1, FAILED, "threads of a block wait at different barriers"));
            }
        }
    }

    /// Runs the threads of a warp up to barriers or their ends.
    fn advance_warp(&mut self, warp: &mut [Thread]) -> Result<(), Fault> {
        loop {
            warp.iter_mut().filter(|thread| !thread.done).try_for_each(|thread| self.advance(thread))?;
            let exchanges = |kind: &Kind| matches!(kind, Kind::Shuffle { .. } | Kind::Multiply(_));
            let waits = |thread: &&Thread| !thread.done && exchanges(&self.launch.entry.code[thread.pc - 1].kind);
            let Some(at) = warp.iter().find(waits).map(|thread| thread.pc - 1) else { return Ok(()) };
            match &self.launch.entry.code[at].kind {
                Kind::Multiply(multiply) => self.multiply(at, multiply, warp)?,
                _ => self.shuffle(at, warp)?,
            }
        }
    }

    /// Exchanges values between the threads of a warp.
    fn shuffle(&self, at: usize, warp: &mut [Thread]) -> Result<(), Fault> {
        let Kind::Shuffle { to, value, lane, mask } = self.launch.entry.code[at].kind else { return Ok(()) };
        let here = |thread: &Thread| !thread.done && thread.pc == at + 1;
        let present = warp.iter().enumerate().fold(0, |mask, (lane, thread)| mask | u64::from(here(thread)) << lane);
        if warp.iter().any(|thread| !thread.done && !here(thread)) {
            return Err(self.fault(at, FAILED, "some threads of a warp are at a shuffle, others wait elsewhere"));
        }
        let given: Vec<u64> = warp.iter().map(|thread| self.value(thread, value)).collect();
        for thread in warp.iter_mut().filter(|thread| here(thread)) {
            if mask.is_some_and(|mask| self.value(thread, mask) & u64::from(u32::MAX) != present) {
                return Err(self.fault(at, FAILED, "a shuffle's mask differs from the lanes that execute it"));
            }
            let from = self.value(thread, lane) as usize % WARP;
            if present >> from & 1 == 0 {
                return Err(self.fault(at, FAILED, "a shuffle reads a lane that does not execute it"));
            }
            thread.registers[to as usize] = given[from];
        }
        Ok(())
    }

    /// Multiplies matrices whose fragments are in the threads of a warp.
    fn multiply(&self, at: usize, multiply: &Multiply, warp: &mut [Thread]) -> Result<(), Fault> {
        if warp.len() < WARP || warp.iter().any(|thread| thread.done || thread.pc != at + 1) {
            return Err(self.fault(at, FAILED, "a matrix product is executed without all of its threads"));
        }
        let of = |sources: &[PtxOperand]| -> Vec<Vec<u64>> {
            warp.iter().map(|thread| sources.iter().map(|source| self.value(thread, *source)).collect()).collect()
        };
        let results = matrix::multiply(multiply.bf16, &of(&multiply.a), &of(&multiply.b), &of(&multiply.c));
        for (thread, results) in warp.iter_mut().zip(results) {
            multiply.d.iter().zip(results).for_each(|(to, bits)| thread.registers[*to as usize] = bits);
        }
        Ok(())
    }

    /// Runs a thread up to a barrier, an exchange within its warp, or its end.
    fn advance(&mut self, thread: &mut Thread) -> Result<(), Fault> {
        let code = &self.launch.entry.code;
        while let Some(Instruction { guard, kind, .. }) = code.get(thread.pc) {
            let at = thread.pc;
            thread.pc += 1;
            thread.steps += 1;
            if thread.steps > PATIENCE {
                return Err(self.fault(at, TIMEOUT, "a thread does not terminate"));
            }
            if let Some((register, negated)) = guard
                && (thread.registers[*register as usize] & 1 == 1) == *negated
            {
                continue;
            }
            match kind {
                Kind::Compute { function, to, from } => {
                    let [a, b, c] = from.map(|source| self.value(thread, source));
                    thread.registers[*to as usize] = function(a, b, c);
                }
                Kind::Test { function, join, to, from } => {
                    let [a, b, c] = from.map(|source| self.value(thread, source));
                    thread.registers[*to as usize] = join(function(a, b, 0), c, 0);
                }
                Kind::Parameter { index, ty, to, mask } => {
                    thread.registers[*to as usize] = ty.extend(self.launch.params[*index]) & mask;
                }
                Kind::Load { space, ty, to, mask, address } => {
                    let word = get(self.place(at, thread, *space, ty.bytes(), address)?);
                    thread.registers[*to as usize] = ty.extend(word) & mask;
                }
                Kind::LoadVector { space, ty, to, address } => {
                    let lanes = self.place(at, thread, *space, to.len() * ty.bytes(), address)?.to_vec();
                    for (to, lane) in to.iter().zip(lanes.chunks(ty.bytes())) {
                        thread.registers[*to as usize] = get(lane);
                    }
                }
                Kind::Store { space, ty, from, address } => {
                    let value = self.value(thread, *from);
                    put(self.place(at, thread, *space, ty.bytes(), address)?, value);
                }
                Kind::Atomic { space, ty, function, to, from, address } => {
                    let [a, b] = from.map(|source| self.value(thread, source));
                    let place = self.place(at, thread, *space, ty.bytes(), address)?;
                    let old = get(place);
                    put(place, function(old, a, b));
                    thread.registers[*to as usize] = old;
                }
                Kind::Branch(target) => thread.pc = *target,
                Kind::Barrier | Kind::Shuffle { .. } | Kind::Multiply(_) => return Ok(()),
                Kind::Return => break,
            }
        }
        thread.done = true;
        Ok(())
    }

    fn value(&self, thread: &Thread, source: PtxOperand) -> u64 {
        match source {
            PtxOperand::Register(register) => thread.registers[register as usize],
            PtxOperand::Value(value) => value,
            PtxOperand::Special(decode::LANE, _) => {
                let ([x, y, z], [width, height, _]) = (thread.tid, self.launch.block);
                u64::from(x + width * (y + height * z)) % WARP as u64
            }
            PtxOperand::Special(name, axis) => u64::from(match name {
                0 => thread.tid[axis as usize],
                1 => self.launch.block[axis as usize],
                2 => self.index[axis as usize],
                _ => self.launch.grid[axis as usize],
            }),
        }
    }

    /// Returns the bytes at an address.
    fn place<'s>(
        &'s mut self,
        at: usize,
        thread: &'s mut Thread,
        space: Space,
        bytes: usize,
        address: &Address,
    ) -> Result<&'s mut [u8], Fault> {
        let start = self.value(thread, address.base).wrapping_add(address.offset);
        if !start.is_multiple_of(bytes as u64) {
            let what = format!("{start:#x} in {space:?} memory is not a multiple of {bytes}");
            return Err(self.fault(at, MISALIGNED, &what));
        }
        let line = self.launch.entry.code[at].line;
        let within = |storage: &'s mut [u8]| {
            let end = usize::try_from(start).ok()?.checked_add(bytes)?;
            storage.get_mut(start as usize..end)
        };
        let found = match space {
            Space::Global => self.memory.at(start, bytes as u64),
            Space::Shared => within(&mut self.shared),
            Space::Local => within(&mut thread.local),
        };
        found.ok_or_else(|| Fault {
            code: ILLEGAL_ADDRESS,
            what: format!("line {line}: {start:#x} in {space:?} memory is not allocated"),
        })
    }

    fn fault(&self, at: usize, code: i32, what: &str) -> Fault {
        Fault { code, what: format!("line {}: {what}", self.launch.entry.code[at].line) }
    }
}

fn get(place: &[u8]) -> u64 {
    place.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

fn put(place: &mut [u8], value: u64) {
    place.copy_from_slice(&value.to_le_bytes()[..place.len()]);
}
