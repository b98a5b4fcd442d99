//! Places: the devices of all ranks, over which the blocks of an array are distributed.

use std::fmt;

use panoply_tensor::Device;

/// A device of a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The rank; 0 without a launcher.
    pub rank: usize,
    /// Number of the device in the scope of the mesh on that rank.
    pub index: usize,
    /// The device, if it belongs to this process.
    pub device: Option<Device>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.device {
            Some(device) => write!(f, "rank {}, {}", self.rank, device.device_string()),
            None => write!(f, "rank {}, device {} of its scope", self.rank, self.index),
        }
    }
}
