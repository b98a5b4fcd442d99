//! Tests with exhaustive evaluation: no proven property is violated at any tested point, planted counterexamples are found, and every bound
//! contains the values.

mod activations;
mod bounds;
mod claims;
mod device_arithmetic;
mod properties;
mod radii;
mod random_networks;
mod relu_splits;
mod verdicts;
mod vnncomp;

use panoply_tensor::{Result, Rng, Tensor};
use panoply_verify::attack::uniform;
use panoply_verify::{Arithmetic, Options, Property, Report, Verdict, verify, vnnlib};

/// A fully connected network with ReLU between its layers.
pub struct Mlp {
    /// Weights `[inputs, outputs]` and biases of each layer.
    pub layers: Vec<(Vec<f32>, Vec<f32>)>,
}

impl Mlp {
    /// Creates random parameters for these widths, the first of which is the number of inputs.
    pub fn random(widths: &[usize], rng: &mut Rng) -> Mlp {
        let mut numbers = |count: usize, scale: f64| -> Vec<f32> {
            (0..count).map(|_| ((uniform(rng) * 2.0 - 1.0) * scale) as f32).collect()
        };
        let layer = |pair: &[usize]| (numbers(pair[0] * pair[1], 2.0 / (pair[0] as f64).sqrt()), numbers(pair[1], 0.5));
        Mlp { layers: widths.windows(2).map(layer).collect() }
    }

    /// Returns the network as a tensor expression.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut value = x.unsqueeze(0);
        for (n, (weight, bias)) in self.layers.iter().enumerate() {
            let (inputs, outputs) = (weight.len() / bias.len(), bias.len());
            let hidden = if n == 0 { value } else { value.relu() };
            value = hidden.matmul(&Tensor::from_slice(weight, [inputs, outputs])) + Tensor::from_slice(bias, [outputs]);
        }
        Ok(value.squeeze(0))
    }

    /// Returns the output computed by loops in f64.
    pub fn output(&self, x: &[f64]) -> Vec<f64> {
        let mut value = x.to_vec();
        for (n, (weight, bias)) in self.layers.iter().enumerate() {
            let hidden: Vec<f64> = if n == 0 { value } else { value.iter().map(|x| x.max(0.0)).collect() };
            let term =
                |j: usize| (0..hidden.len()).map(|i| hidden[i] * f64::from(weight[i * bias.len() + j])).sum::<f64>();
            value = (0..bias.len()).map(|j| term(j) + f64::from(bias[j])).collect();
        }
        value
    }
}

/// Returns a property over a box of equal ranges with these assertions about outputs.
pub fn property(inputs: usize, outputs: usize, range: (f64, f64), asserted: &str) -> Property {
    let mut text = String::new();
    (0..inputs).for_each(|n| text += &format!("(declare-const X_{n} Real)\n"));
    (0..outputs).for_each(|n| text += &format!("(declare-const Y_{n} Real)\n"));
    (0..inputs).for_each(|n| text += &format!("(assert (>= X_{n} {}))(assert (<= X_{n} {}))\n", range.0, range.1));
    vnnlib::parse(&(text + asserted)).unwrap()
}

/// Returns the verdict for a function, with a time limit of 20 s.
pub fn answer(run: &dyn Fn(&Tensor) -> Result<Tensor>, property: &Property, arithmetic: Arithmetic) -> Verdict {
    report(run, property, &Options { arithmetic, seconds: 20.0, threads: Some(2), seed: 7 }).verdict
}

/// Returns the report for a function.
pub fn report(run: &dyn Fn(&Tensor) -> Result<Tensor>, property: &Property, options: &Options) -> Report {
    verify(run, [property.inputs], property, options, &mut |_| {}).unwrap()
}
