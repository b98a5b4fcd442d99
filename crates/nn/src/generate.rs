//! Text generation with a character-level language model.

use panoply_tensor::{DType, Error, Result, Rng, Tensor};

use crate::data::{Dataset, Targets, text};
use crate::evaluate::predict;
use crate::layer::{ForwardContext, Layer};
use crate::network::{Loss, Model};

/// Sampling settings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GenerationConfig {
    /// Number of characters to generate.
    pub max_new_tokens: usize,
    /// Softmax temperature: 1 samples from the model's distribution, less prefers likely characters, 0 takes the most likely one.
    pub temperature: f64,
}

impl Default for GenerationConfig {
    /// 200 characters at temperature 0.8.
    fn default() -> GenerationConfig {
        GenerationConfig { max_new_tokens: 200, temperature: 0.8 }
    }
}

/// Returns true if the output at a time step depends on a later character, which makes a network unusable for generation. Compares the
/// outputs for one window of `data` and for the same window with another last character.
///
/// # Errors
/// If the forward pass fails.
pub fn attends_to_future(model: &impl Layer, data: &Dataset) -> Result<bool> {
    let Targets::Classes { num_classes: classes, labels_per_example: places, .. } = data.targets else {
        return Ok(false);
    };
    let window = data.select(&[0]);
    let mut other = window.clone();
    if let Some(last) = other.features.last_mut() {
        *last = (*last + 1.0) % classes as f32;
    }
    let [window, other] = [window, other].map(|window| predict(model, &window, &Loss::default())?.to_vec::<f32>());
    let (window, other) = (window?, other?);
    let before = classes * places.saturating_sub(1);
    Ok(window.iter().zip(&other).take(before).any(|(a, b)| (a - b).abs() > 1e-5))
}

/// Returns the prompt followed by generated text. The network's input is `[time]`, its output `[time, vocabulary]`. An empty prompt starts
/// from a newline, or from the first character of the vocabulary.
///
/// # Errors
/// If the network has other shapes, or the prompt has a character outside the vocabulary.
pub fn generate(
    model: &Model,
    vocabulary: &[char],
    prompt: &str,
    sampling: &GenerationConfig,
    rng: &mut Rng,
) -> Result<String> {
    let (input, output) = (&model.network.input, model.network.output_shape()?);
    let [time] = input[..] else {
        return Err(Error::mistake(format!("the network's input is {input:?}; a language model needs [time]")));
    };
    if output != [time, vocabulary.len()] {
        return Err(Error::mistake(format!(
            "the network's output is {output:?}; expected [{time}, {}], logits over the vocabulary",
            vocabulary.len()
        )));
    }
    let known = text::encode(prompt, vocabulary);
    let mut places = known.map_err(|(_, letter)| {
        let letters: String = vocabulary.iter().filter(|letter| !letter.is_control()).collect();
        Error::mistake(format!("{letter:?} is not in the network's vocabulary"))
            .note(format!("the vocabulary is {letters}"))
    })?;
    let start = if places.is_empty() { vec![vocabulary.binary_search(&'\n').unwrap_or(0) as i32] } else { vec![] };
    let prompted = start.len();
    places.splice(0..0, start);
    for _ in 0..sampling.max_new_tokens {
        let window = &places[places.len().saturating_sub(time)..];
        // The network is causal, so the padding after the last character has no effect.
        let mut padded: Vec<f32> = window.iter().map(|place| *place as f32).collect();
        padded.resize(time, 0.0);
        let logits = model.forward(&Tensor::from_slice(&padded, [1, time]), &mut ForwardContext::eval());
        let last = Tensor::from_slice(&[window.len() as i32 - 1], [1]);
        let logits = logits.cast(DType::F32).index_select(1, &last).flatten(0, -1).to_vec::<f32>()?;
        places.push(draw(&logits, sampling.temperature, rng));
    }
    Ok(places[prompted..].iter().map(|place| vocabulary[*place as usize]).collect())
}

/// Samples an index from logits.
fn draw(logits: &[f32], temperature: f64, rng: &mut Rng) -> i32 {
    let most = logits.iter().copied().fold(f32::MIN, f32::max);
    let weights: Vec<f64> = logits
        .iter()
        .map(|logit| match temperature > 0.0 {
            true => (f64::from(logit - most) / temperature).exp(),
            false => f64::from(u8::from(*logit == most)),
        })
        .collect();
    let mut left = f64::from(rng.next_words()[0]) / 2f64.powi(32) * weights.iter().sum::<f64>();
    let place = weights.iter().position(|weight| {
        left -= weight;
        left < 0.0
    });
    place.unwrap_or(logits.len() - 1) as i32
}
