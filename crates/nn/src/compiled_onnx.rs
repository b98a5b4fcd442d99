//! Compilation of ONNX networks with any number of inputs and outputs, in the element types of the file.

use std::sync::Arc;

use panoply_tensor::{DType, Device, Error, JitFunction, Result, Rng, Shape, Tensor, jit_with_state};

use crate::compiled::{Compile, CompileOptions, Computed, OptLevel, compare, eval_parameters, reference_for};
use crate::module::{Module, Param, ParamVisitorMut};
use crate::onnx::{Imported, Input};

/// The inputs of a captured run and, after it, the outputs.
type Values = (Vec<Tensor>, Vec<Tensor>);

/// An ONNX network compiled for inference. Its parameters are frozen.
#[derive(Clone, Debug)]
pub struct CompiledOnnx {
    network: Imported,
    options: CompileOptions,
    folded_batch_norms: usize,
    /// Captured run; `None` with [`OptLevel::None`].
    captured: Option<Arc<JitFunction<'static, 0, 0, Values>>>,
}

impl Compile for Imported {
    type Compiled = CompiledOnnx;

    /// Compiles the network. From [`OptLevel::Default`] on batch norms are folded into the convolutions before them.
    ///
    /// # Errors
    /// If a precision other than f32 is requested, or the verification or a property check fails.
    fn compile(&self, options: &CompileOptions) -> Result<CompiledOnnx> {
        options.precision.check_imported()?;
        let mut network = self.for_device(&Device::current()?)?;
        let mut freeze = |_: &str, param: &mut Param| {
            param.frozen = true;
            Ok(())
        };
        network.visit_mut(&mut ParamVisitorMut::new(&mut freeze))?;
        eval_parameters(&network)?;
        let folded = (options.opt_level != OptLevel::None).then(|| network.fold_batch_norms()).transpose()?;
        folded.iter().try_for_each(eval_parameters)?;
        let folded_batch_norms = folded.as_ref().map_or(0, |folded| network.operators() - folded.operators());
        let captured = folded.map(|network| {
            let run = move |(inputs, outputs): &mut Values, []: [&Tensor; 0]| {
                match network.forward(inputs) {
                    Ok(found) => *outputs = found,
                    // A mistake in one output fails the trace.
                    Err(error) => outputs[0] = Tensor::from_mistake(error),
                }
                []
            };
            Arc::new(jit_with_state(run))
        });
        let compiled = CompiledOnnx { network, options: options.clone(), folded_batch_norms, captured };
        if options.verify {
            compiled.verify(self, &samples(&self.inputs))?;
        }
        Ok(compiled)
    }
}

/// Returns random numbers for all inputs; those of integers are 0 and 1, and dynamic lengths are 1.
fn samples(inputs: &[Input]) -> Vec<Tensor> {
    let mut rng = Rng::seed_from_u64(0);
    let sample = |input: &Input| {
        let dims: Vec<usize> = input.dims.iter().map(|dim| dim.unwrap_or(1)).collect();
        let normal = rng.normal(dims);
        let is_number = input.dtype.is_float();
        if is_number { normal.cast(input.dtype) } else { normal.gt(0.0).cast(input.dtype) }
    };
    inputs.iter().map(sample).collect()
}

impl CompiledOnnx {
    /// Returns the network.
    pub fn network(&self) -> &Imported {
        &self.network
    }

    /// Returns the inputs in the order of the file, which [`CompiledOnnx::run`] takes.
    pub fn inputs(&self) -> &[Input] {
        &self.network.inputs
    }

    /// Returns the names of the outputs in the order of the file.
    pub fn outputs(&self) -> &[String] {
        &self.network.outputs
    }

    /// Returns the number of batch norms that were folded into convolutions.
    pub fn folded_batch_norms(&self) -> usize {
        self.folded_batch_norms
    }

    /// Returns random inputs in the order of the file: normal numbers, 0 or 1 for integers, and 1 for dynamic lengths. They are the same in
    /// each call.
    pub fn random_inputs(&self) -> Vec<Tensor> {
        samples(&self.network.inputs)
    }

    /// Runs the network on inputs in the order of the file, and checks the declared properties of all outputs of floats. The outputs are in
    /// the order of the file and in its element types, evaluated.
    ///
    /// # Errors
    /// If an input has another shape or element type than the file gives, a property does not hold, or a shape depends on the values of
    /// inputs, which only [`OptLevel::None`] supports.
    #[track_caller]
    pub fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        self.network.check_inputs(inputs)?;
        let outputs = match &self.captured {
            Some(captured) => {
                // The outputs replace as many other tensors.
                let mut values = (inputs.to_vec(), vec![Tensor::scalar(0f32); self.network.outputs.len()]);
                captured.call_with_state(&mut values, [])?;
                values.1
            }
            None => {
                let outputs = self.network.forward(inputs)?;
                panoply_tensor::eval(&outputs.iter().collect::<Vec<&Tensor>>())?;
                outputs
            }
        };
        for (name, output) in self.network.outputs.iter().zip(&outputs).filter(|(_, output)| output.dtype().is_float())
        {
            self.options.properties.iter().try_for_each(|property| property.check(name, output))?;
        }
        Ok(outputs)
    }

    /// Runs the network on inputs with their names, in any order, as [`CompiledOnnx::run`] does.
    ///
    /// # Errors
    /// As for [`CompiledOnnx::run`], or if an input is missing, unknown or passed twice.
    #[track_caller]
    pub fn run_named(&self, inputs: &[(&str, Tensor)]) -> Result<Vec<Tensor>> {
        let names =
            || self.inputs().iter().map(|input| format!("`{}`", input.name)).collect::<Vec<String>>().join(", ");
        for (at, (name, _)) in inputs.iter().enumerate() {
            if !self.inputs().iter().any(|input| input.name == *name) {
                let name = name.escape_debug();
                return Err(Error::mistake(format!(
                    "the ONNX network has no input `{name}`; its inputs are {}",
                    names()
                )));
            }
            if inputs[..at].iter().any(|(before, _)| before == name) {
                return Err(Error::mistake(format!("the input `{name}` of the ONNX network was passed twice")));
            }
        }
        let of = |input: &Input| {
            let found = inputs.iter().find(|(name, _)| *name == input.name).map(|(_, tensor)| tensor.clone());
            found.ok_or_else(|| Error::mistake(format!("the input `{}` of the ONNX network is missing", input.name)))
        };
        self.run(&self.inputs().iter().map(of).collect::<Result<Vec<Tensor>>>()?)
    }

    /// Compares the outputs for these inputs with those of `original` on another executor. Outputs of integers must be equal. Returns the
    /// largest difference of outputs of floats relative to the largest magnitude of the reference.
    ///
    /// # Errors
    /// If a difference exceeds the tolerance, or a property does not hold.
    pub fn verify(&self, original: &Imported, inputs: &[Tensor]) -> Result<f64> {
        let device = Device::current()?;
        let reference = reference_for(&device)?;
        let outputs = self.run(inputs)?;
        let mut there = original.for_device(&reference)?;
        let mut carry = |_: &str, param: &mut Param| {
            let moved = param.tensor().to(&reference);
            moved.check()?;
            *param = Param::new(moved);
            Ok(())
        };
        there.visit_mut(&mut ParamVisitorMut::new(&mut carry))?;
        // By their values: an input can be an expression that is not yet evaluated.
        let copied = |input: &Tensor| Ok((input.to_bytes()?, input.shape()?.clone(), input.dtype()));
        let copied = inputs.iter().map(copied).collect::<Result<Vec<(Vec<u8>, Shape, DType)>>>()?;
        let expected = reference.scope(|| {
            let moved = copied.iter().map(|(bytes, shape, dtype)| Tensor::from_bytes(bytes, shape.clone(), *dtype));
            there.forward(&moved.collect::<Vec<Tensor>>())
        })?;
        let mut largest = 0f64;
        for ((name, output), want) in self.outputs().iter().zip(&outputs).zip(&expected) {
            if output.shape()? != want.shape()? || output.dtype() != want.dtype() {
                return Err(Error::mistake(format!(
                    "verification failed: the output `{name}` has the shape {} on {device} and {} on {reference}",
                    output.shape()?,
                    want.shape()?
                )));
            }
            if output.dtype().is_float() {
                let numbers = output.cast(DType::F32).to_vec::<f32>()?;
                let want = reference.scope(|| want.cast(DType::F32).to_vec::<f32>())?;
                let found = Computed { numbers: &numbers, dims: output.shape()?.dims(), device: &device };
                largest = largest.max(compare(&found, &want, &reference, self.options.precision)?);
            } else if output.to_bytes()? != reference.scope(|| want.to_bytes())? {
                let message = format!(
                    "verification failed: the integers of the output `{name}` differ between {device} and {reference}"
                );
                return Err(Error::mistake(message));
            }
        }
        Ok(largest)
    }
}
