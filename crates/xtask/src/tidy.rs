//! `cargo xtask tidy`: checks the rules of this repository that the compiler does not check.
//!
//! A rule is a row of [`RULES`]: a name, the reason it prints, and one function from sources to places. Adding one is a row,
//! a function in one of the modules below, and planted bad text in its test.

mod cycles;
mod imports;
mod prose;
mod source;
mod text;

use crate::repo::Repo;
pub use source::Source;
use std::path::Path;

/// A violation of a rule.
#[derive(Debug, PartialEq, Eq)]
pub struct Finding {
    path: String,
    /// Line number, from 1.
    line: usize,
    what: String,
}

/// Scope of a rule.
enum Check {
    /// Each file separately.
    File(fn(&Source) -> Vec<Finding>),
    /// All files together.
    Tree(fn(&[Source]) -> Vec<Finding>),
}

/// A rule.
struct Rule {
    name: &'static str,
    reason: &'static str,
    check: Check,
}

const RULES: &[Rule] = &[
    Rule {
        name: "imports",
        reason: "dependencies between crates follow the table in ARCHITECTURE.md; a new one is a separate commit",
        check: Check::Tree(imports::table),
    },
    Rule {
        name: "build-script",
        reason: "the build needs no SDK and runs no code, except one line that passes the optimization level",
        check: Check::Tree(imports::build_scripts),
    },
    Rule { name: "packages", reason: "`cargo package` requires it", check: Check::Tree(imports::packages) },
    Rule {
        name: "forbid-unsafe",
        reason: "unsafe is limited to driver, cpu, driver-sim and a few places of ir, device, compile, runtime and cli",
        check: Check::Tree(text::forbid_unsafe),
    },
    Rule { name: "safety", reason: "every unsafe block states why it is sound", check: Check::File(text::safety) },
    Rule {
        name: "module-docs",
        reason: "the first line of a file says what it contains",
        check: Check::File(text::module_docs),
    },
    Rule { name: "file-size", reason: "one concept per file", check: Check::File(text::file_size) },
    Rule { name: "file-name", reason: "names describe the content", check: Check::File(text::file_name) },
    Rule { name: "ignored-test", reason: "a test either runs or is deleted", check: Check::File(text::ignored_test) },
    Rule {
        name: "sleeping-test",
        reason: "a test waits for events, not for time to pass",
        check: Check::File(text::sleeping_test),
    },
    Rule { name: "unfinished", reason: "unfinished code is not committed", check: Check::File(text::unfinished) },
    Rule {
        name: "unwrap",
        reason: "an error names its operands and the fix, `expect` states an invariant",
        check: Check::File(text::unwrap),
    },
    Rule { name: "home-path", reason: "the path exists on one machine only", check: Check::File(text::home_path) },
    Rule { name: "spelling", reason: "American spelling, as in the ecosystem", check: Check::File(text::spelling) },
    Rule {
        name: "module-cycles",
        reason: "a module is read after those it imports",
        check: Check::Tree(cycles::cycles),
    },
    Rule {
        name: "plain-words",
        reason: "text uses the terms of PyTorch, LLVM and CUDA",
        check: Check::File(prose::phrases),
    },
    Rule {
        name: "doc-sentence",
        reason: "a doc's first sentence says what the item is or does",
        check: Check::File(prose::first_sentence),
    },
    Rule { name: "indented-code", reason: "documents' code is compiled", check: Check::File(text::indented_code) },
];

/// Runs all rules on the repository.
pub fn run(repo: &Repo) -> bool {
    let sources = match read(&repo.root) {
        Ok(sources) => sources,
        Err(message) => {
            println!("tidy: {message}");
            return false;
        }
    };
    let mut findings = 0;
    for rule in RULES {
        for finding in apply(rule, &sources) {
            println!("{}:{}: {}: {} ({})", finding.path, finding.line, rule.name, finding.what, rule.reason);
            findings += 1;
        }
    }
    for message in imports::heavy(repo) {
        println!("{message}");
        findings += 1;
    }
    match findings {
        0 => println!("tidy: {} files follow {} rules", sources.len(), RULES.len() + 1),
        1 => println!("tidy: 1 finding"),
        _ => println!("tidy: {findings} findings"),
    }
    findings == 0
}

fn apply(rule: &Rule, sources: &[Source]) -> Vec<Finding> {
    match rule.check {
        Check::File(check) => sources.iter().flat_map(check).collect(),
        Check::Tree(check) => check(sources),
    }
}

/// Reads all text files of the repository, except those that `.gitignore` anchors at the root, and data.
pub fn read(root: &Path) -> Result<Vec<Source>, String> {
    let ignore = std::fs::read_to_string(root.join(".gitignore")).unwrap_or_default();
    let mut outside = vec!["/.git", "/data"];
    outside.extend(ignore.lines().map(str::trim).filter(|line| line.starts_with('/')));
    let mut sources = Vec::new();
    walk(root, "", &outside, &mut sources)?;
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    let for_tests: Vec<String> = sources.iter().flat_map(Source::test_modules).collect();
    for source in &mut sources {
        // Submodules of a test module are test code too.
        if for_tests
            .iter()
            .any(|path| *path == source.path || source.path.starts_with(&format!("{}/", path.trim_end_matches(".rs"))))
        {
            source.mark_as_test();
        }
    }
    Ok(sources)
}

fn walk(root: &Path, inside: &str, outside: &[&str], sources: &mut Vec<Source>) -> Result<(), String> {
    let folder = root.join(inside);
    let entries = std::fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if inside.is_empty() { name } else { format!("{inside}/{name}") };
        let kind = entry.file_type().map_err(|e| format!("{path}: {e}"))?;
        if outside.iter().any(|ignored| ignored.trim_matches('/') == path) || kind.is_symlink() {
            continue;
        }
        if kind.is_dir() {
            walk(root, &path, outside, sources)?;
        } else if is_ours(&path) {
            // A file that another program is replacing at the moment is not an error of the repository.
            let Ok(bytes) = std::fs::read(entry.path()) else {
                continue;
            };
            sources.push(Source::new(&path, &String::from_utf8_lossy(&bytes)));
        }
    }
    Ok(())
}

fn is_ours(path: &str) -> bool {
    const EXTENSIONS: [&str; 9] = ["rs", "toml", "md", "sh", "py", "yml", "yaml", "js", "txt"];
    path == ".ci/run" || path.rsplit_once('.').is_some_and(|(_, extension)| EXTENSIONS.contains(&extension))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Applies the rule `name` to files in memory and compares `path:line` of its findings.
    pub fn check(name: &str, files: &[(&str, &str)], expected: &[&str]) {
        let rule = RULES.iter().find(|rule| rule.name == name).expect("the rule exists");
        let sources: Vec<Source> = files.iter().map(|(path, text)| Source::new(path, text)).collect();
        let found: Vec<String> =
            apply(rule, &sources).iter().map(|finding| format!("{}:{}", finding.path, finding.line)).collect();
        assert_eq!(found, expected, "rule {name} on {files:?}");
    }

    #[test]
    fn build_outputs_are_not_read() {
        let repo = Repo::find().unwrap();
        let sources = read(&repo.root).unwrap();
        assert!(sources.iter().any(|source| source.path == "crates/xtask/src/tidy.rs"));
        assert!(!sources.iter().any(|source| source.path.starts_with("target/") || source.path.starts_with(".tools/")));
    }

    #[test]
    fn submodules_of_test_modules_are_test_code() {
        let root = std::env::temp_dir().join(format!("panoply-xtask-tidy-{}", std::process::id()));
        std::fs::create_dir_all(root.join("src/oracle")).unwrap();
        std::fs::write(root.join("src/lib.rs"), "#[cfg(test)]\nmod oracle;\n").unwrap();
        std::fs::write(root.join("src/oracle.rs"), "mod deep;\n").unwrap();
        std::fs::write(root.join("src/oracle/deep.rs"), "fn f() {}\n").unwrap();
        let sources = read(&root).unwrap();
        let marked: Vec<bool> = sources.iter().map(|source| source.is_test_line(0)).collect();
        assert_eq!(marked, [true, true, true], "{sources:?}");
        std::fs::remove_dir_all(root).unwrap();
    }
}
