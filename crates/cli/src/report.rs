//! `panoply report`: evidence that a device computes correctly, and its speed, as a pair of files that can be published.
//!
//! [`Redaction`] removes paths and the names of the host and the user. [`markdown`] formats the document for readers.

mod markdown;
mod redact;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Args;
use panoply::kernels::Size;
use panoply::nn::checkpoint::write_atomic;
use panoply::runtime::OPT_LEVEL;
use panoply::{Device, Error, Result};
use serde_json::{Map, Value, json};

use self::redact::Redaction;
use crate::bench::peaks::Limits;
use crate::bench::{devices as transfers, kernels, tensors};
use crate::machine::Machine;
use crate::output::{self, DeviceArgs};
use crate::selftest::{self, Check, SuiteArgs};
use crate::{devices, shell};

/// Test and measure a device, and write the result to a pair of files that can be published
///
/// Runs the checks of `panoply selftest`, among them twenty training steps, then short benchmarks beside the measured limits of the device,
/// usually in less than five minutes. The files contain versions, the driver, every failed check and the largest errors. Paths and the names
/// of the host and the user are removed from them. Exits with 1 if a check fails.
#[derive(Args)]
pub struct ReportCommand {
    /// Output file, beside which the same is written as Markdown, FILE.md [default: panoply-report-DEVICE.json]
    #[arg(short, long, visible_alias = "out", value_name = "FILE.json")]
    output: Option<PathBuf>,
    #[command(flatten)]
    suites: SuiteArgs,
    #[command(flatten)]
    device: DeviceArgs,
    /// Leave out the benchmarks
    #[arg(long)]
    no_bench: bool,
    /// Also print the JSON document on stdout
    #[arg(long)]
    json: bool,
}

/// Time after which no further benchmark is started.
const TIME_LIMIT: Duration = Duration::from_secs(240);

/// Minimum seconds of measuring per row.
const MIN_TIME: f64 = 0.1;

/// Longest time of the triad of a million elements on a device that is benchmarked: slower ones would take hours at the usual sizes.
const SLOWEST: f64 = 0.2;

/// Counts of checks.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    passed: usize,
    skipped: usize,
    failed: usize,
}

/// Tests, measures and writes the files.
pub fn run(arguments: &ReportCommand) -> Result<ExitCode> {
    arguments.suites.check()?;
    let choice = arguments.device.select()?;
    let device = choice.device();
    let (json_path, markdown_path) = paths(arguments.output.as_deref(), device);
    output::check_paths(arguments.json, [&*json_path])?;
    check_target(arguments.output.as_deref(), &json_path)?;
    check_overwrite(&json_path, &markdown_path)?;
    choice.explain();
    let started = Instant::now();
    let (suites, mut failures, mut counts) = check(device, &arguments.suites);
    let (bench, limits, wrong) = measure(device, arguments.no_bench, started)?;
    counts.failed += wrong.len();
    failures.extend(wrong);
    let mut document = json!({
        "schema": 1, "report": "panoply", "date": today(), "system": system(), "opt_level": OPT_LEVEL,
        "panoply_version": env!("CARGO_PKG_VERSION"), "device": device.device_string(), "backend": device.info().kind.name(),
        "device_info": devices::device(device), "suites": suites, "failures": failures, "limits": limits, "bench": bench,
        "passed": counts.passed, "skipped": counts.skipped, "failed": counts.failed, "seconds": started.elapsed().as_secs_f64(),
    });
    // The number of a device identifies its machine.
    document["device_info"]["physical_id"] = Value::Null;
    Redaction::new().apply(&mut document);
    write_atomic(&json_path, format!("{document:#}\n").as_bytes())?;
    write_atomic(&markdown_path, markdown::format(&document).as_bytes())?;
    if arguments.json {
        output::print_json(&document);
    } else {
        let Counts { passed, skipped, failed } = counts;
        println!("{passed} passed, {skipped} skipped, {failed} failed on {device}");
        println!("saved {} and {}", shell::quoted(&json_path), shell::quoted(&markdown_path));
    }
    Ok(if counts.failed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Returns the paths of the JSON and the Markdown file.
fn paths(requested: Option<&Path>, device: &Device) -> (PathBuf, PathBuf) {
    let stem = match requested {
        Some(path) if path.extension().is_some_and(|end| end == "json" || end == "md") => path.with_extension(""),
        Some(path) => path.to_path_buf(),
        None => PathBuf::from(format!("panoply-report-{}", device.device_string().replace(':', "-"))),
    };
    let with = |end: &str| {
        let mut path = stem.clone().into_os_string();
        path.push(end);
        PathBuf::from(path)
    };
    (with(".json"), with(".md"))
}

/// Returns an error if the report could not be written after minutes of tests: its folder does not exist, or the option names a folder.
fn check_target(requested: Option<&Path>, json_path: &Path) -> Result<()> {
    if let Some(path) = requested.filter(|path| path.is_dir()) {
        let message = format!("--output {} is a folder", path.display());
        return Err(Error::mistake(message).note("name a file in it, such as report.json"));
    }
    match json_path.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.is_dir()) {
        Some(folder) => Err(Error::mistake(format!("--output: the folder {} does not exist", folder.display()))),
        None => Ok(()),
    }
}

/// Returns an error if a file exists that is not a report.
fn check_overwrite(json_path: &Path, markdown_path: &Path) -> Result<()> {
    let earlier = std::fs::read(json_path).ok().and_then(|text| serde_json::from_slice::<Value>(&text).ok());
    if earlier.is_some_and(|document| document["report"] == "panoply") {
        return Ok(());
    }
    match [json_path, markdown_path].into_iter().find(|path| path.exists()) {
        Some(path) => Err(Error::mistake(format!("{} exists and is not a report", path.display()))
            .note("choose another file with `--output FILE.json`")),
        None => Ok(()),
    }
}

/// Runs the checks. Returns a row for each suite, the failed checks, and the counts of all.
fn check(device: &Device, arguments: &SuiteArgs) -> (Vec<Value>, Vec<Value>, Counts) {
    let mut suites: Vec<(&str, Counts, Option<Check>)> = Vec::new();
    let mut failures = Vec::new();
    selftest::test(device, arguments, &mut |check| {
        let suite = check.part.name();
        if suites.last().is_none_or(|(name, ..)| *name != suite) {
            note!("checking {suite} …");
            suites.push((suite, Counts::default(), None));
        }
        let Some((_, counts, worst)) = suites.last_mut() else { return };
        match check.passed {
            Some(true) => counts.passed += 1,
            Some(false) => {
                counts.failed += 1;
                failures.push(check.json());
                note!("✗ {suite}, {}: {}", check.name, check.result);
            }
            None => counts.skipped += 1,
        }
        if relative_error(&check) > worst.as_ref().map_or(0.0, relative_error) {
            *worst = Some(check);
        }
    });
    let total = suites.iter().fold(Counts::default(), |sum, (_, one, _)| Counts {
        passed: sum.passed + one.passed,
        skipped: sum.skipped + one.skipped,
        failed: sum.failed + one.failed,
    });
    let row = |(suite, counts, worst): &(&str, Counts, Option<Check>)| {
        let Counts { passed, skipped, failed } = counts;
        json!({"suite": suite, "passed": passed, "skipped": skipped, "failed": failed, "worst": worst.as_ref().map(Check::json)})
    };
    (suites.iter().map(row).collect(), failures, total)
}

/// Returns the error of a check relative to its tolerance; infinite for an error of something that must be exact.
fn relative_error(check: &Check) -> f64 {
    match check.worst {
        Some((error, tolerance)) if error > 0.0 => error / tolerance,
        _ => 0.0,
    }
}

/// Runs the benchmarks while time is left. Returns their rows, the measured limits, and the failures.
fn measure(device: &Device, is_unwanted: bool, started: Instant) -> Result<(Value, Value, Vec<Value>)> {
    let skipped = |why: &str| {
        note!("benchmarks are left out: {why}");
        Ok((json!({"skipped": why}), Value::Null, Vec::new()))
    };
    if is_unwanted {
        return skipped("--no-bench was given");
    }
    if device.info().variant.is_some() {
        return skipped("the device checks programs and is not built for speed");
    }
    match kernels::TRIAD.run(device, Size::Small, 0, Duration::from_millis(100)) {
        // The report is written all the same: it is about devices that may be broken.
        Err(error) => {
            let (bench, limits, _) = skipped("the triad failed")?;
            return Ok((bench, limits, vec![failure(kernels::TRIAD.name, &error.to_string())]));
        }
        Ok(triad) if triad.time.as_secs_f64() > SLOWEST => return skipped("the device is too slow for them"),
        Ok(_) => {}
    }
    note!("measuring …");
    let late = || Error::unavailable("no time was left");
    let in_time = || if started.elapsed() < TIME_LIMIT { Ok(()) } else { Err(late()) };
    let (mut bench, mut failures) = (Map::new(), Vec::new());
    type Rows = Vec<Value>;
    type Bench<'a> = dyn Fn(&mut Rows, &mut Rows) -> Result<()> + 'a;
    let groups: [(&str, &Bench<'_>); 3] = [
        ("devices", &|rows, _| {
            transfers::measure(device, MIN_TIME, &mut |row| {
                rows.push(row.json());
                in_time()
            })
        }),
        ("kernels", &|rows, failures| {
            kernels::measure(device, Size::Large, MIN_TIME, &mut |builtin, outcome, limit| {
                let row = kernels::row(builtin, outcome, limit);
                if !outcome.verdict.passed() {
                    failures.push(failure(builtin.name, &outcome.verdict.to_string()));
                }
                rows.push(row);
                in_time()
            })
        }),
        ("tensors", &|rows, _| {
            tensors::measure(device, MIN_TIME, false, &mut |row| {
                rows.push(row.json());
                in_time()
            })
        }),
    ];
    for (name, run) in groups {
        let mut rows = Vec::new();
        match in_time().and_then(|()| device.scope(|| run(&mut rows, &mut failures))) {
            Err(error) if error.message() != late().message() => {
                failures.push(failure(name, &error.to_string()));
            }
            Ok(()) | Err(_) => {}
        }
        bench.insert(name.to_string(), rows.into());
    }
    let limits = Limits::new(device, MIN_TIME);
    let mut peak = |name: &str, rate: Result<Option<f64>>| {
        rate.unwrap_or_else(|error| {
            failures.push(failure(name, &error.to_string()));
            None
        })
    };
    let bandwidth = peak("memory bandwidth", limits.gbps().map(Some));
    let arithmetic = peak("f32 peak", limits.gflops(panoply::DType::F32));
    Ok((bench.into(), json!({"gb_per_s": bandwidth, "gflop_per_s": arithmetic}), failures))
}

/// Returns a benchmark that failed as the JSON of a check.
fn failure(name: &str, result: &str) -> Value {
    json!({"suite": "bench", "check": name, "passed": false, "result": result})
}

/// Returns the operating system and the processor.
fn system() -> Value {
    let cpu = Device::get("cpu").map(|device| device.info().name.clone()).ok();
    json!({"os": std::env::consts::OS, "arch": std::env::consts::ARCH, "kernel": Machine::read_system().system, "cpu": cpu})
}

/// Returns the date in UTC, as 2026-11-26.
fn today() -> Option<String> {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs();
    Some(chrono::DateTime::from_timestamp(seconds as i64, 0)?.date_naive().to_string())
}
