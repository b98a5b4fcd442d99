//! A custom kernel as a layer, with its gradient, trained together with fused operations.
//!
//! `cargo run --release --example 05_kernel_in_a_network`

use panoply::nn::{AdamW, ForwardContext, Layer, Linear};
use panoply::prelude::*;
use panoply::{Module, Reduction, Rng, Shape, Tensor};

/// x · |x|: grows faster than x on both sides; its derivative is 2 |x|.
#[kernel]
fn signed_square(x: &[f32], y: &mut [f32]) {
    let i = global_index();
    if i < x.len() {
        y[i] = x[i] * x[i].abs();
    }
}

/// The kernel as a differentiable operation: its output and its gradient.
fn signed(x: &Tensor) -> Tensor {
    let forward = |[x]: [&Tensor; 1], (): &()| {
        let shape = x.shape().map_or(Shape::default(), Clone::clone);
        let items = shape.numel();
        let [y] = Tensor::custom_kernel(signed_square::build, &[x], [shape], items);
        y
    };
    Tensor::call_with_vjp("signed square", [x], (), forward, |[x], _, g, ()| [Some(g * x.abs() * 2.0)])
}

#[derive(Module, Clone)]
struct Network {
    first: Linear,
    second: Linear,
}

impl Layer for Network {
    fn forward(&self, x: &Tensor, pass: &mut ForwardContext<'_>) -> Tensor {
        let hidden = signed(&self.first.forward(x, pass));
        self.second.forward(&hidden, pass)
    }
}

/// Trains the network.
pub fn main() -> Result<()> {
    let mut rng = Rng::seed_from_u64(0);
    let x = rng.normal([256, 2]);
    // x₀ |x₀| - x₁: a network without a nonlinearity cannot learn it.
    let target = (x.slice((.., 0)) * x.slice((.., 0)).abs() - x.slice((.., 1))).unsqueeze(1);
    panoply::eval(&[&x, &target])?;
    let (x, target) = (x.detach(), target.detach());
    let mut model = Network { first: Linear::new(2, 8, &mut rng), second: Linear::new(8, 1, &mut rng) };
    let mut optimizer = AdamW::new(0.02).weight_decay(0.0);
    let mut last = f64::NAN;
    for step in 0..300 {
        let mut pass = ForwardContext::train(&mut rng);
        let loss = model.forward(&x, &mut pass).mse_loss(&target, Reduction::Mean);
        last = optimizer.step(&mut model, loss, pass)?;
        if step % 100 == 0 {
            println!("step {step:>3}: loss {last:.4}");
        }
    }
    println!("after 300 steps: loss {last:.4} on {}", Device::current()?);
    assert!(last < 0.02, "the network did not learn");
    Ok(())
}
