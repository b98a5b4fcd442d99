//! Wakes a task when a ticket completes.
//!
//! Most drivers offer blocking waits, not callbacks. If a ticket has no callback, the first poll that finds it pending starts a
//! thread that waits for it and wakes the task that polled last. If no thread can be started, the task is woken at once and polls
//! again.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use panoply_device::Ticket;
use panoply_ir::Result;

/// Wait state of one future.
#[derive(Default)]
pub(crate) struct Waiting(Option<Arc<Mutex<Waker>>>);

impl Waiting {
    pub fn poll(&mut self, ticket: &Ticket, context: &mut Context<'_>) -> Poll<Result<()>> {
        match ticket.poll() {
            Ok(true) => return Poll::Ready(Ok(())),
            Err(error) => return Poll::Ready(Err(error)),
            Ok(false) => {}
        }
        if self.0.is_none() && ticket.wake(context.waker()) {
            return Poll::Pending;
        }
        if let Some(waker) = &self.0 {
            waker.lock().unwrap_or_else(PoisonError::into_inner).clone_from(context.waker());
            // The thread may already have woken the waker that was just replaced.
            return match ticket.poll() {
                Ok(false) => Poll::Pending,
                Ok(true) => Poll::Ready(Ok(())),
                Err(error) => Poll::Ready(Err(error)),
            };
        }
        let waker = Arc::new(Mutex::new(context.waker().clone()));
        let (shared, awaited) = (waker.clone(), ticket.clone());
        let thread = std::thread::Builder::new().name("panoply-wait".into()).spawn(move || {
            // The next poll returns a failure.
            let _ = awaited.wait();
            shared.lock().unwrap_or_else(PoisonError::into_inner).wake_by_ref();
        });
        match thread {
            Ok(_) => self.0 = Some(waker),
            Err(_) => context.waker().wake_by_ref(),
        }
        Poll::Pending
    }
}
