//! The functions of MPI that Panoply calls, for any type of handle, and the constants that they take.

use std::ffi::{c_char, c_int, c_void};

use panoply_device::Result;

use crate::library::{Opened, Words};

/// Constants that each binary interface defines.
#[derive(Clone, Copy, Debug)]
pub struct Constants<H> {
    /// `MPI_COMM_WORLD`.
    pub world: H,
    /// `MPI_FLOAT`.
    pub float: H,
    /// `MPI_BYTE`.
    pub byte: H,
    /// `MPI_ERRORS_RETURN`.
    pub errors_return: H,
    /// `MPI_STATUS_IGNORE`, an address.
    pub status_ignore: usize,
    /// `MPI_THREAD_SERIALIZED`.
    pub thread_serialized: c_int,
}

/// Declares the table of functions and how they are found; `H` is the type of a handle.
macro_rules! table {
    ($($(#[$doc:meta])* $field:ident($($ty:ty),*) $name:literal;)*) => {
        /// Functions of the library; each returns `MPI_SUCCESS`, which is 0, or an error code.
        pub struct Functions<H> {
            $($(#[$doc])* pub $field: unsafe extern "C" fn($($ty),*) -> c_int,)*
        }

        impl<H> Functions<H> {
            /// Finds the functions in a library whose handles are of type `H`.
            pub fn find(library: &Opened, words: &Words) -> Result<Functions<H>> {
                Ok(Functions {
                    // SAFETY: the types are those of the MPI standard with handles of this interface.
                    $($field: unsafe { library.function(words.prefix, &[$name]) }
                        .map_err(|name| library.lacks(words, name))?,)*
                })
            }
        }
    };
}

table! {
    /// Arguments and their addresses, which may be null; the thread level wanted, and the one granted.
    init_thread(*mut c_int, *mut *mut *mut c_char, c_int, *mut c_int) "MPI_Init_thread";
    /// Communicator, rank.
    comm_rank(H, *mut c_int) "MPI_Comm_rank";
    /// Communicator, size.
    comm_size(H, *mut c_int) "MPI_Comm_size";
    /// Communicator, handler.
    comm_set_errhandler(H, H) "MPI_Comm_set_errhandler";
    /// Code, text, its length.
    error_string(c_int, *mut c_char, *mut c_int) "MPI_Error_string";
    /// Data, count, type, destination, tag, communicator; the request, which is written.
    isend(*const c_void, c_int, H, c_int, c_int, H, *mut H) "MPI_Isend";
    /// Data, count, type, source, tag, communicator; the request, which is written.
    irecv(*mut c_void, c_int, H, c_int, c_int, H, *mut H) "MPI_Irecv";
    /// Data sent, count, type, data received, count, type, communicator; the request, which is written.
    ialltoall(*const c_void, c_int, H, *mut c_void, c_int, H, H, *mut H) "MPI_Ialltoall";
    /// Data sent, count, type, data received, count, type, communicator; the request, which is written.
    iallgather(*const c_void, c_int, H, *mut c_void, c_int, H, H, *mut H) "MPI_Iallgather";
    /// The request; the completion flag, which is written; status.
    test(*mut H, *mut c_int, *mut c_void) "MPI_Test";
    /// Communicator, exit code.
    abort(H, c_int) "MPI_Abort";
    /// No arguments.
    finalize() "MPI_Finalize";
}
