//! `docs/measured/programs.md`: its table of lines is that of the programs. `UPDATE_GOLDEN=1` rewrites the table.

use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Name, source in Rust and source in Python of each program.
const PROGRAMS: [(&str, &str, &str); 8] = [
    ("CSV classifier", "csv_classifier.rs", "csv_classifier.py"),
    ("variational autoencoder", "vae.rs", "vae.py"),
    ("generative adversarial network", "gan.rs", "gan.py"),
    ("character transformer", "character_transformer.rs", "character_transformer.py"),
    ("kernel with gradient", "05_kernel_in_a_network.rs", "kernel_with_gradient.py"),
    ("stencil", "stencil.rs", "stencil.py"),
    ("linear algebra", "linear_algebra.rs", "linear_algebra.py"),
    ("state_dict", "state_dict.rs", "state_dict.py"),
];

/// Markers around the table.
const TABLE: [&str; 2] = ["<!-- lines: written by the test `programs_doc` -->\n", "<!-- end of lines -->"];

/// Most lines that the CSV classifier can have.
const MAX_CSV_LINES: usize = 25;

fn docs() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/measured")
}

/// Returns the number of lines that are neither blank nor only a comment. A docstring is a comment of one line.
fn lines(source: &Path) -> usize {
    let text = std::fs::read_to_string(source).unwrap_or_else(|error| panic!("{}: {error}", source.display()));
    let comments: &[&str] =
        if source.extension().is_some_and(|name| name == "rs") { &["//"] } else { &["#", "\"\"\""] };
    let counts = |line: &&str| !line.is_empty() && !comments.iter().any(|comment| line.starts_with(comment));
    text.lines().map(str::trim).filter(counts).count()
}

fn in_rust(file: &str) -> usize {
    lines(&Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(file))
}

#[test]
fn the_table_of_lines_is_that_of_the_programs() {
    let mut table = "\n| program | Panoply | PyTorch |\n|---|---|---|\n".to_string();
    for (name, rust, python) in PROGRAMS {
        let (ours, theirs) = (in_rust(rust), lines(&docs().join("programs").join(python)));
        let path = format!("../../crates/panoply/examples/{rust}");
        writeln!(table, "| {name} | [{ours}]({path}) | [{theirs}](programs/{python}) |").unwrap();
    }
    table.push('\n');

    let path = docs().join("programs.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let [begin, end] = TABLE;
    let parts = page.split_once(begin).and_then(|(head, rest)| Some((head, rest.split_once(end)?)));
    let (head, (kept, tail)) = parts.expect("the page has both markers");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, [head, begin, &table, end, tail].concat()).unwrap();
    } else {
        assert!(kept == table, "{} differs; UPDATE_GOLDEN=1 accepts this:\n{table}", path.display());
    }
}

#[test]
fn the_csv_classifier_is_short() {
    let count = in_rust("csv_classifier.rs");
    assert!(count <= MAX_CSV_LINES, "{count} lines");
}
