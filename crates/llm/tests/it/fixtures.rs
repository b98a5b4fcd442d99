//! Reads the fixtures.

use std::collections::BTreeMap;
use std::path::PathBuf;

use panoply_tensor::Device;
use safetensors::SafeTensors;

pub fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// The bytes of every array of a fixture with its shape.
pub fn arrays(name: &str) -> BTreeMap<String, (Vec<usize>, Vec<u8>)> {
    let bytes = std::fs::read(path(name)).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    file.iter().map(|(name, view)| (name.to_string(), (view.shape().to_vec(), view.data().to_vec()))).collect()
}

pub fn f32s(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|word| f32::from_le_bytes(word.try_into().unwrap())).collect()
}

pub fn ids(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
}

/// Every device of this machine.
pub fn devices() -> Vec<Device> {
    panoply_runtime::device_report().expect("the environment is in order").devices().cloned().collect()
}
