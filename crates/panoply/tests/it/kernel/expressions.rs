//! Expressions: operators, literals, casts, conditions, blocks, and their order.

#![allow(clippy::bool_comparison, reason = "comparisons of bools are what is tested")]

const THIRD: f32 = 1.0 / 3.0;

const FLOATS: [f32; 8] = [0.0, -0.0, 1.5, -2.25, 7.0, f32::INFINITY, f32::NEG_INFINITY, 1e-40];
const INTS: [i32; 6] = [0, 1, -1, 7, -100, 12345];
const WORDS: [u32; 6] = [0, 1, 2, 31, 0x8000_0000, u32::MAX];

as_rust! {
    fn arithmetic(a: f32 = FLOATS, b: f32 = FLOATS) -> f32 {
        (a + b) * 2.0 - a / (b + 3.0) + -a * THIRD
    }

    fn remainders(a: f32 = [5.5, -5.5, 0.25], b: f32 = [2.0, -3.0]) -> f32 {
        a % b
    }

    fn integers(a: i32 = INTS, b: i32 = [1, 3, -4]) -> i32 {
        a / b * 5 + a % b - (b - 2)
    }

    fn order_of_bools(a: u32 = [0, 1], b: u32 = [0, 1]) -> u32 {
        let (p, q) = (a == 1, b == 1);
        (p < q) as u32 + 2 * (p <= q) as u32 + 4 * (p > q) as u32 + 8 * (p >= q) as u32 + 16 * (p == q) as u32
    }

    fn bit_operators(a: u32 = WORDS, b: u32 = [1, 5, 31]) -> u32 {
        (a << 3) ^ (a >> b) | !b & 0xff
    }

    fn shifts_of_other_types(a: i64 = [-5, 1 << 40], b: u8 = [0, 1, 13]) -> i64 {
        (a << b) ^ (a >> 7usize)
    }

    fn literals_take_the_type_of_their_use(a: f64 = [0.1, 3.0]) -> f64 {
        let mut sum = 0.0;
        let scale = 1e-3;
        for _ in 0..3 {
            sum += a * scale;
        }
        sum + 0.1
    }

    fn a_literal_alone_is_i32_or_f64(a: u32 = [1, 2]) -> f64 {
        let whole = 7;
        let part = 0.1;
        (whole / 2) as f64 + part * a as f64
    }

    fn wide_literals(a: u64 = [1, 3]) -> u64 {
        (a * 0xffff_ffff_ffff - (0xffff_ffff as u64)) ^ -1i8 as u64
    }

    fn casts(a: f32 = [0.0, 2.9, -2.9, 300.0, f32::NAN, 1e20]) -> i32 {
        let byte = a as u8;
        let signed = a as i8;
        let flag = (a > 1.0) as i32;
        byte as i32 * 1000 + signed as i32 + flag + (byte as i8) as i32 + (a as i64 as i16) as i32
    }

    fn positions(a: u32 = WORDS) -> u32 {
        let i = a as usize % 1000;
        let j = i + 2;
        (i * j / 3) as u32
    }

    fn comparisons(a: f32 = [1.0, 2.0, f32::NAN], b: f32 = [1.0, 2.0, f32::NAN]) -> u32 {
        (a < b) as u32 | ((a <= b) as u32) << 1 | ((a > b) as u32) << 2 | ((a >= b) as u32) << 3 | ((a == b) as u32) << 4
            | ((a != b) as u32) << 5
    }

    fn logic(a: i32 = INTS, b: i32 = INTS) -> i32 {
        let both = a > 0 && b > 0;
        let either = a > 0 || b > 0;
        let neither = !(either);
        (both as i32) + 2 * (either as i32) + 4 * (neither & !both) as i32 + 8 * (both ^ either) as i32
    }

    fn short_circuits(a: i32 = INTS, b: i32 = INTS) -> i32 {
        let values = [3, 1, 4, 1, 5, 9];
        let mut calls = 0;
        if a != 0 && { calls += 1; b / a > 1 } || values[(a & 3) as usize] == 4 { calls + 10 } else { calls }
    }

    fn choices(a: f32 = FLOATS) -> f32 {
        let small = if a < 1.0 { a } else { 1.0 };
        let stepped = if a < 0.0 {
            let half = a / 2.0;
            half * half
        } else if a == 1.5 {
            let mut power = a;
            power *= power;
            power
        } else {
            small
        };
        small + stepped
    }

    fn blocks(a: i32 = INTS) -> i32 {
        let twice = {
            let once = a.wrapping_mul(3);
            once + 1
        };
        let a = twice - 1;
        a * { let a = 2; a }
    }

    fn earlier_operands_keep_their_value(a: i32 = INTS) -> i32 {
        let mut x = a;
        let memory = [a, 2];
        let mut changing = [1, 1];
        let sum = x + { x += 10; x } * 2 + memory[0];
        let other = changing[0] - { changing[0] = 50; changing[0] };
        sum * 100 + other
    }

    fn tuples(a: f32 = FLOATS, b: f32 = [1.0, 2.5]) -> f32 {
        let (small, large) = if a < b { (a, b) } else { (b, a) };
        let (mut sum, _, product) = (small + large, 1, small * large);
        sum += 1.0;
        let (product, sum) = (sum, product);
        sum - product
    }

    fn constants(a: f32 = [1.0, -3.0]) -> f32 {
        const SCALE: f32 = 0.5;
        use std::f32::consts::PI;
        const WIDTH: usize = 4;
        let table = [SCALE; WIDTH];
        a * PI * table[WIDTH - 1] + f32::MAX.min(1.0) * f32::from_bits(0x3f80_0000) + f32::EPSILON
    }

    fn truth(a: i32 = INTS) -> i32 {
        let always = true;
        let never = false;
        let flag = if a > 0 { always } else { never };
        if flag != (a > 5) { 1 } else { b'x' as i32 }
    }

    fn small_integers(a: i32 = INTS, b: i32 = [1, 100]) -> i32 {
        let x = a as i8;
        let y = b as u8;
        let z = (a as u16) / 3;
        x.wrapping_mul(5) as i32 + y.wrapping_add(200) as i32 + (z as i16 >> 2) as i32
    }
}
