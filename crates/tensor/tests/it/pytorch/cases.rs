//! The cases of `ops.safetensors`, one line each.

use panoply_tensor::{
    AlignCorners, AttentionOptions, BceOptions, ConvOptions, ConvTransposeOptions, CrossEntropyOptions, DType, Eigh,
    FftNorm, FftOptions, InterpolateMode, Lu, Reduction, RopeOptions, RopeStyle, ScatterReduce, Side, SortOrder,
    Tensor, TensorIndex, Triangle, Window,
};

use super::{Fixture, close, devices};

type Case = (&'static str, fn(&[Tensor]) -> Tensor);

pub const CASES: &[Case] = &[
    ("exp", |x| x[0].exp()),
    ("exp2", |x| x[0].exp2()),
    ("expm1", |x| x[0].expm1()),
    ("sin", |x| x[0].sin()),
    ("cos", |x| x[0].cos()),
    ("tan", |x| x[0].tan()),
    ("atan", |x| x[0].atan()),
    ("tanh", |x| x[0].tanh()),
    ("erf", |x| x[0].erf()),
    ("sinh", |x| x[0].sinh()),
    ("cosh", |x| x[0].cosh()),
    ("abs", |x| x[0].abs()),
    ("square", |x| x[0].square()),
    ("sigmoid", |x| x[0].sigmoid()),
    ("log", |x| x[0].log()),
    ("log2", |x| x[0].log2()),
    ("log1p", |x| x[0].log1p()),
    ("sqrt", |x| x[0].sqrt()),
    ("rsqrt", |x| x[0].rsqrt()),
    ("reciprocal", |x| x[0].reciprocal()),
    ("asin", |x| x[0].asin()),
    ("acos", |x| x[0].acos()),
    ("relu", |x| x[0].relu()),
    ("silu", |x| x[0].silu()),
    ("gelu", |x| x[0].gelu()),
    ("mish", |x| x[0].mish()),
    ("selu", |x| x[0].selu()),
    ("elu", |x| x[0].elu()),
    ("hardswish", |x| x[0].hardswish()),
    ("hardsigmoid", |x| x[0].hardsigmoid()),
    ("softsign", |x| x[0].softsign()),
    ("softplus", |x| x[0].softplus()),
    ("logsigmoid", |x| x[0].logsigmoid()),
    ("relu6", |x| x[0].relu6()),
    ("leaky_relu", |x| x[0].leaky_relu(0.01)),
    ("gelu_tanh", |x| x[0].gelu_tanh()),
    ("glu", |x| x[0].glu(-1)),
    ("relu at 0", |x| x[0].relu()),
    ("clamp at its ends", |x| x[0].clamp(-1.0, 1.0)),
    ("add", |x| &x[0] + &x[1]),
    ("sub", |x| &x[0] - &x[1]),
    ("mul", |x| &x[0] * &x[1]),
    ("div", |x| &x[0] / &x[1]),
    ("maximum", |x| x[0].maximum(&x[1])),
    ("minimum", |x| x[0].minimum(&x[1])),
    ("atan2", |x| x[0].atan2(&x[1])),
    ("logaddexp", |x| x[0].logaddexp(&x[1])),
    ("broadcast", |x| &x[0] * &x[1]),
    ("pow", |x| x[0].pow(&x[1])),
    ("fmod", |x| &x[0] % &x[1]),
    ("softmax", |x| x[0].softmax(-1)),
    ("log_softmax", |x| x[0].log_softmax(-1)),
    ("softmin", |x| x[0].softmin(-1)),
    ("logsumexp", |x| x[0].logsumexp(0)),
    ("amax with ties", |x| x[0].max(1)),
    ("sum", |x| x[0].sum([0, 2])),
    ("mean", |x| x[0].mean([0, 2])),
    ("amin", |x| x[0].min([0, 2])),
    ("prod with zeros", |x| x[0].prod(1)),
    ("var", |x| x[0].var([0, 2], 1)),
    ("std", |x| x[0].std(1, 0)),
    ("norm", |x| x[0].norm(1)),
    ("cumsum", |x| x[0].cumsum(1)),
    ("cumprod", |x| x[0].cumprod(0)),
    ("cumprod with zeros", |x| x[0].cumprod(1)),
    ("cummax", |x| x[0].cummax(1)),
    ("cummin", |x| x[0].cummin(0)),
    ("sort", |x| x[0].sort(1, SortOrder::Ascending)),
    ("argsort", |x| x[0].argsort(1, SortOrder::Ascending)),
    ("argsort down", |x| x[0].argsort(1, SortOrder::Descending)),
    ("topk", |x| x[0].topk(3, 1).values),
    ("median", |x| x[0].median(1)),
    ("argmax", |x| x[0].argmax(1)),
    ("tril", |x| x[0].tril(1)),
    ("triu", |x| x[0].triu(-1)),
    ("diagonal", |x| x[0].diagonal(0)),
    ("roll", |x| x[0].roll(-2, 1)),
    ("tile", |x| x[0].tile([1, 3])),
    ("take_along_dim", |x| x[0].take_along_dim(&x[1], 1)),
    ("index_select", |x| x[0].index_select(0, &x[1])),
    ("flip", |x| x[0].flip(1)),
    ("unfold", |x| x[0].unfold(&Window { stride: [2], ..Window::new([3]) })),
    ("matmul", |x| x[0].matmul(&x[1])),
    ("outer", |x| x[0].outer(&x[1])),
    ("dot", |x| x[0].dot(&x[1])),
    ("einsum", |x| Tensor::einsum("bij,bjk,ik->bi", &[&x[0], &x[1], &x[2]])),
    ("einsum with a diagonal", |x| Tensor::einsum("iik,k->i", &[&x[0], &x[1]])),
    ("conv1d", |x| x[0].conv(&x[1], &ConvOptions::<1>::default())),
    ("conv2d", |x| x[0].conv(&x[1], &ConvOptions { stride: [2, 1], padding: [1, 2], dilation: [1, 2], groups: 1 })),
    ("conv2d in groups", |x| x[0].conv(&x[1], &ConvOptions { padding: [1, 1], groups: 2, ..ConvOptions::default() })),
    ("conv2d by channel", |x| x[0].conv(&x[1], &ConvOptions::<2> { groups: 4, ..ConvOptions::default() })),
    ("conv3d", |x| x[0].conv(&x[1], &ConvOptions { padding: [1, 0, 1], ..ConvOptions::default() })),
    ("conv_transpose1d", |x| {
        x[0].conv_transpose(
            &x[1],
            &ConvTransposeOptions { stride: [2], padding: [1], output_padding: [1], ..ConvTransposeOptions::default() },
        )
    }),
    ("conv_transpose2d", |x| {
        x[0].conv_transpose(
            &x[1],
            &ConvTransposeOptions { stride: [2, 3], dilation: [2, 1], groups: 2, ..ConvTransposeOptions::default() },
        )
    }),
    ("conv_transpose2d, all padded", |x| {
        x[0].conv_transpose(&x[1], &ConvTransposeOptions { padding: [2, 1], ..ConvTransposeOptions::default() })
    }),
    ("conv_transpose3d", |x| {
        let conv = ConvOptions { stride: [2, 1, 2], padding: [1, 0, 1], ..ConvOptions::default() };
        x[0].conv_transpose(&x[1], &ConvTransposeOptions { output_padding: [1, 0, 1], ..conv.into() })
    }),
    ("conv_transpose3d in groups", |x| {
        x[0].conv_transpose(
            &x[1],
            &ConvTransposeOptions { dilation: [1, 2, 1], groups: 2, ..ConvTransposeOptions::default() },
        )
    }),
    ("max_pool3d", |x| x[0].max_pool(&Window { stride: [1, 2, 1], padding: [1, 1, 0], ..Window::new([2, 3, 2]) })),
    ("avg_pool3d", |x| x[0].avg_pool(&Window { stride: [2, 1, 2], padding: [1, 0, 1], ..Window::new([2, 2, 2]) })),
    ("max_pool", |x| x[0].max_pool(&Window { stride: [2, 1], padding: [1, 0], ..Window::new([3, 2]) })),
    ("max_pool side by side", |x| x[0].max_pool(&Window { stride: [2, 2], ..Window::new([2, 2]) })),
    ("avg_pool", |x| x[0].avg_pool(&Window { stride: [2, 2], padding: [1, 1], ..Window::new([2, 2]) })),
    ("adaptive_avg_pool", |x| x[0].adaptive_avg_pool([3, 4])),
    ("adaptive_max_pool", |x| x[0].adaptive_max_pool([2, 3])),
    ("interpolate nearest", |x| x[0].interpolate([10, 3], InterpolateMode::Nearest)),
    ("interpolate linear", |x| x[0].interpolate([10, 3], InterpolateMode::Linear(AlignCorners::No))),
    ("interpolate linear align_corners", |x| x[0].interpolate([10, 3], InterpolateMode::Linear(AlignCorners::Yes))),
    ("layer_norm", |x| x[0].layer_norm(1e-5)),
    ("rms_norm", |x| x[0].rms_norm(1e-5)),
    ("group_norm", |x| x[0].group_norm(2, 1e-5)),
    ("batch_norm", |x| x[0].batch_norm(&x[1], &x[2], 1e-5)),
    ("attention", |x| x[0].scaled_dot_product_attention(&x[1], &x[2], &AttentionOptions::default())),
    ("attention, causal", |x| {
        x[0].scaled_dot_product_attention(
            &x[1],
            &x[2],
            &AttentionOptions { is_causal: true, ..AttentionOptions::default() },
        )
    }),
    ("attention, heads in groups", |x| x[0].scaled_dot_product_attention(&x[1], &x[2], &AttentionOptions::default())),
    ("attention with a mask", |x| {
        let mask = x[3].cast(DType::Bool);
        x[0].scaled_dot_product_attention(
            &x[1],
            &x[2],
            &AttentionOptions { attn_mask: Some(&mask), scale: Some(0.7), ..AttentionOptions::default() },
        )
    }),
    ("attention with a bias", |x| {
        x[0].scaled_dot_product_attention(
            &x[1],
            &x[2],
            &AttentionOptions { attn_mask: Some(&x[3]), ..AttentionOptions::default() },
        )
    }),
    ("rope rotate_half", |x| x[0].rope(&x[1], &RopeOptions { base: 100.0, ..RopeOptions::default() })),
    ("rope interleaved", |x| x[0].rope(&x[1], &RopeOptions { base: 100.0, style: RopeStyle::Interleaved })),
    ("cross_entropy", |x| x[0].cross_entropy(&x[1])),
    ("cross_entropy, smoothed", |x| {
        x[0].cross_entropy_with_options(
            &x[1],
            &CrossEntropyOptions { label_smoothing: 0.1, ..CrossEntropyOptions::default() },
        )
    }),
    ("cross_entropy, weighted", |x| {
        x[0].cross_entropy_with_options(
            &x[1],
            &CrossEntropyOptions { weight: Some(&x[2]), ..CrossEntropyOptions::default() },
        )
    }),
    ("cross_entropy, all options", |x| {
        // The class of the first example is ignored.
        let ignore = Some(x[1].to_vec::<i32>().unwrap()[0].into());
        x[0].cross_entropy_with_options(
            &x[1],
            &CrossEntropyOptions {
                label_smoothing: 0.2,
                ignore_index: ignore,
                weight: Some(&x[2]),
                ..Default::default()
            },
        )
    }),
    ("cross_entropy of probabilities", |x| {
        x[0].cross_entropy_with_options(
            &x[1].softmax(-1),
            &CrossEntropyOptions { label_smoothing: 0.1, ..CrossEntropyOptions::default() },
        )
    }),
    ("nll_loss", |x| x[0].nll_loss(&x[1], Reduction::Mean)),
    ("mse_loss", |x| x[0].mse_loss(&x[1], Reduction::Mean)),
    ("l1_loss", |x| x[0].l1_loss(&x[1], Reduction::Mean)),
    ("huber_loss", |x| x[0].huber_loss(&x[1], 0.7, Reduction::Mean)),
    ("binary_cross_entropy", |x| x[0].binary_cross_entropy(&x[1], Reduction::Mean)),
    ("binary_cross_entropy_with_logits", |x| x[0].binary_cross_entropy_with_logits(&x[1], &BceOptions::default())),
    ("kl_div", |x| x[0].kl_div(&x[1], Reduction::Mean)),
    ("cosine_similarity", |x| x[0].cosine_similarity(&x[1], -1, 1e-8)),
    ("cosine_embedding_loss", |x| {
        let alike = x[2].cast(x[0].dtype()) * 2.0 - 1.0;
        x[0].cosine_embedding_loss(&x[1], &alike, 0.1, Reduction::Mean)
    }),
    ("einsum ...ij,...jk", |x| einsum("...ij,...jk", x)),
    ("einsum ij...,jk...->ik...", |x| einsum("ij...,jk...->ik...", x)),
    ("einsum i...i->...", |x| einsum("i...i->...", x)),
    ("einsum iij->ij", |x| einsum("iij->ij", x)),
    ("einsum ba", |x| einsum("ba", x)),
    ("einsum i->i", |x| einsum("i->i", x)),
    ("einsum A,b->bA", |x| einsum("A,b->bA", x)),
    ("einsum ij,ij->i", |x| einsum("ij,ij->i", x)),
    ("einsum ab,bc,cd,de", |x| einsum("ab,bc,cd,de", x)),
    ("einsum bi,bj,bk,ijk->b", |x| einsum("bi,bj,bk,ijk->b", x)),
    ("index", |x| x[0].index(&[&x[1], &x[2]])),
    ("index_put adds", |x| x[0].index_put(&[&x[1], &x[2]], &x[3], ScatterReduce::Add)),
    ("index_put replaces", |x| x[0].index_put(&[&x[1], &x[2]], &x[3], ScatterReduce::Assign)),
    ("index_put keeps the last", |x| x[0].index_put(&[&x[1]], &x[2], ScatterReduce::Assign)),
    ("scatter adds", |x| x[0].scatter(1, &x[1], &x[2], ScatterReduce::Add)),
    ("scatter replaces", |x| x[0].scatter(1, &x[1], &x[2], ScatterReduce::Assign)),
    ("masked_fill", |x| x[0].masked_fill(&x[0].gt(&like(&x[0], 0.5)), -1.5)),
    ("repeat_interleave", |x| x[0].repeat_interleave(3, 0)),
    ("movedim", |x| x[0].movedim(-1, 0)),
    ("meshgrid", |x| Tensor::meshgrid(&[&x[0], &x[1]]).into_iter().reduce(|x, y| x * y).unwrap()),
    ("diag_embed", |x| x[0].diag_embed()),
    ("trace", |x| x[0].trace()),
    ("diff", |x| x[0].diff(0)),
    ("logcumsumexp", |x| x[0].logcumsumexp(1)),
    ("asinh", |x| x[0].asinh()),
    ("acosh", |x| x[0].acosh()),
    ("atanh", |x| x[0].atanh()),
    ("log10", |x| x[0].log10()),
    ("searchsorted", |x| x[0].searchsorted(&x[1], Side::Right)),
    ("bincount", |x| x[0].bincount(6)),
    ("fft of 1", |x| x[0].fft(-1)),
    ("fft of 2", |x| x[0].fft(-1)),
    ("fft of 15", |x| x[0].fft(-1)),
    ("fft of 128", |x| x[0].fft(-1)),
    ("fft of 200", |x| x[0].fft(-1)),
    ("fft of 131", |x| x[0].fft(-1)),
    ("ifft", |x| x[0].ifft(0)),
    ("rfft of 9", |x| x[0].rfft(-1)),
    ("rfft of 150", |x| x[0].rfft(-1)),
    ("irfft of 9", |x| x[0].irfft(9, -1)),
    ("irfft of 150", |x| x[0].irfft(150, -1)),
    ("fft2", |x| x[0].fft2()),
    ("ifft2", |x| x[0].ifft2()),
    ("rfft2", |x| x[0].rfft2()),
    ("irfft2", |x| x[0].irfft2(7)),
    ("complex_mul", |x| x[0].complex_mul(&x[1])),
    ("cholesky", |x| positive(&x[0]).cholesky()),
    ("cholesky of blocks", |x| positive(&x[0]).cholesky()),
    ("cholesky of a triangle", |x| x[0].cholesky()),
    ("solve_triangular, lower", |x| x[0].solve_triangular(&x[1], Triangle::Lower)),
    ("solve_triangular, upper", |x| x[0].solve_triangular(&x[1], Triangle::Upper)),
    ("solve_triangular of blocks", |x| x[0].solve_triangular(&x[1], Triangle::Upper)),
    ("qr, q", |x| x[0].qr().q),
    ("qr, r", |x| x[0].qr().r),
    ("qr of squares, q", |x| x[0].qr().q),
    ("qr of squares, r", |x| x[0].qr().r),
    ("qr of wide, q", |x| x[0].qr().q),
    ("qr of wide, r", |x| x[0].qr().r),
    ("qr of blocks, q", |x| x[0].qr().q),
    ("qr of blocks, r", |x| x[0].qr().r),
    ("solve", |x| x[0].solve(&x[1])),
    ("solve for a vector", |x| x[0].solve(&x[1])),
    ("lstsq", |x| x[0].lstsq(&x[1])),
    ("inv", |x| x[0].inv()),
    ("det", |x| x[0].det()),
    ("slogdet, sign", |x| x[0].slogdet().sign),
    ("slogdet", |x| x[0].slogdet().logabsdet),
    ("diagonal 2", |x| x[0].diagonal(2)),
    ("diagonal -1", |x| x[0].diagonal(-1)),
    ("cross", |x| x[0].cross(&x[1], 1)),
    ("kron", |x| x[0].kron(&x[1])),
    ("kron of a vector", |x| x[0].kron(&x[1])),
    ("cdist of 2", |x| x[0].cdist(&x[1], 2.0)),
    ("cdist of 1", |x| x[0].cdist(&x[1], 1.0)),
    ("cdist of inf", |x| x[0].cdist(&x[1], f64::INFINITY)),
    ("cdist of 3.5", |x| x[0].cdist(&x[1], 3.5)),
    ("cdist of itself", |x| x[0].cdist(&x[1], 2.0)),
    ("quantile of 0.3", |x| x[0].quantile(0.3, 1)),
    ("quantile of 0.0", |x| x[0].quantile(0.0, 1)),
    ("quantile of 1.0", |x| x[0].quantile(1.0, 1)),
    ("quantile of nan", |x| x[0].quantile(0.5, 1)),
    ("nansum", |x| x[0].nansum(1)),
    ("nanmean", |x| x[0].nanmean(1)),
    ("hypot", |x| x[0].hypot(&x[1])),
    ("hypot at ends", |x| x[0].hypot(&x[1])),
    ("erfinv", |x| x[0].erfinv()),
    ("erfinv at ends", |x| x[0].erfinv()),
    ("lgamma", |x| x[0].lgamma()),
    ("lgamma at ends", |x| x[0].lgamma()),
    ("linspace", |_| Tensor::linspace(-1.0, 2.0, 7, DType::F32)),
    ("linspace of 1", |_| Tensor::linspace(-1.0, 2.0, 1, DType::F32)),
    ("lu", |x| l_and_sine_of_u(&x[0])),
    ("lu, order", |x| x[0].lu().perm),
    ("lu of blocks", |x| l_and_sine_of_u(&x[0])),
    ("lu of blocks, order", |x| x[0].lu().perm),
    ("eigh", |x| {
        let Eigh { values, vectors } = x[0].eigh();
        vectors.matmul(&values.sin().diag_embed()).matmul(&vectors.t())
    }),
    ("eigh, values", |x| x[0].eigh().values),
    ("fft of n 4, ortho", |x| x[0].fft_with_options(-1, &FftOptions { n: Some(4), norm: FftNorm::Ortho })),
    ("fft of n 9, forward", |x| x[0].fft_with_options(-1, &FftOptions { n: Some(9), norm: FftNorm::Forward })),
    ("ifft of n 9, forward", |x| x[0].ifft_with_options(-1, &FftOptions { n: Some(9), norm: FftNorm::Forward })),
    ("rfft of n 9, ortho", |x| x[0].rfft_with_options(-1, &FftOptions { n: Some(9), norm: FftNorm::Ortho })),
    ("irfft of n 9, ortho", |x| x[0].irfft_with_options(-1, &FftOptions { n: Some(9), norm: FftNorm::Ortho })),
    ("irfft of no n, forward", |x| x[0].irfft_with_options(-1, &FftOptions { n: None, norm: FftNorm::Forward })),
    ("neg", |x| -&x[0]),
    ("where", |x| x[0].where_self(&x[2].cast(DType::Bool), &x[1])),
    ("clamp", |x| x[0].clamp(1.0, 5.0)),
    ("floor", |x| x[0].floor()),
    ("ceil", |x| x[0].ceil()),
    ("round", |x| x[0].round()),
    ("trunc", |x| x[0].trunc()),
    ("sign", |x| x[0].sign()),
    ("isnan", |x| x[0].is_nan()),
    ("isfinite", |x| x[0].is_finite()),
    ("lt", |x| x[0].lt(&x[1])),
    ("le", |x| x[0].le(&x[1])),
    ("eq", |x| x[0].eq(&x[1])),
    ("ne", |x| x[0].ne(&x[1])),
    ("gt", |x| x[0].gt(&x[1])),
    ("ge", |x| x[0].ge(&x[1])),
    ("any", |x| x[0].any(1)),
    ("all", |x| x[0].all(1)),
    ("count_nonzero", |x| x[0].count_nonzero(..)),
    ("argmin", |x| x[0].argmin(0)),
    ("sort down", |x| x[0].sort(0, SortOrder::Descending)),
    ("argsort of many", |x| x[0].argsort(1, SortOrder::Ascending)),
    ("pad", |x| x[0].pad(&[(1, 3), (2, 0)])),
    ("concat", |x| Tensor::concat(x, 1)),
    ("stack", |x| Tensor::stack(x, 1)),
    ("transpose", |x| x[0].t() * 2.0),
    ("slice with step", |x| x[0].slice((.., TensorIndex::Slice { start: Some(1), end: None, step: 2 }))),
    ("index_add", |x| x[0].index_add(0, &x[1], &x[2])),
];

fn einsum(equation: &str, x: &[Tensor]) -> Tensor {
    Tensor::einsum(equation, &x.iter().collect::<Vec<&Tensor>>())
}

fn l_and_sine_of_u(x: &Tensor) -> Tensor {
    let Lu { l, u, .. } = x.lu();
    l.matmul(&u.sin())
}

fn positive(x: &Tensor) -> Tensor {
    let [_, _, n] = x.dims().unwrap();
    x.matmul(&x.t()) / n as f64 + Tensor::eye(n, x.dtype())
}

/// Returns a number as a scalar of a tensor's type.
fn like(tensor: &Tensor, number: f64) -> Tensor {
    Tensor::scalar(number).cast(tensor.dtype())
}

/// Returns a weighted sum with a different weight for each element, as in `make.py`.
pub fn weighted(tensor: &Tensor) -> Tensor {
    let elems = tensor.shape().unwrap().numel();
    let weights: Vec<f64> = (0..elems).map(|i| (i as f64 * 0.37 + 0.5).sin()).collect();
    (tensor.reshape([-1]) * Tensor::from_slice(&weights, [elems]).cast(tensor.dtype())).sum(..)
}

#[test]
fn operations_and_gradients_are_pytorchs() {
    let fixture = Fixture::new(include_bytes!("../../fixtures/ops.safetensors"));
    for device in devices(false) {
        device.scope(|| {
            for (name, op) in CASES {
                let inputs: Vec<Tensor> = (0..).map_while(|i| fixture.tensor(&format!("{name}/in/{i}"))).collect();
                let out = op(&inputs);
                close(&format!("{name} on {device}"), &out, &fixture.get(&format!("{name}/out")), 4e-6);
                let grads = (0..inputs.len()).filter_map(|i| Some((i, fixture.tensor(&format!("{name}/grad/{i}"))?)));
                let (places, want): (Vec<usize>, Vec<Tensor>) = grads.unzip();
                if places.is_empty() {
                    continue;
                }
                let wanted: Vec<&Tensor> = places.iter().map(|i| &inputs[*i]).collect();
                let have = weighted(&out).gradients(&wanted).unwrap();
                for ((i, have), want) in places.iter().zip(&have).zip(&want) {
                    close(&format!("gradient {i} of {name} on {device}"), have, want, 1e-5);
                }
            }
        });
    }
}

#[test]
fn every_case_of_the_fixture_is_compared() {
    let fixture = Fixture::new(include_bytes!("../../fixtures/ops.safetensors"));
    let outputs = fixture.0.names().into_iter().filter_map(|name| name.strip_suffix("/out"));
    let missing: Vec<&str> = outputs.filter(|name| CASES.iter().all(|(known, _)| known != name)).collect();
    assert!(missing.is_empty(), "no case for {missing:?}");
}
