//! Untyped, reference-counted device memory.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, RwLock};

use panoply_device::{AllocId, HostBytes, Region};
use panoply_ir::kernel::Access;
use panoply_ir::{Error, Result};

use super::pool::PoolAllocation;
use crate::device::Device;
use crate::queue::hazard::Uses;

/// A range of bytes of a device allocation. Clones and slices share the memory; dropping the last one returns it to the pool.
///
/// Pending work stays valid after the drop: memory is reused in queue order. If one thread writes through a handle while another
/// submits work on the same bytes, their order is unspecified, but each access is atomic as a whole.
#[derive(Clone)]
pub struct Storage {
    block: Arc<Block>,
    offset: u64,
    bytes: u64,
}

/// An allocation.
struct Block {
    device: Device,
    memory: Memory,
    uses: Mutex<Uses>,
    /// Locked during submissions that access the bytes; see [`super::access`].
    access: RwLock<()>,
}

/// Owner of the memory of an allocation.
enum Memory {
    /// `Some` until drop.
    Pool(Option<PoolAllocation>),
    /// Host memory of this many bytes that the device uses in place.
    Host(AllocId, u64),
}

impl Drop for Block {
    fn drop(&mut self) {
        match &mut self.memory {
            Memory::Pool(grant) => {
                let mut grant = grant.take().expect("a block has its allocation until drop");
                let uses = self.uses.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
                grant.uses = std::mem::take(uses);
                self.device.pool().release(grant);
            }
            Memory::Host(alloc, bytes) => {
                self.device.raw().free(*alloc);
                self.device.count_in_place(-(*bytes as i64));
            }
        }
    }
}

impl Storage {
    pub(crate) fn allocate(device: &Device, bytes: u64) -> Result<Storage> {
        let mut grant = device.pool().allocate(bytes)?;
        let uses = Mutex::new(std::mem::take(&mut grant.uses));
        let memory = Memory::Pool(Some(grant));
        let block = Block { device: device.clone(), memory, uses, access: RwLock::default() };
        Ok(Storage { block: Arc::new(block), offset: 0, bytes })
    }

    pub(crate) fn adopt(device: &Device, host: &Arc<HostBytes>) -> Result<Option<Storage>> {
        let Some(alloc) = device.raw().adopt(host)? else { return Ok(None) };
        let bytes = host.as_slice().len() as u64;
        device.count_in_place(bytes as i64);
        let memory = Memory::Host(alloc, bytes);
        let block = Block { device: device.clone(), memory, uses: Mutex::default(), access: RwLock::default() };
        Ok(Some(Storage { block: Arc::new(block), offset: 0, bytes }))
    }

    /// Returns true for host memory that the device uses in place: it cannot be written.
    pub fn is_read_only(&self) -> bool {
        matches!(self.block.memory, Memory::Host(..))
    }

    /// Returns the device.
    pub fn device(&self) -> &Device {
        &self.block.device
    }

    /// Returns the length in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the offset in bytes from the start of the allocation.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns a sub-range of the same memory.
    ///
    /// # Errors
    /// The range exceeds the storage.
    pub fn slice(&self, range: Range<u64>) -> Result<Storage> {
        if range.start > range.end || range.end > self.bytes {
            let message = format!("bytes {}..{} are not within a storage of {}", range.start, range.end, self.bytes);
            return Err(Error::mistake(message));
        }
        let offset = self.offset + range.start;
        Ok(Storage { block: self.block.clone(), offset, bytes: range.end - range.start })
    }

    /// Returns the number of handles to the allocation, including this one. A caller that holds them all can overwrite it safely.
    pub fn handle_count(&self) -> usize {
        Arc::strong_count(&self.block)
    }

    /// Returns true if both are the same byte range of one allocation.
    pub fn ptr_eq(&self, other: &Storage) -> bool {
        let place = |storage: &Storage| (Arc::as_ptr(&storage.block), storage.offset, storage.bytes);
        place(self) == place(other)
    }

    /// Returns true if both belong to one allocation and share bytes.
    pub fn overlaps(&self, other: &Storage) -> bool {
        Arc::ptr_eq(&self.block, &other.block)
            && self.offset < other.offset + other.bytes
            && other.offset < self.offset + self.bytes
    }

    pub(crate) fn region(&self) -> Region {
        let alloc = match &self.block.memory {
            Memory::Pool(grant) => grant.as_ref().expect("a block has its allocation until drop").alloc,
            Memory::Host(alloc, _) => *alloc,
        };
        Region { alloc, offset: self.offset, bytes: self.bytes }
    }

    pub(crate) fn access_lock(&self) -> &RwLock<()> {
        &self.block.access
    }

    pub(crate) fn with_uses<R>(&self, work: impl FnOnce(&mut Uses, Range<u64>) -> R) -> R {
        let mut uses = self.block.uses.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        work(&mut uses, self.offset..self.offset + self.bytes)
    }

    /// Copies `bytes`, of equal length, into the storage.
    ///
    /// # Errors
    /// The lengths differ, or the device rejects the copy.
    pub fn write_bytes(&self, bytes: &[u8]) -> Result<()> {
        self.device().default_queue().write(self, bytes)
    }

    /// Copies the storage into `bytes`, of equal length, after all work that writes it.
    ///
    /// # Errors
    /// The lengths differ, or the work that writes the storage failed, or the copy did.
    pub fn read_bytes(&self, bytes: &mut [u8]) -> Result<()> {
        self.device().default_queue().read_into(self, bytes)
    }

    /// Returns the bytes, after all work that writes them.
    ///
    /// # Errors
    /// The work that writes the storage failed, or the copy did.
    pub fn read(&self) -> Result<Vec<u8>> {
        let mut bytes = bytemuck::allocation::zeroed_vec(self.host_len()?);
        self.read_bytes(&mut bytes)?;
        Ok(bytes)
    }

    fn host_len(&self) -> Result<usize> {
        usize::try_from(self.bytes)
            .map_err(|_| Error::mistake(format!("{} bytes exceed this host's address space", self.bytes)))
    }

    /// Returns a copy of the storage on the given device, which can be the same one.
    ///
    /// # Errors
    /// Out of memory, or the copy failed.
    pub fn to(&self, device: &Device) -> Result<Storage> {
        let copy = device.allocate(self.bytes)?;
        copy.copy_from(self)?;
        Ok(copy)
    }

    /// Copies another storage of equal length into this one. A copy from another device is direct if both belong to the CUDA driver or
    /// both to the ROCm driver; otherwise it passes through the host.
    ///
    /// # Errors
    /// The lengths differ, the storages overlap, or the copy failed.
    pub fn copy_from(&self, from: &Storage) -> Result<()> {
        self.device().default_queue().copy(from, self)
    }
}

/// A storage and the type of access to it.
pub(crate) type StorageAccess<'a> = (&'a Storage, Access);

impl fmt::Debug for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Storage({} bytes on {})", self.bytes, self.device())
    }
}
