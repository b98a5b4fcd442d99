//! Dynamic dimensions with derivatives, changes of shape and invalid lengths: each operation on padded tensors gives the same result as on
//! plain tensors of the valid length, or is rejected.

use panoply_runtime::Device;
use panoply_tensor::{AttentionOptions, DType, Dim, Error, Reduction, Result, Tensor, jit};

/// Shapes and values.
type Values = Vec<(Vec<usize>, Vec<f32>)>;

fn values(tensors: &[Tensor]) -> Result<Values> {
    let one = |x: &Tensor| Ok((x.shape()?.dims().to_vec(), x.cast(DType::F32).to_vec::<f32>()?));
    tensors.iter().map(one).collect()
}

#[track_caller]
fn near(have: Result<Vec<Tensor>>, want: Result<Vec<Tensor>>, what: &str) {
    let values = |tensors: Result<Vec<Tensor>>| tensors.and_then(|tensors| values(&tensors));
    let (have, want) = (values(have), values(want).unwrap());
    let have = have.unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(have.len(), want.len(), "{what}");
    for ((have_dims, have), (want_dims, want)) in have.iter().zip(&want) {
        assert_eq!(have_dims, want_dims, "{what}: {have:?}, expected {want:?}");
        let scale = want.iter().filter(|x| x.is_finite()).fold(1.0f32, |top, x| top.max(x.abs()));
        let equal = |(a, b): (&f32, &f32)| a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= 3e-5 * scale;
        assert!(have.iter().zip(want).all(equal), "{what}: {have:?}, expected {want:?}");
    }
}

fn numbers(seed: usize, count: usize) -> Vec<f32> {
    (0..count).map(|i| (((i * 7 + seed * 13) * 37 + seed) % 101) as f32 / 50.0 - 1.0).collect()
}

fn plain(seed: usize, dims: &[usize]) -> Tensor {
    Tensor::from_slice(&numbers(seed, dims.iter().product()), dims)
}

/// Returns a matrix, and the same padded to the bound, with padding that would change results.
fn both(seed: usize, [rows, columns]: [usize; 2], dim: &Dim) -> [Tensor; 2] {
    let mut numbers = numbers(seed, rows * columns);
    let short = Tensor::from_slice(&numbers, [rows, columns]);
    numbers.resize(dim.bound() * columns, f32::NAN);
    let stored = Tensor::from_slice(&numbers, [dim.bound(), columns]);
    [short, stored.set_dim_size(0, dim, &Tensor::scalar(rows as i32))]
}

fn n(bound: usize) -> Dim {
    Dim::new("n", bound)
}

#[test]
fn constants_have_complete_gradients() {
    let bias = plain(1, &[1, 2]);
    let [x, open] = both(2, [3, 2], &n(4));
    let other = plain(3, &[2, 2]);
    let data = plain(4, &[4, 2]);
    type Of<'a> = &'a dyn Fn(&dyn Fn(&Tensor, usize) -> Tensor, &Tensor, &Tensor, &Tensor) -> Tensor;
    let cases: [(&str, Of<'_>); 4] = [
        ("of a sum", &|part, x, _, b| (x * part(b, 3)).sum(..) + b.sum(..)),
        ("of squares", &|part, x, _, b| (x * part(b, 3)).sum(..) + b.square().sum(..)),
        ("of data", &|part, x, _, b| (x * part(b, 3)).sum(..) + (b * &data).sum(..)),
        ("of two lengths", &|part, x, y, b| (x * part(b, 3)).sum(..) + (y * part(b, 2)).square().sum(..)),
    ];
    for (what, of) in cases {
        let b = bias.broadcast_to([4, 2]);
        let want = of(&|b, rows| b.narrow(0, 0, rows), &x, &other, &b);
        let have = of(&|b, _| b.clone(), &open, &other.mark_dynamic(0, &n(4)), &b);
        near(have.gradients(&[&bias, &b]), want.gradients(&[&bias, &b]), what);
    }
    let b = Tensor::zeros([4, 2], DType::F32);
    let grad = (&open * 2.0 + &b).square().sum(..).gradients(&[&b]).unwrap().remove(0);
    let want = Tensor::concat([&x * 4.0, Tensor::zeros([1, 2], DType::F32)], 0);
    near(Ok(vec![&b - grad]), Ok(vec![-want]), "a parameter of zeros");
}

type Body = fn([&Tensor; 2], &()) -> Tensor;

fn cut([x, length]: [&Tensor; 2], (): &()) -> Tensor {
    x.set_dim_size(0, &Dim::new("seen", 5), length).mean(..)
}

#[test]
fn invalid_lengths_are_rejected_and_computed_ones_are_clamped() {
    let seen = Dim::new("seen", 5);
    let x = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0, 5.0], [5]);
    let number = |n: i32| Tensor::scalar(n);
    for (length, mean) in [(7, 3.0), (3, 2.0), (5, 3.0)] {
        let part = x.set_dim_size(0, &seen, &(number(4) + number(length - 4)));
        assert_eq!(part.mean(..).item::<f64>().unwrap(), mean, "{length}");
        assert_eq!(part.dim_size(0).item::<f64>().unwrap(), f64::from(length.min(5)));
    }
    let below = x.set_dim_size(0, &seen, &(number(4) - number(6)));
    assert_eq!((below.sum(..).item::<f64>().unwrap(), below.dim_size(0).item::<f64>().unwrap()), (0.0, 0.0));
    assert_eq!(below.to_vec::<f32>().unwrap_err().message(), "-2 is not a valid length of seen of at most 5");
    let captured = jit(|[x, n]| [x.set_dim_size(0, &seen, n).mean(..)]);
    let called = |n: i32| {
        let both: [Body; 2] = [cut, |[x, n], ()| Tensor::call("inner", [x, n], (), cut)];
        let [one, two] = both.map(|body| Tensor::call("outer", [&x, &number(n)], (), body));
        one.item::<f64>().and_then(|mean| two.item::<f64>().map(|other| (mean + other) / 2.0))
    };
    for length in [3, 7, -2, 1] {
        let [one, two] = [captured.call([&x, &number(length)]).and_then(|[mean]| mean.item::<f64>()), called(length)];
        for mean in [one, two] {
            match mean {
                Ok(mean) => assert_eq!(mean, f64::from(length + 1) / 2.0),
                Err(error) => {
                    assert_eq!(error.message(), format!("{length} is not a valid length of seen of at most 5"));
                    assert!(error.is_mistake() && !(0..=5).contains(&length), "{error}");
                }
            }
        }
    }
}

#[test]
fn meshgrid_and_indices_respect_the_valid_length() {
    let [v, w] = [plain(1, &[4]), plain(2, &[3])];
    let grids = |v: &Tensor, w: &Tensor| {
        let grids = Tensor::meshgrid(&[v, w]);
        let grad = (&grids[0] * &grids[1].sin()).mean(..).gradients(&[v, w])?;
        Ok([vec![grids[0].mean(0), grids[1].mean(0)], grids, grad].concat())
    };
    near(grids(&v.mark_dynamic(0, &n(6)), &w.mark_dynamic(0, &Dim::new("m", 5))), grids(&v, &w), "two of a grid");
    near(grids(&v, &w.mark_dynamic(0, &n(6))), grids(&v, &w), "one of a grid");
    let [x, open] = both(3, [3, 5], &n(4));
    let taken = |x: &Tensor, rows: usize| {
        let taken = x.take_along_dim(&Tensor::zeros([rows, 1], DType::I32), 1);
        Ok(vec![taken.mean(..), taken])
    };
    near(taken(&open, 4), taken(&x, 3), "positions of no data");
    let joined = |x: &Tensor, rows: usize| {
        let zeros = Tensor::zeros([rows, 1], DType::F32);
        Ok(vec![Tensor::concat([zeros.clone(), x.clone()], 1), Tensor::concat([x.clone(), zeros], 1)])
    };
    near(joined(&open, 4), joined(&x, 3), "zeros beside it");
}

#[test]
fn reshape_uses_the_valid_length() {
    let n = n(4);
    let (mut taken, mut refused) = (0, Vec::new());
    for rows in [0, 1, 2, 3, 4] {
        let [x, open] = both(1, [rows, 4], &n);
        let lengths: [isize; 7] = [-1, 0, 1, 2, 3, 4, 8];
        let pairs = lengths.iter().flat_map(|a| lengths.iter().map(move |b| [*a, *b]));
        let asked = pairs.flat_map(|[a, b]| [vec![a * b.max(1)], vec![a, b], vec![a, b, 2], vec![1, a, b]]);
        for asked in asked {
            let of = |x: &Tensor| match asked[..] {
                [a] => x.reshape([a]),
                [a, b] => x.reshape([a, b]),
                [a, b, c] => x.reshape([a, b, c]),
                _ => unreachable!(),
            };
            let (have, want) = (values(&[of(&open)]), values(&[of(&x)]));
            match (have, want) {
                (Ok(have), Ok(want)) => assert_eq!(have, want, "{rows} rows as {asked:?}"),
                (Ok(have), Err(error)) => panic!("{rows} rows as {asked:?}: {have:?}, expected {error}"),
                (Err(_), Ok(_)) => refused.push((rows, asked.clone())),
                (Err(_), Err(_)) => continue,
            }
            taken += 1;
        }
    }
    let must = [(0, vec![0]), (0, vec![0, 2]), (0, vec![-1, 4]), (3, vec![-1, 2]), (3, vec![3, -1]), (2, vec![4, 2])];
    assert!(must.iter().all(|case| !refused.contains(case)), "{refused:?}");
    assert!(taken > 60, "{taken}");
}

#[test]
fn the_gradient_of_equal_extremes_ignores_padding() {
    for x in [[f32::NEG_INFINITY; 2], [f32::INFINITY; 2], [1.0, 1.0]].map(|x| Tensor::from_slice(&x, [2])) {
        for of in [|x: &Tensor| x.max(..), |x: &Tensor| x.min(..)] {
            let grad = |x: &Tensor| of(x).gradients(&[x]);
            near(grad(&x.mark_dynamic(0, &n(4))), grad(&x), "equal ones");
        }
    }
}

#[test]
fn extremes_of_an_empty_axis_are_mistakes() {
    let x = Tensor::from_slice(&[] as &[f32], [0, 3]);
    for of in [|x: &Tensor| x.max(0), |x: &Tensor| x.min(..), |x: &Tensor| x.argmax(0)] {
        let [open, plain] = [of(&x.mark_dynamic(0, &n(4))), of(&x)].map(|x| x.check().unwrap_err());
        assert!(open.is_mistake() && plain.is_mistake());
        assert_eq!(open.message().split(" of ").next(), plain.message().split(" of ").next());
    }
    near(Ok(vec![x.mark_dynamic(0, &n(4)).max(1)]), Ok(vec![x.max(1)]), "beside nothing");
}

#[test]
fn cotangents_and_tangents_must_have_the_valid_length() {
    let x = plain(1, &[3]).mark_dynamic(0, &n(6));
    let y = -&x;
    for wrong in [plain(2, &[5]).mark_dynamic(0, &n(6)), plain(2, &[6]), plain(2, &[3])] {
        for error in [y.vjp(&[&x], &wrong).unwrap_err(), y.sum(..).jvp(&[&x], &[&wrong]).unwrap_err()] {
            assert!(error.is_mistake(), "{error}");
        }
    }
    near(y.vjp(&[&x], &y.ones_like()), Ok(vec![Tensor::full([3], -1.0f32)]), "ones");
}

#[test]
fn chains_of_constants_are_recognized_in_linear_time() {
    let x = plain(1, &[3]).mark_dynamic(0, &n(4));
    let mut free = Tensor::ones([4], DType::F32);
    for _ in 0..60 {
        free = (&free + &free).tanh();
    }
    assert_eq!((&x + &free).shape().unwrap().dims(), [3]);
}

#[test]
fn ctc_loss_with_a_dynamic_batch() {
    let n = n(6);
    for rows in [1, 4] {
        let logits = plain(1, &[rows, 12]).reshape([-1, 3, 4]).permute([1, 0, 2]);
        let targets = Tensor::from_slice(&(0..2 * rows as i32).map(|i| 1 + i * 5 % 3).collect::<Vec<i32>>(), [rows, 2]);
        let [times, lengths] = [3, 2].map(|length| Tensor::from_slice(&vec![length; rows], [rows]));
        let of = |x: &Tensor, open: bool| {
            let [targets, times, lengths] =
                [&targets, &times, &lengths].map(|of| if open { of.mark_dynamic(0, &n) } else { of.clone() });
            let loss = x.log_softmax(-1).ctc_loss(&targets, &times, &lengths, 0, Reduction::None);
            let grad = loss.sin().mean(..).gradients(&[x])?;
            Ok([vec![loss], grad].concat())
        };
        near(of(&logits.mark_dynamic(1, &n), true), of(&logits, false), "ctc");
    }
    let [targets, counts] = [vec![4, 2], vec![4]].map(|dims| Tensor::full(dims, 1i32));
    let wrong = plain(1, &[3, 4, 4]).ctc_loss(
        &targets.narrow(0, 0, 3).mark_dynamic(0, &Dim::new("m", 4)),
        &counts,
        &counts,
        0,
        Reduction::None,
    );
    assert!(wrong.check().unwrap_err().is_mistake());
}

#[test]
fn the_gradient_of_an_empty_product_is_empty() {
    let x = Tensor::from_slice(&[] as &[f32], [0, 3]);
    for y in [x.prod(0), x.cumprod(0).sum(0)] {
        let grad = (y * plain(1, &[3])).sum(..).gradients(&[&x]).unwrap();
        assert_eq!(values(&grad).unwrap(), [(vec![0, 3], Vec::new())]);
    }
    let grad = x.prod(0).sum(..).gradients(&[&x]).unwrap().remove(0);
    assert_eq!(values(&grad.sin().sum(..).gradients(&[&x]).unwrap()).unwrap(), [(vec![0, 3], Vec::new())]);
    assert_eq!(x.prod(0).jvp(&[&x], &[&x]).unwrap().to_vec::<f32>().unwrap(), [0.0; 3]);
}

#[test]
fn jvp_of_operations_along_the_dynamic_axis() {
    type Of = fn(&Tensor) -> Tensor;
    let of: [(&str, Of); 10] = [
        ("max", |x| x.max(0)),
        ("min", |x| x.min(..)),
        ("prod", |x| x.prod(0)),
        ("cumprod", |x| x.cumprod(0)),
        ("matmul", |x| x.t().matmul(x)),
        ("softmax", |x| x.softmax(0)),
        ("logsumexp", |x| x.logsumexp(0)),
        ("gelu and back", |x| Tensor::checkpoint([x], |[x]| x.gelu() + x)),
        ("attention", |x| {
            let x = x.unsqueeze(0);
            x.scaled_dot_product_attention(&x, &x, &AttentionOptions { is_causal: true, ..AttentionOptions::default() })
        }),
        ("a gradient", |x| {
            x.t().matmul(x).sin().sum(..).gradients(&[x]).map_or_else(Tensor::from_mistake, |mut s| s.remove(0))
        }),
    ];
    for rows in [1, 3, 6] {
        let ([x, open], [to, open_to]) = (both(1, [rows, 2], &n(6)), both(2, [rows, 2], &n(6)));
        for (what, of) in &of {
            let moved = |x: &Tensor, to: &Tensor| {
                let grad = of(x).sin().sum(..).gradients(&[x])?.remove(0);
                Ok(vec![of(x).jvp(&[x], &[to])?, grad.jvp(&[x], &[to])?])
            };
            near(moved(&open, &open_to), moved(&x, &to), &format!("{what} of {rows} rows"));
        }
    }
}

#[test]
fn checkpoints_keep_valid_lengths() {
    let (n, w) = (n(5), plain(2, &[4, 4]));
    let x = plain(1, &[5, 4]);
    let block = |x: &Tensor| (x.matmul(&w).gelu() + x).layer_norm(1e-5) + x.softmax(0);
    let of = |y: Tensor| {
        let grads = (&y * y.cumsum(0).sin()).sum(..).gradients(&[&x, &w])?;
        Ok([vec![y], grads].concat())
    };
    for rows in [3, 1, 5] {
        let want = || of(block(&x.narrow(0, 0, rows)));
        let length = Tensor::scalar(rows as i32);
        let open = x.set_dim_size(0, &n, &length);
        near(of(Tensor::checkpoint([&open], |[x]| block(x))), want(), "of a length");
        near(of(Tensor::checkpoint([&open, &length], |[x, _]| block(x))), want(), "of a length, which is given too");
        near(of(Tensor::checkpoint([&x], |[x]| block(&x.set_dim_size(0, &n, &length)))), want(), "that makes one");
        near(
            of(Tensor::checkpoint([&x, &length], |[x, n_of]| block(&x.set_dim_size(0, &n, n_of)))),
            want(),
            "given one",
        );
        let later = |length: &Tensor| length + Tensor::scalar(1i32);
        let short = Tensor::scalar(rows as i32 - 1);
        let made = Tensor::checkpoint([&x, &short], |[x, short]| block(&x.set_dim_size(0, &n, &later(short))));
        near(of(made), want(), "that computes one");
        let captured = jit(|[x, length]| {
            let y = Tensor::checkpoint([x, length], |[x, length]| block(&x.set_dim_size(0, &n, length)));
            let grad = y.square().sum(..).gradients(&[x]);
            [y.sum(0), grad.map_or_else(Tensor::from_mistake, |mut grad| grad.remove(0))]
        });
        let want = || {
            let y = block(&x.narrow(0, 0, rows));
            Ok(vec![y.sum(0), y.square().sum(..).gradients(&[&x])?.remove(0)])
        };
        near(captured.call([&x, &length]).map(Vec::from), want(), "in a captured function");
    }
}

#[test]
fn static_and_dynamic_tensors_can_be_combined() {
    let [x, w] = [plain(1, &[3, 2]), plain(2, &[3, 2])];
    let of = jit(|[x, w]: [&Tensor; 2]| {
        assert!(!w.has_dynamic_dim());
        let [rows] = Tensor::vmap([w], |[row]| [row.square().sum(..)]);
        [x.sum(0), rows, w.t().matmul(w).cholesky()]
    });
    let plain = of.call([&x, &w]).map(Vec::from);
    near(of.call([&x.mark_dynamic(0, &n(4)), &w]).map(Vec::from), plain, "a captured function");
}

#[test]
fn copies_to_another_device_keep_the_length() {
    let (n, x) = (n(5), plain(1, &[5]));
    let there = Device::get("cpu:checked").unwrap();
    let want = || Ok(vec![x.narrow(0, 0, 3).to(&there).sum(..), x.narrow(0, 0, 3).square().to(&there)]);
    let make = jit(|[x, length]| [x.set_dim_size(0, &n, &(length + Tensor::scalar(1i32)))]);
    let computed = Tensor::from_slice(&[3i32], [1]).reshape(());
    let made = [
        x.set_dim_size(0, &n, &(Tensor::scalar(1i32) + Tensor::scalar(2i32))),
        x.set_dim_size(0, &n, &computed),
        make.call([&x, &Tensor::scalar(2i32)]).unwrap()[0].clone(),
    ];
    for part in made {
        let moved = part.to(&there);
        near(Ok(vec![moved.sum(..), &moved * &part.to(&there)]), want(), "moved");
    }
    let error = x.set_dim_size(0, &n, &(Tensor::scalar(1i32) + Tensor::scalar(6i32))).to(&there).check();
    let wrong = |error: Error| error.message().contains("7 is not a valid length of n");
    assert!(error.is_err_and(wrong));
}

#[test]
fn matmul_of_dynamic_sequences_with_a_matrix() {
    let w = plain(2, &[4, 3]);
    let x = plain(1, &[2, 5, 4]);
    let of = |x: &Tensor| {
        let y = x.matmul(&w);
        let grads = y.sin().mean(..).gradients(&[x, &w])?;
        Ok([vec![y], grads].concat())
    };
    near(of(&x.mark_dynamic(1, &n(7))), of(&x), "times");
    near(of(&x.mark_dynamic(0, &n(7))), of(&x), "a batch");
    near(of(&x.mark_dynamic(1, &n(7)).mark_dynamic(0, &Dim::new("batch", 3))), of(&x), "a batch of times");
}
