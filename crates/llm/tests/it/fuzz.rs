//! Mutated files of language models, in a process with little memory: each is read or refused with an error, never a crash, a panic or an
//! allocation of a size from the file. Small files that would become much are refused.

#[path = "../../../nn/tests/it/file_formats/fuzz/limited.rs"]
mod limited;

use std::path::{Path, PathBuf};

use panoply_llm::decoder::Weights;
use panoply_llm::gguf::Gguf;
use panoply_llm::tokenizer::Tokenizer;
use panoply_llm::{Config, Model, ModelOptions};
use panoply_tensor::{Device, Result};

use crate::fixtures::path;

use limited::{FULL, Random, each_seed, in_child, mutate};

/// Reads a model, and encodes a text with its tokenizer.
fn model(path: &Path) -> Result<()> {
    encoded(Model::open(path, &ModelOptions::default())?.tokenizer())
}

/// Reads a GGUF file without a tokenizer.
fn weights(path: &Path) -> Result<()> {
    let file = Gguf::open(path)?;
    let config = Config::from_gguf(&file)?;
    Weights::from_gguf(&file, &config, 32, &mut |_, _| {}).map(drop)
}

/// Reads a GGUF file without tensors.
fn vocabulary(path: &Path) -> Result<()> {
    encoded(&Tokenizer::from_gguf(&Gguf::open(path)?)?)
}

fn encoded(tokenizer: &Tokenizer) -> Result<()> {
    let ids = tokenizer.encode("the fox</s> 12 jumps<|im_end|>")?;
    tokenizer.decode(&ids);
    Ok(())
}

/// Copies a folder of the fixtures.
fn copied(name: &str, to: &Path) -> PathBuf {
    let to = to.join(name);
    std::fs::create_dir_all(&to).unwrap();
    for entry in std::fs::read_dir(path(name)).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
    to
}

/// Reads variants of a file, with changes in its first bytes, as the part of `whole` that they belong to.
fn variants(folder: &Path, file: &Path, (whole, first): (&Path, usize), read: fn(&Path) -> Result<()>) {
    let bytes = std::fs::read(file).unwrap();
    read(whole).unwrap_or_else(|error| panic!("{} without changes: {error}", file.display()));
    each_seed(folder, &file.display().to_string(), FULL, |seed| {
        let (mut head, tail) = (bytes[..first.min(bytes.len())].to_vec(), &bytes[first.min(bytes.len())..]);
        mutate(&mut head, &mut Random(seed));
        // Another file, since a mapped one must not change.
        std::fs::remove_file(file).unwrap();
        std::fs::write(file, [&head, tail].concat()).unwrap();
        if let Err(error) = read(whole) {
            assert!(!error.message().is_empty(), "{}, seed {seed}", file.display());
        }
    });
    std::fs::write(file, &bytes).unwrap();
}

#[test]
fn mutated_files_are_read_or_refused() {
    let Some(folder) = in_child("fuzz::mutated_files_are_read_or_refused", "64MiB") else { return };
    Device::get("cpu").unwrap().scope(|| {
        // Headers end before the weights, which are not interpreted.
        for (name, read) in [
            ("tiny-Q4_0.gguf", model as fn(&Path) -> Result<()>),
            ("models/qwen2moe.gguf", weights),
            ("text/gpt-2.gguf", vocabulary),
            ("text/llama.gguf", vocabulary),
        ] {
            let file = folder.join("file.gguf");
            std::fs::copy(path(name), &file).unwrap();
            variants(&folder, &file, (&file, 10_000), read);
        }
        let chat = copied("chat", &folder);
        for name in [
            "config.json",
            "generation_config.json",
            "model.safetensors.index.json",
            "model-00001-of-00003.safetensors",
            "tokenizer.json",
            "tokenizer_config.json",
        ] {
            variants(&folder, &chat.join(name), (&chat, 10_000), model);
        }
    });
}

/// Returns a GGUF file with this metadata and these tensors `[32]` of f32, by name and offset, over 128 bytes.
fn gguf(metadata: &[u8], pairs: u64, tensors: &[(&str, u64)]) -> Vec<u8> {
    let mut file =
        [b"GGUF".as_slice(), &3u32.to_le_bytes(), &(tensors.len() as u64).to_le_bytes(), &pairs.to_le_bytes()].concat();
    file.extend(metadata);
    for (name, offset) in tensors {
        file.extend((name.len() as u64).to_le_bytes());
        file.extend(name.as_bytes());
        file.extend([1u32.to_le_bytes().as_slice(), &32u64.to_le_bytes(), &0u32.to_le_bytes()].concat());
        file.extend(offset.to_le_bytes());
    }
    file.resize(file.len().next_multiple_of(32) + 256, 0);
    file
}

/// 10 million bytes are as many values of 32 bytes each, and a byte of JSON becomes up to a hundred. A tensor of which many others are
/// copies would be memory of its own for each.
#[test]
fn a_model_takes_no_more_memory_than_the_limit() {
    let Some(folder) = in_child("fuzz::a_model_takes_no_more_memory_than_the_limit", "64MiB") else { return };
    let file = folder.join("a.gguf");
    let refused = |bytes: Vec<u8>, why: &str| {
        std::fs::write(&file, bytes).unwrap();
        let error = Gguf::open(&file).err().unwrap().to_string();
        assert!(error.contains(why), "{error}");
    };
    let count = 10_000_000u64;
    let array =
        [&1u64.to_le_bytes()[..], b"a", &9u32.to_le_bytes(), &0u32.to_le_bytes(), &count.to_le_bytes()].concat();
    refused(
        gguf(&[array, vec![0; count as usize]].concat(), 1, &[]),
        "a.gguf: reading it takes more than 64 MiB of memory",
    );
    refused(gguf(&[], 0, &[("a", 0), ("b", 96), ("c", 128)]), "tensors a and b overlap");
    std::fs::write(&file, gguf(&[], 0, &[("a", 128), ("b", 0)])).unwrap();
    assert_eq!(Gguf::open(&file).unwrap().tensors.len(), 2);

    let chat = copied("chat", &folder);
    let refused = |name: &str, bytes: &[u8], why: &str| {
        let before = std::fs::read(chat.join(name)).unwrap();
        std::fs::write(chat.join(name), bytes).unwrap();
        let error = Model::open(&chat, &ModelOptions::default()).err().unwrap().to_string();
        assert!(error.contains(why), "{name}: {error}");
        std::fs::write(chat.join(name), before).unwrap();
    };
    let objects = format!("{{\"a\": [{}0]}}", r#"{"":0},"#.repeat(200_000));
    for name in ["config.json", "model.safetensors.index.json", "tokenizer.json", "tokenizer_config.json"] {
        refused(name, objects.as_bytes(), &format!("{name}: reading it takes more than 64 MiB of memory"));
    }
    let shard = |header: &str| [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &[0; 8]].concat();
    let name = "model-00001-of-00003.safetensors";
    refused(name, &shard(&objects), "00003.safetensors: reading it takes more than 64 MiB of memory");
    let twice = r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}"#;
    refused(name, &shard(twice), "tensors a and b overlap");
}
