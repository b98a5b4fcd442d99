//! Models in several GGUF files, and mapped files that are used in place.

use std::path::PathBuf;
use std::process::Command;

use panoply_llm::gguf::{Gguf, Value};
use panoply_llm::{Model, ModelOptions};
use panoply_tensor::Device;

use crate::fixtures::path;

const SHARDS: [&str; 3] = ["tiny-00001-of-00003.gguf", "tiny-00002-of-00003.gguf", "tiny-00003-of-00003.gguf"];

/// A copy of the shards that is removed in the end.
struct Copy(PathBuf);

impl Copy {
    fn new(test: &str) -> Copy {
        let to = std::env::temp_dir().join(format!("panoply-llm-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&to).unwrap();
        for name in SHARDS {
            std::fs::copy(path("split").join(name), to.join(name)).unwrap();
        }
        Copy(to)
    }

    fn shard(&self, number: usize) -> PathBuf {
        self.0.join(SHARDS[number - 1])
    }

    /// Replaces the only occurrence of bytes in a shard.
    fn replace(&self, number: usize, from: &[u8], to: &[u8]) {
        let mut bytes = std::fs::read(self.shard(number)).unwrap();
        let mut found = (0..=bytes.len() - from.len()).filter(|at| bytes[*at..].starts_with(from));
        let at = found.next().unwrap();
        assert_eq!(found.next(), None);
        bytes[at..at + from.len()].copy_from_slice(to);
        std::fs::write(self.shard(number), bytes).unwrap();
    }

    /// The message of opening a shard, without the folder's name.
    fn message(&self, number: usize) -> String {
        let error = Gguf::open(&self.shard(number)).err().unwrap();
        error.message().replace(&self.0.display().to_string(), "DIR").replace('\\', "/")
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

#[test]
fn shards_hold_the_tensors_of_the_whole_file() {
    let whole = Gguf::open(&path("tiny-Q4_0.gguf")).unwrap();
    for shard in SHARDS {
        let shards = Gguf::open(&path("split").join(shard)).unwrap();
        assert_eq!(shards.metadata["llama.block_count"], Value::Unsigned(2));
        assert!(shards.tensors.keys().eq(whole.tensors.keys()));
        for (name, tensor) in &shards.tensors {
            let expected = &whole.tensors[name];
            assert_eq!((tensor.encoding, tensor.rows, tensor.k), (expected.encoding, expected.rows, expected.k));
            assert_eq!(shards.bytes(tensor), whole.bytes(expected), "{name}");
        }
    }
    let options = ModelOptions::default();
    let logits = |path: PathBuf| {
        let model = Model::open(&path, &options).unwrap();
        model.logits(&mut model.new_cache(), &[5, 6, 7], 0).unwrap()
    };
    assert_eq!(logits(path("split").join(SHARDS[1])), logits(path("tiny-Q4_0.gguf")));
}

#[test]
fn missing_and_wrong_shards_are_reported() {
    let copy = Copy::new("missing");
    std::fs::remove_file(copy.shard(2)).unwrap();
    assert_eq!(copy.message(1), "shard 2 of 3 is missing: DIR/tiny-00002-of-00003.gguf");
    std::fs::copy(copy.shard(3), copy.shard(2)).unwrap();
    assert_eq!(copy.message(1), "DIR/tiny-00002-of-00003.gguf is shard 3 of 3, but its name says 2 of 3");

    let copy = Copy::new("renamed");
    std::fs::rename(copy.shard(1), copy.0.join("tiny.gguf")).unwrap();
    let error = Gguf::open(&copy.0.join("tiny.gguf")).err().unwrap();
    assert!(error.message().ends_with("tiny.gguf is one of 3 shards but is not named as one"), "{error}");
}

#[test]
fn tensors_that_are_missing_or_repeated_are_reported() {
    let copy = Copy::new("repeated");
    // Both names have the same length; the first is in shard 1.
    let names: Vec<String> = {
        let shard = |number: usize| Gguf::parse(&copy.shard(number), std::fs::read(copy.shard(number)).unwrap());
        let first: Vec<String> = shard(1).unwrap().tensors.into_keys().collect();
        let second: Vec<String> = shard(2).unwrap().tensors.into_keys().collect();
        let pair = first.iter().find_map(|a| Some([a.clone(), second.iter().find(|b| b.len() == a.len())?.clone()]));
        pair.unwrap().into()
    };
    copy.replace(2, names[1].as_bytes(), names[0].as_bytes());
    let expected = format!("DIR/tiny-00002-of-00003.gguf: tensor {:?} is in an earlier shard too", names[0]);
    assert_eq!(copy.message(1), expected);

    let copy = Copy::new("counted");
    let count = [b"split.tensors.count".as_slice(), &5u32.to_le_bytes(), &21u32.to_le_bytes()].concat();
    let other = [&count[..count.len() - 4], &22u32.to_le_bytes()].concat();
    copy.replace(1, &count, &other);
    let expected = "DIR/tiny-00001-of-00003.gguf: the 3 shards hold 21 tensors instead of 22; download them again";
    assert_eq!(copy.message(1), expected);
}

/// Runs in a separate process, because bytes are counted per process.
#[test]
fn weights_are_used_where_the_file_is_mapped() {
    const ALONE: &str = "PANOPLY_TEST_ALONE";
    if std::env::var_os(ALONE).is_none() {
        let test = ["--exact", "shards::weights_are_used_where_the_file_is_mapped", "--nocapture"];
        let output = Command::new(std::env::current_exe().unwrap()).args(test).env(ALONE, "1").output().unwrap();
        let ran = String::from_utf8_lossy(&output.stdout).contains("1 passed");
        assert!(output.status.success() && ran, "{}", String::from_utf8_lossy(&output.stderr));
        return;
    }
    let device = Device::get("cpu").unwrap();
    device.scope(|| {
        let file = path("tiny-F16.gguf");
        let model = Model::open(&file, &ModelOptions::default()).unwrap();
        let opened = device.memory_stats();
        assert_eq!(opened.in_place, std::fs::metadata(&file).unwrap().len());
        let mut cache = model.new_cache();
        model.logits(&mut cache, &[5, 6, 7], 0).unwrap();
        let config = model.config();
        // Norms of f32: two for each block and the last; angles of rotary embeddings.
        let vectors = (2 * config.blocks.len() + 1) * config.hidden * 4 + config.head_dim / 2 * 4;
        // The ids of a step and the positions of its rows are uploaded too.
        let uploaded = device.memory_stats().uploaded as usize;
        assert!((vectors..vectors + 128).contains(&uploaded), "{uploaded} bytes were uploaded, {vectors} are vectors");
        let weights: usize = Gguf::open(&file).unwrap().tensors.values().map(|tensor| tensor.rows * tensor.k).sum();
        assert!(weights > 4 * vectors, "the vectors would hide a copy of the weights");
        drop((model, cache));
        assert_eq!(device.memory_stats().in_place, 0);
    });
}
