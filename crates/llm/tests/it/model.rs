//! A tiny LLaMA compared with the logits and texts of `transformers` on the same decoded weights.

use std::process::Command;

use panoply_llm::tokenizer::DecodeStream;
use panoply_llm::{FinishReason, Model, ModelOptions, Request, Sampling};
use panoply_runtime::Backend;
use panoply_tensor::{Device, MathMode};

use crate::fixtures::{arrays, devices, f32s, ids, path};

const ENCODINGS: [&str; 3] = ["F16", "Q8_0", "Q4_0"];
const PROMPTS: [&str; 3] = ["the quick brown fox", "Wizards — 5 boxes!\n", ""];

fn open(encoding: &str) -> Model {
    Model::open(&path(&format!("tiny-{encoding}.gguf")), &ModelOptions::default()).unwrap()
}

fn greedy(prompt: &str) -> Request<'_> {
    Request { max_tokens: Some(16), sampling: Sampling::greedy(), ..Request::new(prompt) }
}

/// Under exact arithmetic logits are those of f32; else the CPU rounds activations of integer weights to bytes, each with an error of up to
/// 1/254 of the largest of 32.
fn tolerance(encoding: &str, device: &Device) -> f32 {
    let is_rounded = device.info().kind == Backend::Cpu && device.math_mode() != MathMode::Exact && encoding != "F16";
    if is_rounded { 6e-2 } else { 1e-5 }
}

/// Runs a test once more, in a process whose devices compute exactly; returns whether this is that process.
fn is_exact_process(test: &str) -> bool {
    const MODE: &str = "PANOPLY_MATH_MODE";
    if std::env::var(MODE).is_ok_and(|mode| mode == "exact") {
        return true;
    }
    let test = ["--exact", test, "--nocapture"];
    let output = Command::new(std::env::current_exe().unwrap()).args(test).env(MODE, "exact").output().unwrap();
    let ran = String::from_utf8_lossy(&output.stdout).contains("1 passed");
    assert!(output.status.success() && ran, "{}", String::from_utf8_lossy(&output.stderr));
    false
}

fn close(what: &str, logits: &[f32], expected: &[f32], tolerance: f32) {
    let largest = expected.iter().fold(0.0f32, |largest, x| largest.max(x.abs()));
    let off = logits.iter().zip(expected).fold(0.0f32, |off, (x, y)| off.max((x - y).abs()));
    assert_eq!(logits.len(), expected.len(), "{what}");
    assert!(off <= tolerance * largest, "{what}: off by {off}, the largest logit is {largest}");
}

#[test]
fn prompts_have_the_token_ids_of_the_reference() {
    let (model, golden) = (open("F16"), arrays("tiny-F16.safetensors"));
    for (n, prompt) in PROMPTS.iter().enumerate() {
        let expected = ids(&golden[&format!("ids{n}")].1);
        assert_eq!(model.tokenizer().encode(prompt).unwrap(), expected, "{prompt:?}");
        assert_eq!(&model.tokenizer().decode(&expected), prompt);
    }
}

#[test]
fn logits_of_every_position_equal_transformers_on_every_device() {
    is_exact_process("model::logits_of_every_position_equal_transformers_on_every_device");
    // SwiftShader takes minutes to compile a step.
    for device in devices().into_iter().filter(|device| !device.info().name.contains("SwiftShader")) {
        // Devices other than the CPU take seconds to compile each step.
        let encodings = if device.info().kind == Backend::Cpu { &ENCODINGS[..] } else { &ENCODINGS[2..] };
        device.scope(|| {
            for encoding in encodings {
                let (model, golden) = (open(encoding), arrays(&format!("tiny-{encoding}.safetensors")));
                let tokens = ids(&golden["ids1"].1);
                let expected = f32s(&golden["logits1"].1);
                let tolerance = tolerance(encoding, &device);
                let (vocab, mut cache) = (model.config().vocab, model.new_cache());
                for (position, token) in tokens.iter().enumerate() {
                    let logits = model.logits(&mut cache, &[*token], position).unwrap();
                    let what = format!("{encoding} on {device}, position {position}");
                    close(&what, &logits, &expected[position * vocab..][..vocab], tolerance);
                }
                // The same tokens in one call.
                let logits = model.logits(&mut model.new_cache(), &tokens, 0).unwrap();
                let last = &expected[expected.len() - vocab..];
                close(&format!("{encoding} on {device}, prefill"), &logits, last, tolerance);
            }
        });
    }
}

#[test]
fn greedy_continuations_equal_transformers() {
    // Rounded activations may exchange two words of about the same probability.
    let exact = is_exact_process("model::greedy_continuations_equal_transformers");
    for encoding in if exact { &ENCODINGS[..] } else { &ENCODINGS[..1] } {
        let (model, golden) = (open(encoding), arrays(&format!("tiny-{encoding}.safetensors")));
        for (n, prompt) in PROMPTS.iter().enumerate() {
            let expected = ids(&golden[&format!("greedy{n}")].1);
            let end = expected.iter().position(|id| model.tokenizer().is_end(*id));
            let mut generation = model.generate(&greedy(prompt)).unwrap();
            let text = (&mut generation).collect::<Result<String, _>>().unwrap();
            let wanted = &expected[..end.unwrap_or(expected.len())];
            assert_eq!(generation.tokens(), wanted, "{encoding}, {prompt:?}");
            assert_eq!(text, model.tokenizer().decode(wanted));
            let reason = if end.is_some() { FinishReason::Stop } else { FinishReason::Length };
            assert_eq!(generation.finish_reason(), Some(reason));
        }
    }
}

#[test]
fn same_seed_gives_the_same_text() {
    let model = open("Q8_0");
    let text = |seed| {
        let request = Request { seed, max_tokens: Some(24), ..Request::new("the") };
        model.generate(&request).unwrap().collect::<Result<String, _>>().unwrap()
    };
    assert_eq!(text(1), text(1));
    assert_ne!(text(1), text(2));
}

/// Runs in a separate process, because plans are counted per process.
#[test]
fn no_plan_is_made_after_the_first_tokens() {
    const ALONE: &str = "PANOPLY_TEST_ALONE";
    if std::env::var_os(ALONE).is_none() {
        let test = ["--exact", "model::no_plan_is_made_after_the_first_tokens", "--nocapture"];
        let output = Command::new(std::env::current_exe().unwrap()).args(test).env(ALONE, "1").output().unwrap();
        let ran = String::from_utf8_lossy(&output.stdout).contains("1 passed");
        assert!(output.status.success() && ran, "{}", String::from_utf8_lossy(&output.stderr));
        return;
    }
    let model = open("Q4_0");
    let run = || model.generate(&greedy("the quick")).unwrap().for_each(|piece| drop(piece.unwrap()));
    run();
    let before = panoply_tensor::plan_cache_stats();
    run();
    assert_eq!(panoply_tensor::plan_cache_stats().misses, before.misses);
}

#[test]
fn full_context_ends_the_text_and_too_long_prompt_is_an_error() {
    let options = ModelOptions { context_length: Some(12) };
    let model = Model::open(&path("tiny-Q4_0.gguf"), &options).unwrap();
    let prompt = "the quick";
    let tokens = model.tokenizer().encode(prompt).unwrap().len();
    let request = Request { max_tokens: None, ..greedy(prompt) };
    let mut generation = model.generate(&request).unwrap();
    (&mut generation).for_each(|piece| drop(piece.unwrap()));
    if generation.finish_reason() == Some(FinishReason::Length) {
        assert_eq!(generation.tokens().len(), 12 - tokens);
    }
    let long = "five boxing wizards ".repeat(4);
    let error = model.generate(&Request::new(&long)).err().unwrap();
    assert!(error.message().contains("the context 12 positions"), "{error}");
    let options = ModelOptions { context_length: Some(65) };
    let error = Model::open(&path("tiny-Q4_0.gguf"), &options).unwrap_err();
    assert_eq!(error.message(), "context length 65 is not between 1 and the model's 64");
}

#[test]
fn streamed_text_equals_the_reference() {
    let model = open("F16");
    // Every byte of the alphabet, in an order with complete, invalid and truncated characters.
    let tokens: Vec<u32> = (0..4000u32).map(|n| (n * n * 7 + n / 3) % model.config().vocab as u32).collect();
    let pieces: String = {
        let mut stream = DecodeStream::default();
        let text: String = tokens.iter().map(|id| stream.push(model.tokenizer(), *id)).collect();
        text + &stream.finish()
    };
    let golden = std::fs::read_to_string(path("decoded.txt")).unwrap();
    assert_eq!(pieces, golden);
}

#[test]
fn a_generation_that_failed_has_no_finish_reason() {
    // The last tensor of the file is made NaN, so no logit is a number.
    let mut bytes = std::fs::read(path("tiny-F16.gguf")).unwrap();
    let end = bytes.len();
    bytes[end - 64..].fill(0xff);
    let file = std::env::temp_dir().join(format!("panoply-llm-nan-{}.gguf", std::process::id()));
    std::fs::write(&file, bytes).unwrap();
    let model = Model::open(&file, &ModelOptions::default()).unwrap();
    std::fs::remove_file(&file).unwrap();
    let mut generation = model.generate(&greedy("the")).unwrap();
    assert!(generation.next().unwrap().unwrap_err().message().contains("not finite"));
    assert!(generation.next().is_none());
    assert_eq!(generation.finish_reason(), None);
}
