//! Integration tests of the CPU device: one program, a module for each capability under test.

mod checked;
mod epilogues;
mod float_to_integer;
mod half;
mod memory;
mod ops;
mod quotient;
mod random;
mod reduction_order;
mod support;
mod vm;
mod vm_fusion;
mod vm_memory;
