//! Composite operations of other crates that a device may do as one routine.

use panoply_ir::routine::Routine;

use crate::call::CompositeOp;
use crate::call_attrs::CallAttrs;
use crate::tensor::Tensor;

impl Tensor {
    /// [`Tensor::call_multi`], with the routine that computes the same on a device that has it; `None` if none does with such inputs.
    ///
    /// The routine reads the inputs row-major and writes the results in the order of the body's; it is used unless the math mode is exact
    /// and it adds floats in an order of its own. Gradients are those of the body.
    #[track_caller]
    pub fn call_with_routine<S: CallAttrs + Clone + Send + Sync + 'static, const N: usize, const M: usize>(
        name: &'static str,
        inputs: [&Tensor; N],
        settings: S,
        body: fn([&Tensor; N], &S) -> [Tensor; M],
        routine: fn([&Tensor; N], &S) -> Option<Routine>,
    ) -> [Tensor; M] {
        CompositeOp { name, body, gradient: None, routine }.apply(inputs, settings)
    }
}
