//! The common error type of Panoply.
//!
//! Every crate returns it, so callers use `?` everywhere and classify errors with predicates, never by matching text. It is cheap to
//! clone because a mistake travels with the value that carries it until a result is requested.
//!
//! Messages are lower case, name both operands or the violated limit, end with a remedy, and have no final period. Context lines
//! ([`Error::note`]) are printed below, indented.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;

/// The result type of Panoply.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error: a mistake of the caller or a failure of the environment.
#[derive(Clone)]
pub struct Error(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    message: String,
    notes: Vec<String>,
    place: Option<&'static Location<'static>>,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

/// Classes of errors that a program can distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// Invalid request of the caller: shapes, types, sizes, names.
    Mistake,
    /// Computed values became non-finite: a loss or a gradient in training.
    Diverged,
    /// A backend or device is missing; the message gives the reason and a remedy.
    Unavailable,
    /// The device works but lacks this capability (a type, a size, a feature).
    Unsupported,
    /// Memory ran out, or a cap was reached.
    OutOfMemory,
    /// The device stopped responding; its buffers are lost.
    DeviceLost,
    /// The device's compiler rejected a program; the notes contain its log.
    CompileFailed,
    /// The driver returned an error.
    Driver,
    /// A file could not be read or written.
    Io,
    /// A file or text is malformed.
    Corrupt,
}

impl Error {
    /// Creates an error of a kind with its message.
    #[cold]
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Error(Arc::new(Inner { kind, message: message.into(), notes: Vec::new(), place: None, source: None }))
    }

    /// Creates an error for a mistake of the caller.
    #[cold]
    pub fn mistake(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Mistake, message)
    }

    /// Creates an error for a computation with non-finite results.
    #[cold]
    pub fn diverged(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Diverged, message)
    }

    /// Creates an error for a missing backend or device.
    #[cold]
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unavailable, message)
    }

    /// Creates an error for something that the device does not support.
    #[cold]
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unsupported, message)
    }

    /// Creates an error for malformed external input.
    #[cold]
    pub fn corrupt(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Corrupt, message)
    }

    /// Creates an error for a file that could not be read or written; `doing` names the operation and the file.
    #[cold]
    pub fn io(doing: impl Into<String>, source: std::io::Error) -> Self {
        let message = format!("{}: {source}", doing.into());
        Self::new(ErrorKind::Io, message).with_source(source)
    }

    /// Adds a line of context, printed indented below the message.
    #[must_use]
    pub fn note(self, line: impl Into<String>) -> Self {
        self.edit(|inner| inner.notes.push(line.into()))
    }

    /// Adds the caller's source location of the mistake, unless the error has one.
    #[must_use]
    pub fn with_location(self, place: &'static Location<'static>) -> Self {
        self.edit(|inner| inner.place = inner.place.or(Some(place)))
    }

    /// Replaces the source location, for functions that call others on behalf of their caller.
    #[must_use]
    pub fn relocated(self, place: &'static Location<'static>) -> Self {
        self.edit(|inner| inner.place = Some(place))
    }

    /// Adds the lower-level error that caused this one.
    #[must_use]
    pub fn with_source(self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.edit(|inner| inner.source = Some(Arc::new(source)))
    }

    fn edit(self, change: impl FnOnce(&mut Inner)) -> Self {
        let mut inner = Arc::try_unwrap(self.0).unwrap_or_else(|shared| (*shared).clone());
        change(&mut inner);
        Error(Arc::new(inner))
    }

    /// Returns the kind.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns the message without notes and location.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Returns the context lines.
    pub fn notes(&self) -> &[String] {
        &self.0.notes
    }

    /// Returns true if the caller's request was invalid.
    pub fn is_mistake(&self) -> bool {
        self.0.kind == ErrorKind::Mistake
    }

    /// Returns true if training reached non-finite values. Repeating it gives the same result.
    pub fn is_diverged(&self) -> bool {
        self.0.kind == ErrorKind::Diverged
    }

    /// Returns true if a backend or device is missing.
    pub fn is_unavailable(&self) -> bool {
        self.0.kind == ErrorKind::Unavailable
    }

    /// Returns true if the device lacks the requested capability.
    pub fn is_unsupported(&self) -> bool {
        self.0.kind == ErrorKind::Unsupported
    }

    /// Returns true if memory ran out or a cap was reached.
    pub fn is_out_of_memory(&self) -> bool {
        self.0.kind == ErrorKind::OutOfMemory
    }

    /// Returns true if the device stopped responding.
    pub fn is_device_lost(&self) -> bool {
        self.0.kind == ErrorKind::DeviceLost
    }

    /// Returns true if the device's compiler rejected a program.
    pub fn is_compile_failed(&self) -> bool {
        self.0.kind == ErrorKind::CompileFailed
    }

    /// Returns true if a file or text is malformed.
    pub fn is_corrupt(&self) -> bool {
        self.0.kind == ErrorKind::Corrupt
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)?;
        for note in &self.0.notes {
            for line in note.lines() {
                write!(f, "\n  {line}")?;
            }
        }
        if let Some(place) = self.0.place {
            write!(f, "\n  {}:{}", place.file(), place.line())?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.0.kind)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}
