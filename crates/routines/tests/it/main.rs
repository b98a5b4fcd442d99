//! Integration tests of the routines of the CPU: one program, a module for each operation.

mod cached_attention;
mod copy;
mod fourier;
mod fourier_plans;
mod gemm;
mod gemm_layouts;
mod operations;
mod quantized_matmul;
mod scatter;
mod sort;
