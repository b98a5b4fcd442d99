//! Files mapped into memory.

use std::fs::File;
use std::path::Path;

use panoply_device::{Error, HostBytes, Result};

/// Maps a file into memory for reading; on systems without maps, reads it.
///
/// Pages are read from the file when they are first accessed and can be evicted at any time, so a file larger than the free memory can be
/// used. The file must not be changed while it is mapped: see [`HostBytes`].
///
/// # Errors
/// The file cannot be opened, mapped or read.
pub fn map_file(path: &Path) -> Result<HostBytes> {
    let io = |error| Error::io(format!("cannot read {}", path.display()), error);
    // Opening a named pipe would wait for a writer.
    if !std::fs::metadata(path).map_err(io)?.is_file() {
        return Err(Error::mistake(format!("{} is not a regular file", path.display())));
    }
    let file = File::open(path).map_err(io)?;
    let metadata = file.metadata().map_err(io)?;
    // An empty file cannot be mapped.
    if cfg!(any(unix, windows)) && metadata.len() > 0 {
        // SAFETY: the bytes are only read, as plain integers without invalid values. Another process that truncates the file ends this one,
        // and one that overwrites it changes the numbers; the documentation says so, and no check could prevent either.
        let map = unsafe { memmap2::Mmap::map(&file) };
        return map.map(HostBytes::from).map_err(io);
    }
    std::fs::read(path).map(HostBytes::from).map_err(io)
}
