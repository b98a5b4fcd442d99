//! Copies and fills at any byte offset.

use panoply_device::{DType, ParamType, Program as DeviceProgram, Result, Signature, SourceText, Type};

use super::open::Open;
use super::program::{Program, build};

/// Number of work-items of a work-group of the program.
pub const GROUP: u64 = 64;

/// Builds the program that copies and fills bytes.
pub fn program(open: &Open) -> Result<Program> {
    let word = ParamType::Scalar(Type::Scalar(DType::U32));
    let buffer = ParamType::Buffer(DType::U32);
    let text = SourceText {
        language: panoply_device::Language::Wgsl,
        source: include_str!("bytes.wgsl").to_string(),
        entry: "bytes".to_string(),
        signature: Signature {
            params: vec![word, word, word, word, word, word, word, buffer, buffer],
            index_bits: 32,
            hidden: false,
        },
    };
    build(open, &DeviceProgram::Text(text), "", &|_| Ok(None))
}

/// Returns the arguments of a copy, for the work-groups from `first_group` on.
pub fn copy(begin: u64, count: u64, source: u64, first_group: u64) -> [u32; 8] {
    [begin as u32, count as u32, source as u32, first_group as u32, 0, 0, 0, 0]
}

/// Returns the arguments of a fill with a pattern of 1, 2, 4 or 8 bytes.
pub fn fill(begin: u64, count: u64, pattern: &[u8], first_group: u64) -> [u32; 8] {
    let eight: Vec<u8> = pattern.iter().copied().cycle().take(8).collect();
    let half = |from: usize| eight[from..from + 4].iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte));
    [begin as u32, count as u32, 0, first_group as u32, 1, half(0), half(4), 0]
}

/// Returns the number of work-groups that cover a region.
pub fn groups(begin: u64, count: u64) -> u64 {
    (begin % 4 + count).div_ceil(4).div_ceil(GROUP)
}
