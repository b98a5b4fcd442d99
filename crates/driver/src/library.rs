//! Opening a vendor's library and finding its functions by name.
//!
//! Bindings that know all functions of a version refuse an older library for one that nobody calls; here each is found by itself.

use std::mem::ManuallyDrop;
use std::path::Path;

use dlopen2::raw::Library;
use panoply_device::{Error, Result};

use crate::library_search;

/// An object of the library; an address that is never looked into.
#[cfg(any(feature = "cuda", feature = "oneapi", feature = "rocm"))]
pub type Handle = usize;
/// An address in a device's memory.
#[cfg(any(feature = "cuda", feature = "oneapi", feature = "rocm"))]
pub type DevicePtr = u64;

/// What the answers to a failed opening say.
pub struct Words {
    /// How messages begin: `cuda`.
    pub kind: &'static str,
    /// What the library is called, in the order in which names are tried.
    pub files: &'static [&'static str],
    /// What its functions' names begin with.
    pub prefix: &'static str,
    /// What brings the library.
    pub install: &'static str,
    /// What a library is that lacks a function, and the remedy.
    pub lacking: &'static str,
}

/// A library that stays open: its driver has threads of its own, and others may use it.
pub struct Opened {
    library: ManuallyDrop<Library>,
    /// Where it was found.
    pub file: String,
}

impl Opened {
    /// Opens a library, or the first that the system finds.
    #[cfg(any(feature = "cuda", feature = "oneapi", feature = "rocm"))]
    pub fn open(words: &Words, chosen: Option<&Path>) -> Result<Opened> {
        Opened::open_with_flags(words, chosen, None)
    }

    /// Opens a library likewise, with flags for `dlopen`.
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
        // That a file is not there is no news; that it is there and does not load is.
        let broken = why.into_iter().filter(|(_, why)| !why.contains("No such file"));
        let broken = broken.map(|(file, why)| format!("{}: {why}", file.display()));
        let names = if chosen.is_none() { words.files } else { &[] };
        Err(broken.chain(library_search::passed_over(names)).fold(absent, Error::note))
    }

    /// The first function of these names; an error is the name that is missing. Names with another prefix are another vendor's.
    ///
    /// # Safety
    /// `F` is the type of a pointer to the function.
    pub unsafe fn function<F>(&self, prefix: &str, names: &[&'static str]) -> Result<F, &'static str> {
        let mut names = names.iter().filter(|name| name.starts_with(prefix)).peekable();
        let first = names.peek().map_or("a function", |name| **name);
        // SAFETY: as the caller promised.
        names.find_map(|name| unsafe { self.library.symbol(name) }.ok()).ok_or(first)
    }

    /// The error of a library that lacks a function.
    pub fn lacks(&self, words: &Words, name: &str) -> Error {
        Error::unavailable(format!("{}: {} lacks {name}, {}", words.kind, self.file, words.lacking))
    }
}

/// A code as a result.
#[cfg(any(feature = "cuda", feature = "oneapi", feature = "rocm"))]
pub fn check(code: i32) -> Result<(), i32> {
    if code == 0 { Ok(()) } else { Err(code) }
}

/// Declares a table of functions and how they are found: arguments, then names, of which the first that the library has is taken.
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
