//! The op table on every device, against the f64 graph interpreter; gradients against finite differences.
//!
//! One row for each operation in `table.rs` and `composed.rs`; this file says what is done with a row. The oracle shares nothing with the
//! compiler: it walks the graph one element at a time.

mod composed;
mod table;

use std::sync::{Arc, Once};

use panoply_driver::CudaDriver;
use panoply_ir::graph_interpret::{self, Array, Data};
use panoply_ir::{DType, Scalar, Shape};
use panoply_runtime::Registry;
use panoply_tensor::realize::Traced;
use panoply_tensor::{Device, Tensor};

use table::{Input, Row};

/// Every row of the table.
fn rows() -> impl Iterator<Item = &'static Row> {
    table::ROWS.iter().chain(composed::ROWS)
}

/// Puts a CUDA device beside those of this machine that runs its PTX on an interpreter.
fn pretend_cuda() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let driver = CudaDriver { library: Some(panoply_fake::library()) };
        Registry::global().expect("the environment makes sense").register(Arc::new(driver));
    });
}

/// The devices of this machine that the table runs on. OpenCL compilers take a tenth of a second for each of some hundred
/// kernels, so a quick run leaves them out and the second one is for the full run.
fn devices() -> Vec<Device> {
    let set = |name: &str| std::env::var(name).is_ok_and(|value| value == "1");
    pretend_cuda();
    let mut names = vec!["cpu", "cpu:checked", "cuda:0"];
    if !set("PANOPLY_TEST_QUICK") {
        names.push("opencl:0");
    }
    if set("PANOPLY_TEST_FULL") {
        names.push("opencl:1");
    }
    let found = names.into_iter().filter_map(|name| match Device::get(name) {
        Ok(device) => Some(device),
        Err(error) => {
            eprintln!("SKIPPED: tensor ops on {name}: {}", error.message());
            None
        }
    });
    found.collect()
}

/// Numbers of a row's input, the same on every run.
fn numbers(input: &Input, salt: u64) -> Vec<f64> {
    let mut state = 0x9E37_79B9_7F4A_7C15u64.wrapping_mul(salt + 1);
    let mut next = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f64 / (1u64 << 24) as f64
    };
    let elems: usize = input.shape.iter().product();
    (0..elems)
        .map(|_| input.low + (input.high - input.low) * next())
        .map(|x| if input.whole { x.floor() } else { x })
        .collect()
}

fn tensor(input: &Input, values: &[f64], float: DType) -> Tensor {
    let shape = Shape::from(input.shape);
    match (input.whole, float) {
        (true, _) => Tensor::from_slice(&values.iter().map(|x| *x as i32).collect::<Vec<i32>>(), shape),
        (false, DType::F64) => Tensor::from_slice(values, shape),
        (false, _) => Tensor::from_slice(&values.iter().map(|x| *x as f32).collect::<Vec<f32>>(), shape),
    }
}

fn inputs(row: &Row, float: DType) -> Vec<Tensor> {
    let values = row.inputs.iter().enumerate().map(|(i, input)| tensor(input, &numbers(input, i as u64), float));
    values.collect()
}

/// What the oracle says of these tensors.
fn oracle(roots: &[&Tensor]) -> Vec<Vec<f64>> {
    roots.iter().map(|root| oracle_of(root)).collect()
}

fn oracle_of(root: &Tensor) -> Vec<f64> {
    let device = Device::current().unwrap();
    let traced = Traced::new(&device, &[root]).unwrap();
    let mut leaves: Vec<Option<Array>> = vec![None; traced.leaves.len()];
    for node in &traced.graph.nodes {
        if let panoply_ir::graph::Op::Leaf(n) = node.op {
            let storage = &traced.leaves[n as usize];
            let mut bytes = vec![0; storage.bytes() as usize];
            storage.read_bytes(&mut bytes).unwrap();
            let scalars = bytes.chunks(node.dtype.bytes()).map(|chunk| {
                let mut word = [0; 8];
                word[..chunk.len()].copy_from_slice(chunk);
                Scalar { dtype: node.dtype, bits: u64::from_le_bytes(word) }
            });
            leaves[n as usize] = Some(Array::new(node.shape.clone(), node.dtype, &scalars.collect::<Vec<Scalar>>()));
        }
    }
    let leaves: Vec<Array> = leaves.into_iter().map(|leaf| leaf.expect("every leaf has a node")).collect();
    let values = graph_interpret::run(&traced.graph, &leaves, &traced.slots).unwrap();
    flat(values.into_iter().next().expect("one root has one value"))
}

fn flat(array: Array) -> Vec<f64> {
    match array.data {
        Data::Floats(values) => values,
        Data::Ints(values) => values.into_iter().map(|value| value as f64).collect(),
    }
}

fn measured(tensor: &Tensor) -> Vec<f64> {
    let plain = if tensor.dtype() == DType::Bool { tensor.cast(DType::I32) } else { tensor.clone() };
    match plain.dtype() {
        DType::F32 => plain.to_vec::<f32>().unwrap().into_iter().map(f64::from).collect(),
        DType::I32 => plain.to_vec::<i32>().unwrap().into_iter().map(f64::from).collect(),
        other => panic!("the table has no row of type {other}"),
    }
}

#[track_caller]
fn close(what: &str, have: &[f64], want: &[f64], tolerance: f64) {
    assert_eq!(have.len(), want.len(), "{what}: number of elements");
    let scale = want.iter().filter(|x| x.is_finite()).fold(1.0f64, |top, x| top.max(x.abs()));
    for (i, (have, want)) in have.iter().zip(want).enumerate() {
        let same = (have.is_nan() && want.is_nan()) || have == want || (have - want).abs() <= tolerance * scale;
        assert!(same, "{what}: element {i} is {have}, not {want} (tolerance {tolerance} of {scale})");
    }
}

#[test]
fn every_op_agrees_with_the_oracle_on_every_device() {
    for device in devices() {
        device.scope(|| {
            for row in rows() {
                let inputs = inputs(row, DType::F32);
                let result = (row.op)(&inputs);
                let want = oracle(&[&result]).remove(0);
                close(&format!("{} on {device}", row.name), &measured(&result), &want, row.tolerance);
            }
        });
    }
}

#[test]
fn every_gradient_agrees_with_the_oracle_on_every_device() {
    for device in devices() {
        device.scope(|| {
            for row in rows().filter(|row| row.differentiable) {
                let inputs = inputs(row, DType::F32);
                let wanted: Vec<&Tensor> = inputs.iter().filter(|input| input.dtype().is_float()).collect();
                let loss = weighted(&(row.op)(&inputs));
                let gradients = loss.gradients(&wanted).unwrap();
                let want = oracle(&gradients.iter().collect::<Vec<&Tensor>>());
                for (gradient, want) in gradients.iter().zip(want) {
                    close(
                        &format!("gradient of {} on {device}", row.name),
                        &measured(gradient),
                        &want,
                        4.0 * row.tolerance,
                    );
                }
            }
        });
    }
}

#[test]
fn every_gradient_agrees_with_finite_differences() {
    // All in the oracle's f64: this checks the formulas, the other tests check the compiler.
    for row in rows().filter(|row| row.differentiable) {
        let values: Vec<Vec<f64>> = row.inputs.iter().enumerate().map(|(i, input)| numbers(input, i as u64)).collect();
        let direction: Vec<Vec<f64>> = row
            .inputs
            .iter()
            .enumerate()
            .map(|(i, input)| numbers(&Input { low: -1.0, high: 1.0, whole: false, ..*input }, 1000 + i as u64))
            .collect();
        let loss_at = |step: f64| {
            let moved = row.inputs.iter().zip(&values).zip(&direction).map(|((input, values), direction)| {
                let moved: Vec<f64> =
                    values.iter().zip(direction).map(|(x, d)| if input.whole { *x } else { x + step * d }).collect();
                tensor(input, &moved, DType::F64)
            });
            weighted(&(row.op)(&moved.collect::<Vec<Tensor>>()))
        };
        let step = 1e-6;
        let (above, below) = (oracle(&[&loss_at(step)])[0][0], oracle(&[&loss_at(-step)])[0][0]);
        let slope = (above - below) / (2.0 * step);
        let inputs = inputs(row, DType::F64);
        let floats: Vec<usize> = (0..inputs.len()).filter(|i| inputs[*i].dtype().is_float()).collect();
        let loss = weighted(&(row.op)(&inputs));
        let wanted: Vec<&Tensor> = floats.iter().map(|i| &inputs[*i]).collect();
        let gradients = loss.gradients(&wanted).unwrap();
        let found = oracle(&gradients.iter().collect::<Vec<&Tensor>>());
        let along: f64 =
            floats.iter().zip(&found).map(|(i, g)| g.iter().zip(&direction[*i]).map(|(g, d)| g * d).sum::<f64>()).sum();
        let scale = slope.abs().max(1.0);
        assert!(
            (along - slope).abs() <= 1e-5 * scale,
            "gradient of {}: {along} along a direction, {slope} by differences",
            row.name
        );
    }
}

/// A single number in which every element counts differently.
fn weighted(tensor: &Tensor) -> Tensor {
    let elems = tensor.shape().unwrap().elems();
    // Small numbers: in f32 the sine of a large one is another.
    let weights = ((Tensor::iota(elems) % Tensor::scalar(97i32)).cast(tensor.dtype()) * 0.37 + 0.5).sin();
    (tensor.reshape([-1]) * weights).sum(..)
}
