//! Language models against `gguf` and `transformers`, whose results are in `fixtures/`.

mod architectures;
mod encodings;
mod engine;
mod fit;
mod fixtures;
mod folder;
mod fuzz;
mod gguf;
mod model;
mod quantize;
mod sampling;
mod shards;
mod text;
