//! Export and import of ONNX files. [`export`] writes opset 17 with a dynamic batch and f32 parameters. [`Imported`] reads ONNX files, and
//! [`Imported::to_model`] makes a network with one input and one output a [`Model`], which can be trained, compiled and exported.
//!
//! [`proto`] serializes, and [`layers`] translates layers to ONNX operators. `onnx_import` parses files.

mod layers;
mod proto;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use panoply_tensor::{DType, Error, Result, Tensor};

use crate::checkpoint::WholeFile;
use crate::layers::Sequential;
use crate::module::{Module, Param, ParamVisitorMut};
use crate::network::layer_spec::OnnxSpec;
use crate::network::{LayerSpec, Model, Network};
use crate::onnx_import::BUFFERS;
pub use crate::onnx_import::{
    Constant, FileInfo, Imported, Input, Output, SupportedOperator, read_tensor, supported_operators,
};
use proto::{Data, Graph};

/// Maximum size of an ONNX file: a Protocol Buffers message is smaller than 2 GiB.
pub const MAX_BYTES: u64 = i32::MAX as u64;

/// Version of the operators that [`export`] writes; a network that was imported keeps its own.
const OPSET: i64 = 17;

/// Sizes of the files that [`export`] wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saved {
    /// Size of the file in bytes.
    pub bytes: u64,
    /// Path and size of the second file, which holds the parameters, if there is one.
    pub data: Option<(PathBuf, u64)>,
    /// Version of the operators.
    pub opset: i64,
}

impl Imported {
    /// Returns the network as a [`Model`] of one layer, [`LayerSpec::Onnx`], with the loss cross-entropy. `example` gives the lengths that the
    /// file leaves open, without the batch.
    ///
    /// # Errors
    /// If the network has several inputs or outputs, its first axes are not the batch, or its lengths are dynamic and `example` does not
    /// give them.
    pub fn to_model(&self, example: Option<&[usize]>) -> Result<Model> {
        let network =
            Network::with_input(&self.example_shape(example)?).add_layer(LayerSpec::Onnx(OnnxSpec::of(self)?));
        network.layer_shapes()?;
        Ok(Model { network, layers: Sequential { layers: vec![Box::new(self.clone())] } })
    }

    /// Copies the values of the parameters to the imported layer of a model that was built from the same file.
    ///
    /// # Errors
    /// If the model has no such layer.
    pub fn load_into(&self, model: &mut Model) -> Result<()> {
        let is_same = |layer: &LayerSpec| matches!(layer, LayerSpec::Onnx(spec) if spec.is_of(self));
        let Some(at) = model.network.layers.iter().position(is_same) else {
            return Err(Error::mistake("the model has no layer of this ONNX network"));
        };
        let values: BTreeMap<String, Param> = self.named_parameters().into_iter().collect();
        let mut set = |name: &str, param: &mut Param| match values.get(name) {
            Some(value) => param.set(value.tensor()),
            None => Err(Error::mistake(format!("the ONNX network has no parameter {name}"))),
        };
        model.layers.layers[at].visit_mut(&mut ParamVisitorMut::new(&mut set))
    }
}

/// Returns the imported network with the parameters of a model that has no other layer with an effect in evaluation mode.
fn imported(model: &Model) -> Result<Option<Imported>> {
    let mut active = model.network.layers.iter().enumerate().filter(|(_, layer)| layer.is_active_in_eval());
    let (Some((at, LayerSpec::Onnx(spec))), None) = (active.next(), active.next()) else { return Ok(None) };
    let mut imported = spec.build()?;
    let values: BTreeMap<String, Param> = model.layers.layers[at].named_parameters().into_iter().collect();
    let mut set = |name: &str, param: &mut Param| values.get(name).map_or(Ok(()), |value| param.set(value.tensor()));
    imported.visit_mut(&mut ParamVisitorMut::new(&mut set))?;
    Ok(Some(imported))
}

/// Writes a network in evaluation mode: dropout is the identity, norms use their running statistics. The input is named `input`, the output
/// `output`. The file is written atomically.
///
/// A network that needs [`MAX_BYTES`] or more is written as two files. The parameters are ONNX *external data* in the same folder, in a
/// file with the first one's name and the extension `.data` appended. The first file refers to the second by this name.
///
/// # Errors
/// If a file cannot be written, or a layer has no counterpart in ONNX.
#[doc(alias = "torch.onnx.export")]
pub fn export(model: &Model, path: &Path) -> Result<Saved> {
    export_with_options(model, path, &ExportOptions::default())
}

/// Options of [`export_with_options`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportOptions {
    /// The parameters go to a second file if one file would be larger than this many bytes; [`MAX_BYTES`] at most.
    pub max_bytes: u64,
    /// Entries of the file's `metadata_props`, such as the names of the classes.
    pub metadata: BTreeMap<String, String>,
}

impl Default for ExportOptions {
    fn default() -> ExportOptions {
        ExportOptions { max_bytes: MAX_BYTES, metadata: BTreeMap::new() }
    }
}

/// [`export`] with options.
///
/// # Errors
/// As for [`export`].
pub fn export_with_options(model: &Model, path: &Path, options: &ExportOptions) -> Result<Saved> {
    if let Some(imported) = imported(model)? {
        return imported.save(path, &options.metadata);
    }
    let (mut graph, value, lengths) = graph_of(model)?;
    options.metadata.iter().for_each(|(key, text)| graph.metadata(key, text));
    let output = (&value[..], &lengths[..]);
    if graph.bytes() <= options.max_bytes.min(MAX_BYTES) {
        let mut file = WholeFile::create(path)?;
        graph.finish(output, Data::Inside, &mut |part: &[u8]| file.write(part), &mut |_: &[u8]| Ok(()))?;
        let bytes = file.bytes();
        file.commit()?;
        return Ok(Saved { bytes, data: None, opset: OPSET });
    }
    let (location, data) = (location(path)?, data_path(path));
    let (mut file, mut second) = (WholeFile::create(path)?, WholeFile::create(&data)?);
    let write = &mut |part: &[u8]| file.write(part);
    graph.finish(output, Data::Beside(&location), write, &mut |part: &[u8]| second.write(part))?;
    let saved = Saved { bytes: file.bytes(), data: Some((data, second.bytes())), opset: OPSET };
    // Both files must be on disk before either is renamed.
    file.sync()?;
    second.commit()?;
    file.commit()?;
    Ok(saved)
}

/// Returns the bytes of an ONNX file.
///
/// # Errors
/// If there are [`MAX_BYTES`] or more, which [`export`] writes as two files, or a layer has no counterpart in ONNX.
pub fn to_bytes(model: &Model) -> Result<Vec<u8>> {
    if let Some(imported) = imported(model)? {
        return imported.to_bytes(&BTreeMap::new());
    }
    let (graph, value, lengths) = graph_of(model)?;
    if graph.bytes() > MAX_BYTES {
        let message =
            format!("an ONNX file must be smaller than 2 GiB, but this network needs {} bytes", graph.bytes());
        return Err(Error::mistake(message).note("`onnx::export` writes the parameters to a second file"));
    }
    let mut bytes = Vec::new();
    let mut write = |part: &[u8]| {
        bytes.extend_from_slice(part);
        Ok(())
    };
    graph.finish((&value, &lengths), Data::Inside, &mut write, &mut |_| Ok(()))?;
    Ok(bytes)
}

impl Imported {
    /// Writes a file with the values of the parameters, and with these entries of `metadata_props`. It is written atomically.
    ///
    /// # Errors
    /// If the file cannot be written, or would be larger than [`MAX_BYTES`].
    pub fn save(&self, path: &Path, metadata: &BTreeMap<String, String>) -> Result<Saved> {
        let bytes = self.to_bytes(metadata)?;
        if bytes.len() as u64 > MAX_BYTES {
            let message =
                format!("an ONNX file must be smaller than 2 GiB, but this network needs {} bytes", bytes.len());
            return Err(Error::unsupported(message));
        }
        let mut file = WholeFile::create(path)?;
        file.write(&bytes)?;
        file.commit()?;
        Ok(Saved { bytes: bytes.len() as u64, data: None, opset: self.info.opset })
    }
}

/// Returns the path of the second file of [`export`]: `path` with `.data` appended.
pub fn data_path(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".data");
    path.with_file_name(name)
}

/// Returns the name of the second file, as the first one stores it.
///
/// # Errors
/// If `path` is a link, a pipe or a device, so that a second file cannot be put beside it, or its name is not UTF-8.
fn location(path: &Path) -> Result<String> {
    let plain = std::fs::symlink_metadata(path).map_or(true, |file| file.is_file());
    let name = data_path(path).file_name().and_then(|name| name.to_str()).filter(|_| plain).map(str::to_string);
    name.ok_or_else(|| {
        let message = format!("cannot write {}: this network needs a second file beside it", path.display());
        Error::mistake(message).note("use a path to a regular file with a UTF-8 name, not a link, a pipe or a device")
    })
}

/// Returns the network's graph, the name of its output, and the output shape without the batch.
fn graph_of(model: &Model) -> Result<(Graph, String, Vec<usize>)> {
    let mut shapes = model.network.layer_shapes()?;
    let mut graph = Graph::new(&model.network.input);
    let params: BTreeMap<String, Tensor> =
        model.named_parameters().into_iter().map(|(name, param)| (name, param.tensor().cast(DType::F32))).collect();
    let mut value = "input".to_string();
    for (at, layer) in model.network.layers.iter().enumerate() {
        let mut writer = layers::Writer { graph: &mut graph, params: &params, place: at.to_string(), count: 0 };
        value = writer.write(layer, &shapes[at], &value)?;
    }
    if !graph.buffers().is_empty() {
        graph.metadata(BUFFERS, &serde_json::json!(graph.buffers()).to_string());
    }
    Ok((graph, value, shapes.pop().unwrap_or_default()))
}
