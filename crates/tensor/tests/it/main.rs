//! Integration tests of tensors: one program, a module for each capability under test.

mod activation_checkpoint;
mod buffer_donation;
mod call;
mod conformance;
mod dynamic_dim_gradients;
mod dynamic_dims;
mod eager_flush;
mod epilogues;
mod error_messages;
mod fourier;
mod functions;
mod half_precision;
mod jit;
mod jvp_vmap;
mod kernel_counts;
mod linalg;
mod operators;
mod ops;
mod ops_doc;
mod pytorch;
mod random;
mod read_budget;
mod replay;
mod sort;
mod strided_inputs;
mod unreported_errors;
