//! Integration tests of the facade and its devices: one program, a module for each capability under test.

mod autotune;
mod compile_fail;
mod cuda;
mod custom_kernel;
mod data_parallel_example;
mod distributed_arrays_example;
mod exhaustive_bounds;
mod external_kernel_example;
mod f16_conversion;
#[path = "../../../nn/tests/it/support/faulty_device.rs"]
mod faulty_device;
mod first_examples;
mod fusion_snapshot;
mod hip;
mod kernel;
mod math_mode;
mod mixed_vendor_example;
mod multi_gpu;
mod naga_translation;
mod oclgrind;
mod products;
mod programs;
mod programs_doc;
mod proofs;
mod proofs_example;
mod ptxas;
mod sequential;
mod spirv;
mod training_example;
mod training_steps;
mod untrusted_networks;
mod verified_compile;
mod view_chains;
mod vulkan;
