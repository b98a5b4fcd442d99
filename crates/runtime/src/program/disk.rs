//! Compiled programs of earlier processes, and which of several was the fastest.
//!
//! One file per program or choice, named by a hash of everything the binary depends on: the source text, the device's driver and version
//! ([`Target::name`](panoply_ir::Target::name)), and our own version. A file states its key and a checksum; what does not
//! match is ignored and replaced. Files appear whole, by renaming. The folder must be the user's own and closed to others, or
//! somebody else's code would run here: otherwise nothing is kept, and one line says so. No failure here is anybody's error.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use panoply_device::SourceText;
use xxhash_rust::xxh3::xxh3_128;

use crate::byte_size::human;
use crate::log;

/// First bytes of a file; the number is the format's.
const MAGIC: &[u8; 16] = b"panoply prog 1\r\n";
const HEADER: usize = MAGIC.len() + 16 + 16;
const LARGEST_FILE: u64 = 256 << 20;

/// The folder is brought down to `KEEP` bytes, the oldest files first, when it exceeds `MOST`: when a process opens it, and whenever it has
/// stored as much as lies between.
const MOST: u64 = 512 << 20;
const KEEP: u64 = 384 << 20;
/// A file counts as so many bytes at least: looking through the folder is little beside 256 compilations.
const LEAST: u64 = (MOST - KEEP) / 256;
/// Files under a temporary name are left by processes that ended while they wrote; these are of no use.
const ABANDONED: Duration = Duration::from_secs(3600);

pub(crate) struct Disk {
    chosen: Option<PathBuf>,
    /// The folder once it was checked; none if it cannot be trusted or written.
    folder: OnceLock<Option<PathBuf>>,
    /// Bytes that were stored since the folder's files were added up.
    stored: AtomicU64,
}

/// Where a program's binary is, or would be.
pub(crate) struct DiskEntry<'d> {
    disk: &'d Disk,
    path: PathBuf,
    key: u128,
}

/// What is there.
pub(crate) enum CacheLookup {
    /// The binary.
    Binary(Vec<u8>),
    /// A file that is not what it should be.
    Damaged,
    Nothing,
}

impl Disk {
    pub fn new(chosen: Option<PathBuf>) -> Disk {
        Disk { chosen, folder: OnceLock::new(), stored: AtomicU64::new(0) }
    }

    pub fn entry(&self, text: &SourceText, target: &str) -> Option<DiskEntry<'_>> {
        let SourceText { language, source, entry, signature } = text;
        self.entry_for(&format!("{target}\0{language:?}\0{entry}\0{signature:?}\0{source}"))
    }

    /// Where what depends on nothing but this description and our version is, or would be.
    pub fn entry_for(&self, described: &str) -> Option<DiskEntry<'_>> {
        let folder = self.folder.get_or_init(|| open(&self.chosen.as_ref()?.join("programs"))).as_ref()?;
        let version = env!("CARGO_PKG_VERSION");
        let key = xxh3_128(format!("{version}\0{described}").as_bytes());
        Some(DiskEntry { disk: self, path: folder.join(format!("{key:032x}")), key })
    }
}

/// Makes the folder if need be; none, with a line in the log, if it is not private or not writable.
fn open(folder: &Path) -> Option<PathBuf> {
    match make_private(folder) {
        Ok(()) => {
            evict(folder);
            Some(folder.to_path_buf())
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            log::warn(|| {
                let folder = folder.display();
                format!(
                    "compiled programs are not kept: {folder}: {error}; set PANOPLY_CACHE_DIR to a folder of your own"
                )
            });
            None
        }
        Err(error) => {
            log::debug(|| format!("compiled programs are not kept: {}: {error}", folder.display()));
            None
        }
    }
}

#[cfg(unix)]
fn make_private(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::{DirBuilderExt, MetadataExt};

    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let (probe, file) = create_unique(folder, ".probe")?;
    let us = file.metadata()?.uid();
    fs::remove_file(&probe)?;
    for place in [Some(folder), folder.parent()].into_iter().flatten() {
        let meta = fs::symlink_metadata(place)?;
        let refuse =
            |why: &str| Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("{} {why}", place.display())));
        if !meta.is_dir() && place == folder {
            return refuse("is not a folder");
        }
        if meta.uid() != us {
            return refuse("belongs to somebody else");
        }
        if meta.mode() & 0o022 != 0 && meta.is_dir() {
            return refuse("can be written by others");
        }
    }
    Ok(())
}

/// The per-user folders of other systems are private by inheritance.
#[cfg(not(unix))]
fn make_private(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)
}

/// Creates a file that no other process writes. Names that a process of the same id left behind are passed over.
fn create_unique(folder: &Path, stem: &str) -> io::Result<(PathBuf, File)> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    loop {
        let path = folder.join(format!("{stem}-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed)));
        match create(&path) {
            Ok(file) => return Ok((path, file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

fn create(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Removes the oldest files when there are too many bytes, and temporary ones that were abandoned.
fn evict(folder: &Path) {
    let Ok(listing) = fs::read_dir(folder) else { return };
    let mut files: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
    for file in listing.flatten() {
        let Some(meta) = file.metadata().ok().filter(fs::Metadata::is_file) else { continue };
        let Ok(modified) = meta.modified() else { continue };
        let temporary = file.file_name().to_string_lossy().starts_with('.');
        if temporary && modified.elapsed().is_ok_and(|age| age > ABANDONED) && fs::remove_file(file.path()).is_ok() {
            continue;
        }
        files.push((modified, meta.len(), file.path()));
    }
    let mut total: u64 = files.iter().map(|(_, bytes, _)| bytes).sum();
    if total <= MOST {
        return;
    }
    log::debug(|| format!("{}: {} of compiled programs, removing the oldest", folder.display(), human(total)));
    files.sort();
    for (_, bytes, path) in files {
        if total <= KEEP {
            break;
        }
        if fs::remove_file(path).is_ok() {
            total -= bytes;
        }
    }
}

impl DiskEntry<'_> {
    pub fn load(&self) -> CacheLookup {
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return CacheLookup::Nothing,
            Err(_) => return CacheLookup::Damaged,
        };
        let mut bytes = Vec::new();
        let whole = file.take(LARGEST_FILE).read_to_end(&mut bytes).is_ok();
        match whole.then(|| self.binary_of(bytes)).flatten() {
            Some(binary) => CacheLookup::Binary(binary),
            None => {
                log::debug(|| format!("{}: damaged, compiling anew", self.path.display()));
                // It may be a folder or not ours to remove; storing says so then.
                let _ = fs::remove_file(&self.path);
                CacheLookup::Damaged
            }
        }
    }

    fn binary_of(&self, mut bytes: Vec<u8>) -> Option<Vec<u8>> {
        let (magic, rest) = bytes.split_at_checked(MAGIC.len())?;
        let (key, rest) = rest.split_first_chunk::<16>()?;
        let (sum, binary) = rest.split_first_chunk::<16>()?;
        let right = magic == MAGIC
            && u128::from_le_bytes(*key) == self.key
            && u128::from_le_bytes(*sum) == xxh3_128(binary)
            && !binary.is_empty();
        right.then(|| bytes.split_off(HEADER))
    }

    pub fn store(&self, binary: &[u8]) {
        if binary.is_empty() || binary.len() as u64 > LARGEST_FILE - HEADER as u64 {
            return;
        }
        let folder = self.path.parent().unwrap_or(Path::new(""));
        let written = create_unique(folder, ".new").and_then(|(temporary, file)| {
            let written = self.write(file, binary).and_then(|()| fs::rename(&temporary, &self.path));
            written.inspect_err(|_| drop(fs::remove_file(&temporary)))
        });
        if let Err(error) = written {
            log::debug(|| format!("{}: not kept: {error}", self.path.display()));
            return;
        }
        let bytes = ((HEADER + binary.len()) as u64).max(LEAST);
        if self.disk.stored.fetch_add(bytes, Ordering::Relaxed) + bytes > MOST - KEEP {
            self.disk.stored.store(0, Ordering::Relaxed);
            evict(folder);
        }
    }

    fn write(&self, mut file: File, binary: &[u8]) -> io::Result<()> {
        file.write_all(MAGIC)?;
        file.write_all(&self.key.to_le_bytes())?;
        file.write_all(&xxh3_128(binary).to_le_bytes())?;
        file.write_all(binary)
    }
}
