//! Host functions as programs, for the CPU device.

use std::fmt;
use std::sync::Arc;

use panoply_ir::interpret::Arg;
use panoply_ir::kernel::Access;
use panoply_ir::{DType, Element, Error, Result, Scalar};

use crate::program::Signature;

/// Type of a host function's body.
pub type Body = dyn Fn(&mut HostCall<'_>) -> Result<()> + Send + Sync;

/// A host function that implements a kernel. It is called once per launch.
#[derive(Clone)]
pub struct HostFunction {
    /// Name of the function.
    pub entry: String,
    /// Parameters.
    pub signature: Signature,
    /// Access to each parameter's buffer, in order; `None` for scalars.
    pub access: Vec<Option<Access>>,
    /// The function.
    pub body: Arc<Body>,
}

/// A call of a [`HostFunction`]: the grid and the arguments, which are numbered from 0.
pub struct HostCall<'a> {
    /// Number of work-items along each axis.
    pub grid: [u64; 3],
    entry: &'a str,
    /// `None` for a writable buffer that was already taken.
    args: Vec<Option<Arg<'a>>>,
}

impl<'a> HostCall<'a> {
    /// Creates a call with these arguments.
    pub fn new(entry: &'a str, grid: [u64; 3], args: Vec<Arg<'a>>) -> HostCall<'a> {
        HostCall { grid, entry, args: args.into_iter().map(Some).collect() }
    }

    /// Returns the elements of a read-only buffer.
    ///
    /// # Errors
    /// The argument is not a read-only buffer of this type.
    pub fn read<T: Element>(&self, position: usize) -> Result<&'a [T]> {
        match self.args.get(position) {
            Some(Some(Arg::Read(bytes))) => {
                bytemuck::checked::try_cast_slice(bytes).map_err(|_| self.wrong(position, "read", T::DTYPE))
            }
            _ => Err(self.wrong(position, "read", T::DTYPE)),
        }
    }

    /// Returns the elements of a writable buffer. Each buffer can be taken only once.
    ///
    /// # Errors
    /// The argument is not a writable buffer of this type, or was taken before.
    pub fn write<T: Element>(&mut self, position: usize) -> Result<&'a mut [T]> {
        let wrong = self.wrong(position, "write", T::DTYPE);
        match self.args.get_mut(position).and_then(|arg| arg.take_if(|arg| matches!(arg, Arg::Write(_)))) {
            Some(Arg::Write(bytes)) => {
                // Uninitialized memory can contain bytes that are not valid `bool`s.
                if T::DTYPE == DType::Bool {
                    bytes.iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
                }
                bytemuck::checked::try_cast_slice_mut(bytes).map_err(|_| wrong)
            }
            _ => Err(wrong),
        }
    }

    /// Returns a scalar argument.
    ///
    /// # Errors
    /// The argument is not a scalar of this type.
    pub fn scalar<T: Element>(&self, position: usize) -> Result<T> {
        match self.args.get(position) {
            Some(Some(Arg::Scalar(Scalar { dtype, bits }))) if *dtype == T::DTYPE => {
                Ok(T::from_bytes(&bits.to_le_bytes()[..dtype.bytes()])[0])
            }
            _ => Err(self.wrong(position, "scalar", T::DTYPE)),
        }
    }

    fn wrong(&self, position: usize, what: &str, dtype: DType) -> Error {
        let is = match self.args.get(position) {
            None => format!("there are {} arguments", self.args.len()),
            Some(None) => "it was already taken".to_string(),
            Some(Some(Arg::Read(bytes))) => format!("it is {} bytes to read", bytes.len()),
            Some(Some(Arg::Write(bytes))) => format!("it is {} bytes to write", bytes.len()),
            Some(Some(Arg::Scalar(value))) => format!("it is a {}", value.dtype),
            Some(Some(Arg::Index(_))) => "it is an index".to_string(),
        };
        Error::mistake(format!(
            "kernel {}: its CPU function requests argument {} as {what} {dtype}, but {is}",
            self.entry,
            position + 1
        ))
    }
}

impl fmt::Debug for HostFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostFunction({})", self.entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_checked_for_access_and_type() {
        let (read, mut write) = ([1u32, 2], [3u32]);
        let args = vec![
            Arg::Read(bytemuck::cast_slice(&read)),
            Arg::Write(bytemuck::cast_slice_mut(&mut write)),
            Arg::Scalar(7i16.into()),
        ];
        let mut call = HostCall::new("f", [2, 1, 1], args);
        assert_eq!((call.read::<u32>(0).unwrap(), call.scalar::<i16>(2).unwrap()), (&[1, 2][..], 7));
        call.write::<u32>(1).unwrap()[0] = 4;
        for (error, message) in [
            (call.write::<u32>(1).map(drop).unwrap_err(), "argument 2 as write u32, but it was already taken"),
            (call.write::<u32>(0).map(drop).unwrap_err(), "argument 1 as write u32, but it is 8 bytes to read"),
            (call.read::<u64>(2).map(drop).unwrap_err(), "argument 3 as read u64, but it is a i16"),
            (call.scalar::<u16>(2).map(drop).unwrap_err(), "argument 3 as scalar u16, but it is a i16"),
            (call.read::<u8>(3).map(drop).unwrap_err(), "argument 4 as read u8, but there are 3 arguments"),
        ] {
            assert!(error.is_mistake() && error.message().contains(message), "{error}");
        }
        drop(call);
        assert_eq!(write, [4]);
    }
}
