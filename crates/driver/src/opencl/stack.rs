//! Size of a thread's stack, on which CPU drivers keep the private arrays of all work-items of a work-group.

use std::fs;

/// Stack size of a thread on Linux if its limit is `unlimited` or unknown.
const UNLIMITED: u64 = 2 << 20;

/// Smallest default stack size of a thread on other systems.
const ELSEWHERE: u64 = 512 << 10;

/// Returns the stack size in bytes of a thread that a driver starts.
pub fn bytes() -> u64 {
    if !cfg!(target_os = "linux") {
        return ELSEWHERE;
    }
    fs::read_to_string("/proc/self/limits").ok().and_then(|limits| limit(&limits)).unwrap_or(UNLIMITED)
}

/// Returns the soft stack limit from the text of `/proc/self/limits`.
fn limit(limits: &str) -> Option<u64> {
    let soft = limits.lines().find_map(|line| line.strip_prefix("Max stack size"))?.split_ascii_whitespace().next()?;
    if soft == "unlimited" { Some(UNLIMITED) } else { soft.parse().ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_parses_the_soft_stack_limit() {
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
