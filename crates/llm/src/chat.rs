//! Chat templates, which format conversations as the model was trained on them.
//!
//! Templates come with model files, so they are untrusted programs: they can only read the conversation, and their work and
//! memory are limited. They have no clock (`strftime_now` is not defined), so the same conversation always gives the same text.
//!
//! Source: Hugging Face transformers, utils/chat_template_utils.py, for the settings of Jinja.

use std::io;
use std::sync::Arc;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Enumerator, Kwargs, Object, Value};
use minijinja::{Environment, ErrorKind};
use panoply_tensor::{Error, Result};
use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};

use crate::tokenizer::SpecialTokens;

/// Maximum work of a template. A step costs 1, and so do 64 bytes of output, so this bounds the memory too.
const FUEL: u64 = 2_000_000;
/// Name of the template.
const NAME: &str = "chat_template";

/// Message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Role: `system`, `user`, `assistant`, or another that the template defines.
    pub role: String,
    /// Text.
    pub content: String,
}

impl Message {
    /// Creates a message.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Message {
        Message { role: role.into(), content: content.into() }
    }
}

/// Message as a template reads it: a map whose keys are in this order.
#[derive(Debug)]
struct MessageMap(Message);

impl Object for MessageMap {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        match key.as_str()? {
            "role" => Some(Value::from(self.0.role.as_str())),
            "content" => Some(Value::from(self.0.content.as_str())),
            _ => None,
        }
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Str(&["role", "content"])
    }
}

/// Compiled chat template.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
}

impl ChatTemplate {
    /// Compiles a Jinja template.
    ///
    /// # Errors
    ///
    /// If the template is not valid.
    pub fn new(source: &str) -> Result<ChatTemplate> {
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.map_err(|error| wrong(&error))?);
        environment.set_fuel(Some(FUEL));
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_function("raise_exception", raise_exception);
        environment.add_filter("tojson", to_json);
        environment.add_template_owned(NAME, source.to_string()).map_err(|error| wrong(&error))?;
        Ok(ChatTemplate { environment })
    }

    /// Renders a conversation; with `add_generation_prompt` up to where the assistant's answer begins.
    ///
    /// # Errors
    ///
    /// If the template rejects the conversation, exceeds its limit of steps, or uses an undefined value.
    pub fn render(&self, messages: &[Message], add_generation_prompt: bool, special: &SpecialTokens) -> Result<String> {
        let template = self.environment.get_template(NAME).map_err(|error| wrong(&error))?;
        let messages = messages.iter().map(|message| Value::from_object(MessageMap(message.clone())));
        let context = minijinja::context! {
            messages => Value::from_iter(messages),
            add_generation_prompt => add_generation_prompt,
            bos_token => special.bos.as_deref().unwrap_or_default(),
            eos_token => special.eos.as_deref().unwrap_or_default(),
        };
        template.render(context).map_err(|error| wrong(&error))
    }
}

fn wrong(error: &minijinja::Error) -> Error {
    let line = error.line().map_or_else(String::new, |line| format!(" at line {line}"));
    if error.kind() == ErrorKind::OutOfFuel {
        return Error::corrupt(format!(
            "the chat template loops or writes without end{line}: it takes more than {FUEL} steps"
        ));
    }
    let detail = error.detail().map_or_else(|| error.kind().to_string(), str::to_string);
    Error::corrupt(format!("the chat template fails{line}: {detail}"))
}

fn raise_exception(message: String) -> std::result::Result<Value, minijinja::Error> {
    Err(minijinja::Error::new(ErrorKind::InvalidOperation, message))
}

/// Writes JSON as Python's `json.dumps` does: without escapes for HTML, with spaces after commas and colons.
fn to_json(value: Value, options: Kwargs) -> std::result::Result<Value, minijinja::Error> {
    let wrong = |error: serde_json::Error| minijinja::Error::new(ErrorKind::BadSerialization, error.to_string());
    let indent: Option<usize> = options.get("indent")?;
    options.get::<Option<bool>>("ensure_ascii")?;
    options.assert_all_used()?;
    let mut text = Vec::new();
    match indent {
        None => value.serialize(&mut Serializer::with_formatter(&mut text, PythonFormatter)).map_err(wrong)?,
        Some(indent) => {
            let spaces = " ".repeat(indent.min(16));
            let formatter = serde_json::ser::PrettyFormatter::with_indent(spaces.as_bytes());
            value.serialize(&mut Serializer::with_formatter(&mut text, formatter)).map_err(wrong)?;
        }
    }
    Ok(Value::from_safe_string(String::from_utf8_lossy(&text).into_owned()))
}

struct PythonFormatter;

impl Formatter for PythonFormatter {
    fn begin_array_value<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }
}
