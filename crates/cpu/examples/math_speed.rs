//! How long the functions of `math` take per element, for blocks that stay in the first-level cache.
//!
//! `cargo run --release -p panoply-cpu --example math_speed [name]`

#[path = "../tests/support/blocks.rs"]
mod blocks;

use std::hint::black_box;
use std::time::Instant;

use blocks::Level;

/// What the vector machine computes at a time.
const BLOCK: usize = 512;

fn main() {
    let only = std::env::args().nth(1);
    let wanted = |name: &str| only.as_deref().is_none_or(|only| name == only);
    let levels = Level::available();
    println!("ns per element, blocks of {BLOCK}");
    println!("| function | {} |", levels.iter().map(|level| format!("{level:?}")).collect::<Vec<_>>().join(" | "));
    let x: Vec<f32> = (0..BLOCK).map(|n| 0.01 + n as f32 * 0.01).collect();
    let mut y = vec![0f32; BLOCK];
    for (name, block) in blocks::unary_f32() {
        if wanted(name) {
            row(name, &levels, |level| block(level, black_box(&x), black_box(&mut y)));
        }
    }
    for (name, block) in blocks::binary_f32() {
        if wanted(name) {
            row(name, &levels, |level| block(level, black_box(&x), black_box(&x), black_box(&mut y)));
        }
    }
    for (name, block) in blocks::ternary_f32() {
        if wanted(name) {
            row(name, &levels, |level| block(level, black_box(&x), black_box(&x), black_box(&x), black_box(&mut y)));
        }
    }
    if wanted("rem_near") {
        row("rem_near", &levels, |level| blocks::REM_NEAR(level, black_box(&x), black_box(&x), black_box(&mut y)));
    }
    let x: Vec<f64> = x.iter().map(|x| *x as f64).collect();
    let mut y = vec![0f64; BLOCK];
    for (name, block) in blocks::unary_f64() {
        if wanted(name) {
            row(&format!("{name} f64"), &levels, |level| block(level, black_box(&x), black_box(&mut y)));
        }
    }
    for (name, block) in blocks::binary_f64() {
        if wanted(name) {
            row(&format!("{name} f64"), &levels, |level| block(level, black_box(&x), black_box(&x), black_box(&mut y)));
        }
    }
    for (name, block) in blocks::ternary_f64() {
        if wanted(name) {
            let name = format!("{name} f64");
            row(&name, &levels, |level| block(level, black_box(&x), black_box(&x), black_box(&x), black_box(&mut y)));
        }
    }
}

fn row(name: &str, levels: &[Level], mut run: impl FnMut(Level)) {
    let times: Vec<String> = levels.iter().map(|level| format!("{:.3}", nanoseconds(|| run(*level)))).collect();
    println!("| {name} | {} |", times.join(" | "));
}

/// The best of several timings, which is the one nothing interrupted.
fn nanoseconds(mut run: impl FnMut()) -> f64 {
    const RUNS: usize = 500;
    let mut best = f64::INFINITY;
    for _ in 0..15 {
        let start = Instant::now();
        for _ in 0..RUNS {
            run();
        }
        best = best.min(start.elapsed().as_nanos() as f64 / (RUNS * BLOCK) as f64);
    }
    best
}
