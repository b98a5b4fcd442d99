//! Spellings of options and errors about them, for the parser of the command line.

use std::collections::HashSet;
use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Returns the arguments with `-` for `_` in the names of options of the command, as in `--batch_size`, up to a bare `--`.
pub fn with_dashes(arguments: impl IntoIterator<Item = OsString>, command: &clap::Command) -> Vec<OsString> {
    let mut ended = false;
    let known: HashSet<&str> = options(command).into_iter().flat_map(names).collect();
    let spelled = |argument: OsString| {
        ended |= argument == "--";
        match argument.to_str() {
            Some(text) if !ended && text.starts_with("--") => {
                let (name, value) = text.split_at(text.find('=').unwrap_or(text.len()));
                let dashed = name.replace('_', "-");
                if known.contains(&dashed[2..]) { format!("{dashed}{value}").into() } else { argument }
            }
            _ => argument,
        }
    };
    arguments.into_iter().map(spelled).collect()
}

/// Returns the options of a command and of all commands in it.
fn options(command: &clap::Command) -> Vec<&clap::Arg> {
    command.get_arguments().chain(command.get_subcommands().flat_map(options)).collect()
}

/// Returns the name and the aliases of an option, without dashes.
fn names(option: &clap::Arg) -> impl Iterator<Item = &str> {
    option.get_all_aliases().unwrap_or_default().into_iter().chain(option.get_long())
}

/// Corrects what clap cannot know: see [`only_given`] and [`with_value_tip`].
pub fn explained(error: clap::Error, command: &clap::Command, arguments: &[OsString]) -> clap::Error {
    with_value_tip(only_given(error, command, arguments), command, arguments)
}

/// Adds to an error about an unexpected argument how to write the value of the option before it, if that needs `=`.
fn with_value_tip(mut error: clap::Error, command: &clap::Command, arguments: &[OsString]) -> clap::Error {
    let Some(ContextValue::String(unexpected)) = error.get(ContextKind::InvalidArg).cloned() else { return error };
    let before = arguments.windows(2).find(|pair| pair[1] == *unexpected.as_str()).and_then(|pair| pair[0].to_str());
    let Some(name) = before.and_then(|before| before.strip_prefix("--")) else { return error };
    let needs_equals = |option: &&clap::Arg| option.get_long() == Some(name) && option.is_require_equals_set();
    if error.kind() == ErrorKind::UnknownArgument && options(command).iter().any(needs_equals) {
        let tip = format!("a value of '--{name}' follows '=': '--{name}={unexpected}'");
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

/// Removes from an error about options that exclude each other those that were not given. clap lists every member of a group.
fn only_given(mut error: clap::Error, command: &clap::Command, arguments: &[OsString]) -> clap::Error {
    let Some(ContextValue::Strings(listed)) = error.get(ContextKind::PriorArg) else { return error };
    if error.kind() != ErrorKind::ArgumentConflict {
        return error;
    }
    let given: Vec<String> = listed.iter().filter(|usage| is_given(usage, command, arguments)).cloned().collect();
    match <[String; 1]>::try_from(given) {
        Ok([one]) => error.insert(ContextKind::PriorArg, ContextValue::String(one)),
        Err(several) if several.is_empty() => None,
        Err(several) => error.insert(ContextKind::PriorArg, ContextValue::Strings(several)),
    };
    error
}

/// Returns true if the arguments contain an option under any of its names, or if `usage` is of a positional argument.
fn is_given(usage: &str, command: &clap::Command, arguments: &[OsString]) -> bool {
    let Some(name) = usage.strip_prefix("--") else { return true };
    let name = name.split([' ', '=', '[']).next().unwrap_or(name);
    let names: Vec<String> = options(command)
        .into_iter()
        .filter(|option| option.get_long() == Some(name))
        .flat_map(|option| {
            let short = option.get_short_and_visible_aliases().unwrap_or_default();
            let long = names(option).map(|name| format!("--{name}"));
            long.chain(short.into_iter().map(|letter| format!("-{letter}"))).collect::<Vec<String>>()
        })
        .collect();
    arguments.iter().filter_map(|argument| argument.to_str()).any(|argument| {
        names.iter().any(|name| match (argument.strip_prefix(name.as_str()), name.starts_with("--")) {
            (Some(rest), true) => rest.is_empty() || rest.starts_with('='),
            (Some(_), false) => true,
            (None, _) => false,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_options_are_spelled_with_dashes() {
        let option = |name: &'static str| clap::Arg::new(name).long(name).alias("other-name");
        let command = clap::Command::new("x").subcommand(clap::Command::new("train").arg(option("batch-size")));
        let given = ["train", "a_b.csv", "--batch_size", "--c_d", "--other_name=e_f", "--é_", "--", "--batch_size"];
        let want = ["train", "a_b.csv", "--batch-size", "--c_d", "--other-name=e_f", "--é_", "--", "--batch_size"];
        assert_eq!(with_dashes(given.map(OsString::from), &command), want.map(OsString::from));
    }
}
