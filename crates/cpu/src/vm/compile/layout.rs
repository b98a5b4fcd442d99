//! The layout pass: assigns frame offsets to registers and positions to labels.
//!
//! The live range of a register is from its first to its last mention. A register that is mentioned both before and in
//! a loop lives to the loop's end. Registers of one width with disjoint live ranges share an offset. Registers that
//! ordinary blocks never write get separate offsets, so that the others stay close together in the cache.

use std::collections::HashMap;

use panoply_ir::kernel::Space;
use panoply_ir::{Error, Result};

use super::copy_coalescing::forward;
use super::state::{State, VirtualRegister};
use crate::vm::program::{Array, HelperLoops, Instr, Kind, Program, ROUND_LANES, Src, Target, TileShape};

/// Bytes of the L1 cache that registers may fill; the rest is for data streaming through.
const HOT_BYTES: usize = 24 << 10;
/// The same for programs with loops that lanes leave at different times: the ends of a block drop out of the loops'
/// ranges, and most of the cost of an iteration does not depend on its lanes. Mandelbrot takes 0.87 of the time with
/// blocks of 1024 lanes instead of 512.
const PARTING_BYTES: usize = 48 << 10;
/// Minimum and maximum number of lanes of a block that is not a group.
const LANES: (usize, usize) = (64, 1024);
/// Maximum number of lanes of a block whose registers take at most [`FEW_BYTES`] per lane: such a block is bound by
/// memory, and longer runs are faster. Sums of columns take three quarters of the time of blocks of 1024.
const LONG_LANES: usize = 4096;
/// Bytes per lane of one f32 register.
const FEW_BYTES: usize = 4;
/// Maximum size of a frame in bytes, so that offsets fit 32 bits.
const MAX_FRAME_BYTES: usize = 1 << 31;
/// Alignment of registers in bytes.
const ALIGN: usize = 64;

/// The live range of a register, as positions of its first and last mention.
#[derive(Clone, Copy)]
struct LiveRange {
    first: u32,
    last: u32,
}

/// A register class: width of a lane, and true if ordinary blocks write it.
type Class = (u8, bool);

/// Finishes a program.
///
/// # Errors
/// If the private and shared arrays of a block are too large.
pub fn finish(mut state: State<'_>) -> Result<Program> {
    let end = state.region().end;
    state.emit(Instr::Label(end));
    state.emit(Instr::Done);
    let mut body = state.open.pop().expect("the body's scope is open").code;
    let launch = state.open.pop().expect("the launch's scope is open").code;
    forward(&mut body);
    let cells = cells(&body);
    let lives = lives(&body, &cells, state.registers.len());
    let (places, counts) = assign(&state.registers, &lives);
    let lanes = lanes(&state, &counts);
    let frame = Frame::new(&state, &counts, lanes);
    if frame.bytes > MAX_FRAME_BYTES {
        return Err(Error::unsupported(format!(
            "kernel {}: the arrays of {lanes} work-items take {} MiB, at most {} fit; make private or shared arrays smaller",
            state.kernel.name,
            frame.bytes >> 20,
            MAX_FRAME_BYTES >> 20
        )));
    }
    let mut body = resolve(body);
    for instr in &mut body {
        // A vector instruction never overwrites values that inactive lanes need, except in memory; `Merge` handles the other cases.
        if let Instr::Vector(work) = instr {
            work.may_overcompute = work.dst.kind == Kind::Reg && work.args.iter().all(|arg| arg.kind != Kind::Cell);
        }
        instr.operands_mut(&mut |src| {
            if src.kind == Kind::Reg {
                src.at = frame.place(state.registers[src.at as usize], places[src.at as usize]);
            } else {
                src.at *= 8;
            }
        });
    }
    let mut launch = launch;
    launch.iter_mut().for_each(|instr| instr.operands_mut(&mut |src| src.at *= 8));
    let ops = state.ops;
    state.params.resize(state.kernel.params.len(), None);
    Ok(Program {
        name: state.kernel.name.clone(),
        isa: ops.isa,
        cover: state.cover,
        lanes,
        launch,
        body,
        slots: state.slots,
        constants: state.constants.into_values().collect(),
        params: state.params,
        lengths: state.lengths,
        arrays: frame.arrays,
        masks: state.masks,
        mask_at: frame.mask_at as u32,
        mask_stride: frame.mask_stride as u32,
        frame_bytes: frame.bytes,
        hot_bytes: frame.hot_bytes,
        tools: HelperLoops::new(ops),
    })
}

/// Maps each cell to its register.
fn cells(body: &[Instr]) -> HashMap<u32, u32> {
    let register = |instr: &Instr| match instr {
        Instr::Stream { cell, temp, .. } | Instr::PrepareStore { cell, temp, .. } => Some((cell.0, temp.at)),
        _ => None,
    };
    body.iter().filter_map(register).collect()
}

fn lives(body: &[Instr], cells: &HashMap<u32, u32>, registers: usize) -> Vec<Option<LiveRange>> {
    let mut lives: Vec<Option<LiveRange>> = vec![None; registers];
    let mut mentions: Vec<(u32, u32)> = Vec::new();
    let mut loops = Vec::new();
    let mut open = Vec::new();
    for (position, instr) in body.iter().enumerate() {
        let position = position as u32;
        match instr {
            Instr::LoopBegin => open.push((position, mentions.len())),
            Instr::LoopEnd => {
                let (first, mention) = open.pop().expect("loops are nested");
                loops.push((first, position, mention..mentions.len()));
            }
            _ => {}
        }
        let mut instr = instr.clone();
        instr.operands_mut(&mut |src: &mut Src| {
            let register = match src.kind {
                Kind::Slot => return,
                Kind::Reg => src.at,
                Kind::Cell => cells[&src.at],
            };
            mentions.push((register, position));
            let life = lives[register as usize].get_or_insert(LiveRange { first: position, last: position });
            life.last = position;
        });
    }
    // Inner loops end first, so an outer loop sees the ranges that an inner one extended.
    for (first, last, inside) in loops {
        for (register, _) in &mentions[inside] {
            let life = lives[*register as usize].as_mut().expect("a mentioned register has a live range");
            if life.first < first {
                life.last = life.last.max(last);
            }
        }
    }
    lives
}

/// Assigns registers to positions within their class. Returns the positions and the number needed per class.
fn assign(registers: &[VirtualRegister], lives: &[Option<LiveRange>]) -> (Vec<u32>, HashMap<Class, u32>) {
    let mut places = vec![0; registers.len()];
    let mut counts: HashMap<Class, u32> = HashMap::new();
    let mut free: HashMap<Class, Vec<u32>> = HashMap::new();
    let mut order: Vec<usize> = (0..registers.len()).filter(|register| lives[*register].is_some()).collect();
    let life = |register: usize| lives[register].expect("only live registers are sorted");
    order.sort_by_key(|register| life(*register).first);
    let mut living: Vec<usize> = Vec::new();
    for register in order {
        let now = life(register).first;
        living.retain(|other| {
            let stays = life(*other).last >= now;
            if !stays {
                free.entry(class(registers[*other])).or_default().push(places[*other]);
            }
            stays
        });
        let class = class(registers[register]);
        places[register] = free.get_mut(&class).and_then(Vec::pop).unwrap_or_else(|| {
            let count = counts.entry(class).or_default();
            *count += 1;
            *count - 1
        });
        living.push(register);
    }
    (places, counts)
}

fn class(register: VirtualRegister) -> Class {
    (register.bytes, register.hot)
}

/// Returns the number of lanes of a block.
fn lanes(state: &State<'_>, counts: &HashMap<Class, u32>) -> usize {
    if let TileShape::Group(group) = state.cover {
        return group.iter().map(|size| *size as usize).product();
    }
    let hot: usize =
        counts.iter().filter(|((_, hot), _)| *hot).map(|((bytes, _), count)| *bytes as usize * *count as usize).sum();
    let private = |memory: &panoply_ir::kernel::Memory| match memory.space {
        Space::Private(len) => len as usize * memory.dtype.bytes(),
        Space::Buffer(_) | Space::Shared(_) => 0,
    };
    let bytes = hot + state.kernel.mems.iter().map(private).sum::<usize>();
    let parting = state.facts.loops.values().any(|facts| facts.divergent_break);
    let fitting = if parting { PARTING_BYTES } else { HOT_BYTES } / bytes.max(1);
    let power = if fitting == 0 { 1 } else { 1 << fitting.ilog2() };
    power.clamp(LANES.0, if bytes <= FEW_BYTES { LONG_LANES } else { LANES.1 })
}

/// Offsets of the parts of a frame.
struct Frame {
    lanes: usize,
    classes: HashMap<Class, usize>,
    arrays: Vec<Option<Array>>,
    mask_at: usize,
    mask_stride: usize,
    hot_bytes: usize,
    bytes: usize,
}

impl Frame {
    fn new(state: &State<'_>, counts: &HashMap<Class, u32>, lanes: usize) -> Frame {
        let mut frame = Frame {
            lanes,
            classes: HashMap::new(),
            arrays: Vec::new(),
            mask_at: 0,
            mask_stride: lanes.next_multiple_of(ROUND_LANES).next_multiple_of(ALIGN) + ALIGN,
            hot_bytes: 0,
            bytes: (state.slots.len() * 8).next_multiple_of(ALIGN),
        };
        for hot in [true, false] {
            for bytes in [8, 4, 2, 1] {
                let count = counts.get(&(bytes, hot)).copied().unwrap_or(0) as usize;
                frame.classes.insert((bytes, hot), frame.bytes);
                frame.bytes += count * frame.stride(bytes);
            }
            if hot {
                frame.hot_bytes = frame.bytes;
                frame.mask_at = frame.bytes;
                frame.bytes += state.masks as usize * frame.mask_stride;
            }
        }
        for memory in &state.kernel.mems {
            let array = match memory.space {
                Space::Buffer(_) => None,
                Space::Shared(len) => Some((len, len as usize, false)),
                Space::Private(len) => Some((len, len as usize * lanes, true)),
            };
            let array = array.map(|(len, cells, private)| {
                let at = frame.bytes;
                frame.bytes = (at + cells * memory.dtype.bytes()).next_multiple_of(ALIGN) + ALIGN;
                Array { at: at as u32, len, private }
            });
            frame.arrays.push(array);
        }
        frame
    }

    /// Returns the bytes from one register to the next. The extra cache line avoids conflicts in the same cache sets.
    fn stride(&self, bytes: u8) -> usize {
        (self.lanes.next_multiple_of(ROUND_LANES) * bytes as usize).next_multiple_of(ALIGN) + ALIGN
    }

    fn place(&self, register: VirtualRegister, position: u32) -> u32 {
        (self.classes[&class(register)] + position as usize * self.stride(register.bytes)) as u32
    }
}

/// Removes marks and turns labels into positions.
fn resolve(body: Vec<Instr>) -> Vec<Instr> {
    let mut positions: HashMap<Target, u32> = HashMap::new();
    let mut kept = Vec::with_capacity(body.len());
    for instr in body {
        match instr {
            Instr::Label(label) => {
                positions.insert(label, kept.len() as u32);
            }
            Instr::LoopBegin | Instr::LoopEnd => {}
            instr => kept.push(instr),
        }
    }
    for instr in &mut kept {
        if let Some(target) = instr.target_mut() {
            *target = Target(positions[target]);
        }
    }
    kept
}
