//! Memory of the machine, from the text of `/proc/meminfo`.

use panoply_host::host_info::Memory;

#[test]
fn memory_is_read_from_lines_with_units() {
    let text = "MemTotal:       24000 kB\nMemFree:  1 kB\nMemAvailable:   12000 kB\n";
    assert_eq!(Memory::parse(text), Memory { total: 24000 << 10, available: Some(12000 << 10) });
    assert_eq!(Memory::parse("nonsense"), Memory::default());
}
