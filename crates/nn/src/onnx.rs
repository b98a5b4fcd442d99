//! Networks as ONNX files. [`export`] writes opset 17 with a free batch and f32 parameters; [`Imported`] reads the files of others.
//!
//! [`proto`] writes the bytes, [`layers`] says each layer in ONNX's operators, [`read`] parses files. Nothing of the file format is known elsewhere.

mod layers;
mod proto;
mod read;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use panoply_tensor::{DType, Error, Result, Tensor};

use crate::checkpoint::WholeFile;
use crate::module::Module;
use crate::network::Model;
use proto::{Data, Graph};
pub use read::{Imported, Input};

/// The most bytes of an ONNX file: a message of Protocol Buffers is smaller than 2 GiB.
pub const MAX_BYTES: u64 = i32::MAX as u64;

/// What [`export`] wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saved {
    /// Bytes of the file.
    pub bytes: u64,
    /// The second file, which holds the parameters if there is one, and its bytes.
    pub data: Option<(PathBuf, u64)>,
}

/// Writes a network as it is in use: dropout does nothing, norms use their running statistics. The input is called `input`, the
/// output `output`. The file appears whole or not at all.
///
/// A network that needs [`MAX_BYTES`] or more is written as two files: the parameters are ONNX's *external data*, in a file that is called as
/// the first one with `.data` behind, in the same folder. Both belong together under these names.
///
/// # Errors
/// If a file cannot be written, or a layer has no counterpart in ONNX.
pub fn export(model: &Model, path: &Path) -> Result<Saved> {
    save_within(model, path, MAX_BYTES)
}

/// [`export`] with the parameters in a second file from fewer bytes on: if one file would be larger than `max_bytes`.
pub fn save_within(model: &Model, path: &Path, max_bytes: u64) -> Result<Saved> {
    let (graph, value, lengths) = graph_of(model)?;
    let output = (&value[..], &lengths[..]);
    if graph.bytes() <= max_bytes.min(MAX_BYTES) {
        let mut file = WholeFile::create(path)?;
        graph.finish(output, Data::Inside, &mut |part: &[u8]| file.write(part), &mut |_: &[u8]| Ok(()))?;
        let bytes = file.bytes();
        file.commit()?;
        return Ok(Saved { bytes, data: None });
    }
    let (location, data) = (location(path)?, data_path(path));
    let (mut file, mut second) = (WholeFile::create(path)?, WholeFile::create(&data)?);
    let write = &mut |part: &[u8]| file.write(part);
    graph.finish(output, Data::Beside(&location), write, &mut |part: &[u8]| second.write(part))?;
    let saved = Saved { bytes: file.bytes(), data: Some((data, second.bytes())) };
    // Both are on the disk before either has its name.
    file.sync()?;
    second.commit()?;
    file.commit()?;
    Ok(saved)
}

/// The bytes of such a file.
///
/// # Errors
/// If there are [`MAX_BYTES`] or more; [`export`] writes them as two files.
pub fn to_bytes(model: &Model) -> Result<Vec<u8>> {
    let (graph, value, lengths) = graph_of(model)?;
    if graph.bytes() > MAX_BYTES {
        let message = format!("an ONNX file holds less than 2 GiB, and this network needs {} bytes", graph.bytes());
        return Err(Error::mistake(message).note("`onnx::save` puts its parameters into a second file"));
    }
    let mut bytes = Vec::new();
    let mut write = |part: &[u8]| {
        bytes.extend_from_slice(part);
        Ok(())
    };
    graph.finish((&value, &lengths), Data::Inside, &mut write, &mut |_| Ok(()))?;
    Ok(bytes)
}

/// Where [`export`] puts the parameters that the file at `path` has no room for: `.data` is added to its name.
pub fn data_path(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".data");
    path.with_file_name(name)
}

/// The name of the second file as the first one holds it.
///
/// # Errors
/// If `path` is a link, a pipe or a device, beside which there is no place for a second file, or its name is not UTF-8.
fn location(path: &Path) -> Result<String> {
    let plain = std::fs::symlink_metadata(path).map_or(true, |file| file.is_file());
    let name = data_path(path).file_name().and_then(|name| name.to_str()).filter(|_| plain).map(str::to_string);
    name.ok_or_else(|| {
        let message = format!("cannot write {}: this network needs a second file beside it", path.display());
        Error::mistake(message).note("name a file in a folder, not a link, a pipe or a device, in UTF-8")
    })
}

/// The network's operators, the name of what comes out, and its lengths behind the batch.
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
    Ok((graph, value, shapes.pop().unwrap_or_default()))
}
