//! `panoply bench data`: reading a data set, as training does.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::Args;
use panoply::{Error, Result};
use serde_json::json;

use super::{duration, rss};
use crate::console::escaped;
use crate::load_progress::with_progress;
use crate::train::data_args::DataArgs;
use crate::train::manifest;

#[derive(Args)]
pub struct BenchDataCommand {
    /// The data: a file or folder that `panoply train` reads
    data: PathBuf,
    #[command(flatten)]
    reading: DataArgs,
    /// Reads; the median time is printed
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeats: u32,
    /// Print one JSON document on stdout
    #[arg(long)]
    json: bool,
}

/// Bytes of a file, or of all files of a folder and its folders.
fn size_on_disk(path: &Path) -> Result<u64> {
    let failed = |error| Error::io(format!("cannot read {}", path.display()), error);
    if !path.is_dir() {
        return Ok(fs::metadata(path).map_err(failed)?.len());
    }
    let mut bytes = 0;
    for entry in fs::read_dir(path).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        // Links are not followed: they can form a cycle.
        let kind = entry.file_type().map_err(failed)?;
        bytes += match kind.is_dir() {
            true => size_on_disk(&entry.path())?,
            false => entry.metadata().map_err(failed)?.len(),
        };
    }
    Ok(bytes)
}

pub fn run(arguments: &BenchDataCommand) -> Result<ExitCode> {
    let path = &arguments.data;
    let reading = with_progress(&arguments.reading.clone().read_options());
    let bytes = size_on_disk(path)?;
    let (mut times, mut memory, mut shape) = (Vec::new(), None, (0, 0));
    for _ in 0..arguments.repeats {
        let start = Instant::now();
        let (read, peak) = rss::growth(|| manifest::open(&path.to_string_lossy(), &reading))?;
        times.push(start.elapsed().as_secs_f64());
        shape = (read.dataset.len(), read.dataset.num_features);
        // Later reads reuse memory of the first.
        memory = memory.or(peak);
    }
    times.sort_by(f64::total_cmp);
    let (seconds, (examples, features)) = (times[times.len() / 2], shape);
    if arguments.json {
        println!(
            "{}",
            json!({
                "schema": 1, "data": path.to_string_lossy(), "bytes": bytes, "examples": examples, "features": features,
                "seconds": seconds, "peak_rss_growth_bytes": memory,
            })
        );
        return Ok(ExitCode::SUCCESS);
    }
    let size = bytes as f64 / 1e6;
    println!("{}: {examples} examples of {features} features, {size:.1} MB", escaped(&path.to_string_lossy()));
    println!("median time      {} ({:.0} MB/s)", duration(seconds), size / seconds);
    if let Some(memory) = memory {
        println!(
            "memory growth    {:.1} MB, {:.2} times the file",
            memory as f64 / 1e6,
            memory as f64 / bytes.max(1) as f64
        );
    }
    Ok(ExitCode::SUCCESS)
}
