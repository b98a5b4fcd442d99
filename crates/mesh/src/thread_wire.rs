//! Ranks that are threads of one process.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use panoply_device::Wire;
use panoply_tensor::{Error, Result};

/// A connection between the threads of one process, each of which is a rank: for training on several devices, and for tests.
///
/// When the wire of a rank is dropped or fails, other ranks that wait for it get an error instead of waiting forever.
#[derive(Debug)]
pub struct ThreadWire {
    rank: usize,
    ranks: usize,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Empty if the ranks have no devices of their own.
    device_names: Vec<String>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Messages that were not received yet, by sender and receiver.
    messages: BTreeMap<(usize, usize), VecDeque<Vec<u8>>>,
    /// Values of the ranks in the present sum.
    parts: BTreeMap<usize, Vec<f32>>,
    /// Number of sums so far, and the last one, or the reason why there is none.
    sums: u64,
    sum: Option<Result<Arc<Vec<f32>>>>,
    /// Ranks that have ended, with the error if they failed.
    ended: BTreeMap<usize, Option<Error>>,
}

impl State {
    /// Returns an error if one of these ranks has ended: that of a rank that failed before that of one that only ended, since ranks end
    /// because another failed.
    fn check(&self, ranks: impl Iterator<Item = usize>) -> Result<()> {
        let ended = ranks.filter_map(|rank| Some((rank, self.ended.get(&rank)?.as_ref())));
        match ended.min_by_key(|(_, error)| error.is_none()) {
            None => Ok(()),
            Some((_, Some(error))) => Err(error.clone()),
            Some((rank, None)) => Err(Error::unavailable(format!("rank {rank} has ended"))),
        }
    }
}

impl ThreadWire {
    /// Creates connected wires, one for each of `ranks` threads.
    pub fn connected(ranks: usize) -> Vec<ThreadWire> {
        ThreadWire::connect(ranks, Vec::new())
    }

    /// Creates connected wires, one for each device; messages name the devices instead of ranks.
    pub fn connected_devices(names: Vec<String>) -> Vec<ThreadWire> {
        ThreadWire::connect(names.len(), names)
    }

    fn connect(ranks: usize, device_names: Vec<String>) -> Vec<ThreadWire> {
        let shared = Arc::new(Shared { device_names, ..Shared::default() });
        (0..ranks).map(|rank| ThreadWire { rank, ranks, shared: shared.clone() }).collect()
    }

    /// Ends this rank. Other ranks that wait for it get the error, or one that says that it has ended. Only the first call has an effect.
    pub fn end(&self, error: Option<&Error>) {
        self.state().ended.entry(self.rank).or_insert(error.cloned());
        self.shared.changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_while<'a>(
        &self,
        state: MutexGuard<'a, State>,
        waits: impl FnMut(&mut State) -> bool,
    ) -> MutexGuard<'a, State> {
        self.shared.changed.wait_while(state, waits).unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ThreadWire {
    fn drop(&mut self) {
        self.end(None);
    }
}

impl Wire for ThreadWire {
    fn rank(&self) -> usize {
        self.rank
    }

    fn ranks(&self) -> usize {
        self.ranks
    }

    fn device_names(&self) -> Option<&[String]> {
        Some(self.shared.device_names.as_slice()).filter(|names| !names.is_empty())
    }

    fn send(&self, to: usize, bytes: &[u8]) -> Result<()> {
        self.state().messages.entry((self.rank, to)).or_default().push_back(bytes.to_vec());
        self.shared.changed.notify_all();
        Ok(())
    }

    fn receive(&self, from: usize, bytes: &mut [u8]) -> Result<()> {
        let key = (from, self.rank);
        let is_empty = |state: &State| state.messages.get(&key).is_none_or(VecDeque::is_empty);
        let mut state = self.wait_while(self.state(), |state| is_empty(state) && !state.ended.contains_key(&from));
        let Some(message) = state.messages.get_mut(&key).and_then(VecDeque::pop_front) else {
            return state.check(std::iter::once(from));
        };
        if message.len() != bytes.len() {
            let (own, sent, expected) = (self.rank, message.len(), bytes.len());
            return Err(Error::mistake(format!("rank {own} expects {expected} bytes, rank {from} sends {sent}")));
        }
        bytes.copy_from_slice(&message);
        Ok(())
    }

    fn all_reduce(&self, values: &mut [f32]) -> Result<()> {
        let mut state = self.state();
        state.parts.insert(self.rank, values.to_vec());
        let before = state.sums;
        if state.parts.len() == self.ranks {
            let parts = std::mem::take(&mut state.parts);
            state.sum = Some(sum(parts.into_values()).map(Arc::new));
            state.sums += 1;
            self.shared.changed.notify_all();
        } else {
            state = self.wait_while(state, |state| state.sums == before && state.ended.is_empty());
        }
        if state.sums == before {
            return state.check(0..self.ranks);
        }
        let sum = state.sum.clone().expect("a sum was computed")?;
        drop(state);
        values.copy_from_slice(&sum);
        Ok(())
    }

    fn abort(&self, code: i32) -> ! {
        std::process::exit(code)
    }

    /// # Errors
    /// Messages to this rank were not received: the ranks ran different programs.
    fn close(&self) -> Result<()> {
        self.all_reduce(&mut [])?;
        let state = self.state();
        let unread =
            (0..self.ranks).find(|from| !state.messages.get(&(*from, self.rank)).is_none_or(VecDeque::is_empty));
        match unread {
            Some(from) => {
                Err(Error::mistake(format!("rank {} ends without a message that rank {from} sent", self.rank)))
            }
            None => Ok(()),
        }
    }
}

/// Returns the sum in the order of ranks.
fn sum(mut parts: impl Iterator<Item = Vec<f32>>) -> Result<Vec<f32>> {
    let mut sum = parts.next().unwrap_or_default();
    for part in parts {
        if part.len() != sum.len() {
            return Err(Error::mistake(format!("ranks add {} and {} values", sum.len(), part.len())));
        }
        sum.iter_mut().zip(part).for_each(|(sum, value)| *sum += value);
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a program on each of several ranks.
    fn on_ranks<T: Send>(ranks: usize, program: impl Fn(ThreadWire) -> T + Sync) -> Vec<T> {
        let program = &program;
        std::thread::scope(|threads| {
            let wires = ThreadWire::connected(ranks).into_iter();
            let handles: Vec<_> = wires.map(|wire| threads.spawn(move || program(wire))).collect();
            handles.into_iter().map(|handle| handle.join().unwrap()).collect()
        })
    }

    #[test]
    fn sums_are_in_rank_order_and_messages_arrive_in_order() {
        // In another order the small terms would vanish.
        on_ranks(3, |wire| {
            let own = [[1e8f32, 1.0], [-1e8, 2.0], [1.0, 3.0]][wire.rank()];
            for _ in 0..100 {
                let mut sums = own;
                wire.all_reduce(&mut sums).unwrap();
                assert_eq!(sums, [1.0, 6.0]);
            }
            let (next, previous) = ((wire.rank() + 1) % 3, (wire.rank() + 2) % 3);
            for n in 0..10 {
                wire.send(next, &[wire.rank() as u8, n]).unwrap();
            }
            for n in 0..10 {
                let mut bytes = [0; 2];
                wire.receive(previous, &mut bytes).unwrap();
                assert_eq!(bytes, [previous as u8, n]);
            }
            wire.close().unwrap();
        });
    }

    #[test]
    fn ranks_that_end_or_differ_give_errors() {
        let results = on_ranks(3, |wire| match wire.rank() {
            0 => wire.receive(2, &mut [0; 4]).map_err(|error| error.message().to_string()),
            1 => wire.all_reduce(&mut [1.0]).map_err(|error| error.message().to_string()),
            _ => {
                wire.end(Some(&Error::unavailable("device opencl:0: out of memory")));
                Ok(())
            }
        });
        let failed = Err("device opencl:0: out of memory".to_string());
        assert_eq!(results, [failed.clone(), failed, Ok(())]);
        // A rank that ended without an error does not hide the error of another, in whatever order they ended.
        for failing in [0, 1] {
            let wires = ThreadWire::connected(3);
            wires[failing].end(Some(&Error::unavailable("device opencl:0: out of memory")));
            wires[1 - failing].end(None);
            let error = wires[2].all_reduce(&mut [1.0]).unwrap_err();
            assert_eq!(error.message(), "device opencl:0: out of memory");
        }
        let lengths = on_ranks(2, |wire| wire.all_reduce(&mut vec![0.0; wire.rank() + 1]).is_err());
        assert_eq!(lengths, [true; 2]);
        let unread = on_ranks(2, |wire| {
            wire.send(1 - wire.rank(), &[1])?;
            if wire.rank() == 0 {
                wire.receive(1, &mut [0])?
            }
            wire.close()
        });
        assert!(unread[0].is_ok());
        assert_eq!(unread[1].as_ref().unwrap_err().message(), "rank 1 ends without a message that rank 0 sent");
    }
}
