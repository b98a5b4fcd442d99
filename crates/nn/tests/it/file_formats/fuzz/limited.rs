//! Runs a test in a process with little memory, on files with random changes. Other crates include this file.

use std::path::PathBuf;
use std::process::Command;

/// Environment variable of the child process with the folder that it works in.
const CHILD: &str = "PANOPLY_TEST_READERS_IN";

/// Address space of the child: far above what it needs, and below what a crafted header requests.
const ADDRESS_SPACE_KIB: u64 = 3 << 20;

/// Runs a test of this program in a child process with limited memory: `limit` for a read, [`ADDRESS_SPACE_KIB`] for the process. Panics
/// with the child's output if it fails. Returns the child's folder if this is the child.
pub fn in_child(test: &str, limit: &str) -> Option<PathBuf> {
    if let Some(folder) = std::env::var_os(CHILD) {
        return Some(PathBuf::from(folder));
    }
    let folder = std::env::temp_dir().join(format!("panoply-{}-{}", test.replace("::", "-"), std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let limited = if cfg!(target_os = "linux") { format!("ulimit -v {ADDRESS_SPACE_KIB}; ") } else { String::new() };
    let output = Command::new("sh")
        .args(["-c", &format!("{limited}exec \"$0\" \"$@\"")])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(CHILD, &folder)
        .env("PANOPLY_READ_LIMIT", limit)
        .env("PANOPLY_THREADS", "2")
        // The last lines shown are those of the panic.
        .env("RUST_BACKTRACE", "0")
        .output()
        .unwrap();
    let at = std::fs::read_to_string(folder.join("at")).unwrap_or_default();
    let _ = std::fs::remove_dir_all(&folder);
    let stderr = String::from_utf8_lossy(&output.stderr);
    let last: Vec<&str> = stderr.lines().rev().take(20).collect();
    let last: Vec<&str> = last.into_iter().rev().collect();
    let ran = String::from_utf8_lossy(&output.stdout).contains("1 passed");
    assert!(output.status.success() && ran, "{test}: {} at {at}\n{}", output.status, last.join("\n"));
    None
}

/// A random number generator. Source: G. Steele, D. Lea, C. Flood, Fast Splittable Pseudorandom Number Generators, 2014 (SplitMix64).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }
}

/// Makes one to six changes: bits, bytes, numbers at the limits of their ranges, truncation, repeated and removed parts.
pub fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    const ENDS: [&[u8]; 8] = [
        &[0xff; 4],
        &[0; 4],
        &[0xff, 0xff, 0xff, 0x7f],
        &[0x7f, 0xff, 0xff, 0xff],
        &[0xff; 8],
        b"99999999999999999999",
        b"-1",
        &[0xff, 0xff, 0xff, 0xff, 0x0f],
    ];
    for _ in 0..1 + random.below(6) {
        let at = random.below(bytes.len());
        match random.below(8) {
            _ if bytes.is_empty() => return,
            0 | 1 => bytes[at] ^= 1 << random.below(8),
            2 => bytes[at] = random.next() as u8,
            3 => bytes.truncate(at),
            4 => {
                let part = bytes[at..(at + random.below(64)).min(bytes.len())].to_vec();
                let to = random.below(bytes.len());
                bytes.splice(to..to, part);
            }
            5 => {
                let end = ENDS[random.below(ENDS.len())];
                let stop = (at + end.len()).min(bytes.len());
                bytes.splice(at..stop, end.iter().copied());
            }
            6 => drop(bytes.drain(at..(at + random.below(16)).min(bytes.len()))),
            _ => bytes.insert(at, b"\0\n\",;\t\xff9-{}[]"[random.below(13)]),
        }
    }
}

/// Number of seeds of a reader with `PANOPLY_TEST_FULL=1`.
pub const FULL: u64 = 8000;

/// Calls `read` with the seeds of this run, 300 or with `PANOPLY_TEST_FULL=1` `full` from `PANOPLY_TEST_SEED` on, each of which it turns into
/// a changed file. The seed is kept in the child's folder.
pub fn each_seed(folder: &std::path::Path, reader: &str, full: u64, mut read: impl FnMut(u64)) {
    let variable = |name: &str| std::env::var(name).ok();
    let count = if variable("PANOPLY_TEST_FULL").is_some_and(|value| value == "1") { full } else { 300 };
    let first: u64 = variable("PANOPLY_TEST_SEED").map_or(1, |seed| seed.parse().unwrap());
    for seed in first..first + count {
        std::fs::write(folder.join("at"), format!("{reader}, PANOPLY_TEST_SEED={seed}")).unwrap();
        read(seed);
    }
}
