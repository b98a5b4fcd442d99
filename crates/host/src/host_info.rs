//! Properties of the machine, read from `/proc` and `/sys` on Linux and unknown on other systems. They are for display, except
//! the memory size.

use std::fs;

/// The CPU.
#[derive(Clone, Debug)]
pub struct Processor {
    /// Model name; the architecture if unknown.
    pub name: String,
    /// Manufacturer; `unknown` if not reported.
    pub vendor: String,
    /// Caches of the first core: a name such as `L1 data cache`, and the size as Linux writes it, such as `32K`.
    pub caches: Vec<(String, String)>,
}

impl Processor {
    /// Returns the processor this process runs on.
    pub fn here() -> Processor {
        let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let field = |key: &str| value_of(&info, key);
        let vendor = match field("vendor_id") {
            Some("AuthenticAMD") => "AMD".to_string(),
            Some("GenuineIntel") => "Intel".to_string(),
            Some(other) => other.to_string(),
            None => "unknown".to_string(),
        };
        let name = field("model name").or_else(|| field("Model")).map(str::to_string);
        let name = name.unwrap_or_else(|| format!("{} processor", std::env::consts::ARCH));
        Processor { name, vendor, caches: caches() }
    }
}

/// Returns the value of the first line `key : value`.
fn value_of<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key).then(|| value.trim())
    })
}

fn caches() -> Vec<(String, String)> {
    let cache = |index: usize| {
        let read = |file: &str| {
            let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{file}");
            fs::read_to_string(path).ok().map(|text| text.trim().to_string())
        };
        let (level, kind, size) = (read("level")?, read("type")?, read("size")?);
        let kind = if kind == "Unified" { String::new() } else { format!(" {}", kind.to_lowercase()) };
        Some((format!("L{level}{kind} cache"), size))
    };
    (0..8).map_while(cache).collect()
}

/// Total memory and memory available without swapping, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Total; 0 if unknown.
    pub total: u64,
    /// Free or reclaimable; `None` if unknown.
    pub available: Option<u64>,
}

impl Memory {
    /// Returns the machine's current values; unknown on systems other than Linux.
    pub fn now() -> Memory {
        Memory::parse(&fs::read_to_string("/proc/meminfo").unwrap_or_default())
    }

    /// Parses the text of `/proc/meminfo`. A missing line leaves the total 0, or the available memory `None`.
    pub fn parse(text: &str) -> Memory {
        let bytes = |key: &str| {
            let kib: u64 = value_of(text, key)?.strip_suffix("kB")?.trim().parse().ok()?;
            kib.checked_mul(1024)
        };
        Memory { total: bytes("MemTotal").unwrap_or(0), available: bytes("MemAvailable") }
    }
}
