//! Integration tests of task graphs: one program, a module for each capability under test.

mod task_graph;
