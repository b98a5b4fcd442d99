//! The ranks of an MPI launcher as a process group for distributed training.

use std::sync::Arc;

use panoply_device::Wire;
use panoply_nn::ProcessGroup;
use panoply_tensor::{Error, Result};

/// Number of bytes in front of a value: 1 if an error is sent in place of it, the number of bytes, and the label.
const HEADER: usize = 96;

/// Largest number of bytes of an error that is sent.
const MAX_ERROR_TEXT: usize = 1 << 16;

/// All ranks that a launcher such as `mpirun` started.
///
/// A process that ends without [`RankGroup::close`] ends the others, so that none waits for it forever.
#[derive(Clone, Debug)]
pub struct RankGroup(Arc<dyn Wire>);

impl RankGroup {
    /// Connects to the other ranks, if a launcher started more than one process.
    ///
    /// # Errors
    /// The launcher's MPI library cannot be opened, or does not belong to the launcher.
    pub fn open() -> Result<Option<RankGroup>> {
        Ok(panoply_runtime::wire()?.map(RankGroup))
    }

    /// Creates a group over a connection.
    pub fn new(wire: Arc<dyn Wire>) -> RankGroup {
        RankGroup(wire)
    }

    pub(crate) fn size(&self) -> usize {
        self.0.ranks()
    }

    /// Returns the numbers that all ranks pass, by rank.
    pub(crate) fn gather_counts(&self, count: usize) -> Result<Vec<usize>> {
        let mut counts = vec![0f32; self.0.ranks()];
        counts[self.0.rank()] = count as f32;
        self.0.all_reduce(&mut counts)?;
        Ok(counts.into_iter().map(|count| count as usize).collect())
    }

    /// Sends bytes to another rank, or the error in place of them. Both ranks must use the same label.
    pub(crate) fn send_value(&self, to: usize, label: &str, value: &Result<Vec<u8>>) -> Result<()> {
        let (failed, bytes) = match value {
            Ok(bytes) => (false, bytes.as_slice()),
            Err(error) => (true, &error.message().as_bytes()[..error.message().len().min(MAX_ERROR_TEXT)]),
        };
        let mut header = [0; HEADER];
        header[0] = u8::from(failed);
        header[1..9].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
        let label = &label.as_bytes()[..label.len().min(HEADER - 9)];
        header[9..9 + label.len()].copy_from_slice(label);
        self.0.send(to, &header)?;
        self.0.send(to, bytes)
    }

    /// Receives what another rank sends with [`RankGroup::send_value`].
    ///
    /// # Errors
    /// The communication failed, or the other rank sent another value: the ranks run different programs.
    pub(crate) fn receive_value(&self, from: usize, label: &str, expected: usize) -> Result<Result<Vec<u8>>> {
        let mut header = [0; HEADER];
        self.0.receive(from, &mut header)?;
        let sent = String::from_utf8_lossy(&header[9..]).trim_end_matches('\0').to_string();
        let length = u64::from_le_bytes(*header[1..].first_chunk().expect("the header holds a length")) as usize;
        let failed = header[0] == 1;
        let different = !sent.bytes().eq(label.bytes().take(HEADER - 9)) || (!failed && length != expected);
        if different || length > expected.max(MAX_ERROR_TEXT) {
            let own = self.0.rank();
            let message =
                format!("rank {own} expects {label} with {expected} bytes, rank {from} sends {sent} with {length}");
            return Err(Error::mistake(message).note("all ranks must run the same program with the same values"));
        }
        let mut bytes = vec![0; length];
        self.0.receive(from, &mut bytes)?;
        Ok(if failed { Err(Error::mistake(String::from_utf8_lossy(&bytes).into_owned())) } else { Ok(bytes) })
    }

    /// Waits for all ranks and disconnects from them.
    pub fn close(&self) -> Result<()> {
        self.0.close()
    }

    /// Ends this process and all other ranks immediately with an exit code.
    pub fn abort(&self, code: i32) -> ! {
        self.0.abort(code)
    }
}

impl ProcessGroup for RankGroup {
    fn rank(&self) -> usize {
        self.0.rank()
    }

    fn ranks(&self) -> usize {
        self.0.ranks()
    }

    fn all_reduce(&self, values: &mut [f32]) -> Result<()> {
        self.0.all_reduce(values)
    }

    fn broadcast(&self, values: &mut [f64]) -> Result<()> {
        let mut bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        if self.0.rank() == 0 {
            return (1..self.0.ranks()).try_for_each(|rank| self.0.send(rank, &bytes));
        }
        self.0.receive(0, &mut bytes)?;
        for (value, bytes) in values.iter_mut().zip(bytes.as_chunks().0) {
            *value = f64::from_le_bytes(*bytes);
        }
        Ok(())
    }
}
