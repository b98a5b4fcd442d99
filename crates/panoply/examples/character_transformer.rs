//! A transformer that predicts the next character of a text and continues it.
//!
//! `cargo run --release --example character_transformer`

use panoply::nn::data::text;
use panoply::nn::{
    AdamW, Embedding, ForwardContext, Layer, LayerNorm, Linear, TransformerConfig, TransformerEncoderLayer,
};
use panoply::prelude::*;
use panoply::{Module, Replacement, Rng, Tensor};

const TEXT: &str = include_str!("../../../LICENSE-APACHE");
const TIME: usize = 32;
const BATCH: usize = 16;
const WIDTH: usize = 64;
const STEPS: usize = 200;

#[derive(Module, Clone)]
struct CharacterTransformer {
    characters: Embedding,
    positions: Embedding,
    blocks: Vec<TransformerEncoderLayer>,
    norm: LayerNorm,
    head: Linear,
}

impl CharacterTransformer {
    fn new(vocabulary: usize, rng: &mut Rng) -> CharacterTransformer {
        let config = TransformerConfig {
            d_model: WIDTH,
            num_heads: 4,
            dim_feedforward: 4 * WIDTH,
            is_causal: true,
            ..TransformerConfig::default()
        };
        CharacterTransformer {
            characters: Embedding::new(vocabulary, WIDTH, rng),
            positions: Embedding::new(TIME, WIDTH, rng),
            blocks: (0..2).map(|_| TransformerEncoderLayer::new(config, rng)).collect(),
            norm: LayerNorm::new(WIDTH),
            head: Linear::new(WIDTH, vocabulary, rng),
        }
    }
}

impl Layer for CharacterTransformer {
    fn forward(&self, text: &Tensor, pass: &mut ForwardContext<'_>) -> Tensor {
        let positions = self.positions.forward(&text.arange_like(1), pass);
        let mut x = self.characters.forward(text, pass) + positions;
        for block in &self.blocks {
            x = block.forward(&x, pass);
        }
        self.head.forward(&self.norm.forward(&x, pass), pass)
    }
}

/// Trains the model, and prints text that it generates.
pub fn main() -> Result<()> {
    let vocabulary = text::vocabulary(TEXT);
    let mut codes = text::encode(TEXT, &vocabulary).expect("the vocabulary is that of the text");
    let data = Tensor::from_slice(&codes, [codes.len()]);
    let mut rng = Rng::seed_from_u64(0);
    let mut model = CharacterTransformer::new(vocabulary.len(), &mut rng);
    let mut optimizer = AdamW::new(4e-3);
    let mut losses = Vec::new();
    for step in 1..=STEPS {
        let starts = rng.randint(0, (codes.len() - TIME) as i32, [BATCH, 1]);
        let windows = data.index_select(0, &(starts + Tensor::arange(TIME + 1)));
        let mut pass = ForwardContext::train(&mut rng);
        let logits = model.forward(&windows.slice((.., ..-1)), &mut pass);
        let loss = logits.flatten(0, 1).cross_entropy(&windows.slice((.., 1..)).flatten(0, 1));
        losses.push(optimizer.step(&mut model, loss, pass)?);
        if step % 50 == 0 {
            println!("step {step}: loss {:.3}", losses[step - 1]);
        }
    }
    codes.truncate(TIME);
    for _ in 0..100 {
        let window = Tensor::from_slice(&codes[codes.len() - TIME..], [1, TIME]);
        let logits = model.forward(&window, &mut ForwardContext::eval()).slice((0, -1));
        codes.push(rng.multinomial(&logits.softmax(-1), 1, Replacement::Yes).item()?);
    }
    println!("{}", codes.iter().map(|&code| vocabulary[code as usize]).collect::<String>());
    let loss = losses[STEPS - 20..].iter().sum::<f64>() / 20.0;
    assert!(loss < 2.2, "the loss is {loss}");
    Ok(())
}
