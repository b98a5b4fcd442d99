//! Parses the output of `cargo test` as it is written: counts the tests, collects skips, and shortens the rest.
//!
//! libtest hides what a passing test prints, and a skipped backend is a passing test. So tests run with `--show-output`, and of the
//! section in which libtest repeats the output of passing tests only the `SKIPPED` lines are shown.

/// Message, left and right side of an assertion.
const LINES_OF_A_PANIC: usize = 3;

/// Results collected so far.
#[derive(Debug, Default)]
pub struct Tally {
    /// Number of passed tests.
    pub passed: usize,
    /// Number of failed tests.
    pub failed: usize,
    /// Lines that begin with `SKIPPED`, without duplicates, in order.
    pub skipped: Vec<String>,
    /// Lines that begin with `TESTED`: the devices on which tests ran.
    pub tested: Vec<String>,
    /// One line per failed test: its name, and the place and message of its panic.
    pub failures: Vec<String>,
    successes: Successes,
    /// True while the lines are output of the last failure.
    in_a_failure: bool,
    /// Number of the following lines that belong to the panic of the last failure.
    of_a_failure: usize,
}

/// Section in which libtest repeats the passed tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Successes {
    #[default]
    Nothing,
    /// Their output, which can contain the output of another test run.
    Output,
    /// Their names.
    Names,
}

impl Tally {
    /// Processes a line and returns true if it is to be shown.
    pub fn watch(&mut self, line: &str) -> bool {
        let trimmed = line.trim();
        let loud = trimmed.starts_with("SKIPPED");
        if loud && !self.skipped.iter().any(|known| known == trimmed) {
            self.skipped.push(trimmed.to_string());
        }
        if trimmed.starts_with("TESTED ") && !self.tested.iter().any(|known| known == trimmed) {
            self.tested.push(trimmed.to_string());
        }
        // Cargo prints this only for a test binary that died before its report.
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
            // Other output of the test can precede it on the line.
            if let Some((_, repo)) = line.split_once("' panicked at ").or(line.split_once(") panicked at ")) {
                *failure += &format!(": {repo}");
                self.of_a_failure = LINES_OF_A_PANIC;
            } else if self.of_a_failure > 0 {
                *failure += &format!(" {line}");
                self.of_a_failure -= 1;
            }
        }
    }
}

/// Returns true for single successes, which the final count includes, and for lines of binaries without tests.
fn says_nothing(line: &str) -> bool {
    let one_success = line.starts_with("test ") && line.ends_with(" ... ok");
    let no_tests = line == "running 0 tests" || line.starts_with("test result: ok. 0 passed; 0 failed; 0 ignored; ");
    one_success || no_tests || line.is_empty()
}

/// Returns the counts in `test result: ok. 3 passed; 0 failed; …`.
fn result(line: &str) -> Option<(usize, usize)> {
    let counts = line.strip_prefix("test result: ")?.split_once(". ")?.1;
    let mut counts = counts.split("; ");
    let mut count = |word: &str| counts.next()?.strip_suffix(word)?.trim().parse().ok();
    Some((count("passed")?, count("failed")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Output of libtest for a run with one skip and one failure.
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
    fn counts_are_summed_and_skips_are_deduplicated() {
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
    fn crashed_test_binary_counts_as_one_failure() {
        let mut tally = Tally::default();
        let lines = ["running 3 tests", "error: test failed, to rerun pass `-p x --lib`", "", "Caused by:"];
        for line in lines {
            tally.watch(line);
        }
        assert!(tally.watch("  process didn't exit successfully: `target/debug/deps/x-1` (signal: 6, SIGABRT)"));
        assert_eq!((tally.passed, tally.failed), (0, 1));
    }

    #[test]
    fn only_result_lines_of_libtest_are_parsed() {
        assert_eq!(result("test result: ok. 12 passed; 0 failed; 1 ignored"), Some((12, 0)));
        assert_eq!(result("test result: good"), None);
        assert_eq!(result("the test result: ok. 1 passed; 0 failed"), None);
    }
}
