//! Reference values of an expression from the graph interpreter: element by element in f64, without code of the
//! compiler.

use panoply_ir::graph::Op;
use panoply_ir::graph_interpret::{self, Array, Data};
use panoply_ir::{DType, Error, Result, Scalar};

use crate::eval::TracedGraph;
use crate::{Device, Tensor};

/// Elements of several tensors.
pub type Elements = Vec<Vec<f64>>;

/// Computes the reference values of tensors.
///
/// # Errors
/// A mistake in an expression.
pub fn values(roots: &[&Tensor]) -> Result<Elements> {
    roots.iter().map(|root| value(root)).collect()
}

fn value(root: &Tensor) -> Result<Vec<f64>> {
    let traced = TracedGraph::new(&Device::current()?, &[root])?;
    let mut leaves: Vec<Option<Array>> = vec![None; traced.leaves.len()];
    for node in &traced.graph.nodes {
        if let Op::Input(n) = node.op {
            let storage = &traced.leaves[n as usize];
            let mut bytes = vec![0; storage.bytes() as usize];
            storage.read_bytes(&mut bytes)?;
            let scalars = bytes.chunks(node.dtype.bytes()).map(|chunk| {
                let mut word = [0; 8];
                word[..chunk.len()].copy_from_slice(chunk);
                Scalar { dtype: node.dtype, bits: u64::from_le_bytes(word) }
            });
            leaves[n as usize] = Some(Array::new(node.shape.clone(), node.dtype, &scalars.collect::<Vec<Scalar>>()));
        }
    }
    let leaves: Vec<Array> = leaves.into_iter().map(|leaf| leaf.expect("every leaf has a node")).collect();
    let values = graph_interpret::run(&traced.graph, &leaves, &traced.slots)?;
    Ok(match values.into_iter().next().expect("one root has one value").data {
        Data::Floats(values) => values,
        Data::Ints(values) => values.into_iter().map(|value| value as f64).collect(),
    })
}

/// Computes the values of tensors on the current device, and their reference values.
///
/// # Errors
/// A mistake in an expression, or a failure of the device.
pub fn both(roots: &[&Tensor]) -> Result<(Elements, Elements)> {
    // The reference first: an evaluated tensor is a leaf, and the oracle would read the computed value.
    let want = values(roots)?;
    Ok((roots.iter().map(|root| measured(root)).collect::<Result<_>>()?, want))
}

fn measured(tensor: &Tensor) -> Result<Vec<f64>> {
    let plain = if tensor.dtype() == DType::Bool { tensor.cast(DType::I32) } else { tensor.clone() };
    Ok(match plain.dtype() {
        DType::F32 => plain.to_vec::<f32>()?.into_iter().map(f64::from).collect(),
        DType::I32 => plain.to_vec::<i32>()?.into_iter().map(f64::from).collect(),
        other => return Err(Error::unsupported(format!("the op table has no row of type {other}"))),
    })
}
