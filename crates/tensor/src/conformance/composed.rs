//! The op table, continued: windows, attention, normalization, sorting, losses.

use super::row::{Input, Row, any, flat, smooth, whole, within};
use crate::{
    AlignCorners, AttentionOptions, AvgPoolOptions, BceOptions, ConvOptions, ConvTransposeOptions, CrossEntropyOptions,
    DType, InterpolateMode, KeepDim, MaxPoolOptions, Reduction, RopeOptions, RopeStyle, ScatterReduce, Side, SortOrder,
    Tensor, Window,
};

const A: Input = any(&[5, 7]);
const B: Input = any(&[5, 7]);
const SHARE: Input = within(&[5, 7], 0.1, 0.9);
const IMAGE: Input = any(&[2, 3, 7, 6]);

/// Every row.
pub const ROWS: &[Row] = &[
    // Windows, convolution, pooling.
    smooth("unfold", &[any(&[2, 9])], |x| x[0].unfold(&Window::new([3])).exp()),
    smooth("unfold non-overlapping", &[any(&[2, 11])], |x| {
        x[0].unfold(&Window { kernel_size: [2], stride: [4], padding: [1], dilation: [2] }).exp()
    }),
    smooth("unfold with stride and dilation", &[any(&[9, 13])], |x| {
        x[0].unfold(&Window { kernel_size: [3, 4], stride: [2, 3], dilation: [2, 3], ..Window::new([3, 4]) }).exp()
    }),
    smooth("conv1d", &[any(&[2, 3, 10]), any(&[4, 3, 3])], |x| x[0].conv(&x[1], &ConvOptions::<1>::default())),
    smooth("conv2d", &[IMAGE, any(&[4, 3, 3, 2])], |x| {
        x[0].conv(&x[1], &ConvOptions { stride: [2, 1], padding: [1, 2], dilation: [1, 2], groups: 1 })
    }),
    // Large enough for tiles on a GPU; none of the lengths is a multiple of a tile.
    smooth("conv2d of many channels", &[any(&[2, 16, 4, 5]), any(&[17, 16, 3, 3])], |x| {
        x[0].conv(&x[1], &ConvOptions { padding: [1, 1], ..ConvOptions::default() })
    }),
    smooth("matmul of many rows", &[any(&[2, 9, 20]), any(&[20, 18])], |x| x[0].matmul(&x[1])),
    smooth("conv2d in groups", &[any(&[2, 4, 5, 5]), any(&[6, 2, 3, 3])], |x| {
        x[0].conv(&x[1], &ConvOptions { groups: 2, padding: [1, 1], ..ConvOptions::default() })
    }),
    smooth("conv2d by channel", &[any(&[2, 4, 5, 5]), any(&[4, 1, 3, 3])], |x| {
        x[0].conv(&x[1], &ConvOptions::<2> { groups: 4, ..ConvOptions::default() })
    }),
    smooth("conv3d", &[any(&[1, 2, 4, 5, 3]), any(&[3, 2, 2, 3, 2])], |x| {
        x[0].conv(&x[1], &ConvOptions { padding: [1, 0, 1], ..ConvOptions::default() })
    }),
    smooth("conv of 1 × 1", &[IMAGE, any(&[5, 3, 1, 1])], |x| x[0].conv(&x[1], &ConvOptions::<2>::default()).relu()),
    smooth("conv_transpose1d", &[any(&[2, 3, 5]), any(&[3, 4, 3])], |x| {
        x[0].conv_transpose(
            &x[1],
            &ConvTransposeOptions { stride: [2], padding: [1], output_padding: [1], ..ConvTransposeOptions::default() },
        )
    }),
    smooth("conv_transpose2d", &[any(&[1, 4, 4, 3]), any(&[4, 2, 2, 3])], |x| {
        x[0].conv_transpose(
            &x[1],
            &ConvTransposeOptions { stride: [2, 3], dilation: [2, 1], groups: 2, ..ConvTransposeOptions::default() },
        )
    }),
    smooth("conv_transpose3d", &[any(&[1, 2, 3, 2, 3]), any(&[2, 3, 2, 3, 2])], |x| {
        let conv = ConvOptions { stride: [2, 1, 2], padding: [1, 0, 0], dilation: [1, 2, 1], groups: 1 };
        x[0].conv_transpose(&x[1], &ConvTransposeOptions { output_padding: [1, 0, 0], ..conv.into() })
    }),
    smooth("max_pool", &[IMAGE], |x| x[0].max_pool(&Window { stride: [2, 1], padding: [1, 0], ..Window::new([3, 2]) })),
    smooth("max_pool side by side", &[IMAGE], |x| x[0].max_pool(&Window { stride: [2, 2], ..Window::new([2, 2]) })),
    smooth("max_pool of large windows", &[IMAGE], |x| x[0].max_pool(&Window::new([6, 6]))),
    smooth("avg_pool of large windows", &[IMAGE], |x| x[0].avg_pool(&Window::new([6, 6]))),
    smooth("avg_pool overlapping", &[IMAGE], |x| {
        x[0].avg_pool(&Window { stride: [2, 1], dilation: [1, 2], ..Window::new([3, 2]) })
    }),
    smooth("avg_pool", &[IMAGE], |x| x[0].avg_pool(&Window { stride: [2, 2], padding: [1, 1], ..Window::new([2, 2]) })),
    smooth("max_pool_with", &[IMAGE], |x| {
        x[0].max_pool_with_options(
            &Window { stride: [2, 4], padding: [1, 0], ..Window::new([3, 2]) },
            &MaxPoolOptions { ceil_mode: true },
        )
    }),
    smooth("avg_pool_with", &[IMAGE], |x| {
        let options = AvgPoolOptions { ceil_mode: true, count_include_pad: false, ..AvgPoolOptions::default() };
        x[0].avg_pool_with_options(&Window { stride: [2, 4], padding: [1, 1], ..Window::new([3, 3]) }, &options)
    }),
    smooth("adaptive_avg_pool", &[IMAGE], |x| x[0].adaptive_avg_pool([3, 4])),
    smooth("adaptive_max_pool", &[IMAGE], |x| x[0].adaptive_max_pool([2, 3])),
    smooth("global average pool", &[IMAGE], |x| x[0].adaptive_avg_pool([1, 1])),
    smooth("interpolate nearest", &[any(&[2, 4, 5])], |x| x[0].interpolate([7, 3], InterpolateMode::Nearest)),
    smooth("interpolate linear", &[any(&[2, 4, 5])], |x| {
        x[0].interpolate([7, 3], InterpolateMode::Linear(AlignCorners::No))
    }),
    smooth("interpolate linear align_corners", &[any(&[2, 4, 5])], |x| {
        x[0].interpolate([6, 9], InterpolateMode::Linear(AlignCorners::Yes))
    }),
    // Rearranging.
    smooth("tril", &[any(&[2, 4, 5])], |x| x[0].tril(1).exp()),
    smooth("triu", &[any(&[2, 4, 5])], |x| x[0].triu(-1).exp()),
    smooth("diagonal", &[any(&[2, 3, 5])], |x| x[0].diagonal(2) + x[0].diagonal(0) * x[0].diagonal(1).exp()),
    smooth("diagonal below", &[any(&[5, 3])], |x| x[0].diagonal(-3).exp()),
    smooth("diagonal", &[any(&[2, 4, 4])], |x| x[0].diagonal(0).exp()),
    flat("eye", &[A], |x| Tensor::eye(4, x[0].dtype())),
    smooth("roll", &[A], |x| x[0].roll(-2, 1) * x[0].roll(8, 0)),
    smooth("tile", &[any(&[2, 3])], |x| x[0].tile([4, 1, 3]).exp() + x[0].tile([3])),
    smooth("split", &[any(&[6, 4])], |x| x[0].split([1, 3, 2], 0).swap_remove(1).exp()),
    smooth("chunk", &[any(&[7, 2])], |x| Tensor::concat(x[0].chunk(3, 0).iter().rev(), 0).exp()),
    smooth("unbind", &[any(&[4, 3])], |x| {
        let parts = x[0].unbind(1).into_iter();
        parts.reduce(|all, part| all * 0.5 + part.square()).unwrap_or_else(|| x[0].sum(1))
    }),
    smooth("take_along_dim", &[any(&[4, 5]), whole(&[4, 3], 5.0)], |x| x[0].take_along_dim(&x[1], 1).exp()),
    smooth("take_along_dim rows", &[any(&[4, 5]), whole(&[2, 5], 4.0)], |x| x[0].take_along_dim(&x[1], 0).exp()),
    smooth("repeat_interleave", &[any(&[2, 3])], |x| x[0].repeat_interleave(3, 0).exp()),
    smooth("movedim", &[any(&[2, 3, 4])], |x| x[0].movedim(-1, 0).exp()),
    smooth("meshgrid", &[any(&[3]), any(&[4]), any(&[2])], |x| {
        let grid = Tensor::meshgrid(&[&x[0], &x[1], &x[2]]);
        &grid[0] * &grid[1] + &grid[2]
    }),
    smooth("diag_embed", &[any(&[2, 4])], |x| x[0].diag_embed().exp()),
    smooth("trace", &[any(&[2, 4, 4])], |x| x[0].trace()),
    smooth("diff", &[any(&[3, 6])], |x| x[0].diff(1)),
    smooth("masked_fill", &[A], |x| x[0].masked_fill(&x[0].gt(&Tensor::scalar(0.5f32).cast(x[0].dtype())), -1.5).exp()),
    flat("searchsorted", &[any(&[9]), any(&[4, 3])], |x| {
        x[0].sort(0, SortOrder::Ascending).searchsorted(&x[1], Side::Right)
    }),
    flat("bincount", &[whole(&[3, 9], 7.0)], |x| x[0].bincount(5)),
    smooth("index", &[any(&[4, 5, 3]), whole(&[2, 1], 4.0), whole(&[6], 5.0)], |x| x[0].index(&[&x[1], &x[2]]).exp()),
    smooth("index out of range on two axes", &[any(&[4, 5]), whole(&[8], 6.0), whole(&[8], 6.0)], |x| {
        x[0].index(&[&(&x[1] - Tensor::scalar(1i32)), &x[2]]).exp()
    }),
    smooth("index_put adds", &[any(&[4, 5, 3]), whole(&[7], 4.0), whole(&[7], 6.0), any(&[7, 3])], |x| {
        x[0].index_put(&[&x[1], &x[2]], &x[3], ScatterReduce::Add).exp()
    }),
    smooth("index_put replaces", &[any(&[4, 5, 3]), whole(&[9], 4.0), whole(&[9], 6.0), any(&[9, 1])], |x| {
        x[0].index_put(&[&x[1], &x[2]], &x[3], ScatterReduce::Assign).exp()
    }),
    smooth("index_put along one axis", &[any(&[6, 4]), whole(&[2, 4], 6.0), any(&[4])], |x| {
        x[0].index_put(&[&x[1]], &x[2], ScatterReduce::Assign).exp()
    }),
    smooth("scatter adds", &[any(&[4, 5]), whole(&[4, 3], 6.0), any(&[4, 1])], |x| {
        x[0].scatter(1, &x[1], &x[2], ScatterReduce::Add).exp()
    }),
    smooth("scatter replaces", &[any(&[4, 5]), whole(&[9, 5], 4.0), any(&[9, 5])], |x| {
        x[0].scatter(0, &x[1], &x[2], ScatterReduce::Assign).exp()
    }),
    smooth("scatter_add", &[any(&[4, 5]), whole(&[4, 3], 6.0), any(&[4, 3])], |x| {
        x[0].scatter_add(1, &x[1].cast(DType::I64), &x[2]).exp()
    }),
    smooth("gather", &[any(&[4, 5]), whole(&[4, 3], 6.0)], |x| x[0].gather(1, &x[1].cast(DType::I64)).exp()),
    // Reductions and scans.
    smooth("var", &[any(&[3, 4, 5])], |x| x[0].var([0, 2], 1)),
    smooth("std", &[any(&[3, 40])], |x| x[0].std(-1, 0)),
    smooth("norm", &[A], |x| x[0].norm(1)),
    smooth("logsumexp without its axis", &[any(&[4, 9])], |x| x[0].logsumexp(0)),
    smooth("logsumexp of two axes", &[any(&[2, 4, 3])], |x| x[0].logsumexp([0, 2])),
    smooth("cummin", &[any(&[3, 9])], |x| x[0].cummin(0)),
    smooth("logcumsumexp", &[any(&[3, 9])], |x| x[0].logcumsumexp(1)),
    smooth("logcumsumexp of columns", &[any(&[17, 2])], |x| (&x[0] * 40.0).logcumsumexp(0)),
    flat("count_nonzero", &[whole(&[5, 7], 3.0)], |x| x[0].count_nonzero(..)),
    flat("count_nonzero of rows", &[whole(&[5, 7], 3.0)], |x| x[0].count_nonzero(1)),
    smooth("sort", &[any(&[4, 9])], |x| x[0].sort(1, SortOrder::Ascending)),
    smooth("sort rows down", &[any(&[7, 2, 3])], |x| x[0].sort(0, SortOrder::Descending)),
    flat("argsort", &[whole(&[3, 40], 10.0)], |x| x[0].argsort(-1, SortOrder::Ascending)),
    flat("argsort down", &[whole(&[20, 2], 6.0)], |x| x[0].argsort(0, SortOrder::Descending)),
    smooth("sort of long rows", &[any(&[1, 300])], |x| x[0].sort(1, SortOrder::Ascending)),
    smooth("topk of long rows", &[any(&[70, 1])], |x| x[0].topk(3, 0).values),
    smooth("topk", &[any(&[5, 11])], |x| x[0].topk(3, 1).values),
    flat("topk places", &[any(&[5, 11])], |x| x[0].topk(3, 1).indices),
    smooth("median", &[any(&[5, 8])], |x| x[0].median(1)),
    smooth("median of all", &[any(&[5, 8])], |x| x[0].median(KeepDim(..)) * &x[0]),
    smooth("quantile", &[any(&[5, 8])], |x| {
        x[0].quantile(0.3, 1) + x[0].quantile(1.0, -1) * x[0].quantile(0.6, [1, 0])
    }),
    smooth("nansum", &[A], |x| x[0].nansum(1)),
    smooth("nanmean", &[any(&[3, 4, 5])], |x| x[0].nanmean([0, 2])),
    // Functions.
    smooth("sinh", &[A], |x| x[0].sinh()),
    smooth("cosh", &[A], |x| x[0].cosh()),
    smooth("asin", &[SHARE], |x| x[0].asin()),
    smooth("acos", &[SHARE], |x| x[0].acos()),
    smooth("asinh", &[A], |x| x[0].asinh()),
    smooth("acosh", &[within(&[5, 7], 1.1, 4.0)], |x| x[0].acosh()),
    smooth("atanh", &[SHARE], |x| x[0].atanh()),
    smooth("log10", &[SHARE], |x| x[0].log10()),
    smooth("atan2", &[any(&[20, 9]), any(&[20, 9])], |x| x[0].atan2(&x[1])),
    smooth("hypot", &[A, B], |x| x[0].hypot(&x[1])),
    // Only where it is flat: tolerances are relative to the largest value.
    smooth("erfinv", &[SHARE], |x| x[0].erfinv()),
    smooth("lgamma", &[within(&[5, 7], 0.2, 9.0)], |x| x[0].lgamma()),
    smooth("lgamma near 1 and 2", &[within(&[5, 7], 0.4, 2.6)], |x| x[0].lgamma()),
    smooth("lgamma below 0", &[SHARE], |x| (&x[0] - 3.0).lgamma()),
    flat("arange_step", &[A], |x| Tensor::arange_step(2.5f32, -1.0, -0.75).cast(x[0].dtype())),
    flat("linspace", &[A], |x| Tensor::linspace(-1.0, 2.0, 7, x[0].dtype())),
    smooth("logaddexp", &[A, B], |x| x[0].logaddexp(&x[1])),
    smooth("lerp", &[A, B], |x| x[0].lerp(&x[1], 0.3)),
    flat("is_nan", &[A], |x| x[0].log().is_nan()),
    flat("is_inf", &[whole(&[5, 7], 2.0)], |x| x[0].cast(DType::F32).log().is_inf()),
    smooth("full_like", &[A], |x| x[0].full_like(2.75) * &x[0]),
    flat("is_finite", &[whole(&[5, 7], 2.0)], |x| x[0].cast(DType::F32).log().is_finite()),
    // Matrices.
    smooth("outer product", &[any(&[5]), any(&[7])], |x| x[0].outer(&x[1])),
    smooth("cross", &[any(&[2, 3, 4]), any(&[1, 3, 1])], |x| x[0].cross(&x[1], 1)),
    smooth("kron", &[any(&[2, 3]), any(&[4, 2])], |x| x[0].kron(&x[1])),
    smooth("cdist", &[any(&[2, 4, 3]), any(&[5, 3])], |x| x[0].cdist(&x[1], 2.0)),
    smooth("cdist by magnitudes", &[any(&[4, 3]), any(&[5, 3])], |x| x[0].cdist(&x[1], 1.0)),
    smooth("cdist by the largest", &[any(&[4, 3]), any(&[5, 3])], |x| x[0].cdist(&x[1], f64::INFINITY)),
    smooth("cdist of another power", &[any(&[4, 3]), any(&[5, 3])], |x| x[0].cdist(&x[1], 3.0)),
    smooth("dot", &[any(&[9]), any(&[9])], |x| x[0].dot(&x[1])),
    smooth("einsum of matrices", &[any(&[2, 3, 4]), any(&[2, 4, 5])], |x| {
        Tensor::einsum("bij,bjk->bki", &[&x[0], &x[1]])
    }),
    smooth("einsum of three", &[any(&[3, 4]), any(&[4, 5]), any(&[3, 5])], |x| {
        Tensor::einsum("ij,jk,ik->i", &[&x[0], &x[1], &x[2]])
    }),
    smooth("einsum of a trace", &[any(&[4, 4]), any(&[3])], |x| Tensor::einsum("ii,k", &[&x[0], &x[1]])),
    smooth("einsum with an ellipsis", &[any(&[2, 1, 3, 4]), any(&[5, 4])], |x| {
        Tensor::einsum("...ij,...j->i...", &[&x[0], &x[1]])
    }),
    smooth("einsum of diagonals", &[any(&[4, 3, 4]), any(&[3, 3])], |x| {
        Tensor::einsum("i...i,jj->...ji", &[&x[0], &x[1]])
    }),
    smooth("einsum of what repeats", &[any(&[1, 3]), any(&[5, 3]), any(&[5])], |x| {
        Tensor::einsum("ij,ij,i->j", &[&x[0], &x[1], &x[2]])
    }),
    smooth("einsum of four", &[any(&[2, 9]), any(&[9, 3]), any(&[3, 8]), any(&[8, 2])], |x| {
        Tensor::einsum("ab,bc,cd,de", &[&x[0], &x[1], &x[2], &x[3]])
    }),
    // Activations.
    smooth("softmin", &[A], |x| x[0].softmin(1)),
    smooth("logsigmoid", &[A], |x| x[0].logsigmoid()),
    smooth("gelu_tanh", &[A], |x| x[0].gelu_tanh()),
    smooth("mish", &[A], |x| x[0].mish()),
    smooth("selu", &[A], |x| x[0].selu()),
    smooth("relu6", &[within(&[5, 7], -3.0, 9.0)], |x| x[0].relu6()),
    smooth("hardsigmoid", &[within(&[5, 7], -5.0, 5.0)], |x| x[0].hardsigmoid()),
    smooth("hardswish", &[within(&[5, 7], -5.0, 5.0)], |x| x[0].hardswish()),
    smooth("softsign", &[A], |x| x[0].softsign()),
    smooth("glu", &[any(&[5, 8])], |x| x[0].glu(-1)),
    // Normalization and attention.
    smooth("group_norm", &[any(&[2, 6, 5])], |x| x[0].group_norm(3, 1e-5)),
    smooth("batch_norm", &[any(&[4, 3, 5]), any(&[3]), within(&[3], 0.5, 2.0)], |x| {
        x[0].batch_norm(&x[1], &x[2], 1e-5)
    }),
    smooth("attention", &[any(&[2, 4, 5, 6]), any(&[2, 4, 7, 6]), any(&[2, 4, 7, 3])], |x| {
        x[0].scaled_dot_product_attention(&x[1], &x[2], &AttentionOptions::default())
    }),
    smooth("attention, causal, heads in groups", &[any(&[2, 4, 5, 6]), any(&[2, 2, 7, 6]), any(&[2, 2, 7, 6])], |x| {
        x[0].scaled_dot_product_attention(
            &x[1],
            &x[2],
            &AttentionOptions { is_causal: true, past_len: 2, ..AttentionOptions::default() },
        )
    }),
    smooth("attention with a mask", &[any(&[2, 3, 4]), any(&[2, 5, 4]), any(&[2, 5, 4]), whole(&[3, 5], 2.0)], |x| {
        let mask = x[3].cast(DType::Bool);
        x[0].scaled_dot_product_attention(
            &x[1],
            &x[2],
            &AttentionOptions { attn_mask: Some(&mask), scale: Some(0.7), ..AttentionOptions::default() },
        )
    }),
    smooth("attention with a bias", &[any(&[2, 3, 4]), any(&[2, 5, 4]), any(&[2, 5, 4]), any(&[1, 5])], |x| {
        x[0].scaled_dot_product_attention(
            &x[1],
            &x[2],
            &AttentionOptions { attn_mask: Some(&x[3]), ..AttentionOptions::default() },
        )
    }),
    smooth("attention, some tiles", &[any(&[1, 2, 37, 12]), any(&[1, 2, 45, 12]), any(&[1, 2, 45, 7])], |x| {
        x[0].scaled_dot_product_attention(&x[1], &x[2], &AttentionOptions::default())
    }),
    smooth(
        "attention, some tiles of groups",
        &[any(&[4, 18, 6]), any(&[2, 40, 6]), any(&[2, 40, 6]), any(&[4, 18, 1])],
        |x| {
            x[0].scaled_dot_product_attention(
                &x[1],
                &x[2],
                &AttentionOptions { is_causal: true, past_len: 20, attn_mask: Some(&x[3]), scale: None },
            )
        },
    ),
    smooth("rope rotate_half", &[any(&[2, 3, 5, 8]), whole(&[5], 40.0)], |x| x[0].rope(&x[1], &RopeOptions::default())),
    smooth("rope interleaved", &[any(&[2, 5, 6]), whole(&[5], 40.0)], |x| {
        x[0].rope(&x[1], &RopeOptions { base: 100.0, style: RopeStyle::Interleaved })
    }),
    // Losses.
    smooth("cross_entropy, smoothed", &[any(&[6, 10]), whole(&[6], 10.0)], |x| {
        x[0].cross_entropy_with_options(
            &x[1],
            &CrossEntropyOptions { label_smoothing: 0.1, ..CrossEntropyOptions::default() },
        )
    }),
    smooth("cross_entropy, weighted and ignoring", &[any(&[9, 4]), whole(&[9], 4.0), within(&[4], 0.5, 2.0)], |x| {
        let options = CrossEntropyOptions {
            label_smoothing: 0.2,
            ignore_index: Some(1),
            weight: Some(&x[2]),
            ..CrossEntropyOptions::default()
        };
        x[0].cross_entropy_with_options(&x[1], &options)
    }),
    smooth("cross_entropy of probabilities", &[any(&[6, 10]), any(&[6, 10])], |x| {
        x[0].cross_entropy_with_options(&x[1].softmax(-1), &CrossEntropyOptions::default())
    }),
    smooth("cross_entropy of many positions", &[any(&[2, 5, 3, 2]), whole(&[2, 3, 2], 5.0), any(&[2, 3, 2])], |x| {
        let options = CrossEntropyOptions { reduction: Reduction::None, ..CrossEntropyOptions::default() };
        x[0].cross_entropy_with_options(&x[1], &options) * &x[2]
    }),
    smooth("cross_entropy of probabilities, summed", &[any(&[2, 5, 3]), any(&[2, 5, 3])], |x| {
        let options = CrossEntropyOptions { reduction: Reduction::Sum, ..CrossEntropyOptions::default() };
        x[0].cross_entropy_with_options(&x[1].softmax(1), &options)
    }),
    smooth("nll_loss of many positions", &[any(&[2, 5, 3]), whole(&[2, 3], 5.0)], |x| {
        x[0].log_softmax(1).nll_loss(&x[1], Reduction::None).exp()
    }),
    smooth(
        "binary_cross_entropy_with_logits, weighted",
        &[A, within(&[5, 7], 0.0, 1.0), within(&[7], 0.5, 3.0), within(&[5, 1], 0.5, 2.0)],
        |x| {
            let options = BceOptions { weight: Some(&x[3]), pos_weight: Some(&x[2]), reduction: Reduction::Sum };
            x[0].binary_cross_entropy_with_logits(&x[1], &options)
        },
    ),
    smooth("losses of elements", &[A, B, SHARE], |x| {
        let none = Reduction::None;
        let losses = x[0].mse_loss(&x[1], none) + x[0].l1_loss(&x[1], none) * x[0].huber_loss(&x[1], 0.7, none);
        losses * x[0].hinge_loss(&x[1], none) + x[2].binary_cross_entropy(&x[2].square(), none)
    }),
    smooth("losses of rows", &[A, SHARE, B], |x| {
        let none = Reduction::None;
        let target = x[0].narrow(1, 0, 1).squeeze(1).sign();
        x[0].log_softmax(-1).kl_div(&x[1], none) * x[0].cosine_embedding_loss(&x[2], &target, 0.1, none)
    }),
    smooth("nll_loss", &[any(&[6, 10]), whole(&[6], 10.0)], |x| x[0].nll_loss(&x[1], Reduction::Mean)),
    smooth("binary_cross_entropy", &[SHARE, within(&[5, 7], 0.0, 1.0)], |x| {
        x[0].binary_cross_entropy(&x[1], Reduction::Mean)
    }),
    smooth("kl_div", &[A, SHARE], |x| x[0].log_softmax(-1).kl_div(&x[1], Reduction::Mean)),
    smooth("cosine_similarity", &[A, B], |x| x[0].cosine_similarity(&x[1], -1, 1e-8)),
    smooth("cosine_similarity of columns", &[A, B], |x| x[0].cosine_similarity(&x[1], 0, 1e-8)),
    smooth("cosine_embedding_loss", &[any(&[8, 3]), any(&[8, 3]), whole(&[8], 2.0)], |x| {
        let alike = x[2].cast(x[0].dtype()) * 2.0 - 1.0;
        x[0].cosine_embedding_loss(&x[1], &alike, 0.1, Reduction::Mean)
    }),
    smooth("hinge_loss", &[A, B], |x| x[0].hinge_loss(&x[1].sign(), Reduction::Mean)),
];
