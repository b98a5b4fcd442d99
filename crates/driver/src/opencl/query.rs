//! Device queries.
//!
//! A query that the driver does not support returns zero or an empty value; callers that need more reject the device.

use cl3::device::get_device_data;
use cl3::types::{cl_device_id, cl_device_info};

/// Queries of one device.
#[derive(Clone, Copy)]
pub struct Query(pub cl_device_id);

impl Query {
    /// Returns the raw answer.
    pub fn bytes(self, what: cl_device_info) -> Vec<u8> {
        get_device_data(self.0, what).unwrap_or_default()
    }

    /// Returns a string, without terminator and surrounding whitespace.
    pub fn text(self, what: cl_device_info) -> String {
        text(&self.bytes(what))
    }

    /// Returns an unsigned number of 4 or 8 bytes.
    pub fn number(self, what: cl_device_info) -> u64 {
        number(&self.bytes(what))
    }

    /// Returns a number, clamped to 32 bits.
    pub fn small(self, what: cl_device_info) -> u32 {
        u32::try_from(self.number(what)).unwrap_or(u32::MAX)
    }

    /// Returns a boolean.
    pub fn flag(self, what: cl_device_info) -> bool {
        self.number(what) != 0
    }

    /// Returns a list of sizes.
    pub fn sizes(self, what: cl_device_info) -> Vec<u64> {
        self.bytes(what).chunks_exact(size_of::<usize>()).map(number).collect()
    }
}

/// Converts a C string to a trimmed `String`.
pub fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).trim().to_string()
}

fn number(bytes: &[u8]) -> u64 {
    match bytes.len() {
        4 => u32::from_ne_bytes(bytes.try_into().expect("four bytes")).into(),
        8 => u64::from_ne_bytes(bytes.try_into().expect("eight bytes")),
        _ => 0,
    }
}
