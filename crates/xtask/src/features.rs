//! What cargo's features leave out: a program that wants no driver gets none, nor the libraries behind it.
//!
//! Read from the manifests, so that a driver which is added and not handed up to the facade is found.

use crate::place::Place;
use crate::shell::{cargo, quiet};

/// The crates that hand the drivers' features on to whoever writes a program.
const HANDED_ON: &[&str] = &["runtime", "tensor", "nn", "panoply", "cli"];

/// A feature and what it switches on.
type Row = (String, String);

/// The features of a crate but the default ones.
pub fn names(place: &Place, krate: &str) -> Vec<String> {
    rows(&manifest(place, krate)).into_iter().map(|(name, _)| name).filter(|name| name != "default").collect()
}

/// What is wrong with the features: a driver that cannot be left out, or not reached, or one that stays.
pub fn findings(place: &Place) -> Vec<String> {
    let drivers = names(place, "driver");
    let mut found = Vec::new();
    if drivers.is_empty() {
        found.push("crates/driver/Cargo.toml has no features to look for".to_string());
    }
    for krate in HANDED_ON {
        found.extend(unknown(krate, &manifest(place, krate), &drivers));
    }
    found
}

/// Which libraries of drivers a program that wants none gets all the same.
pub fn pulled_in(place: &Place) -> Vec<String> {
    let mut tree = cargo(place, &["tree", "--package", "panoply", "--no-default-features"]);
    match quiet(tree.args(["--edges", "normal", "--prefix", "none", "--target", "all"])) {
        Ok(tree) => left(&tree, &optional(&manifest(place, "driver"))),
        Err(why) => vec![format!("no tree of the facade without features: {why}")],
    }
}

/// The drivers that a manifest has no feature for, or has not among its default ones.
fn unknown(krate: &str, manifest: &str, drivers: &[String]) -> Vec<String> {
    let rows = rows(manifest);
    let default = rows.iter().find(|(name, _)| name == "default").map_or("", |(_, value)| value);
    let mut found = Vec::new();
    for driver in drivers {
        let on = rows.iter().find(|(name, _)| name == driver);
        if !on.is_some_and(|(_, value)| value.contains(&format!("/{driver}\""))) {
            found.push(format!("crates/{krate}/Cargo.toml: no feature `{driver}` that hands on the driver's"));
        }
        if !default.contains(&format!("\"{driver}\"")) {
            found.push(format!("crates/{krate}/Cargo.toml: `{driver}` is not on by default"));
        }
    }
    found
}

/// The libraries that features of the drivers bring.
fn optional(manifest: &str) -> Vec<String> {
    let values = rows(manifest).into_iter().map(|(_, value)| value).collect::<String>();
    let mut found: Vec<String> =
        values.split('"').filter_map(|part| part.strip_prefix("dep:")).map(Into::into).collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// Which of some packages are in the output of `cargo tree --prefix none`.
fn left(tree: &str, packages: &[String]) -> Vec<String> {
    let here = |package: &&String| tree.lines().any(|line| line.split_whitespace().next() == Some(package));
    packages.iter().filter(here).map(|package| format!("the facade without features pulls in {package}")).collect()
}

fn manifest(place: &Place, krate: &str) -> String {
    std::fs::read_to_string(place.root.join("crates").join(krate).join("Cargo.toml")).unwrap_or_default()
}

/// The rows of `[features]`, each on a line of its own.
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
    fn rows_are_read_and_what_they_bring() {
        let names: Vec<String> = rows(DRIVER).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["default", "cuda", "wgpu"]);
        assert_eq!(optional(DRIVER), ["a", "b"]);
    }

    #[test]
    fn a_driver_that_is_not_handed_on_is_found() {
        let facade = |rows: &str| unknown("x", &format!("[features]\n{rows}[lints]\n"), &["cuda".to_string()]);
        assert_eq!(facade("default = [\"cuda\"]\ncuda = [\"y/cuda\"]\n"), Vec::<String>::new());
        assert_eq!(facade("parquet = [\"y/parquet\"]\n").len(), 2);
        assert_eq!(facade("default = []\ncuda = [\"y/cuda\"]\n").len(), 1);
        assert_eq!(facade("default = [\"cuda\"]\ncuda = []\n").len(), 1);
    }

    #[test]
    fn this_repository_hands_its_drivers_on() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        assert_eq!(findings(&Place { root }), Vec::<String>::new());
    }

    #[test]
    fn what_stays_in_the_tree_is_found() {
        let tree = "panoply v0.1.0 (/p)\nwgpu-core v1.0.0\nb v2.0.0 (*)\n";
        assert_eq!(left(tree, &["b".to_string(), "wgpu".to_string()]), ["the facade without features pulls in b"]);
    }
}
