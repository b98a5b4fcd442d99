//! The stack of a thread, on which drivers for CPUs keep the private arrays of all work-items of a group.

use std::fs;

/// What a thread is given on Linux if its limit is not set.
const UNLIMITED: u64 = 2 << 20;

/// What other systems give a thread at the least.
const ELSEWHERE: u64 = 512 << 10;

/// Bytes of the stack of a thread that a driver starts.
pub fn bytes() -> u64 {
    if !cfg!(target_os = "linux") {
        return ELSEWHERE;
    }
    fs::read_to_string("/proc/self/limits").ok().and_then(|limits| limit(&limits)).unwrap_or(UNLIMITED)
}

/// The soft limit of the stack in the kernel's table of limits.
fn limit(limits: &str) -> Option<u64> {
    let soft = limits.lines().find_map(|line| line.strip_prefix("Max stack size"))?.split_ascii_whitespace().next()?;
    if soft == "unlimited" { Some(UNLIMITED) } else { soft.parse().ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_read_from_the_table() {
        let table = |soft: &str| {
            format!(
                "Limit                     Soft Limit           Hard Limit           Units     \n\
                 Max cpu time              unlimited            unlimited            seconds   \n\
                 Max stack size            {soft:<20} unlimited            bytes     \n"
            )
        };
        assert_eq!(limit(&table("8388608")), Some(8 << 20));
        assert_eq!(limit(&table("unlimited")), Some(UNLIMITED));
        assert_eq!(limit("Max cpu time 5 5 seconds"), None);
        assert!(bytes() > 0);
    }
}
