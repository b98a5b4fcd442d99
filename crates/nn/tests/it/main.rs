//! Integration tests of networks and training: one program, a module for each capability under test.

mod activation_checkpoint;
mod augment;
mod buffer_donation;
mod char_language_model;
mod compiled;
mod compiled_replay;
mod convergence;
mod data_loader;
mod device_resident_data;
mod digits;
mod dynamic_batch;
mod file_formats;
mod grad_accumulation;
mod losses;
mod model;
mod network;
mod onnx;
mod onnx_read;
mod out_of_memory;
mod precision;
mod pytorch;
mod resume;
mod support;
mod table_columns;
mod variable_length_sequences;
