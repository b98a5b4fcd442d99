//! Time per element of the functions of `math`, for blocks that fit the L1 cache, compared with a loop over the
//! functions of `std`, which call the C library.
//!
//! `cargo run --release -p panoply-cpu --example math_speed [name]`

#[path = "../tests/it/ulp/blocks.rs"]
mod blocks;

use std::hint::black_box;
use std::time::Instant;

use blocks::Level;

/// Size of a block of the vector machine.
const BLOCK: usize = 512;

fn main() {
    let only = std::env::args().nth(1);
    let wanted = |name: &str| only.as_deref().is_none_or(|only| name == only);
    let levels = Level::available();
    println!("ns per element, blocks of {BLOCK}");
    println!(
        "| function | {} | std |",
        levels.iter().map(|level| format!("{level:?}")).collect::<Vec<_>>().join(" | ")
    );
    let x: Vec<f32> = (0..BLOCK).map(|n| 0.01 + n as f32 * 0.01).collect();
    let mut y = vec![0f32; BLOCK];
    for (name, block) in blocks::unary_f32() {
        if wanted(name) {
            let std = std_f32(name).map(|f| nanoseconds(|| each(f, black_box(&x), black_box(&mut y))));
            row(name, &levels, std, |level| block(level, black_box(&x), black_box(&mut y)));
        }
    }
    for (name, block) in blocks::binary_f32() {
        if wanted(name) {
            let f = if name == "pow" { f32::powf } else { |x: f32, y: f32| x % y };
            let std = nanoseconds(|| each(|x| f(x, x), black_box(&x), black_box(&mut y)));
            row(name, &levels, Some(std), |level| block(level, black_box(&x), black_box(&x), black_box(&mut y)));
        }
    }
    for (name, block) in blocks::ternary_f32() {
        if wanted(name) {
            let run = |level| block(level, black_box(&x), black_box(&x), black_box(&x), black_box(&mut y));
            row(name, &levels, None, run);
        }
    }
    if wanted("rem_near") {
        row("rem_near", &levels, None, |level| {
            blocks::REM_NEAR(level, black_box(&x), black_box(&x), black_box(&mut y))
        });
    }
    let x: Vec<f64> = x.iter().map(|x| *x as f64).collect();
    let mut y = vec![0f64; BLOCK];
    for (name, block) in blocks::unary_f64() {
        if wanted(name) {
            let std = std_f64(name).map(|f| nanoseconds(|| each(f, black_box(&x), black_box(&mut y))));
            row(&format!("{name} f64"), &levels, std, |level| block(level, black_box(&x), black_box(&mut y)));
        }
    }
    for (name, block) in blocks::binary_f64() {
        if wanted(name) {
            let f = if name == "pow" { f64::powf } else { |x: f64, y: f64| x % y };
            let std = nanoseconds(|| each(|x| f(x, x), black_box(&x), black_box(&mut y)));
            let run = |level| block(level, black_box(&x), black_box(&x), black_box(&mut y));
            row(&format!("{name} f64"), &levels, Some(std), run);
        }
    }
    for (name, block) in blocks::ternary_f64() {
        if wanted(name) {
            let name = format!("{name} f64");
            let run = |level| block(level, black_box(&x), black_box(&x), black_box(&x), black_box(&mut y));
            row(&name, &levels, None, run);
        }
    }
}

fn row(name: &str, levels: &[Level], std: Option<f64>, mut run: impl FnMut(Level)) {
    let mut times: Vec<String> = levels.iter().map(|level| format!("{:.2}", nanoseconds(|| run(*level)))).collect();
    times.push(std.map_or("".into(), |time| format!("{time:.2}")));
    println!("| {name} | {} |", times.join(" | "));
}

fn each<T: Copy>(f: impl Fn(T) -> T, x: &[T], y: &mut [T]) {
    for (x, y) in x.iter().zip(y) {
        *y = f(*x);
    }
}

macro_rules! std_functions {
    ($table:ident, $type:ident) => {
        /// Returns the function of `std` with this name, if it calls the C library.
        fn $table(name: &str) -> Option<fn($type) -> $type> {
            Some(match name {
                "exp" => $type::exp,
                "exp2" => $type::exp2,
                "expm1" => $type::exp_m1,
                "ln" => $type::ln,
                "log2" => $type::log2,
                "log1p" => $type::ln_1p,
                "sin" | "sin_near" => $type::sin,
                "cos" | "cos_near" => $type::cos,
                "tan" | "tan_near" => $type::tan,
                "atan" => $type::atan,
                "tanh" => $type::tanh,
                _ => return None,
            })
        }
    };
}

std_functions!(std_f32, f32);
std_functions!(std_f64, f64);

/// Returns the best of several timings, which is the least disturbed one.
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
