//! Dependencies between crates: the table of allowed ones, the check of the manifests against it, and the check of transitive dependencies.

use super::Finding;
use super::source::Source;
use crate::repo::Repo;
use crate::shell::{cargo, quiet};

/// Folder under `crates/` and the folders that it can depend on, except for tests. A crate without a row is a finding.
const TABLE: &[(&str, &[&str])] = &[
    ("ir", &[]),
    ("macros", &[]),
    ("compile", &["ir"]),
    ("device", &["ir"]),
    ("driver", &["device"]),
    ("driver-sim", &[]),
    ("host", &["ir"]),
    ("routines", &["ir", "host"]),
    ("cpu", &["ir", "device", "host", "routines"]),
    ("runtime", &["ir", "compile", "device", "driver", "host", "routines", "cpu"]),
    ("tensor", &["ir", "macros", "compile", "runtime"]),
    ("nn", &["macros", "tensor"]),
    ("llm", &["ir", "tensor"]),
    ("mesh", &["ir", "device", "runtime", "tensor", "nn"]),
    ("verify", &["ir", "host", "tensor"]),
    (
        "panoply",
        &[
            "ir", "macros", "compile", "device", "driver", "host", "routines", "cpu", "runtime", "tensor", "nn", "llm",
            "mesh", "verify",
        ],
    ),
    ("cli", &["panoply"]),
    ("web", &["panoply"]),
    ("xtask", &[]),
];

/// The only build script: it passes on the optimization level, for a warning about slow builds.
const BUILD_SCRIPT: &str = "crates/runtime/build.rs";

/// Crates (folder names) that must stay light, and packages that they must not depend on, even transitively.
const LIGHT: &[&str] = &["ir", "compile", "device", "host", "routines", "cpu"];
const HEAVY: &[&str] = &["wgpu", "cudarc", "opencl3", "cl3", "ash", "naga", "libloading"];

/// A dependency in a manifest.
struct Dependency {
    line: usize,
    package: String,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Normal,
    Build,
    Test,
}

/// Checks that dependencies between crates follow [`TABLE`].
pub fn table(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (krate, source) in manifests(sources) {
        let mut say = |line, what| findings.push(Finding { path: source.path.clone(), line, what });
        let Some((_, may)) = TABLE.iter().find(|(name, _)| *name == krate) else {
            say(1, format!("`{krate}` has no row in the table; add it with its allowed dependencies"));
            continue;
        };
        for dependency in dependencies(&source.text).iter().filter(|dependency| dependency.kind == Kind::Normal) {
            if let Some(ours) = folder(&dependency.package)
                && !may.contains(&ours)
            {
                let allowed = if may.is_empty() { "none of our crates".to_string() } else { may.join(", ") };
                say(dependency.line, format!("`{krate}` depends on `{ours}`; allowed: {allowed}"));
            }
        }
    }
    findings
}

/// Checks that there are no build scripts and no build dependencies.
pub fn build_scripts(sources: &[Source]) -> Vec<Finding> {
    // The build script of a crate is beside its Cargo.toml: `crates/x/build.rs`.
    let script = |source: &&Source| {
        source.path.ends_with("/build.rs") && source.path.matches('/').count() == 2 && source.path != BUILD_SCRIPT
    };
    let scripts = sources.iter().filter(script).map(|source| Finding {
        path: source.path.clone(),
        line: 1,
        what: "a build script".to_string(),
    });
    let wanted = manifests(sources).flat_map(|(_, source)| {
        let build = dependencies(&source.text).into_iter().filter(|dependency| dependency.kind == Kind::Build);
        build.map(|dependency| Finding {
            path: source.path.clone(),
            line: dependency.line,
            what: format!("`{}` is a build dependency", dependency.package),
        })
    });
    scripts.chain(wanted).collect()
}

/// Crates (folder names) that are never published: tests and development tasks.
const UNPUBLISHED: &[&str] = &["driver-sim", "web", "xtask"];

/// Checks what `cargo package` requires of a crate without asking a registry: a description, the license, the readme, and a version beside
/// the path of each published dependency. A path without a version is left out of a package, which test dependencies need.
pub fn packages(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (krate, source) in manifests(sources) {
        let is_published = !UNPUBLISHED.contains(&krate);
        let needs: &[&str] = match is_published {
            true => {
                &["description = ", "license.workspace = true", "readme.workspace = true", "publish.workspace = true"]
            }
            false => &["publish = false"],
        };
        let lacks = |needed: &&&str| !source.text.lines().any(|line| line.starts_with(**needed));
        findings.extend(needs.iter().filter(lacks).map(|needed| Finding {
            path: source.path.clone(),
            line: 1,
            what: format!("no line `{needed}…`"),
        }));
    }
    let Some(root) = sources.iter().find(|source| source.path == "Cargo.toml") else { return findings };
    let value = |line: &str, key: &str| Some(line.split_once(&format!("{key} = \""))?.1.split('"').next()?.to_string());
    let version = root.text.lines().filter(|line| line.starts_with("version")).find_map(|line| value(line, "version"));
    for (index, line) in root.text.lines().enumerate() {
        let Some(folder) = value(line, "path") else { continue };
        let is_published = !UNPUBLISHED.iter().any(|krate| folder == format!("crates/{krate}"));
        let stated = line.split_once('{').and_then(|(_, rest)| value(rest, "version"));
        if stated != version.clone().filter(|_| is_published) {
            let what = if is_published {
                "its version is not that of the workspace"
            } else {
                "a version, though it is never published"
            };
            findings.push(Finding { path: root.path.clone(), line: index + 1, what: format!("`{folder}`: {what}") });
        }
    }
    findings
}

/// Checks the transitive dependencies of the light crates with cargo.
pub fn heavy(repo: &Repo) -> Vec<String> {
    let mut messages = Vec::new();
    for krate in LIGHT.iter().filter(|krate| repo.root.join("crates").join(krate).is_dir()) {
        let package = format!("panoply-{krate}");
        let arguments = ["tree", "--package", &package, "--edges", "normal", "--prefix", "none", "--target", "all"];
        match quiet(&mut cargo(repo, &arguments)) {
            Ok(tree) => messages.extend(heavy_in(&tree).into_iter().map(|name| {
                format!("crates/{krate}/Cargo.toml:1: light: `{krate}` depends on {name} (all dependents have to build it; see `cargo tree -p {package} -i {name}`)")
            })),
            Err(why) => messages.push(format!("crates/{krate}/Cargo.toml:1: light: cannot list the dependencies: {why}")),
        }
    }
    messages
}

/// Returns the heavy packages in the output of `cargo tree --prefix none`.
fn heavy_in(tree: &str) -> Vec<&str> {
    let names = tree.lines().filter_map(|line| line.split_whitespace().next());
    let is_heavy = |name: &&str| {
        HEAVY.iter().any(|heavy| name == heavy || name.strip_prefix(heavy).is_some_and(|rest| rest.starts_with('-')))
    };
    let mut found: Vec<&str> = names.filter(is_heavy).collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// Returns the manifests of the crates with their folder names.
fn manifests(sources: &[Source]) -> impl Iterator<Item = (&str, &Source)> {
    sources.iter().filter_map(|source| {
        let krate = source.path.strip_prefix("crates/")?.strip_suffix("/Cargo.toml")?;
        (!krate.contains('/')).then_some((krate, source))
    })
}

/// Returns the folder of a package of this workspace.
fn folder(package: &str) -> Option<&str> {
    match package {
        "panoply" | "xtask" => Some(package),
        _ => package.strip_prefix("panoply-"),
    }
}

/// Parses the dependency tables of a manifest. It is not a TOML parser: it supports `name = …`, `name.key = …`, an inline
/// `package = "…"` and `[dependencies.name]`, also under `[target.….dependencies]`, the forms used in this repository.
fn dependencies(manifest: &str) -> Vec<Dependency> {
    let mut found: Vec<Dependency> = Vec::new();
    let mut section = None;
    for (index, line) in manifest.lines().enumerate() {
        let line = line.trim();
        if let Some(header) = line.strip_prefix('[') {
            let header = header.split(']').next().unwrap_or(header).trim_matches('[');
            let (kind, own) = section_kind(header);
            if let (Some(kind), Some(name)) = (kind, own) {
                found.push(Dependency { line: index + 1, package: name.to_string(), kind });
            }
            section = kind.map(|kind| (kind, own.is_some()));
            continue;
        }
        let Some((kind, own_section)) = section else {
            continue;
        };
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let renamed = line.split_once("package").and_then(|(_, rest)| rest.trim_start().strip_prefix('='));
        let renamed = renamed.and_then(|rest| rest.split('"').nth(1));
        match (own_section, renamed, line.split(['.', '=', ' ']).next()) {
            (true, Some(package), _) => {
                if let Some(last) = found.last_mut() {
                    last.package = package.to_string();
                }
            }
            (true, None, _) => {}
            (false, Some(package), _) | (false, None, Some(package)) => {
                let package = package.trim_matches('"').to_string();
                found.push(Dependency { line: index + 1, package, kind });
            }
            (false, None, None) => {}
        }
    }
    found
}

/// Parses a section header: the type of its dependencies, and the name in `[dependencies.name]`.
fn section_kind(header: &str) -> (Option<Kind>, Option<&str>) {
    let header = match header.strip_prefix("target.") {
        Some(rest) => rest.rfind("dependencies").map_or(rest, |at| {
            let start = rest[..at].rfind('.').map_or(0, |dot| dot + 1);
            &rest[start..]
        }),
        None => header,
    };
    let (table, name) = match header.split_once('.') {
        Some((table, name)) => (table, Some(name)),
        None => (header, None),
    };
    let kind = match table {
        "dependencies" => Some(Kind::Normal),
        "build-dependencies" => Some(Kind::Build),
        "dev-dependencies" => Some(Kind::Test),
        _ => None,
    };
    (kind, name)
}

#[cfg(test)]
mod tests {
    use super::super::tests::check;
    use super::*;

    #[test]
    fn dependency_outside_the_table_is_found() {
        let cpu = "[package]\nname = \"panoply-cpu\"\n\n[dependencies]\npanoply-ir.workspace = true\npanoply-runtime.workspace = true\nhalf = \"2\"\n";
        check("imports", &[("crates/cpu/Cargo.toml", cpu)], &["crates/cpu/Cargo.toml:6"]);
        let tests_are_free = "[dev-dependencies]\npanoply-runtime.workspace = true\n";
        check("imports", &[("crates/cpu/Cargo.toml", tests_are_free)], &[]);
        check("imports", &[("crates/newcomer/Cargo.toml", "[dependencies]\n")], &["crates/newcomer/Cargo.toml:1"]);
    }

    #[test]
    fn renamed_and_target_dependencies_are_found() {
        let renamed = "[dependencies]\nrun = { package = \"panoply-runtime\", path = \"../runtime\" }\n";
        check("imports", &[("crates/cpu/Cargo.toml", renamed)], &["crates/cpu/Cargo.toml:2"]);
        let own_section = "[dependencies.run]\npackage = \"panoply-runtime\"\npath = \"../runtime\"\n";
        check("imports", &[("crates/cpu/Cargo.toml", own_section)], &["crates/cpu/Cargo.toml:1"]);
        let target = "[target.'cfg(unix)'.dependencies]\npanoply-nn = { workspace = true }\n[features]\ndefault = []\n";
        check("imports", &[("crates/ir/Cargo.toml", target)], &["crates/ir/Cargo.toml:2"]);
    }

    #[test]
    fn table_is_acyclic_and_complete() {
        for (index, (krate, may)) in TABLE.iter().enumerate() {
            for import in *may {
                let row = TABLE.iter().position(|(name, _)| name == import);
                assert!(
                    row.is_some_and(|row| row < index),
                    "{krate} → {import}: rows are in the order of dependencies"
                );
            }
        }
    }

    #[test]
    fn build_scripts_are_found() {
        check("build-script", &[("crates/x/build.rs", ""), ("crates/x/src/build.rs", "")], &["crates/x/build.rs:1"]);
        check(
            "build-script",
            &[("crates/x/Cargo.toml", "[build-dependencies]\ncc = \"1\"\n")],
            &["crates/x/Cargo.toml:2"],
        );
    }

    #[test]
    fn incomplete_packages_are_found() {
        let good = "[package]\nlicense.workspace = true\nreadme.workspace = true\npublish.workspace = true\ndescription = \"x\"\n";
        let root = "[workspace.package]\nversion = \"0.1.0\"\n\n[workspace.dependencies]\n\
                    panoply-ir = { version = \"0.1.0\", path = \"crates/ir\" }\n\
                    panoply-nn = { path = \"crates/nn\", default-features = false }\n\
                    panoply-driver-sim = { path = \"crates/driver-sim\" }\n";
        check(
            "packages",
            &[
                ("crates/ir/Cargo.toml", good),
                ("crates/nn/Cargo.toml", &good.replace("readme.workspace = true\n", "")),
                ("crates/xtask/Cargo.toml", "[package]\npublish = false\n"),
                ("Cargo.toml", root),
            ],
            &["crates/nn/Cargo.toml:1", "Cargo.toml:6"],
        );
    }

    #[test]
    fn heavy_packages_are_found_by_name_and_family() {
        let tree = "panoply-cpu v0.1.0\nhalf v2.7.1\nwgpu-hal v30.0.0\nashen v1.0.0\nwgpu v30.0.0\nwgpu v30.0.0 (*)\n";
        assert_eq!(heavy_in(tree), ["wgpu", "wgpu-hal"]);
    }
}
