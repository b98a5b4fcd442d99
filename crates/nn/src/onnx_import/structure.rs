//! The bytes of a model without the values of its parameters, and the model with other values.
//!
//! Fields that do not affect results, such as documentation and the types of inner values, are left out.

use std::collections::BTreeMap;

use super::message::{self, Parsed, raw_fields};
use super::onnx_proto as proto;
use super::wire::{Message, described_constant};
use super::{Memory, external};

/// Key of the metadata that lists the constants that are not trained, in JSON.
pub const BUFFERS: &str = "panoply.buffers";

/// Returns a model without the values of the constants for which `is_param` is true. Constants in other files are embedded.
pub fn without_values(bytes: &[u8], is_param: impl Fn(&str) -> bool, memory: &Memory<'_>) -> Parsed<Vec<u8>> {
    let initializer = |raw: &[u8]| {
        let tensor = message::tensor(raw, memory)?;
        let lengths =
            tensor.dims.iter().map(|dim| usize::try_from(*dim).map_err(|_| "a shape is negative".to_string()));
        let described = described_constant(&tensor.name, &lengths.collect::<Parsed<Vec<usize>>>()?, tensor.kind);
        Ok(match is_param(&tensor.name) {
            true => Some(described),
            false if tensor.external => {
                Some(described.bytes(proto::tensor::RAW_DATA, &external::bytes(&tensor, memory)?))
            }
            false => None,
        })
    };
    rewritten(bytes, initializer, memory)
}

/// Returns a model with the values of its parameters, which `value` returns by name, and with metadata.
///
/// # Errors
/// If the model cannot be parsed.
pub fn with_values(
    structure: &[u8],
    values: &BTreeMap<String, Vec<u8>>,
    metadata: &BTreeMap<String, String>,
    memory: &Memory<'_>,
) -> Parsed<Vec<u8>> {
    let initializer = |raw: &[u8]| {
        let tensor = message::tensor(raw, memory)?;
        let filled = |bytes: &Vec<u8>| Message::default().fields(raw).bytes(proto::tensor::RAW_DATA, bytes);
        Ok(values.get(&tensor.name).map(filled))
    };
    let model = rewritten(structure, initializer, memory)?;
    let entry = |model: Message, (key, value): (&String, &String)| {
        let entry = Message::default().text(proto::entry::KEY, key).text(proto::entry::VALUE, value);
        model.message(proto::model::METADATA_PROPS, &entry)
    };
    Ok(metadata.iter().fold(Message(model), entry).0)
}

/// Copies a model; `initializer` returns the replacement of a constant, or `None` to keep it.
fn rewritten(
    bytes: &[u8],
    mut initializer: impl FnMut(&[u8]) -> Parsed<Option<Message>>,
    memory: &Memory<'_>,
) -> Parsed<Vec<u8>> {
    let mut model = Message::default();
    raw_fields(bytes, |number, field, raw| {
        match number {
            proto::model::GRAPH => {
                let graph = graph(field.bytes()?, &mut initializer, memory)?;
                model = std::mem::take(&mut model).message(proto::model::GRAPH, &graph);
            }
            proto::model::METADATA_PROPS if message::entry(field.bytes()?, memory)?.0 == BUFFERS => model.0.extend(raw),
            proto::model::IR_VERSION
            | proto::model::PRODUCER_NAME
            | proto::model::PRODUCER_VERSION
            | proto::model::OPSET_IMPORT
            | proto::model::FUNCTIONS => model.0.extend(raw),
            _ => {}
        }
        Ok(())
    })?;
    Ok(model.0)
}

fn graph(
    bytes: &[u8],
    initializer: &mut impl FnMut(&[u8]) -> Parsed<Option<Message>>,
    memory: &Memory<'_>,
) -> Parsed<Message> {
    let mut graph = Message::default();
    raw_fields(bytes, |number, field, raw| {
        match number {
            proto::graph::NODE => {
                let mut node = Message::default();
                raw_fields(field.bytes()?, |number, _, raw| {
                    // Documentation and metadata.
                    if ![proto::node::DOC_STRING, proto::node::METADATA_PROPS].contains(&number) {
                        node.0.extend(raw);
                    }
                    Ok(())
                })?;
                memory.take(node.0.len())?;
                graph = std::mem::take(&mut graph).message(proto::graph::NODE, &node);
            }
            proto::graph::INITIALIZER => match initializer(field.bytes()?)? {
                Some(tensor) => graph = std::mem::take(&mut graph).message(proto::graph::INITIALIZER, &tensor),
                None => {
                    memory.take(raw.len())?;
                    graph.0.extend(raw);
                }
            },
            proto::graph::NAME | proto::graph::INPUT | proto::graph::OUTPUT => graph.0.extend(raw),
            _ => {}
        }
        Ok(())
    })?;
    Ok(graph)
}
