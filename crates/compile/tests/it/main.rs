//! Integration tests of the compiler: one program, a module for each capability under test.

mod allocations;
mod opt;
mod plan;
mod render;

#[global_allocator]
static ALLOCATOR: allocations::Counting = allocations::Counting;
