//! The order of device discoveries that must not run at the same time.
//!
//! OpenCL drivers set environment variables when they are loaded (PoCL sets `HWLOC_PLUGINS_PATH`), and the libraries of the other drivers
//! read hundreds. In glibc before 2.41, `getenv` during `setenv` can access freed memory and end the process. So OpenCL is probed while
//! no other library is.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use panoply_device::Backend;

/// Numbers of drivers that are probed in this process.
struct Running {
    opencl: usize,
    others: usize,
}

static RUNNING: Mutex<Running> = Mutex::new(Running { opencl: 0, others: 0 });
static ENDED: Condvar = Condvar::new();

/// The probe of a driver, which ends when this is dropped.
pub(super) struct Turn(Backend);

impl Turn {
    /// Waits for the probes that must not run at the same time, at most for this time: one of them can hang.
    pub(super) fn wait(kind: Backend, deadline: Duration) -> Turn {
        let must_wait = |running: &mut Running| match kind {
            Backend::OpenCl => running.opencl + running.others > 0,
            Backend::Cpu => false,
            _ => running.opencl > 0,
        };
        let mut running = lock();
        // Browsers have no clock for the wait, and no OpenCL.
        if must_wait(&mut running) {
            let waited = ENDED.wait_timeout_while(running, deadline, must_wait);
            running = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        if let Some(count) = count(&mut running, kind) {
            *count += 1;
        }
        Turn(kind)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(count) = count(&mut lock(), self.0) {
            *count -= 1;
        }
        ENDED.notify_all();
    }
}

/// Returns the number that counts probes of this backend; the CPU loads no library.
fn count(running: &mut Running, kind: Backend) -> Option<&mut usize> {
    match kind {
        Backend::OpenCl => Some(&mut running.opencl),
        Backend::Cpu => None,
        _ => Some(&mut running.others),
    }
}

fn lock() -> MutexGuard<'static, Running> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}
