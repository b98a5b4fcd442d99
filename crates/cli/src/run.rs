//! `panoply run MODEL PROMPT`: text from a language model.

use std::io::{IsTerminal, Read};
use std::process::ExitCode;

use clap::Args;
use panoply::llm::{Message, Prompt};
use panoply::{Error, Result};

use crate::generation_args::{Answer, GenerationArgs, write_piece};
use crate::output;

/// Generate text with a language model.
#[derive(Args)]
pub struct RunCommand {
    #[command(flatten)]
    generation: GenerationArgs,
    /// The text to continue; read from standard input if absent or `-`.
    prompt: Option<String>,
    /// Answer the prompt with the model's chat template instead of continuing it; `--system` does so too.
    #[arg(long)]
    chat: bool,
    /// One JSON document on stdout when the text is complete.
    #[arg(long)]
    json: bool,
}

/// Opens the model and writes the text as it is generated.
pub fn run(arguments: &RunCommand) -> Result<ExitCode> {
    let settings = &arguments.generation;
    settings.check()?;
    let prompt = prompt(arguments)?;
    let mut messages: Vec<Message> = settings.system.iter().map(|text| Message::new("system", text)).collect();
    messages.push(Message::new("user", &prompt));
    let is_chat = arguments.chat || settings.system.is_some();
    let prompt = if is_chat { Prompt::Chat(&messages) } else { Prompt::Text(&prompt) };
    let choice = settings.device.select()?;
    choice.device().scope(|| {
        let model = settings.open()?;
        let mut generation = model.generate(&settings.request(prompt))?;
        let write = |piece: &str| if arguments.json { Ok(()) } else { write_piece(piece) };
        let answer = Answer::collect(&mut generation, || true, write)?;
        if arguments.json {
            let mut document = answer.report(&generation);
            document["schema"] = 1.into();
            document["device"] = choice.device().to_string().into();
            document["model"] = settings.model.to_string_lossy().into();
            output::print_json(&document);
        } else {
            write_piece("\n")?;
            let summary = answer.summary(&generation);
            eprintln!("{} on {}: {summary}", settings.model.display(), choice.device());
        }
        Ok(choice.exit_code())
    })
}

/// The prompt of the command line or of standard input.
fn prompt(arguments: &RunCommand) -> Result<String> {
    match arguments.prompt.as_deref() {
        Some(prompt) if prompt != "-" => Ok(prompt.to_string()),
        None if std::io::stdin().is_terminal() => {
            Err(Error::mistake("missing prompt; pass it as the second argument or on standard input"))
        }
        Some(_) | None => {
            let mut text = String::new();
            let read = std::io::stdin().read_to_string(&mut text);
            read.map_err(|error| Error::io("cannot read the prompt from standard input", error))?;
            Ok(text)
        }
    }
}
