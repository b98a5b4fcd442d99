//! Options that a FILE.toml sets in its sections `[training]` and `[data]`, with the names and checks of the command line.

use std::path::Path;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Args, CommandFactory, Parser};
use panoply::nn::nearest::known_names;
use panoply::nn::network::file::Setting;
use panoply::{Error, Result};

/// Parses settings of a file like a command line.
#[derive(Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
struct Line<A: Args> {
    #[command(flatten)]
    args: A,
}

/// Parses a section of a file with the names and checks of the command line.
///
/// # Errors
/// An unknown key, an invalid value, or keys that exclude each other, with the line.
pub fn section<A: Args>(file: &Path, name: &str, settings: &[Setting]) -> Result<A> {
    let option = |Setting { name, value, .. }: &Setting| format!("--{}={value}", name.replace('_', "-"));
    let wrong = |line: usize, what: String| Error::corrupt(format!("{}:{line}: {name}: {what}", file.display()));
    for setting in settings {
        let alone = Line::<A>::try_parse_from([option(setting)]);
        alone.map_err(|error| wrong(setting.line, alone_sentence::<A>(setting, &error)))?;
    }
    let all = Line::try_parse_from(settings.iter().map(option));
    let first = settings.iter().map(|setting| setting.line).min().unwrap_or(1);
    all.map(|line| line.args).map_err(|error| wrong(first, sentence(&error)))
}

/// Returns the error of a setting that was parsed alone, with the most similar keys or values.
fn alone_sentence<A: Args>(Setting { name, value, .. }: &Setting, error: &clap::Error) -> String {
    let command = Line::<A>::command();
    if error.kind() == ErrorKind::UnknownArgument {
        let keys: Vec<String> =
            command.get_arguments().filter_map(Arg::get_long).map(|long| long.replace('-', "_")).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        return format!("unknown key `{name}`; {}", known_names(name, &keys, ("expected one of", "`")));
    }
    match (error.kind(), error.get(ContextKind::ValidValue)) {
        (ErrorKind::InvalidValue, Some(ContextValue::Strings(valid))) if !valid.is_empty() => {
            let valid: Vec<&str> = valid.iter().map(String::as_str).collect();
            let known = known_names(value, &valid, ("expected one of", "`"));
            format!("{name}: unknown value `{value}`; {known}")
        }
        _ => format!("{name}: {}", sentence(error)),
    }
}

/// Returns the error of the command-line parser as one line, with the spelling of files instead of flags: `learning_rate`.
fn sentence(error: &clap::Error) -> String {
    let text = error.to_string();
    let lines =
        text.lines().map(str::trim).take_while(|line| !line.starts_with("For more") && !line.starts_with("Usage"));
    let lines: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
    as_keys(&lines.join("; ").trim_start_matches("error: ").replace("argument", "setting"))
}

/// Replaces the flags of a message by keys of a file: `learning_rate` for `--learning-rate <RATE>`.
fn as_keys(message: &str) -> String {
    let mut parts = message.split("--");
    let mut keys = parts.next().unwrap_or_default().to_string();
    for part in parts {
        let (name, rest) = part.split_at(name_length(part));
        let value = rest.strip_prefix(" <").and_then(|rest| rest.split_once('>')).map(|(_, rest)| rest);
        keys += &(name.replace('-', "_") + value.unwrap_or(rest));
    }
    keys
}

/// Returns the length of the name of an option at the start of a text.
fn name_length(text: &str) -> usize {
    text.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-').unwrap_or(text.len())
}
