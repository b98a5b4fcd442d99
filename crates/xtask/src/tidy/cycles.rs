//! Modules of one crate that import each other: each pair is a row of [`CYCLES`], a list that may only shrink.

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use super::source::Source;

/// Pairs of top-level modules that import each other: crate folder, and both modules in alphabetical order.
const CYCLES: &[(&str, &str, &str)] = &[
    ("device", "command", "driver_api"),
    ("device", "host", "program"),
    ("driver-sim", "blas", "cuda"),
    ("driver-sim", "cuda", "hip"),
    ("driver-sim", "cuda", "level_zero"),
    ("host", "isa", "simd"),
    ("ir", "collective", "kernel"),
    ("nn", "trainer", "trainer_memory"),
    ("runtime", "device", "memory"),
    ("runtime", "device", "profile"),
    ("runtime", "device", "program"),
    ("runtime", "device", "queue"),
    ("runtime", "memory", "queue"),
    ("tensor", "call", "gradient"),
    ("tensor", "call", "tensor"),
    ("tensor", "checkpoint", "gradient"),
    ("tensor", "dynamic_dim", "tensor"),
    ("tensor", "eval", "tensor"),
    ("tensor", "mistake", "tensor"),
    ("tensor", "ops", "tensor"),
    ("tensor", "random", "tensor"),
    ("verify", "steps", "values"),
];

/// The module's imports of other top-level modules of its crate, with the line of the first import of each.
type Imports<'a> = BTreeMap<&'a str, (&'a Source, usize)>;

/// Finds pairs of modules that import each other and are not listed, and rows of the list that no longer apply.
pub fn cycles(sources: &[Source]) -> Vec<Finding> {
    let mut modules = BTreeMap::<(&str, &str), Imports>::new();
    for (source, krate, module) in sources.iter().filter_map(|source| {
        let (krate, file) = source.path.strip_prefix("crates/")?.split_once("/src/")?;
        let module = file.split(['/', '.']).next()?;
        (source.is_rust() && !["lib", "main", "bin"].contains(&module)).then_some((source, krate, module))
    }) {
        let imports = modules.entry((krate, module)).or_default();
        for (index, name) in imported(source).filter(|(_, name)| *name != module) {
            imports.entry(name).or_insert((source, index));
        }
    }
    let mut findings = Vec::new();
    let mut unused: BTreeSet<_> =
        CYCLES.iter().filter(|(krate, _, _)| modules.keys().any(|(k, _)| k == krate)).collect();
    for ((krate, module), imports) in &modules {
        for (name, (source, index)) in imports.iter().filter(|(name, _)| *module < **name) {
            if modules.get(&(*krate, *name)).is_none_or(|theirs| !theirs.contains_key(module)) {
                continue;
            }
            let row = (*krate, *module, *name);
            if !CYCLES.contains(&row) {
                let what = format!("`{module}` and `{name}` import each other; move what both need to a third module");
                findings.push(Finding { path: source.path.clone(), line: index + 1, what });
            }
            unused.retain(|listed| **listed != row);
        }
    }
    for (krate, a, b) in unused {
        let what = format!("`{a}` and `{b}` of {krate} no longer import each other; delete their row");
        findings.push(Finding { path: "crates/xtask/src/tidy/cycles.rs".to_string(), line: 1, what });
    }
    findings
}

/// The first segments of all `crate::` paths outside tests, with their lines from 0.
fn imported(source: &Source) -> impl Iterator<Item = (usize, &str)> {
    const ROOT: &str = "crate::";
    let code = &source.code;
    code.match_indices(ROOT).flat_map(move |(at, _)| {
        let line = code[..at].matches('\n').count();
        let rest = &code[at + ROOT.len()..];
        let of_ours = !code[..at].ends_with(['$', '_']) && !source.is_test_line(line);
        heads(rest).into_iter().filter(move |_| of_ours).map(move |head| (line, head))
    })
}

/// The first segments of a path or of a list of paths in braces.
fn heads(path: &str) -> Vec<&str> {
    let word = |text: &str| text.len() - text.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_').len();
    let Some(list) = path.strip_prefix('{') else { return vec![&path[..word(path)]] };
    let (mut depth, mut start, mut heads) = (0, true, Vec::new());
    for (at, character) in list.char_indices() {
        match character {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => start = true,
            c if start && depth == 0 && !c.is_whitespace() => {
                heads.push(&list[at..at + word(&list[at..])]);
                start = false;
            }
            _ => {}
        }
    }
    heads
}

#[cfg(test)]
mod tests {
    use super::super::tests::check;

    #[test]
    fn modules_that_import_each_other_are_found() {
        let b = "use crate::{a::{self, X}, c};\n";
        let files = [
            ("crates/x/src/a.rs", "//! a\nuse crate::b::Y;\n"),
            ("crates/x/src/b/deep.rs", b),
            ("crates/x/src/c.rs", ""),
        ];
        check("module-cycles", &files, &["crates/x/src/a.rs:2"]);
        let tests = "#[cfg(test)]\nmod tests {\n    use crate::a::X;\n}\n";
        check("module-cycles", &[files[0], ("crates/x/src/b.rs", tests)], &[]);
        check("module-cycles", &[files[0], ("crates/y/src/b.rs", b)], &[]);
        check(
            "module-cycles",
            &[files[0], ("crates/x/src/b.rs", "// crate::a::X\nmacro_rules! m { () => { $crate::a } }\n")],
            &[],
        );
    }
}
