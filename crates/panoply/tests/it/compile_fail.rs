//! Programs that the compiler must reject, with its messages: each `.rs` file of a folder has them in a `.stderr` file beside it;
//! `UPDATE_GOLDEN=1` rewrites it.
//!
//! `rustc` compiles a file against the library that this test program is linked with. `trybuild` was used before; it checks all dependencies in
//! a folder of its own, which took 250 s of each run of all tests on two cores.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Lines that say how many errors there are, and where to read more about their codes.
const SUMMARIES: [&str; 3] =
    ["error: aborting due to", "For more information about ", "Some errors have detailed explanations: "];

#[test]
fn invalid_kernels_are_reported_at_their_source() {
    check("kernel");
}

/// Compiles all files of `tests/compile_fail/{folder}` and compares the messages.
pub fn check(folder: &str) {
    let repo = Path::new(env!("CARGO_MANIFEST_DIR"));
    let relative = PathBuf::from("tests/compile_fail").join(folder);
    let entries = std::fs::read_dir(repo.join(&relative)).unwrap().map(|entry| entry.unwrap().file_name());
    let mut files: Vec<PathBuf> = entries.map(|name| relative.join(name)).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "rs"));
    files.sort();
    assert!(!files.is_empty(), "{} has no files", relative.display());
    let updates = std::env::var_os("UPDATE_GOLDEN").is_some();
    let mut different = Vec::new();
    for file in &files {
        let found = messages(repo, file);
        let kept = repo.join(file.with_extension("stderr"));
        if updates {
            std::fs::write(&kept, &found).unwrap();
        } else if std::fs::read_to_string(&kept).unwrap_or_default() != found {
            different.push(format!("{}:\n{found}", file.display()));
        }
    }
    assert!(different.is_empty(), "the messages differ; UPDATE_GOLDEN=1 accepts these:\n{}", different.join("\n"));
}

/// Returns the compiler's messages for a file, relative to the folder of the crate.
fn messages(repo: &Path, file: &Path) -> String {
    let libraries = std::env::current_exe().unwrap().parent().unwrap().to_path_buf();
    let out = std::env::temp_dir().join(format!("panoply-compile-fail-{}", std::process::id()));
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    rustc.args(["--edition", "2024", "--crate-type", "bin", "--emit", "metadata", "--color", "never"]);
    rustc.arg("--out-dir").arg(&out).arg("--extern").arg(format!("panoply={}", facade(&libraries).display()));
    rustc.arg("-L").arg(format!("dependency={}", libraries.display()));
    let output = rustc.arg(file).current_dir(repo).output().expect("rustc runs");
    let _ = std::fs::remove_dir_all(&out);
    assert!(!output.status.success(), "{} compiles", file.display());
    normalized(&String::from_utf8(output.stderr).expect("messages are UTF-8"), repo, file)
}

/// Returns the library that cargo built last.
fn facade(libraries: &Path) -> PathBuf {
    let files = std::fs::read_dir(libraries).unwrap().map(|entry| entry.unwrap());
    let built = files.filter(|file| {
        let name = file.file_name().to_string_lossy().to_string();
        name.starts_with("libpanoply-") && name.ends_with(".rlib")
    });
    built.max_by_key(|file| file.metadata().unwrap().modified().unwrap()).expect("the facade was built").path()
}

/// Removes what differs from one machine or version of the sources to the next: summaries, absolute paths, and line numbers of other files than
/// the one that is compiled.
fn normalized(messages: &str, repo: &Path, file: &Path) -> String {
    let workspace =
        format!("{}/", repo.parent().and_then(Path::parent).expect("the crate is in a workspace").display());
    let own = file.display().to_string();
    let mut text = String::new();
    for line in messages.lines().filter(|line| !SUMMARIES.iter().any(|summary| line.starts_with(summary))) {
        let line = line.replace(&workspace, "");
        let arrow = ["--> ", "::: "].into_iter().find(|arrow| line.trim_start().starts_with(arrow));
        let place =
            arrow.and_then(|arrow| line.trim_start().strip_prefix(arrow)).filter(|place| !place.starts_with(&own));
        match arrow.zip(place) {
            Some((arrow, place)) => text += &format!(" {arrow}{}\n", place.split(':').next().unwrap_or(place)),
            None => text += &format!("{}\n", line.trim_end()),
        }
    }
    text.trim_end().to_string() + "\n"
}
