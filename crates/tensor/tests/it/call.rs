//! Operations that count as one graph node: the same values and gradients as the expressions in their bodies.

use std::sync::{Mutex, PoisonError};

use panoply_tensor::{DType, Device, Rng, Tensor, eval, plan_cache_stats};

/// One test at a time: plan statistics are global to the process.
static ALONE: Mutex<()> = Mutex::new(());

fn on_cpu(test: impl FnOnce()) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    Device::get("cpu").unwrap().scope(test);
}

fn values(x: &Tensor) -> Vec<f32> {
    x.to_vec().unwrap()
}

fn data(shape: &[usize]) -> Tensor {
    let x = Rng::seed_from_u64(5).normal(shape);
    x.eval().unwrap();
    x.detach()
}

/// tanh(x) · y with a scalar parameter.
fn gated(x: &Tensor, y: &Tensor, scale: f64) -> Tensor {
    Tensor::call("gated", [x, y], scale, |[x, y], scale| (x * *scale).tanh() * y)
}

fn gated_plainly(x: &Tensor, y: &Tensor, scale: f64) -> Tensor {
    (x * scale).tanh() * y
}

#[test]
fn values_and_gradients_equal_those_of_the_expression() {
    on_cpu(|| {
        let (x, y) = (data(&[3, 5]), data(&[3, 5]) + 0.5);
        for scale in [1.0, -2.5] {
            let (called, plain) = (gated(&x, &y, scale), gated_plainly(&x, &y, scale));
            assert_eq!(values(&called), values(&plain), "scale {scale}");
            let grads = called.square().sum(..).gradients(&[&x, &y]).unwrap();
            let wanted = plain.square().sum(..).gradients(&[&x, &y]).unwrap();
            for (grad, wanted) in grads.iter().zip(&wanted) {
                assert_eq!(values(grad), values(wanted), "scale {scale}");
            }
            // Second derivatives.
            let second = grads[0].square().sum(..).gradients(&[&x, &y]).unwrap();
            let wanted = wanted[0].square().sum(..).gradients(&[&x, &y]).unwrap();
            for (grad, wanted) in second.iter().zip(&wanted) {
                for (have, want) in values(grad).iter().zip(values(wanted)) {
                    assert!((have - want).abs() <= 1e-5 * want.abs().max(1.0), "{have} and {want}");
                }
            }
        }
    });
}

#[test]
fn several_results_and_calls_within_calls() {
    on_cpu(|| {
        let x = data(&[4, 3]);
        let [low, high] = Tensor::call_multi("parts", [&x], (), |[x], ()| {
            let inner = gated(x, x, 2.0);
            [inner.exp(), inner.sum(0)]
        });
        let inner = gated_plainly(&x, &x, 2.0);
        assert_eq!(values(&low), values(&inner.exp()));
        assert_eq!(values(&high), values(&inner.sum(0)));
        let loss = (low * &high).sum(..);
        let plain = (inner.exp() * inner.sum(0)).sum(..);
        let (have, want) = (loss.gradients(&[&x]).unwrap(), plain.gradients(&[&x]).unwrap());
        for (have, want) in values(&have[0]).iter().zip(values(&want[0])) {
            assert!((have - want).abs() <= 1e-5 * want.abs().max(1.0), "{have} and {want}");
        }
    });
}

#[test]
fn detached_parts_of_a_body_have_no_gradient() {
    on_cpu(|| {
        let x = data(&[6]);
        let y = Tensor::call("half free", [&x], (), |[x], ()| x * &x.detach());
        let grads = y.sum(..).gradients(&[&x]).unwrap();
        assert_eq!(values(&grads[0]), values(&x), "only one factor has a gradient");
        let cut = Tensor::call("cut", [&x], (), |[x], ()| x.detach() + 1.0);
        let error = cut.sum(..).gradients(&[&x]).unwrap_err();
        assert!(error.to_string().contains("the path ends at cut"), "{error}");
    });
}

/// Optimized builds can merge functions with equal bodies; each call keeps its own gradient.
#[test]
fn equal_bodies_keep_their_gradients() {
    on_cpu(|| {
        let x = data(&[3]);
        let same = |[x]: [&Tensor; 1], (): &()| x * 1.0;
        let turned = Tensor::call_with_vjp("turned", [&x], (), same, |_, _, g, ()| [Some(-g)]);
        let doubled = Tensor::call_with_vjp("doubled", [&x], (), same, |_, _, g, ()| [Some(g * 2.0)]);
        let plain = Tensor::call("plain", [&x], (), same);
        for (y, want) in [(turned, -1.0), (doubled, 2.0), (plain, 1.0)] {
            let grads = y.sum(..).gradients(&[&x]).unwrap();
            assert_eq!(values(&grads[0]), [want; 3]);
        }
    });
}

#[test]
fn changing_inputs_does_not_recompile() {
    on_cpu(|| {
        let x = data(&[7]);
        let run = |rate: f32| gated(&(&x * &Tensor::scalar(rate)), &x, 3.0).eval().unwrap();
        run(0.1);
        let before = plan_cache_stats();
        (0..10).for_each(|step| run(0.2 + step as f32));
        let after = plan_cache_stats();
        assert_eq!(after.misses, before.misses);
    });
}

#[test]
fn mistakes_name_operands_and_line() {
    on_cpu(|| {
        let (x, y) = (data(&[3]), data(&[4]));
        let error = gated(&x, &y, 1.0).check().unwrap_err().to_string();
        assert!(error.contains("shapes [3] and [4] do not broadcast"), "{error}");
        assert!(error.contains("left f32[3]"), "{error}");
        // The leftmost mistake wins.
        let error = gated(&data(&[3, 2]).matmul(&data(&[3, 2])), &y, 1.0).check().unwrap_err().to_string();
        assert!(error.contains("matmul"), "{error}");
        let data = Tensor::call("holder", [&x], (), |[x], ()| x + &Tensor::from_slice(&[1.0f32, 2.0, 3.0], [3]));
        let error = data.to_vec::<f32>().unwrap_err();
        assert!(error.is_mistake(), "{error}");
        assert_eq!(error.message(), "holder: its body captures data; pass it as an input");
        let asked =
            Tensor::call("asker", [&x], (), |[x], ()| if x.item::<f64>().is_ok() { x.exp() } else { x.clone() });
        assert_eq!(values(&asked), values(&x), "a placeholder has no value");
        let mixed = Tensor::call("mixed", [&x], (), |[x], ()| x.cast(DType::F64) + x);
        assert!(mixed.check().unwrap_err().message().contains("element types f64 and f32 differ"));
        eval(&[&x]).unwrap();
    });
}
