//! Integration tests of the kernel language: one program, a module for each capability under test.

mod access_strides;
mod interpret;
mod interpret_scalar;
mod random;
mod shrink;
mod text;
mod verify;
