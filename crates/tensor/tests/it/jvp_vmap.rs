//! Forward mode compared with reverse mode, and `vmap` compared with a loop over examples, for every row of the op table. Jacobians and
//! Hessians with known values.

use panoply_tensor::conformance::row::{Input, Row, weighted};
use panoply_tensor::conformance::rows;
use panoply_tensor::{DType, Device, Tensor, eval, no_grad};

/// Number of examples of a row.
const EXAMPLES: u64 = 3;

fn on_cpu(work: impl FnOnce()) {
    Device::get("cpu").unwrap().scope(work);
}

fn numbers(tensor: &Tensor) -> Vec<f64> {
    let plain = if tensor.dtype() == DType::Bool { tensor.cast(DType::I32) } else { tensor.clone() };
    plain.cast(DType::F64).to_vec().unwrap()
}

#[track_caller]
fn close(what: &str, have: &Tensor, want: &Tensor) {
    assert_eq!(have.shape().unwrap(), want.shape().unwrap(), "{what}");
    eval(&[have, want]).unwrap();
    let (have, want) = (numbers(have), numbers(want));
    let scale = want.iter().filter(|x| x.is_finite()).fold(1f64, |top, x| top.max(x.abs()));
    for (i, (have, want)) in have.iter().zip(&want).enumerate() {
        let same = have == want || (have.is_nan() && want.is_nan()) || (have - want).abs() <= 1e-9 * scale;
        assert!(same, "{what}: element {i} is {have}, expected {want}");
    }
}

/// Returns the inputs of an example.
fn example(row: &Row, number: u64) -> Vec<Tensor> {
    let input = |(i, input): (usize, &Input)| input.tensor(&input.numbers(i as u64 + 100 * number), DType::F64);
    row.inputs.iter().enumerate().map(input).collect()
}

fn floats(inputs: &[Tensor]) -> Vec<&Tensor> {
    inputs.iter().filter(|input| input.dtype().is_float()).collect()
}

#[test]
fn forward_and_reverse_mode_agree_on_every_op() {
    on_cpu(|| {
        for row in rows().filter(|row| row.differentiable) {
            let inputs = example(row, 0);
            let direction = |(i, input): (usize, &Input)| {
                let any = Input { low: -1.0, high: 1.0, whole: false, ..*input };
                any.tensor(&any.numbers(1000 + i as u64), DType::F64)
            };
            let moving = row.inputs.iter().enumerate().filter(|(_, input)| !input.whole);
            let directions: Vec<Tensor> = moving.map(direction).collect();
            let wanted = floats(&inputs);
            let y = (row.op)(&inputs);
            let moved = y.jvp(&wanted, &directions.iter().collect::<Vec<&Tensor>>());
            let moved = moved.unwrap_or_else(|error| panic!("{}: {error}", row.name));
            assert_eq!((moved.shape().unwrap(), moved.dtype()), (y.shape().unwrap(), y.dtype()), "{}", row.name);
            let gradients = weighted(&y).unwrap().gradients(&wanted).unwrap();
            let products = gradients.iter().zip(&directions).map(|(gradient, d)| (gradient * d).sum(..));
            let want = products.reduce(|sum, product| sum + product).unwrap();
            close(row.name, &weighted(&moved).unwrap(), &want);
        }
    });
}

/// The second derivative along two directions: finite differences of gradients, reverse over reverse, and forward over reverse must agree.
#[test]
fn second_derivatives_agree_with_differences_for_every_op() {
    on_cpu(|| {
        for row in rows().filter(|row| row.differentiable) {
            let moving: Vec<(usize, &Input)> =
                row.inputs.iter().enumerate().filter(|(_, input)| !input.whole).collect();
            let drawn = |salt: u64| {
                let any = |input: &Input| Input { low: -1.0, high: 1.0, ..*input };
                let draw =
                    |(i, input): &(usize, &Input)| input.tensor(&any(input).numbers(salt + *i as u64), DType::F64);
                moving.iter().map(draw).collect::<Vec<Tensor>>()
            };
            let (along, across) = (drawn(1000), drawn(2000));
            let grad = |inputs: &[Tensor]| {
                let gradients = weighted(&(row.op)(inputs)).unwrap().gradients(&floats(inputs)).unwrap();
                let products = gradients.iter().zip(&across).map(|(gradient, d)| (gradient * d).sum(..));
                products.reduce(|sum, product| sum + product).unwrap()
            };
            let at = |step: f64| {
                let mut inputs = example(row, 0);
                moving.iter().zip(&along).for_each(|((i, _), d)| inputs[*i] = &inputs[*i] + d * step);
                grad(&inputs).item::<f64>().unwrap()
            };
            let want = (at(1e-5) - at(-1e-5)) / 2e-5;
            let inputs = example(row, 0);
            let (grad, wanted) = (grad(&inputs), floats(&inputs));
            // For inputs on which the operation depends linearly, the gradient does not depend on the input.
            let bends = |(x, d): (&&Tensor, &Tensor)| Some((grad.gradients(&[x]).ok()?.remove(0) * d).sum(..));
            let back: Vec<Tensor> = wanted.iter().zip(&along).filter_map(bends).collect();
            let flat = back.is_empty();
            let back: f64 = back.iter().map(|bend| bend.item::<f64>().unwrap()).sum();
            let forth = grad.jvp(&wanted, &along.iter().collect::<Vec<&Tensor>>());
            let forth = if flat {
                0.0
            } else {
                forth.unwrap_or_else(|error| panic!("{}: {error}", row.name)).item::<f64>().unwrap()
            };
            for have in [back, forth] {
                assert!(
                    (have - want).abs() <= 1e-4 * want.abs().max(1.0),
                    "{}: {have}, by differences {want}",
                    row.name
                );
            }
        }
    });
}

/// Applies a row's operation to a batch of examples with `vmap`.
fn mapped(row: &Row, whole: &[Tensor]) -> Tensor {
    fn of<const N: usize>(row: &Row, whole: &[Tensor]) -> Tensor {
        let inputs: [&Tensor; N] = std::array::from_fn(|n| &whole[n]);
        let [y] = Tensor::vmap(inputs, |inputs| [(row.op)(&inputs.map(Tensor::clone))]);
        y
    }
    match whole.len() {
        1 => of::<1>(row, whole),
        2 => of::<2>(row, whole),
        3 => of::<3>(row, whole),
        4 => of::<4>(row, whole),
        more => panic!("{} has {more} inputs", row.name),
    }
}

#[test]
fn vmap_equals_a_loop_over_examples_for_every_op() {
    on_cpu(|| {
        for row in rows() {
            let examples: Vec<Vec<Tensor>> = (0..EXAMPLES).map(|number| example(row, number)).collect();
            let all = |of: &dyn Fn(&[Tensor]) -> Tensor| Tensor::stack(examples.iter().map(|inputs| of(inputs)), 0);
            let whole: Vec<Tensor> = (0..row.inputs.len()).map(|i| all(&|inputs| inputs[i].clone())).collect();
            let want = all(&|inputs| (row.op)(inputs));
            close(row.name, &mapped(row, &whole), &want);
            let none: Vec<Tensor> = whole.iter().map(|whole| whole.narrow(0, 0, 0)).collect();
            close(&format!("{} of none", row.name), &mapped(row, &none), &want.narrow(0, 0, 0));
            // One input is batched, the others are shared by all examples.
            for i in 0..if row.inputs.len() > 1 { row.inputs.len() } else { 0 } {
                let with = |x: &Tensor| {
                    let mut inputs = examples[0].clone();
                    inputs[i] = x.clone();
                    (row.op)(&inputs)
                };
                let [y] = Tensor::vmap([&whole[i]], |[x]| [with(x)]);
                close(&format!("{} in {i}", row.name), &y, &all(&|inputs| with(&inputs[i])));
            }
        }
    });
}

#[test]
fn gradients_through_vmap_and_inside_vmap() {
    on_cpu(|| {
        for row in rows().filter(|row| row.differentiable) {
            let loss = |inputs: &[Tensor]| weighted(&(row.op)(inputs)).unwrap();
            let examples: Vec<Vec<Tensor>> = (0..EXAMPLES).map(|number| example(row, number)).collect();
            let place = row.inputs.iter().position(|input| !input.whole).unwrap();
            let first = Tensor::stack(examples.iter().map(|inputs| &inputs[place]), 0);
            let with = |x: &Tensor| {
                let mut inputs = examples[0].clone();
                inputs[place] = x.clone();
                inputs
            };
            let grads = |x: &Tensor| {
                let inputs = with(x);
                loss(&inputs).gradients(&floats(&inputs)).unwrap()
            };
            let each: Vec<Vec<Tensor>> = examples.iter().map(|inputs| grads(&inputs[place])).collect();
            let want = Tensor::stack(each.iter().map(|grads| &grads[0]), 0);
            let [inside] = Tensor::vmap([&first], |[x]| [grads(x).swap_remove(0)]);
            close(&format!("{}, inside", row.name), &inside, &want);
            let [losses] = Tensor::vmap([&first], |[x]| [loss(&with(x))]);
            let others = floats(&examples[0]);
            let wanted: Vec<&Tensor> = [&first].into_iter().chain(others[1..].iter().copied()).collect();
            let through = losses.sum(..).gradients(&wanted).unwrap();
            close(&format!("{}, through", row.name), &through[0], &want);
            for (i, have) in through.iter().enumerate().skip(1) {
                let want = each.iter().map(|grads| grads[i].clone()).reduce(|sum, grad| sum + grad).unwrap();
                close(&format!("{}, through to the same {i}", row.name), have, &want);
            }
        }
    });
}

#[test]
fn jacobians_and_hessians() {
    on_cpu(|| {
        let x = Tensor::from_slice(&[0.3f64, -1.0, 0.5], [3]);
        let s = x.softmax(-1);
        let want = s.diag_embed() - s.unsqueeze(1) * s.unsqueeze(0);
        close("softmax", &s.jacobian(&x).unwrap(), &want);
        let tall = x.outer(&Tensor::from_slice(&[2f64, 5.0], [2])).jacobian(&x).unwrap();
        assert_eq!(tall.shape().unwrap().dims(), [3, 2, 3]);
        assert_eq!(numbers(&tall)[..9], [2.0, 0.0, 0.0, 5.0, 0.0, 0.0, 0.0, 2.0, 0.0]);
        // Rosenbrock's valley, (1 - x)² + 100 (y - x²)².
        let p = Tensor::from_slice(&[1.5f64, -0.5], [2]);
        let (a, b) = (p.narrow(0, 0, 1), p.narrow(0, 1, 1));
        let valley = (a.rsub(1.0).square() + (&b - a.square()).square() * 100.0).sum(..);
        let want = [2.0 - 400.0 * (-0.5 - 3.0 * 2.25), -600.0, -600.0, 200.0];
        close("valley", &valley.hessian(&p).unwrap(), &Tensor::from_slice(&want, [2, 2]));
        // A constant gradient, and a piecewise constant one.
        for flat in [(&x * 3.0).sum(..), x.relu().sum(..)] {
            let curvature = flat.hessian(&x).unwrap();
            assert_eq!((curvature.shape().unwrap().dims(), numbers(&curvature)), (&[3, 3][..], vec![0.0; 9]));
        }
        let back = x.square().vjp(&[&x], &Tensor::from_slice(&[1f64, 10.0, 100.0], [3])).unwrap();
        assert_eq!(numbers(&back[0]), [0.6, -20.0, 100.0]);
    });
}

#[test]
fn nested_vmap_and_captured_data() {
    on_cpu(|| {
        let (x, y) =
            (Tensor::from_slice(&[1f64, 2.0, 3.0, 4.0], [2, 2]), Tensor::arange(6).cast(DType::F64).reshape([3, 2]));
        // All pairs of rows.
        let [products] = Tensor::vmap([&x], |[x]| Tensor::vmap([&y], |[y]| [x.dot(y)]));
        close("pairs", &products, &x.matmul(&y.t()));
        // An output that does not depend on the example is repeated; several results; a checkpoint.
        let [same, double] = Tensor::vmap([&x], |[x]| [y.sum(..), Tensor::checkpoint([x], |[x]| (x * 2.0).exp())]);
        assert_eq!(numbers(&same), [15.0, 15.0]);
        close("checkpoint", &double, &(&x * 2.0).exp());
        let moved = Tensor::checkpoint([&x], |[x]| x.square()).jvp(&[&x], &[&x]).unwrap();
        close("checkpoint moves", &moved, &(x.square() * 2.0));
        // A different position for each example.
        let (start, part) = (Tensor::from_slice(&[0i32, 2, -1], [3]), Tensor::from_slice(&[7f64, 8.0], [2]));
        let [written] = Tensor::vmap([&start], |[at]| [Tensor::zeros([3], DType::F64).slice_scatter(&part, 0, at)]);
        assert_eq!(numbers(&written), [7.0, 8.0, 0.0, 0.0, 0.0, 7.0, 8.0, 0.0, 0.0]);
        // More rows in total than an i32 can count; none of them is stored.
        let many = Tensor::arange(70_000);
        let [taken] = Tensor::vmap([&many], |[i]| {
            let row = Tensor::arange(40_000) + i.unsqueeze(0);
            [row.index_select(0, &(i - Tensor::scalar(30_000i32)))]
        });
        for (i, x) in (0..).zip(taken.to_vec::<i32>().unwrap()) {
            assert_eq!(x, if i < 30_000 { 0 } else { 2 * i - 30_000 });
        }
    });
}

#[test]
fn mistakes_of_transforms() {
    on_cpu(|| {
        let (x, y) = (Tensor::ones([2, 3], DType::F32), Tensor::ones([3], DType::F32));
        let check_mistake = |wrong: &Tensor, part: &str| {
            let error = wrong.check().unwrap_err();
            assert!(error.is_mistake() && error.message().contains(part), "{error}");
        };
        let twice = |[x, y]: [&Tensor; 2]| [x + y];
        check_mistake(&Tensor::vmap([&x, &y], twice)[0], "vmap: the first axes of the inputs differ in length");
        check_mistake(&Tensor::vmap([&y.sum(..)], |[x]| [x.exp()])[0], "vmap: the first axes");
        check_mistake(
            &Tensor::vmap([&x], |[x]| [x.matmul(&Tensor::ones([4, 4], DType::F32))])[0],
            "matmul: inner dimensions 3 and 4",
        );
        check_mistake(&Tensor::vmap([&x.sum(7)], |[x]| [x.exp()])[0], "sum: axis 7");
        let asked = Tensor::vmap([&x], |[x]| [x.item::<f64>().map_or_else(Tensor::from_mistake, Tensor::scalar)]);
        check_mistake(&asked[0], "item: f32[3]");
        for (wrong, part) in [
            (x.jvp(&[&y], &[&y]), "jvp: f32[2, 3]"),
            (x.exp().jvp(&[&x], &[&y]), "does not have the shape and element type of f32[2, 3]"),
            (x.exp().jvp(&[&x], &[]), "jvp: 0 tangents for 1 inputs"),
            (x.exp().jvp(&[], &[]), "jvp: there are no inputs"),
            (x.exp().cast(DType::I32).jvp(&[&x], &[&x]), "is not a float"),
            (x.floor().lt(&x).cast(DType::F32).jvp(&[&x], &[&x]), "does not depend on"),
            (x.jacobian(&y), "jacobian: f32[2, 3]"),
            (x.exp().hessian(&x), "is not a single number"),
            (x.sum(..).hessian(&y), "does not depend on"),
        ] {
            let error = wrong.unwrap_err();
            assert!(error.is_mistake() && error.message().contains(part), "{error}");
            assert!(error.to_string().contains("jvp_vmap.rs"), "{error} does not name the source line");
        }
        let wrong = x.exp().vjp(&[&x], &y).unwrap_err();
        assert!(wrong.message().starts_with("vjp: f32[3]") && wrong.to_string().contains("jvp_vmap.rs"), "{wrong}");
    });
}

#[test]
fn no_grad_blocks_gradients() {
    on_cpu(|| {
        let x = Tensor::from_slice(&[0.5f64, -1.5, 2.0], [3]);
        let f = |x: &Tensor, frozen: &Tensor| (x * frozen.exp() + frozen.sin()).sum(..);
        let [grad] = &f(&x, &no_grad(|| &x * 3.0)).gradients(&[&x]).unwrap()[..] else {
            panic!("one gradient was requested")
        };
        // Central differences with the frozen part held constant.
        let at = |i: usize, by: f64| {
            let mut moved = x.to_vec::<f64>().unwrap();
            moved[i] += by;
            f(&Tensor::from_slice(&moved, [3]), &(&x * 3.0)).item::<f64>().unwrap()
        };
        let want: Vec<f64> = (0..3).map(|i| (at(i, 1e-3) - at(i, -1e-3)) / 2e-3).collect();
        for (have, want) in grad.to_vec::<f64>().unwrap().iter().zip(&want) {
            assert!((have - want).abs() <= 1e-9 * want.abs(), "{have}, expected {want}");
        }
        let (values, [one, two]) = no_grad(|| (vec![&x * 2.0], [x.exp(), x.sin()]));
        assert_eq!(values[0].to_vec::<f64>().unwrap(), [1.0, -3.0, 4.0]);
        let error = (one.sum(..) + two.sum(..)).gradients(&[&x]).unwrap_err();
        assert!(error.is_mistake() && error.message().contains("does not depend on f64[3]"), "{error}");
        let wrong = no_grad(|| x.sum(9)).check().unwrap_err();
        assert!(wrong.message().starts_with("sum: axis 9"), "{wrong}");
    });
}
