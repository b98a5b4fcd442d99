//! Owning handles of OpenCL objects, each released once.
//!
//! A handle owns one reference. OpenCL keeps objects that running commands need, so dropping a handle early is safe. A release fails only
//! on a lost device, and that failure is ignored. Live handles are counted for tests of leaks.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use cl3::{command_queue, context, event, kernel, memory, program, types};
use panoply_device::Error;

use super::errors::{ErrorPhase, failed};
use super::ticket::Tickets;

/// State shared by all objects of a device.
#[derive(Default)]
pub struct Shared {
    /// The prefix of every message, such as `opencl:0`.
    pub label: String,
    counts: Counts,
    /// Submissions that queues can wait for.
    pub tickets: Tickets,
}

impl Shared {
    /// Creates the shared state of a device.
    pub fn new(label: String) -> Arc<Shared> {
        Arc::new(Shared { label, ..Shared::default() })
    }

    /// Returns the error for a code; `doing` names the attempted operation.
    pub fn failed(&self, doing: impl std::fmt::Display, code: i32, when: ErrorPhase) -> Error {
        failed(format_args!("{}: {doing}", self.label), code, when)
    }
}

/// Numbers of live OpenCL objects of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are OpenCL's own names")]
pub struct Live {
    pub contexts: usize,
    pub queues: usize,
    pub buffers: usize,
    pub programs: usize,
    pub kernels: usize,
}

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident($raw:ident) in $count:ident by $release:path;)*) => {
        /// Counters behind [`Live`].
        #[derive(Default)]
        pub struct Counts {
            $($count: AtomicUsize,)*
        }

        impl Shared {
            /// Returns the current counts.
            pub fn live(&self) -> Live {
                Live { $($count: self.counts.$count.load(Relaxed),)* }
            }
        }

        $(
            $(#[$doc])*
            pub struct $name {
                raw: types::$raw,
                shared: Arc<Shared>,
            }

            // SAFETY: OpenCL objects are not bound to a thread, and all functions but `clSetKernelArg` are thread-safe; kernels are
            // protected by a lock (`kernel::Kernel` is reached through a `Mutex` only).
            unsafe impl Send for $name {}
            // SAFETY: as above.
            unsafe impl Sync for $name {}

            impl $name {
                /// Takes ownership of one reference.
                ///
                /// # Safety
                /// `raw` must be a live object, and the caller transfers a reference to it.
                pub unsafe fn own(raw: types::$raw, shared: &Arc<Shared>) -> Self {
                    shared.counts.$count.fetch_add(1, Relaxed);
                    $name { raw, shared: shared.clone() }
                }

                /// Returns the raw object, which is valid as long as `self`.
                pub fn raw(&self) -> types::$raw {
                    self.raw
                }

                /// Returns the shared state of the device.
                #[allow(dead_code, reason = "not used for every handle type")]
                pub fn shared(&self) -> &Arc<Shared> {
                    &self.shared
                }
            }

            impl Drop for $name {
                fn drop(&mut self) {
                    // SAFETY: this owns one reference, which nothing else releases.
                    let _ = unsafe { $release(self.raw) };
                    self.shared.counts.$count.fetch_sub(1, Relaxed);
                }
            }
        )*
    };
}

handles! {
    /// A context.
    Context(cl_context) in contexts by context::release_context;
    /// A command queue.
    CommandQueue(cl_command_queue) in queues by command_queue::release_command_queue;
    /// A buffer.
    Buffer(cl_mem) in buffers by memory::release_mem_object;
    /// A built program.
    ProgramHandle(cl_program) in programs by program::release_program;
    /// A kernel with its arguments.
    KernelHandle(cl_kernel) in kernels by kernel::release_kernel;
}

/// An event of a command. There is one for every launch, so it is as small as possible and not counted; a leaked one shows as a leaked
/// queue, which its ticket holds.
pub struct Event(types::cl_event);

// SAFETY: events are not bound to a thread.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    /// Takes ownership of one reference.
    ///
    /// # Safety
    /// `raw` must be a live event, and the caller transfers a reference to it.
    pub unsafe fn own(raw: types::cl_event) -> Event {
        Event(raw)
    }

    /// Returns the raw event, which is valid as long as `self`.
    pub fn raw(&self) -> types::cl_event {
        self.0
    }

    /// Returns another handle of the same event.
    pub fn another(&self) -> Event {
        // SAFETY: the event is live. Retaining a live object fails only where its release would fail too, so no reference is leaked.
        let _ = unsafe { event::retain_event(self.0) };
        Event(self.0)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: this owns one reference, which nothing else releases.
        let _ = unsafe { event::release_event(self.0) };
    }
}
