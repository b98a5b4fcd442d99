//! The network to verify: an ONNX file, or a model that `panoply train` wrote.

use std::path::Path;

use panoply::nn::checkpoint::TensorFile;
use panoply::nn::data::reader::{DataFormat, InferenceData};
use panoply::nn::onnx::Imported;
use panoply::nn::{ForwardContext, Layer, Model};
use panoply::verify::vnncomp;
use panoply::{DType, Error, Result, Tensor};

use crate::train::manifest::Manifest;
use crate::train::model_file;

/// A network of one f32 input.
pub enum Network {
    /// An ONNX network.
    Onnx(Imported),
    /// A trained model; its outputs are those of its last layer, for classes the logits.
    Trained(Box<Manifest>, Box<Model>),
}

impl Network {
    /// Opens a file by its extension: `.onnx`, also compressed as `.onnx.gz`, otherwise a model file.
    pub fn open(path: &Path) -> Result<Network> {
        if path.extension().is_some_and(|extension| extension == "gz") {
            let bytes = vnncomp::read_file(path)?;
            return Imported::parse(path, &bytes).map(Network::Onnx);
        }
        if path.extension().is_none_or(|extension| extension != "safetensors") {
            return Imported::open(path).map(Network::Onnx);
        }
        let file = TensorFile::read(path)?;
        let manifest = Manifest::of_model(&file)?;
        if matches!(manifest.data.format, DataFormat::Text { .. }) {
            return Err(Error::unsupported(format!("{}: the inputs of a text model are not numbers", path.display())));
        }
        let model = manifest.load(&file)?;
        Ok(Network::Trained(Box::new(manifest), Box::new(model)))
    }

    /// Returns the shape of the only input, with 1 for dynamic dimensions.
    pub fn input_shape(&self) -> Result<Vec<usize>> {
        let network = match self {
            Network::Onnx(network) => network,
            Network::Trained(manifest, _) => return Ok([&[1], &manifest.network.input[..]].concat()),
        };
        let ([input], [_]) = (&network.inputs[..], &network.outputs[..]) else {
            let (inputs, outputs) = (network.inputs.len(), network.outputs.len());
            return Err(Error::unsupported(format!(
                "the network has {inputs} inputs and {outputs} outputs; one of each is supported"
            )));
        };
        if input.dtype != DType::F32 {
            return Err(Error::unsupported(format!("the input `{}` is {}; f32 is supported", input.name, input.dtype)));
        }
        Ok(input.dims.iter().map(|dim| dim.unwrap_or(1)).collect())
    }

    /// Returns the output of one input.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        match self {
            Network::Onnx(network) => Ok(network.forward(std::slice::from_ref(x))?.swap_remove(0)),
            Network::Trained(_, model) => Ok(model.forward(x, &mut ForwardContext::eval())),
        }
    }

    /// Returns the data that a trained model was trained on.
    pub fn examples(&self) -> Result<InferenceData> {
        match self {
            Network::Onnx(_) => {
                Err(Error::unsupported("an ONNX network has no examples; give the center of a ball as a `point`"))
            }
            Network::Trained(manifest, _) => model_file::examples(manifest, None),
        }
    }
}
