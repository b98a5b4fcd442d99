//! Typed device memory.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Bound, Deref, DerefMut, RangeBounds};

use panoply_ir::{Element, Error, Result};

use super::storage::Storage;
use crate::device::Device;
use crate::queue::Queue;
use crate::queue::readback::Readback;

/// A typed buffer on a device with a single owner, like a `Vec`; `&` and `&mut` mean the same as for host memory.
///
/// Kernels take `&Buffer<T>` to read and `&mut Buffer<T>` to write. The borrow replaces the read-only and write-only flags of other
/// interfaces; the compiler checks it, and each launch checks it against the kernel's accesses. The memory belongs to the device and
/// the host accesses it only by copies. [`Device::zeros`] fills it, [`Device::buffer`] copies into it, [`Device::empty`] leaves it
/// undefined.
///
/// ```
/// use panoply_runtime::Device;
///
/// let device = Device::get("cpu")?;
/// let mut x = device.buffer(&[1.0f32, 2.0, 3.0])?;
/// x.slice_mut(1..)?.write(&[5.0, 6.0])?;
/// assert_eq!(x.to_vec()?, [1.0, 5.0, 6.0]);
/// # Ok::<(), panoply_runtime::Error>(())
/// ```
pub struct Buffer<T> {
    storage: Storage,
    len: usize,
    elements: PhantomData<T>,
}

impl<T: Element> Buffer<T> {
    /// Interprets a storage as elements of type `T`.
    ///
    /// # Errors
    /// The storage is not aligned to `T` or not a whole number of elements.
    pub fn from_storage(storage: Storage) -> Result<Buffer<T>> {
        let size = size_of::<T>() as u64;
        if !storage.bytes().is_multiple_of(size) || !storage.offset().is_multiple_of(size) {
            let (bytes, offset) = (storage.bytes(), storage.offset());
            return Err(Error::mistake(format!(
                "{bytes} bytes at offset {offset} are not a whole number of aligned {} elements of {size} bytes",
                T::DTYPE
            )));
        }
        let len = usize::try_from(storage.bytes() / size)
            .map_err(|_| Error::mistake(format!("{} bytes exceed this host's address space", storage.bytes())))?;
        Ok(Buffer { storage, len, elements: PhantomData })
    }

    pub(crate) fn empty(device: &Device, len: usize) -> Result<Buffer<T>> {
        let bytes = (len as u64).checked_mul(size_of::<T>() as u64);
        let bytes = bytes.ok_or_else(|| Error::mistake(format!("{len} elements of {} exceed 64 bits", T::DTYPE)))?;
        Buffer::from_storage(Storage::allocate(device, bytes)?)
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if the buffer has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the buffer's device.
    pub fn device(&self) -> &Device {
        self.storage.device()
    }

    /// Returns the underlying untyped storage.
    pub fn storage(&self) -> &Storage {
        &self.storage
    }

    /// Converts the buffer into its untyped storage.
    pub fn into_storage(self) -> Storage {
        self.storage
    }

    /// Copies `data`, of equal length, into the buffer. `data` can be reused on return.
    ///
    /// # Errors
    /// The lengths differ, or the device rejects the copy.
    #[track_caller]
    pub fn write(&mut self, data: &[T]) -> Result<()> {
        self.write_on(&self.device().default_queue(), data)
    }

    /// Like [`Buffer::write`], in the order of a queue.
    ///
    /// # Errors
    /// As of [`Buffer::write`], or the queue belongs to another device.
    #[track_caller]
    pub fn write_on(&mut self, queue: &Queue, data: &[T]) -> Result<()> {
        self.same_length("write", data.len())?;
        queue.write(&self.storage, bytemuck::cast_slice(data))
    }

    /// Waits for all work that writes the buffer and copies its elements to the host.
    ///
    /// # Errors
    /// The work that writes the buffer failed, or the copy did.
    pub fn to_vec(&self) -> Result<Vec<T>> {
        let mut data = bytemuck::allocation::zeroed_vec(self.len);
        T::read_into(&mut data, |bytes| self.storage.read_bytes(bytes))?;
        Ok(data)
    }

    /// Waits for all work that writes the buffer and copies its elements into `data`, of equal length.
    ///
    /// # Errors
    /// The lengths differ, or the work that writes the buffer failed, or the copy did.
    #[track_caller]
    pub fn read_into(&self, data: &mut [T]) -> Result<()> {
        self.same_length("read", data.len())?;
        T::read_into(data, |bytes| self.storage.read_bytes(bytes))
    }

    /// Starts copying the elements to the host; wait for the result or `.await` it.
    ///
    /// # Errors
    /// The work that writes the buffer failed, or the device rejects the copy.
    pub fn read_async(&self) -> Result<Readback<T>> {
        self.read_async_on(&self.device().default_queue())
    }

    /// Like [`Buffer::read_async`], in the order of a queue.
    ///
    /// # Errors
    /// As of [`Buffer::read_async`], or the queue belongs to another device.
    pub fn read_async_on(&self, queue: &Queue) -> Result<Readback<T>> {
        queue.read(&self.storage)
    }

    /// Sets every element to `value`.
    ///
    /// # Errors
    /// The device rejects the command.
    pub fn fill(&mut self, value: T) -> Result<()> {
        self.device().default_queue().fill(&self.storage, bytemuck::bytes_of(&value))
    }

    /// Copies another buffer of equal length into this one. A copy from another device is direct if both belong to the CUDA driver or
    /// both to the ROCm driver; otherwise it passes through the host.
    ///
    /// # Errors
    /// The lengths differ, the buffers overlap, or the copy failed.
    #[track_caller]
    pub fn copy_from(&mut self, from: &Buffer<T>) -> Result<()> {
        self.same_length("copy", from.len)?;
        self.storage.copy_from(&from.storage)
    }

    /// Returns a copy of the buffer on the given device, which can be the same one.
    ///
    /// # Errors
    /// Out of memory, or the copy failed.
    pub fn to(&self, device: &Device) -> Result<Buffer<T>> {
        Buffer::from_storage(self.storage.to(device)?)
    }

    /// Returns a view of a range of elements for reading.
    ///
    /// # Errors
    /// The range exceeds the buffer.
    #[track_caller]
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<BufferSlice<'_, T>> {
        Ok(BufferSlice { buffer: self.part(range)?, source: PhantomData })
    }

    /// Returns a view of a range of elements for writing.
    ///
    /// # Errors
    /// The range exceeds the buffer.
    #[track_caller]
    pub fn slice_mut(&mut self, range: impl RangeBounds<usize>) -> Result<BufferSliceMut<'_, T>> {
        Ok(BufferSliceMut { buffer: self.part(range)?, source: PhantomData })
    }

    /// Splits the buffer at an index into two views for writing.
    ///
    /// # Errors
    /// The index exceeds the length.
    #[track_caller]
    pub fn split_at_mut(&mut self, middle: usize) -> Result<(BufferSliceMut<'_, T>, BufferSliceMut<'_, T>)> {
        let (left, right) = (self.part(..middle)?, self.part(middle..)?);
        Ok((
            BufferSliceMut { buffer: left, source: PhantomData },
            BufferSliceMut { buffer: right, source: PhantomData },
        ))
    }

    #[track_caller]
    fn part(&self, range: impl RangeBounds<usize>) -> Result<Buffer<T>> {
        let start = match range.start_bound() {
            Bound::Included(&start) => start,
            Bound::Excluded(&before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&last) => last.saturating_add(1),
            Bound::Excluded(&end) => end,
            Bound::Unbounded => self.len,
        };
        if start > end || end > self.len {
            let message = format!("elements {start}..{end} are not within a buffer of {}", self.len);
            return Err(Error::mistake(message).with_location(std::panic::Location::caller()));
        }
        let size = size_of::<T>() as u64;
        Buffer::from_storage(self.storage.slice(start as u64 * size..end as u64 * size)?)
    }

    #[track_caller]
    fn same_length(&self, what: &str, other: usize) -> Result<()> {
        if self.len == other {
            return Ok(());
        }
        let message = format!(
            "{what}: a buffer of {} elements, but {other} elements given; take a slice of the longer one",
            self.len
        );
        Err(Error::mistake(message).with_location(std::panic::Location::caller()))
    }
}

/// Types that can be passed to a kernel as a buffer to read: a buffer, a slice of one, or a pointer to either.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a buffer of `{T}`",
    label = "kernels take `Buffer<{T}>` or a slice of one",
    note = "`device.buffer(&data)?` copies host data to a device"
)]
pub trait AsBuffer<T> {
    /// Returns the buffer.
    fn as_buffer(&self) -> &Buffer<T>;
}

/// Types that can be passed to a kernel as a buffer to write.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a buffer of `{T}` that can be written",
    label = "kernels take `Buffer<{T}>` or `buffer.slice_mut(…)?`",
    note = "`device.buffer(&data)?` copies host data to a device"
)]
pub trait AsBufferMut<T>: AsBuffer<T> {
    /// Returns the buffer.
    fn as_buffer_mut(&mut self) -> &mut Buffer<T>;
}

impl<T> AsBuffer<T> for Buffer<T> {
    fn as_buffer(&self) -> &Buffer<T> {
        self
    }
}

impl<T> AsBufferMut<T> for Buffer<T> {
    fn as_buffer_mut(&mut self) -> &mut Buffer<T> {
        self
    }
}

impl<T, P: Deref<Target: AsBuffer<T>>> AsBuffer<T> for P {
    fn as_buffer(&self) -> &Buffer<T> {
        (**self).as_buffer()
    }
}

impl<T, P: DerefMut<Target: AsBufferMut<T>>> AsBufferMut<T> for P {
    fn as_buffer_mut(&mut self) -> &mut Buffer<T> {
        (**self).as_buffer_mut()
    }
}

impl<T: Element> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}] on {}", T::DTYPE, self.len, self.device())
    }
}

/// A view of a range of a buffer's elements for reading.
pub struct BufferSlice<'a, T> {
    buffer: Buffer<T>,
    source: PhantomData<&'a Buffer<T>>,
}

/// A view of a range of a buffer's elements for writing.
pub struct BufferSliceMut<'a, T> {
    buffer: Buffer<T>,
    source: PhantomData<&'a mut Buffer<T>>,
}

impl<T> Deref for BufferSlice<'_, T> {
    type Target = Buffer<T>;

    fn deref(&self) -> &Buffer<T> {
        &self.buffer
    }
}

impl<T> Deref for BufferSliceMut<'_, T> {
    type Target = Buffer<T>;

    fn deref(&self) -> &Buffer<T> {
        &self.buffer
    }
}

impl<T> DerefMut for BufferSliceMut<'_, T> {
    fn deref_mut(&mut self) -> &mut Buffer<T> {
        &mut self.buffer
    }
}
