//! Networks in TOML files, with errors that name file, line and field.
//!
//! ```toml
//! input = [1, 8, 8]
//!
//! [[layer]]
//! kind = "conv"
//! out_channels = 16
//! kernel_size = [3, 3]
//!
//! [[layer]]
//! kind = "relu"
//! ```
//!
//! Layers with sublayers hold them as lists of such tables: `[[layer.layers]]` below a `[[layer]]`, or inline in brackets. The sections
//! `[training]` and `[data]` are for the training program and are returned unparsed.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;
use std::path::Path;

use panoply_tensor::{Error, Result};
use serde::de::value::{MapAccessDeserializer, StrDeserializer};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use toml::{Spanned, Table, Value};

use super::{LayerSpec, Loss, LossKind, Network, shape};
use crate::nearest::with_nearest;

/// Maximum size of a file.
const MAX_BYTES: usize = 1 << 20;

/// The deserialized file, before its layers are parsed.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    input: Vec<usize>,
    #[serde(default, deserialize_with = "loss")]
    loss: Loss,
    #[serde(default)]
    layer: Vec<Spanned<Table>>,
    #[serde(default)]
    training: BTreeMap<String, Spanned<Value>>,
    #[serde(default)]
    data: BTreeMap<String, Spanned<Value>>,
}

/// Reads a loss: its name alone, as in `loss = "mse"`, or a table with its settings.
fn loss<'de, D: Deserializer<'de>>(from: D) -> Result<Loss, D::Error> {
    struct NameOrTable;

    impl<'de> Visitor<'de> for NameOrTable {
        type Value = Loss;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a loss such as \"mse\", or a table such as { kind = \"mse\" }")
        }

        fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<Loss, E> {
            LossKind::deserialize(StrDeserializer::new(name)).map(Loss::new)
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Loss, A::Error> {
            Loss::deserialize(MapAccessDeserializer::new(map))
        }
    }

    from.deserialize_any(NameOrTable)
}

/// Sections of a file besides its network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileSections {
    /// Section `[training]`.
    pub training: Vec<Setting>,
    /// Section `[data]`.
    pub data: Vec<Setting>,
}

/// A key with a value; a list becomes one setting for each element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Line, counted from 1.
    pub line: usize,
    /// Key, such as `learning_rate`.
    pub name: String,
    /// Value: text without its quotes, numbers in plain digits.
    pub value: String,
}

impl Network {
    /// Reads a network from a file.
    ///
    /// # Errors
    /// If the file cannot be read, or is not a valid description.
    pub fn read(path: &Path) -> Result<Network> {
        Network::read_with_sections(path).map(|(network, _)| network)
    }

    /// Reads a network and the sections `[training]` and `[data]` from a file.
    ///
    /// # Errors
    /// As for [`Network::read`].
    pub fn read_with_sections(path: &Path) -> Result<(Network, FileSections)> {
        let failed = |error| Error::io(format!("cannot read {}", path.display()), error);
        let mut bytes = Vec::new();
        let file = std::fs::File::open(path).map_err(failed)?;
        file.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
        let wrong = |what: String| Error::corrupt(format!("{}: {what}", path.display()));
        if bytes.len() > MAX_BYTES {
            return Err(wrong(format!("the file is larger than {MAX_BYTES} bytes")));
        }
        let text = String::from_utf8(bytes).map_err(|error| wrong(error.to_string()).with_source(error))?;
        parse(&text).map_err(|(line, what)| Error::corrupt(format!("{}:{line}: {what}", path.display())))
    }

    /// Parses a network.
    ///
    /// # Errors
    /// The line and a description of the first mistake.
    pub fn parse(text: &str) -> Result<Network, (usize, String)> {
        parse(text).map(|(network, _)| network)
    }
}

fn parse(text: &str) -> Result<(Network, FileSections), (usize, String)> {
    let raw: Raw = toml::from_str(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        (line_of(text, at), with_nearest(one_line(error.message())))
    })?;
    let mut network = Network { input: raw.input, layers: Vec::new(), loss: raw.loss };
    for (at, table) in raw.layer.iter().enumerate() {
        let layer = layer(table.get_ref()).map_err(|wrong| {
            let place =
                wrong.within.iter().fold(LayerLocation::of(text, table), |place, (name, at)| place.part(name, *at));
            (place.line(wrong.field.as_deref()), format!("layer {at}{}", wrong.what))
        })?;
        network.layers.push(layer);
    }
    network.checked().map_err(|(at, what)| {
        let line = at.and_then(|at| {
            let input = shape::through(&network.layers[..at], &network.input).ok()?.pop()?;
            Some(LayerLocation::of(text, raw.layer.get(at)?).culprit(&network.layers[at], &input, &what))
        });
        (line.unwrap_or(1), network.complaint(at, &what))
    })?;
    let (training, data) = (settings(text, "training", &raw.training)?, settings(text, "data", &raw.data)?);
    Ok((network, FileSections { training, data }))
}

/// Returns the settings of a section, or the line and a description of the mistake. An empty list yields no settings.
fn settings(
    text: &str,
    section: &str,
    values: &BTreeMap<String, Spanned<Value>>,
) -> Result<Vec<Setting>, (usize, String)> {
    let mut settings = Vec::new();
    for (name, value) in values {
        let line = line_of(text, value.span().start);
        let several = match value.get_ref() {
            Value::Array(several) => &several[..],
            one => std::slice::from_ref(one),
        };
        for item in several {
            let value = match item {
                Value::String(text) => text.clone(),
                // Normalizes spellings such as 0x10 or 1_000.
                Value::Integer(number) => number.to_string(),
                Value::Float(number) => format!("{number:?}"),
                Value::Boolean(flag) => flag.to_string(),
                Value::Datetime(date) => date.to_string(),
                Value::Array(_) | Value::Table(_) => {
                    let what = item.type_str();
                    return Err((
                        line,
                        format!("{section}: {name}: takes text, numbers or a list of them, not {what}"),
                    ));
                }
            };
            settings.push(Setting { line, name: name.clone(), value });
        }
    }
    Ok(settings)
}

/// An error in a layer: field, description, and the path of list names and positions to the layer, from the outermost inwards.
struct FileError {
    field: Option<String>,
    what: String,
    within: Vec<(String, usize)>,
}

impl FileError {
    fn new(field: Option<&str>, what: String) -> FileError {
        FileError { field: field.map(str::to_string), what, within: Vec::new() }
    }
}

/// Parses one layer; its `kind` determines the allowed fields.
fn layer(table: &Table) -> Result<LayerSpec, FileError> {
    let kind = match table.get("kind") {
        Some(Value::String(kind)) => kind.clone(),
        Some(other) => {
            let what = format!(": kind is {}, not text such as \"linear\"", other.type_str());
            return Err(FileError::new(Some("kind"), what));
        }
        None => return Err(FileError::new(None, ": `kind` is missing, such as kind = \"linear\"".to_string())),
    };
    let mut fields = table.clone();
    fields.remove("kind");
    for (name, value) in fields.iter_mut().filter(|(name, _)| PARTS.contains(&name.as_str())) {
        part(&kind, name, value)?;
    }
    // If deserialization fails, the fields are tried one at a time to find the wrong one.
    let whole = Value::Table(Table::from_iter([(kind.clone(), Value::Table(fields.clone()))]));
    LayerSpec::deserialize(whole).map_err(|error| {
        let message = with_nearest(one_line(error.message()));
        let field = if message.starts_with(&format!("unknown variant `{kind}`")) {
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
        FileError { field, what, within: Vec::new() }
    })
}

/// Fields that hold lists of layers, as in [`LayerSpec::sublayers`].
const PARTS: [&str; 4] = ["layers", "shortcut", "target", "memory"];

/// Parses a list of layers in place.
fn part(kind: &str, name: &str, value: &mut Value) -> Result<(), FileError> {
    let Value::Array(layers) = value else { return Ok(()) };
    for (at, value) in layers.iter_mut().enumerate() {
        let Value::Table(table) = value else { continue };
        let inner = layer(table).map_err(|mut wrong| {
            wrong.what = format!(" ({kind}): {name}: layer {at}{}", wrong.what);
            wrong.within.insert(0, (name.to_string(), at));
            wrong
        })?;
        *value = Value::try_from(&inner).map_err(|error| FileError::new(Some(name), format!(" ({kind}): {error}")))?;
    }
    Ok(())
}

/// Returns the field whose removal changes the error message.
fn culprit(kind: &str, fields: &Table, message: &str) -> Option<String> {
    let suspects = fields.keys().find(|name| {
        let mut rest = fields.clone();
        rest.remove(*name);
        let whole = Value::Table(Table::from_iter([(kind.to_string(), Value::Table(rest))]));
        LayerSpec::deserialize(whole).map_or_else(|error| error.message() != message, |_| true)
    });
    suspects.cloned()
}

/// Position of a layer in the text.
struct LayerLocation<'a> {
    text: &'a str,
    start: usize,
    /// Header of the layer's table: `layer`, or `layer.layers` for a sublayer.
    header: String,
    /// List field of the outer layer that contains the layer, if it is inline and has no header.
    field: Option<String>,
}

impl<'a> LayerLocation<'a> {
    fn of(text: &'a str, table: &Spanned<Table>) -> LayerLocation<'a> {
        LayerLocation { text, start: table.span().start, header: "layer".to_string(), field: None }
    }

    /// Returns the location of a sublayer.
    fn part(&self, name: &str, at: usize) -> LayerLocation<'a> {
        let header = format!("{}.{name}", self.header);
        let mut start = self.start;
        let lines = self.text[self.start..].split_inclusive('\n').map(|line| {
            start += line.len();
            (start - line.len(), line.trim().replace(' ', ""))
        });
        // The first line is this layer's own header. The next header of the same or an outer list ends the layer.
        let ends = |line: &str| line.starts_with("[[") && self.header.starts_with(line.trim_matches(['[', ']']));
        let own = lines.skip(1).take_while(|(_, line)| !ends(line));
        let mut inner = own.filter(|(_, line)| *line == format!("[[{header}]]"));
        match (inner.nth(at), &self.field) {
            (Some((start, _)), None) => LayerLocation { text: self.text, start, header, field: None },
            _ => {
                let field = self.field.clone().or(Some(name.to_string()));
                LayerLocation { text: self.text, start: self.start, header: self.header.clone(), field }
            }
        }
    }

    /// Returns the line of a size mistake in this layer over inputs of this shape.
    fn culprit(&self, layer: &LayerSpec, input: &[usize], what: &str) -> usize {
        let wrong =
            layer.sublayers().into_iter().find_map(|part| Some((part, shape::through(part.layers, input).err()?)));
        let Some((part, (at, what))) = wrong else { return self.line(what.split([' ', ':']).next()) };
        let input = shape::through(&part.layers[..at], input).ok().and_then(|mut shapes| shapes.pop());
        self.part(part.name, at).culprit(&part.layers[at], &input.unwrap_or_default(), &what)
    }

    /// Returns the line of a field of the layer, or of the layer itself if there is no such field.
    fn line(&self, field: Option<&str>) -> usize {
        let first = line_of(self.text, self.start);
        let Some(field) = self.field.as_deref().or(field) else { return first };
        let body = self.text.lines().enumerate().skip(first);
        let own = body.take_while(|(_, line)| !line.trim_start().starts_with('['));
        let named =
            |line: &str| line.trim_start().strip_prefix(field).is_some_and(|rest| rest.trim_start().starts_with('='));
        own.into_iter().find(|(_, line)| named(line)).map_or(first, |(at, _)| at + 1)
    }
}

/// Returns the line of a byte position, counted from 1.
fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes()[..at.min(text.len())].iter().filter(|byte| **byte == b'\n').count() + 1
}

fn one_line(message: &str) -> String {
    message.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<&str>>().join("; ")
}
