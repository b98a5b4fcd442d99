//! The lock on the folder of a run: one process at a time writes it.
//!
//! An advisory lock of the operating system on a file in the folder, which holds the process's id. It ends with the process, however that
//! ends; the file alone locks nothing.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use panoply::{Error, Result};

/// The name of the file.
pub const NAME: &str = "run.lock";

/// How often a file that went away while it was locked is looked for again.
const ATTEMPTS: usize = 100;

/// The folder of a run while this process may write it.
#[derive(Debug)]
pub struct RunLock {
    file: File,
    path: PathBuf,
}

impl RunLock {
    /// Locks a folder, or says which process holds it.
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
                    // Some file systems have no locks. A run there is as safe as its user is careful.
                    eprintln!("{} cannot be locked ({error}); start no second run in it", folder.display());
                }
            }
            // The process that held it before may have removed the file between opening and locking.
            if !is_at(&file, &path) {
                continue;
            }
            let written = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
            written.and_then(|()| file.flush()).map_err(failed)?;
            return Ok(RunLock { file, path });
        }
        Err(held(folder))
    }

    /// An error if a process holds the folder; changes nothing in it.
    pub fn check(folder: &Path) -> Result<()> {
        match File::open(folder.join(NAME)).map(|file| file.try_lock()) {
            Ok(Err(TryLockError::WouldBlock)) => Err(held(folder)),
            // No file, no lock on it, or no locks on that file system.
            Ok(Ok(()) | Err(TryLockError::Error(_))) | Err(_) => Ok(()),
        }
    }
}

impl Drop for RunLock {
    fn drop(&mut self) {
        // Elsewhere a file that is open cannot be removed by its name.
        if cfg!(unix) && is_at(&self.file, &self.path) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// The folder is locked by another process.
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

/// Whether this file is still the one of this path.
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
    fn a_folder_is_locked_once_and_a_file_that_was_left_locks_nothing() {
        let folder = std::env::temp_dir().join(format!("panoply-lock-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(NAME), "4000000000\n").unwrap();
        RunLock::check(&folder).unwrap();
        let lock = RunLock::acquire(&folder).unwrap();
        let said = [RunLock::acquire(&folder).map(drop), RunLock::check(&folder)].map(|result| result.unwrap_err());
        for error in said {
            assert!(error.message().ends_with(&format!("is in use: process {} is training there", std::process::id())));
        }
        drop(lock);
        assert!(!cfg!(unix) || !folder.join(NAME).exists(), "it goes with the lock");
        drop(RunLock::acquire(&folder).unwrap());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
