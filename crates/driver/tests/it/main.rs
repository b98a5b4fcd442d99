//! Integration tests of the drivers: one program, a module for each driver.

mod cuda;
mod hip;
mod level_zero;
mod opencl;
mod support;
