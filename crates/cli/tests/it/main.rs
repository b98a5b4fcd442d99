//! Integration tests of the command line: one program, a module for each capability under test.

mod bench;
mod categorical_columns;
mod chat;
mod dashboard;
mod explain;
mod failure_recovery;
mod llm_files;
mod mesh;
#[path = "../../../mesh/tests/it/support/mpi.rs"]
mod mpi;
mod multilabel;
mod new_project;
mod onnx_files;
mod support {
    pub mod temp_dir;
}
mod predict_output;
mod regression_and_text;
mod report;
mod saved_runs;
mod sequences;
mod serve;
mod status;
mod train;
mod train_options;
mod untrusted;
mod validation;
mod verify;
