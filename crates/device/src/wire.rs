//! Messages between the processes of one program.
//!
//! A launcher such as `mpirun` starts the same program several times; each process is a *rank*, numbered from 0. All ranks make the same
//! calls in the same order. A wire validates nothing; its errors are those of the underlying library.

use std::fmt::Debug;

use crate::Result;

/// A connection between the ranks of one program. Calls from several threads are serialized.
pub trait Wire: Debug + Send + Sync {
    /// Returns the rank of this process, below [`Wire::ranks`].
    fn rank(&self) -> usize;

    /// Returns the number of processes.
    fn ranks(&self) -> usize;

    /// Returns the names of the devices by rank, if the ranks are devices of one process and not processes.
    fn device_names(&self) -> Option<&[String]> {
        None
    }

    /// Sends bytes to another rank, which must receive the same number. `bytes` can be modified on return.
    fn send(&self, to: usize, bytes: &[u8]) -> Result<()>;

    /// Receives bytes from another rank, which must send the same number.
    fn receive(&self, from: usize, bytes: &mut [u8]) -> Result<()>;

    /// Sends bytes to other ranks and receives bytes from others, all at the same time. Messages between two ranks keep their order.
    ///
    /// By default all are sent before any is received, which is right only where [`Wire::send`] does not wait for the receiver.
    fn exchange(&self, sends: &[(usize, &[u8])], receives: &mut [(usize, &mut [u8])]) -> Result<()> {
        sends.iter().try_for_each(|(to, bytes)| self.send(*to, bytes))?;
        receives.iter_mut().try_for_each(|(from, bytes)| self.receive(*from, bytes))
    }

    /// Sums each element over all ranks, in rank order, so that every rank gets bitwise equal results.
    fn all_reduce(&self, values: &mut [f32]) -> Result<()>;

    /// Terminates all ranks with this exit code immediately.
    fn abort(&self, code: i32) -> !;

    /// Waits for all ranks and closes the connection. A rank that exits without it terminates the others.
    fn close(&self) -> Result<()>;
}
