//! Support for tests on simulated vendor libraries.

pub mod fake_library;
