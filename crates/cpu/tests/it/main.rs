//! Integration tests of the CPU device: one program, a module for each capability under test.

mod cached_attention;
mod checked;
mod epilogues;
mod fourier;
mod gemm;
mod ops;
mod pool;
mod quantized_matmul;
mod random;
mod routines;
mod scatter;
mod sort;
mod support;
mod ulp;
mod vm;
mod vm_fusion;
mod vm_memory;
