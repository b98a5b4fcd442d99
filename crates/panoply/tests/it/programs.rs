//! Runs the programs that `docs/measured/programs.md` compares with PyTorch, which check their own results, on the CPU.
//! `custom_kernel` runs the one with a kernel and its gradient.

#[path = "../../examples/character_transformer.rs"]
mod character_transformer;
#[path = "../../examples/csv_classifier.rs"]
#[expect(dead_code, reason = "its main function reads the arguments of the test program")]
mod csv_classifier;
#[path = "../../examples/gan.rs"]
mod gan;
#[path = "../../examples/linear_algebra.rs"]
mod linear_algebra;
#[path = "../../examples/state_dict.rs"]
mod state_dict;
#[path = "../../examples/stencil.rs"]
mod stencil;
#[path = "../../examples/vae.rs"]
mod vae;

use panoply::{Device, Result};

fn on_cpu<T>(program: impl FnOnce() -> Result<T>) -> T {
    Device::get("cpu").unwrap().scope(program).unwrap()
}

#[test]
fn the_csv_classifier_learns() {
    let table = csv_classifier::example_table().unwrap();
    let accuracy = on_cpu(|| csv_classifier::accuracy(&table));
    std::fs::remove_file(table).ok();
    assert!(accuracy > 0.9, "accuracy {accuracy}");
}

#[test]
fn the_vae_learns() {
    on_cpu(vae::main);
}

#[test]
fn the_gan_learns() {
    on_cpu(gan::main);
}

#[test]
fn the_character_transformer_learns() {
    on_cpu(character_transformer::main);
}

#[test]
fn the_stencil_is_exact() {
    on_cpu(stencil::main);
}

#[test]
fn the_linear_algebra_is_right() {
    on_cpu(linear_algebra::main);
}

#[test]
fn the_state_dict_computes_what_pytorch_computes() {
    on_cpu(state_dict::main);
}
