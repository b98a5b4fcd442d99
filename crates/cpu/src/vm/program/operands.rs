//! What an instruction refers to: its operands, and where it goes.

use super::*;

impl Instr {
    /// The operands that may be registers or cells, destinations first.
    pub fn operands_mut(&mut self, f: &mut impl FnMut(&mut Src)) {
        match self {
            Instr::Vector(work) | Instr::Scalar(work) | Instr::Update { work, .. } => work.operands_mut(f),
            Instr::Merge { work, temp, .. } => {
                work.operands_mut(f);
                f(temp);
            }
            Instr::Iota { dst, .. } | Instr::Compare { dst, .. } => f(dst),
            Instr::Stream { temp, .. } | Instr::Out { temp, .. } | Instr::Commit { temp, .. } => f(temp),
            Instr::Gather { dst, index, .. } => {
                f(dst);
                f(index);
            }
            Instr::Store { at, value, .. } => {
                if let At::Lanes(index) = at {
                    f(index);
                }
                f(value);
            }
            Instr::Atomic(atomic) => {
                if let Some(old) = &mut atomic.old {
                    f(old);
                }
                f(&mut atomic.index);
                f(&mut atomic.value);
                f(&mut atomic.expected);
            }
            Instr::Collective(collective) => {
                f(&mut collective.result);
                f(&mut collective.value);
            }
            Instr::Narrow { when: Condition::Lanes { value, .. }, .. } => f(value),
            Instr::Narrow { when: Condition::Range(_) | Condition::Together { .. }, .. }
            | Instr::Index { .. }
            | Instr::Load { .. }
            | Instr::Jump(_)
            | Instr::Branch { .. }
            | Instr::Test { .. }
            | Instr::Next { .. }
            | Instr::Minus { .. }
            | Instr::CopyMask { .. }
            | Instr::Enter { .. }
            | Instr::Leave(_)
            | Instr::Done
            | Instr::Label(_)
            | Instr::LoopBegin
            | Instr::LoopEnd => {}
        }
    }

    /// Where it may go besides the next instruction.
    pub fn target_mut(&mut self) -> Option<&mut Target> {
        match self {
            Instr::Jump(target)
            | Instr::Branch { otherwise: target, .. }
            | Instr::Test { exit: target, .. }
            | Instr::Next { back: target, .. }
            | Instr::Enter { if_empty: target, .. } => Some(target),
            Instr::Vector(_)
            | Instr::Merge { .. }
            | Instr::Update { .. }
            | Instr::Scalar(_)
            | Instr::Index { .. }
            | Instr::Iota { .. }
            | Instr::Compare { .. }
            | Instr::Stream { .. }
            | Instr::Gather { .. }
            | Instr::Load { .. }
            | Instr::Out { .. }
            | Instr::Commit { .. }
            | Instr::Store { .. }
            | Instr::Atomic(_)
            | Instr::Collective(_)
            | Instr::Narrow { .. }
            | Instr::Minus { .. }
            | Instr::CopyMask { .. }
            | Instr::Leave(_)
            | Instr::Done
            | Instr::Label(_)
            | Instr::LoopBegin
            | Instr::LoopEnd => None,
        }
    }
}

impl Work {
    fn operands_mut(&mut self, f: &mut impl FnMut(&mut Src)) {
        f(&mut self.dst);
        self.args.iter_mut().for_each(f);
    }
}
