//! Rules that read one file, or the text of several.

use std::collections::HashMap;

use super::Finding;
use super::source::Source;

/// Maximum number of lines of a file without a row in [`LARGE_FILES`].
const MAX_LINES: usize = 600;

/// Files that can be longer: path, limit, reason.
const LARGE_FILES: &[(&str, usize, &str)] = &[];

/// Crates (folder names) that can contain `unsafe`.
const UNSAFE_CRATES: &[&str] = &["driver", "host", "routines", "cpu", "driver-sim"];

/// Crates that deny unsafe code and allow it at this number of places: declarations of unsafe functions in `ir` and `device`, the
/// responsibility for the optimizer's proofs in `compile`, in `runtime` the promise of a kernel's author and the call that opens
/// drivers, and in `cli` an environment variable.
const UNSAFE_PLACES: &[(&str, usize)] = &[("ir", 1), ("device", 4), ("compile", 1), ("runtime", 2), ("cli", 1)];

/// Words that do not describe anything.
const EMPTY_WORDS: &[&str] = &["util", "utils", "helper", "helpers", "common", "manager", "misc", "v2"];

fn finding(source: &Source, line: usize, what: impl Into<String>) -> Finding {
    Finding { path: source.path.clone(), line: line + 1, what: what.into() }
}

/// Returns the lines of code, with their index, that contain one of `words`.
fn lines_with<'a>(source: &'a Source, words: &'a [&'a str]) -> impl Iterator<Item = (usize, &'a str)> {
    source
        .code
        .lines()
        .enumerate()
        .filter_map(move |(index, line)| Some((index, *words.iter().find(|word| line.contains(**word))?)))
}

/// Checks that each crate's root forbids unsafe code, except for crates that can contain it or allow it at a few places.
pub fn forbid_unsafe(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut allowed: HashMap<&str, usize> = HashMap::new();
    for source in sources {
        let Some((krate, file)) = source.path.strip_prefix("crates/").and_then(|path| path.split_once('/')) else {
            continue;
        };
        let places = UNSAFE_PLACES.iter().find(|(name, _)| *name == krate).map_or(0, |(_, places)| *places);
        let attribute = if places > 0 { "#![deny(unsafe_code)]" } else { "#![forbid(unsafe_code)]" };
        let root = file == "src/lib.rs" || file == "src/main.rs" || (file.starts_with("src/bin/") && source.is_rust());
        if root && !UNSAFE_CRATES.contains(&krate) && !source.code.contains(attribute) {
            findings.push(finding(source, 0, format!("no `{attribute}`")));
        }
        if !UNSAFE_CRATES.contains(&krate) && file.starts_with("src/") {
            for (index, _) in lines_with(source, &["allow(unsafe_code", "expect(unsafe_code"]) {
                let count = allowed.entry(krate).or_default();
                *count += 1;
                if *count > places {
                    findings.push(finding(
                        source,
                        index,
                        format!("more than {places} places of `{krate}` allow unsafe code"),
                    ));
                }
            }
        }
    }
    findings
}

/// Checks that `SAFETY:` is on the line of each unsafe block, or in the comment above its statement.
pub fn safety(source: &Source) -> Vec<Finding> {
    // Programs that must not compile are test input.
    if source.path.contains("/compile_fail/") {
        return Vec::new();
    }
    /// Maximum lines of code between the comment and the block: the start of the statement, attributes, a sibling impl.
    const MAX_CODE_BETWEEN: usize = 3;
    let lines: Vec<&str> = source.text.lines().collect();
    let explained = |index: usize| {
        let mut code = 0;
        for line in lines[..=index].iter().rev() {
            if line.contains("SAFETY:") {
                return true;
            }
            if !line.trim_start().starts_with("//") {
                code += 1;
            }
            if code > MAX_CODE_BETWEEN + 1 {
                return false;
            }
        }
        false
    };
    let compact = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let is_unsafe = |line: &str| {
        let line = compact(line);
        line.ends_with("unsafe")
            || line.contains("unsafe {")
            || line.contains("unsafe{")
            || line.contains("unsafe impl")
    };
    let unexplained = source.code.lines().enumerate().filter(|(index, line)| is_unsafe(line) && !explained(*index));
    unexplained.map(|(index, _)| finding(source, index, "unsafe without `// SAFETY:`")).collect()
}

/// Checks that every Rust file begins with `//!`.
pub fn module_docs(source: &Source) -> Vec<Finding> {
    let documented = !source.is_rust() || source.text.starts_with("//!");
    if documented { Vec::new() } else { vec![finding(source, 0, "the first line is not `//!`")] }
}

/// Checks the length of files.
pub fn file_size(source: &Source) -> Vec<Finding> {
    let limit = LARGE_FILES.iter().find(|(path, _, _)| *path == source.path).map_or(MAX_LINES, |(_, lines, _)| *lines);
    let lines = source.text.lines().count();
    if !source.is_rust() || lines <= limit {
        return Vec::new();
    }
    vec![finding(
        source,
        limit,
        format!("{lines} lines, at most {limit} allowed; split the file, or add a row with a reason to LARGE_FILES"),
    )]
}

/// Checks that names of files and folders describe their content.
pub fn file_name(source: &Source) -> Vec<Finding> {
    let says_nothing = |part: &str| {
        let stem = part.split('.').next().unwrap_or(part);
        stem == "base" || stem.split(['_', '-']).any(|word| EMPTY_WORDS.contains(&word))
    };
    let part = source.path.split('/').find(|part| source.is_rust() && says_nothing(part));
    part.map(|part| finding(source, 0, format!("`{part}` does not describe the content"))).into_iter().collect()
}

/// Checks that no test is ignored.
pub fn ignored_test(source: &Source) -> Vec<Finding> {
    lines_with(source, &["#[ignore"]).map(|(index, _)| finding(source, index, "an ignored test")).collect()
}

/// Checks that no test sleeps.
pub fn sleeping_test(source: &Source) -> Vec<Finding> {
    let sleeps = lines_with(source, &["thread::sleep("]).filter(|(index, _)| source.is_test_line(*index));
    sleeps.map(|(index, _)| finding(source, index, "a sleep in a test")).collect()
}

/// Checks that there is no `todo!` and no `unimplemented!`.
pub fn unfinished(source: &Source) -> Vec<Finding> {
    let words = lines_with(source, &["todo!(", "unimplemented!("]);
    words.map(|(index, word)| finding(source, index, format!("`{word}`"))).collect()
}

/// Checks that there is no `unwrap` outside of tests and examples.
pub fn unwrap(source: &Source) -> Vec<Finding> {
    // `proc_macro2::Span::unwrap` is a conversion that cannot panic within a macro.
    let lines: Vec<&str> = source.code.lines().collect();
    let panics = |line: &str| line.matches(".unwrap()").count() > line.matches("_span(tokens).unwrap()").count();
    let unwraps =
        lines_with(source, &[".unwrap()"]).filter(|(index, _)| panics(lines[*index]) && !source.is_test_line(*index));
    unwraps.map(|(index, _)| finding(source, index, "`.unwrap()`")).collect()
}

/// Checks that no code, comment or document contains an absolute path into a home folder.
pub fn home_path(source: &Source) -> Vec<Finding> {
    // In pieces, so that this file follows the rule itself.
    const HOMES: [&str; 4] =
        [concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/Us", "ers/"), concat!("C:\\Us", "ers\\")];
    let holds = |line: &str| {
        HOMES.iter().any(|home| {
            line.match_indices(home).any(|(at, _)| {
                // `a/home/b` is a path below another folder.
                !line[..at]
                    .chars()
                    .next_back()
                    .is_some_and(|before| before.is_alphanumeric() || "._-~}".contains(before))
            })
        })
    };
    let lines = source.text.lines().enumerate().filter(|(_, line)| holds(line));
    lines.map(|(index, _)| finding(source, index, "an absolute path into a home folder")).collect()
}

/// Checks for American spelling in identifiers, comments and documents.
pub fn spelling(source: &Source) -> Vec<Finding> {
    // Stems in two pieces, so that this file follows the rule itself.
    const STEMS: [[&str; 2]; 14] = [
        ["optim", "is"],
        ["initial", "is"],
        ["material", "is"],
        ["standard", "is"],
        ["normal", "is"],
        ["quant", "is"],
        ["serial", "is"],
        ["vector", "is"],
        ["col", "our"],
        ["behav", "iour"],
        ["neighb", "our"],
        ["label", "led"],
        ["cent", "red"],
        ["analy", "se"],
    ];
    // American words with these stems.
    const AMERICAN: [&str; 4] = ["optimism", "optimistic", "optimist", "analyses"];
    let found = |line: &str| {
        let line = AMERICAN.iter().fold(line.to_lowercase(), |line, word| line.replace(word, ""));
        STEMS.iter().map(|stem| stem.concat()).find(|stem| line.contains(stem))
    };
    // Records of past measurements are not changed.
    let is_record = source.path.starts_with("docs/measured/");
    let lines = source.text.lines().enumerate().filter(|_| !is_record);
    let lines = lines.filter_map(|(index, line)| Some((index, found(line)?)));
    lines.map(|(index, stem)| finding(source, index, format!("`{stem}…` is British"))).collect()
}

/// Checks that there is no indented code in documents whose code is compiled: rustdoc would compile it as Rust.
pub fn indented_code(source: &Source) -> Vec<Finding> {
    let compiled = source.path == "README.md" || source.path.starts_with("docs/guide/");
    let (mut fenced, mut after_blank, mut findings) = (false, true, Vec::new());
    for (index, line) in source.text.lines().enumerate().filter(|_| compiled) {
        fenced ^= line.trim_start().starts_with("```");
        if after_blank && !fenced && line.starts_with("    ") {
            findings.push(finding(source, index, "indented code; use a fenced block with a language"));
        }
        after_blank = line.trim().is_empty();
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::tests::check;

    const FILE: &str = "crates/x/src/y.rs";

    #[test]
    fn crate_roots_forbid_unsafe_code() {
        check(
            "forbid-unsafe",
            &[
                ("crates/nn/src/lib.rs", "//! x\n"),
                ("crates/nn/src/view.rs", "//! x\n"),
                ("crates/web/src/lib.rs", "//! x\n// #![forbid(unsafe_code)]\n"),
                ("crates/tensor/src/lib.rs", "//! x\n#![forbid(unsafe_code)]\n"),
                ("crates/cpu/src/lib.rs", "//! x\n"),
            ],
            &["crates/nn/src/lib.rs:1", "crates/web/src/lib.rs:1"],
        );
    }

    #[test]
    fn counted_places_allow_unsafe() {
        check(
            "forbid-unsafe",
            &[
                ("crates/compile/src/lib.rs", "#![deny(unsafe_code)]\n#[allow(unsafe_code)]\nfn f() {}\n"),
                ("crates/compile/src/pool.rs", "\n#[expect(unsafe_code)]\nfn g() {}\n"),
                ("crates/tensor/src/pool.rs", "\n#[allow(unsafe_code, reason = \"none\")]\nfn g() {}\n"),
            ],
            &["crates/compile/src/pool.rs:2", "crates/tensor/src/pool.rs:2"],
        );
        check(
            "forbid-unsafe",
            &[("crates/runtime/src/lib.rs", "#![forbid(unsafe_code)]\n")],
            &["crates/runtime/src/lib.rs:1"],
        );
    }

    #[test]
    fn unsafe_blocks_need_a_safety_comment() {
        let bad = "fn f() {\n    unsafe { g() }\n}\nunsafe impl Send for A {}\n";
        check("safety", &[(FILE, bad)], &["crates/x/src/y.rs:2", "crates/x/src/y.rs:4"]);
        let good = "// SAFETY: g asks for nothing,\n// at any time.\nlet x =\n    unsafe { g() };\n// unsafe {\nlet s = \"unsafe {\";\n";
        check("safety", &[(FILE, good)], &[]);
        let siblings = "// SAFETY: no thread owns it.\nunsafe impl Send for A {}\nunsafe impl Sync for A {}\n";
        check("safety", &[(FILE, siblings)], &[]);
        let far = "// SAFETY: of something else\na();\nb();\nc();\nd();\nunsafe { g() }\n";
        check("safety", &[(FILE, far)], &["crates/x/src/y.rs:6"]);
    }

    #[test]
    fn files_need_module_docs() {
        check("module-docs", &[(FILE, "use a::b;\n//! late\n"), ("docs/a.md", "# A")], &["crates/x/src/y.rs:1"]);
        check("module-docs", &[("crates/x/tests/y.rs", "//! Tests of y.\n")], &[]);
    }

    #[test]
    fn file_length_is_limited() {
        let lines = |count: usize| "x\n".repeat(count);
        check("file-size", &[(FILE, &lines(601)), ("crates/x/tests/y.rs", &lines(600))], &["crates/x/src/y.rs:601"]);
        check("file-size", &[("docs/long.md", &lines(2000))], &[]);
    }

    #[test]
    fn empty_file_names_are_found() {
        let named = |path: &'static str| [(path, "")];
        check("file-name", &named("crates/x/src/utils.rs"), &["crates/x/src/utils.rs:1"]);
        check("file-name", &named("crates/x/tests/common/mod.rs"), &["crates/x/tests/common/mod.rs:1"]);
        check("file-name", &named("crates/x/src/pool_manager.rs"), &["crates/x/src/pool_manager.rs:1"]);
        check("file-name", &named("crates/x/src/commonality.rs"), &[]);
        check("file-name", &named("crates/x/src/database.rs"), &[]);
    }

    #[test]
    fn tests_run_and_do_not_sleep() {
        check(
            "ignored-test",
            &[(FILE, "#[test]\n#[ignore = \"slow\"]\nfn f() {}\n// #[ignore]\n")],
            &["crates/x/src/y.rs:2"],
        );
        let sleeps = "fn f() { std::thread::sleep(d) }\n#[test]\nfn g() { thread::sleep(d) }\n";
        check("sleeping-test", &[(FILE, sleeps)], &["crates/x/src/y.rs:3"]);
    }

    #[test]
    fn unfinished_code_is_found() {
        let text = "fn f() { todo!() }\nfn g() { unimplemented!(\"x\") }\n// todo!()\nlet s = \"todo!()\";\n";
        check("unfinished", &[(FILE, text)], &["crates/x/src/y.rs:1", "crates/x/src/y.rs:2"]);
    }

    #[test]
    fn unwrap_is_for_tests_and_examples() {
        let text = "/// `x.unwrap()`\nfn f() { x.unwrap() }\n#[cfg(test)]\nmod tests {\n fn g() { x.unwrap() }\n}\nfn h() { x.unwrap_or(1) }\n";
        let elsewhere = [
            (FILE, text),
            ("crates/x/tests/z.rs", "fn f() { x.unwrap() }\n"),
            ("crates/x/examples/z.rs", "fn f() { x.unwrap() }\n"),
        ];
        check("unwrap", &elsewhere, &["crates/x/src/y.rs:2"]);
    }

    #[test]
    fn home_paths_are_found() {
        let home = concat!("see /ho", "me/ada/x\n");
        let root = concat!("let p = \"/ro", "ot/.cache\";\n");
        check("home-path", &[("README.md", home), (FILE, root)], &["README.md:1", "crates/x/src/y.rs:1"]);
        check(
            "home-path",
            &[("README.md", concat!("$HO", "ME/x, ~/x, https://a.org/ho", "me/b, x/ro", "ot/y\n"))],
            &[],
        );
    }

    #[test]
    fn spelling_is_american() {
        let planted = concat!("//! x\nlet col", "our = 1;\n// an optimist analyses\n");
        check("spelling", &[(FILE, planted)], &["crates/x/src/y.rs:2"]);
    }

    #[test]
    fn indented_code_is_found() {
        let text = "# A\n\n    ls\n    ls\n\n```sh\n\n    ls\n```\n- b\n    c\n";
        check("indented-code", &[("docs/guide/a.md", text), ("docs/b.md", text)], &["docs/guide/a.md:3"]);
    }
}
