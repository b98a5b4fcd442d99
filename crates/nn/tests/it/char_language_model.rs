//! A character language model learns more than the frequencies of letters.

use std::collections::BTreeMap;

use panoply_nn::{AdamW, Embedding, ForwardContext, Gru, Layer, Linear, Sequential};
use panoply_tensor::{Device, Result, Rng, Tensor};

const TEXT: &str = include_str!("../../../../LICENSE-APACHE");
const TIME: usize = 24;
const BATCH: usize = 32;

/// Compares the mean loss on unseen text with the entropy of single letters, below which no model without memory can get.
#[test]
fn the_loss_falls_below_the_entropy_of_single_letters() {
    let text: String = TEXT.split_whitespace().collect::<Vec<&str>>().join(" ").to_lowercase();
    let mut counts: BTreeMap<char, usize> = BTreeMap::new();
    text.chars().for_each(|letter| *counts.entry(letter).or_default() += 1);
    let all = text.chars().count() as f64;
    let entropy: f64 = counts.values().map(|count| -(*count as f64 / all) * (*count as f64 / all).ln()).sum();
    let places: Vec<char> = counts.keys().copied().collect();
    let letters: Vec<i32> =
        text.chars().map(|letter| places.iter().position(|known| *known == letter).unwrap() as i32).collect();
    let vocabulary = counts.len();
    let learned = Device::get("cpu").unwrap().scope(|| learn(&letters, vocabulary)).unwrap();
    eprintln!("{vocabulary} letters, entropy {entropy:.3}, loss on unseen text {learned:.3}");
    assert!((2.5..3.2).contains(&entropy), "the text is English: {entropy}");
    assert!(learned < entropy - 0.3, "{learned} is not below {entropy}");
}

/// Returns the loss on the last tenth of a text after training on the rest.
fn learn(letters: &[i32], vocabulary: usize) -> Result<f64> {
    let mut rng = Rng::seed_from_u64(0);
    let (train, unseen) = letters.split_at(letters.len() / 10 * 9);
    let mut model = Sequential::new()
        .add(Embedding::new(vocabulary, 24, &mut rng))
        .add(Gru::new(24, 48, &mut rng))
        .add(Linear::new(48, vocabulary, &mut rng));
    let mut optimizer = AdamW::new(1e-2).clip_grad_norm(1.0);
    let windows = |text: &[i32], starts: &[usize]| {
        let cut = |offset: usize| -> Vec<i32> {
            starts.iter().flat_map(|at| &text[at + offset..at + offset + TIME]).copied().collect()
        };
        (Tensor::from_slice(&cut(0), [BATCH, TIME]), Tensor::from_slice(&cut(1), [BATCH * TIME]))
    };
    let loss = |model: &Sequential, (x, y): &(Tensor, Tensor), pass: &mut ForwardContext<'_>| {
        model.forward(x, pass).reshape([-1, vocabulary as isize]).cross_entropy(y)
    };
    for _ in 0..80 {
        let starts: Vec<usize> =
            (0..BATCH).map(|_| rng.random_below((train.len() - TIME - 1) as u32) as usize).collect();
        let batch = windows(train, &starts);
        let mut pass = ForwardContext::train(&mut rng);
        let value = loss(&model, &batch, &mut pass);
        optimizer.step(&mut model, value, pass)?;
    }
    let starts: Vec<usize> = (0..BATCH).map(|at| at * (unseen.len() - TIME - 1) / BATCH).collect();
    loss(&model, &windows(unseen, &starts), &mut ForwardContext::eval()).item::<f64>()
}
