//! Untyped device memory with an owner.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, RwLock};

use panoply_device::Region;
use panoply_ir::kernel::Access;
use panoply_ir::{Error, Result};

use super::pool::PoolAllocation;
use crate::device::Device;
use crate::queue::hazard::Uses;

/// Bytes of a device, or a part of them. Clones and slices share the memory; the last to go gives it back to the pool.
///
/// Work submitted before stays valid: memory is reused in the order of the queues. Whoever writes through one handle while
/// another thread submits work that uses the same bytes leaves their order open; but one of the two comes first as a whole.
#[derive(Clone)]
pub struct Storage {
    block: Arc<Block>,
    offset: u64,
    bytes: u64,
}

/// A whole allocation.
struct Block {
    device: Device,
    /// Present until drop.
    grant: Option<PoolAllocation>,
    uses: Mutex<Uses>,
    /// Held while what touches the bytes is submitted; see [`super::access`].
    access: RwLock<()>,
}

impl Drop for Block {
    fn drop(&mut self) {
        if let Some(mut grant) = self.grant.take() {
            let uses = self.uses.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
            grant.uses = std::mem::take(uses);
            self.device.pool().release(grant);
        }
    }
}

impl Storage {
    pub(crate) fn allocate(device: &Device, bytes: u64) -> Result<Storage> {
        let mut grant = device.pool().allocate(bytes)?;
        let uses = Mutex::new(std::mem::take(&mut grant.uses));
        let block = Block { device: device.clone(), grant: Some(grant), uses, access: RwLock::default() };
        Ok(Storage { block: Arc::new(block), offset: 0, bytes })
    }

    /// Where the bytes are.
    pub fn device(&self) -> &Device {
        &self.block.device
    }

    /// How many.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Distance from the start of the allocation.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// A part of the same memory.
    pub fn slice(&self, range: Range<u64>) -> Result<Storage> {
        if range.start > range.end || range.end > self.bytes {
            let message = format!("bytes {}..{} are not within a storage of {}", range.start, range.end, self.bytes);
            return Err(Error::mistake(message));
        }
        let offset = self.offset + range.start;
        Ok(Storage { block: self.block.clone(), offset, bytes: range.end - range.start })
    }

    /// How many handles there are to the allocation, this one among them: whoever holds them all may let it be written over.
    pub fn handle_count(&self) -> usize {
        Arc::strong_count(&self.block)
    }

    /// Whether both are the same bytes of one allocation.
    pub fn ptr_eq(&self, other: &Storage) -> bool {
        let place = |storage: &Storage| (Arc::as_ptr(&storage.block), storage.offset, storage.bytes);
        place(self) == place(other)
    }

    /// Whether both are in one allocation and share bytes.
    pub fn overlaps(&self, other: &Storage) -> bool {
        Arc::ptr_eq(&self.block, &other.block)
            && self.offset < other.offset + other.bytes
            && other.offset < self.offset + self.bytes
    }

    pub(crate) fn region(&self) -> Region {
        let grant = self.block.grant.as_ref().expect("a block keeps its grant until drop");
        Region { alloc: grant.alloc, offset: self.offset, bytes: self.bytes }
    }

    pub(crate) fn access_lock(&self) -> &RwLock<()> {
        &self.block.access
    }

    pub(crate) fn with_uses<R>(&self, work: impl FnOnce(&mut Uses, Range<u64>) -> R) -> R {
        let mut uses = self.block.uses.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        work(&mut uses, self.offset..self.offset + self.bytes)
    }

    /// Copies host bytes, as many as there are here, over these.
    pub fn write_bytes(&self, bytes: &[u8]) -> Result<()> {
        self.device().default_queue().write(self, bytes)
    }

    /// Copies these bytes into as many host bytes.
    pub fn read_bytes(&self, bytes: &mut [u8]) -> Result<()> {
        self.device().default_queue().read_into(self, bytes)
    }

    /// The bytes, on the host.
    pub fn read(&self) -> Result<Vec<u8>> {
        let mut bytes = bytemuck::allocation::zeroed_vec(self.host_len()?);
        self.read_bytes(&mut bytes)?;
        Ok(bytes)
    }

    fn host_len(&self) -> Result<usize> {
        usize::try_from(self.bytes)
            .map_err(|_| Error::mistake(format!("{} bytes are more than this host can address", self.bytes)))
    }

    /// A copy in memory of its own on a device; this one's or another.
    pub fn to(&self, device: &Device) -> Result<Storage> {
        let copy = device.allocate(self.bytes)?;
        copy.copy_from(self)?;
        Ok(copy)
    }

    /// Copies another storage of the same length over this one; from another device directly if both are of one driver of CUDA or ROCm, through
    /// the host otherwise.
    pub fn copy_from(&self, from: &Storage) -> Result<()> {
        self.device().default_queue().copy(from, self)
    }
}

/// A storage and what is done to it.
pub(crate) type Touch<'a> = (&'a Storage, Access);

impl fmt::Debug for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Storage({} bytes on {})", self.bytes, self.device())
    }
}
