//! `panoply fit`, `quantize`, `bench llm` and `--threads` with the tiny language models of the crate `llm`.

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

fn fixture(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../llm/tests/fixtures").join(name);
    path.to_str().unwrap().to_string()
}

fn panoply(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_panoply")).args(arguments).env("PANOPLY_DEVICE", "cpu").output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn json(arguments: &[&str]) -> Value {
    let output = panoply(arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn fit_reports_memory_and_speed() {
    let model = fixture("tiny-Q8_0.gguf");
    let one = json(&["fit", &model, "--context-length", "16", "--json"]);
    let four = json(&["fit", &model, "--context-length", "16", "--sequences", "4", "--json"]);
    // 2 blocks, keys and values, 2 heads of 8 elements, 16 positions of f32, and 15 for the padding of a prompt's last piece.
    assert_eq!((&one["cache_bytes"], &four["cache_bytes"]), (&7936.into(), &31744.into()));
    assert_eq!((&one["fits"], &one["largest_context_length"]), (&true.into(), &64.into()));
    let number = |key: &str| one[key].as_f64().unwrap();
    let parts = number("weight_bytes") + number("cache_bytes") + number("scratch_bytes");
    assert_eq!(number("total_bytes"), parts);
    let tokens = number("gb_per_s") * 1e9 / number("weight_bytes_per_token");
    assert!((number("expected_tokens_per_second") / tokens - 1.0).abs() < 1e-9);
    let shown = text(&panoply(&["fit", &model]).stdout);
    assert!(shown.contains("fits") && shown.contains("at most 64 tokens"), "{shown}");
    assert_eq!(panoply(&["fit", &model, "--sequences", "0"]).status.code(), Some(2));
    let output = panoply(&["fit", &model, "--context-length", "65"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("context length 65 is not between 1 and the model's 64"));
}

#[test]
fn a_quantized_model_runs() {
    let folder = std::env::temp_dir().join(format!("panoply-cli-quantize-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let quantized = folder.join("q8.gguf");
    let (input, output) = (fixture("tiny-F16.gguf"), quantized.to_str().unwrap());
    let document = json(&["quantize", &input, output, "--type", "q8_0", "--json"]);
    let bytes = |key: &str| document[key].as_u64().unwrap();
    assert!(bytes("weight_bytes") < bytes("weight_bytes_before") * 6 / 10, "{document}");
    let answer = json(&[
        "run",
        output,
        "the quick",
        "--temperature",
        "0",
        "-n",
        "4",
        "--logit-bias",
        "1=-inf",
        "--json",
        "--threads",
        "1",
    ]);
    assert!(answer["completion_tokens"].as_u64().unwrap() > 0);
    assert!(answer["fraction_of_bandwidth"].as_f64().unwrap() > 0.0, "{answer}");
    let again = panoply(&["quantize", &input, output]);
    assert_eq!(again.status.code(), Some(1));
    assert!(text(&again.stderr).contains("exists; choose another name, or pass --force"), "{}", text(&again.stderr));
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn bench_llm_reports_rates_and_threads() {
    let model = fixture("tiny-Q4_0.gguf");
    let arguments = ["bench", "llm", &model, "--prefill", "20", "--decode", "4", "--repeats", "1", "--json"];
    let document = json(&[&arguments[..], &["--threads", "1", "--streams", "2"]].concat());
    assert_eq!(
        (&document["threads"], &document["prefill_tokens"], &document["decode_tokens"]),
        (&1.into(), &20.into(), &4.into())
    );
    for rate in [
        "prefill_tokens_per_second",
        "decode_tokens_per_second",
        "fraction_of_bandwidth",
        "load_seconds",
        "streams_tokens_per_second",
    ] {
        assert!(document[rate].as_f64().unwrap() > 0.0, "{rate}: {document}");
    }
    let output = panoply(&[&arguments[..], &["--profile"]].concat());
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(document["host_seconds_per_token"].is_f64(), "{document}");
    // Kernels and routines of a decode step, by name.
    let profile = text(&output.stderr);
    assert!(profile.contains("quantized_matmul") && profile.contains("attention"), "{profile}");
    let output = panoply(&["bench", "llm", &model]);
    assert_eq!(output.status.code(), Some(1));
    let stderr = text(&output.stderr);
    assert!(stderr.contains("context length 576 is not between 1 and the model's 64"), "{stderr}");
    assert!(stderr.contains("it is the sum of --prefill 512 and --decode 64; use smaller numbers"), "{stderr}");
    let output = panoply(&["bench", "llm", &model, "--prefill", "8", "--decode", "16", "--streams", "4"]);
    assert!(text(&output.stderr).contains("--streams 4 and --decode 16 need it; use smaller numbers"));
    // The folder of an output is checked before the work: the model does not exist.
    let output = panoply(&["bench", "llm", "nowhere.gguf", "--save-logits", "nowhere/logits.npy"]);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr.contains("cannot write nowhere/logits.npy"), "{stderr}");
    assert!(stderr.contains("the folder nowhere does not exist"), "{stderr}");
    for option in ["--prefill=0", "--decode=0", "--repeats=0", "--streams=0", "--streams=33"] {
        let output = panoply(&["bench", "llm", "nowhere.gguf", option]);
        assert_eq!(output.status.code(), Some(2), "{option}: {}", text(&output.stderr));
    }
    assert_eq!(panoply(&["run", &model, "x", "--threads", "0"]).status.code(), Some(2));
}
