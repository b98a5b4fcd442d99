//! Formats the defects as messages.

use std::collections::HashMap;

use panoply_ir::interpret::{Access, AccessKind, Divergence, Overflow, WorkItem};
use panoply_ir::kernel::{Kernel, Loc, MemId, Space};
use panoply_ir::{Alu, Error, Result};

use super::item_of;
use super::shadow::Mark;

/// Number of defects reported in full; the others are counted.
const MAX_REPORTED: usize = 8;

/// One defect.
pub(super) enum Finding {
    /// An access beyond the length of a memory.
    OutOfBounds(Access),
    /// A read of an element that was never written.
    Uninitialized(Access),
    /// Two accesses that nothing orders.
    Race {
        access: Access,
        /// Type of the earlier access.
        before: AccessKind,
        other: WorkItem,
        other_at: Loc,
        between_groups: bool,
    },
    /// A barrier or collective that only a part of a group reaches.
    Divergence(Divergence),
    /// Index arithmetic without a mathematical result.
    Overflow(Overflow),
}

/// Identity of a defect: occurrences with equal keys are the same defect.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    /// The bool is true for reads.
    OutOfBounds(MemId, bool, Loc),
    Uninitialized(MemId, Loc),
    Race(MemId, Loc, Loc),
    Divergence(Loc),
    Overflow(Alu, Loc),
}

/// All defects found in one run.
pub(super) struct Reports<'k> {
    kernel: &'k Kernel,
    grid: [u64; 3],
    group: [u32; 3],
    reported: Vec<(String, Loc, String)>,
    seen: HashMap<Key, DefectCount>,
    omitted: usize,
}

/// Position of a defect in the report, and its number of occurrences.
struct DefectCount {
    place: Option<usize>,
    times: u64,
}

impl<'k> Reports<'k> {
    pub(super) fn new(kernel: &'k Kernel, grid: [u64; 3], group: [u32; 3]) -> Reports<'k> {
        Reports { kernel, grid, group, reported: Vec::new(), seen: HashMap::new(), omitted: 0 }
    }

    /// Returns the work-item of a mark.
    pub(super) fn item(&self, mark: Mark) -> WorkItem {
        item_of(self.grid, self.group, mark.group, mark.item)
    }

    pub(super) fn add(&mut self, finding: Finding) {
        let key = finding.key();
        if let Some(seen) = self.seen.get_mut(&key) {
            seen.times += 1;
            return;
        }
        let place = (self.reported.len() < MAX_REPORTED).then_some(self.reported.len());
        self.seen.insert(key, DefectCount { place, times: 1 });
        match place {
            Some(_) => self.reported.push(self.describe(&finding)),
            None => self.omitted += 1,
        }
    }

    /// Returns the error that lists all defects, with the first in its message.
    pub(super) fn into_result(self) -> Result<()> {
        let mut times = vec![0; self.reported.len()];
        for seen in self.seen.values() {
            if let Some(place) = seen.place {
                times[place] = seen.times;
            }
        }
        let mut error: Option<Error> = None;
        for ((sentence, at, detail), times) in self.reported.iter().zip(times) {
            let place = self.kernel.place(*at).unwrap_or_else(|| "at an unknown line".to_string());
            let more = if times > 1 { format!("; {} more like it", times - 1) } else { String::new() };
            let detail = format!("{detail}{more}");
            error = Some(match error {
                None => {
                    let message = format!("kernel {}: {sentence}", self.kernel.name);
                    Error::mistake(message).note(place).note(detail)
                }
                Some(error) => {
                    error.note(format!("also {sentence}")).note(format!("  {place}")).note(format!("  {detail}"))
                }
            });
        }
        match error {
            None => Ok(()),
            Some(error) if self.omitted > 0 => Err(error.note(format!("and {} further defects", self.omitted))),
            Some(error) => Err(error),
        }
    }

    /// Returns the message of a defect, its location, and the work-items involved.
    fn describe(&self, finding: &Finding) -> (String, Loc, String) {
        match finding {
            Finding::OutOfBounds(access) => {
                let (name, has) = (self.name(access.mem), access.len);
                let verb = verb(access.touch);
                let sentence = format!("{verb} {}, beyond its {has} elements", self.element(access, name));
                (sentence, access.at, format!("by {}", self.who(access.item)))
            }
            Finding::Uninitialized(access) => {
                let element = self.element(access, self.name(access.mem));
                let kind = match self.kernel.mem(access.mem).space {
                    Space::Shared(_) => "shared",
                    Space::Private(_) | Space::Buffer(_) => "private",
                };
                let sentence = format!("reads {kind} {element}, which is uninitialized; fill the array first");
                (sentence, access.at, format!("by {}", self.who(access.item)))
            }
            Finding::Race { access, before, other, other_at, between_groups } => {
                let element = self.element(access, self.name(access.mem));
                let remedy = match between_groups {
                    true => "work-groups are not ordered; use an atomic, or two launches",
                    false => "put a barrier between them, or use an atomic",
                };
                let earlier = self.kernel.place(*other_at).unwrap_or_else(|| "an unknown line".to_string());
                let (now, then) = (self.who(access.item), self.who(*other));
                let detail =
                    format!("{now} {} it, {then} {} it at {earlier}; {remedy}", verb(access.touch), verb(*before));
                (format!("data race on {element}"), access.at, detail)
            }
            Finding::Divergence(divergence) => {
                let Divergence { arrived, items, witnesses: [came, missing], at } = divergence;
                let sentence =
                    format!("a barrier or collective is reached by {arrived} of {items} work-items of a group");
                (sentence, *at, format!("by {}, not by {}", self.who(*came), self.who(*missing)))
            }
            Finding::Overflow(overflow) => {
                let [a, b] = overflow.operands;
                let sentence = match overflow.op {
                    Alu::Neg => format!("the index -{a} is negative"),
                    Alu::Sub => format!("the index {a} - {b} is negative"),
                    Alu::Div => format!("the index {a} / {b} divides by zero"),
                    Alu::Rem => format!("the index {a} % {b} divides by zero"),
                    Alu::Add => format!("the index {a} + {b} overflows 64 bits"),
                    Alu::Mul => format!("the index {a} * {b} overflows 64 bits"),
                    op => format!("the index {}({a}, {b}) overflows 64 bits", op.name()),
                };
                (sentence, overflow.at, format!("by {}", self.who(overflow.item)))
            }
        }
    }

    fn name(&self, mem: MemId) -> &'k str {
        &self.kernel.mem(mem).name
    }

    fn element(&self, access: &Access, name: &str) -> String {
        match access.element {
            Some(element) => format!("{name}[{element}]"),
            None => format!("{name}[2^64 or more]"),
        }
    }

    fn who(&self, item: WorkItem) -> String {
        let [x, y, z] = item.global;
        let id = match self.grid {
            [_, 1, 1] => format!("{x}"),
            [_, _, 1] => format!("({x}, {y})"),
            _ => format!("({x}, {y}, {z})"),
        };
        match self.kernel.group_size {
            Some(_) => format!("work-item {id} of group {}", item.group),
            None => format!("work-item {id}"),
        }
    }
}

fn verb(touch: AccessKind) -> &'static str {
    match touch {
        AccessKind::Load => "reads",
        AccessKind::Store => "writes",
        AccessKind::Atomic => "atomically updates",
    }
}

impl Finding {
    fn key(&self) -> Key {
        match self {
            Finding::OutOfBounds(access) => Key::OutOfBounds(access.mem, access.touch == AccessKind::Load, access.at),
            Finding::Uninitialized(access) => Key::Uninitialized(access.mem, access.at),
            Finding::Race { access, other_at, .. } => {
                let (a, b) = (access.at, *other_at);
                let (first, second) = if (a.file, a.line) <= (b.file, b.line) { (a, b) } else { (b, a) };
                Key::Race(access.mem, first, second)
            }
            Finding::Divergence(divergence) => Key::Divergence(divergence.at),
            Finding::Overflow(overflow) => Key::Overflow(overflow.op, overflow.at),
        }
    }
}
