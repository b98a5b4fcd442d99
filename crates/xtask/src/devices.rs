//! `cargo xtask devices`: updates the device tables in README and `docs/ops.md` from the last run of `cargo xtask test` and from the reports
//! in `docs/measured/hardware/`, which `panoply report` wrote on real hardware.
//!
//! The conformance suite prints a line `TESTED kind | device` for each device that passed, the op table prints `TESTED results | kind |
//! device | which` and `TESTED gradients | …`; `test` stores these lines in `target/tested`. Devices without such a line are listed as
//! untested in the first table, and omitted in the second.

use crate::repo::Repo;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// A row of the table: backends, how they are reached, and what is untested without the hardware.
struct Row {
    kinds: &'static [&'static str],
    how: &'static str,
    open: &'static str,
}

/// A report from hardware, as the table lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct HardwareReport {
    backend: String,
    /// Name of the device, its driver, the date and the number of checks, as a link to the page.
    result: String,
}

const ROWS: &[Row] = &[
    Row {
        kinds: &["cpu"],
        how: "our vector machine (AVX-512, AVX2, portable), routines for products, convolution and attention ([more](docs/backends/cpu.md))",
        open: "NEON compiles and was never run",
    },
    Row {
        kinds: &["cuda"],
        how: "PTX through NVIDIA's driver alone ([more](docs/backends/cuda.md))",
        open: "every card but the [H100](docs/measured/cuda-h100.md), where all 622 checks pass",
    },
    Row {
        kinds: &["rocm"],
        how: "HIP C++ through ROCm's runtime compiler ([more](docs/backends/rocm.md))",
        open: "every real card",
    },
    Row {
        kinds: &["opencl"],
        how: "any driver, through the ICD loader ([more](docs/backends/opencl.md))",
        open: "every GPU but the [H100](docs/measured/cuda-h100.md), where NVIDIA's driver fails",
    },
    Row {
        kinds: &["vulkan"],
        how: "WGSL through `wgpu` ([more](docs/backends/vulkan.md))",
        open: "every GPU but the [H100](docs/measured/cuda-h100.md), where 616 of 622 checks passed",
    },
    Row {
        kinds: &["metal", "dx12"],
        how: "the same driver, on macOS ([more](docs/backends/metal.md)) and Windows ([more](docs/backends/directx12.md))",
        open: "everything",
    },
    Row {
        kinds: &["oneapi"],
        how: "SPIR-V through Intel's OpenCL driver, else through Vulkan or Level Zero ([more](docs/backends/oneapi.md))",
        open: "every real GPU",
    },
    Row {
        kinds: &["webgpu"],
        how: "the same driver in a page, as WebAssembly ([more](docs/backends/webgpu.md))",
        open: "every real GPU, other browsers",
    },
];

/// Folder of the reports, in the repository.
const HARDWARE: &str = "docs/measured/hardware";

const BEGIN: &str = "<!-- devices: written by `cargo xtask devices` from the last test run -->";
const END: &str = "<!-- end of devices -->";

/// Rewrites the tables.
pub fn run(repo: &Repo) -> bool {
    match write(repo) {
        Ok(()) => true,
        Err(why) => {
            println!("devices: {why}");
            false
        }
    }
}

/// Stores the `TESTED` lines of a test run.
pub fn keep(repo: &Repo, tested: &[String]) -> std::io::Result<()> {
    std::fs::create_dir_all(repo.target())?;
    std::fs::write(repo.target().join("tested"), tested.join("\n"))
}

fn write(repo: &Repo) -> Result<(), String> {
    let tested = std::fs::read_to_string(repo.target().join("tested"))
        .map_err(|_| "no test run to read; run `cargo xtask test` first".to_string())?;
    let reports = reports(&repo.root.join(HARDWARE))?;
    for (name, table) in [("README.md", table(&tested, &reports)), ("docs/ops.md", operations(&tested))] {
        let path = repo.root.join(name);
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{name}: {error}"))?;
        let new = replaced(&text, &table).ok_or_else(|| format!("{name} has no {BEGIN} or {END}"))?;
        std::fs::write(path, new).map_err(|error| format!("{name}: {error}"))?;
    }
    Ok(())
}

/// Returns the table of op-table rows that passed on each device.
fn operations(tested: &str) -> String {
    let mut ran: BTreeMap<(&str, &str), [&str; 2]> = BTreeMap::new();
    for line in tested.lines() {
        let (at, rest) = match (line.strip_prefix("TESTED results | "), line.strip_prefix("TESTED gradients | ")) {
            (Some(rest), _) => (0, rest),
            (_, Some(rest)) => (1, rest),
            (None, None) => continue,
        };
        if let [kind, device, which] = rest.splitn(3, " | ").collect::<Vec<&str>>()[..] {
            ran.entry((kind, device)).or_insert(["–"; 2])[at] = which;
        }
    }
    let head = String::from("| device | tested on | results | gradients |\n|---|---|---|---|\n");
    ran.into_iter().fold(head, |table, ((kind, device), [results, gradients])| {
        table + &format!("| `{kind}` | {device} | {results} | {gradients} |\n")
    })
}

/// Reads the reports of a folder, in the order of their names.
fn reports(folder: &Path) -> Result<Vec<HardwareReport>, String> {
    let entries = std::fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|end| end == "json"));
    paths.sort();
    let read = |path: &Path| {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        report(&text, &stem).ok_or_else(|| format!("{} is not a file of `panoply report`", path.display()))
    };
    paths.iter().map(|path| read(path)).collect()
}

/// Reads a report, whose file is `stem`.json. It is one entry per line, indented by two spaces per level.
fn report(text: &str, stem: &str) -> Option<HardwareReport> {
    let entry = |level: usize, key: &str| {
        let start = format!("{}\"{key}\": ", " ".repeat(2 * level));
        let value = text.lines().find_map(|line| line.strip_prefix(&start))?.trim_end_matches(',');
        let value = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value);
        Some(value.replace("\\\"", "\"").replace("\\\\", "\\").replace('|', "\\|"))
    };
    entry(1, "report").filter(|kind| kind == "panoply")?;
    let [name, driver] = [entry(2, "name")?, entry(2, "driver")?];
    let [passed, failed, date] = [entry(1, "passed")?, entry(1, "failed")?, entry(1, "date")?];
    let checks = match failed.as_str() {
        "0" => format!("all {passed} checks"),
        _ => format!("{passed} checks, **{failed} failed**"),
    };
    let result = format!("[{name}]({HARDWARE}/{stem}.md) ({driver}; {date}): {checks}");
    Some(HardwareReport { backend: entry(1, "backend")?, result })
}

fn table(tested: &str, reports: &[HardwareReport]) -> String {
    let mut lines = String::from(
        "| device | how it is reached | tested on | reports from hardware | untested |\n|---|---|---|---|---|\n",
    );
    for Row { kinds, how, open } in ROWS {
        let ran: BTreeSet<&str> = tested
            .lines()
            .filter_map(|line| line.strip_prefix("TESTED ")?.split_once(" | "))
            .filter(|(kind, _)| kinds.contains(kind))
            .map(|(_, device)| device)
            .collect();
        let ran = if ran.is_empty() { "–".to_string() } else { ran.into_iter().collect::<Vec<&str>>().join("; ") };
        let names: Vec<String> = kinds.iter().map(|kind| format!("`{kind}`")).collect();
        let of_kind = reports.iter().filter(|report| kinds.contains(&report.backend.as_str()));
        let measured: Vec<&str> = of_kind.map(|report| report.result.as_str()).collect();
        let open = if !measured.is_empty() && open.starts_with("every") { "other devices" } else { open };
        let measured = if measured.is_empty() { "–".to_string() } else { measured.join("; ") };
        lines += &format!("| {} | {how} | {ran} | {measured} | {open} |\n", names.join(" "));
    }
    lines
}

fn replaced(text: &str, table: &str) -> Option<String> {
    let (before, rest) = text.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n\n{table}\n{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_list_only_tested_devices() {
        let table =
            table("TESTED opencl | PoCL\nTESTED opencl | Intel\nTESTED opencl | PoCL\nnoise\nTESTED cpu | Xeon", &[]);
        for (kind, ran) in [("opencl", "Intel; PoCL"), ("cpu", "Xeon"), ("cuda", "–")] {
            let Row { how, open, .. } = ROWS.iter().find(|row| row.kinds == [kind]).unwrap();
            assert!(table.contains(&format!("| `{kind}` | {how} | {ran} | – | {open} |\n")), "{table}");
        }
        let lines = "TESTED results | cpu | Xeon | all 2\nTESTED cpu | Xeon\nTESTED gradients | cpu | Xeon | 1 of 2, not exp\n\
                     TESTED results | vulkan | Mesa | all 2";
        let rows = "| `cpu` | Xeon | all 2 | 1 of 2, not exp |\n| `vulkan` | Mesa | all 2 | – |\n";
        assert!(operations(lines).ends_with(rows), "{}", operations(lines));
        let text = format!("a\n{BEGIN}\nold\n{END}\nb");
        assert_eq!(replaced(&text, "new\n"), Some(format!("a\n{BEGIN}\n\nnew\n\n{END}\nb")));
        assert_eq!(replaced("a", "new"), None);
    }

    #[test]
    fn reports_of_hardware_are_rows_beside_software() {
        let lines = [
            r#"{"#,
            r#"  "backend": "cuda","#,
            r#"  "bench": {"#,
            r#"    "kernels": ["#,
            r#"      {"#,
            r#"        "name": "triad""#,
            r#"      }"#,
            r#"    ]"#,
            r#"  },"#,
            r#"  "date": "2026-11-26","#,
            r#"  "device_info": {"#,
            r#"    "driver": "CUDA \"13\"","#,
            r#"    "name": "NVIDIA H100""#,
            r#"  },"#,
            r#"  "failed": 0,"#,
            r#"  "passed": 812,"#,
            r#"  "report": "panoply","#,
            r#"  "schema": 1"#,
            r#"}"#,
        ];
        let text = lines.join("\n");
        let read = report(&text, "h100").unwrap();
        let result = "[NVIDIA H100](docs/measured/hardware/h100.md) (CUDA \"13\"; 2026-11-26): all 812 checks";
        assert_eq!((read.backend.as_str(), read.result.as_str()), ("cuda", result));
        let failed = report(&text.replace("\"failed\": 0", "\"failed\": 3"), "h100").unwrap();
        assert!(failed.result.ends_with(": 812 checks, **3 failed**"), "{}", failed.result);
        assert_eq!(report(&text.replace("panoply", "other"), "h100"), None);
        let table = table("TESTED cuda | a simulator", &[read]);
        assert!(table.contains(&format!(" | a simulator | {result} | other devices |\n")), "{table}");
    }
}
