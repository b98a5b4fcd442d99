//! `panoply generate`: shell completions and manual pages, from the definition of the command line.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Command, ValueEnum};
use clap_complete::Shell;
use panoply::{Error, Result};

use crate::command_line::without_hidden;

/// Write completions for a shell, or manual pages
///
/// For bash: `panoply generate bash > ~/.local/share/bash-completion/completions/panoply`. Manual pages, one for each command, are written to
/// a folder: `panoply generate man --output ~/.local/share/man/man1`.
#[derive(Args)]
pub struct GenerateCommand {
    /// Shell, or `man` for manual pages
    #[arg(value_name = "SHELL|man")]
    what: Artifact,
    /// Folder of the manual pages, required for man
    #[arg(short, long, visible_alias = "out", value_name = "FOLDER", required_if_eq("what", "man"))]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Artifact {
    Bash,
    Elvish,
    Fish,
    #[value(name = "powershell")]
    PowerShell,
    Zsh,
    /// Manual pages
    Man,
}

/// Writes completions to stdout, or manual pages to the folder.
pub fn run(arguments: &GenerateCommand, command: Command) -> Result<ExitCode> {
    let shell = match (arguments.what, &arguments.output) {
        (Artifact::Man, Some(folder)) => {
            let failed = |error| Error::io(format!("cannot write manual pages to {}", folder.display()), error);
            std::fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(command, folder)).map_err(failed)?;
            return Ok(ExitCode::SUCCESS);
        }
        (_, Some(_)) => return Err(Error::mistake("--output is for manual pages; completions are written to stdout")),
        (Artifact::Man, None) => return Err(Error::mistake("--output FOLDER is missing; each command has a page")),
        (Artifact::Bash, None) => Shell::Bash,
        (Artifact::Elvish, None) => Shell::Elvish,
        (Artifact::Fish, None) => Shell::Fish,
        (Artifact::PowerShell, None) => Shell::PowerShell,
        (Artifact::Zsh, None) => Shell::Zsh,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut without_hidden(&command), "panoply", &mut script);
    println!("{}", String::from_utf8_lossy(&script).trim_end());
    Ok(ExitCode::SUCCESS)
}
