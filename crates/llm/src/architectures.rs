//! The architectures that are supported: one row each for GGUF and for Hugging Face.
//!
//! A row says how the architecture is called in both, how its metadata become a [`Config`], and how its tensors are named. It must not
//! know tensors or devices.

mod gguf;
mod hugging_face;
mod names;

use panoply_tensor::{Error, Result};

use crate::config::Config;
use crate::folder::Folder;
use crate::gguf::{Gguf, Value};
use crate::keys::Keys;

pub(crate) use names::{GGUF_NAMES, Names};

/// Architecture of language models.
struct Architecture {
    /// `general.architecture` in GGUF.
    gguf: &'static str,
    /// `model_type` in `config.json`.
    model_type: &'static str,
    from_gguf: fn(&Keys, &Gguf) -> Result<Config>,
    from_hugging_face: fn(&Keys) -> Result<Config>,
    /// Names of tensors in Hugging Face's files; those of GGUF are the same for all architectures.
    names: &'static Names,
}

/// Every architecture. GGUF calls Mistral and Mixtral `llama`.
const ARCHITECTURES: &[Architecture] = &[
    Architecture {
        gguf: "llama",
        model_type: "llama",
        from_gguf: gguf::llama,
        from_hugging_face: hugging_face::llama,
        names: &names::LLAMA,
    },
    Architecture {
        gguf: "llama",
        model_type: "mistral",
        from_gguf: gguf::llama,
        from_hugging_face: hugging_face::mistral,
        names: &names::LLAMA,
    },
    Architecture {
        gguf: "llama",
        model_type: "mixtral",
        from_gguf: gguf::llama,
        from_hugging_face: hugging_face::mixtral,
        names: &names::MIXTRAL,
    },
    Architecture {
        gguf: "qwen2",
        model_type: "qwen2",
        from_gguf: gguf::qwen2,
        from_hugging_face: hugging_face::qwen2,
        names: &names::LLAMA,
    },
    Architecture {
        gguf: "qwen3",
        model_type: "qwen3",
        from_gguf: gguf::qwen3,
        from_hugging_face: hugging_face::qwen3,
        names: &names::LLAMA,
    },
    Architecture {
        gguf: "qwen2moe",
        model_type: "qwen2_moe",
        from_gguf: gguf::qwen2_moe,
        from_hugging_face: hugging_face::qwen2_moe,
        names: &names::LLAMA,
    },
    Architecture {
        gguf: "qwen3moe",
        model_type: "qwen3_moe",
        from_gguf: gguf::qwen3_moe,
        from_hugging_face: hugging_face::qwen3_moe,
        names: &names::LLAMA,
    },
    Architecture {
        gguf: "gemma",
        model_type: "gemma",
        from_gguf: gguf::gemma,
        from_hugging_face: hugging_face::gemma,
        names: &names::LLAMA,
    },
    Architecture {
        gguf: "gemma2",
        model_type: "gemma2",
        from_gguf: gguf::gemma2,
        from_hugging_face: hugging_face::gemma2,
        names: &names::GEMMA2,
    },
    Architecture {
        gguf: "gemma3",
        model_type: "gemma3_text",
        from_gguf: gguf::gemma3,
        from_hugging_face: hugging_face::gemma3,
        names: &names::GEMMA2,
    },
    Architecture {
        gguf: "phi3",
        model_type: "phi3",
        from_gguf: gguf::phi3,
        from_hugging_face: hugging_face::phi3,
        names: &names::LLAMA,
    },
    Architecture {
        gguf: "gpt2",
        model_type: "gpt2",
        from_gguf: gguf::gpt2,
        from_hugging_face: hugging_face::gpt2,
        names: &names::GPT2,
    },
];

impl Config {
    /// Reads the configuration of a GGUF file.
    ///
    /// # Errors
    ///
    /// If the architecture or a key is not supported, a key is missing, or keys contradict each other.
    pub fn from_gguf(file: &Gguf) -> Result<Config> {
        let name = file.required("general.architecture", "a string", Value::as_str)?;
        let row = ARCHITECTURES.iter().find(|row| row.gguf == name);
        let keys = Keys::of_gguf(file, name);
        let row = row.ok_or_else(|| keys.unsupported(&unknown(name, |row| row.gguf)))?;
        let config = (row.from_gguf)(&keys, file)?;
        keys.finish(gguf::HARMLESS)?;
        checked(config, &keys)
    }

    /// Reads the configuration of a Hugging Face folder.
    ///
    /// # Errors
    ///
    /// As for [`Config::from_gguf`].
    pub fn from_folder(folder: &Folder) -> Result<Config> {
        Config::from_keys(&folder.keys())
    }

    /// Reads the keys of a `config.json`.
    pub(crate) fn from_keys(keys: &Keys) -> Result<Config> {
        let config = (row(keys)?.from_hugging_face)(keys)?;
        keys.finish(hugging_face::HARMLESS)?;
        checked(config, keys)
    }
}

/// Returns the names of the tensors of a folder.
pub(crate) fn names(folder: &Folder) -> Result<&'static Names> {
    Ok(row(&folder.keys())?.names)
}

fn row(keys: &Keys) -> Result<&'static Architecture> {
    let name = keys.text("model_type")?.ok_or_else(|| keys.wrong("model_type is missing"))?;
    let row = ARCHITECTURES.iter().find(|row| row.model_type == name);
    row.ok_or_else(|| keys.unsupported(&unknown(name, |row| row.model_type)))
}

fn checked(config: Config, keys: &Keys) -> Result<Config> {
    config.check().map_err(|error: Error| keys.wrong(error.message()))?;
    Ok(config)
}

fn unknown(name: &str, of: fn(&Architecture) -> &'static str) -> String {
    let mut known: Vec<&str> = ARCHITECTURES.iter().map(of).collect();
    known.dedup();
    format!("architecture {name:?} is not supported; supported are {}", known.join(", "))
}
