//! The ranks of an MPI launcher as a process group for distributed training.

use std::sync::{Arc, Mutex, PoisonError};

use panoply_device::Wire;
use panoply_nn::ProcessGroup;
use panoply_tensor::{Error, ErrorKind, Result};

use crate::events::{EventKind, TimelineSwitch};
use crate::history::{self, History};
use crate::waits::{self, WaitGuard};

/// Number of bytes in front of a value: 0, or which of [`ERROR_KINDS`] is sent in place of it, from 1; the number of bytes; the history of the
/// sender; and the label.
const HEADER: usize = LABEL + MAX_LABEL;

/// Position of the label in a header.
const LABEL: usize = 9 + history::BYTES;

/// Largest number of bytes of a label that is sent.
const MAX_LABEL: usize = 87;

/// Kinds of errors by their number in a header.
const ERROR_KINDS: [ErrorKind; 10] = [
    ErrorKind::Mistake,
    ErrorKind::Diverged,
    ErrorKind::Unavailable,
    ErrorKind::Unsupported,
    ErrorKind::OutOfMemory,
    ErrorKind::DeviceLost,
    ErrorKind::CompileFailed,
    ErrorKind::Driver,
    ErrorKind::Io,
    ErrorKind::Corrupt,
];

/// Bits of a count in one f32 of a sum, which is exact.
const COUNT_BITS: usize = 22;

/// Largest number of bytes of an error that is sent.
const MAX_ERROR_TEXT: usize = 1 << 16;

/// All ranks that a launcher such as `mpirun` started.
///
/// A process that ends without [`RankGroup::close`] ends the others, so that none waits for it forever.
#[derive(Clone, Debug)]
pub struct RankGroup {
    wire: Arc<dyn Wire>,
    timeline: Arc<TimelineSwitch>,
    history: Arc<Mutex<History>>,
}

impl RankGroup {
    /// Connects to the other ranks, if a launcher started more than one process.
    ///
    /// # Errors
    /// The launcher's MPI library cannot be opened, or does not belong to the launcher.
    pub fn open() -> Result<Option<RankGroup>> {
        Ok(panoply_runtime::wire()?.map(RankGroup::new))
    }

    /// Creates a group over a connection.
    pub fn new(wire: Arc<dyn Wire>) -> RankGroup {
        RankGroup { wire, timeline: Arc::default(), history: Arc::default() }
    }

    /// Returns the timeline that shows the messages.
    pub(crate) fn timeline(&self) -> &Arc<TimelineSwitch> {
        &self.timeline
    }

    /// Returns the number of this process.
    pub(crate) fn own_rank(&self) -> usize {
        self.wire.rank()
    }

    /// Runs a communication, which the timeline shows.
    fn message<R>(&self, name: impl FnOnce() -> String, bytes: usize, communicate: impl FnOnce() -> R) -> R {
        let event = self.timeline.begin();
        let done = communicate();
        if let Some(event) = event {
            event.end("messages", EventKind::Message, name(), bytes as u64);
        }
        done
    }

    /// Returns the name of a rank in messages: its device, if the ranks are devices of one process.
    fn name(&self, rank: usize) -> String {
        match self.wire.device_names().and_then(|names| names.get(rank)) {
            Some(device) => format!("device {device}"),
            None => format!("rank {rank}"),
        }
    }

    /// Begins a wait of this rank for something.
    fn wait(&self, what: String) -> WaitGuard {
        waits::begin(self.name(self.wire.rank()), what)
    }

    pub(crate) fn size(&self) -> usize {
        self.wire.ranks()
    }

    /// Returns the numbers that all ranks pass, by rank.
    pub(crate) fn gather_counts(&self, count: usize) -> Result<Vec<usize>> {
        let mut parts = vec![[0f32; usize::BITS as usize / COUNT_BITS + 1]; self.wire.ranks()];
        let part = |n: usize| (count >> (n * COUNT_BITS) & ((1 << COUNT_BITS) - 1)) as f32;
        parts[self.wire.rank()] = std::array::from_fn(part);
        self.all_reduce(parts.as_flattened_mut())?;
        let joined = |parts: [f32; _]| parts.iter().rev().fold(0, |count, part| count << COUNT_BITS | *part as usize);
        Ok(parts.into_iter().map(joined).collect())
    }

    /// Appends an operation that all ranks begin to the history of this rank.
    pub(crate) fn record(&self, operation: &str, name: String) {
        self.history.lock().unwrap_or_else(PoisonError::into_inner).record(operation, name);
    }

    /// Sends bytes to another rank, or the error in place of them. Both ranks must use the same label.
    pub(crate) fn send_value(&self, to: usize, label: &str, value: &Result<Vec<u8>>) -> Result<()> {
        let (failed, bytes) = match value {
            Ok(bytes) => (0, bytes.as_slice()),
            Err(error) => {
                let kind = ERROR_KINDS.iter().position(|kind| *kind == error.kind()).unwrap_or(0);
                (kind + 1, &error.message().as_bytes()[..error.message().len().min(MAX_ERROR_TEXT)])
            }
        };
        let mut header = [0; HEADER];
        header[0] = failed as u8;
        header[1..9].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
        header[9..LABEL].copy_from_slice(&self.history.lock().unwrap_or_else(PoisonError::into_inner).to_bytes());
        let label = &label.as_bytes()[..label.len().min(MAX_LABEL)];
        header[LABEL..LABEL + label.len()].copy_from_slice(label);
        let name = || format!("send {} to rank {to}", String::from_utf8_lossy(label));
        self.message(name, bytes.len(), || {
            self.wire.send(to, &header)?;
            self.wire.send(to, bytes)
        })
    }

    /// Receives what another rank sends with [`RankGroup::send_value`].
    ///
    /// # Errors
    /// The communication failed, or the other rank sent another value: the ranks run different programs.
    pub(crate) fn receive_value(&self, from: usize, label: &str, expected: usize) -> Result<Result<Vec<u8>>> {
        let name = || format!("receive {label} from rank {from}");
        self.message(name, expected, || self.receive_labeled(from, label, expected))
    }

    fn receive_labeled(&self, from: usize, label: &str, expected: usize) -> Result<Result<Vec<u8>>> {
        let _wait = self.wait(format!("{label} from {}", self.name(from)));
        let mut header = [0; HEADER];
        self.wire.receive(from, &mut header)?;
        let sent = String::from_utf8_lossy(&header[LABEL..]).trim_end_matches('\0').to_string();
        let length = u64::from_le_bytes(*header[1..].first_chunk().expect("the header holds a length")) as usize;
        let failed = header[0] > 0;
        let own = self.wire.rank();
        let difference = self.history.lock().unwrap_or_else(PoisonError::into_inner).difference(&header[9..LABEL]);
        if let Some(difference) = difference {
            let message = format!("rank {own} and rank {from} run different programs: {difference}");
            return Err(Error::mistake(message).note(format!("rank {own} expects {label}, rank {from} sends {sent}")));
        }
        let different = !sent.bytes().eq(label.bytes().take(MAX_LABEL)) || (!failed && length != expected);
        if different || length > expected.max(MAX_ERROR_TEXT) {
            let message =
                format!("rank {own} expects {label} with {expected} bytes, rank {from} sends {sent} with {length}");
            return Err(Error::mistake(message).note("all ranks must run the same program with the same values"));
        }
        let mut bytes = vec![0; length];
        self.wire.receive(from, &mut bytes)?;
        if !failed {
            return Ok(Ok(bytes));
        }
        let kind = ERROR_KINDS.get(usize::from(header[0]) - 1).copied().unwrap_or(ErrorKind::Mistake);
        Ok(Err(Error::new(kind, String::from_utf8_lossy(&bytes))))
    }

    /// Waits for all ranks and disconnects from them.
    pub fn close(&self) -> Result<()> {
        self.wire.close()
    }

    /// Ends this process and all other ranks immediately with an exit code.
    pub fn abort(&self, code: i32) -> ! {
        self.wire.abort(code)
    }
}

impl ProcessGroup for RankGroup {
    fn rank(&self) -> usize {
        self.wire.rank()
    }

    fn ranks(&self) -> usize {
        self.wire.ranks()
    }

    fn all_reduce(&self, values: &mut [f32]) -> Result<()> {
        let all = if self.wire.device_names().is_some() { "devices" } else { "ranks" };
        let _wait = self.wait(format!("a sum over all {all}"));
        let bytes = size_of_val(values);
        self.message(|| "sum over all ranks".to_string(), bytes, || self.wire.all_reduce(values))
    }

    fn exchange(&self, sends: &[(usize, &[f32])], receives: &mut [(usize, &mut [f32])]) -> Result<()> {
        let mut others: Vec<usize> =
            sends.iter().map(|(to, _)| *to).chain(receives.iter().map(|(from, _)| *from)).collect();
        others.sort_unstable();
        others.dedup();
        let names = others.iter().map(|rank| self.name(*rank)).collect::<Vec<String>>().join(", ");
        let _wait = self.wait(format!("gradients of {names}"));
        let sends: Vec<(usize, &[u8])> = sends.iter().map(|(to, values)| (*to, bytemuck::cast_slice(values))).collect();
        let mut receives: Vec<(usize, &mut [u8])> =
            receives.iter_mut().map(|(from, values)| (*from, bytemuck::cast_slice_mut(values))).collect();
        let sent: usize = sends.iter().map(|(_, bytes)| bytes.len()).sum();
        let received: usize = receives.iter().map(|(_, bytes)| bytes.len()).sum();
        let name = || format!("exchange gradients with {names}");
        self.message(name, sent + received, || self.wire.exchange(&sends, &mut receives))
    }

    fn broadcast(&self, values: &mut [f64]) -> Result<()> {
        let mut bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        if self.wire.rank() == 0 {
            let send = || (1..self.wire.ranks()).try_for_each(|rank| self.wire.send(rank, &bytes));
            return self.message(|| "send values to all ranks".to_string(), bytes.len(), send);
        }
        let _wait = self.wait(format!("values from {}", self.name(0)));
        let count = bytes.len();
        self.message(|| "receive values from rank 0".to_string(), count, || self.wire.receive(0, &mut bytes))?;
        for (value, bytes) in values.iter_mut().zip(bytes.as_chunks().0) {
            *value = f64::from_le_bytes(*bytes);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ThreadWire;

    #[test]
    fn messages_name_the_devices_of_one_process() {
        let name = |wires: Vec<ThreadWire>| wires.into_iter().map(|wire| RankGroup::new(Arc::new(wire)).name(1));
        assert_eq!(name(ThreadWire::connected(2)).collect::<Vec<String>>(), ["rank 1", "rank 1"]);
        let devices = ["cuda:0", "cpu"].map(str::to_string).to_vec();
        assert_eq!(name(ThreadWire::connected_devices(devices)).collect::<Vec<String>>(), ["device cpu", "device cpu"]);
    }

    #[test]
    fn counts_are_exact_and_errors_keep_their_kind() {
        let program = |wire: ThreadWire| {
            let group = RankGroup::new(Arc::new(wire));
            let own = [usize::MAX - 1, (1 << 24) + 1][group.rank()];
            assert_eq!(group.gather_counts(own).unwrap(), [usize::MAX - 1, (1 << 24) + 1]);
            for kind in ERROR_KINDS {
                if group.rank() == 0 {
                    group.send_value(1, "a block", &Err(Error::new(kind, "out of memory"))).unwrap();
                } else {
                    let error = group.receive_value(0, "a block", 4).unwrap().unwrap_err();
                    assert_eq!((error.kind(), error.message()), (kind, "out of memory"));
                }
            }
            group.close().unwrap();
        };
        std::thread::scope(|threads| {
            ThreadWire::connected(2).into_iter().for_each(|wire| drop(threads.spawn(move || program(wire))));
        });
    }
}
