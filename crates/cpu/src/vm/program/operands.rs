//! Operands and jump targets of an instruction.

use super::*;

impl Instr {
    /// Calls `f` with the operands that can be registers or cells, destinations first.
    pub fn operands_mut(&mut self, f: &mut impl FnMut(&mut Src)) {
        match self {
            Instr::Vector(work) | Instr::Scalar(work) | Instr::Update { work, .. } => work.operands_mut(f),
            Instr::Merge { work, temp, .. } => {
                work.operands_mut(f);
                f(temp);
            }
            Instr::Iota { dst, .. } | Instr::Compare { dst, .. } => f(dst),
            Instr::Stream { temp, .. } | Instr::PrepareStore { temp, .. } | Instr::CommitStore { temp, .. } => f(temp),
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
            Instr::Narrow { when: Condition::Range(_) | Condition::Uniform { .. }, .. }
            | Instr::Index { .. }
            | Instr::Load { .. }
            | Instr::Jump(_)
            | Instr::Branch { .. }
            | Instr::LoopTest { .. }
            | Instr::Next { .. }
            | Instr::MaskAndNot { .. }
            | Instr::CopyMask { .. }
            | Instr::Enter { .. }
            | Instr::Leave(_)
            | Instr::Done
            | Instr::Label(_)
            | Instr::LoopBegin
            | Instr::LoopEnd => {}
        }
    }

    /// Returns the jump target of the instruction, if it has one.
    pub fn target_mut(&mut self) -> Option<&mut Target> {
        match self {
            Instr::Jump(target)
            | Instr::Branch { otherwise: target, .. }
            | Instr::LoopTest { exit: target, .. }
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
            | Instr::PrepareStore { .. }
            | Instr::CommitStore { .. }
            | Instr::Store { .. }
            | Instr::Atomic(_)
            | Instr::Collective(_)
            | Instr::Narrow { .. }
            | Instr::MaskAndNot { .. }
            | Instr::CopyMask { .. }
            | Instr::Leave(_)
            | Instr::Done
            | Instr::Label(_)
            | Instr::LoopBegin
            | Instr::LoopEnd => None,
        }
    }
}

impl VectorLoop {
    fn operands_mut(&mut self, f: &mut impl FnMut(&mut Src)) {
        f(&mut self.dst);
        self.args.iter_mut().for_each(f);
    }
}
