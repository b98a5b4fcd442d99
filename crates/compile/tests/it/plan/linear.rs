//! Planning takes work in proportion to the number of layers, counted in allocations.

use panoply_compile::plan::plan;
use panoply_ir::Target;
use panoply_ir::alu::Alu;
use panoply_ir::graph::Graph;

use crate::allocations::allocations;
use crate::plan::build::Build;

/// The forward pass of a network: products, biases and the larger of 0.
fn forward(layers: usize) -> Graph {
    let mut b = Build::default();
    let mut x = b.f32(&[4, 8]);
    for _ in 0..layers {
        let (weight, bias) = (b.f32(&[8, 8]), b.f32(&[1, 8]));
        let product = b.matmul(x, weight);
        let sum = b.with(Alu::Add, product, bias);
        let zero = b.like(sum, 0.0);
        x = b.alu(Alu::Max, &[sum, zero]);
    }
    b.done(&[x])
}

/// A training step: forward, backward, the norm of all gradients, and updates of donated weights that divide by the norm.
fn training(layers: usize) -> Graph {
    let mut b = Build::default();
    let mut values = vec![b.f32(&[4, 8])];
    let mut weights = Vec::new();
    for at in 0..layers {
        weights.push(b.f32(&[8, 8]));
        let product = b.matmul(values[at], weights[at]);
        let zero = b.like(product, 0.0);
        values.push(b.alu(Alu::Max, &[product, zero]));
    }
    let mut cotangent = values[layers];
    let (mut gradients, mut norm) = (Vec::new(), None);
    for at in (0..layers).rev() {
        let through = b.alu(Alu::Mul, &[cotangent, values[at + 1]]);
        let turned = b.permute(values[at], &[1, 0]);
        let gradient = b.matmul(turned, through);
        let square = b.alu(Alu::Mul, &[gradient, gradient]);
        let square = b.sum(square, &[0, 1]);
        norm = Some(norm.map_or(square, |norm| b.alu(Alu::Add, &[norm, square])));
        gradients.push(gradient);
        let turned = b.permute(weights[at], &[1, 0]);
        cotangent = b.matmul(through, turned);
    }
    let norm = norm.expect("there are layers");
    let updated: Vec<_> = weights
        .iter()
        .zip(gradients.into_iter().rev())
        .map(|(weight, gradient)| {
            let step = b.with(Alu::Div, gradient, norm);
            b.alu(Alu::Sub, &[*weight, step])
        })
        .collect();
    let donated = (1..=layers as u32).collect();
    Graph { donated, ..b.done(&updated) }
}

/// Twice the layers take twice the allocations, and not four times.
#[test]
fn plans_grow_with_the_number_of_layers() {
    for target in [Target::cpu(), Target::opencl_minimum()] {
        for (name, graph) in [("forward", forward as fn(usize) -> Graph), ("training", training)] {
            let work = |layers: usize| {
                let graph = graph(layers);
                allocations(|| drop(plan(&graph, &target, &|_| true).unwrap()))
            };
            let (half, whole) = (work(1500), work(3000));
            let ratio = whole as f64 / half as f64;
            assert!(ratio < 2.2, "{name} for {:?}: {half} and {whole} allocations, a ratio of {ratio}", target.style);
        }
    }
}
