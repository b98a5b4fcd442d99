//! On-disk cache of compiled programs and autotuning choices.
//!
//! There is one file per program or choice. Its name is a hash of everything the binary depends on: the source text, the device's
//! driver and version ([`Target::name`](panoply_ir::Target::name)), and Panoply's version. A file contains its key and a checksum;
//! files that do not match are ignored and replaced. Files are written under a temporary name and renamed, so they are never
//! partial. The folder must belong to the user and be writable by no one else, because its files are executed; otherwise nothing is
//! cached and one log line says so. Cache failures are never reported as errors.

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

/// First bytes of a file; the digit is the format version.
const MAGIC: &[u8; 16] = b"panoply prog 1\r\n";
const HEADER: usize = MAGIC.len() + 16 + 16;
const MAX_FILE_BYTES: u64 = 256 << 20;

/// When the folder exceeds `MAX_FOLDER_BYTES` bytes, its oldest files are removed until it holds at most `KEPT_FOLDER_BYTES`. The size is checked when a
/// process opens the folder, and each time it has stored `MAX_FOLDER_BYTES - KEPT_FOLDER_BYTES` bytes.
const MAX_FOLDER_BYTES: u64 = 512 << 20;
const KEPT_FOLDER_BYTES: u64 = 384 << 20;
/// Minimum size that a stored file counts as, so that the folder is listed at most once per 256 compilations.
const MIN_COUNTED_BYTES: u64 = (MAX_FOLDER_BYTES - KEPT_FOLDER_BYTES) / 256;
/// Age at which temporary files, left by processes that ended while writing, are removed.
const ABANDONED: Duration = Duration::from_secs(3600);

pub(crate) struct Disk {
    chosen: Option<PathBuf>,
    /// The folder, once checked; `None` if it is not private or not writable.
    folder: OnceLock<Option<PathBuf>>,
    /// Bytes stored since the folder's size was last computed.
    stored: AtomicU64,
}

/// Location of a binary, whether or not it exists.
pub(crate) struct DiskEntry<'d> {
    disk: &'d Disk,
    path: PathBuf,
    key: u128,
}

/// Result of a lookup.
pub(crate) enum CacheLookup {
    /// The binary.
    Binary(Vec<u8>),
    /// A file with an invalid header, key or checksum.
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

    /// Returns the entry for data that depends only on this description and Panoply's version.
    pub fn entry_for(&self, described: &str) -> Option<DiskEntry<'_>> {
        let folder = self.folder.get_or_init(|| open(&self.chosen.as_ref()?.join("programs"))).as_ref()?;
        let version = env!("CARGO_PKG_VERSION");
        let key = xxh3_128(format!("{version}\0{described}").as_bytes());
        Some(DiskEntry { disk: self, path: folder.join(format!("{key:032x}")), key })
    }
}

/// Opens the folder, creating it if needed. Returns `None` and logs a line if it is not private or not writable.
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
                    "compiled programs are not cached: {folder}: {error}; set PANOPLY_CACHE_DIR to a private folder"
                )
            });
            None
        }
        Err(error) => {
            log::debug(|| format!("compiled programs are not cached: {}: {error}", folder.display()));
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
            return refuse("belongs to another user");
        }
        if meta.mode() & 0o022 != 0 && meta.is_dir() {
            return refuse("can be written by others");
        }
    }
    Ok(())
}

/// Per-user folders of other systems are private by inheritance.
#[cfg(not(unix))]
fn make_private(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)
}

/// Creates a file with a unique name. Skips names left behind by an earlier process with the same id.
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

/// Removes the oldest files if the folder is too large, and abandoned temporary files.
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
    if total <= MAX_FOLDER_BYTES {
        return;
    }
    log::debug(|| format!("{}: {} of compiled programs, removing the oldest", folder.display(), human(total)));
    files.sort();
    for (_, bytes, path) in files {
        if total <= KEPT_FOLDER_BYTES {
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
        let whole = file.take(MAX_FILE_BYTES).read_to_end(&mut bytes).is_ok();
        match whole.then(|| self.binary_of(bytes)).flatten() {
            Some(binary) => CacheLookup::Binary(binary),
            None => {
                log::debug(|| format!("{}: damaged, compiling again", self.path.display()));
                // If this fails (a folder, or no permission), `store` logs it.
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
        if binary.is_empty() || binary.len() as u64 > MAX_FILE_BYTES - HEADER as u64 {
            return;
        }
        let folder = self.path.parent().unwrap_or(Path::new(""));
        let written = create_unique(folder, ".new").and_then(|(temporary, file)| {
            let written = self.write(file, binary).and_then(|()| fs::rename(&temporary, &self.path));
            written.inspect_err(|_| drop(fs::remove_file(&temporary)))
        });
        if let Err(error) = written {
            log::debug(|| format!("{}: not cached: {error}", self.path.display()));
            return;
        }
        let bytes = ((HEADER + binary.len()) as u64).max(MIN_COUNTED_BYTES);
        if self.disk.stored.fetch_add(bytes, Ordering::Relaxed) + bytes > MAX_FOLDER_BYTES - KEPT_FOLDER_BYTES {
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
