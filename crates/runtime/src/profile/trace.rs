//! Export as Chrome trace event JSON. The host's spans are one process, the device's queues another.

use std::fmt::Write;
use std::time::Duration;

use super::report::ProfileReport;

const HOST: u32 = 1;
const DEVICE: u32 = 2;

/// Returns the trace document.
pub(super) fn json(report: &ProfileReport) -> String {
    let mut events = vec![name("process_name", HOST, 0, "host"), name("process_name", DEVICE, 0, &report.device)];
    let mut queues: Vec<u32> = report.commands.iter().map(|command| command.queue).collect();
    queues.sort_unstable();
    queues.dedup();
    events.extend(queues.iter().map(|queue| name("thread_name", DEVICE, *queue, &format!("queue {queue}"))));
    events.extend(report.host_spans.iter().map(|span| {
        let time = span.end.saturating_sub(span.begin);
        complete(&span.name, "span", HOST, 0, span.begin, time, "")
    }));
    events.extend(report.commands.iter().map(|command| {
        let mut amounts = format!("\"bytes\":{}", command.bytes);
        if let Some(flops) = command.flops.filter(|flops| *flops > 0) {
            amounts += &format!(",\"flops\":{flops}");
        }
        complete(&command.name, &command.kind.to_string(), DEVICE, command.queue, command.begin, command.time, &amounts)
    }));
    format!("{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n{}\n]}}\n", events.join(",\n"))
}

fn name(what: &str, process: u32, thread: u32, name: &str) -> String {
    let name = quoted(name);
    format!("{{\"ph\":\"M\",\"name\":\"{what}\",\"pid\":{process},\"tid\":{thread},\"args\":{{\"name\":{name}}}}}")
}

fn complete(
    name: &str,
    category: &str,
    process: u32,
    thread: u32,
    begin: Duration,
    time: Duration,
    args: &str,
) -> String {
    let (name, begin, time) = (quoted(name), micros(begin), micros(time));
    format!(
        "{{\"ph\":\"X\",\"name\":{name},\"cat\":\"{category}\",\"pid\":{process},\"tid\":{thread},\"ts\":{begin},\"dur\":{time},\"args\":{{{args}}}}}"
    )
}

fn micros(time: Duration) -> String {
    format!("{}.{:03}", time.as_nanos() / 1000, time.as_nanos() % 1000)
}

/// Quotes and escapes a JSON string.
fn quoted(text: &str) -> String {
    let mut out = String::from('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if (c as u32) < 0x20 => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_strings_are_escaped() {
        assert_eq!(quoted("a\"b\\c\n\u{1}µ"), "\"a\\\"b\\\\c\\u000a\\u0001µ\"");
    }

    #[test]
    fn times_are_printed_in_microseconds() {
        assert_eq!(micros(Duration::from_nanos(1_234_567)), "1234.567");
        assert_eq!(micros(Duration::from_nanos(5)), "0.005");
    }
}
