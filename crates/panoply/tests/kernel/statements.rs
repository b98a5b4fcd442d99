//! Statements: loops, branches, arrays, functions, and what leaves them.

use panoply::kernel::Float;
use panoply::kernel_fn;

const COUNTS: [u32; 5] = [0, 1, 2, 7, 20];

/// Returns from the middle, several times.
#[kernel_fn]
fn sign_of(x: f32) -> i32 {
    if x < 0.0 {
        return -1;
    }
    let positive = x > 0.0;
    if positive {
        if x > 100.0 {
            return 2;
        } else {
            return 1;
        }
    }
    0
}

#[kernel_fn]
fn is_between<T: Float>(x: T, least: T, most: T) -> bool {
    x >= least && x <= most
}

#[kernel_fn]
fn total(values: &[f32], count: usize) -> f32 {
    let mut sum = 0.0;
    for i in 0..count {
        sum += values[i];
    }
    sum
}

#[kernel_fn]
fn double_all(values: &mut [f32]) {
    if values.is_empty() {
        return;
    }
    for i in 0..values.len() {
        values[i] *= 2.0;
    }
}

#[kernel_fn]
fn divided(a: u32, b: u32) -> (u32, u32) {
    if b == 0 {
        return (0, a);
    }
    (a / b, a % b)
}

#[kernel_fn]
fn mean<const N: usize>(mut sum: f32) -> f32 {
    sum /= N as f32;
    sum
}

as_rust! {
    fn counting(n: u32 = COUNTS) -> u32 {
        let mut sum = 0;
        for i in 0..n {
            sum += i * i;
        }
        for i in (1..n).step_by(3) {
            sum = sum.wrapping_mul(31) + i;
        }
        for i in (2..n).rev() {
            sum = sum.wrapping_mul(7) ^ i;
        }
        for i in -3..3 {
            sum = sum.wrapping_add((i * 5) as u32);
        }
        sum
    }

    fn leaving_loops(n: u32 = COUNTS) -> u32 {
        let mut sum = 0;
        let mut i = 0;
        loop {
            i += 1;
            if i > n {
                break;
            }
            if i % 3 == 0 {
                continue;
            }
            for j in 0..i {
                if j == 4 {
                    break;
                }
                if j & 1 == 1 {
                    continue;
                }
                sum += j + i;
            }
        }
        sum
    }

    fn whiles(n: u32 = COUNTS) -> u32 {
        let values = [1, 5, 9, 2, 6];
        let mut turns = 0;
        let mut rest = n;
        while rest > 0 && values[(rest % 5) as usize] != 9 {
            rest -= 1;
            turns += 1;
            if turns == 3 {
                continue;
            }
            turns += 10;
        }
        while turns > 1000 {
            turns /= 2;
        }
        turns
    }

    fn branches(n: u32 = COUNTS) -> u32 {
        let mut state = n;
        if n > 3 {
            state += 1;
        } else if n == 1 {
            state += 100;
            if state > 100 {
                state += 7;
            }
        } else {
            state *= 3;
        }
        if n == 7 {}
        state
    }

    fn compound_assignments(a: u32 = [6, 0xf0f0], b: u32 = [3, 9]) -> u32 {
        let mut x = a;
        x += b;
        x -= 1;
        x *= b;
        x /= 2;
        x %= 1000;
        x <<= 2;
        x >>= 1;
        x |= 0x11;
        x &= 0xfff;
        x ^= b;
        let mut array = [x; 20];
        array[(b as usize) % 3] += 5;
        array[(b as usize) % 3] <<= 1;
        array[19] = array[0] + array[1] + array[2];
        array[19]
    }

    fn shadowing(a: f32 = [1.0, 2.0]) -> f32 {
        let a = a + 1.0;
        let mut b = a;
        {
            let a = a * 10.0;
            let b2 = a;
            b += b2;
        }
        let a = a + b;
        for a in 0..2 {
            b += a as f32;
        }
        a + b
    }

    fn the_authors_names_are_the_authors(value: f32 = [1.0], at: u32 = [1]) -> f32 {
        let emitter = value;
        let new = emitter + 1.0;
        let mut results = [new, value, emitter];
        let (rest, right) = (results[at as usize], at);
        results[right as usize] += rest;
        let first = if results[1] > 1.5 { let count = results[1]; count * count } else { 0.0 };
        results[(right + 1) as usize] = first;
        results[2] + results[1]
    }

    fn calls(x: f32 = [-1.5, 0.0, 3.0, 1000.0, f32::NAN]) -> i32 {
        let inside = is_between(x, 0.0, 10.0) as i32;
        sign_of(x) + 10 * sign_of(-x) + 100 * inside
    }

    fn calls_with_slices(x: f32 = [1.0, -2.0], n: u32 = [0, 2, 3]) -> f32 {
        let mut values = [x, x * x, 0.5];
        let before = total(&values, n as usize);
        double_all(&mut values);
        before + 100.0 * total(&values, 3)
    }

    fn calls_with_several_results(a: u32 = COUNTS, b: u32 = [0, 1, 3]) -> u32 {
        let (quotient, rest) = divided(a, b);
        let (_, again) = divided(quotient + 5, 4);
        quotient * 100 + rest * 10 + again
    }

    fn calls_with_constants(a: f32 = [3.0, -8.0]) -> f32 {
        mean::<4>(a) + mean::<{ 2 + 1 }>(a + 1.0)
    }

    fn calls_that_are_not_wanted(a: f32 = [3.0, -8.0]) -> f32 {
        let _ = sign_of(a);
        sign_of(a);
        a
    }

    fn calls_within_expressions(x: f32 = [3.0, -8.0]) -> f32 {
        let values = [1.0, 2.0];
        mean::<2>(x).abs() + (sign_of(x) as f32 - -1.0) * values[sign_of(x).max(0) as usize] - mean::<4>(if x > 0.0 { 1.0 } else { x * 2.0 })
    }

    fn arrays(a: i32 = [3, -1]) -> i32 {
        let mut sorted = [a, 5, a * a, -2];
        for i in 1..sorted.len() {
            let mut j = i;
            while j > 0 && sorted[j - 1] > sorted[j] {
                let t = sorted[j];
                sorted[j] = sorted[j - 1];
                sorted[j - 1] = t;
                j -= 1;
            }
        }
        let filled = [a; 3];
        sorted[0] + 10 * sorted[1] + 100 * sorted[2] + 1000 * sorted[3] + filled[2]
    }
}
