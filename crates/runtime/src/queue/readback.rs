//! Asynchronous copies to the host.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};

use panoply_device::Ticket;
use panoply_ir::{Element, Error, ErrorKind, Result};

use super::waker::Waiting;
use crate::memory::storage::Storage;

/// A pending copy to the host: call [`Readback::wait`] for the elements or `.await` them.
#[must_use = "the copied elements are returned only here"]
pub struct Readback<T> {
    ticket: Ticket,
    /// Keeps the memory alive until the copy completes.
    source: Storage,
    waiting: Waiting,
    elements: PhantomData<T>,
}

impl<T: Element> Readback<T> {
    pub(crate) fn new(ticket: Ticket, source: Storage) -> Readback<T> {
        Readback { ticket, source, waiting: Waiting::default(), elements: PhantomData }
    }

    /// Returns true if the copy is complete.
    ///
    /// # Errors
    /// The copy failed.
    pub fn is_done(&self) -> Result<bool> {
        self.ticket.poll()
    }

    /// Waits for the copy and returns the elements.
    ///
    /// # Errors
    /// The copy failed.
    pub fn wait(self) -> Result<Vec<T>> {
        self.take()
    }

    fn take(&self) -> Result<Vec<T>> {
        let bytes = self.ticket.take()?;
        if bytes.len() as u64 != self.source.bytes() {
            let (have, want, device) = (bytes.len(), self.source.bytes(), self.source.device());
            let message =
                format!("{device} returned {have} bytes for a read of {want}; a readback returns its bytes only once");
            return Err(Error::new(ErrorKind::Driver, message));
        }
        Ok(T::from_bytes(&bytes))
    }
}

impl<T: Element> Future for Readback<T> {
    type Output = Result<Vec<T>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Vec<T>>> {
        let ticket = self.ticket.clone();
        match self.waiting.poll(&ticket, context) {
            Poll::Ready(Ok(())) => Poll::Ready(self.take()),
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => Poll::Pending,
        }
    }
}

// No field is structurally pinned.
impl<T> Unpin for Readback<T> {}

impl<T> fmt::Debug for Readback<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Readback({:?} of {:?})", self.ticket, self.source)
    }
}
