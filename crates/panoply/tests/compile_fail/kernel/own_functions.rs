//! Functions of the author with the name of a language function or of a method of numbers.

use panoply::kernel::Float;
use panoply::prelude::*;

fn minimum(a: f32, _: f32) -> f32 {
    a
}

mod own {
    pub fn erf(x: f32) -> f32 {
        x
    }
    pub mod kernel {
        pub fn select(a: bool, _: f32, _: f32) -> f32 {
            a as u32 as f32
        }
    }
}

#[kernel_fn]
fn maximum(a: f32, b: f32) -> f32 {
    if a.abs() > b.abs() { a } else { b }
}

#[kernel_fn]
fn of_a_named_trait<T: Float>(x: T) -> T {
    Float::max(x, x)
}

#[kernel_fn]
fn of_a_qualified_type(x: u8) -> f32 {
    <u8 as Into<f32>>::into(x)
}

#[kernel_fn]
fn by_its_bare_name(x: f32) -> f32 {
    minimum(x, 1.5)
}

#[kernel_fn]
fn by_an_import(x: f32) -> f32 {
    use own::erf;
    erf(x)
}

#[kernel_fn]
fn by_the_import_of_all(x: f32) -> f32 {
    let y = {
        use own::*;
        erf(x)
    };
    y
}

#[kernel_fn]
fn by_a_path(x: f32) -> f32 {
    own::kernel::select(true, x, x)
}

fn main() {}
