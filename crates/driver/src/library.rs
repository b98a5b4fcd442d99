//! Opens a vendor's library and finds its functions by name.
//!
//! Functions are looked up individually: complete bindings of one version reject an older library because it lacks a function that is never
//! called.

use std::mem::ManuallyDrop;
use std::path::Path;

use dlopen2::raw::Library;
use panoply_device::{Error, Result};

use crate::library_search;

/// An object of the library; an opaque address that is never dereferenced.
#[cfg(any(feature = "cuda", feature = "oneapi", feature = "rocm"))]
pub type Handle = usize;
/// An address in a device's memory.
#[cfg(any(feature = "cuda", feature = "oneapi", feature = "rocm"))]
pub type DevicePtr = u64;

/// Names and messages for opening a library.
pub struct Words {
    /// The prefix of messages, such as `cuda`.
    pub kind: &'static str,
    /// File names of the library, in the order in which they are tried.
    pub files: &'static [&'static str],
    /// The prefix of its functions' names.
    pub prefix: &'static str,
    /// The remedy if the library is missing.
    pub install: &'static str,
    /// The explanation and the remedy if the library lacks a function.
    pub lacking: &'static str,
}

/// A library that is never closed: its driver has threads, and other code can use it.
pub struct Opened {
    library: ManuallyDrop<Library>,
    /// The path it was loaded from.
    pub file: String,
}

impl Opened {
    /// Opens a library; `None` opens the first that the system finds.
    #[cfg(any(feature = "cuda", feature = "oneapi", feature = "rocm"))]
    pub fn open(words: &Words, chosen: Option<&Path>) -> Result<Opened> {
        Opened::open_with_flags(words, chosen, None)
    }

    /// Opens a library like `open`, with flags for `dlopen`.
    pub fn open_with_flags(words: &Words, chosen: Option<&Path>, flags: Option<i32>) -> Result<Opened> {
        let files: Vec<&Path> = chosen.map_or_else(|| words.files.iter().map(Path::new).collect(), |path| vec![path]);
        let mut why = Vec::new();
        for file in &files {
            match Library::open_with_flags(file, flags) {
                Ok(library) => {
                    return Ok(Opened { library: ManuallyDrop::new(library), file: file.display().to_string() });
                }
                Err(error) => why.push((file, error.to_string())),
            }
        }
        let (kind, install) = (words.kind, words.install);
        let absent = Error::unavailable(format!("{kind}: {} cannot be loaded; {install}", files[0].display()));
        // A missing file is expected; a file that exists but does not load is reported.
        let broken = why.into_iter().filter(|(_, why)| !why.contains("No such file"));
        let broken = broken.map(|(file, why)| format!("{}: {why}", file.display()));
        let names = if chosen.is_none() { words.files } else { &[] };
        Err(broken.chain(library_search::passed_over(names)).fold(absent, Error::note))
    }

    /// Returns the first function that the library has; the error is the name of the missing one. Names with another prefix belong to
    /// another vendor and are skipped.
    ///
    /// # Safety
    /// `F` must be the type of a pointer to the function.
    pub unsafe fn function<F>(&self, prefix: &str, names: &[&'static str]) -> Result<F, &'static str> {
        let mut names = names.iter().filter(|name| name.starts_with(prefix)).peekable();
        let first = names.peek().map_or("a function", |name| **name);
        // SAFETY: guaranteed by the caller.
        names.find_map(|name| unsafe { self.library.symbol(name) }.ok()).ok_or(first)
    }

    /// Returns the error for a library that lacks a function.
    pub fn lacks(&self, words: &Words, name: &str) -> Error {
        Error::unavailable(format!("{}: {} lacks {name}, {}", words.kind, self.file, words.lacking))
    }
}

/// Converts an error code to a `Result`.
#[cfg(any(feature = "cuda", feature = "oneapi", feature = "rocm"))]
pub fn check(code: i32) -> Result<(), i32> {
    if code == 0 { Ok(()) } else { Err(code) }
}

/// Declares a table of functions and how they are found: argument types, then names, of which the first that the library has is used.
#[cfg(any(feature = "cuda", feature = "oneapi", feature = "rocm"))]
macro_rules! functions {
    (
        $(#[$doc:meta])*
        $table:ident
        needed { $($field:ident($($ty:ty),* $(,)?) $($name:literal)+;)* }
        optional { $($option:ident($($option_ty:ty),*) $($option_name:literal)+;)* }
    ) => {
        $(#[$doc])*
        pub struct $table {
            $(
                #[doc = concat!($("`", $name, "` ",)+)]
                pub $field: unsafe extern "system" fn($($ty),*) -> i32,
            )*
            $(
                #[doc = concat!($("`", $option_name, "` ",)+)]
                pub $option: Option<unsafe extern "system" fn($($option_ty),*) -> i32>,
            )*
        }

        impl $table {
            /// Finds the functions in a library.
            pub fn find(
                library: &$crate::library::Opened,
                words: &$crate::library::Words,
            ) -> panoply_device::Result<$table> {
                let prefix = words.prefix;
                Ok($table {
                    // SAFETY: the types are those of the vendors' headers.
                    $($field: unsafe { library.function(prefix, &[$($name),+]) }
                        .map_err(|name| library.lacks(words, name))?,)*
                    // SAFETY: as above.
                    $($option: unsafe { library.function(prefix, &[$($option_name),+]) }.ok(),)*
                })
            }
        }
    };
}

#[cfg(any(feature = "cuda", feature = "oneapi", feature = "rocm"))]
pub(crate) use functions;
