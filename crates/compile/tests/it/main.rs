//! Integration tests of the compiler: one program, a module for each capability under test.

mod opt;
mod plan;
mod render;
