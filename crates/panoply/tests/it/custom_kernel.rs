//! A custom kernel as a differentiable tensor operation, among fused operations, on every device.

#[path = "../../examples/05_kernel_in_a_network.rs"]
mod example;

use panoply::prelude::*;
use panoply::{DType, Shape, Tensor, runtime};

/// Computes x · |x| and its derivative.
#[kernel]
fn signed_square(x: &[f32], y: &mut [f32], derivative: &mut [f32]) {
    let i = global_index();
    if i < x.len() {
        let v = x[i];
        y[i] = v * v.abs();
        derivative[i] = 2.0 * v.abs();
    }
}

/// y += a · x
#[kernel]
fn saxpy(a: f32, x: &[f32], y: &mut [f32]) {
    let i = global_index();
    if i < y.len() {
        y[i] += a * x[i];
    }
}

fn run(x: &Tensor) -> [Tensor; 2] {
    let shape = x.shape().map_or(Shape::default(), Clone::clone);
    let items = shape.numel();
    Tensor::custom_kernel(signed_square::build, &[x], [shape.clone(), shape], items)
}

fn squared(x: &Tensor) -> Tensor {
    let body = |[x]: [&Tensor; 1], (): &()| run(x)[0].clone();
    Tensor::call_with_vjp("signed square", [x], (), body, |[x], _, g, ()| [Some(g * &run(x)[1])])
}

fn everywhere(test: impl Fn()) {
    let report = runtime::device_report().unwrap();
    let checked = Device::get("cpu:checked").unwrap();
    for device in report.devices().chain([&checked]) {
        eprintln!("on {device}");
        device.scope(&test);
    }
}

#[test]
fn a_kernel_is_an_operation_with_a_gradient() {
    everywhere(|| {
        let data = [-2.0f32, -0.5, 0.0, 1.5, 3.0];
        let x = Tensor::from_slice(&data, [5]);
        let y = squared(&(&x * 2.0)) + 1.0;
        let want: Vec<f32> = data.iter().map(|v| 4.0 * v * v.abs() + 1.0).collect();
        assert_eq!(y.to_vec::<f32>().unwrap(), want);
        let gradient = y.sum(..).gradients(&[&x]).unwrap()[0].to_vec::<f32>().unwrap();
        let want: Vec<f32> = data.iter().map(|v| 8.0 * v.abs()).collect();
        assert_eq!(gradient, want);
        let error = run(&x)[0].sum(..).gradients(&[&x]).unwrap_err();
        assert!(error.to_string().contains("the path ends at kernel"), "{error}");
    });
}

#[test]
fn buffers_that_a_kernel_writes_are_copied_first() {
    everywhere(|| {
        let (x, y) = (Tensor::from_slice(&[1.0f32, 2.0, 3.0], [3]), Tensor::from_slice(&[10.0f32, 20.0, 30.0], [3]));
        for a in [2.0f32, -1.0] {
            let [sum] = Tensor::custom_kernel(saxpy::build, &[&Tensor::scalar(a), &x, &y], [Shape::new([3])], 3);
            assert_eq!(sum.to_vec::<f32>().unwrap(), [10.0 + a, 20.0 + 2.0 * a, 30.0 + 3.0 * a]);
        }
        assert_eq!(y.to_vec::<f32>().unwrap(), [10.0, 20.0, 30.0], "the input is unchanged");
    });
}

/// Multiplies each element by the one at the mirrored position.
#[kernel]
fn opposites(x: &[f32], y: &[f32], product: &mut [f32]) {
    let i = global_index();
    if i < x.len() {
        product[i] = x[i] * y[x.len() - 1 - i];
    }
}

/// A kernel that reads a product at other positions as well is not its epilogue.
#[test]
fn a_kernel_can_read_a_product_twice() {
    // These are devices on which products are library routines.
    let test = || {
        let numbers = |by: usize| (0..40 * 40).map(|i| (i * by % 7) as f32).collect::<Vec<f32>>();
        let (a, b) = (numbers(3), numbers(5));
        let product = Tensor::from_slice(&a, [40, 40]).matmul(&Tensor::from_slice(&b, [40, 40]));
        let [have] = Tensor::custom_kernel(opposites::build, &[&product, &product], [Shape::new([40, 40])], 1600);
        let at = |i: usize| (0..40).map(|k| a[i / 40 * 40 + k] * b[k * 40 + i % 40]).sum::<f32>();
        let want: Vec<f32> = (0..1600).map(|i| at(i) * at(1599 - i)).collect();
        assert_eq!(have.to_vec::<f32>().unwrap(), want);
    };
    ["cpu", "cpu:checked"].iter().for_each(|name| Device::get(name).unwrap().scope(test));
}

#[test]
fn mismatched_arguments_are_mistakes() {
    let (x, shape) = (Tensor::from_slice(&[1.0f64], [1]), Shape::new([1]));
    let [wrong, _] = Tensor::custom_kernel(signed_square::build, &[&x], [shape.clone(), shape.clone()], 1);
    assert_eq!(wrong.check().unwrap_err().message(), "kernel signed_square: x holds f32, not f64");
    let [wrong] = Tensor::custom_kernel(signed_square::build, &[&x], [shape.clone()], 1);
    assert_eq!(
        wrong.check().unwrap_err().message(),
        "kernel signed_square: it writes 2 buffers, but 1 shapes were given"
    );
    let x = x.cast(DType::F32);
    let wrong = Tensor::call_with_vjp("wrong", [&x], (), |[x], ()| x.exp(), |[x], _, _, ()| [Some(x.sum(..))]);
    let error = wrong.sum(..).gradients(&[&x]).unwrap_err();
    assert!(
        error.message().contains("gradient of wrong: ") && error.message().contains("does not match its input"),
        "{error}"
    );
}

#[test]
fn the_example_learns() {
    Device::get("cpu").unwrap().scope(|| example::main().unwrap());
}
