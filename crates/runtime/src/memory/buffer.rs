//! Typed device memory.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Bound, Deref, DerefMut, RangeBounds};

use panoply_ir::{Element, Error, Result};

use super::storage::Storage;
use crate::device::Device;
use crate::queue::Queue;
use crate::queue::readback::Readback;

/// Elements on a device, with one owner as a `Vec` has: what `&` and `&mut` mean for host memory, they mean here.
///
/// Kernels take `&Buffer<T>` to read and `&mut Buffer<T>` to write: what other interfaces have flags for (read-only, write-only) is the
/// borrow here, checked by the compiler and once more, against what the kernel does, at every launch. Memory is the device's own; the
/// host reaches it by copies alone. [`Device::zeros`] fills it, [`Device::buffer`] copies into it, [`Device::empty`] leaves it as it is.
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
    /// The elements of a storage, which must hold a whole number of them at an aligned position.
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
            .map_err(|_| Error::mistake(format!("{} bytes are more than this host can count", storage.bytes())))?;
        Ok(Buffer { storage, len, elements: PhantomData })
    }

    pub(crate) fn undefined(device: &Device, len: usize) -> Result<Buffer<T>> {
        let bytes = (len as u64).checked_mul(size_of::<T>() as u64);
        let bytes = bytes.ok_or_else(|| Error::mistake(format!("{len} elements of {} exceed 64 bits", T::DTYPE)))?;
        Buffer::from_storage(Storage::allocate(device, bytes)?)
    }

    /// How many elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where they are.
    pub fn device(&self) -> &Device {
        self.storage.device()
    }

    /// The bytes behind them.
    pub fn storage(&self) -> &Storage {
        &self.storage
    }

    /// The bytes without their type.
    pub fn into_storage(self) -> Storage {
        self.storage
    }

    /// Copies as many host elements over these. They may be reused at return.
    #[track_caller]
    pub fn write(&mut self, data: &[T]) -> Result<()> {
        self.write_on(&self.device().default_queue(), data)
    }

    /// [`Buffer::write`], in the order of a queue.
    #[track_caller]
    pub fn write_on(&mut self, queue: &Queue, data: &[T]) -> Result<()> {
        self.same_length("write", data.len())?;
        queue.write(&self.storage, bytemuck::cast_slice(data))
    }

    /// The elements, once all work that writes them is done.
    pub fn to_vec(&self) -> Result<Vec<T>> {
        let mut data = bytemuck::allocation::zeroed_vec(self.len);
        T::read_into(&mut data, |bytes| self.storage.read_bytes(bytes))?;
        Ok(data)
    }

    /// Copies the elements over as many of the host's, once all work that writes them is done.
    #[track_caller]
    pub fn read_into(&self, data: &mut [T]) -> Result<()> {
        self.same_length("read", data.len())?;
        T::read_into(data, |bytes| self.storage.read_bytes(bytes))
    }

    /// Starts copying the elements to the host; wait for them or `.await` them.
    pub fn read_async(&self) -> Result<Readback<T>> {
        self.read_async_on(&self.device().default_queue())
    }

    /// [`Buffer::read_async`], in the order of a queue.
    pub fn read_async_on(&self, queue: &Queue) -> Result<Readback<T>> {
        queue.read(&self.storage)
    }

    /// Sets every element.
    pub fn fill(&mut self, value: T) -> Result<()> {
        self.device().default_queue().fill(&self.storage, bytemuck::bytes_of(&value))
    }

    /// Copies another buffer of the same length over this one; from another device directly if both are of one driver of CUDA or ROCm, through
    /// the host otherwise.
    #[track_caller]
    pub fn copy_from(&mut self, from: &Buffer<T>) -> Result<()> {
        self.same_length("copy", from.len)?;
        self.storage.copy_from(&from.storage)
    }

    /// A copy of the elements in memory of its own on a device; this one's or another.
    pub fn to(&self, device: &Device) -> Result<Buffer<T>> {
        Buffer::from_storage(self.storage.to(device)?)
    }

    /// Some of the elements, to read.
    #[track_caller]
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<BufferSlice<'_, T>> {
        Ok(BufferSlice { buffer: self.part(range)?, source: PhantomData })
    }

    /// Some of the elements, to write.
    #[track_caller]
    pub fn slice_mut(&mut self, range: impl RangeBounds<usize>) -> Result<BufferSliceMut<'_, T>> {
        Ok(BufferSliceMut { buffer: self.part(range)?, source: PhantomData })
    }

    /// The elements before and from a position on, to write both.
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
        let message =
            format!("{what}: a buffer of {} elements and {other} elements; take a slice of the longer", self.len);
        Err(Error::mistake(message).with_location(std::panic::Location::caller()))
    }
}

/// What a kernel takes for a buffer to read: a buffer, a slice of one, or a pointer to either.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a buffer of `{T}`",
    label = "kernels take `Buffer<{T}>` or a slice of one",
    note = "`device.buffer(&data)?` copies host data to a device"
)]
pub trait AsBuffer<T> {
    /// The buffer.
    fn as_buffer(&self) -> &Buffer<T>;
}

/// What a kernel takes for a buffer to write.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a buffer of `{T}` that can be written",
    label = "kernels take `Buffer<{T}>` or `buffer.slice_mut(…)?`",
    note = "`device.buffer(&data)?` copies host data to a device"
)]
pub trait AsBufferMut<T>: AsBuffer<T> {
    /// The buffer.
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

/// Some elements of a buffer, to read.
pub struct BufferSlice<'a, T> {
    buffer: Buffer<T>,
    source: PhantomData<&'a Buffer<T>>,
}

/// Some elements of a buffer, to write.
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
