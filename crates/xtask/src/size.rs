//! `cargo xtask size`: the size of the project.

use crate::repo::Repo;
use crate::tidy::{self, Source};
use std::collections::BTreeMap;
use std::ops::AddAssign;

/// Lines by type, without blank lines.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Lines {
    files: usize,
    code: usize,
    comments: usize,
    tests: usize,
}

impl AddAssign for Lines {
    fn add_assign(&mut self, other: Lines) {
        self.files += other.files;
        self.code += other.code;
        self.comments += other.comments;
        self.tests += other.tests;
    }
}

/// Prints the table.
pub fn run(repo: &Repo) -> bool {
    let sources = match tidy::read(&repo.root) {
        Ok(sources) => sources,
        Err(message) => {
            println!("size: {message}");
            return false;
        }
    };
    let mut crates: BTreeMap<&str, Lines> = BTreeMap::new();
    for source in sources.iter().filter(|source| source.is_rust()) {
        let krate = source.path.strip_prefix("crates/").and_then(|path| path.split('/').next());
        *crates.entry(krate.unwrap_or("elsewhere")).or_default() += count(source);
    }
    let mut total = Lines::default();
    println!("{:<12} {:>7} {:>7} {:>9} {:>7}", "crate", "files", "code", "comments", "tests");
    for (krate, lines) in &crates {
        print_row(krate, lines);
        total += *lines;
    }
    print_row("all", &total);
    let binary = repo.target().join("release").join(format!("panoply{}", std::env::consts::EXE_SUFFIX));
    match std::fs::metadata(&binary) {
        Ok(metadata) => println!("\nrelease binary: {:.1} MB", metadata.len() as f64 / 1e6),
        Err(_) => println!("\nrelease binary: not built; `cargo build --release -p panoply-cli`"),
    }
    true
}

fn print_row(name: &str, lines: &Lines) {
    println!("{name:<12} {:>7} {:>7} {:>9} {:>7}", lines.files, lines.code, lines.comments, lines.tests);
}

fn count(source: &Source) -> Lines {
    let mut lines = Lines { files: 1, ..Lines::default() };
    for (index, (text, code)) in source.text.lines().zip(source.code.lines()).enumerate() {
        if text.trim().is_empty() {
            continue;
        }
        let comment = code.trim().is_empty() && text.trim_start().starts_with("//");
        match (source.is_test_line(index), comment) {
            (true, _) => lines.tests += 1,
            (false, true) => lines.comments += 1,
            (false, false) => lines.code += 1,
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_by_kind() {
        let text =
            "//! Doc.\n\nfn f() {\n    // why\n    g(\"a\nb\")\n}\n#[cfg(test)]\nmod tests {\n    // counted\n}\n";
        let lines = count(&Source::new("crates/x/src/y.rs", text));
        assert_eq!(lines, Lines { files: 1, code: 4, comments: 2, tests: 4 });
    }
}
