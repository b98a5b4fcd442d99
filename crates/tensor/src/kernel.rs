//! Custom kernels as operations on tensors.

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
    /// Launches a custom kernel over `grid` work-items as an operation.
    ///
    /// [`panoply_ir::custom_kernel`] defines which parameters are inputs and outputs. The inputs are tensors for the
    /// buffers that the kernel reads and [`Tensor::scalar`]s for its numbers. The results have these shapes, in the
    /// order of the buffers that it writes. The operation has no gradient; [`Tensor::call_with_vjp`] around it adds
    /// one.
    ///
    /// `build` is the function that `#[kernel]` generates, as in `saxpy::build`. It is called once for each
    /// combination of grid and shapes.
    #[doc(alias = "triton_op")]
    #[track_caller]
    pub fn custom_kernel<const M: usize>(
        build: fn() -> Result<Kernel>,
        inputs: &[&Tensor],
        shapes: [Shape; M],
        grid: impl Into<Grid>,
    ) -> [Tensor; M] {
        let settings = (grid.into().0.to_vec(), shapes.to_vec());
        let run = |placeholders: &[Tensor]| match trace_kernel(build, &settings, placeholders) {
            Ok(outputs) => outputs.into(),
            Err(error) => vec![Tensor::mistake(error)].into(),
        };
        match TracedBody::of("kernel", (build as usize, None), &settings, inputs, &run, None) {
            Ok(body) => std::array::from_fn(|output| body.apply(inputs, output as u32)),
            Err(mistake) => std::array::from_fn(|_| mistake.clone()),
        }
    }
}

/// Returns the outputs of a kernel on placeholders of its inputs.
fn trace_kernel(
    build: fn() -> Result<Kernel>,
    (grid, shapes): &(Vec<u64>, Vec<Shape>),
    placeholders: &[Tensor],
) -> Result<Vec<Tensor>> {
    let kernel = Arc::new(verify(build()?)?);
    let grid = std::array::from_fn(|axis| grid[axis]);
    let custom = Arc::new(CustomKernel::new(kernel, grid, shapes.clone())?);
    let given: Vec<(&Shape, DType)> = placeholders.iter().map(|input| (&input.0.shape, input.dtype())).collect();
    let name = &custom.kernel.name;
    custom.check(&given).map_err(|why| Error::mistake(format!("kernel {name}: {why}")))?;
    let inputs: Vec<&Tensor> = placeholders.iter().collect();
    let outputs = custom.outputs.iter().enumerate();
    let output = |(n, (shape, dtype)): (usize, &(Shape, DType))| {
        Tensor::primitive(Op::CustomCall(custom.clone(), n as u32), &inputs, shape.clone(), *dtype)
    };
    Ok(outputs.map(output).collect())
}
