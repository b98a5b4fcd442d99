//! Requests to end the program: Ctrl-C, or a signal of another process.

use panoply::{Error, Result};

/// Calls a function in a thread of its own after each request; its argument is true after Ctrl-C. The signals no longer end the program.
///
/// # Errors
/// The system refuses the handler or the thread.
#[cfg(unix)]
pub fn set_handler(handler: impl Fn(bool) + Send + 'static) -> Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    use signal_hook::iterator::Signals;

    // Signals calls the handlers that were set before, and the one that LLVM sets in compilers of OpenCL and Vulkan, which MPICH opens too,
    // ends the process. This replaces it, unless an earlier call has.
    match ctrlc::set_handler(|| ()) {
        Ok(()) | Err(ctrlc::Error::MultipleHandlers) => {}
        Err(error) => return Err(Error::mistake(format!("cannot install a handler for signals: {error}"))),
    }
    let failed = |error| Error::io("cannot receive signals", error);
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(failed)?;
    let wait = move || signals.forever().for_each(|signal| handler(signal == SIGINT));
    std::thread::Builder::new().name("panoply-signals".to_string()).spawn(wait).map_err(failed)?;
    Ok(())
}

/// Calls a function in a thread of its own after each Ctrl-C, with the argument true; other requests cannot be told apart here.
///
/// # Errors
/// The system refuses the handler.
#[cfg(not(unix))]
pub fn set_handler(handler: impl Fn(bool) + Send + 'static) -> Result<()> {
    ctrlc::set_handler(move || handler(true))
        .map_err(|error| Error::mistake(format!("cannot install a handler for Ctrl-C: {error}")))
}
