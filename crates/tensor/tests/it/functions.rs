//! Functions at critical points: on the axes, at infinities, with NaN and in half precision. Expected values are computed by hand or with
//! the standard library.

use panoply_ir::graph::{Graph, Node, Op};
use panoply_tensor::{
    AvgPoolOptions, BceOptions, CrossEntropyOptions, DType, Device, MaxPoolOptions, Reduction, ScatterReduce,
    SortOrder, Tensor, ValuesWithIndices, Window, eval, program,
};

fn on_cpu(work: impl FnOnce()) {
    Device::get("cpu").unwrap().scope(work);
}

fn numbers(tensor: &Tensor) -> Vec<f64> {
    tensor.cast(DType::F64).to_vec().unwrap()
}

fn vector(values: &[f32]) -> Tensor {
    Tensor::from_slice(values, [values.len()])
}

#[test]
fn atan2_and_its_gradient_on_the_axes_and_at_infinity() {
    const LONG: f32 = f32::INFINITY;
    on_cpu(|| {
        let (y, x) = ([1.0, 0.0, -1.0, 0.0, 1e-30, 3.0], [0.0, 1.0, 0.0, -1.0, 1e-30, 1e30]);
        let (up, along) = (vector(&y), vector(&x));
        let grads = up.atan2(&along).sum(..).gradients(&[&up, &along]).unwrap();
        for (i, (y, x)) in y.into_iter().zip(x).enumerate() {
            let (y, x) = (f64::from(y), f64::from(x));
            let square = x * x + y * y;
            for (grad, expected) in grads.iter().zip([x / square, -y / square]) {
                let found = numbers(grad)[i];
                assert!(
                    (found - expected).abs() <= 1e-6 * expected.abs() + 1e-40,
                    "({y}, {x}): {found}, expected {expected}"
                );
            }
        }
        let (origin, x) = (vector(&[0.0]), vector(&[0.0]));
        assert_eq!(numbers(&origin.atan2(&x).sum(..).gradients(&[&origin]).unwrap()[0]), [0.0]);
        for (y, x) in [(LONG, LONG), (LONG, -LONG), (-LONG, -LONG), (1.0, LONG), (LONG, 1.0), (-0.0, -1.0), (0.0, -1.0)]
        {
            let (found, expected) = (numbers(&vector(&[y]).atan2(&vector(&[x])))[0], f64::from(y.atan2(x)));
            assert!((found - expected).abs() < 1e-6, "({y}, {x}): {found}, expected {expected}");
        }
        // Broadcasts a column with a row, and reduces the gradient.
        let (column, row) = (Tensor::from_slice(&[1f32, 2.0], [2, 1]), vector(&[1.0, -1.0, 2.0]));
        let grad = column.atan2(&row).sum(..).gradients(&[&column]).unwrap().remove(0);
        let expected = [1.0, 2.0].map(|y: f64| [1.0, -1.0, 2.0].map(|x| x / (x * x + y * y)).iter().sum::<f64>());
        assert_eq!(grad.shape().unwrap().dims(), [2, 1]);
        assert!(numbers(&grad).iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6));
    });
}

#[test]
fn sinh_and_asinh_have_gradients_at_zero_and_far_out() {
    on_cpu(|| {
        let x = vector(&[0.0, 89.0, -2.0, 1e30]);
        let grad = |f: fn(&Tensor) -> Tensor| numbers(&f(&x).sum(..).gradients(&[&x]).unwrap()[0]);
        let near =
            |found: f64, expected: f64| assert!((found / expected - 1.0).abs() < 1e-5, "{found}, expected {expected}");
        let (steep, flat) = (grad(Tensor::sinh), grad(Tensor::asinh));
        for (i, x) in [0f64, 89.0, -2.0].into_iter().enumerate() {
            near(steep[i], x.cosh());
            near(flat[i], 1.0 / x.hypot(1.0));
        }
        near(flat[3], 1e-30);
    });
}

#[test]
fn nan_propagates_and_half_precision_keeps_its_digits() {
    on_cpu(|| {
        let a = Tensor::from_slice(&[f32::NAN, 1.0, f32::NAN, f32::NAN, 0.0, 3.0], [3, 2]);
        for power in [0.5, 1.0, 2.0, 3.0, f64::INFINITY] {
            let apart = numbers(&a.cdist(&Tensor::from_slice(&[0f32, 3.0], [1, 2]), power));
            assert!(apart[0].is_nan() && apart[1].is_nan() && apart[2] == 0.0, "power {power}: {apart:?}");
        }
        for x in [3f32, 5.0, f32::NEG_INFINITY] {
            // ln 2 and ln 24, rounded to 11 bits.
            let expected = [(3.0, 0.693_359_375), (5.0, 3.177_734_375)].into_iter().find(|known| known.0 == x);
            let found = numbers(&vector(&[x]).cast(DType::F16).lgamma())[0];
            assert_eq!(found, expected.map_or(f64::INFINITY, |known| known.1), "lgamma of {x}");
        }
        let line = Tensor::linspace(0.0, 1.0, 200_000, DType::F16);
        let line = numbers(&line);
        assert!(line.is_sorted() && line[0] == 0.0 && line[100_000] == 0.5 && line[199_999] == 1.0);
    });
}

#[test]
fn differing_ranks_and_empty_rows() {
    on_cpu(|| {
        let (matrix, one) = (Tensor::arange(9).cast(DType::F32).reshape([3, 3]), vector(&[1.0, 2.0, 4.0]));
        let error = matrix.cross(&one, 0).to_vec::<f32>().unwrap_err();
        assert!(error.message().contains("use a negative axis"), "{error}");
        // (0, 1, 2) × (1, 2, 4).
        assert_eq!(numbers(&matrix.cross(&one, -1))[..3], [0.0, 2.0, -1.0]);
        let none = Tensor::zeros([0, 100], DType::F32);
        let ValuesWithIndices { values: first, indices: places } = none.topk(3, 1);
        eval(&[&none.sort(1, SortOrder::Ascending), &none.argsort(1, SortOrder::Descending), &first, &places]).unwrap();
        assert_eq!(places.shape().unwrap().dims(), [0, 3]);
    });
}

#[test]
fn powf_agrees_with_the_standard_library() {
    on_cpu(|| {
        let given = [0.0f32, -0.0, 1.5, -2.5, 1e-3, 300.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN];
        let x = vector(&given);
        for exponent in [-2.0, -1.0, 0.0, 0.5, 1.0, 2.0, 3.0, 4.5] {
            let found = numbers(&x.pow(exponent));
            for (x, found) in given.into_iter().zip(found) {
                let expected = f64::from(x).powf(exponent);
                let same = found == expected && found.is_sign_negative() == expected.is_sign_negative();
                let near = (found - expected).abs() <= 1e-6 * expected.abs();
                assert!(same || near || (found.is_nan() && expected.is_nan()), "{x} to the {exponent}: {found}");
            }
            let grads = numbers(&x.pow(exponent).sum(..).gradients(&[&x]).unwrap()[0]);
            let expected = exponent * 1.5f64.powf(exponent - 1.0);
            assert!((grads[2] - expected).abs() <= 1e-6 * expected.abs(), "{exponent}: {}", grads[2]);
        }
    });
}

#[test]
fn index_put_agrees_with_a_loop() {
    const LENGTH: usize = 400;
    on_cpu(|| {
        let count = 300;
        let place = |i: usize| (i * 7919 % (LENGTH + 9)) as i32 / 2 * 2 - 4;
        let weight = |i: usize| ((i * 31) % 17) as f64;
        let x: Vec<f64> = (0..LENGTH).map(|i| i as f64 * 0.25).collect();
        let values: Vec<f64> = (0..count).map(|i| 1000.0 + i as f64).collect();
        let (mut sums, mut replaced, mut last) = (x.clone(), x.clone(), vec![None; LENGTH]);
        for (i, value) in values.iter().enumerate() {
            if let Some(at) = usize::try_from(place(i)).ok().filter(|at| *at < LENGTH) {
                (sums[at], replaced[at], last[at]) = (sums[at] + value, *value, Some(i));
            }
        }
        let places = Tensor::from_slice(&(0..count).map(place).collect::<Vec<i32>>(), [count]);
        let (x, values) = (Tensor::from_slice(&x, [LENGTH]), Tensor::from_slice(&values, [count]));
        let weights = Tensor::from_slice(&(0..LENGTH).map(weight).collect::<Vec<f64>>(), [LENGTH]);
        assert_eq!(numbers(&x.index_put(&[&places], &values, ScatterReduce::Add)), sums);
        let put = x.index_put(&[&places], &values, ScatterReduce::Assign);
        assert_eq!(numbers(&put), replaced);
        let grads = (put * weights).sum(..).gradients(&[&x, &values]).unwrap();
        let kept = |i: usize| if last[i].is_none() { weight(i) } else { 0.0 };
        assert_eq!(numbers(&grads[0]), (0..LENGTH).map(kept).collect::<Vec<f64>>());
        let of = |i: usize| last.iter().position(|last| *last == Some(i)).map_or(0.0, weight);
        assert_eq!(numbers(&grads[1]), (0..count).map(of).collect::<Vec<f64>>());
    });
}

#[test]
fn distances_and_their_gradients_far_from_the_origin() {
    on_cpu(|| {
        let point = |i: usize, far: f64| far + ((i * 7919) % 997) as f64 / 997.0;
        for (rows, others, far) in [(40, 70, 0.0), (40, 3, 0.0), (9, 12, 4096.0)] {
            let x: Vec<f64> = (0..rows * 5).map(|i| f64::from(point(i, far) as f32)).collect();
            let y: Vec<f64> = (0..others * 5).map(|i| f64::from(point(i + 1, far) as f32)).collect();
            let tensors = [(&x, rows), (&y, others)]
                .map(|(x, rows)| Tensor::from_slice(&x.iter().map(|x| *x as f32).collect::<Vec<f32>>(), [rows, 5]));
            let distances = tensors[0].cdist(&tensors[1], 2.0);
            let grads = distances.square().sum(..).gradients(&[&tensors[0], &tensors[1]]).unwrap();
            let (found, mut want) = (numbers(&distances), [vec![0.0; x.len()], vec![0.0; y.len()]]);
            for (i, j) in (0..rows).flat_map(|i| (0..others).map(move |j| (i, j))) {
                let apart: Vec<f64> = (0..5).map(|k| x[i * 5 + k] - y[j * 5 + k]).collect();
                let expected = apart.iter().map(|d| d * d).sum::<f64>().sqrt();
                assert!((found[i * others + j] - expected).abs() <= 1e-5, "({i}, {j}) for {rows} and {others} points");
                for (k, apart) in apart.into_iter().enumerate() {
                    want[0][i * 5 + k] += 2.0 * apart;
                    want[1][j * 5 + k] -= 2.0 * apart;
                }
            }
            for (grad, want) in grads.iter().zip(want) {
                let worst = numbers(grad).iter().zip(&want).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
                assert!(worst <= 1e-4, "error {worst} for {rows} and {others} points, {far} away");
            }
        }
    });
}

#[test]
fn adaptive_pooling_with_uneven_windows() {
    on_cpu(|| {
        let x = Tensor::arange(2 * 6 * 7).cast(DType::F32).reshape([2, 6, 7]);
        let (mean, largest) = (numbers(&x.adaptive_avg_pool([3, 4])), numbers(&x.adaptive_max_pool([3, 4])));
        let part = |p: usize, n: usize, parts: usize| p * n / parts..((p + 1) * n).div_ceil(parts);
        for (at, (b, p, q)) in (0..2).flat_map(|b| (0..12).map(move |i| (b, i / 4, i % 4))).enumerate() {
            let columns = part(q, 7, 4);
            let of: Vec<f64> = part(p, 6, 3)
                .flat_map(|row| columns.clone().map(move |column| ((b * 6 + row) * 7 + column) as f64))
                .collect();
            let expected = of.iter().sum::<f64>() / of.len() as f64;
            assert!((mean[at] - expected).abs() < 1e-4, "{at}: {}, expected {expected}", mean[at]);
            assert_eq!(largest[at], of.iter().copied().fold(0.0, f64::max), "{at}");
        }
    });
}

#[test]
fn lgamma_is_accurate_near_its_zeros() {
    // Computed with mpmath: log(abs(gamma(x))) of the f32.
    const VALUES: [(f32, f64); 12] = [
        (1.0, 0.0),
        (1.0001, -5.772291776898885e-05),
        (0.9999, 5.773937256934961e-05),
        (1.5, -0.12078223763524522),
        (1.9999, -4.228222335681117e-05),
        (2.0, 0.0),
        (2.0001, 4.2238267333173845e-05),
        (2.4, 0.21685938471435165),
        (0.6, 0.39823382133801155),
        (3.0, std::f64::consts::LN_2),
        (-0.5, 1.2655121234846454),
        (0.25, 1.2880225246980774),
    ];
    on_cpu(|| {
        let x = vector(&VALUES.map(|(x, _)| x));
        for (dtype, limit) in [(DType::F32, 1e-6), (DType::F64, 5e-15)] {
            let found = numbers(&x.cast(dtype).lgamma());
            for (found, (x, expected)) in found.iter().zip(VALUES) {
                assert!(
                    (found - expected).abs() <= limit * expected.abs(),
                    "{x} in {dtype}: {found}, expected {expected}"
                );
            }
        }
        // The digamma function at 1 and 2: -γ and 1 - γ.
        let x = vector(&[1.0, 2.0]);
        let gradient = numbers(&x.lgamma().sum(..).gradients(&[&x]).unwrap()[0]);
        let expected = [-0.5772156649, 0.4227843351];
        assert!(gradient.iter().zip(expected).all(|(x, y)| (x - y).abs() < 1e-6), "{gradient:?}");
    });
}

#[test]
fn variance_with_too_large_a_correction_is_not_negative() {
    // PyTorch: torch.var(x, correction=n) divides by max(0, count - correction).
    on_cpu(|| {
        let x = vector(&[1.0, 2.0, 6.0]);
        for (x, correction, expected) in
            [(&x, 4, f64::INFINITY), (&x, 3, f64::INFINITY), (&x, 2, 14.0), (&x.slice((..1,)), 2, f64::NAN)]
        {
            for (found, expected) in [(x.var(.., correction), expected), (x.std(.., correction), expected.sqrt())] {
                let found = found.item::<f64>().unwrap();
                let near = (found - expected).abs() < 1e-5;
                assert!(found == expected || near || found.is_nan() && expected.is_nan(), "{correction}: {found}");
            }
        }
        let none = Tensor::zeros([0], DType::F32);
        assert!(none.var(.., 1).item::<f64>().unwrap().is_nan() && none.std(.., 1).item::<f64>().unwrap().is_nan());
    });
}

#[test]
fn the_gradient_of_infinite_logsumexp_is_split_between_equal_elements() {
    const LONG: f32 = f32::INFINITY;
    on_cpu(|| {
        let gradient = |f: &dyn Fn(&Tensor) -> Tensor, x: &[f32]| {
            let x = vector(x);
            numbers(&f(&x).gradients(&[&x]).unwrap()[0])
        };
        let all = |x: &[f32], expected: &[f64]| {
            let found = gradient(&|x| x.logsumexp(0), x);
            assert!(found.iter().zip(expected).all(|(x, y)| (x - y).abs() < 1e-6), "{x:?}: {found:?}");
            let two = gradient(&|x| x.narrow(0, 0, 1).logaddexp(&x.narrow(0, 1, 1)).sum(..), x);
            assert!(two.iter().zip(expected).all(|(x, y)| (x - y).abs() < 1e-6), "{x:?}: {two:?}");
            let last = gradient(&|x| x.logcumsumexp(0).narrow(0, 1, 1).sum(..), x);
            assert!(last.iter().zip(expected).all(|(x, y)| (x - y).abs() < 1e-6), "{x:?}: {last:?}");
        };
        all(&[-LONG, -LONG], &[0.5, 0.5]);
        all(&[LONG, LONG], &[0.5, 0.5]);
        all(&[LONG, 1.0], &[1.0, 0.0]);
        all(&[-LONG, 1.0], &[0.0, 1.0]);
        all(&[0.0, 0.0], &[0.5, 0.5]);
        assert_eq!(gradient(&|x| x.logsumexp(0), &[-LONG, -LONG, -LONG, -LONG]), [0.25; 4]);
        assert_eq!(gradient(&|x| x.logsumexp(0), &[LONG, 0.0, LONG]), [0.5, 0.0, 0.5]);
        assert!(gradient(&|x| x.logsumexp(0), &[f32::NAN, 0.0]).iter().all(|x| x.is_nan()));
        // Its own gradient: for the softmax p, p_i (δ_ij - p_j).
        let x = vector(&[0.0, 1.0]);
        let p = 1.0 / (1.0 + 1f64.exp());
        let hessian = numbers(&x.logsumexp(0).hessian(&x).unwrap());
        let expected = [1.0, -1.0, -1.0, 1.0].map(|sign| sign * p * (1.0 - p));
        assert!(hessian.iter().zip(expected).all(|(x, y)| (x - y).abs() < 1e-6), "{hessian:?}");
    });
}

#[test]
fn binary_cross_entropy_is_accurate_in_both_tails() {
    on_cpu(|| {
        // ln(1 + e^-x) for target 1, and of -x for target 0.
        for x in [0.0, 5.0, 10.0, 17.0, 60.0] {
            let (logit, probability) = (vector(&[x]), 1.0 / (1.0 + f64::from(x).exp()));
            let expected = (-f64::from(x)).exp().ln_1p();
            for (logit, target, gradient) in [(logit.clone(), 1.0, -probability), (-&logit, 0.0, probability)] {
                let logit = logit.detach();
                let loss = logit.binary_cross_entropy_with_logits(&vector(&[target]), &BceOptions::default());
                let found = loss.item::<f64>().unwrap();
                assert!((found / expected - 1.0).abs() < 1e-6, "{x}, {target}: {found}, expected {expected}");
                let found = numbers(&loss.gradients(&[&logit]).unwrap()[0])[0];
                assert!(
                    (found / gradient - 1.0).abs() < 1e-6,
                    "gradient at {x}, {target}: {found}, expected {gradient}"
                );
            }
        }
        let loss = vector(&[5.0])
            .cast(DType::BF16)
            .binary_cross_entropy_with_logits(&vector(&[1.0]).cast(DType::BF16), &BceOptions::default());
        assert!((loss.item::<f64>().unwrap() - 0.0067).abs() < 3e-5);
    });
}

#[test]
fn an_ignore_index_outside_the_class_type_ignores_nothing() {
    on_cpu(|| {
        // PyTorch: cross_entropy(x, [0, 2], ignore_index=-100) is ln(1 + e + e²) minus the mean of 0 and 2.
        let x = Tensor::from_slice(&[0f32, 1.0, 2.0, 0.0, 1.0, 2.0], [2, 3]);
        let all = (1.0 + 1f64.exp() + 2f64.exp()).ln() - 1.0;
        let types = [DType::U8, DType::U16, DType::U32, DType::U64, DType::I8, DType::I16, DType::I32, DType::I64];
        for dtype in types {
            let classes = Tensor::from_slice(&[0i32, 2], [2]).cast(dtype);
            let loss = |ignore: i64| {
                let options = CrossEntropyOptions { ignore_index: Some(ignore), ..CrossEntropyOptions::default() };
                x.cross_entropy_with_options(&classes, &options).item::<f64>().unwrap()
            };
            for ignore in [-100, 1000, 255, 300, i64::MIN, i64::MAX] {
                assert!((loss(ignore) - all).abs() < 1e-6, "{dtype} without {ignore}: {}", loss(ignore));
            }
            assert!((loss(2) - all - 1.0).abs() < 1e-6, "{dtype}: {}", loss(2));
        }
        // Beyond 2⁵³, integers are compared exactly.
        let far = (1i64 << 53) + 1;
        let options = CrossEntropyOptions { ignore_index: Some(far), ..CrossEntropyOptions::default() };
        let loss = x.cross_entropy_with_options(&Tensor::from_slice(&[0, far], [2]), &options).item::<f64>().unwrap();
        assert!((loss - all - 1.0).abs() < 1e-6, "{loss}");
    });
}

#[test]
fn long_cumulative_sums_keep_their_digits() {
    on_cpu(|| {
        // 2·10⁷ is an f32, as is each number up to 2²⁴.
        let ones = Tensor::ones([20_000_000], DType::F32).cumsum(0);
        assert_eq!(numbers(&ones.slice((-1,))), [2e7]);
        assert_eq!(numbers(&ones.slice((16_000_000,))), [16_000_001.0]);
        // Rows that occupy the device on their own.
        let rows = Tensor::full([17, 1 << 18], 0.1f32).cumsum(1);
        let (found, expected) = (numbers(&rows.slice((3, -1)))[0], f64::from(1 << 18) * f64::from(0.1f32));
        assert!((found - expected).abs() < 5.0, "{found}, expected {expected}");
    });
}

/// Pools one window at a time as documented for PyTorch's `MaxPool1d` and `AvgPool1d`, and returns the maxima and means.
fn pooled(x: &[f32], window: &Window<1>, padding: usize, ceil_mode: bool, include: bool) -> Vec<(f32, f32)> {
    let (length, [size], [stride], [dilation]) = (x.len(), window.kernel_size, window.stride, window.dilation);
    let span = dilation * (size - 1) + 1;
    let reach = length + 2 * padding - span;
    let mut count = if ceil_mode { reach.div_ceil(stride) } else { reach / stride } + 1;
    if (count - 1) * stride >= length + padding {
        count -= 1;
    }
    let windows = (0..count).map(|at| {
        let places = (0..size).map(|i| at * stride + i * dilation);
        let inside = places.clone().filter_map(|place| x.get(place.checked_sub(padding)?)).copied();
        let counted = places.filter(|place| *place < length + 2 * padding).count();
        let divisor = if include { counted } else { inside.clone().count() }.max(1);
        (inside.clone().fold(f32::NEG_INFINITY, f32::max), inside.sum::<f32>() / divisor as f32)
    });
    windows.collect()
}

#[test]
fn losses_are_reduced_as_in_pytorch() {
    on_cpu(|| {
        let close = |found: Tensor, expected: &[f64]| {
            let found = numbers(&found);
            let near = found.iter().zip(expected).all(|(x, y)| (x - y).abs() < 1e-6);
            assert!(near && found.len() == expected.len(), "{found:?}, expected {expected:?}");
        };
        // torch.nn.functional.binary_cross_entropy_with_logits(x, y, weight, pos_weight=…), by its formula.
        let x = Tensor::from_slice(&[0.5f32, -1.0, 2.0, -3.0], [2, 2]);
        let y = Tensor::from_slice(&[1f32, 0.0, 0.25, 1.0], [2, 2]);
        let (weight, pos_weight) = (vector(&[1.0, 0.5]), vector(&[2.0, 3.0]));
        let each = [0.9481539683602134, 0.15663084375911143, 1.658660013803716, 4.572881027360613];
        for (reduction, expected) in [
            (Reduction::None, &each[..]),
            (Reduction::Mean, &[1.8340814633209135]),
            (Reduction::Sum, &[7.336325853283654]),
        ] {
            let options = BceOptions { weight: Some(&weight), pos_weight: Some(&pos_weight), reduction };
            close(x.binary_cross_entropy_with_logits(&y, &options), expected);
        }
        // torch.nn.functional.cross_entropy of [batch, classes, length] and [batch, length], by its formula.
        let logits = Tensor::from_slice(&[0f32, 1.0, 2.0, -1.0, 0.5, 0.0, 1.5, 3.0], [2, 2, 2]);
        let classes = Tensor::from_slice(&[0i64, 1, 1, 0], [2, 2]);
        let each = [2.1269280110429727, 2.1269280110429722, 0.3132616875182228, 3.048587351573742];
        close(logits.cross_entropy(&classes), &[1.9039262652944773]);
        close(logits.cross_entropy(&classes.one_hot(2, DType::F32).movedim(-1, 1)), &[1.9039262652944773]);
        let options = CrossEntropyOptions { reduction: Reduction::None, ..CrossEntropyOptions::default() };
        let found = logits.cross_entropy_with_options(&classes, &options);
        assert_eq!(found.dims().unwrap(), [2, 2]);
        close(found, &each);
        let options = CrossEntropyOptions { ignore_index: Some(1), ..options };
        close(logits.cross_entropy_with_options(&classes, &options), &[each[0], 0.0, 0.0, each[3]]);
        close(logits.log_softmax(1).nll_loss(&classes, Reduction::Sum), &[each.iter().sum()]);
        // The others, by their definitions.
        let (a, b) = (vector(&[1.0, -2.0, 0.5]), vector(&[0.0, 2.0, 1.0]));
        close(a.mse_loss(&b, Reduction::None), &[1.0, 16.0, 0.25]);
        close(a.l1_loss(&b, Reduction::Sum), &[5.5]);
        close(a.huber_loss(&b, 1.0, Reduction::None), &[0.5, 3.5, 0.125]);
        close(a.hinge_loss(&b.sign(), Reduction::None), &[1.0, 3.0, 0.5]);
        let wrong = logits.cross_entropy(&classes.narrow(1, 0, 1)).check().unwrap_err();
        assert!(wrong.message().starts_with("cross_entropy: needs logits [batch, classes, …]"), "{wrong}");
    });
}

#[test]
fn pooling_options_agree_with_pytorch() {
    on_cpu(|| {
        for length in 3..12 {
            let x: Vec<f32> = (0..length).map(|i| ((i * 7 + 3) % 11) as f32 - 4.0).collect();
            let tensor = Tensor::from_slice(&x, [1, length]);
            for (size, stride, dilation, padding) in
                [(2, 2, 1, 0), (3, 2, 1, 1), (3, 3, 1, 0), (2, 3, 1, 1), (3, 4, 1, 1), (2, 2, 2, 1), (40, 40, 1, 20)]
            {
                let window = Window { kernel_size: [size], stride: [stride], padding: [padding], dilation: [dilation] };
                if length + 2 * padding < dilation * (size - 1) + 1 {
                    continue;
                }
                for (ceil_mode, include) in [(false, true), (false, false), (true, true), (true, false)] {
                    let expected = pooled(&x, &window, padding, ceil_mode, include);
                    let (largest, means): (Vec<f32>, Vec<f32>) = expected.into_iter().unzip();
                    let what = format!("{length} by {window:?}, {padding}, {ceil_mode}, {include}");
                    let found =
                        tensor.max_pool_with_options(&window, &MaxPoolOptions { ceil_mode }).to_vec::<f32>().unwrap();
                    assert_eq!(found, largest, "{what}");
                    let options = AvgPoolOptions { ceil_mode, count_include_pad: include, divisor_override: None };
                    let found = tensor.avg_pool_with_options(&window, &options).to_vec::<f32>().unwrap();
                    let near = found.iter().zip(&means).all(|(x, y)| (x - y).abs() < 1e-6);
                    assert!(near && found.len() == means.len(), "{what}: {found:?}, expected {means:?}");
                    let options = AvgPoolOptions { divisor_override: Some(1), ..options };
                    let sums = tensor.avg_pool_with_options(&window, &options);
                    let gradient = numbers(&sums.sum(..).gradients(&[&tensor]).unwrap()[0]);
                    let total: f64 = gradient.iter().zip(&x).map(|(g, x)| g * f64::from(*x)).sum();
                    assert!((total - sums.sum(..).item::<f64>().unwrap()).abs() < 1e-4, "gradient of {what}");
                }
            }
        }
        let bools = Tensor::from_slice(&[false, true, false, false], [1, 4]);
        let window = Window { stride: [2], ..Window::new([2]) };
        let found = bools.max_pool(&Window { padding: [1], ..window }).to_vec::<bool>().unwrap();
        assert_eq!(found, [false, true, false]);
        let options = AvgPoolOptions { divisor_override: Some(0), ..AvgPoolOptions::default() };
        let wrong = Tensor::ones([1, 4], DType::F32).avg_pool_with_options(&window, &options);
        assert!(wrong.check().unwrap_err().message().contains("the divisor must be at least 1"));
    });
}

/// Rows that are too long for an algorithm over all pairs of elements: 10¹⁰ pairs would take 80 GB.
#[test]
fn gradients_of_long_cumprod_and_cummax_are_right() {
    const LENGTH: usize = 100_000;
    Device::get("cpu").unwrap().scope(|| {
        let mut state = 1u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f64 / (1u64 << 24) as f64
        };
        let mut factors: Vec<f64> = (0..LENGTH)
            .map(|_| (1.0 + (next() - 0.5) / 50.0) * (1.0 - 2.0 * (next() - 0.5).signum().max(0.0)))
            .collect();
        let weights: Vec<f64> = (0..LENGTH).map(|_| next() - 0.5).collect();
        let gradient = |x: &[f64], of: fn(&Tensor) -> Tensor| {
            let (x, weights) = (Tensor::from_slice(x, [x.len()]), Tensor::from_slice(&weights[..x.len()], [x.len()]));
            let grad = (of(&x) * weights).sum(..).gradients(&[&x]).unwrap().remove(0);
            grad.to_vec::<f64>().unwrap()
        };
        for zeros in [&[][..], &[0], &[70_000], &[30_000, 30_001], &[LENGTH - 1]] {
            zeros.iter().for_each(|at| factors[*at] = 0.0);
            // g[j] + x[j + 1] · r[j + 1], computed from the last element on, times the product of all elements before j.
            let mut want = weights.clone();
            (0..LENGTH - 1).rev().for_each(|at| want[at] += factors[at + 1] * want[at + 1]);
            let mut before = 1.0;
            for (want, factor) in want.iter_mut().zip(&factors) {
                (*want, before) = (*want * before, before * factor);
            }
            let scale = want.iter().fold(0.0f64, |scale, value| scale.max(value.abs()));
            let have = gradient(&factors, |x| x.cumprod(0));
            for (at, (have, want)) in have.iter().zip(&want).enumerate() {
                assert!(
                    (have - want).abs() <= 1e-9 * scale,
                    "zeros at {zeros:?}, element {at}: {have}, expected {want}"
                );
            }
            zeros.iter().for_each(|at| factors[*at] = 0.75);
        }
        for (length, step) in [(LENGTH, 1), (1000, 7), (1, 1), (2, 1)] {
            // Ties, of which the last counts, and NaN, after which every element is the extreme.
            let mut values: Vec<f64> =
                (0..length).map(|at| (next() * 40.0).floor() + (at / (30 * step)) as f64 * 0.25).collect();
            if length > 900 {
                values[length - 10] = f64::NAN;
            }
            let mut want = vec![0.0; length];
            let mut holder = 0;
            for (at, value) in values.iter().enumerate() {
                holder = if value.is_nan() || *value >= values[holder] { at } else { holder };
                want[holder] += weights[at];
            }
            let have = gradient(&values, |x| x.cummax(0));
            let near = |(have, want): (&f64, &f64)| (have - want).abs() <= 1e-9;
            assert!(have.iter().zip(&want).all(near), "cummax of {length}");
            let turned: Vec<f64> = values.iter().map(|value| -value).collect();
            assert_eq!(gradient(&turned, |x| x.cummin(0)), have, "cummin of {length}");
        }
    });
}

/// Returns the number of elements of all nodes of a program, those of calls included: a bound of its work and memory.
fn elements(graph: &Graph) -> usize {
    let node = |node: &Node| match &node.op {
        Op::Call(call, _) => node.shape.numel() + elements(&call.body),
        _ => node.shape.numel(),
    };
    graph.nodes.iter().map(node).sum()
}

/// Four times the elements take about four times the work, and pairs of elements would take sixteen times.
#[test]
fn gradients_of_cumulative_operations_take_linear_work() {
    on_cpu(|| {
        type Operation = (&'static str, fn(&Tensor) -> Tensor);
        let operations: [Operation; 5] = [
            ("cumsum", |x| x.cumsum(0)),
            ("cumprod", |x| x.cumprod(0)),
            ("cummax", |x| x.cummax(0)),
            ("cummin", |x| x.cummin(0)),
            ("logcumsumexp", |x| x.logcumsumexp(0)),
        ];
        for (name, operation) in operations {
            let work = |length: usize| {
                let x = Tensor::from_slice(&vec![0.5f32; length], [length]);
                let traced = program(|x| operation(&x[0]).square().sum(..).gradients(&[&x[0]]), &[&x]).unwrap();
                elements(&traced.graph)
            };
            let ratio = work(8192) as f64 / work(2048) as f64;
            assert!(ratio < 5.0, "{name}: four times the elements take {ratio} times the work");
        }
    });
}
