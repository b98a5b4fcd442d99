//! Folders that are not what they should be: an error that says why.

use std::path::{Path, PathBuf};

use panoply_llm::folder::Folder;
use panoply_llm::{Config, Model, ModelOptions};
use serde_json::{Value, json};

use crate::fixtures::path;

/// A copy of a fixture's folder that is removed in the end.
struct Copy(PathBuf);

impl Copy {
    fn of(name: &str, test: &str) -> Copy {
        let to = std::env::temp_dir().join(format!("panoply-llm-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&to).unwrap();
        for entry in std::fs::read_dir(path(name)).unwrap() {
            let entry = entry.unwrap();
            std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
        Copy(to)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Changes a JSON file.
    fn change(&self, name: &str, change: impl FnOnce(&mut Value)) {
        let mut value = serde_json::from_str(&std::fs::read_to_string(self.file(name)).unwrap()).unwrap();
        change(&mut value);
        std::fs::write(self.file(name), value.to_string()).unwrap();
    }

    /// The error of opening the model, without the folder's name.
    fn error(&self) -> String {
        let error = Model::open(&self.0, &ModelOptions::default()).unwrap_err();
        error.message().replace(&self.0.display().to_string(), "DIR").replace('\\', "/")
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn config_error(name: &str, change: impl FnOnce(&mut Value)) -> String {
    let copy = Copy::of(&format!("models/{name}"), &format!("config-{name}-{:?}", std::thread::current().id()));
    copy.change("config.json", change);
    let folder = Folder::open(&copy.0).unwrap();
    let error = Config::from_folder(&folder).unwrap_err();
    error.message().split_once("config.json: ").unwrap().1.to_string()
}

#[test]
fn keys_and_values_that_change_the_meaning_are_refused_by_name() {
    let cases: [(&str, &str, Value, &str); 8] = [
        ("llama", "attention_sinks", json!(4), "configuration key attention_sinks is not supported"),
        ("llama", "hidden_act", json!("xielu"), "hidden_act \"xielu\" is not supported"),
        (
            "llama",
            "model_type",
            json!("mamba"),
            "architecture \"mamba\" is not supported; supported are llama, mistral",
        ),
        ("llama", "num_attention_heads", json!(3), "3 heads are not a multiple of 2 key heads"),
        ("llama", "hidden_size", json!(0), "hidden_size is 0, not between 1 and 16777216"),
        ("gemma", "use_bidirectional_attention", json!(true), "use_bidirectional_attention is not supported"),
        ("qwen2", "layer_types", json!(["full_attention", "linear_attention"]), "layer type \"linear_attention\""),
        ("gpt2", "scale_attn_by_inverse_layer_idx", json!(true), "scale_attn_by_inverse_layer_idx is not supported"),
    ];
    for (name, key, value, expected) in cases {
        let error = config_error(name, |config| config[key] = value);
        assert!(error.starts_with(expected), "{name}: {error}");
    }
    let error = config_error("llama", |config| config["rope_parameters"]["rope_type"] = "yarn".into());
    assert!(error.starts_with("rotary positions of type \"yarn\" are not supported"), "{error}");
    let error = config_error("llama", |config| config["rope_parameters"]["beta_fast"] = 32.into());
    assert_eq!(error, "configuration key rope_parameters.beta_fast is not supported");
    // Null says that a key is not used.
    let copy = Copy::of("models/llama", "null");
    copy.change("config.json", |config| config["attention_sinks"] = Value::Null);
    assert!(Config::from_folder(&Folder::open(&copy.0).unwrap()).is_ok());
}

#[test]
fn older_files_say_the_same_with_other_keys() {
    let copy = Copy::of("models/llama", "older");
    let read = || Config::from_folder(&Folder::open(&copy.0).unwrap()).unwrap();
    let new = read();
    copy.change("config.json", |config| {
        let object = config.as_object_mut().unwrap();
        let mut scaling = object.remove("rope_parameters").unwrap();
        let base = scaling.as_object_mut().unwrap().remove("rope_theta").unwrap();
        object.insert("rope_theta".into(), base);
        object.insert("rope_scaling".into(), scaling);
    });
    assert_eq!(read(), new);
}

#[test]
fn missing_and_wrong_files_are_named() {
    let copy = Copy::of("chat", "missing");
    assert!(Model::open(&copy.0, &ModelOptions::default()).is_ok());
    let keep = |name: &str, test: &dyn Fn()| {
        let bytes = std::fs::read(copy.file(name)).unwrap();
        test();
        std::fs::write(copy.file(name), bytes).unwrap();
    };
    let shard = "model-00002-of-00003.safetensors";
    keep(shard, &|| {
        std::fs::remove_file(copy.file(shard)).unwrap();
        assert_eq!(copy.error(), format!("DIR: the file {shard} is missing"));
        std::fs::write(copy.file(shard), [9, 0, 0, 0, 0, 0, 0, 0, b'{']).unwrap();
        assert_eq!(copy.error(), format!("DIR/{shard}: the file is truncated: its header has 9 bytes"));
    });
    keep("model.safetensors.index.json", &|| {
        copy.change("model.safetensors.index.json", |index| {
            for file in index["weight_map"].as_object_mut().unwrap().values_mut() {
                *file = "../../etc/passwd".into();
            }
        });
        assert!(copy.error().contains("which is not in the folder"), "{}", copy.error());
    });
    keep("model.safetensors.index.json", &|| {
        copy.change("model.safetensors.index.json", |index| {
            index["weight_map"].as_object_mut().unwrap().retain(|_, file| *file != json!(shard));
        });
        assert!(copy.error().ends_with(" is missing"), "{}", copy.error());
    });
    keep("tokenizer.json", &|| {
        std::fs::write(copy.file("tokenizer.json"), "{}").unwrap();
        assert!(copy.error().starts_with("DIR/tokenizer.json: it is not a tokenizer"), "{}", copy.error());
        // `tokenizers` panics at these.
        let text = std::fs::read_to_string(path("chat").join("tokenizer.json")).unwrap();
        let error =
            "DIR/tokenizer.json: its post_processor uses a special token that it does not define: \"<|start|>\"";
        std::fs::write(copy.file("tokenizer.json"), text.replacen("\"id\": \"<|begin|>\"", "\"id\": \"<|start|>\"", 1))
            .unwrap();
        assert_eq!(copy.error(), error);
        let error = "DIR/tokenizer.json: its post_processor uses a second text in the template for one text";
        std::fs::write(copy.file("tokenizer.json"), text.replacen("\"id\": \"A\"", "\"id\": \"B\"", 1)).unwrap();
        assert_eq!(copy.error(), error);
        std::fs::remove_file(copy.file("tokenizer.json")).unwrap();
        assert_eq!(copy.error(), "DIR: tokenizer.json is missing");
    });
    keep("config.json", &|| {
        copy.change("config.json", |config| config["vocab_size"] = 299.into());
        assert!(copy.error().contains("they are not of one model"), "{}", copy.error());
        std::fs::write(copy.file("config.json"), "[".repeat(100_000)).unwrap();
        assert!(copy.error().starts_with("DIR/config.json: it is not a JSON object"), "{}", copy.error());
    });
    assert!(Folder::open(Path::new("nowhere")).err().unwrap().message().contains("cannot read"));
}
