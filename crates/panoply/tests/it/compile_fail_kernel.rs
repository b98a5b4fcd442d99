//! Compiler errors for invalid kernels: each file in `compile_fail/kernel` with its expected messages.

#[test]
fn invalid_kernels_are_reported_at_their_source() {
    trybuild::TestCases::new().compile_fail("tests/compile_fail/kernel/*.rs");
}
