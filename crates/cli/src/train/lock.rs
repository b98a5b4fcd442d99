//! The lock of a run folder: only one process at a time writes to it.
//!
//! It is an advisory lock of the operating system on a file in the folder, which contains the process id. The operating system releases
//! it when the process ends for any reason; a leftover file locks nothing.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use panoply::{Error, Result};

/// Name of the lock file.
pub const NAME: &str = "run.lock";

/// Maximum number of attempts if the file is removed while it is being locked.
const ATTEMPTS: usize = 100;

/// Exclusive write access to a run folder.
#[derive(Debug)]
pub struct RunLock {
    file: File,
    path: PathBuf,
}

impl RunLock {
    /// Locks a folder; the error names the process that holds it.
    pub fn acquire(folder: &Path) -> Result<RunLock> {
        let path = folder.join(NAME);
        let failed = |error| Error::io(format!("cannot lock {}", folder.display()), error);
        for _ in 0..ATTEMPTS {
            let options = OpenOptions::new().read(true).write(true).create(true).truncate(false).clone();
            let mut file = options.open(&path).map_err(failed)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Err(held(folder)),
                Err(TryLockError::Error(error)) => {
                    // Some file systems do not support locks; there the user must avoid concurrent runs.
                    eprintln!("cannot lock {} ({error}); do not start a second run in it", folder.display());
                }
            }
            // The previous holder can have removed the file between opening and locking.
            if !is_at(&file, &path) {
                continue;
            }
            let written = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
            written.and_then(|()| file.flush()).map_err(failed)?;
            return Ok(RunLock { file, path });
        }
        Err(held(folder))
    }

    /// Returns an error if a process holds the folder; does not change the folder.
    pub fn check(folder: &Path) -> Result<()> {
        match File::open(folder.join(NAME)).map(|file| file.try_lock()) {
            Ok(Err(TryLockError::WouldBlock)) => Err(held(folder)),
            // No file, not locked, or a file system without locks.
            Ok(Ok(()) | Err(TryLockError::Error(_))) | Err(_) => Ok(()),
        }
    }
}

impl Drop for RunLock {
    fn drop(&mut self) {
        // Other systems cannot remove an open file.
        if cfg!(unix) && is_at(&self.file, &self.path) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Returns the error for a folder that another process has locked.
fn held(folder: &Path) -> Error {
    let mut pid = String::new();
    let read = File::open(folder.join(NAME)).and_then(|file| file.take(20).read_to_string(&mut pid));
    let process = match read.ok().and_then(|_| pid.trim().parse::<u32>().ok()) {
        Some(pid) => format!("process {pid}"),
        None => "another process".to_string(),
    };
    let message = format!("{} is in use: {process} is training there", folder.display());
    Error::mistake(message).note("wait until it has ended, or stop it; nothing was changed")
}

/// Returns true if the path still refers to this file.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    match (file.metadata(), std::fs::metadata(path)) {
        (Ok(own), Ok(there)) => (own.dev(), own.ino()) == (there.dev(), there.ino()),
        _ => false,
    }
}

#[cfg(not(unix))]
fn is_at(_: &File, path: &Path) -> bool {
    path.exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_is_locked_once_and_stale_lock_file_is_ignored() {
        let folder = std::env::temp_dir().join(format!("panoply-lock-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(NAME), "4000000000\n").unwrap();
        RunLock::check(&folder).unwrap();
        let lock = RunLock::acquire(&folder).unwrap();
        let errors = [RunLock::acquire(&folder).map(drop), RunLock::check(&folder)].map(|result| result.unwrap_err());
        for error in errors {
            assert!(error.message().ends_with(&format!("is in use: process {} is training there", std::process::id())));
        }
        drop(lock);
        assert!(!cfg!(unix) || !folder.join(NAME).exists(), "releasing the lock removes the file");
        drop(RunLock::acquire(&folder).unwrap());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
