//! `panoply new NAME`: a Rust project that uses Panoply.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use panoply::{Error, Result};

use crate::shell;

/// Create a Rust project that uses Panoply
///
/// Its profile optimizes dependencies in development builds too; without that, plain `cargo run` computes many times slower.
#[derive(Args)]
pub struct NewCommand {
    /// Folder to create; its name is the name of the package
    folder: PathBuf,
    /// Depend on Panoply's sources in this folder [default: those from which this program was built]
    #[arg(long, value_name = "FOLDER", conflicts_with = "git")]
    path: Option<PathBuf>,
    /// Depend on Panoply in this git repository
    #[arg(long, value_name = "URL")]
    git: Option<String>,
}

/// The program of the project, an example of this crate, so that the tests compile it.
const MAIN: &str = include_str!("../examples/new_project.rs");

/// Folder of the sources from which this program was built, if they still exist.
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Writes the project.
pub fn run(arguments: &NewCommand) -> Result<ExitCode> {
    let folder = &arguments.folder;
    let name = folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    check_name(&name)?;
    let manifest = manifest(&name, &dependency(arguments)?, is_in_workspace(folder));
    let failed = |path: &Path, error| Error::io(format!("cannot create {}", path.display()), error);
    if let Some(parent) = folder.parent() {
        std::fs::create_dir_all(parent).map_err(|error| failed(parent, error))?;
    }
    std::fs::create_dir(folder).map_err(|error| failed(folder, error).note("the folder must not exist"))?;
    std::fs::create_dir(folder.join("src")).map_err(|error| failed(folder, error))?;
    for (file, text) in [("Cargo.toml", &*manifest), ("src/main.rs", MAIN), (".gitignore", "/target\n")] {
        let path = folder.join(file);
        std::fs::write(&path, text).map_err(|error| failed(&path, error))?;
    }
    println!("created {0}; run it: cd {0} && cargo run", shell::quoted(folder));
    Ok(ExitCode::SUCCESS)
}

/// Returns an error for names that cargo refuses.
fn check_name(name: &str) -> Result<()> {
    let is_word = name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_');
    let starts = name.starts_with(|letter: char| letter.is_ascii_alphabetic());
    if is_word && starts && !["panoply", "test", "core", "std"].contains(&name) {
        return Ok(());
    }
    Err(Error::mistake(format!("`{name}` cannot be the name of a package"))
        .note("use letters, digits, - and _, beginning with a letter, and no name of another crate"))
}

/// Returns the dependency in the syntax of Cargo.toml.
fn dependency(arguments: &NewCommand) -> Result<String> {
    if let Some(url) = &arguments.git {
        return Ok(format!("{{ git = {} }}", toml_string(url)));
    }
    let sources = arguments.path.as_deref().unwrap_or(Path::new(SOURCES));
    let package = [sources.join("crates/panoply"), sources.to_path_buf()].into_iter().find(|folder| {
        let manifest = std::fs::read_to_string(folder.join("Cargo.toml"));
        manifest.is_ok_and(|text| text.lines().any(|line| line == "name = \"panoply\""))
    });
    let Some(package) = package.and_then(|folder| folder.canonicalize().ok()) else {
        let message = format!("{} does not contain Panoply's sources", sources.display());
        return Err(Error::mistake(message).note("use `--path FOLDER` for another folder, or `--git URL`"));
    };
    Ok(format!("{{ path = {} }}", toml_string(&without_verbatim_prefix(&package.to_string_lossy()))))
}

/// Removes the prefix that `canonicalize` adds on Windows, which cargo does not accept: `\\?\`, or `\\?\UNC\` of a network path.
fn without_verbatim_prefix(path: &str) -> String {
    match path.strip_prefix(r"\\?\UNC\") {
        Some(share) => format!(r"\\{share}"),
        None => path.trim_start_matches(r"\\?\").to_string(),
    }
}

/// Quotes text as a TOML string.
fn toml_string(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

fn manifest(name: &str, dependency: &str, is_in_workspace: bool) -> String {
    // A package in the folder of a workspace must be a member, or the root of its own.
    let workspace = if is_in_workspace { "[workspace]\n\n" } else { "" };
    format!(
        "{workspace}[package]
name = \"{name}\"
version = \"0.1.0\"
edition = \"2024\"

[dependencies]
panoply = {dependency}

# Optimizes what this project only uses, and leaves its own code quick to rebuild.
[profile.dev.package.\"*\"]
opt-level = 3
"
    )
}

/// Returns true if a folder above contains the manifest of a workspace.
fn is_in_workspace(folder: &Path) -> bool {
    let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_path_buf());
    let is_root = |folder: &Path| {
        let manifest = std::fs::read_to_string(folder.join("Cargo.toml"));
        manifest.is_ok_and(|text| text.lines().any(|line| line.trim() == "[workspace]"))
    };
    folder.ancestors().skip(1).any(is_root)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbatim_prefixes_of_windows_are_removed() {
        for (path, shown) in [
            (r"\\?\C:\panoply", r"C:\panoply"),
            (r"\\?\UNC\server\share\panoply", r"\\server\share\panoply"),
            ("/srv/panoply", "/srv/panoply"),
        ] {
            assert_eq!(without_verbatim_prefix(path), shown);
        }
    }
}
