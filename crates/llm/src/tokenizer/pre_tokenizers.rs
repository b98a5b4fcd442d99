//! The pre-tokenizers that GGUF names: rules that split a text before bytes merge.

/// Rules by which a byte-level vocabulary splits texts.
pub(super) struct PreTokenizer {
    /// Value of `tokenizer.ggml.pre`.
    names: &'static [&'static str],
    /// Each splits what the one before has left; matches become pieces of their own.
    pub patterns: &'static [&'static str],
    /// True if a piece that is a token is taken as it is, without merges.
    pub ignores_merges: bool,
    /// True if a prompt begins with the beginning token where the file does not say.
    pub adds_bos: bool,
}

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const GPT4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";

const TABLE: &[PreTokenizer] = &[
    PreTokenizer {
        names: &["gpt-2", "phi-2", "mpt", "olmo", "jais", "roberta-bpe"],
        patterns: &[GPT2],
        ignores_merges: false,
        adds_bos: false,
    },
    PreTokenizer {
        names: &["llama-bpe", "llama3", "llama-v3", "dbrx", "smaug-bpe", "falcon3"],
        patterns: &[LLAMA3],
        ignores_merges: true,
        adds_bos: true,
    },
    PreTokenizer {
        names: &["qwen2", "deepseek-r1-qwen", "stablelm2"],
        patterns: &[QWEN2],
        ignores_merges: false,
        adds_bos: false,
    },
    PreTokenizer {
        names: &["smollm", "starcoder", "refact", "command-r", "codeshell", "exaone"],
        patterns: &[r"\p{N}", GPT2],
        ignores_merges: false,
        adds_bos: false,
    },
    PreTokenizer { names: &["tekken"], patterns: &[TEKKEN], ignores_merges: true, adds_bos: true },
    PreTokenizer { names: &["gpt-4o", "llama4"], patterns: &[GPT4O], ignores_merges: false, adds_bos: false },
];

/// Returns the pre-tokenizer with this name.
pub(super) fn find(name: &str) -> Option<&'static PreTokenizer> {
    TABLE.iter().find(|row| row.names.contains(&name))
}

/// Returns the names of all pre-tokenizers.
pub(super) fn names() -> String {
    TABLE.iter().flat_map(|row| row.names).copied().collect::<Vec<_>>().join(", ")
}
