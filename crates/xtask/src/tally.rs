//! Reads the output of `cargo test` as it passes: counts the tests, collects what was skipped, keeps the rest short.
//!
//! libtest swallows what a passing test prints, and a skipped back end is a passing test. So tests run with
//! `--show-output`, and of the section in which libtest repeats what passing tests said only the loud lines are shown.

/// An assertion's sentence, its left and its right side.
const LINES_OF_A_PANIC: usize = 3;

/// What the output has said so far.
#[derive(Debug, Default)]
pub struct Tally {
    /// Tests that passed.
    pub passed: usize,
    /// Tests that failed.
    pub failed: usize,
    /// Lines that begin with `SKIPPED`, each once, in order.
    pub skipped: Vec<String>,
    /// Lines that begin with `TESTED`: the devices that tests ran on.
    pub tested: Vec<String>,
    /// A line for each test that failed: its name, and where and how it panicked.
    pub failures: Vec<String>,
    successes: Successes,
    /// Whether what follows is what the last of `failures` wrote,
    in_a_failure: bool,
    /// and how many of the next lines are its panic.
    of_a_failure: usize,
}

/// What libtest repeats of the tests that passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Successes {
    #[default]
    Nothing,
    /// What they said, which may be what another run of tests said.
    Output,
    /// Their names.
    Names,
}

impl Tally {
    /// Takes note of a line and answers whether a reader wants to see it.
    pub fn watch(&mut self, line: &str) -> bool {
        let trimmed = line.trim();
        let loud = trimmed.starts_with("SKIPPED");
        if loud && !self.skipped.iter().any(|known| known == trimmed) {
            self.skipped.push(trimmed.to_string());
        }
        if trimmed.starts_with("TESTED ") && !self.tested.iter().any(|known| known == trimmed) {
            self.tested.push(trimmed.to_string());
        }
        // Cargo says so only of a test binary that died before it could report.
        if trimmed.starts_with("process didn't exit successfully: ") {
            self.failed += 1;
        }
        self.successes = match (trimmed, self.successes) {
            ("successes:", Successes::Nothing) => Successes::Output,
            ("successes:", Successes::Output | Successes::Names) => Successes::Names,
            ("failures:", Successes::Names) => Successes::Nothing,
            (_, same) => same,
        };
        self.watch_failure(trimmed);
        if let Some((passed, failed)) = result(trimmed).filter(|_| self.successes != Successes::Output) {
            self.passed += passed;
            self.failed += failed;
            self.successes = Successes::Nothing;
        }
        loud || !(self.successes != Successes::Nothing || says_nothing(trimmed))
    }

    fn watch_failure(&mut self, line: &str) {
        let section = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----"));
        if let Some(name) = section.filter(|_| self.successes == Successes::Nothing) {
            self.failures.push(format!("FAILED: {name}"));
            self.in_a_failure = true;
        } else if line == "failures:" || line.starts_with("test result: ") {
            self.in_a_failure = false;
        } else if let (true, Some(failure)) = (self.in_a_failure, self.failures.last_mut()) {
            // Whatever else the test wrote stands before it.
            if let Some((_, place)) = line.split_once("' panicked at ").or(line.split_once(") panicked at ")) {
                *failure += &format!(": {place}");
                self.of_a_failure = LINES_OF_A_PANIC;
            } else if self.of_a_failure > 0 {
                *failure += &format!(" {line}");
                self.of_a_failure -= 1;
            }
        }
    }
}

/// Single successes, which the count at the end repeats, and the lines of binaries without tests.
fn says_nothing(line: &str) -> bool {
    let one_success = line.starts_with("test ") && line.ends_with(" ... ok");
    let no_tests = line == "running 0 tests" || line.starts_with("test result: ok. 0 passed; 0 failed; 0 ignored; ");
    one_success || no_tests || line.is_empty()
}

/// The counts of `test result: ok. 3 passed; 0 failed; …`.
fn result(line: &str) -> Option<(usize, usize)> {
    let counts = line.strip_prefix("test result: ")?.split_once(". ")?.1;
    let mut counts = counts.split("; ");
    let mut count = |word: &str| counts.next()?.strip_suffix(word)?.trim().parse().ok();
    Some((count("passed")?, count("failed")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As libtest prints it, from a run with one skip and one failure.
    const OUTPUT: &str = "
running 3 tests
test a::fine ... ok
test a::loud ... ok
test a::bad ... FAILED

successes:

---- a::loud stdout ----
seed 7
test result: FAILED. 5 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s
---- a::of_a_child stdout ----
SKIPPED: opencl on intel: no such driver


successes:
    a::fine
    a::loud

failures:

---- a::bad stdout ----
seed 9

thread 'a::bad' (4711) panicked at tests/a.rs:7:5:
assertion failed
note: run with `RUST_BACKTRACE=1`

failures:
    a::bad

test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s

running 1 test
SKIPPED: opencl on intel: no such driver
test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
";

    #[test]
    fn counts_are_summed_over_binaries_and_skips_are_kept_once() {
        let mut tally = Tally::default();
        let shown: Vec<&str> = OUTPUT.lines().filter(|line| tally.watch(line)).collect();
        assert_eq!((tally.passed, tally.failed), (3, 1));
        assert_eq!(tally.skipped, ["SKIPPED: opencl on intel: no such driver"]);
        assert_eq!(tally.failures.len(), 1);
        assert!(
            tally.failures[0].starts_with("FAILED: a::bad: tests/a.rs:7:5: assertion failed"),
            "{:?}",
            tally.failures
        );
        assert!(shown.contains(&"assertion failed") && shown.contains(&"test a::bad ... FAILED"), "{shown:?}");
        assert!(!shown.contains(&"seed 7") && !shown.contains(&"test a::fine ... ok"), "{shown:?}");
    }

    #[test]
    fn a_binary_that_dies_is_one_failure() {
        let mut tally = Tally::default();
        let lines = ["running 3 tests", "error: test failed, to rerun pass `-p x --lib`", "", "Caused by:"];
        for line in lines {
            tally.watch(line);
        }
        assert!(tally.watch("  process didn't exit successfully: `target/debug/deps/x-1` (signal: 6, SIGABRT)"));
        assert_eq!((tally.passed, tally.failed), (0, 1));
    }

    #[test]
    fn only_libtests_own_line_is_a_result() {
        assert_eq!(result("test result: ok. 12 passed; 0 failed; 1 ignored"), Some((12, 0)));
        assert_eq!(result("test result: good"), None);
        assert_eq!(result("the test result: ok. 1 passed; 0 failed"), None);
    }
}
