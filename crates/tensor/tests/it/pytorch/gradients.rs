//! First and second derivatives at critical points: kinks, limits of the domain, and large arguments. Means in half precision, whose sums
//! overflow the type.

use panoply_tensor::{
    AttentionOptions, BceOptions, CrossEntropyOptions, DType, InterpolateMode, Reduction, Side, Tensor, Window,
};

use super::{Fixture, close, devices, values};

type Unary = (&'static str, fn(&Tensor) -> Tensor);

const UNARY: &[Unary] = &[
    ("silu", Tensor::silu),
    ("softplus", Tensor::softplus),
    ("logsigmoid", Tensor::logsigmoid),
    ("mish", Tensor::mish),
    ("elu", Tensor::elu),
    ("selu", Tensor::selu),
    ("relu", Tensor::relu),
    ("gelu", Tensor::gelu),
    ("hardsigmoid", Tensor::hardsigmoid),
    ("hardswish", Tensor::hardswish),
    ("relu6", Tensor::relu6),
    ("softsign", Tensor::softsign),
    ("sigmoid", Tensor::sigmoid),
    ("tanh", Tensor::tanh),
    ("abs", Tensor::abs),
    ("sign", Tensor::sign),
    ("square", Tensor::square),
    ("atan", Tensor::atan),
    ("sinh", Tensor::sinh),
    ("cosh", Tensor::cosh),
    ("power 0", |x| power(x, 0.0)),
    ("power 1", |x| power(x, 1.0)),
    ("power 2", |x| power(x, 2.0)),
    ("power 3", |x| power(x, 3.0)),
    ("asin", Tensor::asin),
    ("acos", Tensor::acos),
    ("norm", |x| x.norm(1)),
    ("std", |x| x.std(1, 1)),
    ("cosine", |x| x.cosine_similarity(&f32s(&[1.0, 2.0, 3.0, 1.0, 0.0, 0.0, -1.0, 2.0, 0.5]), -1, 1e-8)),
    ("huber_loss", |x| x.huber_loss(&f32s(&[1.0, 0.0, 1.0, 1.0, 0.0, 0.25, 1.0, -2.0, 0.0]), 1.0, Reduction::Mean)),
    ("binary_cross_entropy", |x| {
        x.binary_cross_entropy(&f32s(&[1.0, 0.0, 1.0, 1.0, 0.0, 0.25, 1.0, 0.0, 0.0]), Reduction::Mean)
    }),
    ("binary_cross_entropy_with_logits", |x| {
        x.binary_cross_entropy_with_logits(
            &f32s(&[1.0, 0.0, 1.0, 1.0, 0.0, 0.25, 1.0, 0.0, 0.0]),
            &BceOptions::default(),
        )
    }),
    ("cross entropy", |x| x.cross_entropy(&Tensor::from_slice(&[1i32, 2], [2]))),
];

const HALVES: &[Unary] = &[
    ("half silu", Tensor::silu),
    ("half softplus", Tensor::softplus),
    ("half elu", Tensor::elu),
    ("half selu", Tensor::selu),
    ("half sigmoid", Tensor::sigmoid),
];

const LONG: &[Unary] = &[
    ("mean", |x| x.mean(-1)),
    ("var", |x| x.var(-1, 1)),
    ("std", |x| x.std(-1, 1)),
    ("norm", |x| x.norm(-1)),
    ("layer norm", |x| x.layer_norm(1e-5)),
    ("rms norm", |x| x.rms_norm(1e-5)),
    ("mse_loss", |x| x.mse_loss(&x.zeros_like(), Reduction::Mean)),
    ("cosine", |x| x.cosine_similarity(&(x + 1.0), -1, 1e-8)),
    ("avg_pool", |x| x.reshape([1, 64, 64]).avg_pool(&Window::new([64, 64]))),
    ("mean of many", |_| Tensor::ones([100_000], DType::F16).mean(..)),
];

fn power(x: &Tensor, exponent: f64) -> Tensor {
    x.pow(&Tensor::full([], exponent as f32).broadcast_to(x.shape().expect("the tensor is valid")))
}

fn f32s(values: &[f32]) -> Tensor {
    Tensor::from_slice(values, [values.len() / 3, 3])
}

/// Reports values that differ from the expected ones, except where PyTorch's is NaN.
fn compare(what: &str, have: &Tensor, want: &Tensor, tolerance: f64, wrong: &mut Vec<String>) {
    let (have, want) = (values(have), values(want));
    assert_eq!(have.len(), want.len(), "{what}");
    for (i, (have, want)) in have.iter().zip(&want).enumerate().filter(|(_, (_, want))| !want.is_nan()) {
        let close = (have - want).abs() <= tolerance * want.abs().max(0.05);
        if have != want && !close {
            wrong.push(format!("{what}: element {i} is {have}, expected {want}"));
        }
    }
}

#[test]
fn gradients_are_pytorchs() {
    let fixture = Fixture::new(include_bytes!("../../fixtures/gradients.safetensors"));
    let mut wrong = Vec::new();
    for device in devices(false) {
        device.scope(|| {
            for (name, op) in UNARY {
                let x = fixture.get(&format!("{name}/x"));
                let first = op(&x).sum(..).gradients(&[&x]).unwrap().remove(0);
                let what = format!("{name}' on {device}");
                compare(&what, &first, &fixture.get(&format!("{name}/first")), 1e-4, &mut wrong);
                let Some(second) = fixture.tensor(&format!("{name}/second")) else { continue };
                // There is no second gradient if the first one is constant.
                let have = first.sum(..).gradients(&[&x]).map_or_else(|_| x.zeros_like(), |mut found| found.remove(0));
                compare(&format!("{name}'' on {device}"), &have, &second, 1e-4, &mut wrong);
            }
            for (name, op) in HALVES {
                let x = fixture.get(&format!("{name}/x")).cast(DType::F16);
                let first = op(&x).sum(..).gradients(&[&x]).unwrap().remove(0);
                compare(
                    &format!("{name}' on {device}"),
                    &first,
                    &fixture.get(&format!("{name}/first")),
                    4e-3,
                    &mut wrong,
                );
            }
        });
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn means_of_halves_are_pytorchs() {
    let fixture = Fixture::new(include_bytes!("../../fixtures/gradients.safetensors"));
    let mut wrong = Vec::new();
    for device in devices(false) {
        device.scope(|| {
            let long = fixture.get("long").cast(DType::F16).reshape([1, 4096]);
            for (name, op) in LONG {
                let have = op(&long);
                assert_eq!(have.dtype(), DType::F16, "{name}");
                compare(&format!("{name} on {device}"), &have, &fixture.get(&format!("long/{name}")), 2e-3, &mut wrong);
            }
        });
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn classes_out_of_range_give_nan() {
    let logits = Tensor::from_slice(&[0.5f32, -1.0, 2.0, 0.0, 1.0, 0.0], [2, 3]);
    for wrong in [3, -1, -100, i32::MAX] {
        let classes = Tensor::from_slice(&[1, wrong], [2]);
        assert!(logits.cross_entropy(&classes).item::<f64>().unwrap().is_nan(), "class {wrong}");
        assert!(
            logits.log_softmax(-1).nll_loss(&classes, Reduction::Mean).item::<f64>().unwrap().is_nan(),
            "class {wrong}"
        );
        let counted = CrossEntropyOptions { ignore_index: Some(wrong.into()), ..Default::default() };
        let first = logits.narrow(0, 0, 1).cross_entropy(&classes.narrow(0, 0, 1)).item::<f64>().unwrap();
        let one = logits.cross_entropy_with_options(&classes, &counted).item::<f64>().unwrap();
        assert!((one - first).abs() < 1e-6, "{one}, expected {first}");
    }
}

#[test]
fn any_and_all_treat_nonzero_values_as_true() {
    let holds = |x: Tensor| (x.any(..).item::<bool>().unwrap(), x.all(..).item::<bool>().unwrap());
    assert_eq!(holds(Tensor::from_slice(&[0.5f32, 0.25], [2])), (true, true));
    assert_eq!(holds(Tensor::from_slice(&[f32::NAN, 0.0], [2])), (true, false));
    assert_eq!(holds(Tensor::from_slice(&[1i64 << 32, 0], [2])), (true, false));
    assert_eq!(holds(Tensor::from_slice(&[0u8, 0], [2])), (false, false));
    assert_eq!(holds(Tensor::zeros([0], DType::F32)), (false, true));
}

#[test]
fn large_indices_do_not_overflow() {
    let x = Tensor::arange(50_000).cast(DType::F32);
    assert_eq!(
        x.interpolate([100_000], InterpolateMode::Nearest).narrow(0, 99_999, 1).item::<f64>().unwrap(),
        49_999.0
    );
    let y = Tensor::arange(100_000).cast(DType::F32).unsqueeze(0);
    assert_eq!(y.adaptive_avg_pool([50_000]).narrow(1, 49_999, 1).item::<f64>().unwrap(), 99_998.5);
    let square = Tensor::ones([3, 3], DType::F32);
    for (diagonal, below, above) in [(1 << 32, 9.0, 0.0), (isize::MAX, 9.0, 0.0), (isize::MIN, 0.0, 9.0), (2, 9.0, 1.0)]
    {
        assert_eq!(square.tril(diagonal).sum(..).item::<f64>().unwrap(), below, "tril {diagonal}");
        assert_eq!(square.triu(diagonal).sum(..).item::<f64>().unwrap(), above, "triu {diagonal}");
    }
}

#[test]
fn class_labels_can_have_a_type_smaller_than_the_number_of_classes() {
    let labels = Tensor::from_slice(&[0i32, 1, 127], [3]);
    let logits = (Tensor::arange(3 * 300).cast(DType::F32) * 0.7).sin().reshape([3, 300]);
    for dtype in [DType::I8, DType::U8, DType::I16, DType::U64] {
        let hot = labels.cast(dtype).one_hot(300, DType::F32);
        assert_eq!(hot.sum(-1).to_vec::<f32>().unwrap(), [1.0; 3], "{dtype}");
        assert_eq!(hot.argmax(-1).to_vec::<i32>().unwrap(), [0, 1, 127], "{dtype}");
        close("cross_entropy", &logits.cross_entropy(&labels.cast(dtype)), &logits.cross_entropy(&labels), 0.0);
        close(
            "nll_loss",
            &logits.nll_loss(&labels.cast(dtype), Reduction::Mean),
            &logits.nll_loss(&labels, Reduction::Mean),
            0.0,
        );
    }
    let below = Tensor::from_slice(&[-1i8, -128], [2]).one_hot(300, DType::F32);
    assert_eq!(below.sum(..).item::<f64>().unwrap(), 0.0);
}

#[test]
fn a_long_past_len_attends_to_all_keys() {
    let x = (Tensor::arange(2 * 3 * 4).cast(DType::F32) * 0.7).sin().reshape([2, 3, 4]);
    let all = x.scaled_dot_product_attention(&x, &x, &AttentionOptions::default());
    for past in [2, 3, i32::MAX as usize, 1 << 31, usize::MAX] {
        close(
            "attention",
            &x.scaled_dot_product_attention(
                &x,
                &x,
                &AttentionOptions { is_causal: true, past_len: past, ..AttentionOptions::default() },
            ),
            &all,
            1e-6,
        );
    }
}

#[test]
fn values_out_of_range_of_a_type_are_mistakes() {
    let says = |x: Tensor, words: &str| {
        let error = x.check().expect_err(words).to_string();
        assert!(error.contains(words) && error.contains("gradients.rs"), "{error}");
    };
    let whole = Tensor::from_slice(&[4i32, 2], [2]);
    says(&whole * 0.5, "0.5 is not a valid i32");
    says(whole.clamp(-0.5, 3.0), "-0.5 is not a valid i32");
    says(Tensor::from_slice(&[1u8], [1]) + 300.0, "300 is not a valid u8");
    assert_eq!((&whole * 3.0).clamp(f64::NEG_INFINITY, 7.0).to_vec::<i32>().unwrap(), [7, 6]);
    says(whole.mean(..), "mean: ");
    says(whole.var(0, 1), "var: ");
    let nothing = Tensor::zeros([2, 0], DType::F32);
    says(nothing.max(1), "max: there is no element along axis 1");
    says(nothing.argmin(1), "argmin: there is no element along axis 1");
    says(nothing.median(1), "median: there is no element along axis 1");
    says(whole.argmin(3), "argmin: ");
    says(Tensor::zeros([2], DType::F32).softmax(3), "softmax: ");
    let large = Tensor::ones([1 << 40], DType::F32);
    assert!(large.to_vec::<f32>().is_err() && large.to_bytes().is_err());
    assert!(!large.to_string().is_empty());
}

#[test]
fn tensors_print_exact_integers_and_elide_long_axes() {
    let large = [i64::MAX, 9_007_199_254_740_993, -1];
    assert_eq!(Tensor::from_slice(&large, [3]).to_string(), "[9223372036854775807, 9007199254740993, -1]");
    assert_eq!(Tensor::arange(8).to_string(), "[0, 1, 2, 3, 4, 5, 6, 7]");
    assert_eq!(Tensor::arange(2000).to_string(), "[0, 1, 2, …, 1997, 1998, 1999]");
    assert_eq!(Tensor::arange(2000).reshape([1000, 2]).to_string().lines().count(), 7);
    // The precision of the format is the number of decimals of floats.
    let floats = Tensor::from_slice(&[1.0f32, 2.0 / 3.0, 1e-7, -1.5e9], [2, 2]);
    assert_eq!(floats.to_string(), "[[1.0000, 0.6667],\n [1.0000e-7, -1.5000e9]]");
    assert_eq!(format!("{floats:.2}"), "[[1.00, 0.67],\n [1.00e-7, -1.50e9]]");
    assert_eq!(format!("{:.0} {:.3}", Tensor::scalar(2.6f64), Tensor::arange(2)), "3 [0, 1]");
}

/// Large enough for a library routine; `cases.rs` covers the kernels.
#[test]
fn index_add_routine_adds_in_order() {
    let (count, classes) = (3000usize, 200usize);
    let place = |i: usize| (i * 37 % (classes + 3)) as i64 - 1;
    let places: Vec<i64> = (0..count).map(place).collect();
    let value = |i: usize| (i as f32 * 0.37).sin();
    let values: Vec<f32> = (0..count).map(value).collect();
    let mut want = vec![0.5f32; classes];
    let held = |i: &usize| (0..classes as i64).contains(&place(*i));
    (0..count).filter(held).for_each(|i| want[place(i) as usize] += value(i));
    for device in devices(false) {
        device.scope(|| {
            let (x, at) = (Tensor::full([classes], 0.5f32), Tensor::from_slice(&places, [count]));
            let rows = Tensor::from_slice(&values, [count]);
            let sums = x.index_add(0, &at, &rows);
            assert_eq!(sums.to_vec::<f32>().unwrap(), want, "{device}");
            let weights = Tensor::arange(classes).cast(DType::F32);
            let grads = (sums * weights).sum(..).gradients(&[&x, &rows]).unwrap();
            let of = |i: usize| if held(&i) { place(i) as f32 } else { 0.0 };
            assert_eq!(grads[0].to_vec::<f32>().unwrap(), (0..classes).map(|n| n as f32).collect::<Vec<f32>>());
            assert_eq!(grads[1].to_vec::<f32>().unwrap(), (0..count).map(of).collect::<Vec<f32>>(), "{device}");
            let counts = at.cast(DType::I32).clamp(0.0, 1e3).bincount(classes).to_vec::<i32>().unwrap();
            let counted = |n: usize| (0..count).filter(|i| place(*i).max(0) == n as i64).count() as i32;
            assert_eq!(counts, (0..classes).map(counted).collect::<Vec<i32>>(), "{device}");
        });
    }
}

#[test]
fn searchsorted_agrees_with_counting() {
    for device in devices(true) {
        device.scope(|| {
            for length in [65usize, 100, 128, 1000] {
                // Includes ties, both zeros, infinity, and NaN at the end.
                let mut line: Vec<f32> = (0..length).map(|i| (i as f32 * 0.37).sin() * 9.0).map(f32::trunc).collect();
                (line[1], line[2], line[3]) = (f32::INFINITY, -0.0, f32::NAN);
                line.sort_by(f32::total_cmp);
                let values: Vec<f32> =
                    (-20..20).map(|n| n as f32 / 2.0).chain([f32::NAN, -f32::INFINITY, 1e30, -0.0]).collect();
                let (x, v) = (Tensor::from_slice(&line, [length]), Tensor::from_slice(&values, [values.len()]));
                let want = |is_before: fn(f32, f32) -> bool| -> Vec<i32> {
                    values.iter().map(|v| line.iter().filter(|x| is_before(**x, *v)).count() as i32).collect()
                };
                let have = |side: Side| x.searchsorted(&v, side).to_vec::<i32>().unwrap();
                // NaN is larger than everything else.
                assert_eq!(have(Side::Right), want(|x, v| x <= v || v.is_nan()), "{length} on {device}");
                assert_eq!(have(Side::Left), want(|x, v| x < v || v.is_nan() && !x.is_nan()), "{length} on {device}");
            }
        });
    }
}
