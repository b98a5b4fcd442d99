//! Assigns temporaries to offsets in an arena, so that two share bytes only if their lifetimes do not overlap. Uses
//! several arenas if a device's maximum buffer size is too small for one.
//!
//! A lifetime, known before anything runs, extends from the first step that accesses a buffer to the last. The largest
//! buffers are placed first, each in the tightest gap among those with overlapping lifetimes (greedy by size, best fit;
//! Pisarchyk and Lee 2020).

use super::{PlanBuffer, PlanStep, Role};

/// Alignment of offsets in bytes: sufficient for vector loads and for devices that bind ranges of an allocation.
pub const ALIGN: u64 = 256;

struct LiveRange {
    buffer: usize,
    first: usize,
    last: usize,
    bytes: u64,
}

/// An arena's size, and the temporaries placed in it, sorted by offset.
#[derive(Default)]
struct Arena<'a> {
    bytes: u64,
    placed: Vec<(u64, &'a LiveRange)>,
}

/// Assigns every temporary its arena and offset, and returns the sizes of the arenas. No arena exceeds `most` bytes
/// unless a single temporary does.
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

/// Returns the offset of the smallest gap that holds `life` among buffers with overlapping lifetimes; `placed` is
/// sorted by offset.
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
