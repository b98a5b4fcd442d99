//! Integration tests of devices, memory and launches: one program, a module for each capability under test.

mod conformance;
mod device_selection;
mod devices;
mod environment;
mod external_kernels;
mod hazards;
mod invalid_arguments;
mod memory;
mod oneapi;
mod profile;
mod programs;
mod random_kernels;
mod replay;
mod support;
mod vulkan;
