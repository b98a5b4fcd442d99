//! `cargo xtask devices`: updates the device tables in README and `docs/ops.md` from the last run of `cargo xtask test`.
//!
//! The conformance suite prints a line `TESTED kind | device` for each device that passed, the op table prints `TESTED results | kind |
//! device | which` and `TESTED gradients | …`; `test` stores these lines in `target/tested`. Devices without such a line are listed as
//! untested in the first table, and omitted in the second.

use crate::place::Place;
use std::collections::{BTreeMap, BTreeSet};

/// A row of the table: backends, how they are reached, and what is untested without the hardware.
struct Row {
    kinds: &'static [&'static str],
    how: &'static str,
    open: &'static str,
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

const BEGIN: &str = "<!-- devices: written by `cargo xtask devices` from the last test run -->";
const END: &str = "<!-- end of devices -->";

/// Rewrites the tables.
pub fn run(place: &Place) -> bool {
    match write(place) {
        Ok(()) => true,
        Err(why) => {
            println!("devices: {why}");
            false
        }
    }
}

/// Stores the `TESTED` lines of a test run.
pub fn keep(place: &Place, tested: &[String]) -> std::io::Result<()> {
    std::fs::create_dir_all(place.target())?;
    std::fs::write(place.target().join("tested"), tested.join("\n"))
}

fn write(place: &Place) -> Result<(), String> {
    let tested = std::fs::read_to_string(place.target().join("tested"))
        .map_err(|_| "no test run to read; run `cargo xtask test` first".to_string())?;
    for (name, table) in [("README.md", table(&tested)), ("docs/ops.md", operations(&tested))] {
        let path = place.root.join(name);
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

fn table(tested: &str) -> String {
    let mut lines = String::from("| device | how it is reached | tested on | untested |\n|---|---|---|---|\n");
    for Row { kinds, how, open } in ROWS {
        let ran: BTreeSet<&str> = tested
            .lines()
            .filter_map(|line| line.strip_prefix("TESTED ")?.split_once(" | "))
            .filter(|(kind, _)| kinds.contains(kind))
            .map(|(_, device)| device)
            .collect();
        let ran = if ran.is_empty() { "–".to_string() } else { ran.into_iter().collect::<Vec<&str>>().join("; ") };
        let names: Vec<String> = kinds.iter().map(|kind| format!("`{kind}`")).collect();
        lines += &format!("| {} | {how} | {ran} | {open} |\n", names.join(" "));
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
            table("TESTED opencl | PoCL\nTESTED opencl | Intel\nTESTED opencl | PoCL\nnoise\nTESTED cpu | Xeon");
        for (kind, ran) in [("opencl", "Intel; PoCL"), ("cpu", "Xeon"), ("cuda", "–")] {
            let Row { how, open, .. } = ROWS.iter().find(|row| row.kinds == [kind]).unwrap();
            assert!(table.contains(&format!("| `{kind}` | {how} | {ran} | {open} |\n")), "{table}");
        }
        let lines = "TESTED results | cpu | Xeon | all 2\nTESTED cpu | Xeon\nTESTED gradients | cpu | Xeon | 1 of 2, not exp\n\
                     TESTED results | vulkan | Mesa | all 2";
        let rows = "| `cpu` | Xeon | all 2 | 1 of 2, not exp |\n| `vulkan` | Mesa | all 2 | – |\n";
        assert!(operations(lines).ends_with(rows), "{}", operations(lines));
        let text = format!("a\n{BEGIN}\nold\n{END}\nb");
        assert_eq!(replaced(&text, "new\n"), Some(format!("a\n{BEGIN}\n\nnew\n\n{END}\nb")));
        assert_eq!(replaced("a", "new"), None);
    }
}
