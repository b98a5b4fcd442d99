//! Reading numbers back from a device: blocking, or asynchronous where blocking is not possible, as in browsers.
//!
//! Code that reads back is written once, as a future. In blocking mode the future is ready at the first poll, so [`finished`] needs no
//! executor, thread or waker.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use panoply_tensor::{Result, Tensor};

/// Mode of reading back from a device.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WaitMode {
    Blocking,
    Async,
}

impl WaitMode {
    /// Reads back the elements of an f32 tensor.
    pub async fn numbers(self, tensor: &Tensor) -> Result<Vec<f32>> {
        match self {
            WaitMode::Blocking => tensor.to_vec(),
            WaitMode::Async => tensor.read_async()?.await,
        }
    }

    /// Reads back a tensor with a single element.
    pub async fn number(self, tensor: &Tensor) -> Result<f64> {
        Ok(f64::from(self.numbers(tensor).await?[0]))
    }
}

/// Returns the result of a future that only blocks and never suspends.
pub(crate) fn finished<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => done,
        Poll::Pending => unreachable!("a blocking future is ready at the first poll"),
    }
}
