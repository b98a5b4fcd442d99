//! Options that a FILE.toml sets in its sections `[training]` and `[data]`, with the names and checks of the command line. Errors about
//! them name the key, the file and the line instead of a flag.

use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Args, CommandFactory, Parser};
use panoply::nn::Network;
use panoply::nn::nearest::known_names;
use panoply::nn::network::file::{FileSections, Setting};
use panoply::{Error, Result};

use super::data_args::DataArgs;
use super::train_args::TrainOptions;

/// Options of a file, with where it sets them.
#[derive(Default)]
pub struct FileOptions {
    /// Section `[training]`.
    pub training: TrainOptions,
    /// Section `[data]`.
    pub data: DataArgs,
    file: PathBuf,
    sections: FileSections,
}

/// Parses settings of a file like a command line.
#[derive(Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
struct Line<A: Args> {
    #[command(flatten)]
    args: A,
}

impl FileOptions {
    /// Reads the options of a network file.
    ///
    /// # Errors
    /// If the file is not a network, or a section has an unknown key or an invalid value.
    pub fn read(file: &Path) -> Result<FileOptions> {
        let (_, sections) = Network::read_with_sections(file)?;
        let (training, data) = (section(file, "training", &sections.training)?, section(file, "data", &sections.data)?);
        Ok(FileOptions { training, data, file: file.to_path_buf(), sections })
    }

    /// Returns an error about an option, such as `--momentum 0.9 cannot be used …`, as one about the key of the file that sets it. An error
    /// about an option that `recipe` or `view`, the command line, sets stays as it is.
    pub fn explain(&self, error: Error, recipe: &TrainOptions, view: &DataArgs) -> Error {
        let Some(name) = error.message().strip_prefix("--").map(|rest| &rest[..name_length(rest)]) else {
            return error;
        };
        let with_training = |args: TrainOptions| format!("{:?}", recipe.clone().merged_over(args));
        let with_data = |args: DataArgs| format!("{:?}", view.clone().merged_over(args));
        let [training, data] = [&self.sections.training, &self.sections.data];
        let line = line_that_decides(&self.file, ("training", training), name, with_training);
        let found = line
            .map(|line| (line, "training"))
            .or_else(|| line_that_decides(&self.file, ("data", data), name, with_data).map(|line| (line, "data")));
        let Some((line, section)) = found else { return error };
        let message = format!("{}:{line}: {section}: {}", self.file.display(), as_keys(error.message()));
        error.notes().iter().fold(Error::new(error.kind(), message), Error::note).with_source(error.clone())
    }
}

/// Returns the line of an option in a section, if the options would be others without it: if the command line does not override it.
fn line_that_decides<A: Args>(
    file: &Path,
    (name, settings): (&str, &[Setting]),
    option: &str,
    merged: impl Fn(A) -> String,
) -> Option<usize> {
    let names_option = |setting: &&Setting| long_name::<A>(&setting.name) == option;
    let line = settings.iter().find(names_option)?.line;
    let others: Vec<Setting> = settings.iter().filter(|setting| !names_option(setting)).cloned().collect();
    let with = section::<A>(file, name, settings).ok().map(&merged);
    let without = section::<A>(file, name, &others).ok().map(&merged);
    (with != without).then_some(line)
}

/// Returns the name of a key on the command line, without its dashes; that of the option if the key is an alias.
fn long_name<A: Args>(key: &str) -> String {
    let name = key.replace('_', "-");
    let command = Line::<A>::command();
    let is_alias = |arg: &&Arg| arg.get_all_aliases().is_some_and(|aliases| aliases.contains(&name.as_str()));
    command.get_arguments().find(is_alias).and_then(|arg| arg.get_long()).map_or(name.clone(), str::to_string)
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
    all.map(|line| line.args).map_err(|error| {
        // The option that cannot be used with another.
        let flag = context(&error, ContextKind::InvalidArg).and_then(|flag| flag.strip_prefix("--"));
        let named = flag.map(|flag| flag[..name_length(flag)].to_string());
        let is_named = |setting: &&Setting| named == Some(long_name::<A>(&setting.name));
        let of_named = settings.iter().filter(is_named).map(|setting| setting.line).max();
        let line = of_named.or(settings.first().map(|setting| setting.line)).unwrap_or(1);
        wrong(line, sentence(&error))
    })
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

/// Returns a text of the context of an error.
fn context(error: &clap::Error, kind: ContextKind) -> Option<&str> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text),
        _ => None,
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

/// Replaces the flags of a message by keys of a file: `learning_rate` for `--learning-rate <RATE>`, `header` for `--header[=<BOOL>]`.
fn as_keys(message: &str) -> String {
    let commands = [Line::<TrainOptions>::command(), Line::<DataArgs>::command()];
    let is_option = |name: &str| {
        commands.iter().flat_map(|command| command.get_arguments()).any(|option| option.get_long() == Some(name))
    };
    let mut parts = message.split("--");
    let mut keys = parts.next().unwrap_or_default().to_string();
    for part in parts {
        let (name, rest) = part.split_at(name_length(part));
        // Two dashes can be part of a value, such as a path.
        if !is_option(name) {
            keys.extend(["--", part]);
            continue;
        }
        let value = [(" <", ">"), ("[=<", ">]")].into_iter().find_map(|(start, end)| {
            rest.strip_prefix(start).and_then(|rest| rest.split_once(end)).map(|(_, rest)| rest)
        });
        keys += &(name.replace('-', "_") + value.unwrap_or(rest));
    }
    keys
}

/// Returns the length of the name of an option at the start of a text.
fn name_length(text: &str) -> usize {
    text.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-').unwrap_or(text.len())
}
