//! Errors of invalid expressions: one sentence with the operands and the source line, and never a panic.

use panoply_tensor::{
    AlignCorners, AttentionOptions, ConvOptions, ConvTransposeOptions, DType, Device, FftOptions, InterpolateMode,
    Reduction, Rng, ScatterReduce, Side, SortOrder, Tensor, Triangle, Window, eval, plan_cache_stats,
};

fn on_cpu(work: impl FnOnce()) {
    Device::get("cpu").unwrap().scope(work);
}

fn ones(shape: &[usize]) -> Tensor {
    Tensor::ones(shape, DType::F32)
}

#[track_caller]
fn check(wrong: &Tensor, message: &str) {
    assert_eq!(mistake_of(wrong).message(), message);
}

/// Returns the mistake of a tensor, which must end with the line of this file where it was made.
#[track_caller]
fn mistake_of(wrong: &Tensor) -> panoply_tensor::Error {
    let error = wrong.check().unwrap_err();
    assert!(error.is_mistake(), "{error}");
    let text = error.to_string();
    let last = text.lines().last().unwrap_or_default().trim();
    assert!(last.contains(file!()), "the caller's line is missing: {text}");
    error
}

#[test]
fn each_mistake_is_one_sentence() {
    on_cpu(|| {
        let (a, b) = (ones(&[64, 784]), ones(&[128, 10]));
        check(&a.matmul(&b), "matmul: inner dimensions 784 and 128 differ");
        check(&(&a + &b), "add: shapes [64, 784] and [128, 10] do not broadcast");
        check(&(&a + &b.cast(DType::F16)), "add: element types f32 and f16 differ");
        check(&a.sum(2).exp(), "sum: axis 2 is out of range for [64, 784] with 2 axes");
        check(&a.cast(DType::I32).exp(), "exp is not defined for i32");
        check(&a.transpose(0, -3), "transpose: axis -3 is out of range for [64, 784] with 2 axes");
        let positions = a.index_select(0, &a).check().unwrap_err();
        assert!(positions.message().starts_with("index_select: positions are f32[64, 784]"), "{positions}");
        check(&Tensor::from_slice(&[1f32, 2.0, 3.0], [2, 2]), "3 elements do not fill a tensor of shape [2, 2]");
    });
}

#[test]
fn mistakes_of_functions_name_their_operands() {
    on_cpu(|| {
        let (a, b) = (ones(&[4, 6]), ones(&[5, 3]));
        for (wrong, part) in [
            (a.diagonal(6), "has no diagonal 6 places right of the main one"),
            (a.diagonal(-4), "has no diagonal -4 places right"),
            (ones(&[4]).diagonal(1), "is not a matrix"),
            (a.cross(&b, 1), "cross: axis 1 of f32[4, 6]"),
            (b.cross(&a, 1), "cross: axis 1 of f32[4, 6]"),
            (b.cross(&b, 2), "cross: axis 2 is out of range for [5, 3]"),
            (a.cdist(&b, 2.0), "cdist: no distances with p = 2 between rows of f32[4, 6]"),
            (b.cdist(&b, 0.0), "cdist: no distances with p = 0"),
            (b.cdist(&ones(&[3]), 2.0), "cdist: no distances"),
            (a.quantile(1.5, 0), "has no quantile 1.5 along axis 0"),
            (a.quantile(f64::NAN, 0), "has no quantile NaN"),
            (a.cast(DType::I32).quantile(0.5, 0), "has no quantile 0.5"),
            (ones(&[2, 0]).quantile(0.5, 1), "has no quantile 0.5 along axis 1"),
            (a.nanmean(2), "nanmean: axis 2 is out of range"),
            (Tensor::linspace(0.0, 1.0, 3, DType::I32), "linspace: i32 has no fractions"),
            (a.fft_with_options(0, &FftOptions::default()), "fft: needs complex numbers, not f32[4, 6]"),
            (a.rfft_with_options(2, &FftOptions::default()), "rfft: axis 2 is out of range"),
            (
                a.rfft_with_options(0, &FftOptions { n: Some(0), ..FftOptions::default() }),
                "rfft: a transform cannot have length 0",
            ),
            (ones(&[1, 2]).irfft_with_options(0, &FftOptions::default()), "irfft: 0 numbers"),
            (a.lu().perm, "lu: needs square matrices, not f32[4, 6]"),
            (ones(&[3, 3]).cast(DType::I32).lu().l, "lu: needs f32 or f64, not i32[3, 3]"),
            (a.eigh().values, "eigh: needs square matrices, not f32[4, 6]"),
            (a.kron(&a.matmul(&b)), "matmul: inner dimensions 6 and 5 differ"),
        ] {
            let error = mistake_of(&wrong);
            assert!(error.message().contains(part), "{error}");
        }
        // The error of an empty transform is reported before anything runs.
        assert!(
            ones(&[0, 2]).fft_with_options(0, &FftOptions { n: Some(4), ..FftOptions::default() }).check().is_err()
        );
    });
}

#[test]
fn movement_mistakes_name_their_operand() {
    on_cpu(|| {
        let a = ones(&[4, 6]);
        for (wrong, part) in [
            (a.reshape([5, -1]), "reshape: f32[4, 6]"),
            (a.reshape([-1, -1]), "reshape: f32[4, 6]"),
            (a.slice((.., 6)), "slice: 6 is out of range for axis 1"),
            (a.slice((-5.., ..)), "slice: -5.. does not fit axis 0"),
            (a.narrow(1, 4, 3), "narrow: 4 .. 7 does not fit axis 1"),
            (a.permute([0, 0]), "permute: [0, 0] does not name each axis"),
            (a.pad(&[(1, 1)]), "pad: 1 widths"),
            (Tensor::concat([a.clone(), ones(&[4, 5])], 0), "concat: "),
            (Tensor::concat(Vec::<Tensor>::new(), 0), "concat: no tensors were given"),
            (a.squeeze(0), "squeeze: axis 0"),
        ] {
            let error = mistake_of(&wrong);
            assert!(error.message().contains(part), "{error}");
        }
    });
}

#[test]
fn mistakes_of_composed_operations_name_their_operands() {
    on_cpu(|| {
        let (image, matrix) = (ones(&[2, 3, 5, 5]), ones(&[4, 6]));
        let attend = |keys: &Tensor| image.scaled_dot_product_attention(keys, keys, &AttentionOptions::default());
        for (wrong, part) in [
            (image.conv(&ones(&[4, 2, 3, 3]), &ConvOptions::<2>::default()), "conv: 3 channels and 1 groups"),
            (
                image.conv(&ones(&[4, 3, 6, 6]), &ConvOptions::<2>::default()),
                "filters of [6, 6] do not fit padded lengths",
            ),
            (
                ones(&[2, 3, 7, 0])
                    .conv(&ones(&[4, 3, 3, 2]), &ConvOptions { padding: [1, 2], ..ConvOptions::default() }),
                "conv: there are no elements along axis 3",
            ),
            (
                ones(&[2, 3, 0]).conv_transpose(&ones(&[3, 4, 3]), &ConvTransposeOptions::<1>::default()),
                "conv_transpose: there are no elements along axis 2",
            ),
            (
                image.conv(&ones(&[4, 3, 3]), &ConvOptions::<2>::default()),
                "conv: needs [batch, channels] and 2 more axes",
            ),
            (
                image.max_pool(&Window { padding: [2, 2], ..Window::new([2, 2]) }),
                "max_pool: padding [2, 2] is more than half",
            ),
            (attend(&ones(&[2, 2, 5, 5])), "attention: 3 heads are not a multiple of 2 key heads"),
            (attend(&ones(&[2, 3, 5, 4])), "attention: lengths of queries, keys and values do not fit"),
            (Tensor::einsum("ij,jk->ik", &[&matrix, &matrix]), "einsum: `ij,jk->ik`: `j` has lengths 6 and 4"),
            (Tensor::einsum("ij->z", &[&matrix]), "no operand has `z`"),
            (Tensor::einsum("...i->i", &[&matrix]), "the `...` of the operands has axes, but the result has no `...`"),
            (Tensor::einsum("ij", &[&image]), "2 labels for 4 axes"),
            (Tensor::einsum("abc...", &[&matrix]), "3 labels for 2 axes"),
            (Tensor::einsum("ii", &[&matrix]), "`i` has lengths 4 and 6"),
            (Tensor::einsum("ii", &[&ones(&[1, 3])]), "`i` has lengths 1 and 3"),
            (Tensor::einsum("...a...", &[&matrix]), "`.` is not a label"),
            (Tensor::einsum("i.j", &[&matrix]), "`.` is not a label"),
            (Tensor::einsum("i->j->i", &[&matrix]), "einsum: `i->j->i`: "),
            (Tensor::einsum("ij->ijj", &[&matrix]), "the result names a label twice"),
            (Tensor::einsum("...,...", &[&matrix, &ones(&[5])]), "an axis of `...` has lengths 6 and 5"),
            (Tensor::einsum("ij,jk", &[&matrix]), "it names 2 operands, but 1 are given"),
            (Tensor::einsum("", &[]), "it names 1 operands, but 0 are given"),
            (matrix.topk(7, 1).values, "has 6 elements, fewer than the requested 7"),
            (matrix.split(&[1, 2], 0).remove(1), "split: [1, 2] do not add up"),
            (image.group_norm(2, 1e-5), "group_norm: the channels of f32[2, 3, 5, 5]"),
            (matrix.outer(&matrix), "outer: f32[4, 6]"),
            (matrix.cholesky(), "cholesky: needs square matrices, not f32[4, 6]"),
            (matrix.inv(), "inv: needs square matrices, not f32[4, 6]"),
            (ones(&[4]).qr().q, "qr: needs matrices, not f32[4]"),
            (matrix.cast(DType::F16).qr().r, "qr: needs f32 or f64, not f16[4, 6]"),
            (ones(&[0, 0]).det(), "det: needs elements, not f32[0, 0]"),
            (matrix.lstsq(&matrix), "lstsq: 4 equations do not determine 6 unknowns"),
            (ones(&[3, 3]).solve(&matrix), "solve: 3 equations do not fit a right side of 4 × 6"),
            (ones(&[2, 3, 3]).solve(&ones(&[4, 3, 1])), "solve: "),
            (ones(&[3, 3]).solve_triangular(&Tensor::arange(3), Triangle::Lower), "element types f32 and i32 differ"),
            (Tensor::call("inside", [&ones(&[4, 2])], (), |[x], ()| x.fft(0)), "inside: its body captures data"),
            (matrix.fft(0), "fft: needs complex numbers, not f32[4, 6]"),
            (ones(&[4, 2]).fft(1), "fft: axis 1 is out of range for the 1 of complex numbers f32[4, 2]"),
            (ones(&[0, 2]).ifft(0), "ifft: there are no elements along axis 0 of f32[0, 2]"),
            (ones(&[4, 2]).cast(DType::F16).fft(0), "fft: needs f32 or f64, not f16[4, 2]"),
            (ones(&[4, 2]).irfft(9, 0), "irfft: 9 numbers have 5 frequencies, not the 4 of f32[4, 2]"),
            (Tensor::arange(4).rfft(0), "rfft: needs complex numbers, not i32[4, 2]"),
            (ones(&[3, 4]).real(), "real: needs complex numbers, not f32[3, 4]"),
            (ones(&[3, 2]).complex_mul(&matrix), "complex_mul: needs complex numbers, not f32[4, 6]"),
            (matrix.index(&[]), "index: positions for 0 of the 2 axes of f32[4, 6]"),
            (matrix.index(&[&matrix]), "index: positions are f32[4, 6]"),
            (matrix.index(&[&Tensor::arange(3), &Tensor::arange(2)]), "index: the positions do not broadcast"),
            (
                matrix.index_put(&[&Tensor::arange(3)], &ones(&[3, 5]), ScatterReduce::Add),
                "cannot be written to elements of shape [3, 6]",
            ),
            (matrix.index_put(&[&Tensor::arange(3)], &Tensor::arange(6), ScatterReduce::Assign), "and type f32"),
            (matrix.scatter(0, &Tensor::arange(6), &matrix, ScatterReduce::Add), "scatter: i32[6]"),
            (
                matrix.index_put(&[&Tensor::zeros([1 << 31], DType::I32)], &ones(&[6]), ScatterReduce::Assign),
                "index_put: i32[2147483648]",
            ),
            (matrix.masked_fill(&matrix, 1.0), "select: the condition is f32[4, 6]"),
            (Tensor::meshgrid(&[&Tensor::arange(2), &matrix]).remove(0), "meshgrid: f32[4, 6]"),
            (matrix.searchsorted(&matrix, Side::Left), "searchsorted: f32[4, 6]"),
            (matrix.bincount(3), "index_add: positions are f32[24]"),
            (matrix.movedim(0, 2), "movedim: axis 2 is out of range"),
        ] {
            let error = mistake_of(&wrong);
            assert!(error.message().contains(part), "{error}");
        }
    });
}

#[test]
fn sizes_beyond_the_address_space_are_mistakes() {
    const HUGE: usize = usize::MAX;
    on_cpu(|| {
        let (a, image, filters) = (ones(&[4]), ones(&[2, 3, 4, 4]), ones(&[3, 3, 2, 2]));
        let (long, cube) = (Tensor::zeros([1 << 62], DType::U8), ones(&[1 << 20; 3]));
        let conv = |conv: ConvOptions<2>| image.conv(&filters, &conv);
        for (wrong, part) in [
            (ones(&[HUGE, 2]), "f32[18446744073709551615, 2] has more bytes than the address space"),
            (ones(&[1 << 62]).exp(), "has more bytes than the address space"),
            (a.reshape([isize::MAX, 3]), "reshape: f32[4]"),
            (a.unflatten(0, &[HUGE, 3]), "unflatten: axis 0 of f32[4]"),
            (a.narrow(0, HUGE, 2), "narrow: 18446744073709551615 .. "),
            (a.pad(&[(HUGE, 1)]), "has more bytes than the address space"),
            (a.tile([HUGE]), "has more bytes than the address space"),
            (a.repeat_interleave(HUGE, 0), "has more bytes than the address space"),
            (a.split(&[HUGE, 5], 0).remove(0), "do not add up to axis 0"),
            (a.broadcast_to([HUGE, 4]), "has more bytes than the address space"),
            (Tensor::arange(HUGE), "are more than the 2147483648 that"),
            (Tensor::arange(4).one_hot(HUGE, DType::F32), "are more than the 2147483648 that"),
            (Tensor::eye(HUGE, DType::F32), "are more than the 2147483648 that"),
            (Tensor::linspace(0.0, 1.0, HUGE, DType::F32), "are more than the 2147483648 that"),
            (Tensor::from_slice(&[1f32], [HUGE, 4]), "1 elements do not fill"),
            (Tensor::from_bytes(&[1], [HUGE, 4], DType::F32), "1 bytes do not fill"),
            (
                conv(ConvOptions { padding: [HUGE, 1], ..ConvOptions::default() }),
                "conv: a convolution with stride [1, 1], padding [1844",
            ),
            (
                conv(ConvOptions { dilation: [HUGE, 1], ..ConvOptions::default() }),
                "needs more bytes than the address space",
            ),
            (conv(ConvOptions { groups: HUGE, ..ConvOptions::default() }), "needs more bytes than the address space"),
            (
                image.conv_transpose(
                    &filters,
                    &ConvTransposeOptions { stride: [HUGE, 1], ..ConvTransposeOptions::default() },
                ),
                "needs more bytes than the address space",
            ),
            (
                image.conv_transpose(
                    &filters,
                    &ConvTransposeOptions { output_padding: [HUGE, 0], ..ConvTransposeOptions::default() },
                ),
                "an output padding of [18446744073709551615, 0] is too large",
            ),
            (image.max_pool(&Window::new([HUGE, 2])), "windows of size"),
            (image.max_pool(&Window { dilation: [HUGE, 1], ..Window::new([2, 2]) }), "windows of size"),
            (
                image.avg_pool(&Window { padding: [HUGE, 0], ..Window::new([2, 2]) }),
                "has more bytes than the address space",
            ),
            (ones(&[1 << 33, 4]).cdist(&ones(&[1 << 33, 4]), 2.0), "has more bytes than the address space"),
            (ones(&[2, 0]).max(1), "max: there is no element along axis 1"),
            (ones(&[2, 0]).argmin(1), "argmin: there is no element along axis 1"),
            (ones(&[0, HUGE]), "f32[0, 18446744073709551615] has more bytes than the address space"),
            (
                Tensor::concat([long.clone(), long.clone(), long.clone(), long.clone()], 0),
                "has more bytes than the address space",
            ),
            (Tensor::concat(vec![long.clone(); 9], 0), "has more bytes than the address space"),
            (long.kron(&long), "has more bytes than the address space"),
            (cube.matmul(&cube), "more products than an i64 can count"),
            (cube.sum(0).matmul(&cube.sum(0)).matmul(&cube), "more products than an i64 can count"),
            (Tensor::meshgrid(&[&long, &long]).remove(1), "has more bytes than the address space"),
            (Tensor::einsum("a,b->ab", &[&long, &long]), "has more bytes than the address space"),
            (long.unfold(&Window::new([1 << 61])), "has more bytes than the address space"),
            (image.adaptive_avg_pool([HUGE, 1]), "are more than the 2147483648 that"),
            (image.adaptive_max_pool([HUGE, 1]), "are more than the 2147483648 that"),
            (image.interpolate([HUGE, 1], InterpolateMode::Nearest), "interpolate: from f32[2, 3, 4, 4]"),
            (
                ones(&[1 << 31]).interpolate([4], InterpolateMode::Linear(AlignCorners::No)),
                "an axis has more elements than an i32 can count",
            ),
            (Rng::seed_from_u64(0).uniform([HUGE, 2]), "has more bytes than the address space"),
            (ones(&[70_000, 70_000]).lu().l, "take_along_dim: "),
        ] {
            let error = mistake_of(&wrong);
            assert!(error.message().contains(part), "{error}");
        }
        let wave = Tensor::zeros([1 << 40], DType::F32).rfft(-1).eval().unwrap_err();
        assert!(wave.is_out_of_memory(), "{wave}");
        assert_eq!(a.roll(isize::MIN, 0).to_vec::<f32>().unwrap(), [1.0; 4]);
        let eight = Tensor::arange(5).roll(isize::MIN, 0).to_vec::<i32>().unwrap();
        // -2⁶³ is 2 more than a multiple of 5.
        assert_eq!(eight, Tensor::arange(5).roll(2, 0).to_vec::<i32>().unwrap());
    });
}

#[test]
fn operations_report_masks_and_types_that_do_not_fit() {
    on_cpu(|| {
        let (q, image) = (ones(&[1, 2, 3, 4]), ones(&[2, 3, 4, 4]));
        let masked = |mask: &Tensor| {
            q.scaled_dot_product_attention(
                &q,
                &q,
                &AttentionOptions { attn_mask: Some(mask), ..AttentionOptions::default() },
            )
        };
        let (half, flags) = (image.cast(DType::F16), ones(&[2, 2]).cast(DType::Bool));
        for (wrong, part) in [
            (masked(&ones(&[5, 5])), "attention: the mask f32[5, 5]"),
            (masked(&ones(&[2, 1, 1, 3, 3])), "and broadcast to scores [1, 2, 3, 3]"),
            (masked(&ones(&[3, 3]).cast(DType::I32)), "attention: the mask i32[3, 3]"),
            (
                q.scaled_dot_product_attention(&q.cast(DType::F16), &q, &AttentionOptions::default()),
                "attention: queries, keys and values must be floats of one type",
            ),
            (half.conv(&ones(&[3, 3, 2, 2]), &ConvOptions::<2>::default()), "conv: element types f16 and f32 differ"),
            (flags.sum(..), "sum over [0, 1]: is not defined for bool; cast it, for example to i32"),
            (flags.cumsum(0), "running sum along 0: is not defined for bool"),
            (flags.matmul(&flags), "matmul: is not defined for bool"),
            (flags.index_add(0, &Tensor::arange(2), &flags), "index_add along 0: is not defined for bool"),
            (flags.max_pool(&Window::new([9, 9])), "windows of size"),
            (
                Tensor::arange(4).interpolate([2], InterpolateMode::Linear(AlignCorners::No)),
                "interpolate: linear modes need floats, not i32[4]",
            ),
            (
                Tensor::einsum("ij,jk,kl", &[&flags, &flags, &flags]),
                "operands must be numbers of one type, not bool and bool",
            ),
            (Tensor::einsum("ij,jk", &[&flags.cast(DType::F32), &flags.cast(DType::F64)]), "not f32 and f64"),
            (ones(&[3, 4]).sum([0, -2]), "sum: axis 0 of f32[3, 4]"),
            (ones(&[3]).huber_loss(&ones(&[3]), -1.0, Reduction::Mean), "huber_loss: delta is -1, but must be above 0"),
            (Tensor::stack([ones(&[2])], 4), "unsqueeze: axis 4 is out of range"),
            (ones(&[3]).t(), "transpose: axis -2 is out of range"),
        ] {
            let error = mistake_of(&wrong);
            assert!(error.message().contains(part), "{error}");
        }
        for failed in [
            ones(&[2]).item::<f64>().map(|_| ()),
            ones(&[2]).to_vec::<f64>().map(|_| ()),
            ones(&[2]).dims::<2>().map(|_| ()),
        ] {
            assert!(failed.unwrap_err().to_string().contains(file!()));
        }
    });
}

#[test]
fn the_leftmost_mistake_is_reported_by_every_use() {
    on_cpu(|| {
        let first = ones(&[2]).matmul(&ones(&[3]));
        let second = ones(&[4]).sum(7);
        let result = (first.relu() + second) * 2.0;
        let message = "matmul: inner dimensions 2 and 3 differ";
        assert_eq!(result.check().unwrap_err().message(), message);
        assert_eq!(result.to_vec::<f32>().unwrap_err().message(), message);
        assert_eq!(result.item::<f64>().unwrap_err().message(), message);
        assert_eq!(result.shape().unwrap_err().message(), message);
        assert_eq!(eval(&[&ones(&[1]), &result]).unwrap_err().message(), message);
        assert!(format!("{result}").contains(message) && format!("{result:?}").contains(message));
    });
}

#[test]
fn missing_gradient_paths_are_errors() {
    on_cpu(|| {
        let (x, w) = (Tensor::from_slice(&[1f32, 2.0], [2]), Tensor::from_slice(&[3f32, 4.0], [2]));
        let error = x.sum(..).gradients(&[&w]).unwrap_err();
        assert!(error.message().contains("does not depend on"), "{error}");
        let cut = w.lt(&x).cast(DType::F32).sum(..).gradients(&[&w]).unwrap_err();
        assert!(cut.to_string().contains("the path ends at"), "{cut}");
        let detached = (w.detach() * &x).sum(..).gradients(&[&w]).unwrap_err();
        assert!(detached.to_string().contains("the path ends at detach"), "{detached}");
        assert!((&x * &w).gradients(&[&w]).unwrap_err().message().contains("is not a single number"));
    });
}

#[test]
fn mixed_devices_are_a_mistake() {
    let (cpu, checked) = (Device::get("cpu").unwrap(), Device::get("cpu:checked").unwrap());
    let (a, b) = (Tensor::from_slice_on(&cpu, &[1f32], [1]), Tensor::from_slice_on(&checked, &[2f32], [1]));
    let error = (&a + &b).check().unwrap_err();
    assert!(error.message().contains("operands are on different devices"), "{error}");
    assert_eq!((a + b.to(&cpu)).to_vec::<f32>().unwrap(), [3.0]);
}

#[test]
fn long_chains_neither_overflow_nor_recurse() {
    on_cpu(|| {
        let mut x = Tensor::from_slice(&[1f32], [1]);
        for _ in 0..1_000_000 {
            x = -x;
        }
        drop(x);
    });
}

#[test]
fn a_loop_plans_once() {
    on_cpu(|| {
        let step = |w: &Tensor, rate: f64| {
            let loss = (w * 2.0 - 3.0).square().mean(..);
            let gradient = loss.gradients(&[w]).unwrap().remove(0);
            let next = w - gradient * rate;
            eval(&[&loss, &next]).unwrap();
            next.detach()
        };
        let mut w = step(&Tensor::from_slice(&[1f32, 2.0, 3.0], [3]), 0.1);
        let before = plan_cache_stats();
        for i in 0..10 {
            w = step(&w, 0.01 * f64::from(i));
        }
        // Other tests of this process can plan at the same time, so only a lower bound of the hits is known.
        assert!(plan_cache_stats().hits >= before.hits + 10, "equal programs with different scalars share a plan");
        assert!(w.to_vec::<f32>().unwrap().iter().all(|w| (w - 1.5).abs() < 1.5));
    });
}

#[test]
fn second_derivatives_are_gradients_of_gradients() {
    on_cpu(|| {
        let x = Tensor::from_slice(&[0.3f32, -0.7, 1.1], [3]);
        let first = x.tanh().sum(..).gradients(&[&x]).unwrap().remove(0);
        let second = first.sum(..).gradients(&[&x]).unwrap().remove(0);
        let want = [0.3f64, -0.7, 1.1].map(|x| -2.0 * x.tanh() * (1.0 - x.tanh().powi(2)));
        for (have, want) in second.to_vec::<f32>().unwrap().iter().zip(want) {
            assert!((f64::from(*have) - want).abs() < 1e-6, "{have}, expected {want}");
        }
    });
}

#[test]
fn counts_beyond_i32_are_mistakes() {
    on_cpu(|| {
        let many = Tensor::zeros([2_500_000_000], DType::U8);
        let axis = "axis 0 of u8[2500000000]";
        for (wrong, part) in [
            (Tensor::arange(3_000_000_000), "arange: 3000000000 numbers are more than the 2147483648"),
            (Tensor::linspace(0.0, 1.0, 3_000_000_000, DType::F64), "linspace: 3000000000 numbers are more than"),
            (many.argmax(0), axis),
            (many.argmin(0), axis),
            (many.argsort(0, SortOrder::Ascending), axis),
            (many.topk(1, 0).indices, axis),
            (many.searchsorted(&many.slice(0), Side::Left), axis),
            (many.dim_size(0), axis),
            (many.count_nonzero(..), "count_nonzero: u8[2500000000]"),
            (many.cast(DType::I32).bincount(3), "bincount: i32[2500000000]"),
        ] {
            let error = mistake_of(&wrong);
            assert!(error.message().contains(part), "{error}");
        }
        assert_eq!(Tensor::arange(1 << 31).slice((-1,)).to_vec::<i32>().unwrap(), [i32::MAX]);
    });
}

#[test]
fn means_of_integers_are_mistakes() {
    on_cpu(|| {
        let x = Tensor::full([1, 1, 4], 100i8);
        let window = Window { stride: [4], ..Window::new([4]) };
        for (wrong, op) in [
            (x.avg_pool(&window), "avg_pool"),
            (x.cast(DType::U8).avg_pool(&window), "avg_pool"),
            (x.adaptive_avg_pool([2]), "adaptive_avg_pool"),
            (x.reshape([2, 2]).nll_loss(&Tensor::arange(2), Reduction::Mean), "nll_loss"),
        ] {
            let error = mistake_of(&wrong);
            assert!(error.message().starts_with(&format!("{op}: ")), "{error}");
            assert!(error.message().ends_with("has no fractions; cast it to a float first"), "{error}");
        }
    });
}
