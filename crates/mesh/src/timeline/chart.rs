//! Gantt charts of timelines as SVG.

use std::fmt::Write;
use std::time::Duration;

use super::{Event, EventKind, Timeline};

const WIDTH: f64 = 1200.0;
/// Widths of the names of lanes, and of their shares of time.
const LEFT: f64 = 220.0;
const RIGHT: f64 = 70.0;
const TOP: f64 = 40.0;
const ROW: f64 = 22.0;
const AXIS: f64 = 30.0;

/// Events of one type closer than this many pixels are drawn as one: a chart of a million events stays small.
const NEAR: f64 = 0.5;

/// Number of labels on the axis, about.
const TICKS: f64 = 8.0;

/// Characters of a name that are shown in a row.
const MAX_CHARACTERS: usize = 32;

/// Colors that readers with color vision deficiencies can tell apart. Source: M. Okabe and K. Ito, *Color Universal Design*, 2008.
fn color(kind: EventKind) -> &'static str {
    match kind {
        EventKind::Task => "#56b4e9",
        EventKind::Kernel => "#009e73",
        EventKind::Copy => "#e69f00",
        EventKind::Transfer => "#cc79a7",
        EventKind::Message => "#d55e00",
    }
}

/// Draws the chart.
pub(super) fn svg(timeline: &Timeline) -> String {
    let busy = timeline.busy();
    let height = TOP + ROW * busy.len() as f64 + AXIS;
    let whole = timeline.duration.as_secs_f64().max(f64::MIN_POSITIVE);
    let scale = (WIDTH - LEFT - RIGHT) / whole;
    let x = |time: Duration| LEFT + time.as_secs_f64() * scale;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    for (at, kind) in EventKind::ALL.into_iter().enumerate() {
        let left = LEFT + 110.0 * at as f64;
        let color = color(kind);
        // Writing to a string does not fail.
        let _ = writeln!(
            svg,
            "<rect x=\"{left:.1}\" y=\"12\" width=\"12\" height=\"12\" fill=\"{color}\"/><text x=\"{:.1}\" y=\"22\">{kind}</text>",
            left + 17.0
        );
    }
    for (row, ((rank, lane), share)) in busy.iter().enumerate() {
        let top = TOP + ROW * row as f64;
        let name = escaped(&shortened(&format!("rank {rank}: {lane}")));
        let (middle, right, percent) = (top + 15.0, WIDTH - RIGHT + 6.0, share * 100.0);
        let _ = writeln!(
            svg,
            "<text x=\"6\" y=\"{middle:.1}\">{name}</text><text x=\"{right:.1}\" y=\"{middle:.1}\">{percent:.0} %</text>"
        );
        let own = timeline.events.iter().filter(|event| (event.rank, event.lane.as_str()) == (*rank, *lane));
        for (first, count, end) in merged(own, &x) {
            let (left, kind) = (x(first.begin), first.kind);
            let width = (x(end) - left).max(NEAR);
            let more = if count > 1 { format!(" and {} more", count - 1) } else { String::new() };
            let time = seconds(end.saturating_sub(first.begin).as_secs_f64());
            let title = escaped(&format!("{kind} {}{more}, {time}", first.name));
            let _ = writeln!(
                svg,
                "<rect x=\"{left:.2}\" y=\"{:.1}\" width=\"{width:.2}\" height=\"{:.1}\" fill=\"{}\"><title>{title}</title></rect>",
                top + 3.0,
                ROW - 6.0,
                color(kind)
            );
        }
    }
    let bottom = height - AXIS;
    let step = tick(whole);
    let mut at = 0.0;
    while at <= whole {
        let left = LEFT + at * scale;
        let _ = writeln!(
            svg,
            "<line x1=\"{left:.1}\" y1=\"{TOP}\" x2=\"{left:.1}\" y2=\"{bottom:.1}\" stroke=\"#00000022\"/>\
             <text x=\"{left:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            bottom + 16.0,
            seconds(at)
        );
        at += step;
    }
    svg + "</svg>\n"
}

/// Runs of events of one type that are drawn as one: the first, their number, and their end.
fn merged<'a>(
    events: impl Iterator<Item = &'a Event>,
    x: &impl Fn(Duration) -> f64,
) -> Vec<(&'a Event, usize, Duration)> {
    let mut runs: Vec<(&Event, usize, Duration)> = Vec::new();
    for event in events {
        match runs.last_mut() {
            Some((first, count, end))
                if first.kind == event.kind
                    && x(event.begin) - x(*end) < NEAR
                    && x(event.end) - x(event.begin) < NEAR =>
            {
                *count += 1;
                *end = event.end.max(*end);
            }
            _ => runs.push((event, 1, event.end)),
        }
    }
    runs
}

/// Returns the distance of labels on an axis of this length: 1, 2 or 5 times a power of ten.
fn tick(whole: f64) -> f64 {
    let least = whole / TICKS;
    let power = 10f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0].into_iter().map(|digit| digit * power).find(|step| *step >= least).unwrap_or(10.0 * power)
}

/// Formats seconds with a unit.
fn seconds(time: f64) -> String {
    let (value, unit) = match time {
        _ if time == 0.0 => return "0".to_string(),
        _ if time >= 1.0 => (time, "s"),
        _ if time >= 1e-3 => (time * 1e3, "ms"),
        _ => (time * 1e6, "µs"),
    };
    // Three digits, without those that are 0 at the end.
    let digits = (2 - value.log10().floor() as i32).clamp(0, 2) as usize;
    let text = format!("{value:.digits$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text} {unit}")
}

fn shortened(name: &str) -> String {
    match name.char_indices().nth(MAX_CHARACTERS) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_string(),
    }
}

/// Escapes a text of XML and removes control characters.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars().filter(|c| !c.is_control()) {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_the_axis() {
        assert_eq!([tick(8.0), tick(10.0), tick(0.03)], [1.0, 2.0, 0.005]);
        assert_eq!([seconds(0.0), seconds(1.5), seconds(0.25), seconds(2e-5)], ["0", "1.5 s", "250 ms", "20 µs"]);
    }

    #[test]
    fn names_are_escaped() {
        assert_eq!(escaped("a<b>&\"c\"\u{1b}[1m"), "a&lt;b&gt;&amp;&quot;c&quot;[1m");
        assert_eq!(shortened(&"ü".repeat(40)), "ü".repeat(32) + "…");
    }

    /// Short events of a busy lane are one rectangle, others are not.
    #[test]
    fn short_events_are_merged() {
        let event = |begin: u64, end: u64, kind| {
            let (begin, end) = (Duration::from_micros(begin), Duration::from_micros(end));
            Event { rank: 0, lane: "cpu queue 0".to_string(), kind, name: "add".to_string(), begin, end, bytes: 0 }
        };
        let mut events: Vec<Event> = (0..1000).map(|at| event(at, at + 1, EventKind::Kernel)).collect();
        events.push(event(5_000_000, 9_000_000, EventKind::Kernel));
        events.push(event(9_000_000, 9_000_001, EventKind::Message));
        let timeline = Timeline { ranks: 1, events, duration: Duration::from_secs(10), dropped: 0 };
        let svg = svg(&timeline);
        assert_eq!(svg.matches("<title>").count(), 3, "{svg}");
        assert!(svg.contains("<title>kernel add and 999 more, 1 ms</title>") && svg.contains(">40 %</text>"), "{svg}");
    }
}
