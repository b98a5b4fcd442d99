//! Machines that are compiled for, but not here: what cargo and clippy accept with no linker of theirs.
//!
//! Nothing runs. But a call that exists on one system only, a path, a number too large for 32 bits, a dependency that wants a C compiler: all
//! of that is found. Each target keeps its own folder in cargo's; what runs on the host, build scripts and macros, is shared.

use crate::install;
use crate::place::Place;
use crate::shell::{on_path, quiet};
use crate::test::Tier;
use std::time::Duration;

/// A machine we do not have.
pub struct Target {
    pub triple: &'static str,
    /// Packages that are for it; none takes all.
    pub packages: &'static [&'static str],
    /// The lowest tier that compiles for it.
    pub from: Tier,
}

/// In every run the two that differ most from the host, and the one that has neither threads nor files nor 64 bits.
pub const TARGETS: &[Target] = &[
    Target { triple: "x86_64-pc-windows-msvc", packages: &[], from: Tier::Default },
    Target { triple: "aarch64-apple-darwin", packages: &[], from: Tier::Default },
    Target { triple: "aarch64-unknown-linux-gnu", packages: &[], from: Tier::Full },
    // The command line has no place in a browser.
    Target { triple: "wasm32-unknown-unknown", packages: &["panoply", "panoply-web"], from: Tier::Default },
];

impl Target {
    /// What cargo is told to check, or clippy to lint.
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

    /// Sees to it that the standard library for it is here; asked for twice.
    pub fn add(&self, place: &Place) -> Result<(), String> {
        if !on_path("rustup") {
            return Err("no rustup here to add it".to_string());
        }
        let attempt = || quiet(&mut install::limited(place, "rustup", 5, &["target", "add", self.triple])).map(drop);
        attempt().or_else(|why| {
            println!("{} was refused ({why}), trying once more …", self.triple);
            std::thread::sleep(Duration::from_secs(2));
            attempt()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_run_compiles_for_another_system() {
        let always = |target: &&Target| target.from <= Tier::Default && !target.triple.contains("linux");
        assert!(TARGETS.iter().any(|target| always(&target)));
    }

    #[test]
    fn a_target_is_checked_whole_or_in_part() {
        let target = |packages| Target { triple: "a-b-c", packages, from: Tier::Full };
        assert_eq!(target(&[]).arguments("check"), ["check", "--target", "a-b-c", "--workspace"]);
        assert_eq!(
            target(&["x", "y"]).arguments("clippy"),
            ["clippy", "--target", "a-b-c", "--package", "x", "--package", "y", "--", "-D", "warnings"]
        );
    }
}
