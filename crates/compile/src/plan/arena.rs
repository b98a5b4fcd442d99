//! Assigns temporaries to offsets in an arena, so that two share bytes only if their lifetimes do not overlap. Uses
//! several arenas if a device's maximum buffer size is too small for one.
//!
//! A lifetime, known before anything runs, extends from the first step that accesses a buffer to the last. The largest
//! buffers are placed first, each in the tightest gap among those with overlapping lifetimes (greedy by size, best fit;
//! Pisarchyk and Lee 2020). Of many buffers, each pair of which would be compared, the first are placed first, each in
//! the tightest gap at that time.

use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

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

/// Number of temporaries from which they are placed in the order of time.
const MANY: usize = 2048;

/// Assigns every temporary its arena and offset, and returns the sizes of the arenas. No arena exceeds `most` bytes
/// unless a single temporary does.
pub fn assign_offsets(buffers: &mut [PlanBuffer], steps: &[PlanStep], most: u64) -> Vec<u64> {
    let lives = live_ranges(buffers, steps);
    if lives.len() < MANY { by_size(buffers, lives, most) } else { by_time(buffers, lives, most) }
}

fn by_size(buffers: &mut [PlanBuffer], mut lives: Vec<LiveRange>, most: u64) -> Vec<u64> {
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

/// An arena at one time.
#[derive(Default)]
struct TimedArena {
    bytes: u64,
    /// Length of each gap, by its offset. Gaps do not touch, and the memory after the last one is not a gap.
    gaps: BTreeMap<u64, u64>,
    /// Length and offset of each gap.
    by_length: BTreeSet<(u64, u64)>,
}

impl TimedArena {
    /// Takes the tightest gap, or memory at the end.
    fn take(&mut self, bytes: u64, most: u64) -> Option<u64> {
        let tightest = self.by_length.range((bytes, 0)..).next().copied();
        let last = self.gaps.last_key_value().map(|(offset, length)| (*length, *offset));
        let last = last.filter(|(length, offset)| offset + length == self.bytes);
        let (length, offset) = tightest.or(last).unwrap_or((0, self.bytes));
        if offset + bytes > most {
            return None;
        }
        self.remove(offset, length);
        if length > bytes {
            self.insert(offset + bytes, length - bytes);
        }
        self.bytes = self.bytes.max(offset + bytes);
        Some(offset)
    }

    /// Returns memory, which is joined with the gaps that it touches.
    fn give_back(&mut self, mut offset: u64, mut bytes: u64) {
        if let Some((before, length)) = self.gaps.range(..offset).next_back().map(|(at, length)| (*at, *length))
            && before + length == offset
        {
            self.remove(before, length);
            (offset, bytes) = (before, length + bytes);
        }
        if let Some(length) = self.gaps.get(&(offset + bytes)).copied() {
            self.remove(offset + bytes, length);
            bytes += length;
        }
        self.insert(offset, bytes);
    }

    fn insert(&mut self, offset: u64, length: u64) {
        self.gaps.insert(offset, length);
        self.by_length.insert((length, offset));
    }

    fn remove(&mut self, offset: u64, length: u64) {
        self.gaps.remove(&offset);
        self.by_length.remove(&(length, offset));
    }
}

fn by_time(buffers: &mut [PlanBuffer], mut lives: Vec<LiveRange>, most: u64) -> Vec<u64> {
    lives.sort_by_key(|life| (life.first, std::cmp::Reverse(life.bytes), life.buffer));
    let mut arenas: Vec<TimedArena> = Vec::new();
    // The last step, place and size of each buffer that is alive; the one that ends first is on top.
    let mut alive: BinaryHeap<(std::cmp::Reverse<usize>, usize, u64, u64)> = BinaryHeap::new();
    for life in &lives {
        while let Some((_, arena, offset, bytes)) = alive.peek().copied().filter(|(last, ..)| last.0 < life.first) {
            alive.pop();
            arenas[arena].give_back(offset, bytes);
        }
        let bytes = life.bytes.next_multiple_of(ALIGN);
        let fitting = arenas.iter_mut().enumerate().find_map(|(at, arena)| Some((at, arena.take(bytes, most)?)));
        let (arena, offset) = fitting.unwrap_or_else(|| {
            let mut arena = TimedArena::default();
            // A buffer larger than the limit has an arena of its own.
            let offset = arena.take(bytes, u64::MAX).unwrap_or(0);
            arenas.push(arena);
            (arenas.len() - 1, offset)
        });
        alive.push((std::cmp::Reverse(life.last), arena, offset, bytes));
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

#[cfg(test)]
mod tests {
    use panoply_ir::DType;

    use super::*;

    fn random_lives(count: usize, seed: u64) -> (Vec<PlanBuffer>, Vec<LiveRange>) {
        let mut state = seed;
        let mut below = |count: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % count
        };
        let mut lives = Vec::new();
        for buffer in 0..count {
            let (first, length) = (below(count as u64) as usize, if below(9) == 0 { count } else { 9 });
            let bytes = if below(4) == 0 { 1 + below(5000) } else { 1024 };
            lives.push(LiveRange { buffer, first, last: first + below(length as u64) as usize, bytes });
        }
        let role = Role::Temp { arena: 0, offset: 0 };
        (vec![PlanBuffer { dtype: DType::U8, elems: 1, role }; count], lives)
    }

    /// No two buffers that are alive at one time share bytes, no arena exceeds the limit, and what is alive at once is a lower bound of
    /// the memory, which the order of time exceeds by less than half here.
    #[test]
    fn both_orders_keep_buffers_apart() {
        for (seed, most) in (1..40).flat_map(|seed| [(seed, u64::MAX), (seed, 20_000)]) {
            for place in [by_size, by_time] {
                let (mut buffers, lives) = random_lives(60, seed);
                let steps = 0..lives.iter().map(|life| life.last).max().unwrap() + 1;
                let alive = |step: usize| lives.iter().filter(move |life| (life.first..=life.last).contains(&step));
                let sum = |step| alive(step).map(|life| life.bytes.next_multiple_of(ALIGN)).sum::<u64>();
                let least = steps.clone().map(sum).max().unwrap();
                let arenas = place(&mut buffers, random_lives(60, seed).1, most);
                let places = |life: &LiveRange| match buffers[life.buffer].role {
                    Role::Temp { arena, offset } => (arena, offset),
                    _ => panic!("it is a temporary"),
                };
                for step in steps {
                    for (one, other) in alive(step).flat_map(|one| alive(step).map(move |other| (one, other))) {
                        let ((arena, offset), (next, at)) = (places(one), places(other));
                        let apart = offset + one.bytes <= at || at + other.bytes <= offset;
                        assert!(one.buffer == other.buffer || arena != next || apart, "seed {seed}, step {step}");
                        assert!(offset % ALIGN == 0 && offset + one.bytes <= arenas[arena], "seed {seed}");
                    }
                }
                assert!(arenas.iter().all(|bytes| *bytes <= most), "seed {seed}: {arenas:?}");
                let all: u64 = arenas.iter().sum();
                assert!(most < u64::MAX || all <= least * 3 / 2, "seed {seed}: {all}, at least {least}");
            }
        }
    }
}
