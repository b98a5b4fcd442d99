//! How much of the machine's memory a piece of work takes at most, as Linux counts it; elsewhere nobody says.

use std::fs;

use panoply::Result;

/// What comes of some work, and the bytes by which the process was larger at most while it ran than before.
pub fn growth<T>(work: impl FnOnce() -> Result<T>) -> Result<(T, Option<u64>)> {
    // Five forgets the most there was.
    let forgotten = fs::write("/proc/self/clear_refs", "5").ok();
    let before = forgotten.and_then(|()| bytes("VmRSS"));
    let done = work()?;
    Ok((done, before.and_then(|before| Some(bytes("VmHWM")?.saturating_sub(before)))))
}

/// A number of `/proc/self/status`, which says it in KiB.
fn bytes(name: &str) -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    Some(line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()? << 10)
}
