//! Checks of cargo features: a program without driver features contains no driver and none of its libraries.
//!
//! The features are read from the manifests, so that a new driver that is not forwarded to the facade is found.

use crate::repo::Repo;
use crate::shell::{cargo, quiet};

/// Crates that forward the features of the drivers.
const HANDED_ON: &[&str] = &["runtime", "tensor", "nn", "panoply", "cli"];

/// A feature and its value.
type Row = (String, String);

/// Returns the features of a crate except `default`.
pub fn names(repo: &Repo, krate: &str) -> Vec<String> {
    rows(&manifest(repo, krate)).into_iter().map(|(name, _)| name).filter(|name| name != "default").collect()
}

/// Returns errors in the features: drivers that are not forwarded or not enabled by default.
pub fn findings(repo: &Repo) -> Vec<String> {
    let drivers = names(repo, "driver");
    let mut found = Vec::new();
    if drivers.is_empty() {
        found.push("crates/driver/Cargo.toml has no features".to_string());
    }
    for krate in HANDED_ON {
        found.extend(unknown(krate, &manifest(repo, krate), &drivers));
    }
    found
}

/// Returns the driver libraries that a program without driver features depends on.
pub fn pulled_in(repo: &Repo) -> Vec<String> {
    let mut tree = cargo(repo, &["tree", "--package", "panoply", "--no-default-features"]);
    match quiet(tree.args(["--edges", "normal", "--prefix", "none", "--target", "all"])) {
        Ok(tree) => left(&tree, &optional(&manifest(repo, "driver"))),
        Err(why) => vec![format!("cannot list the dependencies of the facade without features: {why}")],
    }
}

/// Returns the drivers that a manifest does not forward or does not enable by default.
fn unknown(krate: &str, manifest: &str, drivers: &[String]) -> Vec<String> {
    let rows = rows(manifest);
    let default = rows.iter().find(|(name, _)| name == "default").map_or("", |(_, value)| value);
    let mut found = Vec::new();
    for driver in drivers {
        let on = rows.iter().find(|(name, _)| name == driver);
        if !on.is_some_and(|(_, value)| value.contains(&format!("/{driver}\""))) {
            found.push(format!("crates/{krate}/Cargo.toml: no feature `{driver}` that forwards that of the driver"));
        }
        if !default.contains(&format!("\"{driver}\"")) {
            found.push(format!("crates/{krate}/Cargo.toml: `{driver}` is not enabled by default"));
        }
    }
    found
}

/// Returns the optional libraries of the drivers' features.
fn optional(manifest: &str) -> Vec<String> {
    let values = rows(manifest).into_iter().map(|(_, value)| value).collect::<String>();
    let mut found: Vec<String> =
        values.split('"').filter_map(|part| part.strip_prefix("dep:")).map(Into::into).collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// Returns those of some packages that are in the output of `cargo tree --prefix none`.
fn left(tree: &str, packages: &[String]) -> Vec<String> {
    let here = |package: &&String| tree.lines().any(|line| line.split_whitespace().next() == Some(package));
    packages.iter().filter(here).map(|package| format!("the facade without features pulls in {package}")).collect()
}

fn manifest(repo: &Repo, krate: &str) -> String {
    std::fs::read_to_string(repo.root.join("crates").join(krate).join("Cargo.toml")).unwrap_or_default()
}

/// Returns the rows of `[features]`, which must be one per line.
fn rows(manifest: &str) -> Vec<Row> {
    let section = manifest.lines().skip_while(|line| line.trim() != "[features]").skip(1);
    let rows = section.take_while(|line| !line.starts_with('[')).filter(|line| !line.starts_with('#'));
    rows.filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.trim().into(), value.trim().into()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRIVER: &str = "[features]\ndefault = [\"cuda\"]\n# cuda = old\ncuda = [\"dep:a\"]\nwgpu = [\"dep:a\", \"dep:b\"]\n\n[lints]\n";

    #[test]
    fn features_and_optional_libraries_are_parsed() {
        let names: Vec<String> = rows(DRIVER).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["default", "cuda", "wgpu"]);
        assert_eq!(optional(DRIVER), ["a", "b"]);
    }

    #[test]
    fn unforwarded_driver_features_are_found() {
        let facade = |rows: &str| unknown("x", &format!("[features]\n{rows}[lints]\n"), &["cuda".to_string()]);
        assert_eq!(facade("default = [\"cuda\"]\ncuda = [\"y/cuda\"]\n"), Vec::<String>::new());
        assert_eq!(facade("parquet = [\"y/parquet\"]\n").len(), 2);
        assert_eq!(facade("default = []\ncuda = [\"y/cuda\"]\n").len(), 1);
        assert_eq!(facade("default = [\"cuda\"]\ncuda = []\n").len(), 1);
    }

    #[test]
    fn this_repository_forwards_its_driver_features() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        assert_eq!(findings(&Repo { root }), Vec::<String>::new());
    }

    #[test]
    fn remaining_dependencies_are_found() {
        let tree = "panoply v0.1.0 (/p)\nwgpu-core v1.0.0\nb v2.0.0 (*)\n";
        assert_eq!(left(tree, &["b".to_string(), "wgpu".to_string()]), ["the facade without features pulls in b"]);
    }
}
