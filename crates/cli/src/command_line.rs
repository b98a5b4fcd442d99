//! Spellings of options and errors about them, for the parser of the command line.

use std::collections::HashSet;
use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Returns the command whose options, also those of all commands in it, take negative numbers as values. An error about `--seed -1` is then
/// about the value, not about an unexpected argument.
pub fn with_negative_numbers(command: clap::Command) -> clap::Command {
    let takes_value = |option: &clap::Arg| option.get_long().is_some() && option.get_action().takes_values();
    let allowed = |option| if takes_value(&option) { option.allow_negative_numbers(true) } else { option };
    command.mut_args(allowed).mut_subcommands(with_negative_numbers)
}

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

/// Returns the command without its hidden subcommands: completions would offer them.
pub fn without_hidden(command: &clap::Command) -> clap::Command {
    let names = || command.get_visible_aliases().map(str::to_string);
    let mut shown = clap::Command::new(command.get_name().to_string()).visible_aliases(names());
    if let Some(about) = command.get_about() {
        shown = shown.about(about.clone());
    }
    if let Some(version) = command.get_version() {
        shown = shown.version(version.to_string());
    }
    let shown = shown.args(command.get_arguments().cloned()).groups(command.get_groups().cloned());
    shown.subcommands(command.get_subcommands().filter(|inner| !inner.is_hide_set()).map(without_hidden))
}

/// Corrects what clap cannot know: see [`only_given`], [`only_visible`], [`with_value_tip`] and [`with_expected_number`].
pub fn explained(error: clap::Error, command: &clap::Command, arguments: &[OsString]) -> clap::Error {
    let error = only_visible(only_given(error, command, arguments), command, arguments);
    with_expected_number(with_value_tip(error, command, arguments))
}

/// Removes hidden subcommands from the names that an error suggests or lists.
fn only_visible(mut error: clap::Error, command: &clap::Command, arguments: &[OsString]) -> clap::Error {
    // The error is about the innermost command of the arguments.
    let within = arguments.iter().skip(1).fold(command, |within, name| within.find_subcommand(name).unwrap_or(within));
    let is_hidden = |name: &String| within.find_subcommand(name).is_some_and(clap::Command::is_hide_set);
    for kind in [ContextKind::SuggestedSubcommand, ContextKind::ValidSubcommand] {
        let Some(ContextValue::Strings(names)) = error.get(kind) else { continue };
        let visible: Vec<String> = names.iter().filter(|name| !is_hidden(name)).cloned().collect();
        if visible.is_empty() {
            error.remove(kind);
        } else {
            error.insert(kind, ContextValue::Strings(visible));
        }
    }
    error
}

/// Replaces an error of the standard library's parsers, which describes the text, by what is expected.
fn with_expected_number(error: clap::Error) -> clap::Error {
    use std::error::Error as _;
    let expected = match error.source().map(ToString::to_string).as_deref() {
        Some("invalid digit found in string" | "cannot parse integer from empty string") => "expected a whole number",
        Some("number too large to fit in target type") => "the number is too large",
        Some("number too small to fit in target type") => "the number is too small",
        Some("number would be zero for non-zero type") => "expected a number of at least 1",
        Some("invalid float literal" | "cannot parse float from empty string") => "expected a number",
        Some("invalid IP address syntax") => "expected an IP address, such as 127.0.0.1",
        _ => return error,
    };
    match (error.get(ContextKind::InvalidArg), error.get(ContextKind::InvalidValue)) {
        (Some(ContextValue::String(argument)), Some(ContextValue::String(value))) => {
            let message = format!(
                "invalid value '{value}' for '{argument}': {expected}\n\nFor more information, try '--help'.\n"
            );
            clap::Error::raw(error.kind(), message)
        }
        _ => error,
    }
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

    #[test]
    fn hidden_subcommands_are_neither_suggested_nor_listed_nor_completed() {
        let action = |name: &'static str| clap::Command::new(name);
        let mesh = action("mesh").subcommand_required(true);
        let mesh = mesh.subcommands([action("run").arg(clap::Arg::new("n").long("count")), action("rank").hide(true)]);
        let command = action("x").version("1").subcommands([mesh, action("probe-drivers").hide(true)]);
        let command = command.subcommand_required(true);
        let shown = |arguments: &[&str]| {
            let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
            explained(command.clone().try_get_matches_from(&arguments).unwrap_err(), &command, &arguments).to_string()
        };
        let error = shown(&["x", "mesh", "ran"]);
        assert!(error.contains("a similar subcommand exists: 'run'\n"), "{error}");
        let error = shown(&["x", "mesh", "rnk"]);
        assert!(error.starts_with("error: unrecognized subcommand 'rnk'\n") && !error.contains("rank"), "{error}");
        let error = shown(&["x", "probe-driver"]);
        assert!(!error.contains("probe-drivers") && !error.contains("tip"), "{error}");
        for arguments in [&["x", "mesh"][..], &["x"]] {
            let error = shown(arguments);
            assert!(error.contains("[subcommands: ") && !error.contains("rank") && !error.contains("probe"), "{error}");
        }
        for shell in [clap_complete::Shell::Bash, clap_complete::Shell::Zsh, clap_complete::Shell::Fish] {
            let complete = |mut command: clap::Command| {
                let mut script = Vec::new();
                clap_complete::generate(shell, &mut command, "x", &mut script);
                String::from_utf8(script).unwrap()
            };
            assert!(complete(command.clone()).contains("probe-drivers"));
            let script = complete(without_hidden(&command));
            assert!(script.contains("mesh") && script.contains("run") && script.contains("count"), "{script}");
            assert!(!script.contains("probe-drivers") && !script.contains("rank"), "{script}");
        }
    }

    #[test]
    fn errors_about_numbers_say_what_is_expected() {
        let option = |name: &'static str| clap::Arg::new(name).long(name);
        let train = clap::Command::new("train")
            .arg(option("seed").value_parser(clap::value_parser!(u64)))
            .arg(option("rate").value_parser(clap::value_parser!(f64)))
            .arg(option("host").value_parser(clap::value_parser!(std::net::IpAddr)));
        let command = with_negative_numbers(clap::Command::new("x").subcommand(train));
        for (name, value, expected) in [
            ("--seed", "-1", "expected a whole number"),
            ("--seed", "x", "expected a whole number"),
            ("--seed", "99999999999999999999", "the number is too large"),
            ("--rate", "fast", "expected a number"),
            ("--host", "here", "expected an IP address, such as 127.0.0.1"),
        ] {
            let arguments = ["x", "train", name, value].map(OsString::from);
            let error = command.clone().try_get_matches_from(&arguments).unwrap_err();
            let shown = explained(error, &command, &arguments).to_string();
            let start = format!("error: invalid value '{value}' for '{name} <{}>': {expected}\n", &name[2..]);
            assert!(shown.starts_with(&start) && shown.ends_with("try '--help'.\n"), "{shown}");
        }
        let matches = command.try_get_matches_from(["x", "train", "--rate", "-0.5"]).unwrap();
        assert_eq!(matches.subcommand().unwrap().1.get_one::<f64>("rate"), Some(&-0.5));
    }
}
