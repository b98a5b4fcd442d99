//! OpenCL's objects, each owned once and released once.
//!
//! A handle owns one reference. OpenCL keeps what a command under way needs, so dropping a handle early is safe; a release
//! that fails belongs to a lost device and is nobody's error. Live handles are counted for tests of leaks.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use cl3::{command_queue, context, event, kernel, memory, program, types};
use panoply_device::Error;

use super::errors::{When, failed};
use super::ticket::Tickets;

/// What all objects of one device share.
#[derive(Default)]
pub struct Shared {
    /// `opencl:0`, the beginning of every message.
    pub label: String,
    counts: Counts,
    /// Submissions that queues may wait for.
    pub tickets: Tickets,
}

impl Shared {
    /// What the objects of a device will share.
    pub fn new(label: String) -> Arc<Shared> {
        Arc::new(Shared { label, ..Shared::default() })
    }

    /// The error for a code that an attempt brought.
    pub fn failed(&self, doing: impl std::fmt::Display, code: i32, when: When) -> Error {
        failed(format_args!("{}: {doing}", self.label), code, when)
    }
}

/// OpenCL objects of a device that are held now.
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
            /// How many there are now.
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

            // SAFETY: OpenCL objects belong to no thread and all functions but `clSetKernelArg` may be called from
            // several at once; kernels stand behind a lock (`kernel::Kernel` is reached through a `Mutex` only).
            unsafe impl Send for $name {}
            // SAFETY: as above.
            unsafe impl Sync for $name {}

            impl $name {
                /// Takes over one reference.
                ///
                /// # Safety
                /// `raw` is a live object and the caller gives up a reference to it.
                pub unsafe fn own(raw: types::$raw, shared: &Arc<Shared>) -> Self {
                    shared.counts.$count.fetch_add(1, Relaxed);
                    $name { raw, shared: shared.clone() }
                }

                /// The object, valid as long as this is.
                pub fn raw(&self) -> types::$raw {
                    self.raw
                }

                /// What all objects of the device share.
                #[allow(dead_code, reason = "not every kind is asked")]
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
    /// The room in which a device's objects live.
    Context(cl_context) in contexts by context::release_context;
    /// A command queue.
    CommandQueue(cl_command_queue) in queues by command_queue::release_command_queue;
    /// A buffer.
    Buffer(cl_mem) in buffers by memory::release_mem_object;
    /// A built program.
    ProgramHandle(cl_program) in programs by program::release_program;
    /// An entry point with its arguments.
    KernelHandle(cl_kernel) in kernels by kernel::release_kernel;
}

/// A command's state. There is one for every launch, so it is as light as can be and not counted; a leaked one
/// shows as the queue that its ticket holds.
pub struct Event(types::cl_event);

// SAFETY: events belong to no thread.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    /// Takes over one reference.
    ///
    /// # Safety
    /// `raw` is a live event and the caller gives up a reference to it.
    pub unsafe fn own(raw: types::cl_event) -> Event {
        Event(raw)
    }

    /// The event, valid as long as this is.
    pub fn raw(&self) -> types::cl_event {
        self.0
    }

    /// Another handle of the same event.
    pub fn another(&self) -> Event {
        // SAFETY: the event is live. Retaining a live object fails only where its release would, and then nothing is owed.
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
