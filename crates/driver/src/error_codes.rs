//! Maps a vendor's error codes to [`ErrorKind`], with one table per vendor.

use std::fmt::Display;

use panoply_device::{Error, ErrorKind};

/// The error codes of a vendor.
pub struct Codes {
    /// The common prefix of all names.
    pub prefix: &'static str,
    /// The codes that a caller can meet, in ascending order: code, name, error kind, remedy.
    pub known: &'static [(i32, &'static str, ErrorKind, &'static str)],
    /// The name for all other codes.
    pub unknown: &'static str,
    /// The remedy for all other codes.
    pub otherwise: &'static str,
}

impl Codes {
    /// Checks that the table is sorted, and that each expected code has the expected kind and a message that begins with the prefix.
    #[cfg(test)]
    pub fn check(&self, expected: &[(i32, ErrorKind)]) {
        for (code, kind) in expected {
            let error = self.failed("gpu:0: doing this", *code);
            assert_eq!(error.kind(), *kind, "{error}");
            assert!(error.message().starts_with(&format!("gpu:0: doing this: {}", self.prefix)), "{error}");
            assert!(error.message().contains(&format!("({code}); ")), "{error}");
        }
        assert!(self.known.windows(2).all(|pair| pair[0].0 < pair[1].0), "the codes are not sorted");
    }

    /// Returns the error for a code; `doing` names the device and the attempted operation.
    pub fn failed(&self, doing: impl Display, code: i32) -> Error {
        let known = self.known.iter().find(|(known, ..)| *known == code);
        let (name, kind, remedy) = match known {
            Some((_, name, kind, remedy)) => (*name, *kind, *remedy),
            None => (self.unknown, ErrorKind::Driver, self.otherwise),
        };
        Error::new(kind, format!("{doing}: {}{name} ({code}); {remedy}", self.prefix))
    }

    /// Returns the same error with the kind `Unavailable`, for failures during discovery.
    pub fn unavailable(&self, doing: impl Display, code: i32) -> Error {
        Error::unavailable(self.failed(doing, code).message())
    }
}
