//! Statements: loops, branches, arrays, function calls, and early exits.

use panoply::kernel::Float;
use panoply::kernel_fn;

const COUNTS: [u32; 5] = [0, 1, 2, 7, 20];

/// Has several early returns.
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

    fn steps_beyond_unsigned_counters(n: u8 = [0, 10, 250, 255], s: u64 = [1, 44, 255, 256, 300, 65535, 65536, 1 << 32, u64::MAX]) -> u64 {
        let mut sum = 7u64;
        for i in (0..n).step_by(s as usize) {
            sum = sum.wrapping_mul(31) ^ i as u64;
        }
        for i in (3..n as u16 * 250).step_by((s as usize).max(1000)) {
            sum = sum.wrapping_mul(31) ^ i as u64;
        }
        for i in (n as u32..u32::MAX).step_by((s as usize).max(1 << 30)) {
            sum = sum.wrapping_mul(31) ^ i as u64;
        }
        for i in (n as u64..u64::MAX - 5).step_by((s as usize).max(1 << 62)) {
            sum = sum.wrapping_mul(31) ^ i;
        }
        for i in (5..n as usize).step_by(s as usize) {
            sum = sum.wrapping_mul(31) ^ i as u64;
        }
        sum
    }

    fn steps_beyond_signed_counters(
        a: i8 = [-128, -100, 0, 126, 127],
        b: i8 = [-128, -28, 0, 100, 127],
        s: u64 = [1, 127, 128, 200, 255, 256, 300, 65536, 1 << 32, 1 << 63, u64::MAX]
    ) -> i64 {
        let mut sum = 7i64;
        for i in (a..b).step_by(s as usize) {
            sum = sum.wrapping_mul(31) ^ i as i64;
        }
        let wide = a as i16 * 256;
        for i in (wide..b as i16 * 256).step_by((s as usize).max(9000)) {
            sum = sum.wrapping_mul(31) ^ i as i64;
        }
        for i in (i32::MIN + a.abs_diff(3) as i32..i32::MAX).step_by((s as usize).max(1 << 31)) {
            sum = sum.wrapping_mul(31) ^ i as i64;
        }
        for i in (i64::MIN..b as i64).step_by((s as usize).max(1 << 63)) {
            sum = sum.wrapping_mul(31) ^ i;
        }
        for i in (-100i8..b).step_by(200) {
            sum = sum.wrapping_mul(31) ^ i as i64;
        }
        for i in (a..100).step_by(50) {
            sum = sum.wrapping_mul(31) ^ i as i64;
        }
        sum
    }

    fn returns_on_some_paths(a: u32 = [0, 1, 2, 3], b: u32 = [0, 1], c: u32 = [0, 1]) -> u32 {
        let mut sum = a;
        if a == 0 {
            return 10;
        } else if b == 1 {
            if c == 1 {
                return 20 + a;
            }
            sum += 100;
        }
        let more = if a == 2 {
            if b == 0 {
                return 30;
            }
            sum * 7
        } else {
            sum + 1
        };
        {
            if more == 4 && c == 0 {
                return 40;
            }
        }
        sum + more
    }

    fn returns_in_all_branches(a: u32 = [0, 1, 2], b: u32 = [0, 1], c: u32 = [0, 1]) -> u32 {
        if a == 1 {
            return 1;
        } else if b == 1 {
            if c == 1 {
                return 2;
            }
            return 3;
        }
        let rest = a * 10;
        rest + b + c
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

    fn identifiers_of_the_author_do_not_clash_with_generated_ones(value: f32 = [1.0], at: u32 = [1]) -> f32 {
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

    fn calls_with_unused_results(a: f32 = [3.0, -8.0]) -> f32 {
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

/// Programs with one condition for each number.
macro_rules! long {
    ($($number:literal)*) => {
        as_rust! {
            fn long_chain(k: u32 = [0, 1, 15, 16, 17, 31, 32, 33, 100, 199, 200, 5000]) -> u32 {
                let mut result = k;
                if k == 1000 {
                    result = 1;
                } $(else if k == $number {
                    result += $number * 3;
                })* else {
                    result = 7;
                }
                result
            }

            fn long_chain_without_an_end(k: u32 = [0, 1, 15, 16, 17, 199, 200, 5000]) -> u32 {
                let mut result = k;
                if k == 1000 {} $(else if k == $number {
                    result = result * 2 + 1;
                })*
                result
            }

            fn long_chain_of_cheap_values(k: u32 = [0, 1, 15, 16, 17, 183, 184, 199, 200, 5000]) -> u32 {
                let value = if k == 1000 { 1 } $(else if k == $number { $number * 5 + 1 })* else { k };
                value + 1
            }

            fn long_chain_of_values(k: u32 = [0, 1, 15, 16, 17, 183, 199, 200, 5000]) -> u32 {
                let (value, other) = if k == 1000 { (1, k) } $(else if k == $number { (k / 3, $number) })* else { (k, k) };
                value * 1000 + other
            }

            fn many_guards(k: u32 = [0, 1, 15, 16, 17, 100, 199, 200, 5000]) -> u32 {
                let mut seen = 0;
                $(
                    if k == $number {
                        return seen * 7;
                    }
                    seen += 2;
                )*
                seen
            }

            fn long_chain_that_returns(k: u32 = [0, 1, 15, 16, 17, 100, 199, 200, 5000]) -> u32 {
                if k == 1000 {
                    return 3;
                } $(else if k == $number {
                    return $number + 9;
                })*
                k
            }
        }
    };
}

two_hundred!(long);
