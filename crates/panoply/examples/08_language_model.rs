//! Text from a language model: `cargo run --release --example 08_language_model -- model.gguf "Once upon a time"`.

use panoply::llm::{Model, ModelOptions, Request};

fn main() -> panoply::Result<()> {
    let mut arguments = std::env::args().skip(1);
    // Without arguments a tiny model of the repository, whose words mean nothing.
    let tiny = || concat!(env!("CARGO_MANIFEST_DIR"), "/../llm/tests/fixtures/chat.gguf").to_string();
    let path = arguments.next().unwrap_or_else(tiny);
    let prompt = arguments.next().unwrap_or_else(|| "the quick brown fox".to_string());
    let model = Model::open(path.as_ref(), &ModelOptions::default())?;
    for piece in &mut model.generate(&Request { max_tokens: Some(32), ..Request::new(&prompt) })? {
        print!("{}", piece?);
    }
    println!();
    Ok(())
}
