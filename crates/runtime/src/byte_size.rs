//! Formatting and parsing of byte counts.

/// Formats a byte count in binary units with one decimal, such as `2.1 GiB`.
pub fn human(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// Parses a byte count such as `64MiB`, `8GB`, `1.5 GiB` or a plain number; `None` if it is malformed or exceeds a `u64`. `MB` is
/// decimal, `MiB` and `M` are binary.
pub fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let scale: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        _ => return None,
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(scale);
    }
    let value = number.parse::<f64>().ok()? * scale as f64;
    (value < u64::MAX as f64).then_some(value.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn human_formats_binary_units() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            ((1 << 20) - 1, "1.0 MiB"),
            (65 << 20, "65.0 MiB"),
            (2_254_857_830, "2.1 GiB"),
            (u64::MAX, "16384.0 PiB"),
        ] {
            assert_eq!(human(bytes), text);
        }
    }

    #[test]
    fn parse_bytes_reads_units() {
        for (text, bytes) in [
            ("64MiB", Some(64 << 20)),
            ("64 MB", Some(64_000_000)),
            ("1.5g", Some(3 << 29)),
            ("4096", Some(4096)),
            ("20000000000000000000", None),
            ("99999999t", None),
            ("MiB", None),
            ("-1", None),
            ("1 apple", None),
            ("", None),
        ] {
            assert_eq!(parse_bytes(text), bytes, "{text}");
        }
    }
}
