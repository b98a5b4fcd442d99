//! The op table: one row for each public operation.

use super::row::{Input, Row, any, flat, smooth, whole, within};
use crate::{BceOptions, DType, KeepDim, Reduction, Tensor, TensorIndex};

const A: Input = any(&[5, 7]);
const B: Input = any(&[5, 7]);
const POSITIVE: Input = within(&[5, 7], 0.1, 3.0);

/// Every row.
pub const ROWS: &[Row] = &[
    // One operand.
    smooth("neg", &[A], |x| -&x[0]),
    smooth("abs", &[A], |x| x[0].abs()),
    smooth("exp", &[A], |x| x[0].exp()),
    smooth("exp2", &[A], |x| x[0].exp2()),
    smooth("log", &[POSITIVE], |x| x[0].log()),
    smooth("log2", &[POSITIVE], |x| x[0].log2()),
    smooth("log1p", &[POSITIVE], |x| x[0].log1p()),
    smooth("expm1", &[A], |x| x[0].expm1()),
    smooth("sin", &[A], |x| x[0].sin()),
    smooth("cos", &[A], |x| x[0].cos()),
    smooth("tan", &[within(&[5, 7], -1.0, 1.0)], |x| x[0].tan()),
    smooth("atan", &[A], |x| x[0].atan()),
    smooth("tanh", &[A], |x| x[0].tanh()),
    smooth("erf", &[A], |x| x[0].erf()),
    smooth("sqrt", &[POSITIVE], |x| x[0].sqrt()),
    smooth("rsqrt", &[POSITIVE], |x| x[0].rsqrt()),
    smooth("reciprocal", &[POSITIVE], |x| x[0].reciprocal()),
    smooth("square", &[A], |x| x[0].square()),
    smooth("floor", &[A], |x| x[0].floor() * 2.0),
    flat("ceil", &[A], |x| x[0].ceil()),
    flat("round", &[A], |x| x[0].round()),
    flat("trunc", &[A], |x| x[0].trunc()),
    flat("sign", &[A], |x| x[0].sign()),
    // Two and three operands, with broadcasting.
    smooth("add", &[A, B], |x| &x[0] + &x[1]),
    smooth("sub a row", &[A, any(&[7])], |x| &x[0] - &x[1]),
    smooth("mul a column", &[A, any(&[5, 1])], |x| &x[0] * &x[1]),
    smooth("div", &[A, POSITIVE], |x| &x[0] / &x[1]),
    smooth("outer", &[any(&[5, 1]), any(&[1, 7])], |x| &x[0] * &x[1]),
    smooth("number", &[A], |x| (3 - &x[0]) * 0.5f32 / 1.5 + 2usize),
    smooth("maximum", &[A, B], |x| x[0].maximum(&x[1])),
    smooth("minimum", &[A, B], |x| x[0].minimum(&x[1])),
    smooth("pow", &[POSITIVE, B], |x| x[0].pow(&x[1])),
    smooth("pow of numbers", &[POSITIVE], |x| x[0].pow(3) + x[0].pow(-0.5) * x[0].pow(2.7)),
    smooth("clamp", &[A], |x| x[0].clamp(-1.0, 1.0)),
    smooth("clamp by tensors", &[A, within(&[7], -1.0, 0.0), within(&[5, 1], 0.5, 1.0)], |x| x[0].clamp(&x[1], &x[2])),
    smooth("clamp_min and clamp_max", &[A], |x| x[0].clamp_min(0.5) * x[0].clamp_max(-0.25)),
    smooth("where", &[A, B], |x| x[0].where_self(&x[0].lt(&x[1]), &x[1])),
    flat("compare", &[A, B], |x| x[0].le(&x[1]).bitwise_or(&x[0].gt(&x[1])).bitwise_and(&x[0].ne(&x[1]))),
    flat("integers", &[whole(&[6, 3], 100.0), whole(&[6, 3], 9.0)], |x| (&x[0] / &x[1]) * &x[1] + &x[0] % &x[1]),
    flat("floor_divide", &[A, B], |x| x[0].floor_divide(&x[1])),
    flat("floor_divide of integers", &[whole(&[6, 3], 100.0), whole(&[6, 3], 9.0)], |x| {
        (&x[0] - 50).floor_divide(&x[1] - 4)
    }),
    smooth("remainder", &[A, POSITIVE], |x| x[0].remainder(&x[1]) + (&x[0] * 3.0).remainder(-0.7)),
    flat("remainder of integers", &[whole(&[6, 3], 100.0), whole(&[6, 3], 9.0)], |x| (&x[0] - 50).remainder(&x[1] - 4)),
    smooth("nan_to_num", &[A], |x| (x[0].clamp_min(-1.0) + 1.0).log().nan_to_num(0.25, None, Some(-3.0))),
    flat("bits", &[whole(&[6, 3], 100.0), whole(&[6, 3], 9.0)], |x| {
        (((&x[0] ^ &x[1]) << &x[1]) | (!&x[0] >> &x[1])) & &x[0]
    }),
    flat("bits beside numbers", &[whole(&[6, 3], 100.0)], |x| ((&x[0] & 12) | 1) ^ (3 & (&x[0] >> 2))),
    flat("bitcast", &[A], |x| x[0].bitcast(if x[0].dtype() == DType::F64 { DType::I64 } else { DType::I32 })),
    flat("cast", &[within(&[40], -50.0, 50.0)], |x| x[0].cast(DType::I32)),
    // Numbers halfway between two bf16, and halfway plus 1: an f32 is exactly halfway only without the 1.
    flat("cast to bf16", &[whole(&[40], 120.0)], |x| {
        ((&x[0] + 128.0) * 131_072.0 + 65_537.0).cast(DType::BF16).cast(DType::F32)
    }),
    flat("compare bools", &[A, B], |x| {
        let [a, b] = [0, 1].map(|at| x[at].gt(&x[at].literal(0.0)));
        a.lt(&b).bitwise_or(&a.maximum(&b).bitwise_and(&a.minimum(&b))).max(1)
    }),
    flat("add a row to a million", &[any(&[1024, 1024]), any(&[1024])], |x| &x[0] + &x[1]),
    flat("sub of two rows of a million", &[any(&[2, 1_048_576])], |x| x[0].narrow(0, 0, 1) - x[0].narrow(0, 1, 1)),
    smooth("cast and back", &[any(&[33])], |x| x[0].cast(DType::F64).exp().cast(x[0].dtype())),
    // Views and rearranging.
    smooth("reshape", &[any(&[4, 6])], |x| x[0].reshape([3, -1]).exp()),
    smooth("reshape to a number", &[any(&[1, 1])], |x| x[0].reshape(()).exp()),
    smooth("permute", &[any(&[2, 3, 4])], |x| x[0].permute(vec![2usize, 0, 1]).exp()),
    smooth("reshape of permute", &[any(&[2, 3, 4])], |x| x[0].permute([2, 0, 1]).reshape([6, 4]).exp()),
    smooth("pad", &[any(&[3, 4])], |x| x[0].pad(&[(1, 2), (0, 3)])),
    smooth("slice", &[any(&[6, 7])], |x| x[0].slice((1..5, -3..))),
    smooth("slice at", &[any(&[6, 7])], |x| x[0].slice((.., 2))),
    smooth("slice with step", &[any(&[6, 7])], |x| {
        x[0].slice((TensorIndex::from(1..).step_by(2), TensorIndex::FULL.step_by(3)))
    }),
    smooth("slice with new axes", &[any(&[2, 3, 4])], |x| {
        x[0].slice((0, TensorIndex::NewAxis, TensorIndex::Ellipsis, 1..=2)).exp()
    }),
    smooth("flip", &[any(&[3, 5])], |x| x[0].flip(1) * &x[0]),
    smooth("flip of two axes", &[any(&[3, 2, 5])], |x| x[0].flip([0, -1]) * &x[0]),
    smooth("flatten", &[any(&[2, 3, 4])], |x| {
        x[0].flatten(0, 1).matmul(&x[0].flatten(-2, -1).flip(0).reshape([4, -1]))
    }),
    smooth("squeeze", &[any(&[1, 3, 1])], |x| x[0].squeeze([0, 2]).outer(&x[0].squeeze(0).squeeze(-1).exp())),
    smooth("concat", &[any(&[2, 3]), any(&[4, 3])], |x| Tensor::concat(x, 0)),
    smooth("concat_of_many", &[any(&[3, 840]), any(&[3, 40])], |x| {
        let parts: Vec<Tensor> =
            (0..9).map(|part| if part % 3 == 0 { x[0].clone() } else { &x[1] * (f64::from(part) / 16.0) }).collect();
        Tensor::concat(&parts, 1)
    }),
    smooth("many_slices", &[any(&[9, 950])], |x| {
        let parts = (0..8).map(|part| x[0].narrow(0, part, 1) * (part as f64 + 1.0));
        // The first row twice: gradients of overlapping slices are added.
        parts.reduce(|sum, part| sum * 0.5 + part).expect("there are parts") + x[0].narrow(0, 0, 1).tanh()
    }),
    smooth("many_slices_apart", &[any(&[9, 950])], |x| {
        let parts = (0..9).map(|part| x[0].narrow(0, (part * 5) % 9, 1) * (part as f64 + 1.0));
        parts.reduce(|sum, part| sum * 0.5 + part).expect("there are parts")
    }),
    smooth("slice_scatter", &[any(&[4, 5]), any(&[2, 5]), any(&[4, 2])], |x| {
        let (two, beyond) = (Tensor::scalar(2i32), Tensor::scalar(4i64));
        x[0].slice_scatter(&x[1], 0, &two).slice_scatter(&x[2], 1, &beyond).slice_scatter(
            &x[2],
            1,
            &Tensor::scalar(-1i32),
        )
    }),
    smooth("stack", &[any(&[2, 3]), any(&[2, 3])], |x| Tensor::stack(x, 1)),
    smooth("broadcast_to", &[any(&[3, 1])], |x| x[0].broadcast_to([4, 3, 5]).exp()),
    // Reductions and scans.
    smooth("sum of all", &[any(&[37, 11])], |x| x[0].sum(..)),
    smooth("sum over rows", &[any(&[9, 700])], |x| x[0].sum(1)),
    smooth("sum over columns", &[any(&[70, 33])], |x| x[0].sum(0)),
    smooth("sum over the middle", &[any(&[3, 20, 5])], |x| x[0].sum(1)),
    smooth("sum over outer axes", &[any(&[3, 20, 5])], |x| x[0].sum([0, 2])),
    smooth("mean", &[A], |x| x[0].mean(..)),
    smooth("max", &[A], |x| x[0].max(1)),
    smooth("min", &[A], |x| x[0].min(0)),
    smooth("keepdim", &[any(&[3, 4, 5])], |x| {
        (&x[0] - x[0].mean(KeepDim([0, 2]))) * x[0].sum(KeepDim(1)) / x[0].norm(KeepDim(..))
    }),
    smooth("prod", &[any(&[4, 5])], |x| x[0].prod(1)),
    smooth("max_with_indices", &[any(&[4, 6])], |x| {
        let found = x[0].max_with_indices(KeepDim(1));
        found.values + found.indices.cast(x[0].dtype())
    }),
    smooth("min_with_indices", &[any(&[4, 6])], |x| {
        let found = x[0].min_with_indices(0);
        found.values * found.indices.cast(x[0].dtype())
    }),
    smooth("prod of two axes", &[any(&[2, 4, 3])], |x| x[0].prod([0, 2])),
    flat("argmax", &[any(&[6, 40])], |x| x[0].argmax(-1)),
    flat("argmin", &[any(&[6, 40])], |x| x[0].argmin(KeepDim(0))),
    flat("argmax of all", &[any(&[6, 40])], |x| x[0].argmax(..)),
    flat("any", &[whole(&[5, 4], 2.0)], |x| x[0].cast(DType::Bool).any(1)),
    flat("all", &[whole(&[5, 2], 4.0)], |x| x[0].cast(DType::Bool).all(1)),
    smooth("cumsum", &[any(&[3, 9])], |x| x[0].cumsum(1)),
    smooth("cumsum of columns", &[any(&[9, 3])], |x| x[0].cumsum(0)),
    flat("cumsum of many", &[any(&[2, 1 << 14])], |x| x[0].cumsum(1)),
    smooth("cumsum of many columns", &[any(&[1033, 3])], |x| x[0].cumsum(0)),
    flat("cummax of many", &[any(&[1033, 3])], |x| x[0].cummax(0)),
    smooth("cumprod", &[any(&[3, 9])], |x| x[0].cumprod(1)),
    smooth("cummax", &[any(&[3, 9])], |x| x[0].cummax(1)),
    smooth("logsumexp", &[any(&[4, 9])], |x| x[0].logsumexp(KeepDim(-1))),
    // Matrices and indexing.
    smooth("matmul", &[any(&[9, 13]), any(&[13, 6])], |x| x[0].matmul(&x[1])),
    smooth("matmul transposed", &[any(&[9, 13]), any(&[6, 13])], |x| x[0].matmul(&x[1].t())),
    smooth("matmul batched", &[any(&[3, 4, 5]), any(&[3, 5, 2])], |x| x[0].matmul(&x[1])),
    smooth("matmul broadcast", &[any(&[3, 4, 5]), any(&[5, 2])], |x| x[0].matmul(&x[1])),
    smooth("matmul with a vector", &[any(&[4, 5]), any(&[5])], |x| x[0].matmul(&x[1])),
    smooth("matmul with epilogue", &[any(&[9, 13]), any(&[13, 6]), any(&[6])], |x| (x[0].matmul(&x[1]) + &x[2]).relu()),
    smooth("index_select", &[any(&[6, 4]), whole(&[3, 2], 6.0)], |x| x[0].index_select(0, &x[1])),
    flat("index out of range", &[any(&[6, 4]), whole(&[5], 12.0)], |x| x[0].index_select(0, &x[1])),
    smooth("index_add", &[any(&[4, 3]), whole(&[7], 4.0), any(&[7, 3])], |x| x[0].index_add(0, &x[1], &x[2])),
    flat("one_hot", &[whole(&[5], 4.0)], |x| x[0].one_hot(4, DType::F32)),
    // Composed.
    smooth("relu", &[A], |x| x[0].relu()),
    smooth("leaky_relu", &[A], |x| x[0].leaky_relu(0.1)),
    smooth("elu", &[A], |x| x[0].elu()),
    smooth("sigmoid", &[A], |x| x[0].sigmoid()),
    smooth("silu", &[A], |x| x[0].silu()),
    smooth("gelu", &[A], |x| x[0].gelu()),
    smooth("softplus", &[A], |x| x[0].softplus()),
    smooth("softmax", &[any(&[6, 50])], |x| x[0].softmax(-1)),
    smooth("softmax of columns", &[any(&[6, 50])], |x| x[0].softmax(0)),
    smooth("log_softmax", &[any(&[6, 50])], |x| x[0].log_softmax(-1)),
    smooth("layer_norm", &[any(&[4, 30])], |x| x[0].layer_norm(1e-5)),
    smooth("rms_norm", &[any(&[4, 30])], |x| x[0].rms_norm(1e-5)),
    smooth("cross_entropy", &[any(&[6, 10]), whole(&[6], 10.0)], |x| x[0].cross_entropy(&x[1])),
    smooth("mse_loss", &[A, B], |x| x[0].mse_loss(&x[1], Reduction::Mean)),
    smooth("l1_loss", &[A, B], |x| x[0].l1_loss(&x[1], Reduction::Mean)),
    smooth("huber_loss", &[A, B], |x| x[0].huber_loss(&x[1], 0.7, Reduction::Mean)),
    smooth("binary_cross_entropy_with_logits", &[A, within(&[5, 7], 0.0, 1.0)], |x| {
        x[0].binary_cross_entropy_with_logits(&x[1], &BceOptions::default())
    }),
    smooth("a network", &[any(&[5, 8]), any(&[8, 16]), any(&[16]), any(&[16, 3])], |x| {
        (x[0].matmul(&x[1]) + &x[2]).gelu().matmul(&x[3]).softmax(-1)
    }),
];
