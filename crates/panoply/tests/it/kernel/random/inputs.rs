//! Arguments of the random kernel functions, and the comparison of device and rustc results.

use panoply::{Backend, Device, Element, Result, bf16, f16};

/// Values that a kernel stored and values of rustc's functions, or `None` if the device lacks a type.
pub type Ran = Result<Option<(Vec<u64>, Vec<u64>)>>;

/// Runs a kernel over a number of rows.
pub type Run = fn(&Device, usize) -> Ran;

/// Number of work-items of a launch.
const ROWS: usize = 96;

/// A type of arguments.
pub trait Input: Element {
    /// Returns a value made from random bits.
    fn of(bits: u64) -> Self;
}

macro_rules! integers {
    ($($ty:ident)*) => {$(
        impl Input for $ty {
            fn of(bits: u64) -> Self {
                match bits % 8 {
                    0 => $ty::MIN,
                    1 => $ty::MAX,
                    2 | 3 => (bits >> 8) as $ty % 16,
                    _ => (bits >> 8) as $ty,
                }
            }
        }
    )*};
}

macro_rules! floats {
    ($($ty:ident $bits:ident $of:expr;)*) => {$(
        impl Input for $ty {
            fn of(bits: u64) -> Self {
                let of: fn(f64) -> $ty = $of;
                let small = (bits >> 16) % 4001;
                match bits % 16 {
                    0 => $ty::NAN,
                    1 => $ty::INFINITY,
                    2 => of(-0.0),
                    3..=5 => $ty::from_bits((bits >> 8) as $bits),
                    _ => of(small as f64 / 64.0 - 20.0),
                }
            }
        }
    )*};
}

integers! { i8 i16 i32 i64 u8 u16 u32 u64 }

floats! {
    f32 u32 |x| x as f32;
    f64 u64 |x| x;
    f16 u16 f16::from_f64;
    bf16 u16 bf16::from_f64;
}

/// Returns random values, including the ends of the range (SplitMix64).
pub fn some<T: Input>(rows: usize, seed: usize) -> Vec<T> {
    let mut state = seed as u64;
    let next = |_| {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        T::of(z ^ (z >> 31))
    };
    (0..rows).map(next).collect()
}

/// Describes differences between a device and rustc: at most one line for each kernel.
pub fn differences(device: &Device, all: &[Run]) -> Vec<String> {
    let mut lines = Vec::new();
    for (kernel, run) in all.iter().enumerate() {
        match run(device, ROWS) {
            Ok(None) => {}
            Ok(Some((have, want))) => {
                // WGSL allows an implementation to ignore the sign of zero; Mesa replaces x + 0.0 by x.
                let zeros = |at: usize| have[at] | want[at] == 1 << 63 && device.info().kind == Backend::Vulkan;
                let differs = |at: &usize| have[*at] != want[*at] && !zeros(*at);
                let Some(at) = (0..want.len()).find(differs) else { continue };
                let functions = want.len() / ROWS;
                let (function, row) = (at % functions, at / functions);
                let count = (0..want.len()).filter(differs).count();
                lines.push(format!(
                    "{device}: f_{kernel}_{function}, row {row}: {:#x}, rustc {:#x}; {count} differ",
                    have[at], want[at]
                ));
            }
            Err(error) => lines.push(format!("{device}: kernel_{kernel}: {error}")),
        }
    }
    lines
}
