//! Elements on their way to the host.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};

use panoply_device::Ticket;
use panoply_ir::{Element, Error, ErrorKind, Result};

use super::waker::Waiting;
use crate::memory::storage::Storage;

/// A copy to the host that is under way: [`Readback::wait`] for the elements or `.await` them.
#[must_use = "the elements arrive here and nowhere else"]
pub struct Readback<T> {
    ticket: Ticket,
    /// Keeps the memory until the copy is done.
    source: Storage,
    waiting: Waiting,
    elements: PhantomData<T>,
}

impl<T: Element> Readback<T> {
    pub(crate) fn new(ticket: Ticket, source: Storage) -> Readback<T> {
        Readback { ticket, source, waiting: Waiting::default(), elements: PhantomData }
    }

    /// Whether the elements are here; the failure if the copy failed.
    pub fn is_done(&self) -> Result<bool> {
        self.ticket.poll()
    }

    /// Waits for the elements.
    pub fn wait(self) -> Result<Vec<T>> {
        self.take()
    }

    fn take(&self) -> Result<Vec<T>> {
        let bytes = self.ticket.take()?;
        if bytes.len() as u64 != self.source.bytes() {
            let (have, want, device) = (bytes.len(), self.source.bytes(), self.source.device());
            let message =
                format!("{device} answered a read of {want} bytes with {have}; a reading gives its bytes once");
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

// Nothing in it is pinned: all fields may move.
impl<T> Unpin for Readback<T> {}

impl<T> fmt::Debug for Readback<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reading({:?} of {:?})", self.ticket, self.source)
    }
}
