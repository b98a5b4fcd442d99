//! The [`Wire`] contract on MPI's functions.
//!
//! Blocking calls are made as non-blocking requests that are polled: MPI libraries wait by spinning, which takes a core from the ranks that
//! still compute.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt;
use std::io::Write as _;
use std::ptr::null_mut;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{sleep, yield_now};
use std::time::{Duration, Instant};

use panoply_device::{Error, ErrorKind, Result, Wire};

use super::functions::{Constants, Functions};

/// The tag of all messages: MPI keeps messages between two ranks in order.
const TAG: c_int = 1;
/// Largest message in bytes; counts are `int`.
const MAX_MESSAGE: usize = 1 << 30;
/// Largest number of elements of one sum, so that counts stay far below the limit of `int`.
const MAX_SUM: usize = 1 << 28;
/// Time in which a request is polled without pauses. Other threads can run between two polls, and a pause takes twice as long as asked
/// for, which the messages of a training step would add up.
const EAGER: Duration = Duration::from_millis(2);
/// Time between polls of a request that takes longer.
const PAUSE: Duration = Duration::from_micros(50);
/// Time for the launcher to forward the output of a rank that aborts.
const ABORT_DELAY: Duration = Duration::from_millis(500);
/// Buffer size for `MPI_MAX_ERROR_STRING` of every implementation, which is at most 1024.
const MAX_ERROR_TEXT: usize = 2048;

/// The world communicator of an MPI library; `H` is the type of its handles.
pub struct MpiWire<H> {
    /// Locked during each call: the library was initialized for one call at a time (`MPI_THREAD_SERIALIZED`).
    functions: Mutex<Functions<H>>,
    constants: Constants<H>,
    rank: usize,
    ranks: usize,
}

impl<H> fmt::Debug for MpiWire<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MpiWire(rank {} of {})", self.rank, self.ranks)
    }
}

impl<H: Copy + Send + Sync> MpiWire<H> {
    /// Initializes the library; must be called once per process.
    pub fn connect(functions: Functions<H>, constants: Constants<H>) -> Result<MpiWire<H>> {
        let (mut granted, mut rank, mut ranks) = (0, 0, 0);
        // SAFETY: null is allowed for the arguments, and `granted` is written during the call only.
        let code =
            unsafe { (functions.init_thread)(null_mut(), null_mut(), constants.thread_serialized, &mut granted) };
        if code != 0 || granted < constants.thread_serialized {
            let message = format!("mpi: MPI_Init_thread failed with code {code} and thread level {granted}");
            return Err(Error::new(ErrorKind::Driver, message));
        }
        let mut wire = MpiWire { functions: Mutex::new(functions), constants, rank: 0, ranks: 0 };
        let table = wire.table();
        // SAFETY: the library is initialized, and the handles are its own.
        wire.check("MPI_Comm_set_errhandler", &table, unsafe {
            (table.comm_set_errhandler)(constants.world, constants.errors_return)
        })?;
        // SAFETY: as above; the number is written during the call only.
        wire.check("MPI_Comm_rank", &table, unsafe { (table.comm_rank)(constants.world, &mut rank) })?;
        // SAFETY: as above.
        wire.check("MPI_Comm_size", &table, unsafe { (table.comm_size)(constants.world, &mut ranks) })?;
        drop(table);
        (wire.rank, wire.ranks) = (rank as usize, ranks as usize);
        Ok(wire)
    }

    fn table(&self) -> MutexGuard<'_, Functions<H>> {
        self.functions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Converts an error code of the library to a `Result`.
    fn check(&self, function: &str, table: &Functions<H>, code: c_int) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        let (mut text, mut len) = ([0 as c_char; MAX_ERROR_TEXT], 0);
        // SAFETY: the text has room for the longest message of any implementation.
        unsafe { (table.error_string)(code, text.as_mut_ptr(), &mut len) };
        text[MAX_ERROR_TEXT - 1] = 0;
        // SAFETY: the last byte is 0.
        let why = unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned();
        let message = format!("mpi: {function} failed on rank {} of {}: {why}", self.rank, self.ranks);
        Err(Error::new(ErrorKind::Driver, message))
    }

    /// Starts a request. The library is locked during the call only.
    fn start(&self, function: &str, start: impl FnOnce(&Functions<H>, *mut H) -> c_int) -> Result<H> {
        // The initial value does not matter: the call writes it.
        let mut request = self.constants.world;
        let table = self.table();
        let code = start(&table, &mut request);
        self.check(function, &table, code).map(|()| request)
    }

    /// Waits until a request is complete. The library is locked during calls only.
    fn wait(&self, function: &str, mut request: H) {
        let started = Instant::now();
        loop {
            let mut done = 0;
            let table = self.table();
            // SAFETY: the request was started and is not complete; the constant means that no status is wanted.
            let code = unsafe { (table.test)(&mut request, &mut done, self.constants.status_ignore as *mut c_void) };
            let checked = self.check(function, &table, code);
            drop(table);
            if let Err(error) = checked {
                self.abort_with(&error);
            }
            match done {
                0 if started.elapsed() < EAGER => yield_now(),
                0 => sleep(PAUSE),
                _ => break,
            }
        }
    }

    /// Starts a request and waits until it is complete.
    fn complete(&self, function: &str, start: impl FnOnce(&Functions<H>, *mut H) -> c_int) -> Result<()> {
        let request = self.start(function, start)?;
        self.wait(function, request);
        Ok(())
    }

    /// Ends all ranks because a request failed: the library can still write to the buffers of open requests, which the caller would release.
    fn abort_with(&self, error: &Error) -> ! {
        // If stderr is closed, the exit code remains.
        let _ = writeln!(std::io::stderr(), "panoply: rank {}: {error}", self.rank);
        self.abort(1)
    }

    /// Starts to send bytes, which must not change or be released until the request is complete.
    ///
    /// # Safety
    /// The slice must outlive the request.
    unsafe fn start_send(&self, to: usize, bytes: &[u8]) -> Result<H> {
        let Constants { world, byte, .. } = self.constants;
        self.start("MPI_Isend", |table, request| {
            let (data, count) = (bytes.as_ptr().cast(), bytes.len() as c_int);
            // SAFETY: the slice holds this number of bytes until the request is complete, as the caller promises; the number fits an int.
            unsafe { (table.isend)(data, count, byte, to as c_int, TAG, world, request) }
        })
    }

    /// Starts to receive bytes, which must not be used or released until the request is complete.
    ///
    /// # Safety
    /// The slice must outlive the request.
    unsafe fn start_receive(&self, from: usize, bytes: &mut [u8]) -> Result<H> {
        let Constants { world, byte, .. } = self.constants;
        self.start("MPI_Irecv", |table, request| {
            let (data, count) = (bytes.as_mut_ptr().cast(), bytes.len() as c_int);
            // SAFETY: this number of bytes can be written until the request is complete, as the caller promises; the number fits an int.
            unsafe { (table.irecv)(data, count, byte, from as c_int, TAG, world, request) }
        })
    }

    /// Sums elements over all ranks: each rank adds up one block of every rank's values, then all ranks gather all blocks.
    fn sum(&self, values: &mut [f32]) -> Result<()> {
        let Constants { world, float, .. } = self.constants;
        let block = values.len().div_ceil(self.ranks);
        let count = block as c_int;
        let mut all = vec![0f32; block * self.ranks];
        all[..values.len()].copy_from_slice(values);
        let mut own = vec![0f32; block * self.ranks];
        self.complete("MPI_Ialltoall", |table, request| {
            let (from, to) = (all.as_ptr().cast(), own.as_mut_ptr().cast());
            // SAFETY: both hold a block of `count` floats for each rank, until the request is complete.
            unsafe { (table.ialltoall)(from, count, float, to, count, float, world, request) }
        })?;
        let (sum, others) = own.split_at_mut(block);
        for other in others.chunks_exact(block.max(1)) {
            sum.iter_mut().zip(other).for_each(|(sum, value)| *sum += value);
        }
        self.complete("MPI_Iallgather", |table, request| {
            let (from, to) = (sum.as_ptr().cast(), all.as_mut_ptr().cast());
            // SAFETY: `sum` holds `count` floats, and `all` holds `count` floats for each rank, until the request is complete.
            unsafe { (table.iallgather)(from, count, float, to, count, float, world, request) }
        })?;
        values.copy_from_slice(&all[..values.len()]);
        Ok(())
    }
}

impl<H: Copy + Send + Sync> Wire for MpiWire<H> {
    fn rank(&self) -> usize {
        self.rank
    }

    fn ranks(&self) -> usize {
        self.ranks
    }

    fn send(&self, to: usize, bytes: &[u8]) -> Result<()> {
        self.exchange(&[(to, bytes)], &mut [])
    }

    fn receive(&self, from: usize, bytes: &mut [u8]) -> Result<()> {
        self.exchange(&[], &mut [(from, bytes)])
    }

    fn exchange(&self, sends: &[(usize, &[u8])], receives: &mut [(usize, &mut [u8])]) -> Result<()> {
        let mut requests = Vec::new();
        let mut push = |function: &'static str, started: Result<H>| -> Result<()> {
            match started {
                Ok(request) => requests.push((function, request)),
                Err(error) if requests.is_empty() => return Err(error),
                Err(error) => self.abort_with(&error),
            }
            Ok(())
        };
        // Receives are open before the messages arrive, so that the library writes them to their places.
        for (from, bytes) in receives {
            for part in bytes.chunks_mut(MAX_MESSAGE) {
                // SAFETY: the slice is borrowed until all requests are complete or this process has ended.
                push("MPI_Irecv", unsafe { self.start_receive(*from, part) })?;
            }
        }
        for (to, bytes) in sends {
            for part in bytes.chunks(MAX_MESSAGE) {
                // SAFETY: as above.
                push("MPI_Isend", unsafe { self.start_send(*to, part) })?;
            }
        }
        requests.into_iter().for_each(|(function, request)| self.wait(function, request));
        Ok(())
    }

    fn all_reduce(&self, values: &mut [f32]) -> Result<()> {
        values.chunks_mut(MAX_SUM).try_for_each(|part| self.sum(part))
    }

    fn abort(&self, code: i32) -> ! {
        // MPICH's launcher drops output that it has not forwarded when a rank aborts, among it the message that says why.
        sleep(ABORT_DELAY);
        // Another thread can be blocked in a call forever, so the lock is only tried.
        if let Ok(table) = self.functions.try_lock() {
            // SAFETY: the library is initialized; ending this process is what the caller wants.
            unsafe { (table.abort)(self.constants.world, code) };
        }
        // The launcher ends the other ranks when one exits without MPI_Finalize.
        std::process::exit(code)
    }

    fn close(&self) -> Result<()> {
        let table = self.table();
        // SAFETY: the library is initialized, and no call follows.
        let code = unsafe { (table.finalize)() };
        self.check("MPI_Finalize", &table, code)
    }
}
