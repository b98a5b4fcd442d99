//! What the compiler says about code that is no kernel: each file in `compile_fail/kernel` beside its message.

#[test]
fn mistakes_are_named_where_they_were_made() {
    trybuild::TestCases::new().compile_fail("tests/compile_fail/kernel/*.rs");
}
