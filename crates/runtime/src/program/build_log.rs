//! Quotes the source line that a compiler's log refers to.
//!
//! Compilers name the line in different formats: `kernel.cl:3:15: error`, `1:3:15: error`, `kernel.cu(3): error`, `line 3; fatal`.
//! Some also quote it; for the others this module does.

use panoply_ir::Error;

/// Adds a note with the first source line that the error's log names, unless the log already quotes it.
pub fn with_line(error: Error, source: &str) -> Error {
    let log = error.notes().join("\n");
    let grave = |line: &&str| line.contains("error") || line.contains("fatal");
    let Some(number) = log.lines().filter(grave).chain(log.lines()).find_map(line_number) else { return error };
    let line = number.checked_sub(1).and_then(|at| source.lines().nth(at)).map(str::trim);
    match line {
        Some(line) if !line.is_empty() && !log.contains(line) => error.note(format!("line {number}: {line}")),
        _ => error,
    }
}

/// Returns the source line number that a line of a log contains.
fn line_number(log: &str) -> Option<usize> {
    let bytes = log.as_bytes();
    let starts =
        (0..bytes.len()).filter(|at| bytes[*at].is_ascii_digit() && (*at == 0 || !bytes[at - 1].is_ascii_digit()));
    let number = |start: usize| {
        let end = start + bytes[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (before, after) = (&log[..start], bytes.get(end));
        let place = match after {
            Some(b':') => before.ends_with(':'),
            Some(b')') => before.ends_with('('),
            _ => false,
        };
        (place || before.ends_with("line ")).then(|| log[start..end].parse().ok()).flatten()
    };
    starts.into_iter().find_map(number)
}

#[cfg(test)]
mod tests {
    use panoply_ir::ErrorKind;

    use super::*;

    /// The logs are real compiler output with changed line numbers.
    #[test]
    fn source_line_named_by_log_is_quoted_once() {
        let source = "first\n  second;\nthird";
        for (log, line) in [
            ("error: /tmp/pocl/kcache/tempfile-e0-8b.cl:2:9: unknown type name 'flaot'", Some("line 2: second;")),
            ("1 warning\n1:2:15: error: use of undeclared identifier 'q'", Some("line 2: second;")),
            ("1:1:1: warning: unused\n1:3:1: error: no", Some("line 3: third")),
            ("kernel.cu(2): error: identifier \"q\" is undefined\n", Some("line 2: second;")),
            ("ptxas application ptx input, line 2; fatal   : Parsing error near 'x'", Some("line 2: second;")),
            ("kernel.hip:2:3: error: no\n  second;\n  ^", None),
            ("line 9: beyond the end", None),
            ("something is wrong with 2 things at 2", None),
            ("", None),
        ] {
            let error = with_line(Error::new(ErrorKind::CompileFailed, "refused").note(log), source);
            assert_eq!(error.notes().get(1).map(String::as_str), line, "{log}");
        }
    }
}
