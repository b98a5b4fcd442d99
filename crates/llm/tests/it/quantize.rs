//! Quantized files against those of llama.cpp: encodings and bytes of all tensors.

use std::path::{Path, PathBuf};

use panoply_llm::gguf::{Gguf, Value};
use panoply_llm::{QuantizedType, quantize};

use crate::fixtures::path;

/// A folder that is removed in the end.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Folder {
        let folder = std::env::temp_dir().join(format!("panoply-llm-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Folder(folder)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

/// `mixture_values` of `make.py`.
fn value(n: u64) -> f32 {
    let hash = n.wrapping_mul(2_654_435_761) as u32;
    ((hash >> 12) as i32 - (1 << 19)) as f32 * 2f32.powi(-22)
}

/// The hash FNV-1a of 64 bits.
fn fnv(bytes: &[u8]) -> String {
    let hash = bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325u64, |state, byte| (state ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3));
    format!("{hash:016x}")
}

/// Writes the model that llama.cpp quantized.
fn write_model(name: &str, golden: &serde_json::Value, to: &Path) {
    let mut bytes = std::fs::read(path(&format!("mixture-{name}.header"))).unwrap();
    for n in 0..golden["count"].as_u64().unwrap() {
        match golden["dtype"].as_str().unwrap() {
            "F16" => bytes.extend(panoply_ir::f16::from_f32(value(n)).to_le_bytes()),
            _ => bytes.extend(value(n).to_le_bytes()),
        }
    }
    std::fs::write(to, bytes).unwrap();
}

fn message(input: &Path, output: &Path) -> String {
    let error = quantize(input, output, QuantizedType::Q8_0, &mut |_, _| {}).unwrap_err();
    assert!(!output.exists(), "an output was left");
    error.message().to_string()
}

#[test]
fn files_equal_those_of_llama_cpp() {
    let folder = Folder::new("quantize");
    let golden: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(path("mixtures.json")).unwrap()).unwrap();
    for name in ["dense", "experts"] {
        let (input, output) = (folder.file("in.gguf"), folder.file("out.gguf"));
        write_model(name, &golden[name], &input);
        let from = Gguf::open(&input).unwrap();
        for kind in QuantizedType::ALL {
            let mut last = (0, 0);
            let size = quantize(&input, &output, kind, &mut |done, all| last = (done, all)).unwrap();
            assert_eq!(last, (size.before, size.before));
            let file = Gguf::open(&output).unwrap();
            let expected = golden[name][kind.name()].as_object().unwrap();
            assert!(file.tensors.keys().eq(from.tensors.keys()) && expected.len() == file.tensors.len());
            for (tensor_name, tensor) in &file.tensors {
                let have = [tensor.encoding.name().to_string(), fnv(file.bytes(tensor))];
                let want = &expected[tensor_name];
                assert_eq!(serde_json::json!(have), *want, "{tensor_name} of {name} in {}", kind.name());
            }
            let after: usize = file.tensors.values().map(|tensor| file.bytes(tensor).len()).sum();
            assert_eq!(size.after, after as u64);
            // The metadata is that of the input and two numbers of ggml.
            let mut metadata = file.metadata.clone();
            assert!(matches!(metadata.remove("general.file_type"), Some(Value::Unsigned(2 | 7 | 15))));
            assert_eq!(metadata.remove("general.quantization_version"), Some(Value::Unsigned(2)));
            assert_eq!(metadata, from.metadata);
        }
        assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 2, "a partial file was left");
    }
}

#[test]
fn wrong_inputs_are_reported() {
    let folder = Folder::new("quantize-wrong");
    let output = folder.file("out.gguf");
    assert!(message(&path("chat"), &output).contains("is a folder; only GGUF files can be quantized"));
    assert!(message(&path("tiny-Q4_0.gguf"), &output).ends_with("is quantized already, in Q4_0"));
    // The last tensor of the file is made NaN.
    let mut bytes = std::fs::read(path("tiny-F16.gguf")).unwrap();
    let end = bytes.len();
    bytes[end - 64..].fill(0xff);
    let input = folder.file("nan.gguf");
    std::fs::write(&input, bytes).unwrap();
    assert!(message(&input, &output).contains("contains numbers that are not finite"));
    let missing = folder.file("missing/out.gguf");
    assert!(message(&path("tiny-F16.gguf"), &missing).contains("cannot write"));
}

/// An output replaces neither the model nor anything that is not a file; a symbolic link is followed.
#[cfg(unix)]
#[test]
fn outputs_replace_only_other_files() {
    let folder = Folder::new("quantize-target");
    let (model, link) = (folder.file("model.gguf"), folder.file("link.gguf"));
    std::fs::copy(path("tiny-F16.gguf"), &model).unwrap();
    std::os::unix::fs::symlink(&model, &link).unwrap();
    let refused = |input: &Path, output: &Path| {
        quantize(input, output, QuantizedType::Q8_0, &mut |_, _| {}).unwrap_err().message().to_string()
    };
    assert!(refused(&model, &model).ends_with("model.gguf is the model itself"));
    assert!(refused(&model, &link).ends_with("link.gguf is the model itself"));
    assert!(refused(&model, &folder.0).ends_with("is a folder"));
    assert_eq!(refused(&model, Path::new("/dev/null")), "/dev/null is a pipe or a device");
    assert_eq!(std::fs::read(&model).unwrap(), std::fs::read(path("tiny-F16.gguf")).unwrap());

    let other = folder.file("other.gguf");
    std::fs::write(&other, "an earlier file").unwrap();
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink(&other, &link).unwrap();
    quantize(&model, &link, QuantizedType::Q8_0, &mut |_, _| {}).unwrap();
    assert!(link.is_symlink() && Gguf::open(&other).is_ok());
    assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 3, "a partial file was left");
}
