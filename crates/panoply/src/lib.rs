//! Numerical programs on whatever accelerator a machine has.
