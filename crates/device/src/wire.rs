//! Messages between the processes of one program.
//!
//! A launcher such as `mpirun` starts the same program several times; each process is a *rank*, numbered from 0. All ranks
//! make the same calls in the same order. A wire validates nothing; its errors are those of the library that carries the
//! bytes.

use std::fmt::Debug;

use crate::Result;

/// Connects the ranks of one program. Calls from several threads are made one at a time.
pub trait Wire: Debug + Send + Sync {
    /// The rank of this process, below [`Wire::ranks`].
    fn rank(&self) -> usize;

    /// The number of processes.
    fn ranks(&self) -> usize;

    /// Sends bytes to another rank, which receives as many. Returns once `bytes` may change.
    fn send(&self, to: usize, bytes: &[u8]) -> Result<()>;

    /// Receives as many bytes as another rank sends.
    fn receive(&self, from: usize, bytes: &mut [u8]) -> Result<()>;

    /// Sums each element over all ranks, in rank order: every rank gets the same bits, whatever arrives first.
    fn all_reduce(&self, values: &mut [f32]) -> Result<()>;

    /// Ends all ranks with this exit code, at once.
    fn abort(&self, code: i32) -> !;

    /// Waits for all ranks and closes the connection. A rank that exits without it ends the others.
    fn close(&self) -> Result<()>;
}
