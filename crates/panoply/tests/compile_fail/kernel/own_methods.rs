//! Methods and associated functions with the name of a method of Rust's numbers.

use panoply::kernel::Number;
use panoply::prelude::*;

struct Tropical;

impl Tropical {
    fn max(a: f32, b: f32) -> f32 {
        a * 100.0 + b
    }
}

trait Level {
    fn to_f32(self) -> f32;
    fn from_bits(bits: u32) -> Self;
    fn max(self, other: f32) -> f32;
}

impl Level for u8 {
    fn to_f32(self) -> f32 {
        self as f32 / 255.0
    }
    fn from_bits(bits: u32) -> Self {
        bits as u8 ^ 1
    }
    fn max(self, _: f32) -> f32 {
        0.0
    }
}

#[kernel_fn]
fn of_a_type(x: f32) -> f32 {
    Tropical::max(x, 1.5)
}

#[kernel_fn]
fn of_a_trait(x: u8) -> f32 {
    x.to_f32() + u8::from_bits(3) as f32
}

#[kernel_fn]
fn of_a_bound<T: Number + Level>(x: T) -> f32 {
    x.max(1.5)
}

fn main() {}
