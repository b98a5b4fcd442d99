//! What `wgpu`'s errors mean in Panoply's one error.

use std::fmt::Display;
use std::sync::Mutex;

use panoply_device::{Error, ErrorKind};

use crate::lock::locked;

/// What went wrong with a device beside the calls that were made.
pub struct Fate {
    /// The device in messages.
    pub label: String,
    lost: Mutex<Option<String>>,
    stray: Mutex<Option<String>>,
}

impl Fate {
    pub fn new(label: String) -> Fate {
        Fate { label, lost: Mutex::default(), stray: Mutex::default() }
    }

    /// Notes that the device is gone; the first reason stays.
    pub fn lose(&self, why: String) {
        locked(&self.lost).get_or_insert(why);
    }

    /// Notes an error that no scope took.
    pub fn note_stray(&self, what: String) {
        locked(&self.stray).get_or_insert(what);
    }

    /// The error of a device that is gone, or of what happened beside the calls.
    pub fn check(&self, doing: impl Display) -> Result<(), Error> {
        if let Some(why) = &*locked(&self.lost) {
            let label = &self.label;
            let message =
                format!("{label}: {doing}: the device was lost ({why}); its buffers are gone, restart the program");
            return Err(Error::new(ErrorKind::DeviceLost, message));
        }
        match locked(&self.stray).take() {
            None => Ok(()),
            Some(what) => {
                Err(Error::new(ErrorKind::Driver, format!("{}: {doing}: {}", self.label, first_line(&what))).note(what))
            }
        }
    }

    /// The error for one of `wgpu`'s.
    pub fn failed(&self, doing: impl Display, error: &wgpu::Error) -> Error {
        if let Err(lost) = self.check(&doing) {
            return lost;
        }
        let label = &self.label;
        match error {
            wgpu::Error::OutOfMemory { .. } => Error::new(
                ErrorKind::OutOfMemory,
                format!("out of memory on {label}: {doing}; free buffers or use smaller ones"),
            ),
            wgpu::Error::Validation { description, .. } | wgpu::Error::Internal { description, .. } => {
                let text = chain(error);
                let message = format!("{label}: {doing}: {}; the notes say more, report this", first_line(description));
                Error::new(ErrorKind::Driver, message).note(text)
            }
        }
    }
}

/// An error with all its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}\n{more}");
        }
        cause = error.source();
    }
    text
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_device_is_named_and_stays_lost() {
        let fate = Fate::new("vulkan:0".into());
        assert!(fate.check("waiting").is_ok());
        fate.note_stray("one\ntwo".into());
        let error = fate.check("waiting").unwrap_err();
        assert_eq!((error.kind(), error.message()), (ErrorKind::Driver, "vulkan:0: waiting: one"));
        assert!(fate.check("waiting").is_ok());
        fate.lose("it was unplugged".into());
        for _ in 0..2 {
            let error = fate.check("waiting").unwrap_err();
            assert!(error.is_device_lost() && error.message().contains("it was unplugged"), "{error}");
        }
    }
}
