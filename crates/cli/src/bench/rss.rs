//! Peak resident memory of a piece of work; Linux only.

use std::fs;

use panoply::Result;

/// Returns the result of `work` and the peak growth of the resident memory in bytes during it.
pub fn growth<T>(work: impl FnOnce() -> Result<T>) -> Result<(T, Option<u64>)> {
    // Writing 5 resets the peak (VmHWM).
    let forgotten = fs::write("/proc/self/clear_refs", "5").ok();
    let before = forgotten.and_then(|()| bytes("VmRSS"));
    let done = work()?;
    Ok((done, before.and_then(|before| Some(bytes("VmHWM")?.saturating_sub(before)))))
}

/// Returns an entry of `/proc/self/status`, which is in KiB, in bytes.
fn bytes(name: &str) -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    Some(line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()? << 10)
}
