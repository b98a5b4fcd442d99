//! Times single operations on the CPU. Each line has the name and milliseconds, separated by a tab; a second line includes the gradients.
//! Arrays have a few megabytes, which fit into the caches. `operations.py` in `xtask` has the same in PyTorch.
//!
//! `operations [PART OF A NAME]`

use std::time::Instant;

use panoply_tensor::{
    AlignCorners, AttentionOptions, ConvOptions, ConvTransposeOptions, DType, Device, InterpolateMode, Result, Rng,
    ScatterReduce, Side, SortOrder, Tensor, TensorIndex, Window, eval,
};

type Op = fn(&[Tensor]) -> Tensor;

fn main() -> Result<()> {
    let part = std::env::args().nth(1).unwrap_or_default();
    Device::get("cpu")?.scope(|| measure(&part))
}

/// The median of several runs, in milliseconds.
fn median(run: impl Fn() -> Result<()>) -> Result<f64> {
    run()?;
    run()?;
    let (start, mut times) = (Instant::now(), Vec::new());
    while times.len() < 3 || (times.len() < 25 && start.elapsed().as_secs_f64() < 0.1) {
        let before = Instant::now();
        run()?;
        times.push(before.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

fn measure(part: &str) -> Result<()> {
    let done = |x: Tensor| x.eval().map(|()| x);
    let mut rng = Rng::seed_from_u64(1);
    let mut random = |shape: &[usize]| done(rng.uniform(shape.to_vec()) * 2.0 - 1.0);
    let (big, big2, line, row, column) =
        (random(&[4096, 1024])?, random(&[4096, 1024])?, random(&[1 << 22])?, random(&[1024])?, random(&[4096, 1])?);
    let (half, tall, wide, threes, cube) = (
        random(&[512, 1024])?,
        random(&[65536, 64])?,
        random(&[64, 65536])?,
        random(&[1 << 20, 3])?,
        random(&[64, 256, 256])?,
    );
    let (square, square512, batch, points) =
        (random(&[1024, 1024])?, random(&[512, 512])?, random(&[256, 64, 64])?, random(&[1024, 32])?);
    let (image, filters, by_channel, one_by_one) =
        (random(&[8, 64, 56, 56])?, random(&[64, 64, 3, 3])?, random(&[64, 1, 3, 3])?, random(&[128, 64, 1, 1])?);
    let (sound, filters1, volume, filters3) =
        (random(&[16, 64, 1024])?, random(&[64, 64, 5])?, random(&[4, 16, 32, 32, 32])?, random(&[16, 16, 3, 3, 3])?);
    let (complex, queries, heads, table, logits, many, spectra) = (
        random(&[1024, 1024, 2])?,
        random(&[1 << 20])?,
        random(&[8, 8, 512, 64])?,
        random(&[50000, 256])?,
        random(&[4096, 1000])?,
        random(&[1024, 16, 16])?,
        random(&[4096, 513, 2])?,
    );
    let mut below = |most: f64, shape: &[usize]| done((random(shape)?.abs() * most).cast(DType::I32));
    let (rows_at, along) = (below(4095.0, &[8192])?, below(1023.0, &[4096, 1024])?);
    let (tokens, classes) = (below(49999.0, &[64, 256])?, below(999.0, &[4096])?);
    let positive = done(big.abs() + 0.1)?;
    let integers = done((&big * 1e6).cast(DType::I32))?;
    let divisors = done((&big2 * 1000.0).cast(DType::I32) * 2.0 + 1.0)?;
    let bytes = done((big.abs() * 100.0).cast(DType::U8))?;
    let [longs, doubles, f16s, bf16s] =
        [(&integers, DType::I64), (&big, DType::F64), (&big, DType::F16), (&big, DType::BF16)]
            .map(|(x, to)| x.cast(to));
    eval(&[&longs, &doubles, &f16s, &bf16s])?;
    let mask = done(big.gt(&big2))?;
    let sorted = done(line.sort(0, SortOrder::Ascending))?;
    let definite = done(square512.matmul(&square512.t()) / 512.0 + Tensor::eye(512, DType::F32))?;
    let square16 = done(square.cast(DType::F16))?;
    let rows: Vec<(&str, Vec<&Tensor>, bool, Op)> = vec![
        ("exp", vec![&big], true, |x| x[0].exp()),
        ("log", vec![&positive], true, |x| x[0].log()),
        ("tanh", vec![&big], true, |x| x[0].tanh()),
        ("erf", vec![&big], true, |x| x[0].erf()),
        ("sin", vec![&big], true, |x| x[0].sin()),
        ("tan", vec![&big], false, |x| x[0].tan()),
        ("atan", vec![&big], false, |x| x[0].atan()),
        ("asinh", vec![&big], false, |x| x[0].asinh()),
        ("erfinv", vec![&big], false, |x| x[0].erfinv()),
        ("lgamma", vec![&positive], false, |x| x[0].lgamma()),
        ("sigmoid", vec![&big], true, |x| x[0].sigmoid()),
        ("gelu", vec![&big], true, |x| x[0].gelu()),
        ("silu", vec![&big], true, |x| x[0].silu()),
        ("mish", vec![&big], true, |x| x[0].mish()),
        ("softplus", vec![&big], false, |x| x[0].softplus()),
        ("elu", vec![&big], false, |x| x[0].elu()),
        ("relu", vec![&big], true, |x| x[0].relu()),
        ("round", vec![&big], false, |x| x[0].round()),
        ("sqrt", vec![&positive], false, |x| x[0].sqrt()),
        ("add", vec![&big, &big2], true, |x| &x[0] + &x[1]),
        ("div", vec![&big, &big2], true, |x| &x[0] / &x[1]),
        ("pow", vec![&positive, &big2], true, |x| x[0].pow(&x[1])),
        ("pow 3", vec![&positive], true, |x| x[0].pow(3)),
        ("fmod", vec![&big, &positive], false, |x| &x[0] % &x[1]),
        ("maximum", vec![&big, &big2], true, |x| x[0].maximum(&x[1])),
        ("atan2", vec![&big, &big2], false, |x| x[0].atan2(&x[1])),
        ("hypot", vec![&big, &big2], false, |x| x[0].hypot(&x[1])),
        ("logaddexp", vec![&big, &big2], false, |x| x[0].logaddexp(&x[1])),
        ("add row", vec![&big, &row], true, |x| &x[0] + &x[1]),
        ("mul col", vec![&big, &column], true, |x| &x[0] * &x[1]),
        ("lt", vec![&big, &big2], false, |x| x[0].lt(&x[1])),
        ("where", vec![&mask, &big, &big2], false, |x| x[1].where_self(&x[0], &x[2])),
        ("masked_fill", vec![&big, &mask], false, |x| x[0].masked_fill(&x[1], -1.0)),
        ("clamp", vec![&big], false, |x| x[0].clamp(-0.5, 0.5)),
        ("f32 to f16", vec![&big], false, |x| x[0].cast(DType::F16)),
        ("f32 to bf16", vec![&big], false, |x| x[0].cast(DType::BF16)),
        ("f32 to i32", vec![&big], false, |x| x[0].cast(DType::I32)),
        ("f32 to u8", vec![&positive], false, |x| x[0].cast(DType::U8)),
        ("i64 to f32", vec![&longs], false, |x| x[0].cast(DType::F32)),
        ("u8 to f32", vec![&bytes], false, |x| x[0].cast(DType::F32)),
        ("i32 div", vec![&integers, &divisors], false, |x| &x[0] / &x[1]),
        ("i64 mul", vec![&longs], false, |x| &x[0] * &x[0]),
        ("u8 add", vec![&bytes], false, |x| &x[0] + &x[0]),
        ("f16 add", vec![&f16s], false, |x| &x[0] + &x[0]),
        ("bf16 gelu", vec![&bf16s], false, |x| x[0].gelu()),
        ("f64 exp", vec![&doubles], false, |x| x[0].exp()),
        ("f64 tanh", vec![&doubles], false, |x| x[0].tanh()),
        ("not", vec![&mask], false, |x| x[0].bitwise_not()),
        ("sum all", vec![&big], true, |x| x[0].sum(..)),
        ("sum 0", vec![&big], true, |x| x[0].sum(0)),
        ("sum 1", vec![&big], true, |x| x[0].sum(1)),
        ("sum middle", vec![&cube], true, |x| x[0].sum(1)),
        ("sum wide", vec![&wide], true, |x| x[0].sum(1)),
        ("sum tall 1", vec![&tall], true, |x| x[0].sum(1)),
        ("sum tall 0", vec![&tall], true, |x| x[0].sum(0)),
        ("sum 3", vec![&threes], true, |x| x[0].sum(1)),
        ("sum i32 1", vec![&integers], false, |x| x[0].sum(1)),
        ("sum bf16 1", vec![&bf16s], false, |x| x[0].sum(1)),
        ("sum bf16 0", vec![&bf16s], false, |x| x[0].sum(0)),
        ("sum f64", vec![&doubles], false, |x| x[0].sum(..)),
        ("var 0", vec![&big], true, |x| x[0].var(0, 1)),
        ("var 1", vec![&big], true, |x| x[0].var(1, 1)),
        ("std all", vec![&big], false, |x| x[0].std(.., 1)),
        ("norm 1", vec![&big], true, |x| x[0].norm(1)),
        ("max 0", vec![&big], true, |x| x[0].max(0)),
        ("max 1", vec![&big], true, |x| x[0].max(1)),
        ("max all", vec![&big], false, |x| x[0].max(..)),
        ("argmax 0", vec![&big], false, |x| x[0].argmax(0)),
        ("argmax 1", vec![&big], false, |x| x[0].argmax(1)),
        ("argmax line", vec![&line], false, |x| x[0].argmax(0)),
        ("prod 1", vec![&big], true, |x| x[0].prod(1)),
        ("logsumexp 0", vec![&big], true, |x| x[0].logsumexp(0)),
        ("logsumexp 1", vec![&big], true, |x| x[0].logsumexp(1)),
        ("any 1", vec![&mask], false, |x| x[0].any(1)),
        ("count_nonzero", vec![&big], false, |x| x[0].count_nonzero(..)),
        ("median 1", vec![&half], false, |x| x[0].median(1)),
        ("quantile 1", vec![&half], false, |x| x[0].quantile(0.3, 1)),
        ("cumsum 1", vec![&big], true, |x| x[0].cumsum(1)),
        ("cumsum 0", vec![&big], true, |x| x[0].cumsum(0)),
        ("cumsum line", vec![&line], false, |x| x[0].cumsum(0)),
        ("cumprod 1", vec![&big], false, |x| x[0].cumprod(1)),
        ("cummax 1", vec![&big], false, |x| x[0].cummax(1)),
        ("logcumsumexp 1", vec![&big], false, |x| x[0].logcumsumexp(1)),
        ("sort 1", vec![&big], true, |x| x[0].sort(1, SortOrder::Ascending)),
        ("sort 0", vec![&big], false, |x| x[0].sort(0, SortOrder::Ascending)),
        ("sort line", vec![&line], false, |x| x[0].sort(0, SortOrder::Ascending)),
        ("sort i32", vec![&integers], false, |x| x[0].sort(1, SortOrder::Ascending)),
        ("argsort 1", vec![&big], false, |x| x[0].argsort(1, SortOrder::Ascending)),
        ("topk 10", vec![&big], true, |x| x[0].topk(10, 1).values),
        ("searchsorted", vec![&sorted, &queries], false, |x| x[0].searchsorted(&x[1], Side::Right)),
        ("transpose", vec![&big], true, |x| x[0].t()),
        ("permute", vec![&cube], false, |x| x[0].permute([2, 0, 1])),
        ("permute 201", vec![&cube], false, |x| x[0].permute([1, 2, 0])),
        ("nchw to nhwc", vec![&image], false, |x| x[0].permute([0, 2, 3, 1])),
        ("flip 1", vec![&big], false, |x| x[0].flip(1)),
        ("roll 1", vec![&big], false, |x| x[0].roll(100, 1)),
        ("pad", vec![&image], true, |x| x[0].pad(&[(0, 0), (0, 0), (1, 1), (1, 1)])),
        ("concat 0", vec![&big, &big2], true, |x| Tensor::concat(x, 0)),
        ("concat 1", vec![&big, &big2], true, |x| Tensor::concat(x, 1)),
        ("stack 2", vec![&big, &big2], false, |x| Tensor::stack(x, 2)),
        ("tile", vec![&half], false, |x| x[0].tile([1, 8])),
        ("repeat_interleave", vec![&half], false, |x| x[0].repeat_interleave(8, 1)),
        ("step", vec![&big], false, |x| x[0].slice((.., TensorIndex::Slice { start: None, end: None, step: 3 }))),
        ("unfold", vec![&line], false, |x| x[0].unfold(&Window { stride: [4], ..Window::new([16]) })),
        ("tril", vec![&square], false, |x| x[0].tril(0)),
        ("diagonal", vec![&square], false, |x| x[0].diagonal(0)),
        ("broadcast_to", vec![&row], false, |x| x[0].broadcast_to([4096usize, 1024])),
        ("index_select 0", vec![&big, &rows_at], true, |x| x[0].index_select(0, &x[1])),
        ("index_select 1", vec![&big, &rows_at], false, |x| x[0].index_select(1, &(&x[1] % &Tensor::scalar(1024i32)))),
        ("take_along_dim 1", vec![&big, &along], true, |x| x[0].take_along_dim(&x[1], 1)),
        ("scatter add", vec![&big, &along, &big2], false, |x| x[0].scatter(1, &x[1], &x[2], ScatterReduce::Add)),
        ("scatter replace", vec![&big, &along, &big2], false, |x| x[0].scatter(1, &x[1], &x[2], ScatterReduce::Assign)),
        ("index_add rows", vec![&big, &rows_at], false, |x| x[0].index_add(0, &x[1], &x[0].index_select(0, &x[1]))),
        ("embedding", vec![&table, &tokens], true, |x| x[0].index_select(0, &x[1])),
        ("one_hot", vec![&classes], false, |x| x[0].one_hot(1000, DType::F32)),
        ("bincount", vec![&rows_at], false, |x| x[0].bincount(4096)),
        ("softmax 1", vec![&big], true, |x| x[0].softmax(1)),
        ("softmax 0", vec![&big], true, |x| x[0].softmax(0)),
        ("softmax middle", vec![&cube], true, |x| x[0].softmax(1)),
        ("softmax bf16", vec![&bf16s], false, |x| x[0].softmax(1)),
        ("log_softmax 1", vec![&big], true, |x| x[0].log_softmax(1)),
        ("layer_norm", vec![&big], true, |x| x[0].layer_norm(1e-5)),
        ("rms_norm", vec![&big], true, |x| x[0].rms_norm(1e-5)),
        ("group_norm", vec![&image], true, |x| x[0].group_norm(8, 1e-5)),
        ("max_pool 2", vec![&image], true, |x| x[0].max_pool(&Window { stride: [2, 2], ..Window::new([2, 2]) })),
        ("max_pool 3s2", vec![&image], true, |x| {
            x[0].max_pool(&Window { stride: [2, 2], padding: [1, 1], ..Window::new([3, 3]) })
        }),
        ("avg_pool 2", vec![&image], true, |x| x[0].avg_pool(&Window { stride: [2, 2], ..Window::new([2, 2]) })),
        ("avg_pool 3s1", vec![&image], false, |x| {
            x[0].avg_pool(&Window { stride: [1, 1], padding: [1, 1], ..Window::new([3, 3]) })
        }),
        ("adaptive avg", vec![&image], true, |x| x[0].adaptive_avg_pool([7, 7])),
        ("conv 3", vec![&image, &filters], true, |x| {
            x[0].conv(&x[1], &ConvOptions { padding: [1, 1], ..ConvOptions::default() })
        }),
        ("conv 3 s2", vec![&image, &filters], true, |x| {
            x[0].conv(&x[1], &ConvOptions { padding: [1, 1], stride: [2, 2], ..ConvOptions::default() })
        }),
        ("conv 1", vec![&image, &one_by_one], true, |x| x[0].conv(&x[1], &ConvOptions::<2>::default())),
        ("conv depth", vec![&image, &by_channel], true, |x| {
            x[0].conv(&x[1], &ConvOptions { padding: [1, 1], groups: 64, ..ConvOptions::default() })
        }),
        ("conv dilated", vec![&image, &filters], false, |x| {
            x[0].conv(&x[1], &ConvOptions { padding: [2, 2], dilation: [2, 2], ..ConvOptions::default() })
        }),
        ("conv transposed", vec![&image, &filters], true, |x| {
            x[0].conv_transpose(
                &x[1],
                &ConvTransposeOptions {
                    stride: [2, 2],
                    padding: [1, 1],
                    output_padding: [1, 1],
                    ..ConvTransposeOptions::default()
                },
            )
        }),
        ("conv 1d", vec![&sound, &filters1], true, |x| {
            x[0].conv(&x[1], &ConvOptions::<1> { padding: [2], ..ConvOptions::default() })
        }),
        ("conv 3d", vec![&volume, &filters3], true, |x| {
            x[0].conv(&x[1], &ConvOptions::<3> { padding: [1, 1, 1], ..ConvOptions::default() })
        }),
        ("nearest", vec![&image], true, |x| x[0].interpolate([112, 112], InterpolateMode::Nearest)),
        ("linear", vec![&image], true, |x| x[0].interpolate([112, 112], InterpolateMode::Linear(AlignCorners::No))),
        ("linear down", vec![&image], false, |x| x[0].interpolate([28, 28], InterpolateMode::Linear(AlignCorners::No))),
        ("cross_entropy", vec![&logits, &classes], true, |x| x[0].cross_entropy(&x[1])),
        ("attention", vec![&heads], true, |x| {
            x[0].scaled_dot_product_attention(&x[0], &x[0], &AttentionOptions::default())
        }),
        ("attention causal", vec![&heads], true, |x| {
            x[0].scaled_dot_product_attention(
                &x[0],
                &x[0],
                &AttentionOptions { is_causal: true, ..AttentionOptions::default() },
            )
        }),
        ("uniform", vec![], false, |_| Rng::seed_from_u64(3).uniform([4096, 1024])),
        ("normal", vec![], false, |_| Rng::seed_from_u64(3).normal([4096, 1024])),
        ("matvec", vec![&big, &row], true, |x| x[0].matmul(&x[1])),
        ("vecmat", vec![&big, &column], true, |x| x[1].t().matmul(&x[0])),
        ("matmul bt", vec![&square, &square], false, |x| x[0].matmul(&x[1].t())),
        ("matmul at", vec![&square, &square], false, |x| x[0].t().matmul(&x[1])),
        ("matmul tall", vec![&tall], false, |x| x[0].t().matmul(&x[0])),
        ("matmul batched", vec![&batch], true, |x| x[0].matmul(&x[0])),
        ("matmul f16", vec![&square16], false, |x| x[0].matmul(&x[0])),
        ("matmul f64", vec![&doubles], false, |x| x[0].narrow(0, 0, 1024).matmul(&x[0].narrow(0, 0, 1024))),
        ("outer", vec![&row], false, |x| x[0].outer(&x[0])),
        ("einsum bij,bkj->bik", vec![&batch], false, |x| Tensor::einsum("bij,bkj->bik", &[&x[0], &x[0]])),
        ("cdist", vec![&points], true, |x| x[0].cdist(&x[0], 2.0)),
        ("cdist 1", vec![&points], false, |x| x[0].cdist(&x[0], 1.0)),
        ("fft rows", vec![&complex], false, |x| x[0].fft(-1)),
        ("fft2", vec![&complex], false, |x| x[0].fft2()),
        ("rfft rows", vec![&big], false, |x| x[0].rfft(-1)),
        ("rfft 1000", vec![&logits], false, |x| x[0].rfft(-1)),
        ("irfft rows", vec![&spectra], false, |x| x[0].irfft(1024, -1)),
        ("fft long", vec![&complex], false, |x| x[0].reshape([1 << 20, 2]).fft(0)),
        ("fft prime", vec![&complex], false, |x| x[0].reshape([1 << 20, 2]).narrow(0, 0, 1_000_003).fft(0)),
        ("cholesky", vec![&definite], true, |x| x[0].cholesky()),
        ("inv", vec![&definite], true, |x| x[0].inv()),
        ("solve", vec![&definite, &square512], true, |x| x[0].solve(&x[1])),
        ("det", vec![&definite], false, |x| x[0].slogdet().logabsdet),
        ("qr", vec![&square512], true, |x| x[0].qr().q),
        ("eigh", vec![&definite], false, |x| x[0].eigh().values),
        ("inv many", vec![&many], false, |x| x[0].inv()),
        ("qr many", vec![&many], false, |x| x[0].qr().q),
        ("eye", vec![], false, |_| Tensor::eye(2048, DType::F32)),
        ("arange", vec![], false, |_| Tensor::arange(1 << 22)),
    ];
    for (name, inputs, differentiable, op) in rows {
        if !name.contains(part) {
            continue;
        }
        let inputs: Vec<Tensor> = inputs.into_iter().cloned().collect();
        println!("{name}\t{:.4}", median(|| op(&inputs).eval())?);
        if differentiable {
            let wanted: Vec<&Tensor> = inputs.iter().filter(|x| x.dtype().is_float()).collect();
            let grad_output = op(&inputs).ones_like();
            grad_output.eval()?;
            let both = || {
                let y = op(&inputs);
                let mut all = (&y * &grad_output).sum(..).gradients(&wanted)?;
                all.push(y);
                eval(&all.iter().collect::<Vec<&Tensor>>())
            };
            println!("{name} with gradients\t{:.4}", median(both)?);
        }
    }
    Ok(())
}
