//! `panoply chat MODEL`: a conversation with a language model.
//!
//! On a terminal lines are edited and Ctrl-C stops the answer, not the program; otherwise each line of standard input is a message. The
//! session's cache keeps the conversation, so each answer computes only what is new.

use std::io::{BufRead, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use clap::Args;
use panoply::llm::{Message, Model, Prompt, Session};
use panoply::{Error, Result};
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{Config, Editor};

use crate::generation_args::{Answer, GenerationArgs, write_piece};
use crate::output;

/// The longest line of standard input, in bytes.
const MAX_LINE: u64 = 1 << 24;

const HELP: &str = "\
/help    this list
/reset   forget the conversation, but for the system message
/exit    leave, as Ctrl-D does
Ctrl-C   stop the answer
A line that ends with \\ continues in the next.";

/// Talk with a language model.
#[derive(Args)]
pub struct ChatCommand {
    #[command(flatten)]
    generation: GenerationArgs,
    /// Keep the lines you type in this file, and offer those of earlier conversations.
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
    /// One line of JSON on stdout for each answer.
    #[arg(long)]
    json: bool,
}

/// Opens the model and answers until the input ends.
pub fn run(arguments: &ChatCommand) -> Result<ExitCode> {
    let settings = &arguments.generation;
    settings.apply()?;
    let answering = Answering::listen()?;
    let choice = settings.device.select()?;
    choice.device().scope(|| {
        let model = settings.open()?;
        // A model without a template is told before anything is typed.
        if model.tokenizer().chat_template().is_none() {
            model.chat_text(&[])?;
        }
        let mut chat = Chat { arguments, model: &model, session: model.session(), messages: Vec::new(), answering };
        chat.reset();
        let mut input = Input::open(arguments)?;
        if input.is_terminal() {
            let name = model.name().map_or_else(|| settings.model.display().to_string(), str::to_string);
            eprintln!("{name} on {}, {} positions; /help lists commands", choice.device(), model.context_length());
        }
        while let Some(line) = input.next()? {
            match line.trim() {
                "" => {}
                "/help" => eprintln!("{HELP}"),
                "/reset" => chat.reset(),
                "/exit" | "/quit" => break,
                other if is_command(other) => eprintln!("unknown command {other}; /help lists commands"),
                _ => chat.answer(&line)?,
            }
        }
        input.close()?;
        Ok(ExitCode::SUCCESS)
    })
}

/// True if a line is a slash and one word, as commands are.
fn is_command(line: &str) -> bool {
    line.strip_prefix('/').is_some_and(|name| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphabetic()))
}

/// A conversation.
struct Chat<'a> {
    arguments: &'a ChatCommand,
    model: &'a Model,
    session: Session,
    messages: Vec<Message>,
    answering: Answering,
}

impl Chat<'_> {
    fn reset(&mut self) {
        let system = self.arguments.generation.system.iter().map(|text| Message::new("system", text));
        self.messages = system.collect();
        self.session.reset();
    }

    /// Answers a message. An error is reported, and the conversation continues without that message.
    fn answer(&mut self, line: &str) -> Result<()> {
        self.messages.push(Message::new("user", line));
        let request = self.arguments.generation.request(Prompt::Chat(&self.messages));
        let mut generation = match self.model.generate_in(&mut self.session, &request) {
            Ok(generation) => generation,
            Err(error) => {
                self.messages.pop();
                eprintln!("panoply: {error}");
                return Ok(());
            }
        };
        self.answering.begin();
        let write = |piece: &str| if self.arguments.json { Ok(()) } else { write_piece(piece) };
        let answer = Answer::collect(&mut generation, || self.answering.goes_on(), write);
        self.answering.end();
        let answer = answer?;
        if self.arguments.json {
            let mut document = answer.report(&generation);
            document["schema"] = 1.into();
            output::print_json_line(&document);
        } else {
            write_piece("\n")?;
            eprintln!("[{}]", answer.summary(&generation));
        }
        self.messages.push(Message::new("assistant", answer.text));
        Ok(())
    }
}

/// The state that Ctrl-C changes: it ends an answer while there is one, else the program.
struct Answering(Arc<AtomicU8>);

const IDLE: u8 = 0;
const RUNNING: u8 = 1;
const STOPPED: u8 = 2;

impl Answering {
    fn listen() -> Result<Answering> {
        let state = Arc::new(AtomicU8::new(IDLE));
        let seen = state.clone();
        let handler = move || {
            let stopped = seen.compare_exchange(RUNNING, STOPPED, Ordering::SeqCst, Ordering::SeqCst);
            if stopped.is_err() {
                std::process::exit(output::INTERRUPTED);
            }
        };
        let set = ctrlc::set_handler(handler);
        set.map_err(|error| Error::mistake(format!("cannot listen for Ctrl-C: {error}")))?;
        Ok(Answering(state))
    }

    fn begin(&self) {
        self.0.store(RUNNING, Ordering::SeqCst);
    }

    fn goes_on(&self) -> bool {
        self.0.load(Ordering::SeqCst) == RUNNING
    }

    fn end(&self) {
        self.0.store(IDLE, Ordering::SeqCst);
    }
}

/// The source of messages.
enum Input {
    Terminal { editor: Box<Editor<(), FileHistory>>, history: Option<PathBuf> },
    Lines,
}

impl Input {
    fn open(arguments: &ChatCommand) -> Result<Input> {
        if !std::io::stdin().is_terminal() {
            return Ok(Input::Lines);
        }
        let wrong = |error: ReadlineError| Error::mistake(format!("cannot edit lines on this terminal: {error}"));
        let config = Config::builder().auto_add_history(true).build();
        let mut editor = Editor::with_history(config, FileHistory::new()).map_err(wrong)?;
        if let Some(path) = arguments.history.as_ref().filter(|path| path.exists()) {
            editor.load_history(path).map_err(|error| cannot("read", path, &error))?;
        }
        Ok(Input::Terminal { editor: Box::new(editor), history: arguments.history.clone() })
    }

    fn is_terminal(&self) -> bool {
        matches!(self, Input::Terminal { .. })
    }

    /// The next message; none when the input has ended.
    fn next(&mut self) -> Result<Option<String>> {
        match self {
            Input::Lines => line(),
            Input::Terminal { editor, .. } => {
                let (mut message, mut prompt) = (String::new(), "> ");
                loop {
                    match editor.readline(prompt) {
                        Ok(line) => match line.strip_suffix('\\') {
                            Some(line) => message = message + line + "\n",
                            None => return Ok(Some(message + &line)),
                        },
                        Err(ReadlineError::Eof) => return Ok(None),
                        Err(ReadlineError::Interrupted) => {
                            eprintln!("Ctrl-D or /exit leaves");
                            message.clear();
                        }
                        Err(error) => return Err(Error::mistake(format!("cannot read the terminal: {error}"))),
                    }
                    prompt = if message.is_empty() { "> " } else { ". " };
                }
            }
        }
    }

    /// Keeps the history.
    fn close(self) -> Result<()> {
        match self {
            Input::Terminal { mut editor, history: Some(path) } => {
                editor.save_history(&path).map_err(|error| cannot("write", &path, &error))
            }
            Input::Terminal { history: None, .. } | Input::Lines => Ok(()),
        }
    }
}

fn cannot(what: &str, path: &std::path::Path, error: &ReadlineError) -> Error {
    Error::mistake(format!("cannot {what} the history {}: {error}", path.display()))
}

/// A line of standard input without its end.
fn line() -> Result<Option<String>> {
    let mut line = String::new();
    let mut stdin = std::io::Read::take(std::io::stdin().lock(), MAX_LINE);
    let read = stdin.read_line(&mut line);
    let count = read.map_err(|error| Error::io("cannot read standard input", error))?;
    if count as u64 == MAX_LINE {
        return Err(Error::mistake(format!("a line of standard input has more than {MAX_LINE} bytes")));
    }
    Ok((count > 0).then(|| line.trim_end_matches(['\n', '\r']).to_string()))
}
