//! Human-readable dump of programs.

use std::fmt;

use panoply_ir::kernel::Guard;

use super::lane::{Lane, Round};
use super::program::{
    Access, Affine, At, Compare, Condition, Instr, Kind, LoopOp, Program, Range, Slot, Src, Target, TileShape,
    VectorLoop, known,
};

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cover = match self.cover {
            TileShape::Row => "rows".to_string(),
            TileShape::Tile2d => "rows of a plane".to_string(),
            TileShape::Tile3d => "planes".to_string(),
            TileShape::Group([x, y, z]) => format!("groups of {x}×{y}×{z}"),
        };
        writeln!(
            f,
            "vector program {} ({}): blocks of {} lanes from {cover}, {} bytes of registers in a frame of {}",
            self.name, self.isa, self.lanes, self.hot_bytes, self.frame_bytes
        )?;
        let names: Vec<String> = (0..self.slots.len()).map(|slot| self.slot_name(slot)).collect();
        let line = |f: &mut fmt::Formatter<'_>, number: usize, instr: &Instr| {
            writeln!(f, "{number:5}  {}", Line { instr, names: &names })
        };
        writeln!(f, "once per launch:")?;
        for (number, instr) in self.launch.iter().enumerate() {
            line(f, number, instr)?;
        }
        writeln!(f, "once per block:")?;
        for (number, instr) in self.body.iter().enumerate() {
            line(f, number, instr)?;
        }
        Ok(())
    }
}

impl Program {
    fn slot_name(&self, slot: usize) -> String {
        let number = slot as u32;
        let axis = |first: u32| ["x", "y", "z"][(number - first) as usize];
        let is = |held: Option<Slot>| held == Some(Slot(number));
        if let Some(param) = self.params.iter().position(|param| is(param.map(|(slot, _)| slot))) {
            return format!("param{param}");
        }
        if let Some(mem) = self.lengths.iter().position(|length| is(*length)) {
            return format!("len(@{mem})");
        }
        match number {
            known::GLOBAL..known::GROUP => format!("global.{}", axis(known::GLOBAL)),
            known::GROUP..known::SIZE => format!("group.{}", axis(known::GROUP)),
            known::SIZE..known::GROUPS => format!("size.{}", axis(known::SIZE)),
            known::GROUPS..12 => format!("groups.{}", axis(known::GROUPS)),
            _ if self.constants.contains(&Slot(number)) => constant(self.slots[slot]),
            _ => format!("s{slot}"),
        }
    }
}

fn constant(bits: u64) -> String {
    // Small numbers are counts and indices; float bit patterns are easier to read in hexadecimal.
    if bits < 1 << 20 { bits.to_string() } else { format!("{bits:#x}") }
}

/// An instruction with the names of the slots.
struct Line<'a> {
    instr: &'a Instr,
    names: &'a [String],
}

impl Line<'_> {
    fn slot(&self, at: u32) -> &str {
        &self.names[at as usize]
    }

    fn src(&self, src: Src) -> String {
        match src.kind {
            Kind::Slot => self.slot(src.at / 8).to_string(),
            Kind::Reg => format!("r{}", src.at),
            Kind::Cell => format!("[{}]", self.slot(src.at / 8)),
        }
    }

    fn work(&self, work: &VectorLoop) -> String {
        let used = match work.what {
            LoopOp::Alu(alu, _) => alu.arity(),
            LoopOp::Pair(pair, _) => pair.arity(),
            LoopOp::Cast(..)
            | LoopOp::Odd(_)
            | LoopOp::Round(_)
            | LoopOp::Widen(_)
            | LoopOp::Narrow(_)
            | LoopOp::Copy
            | LoopOp::Splat => 1,
        };
        let args: Vec<String> = work.args[..used].iter().map(|arg| self.src(*arg)).collect();
        format!("{} = {} {}", self.src(work.dst), what(work.what), args.join(", "))
    }

    fn affine(&self, at: &Affine) -> String {
        let mut text = self.slot(at.base.0).to_string();
        for (stride, axis) in at.strides.iter().zip(["x", "y", "z"]) {
            if *stride != known::ZERO {
                text += &format!(" + {}·{axis}", self.slot(stride.0));
            }
        }
        text
    }

    fn element(&self, access: &Access, at: &At) -> String {
        let index = match at {
            At::Affine(at) => self.affine(at),
            At::Lanes(src) => self.src(*src),
        };
        let offset = if access.offset > 0 { format!(" + {}", access.offset) } else { String::new() };
        let guard = match access.guard {
            Guard::Checked => "?",
            Guard::Proven => "",
            Guard::Unchecked => "!",
        };
        format!("@{}{guard}[{index}{offset}]", access.mem.0)
    }
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let go = |target: &Target| target.0;
        match self.instr {
            Instr::Vector(work) => write!(f, "{}", self.work(work)),
            Instr::Merge { work, direct, .. } => {
                write!(f, "{} (active lanes{})", self.work(work), if direct.is_some() { "" } else { ", by a copy" })
            }
            Instr::Update { work, .. } => write!(f, "{} (in place)", self.work(work)),
            Instr::Scalar(work) => write!(f, "{} (once)", self.work(work)),
            Instr::Index { op, dst, a, b } => {
                let name = format!("{op:?}").to_lowercase();
                write!(f, "{} = {name} {}, {}", self.slot(dst.0), self.slot(a.0), self.slot(b.0))
            }
            Instr::Iota { dst, at } => write!(f, "{} = iota {}", self.src(*dst), self.affine(at)),
            Instr::Compare { dst, range } => write!(f, "{} = {}", self.src(*dst), self.range(range)),
            Instr::Stream { cell, access, at, .. } => {
                write!(f, "[{}] = stream {}", self.slot(cell.0), self.element(access, &At::Affine(*at)))
            }
            Instr::Gather { dst, access, index } => {
                write!(f, "{} = gather {}", self.src(*dst), self.element(access, &At::Lanes(*index)))
            }
            Instr::Load { dst, access, index } => {
                let at = Affine { base: *index, strides: [known::ZERO; 3] };
                write!(f, "{} = load {}", self.slot(dst.0), self.element(access, &At::Affine(at)))
            }
            Instr::PrepareStore { cell, access, at, .. } => {
                write!(f, "[{}] = out {}", self.slot(cell.0), self.element(access, &At::Affine(*at)))
            }
            Instr::CommitStore { access, at, .. } => write!(f, "commit {}", self.element(access, &At::Affine(*at))),
            Instr::Store { access, at, value } => write!(f, "store {}, {}", self.element(access, at), self.src(*value)),
            Instr::Atomic(atomic) => {
                let old = atomic.old.map(|old| format!("{} = ", self.src(old))).unwrap_or_default();
                let (index, value) = (self.src(atomic.index), self.src(atomic.value));
                write!(f, "{old}atomic {:?} @{}[{index}], {value}", atomic.op, atomic.access.mem.0)
            }
            Instr::Collective(collective) => {
                let (result, value) = (self.src(collective.result), self.src(collective.value));
                write!(f, "{result} = {:?}.{} {value}", collective.op, collective.lane.name())
            }
            Instr::Jump(target) => write!(f, "jump {}", go(target)),
            Instr::Branch { condition, otherwise } => {
                write!(f, "unless {} jump {}", self.slot(condition.0), go(otherwise))
            }
            Instr::LoopTest { counter, end, exit, .. } => {
                write!(f, "unless {} < {} jump {}", self.slot(counter.0), self.slot(end.0), go(exit))
            }
            Instr::Next { counter, end, step, back, .. } => {
                let [counter, end, step] = [counter, end, step].map(|slot| self.slot(slot.0));
                write!(f, "{counter} += {step}; if {counter} < {end} jump {}", go(back))
            }
            Instr::Narrow { from, to, when } => write!(f, "m{} = m{} where {}", to.0, from.0, self.condition(when)),
            Instr::MaskAndNot { from, take, to } => write!(f, "m{} = m{} without m{}", to.0, from.0, take.0),
            Instr::CopyMask { from, to } => write!(f, "m{} = m{}", to.0, from.0),
            Instr::Enter { mask, if_empty } => write!(f, "on m{}; if empty jump {}", mask.0, go(if_empty)),
            Instr::Leave(masks) => {
                let masks: Vec<String> = masks.iter().map(|mask| format!("m{}", mask.0)).collect();
                write!(f, "leave {}", masks.join(", "))
            }
            Instr::Done => write!(f, "done"),
            Instr::Label(label) => write!(f, "label {}", label.0),
            Instr::LoopBegin => write!(f, "loop"),
            Instr::LoopEnd => write!(f, "end of loop"),
        }
    }
}

impl Line<'_> {
    fn condition(&self, when: &Condition) -> String {
        match when {
            Condition::Lanes { value, holds } => format!("{}{}", if *holds { "" } else { "not " }, self.src(*value)),
            Condition::Uniform { value, holds } => {
                format!("{}{}", if *holds { "" } else { "not " }, self.slot(value.0))
            }
            Condition::Range(range) => self.range(range),
        }
    }

    fn range(&self, Range { at, compare, bound, .. }: &Range) -> String {
        let sign = match compare {
            Compare::Lt => "<",
            Compare::Le => "≤",
            Compare::Gt => ">",
            Compare::Ge => "≥",
            Compare::Eq => "=",
            Compare::Ne => "≠",
        };
        format!("{} {sign} {}", self.affine(at), self.slot(bound.0))
    }
}

fn what(what: LoopOp) -> String {
    let float = |round: Round| match round {
        Round::None => "f32",
        Round::F16 => "f16",
        Round::BF16 => "bf16",
    };
    match what {
        LoopOp::Pair(pair, lane) => format!("{}.{}", pair.name(), lane.name()),
        LoopOp::Alu(alu, lane) => format!("{}.{}", alu.name(), lane.name()),
        LoopOp::Cast(from, to) => format!("{}.{}", Lane::name(to), from.name()),
        LoopOp::Odd(from) => format!("odd.{}", from.name()),
        LoopOp::Round(to) => format!("round.{}", float(to)),
        LoopOp::Widen(from) => format!("widen.{}", float(from)),
        LoopOp::Narrow(to) => format!("narrow.{}", float(to)),
        LoopOp::Copy => "copy".to_string(),
        LoopOp::Splat => "splat".to_string(),
    }
}
