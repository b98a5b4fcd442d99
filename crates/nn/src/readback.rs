//! How numbers come back from a device: waited for, or awaited where nothing may wait, as in browsers.
//!
//! What needs them is written once, as a future. Where it waits for all of them it has come to its end when it is polled the first time,
//! which is what [`finished`] does: no executor, no thread, and nothing to wake.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use panoply_tensor::{Result, Tensor};

/// How numbers come back from a device.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WaitMode {
    Blocking,
    Async,
}

impl WaitMode {
    /// The elements of a tensor of f32.
    pub async fn numbers(self, tensor: &Tensor) -> Result<Vec<f32>> {
        match self {
            WaitMode::Blocking => tensor.to_vec(),
            WaitMode::Async => tensor.read_async()?.await,
        }
    }

    /// The only one.
    pub async fn number(self, tensor: &Tensor) -> Result<f64> {
        Ok(f64::from(self.numbers(tensor).await?[0]))
    }
}

/// What comes of a future that waits for all it needs.
pub(crate) fn finished<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => done,
        Poll::Pending => unreachable!("all that it needed was waited for"),
    }
}
