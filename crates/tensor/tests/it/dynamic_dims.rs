//! Dynamic dimensions: every operation of the op table gives the same result for tensors padded to an upper bound as for tensors of the
//! valid length, or is rejected. One plan serves all lengths.

use std::sync::{Mutex, MutexGuard, PoisonError};

use panoply_ir::target::Language;
use panoply_runtime::Device;
use panoply_tensor::conformance::row::Input;
use panoply_tensor::conformance::{Row, oracle, rows};
use panoply_tensor::{
    AttentionOptions, DType, Dim, Result, Rng, Shape, SortOrder, Tensor, eval, jit, jit_with_state, plan_cache_stats,
};

/// Statistics are global to the process, so tests run one at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A row of the op table with the axes of its inputs that are dynamic.
struct Case {
    row: &'static Row,
    /// Dynamic axes of each input.
    axes: Vec<Vec<usize>>,
}

/// Returns cases for every dimension size of a row's inputs: each axis of that size alone, together with one in every other input, and all
/// such axes. Also all axes of any two sizes.
fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for row in rows() {
        let mut of_row: Vec<Case> = Vec::new();
        let mut add = |axes: Vec<Vec<usize>>| {
            if !of_row.iter().any(|case| case.axes == axes) {
                of_row.push(Case { row, axes });
            }
        };
        let so_long = |input: &Input, bounds: &[usize]| -> Vec<usize> {
            (0..input.shape.len()).filter(|axis| bounds.contains(&input.shape[*axis])).collect()
        };
        let mut bounds: Vec<usize> = row.inputs.iter().flat_map(|input| input.shape).copied().collect();
        bounds.retain(|bound| *bound > 1);
        bounds.sort_unstable();
        bounds.dedup();
        for (n, input) in row.inputs.iter().enumerate() {
            for (axis, bound) in input.shape.iter().enumerate().filter(|(_, bound)| **bound > 1) {
                let first = |other: &Input| so_long(other, &[*bound]).into_iter().take(1).collect();
                add((0..row.inputs.len()).map(|m| if m == n { vec![axis] } else { Vec::new() }).collect());
                add(row.inputs.iter().enumerate().map(|(m, x)| if m == n { vec![axis] } else { first(x) }).collect());
            }
        }
        for (at, bound) in bounds.iter().enumerate() {
            add(row.inputs.iter().map(|input| so_long(input, &[*bound])).collect());
            for other in &bounds[at + 1..] {
                add(row.inputs.iter().map(|input| so_long(input, &[*bound, *other])).collect());
            }
        }
        cases.extend(of_row);
    }
    cases
}

impl Case {
    /// Returns the inputs with those axes at their valid length, and the inputs padded to the bound, with padding that would change
    /// results.
    fn inputs(&self, length: fn(usize) -> usize) -> [Vec<Tensor>; 2] {
        let one = |n: usize, input: &Input| {
            let (mut numbers, axes) = (input.numbers(n as u64), &self.axes[n]);
            let strides = Shape::from(input.shape).strides();
            let place = |at: usize, axis: usize| at / strides[axis] % input.shape[axis];
            let inside = |at: usize| axes.iter().all(|axis| place(at, *axis) < length(input.shape[*axis]));
            let lengths = input.shape.iter().enumerate();
            let dims = lengths.map(|(axis, bound)| if axes.contains(&axis) { length(*bound) } else { *bound });
            let dims: Vec<usize> = dims.collect();
            let kept: Vec<f64> = (0..numbers.len()).filter(|at| inside(*at)).map(|at| numbers[at]).collect();
            let short = match input.whole {
                true => Tensor::from_slice(&kept.iter().map(|x| *x as i32).collect::<Vec<i32>>(), dims),
                false => Tensor::from_slice(&kept.iter().map(|x| *x as f32).collect::<Vec<f32>>(), dims),
            };
            let beyond = if input.whole { 1.0 } else { f64::NAN };
            (0..numbers.len()).filter(|at| !inside(*at)).for_each(|at| numbers[at] = beyond);
            let stored = axes.iter().fold(input.tensor(&numbers, DType::F32), |stored, axis| {
                let bound = input.shape[*axis];
                let dim = Dim::new(&format!("n{bound}"), bound);
                stored.set_dim_size(*axis as isize, &dim, &Tensor::scalar(length(bound) as i32))
            });
            [short, stored]
        };
        let both: Vec<[Tensor; 2]> = self.row.inputs.iter().enumerate().map(|(n, input)| one(n, input)).collect();
        [0, 1].map(|which| both.iter().map(|pair| pair[which].clone()).collect())
    }

    fn value(&self, inputs: &[Tensor]) -> Result<Values> {
        values(&(self.row.op)(inputs)).map(|value| vec![value])
    }

    /// Returns the gradients with respect to the float inputs of a weighted sum, in which every element has a different weight.
    fn gradients(&self, inputs: &[Tensor]) -> Result<Values> {
        let mut y = (self.row.op)(inputs);
        for axis in (0..y.shape()?.ndim() as isize).rev() {
            let places = (y.zeros_like() + 1.0).cumsum(axis);
            y = (y * (places * 0.37 + axis as f64).sin()).sum(axis);
        }
        let wanted: Vec<&Tensor> = inputs.iter().filter(|input| input.dtype().is_float()).collect();
        y.gradients(&wanted)?.iter().map(values).collect()
    }

    /// Compares the operation on padded inputs with that on short inputs, and the gradients as well if the row has any. Returns `None` if
    /// the padded inputs are rejected, else whether gradients were compared.
    fn compare(&self, length: fn(usize) -> usize) -> Option<bool> {
        let place = || format!("{} with axes {:?}, {} of 10", self.row.name, self.axes, length(10));
        let [short, stored] = self.inputs(length);
        let want = self.value(&short);
        match (self.value(&stored), &want) {
            (Ok(have), Ok(want)) => near(&have, want, 2.0 * self.row.tolerance, place()),
            // A write beyond the end is dropped.
            (Ok(_), Err(_)) => assert_eq!(self.row.name, "slice_scatter", "{} is not rejected: {want:?}", place()),
            (Err(error), _) => {
                assert!(error.is_mistake(), "{}: {error}", place());
                return None;
            }
        }
        if !self.row.differentiable || want.is_err() || length(10) == 1 {
            return Some(false);
        }
        let want = self.gradients(&short).unwrap_or_else(|error| panic!("{}: {error}", place()));
        match self.gradients(&stored) {
            Ok(have) => near(&have, &want, 8.0 * self.row.tolerance, format!("gradient of {}", place())),
            Err(error) => assert!(error.message().contains("has a dynamic length"), "{}: {error}", place()),
        }
        Some(true)
    }
}

/// Shapes and values.
type Values = Vec<(Vec<usize>, Vec<f64>)>;

fn values(x: &Tensor) -> Result<(Vec<usize>, Vec<f64>)> {
    let plain = if x.dtype() == DType::Bool { x.cast(DType::I32) } else { x.clone() };
    let numbers = match plain.dtype() {
        DType::I32 => plain.to_vec::<i32>()?.into_iter().map(f64::from).collect(),
        _ => plain.to_vec::<f32>()?.into_iter().map(f64::from).collect(),
    };
    Ok((plain.shape()?.dims().to_vec(), numbers))
}

#[track_caller]
fn near(have: &Values, want: &Values, tolerance: f64, what: String) {
    for ((have_dims, have), (want_dims, want)) in have.iter().zip(want) {
        assert_eq!(have_dims, want_dims, "{what}");
        let scale = want.iter().filter(|x| x.is_finite()).fold(1.0f64, |top, x| top.max(x.abs()));
        let equal = |a: f64, b: f64| a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= tolerance * scale;
        let wrong = have.iter().zip(want).position(|(a, b)| !equal(*a, *b));
        assert!(wrong.is_none(), "{what}: element {wrong:?} of {have:?} is not that of {want:?}");
    }
}

/// Rows that must accept a dynamic axis, whatever their other axes are.
const TAKEN: &[&str] = &[
    "add",
    "where",
    "cast and back",
    "permute",
    "sum over outer axes",
    "mean",
    "max",
    "prod",
    "argmax",
    "cumsum of columns",
    "cummax",
    "matmul",
    "matmul of many rows",
    "index_select",
    "index_add",
    "gelu",
    "layer_norm",
    "softmax",
    "cross_entropy",
    "mse_loss",
    "var",
    "conv2d",
    "max_pool",
    "attention",
    "attention, causal, heads in groups",
];

#[test]
fn every_operation_agrees_at_every_length() {
    let _alone = alone();
    let (mut taken, mut mistaken): (Vec<&str>, usize) = (Vec::new(), 0);
    Device::get("cpu").unwrap().scope(|| {
        for case in cases() {
            for length in [|_| 1, |bound| bound - bound / 3] {
                let compared = case.compare(length);
                mistaken += usize::from(compared.is_none());
                taken.extend(compared.map(|_| case.row.name));
            }
        }
    });
    let missing: Vec<&&str> = TAKEN.iter().filter(|name| !taken.contains(name)).collect();
    assert!(missing.is_empty(), "{missing:?} accept no dynamic axis");
    assert!(taken.len() > 1300, "only {} cases are accepted, {mistaken} are rejected", taken.len());
}

#[test]
fn devices_agree_with_the_interpreter() {
    let _alone = alone();
    for name in ["cpu", "cpu:checked", "opencl:0"] {
        let device = match Device::get(name) {
            Ok(device) => device,
            Err(error) => {
                eprintln!("SKIPPED: dynamic dimensions on {name}: {}", error.message());
                continue;
            }
        };
        // A device compiler takes a tenth of a second for each kernel.
        let few = device.target().language != Language::Ir;
        let mut seen: Vec<&str> = Vec::new();
        device.scope(|| {
            for case in cases().iter().filter(|case| TAKEN.contains(&case.row.name)) {
                let [short, stored] = case.inputs(|bound| bound - 1);
                let have = (case.row.op)(&stored);
                if have.check().is_err() || (few && seen.contains(&case.row.name)) {
                    continue;
                }
                seen.push(case.row.name);
                let want = oracle::values(&[&(case.row.op)(&short)]).unwrap().remove(0);
                let what = || format!("{} with axes {:?} on {device}", case.row.name, case.axes);
                let have = values(&have).unwrap();
                near(&vec![have.clone()], &vec![(have.0, want)], case.row.tolerance, what());
            }
        });
    }
}

/// Returns `count` rows of two numbers.
fn rows_of(count: usize) -> Vec<f32> {
    (0..2 * count).map(|i| ((i * 7) % 11) as f32 / 4.0 - 1.0).collect()
}

#[test]
fn one_plan_serves_all_lengths() {
    let _alone = alone();
    let batch = Dim::new("batch", 24);
    let w = Tensor::from_slice(&[0.5f32, -1.0, 2.0, 0.25, 1.5, -0.75], [2, 3]);
    let step = |rows: usize| {
        let x = Tensor::from_slice(&rows_of(rows), [rows, 2]).mark_dynamic(0, &batch);
        let y = (x.matmul(&w) + 1.0).gelu().layer_norm(1e-5);
        let loss = y.softmax(-1).square().sum(-1).mean(..);
        let grads = loss.gradients(&[&w, &x]).unwrap();
        let turned = y.t();
        eval(&[&loss, &grads[0], &grads[1], &turned]).unwrap();
        (loss, grads, turned)
    };
    let plain = |rows: usize| {
        let x = Tensor::from_slice(&rows_of(rows), [rows, 2]);
        let y = (x.matmul(&w) + 1.0).gelu().layer_norm(1e-5);
        let loss = y.softmax(-1).square().sum(-1).mean(..);
        let grads = loss.gradients(&[&w, &x]).unwrap();
        [values(&loss), values(&grads[0]), values(&grads[1]), values(&y.t())].map(Result::unwrap).to_vec()
    };
    step(5);
    for rows in [1, 24, 23, 0, 7] {
        let before = plan_cache_stats();
        let (loss, grads, turned) = step(rows);
        let have = [values(&loss), values(&grads[0]), values(&grads[1]), values(&turned)].map(Result::unwrap);
        let after = plan_cache_stats();
        assert_eq!((after.misses, after.hits), (before.misses, before.hits + 1), "{rows} rows are planned again");
        near(&have.to_vec(), &plain(rows), 2e-6, format!("{rows} rows"));
    }
}

#[test]
fn mark_dynamic_accepts_data_evaluated_and_lazy_tensors() {
    let _alone = alone();
    let batch = Dim::new("batch", 6);
    let made: [fn() -> Tensor; 3] = [
        || Tensor::from_slice(&rows_of(4), [4, 2]),
        || {
            let x = Tensor::from_slice(&rows_of(4), [4, 2]);
            x.eval().unwrap();
            x
        },
        || Tensor::from_slice(&rows_of(4), [4, 2]) + 0.0,
    ];
    for made in made {
        for axis in [0, 1] {
            let x = made();
            let open = x.mark_dynamic(axis, &batch);
            assert_eq!(values(&open).unwrap(), values(&x).unwrap());
            assert_eq!(open.storage().unwrap().bytes(), 32);
            assert_eq!(open.to_string(), x.to_string());
            assert_eq!(values(&open.detach().sum(axis)).unwrap(), values(&x.sum(axis)).unwrap());
            assert_eq!(
                open.to_static_shape().flip(axis).to_vec::<f32>().unwrap(),
                x.flip(axis).to_vec::<f32>().unwrap()
            );
        }
    }
    let x = made[2]();
    let grad = x.mark_dynamic(0, &batch).square().sum(..).gradients(&[&x]).unwrap();
    assert_eq!(grad[0].to_vec::<f32>().unwrap(), rows_of(4).iter().map(|x| 2.0 * x).collect::<Vec<f32>>());
    let open = x.mark_dynamic(0, &batch);
    assert_eq!(open.dim_size(0).item::<f64>().unwrap(), 4.0);
    assert_eq!(values(&open.ones_like()).unwrap(), values(&x.ones_like()).unwrap());
    assert_eq!(open.reshape([4, 1, 2]).reshape([-1]).shape().unwrap().dims(), [8]);
    assert_eq!(open.reshape([-1, 2]).broadcast_to([3, 4, 2]).shape().unwrap().dims(), [3, 4, 2]);
    assert!(format!("{open:?}").starts_with("f32[batch 4/6, 2] on"), "{open:?}");
    assert!(format!("{:?}", open.flatten(0, -1)).starts_with("f32[2·batch 8/12] on"), "{:?}", open.flatten(0, -1));
}

#[test]
fn second_derivatives_and_jvp_use_the_valid_length() {
    let _alone = alone();
    let batch = Dim::new("batch", 9);
    let of = |x: &Tensor| {
        let y = (x.exp() * x.cumsum(0)).softmax(0).square().mean(..);
        let grad = y.gradients(&[x]).unwrap().remove(0);
        let moved = grad.jvp(&[x], &[&(x * 0.5)]).unwrap();
        let bend = grad.square().sum(..).gradients(&[x]).unwrap().remove(0);
        [values(&grad), values(&moved), values(&bend)].map(Result::unwrap).to_vec()
    };
    let x = Tensor::from_slice(&rows_of(5), [5, 2]);
    near(&of(&x.mark_dynamic(0, &batch)), &of(&x), 1e-5, "of 5 rows".to_string());
}

/// Returns one more matrix, computed from the previous ones, whose rows are of a batch.
fn next_of(of: &[Tensor], w: &Tensor, number: &mut impl FnMut(usize) -> usize) -> Tensor {
    let (x, y) = (&of[number(of.len())], &of[number(of.len())]);
    match number(20) {
        0 => x.tanh() + y * 0.5,
        1 => x - x.mean(0),
        2 => x * y.sum(1).unsqueeze(1).tanh(),
        3 => x.matmul(w).tanh(),
        4 => x.t().matmul(y).matmul(w).t().softmax(-1).t().sum(0) + x,
        5 => x.softmax(0) + y.softmax(-1),
        6 => x.t().cumsum(-1).t() * 0.25,
        7 => x.layer_norm(1e-3),
        8 => (x.matmul(&y.t()) * 0.125).softmax(-1).matmul(x),
        9 => x.unflatten(1, &[2, 2]).transpose(1, 2).flatten(1, -1),
        10 => x.flatten(0, -1).tanh().reshape([-1, 4]),
        11 => Tensor::concat([x.narrow(1, 1, 3), y.narrow(1, 0, 1)], 1),
        12 => x.where_self(&x.gt(&y.mean(..)), &(y * 0.1)),
        13 => x.index_select(0, &x.argmax(0)).sum(0) + y,
        14 => x * (x.zeros_like() + 0.5).cumsum(0).sin(),
        15 => Tensor::stack([x.clone(), y.clone()], 1).max(1),
        16 => x + (y.square().sum(0) + 1.0).sqrt().unsqueeze(0),
        17 => Tensor::checkpoint([x, y], |[x, y]| (x.exp() * 0.1).tanh() + y.max(0)),
        18 => x.var([0, 1], 0).sqrt() + x * y,
        _ => (x.unsqueeze(1) - y.unsqueeze(1) * w.unsqueeze(0)).mean(1),
    }
}

/// Computes random operations on two tensors, and the first and second derivatives of the result.
fn random(seed: u64, x: &Tensor, y: &Tensor, w: &Tensor) -> Result<Values> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut number = move |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let mut of = vec![x.clone(), y.clone()];
    for _ in 0..1 + number(7) {
        let next = next_of(&of, w, &mut number);
        next.check()?;
        of.push(next);
    }
    // Some random expressions depend on neither input.
    let last = of.pop().expect("there is at least one") + x.matmul(w).sin();
    let grads = last.tanh().mean(..).gradients(&[x, w])?;
    let second = grads[1].square().sum(..).gradients(&[x])?;
    [last].iter().chain(&grads).chain(&second).map(values).collect()
}

#[test]
fn random_expressions_use_the_valid_length() {
    let _alone = alone();
    let dim = Dim::new("batch", 7);
    let w = Tensor::from_slice(&(0..16).map(|i| (i * 5 % 16) as f32 / 16.0 - 0.4).collect::<Vec<f32>>(), [4, 4]);
    Device::get("cpu").unwrap().scope(|| {
        for seed in 0..60 {
            let rows = 1 + seed as usize % 7;
            let data = |shift: usize| {
                let numbers: Vec<f32> = (0..rows * 4).map(|i| ((i * 7 + shift) % 23) as f32 / 12.0 - 0.9).collect();
                Tensor::from_slice(&numbers, [rows, 4])
            };
            let (x, y) = (data(0), data(5));
            let want = random(seed, &x, &y, &w).unwrap();
            let have = random(seed, &x.mark_dynamic(0, &dim), &y.mark_dynamic(0, &dim), &w).unwrap();
            near(&have, &want, 2e-4, format!("seed {seed}"));
        }
    });
}

#[test]
fn a_captured_function_replays_at_every_length() {
    let _alone = alone();
    let batch = Dim::new("batch", 16);
    let train = jit_with_state(|w: &mut Tensor, [x, y]| {
        let loss = (x.matmul(w) - y).square().mean(..);
        match loss.gradients(&[w]) {
            Ok(grads) => *w = &*w - &grads[0] * 0.1,
            Err(error) => return [Tensor::from_mistake(error), y.clone()],
        }
        [loss, x.matmul(w)]
    });
    let mut states = [Tensor::from_slice(&[0.5f32, -0.5], [2, 1]), Tensor::from_slice(&[0.5f32, -0.5], [2, 1])];
    for (turn, rows) in [9, 16, 3, 12, 1].into_iter().enumerate() {
        let data = || {
            let y = Tensor::from_slice(&rows_of(rows)[..rows], [rows, 1]);
            (Tensor::from_slice(&rows_of(rows), [rows, 2]), y)
        };
        let (x, y) = data();
        let before = plan_cache_stats();
        let open =
            train.call_with_state(&mut states[0], [&x.mark_dynamic(0, &batch), &y.mark_dynamic(0, &batch)]).unwrap();
        let made = plan_cache_stats().misses - before.misses;
        // The state is donated from the second call on, which needs another plan.
        assert!(made <= u64::from(turn < 2), "{rows} rows made {made} plans");
        let plain = train.call_with_state(&mut states[1], [&x, &y]).unwrap();
        let all = |results: &[Tensor]| results.iter().map(|result| values(result).unwrap()).collect::<Values>();
        near(&all(&open), &all(&plain), 1e-5, format!("{rows} rows"));
        near(&all(&states[..1]), &all(&states[1..]), 1e-5, format!("state after {rows} rows"));
    }
    assert!(format!("{train:?}").contains("traces: 6"), "{train:?}");
}

#[test]
fn attention_over_a_dynamic_prompt_length() {
    let _alone = alone();
    let prompt = Dim::new("prompt", 9);
    let numbers = |seed: u64, shape: [usize; 4]| {
        let x = Rng::seed_from_u64(seed).normal(shape);
        Tensor::from_slice(&x.to_vec::<f32>().unwrap(), shape)
    };
    let all = |open: bool| {
        let given = [(1, 4), (2, 2), (3, 2)].map(|(seed, heads)| numbers(seed, [2, heads, 6, 3]));
        let [q, k, v] = given.map(|x| if open { x.mark_dynamic(2, &prompt) } else { x });
        let y = q.scaled_dot_product_attention(
            &k,
            &v,
            &AttentionOptions { is_causal: true, ..AttentionOptions::default() },
        );
        let grads = y.sin().mean(..).gradients(&[&q, &k, &v]).unwrap();
        let bend = grads[0].square().sum(..).gradients(&[&k]).unwrap();
        [y].iter().chain(&grads).chain(&bend).map(|x| values(x).unwrap()).collect::<Values>()
    };
    near(&all(true), &all(false), 2e-6, "attention of four heads to two".to_string());
}

#[test]
fn a_state_keeps_its_dynamic_length() {
    let _alone = alone();
    let batch = Dim::new("batch", 6);
    let step = jit_with_state(|held: &mut Tensor, [x]| {
        *held = &*held * 0.5 + x;
        [held.sum(0)]
    });
    for rows in [4, 6, 1] {
        let x = Tensor::from_slice(&rows_of(rows), [rows, 2]);
        let mut held = [Tensor::zeros([rows, 2], DType::F32), x.zeros_like().mark_dynamic(0, &batch)];
        for _ in 0..4 {
            let plain = step.call_with_state(&mut held[0], [&x]).unwrap();
            let open = step.call_with_state(&mut held[1], [&x.mark_dynamic(0, &batch)]).unwrap();
            assert_eq!(values(&open[0]).unwrap(), values(&plain[0]).unwrap());
            assert_eq!(values(&held[1]).unwrap(), values(&held[0]).unwrap());
        }
        let there = held[1].to(&Device::get("cpu:checked").unwrap());
        assert_eq!(values(&there.square().sum(0)).unwrap(), values(&held[0].square().sum(0)).unwrap());
    }
    let other = Tensor::from_slice(&rows_of(3), [3, 2]).mark_dynamic(0, &batch);
    let mut held = Tensor::from_slice(&rows_of(2), [2, 2]).mark_dynamic(0, &batch);
    let error = step.call_with_state(&mut held, [&other]).unwrap_err();
    assert!(error.message().contains("are not known to be equally long"), "{error}");
    assert_eq!(held.shape().unwrap().dims(), [2, 2]);
}

#[test]
fn a_kv_cache_grows_under_one_plan() {
    let _alone = alone();
    const WIDTH: usize = 4;
    const MAX_LEN: usize = 12;
    let seen = Dim::new("seen", MAX_LEN);
    let numbers = Rng::seed_from_u64(3).normal([3, MAX_LEN, WIDTH]);
    let given = |which: isize, at: usize| numbers.slice((which,)).narrow(0, at, 1).unsqueeze(0);
    let step = jit_with_state(|cache: &mut [Tensor; 2], [q, k, v, at]: [&Tensor; 4]| {
        let length = at + Tensor::scalar(1i32);
        for (held, new) in cache.iter_mut().zip([k, v]) {
            *held = held.slice_scatter(new, 1, at);
        }
        let [keys, values] = [&cache[0], &cache[1]].map(|held| held.set_dim_size(1, &seen, &length));
        [q.scaled_dot_product_attention(&keys, &values, &AttentionOptions::default())]
    });
    let mut cache = [0, 1].map(|_| Tensor::zeros([1, MAX_LEN, WIDTH], DType::F32));
    let mut plans = Vec::new();
    for at in 0..MAX_LEN {
        let [q, k, v] = [0, 1, 2].map(|which| given(which, at));
        eval(&[&q, &k, &v]).unwrap();
        let before = plan_cache_stats().misses;
        let [have] = step.call_with_state(&mut cache, [&q, &k, &v, &Tensor::scalar(at as i32)]).unwrap();
        plans.push(plan_cache_stats().misses - before);
        let until = |which: isize| numbers.slice((which,)).narrow(0, 0, at + 1).unsqueeze(0);
        let want = q.scaled_dot_product_attention(&until(1), &until(2), &AttentionOptions::default());
        near(&vec![values(&have).unwrap()], &vec![values(&want).unwrap()], 1e-6, format!("token {at}"));
    }
    assert!(plans[2..].iter().all(|made| *made == 0), "{plans:?} plans");
}

#[test]
fn functions_can_return_new_dynamic_lengths() {
    let _alone = alone();
    let seen = Dim::new("seen", 5);
    let cut = jit(|[x, length]| [x.set_dim_size(0, &seen, &(length + Tensor::scalar(1i32)))]);
    let x = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0, 5.0], [5]);
    for length in [2, 4, 0] {
        let [have] = cut.call([&x, &Tensor::scalar(length)]).unwrap();
        assert_eq!(have.to_vec::<f32>().unwrap(), &[1.0, 2.0, 3.0, 4.0, 5.0][..length as usize + 1]);
        assert_eq!(have.sum(..).item::<f64>().unwrap(), f64::from((length + 1) * (length + 2) / 2));
    }
    let [beyond] = cut.call([&x, &Tensor::scalar(5)]).unwrap();
    assert_eq!(beyond.to_vec::<f32>().unwrap_err().message(), "6 is not a valid length of seen of at most 5");
}

#[test]
fn threads_share_a_plan() {
    let _alone = alone();
    let batch = Dim::new("batch", 40);
    let mean = |rows: usize| Tensor::from_slice(&rows_of(rows), [rows, 2]).mark_dynamic(0, &batch).exp().mean(0);
    std::thread::scope(|scope| {
        for rows in [3, 40, 17] {
            scope.spawn(move || {
                for _ in 0..20 {
                    let want = Tensor::from_slice(&rows_of(rows), [rows, 2]).exp().mean(0);
                    let both = [mean(rows), want].map(|x| vec![values(&x).unwrap()]);
                    near(&both[0], &both[1], 1e-6, format!("{rows} rows"));
                }
            });
        }
    });
}

#[test]
fn invalid_dynamic_dimensions_are_mistakes() {
    let _alone = alone();
    let (batch, other) = (Dim::new("batch", 6), Dim::new("time", 6));
    let x = Tensor::from_slice(&rows_of(4), [4, 2]);
    let open = x.mark_dynamic(0, &batch);
    let of = |rows: usize, dim: &Dim| Tensor::from_slice(&rows_of(rows), [rows, 2]).mark_dynamic(0, dim);
    let unknown = "has a dynamic length, which this operation needs to know";
    let length = |n: i32| Tensor::scalar(n);
    let whole = Tensor::from_slice(&rows_of(6), [6, 2]);
    let far = |x: &Tensor, bound: usize| x.mark_dynamic(0, &Dim::new("far", bound));
    let wide = Tensor::zeros([4, 1 << 40], DType::F32);
    let wrong: [(Tensor, &str); 23] = [
        (far(&x, usize::MAX), "is more than an i32 can count"),
        (far(&wide, i32::MAX as usize), "more bytes than the address space"),
        (open.flip(0), unknown),
        (open.narrow(0, 0, 2), unknown),
        (open.slice((1..,)), unknown),
        (open.pad(&[(1, 0), (0, 0)]), unknown),
        (open.t().reshape([8]), "does not fit"),
        (open.t().flatten(0, -1), unknown),
        (open.sort(0, SortOrder::Ascending), unknown),
        (Tensor::concat([open.clone(), open.clone()], 0), unknown),
        (&open + &of(5, &batch), "are not known to be equally long"),
        (&open + &of(4, &other), "have different Dims"),
        (&open + &whole, "must match, but only one has a Dim"),
        (&open + &x, "do not broadcast"),
        (open.mark_dynamic(0, &batch), "has a Dim already"),
        (far(&Tensor::zeros([0, 1 << 40, 1 << 40], DType::F32), 9), "more bytes than the address space"),
        (open.reshape([isize::MAX, 4, 2]), "does not fit"),
        (of(7, &batch), "exceeds the bound of batch of at most 6"),
        (whole.set_dim_size(0, &batch, &length(7)), "7 is not a valid length of batch of at most 6"),
        (whole.set_dim_size(0, &batch, &length(-1)), "-1 is not a valid length of batch of at most 6"),
        (whole.set_dim_size(1, &batch, &length(1)), "is not as long as the bound of batch of at most 6"),
        (whole.set_dim_size(0, &batch, &Tensor::scalar(1.0f32)), "not a single i32"),
        (open.broadcast_to([6, 2]), "cannot be expanded"),
    ];
    for (at, (tensor, part)) in wrong.iter().enumerate() {
        let error = tensor.to_vec::<f32>().unwrap_err();
        assert!(error.is_mistake() && error.message().contains(part), "{at}: {error}");
        assert!(error.to_string().contains("dynamic_dims.rs"), "{at} does not name the source line: {error}");
    }
    let [mapped] = Tensor::vmap([&open], |[row]| [row.sum(..)]);
    assert!(mapped.check().unwrap_err().message().contains(unknown));
    let shape = jit(|[x]| [x.shape().map_or_else(|error| Tensor::from_mistake(error.clone()), |_| x.clone())]);
    let error = shape.call([&open]).unwrap_err();
    assert!(error.message().contains("is known only when the function runs"), "{error}");
}
