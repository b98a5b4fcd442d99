//! An imported network as a [`Layer`] of one input and one output, whose first axes are the batch.

use panoply_tensor::{Device, Error, Result, Tensor};

use super::Imported;
use crate::layer::{ForwardContext, Layer};
use crate::module::{Module, ParamVisitor, ParamVisitorMut};

impl Module for Imported {
    fn visit(&self, visitor: &mut ParamVisitor<'_>) {
        self.params.iter().for_each(|(name, param)| visitor.field(name, param));
    }

    fn visit_mut(&mut self, visitor: &mut ParamVisitorMut<'_>) -> Result<()> {
        self.params.iter_mut().try_for_each(|(name, param)| visitor.field(name, param))
    }
}

impl Layer for Imported {
    /// Runs the network on a batch of f32, which is cast to the element type of the input. A file with a fixed batch is run several times. The
    /// mode of the pass has no effect: an ONNX file describes the evaluation mode.
    fn forward(&self, input: &Tensor, pass: &mut ForwardContext<'_>) -> Tensor {
        let run = || {
            if pass.seq_lengths().is_some() {
                return Err(Error::unsupported("an imported ONNX network does not support valid lengths of sequences"));
            }
            if pass.cast(input).dtype() != input.dtype() {
                let message = "an imported ONNX network computes in the element types of its file";
                return Err(Error::unsupported(message).note("use the precision f32"));
            }
            match input.device().filter(|device| **device != self.device) {
                Some(device) => self.on_device(device)?.forward_batch(input),
                None => self.forward_batch(input),
            }
        };
        run().unwrap_or_else(Tensor::from_mistake)
    }
}

impl Imported {
    /// Returns the network with its constants on another device; the parameters are shared.
    fn on_device(&self, device: &Device) -> Result<Imported> {
        let moved = device.scope(|| Imported::from_structure(&self.structure))?;
        Ok(Imported { params: self.params.clone(), ..moved })
    }

    /// Returns the network with its constants on this device.
    pub(crate) fn for_device(&self, device: &Device) -> Result<Imported> {
        if self.device == *device { Ok(self.clone()) } else { self.on_device(device) }
    }

    /// Fails unless there are as many inputs as the file has, of its element types and of the lengths that it gives.
    pub(crate) fn check_inputs(&self, inputs: &[Tensor]) -> Result<()> {
        if inputs.len() != self.inputs.len() {
            let names: Vec<String> = self.inputs.iter().map(|input| format!("`{}`", input.name)).collect();
            return Err(Error::mistake(format!(
                "the ONNX network has {} inputs ({}), but {} were passed",
                names.len(),
                names.join(", "),
                inputs.len()
            )));
        }
        for (tensor, info) in inputs.iter().zip(&self.inputs) {
            let found = tensor.shape()?.dims();
            // Without axes the file does not give the shape, or it is a scalar.
            let fits = info.dims.is_empty()
                || (found.len() == info.dims.len()
                    && info.dims.iter().zip(found).all(|(own, found)| own.is_none_or(|own| own == *found)));
            if fits && tensor.dtype() == info.dtype {
                continue;
            }
            let length = |dim: &Option<usize>| dim.map_or("dynamic".to_string(), |dim| dim.to_string());
            let expected = info.dims.iter().map(length).collect::<Vec<String>>().join(", ");
            let (name, dtype) = (&info.name, info.dtype);
            let message = match fits {
                true => {
                    format!("the input `{name}` of the ONNX network holds {dtype}, but {} was passed", tensor.dtype())
                }
                false => format!("the input `{name}` of the ONNX network has the shape [{expected}], got {found:?}"),
            };
            let error = Error::mistake(message);
            return Err(if fits { error.note("cast it with `.cast(DType::…)`") } else { error });
        }
        Ok(())
    }

    /// Returns the output of a batch, whose first axis has the length of that of the input.
    fn forward_batch(&self, input: &Tensor) -> Result<Tensor> {
        let info = self.single_input()?;
        self.check_example(input)?;
        let x = if input.dtype() == info.dtype { input.clone() } else { input.cast(info.dtype) };
        let forward = |x: &Tensor| Ok::<Tensor, Error>(self.forward(std::slice::from_ref(x))?.swap_remove(0));
        let Some(at_once) = info.dims[0] else { return forward(&x) };
        let rows = x.size(0)?;
        if rows == at_once {
            return forward(&x);
        }
        let count = rows.div_ceil(at_once).max(1);
        let rest = x.narrow(0, 0, 0).zeros_like();
        let missing = count * at_once - rows;
        let padded = match missing {
            0 => x,
            _ => {
                let shape = [&[missing], &rest.shape()?.dims()[1..]].concat();
                Tensor::concat([&x, &Tensor::zeros(shape, info.dtype)], 0)
            }
        };
        let parts = (0..count).map(|part| forward(&padded.narrow(0, part * at_once, at_once)));
        let outputs = Tensor::concat(&parts.collect::<Result<Vec<Tensor>>>()?, 0);
        Ok(outputs.narrow(0, 0, rows))
    }

    /// Fails unless the axes of a batch, except the first, have the lengths that the file gives.
    fn check_example(&self, input: &Tensor) -> Result<()> {
        let info = self.single_input()?;
        let expected = info.dims.iter().skip(1).map(|dim| dim.map_or("dynamic".to_string(), |dim| dim.to_string()));
        let expected = std::iter::once("batch".to_string()).chain(expected).collect::<Vec<String>>().join(", ");
        let misfit = || {
            let shape = input.shape().map_or_else(|_| format!("{input:?}"), |shape| shape.to_string());
            Error::mistake(format!("the ONNX network expects an input of shape [{expected}], got {shape}"))
        };
        if input.ndim()? != info.dims.len() {
            return Err(misfit());
        }
        for (axis, length) in info.dims.iter().enumerate().skip(1) {
            if length.is_some_and(|length| input.size(axis as isize).is_ok_and(|own| own != length)) {
                return Err(misfit());
            }
        }
        Ok(())
    }
}
