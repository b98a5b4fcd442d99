//! Estimated memory against the memory that devices count, and against published sizes.

use std::process::Command;

use panoply_llm::folder::Folder;
use panoply_llm::gguf::{Gguf, TensorInfo};
use panoply_llm::{Config, Model, ModelOptions, fit};
use panoply_tensor::Device;

use crate::fixtures::path;

/// Runs in a separate process, because memory is counted per process.
#[test]
fn estimates_are_within_a_twentieth_of_the_measured_peak() {
    const ALONE: &str = "PANOPLY_TEST_ALONE";
    if std::env::var_os(ALONE).is_none() {
        let test = ["--exact", "fit::estimates_are_within_a_twentieth_of_the_measured_peak", "--nocapture"];
        let output = Command::new(std::env::current_exe().unwrap()).args(test).env(ALONE, "1").output().unwrap();
        let ran = String::from_utf8_lossy(&output.stdout).contains("1 passed");
        assert!(output.status.success() && ran, "{}", String::from_utf8_lossy(&output.stderr));
        return;
    }
    let device = Device::get("cpu").unwrap();
    for (name, context) in [("tiny-F16.gguf", 64), ("tiny-Q4_0.gguf", 17), ("chat", 48)] {
        let options = ModelOptions { context_length: Some(context) };
        let before = device.memory_stats();
        let estimate = fit(&path(name), &options, 1, &device).unwrap();
        let after = device.memory_stats();
        assert_eq!((after.allocations, after.uploaded, after.in_place), (before.allocations, before.uploaded, 0));
        assert_eq!((estimate.context_length, estimate.fits()), (context, true));
        device.scope(|| {
            device.trim_memory();
            device.reset_peak_memory_stats();
            let start = device.memory_stats().allocated;
            let model = Model::open(&path(name), &options).unwrap();
            let mut cache = model.new_cache();
            model.logits(&mut cache, &vec![1; context], 0).unwrap();
            model.logits(&mut cache, &[1], context - 1).unwrap();
            let stats = device.memory_stats();
            // Headers and padding of the mapped files are not counted as weights.
            let peak = stats.peak_allocated - start + tensor_bytes(name);
            let off = (estimate.total_bytes() as f64 - peak as f64).abs() / peak as f64;
            assert!(off <= 0.05, "{name}: {} bytes were estimated, {peak} measured", estimate.total_bytes());
        });
    }
}

/// Bytes of the tensors that the model uses where they are mapped.
fn tensor_bytes(name: &str) -> u64 {
    match name {
        "chat" => {
            assert!(Folder::open(&path(name)).is_ok());
            let shards = std::fs::read_dir(path(name)).unwrap().map(Result::unwrap);
            let shards = shards.filter(|entry| entry.file_name().to_string_lossy().ends_with("safetensors"));
            let bytes = |entry: std::fs::DirEntry| {
                let file = std::fs::read(entry.path()).unwrap();
                let header = u64::from_le_bytes(file[..8].try_into().unwrap());
                file.len() as u64 - 8 - header
            };
            shards.map(bytes).sum()
        }
        _ => {
            let file = Gguf::open(&path(name)).unwrap();
            // Rows that are interleaved are in memory of the device.
            let is_mapped = |name: &str, tensor: &TensorInfo| {
                name == "token_embd.weight" || !tensor.encoding.can_interleave(tensor.rows)
            };
            let mapped = file.tensors.iter().filter(|(name, tensor)| is_mapped(name, tensor));
            mapped.map(|(_, tensor)| file.bytes(tensor).len() as u64).sum()
        }
    }
}

#[test]
fn largest_context_and_sequences_are_considered() {
    let device = Device::get("cpu").unwrap();
    let options = ModelOptions { context_length: Some(16) };
    let one = fit(&path("tiny-Q8_0.gguf"), &options, 1, &device).unwrap();
    let four = fit(&path("tiny-Q8_0.gguf"), &options, 4, &device).unwrap();
    assert_eq!((four.cache_bytes, four.weight_bytes), (4 * one.cache_bytes, one.weight_bytes));
    // 2 blocks, keys and values, 2 heads of 8 elements, f32; 16 positions, and 15 that a padded piece of a prompt may reach beyond.
    assert_eq!(one.cache_bytes, 2 * 2 * 2 * 8 * (16 + 15) * 4);
    assert_eq!(one.largest_context_length, Some(64));
    assert!(fit(&path("tiny-Q8_0.gguf"), &options, 0, &device).is_err());
}

#[test]
fn weights_of_every_fixture_are_counted() {
    for name in ["gemma2", "gemma3", "gpt2", "llama", "mixtral", "phi3", "qwen2", "qwen2moe", "qwen3", "qwen3moe"] {
        let file = Gguf::open(&path(&format!("models/{name}.gguf"))).unwrap();
        let counted = file.tensors.iter().filter(|(name, _)| !name.starts_with("rope_"));
        let stored: usize = counted.map(|(_, tensor)| tensor.rows * tensor.k).sum();
        let config = Config::from_gguf(&file).unwrap();
        let [all, active] = config.weight_counts();
        assert_eq!(all, stored as u64, "{name}");
        let has_less = name.contains("moe") || name == "mixtral" || !config.is_tied || config.has_position_embedding;
        assert_eq!(active < all, has_less, "{name}");
    }
}

/// Mistral-7B-v0.1 with f32 weights and a cache of f32 for 4096 positions takes 27.98 GiB.
#[test]
fn mistral_7b_has_its_published_size() {
    let config = Config::from_json_file(&path("mistral-7b.json")).unwrap();
    let [weights, active] = config.weight_counts();
    assert_eq!(weights, 7_241_732_096);
    assert_eq!(active, weights - 32_000 * 4096);
    let gib = (4 * weights + config.cache_bytes(4096)) as f64 / f64::from(1 << 30);
    assert_eq!(format!("{gib:.2}"), "27.98");
}
