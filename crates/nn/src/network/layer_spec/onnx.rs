//! Description of an imported ONNX network as a layer.

use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use panoply_tensor::{Device, Error, Result};
use serde::{Deserialize, Serialize};

use crate::onnx_import::{self, Imported};

/// An ONNX network without the values of its parameters. In files it is the ONNX model in base64.
#[derive(Clone, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct OnnxSpec {
    structure: Arc<[u8]>,
    /// Number of parameters and buffers.
    pub(crate) arrays: u128,
    /// Number of their elements.
    pub(crate) numel: u128,
}

impl OnnxSpec {
    /// Describes a network.
    ///
    /// # Errors
    /// If a constant of a nested graph is in another file.
    pub fn of(imported: &Imported) -> Result<OnnxSpec> {
        OnnxSpec::new(imported.structure().clone())
    }

    fn new(structure: Arc<[u8]>) -> Result<OnnxSpec> {
        let [arrays, numel] = onnx_import::size(&structure)?;
        Ok(OnnxSpec { structure, arrays, numel })
    }

    /// Returns true if it describes this network.
    pub fn is_of(&self, imported: &Imported) -> bool {
        self.structure == *imported.structure()
    }

    /// Returns the network on the current device, with parameters of zeros.
    ///
    /// # Errors
    /// If the model is invalid or not supported.
    pub fn build(&self) -> Result<Imported> {
        Imported::from_structure(&self.structure)
    }

    /// Returns the output shape for an input shape, both without the batch. The graph is traced on the CPU, not computed.
    pub(crate) fn output(&self, input: &[usize]) -> Result<Vec<usize>> {
        let shape = || self.build()?.output_shape(input);
        // A browser has no such device.
        Device::get("cpu").map_or_else(|_| shape(), |cpu| cpu.scope(shape))
    }
}

impl fmt::Debug for OnnxSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OnnxSpec { structure, arrays, numel } = self;
        write!(f, "OnnxSpec({} bytes, {arrays} arrays of {numel} elements)", structure.len())
    }
}

impl PartialEq for OnnxSpec {
    fn eq(&self, other: &OnnxSpec) -> bool {
        self.structure == other.structure
    }
}

impl From<OnnxSpec> for String {
    fn from(spec: OnnxSpec) -> String {
        STANDARD.encode(&spec.structure)
    }
}

impl TryFrom<String> for OnnxSpec {
    type Error = Error;

    fn try_from(text: String) -> Result<OnnxSpec> {
        let bytes = STANDARD.decode(text);
        OnnxSpec::new(bytes.map_err(|error| Error::corrupt(format!("the ONNX network is not base64: {error}")))?.into())
    }
}
