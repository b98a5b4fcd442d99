//! Opening of model files: those that `panoply train` wrote, ONNX files that `panoply export` wrote, and ONNX files of other programs.

use std::path::{Path, PathBuf};

use panoply::nn::checkpoint::TensorFile;
use panoply::nn::data::reader::{self, DataFormat, InferenceData, Label, ReadOptions, Task};
use panoply::nn::data::{Targets, digits, summary};
use panoply::nn::onnx::Imported;
use panoply::nn::{Loss, LossKind, Model};
use panoply::{Error, Result};

use super::data_schema::DataSchema;
use super::manifest::{self, Manifest};
use crate::load_progress::with_progress;

/// Key of the metadata of an ONNX file that holds a [`DataSchema`] in JSON.
pub const SCHEMA: &str = "panoply.data";
/// Key of the metadata of an ONNX file that holds the name of the loss in JSON.
pub const LOSS: &str = "panoply.loss";

/// A model with what is known about its data.
pub struct ModelFile {
    path: PathBuf,
    /// The network with its parameters.
    pub model: Model,
    /// Format of its data; `None` for an ONNX file of another program.
    pub schema: Option<DataSchema>,
    /// Description of the training run; `None` for an ONNX file.
    pub manifest: Option<Box<Manifest>>,
}

/// Returns true for the name of an ONNX file.
pub fn is_onnx(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("onnx"))
}

impl ModelFile {
    /// Opens a file by its extension: `.onnx`, otherwise a model file.
    pub fn open(path: &Path) -> Result<ModelFile> {
        let own = path.to_path_buf();
        if is_onnx(path) {
            let (model, schema) = open_onnx(path)?;
            return Ok(ModelFile { path: own, model, schema, manifest: None });
        }
        let file = TensorFile::read(path)?;
        let manifest = Manifest::of_model(&file)?;
        let model = manifest.load(&file)?;
        Ok(ModelFile { path: own, model, schema: Some(manifest.data.schema()), manifest: Some(Box::new(manifest)) })
    }

    /// Reads the examples of a data file, or of the data that the model was trained on, with the schema that names the outputs.
    pub fn examples(&self, data: Option<&Path>) -> Result<(InferenceData, DataSchema)> {
        let missing = || {
            let message = format!("DATA is missing: {} does not name the data of its training", self.path.display());
            Error::mistake(message).note("pass a file or folder after the model")
        };
        let (mut read, schema) = match (&self.manifest, &self.schema) {
            (Some(manifest), _) => return Ok((examples(manifest, data)?, manifest.data.schema())),
            (None, Some(schema)) => {
                let read = match (&schema.format, data) {
                    (DataFormat::Digits, None) => built_in_digits()?,
                    (format, Some(path)) => format.read(path, &schema.class_names, &with_progress(&schema.reading))?,
                    (_, None) => return Err(missing()),
                };
                (read, schema.clone())
            }
            (None, None) => foreign_examples(&self.model, data.ok_or_else(missing)?, &self.path)?,
        };
        self.check_lengths(&read)?;
        // All sequences have the length that the file takes.
        read.dataset.seq_lengths = None;
        Ok((read, schema))
    }

    /// Fails if the examples do not fit the network, or a sequence is shorter than the network's: ONNX files take no valid lengths.
    fn check_lengths(&self, read: &InferenceData) -> Result<()> {
        let (own, given) = (&self.model.network.input, &read.dataset.example_shape);
        let shorter = read.dataset.seq_lengths.iter().flatten().position(|length| *length as usize != own[0]);
        if let Some(at) = shorter.filter(|_| own.len() == given.len()) {
            let length = read.dataset.seq_lengths.as_ref().map_or(0, |lengths| lengths[at]);
            let message = format!(
                "sequence {} has {length} rows, but {} takes sequences of {} rows",
                read.names[at],
                self.path.display(),
                own[0]
            );
            return Err(Error::mistake(message).note("ONNX files have no valid lengths; use the run folder"));
        }
        if !self.model.network.accepts_shape(given) {
            let message = format!("the examples have the shape {given:?}, but {} takes {own:?}", self.path.display());
            return Err(Error::mistake(message));
        }
        Ok(())
    }
}

/// Reads the examples of a data file, or of the data that the model was trained on.
pub fn examples(manifest: &Manifest, data: Option<&Path>) -> Result<InferenceData> {
    let (source, classes) = (&manifest.data.format, &manifest.data.class_names);
    match (source, data) {
        (DataFormat::Digits, None) => built_in_digits(),
        (_, Some(path)) => source.read(path, classes, &with_progress(&manifest.data.reading)),
        (_, None) => {
            let path = Path::new(manifest.data.place());
            manifest::check_path(path)?;
            // The relative path can lead to other data in this folder, or the data can have changed.
            if let Some(what) = manifest.data.changed(&manifest.data.open()?) {
                let message = format!("{} is not what this model was trained on: {what}", manifest.data.path);
                return Err(Error::mistake(message).note("pass the data after the model"));
            }
            source.read(path, classes, &with_progress(&manifest.data.reading))
        }
    }
}

/// Returns the digits that ship with Panoply.
pub fn built_in_digits() -> Result<InferenceData> {
    let data = digits::load()?.with_shape(&[1, 8, 8])?;
    let names = (0..data.len()).map(|at| format!("digit {at}")).collect();
    let right = data.labels().iter().map(|label| Some(Label::Class(*label))).collect();
    Ok(InferenceData { dataset: data, names, labels: right, offsets: Vec::new(), table: None, notes: Vec::new() })
}

/// Reads an ONNX file as a model, with its schema if `panoply export` wrote it.
fn open_onnx(path: &Path) -> Result<(Model, Option<DataSchema>)> {
    let imported = Imported::open(path)?;
    let described = |error: Error| Error::new(error.kind(), format!("{}: {}", path.display(), error.message()));
    let Some((schema, loss)) = schema(&imported, path)? else {
        let mut model = imported.to_model(None).map_err(described)?;
        model.network.loss = Loss::new(LossKind::Mse);
        return Ok((model, None));
    };
    let lengths = schema.example_lengths().map_err(|what| wrong_metadata(path, &what))?;
    let mut model = imported.to_model(Some(&lengths)).map_err(described)?;
    model.network.loss = loss;
    schema.check(&model.network).map_err(|what| wrong_metadata(path, &what))?;
    Ok((model, Some(schema)))
}

/// Returns the schema and the loss in the metadata of an ONNX file; `None` for files of other programs.
pub fn schema(imported: &Imported, path: &Path) -> Result<Option<(DataSchema, Loss)>> {
    let Some(text) = imported.info.metadata.get(SCHEMA) else { return Ok(None) };
    let unreadable = |error: serde_json::Error| wrong_metadata(path, &format!("{SCHEMA} cannot be read ({error})"));
    let schema = serde_json::from_str(text).map_err(unreadable)?;
    let loss = imported.info.metadata.get(LOSS).map(|text| serde_json::from_str::<LossKind>(text)).transpose();
    let loss = loss.map_err(|error| wrong_metadata(path, &format!("{LOSS} cannot be read ({error})")))?;
    Ok(Some((schema, Loss::new(loss.unwrap_or_default()))))
}

fn wrong_metadata(path: &Path, what: &str) -> Error {
    Error::corrupt(format!("{}: its metadata are inconsistent: {what}", path.display()))
        .note("the file was modified; use another copy, or export it again")
}

/// Reads examples for the network of another program. Its outputs are numbers, and the examples have no labels.
fn foreign_examples(model: &Model, data: &Path, path: &Path) -> Result<(InferenceData, DataSchema)> {
    let (input, width) = (&model.network.input, model.network.output_shape()?.iter().product::<usize>());
    let reading = ReadOptions::default();
    let name = data.file_name().map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default();
    let is_array = name.contains("ubyte") || [".npy", ".npz"].iter().any(|ending| name.contains(ending));
    let mut notes = Vec::new();
    let format = if data.is_file() && !is_array && reader::is_table(data, &reading).unwrap_or(false) {
        table_format(input.iter().product(), width, data, path)?
    } else if is_array {
        DataFormat::Npy {
            shape: input.clone(),
            num_outputs: width,
            task: Task::Regression,
            offsets: Vec::new(),
            target_offsets: Vec::new(),
        }
    } else {
        let [channels @ 1..=4, height, width] = input[..] else {
            let message = format!("{} takes {input:?}, not images [channels, height, width]", path.display());
            return Err(Error::mistake(message).note("pass a table, or an array in a .npy file"));
        };
        notes.push(
            "pixels are numbers in 0 .. 1; a network that was trained with other numbers gives other results"
                .to_string(),
        );
        DataFormat::Images { channels, height, width }
    };
    let mut read = match (format.read(data, &[], &reading), &format) {
        (Err(error), DataFormat::Npy { shape, .. }) => {
            // An array of classes beside the examples does not fit the width of the outputs.
            let (shape, task, num_outputs) = (shape.clone(), Task::Classification, 0);
            let (offsets, target_offsets) = (Vec::new(), Vec::new());
            let with_classes = DataFormat::Npy { shape, num_outputs, task, offsets, target_offsets };
            with_classes.read(data, &[], &reading).map_err(|_| error)?
        }
        (read, _) => read?,
    };
    read.notes.extend(notes);
    read.labels = vec![None; read.names.len()];
    read.dataset.targets = Targets::Regression { values: vec![0.0; read.names.len() * width], num_outputs: width };
    Ok((read, DataSchema { format, class_names: Vec::new(), reading }))
}

/// Returns the format of a table for a network of another program: its first columns are the inputs.
fn table_format(inputs: usize, outputs: usize, data: &Path, path: &Path) -> Result<DataFormat> {
    let found = summary::summarize(data, &ReadOptions::default())?;
    let names: Vec<String> = found.columns.into_iter().map(|column| column.name).collect();
    if ![inputs, inputs + 1, inputs + outputs].contains(&names.len()) {
        let message =
            format!("{} has {} columns, but {} takes {inputs} numbers", data.display(), names.len(), path.display());
        return Err(Error::mistake(message).note("pass a table with these columns, followed by none or by the targets"));
    }
    Ok(DataFormat::Csv {
        feature_columns: names[..inputs].to_vec(),
        label_columns: Vec::new(),
        task: Task::Regression,
        sequence: None,
        categories: Default::default(),
        offsets: Default::default(),
        scales: Default::default(),
        imputation: Default::default(),
        date_orders: Default::default(),
        decimal_comma: false,
    })
}
