//! Runs the example of proofs, which checks its own claims, on the CPU.

#[path = "../../examples/12_proofs.rs"]
mod example;

use panoply::Device;

#[test]
fn the_claims_of_the_example_are_proven() {
    Device::get("cpu").unwrap().scope(|| example::main().unwrap());
}
