//! The one error of Panoply.
//!
//! Every crate returns it, so a caller writes `?` everywhere and asks with predicates, never by matching text. It is
//! cheap to clone because a mistake travels with the value that carries it until somebody asks for a result.
//!
//! Messages are lower case, name both operands or the limit that was passed, and end with what would help; they have no
//! final stop. Context lines (`Error::note`) are printed below, indented.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;

/// What `Result` means in Panoply.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Anything that can go wrong: a caller's mistake, or the world refusing.
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

/// The few kinds a program may want to tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The caller asked for something that makes no sense: shapes, types, sizes, names.
    Mistake,
    /// Numbers that were computed are no finite ones any more: a loss or a gradient in training.
    Diverged,
    /// A back end or device is not here; the message says why and what would change that.
    Unavailable,
    /// The device works but cannot do this (a type, a size, a feature it lacks).
    Unsupported,
    /// Memory ran out, or a cap was reached.
    OutOfMemory,
    /// The device stopped answering; its buffers are gone.
    DeviceLost,
    /// A program was rejected by the device's compiler; the notes hold its log.
    CompileFailed,
    /// The driver answered with an error.
    Driver,
    /// A file could not be read or written.
    Io,
    /// A file or text was read and is malformed.
    Corrupt,
}

impl Error {
    /// An error of a kind with its sentence.
    #[cold]
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Error(Arc::new(Inner { kind, message: message.into(), notes: Vec::new(), place: None, source: None }))
    }

    /// A caller's mistake.
    #[cold]
    pub fn mistake(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Mistake, message)
    }

    /// A computation that went where numbers end.
    #[cold]
    pub fn diverged(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Diverged, message)
    }

    /// A back end or device that is not here.
    #[cold]
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unavailable, message)
    }

    /// Something this device cannot do.
    #[cold]
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unsupported, message)
    }

    /// Malformed input from outside.
    #[cold]
    pub fn corrupt(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Corrupt, message)
    }

    /// A file that could not be read or written; `doing` names the file and the attempt.
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

    /// Adds where in the caller's source the mistake stands.
    #[must_use]
    pub fn with_location(self, place: &'static Location<'static>) -> Self {
        self.edit(|inner| inner.place = inner.place.or(Some(place)))
    }

    /// The same error at another place: for who calls what found it on somebody's behalf.
    #[must_use]
    pub fn relocated(self, place: &'static Location<'static>) -> Self {
        self.edit(|inner| inner.place = Some(place))
    }

    /// Adds the lower-level error behind this one.
    #[must_use]
    pub fn with_source(self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.edit(|inner| inner.source = Some(Arc::new(source)))
    }

    fn edit(self, change: impl FnOnce(&mut Inner)) -> Self {
        let mut inner = Arc::try_unwrap(self.0).unwrap_or_else(|shared| (*shared).clone());
        change(&mut inner);
        Error(Arc::new(inner))
    }

    /// The kind.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The sentence without notes and place.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The context lines.
    pub fn notes(&self) -> &[String] {
        &self.0.notes
    }

    /// Whether the caller asked for something that makes no sense.
    pub fn is_mistake(&self) -> bool {
        self.0.kind == ErrorKind::Mistake
    }

    /// Whether training came to numbers that are not finite: the same again comes to the same.
    pub fn is_diverged(&self) -> bool {
        self.0.kind == ErrorKind::Diverged
    }

    /// Whether a back end or device is missing.
    pub fn is_unavailable(&self) -> bool {
        self.0.kind == ErrorKind::Unavailable
    }

    /// Whether the device lacks what was asked.
    pub fn is_unsupported(&self) -> bool {
        self.0.kind == ErrorKind::Unsupported
    }

    /// Whether memory ran out or a cap was reached.
    pub fn is_out_of_memory(&self) -> bool {
        self.0.kind == ErrorKind::OutOfMemory
    }

    /// Whether the device stopped answering.
    pub fn is_device_lost(&self) -> bool {
        self.0.kind == ErrorKind::DeviceLost
    }

    /// Whether the device's compiler rejected a program.
    pub fn is_compile_failed(&self) -> bool {
        self.0.kind == ErrorKind::CompileFailed
    }

    /// Whether a file or text is malformed.
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
