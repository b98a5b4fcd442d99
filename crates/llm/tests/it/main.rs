//! Comparison with the Python packages `gguf` and `transformers`, whose results are in `fixtures/`.

mod encodings;
mod fixtures;
mod gguf;
mod model;
mod sampling;
