//! `cargo xtask vnn --data DIR`: runs `panoply verify` on a benchmark of VNN-COMP, the competition of neural network verifiers, and
//! compares the verdicts with the expected ones.
//!
//! The folder contains networks (ONNX), properties (VNN-LIB), `instances.csv` with rows `NETWORK,PROPERTY,SECONDS` and, if verdicts are
//! known, `expected.csv` with rows `NETWORK,PROPERTY,sat` or `unsat`. It is not part of the repository.

use crate::repo::Repo;
use crate::shell::{cargo, command};
use std::collections::HashMap;
use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

/// Runs all instances with `limit` seconds each, by default the time limit of the row; returns false if a verdict is wrong or an instance
/// cannot be run.
pub fn run(repo: &Repo, data: &str, limit: Option<&str>) -> bool {
    match count_wrong(repo, Path::new(data), limit) {
        Ok(wrong) => wrong == 0,
        Err(message) => {
            println!("vnn: {message}");
            false
        }
    }
}

/// Returns the columns of each line of a CSV file without quotes.
fn rows(path: &Path) -> Result<Vec<Vec<String>>, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(text.lines().map(|line| line.trim().split(',').map(str::to_string).collect()).collect())
}

/// Runs all instances and returns the number of wrong verdicts.
fn count_wrong(repo: &Repo, data: &Path, limit: Option<&str>) -> Result<usize, String> {
    let built = cargo(repo, &["build", "--release", "--package", "panoply-cli"]).status();
    if !built.is_ok_and(|status| status.success()) {
        return Err("the command does not build".to_string());
    }
    let panoply = repo.target().join("release").join(format!("panoply{}", std::env::consts::EXE_SUFFIX));
    let data = data.canonicalize().map_err(|error| format!("{}: {error}", data.display()))?;
    let expected: HashMap<(String, String), String> = rows(&data.join("expected.csv"))
        .unwrap_or_default()
        .into_iter()
        .filter_map(|row| <[String; 3]>::try_from(row).ok())
        .map(|[network, property, verdict]| ((network, property), verdict))
        .collect();
    let (mut solved, mut wrong, mut count, mut total) = (0, 0, 0, 0.0);
    for row in rows(&data.join("instances.csv"))? {
        let [network, property, seconds] = <[String; 3]>::try_from(row)
            .map_err(|row| format!("instances.csv: a row has {} columns, not 3", row.len()))?;
        let started = Instant::now();
        let mut verify = command(repo, &panoply);
        verify.arg("verify").arg(data.join(&network)).arg(data.join(&property));
        verify.args(["--device", "cpu", "--seconds", limit.unwrap_or(&seconds)]);
        let status = verify.stdout(Stdio::null()).stderr(Stdio::null()).status().map_err(|error| error.to_string())?;
        // The exit codes of `panoply verify`.
        let verdict = match status.code() {
            Some(0) => "unsat",
            Some(5) => "sat",
            Some(4) => "undecided",
            _ => "failed",
        };
        let expected_verdict = expected.get(&(network.clone(), property.clone())).map_or("", String::as_str);
        let is_decided = verdict == "sat" || verdict == "unsat";
        let is_wrong = is_decided && matches!(expected_verdict, "sat" | "unsat") && expected_verdict != verdict;
        (solved, wrong, count) =
            (solved + usize::from(is_decided && !is_wrong), wrong + usize::from(is_wrong), count + 1);
        // An instance that is not solved counts with the time limit of its row.
        let elapsed = started.elapsed().as_secs_f64();
        total += if is_decided && !is_wrong { elapsed } else { seconds.parse().unwrap_or(elapsed) };
        let mark = if is_wrong { " WRONG" } else { "" };
        println!("{network} {property}: {verdict}{mark} in {elapsed:.2} s");
    }
    let mean = total / f64::from(count.max(1));
    println!("vnn: {solved} of {count} instances solved, {wrong} wrong, {mean:.2} s on average");
    Ok(wrong)
}
