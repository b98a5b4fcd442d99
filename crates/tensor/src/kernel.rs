//! Kernels of their authors as operations on tensors.

use std::sync::Arc;

use panoply_ir::custom_kernel::CustomKernel;
use panoply_ir::graph::Op;
use panoply_ir::kernel::Kernel;
use panoply_ir::verify::verify;
use panoply_ir::{DType, Error, Result, Shape};
use panoply_runtime::Grid;

use crate::call::TracedBody;
use crate::tensor::Tensor;

impl Tensor {
    /// A kernel over so many work-items as an operation: what it takes and gives is what [`panoply_ir::custom_kernel`] says of its
    /// parameters. Inputs are tensors for the buffers it reads and [`Tensor::scalar`]s for its numbers; the results have
    /// these shapes, in the order of the buffers it writes. It has no gradient unless
    /// [`Tensor::call_with_vjp`] around it says one.
    ///
    /// `build` is what `#[kernel]` writes, as in `saxpy::build`; it is called once for each grid and shapes.
    #[track_caller]
    pub fn custom_kernel<const M: usize>(
        build: fn() -> Result<Kernel>,
        inputs: &[&Tensor],
        shapes: [Shape; M],
        grid: impl Into<Grid>,
    ) -> [Tensor; M] {
        let settings = (grid.into().0.to_vec(), shapes.to_vec());
        let run = |stand_ins: &[Tensor]| match authored(build, &settings, stand_ins) {
            Ok(outputs) => outputs.into(),
            Err(error) => vec![Tensor::mistake(error)].into(),
        };
        match TracedBody::of("kernel", (build as usize, None), &settings, inputs, run, None) {
            Ok(body) => std::array::from_fn(|output| body.apply(inputs, output as u32)),
            Err(mistake) => std::array::from_fn(|_| mistake.clone()),
        }
    }
}

/// The outputs of a kernel on stand-ins for its inputs.
fn authored(
    build: fn() -> Result<Kernel>,
    (grid, shapes): &(Vec<u64>, Vec<Shape>),
    stand_ins: &[Tensor],
) -> Result<Vec<Tensor>> {
    let kernel = Arc::new(verify(build()?)?);
    let grid = std::array::from_fn(|axis| grid[axis]);
    let authored = Arc::new(CustomKernel::new(kernel, grid, shapes.clone())?);
    let given: Vec<(&Shape, DType)> = stand_ins.iter().map(|input| (&input.0.shape, input.dtype())).collect();
    let name = &authored.kernel.name;
    authored.check(&given).map_err(|why| Error::mistake(format!("kernel {name}: {why}")))?;
    let inputs: Vec<&Tensor> = stand_ins.iter().collect();
    let outputs = authored.outputs.iter().enumerate();
    let output = |(n, (shape, dtype)): (usize, &(Shape, DType))| {
        Tensor::primitive(Op::CustomCall(authored.clone(), n as u32), &inputs, shape.clone(), *dtype)
    };
    Ok(outputs.map(output).collect())
}
