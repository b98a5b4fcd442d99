//! Integration tests of the host CPU: one program, a module for each part.

mod half;
mod host_info;
mod pool;
mod scratch;
mod ulp;
