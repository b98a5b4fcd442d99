//! Graphs whose plans must give the graph interpreter's values.

use panoply_ir::DType;
use panoply_ir::alu::{Alu, Math};
use panoply_ir::reduce::ReduceOp;

use crate::plan::build::Build;
use crate::plan::execute::check;

macro_rules! graphs {
    ($($name:ident |$b:ident| $body:block)*) => {$(
        #[test]
        fn $name() {
            let mut $b = Build::default();
            let outputs = $body;
            check(stringify!($name), &$b.done(&outputs));
        }
    )*};
}

graphs! {
    reshape_not_expressible_by_strides |b| {
        let x = b.f32(&[4, 6]);
        let y = b.permute(x, &[1, 0]);
        let y = b.reshape(y, &[3, 8]);
        let y = b.permute(y, &[1, 0]);
        let y = b.reshape(y, &[2, 12]);
        let y = b.alu(Alu::Neg, &[y]);
        [y]
    }
    tiled_transposes |b| {
        let x = b.f32(&[19, 33]);
        let y = b.permute(x, &[1, 0]);
        let y = b.alu(Alu::Neg, &[y]);
        let z = b.f32(&[3, 32, 16]);
        let moved = b.permute(z, &[2, 0, 1]);
        let w = b.alu(Alu::Abs, &[moved]);
        [y, w]
    }
    more_slices_of_one_array_than_can_be_bound |b| {
        let x = b.f32(&[221]);
        let slices: Vec<_> = (0..220).map(|start| b.slice(x, &[(start, 1, 2)])).collect();
        let sum = slices.into_iter().reduce(|sum, one| b.alu(Alu::Add, &[sum, one])).expect("the list is not empty");
        [sum]
    }
    padding_around_everything |b| {
        let (x, y) = (b.f32(&[3, 4]), b.f32(&[3, 5]));
        let x = b.pad(x, &[(0, 0), (0, 5)]);
        let y = b.pad(y, &[(0, 0), (4, 0)]);
        let joined = b.alu(Alu::Add, &[x, y]);
        let nested = b.pad(joined, &[(2, 1), (1, 1)]);
        let nested = b.reshape(nested, &[66]);
        let nested = b.pad(nested, &[(3, 3)]);
        let nested = b.reshape(nested, &[8, 9]);
        let sum = b.sum(nested, &[1]);
        [joined, nested, sum]
    }
    padded_value_with_two_users |b| {
        let x = b.f32(&[6]);
        let e = b.alu(Alu::Math(Math::Exp), &[x]);
        let p = b.pad(e, &[(2, 2)]);
        let left = b.slice(p, &[(0, 1, 8)]);
        let right = b.slice(p, &[(2, 1, 8)]);
        let y = b.alu(Alu::Add, &[left, right]);
        let z = b.alu(Alu::Mul, &[left, left]);
        [y, z]
    }
    flipped_and_strided |b| {
        let x = b.f32(&[7, 5]);
        let y = b.slice(x, &[(6, -3, 3), (1, 2, 2)]);
        let z = b.slice(x, &[(0, 2, 3), (4, -1, 2)]);
        let y = b.alu(Alu::Sub, &[y, z]);
        [y]
    }
    iota_and_slots |b| {
        let (n, s) = (b.iota(9), b.slot(0, DType::F32));
        let t = b.slot(1, DType::F32);
        let x = b.cast(n, DType::F32);
        let (s, t) = (b.spread(s, &[9]), b.spread(t, &[9]));
        let y = b.alu(Alu::Fma, &[x, s, t]);
        [y, n]
    }
    constant_outputs |b| {
        let x = b.f32(&[3, 2]);
        let c = b.like(x, 2.5);
        let one = b.like(x, 1.0);
        let same = b.alu(Alu::Mul, &[x, one]);
        let y = b.alu(Alu::Add, &[same, c]);
        [c, y]
    }
    reductions_with_every_operation |b| {
        let x = b.f32(&[5, 60]);
        let n = b.leaf(&[5, 60], DType::I32);
        let mut outputs = Vec::new();
        for op in ReduceOp::ALL {
            outputs.push(b.reduce(op, x, &[1]));
            outputs.push(b.reduce(op, n, &[0]));
        }
        outputs
    }
    narrow_floats_accumulate_wide |b| {
        let x = b.leaf(&[3, 200], DType::F16);
        let y = b.leaf(&[3, 200], DType::BF16);
        let (sx, sy) = (b.sum(x, &[1]), b.sum(y, &[0, 1]));
        let cx = b.scan(ReduceOp::Sum, x, 1);
        [sx, sy, cx]
    }
    reductions_over_outer_and_inner_axes |b| {
        let x = b.f32(&[3, 4, 5, 6]);
        let p = b.permute(x, &[2, 0, 3, 1]);
        [&[0, 2][..], &[1, 3], &[0], &[3], &[1, 2, 3]].map(|axes| b.sum(p, axes))
    }
    split_reductions |b| {
        let x = b.f32(&[33_001]);
        let h = b.leaf(&[2, 5000, 3], DType::F16);
        let (total, largest) = (b.sum(x, &[0]), b.reduce(ReduceOp::Max, x, &[0]));
        let columns = b.sum(h, &[1]);
        let both = b.sum(h, &[0, 1]);
        [total, largest, columns, both]
    }
    long_rows_with_a_tail |b| {
        let x = b.f32(&[2, 1111]);
        let y = b.softmax(x, 1);
        [y]
    }
    rows_of_two_axes |b| {
        let x = b.f32(&[6, 4, 3, 70]);
        let m = b.sum(x, &[1, 3]);
        let y = b.with(Alu::Sub, x, m);
        [y]
    }
    batch_normalization |b| {
        let x = b.f32(&[4, 6, 3, 5]);
        let m = b.sum(x, &[0, 2, 3]);
        let centered = b.with(Alu::Sub, x, m);
        let square = b.alu(Alu::Mul, &[centered, centered]);
        let v = b.sum(square, &[0, 2, 3]);
        let y = b.with(Alu::Div, centered, v);
        [y, m, v]
    }
    reduction_of_a_reduction |b| {
        let x = b.f32(&[8, 9, 10]);
        let y = b.sum(x, &[2]);
        let e = b.alu(Alu::Math(Math::Exp), &[y]);
        let z = b.reduce(ReduceOp::Max, e, &[1]);
        let w = b.sum(z, &[0]);
        [w]
    }
    reduction_used_at_reversed_rows |b| {
        let x = b.f32(&[8, 9]);
        let m = b.sum(x, &[1]);
        let flipped = b.slice(m, &[(7, -1, 8), (0, 1, 1)]);
        let both = b.alu(Alu::Mul, &[m, flipped]);
        let y = b.with(Alu::Add, x, both);
        [y]
    }
    scans |b| {
        let x = b.f32(&[3, 20, 4]);
        let outputs = [0, 1, 2].map(|axis| b.scan(ReduceOp::Sum, x, axis));
        let e = b.alu(Alu::Abs, &[x]);
        let top = b.scan(ReduceOp::Max, e, 1);
        let y = b.alu(Alu::Sub, &[top, x]);
        outputs.into_iter().chain([y, top]).collect::<Vec<_>>()
    }
    products |b| {
        let (x, y) = (b.f32(&[2, 3, 5, 7]), b.f32(&[1, 3, 7, 4]));
        let y = b.expand(y, &[2, 3, 7, 4]);
        let z = b.matmul(x, y);
        let xt = b.permute(x, &[0, 1, 3, 2]);
        let w = b.matmul(xt, z);
        [z, w]
    }
    products_of_computed_and_sliced_operands |b| {
        let (x, y) = (b.f32(&[6, 8]), b.f32(&[9, 5]));
        let x = b.alu(Alu::Math(Math::Exp), &[x]);
        let y = b.slice(y, &[(8, -1, 8), (1, 2, 2)]);
        let z = b.matmul(x, y);
        let p = b.pad(x, &[(1, 0), (0, 0)]);
        let w = b.matmul(p, y);
        [z, w, x]
    }
    products_of_narrow_floats |b| {
        let (x, y) = (b.leaf(&[4, 30], DType::BF16), b.leaf(&[30, 5], DType::BF16));
        let z = b.matmul(x, y);
        [z]
    }
    products_in_tiles |b| {
        let (x, w, bias) = (b.f32(&[36, 17]), b.f32(&[33, 17]), b.f32(&[1, 33]));
        let wt = b.permute(w, &[1, 0]);
        let y = b.matmul(x, wt);
        let y = b.with(Alu::Add, y, bias);
        let zero = b.like(y, 0.0);
        let y = b.alu(Alu::Max, &[y, zero]);
        let (p, q) = (b.f32(&[2, 32, 16]), b.f32(&[2, 16, 64]));
        let z = b.matmul(p, q);
        let (s, t) = (b.leaf(&[33, 17], DType::F16), b.leaf(&[17, 32], DType::F16));
        let v = b.matmul(s, t);
        let padded = b.pad(p, &[(0, 0), (1, 2), (0, 0)]);
        let u = b.matmul(padded, q);
        let (m, n) = (b.matmul(x, wt), b.matmul(x, wt));
        let both = b.alu(Alu::Sub, &[m, n]);
        let (several, shared) = (b.f32(&[5, 7, 17]), b.f32(&[17, 18]));
        let flat = b.reshape(shared, &[1, 17, 18]);
        let flat = b.expand(flat, &[5, 17, 18]);
        let rows = b.matmul(several, flat);
        let (grid, deep) = (b.f32(&[20, 4, 6]), b.f32(&[4, 6, 19]));
        let transposed = b.permute(grid, &[0, 2, 1]);
        let transposed = b.reshape(transposed, &[20, 24]);
        let deep = b.permute(deep, &[1, 0, 2]);
        let deep = b.reshape(deep, &[24, 19]);
        let steps = b.matmul(transposed, deep);
        let (f, g) = (b.leaf(&[36, 17], DType::F64), b.leaf(&[17, 33], DType::F64));
        let doubles = b.matmul(f, g);
        [y, z, v, u, both, rows, steps, doubles]
    }
    product_with_a_broadcast_constant |b| {
        let x = b.f32(&[4, 6]);
        let c = b.like(x, 0.5);
        let ct = b.permute(c, &[1, 0]);
        let z = b.matmul(x, ct);
        [z]
    }
    gathers |b| {
        let (x, at) = (b.f32(&[5, 6, 3]), b.leaf(&[2, 4], DType::I32));
        let first = b.gather(x, at, 0);
        let e = b.alu(Alu::Math(Math::Exp), &[x]);
        let middle = b.gather(e, at, 1);
        let total = b.sum(middle, &[3]);
        [first, total]
    }
    gather_by_computed_positions |b| {
        let (x, at) = (b.f32(&[6, 3]), b.leaf(&[4], DType::I64));
        let two = b.like(at, 2.0);
        let at = b.alu(Alu::Mul, &[at, two]);
        let y = b.gather(x, at, 0);
        let y = b.pad(y, &[(1, 1), (0, 0)]);
        [y]
    }
    scatters |b| {
        let (x, at, rows) = (b.f32(&[3, 6, 2]), b.leaf(&[2, 4], DType::I32), b.f32(&[3, 2, 4, 2]));
        let y = b.scatter_add(x, at, rows, 1);
        [y]
    }
    scatters_of_many_columns |b| {
        let (x, at, rows) = (b.f32(&[6, 40]), b.leaf(&[2, 5], DType::I32), b.f32(&[2, 5, 40]));
        let e = b.alu(Alu::Math(Math::Exp), &[rows]);
        let y = b.scatter_add(x, at, e, 0);
        let twice = b.alu(Alu::Add, &[y, y]);
        let (h, rows) = (b.leaf(&[8, 7, 5], DType::F16), b.leaf(&[8, 7, 5], DType::F16));
        let at = b.leaf(&[7], DType::I64);
        let z = b.scatter_add(h, at, rows, 1);
        let one = b.leaf(&[1], DType::I32);
        let zero = b.like(x, 0.0);
        let row = b.f32(&[1, 40]);
        let w = b.scatter_add(zero, one, row, 0);
        [twice, y, z, w]
    }
    writes_at_constant_positions |b| {
        let (x, y, z) = (b.f32(&[6, 40]), b.f32(&[2, 40]), b.f32(&[6, 7]));
        let (three, five, below, beyond) = (b.number(3), b.number(5), b.number(-1), b.number(6));
        let e = b.alu(Alu::Math(Math::Exp), &[y]);
        let inside = b.write(x, e, three, 0);
        let over = b.write(inside, y, five, 0);
        let under = b.write(over, z, below, 1);
        let none = b.write(under, y, beyond, 0);
        let twice = b.alu(Alu::Add, &[none, none]);
        [inside, twice]
    }
    writes_at_dynamic_positions |b| {
        let (x, y) = (b.f32(&[3, 6, 8]), b.f32(&[3, 2, 8]));
        let (slot, at) = (b.slot(0, DType::I32), b.leaf(&[], DType::I64));
        let first = b.write(x, y, slot, 1);
        // Reads the array that it updates, so it is not done in place.
        let part = b.slice(first, &[(0, 1, 3), (1, 1, 3), (0, 1, 8)]);
        let second = b.write(first, part, at, 1);
        let copy = b.alu(Alu::Neg, &[second]);
        let column = b.f32(&[3, 6, 1]);
        let third = b.write(copy, column, slot, 2);
        [third]
    }
    many_writes_to_one_array |b| {
        let zero = b.leaf(&[90, 100], DType::F32);
        let mut joined = b.like(zero, 0.0);
        for part in 0..9 {
            let (rows, at) = (b.f32(&[10, 100]), b.number(part * 10));
            let rows = b.alu(Alu::Math(Math::Tanh), &[rows]);
            joined = b.write(joined, rows, at, 0);
        }
        [joined]
    }
    scatter_of_narrow_floats |b| {
        let at = b.leaf(&[5], DType::I64);
        let (x, rows) = (b.leaf(&[6, 2], DType::F16), b.leaf(&[5, 2], DType::F16));
        let y = b.scatter_add(x, at, rows, 0);
        [y]
    }
    empty_tensors |b| {
        let (x, y) = (b.f32(&[0, 4]), b.f32(&[3, 0]));
        let sum = b.sum(x, &[0]);
        let top = b.reduce(ReduceOp::Max, x, &[0]);
        let product = b.matmul(y, x);
        let padded = b.pad(x, &[(1, 1), (0, 0)]);
        let none = b.alu(Alu::Math(Math::Exp), &[x]);
        [sum, top, product, padded, none]
    }
    single_elements |b| {
        let x = b.f32(&[]);
        let y = b.alu(Alu::Math(Math::Exp), &[x]);
        let z = b.f32(&[1, 1]);
        let z = b.softmax(z, 1);
        let w = b.sum(z, &[0, 1]);
        [y, z, w]
    }
    type_conversions |b| {
        let x = b.leaf(&[10], DType::I8);
        let y = b.cast(x, DType::F32);
        let z = b.cast(y, DType::U16);
        let t = b.leaf(&[10], DType::Bool);
        let not = b.alu(Alu::Not, &[t]);
        let chosen = b.alu(Alu::Select, &[not, z, z]);
        let u = b.leaf(&[10], DType::U64);
        let wide = b.alu(Alu::Mul, &[u, u]);
        let f = b.cast(wide, DType::F64);
        let bits = b.graph.push(panoply_ir::graph::Op::Bitcast, &[y], [10], DType::U32);
        [chosen, not, f, bits]
    }
    shared_producer_in_many_places |b| {
        let x = b.f32(&[40, 30]);
        let e = b.alu(Alu::Math(Math::Exp), &[x]);
        let t = b.alu(Alu::Math(Math::Tanh), &[e]);
        let rows = b.sum(t, &[1]);
        let columns = b.sum(t, &[0]);
        let y = b.with(Alu::Div, t, rows);
        let z = b.with(Alu::Mul, y, columns);
        [z, t]
    }
    chain_of_many |b| {
        let x = b.f32(&[9]);
        let mut y = x;
        for n in 0..900 {
            y = b.alu(if n % 2 == 0 { Alu::Abs } else { Alu::Neg }, &[y]);
        }
        [y]
    }
    sum_of_many |b| {
        let mut sum = b.f32(&[9]);
        for _ in 0..40 {
            let x = b.f32(&[9]);
            sum = b.alu(Alu::Add, &[sum, x]);
        }
        [sum]
    }
    training_step |b| {
        let (x, w1, w2, t) = (b.f32(&[12, 9]), b.f32(&[9, 7]), b.f32(&[7, 5]), b.f32(&[12, 5]));
        let h = b.matmul(x, w1);
        let zero = b.like(h, 0.0);
        let r = b.alu(Alu::Max, &[h, zero]);
        let y = b.matmul(r, w2);
        let p = b.softmax(y, 1);
        let d = b.alu(Alu::Sub, &[p, t]);
        let square = b.alu(Alu::Mul, &[d, d]);
        let loss = b.sum(square, &[0, 1]);
        let (rt, w2t, xt) = (b.permute(r, &[1, 0]), b.permute(w2, &[1, 0]), b.permute(x, &[1, 0]));
        let dw2 = b.matmul(rt, d);
        let dr = b.matmul(d, w2t);
        let positive = b.alu(Alu::Lt, &[zero, h]);
        let dh = b.alu(Alu::Select, &[positive, dr, zero]);
        let dw1 = b.matmul(xt, dh);
        let bias = b.sum(dh, &[0]);
        let rate = b.like(w1, 0.125);
        let step = b.alu(Alu::Mul, &[dw1, rate]);
        let w1 = b.alu(Alu::Sub, &[w1, step]);
        [loss, w1, dw2, bias]
    }
}
