//! The phases of `panoply bench llm` in candle, on the CPU: prefill of a prompt and decoding of further tokens of a LLaMA in a GGUF file.
//!
//!     candle_llm FILE.gguf PREFILL DECODE
//!
//! Prints a line of JSON with the seconds of both phases, measured after one run. `RAYON_NUM_THREADS` sets the number of threads.

use std::error::Error;
use std::fs::File;
use std::time::Instant;

use candle_core::quantized::gguf_file::Content;
use candle_core::{Device, Tensor};
use candle_transformers::models::quantized_llama::ModelWeights;

/// Size of the vocabulary of the models that `peers_llm.py` makes.
const VOCAB: usize = 32_000;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, prefill, decode] = &arguments[..] else { return Err("usage: candle_llm FILE.gguf PREFILL DECODE".into()) };
    let (prefill, decode): (usize, usize) = (prefill.parse()?, decode.parse()?);
    let mut file = File::open(path)?;
    let content = Content::read(&mut file)?;
    let mut model = ModelWeights::from_gguf(content, &mut file, &Device::Cpu)?;
    // The same prompt as in `panoply bench llm`.
    let prompt: Vec<u32> = (0..prefill).map(|n| (n * 7919 % VOCAB) as u32).collect();
    let prompt = Tensor::new(&prompt[..], &Device::Cpu)?.unsqueeze(0)?;
    let mut seconds = [0.0; 2];
    for _ in 0..2 {
        let start = Instant::now();
        // Position 0 starts a new sequence.
        let mut logits = model.forward(&prompt, 0)?;
        let mut best = logits.argmax(1)?.to_vec1::<u32>()?[0];
        let after_prompt = start.elapsed().as_secs_f64();
        for n in 0..decode {
            let token = Tensor::new(&[[best]], &Device::Cpu)?;
            logits = model.forward(&token, prefill + n)?;
            best = logits.argmax(1)?.to_vec1::<u32>()?[0];
        }
        seconds = [after_prompt, start.elapsed().as_secs_f64() - after_prompt];
    }
    println!("{}", serde_json::json!(seconds));
    Ok(())
}
