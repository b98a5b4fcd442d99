//! Fused operations, cached values, and loops that compute more lanes than are active, against the interpreter: every
//! byte must be equal.

use crate::support::differential;

use differential::{CaseArg, check, of};
use panoply_ir::kernel::Kernel;
use panoply_ir::text::parse;
use panoply_ir::{DType, Scalar};

/// Sizes around the lengths of vectors and blocks.
const SIZES: [u64; 6] = [1, 15, 33, 100, 513, 1500];

fn kernel(text: &str) -> Kernel {
    parse(text).expect("the test's kernel is text")
}

fn floats(n: u64, seed: f64) -> Vec<f64> {
    (0..n).map(|i| (i as f64 * 0.37 + seed).sin() * 3.0).collect()
}

#[test]
fn fused_pairs_round_each_operation() {
    let text = "kernel pairs(a: f32, x: &[f32], y: &[f32], z: &mut [f32]) {
        let i: index = global_id.x
        let mut s: f32 = x[i]
        s = add(s, mul(x[i], y[i]))
        s = add(mul(s, y[i]), x[i])
        s = add(mul(s, y[i]), a)
        s = sub(s, mul(a, x[i]))
        s = sub(mul(a, s), y[i])
        s = add(add(s, x[i]), y[i])
        s = add(add(x[i], a), s)
        s = add(sub(x[i], s), y[i])
        s = add(a, sub(a, s))
        s = add(mul(s, s), s)
        if lt(x[i], y[i]) {
            s = add(s, mul(y[i], y[i]))
            s = sub(a, mul(s, x[i]))
        }
        z[i] = add(z[i], mul(s, a))
        z[i] = add(mul(z[i], x[i]), a)
    }";
    for n in SIZES {
        let [x, y, z] = [0.1, 0.7, 1.9].map(|seed| floats(n, seed));
        let [x32, y32, z32] = [&x, &y, &z].map(|of| of.iter().map(|x| *x as f32).collect::<Vec<f32>>());
        check(kernel(text), [n, 1, 1], &[CaseArg::Scalar(1.3_f32.into()), of(&x32), of(&y32), of(&z32)]);
        let wide = text.replace("f32", "f64");
        check(kernel(&wide), [n, 1, 1], &[CaseArg::Scalar(1.3_f64.into()), of(&x), of(&y), of(&z)]);
    }
}

#[test]
fn wide_products_and_upper_halves() {
    let text = "kernel halves(k: u32, x: &[u32], y: &[u64], z: &mut [u32]) {
        let i: index = global_id.x
        let product: u64 = mul(cast<u64>(x[i]), 3528531795u64)
        let other: u64 = mul(cast<u64>(x[i]), cast<u64>(z[i]))
        let long: u64 = mul(y[i], 4294967296u64)
        z[i] = xor(xor(cast<u32>(shr(product, 32u64)), cast<u32>(product)), k)
        z[i] = xor(cast<u32>(shr(other, 32u64)), xor(z[i], cast<u32>(shr(long, 31u64))))
        z[i] = add(z[i], cast<u32>(shr(y[i], 32u64)))
    }";
    for n in SIZES {
        let bits = |i: u64, by: u64| (i + 1).wrapping_mul(by);
        let x: Vec<u32> = (0..n).map(|i| bits(i, 0x9e37_79b9) as u32).collect();
        let y: Vec<u64> = (0..n).map(|i| bits(i, 0x9e37_79b9_7f4a_7c15)).collect();
        check(kernel(text), [n, 1, 1], &[CaseArg::Scalar(77_u32.into()), of(&x), of(&y), of(&x)]);
    }
}

#[test]
fn cached_values_are_invalidated_by_statements() {
    let text = "kernel values(x: &mut [f32], y: &mut [f32]) {
        let i: index = global_id.x
        let mut s: f32 = x[i]
        let before: f32 = add(s, x[i])
        if lt(x[i], 0.5f32) {
            x[i] = mul(s, s)
            s = add(s, x[i])
        } else {
            s = add(s, mul(x[i], 0.25f32))
        }
        y[i] = add(x[i], add(s, before))
        let mut iterations: u32 = 0u32
        while and(lt(mul(s, s), 50.0f32), lt(iterations, 9u32)) {
            y[i] = add(y[i], mul(s, s))
            s = add(mul(s, s), 0.3f32)
            if lt(mul(s, s), 2.0f32) {
                y[i] = mul(y[i], s)
                continue
            }
            iterations = add(iterations, 1u32)
            y[i] = add(y[i], x[i])
        }
        x[i] = add(x[i], add(mul(s, s), y[i]))
    }";
    for n in SIZES {
        let [x, y] = [0.3, 1.1].map(|seed| floats(n, seed).iter().map(|x| *x as f32).collect::<Vec<f32>>());
        check(kernel(text), [n, 1, 1], &[of(&x), of(&y)]);
    }
}

#[test]
fn conditions_with_uniform_terms() {
    let text = "kernel parts(n: u32, m: index, x: &[f32], y: &mut [f32]) {
        let i: index = global_id.x
        if and(and(lt(n, 3u32), lt(0.0f32, x[i])), and(lt(i, m), lt(x[i], 2.0f32))) {
            y[i] = add(y[i], x[i])
        } else {
            y[i] = select(lt(i, m), y[i], mul(y[i], x[i]))
        }
        if lt(n, 2u32) {
            if eq(i, m) {
                return
            }
        }
        y[i] = add(y[i], select(ne(i, m), 1.0f32, 2.0f32))
    }";
    for n in SIZES {
        let [x, y] = [0.3, 1.1].map(|seed| floats(n, seed).iter().map(|x| *x as f32).collect::<Vec<f32>>());
        for few in [1_u32, 2, 5] {
            for m in [0, 1, n / 2, n - 1, n, 2 * n] {
                let given = [CaseArg::Scalar(few.into()), CaseArg::Index(m), of(&x), of(&y)];
                check(kernel(text), [n, 1, 1], &given);
            }
        }
    }
}

/// One or both operands of a comparison may be uniform; comparisons with NaN are false.
#[test]
fn comparisons_fused_with_bools() {
    let text = "kernel comparisons(a: T, x: &[T], y: &[T], z: &mut [T]) {
        let i: index = global_id.x
        let near: bool = lt(x[i], y[i])
        z[i] = select(and(near, le(a, y[i])), x[i], z[i])
        z[i] = select(and(lt(y[i], a), near), y[i], z[i])
        z[i] = select(and(and(near, le(x[i], a)), lt(z[i], y[i])), a, z[i])
        if and(and(ne(x[i], a), le(z[i], y[i])), lt(x[i], z[i])) {
            z[i] = add(z[i], z[i])
        }
        if and(lt(x[i], z[i]), not(le(z[i], a))) {
            z[i] = sub(z[i], x[i])
        }
        let mut iterations: u32 = 0u32
        while and(lt(z[i], y[i]), lt(iterations, 5u32)) {
            z[i] = add(z[i], a)
            iterations = add(iterations, 1u32)
        }
    }";
    for n in SIZES {
        let mut values = [0.1, 0.7, 1.9].map(|seed| floats(n, seed));
        values[0][n as usize / 2] = f64::NAN;
        for dtype in [DType::F32, DType::F64, DType::I32, DType::U32, DType::I64, DType::U8, DType::F16] {
            let scalar = |x: &f64| Scalar::from_f64(dtype, if dtype.is_int() { (x * 9.0).abs() } else { *x });
            let [x, y, z] = values.each_ref().map(|values| of(&values.iter().map(scalar).collect::<Vec<Scalar>>()));
            check(kernel(&text.replace('T', &dtype.to_string())), [n, 1, 1], &[CaseArg::Scalar(scalar(&0.5)), x, y, z]);
        }
    }
}

/// Tiles read by rows and written by columns, complete and at partial edges, with every element width.
#[test]
fn tiles_of_every_shape() {
    for [w, h] in [[16_u64, 16], [32, 4], [8, 8], [1, 16], [3, 5]] {
        for dtype in ["u8", "u16", "f32", "f64"] {
            let text = format!(
                "kernel tiles(x: &[{dtype}], y: &mut [{dtype}], width: index, height: index) group({w}, {h}, 1) {{
                    shared tile: [{dtype}; {}]
                    if and(lt(global_id.x, width), lt(global_id.y, height)) {{
                        tile[add(mul(local_id.y, {}), local_id.x)] = x[add(mul(global_id.y, width), global_id.x)]
                    }}
                    barrier()
                    let own: {dtype} = tile[add(mul(local_id.y, {}), local_id.x)]
                    if and(lt(global_id.x, width), lt(global_id.y, height)) {{
                        y[add(mul(global_id.x, height), global_id.y)] = own
                        y[add(mul(width, height), mul(add(mul(global_id.y, width), global_id.x), 2))] = tile[mul(local_id.y, {})]
                    }}
                }}",
                (w + 1) * h,
                w + 1,
                w + 1,
                w + 1,
            );
            let parsed = kernel(&text);
            let dtype = parsed.mems[0].dtype;
            for [width, height] in [[w, h], [2 * w, 3 * h], [2 * w + 1, 2 * h + 1]] {
                let n = width * height;
                let values = |n: u64| (0..n).map(|i| Scalar::from_f64(dtype, (i % 97) as f64)).collect::<Vec<Scalar>>();
                let given = [of(&values(n)), of(&values(3 * n)), CaseArg::Index(width), CaseArg::Index(height)];
                check(parsed.clone(), [width, height, 1], &given);
            }
        }
    }
}
