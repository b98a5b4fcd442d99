//! The command `panoply`.
fn main() {}
