//! Sampling: penalties, filters and the choice of a token from logits.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use panoply_tensor::random::philox;
use panoply_tensor::{Error, Result};

/// Sampling parameters. The filters apply in the order top-k, top-p, min-p, then the temperature.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Temperature, which divides the logits; 0 always takes the most likely token.
    pub temperature: f32,
    /// Keeps this many of the most likely tokens; 0 keeps all.
    pub top_k: usize,
    /// Keeps the fewest most likely tokens whose probabilities add up to this; 1 keeps all.
    pub top_p: f32,
    /// Keeps tokens at least this fraction as likely as the most likely; 0 keeps all.
    pub min_p: f32,
    /// Repetition penalty for the tokens of the prompt and the answer: divides positive logits and multiplies negative ones; 1 disables it.
    /// [Keskar et al. 2019]
    pub repetition_penalty: f32,
    /// Presence penalty, subtracted from the logits of tokens that occur in the answer; 0 disables it.
    pub presence_penalty: f32,
    /// Frequency penalty, subtracted from the logits of a token once per occurrence in the answer; 0 disables it.
    pub frequency_penalty: f32,
}

/// Log probabilities of a sampled token and of the most likely ones.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenLogprob {
    /// Token id.
    pub token: u32,
    /// Log probability, before penalties, filters and temperature.
    pub logprob: f32,
    /// Most likely tokens and their log probabilities.
    pub top: Vec<(u32, f32)>,
}

impl Default for Sampling {
    /// Returns temperature 0.8, top-k 40, top-p 0.95, min-p 0.05 and no penalties.
    fn default() -> Sampling {
        Sampling {
            temperature: 0.8,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
        }
    }
}

impl Sampling {
    /// Returns parameters that always take the most likely token.
    pub fn greedy() -> Sampling {
        Sampling { temperature: 0.0, ..Sampling::default() }
    }

    /// Checks the ranges of the settings.
    ///
    /// # Errors
    ///
    /// If the temperature is negative or not finite, a probability is outside 0 to 1, the repetition penalty is not positive and finite, or
    /// another penalty is not finite.
    pub fn check(&self) -> Result<()> {
        if !self.temperature.is_finite() || self.temperature < 0.0 {
            return Err(Error::mistake(format!("temperature {} is not a finite number from 0 on", self.temperature)));
        }
        for (name, value) in [("top-p", self.top_p), ("min-p", self.min_p)] {
            if !(0.0..=1.0).contains(&value) {
                return Err(Error::mistake(format!("{name} {value} is not between 0 and 1")));
            }
        }
        if !self.repetition_penalty.is_finite() || self.repetition_penalty <= 0.0 {
            let message = format!("repetition penalty {} is not a positive number", self.repetition_penalty);
            return Err(Error::mistake(message));
        }
        for (name, value) in [("presence", self.presence_penalty), ("frequency", self.frequency_penalty)] {
            if !value.is_finite() {
                return Err(Error::mistake(format!("{name} penalty {value} is not a finite number")));
            }
        }
        Ok(())
    }

    /// Applies the penalties for the tokens of the prompt and of the answer to logits.
    pub fn penalize(&self, logits: &mut [f32], prompt: &[u32], answer: &[u32]) {
        if self.repetition_penalty != 1.0 {
            let seen: BTreeSet<u32> = prompt.iter().chain(answer).copied().collect();
            for token in seen {
                if let Some(logit) = logits.get_mut(token as usize) {
                    *logit =
                        if *logit > 0.0 { *logit / self.repetition_penalty } else { *logit * self.repetition_penalty };
                }
            }
        }
        if self.presence_penalty == 0.0 && self.frequency_penalty == 0.0 {
            return;
        }
        let mut counts = BTreeMap::<u32, u32>::new();
        answer.iter().for_each(|token| *counts.entry(*token).or_default() += 1);
        for (token, count) in counts {
            if let Some(logit) = logits.get_mut(token as usize) {
                *logit -= self.presence_penalty + count as f32 * self.frequency_penalty;
            }
        }
    }

    /// Samples the token after `position`. It depends only on the logits, the seed and the position, not on earlier samples.
    ///
    /// # Errors
    ///
    /// If a logit is NaN or no logit is finite.
    pub fn sample(&self, logits: &[f32], seed: u64, position: usize) -> Result<u32> {
        let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        if !largest.is_finite() || logits.iter().any(|logit| logit.is_nan()) {
            return Err(Error::diverged(format!("the logits at position {position} are not finite")));
        }
        if self.temperature == 0.0 {
            let best = logits.iter().position(|logit| *logit == largest);
            return Ok(best.expect("the largest logit is one of them") as u32);
        }
        let kept = self.kept(logits, largest);
        let weight = |logit: f32| f64::from((logit - largest) / self.temperature).exp();
        let total: f64 = kept.iter().map(|(_, logit)| weight(*logit)).sum();
        let [high, low, ..] = philox([position as u32, (position as u64 >> 32) as u32, 0, 0], seed);
        let uniform = ((u64::from(high) << 32 | u64::from(low)) >> 11) as f64 / (1u64 << 53) as f64;
        let mut left = uniform * total;
        let drawn = kept.iter().find(|(_, logit)| {
            left -= weight(*logit);
            left < 0.0
        });
        // Rounding may leave a little behind the last.
        Ok(drawn.or(kept.last()).expect("the most likely token is kept").0)
    }

    /// Returns the tokens that pass the filters with their logits, most likely first and equal ones by id; without filters all tokens by id.
    ///
    /// Only as many are sorted as are kept, in parts: a vocabulary has tens of thousands of tokens, and the filters usually keep few.
    fn kept(&self, logits: &[f32], largest: f32) -> Vec<(u32, f32)> {
        // Tokens that a bias forbids must not be left when rounding leaves a little behind the last.
        let possible = logits.iter().zip(0u32..).filter(|(logit, _)| **logit > f32::NEG_INFINITY);
        let mut tokens: Vec<(u32, f32)> = possible.map(|(logit, id)| (id, *logit)).collect();
        let (top_p, min_p) = (f64::from(self.top_p), f64::from(self.min_p));
        if self.top_k == 0 && top_p >= 1.0 && min_p <= 0.0 {
            return tokens;
        }
        if self.top_k > 0 && self.top_k < tokens.len() {
            tokens.select_nth_unstable_by(self.top_k, more_likely);
            tokens.truncate(self.top_k);
        }
        let weight = |(_, logit): &(u32, f32)| f64::from(logit - largest).exp();
        let needed = top_p * tokens.iter().map(weight).sum::<f64>();
        let (mut sorted, mut kept, mut sum) = (0, 0, 0.0);
        while kept == sorted && sorted < tokens.len() {
            let end = (sorted * 8).max(SORTED_AT_ONCE).min(tokens.len());
            sort_first(&mut tokens[sorted..], end - sorted);
            for token in &tokens[sorted..end] {
                let weight = weight(token);
                if kept > 0 && (sum >= needed || weight < min_p) {
                    break;
                }
                (kept, sum) = (kept + 1, sum + weight);
            }
            sorted = end;
        }
        tokens.truncate(kept);
        tokens
    }
}

/// Number of tokens that are sorted at first.
const SORTED_AT_ONCE: usize = 64;

/// Compares tokens by their logits, equal ones by id.
fn more_likely((a, x): &(u32, f32), (b, y): &(u32, f32)) -> Ordering {
    y.total_cmp(x).then(a.cmp(b))
}

/// Moves the `count` most likely tokens to the front and sorts them.
fn sort_first(tokens: &mut [(u32, f32)], count: usize) {
    if count < tokens.len() {
        tokens.select_nth_unstable_by(count, more_likely);
    }
    tokens[..count].sort_unstable_by(more_likely);
}

impl TokenLogprob {
    /// Computes the log probabilities of a token and of the `count` most likely ones, equal ones by id.
    pub fn new(logits: &[f32], token: u32, count: usize) -> TokenLogprob {
        let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = logits.iter().map(|logit| f64::from(logit - largest).exp()).sum();
        let logprob = |logit: f32| (f64::from(logit - largest) - sum.ln()) as f32;
        // Most requests want only the token's own probability, which needs no order of the vocabulary.
        let candidates = if count == 0 { &[] } else { logits };
        let mut sorted: Vec<(u32, f32)> = candidates.iter().zip(0u32..).map(|(logit, id)| (id, *logit)).collect();
        let count = count.min(sorted.len());
        sort_first(&mut sorted, count);
        sorted.truncate(count);
        let top = sorted.into_iter().map(|(id, logit)| (id, logprob(logit))).collect();
        let own = logits.get(token as usize).copied().unwrap_or(f32::NEG_INFINITY);
        TokenLogprob { token, logprob: logprob(own), top }
    }
}
