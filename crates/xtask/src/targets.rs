//! Targets other than the host, which are compiled with cargo or clippy, but without a linker.
//!
//! Nothing is run. This finds calls and paths that exist on one system only, numbers too large for 32 bits, and dependencies that need a C
//! compiler. Each target has a separate folder in cargo's output; build scripts and macros, which run on the host, are shared.

use crate::install;
use crate::repo::Repo;
use crate::shell::{on_path, quiet};
use crate::tier::Tier;
use std::time::Duration;

/// A target other than the host.
pub struct Target {
    pub triple: &'static str,
    /// Packages to compile; empty for all.
    pub packages: &'static [&'static str],
    /// The lowest tier that includes it.
    pub from: Tier,
}

/// Every default run compiles for the two targets that differ most from the host, and for the one without threads, files and 64 bits.
pub const TARGETS: &[Target] = &[
    Target { triple: "x86_64-pc-windows-msvc", packages: &[], from: Tier::Default },
    Target { triple: "aarch64-apple-darwin", packages: &[], from: Tier::Default },
    Target { triple: "aarch64-unknown-linux-gnu", packages: &[], from: Tier::Full },
    // The command does not run in a browser.
    Target { triple: "wasm32-unknown-unknown", packages: &["panoply", "panoply-web"], from: Tier::Default },
];

impl Target {
    /// Returns the arguments of cargo for `check` or `clippy`.
    pub fn arguments(&self, chore: &'static str) -> Vec<&'static str> {
        let mut arguments = vec![chore, "--target", self.triple];
        match self.packages {
            [] => arguments.push("--workspace"),
            packages => packages.iter().for_each(|package| arguments.extend(["--package", package])),
        }
        if chore == "clippy" {
            arguments.extend(["--", "-D", "warnings"]);
        }
        arguments
    }

    /// Installs the standard library of the target; tries twice.
    pub fn add(&self, repo: &Repo) -> Result<(), String> {
        if !on_path("rustup") {
            return Err("rustup not found".to_string());
        }
        let attempt = || quiet(&mut install::limited(repo, "rustup", 5, &["target", "add", self.triple])).map(drop);
        attempt().or_else(|why| {
            println!("cannot add {} ({why}); trying again …", self.triple);
            std::thread::sleep(Duration::from_secs(2));
            attempt()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_tier_compiles_for_another_system() {
        let always = |target: &&Target| target.from <= Tier::Default && !target.triple.contains("linux");
        assert!(TARGETS.iter().any(|target| always(&target)));
    }

    #[test]
    fn target_arguments_select_workspace_or_packages() {
        let target = |packages| Target { triple: "a-b-c", packages, from: Tier::Full };
        assert_eq!(target(&[]).arguments("check"), ["check", "--target", "a-b-c", "--workspace"]);
        assert_eq!(
            target(&["x", "y"]).arguments("clippy"),
            ["clippy", "--target", "a-b-c", "--package", "x", "--package", "y", "--", "-D", "warnings"]
        );
    }
}
