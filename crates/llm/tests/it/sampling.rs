//! Comparison of sampling with exact probabilities.

use panoply_llm::Sampling;

const LOGITS: [f32; 5] = [1.0, 3.0, 2.0, -1.0, 3.0];
const PLAIN: Sampling = Sampling {
    temperature: 1.0,
    top_k: 0,
    top_p: 1.0,
    min_p: 0.0,
    repetition_penalty: 1.0,
    presence_penalty: 0.0,
    frequency_penalty: 0.0,
};

fn frequencies(sampling: &Sampling) -> [f64; 5] {
    let mut counts = [0.0; 5];
    for position in 0..20_000 {
        counts[sampling.sample(&LOGITS, 7, position).unwrap() as usize] += 1.0 / 20_000.0;
    }
    counts
}

fn probabilities(temperature: f64, kept: &[usize]) -> [f64; 5] {
    let weight = |n: usize| if kept.contains(&n) { (f64::from(LOGITS[n]) / temperature).exp() } else { 0.0 };
    let total: f64 = (0..5).map(weight).sum();
    std::array::from_fn(|n| weight(n) / total)
}

fn check(sampling: &Sampling, expected: [f64; 5]) {
    // Four standard deviations of 20,000 draws are below 0.0142.
    for (n, (frequency, expected)) in frequencies(sampling).into_iter().zip(expected).enumerate() {
        assert!((frequency - expected).abs() < 0.0142, "{sampling:?}: token {n} {frequency}, expected {expected}");
        assert!(expected > 0.0 || frequency == 0.0, "{sampling:?}: token {n} was filtered");
    }
}

#[test]
fn frequencies_equal_the_softmax_of_the_kept_tokens() {
    check(&PLAIN, probabilities(1.0, &[0, 1, 2, 3, 4]));
    check(&Sampling { temperature: 2.0, ..PLAIN }, probabilities(2.0, &[0, 1, 2, 3, 4]));
    check(&Sampling { top_k: 3, ..PLAIN }, probabilities(1.0, &[1, 2, 4]));
    // The two largest have a total probability of 0.797, the three largest of 0.944.
    check(&Sampling { top_p: 0.79, ..PLAIN }, probabilities(1.0, &[1, 4]));
    check(&Sampling { top_p: 0.81, ..PLAIN }, probabilities(1.0, &[1, 2, 4]));
    // exp(2 - 3) is 0.368.
    check(&Sampling { min_p: 0.36, ..PLAIN }, probabilities(1.0, &[1, 2, 4]));
    check(&Sampling { min_p: 0.37, ..PLAIN }, probabilities(1.0, &[1, 4]));
}

/// Of tokens whose probabilities fall slowly, the number that a filter keeps follows from sums in order.
#[test]
fn filters_of_a_large_vocabulary_keep_as_many_as_sums_in_order() {
    const COUNT: usize = 3000;
    // Token 7 n modulo the count is the n-th most likely.
    let rank = |token: usize| (0..COUNT).find(|n| n * 7 % COUNT == token).unwrap();
    let ranks: Vec<usize> = (0..COUNT).map(rank).collect();
    let logits: Vec<f32> = ranks.iter().map(|rank| -(*rank as f32) / 1024.0).collect();
    let weights: Vec<f64> = (0..COUNT).map(|n| (-(n as f64) / 1024.0).exp()).collect();
    let total: f64 = weights.iter().sum();
    let nucleus = (1..COUNT).find(|n| weights[..*n].iter().sum::<f64>() >= 0.9 * total).unwrap();
    let likely = weights.iter().filter(|weight| **weight >= 0.25).count();
    for (sampling, kept) in [
        (PLAIN, COUNT),
        (Sampling { top_p: 0.9, ..PLAIN }, nucleus),
        (Sampling { min_p: 0.25, ..PLAIN }, likely),
        (Sampling { top_k: 100, ..PLAIN }, 100),
        (Sampling { top_k: 2000, min_p: 0.25, top_p: 0.999, ..PLAIN }, likely),
    ] {
        let drawn = (0..4000).map(|position| ranks[sampling.sample(&logits, 5, position).unwrap() as usize]);
        let most = drawn.max().unwrap();
        assert!(most < kept && most as f64 > 0.97 * kept as f64 - 2.0, "{sampling:?}: rank {most} of {kept}");
    }
}

#[test]
fn greedy_takes_the_first_of_the_largest() {
    assert_eq!(Sampling::greedy().sample(&LOGITS, 0, 0).unwrap(), 1);
}

#[test]
fn draw_depends_only_on_seed_and_position() {
    let draws = |seed| (0..50).map(|position| PLAIN.sample(&LOGITS, seed, position).unwrap()).collect::<Vec<_>>();
    assert_eq!(draws(3), draws(3));
    assert_ne!(draws(3), draws(4));
}

#[test]
fn nonfinite_logits_and_invalid_parameters_are_errors() {
    let error = PLAIN.sample(&[0.0, f32::NAN], 0, 9).unwrap_err();
    assert_eq!(error.message(), "the logits at position 9 are not finite");
    assert!(PLAIN.sample(&[], 0, 0).is_err());
    assert!(PLAIN.sample(&[f32::NEG_INFINITY], 0, 0).is_err());
    for wrong in [
        Sampling { temperature: -1.0, ..PLAIN },
        Sampling { temperature: f32::NAN, ..PLAIN },
        Sampling { top_p: 1.5, ..PLAIN },
        Sampling { min_p: -0.1, ..PLAIN },
        Sampling { repetition_penalty: 0.0, ..PLAIN },
        Sampling { presence_penalty: f32::NAN, ..PLAIN },
    ] {
        assert!(wrong.check().is_err(), "{wrong:?}");
    }
}

#[test]
fn penalties_are_those_of_transformers_and_of_the_openai_api() {
    // `RepetitionPenaltyLogitsProcessor(1.5)` of transformers for the tokens 1, 3 and 3 gives these.
    let mut logits = LOGITS;
    Sampling { repetition_penalty: 1.5, ..PLAIN }.penalize(&mut logits, &[1, 3], &[3]);
    assert_eq!(logits, [1.0, 2.0, 2.0, -1.5, 3.0]);
    // logit - count * frequency - presence if there is one, for the answer alone.
    let mut logits = LOGITS;
    Sampling { presence_penalty: 0.5, frequency_penalty: 0.25, ..PLAIN }.penalize(&mut logits, &[0], &[2, 4, 2]);
    assert_eq!(logits, [1.0, 3.0, 1.0, -1.0, 2.25]);
}
