//! Maps `wgpu`'s errors to [`ErrorKind`], and keeps those that arrive outside of a call.

use std::fmt::Display;
use std::sync::Mutex;

use panoply_device::{Error, ErrorKind};

use crate::lock::locked;

/// The name of a device in messages, the reason if it is lost, and errors that `wgpu` reports by callback and not as the result of a call.
pub struct DeviceStatus {
    /// The device's name in messages.
    pub label: String,
    lost: Mutex<Option<String>>,
    stray: Mutex<Option<String>>,
}

impl DeviceStatus {
    pub fn new(label: String) -> DeviceStatus {
        DeviceStatus { label, lost: Mutex::default(), stray: Mutex::default() }
    }

    /// Records that the device is lost; the first reason is kept.
    pub fn lose(&self, why: String) {
        locked(&self.lost).get_or_insert(why);
    }

    /// Records an error outside of all error scopes.
    pub fn note_stray(&self, what: String) {
        locked(&self.stray).get_or_insert(what);
    }

    /// Returns the error of a lost device, or a recorded error.
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

    /// Converts an error of `wgpu`.
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
                let message = format!(
                    "{label}: {doing}: {}; see the notes for details, and report this",
                    first_line(description)
                );
                Error::new(ErrorKind::Driver, message).note(text)
            }
        }
    }
}

/// Returns the texts of an error and all its causes.
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
    fn check_returns_stray_errors_once_and_device_loss_always() {
        let status = DeviceStatus::new("vulkan:0".into());
        assert!(status.check("waiting").is_ok());
        status.note_stray("one\ntwo".into());
        let error = status.check("waiting").unwrap_err();
        assert_eq!((error.kind(), error.message()), (ErrorKind::Driver, "vulkan:0: waiting: one"));
        assert!(status.check("waiting").is_ok());
        status.lose("it was unplugged".into());
        for _ in 0..2 {
            let error = status.check("waiting").unwrap_err();
            assert!(error.is_device_lost() && error.message().contains("it was unplugged"), "{error}");
        }
    }
}
