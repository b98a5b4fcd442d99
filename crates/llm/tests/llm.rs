//! Language models against `gguf` and `transformers`, whose results are in `fixtures/`.

#[path = "llm/encodings.rs"]
mod encodings;
#[path = "llm/fixtures.rs"]
mod fixtures;
#[path = "llm/gguf.rs"]
mod gguf;
#[path = "llm/model.rs"]
mod model;
#[path = "llm/sampling.rs"]
mod sampling;
