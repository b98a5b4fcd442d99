//! Training that starts from the network of an ONNX file.

use std::path::{Path, PathBuf};

use panoply::nn::data::reader::{DataFormat, LabeledData, ReadOptions};
use panoply::nn::onnx::Imported;
use panoply::nn::{LayerSpec, LossKind, Model, Network};
use panoply::{DType, Error, Result};

use super::data_schema::DataSchema;
use super::{manifest, model_file};

/// A network to train further, with how its data were read if the file says so.
pub struct FineTune {
    path: PathBuf,
    imported: Imported,
    schema: Option<(DataSchema, LossKind)>,
}

impl FineTune {
    /// Reads a file and checks that it can be trained.
    pub fn open(path: &Path) -> Result<FineTune> {
        let imported = Imported::open(path)?;
        let refused = |what: String| Err(Error::unsupported(format!("{} cannot be trained: {what}", path.display())));
        let is_quantized =
            |name: &&String| name.contains("Quantize") || name.starts_with("QLinear") || name.ends_with("Integer");
        let quantized: Vec<&str> = imported.info.operators.keys().filter(is_quantized).map(String::as_str).collect();
        if !quantized.is_empty() {
            return refused(format!("it is quantized by the operators {}", quantized.join(", ")));
        }
        let mut weights = imported.info.constants.iter().filter(|constant| constant.is_trainable).peekable();
        if weights.peek().is_none() {
            return refused("it has no float weights".to_string());
        }
        if let Some(other) = weights.find(|constant| constant.dtype != DType::F32) {
            return refused(format!("its weight `{}` is {}, and f32 is supported", other.name, other.dtype));
        }
        let schema = model_file::schema(&imported, path)?.map(|(schema, loss)| (schema, loss.kind));
        Ok(FineTune { path: path.to_path_buf(), imported, schema })
    }

    /// Opens the file from which a network with an imported layer was trained; `None` for other networks.
    pub fn of(network: &Network, path: &str) -> Result<Option<FineTune>> {
        let is_imported = network.layers.iter().any(|layer| matches!(layer, LayerSpec::Onnx(_)));
        let open =
            || FineTune::open(Path::new(path)).map_err(|error| error.note("training starts over from this file"));
        is_imported.then(open).transpose()
    }

    /// Returns the loss that the file names.
    pub fn loss(&self) -> Option<LossKind> {
        self.schema.as_ref().map(|(_, loss)| *loss)
    }

    /// Reads training data, in the format of the file if it has one for such data. Also returns true if that was used.
    pub fn read(&self, data: &str, reading: &ReadOptions) -> Result<(LabeledData, bool)> {
        match &self.schema {
            Some((schema, _)) if (schema.format == DataFormat::Digits) == (data == "digits") => {
                if ![&ReadOptions::default(), &schema.reading].contains(&reading) {
                    let message = format!(
                        "{} says how its data are read; options for reading data do not apply",
                        self.path.display()
                    );
                    return Err(Error::mistake(message));
                }
                Ok((schema.open(data)?, schema.format != DataFormat::Digits))
            }
            _ => Ok((manifest::open(data, reading)?, false)),
        }
    }

    /// Returns the options for reading the data that the file names, or the given ones.
    pub fn reading(&self, given: ReadOptions, is_fixed: bool) -> ReadOptions {
        self.schema.as_ref().filter(|_| is_fixed).map_or(given, |(schema, _)| schema.reading.clone())
    }

    /// Returns the network for examples of this shape.
    pub fn network(&self, example: &[usize]) -> Result<Network> {
        let model = self.imported.to_model(Some(example));
        let described =
            |error: Error| Error::new(error.kind(), format!("{}: {}", self.path.display(), error.message()));
        Ok(model.map_err(described)?.network)
    }

    /// Copies the weights to a model that was built from [`FineTune::network`].
    pub fn load_into(&self, model: &mut Model) -> Result<()> {
        self.imported
            .load_into(model)
            .map_err(|error| error.note(format!("{} is not the file from which training started", self.path.display())))
    }
}
