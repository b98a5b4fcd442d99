//! Where temporaries lie: offsets in an arena, so that two share bytes only if they are never needed at once; in several arenas where a
//! device's buffers are too small for one.
//!
//! Lifetimes are known before anything runs: from the step that first touches a buffer to the last. The largest are
//! placed first, each at the tightest gap among those whose lifetimes overlap its own (greedy by size, best fit
//! [Pisarchyk and Lee 2020]).

use super::{PlanBuffer, PlanStep, Role};

/// What offsets are multiples of, in bytes: enough for vector loads and for devices that bind parts of an allocation.
pub const ALIGN: u64 = 256;

struct LiveRange {
    buffer: usize,
    first: usize,
    last: usize,
    bytes: u64,
}

/// An arena: its size, and what was placed in it, sorted by offset.
#[derive(Default)]
struct Arena<'a> {
    bytes: u64,
    placed: Vec<(u64, &'a LiveRange)>,
}

/// Gives every temporary its arena and its offset there; the sizes of the arenas, none of which exceeds the most a buffer may have unless a
/// temporary alone does.
pub fn assign_offsets(buffers: &mut [PlanBuffer], steps: &[PlanStep], most: u64) -> Vec<u64> {
    let mut lives = live_ranges(buffers, steps);
    lives.sort_by_key(|life| (std::cmp::Reverse(life.bytes), life.first, life.buffer));
    let mut arenas: Vec<Arena<'_>> = Vec::new();
    for life in &lives {
        let fitting = arenas.iter().enumerate().find_map(|(at, arena)| {
            let offset = tightest_gap(life, &arena.placed);
            (offset + life.bytes <= most).then_some((at, offset))
        });
        let (arena, offset) = fitting.unwrap_or_else(|| {
            arenas.push(Arena::default());
            (arenas.len() - 1, 0)
        });
        let Arena { bytes, placed } = &mut arenas[arena];
        let at = placed.partition_point(|(other, _)| *other < offset);
        placed.insert(at, (offset, life));
        *bytes = (*bytes).max(offset + life.bytes);
        buffers[life.buffer].role = Role::Temp { arena, offset };
    }
    arenas.iter().map(|arena| arena.bytes).collect()
}

fn live_ranges(buffers: &[PlanBuffer], steps: &[PlanStep]) -> Vec<LiveRange> {
    let mut spans: Vec<Option<(usize, usize)>> = vec![None; buffers.len()];
    for (number, step) in steps.iter().enumerate() {
        for buffer in step.buffers() {
            let span = &mut spans[buffer.index()];
            *span = Some((span.map_or(number, |(first, _)| first), number));
        }
    }
    let mut lives = Vec::new();
    for (at, (buffer, span)) in buffers.iter().zip(spans).enumerate() {
        if let (Role::Temp { .. }, Some((first, last))) = (buffer.role, span) {
            lives.push(LiveRange { buffer: at, first, last, bytes: buffer.bytes() });
        }
    }
    lives
}

/// The offset of the smallest gap that holds it between those alive at the same time; `placed` is sorted by offset.
fn tightest_gap(life: &LiveRange, placed: &[(u64, &LiveRange)]) -> u64 {
    let together = placed.iter().filter(|(_, other)| other.first <= life.last && life.first <= other.last);
    let (mut end, mut best) = (0, None::<(u64, u64)>);
    for (offset, other) in together {
        if *offset >= end + life.bytes {
            let room = offset - end;
            if best.is_none_or(|(least, _)| room < least) {
                best = Some((room, end));
            }
        }
        end = end.max((offset + other.bytes).next_multiple_of(ALIGN));
    }
    best.map_or(end, |(_, offset)| offset)
}
