//! Formats a report as Markdown.

use serde_json::Value;

use crate::bench;

/// Footnote of a page with a share above 100 %.
const OVER_LIMIT: &str = "Shares above 100 %: the limit is measured at another time than the row. It is too low if other programs used \
    the device or the processor at that time, and caches can be faster than the limit of memory.\n";

/// Returns the page of a report.
pub fn format(document: &Value) -> String {
    let text = |value: &Value| cell(value);
    let [info, system] = ["device_info", "system"].map(|key| &document[key]);
    let mut page = format!(
        "# {} ({})\n\n{}, Panoply {} (opt-level {}). {} checks passed, {} were skipped, {} failed, in {:.0} s.\n\n",
        text(&info["name"]),
        text(&document["device"]),
        text(&document["date"]),
        text(&document["panoply_version"]),
        text(&document["opt_level"]),
        text(&document["passed"]),
        text(&document["skipped"]),
        text(&document["failed"]),
        document["seconds"].as_f64().unwrap_or_default(),
    );
    let details = info["details"].as_object().into_iter().flatten().map(|(name, value)| (name.as_str(), text(value)));
    let properties = [
        ("driver", text(&info["driver"])),
        ("vendor", text(&info["vendor"])),
        ("compute units", text(&info["compute_units"])),
        (
            "memory, GiB",
            info["memory_total"]
                .as_f64()
                .map_or("–".to_string(), |bytes| format!("{:.1}", bytes / f64::from(1 << 30))),
        ),
        ("matrix products", text(&info["blas_library"])),
        ("system", text(&system["kernel"])),
        ("processor", text(&system["cpu"])),
        ("measured memory bandwidth, GB/s", text(&document["limits"]["gb_per_s"])),
        ("measured f32 peak, GFLOP/s", text(&document["limits"]["gflop_per_s"])),
    ];
    let properties: Vec<Vec<String>> =
        properties.into_iter().chain(details).map(|(name, value)| vec![name.to_string(), value]).collect();
    page += &table(&["property", "value"], &properties);
    page += "## Checks\n\n";
    let suites = rows(&document["suites"], |row| {
        let worst = &row["worst"];
        let named = match worst["check"].as_str() {
            Some(name) => {
                format!("{name}: {}, tolerance {}", text(&worst["max_error"]), text(&worst["tolerance"]))
            }
            None => "–".to_string(),
        };
        vec![text(&row["suite"]), text(&row["passed"]), text(&row["skipped"]), text(&row["failed"]), named]
    });
    page += &table(
        &["suite", "passed", "skipped", "failed", "check with the largest error relative to its tolerance"],
        &suites,
    );
    let failures = rows(&document["failures"], |row| ["suite", "check", "result"].map(|key| text(&row[key])).to_vec());
    if !failures.is_empty() {
        page += "## Failed checks\n\n";
        page += &table(&["suite", "check", "result"], &failures);
    }
    page += "## Speed\n\n";
    if let Some(why) = document["bench"]["skipped"].as_str() {
        page += &format!("Not measured: {why}.\n");
        return page;
    }
    let share = |row: &Value| row["fraction_of_peak"].as_f64().or(row["fraction_of_triad"].as_f64());
    let mut is_over = false;
    for (name, measures) in document["bench"].as_object().into_iter().flatten() {
        let measured = rows(measures, |row| {
            let (rate, unit) = rate(row);
            let share = share(row).map_or("–".to_string(), |share| format!("{:.0} %", share * 100.0));
            let time = row["seconds"].as_f64().map_or("–".to_string(), bench::duration);
            let rate = rate.map_or("–".to_string(), |rate| bench::rate(rate, unit));
            vec![text(&row["name"]), time, rate, share]
        });
        // As it is shown: 100.4 % is `100 %`.
        is_over |= measures.as_array().into_iter().flatten().filter_map(share).any(|share| share >= 1.005);
        match measured.is_empty() {
            true => page += &format!("The time limit left no time for the benchmark `{name}`.\n\n"),
            false => page += &table(&[name, "time", "rate", "of its limit"], &measured),
        }
    }
    if is_over {
        page += OVER_LIMIT;
    }
    page
}

/// Returns the rate of a benchmark row and its unit.
fn rate(row: &Value) -> (Option<f64>, &str) {
    if let Some(unit) = row["unit"].as_str() {
        return (row["rate"].as_f64(), unit);
    }
    let rates = [("gflop_per_s", "GFLOP/s"), ("gb_per_s", "GB/s"), ("gop_per_s", "Gop/s")];
    let known = rates.into_iter().find_map(|(key, unit)| Some((row[key].as_f64().filter(|rate| *rate > 0.0)?, unit)));
    known.map_or((None, ""), |(rate, unit)| (Some(rate), unit))
}

fn rows(values: &Value, row: impl Fn(&Value) -> Vec<String>) -> Vec<Vec<String>> {
    values.as_array().into_iter().flatten().map(row).collect()
}

fn table(heads: &[&str], rows: &[Vec<String>]) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let heads: Vec<String> = heads.iter().map(ToString::to_string).collect();
    let body: String = rows.iter().map(|row| line(row)).collect();
    format!("{}{}|\n{body}\n", line(&heads), "|---".repeat(heads.len()))
}

/// Returns a value as the text of a cell.
fn cell(value: &Value) -> String {
    match value {
        Value::Null => "–".to_string(),
        Value::String(text) => text.replace('|', "\\|").replace('\n', " "),
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() && float.abs() >= 1e-3 => format!("{float:.3}"),
            Some(float) if number.is_f64() && float != 0.0 => format!("{float:.2e}"),
            _ => number.to_string(),
        },
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn page_has_checks_failures_and_rates() {
        let document = json!({
            "date": "2026-11-26", "panoply_version": "0.1.0", "opt_level": "3", "device": "cuda:0", "seconds": 80.4,
            "passed": 7, "skipped": 1, "failed": 1, "limits": {"gb_per_s": 2000.25, "gflop_per_s": 1e-4},
            "system": {"os": "linux", "arch": "x86_64", "kernel": "Linux 6.1 x86_64"},
            "device_info": {"name": "A | B", "driver": "CUDA 13", "memory_total": 3u64 << 30, "details": {"compute capability": "9.0"}},
            "suites": [{"suite": "ops", "passed": 7, "skipped": 1, "failed": 1,
                        "worst": {"check": "exp", "max_error": 1.5, "tolerance": 2.0}}],
            "failures": [{"suite": "ops", "check": "sin", "result": "off\nby 3"}],
            "bench": {
                "devices": [{"name": "fill", "seconds": 1.5e-3, "rate": 20.0, "unit": "GB/s", "fraction_of_peak": 0.5}],
                "kernels": [{"name": "triad", "seconds": 2e-6, "gb_per_s": 0.0, "gop_per_s": 4.0, "fraction_of_triad": null}],
                "tensors": [],
            },
        });
        let page = format(&document);
        assert!(!page.contains(OVER_LIMIT), "{page}");
        let mut over = document.clone();
        over["bench"]["devices"][0]["fraction_of_peak"] = json!(1.2);
        assert!(format(&over).ends_with(OVER_LIMIT) && format(&over).contains("| 120 % |"));
        for part in [
            "# A \\| B (cuda:0)\n\n2026-11-26, Panoply 0.1.0 (opt-level 3). 7 checks passed, 1 were skipped, 1 failed, in 80 s.",
            "| memory, GiB | 3.0 |",
            "| system | Linux 6.1 x86_64 |",
            "| measured memory bandwidth, GB/s | 2000.250 |",
            "| measured f32 peak, GFLOP/s | 1.00e-4 |",
            "| compute capability | 9.0 |",
            "| ops | 7 | 1 | 1 | exp: 1.500, tolerance 2.000 |",
            "| ops | sin | off by 3 |",
            "| fill | 1.500 ms | 20.0 GB/s | 50 % |",
            "| triad | 2.000 µs | 4.00 Gop/s | – |",
            "The time limit left no time for the benchmark `tensors`.",
        ] {
            assert!(page.contains(part), "{part}\nin\n{page}");
        }
    }
}
