//! What a vendor's codes mean in Panoply's one error: a table for each vendor.

use std::fmt::Display;

use panoply_device::{Error, ErrorKind};

/// What a vendor's codes mean in Panoply's one error.
pub struct Codes {
    /// What stands before every name.
    pub prefix: &'static str,
    /// The codes a caller may meet, in order: the name, the kind, the remedy.
    pub known: &'static [(i32, &'static str, ErrorKind, &'static str)],
    /// What the others are called.
    pub unknown: &'static str,
    /// The remedy for the others.
    pub otherwise: &'static str,
}

impl Codes {
    /// Checks a table: in order, and each of these codes of its kind in a sentence that begins as the vendor's names do.
    #[cfg(test)]
    pub fn check(&self, expected: &[(i32, ErrorKind)]) {
        for (code, kind) in expected {
            let error = self.failed("gpu:0: doing this", *code);
            assert_eq!(error.kind(), *kind, "{error}");
            assert!(error.message().starts_with(&format!("gpu:0: doing this: {}", self.prefix)), "{error}");
            assert!(error.message().contains(&format!("({code}); ")), "{error}");
        }
        assert!(self.known.windows(2).all(|pair| pair[0].0 < pair[1].0), "the codes are in order");
    }

    /// The error for a code; `doing` names the device and the attempt.
    pub fn failed(&self, doing: impl Display, code: i32) -> Error {
        let known = self.known.iter().find(|(known, ..)| *known == code);
        let (name, kind, remedy) = match known {
            Some((_, name, kind, remedy)) => (*name, *kind, *remedy),
            None => (self.unknown, ErrorKind::Driver, self.otherwise),
        };
        Error::new(kind, format!("{doing}: {}{name} ({code}); {remedy}", self.prefix))
    }

    /// The same while devices are looked for: whatever it is, the device is not to be had.
    pub fn unavailable(&self, doing: impl Display, code: i32) -> Error {
        Error::unavailable(self.failed(doing, code).message())
    }
}
