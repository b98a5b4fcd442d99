//! The ranks of an MPI launcher as a process group for distributed training.

use std::sync::Arc;

use panoply_device::Wire;
use panoply_nn::ProcessGroup;
use panoply_tensor::Result;

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
