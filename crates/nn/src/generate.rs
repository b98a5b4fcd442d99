//! Text from a network that tells from characters the next one.

use panoply_tensor::{DType, Error, Result, Rng, Tensor};

use crate::data::{Dataset, Targets, text};
use crate::evaluate::predict;
use crate::layer::{ForwardContext, Layer};
use crate::network::{Loss, Model};

/// How characters are drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GenerationConfig {
    /// How many.
    pub max_new_tokens: usize,
    /// 1 draws as the network tells, less prefers what is likely; 0 takes the likeliest.
    pub temperature: f64,
}

impl Default for GenerationConfig {
    /// 200, at 0.8.
    fn default() -> GenerationConfig {
        GenerationConfig { max_new_tokens: 200, temperature: 0.8 }
    }
}

/// Whether what a network gives at a time depends on a later character, which a text that is written does not have yet. Asked of
/// the network itself, with one of these windows and the same with another last character.
pub fn attends_to_future(model: &impl Layer, data: &Dataset) -> Result<bool> {
    let Targets::Classes { num_classes: classes, labels_per_example: places, .. } = data.targets else {
        return Ok(false);
    };
    let window = data.select(&[0]);
    let mut other = window.clone();
    if let Some(last) = other.features.last_mut() {
        *last = (*last + 1.0) % classes as f32;
    }
    let [window, other] = [window, other].map(|window| predict(model, &window, &Loss::default()));
    let (window, other) = (window?, other?);
    let before = classes * places.saturating_sub(1);
    Ok(window.iter().zip(&other).take(before).any(|(a, b)| (a - b).abs() > 1e-5))
}

/// The prompt and what a network over `[time]` places of this vocabulary, that gives `[time, vocabulary]`, writes after it.
/// An empty prompt is a new line, or the first character there is.
pub fn generate(
    model: &Model,
    vocabulary: &[char],
    prompt: &str,
    sampling: &GenerationConfig,
    rng: &mut Rng,
) -> Result<String> {
    let (input, output) = (&model.network.input, model.network.output_shape()?);
    let [time] = input[..] else {
        return Err(Error::mistake(format!("a network over {input:?} does not read a text")));
    };
    if output != [time, vocabulary.len()] {
        return Err(Error::mistake(format!(
            "a network that gives {output:?} does not tell {} characters",
            vocabulary.len()
        )));
    }
    let known = text::encode(prompt, vocabulary);
    let mut places = known.map_err(|(_, letter)| {
        let letters: String = vocabulary.iter().filter(|letter| !letter.is_control()).collect();
        Error::mistake(format!("{letter:?} is no character that this network knows"))
            .note(format!("it knows {letters}"))
    })?;
    let start = if places.is_empty() { vec![vocabulary.binary_search(&'\n').unwrap_or(0) as i32] } else { vec![] };
    let prompted = start.len();
    places.splice(0..0, start);
    for _ in 0..sampling.max_new_tokens {
        let window = &places[places.len().saturating_sub(time)..];
        // What stands behind the last character is not looked at by those before it.
        let mut padded: Vec<f32> = window.iter().map(|place| *place as f32).collect();
        padded.resize(time, 0.0);
        let logits = model.forward(&Tensor::from_slice(&padded, [1, time]), &mut ForwardContext::eval());
        let last = Tensor::from_slice(&[window.len() as i32 - 1], [1]);
        let logits = logits.cast(DType::F32).index_select(1, &last).flatten(0).to_vec::<f32>()?;
        places.push(draw(&logits, sampling.temperature, rng));
    }
    Ok(places[prompted..].iter().map(|place| vocabulary[*place as usize]).collect())
}

/// One of some places, by their logits.
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
