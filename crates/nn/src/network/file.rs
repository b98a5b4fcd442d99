//! Networks in files of TOML, in which a mistake names file, line and field.
//!
//! ```toml
//! input = [1, 8, 8]
//!
//! [[layer]]
//! kind = "conv"
//! outputs = 16
//! size = [3, 3]
//!
//! [[layer]]
//! kind = "relu"
//! ```

use std::path::Path;

use panoply_tensor::{Error, Result};
use serde::Deserialize;
use toml::{Spanned, Table, Value};

use super::{LayerSpec, Loss, Network};

/// The largest file that is taken.
const MOST_BYTES: usize = 1 << 20;

/// A file as it stands, before its layers are read.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    input: Vec<usize>,
    #[serde(default)]
    loss: Loss,
    #[serde(default)]
    layer: Vec<Spanned<Table>>,
}

impl Network {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Network> {
        let failed = |error| Error::io(format!("cannot read {}", path.display()), error);
        let bytes = std::fs::read(path).map_err(failed)?;
        let wrong = |what: String| Error::corrupt(format!("{}: {what}", path.display()));
        if bytes.len() > MOST_BYTES {
            return Err(wrong(format!("{} bytes are too many for a description", bytes.len())));
        }
        let text = String::from_utf8(bytes).map_err(|error| wrong(error.to_string()).caused_by(error))?;
        Network::parse(&text).map_err(|(line, what)| Error::corrupt(format!("{}:{line}: {what}", path.display())))
    }

    /// The network a text describes, or the line and what is wrong there.
    pub fn parse(text: &str) -> Result<Network, (usize, String)> {
        let raw: Raw = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            (line_of(text, at), one_line(error.message()))
        })?;
        let mut network = Network { input: raw.input, layers: Vec::new(), loss: raw.loss };
        for (at, table) in raw.layer.iter().enumerate() {
            let place = Place { text, start: table.span().start };
            let layer = layer(table.get_ref())
                .map_err(|Wrong { field, what }| (place.line(field.as_deref()), format!("layer {}{what}", at + 1)))?;
            network.layers.push(layer);
        }
        network.checked().map_err(|(at, what)| {
            let first = what.split_whitespace().next();
            let line = match at.and_then(|at| raw.layer.get(at)) {
                Some(table) => Place { text, start: table.span().start }.line(first),
                None => 1,
            };
            (line, network.complaint(at, &what))
        })?;
        Ok(network)
    }
}

/// What is wrong with a layer, and in which field.
struct Wrong {
    field: Option<String>,
    what: String,
}

/// One layer: its `kind` decides which fields it may have.
fn layer(table: &Table) -> Result<LayerSpec, Wrong> {
    let kind = match table.get("kind") {
        Some(Value::String(kind)) => kind.clone(),
        Some(other) => {
            let what = format!(": kind is {}, not text such as \"linear\"", other.type_str());
            return Err(Wrong { field: Some("kind".to_string()), what });
        }
        None => return Err(Wrong { field: None, what: ": `kind` is missing, such as kind = \"linear\"".to_string() }),
    };
    let mut fields = table.clone();
    fields.remove("kind");
    // A field is tried alone where all of them together fail, to know which one it was.
    let whole = Value::Table(Table::from_iter([(kind.clone(), Value::Table(fields.clone()))]));
    LayerSpec::deserialize(whole).map_err(|error| {
        let message = one_line(error.message());
        let field = if message.starts_with("unknown variant") {
            Some("kind".to_string())
        } else {
            let named = message.split('`').nth(1).filter(|name| fields.contains_key(*name)).map(str::to_string);
            named.or_else(|| culprit(&kind, &fields, error.message()))
        };
        let message = match &field {
            Some(field) if field != "kind" && !message.contains(&format!("`{field}`")) => {
                format!("`{field}`: {message}")
            }
            _ => message,
        };
        let what =
            if field.as_deref() == Some("kind") { format!(": {message}") } else { format!(" ({kind}): {message}") };
        Wrong { field, what }
    })
}

/// The field without which a layer's message would be another.
fn culprit(kind: &str, fields: &Table, message: &str) -> Option<String> {
    let suspects = fields.keys().find(|name| {
        let mut rest = fields.clone();
        rest.remove(*name);
        let whole = Value::Table(Table::from_iter([(kind.to_string(), Value::Table(rest))]));
        LayerSpec::deserialize(whole).map_or_else(|error| error.message() != message, |_| true)
    });
    suspects.cloned()
}

/// Where a layer stands.
struct Place<'a> {
    text: &'a str,
    start: usize,
}

impl Place<'_> {
    /// The line of a field of the layer, or of the layer if there is none of that name.
    fn line(&self, field: Option<&str>) -> usize {
        let first = line_of(self.text, self.start);
        let Some(field) = field else { return first };
        let body = self.text.lines().enumerate().skip(first);
        let own = body.take_while(|(_, line)| !line.trim_start().starts_with('['));
        let named =
            |line: &str| line.trim_start().strip_prefix(field).is_some_and(|rest| rest.trim_start().starts_with('='));
        own.into_iter().find(|(_, line)| named(line)).map_or(first, |(at, _)| at + 1)
    }
}

/// Counted from 1.
fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes()[..at.min(text.len())].iter().filter(|byte| **byte == b'\n').count() + 1
}

fn one_line(message: &str) -> String {
    message.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<&str>>().join("; ")
}
