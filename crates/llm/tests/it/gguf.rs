//! Invalid files: an error that names the reason, never a panic or an allocation of a size from the file.

use std::path::Path;

use panoply_llm::gguf::{Gguf, Value};
use panoply_llm::{Config, Model, ModelOptions};

use crate::fixtures::path;

fn tiny() -> Vec<u8> {
    std::fs::read(path("tiny-Q4_0.gguf")).unwrap()
}

fn message(bytes: Vec<u8>) -> String {
    Gguf::parse(Path::new("x.gguf"), bytes).err().unwrap().message().to_string()
}

/// Returns a file with these metadata entries and no tensors.
fn with_metadata(pairs: &[(&str, u32, &[u8])]) -> Vec<u8> {
    let mut file =
        [b"GGUF".as_slice(), &3u32.to_le_bytes(), &0u64.to_le_bytes(), &(pairs.len() as u64).to_le_bytes()].concat();
    for (key, kind, value) in pairs {
        file.extend((key.len() as u64).to_le_bytes());
        file.extend(key.as_bytes());
        file.extend(kind.to_le_bytes());
        file.extend(*value);
    }
    file
}

#[test]
fn metadata_and_tensors_are_read() {
    let file = Gguf::open(&path("tiny-Q4_0.gguf")).unwrap();
    assert_eq!(file.metadata["general.architecture"], Value::String("llama".into()));
    assert_eq!(file.metadata["llama.block_count"], Value::Unsigned(2));
    let tensor = &file.tensors["blk.1.ffn_down.weight"];
    assert_eq!((tensor.rows, tensor.k, file.bytes(tensor).len()), (32, 64, 32 * 36));
    let config = Config::from_gguf(&file).unwrap();
    assert_eq!((config.heads, config.kv_heads, config.head_dim, config.rotaries[0].base), (4, 2, 8, 500.0));
}

#[test]
fn other_formats_and_versions_are_rejected() {
    assert_eq!(message(b"PK\x03\x04".to_vec()), "x.gguf: it is not a GGUF file: it does not start with `GGUF`");
    let mut old = tiny();
    old[4] = 1;
    assert_eq!(message(old), "x.gguf: GGUF version 1 is not supported; versions 2 and 3 are");
    let twice = with_metadata(&[("a", 7, &[1]), ("a", 7, &[0])]);
    assert_eq!(message(twice), "x.gguf: metadata key \"a\" occurs twice");
    let nested = [9u32.to_le_bytes().as_slice(), &1u64.to_le_bytes()].concat();
    assert_eq!(
        message(with_metadata(&[("a", 9, &nested)])),
        "x.gguf: metadata key \"a\": an array of arrays is not supported"
    );
}

#[test]
fn every_truncation_is_an_error() {
    let whole = tiny();
    for length in (0..whole.len()).step_by(61).chain(whole.len() - 40..whole.len()) {
        assert!(Gguf::parse(Path::new("x.gguf"), whole[..length].to_vec()).is_err(), "{length} bytes");
    }
}

#[test]
fn huge_counts_allocate_nothing() {
    for at in [8, 16] {
        let mut file = tiny();
        file[at..at + 8].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(Gguf::parse(Path::new("x.gguf"), file).is_err());
    }
    let huge = [5u32.to_le_bytes().as_slice(), &(1u64 << 60).to_le_bytes()].concat();
    assert!(message(with_metadata(&[("a", 9, &huge)])).contains("truncated"));
}

/// Runs in a separate process, because the environment is read once.
#[test]
fn arrays_are_read_within_the_read_limit() {
    const LIMIT: &str = "PANOPLY_READ_LIMIT";
    let test = "gguf::arrays_are_read_within_the_read_limit";
    if std::env::var_os(LIMIT).is_none() {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        let output = command.args(["--exact", test, "--nocapture"]).env(LIMIT, "1MiB").output().unwrap();
        let ran = String::from_utf8_lossy(&output.stdout).contains("1 passed");
        assert!(output.status.success() && ran, "{}", String::from_utf8_lossy(&output.stderr));
        return;
    }
    // A byte of an array takes the memory of a value.
    let array = |count: usize| [&0u32.to_le_bytes(), &(count as u64).to_le_bytes()[..], &vec![7; count]].concat();
    assert!(Gguf::parse(Path::new("x.gguf"), with_metadata(&[("a", 9, &array(1000))])).is_ok());
    let error = message(with_metadata(&[("a", 9, &array(30_000)), ("b", 9, &array(30_000))]));
    assert_eq!(error, "x.gguf: reading it takes more than 1 MiB of memory");
}

#[test]
fn unsupported_features_are_reported() {
    let replaced = |from: &[u8], to: &[u8]| {
        let mut bytes = tiny();
        let at = bytes.windows(from.len()).position(|window| window == from).unwrap();
        bytes[at..at + to.len()].copy_from_slice(to);
        let file = std::env::temp_dir().join(format!("panoply-llm-{}-{at}.gguf", std::process::id()));
        std::fs::write(&file, bytes).unwrap();
        let error = Model::open(&file, &ModelOptions::default()).unwrap_err();
        std::fs::remove_file(&file).unwrap();
        error.message().split_once(": ").unwrap().1.to_string()
    };
    assert_eq!(
        replaced(b"llama.rope.freq_base", b"llama.rope.freq_bias"),
        "configuration key llama.rope.freq_bias is not supported"
    );
    assert_eq!(replaced(b"output_norm.weight", b"output_norm.weighs"), "tensor output_norm.weight is missing");
    assert_eq!(
        replaced(b"\x0d\0\0\0\0\0\0\0output.weight", b"\x0d\0\0\0\0\0\0\0output.weighs"),
        "tensor output.weighs is not part of the architecture as the configuration describes it"
    );
    assert!(replaced(b"gpt-2", b"llama").contains("pre-tokenizer \"llama\" is not supported"));
}
