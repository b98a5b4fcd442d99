//! Networks as ONNX files, for those who run them elsewhere: opset 17, the batch a free size, all numbers f32.
//!
//! [`proto`] writes the bytes, [`layers`] says each layer in ONNX's operators. Nothing of the file format is known elsewhere.

mod layers;
mod proto;

use std::collections::BTreeMap;
use std::path::Path;

use panoply_tensor::{DType, Result, Tensor};

use crate::checkpoint::write_whole;
use crate::module::Module;
use crate::network::Model;
use proto::Graph;

/// Writes a network as it is in use: dropout does nothing, norms use their running statistics. The input is called `input`, the
/// output `output`. The file appears whole or not at all.
pub fn save(model: &Model, path: &Path) -> Result<()> {
    write_whole(path, &to_bytes(model)?)
}

/// The bytes of such a file.
pub fn to_bytes(model: &Model) -> Result<Vec<u8>> {
    let shapes = model.network.shapes()?;
    let mut graph = Graph::new(&model.network.input);
    let params: BTreeMap<String, Tensor> =
        model.named_params().into_iter().map(|(name, param)| (name, param.tensor().cast(DType::F32))).collect();
    let mut value = "input".to_string();
    for (at, layer) in model.network.layers.iter().enumerate() {
        let mut writer = layers::Writer { graph: &mut graph, params: &params, place: at.to_string(), count: 0 };
        value = writer.write(layer, &shapes[at], &value)?;
    }
    Ok(graph.finish(&value, &shapes[shapes.len() - 1]))
}
