//! `panoply new` and `panoply generate`. The program of a new project is an example of this crate, so that it is compiled with the tests.

use std::path::Path;
use std::process::{Command, Output};

use crate::support::temp_dir::{TempDir, text};
use serde_json::Value;

fn panoply(dir: &TempDir, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_panoply")).args(arguments).current_dir(&dir.0).output().unwrap()
}

/// Cargo reads the manifest and finds the package of the facade in these sources.
#[test]
fn new_project_depends_on_these_sources() {
    let dir = TempDir::new("new");
    let output = panoply(&dir, &["new", "fast-thing"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).ends_with("cd fast-thing && cargo run\n"));
    let project = dir.0.join("fast-thing");
    // The versions of this workspace, which are downloaded.
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    std::fs::copy(root.join("Cargo.lock"), project.join("Cargo.lock")).unwrap();
    // What other platforms need may not be downloaded.
    let rustc = Command::new("rustc").arg("-vV").output().unwrap();
    let host = text(&rustc.stdout).lines().find_map(|line| line.strip_prefix("host: ")).unwrap().to_string();
    let metadata = Command::new(env!("CARGO"))
        .args(["metadata", "--offline", "--format-version", "1", "--filter-platform", &host])
        .current_dir(&project)
        .output()
        .unwrap();
    assert!(metadata.status.success(), "{}", text(&metadata.stderr));
    let metadata: Value = serde_json::from_slice(&metadata.stdout).unwrap();
    let manifest_of = |name: &str| {
        let package = metadata["packages"].as_array().unwrap().iter().find(|package| package["name"] == name).unwrap();
        Path::new(package["manifest_path"].as_str().unwrap()).to_path_buf()
    };
    assert_eq!(manifest_of("panoply"), root.join("crates/panoply/Cargo.toml"));
    assert!(manifest_of("fast-thing").ends_with("fast-thing/Cargo.toml"));
    let manifest = std::fs::read_to_string(project.join("Cargo.toml")).unwrap();
    assert!(manifest.contains("[profile.dev.package.\"*\"]\nopt-level = 3\n"), "{manifest}");
    assert_eq!(
        std::fs::read_to_string(project.join("src/main.rs")).unwrap(),
        include_str!("../../examples/new_project.rs")
    );
}

#[test]
fn names_and_folders_that_cannot_work_are_refused() {
    let dir = TempDir::new("new-refused");
    dir.write("taken/x", "");
    for (arguments, message) in [
        (&["new", "2fast"][..], "`2fast` cannot be the name of a package"),
        (&["new", "taken"], "the folder must not exist"),
        (&["new", "a", "--path", "taken"], "taken does not contain Panoply's sources"),
    ] {
        let output = panoply(&dir, arguments);
        assert!(output.status.code() == Some(1) && text(&output.stderr).contains(message), "{}", text(&output.stderr));
    }
    assert!(!dir.0.join("a").exists(), "nothing is left behind");
    assert!(panoply(&dir, &["new", "from-git", "--git", "https://example.org/panoply"]).status.success());
    let manifest = std::fs::read_to_string(dir.0.join("from-git/Cargo.toml")).unwrap();
    assert!(manifest.contains("panoply = { git = \"https://example.org/panoply\" }"), "{manifest}");
    // Inside another workspace a project is its own root.
    dir.write("outer/Cargo.toml", "[workspace]\n");
    assert!(panoply(&dir, &["new", "outer/inner"]).status.success());
    assert!(std::fs::read_to_string(dir.0.join("outer/inner/Cargo.toml")).unwrap().starts_with("[workspace]\n"));
}

#[test]
fn completions_and_manual_pages_name_every_command() {
    let dir = TempDir::new("generate");
    let bash = text(&panoply(&dir, &["generate", "bash"]).stdout);
    let syntax = Command::new("bash").args(["-n", "-c", &bash]).status();
    assert!(syntax.is_ok_and(|status| status.success()), "bash reads the script");
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = text(&panoply(&dir, &["generate", shell]).stdout);
        assert!(script.contains("selftest") && script.contains("max-new-tokens"), "{shell}: {script}");
        assert!(!script.contains("probe-drivers") && !script.contains("probe__drivers"), "{shell}: {script}");
    }
    let output = panoply(&dir, &["mesh", "ran"]);
    assert_eq!(output.status.code(), Some(2));
    let stderr = text(&output.stderr);
    assert!(stderr.contains("a similar subcommand exists: 'run'") && !stderr.contains("rank"), "{stderr}");
    let output = panoply(&dir, &["generate", "man", "--output", "man1"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for command in ["train", "devices", "report", "new"] {
        assert!(
            bash.contains(&format!("panoply__{command}")) || bash.contains(&format!("panoply__subcmd__{command}")),
            "{command}"
        );
        let page = std::fs::read_to_string(dir.0.join(format!("man1/panoply-{command}.1"))).unwrap();
        assert!(page.contains(".SH NAME") && page.contains(command), "{page}");
    }
    assert_eq!(panoply(&dir, &["generate", "man"]).status.code(), Some(2));
    assert_eq!(panoply(&dir, &["generate", "zsh", "--output", "x"]).status.code(), Some(1));
}
