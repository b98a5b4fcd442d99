//! Copy coalescing: a loop whose result is only copied writes the copy's destination directly.
//!
//! `let next = x² - y² + c; y = …; x = next` computes `next` while `x` is still needed. The squares are in their own
//! registers by then, so the last loop of `next` can run later, at the copy, and write `x` itself. The pass works on
//! the instruction list before layout, in which registers and slots have numbers.

use std::collections::HashMap;

use crate::vm::program::{Instr, Kind, LoopOp, Src, VectorLoop};

/// Moves loops to the copies of their results.
pub fn forward(body: &mut Vec<Instr>) {
    let mentions = mentions(body);
    let mut moved = vec![false; body.len()];
    for position in 0..body.len() {
        let Some(copy) = copy(&body[position]) else { continue };
        let [from, ..] = copy.args;
        let alone = from.kind == Kind::Reg && copy.dst.kind == Kind::Reg && mentions[&from.at] == 2;
        let source = if alone { source(body, &moved, position, from, copy.dst) } else { None };
        let Some(source) = source else { continue };
        let Instr::Vector(work) = body[source] else { unreachable!("only these are sources") };
        let there = VectorLoop { dst: copy.dst, ..work };
        body[position] = match body[position] {
            Instr::Merge { temp, .. } => Instr::Merge { work: there, direct: Some(there.f), temp },
            _ => Instr::Vector(there),
        };
        moved[source] = true;
    }
    let mut moved = moved.into_iter();
    body.retain(|_| moved.next() == Some(false));
}

/// Counts the mentions of each register.
fn mentions(body: &[Instr]) -> HashMap<u32, u32> {
    let mut mentions = HashMap::new();
    for instr in body {
        instr.clone().operands_mut(&mut |src: &mut Src| {
            if src.kind == Kind::Reg {
                *mentions.entry(src.at).or_insert(0) += 1;
            }
        });
    }
    mentions
}

/// Returns the loop of an instruction if it is a copy.
fn copy(instr: &Instr) -> Option<VectorLoop> {
    match instr {
        Instr::Vector(work) | Instr::Merge { work, .. } if work.what == LoopOp::Copy => Some(*work),
        _ => None,
    }
}

/// Returns the position of the loop that fills a register, if the loop can be moved to a later position and write
/// another register there.
fn source(body: &[Instr], moved: &[bool], position: usize, register: Src, instead: Src) -> Option<usize> {
    let mut written: Vec<Src> = Vec::new();
    for source in (0..position).rev().filter(|source| !moved[*source]) {
        match &body[source] {
            Instr::Vector(work) if work.dst == register => {
                let stays = |arg: &Src| arg.kind != Kind::Cell && *arg != instead && !written.contains(arg);
                return work.args.iter().all(stays).then_some(source);
            }
            Instr::Vector(work) | Instr::Update { work, .. } | Instr::Scalar(work) => written.push(work.dst),
            Instr::Merge { work, temp, .. } => written.extend([work.dst, *temp]),
            Instr::Index { dst, .. } => written.push(Src::slot(*dst)),
            // Nothing is moved across control flow or memory changes.
            _ => return None,
        }
    }
    None
}
