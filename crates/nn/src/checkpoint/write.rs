//! Atomic file writes: a reader sees the old content or the new content, never a mixture.
//!
//! The bytes go to a temporary file beside the target, which is then renamed to the target. The temporary file is created
//! exclusively, so two writers never share one. The target keeps its mode and owner, and a
//! symbolic link keeps pointing to it. Pipes and character devices have no content to replace and are written to directly.

use std::ffi::OsStr;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use panoply_tensor::{Error, Result};

/// Maximum number of symbolic links that are followed in sequence, as on Linux.
const MAX_LINKS: usize = 40;

/// Maximum number of bytes of the target's name in the temporary file's name: file systems allow at least 143 bytes.
const MAX_NAME_BYTES: usize = 100;

/// Writes a file atomically; on error it is unchanged.
///
/// # Errors
/// If the file cannot be written.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = WholeFile::create(path)?;
    file.write(bytes)?;
    file.commit()
}

/// Returns true for the name of a temporary file of [`write_atomic`], which a killed process leaves behind.
pub fn is_temporary(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    let Some((_, end)) = name.rsplit_once(".part") else { return false };
    let (process, count) = end.split_once('-').unwrap_or((end, "0"));
    [process, count].iter().all(|number| number.parse::<u32>().is_ok())
}

/// A file that replaces its target atomically when it is committed. Dropped without a commit, it changes nothing.
#[derive(Debug)]
pub struct WholeFile {
    /// Path as the caller spells it.
    path: PathBuf,
    file: BufWriter<File>,
    bytes: u64,
    replaces: Option<Replaced>,
}

/// The renaming that a commit performs.
#[derive(Debug)]
struct Replaced {
    temporary: PathBuf,
    /// Target with symbolic links resolved.
    target: PathBuf,
}

impl WholeFile {
    /// Creates the temporary file for `path`.
    ///
    /// # Errors
    /// If `path` is a folder, a block device or a socket, or its folder cannot be written to.
    pub fn create(path: &Path) -> Result<WholeFile> {
        let (file, replaces) = open(path).map_err(|error| unwritten(path, error))?;
        Ok(WholeFile { path: path.to_path_buf(), file: BufWriter::new(file), bytes: 0, replaces })
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.bytes += bytes.len() as u64;
        self.file.write_all(bytes).map_err(|error| unwritten(&self.path, error))
    }

    /// Returns the number of bytes written so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Waits until all written bytes are on disk.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn sync(&mut self) -> Result<()> {
        let mut done = self.file.flush();
        if self.replaces.is_some() {
            done = done.and_then(|()| self.file.get_ref().sync_all());
        }
        done.map_err(|error| unwritten(&self.path, error))
    }

    /// Replaces the target by this file.
    ///
    /// # Errors
    /// If the file cannot be written or renamed, or its folder cannot be synced.
    pub fn commit(self) -> Result<()> {
        self.commit_with(sync_folder)
    }

    /// [`WholeFile::commit`] with a function that makes the folder's entries durable.
    fn commit_with(mut self, sync_folder: impl FnOnce(&Path) -> io::Result<()>) -> Result<()> {
        self.sync()?;
        let Some(Replaced { temporary, target }) = &self.replaces else { return Ok(()) };
        std::fs::rename(temporary, target).map_err(|error| unwritten(&self.path, error))?;
        let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let synced = sync_folder(folder).map_err(|error| {
            let note = "the file is written, but a power failure can undo this";
            Error::io(format!("cannot sync the folder of {}", self.path.display()), error).note(note)
        });
        self.replaces = None;
        synced
    }
}

impl Drop for WholeFile {
    fn drop(&mut self) {
        if let Some(Replaced { temporary, .. }) = &self.replaces {
            let _ = std::fs::remove_file(temporary);
        }
    }
}

fn unwritten(path: &Path, error: io::Error) -> Error {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.exists());
    let error = Error::io(format!("cannot write {}", path.display()), error);
    match folder {
        Some(folder) => error.note(format!("the folder {} does not exist", folder.display())),
        None if path.is_file() => error.note("the file is unchanged"),
        None => error,
    }
}

/// Returns the file to write to, and what it replaces unless it is the target itself.
fn open(path: &Path) -> io::Result<(File, Option<Replaced>)> {
    let old = match std::fs::metadata(path) {
        Ok(old) if old.is_dir() => return Err(io::Error::new(ErrorKind::IsADirectory, "it is a folder")),
        Ok(old) if !old.is_file() => return Ok((stream(path, &old)?, None)),
        Ok(old) => Some(old),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let target = behind_links(path)?;
    let (file, temporary) = temporary(&target, old.is_some())?;
    let replaced = Replaced { temporary, target };
    if let Some(Err(error)) = old.map(|old| keep_mode(&file, &old)) {
        let _ = std::fs::remove_file(&replaced.temporary);
        return Err(error);
    }
    Ok((file, Some(replaced)))
}

/// Opens a pipe or a character device for writing.
#[cfg(unix)]
fn stream(path: &Path, kind: &Metadata) -> io::Result<File> {
    use std::os::unix::fs::FileTypeExt;
    let kind = kind.file_type();
    if kind.is_fifo() || kind.is_char_device() {
        return OpenOptions::new().write(true).open(path);
    }
    let what = if kind.is_block_device() { "a block device" } else { "a socket" };
    Err(io::Error::new(ErrorKind::InvalidInput, format!("it is {what}, not a file")))
}

#[cfg(not(unix))]
fn stream(path: &Path, _: &Metadata) -> io::Result<File> {
    OpenOptions::new().write(true).open(path)
}

/// Resolves symbolic links, also of a path that does not exist yet.
fn behind_links(path: &Path) -> io::Result<PathBuf> {
    let mut target = path.to_path_buf();
    for _ in 0..MAX_LINKS {
        let Ok(next) = std::fs::read_link(&target) else { return Ok(target) };
        target = target.parent().unwrap_or(Path::new("")).join(next);
    }
    Err(io::Error::other("too many levels of symbolic links"))
}

/// Creates a file beside the target. If it replaces a file, only its owner can read it until it has that file's mode.
fn temporary(target: &Path, replaces: bool) -> io::Result<(File, PathBuf)> {
    let no_name = || io::Error::new(ErrorKind::InvalidInput, "the path has no file name");
    let name = target.file_name().ok_or_else(no_name)?.to_string_lossy();
    let start: String = name
        .char_indices()
        .take_while(|(at, char)| at + char.len_utf8() <= MAX_NAME_BYTES)
        .map(|(_, char)| char)
        .collect();
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    if replaces {
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    }
    #[cfg(not(unix))]
    let _ = replaces;
    for count in 0..u32::MAX {
        let temporary = target.with_file_name(format!("{start}.part{}-{count}", std::process::id()));
        match options.open(&temporary) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            opened => return opened.map(|file| (file, temporary)),
        }
    }
    Err(io::Error::new(ErrorKind::AlreadyExists, "no free name for a temporary file"))
}

/// Gives a file the owner and the mode of the file that it replaces.
#[cfg(unix)]
fn keep_mode(file: &File, old: &Metadata) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt, fchown};
    let own = file.metadata()?;
    let (user, group) = (Some(old.uid()), Some(old.gid()));
    // Only a privileged process can change the owner.
    if (Some(own.uid()), Some(own.gid())) != (user, group) && fchown(file, user, group).is_err() {
        let _ = fchown(file, None, group);
    }
    file.set_permissions(old.permissions())
}

#[cfg(not(unix))]
fn keep_mode(_: &File, _: &Metadata) -> io::Result<()> {
    Ok(())
}

/// Waits until a folder's entries are on disk.
#[cfg(unix)]
fn sync_folder(folder: &Path) -> io::Result<()> {
    match File::open(folder).and_then(|folder| folder.sync_all()) {
        // Some file systems cannot sync folders, and a writable folder can be unreadable.
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::InvalidInput | ErrorKind::Unsupported | ErrorKind::PermissionDenied
            ) =>
        {
            Ok(())
        }
        done => done,
    }
}

/// Folders cannot be opened on other systems.
#[cfg(not(unix))]
fn sync_folder(_: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// Creates an empty folder for a test.
    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("panoply-write-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<String> = entries.map(|name| name.to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// Several threads write files whose names differ only in their extension, and one common file: no write fails and each file is
    /// complete.
    #[test]
    fn writers_do_not_share_a_temporary_file() {
        let folder = folder("threads");
        std::thread::scope(|scope| {
            for (name, byte) in [("x.npy", 1u8), ("x.safetensors", 2), ("x.npy", 3), ("x", 4)] {
                let path = folder.join(name);
                scope.spawn(move || (0..60).for_each(|_| write_atomic(&path, &vec![byte; 100_000]).unwrap()));
            }
        });
        assert_eq!(names(&folder), ["x", "x.npy", "x.safetensors"]);
        for (name, bytes) in [("x.npy", &[1, 3][..]), ("x.safetensors", &[2]), ("x", &[4])] {
            let read = std::fs::read(folder.join(name)).unwrap();
            assert!(
                read.len() == 100_000 && bytes.contains(&read[0]) && read.iter().all(|byte| *byte == read[0]),
                "{name}"
            );
        }
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn the_folder_is_synced_after_the_rename() {
        let folder = folder("sync");
        let path = folder.join("a");
        let write = |content: &[u8], sync: &dyn Fn(&Path) -> io::Result<()>| {
            let mut file = WholeFile::create(&path).unwrap();
            file.write(content).unwrap();
            file.commit_with(sync)
        };
        let synced = RefCell::new(Vec::new());
        write(b"1", &|folder| {
            synced.borrow_mut().push((folder.to_path_buf(), names(folder), std::fs::read(folder.join("a"))?));
            sync_folder(folder)
        })
        .unwrap();
        assert_eq!(synced.into_inner(), [(folder.clone(), vec!["a".to_string()], b"1".to_vec())]);
        let error = write(b"2", &|_| Err(io::Error::other("gone"))).unwrap_err();
        assert!(error.to_string().contains("cannot sync the folder of "), "{error}");
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn an_uncommitted_file_changes_nothing() {
        let folder = folder("dropped");
        let path = folder.join("a");
        write_atomic(&path, b"old").unwrap();
        let mut file = WholeFile::create(&path).unwrap();
        file.write(b"new").unwrap();
        assert_eq!(names(&folder).len(), 2);
        drop(file);
        assert_eq!((names(&folder), std::fs::read(&path).unwrap()), (vec!["a".to_string()], b"old".to_vec()));
        assert!(write_atomic(&folder, b"x").unwrap_err().to_string().contains("folder"));
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn names_of_temporary_files_are_known() {
        for name in ["training.part4711", "training.safetensors.part4711-0", ".part1-2"] {
            assert!(is_temporary(OsStr::new(name)), "{name}");
        }
        for name in ["training.safetensors", "a.party", "a.part", "a.part1-b", "a.part1-2-3", "part1"] {
            assert!(!is_temporary(OsStr::new(name)), "{name}");
        }
    }

    #[cfg(unix)]
    mod unix {
        use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

        use super::*;

        fn mode(path: &Path) -> u32 {
            std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
        }

        #[test]
        fn modes_are_kept() {
            let folder = folder("mode");
            let path = folder.join("a");
            write_atomic(&path, b"1").unwrap();
            for wanted in [0o600, 0o640, 0o755, 0o400] {
                std::fs::set_permissions(&path, PermissionsExt::from_mode(wanted)).unwrap();
                write_atomic(&path, b"2").unwrap();
                assert_eq!((mode(&path), std::fs::metadata(&path).unwrap().nlink()), (wanted, 1));
            }
            std::fs::remove_dir_all(folder).unwrap();
        }

        #[test]
        fn links_are_followed() {
            let folder = folder("links");
            std::fs::create_dir(folder.join("disk")).unwrap();
            std::fs::write(folder.join("disk/big"), "old").unwrap();
            symlink("disk/big", folder.join("first")).unwrap();
            symlink(folder.join("first"), folder.join("second")).unwrap();
            symlink("disk/new", folder.join("dangling")).unwrap();
            symlink("loop", folder.join("loop")).unwrap();
            for (link, target) in [("second", "disk/big"), ("dangling", "disk/new")] {
                write_atomic(&folder.join(link), b"new").unwrap();
                assert!(folder.join(link).is_symlink(), "{link}");
                assert_eq!(std::fs::read(folder.join(target)).unwrap(), b"new");
            }
            assert!(write_atomic(&folder.join("loop"), b"new").is_err());
            assert_eq!(names(&folder.join("disk")), ["big", "new"]);
            std::fs::remove_dir_all(folder).unwrap();
        }

        /// Bytes pass through a pipe and a device, which are not replaced; a socket is rejected.
        #[test]
        fn pipes_and_devices_are_not_replaced() {
            use std::os::unix::fs::FileTypeExt;
            let folder = folder("pipe");
            let pipe = folder.join("pipe");
            let made = std::process::Command::new("mkfifo").arg(&pipe).status();
            assert!(made.unwrap().success());
            let reader = std::thread::spawn({
                let pipe = pipe.clone();
                move || std::fs::read(pipe).unwrap()
            });
            write_atomic(&pipe, b"through").unwrap();
            assert_eq!(reader.join().unwrap(), b"through");
            assert!(std::fs::symlink_metadata(&pipe).unwrap().file_type().is_fifo());
            symlink("/dev/null", folder.join("null")).unwrap();
            write_atomic(&folder.join("null"), b"gone").unwrap();
            assert!(std::fs::metadata("/dev/null").unwrap().file_type().is_char_device());
            let _socket = std::os::unix::net::UnixListener::bind(folder.join("socket")).unwrap();
            let error = write_atomic(&folder.join("socket"), b"x").unwrap_err();
            assert!(error.to_string().contains("a socket, not a file"), "{error}");
            assert_eq!(names(&folder), ["null", "pipe", "socket"]);
            std::fs::remove_dir_all(folder).unwrap();
        }

        /// NAME_MAX is 255 bytes.
        #[test]
        fn long_names_are_written() {
            let folder = folder("long");
            for name in ["n".repeat(255), "ü".repeat(127), format!("{}.onnx", "n".repeat(250))] {
                write_atomic(&folder.join(&name), b"1").unwrap();
                assert_eq!(std::fs::read(folder.join(&name)).unwrap(), b"1");
            }
            assert_eq!(names(&folder).len(), 3);
            std::fs::remove_dir_all(folder).unwrap();
        }
    }
}
