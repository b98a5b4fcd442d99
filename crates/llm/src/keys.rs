//! The configuration of a file as keys and values, which remembers what was read.
//!
//! A key that nothing read may change what the model computes, so [`Keys::finish`] refuses it by name.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use panoply_tensor::{Error, Result};

use crate::config::MAX_SIZE;
use crate::gguf::{Gguf, Value};

/// Value of a configuration: a plain one, or nested keys.
#[derive(Clone, Debug)]
enum Entry {
    Plain(Value),
    Nested(BTreeMap<String, Entry>),
}

/// Keys and values of one level.
pub(crate) struct Keys {
    /// Path of the file, which begins every message.
    place: String,
    /// Prefix of every key in messages.
    prefix: String,
    entries: BTreeMap<String, Entry>,
    read: RefCell<BTreeSet<String>>,
}

impl Keys {
    /// Creates the keys of an architecture's metadata, without `architecture.`.
    pub fn of_gguf(file: &Gguf, architecture: &str) -> Keys {
        let prefix = format!("{architecture}.");
        let own = file.metadata.iter().filter_map(|(key, value)| Some((key.strip_prefix(&prefix)?, value)));
        let entries = own.map(|(key, value)| (key.to_string(), Entry::Plain(value.clone()))).collect();
        Keys { place: file.path().display().to_string(), prefix, entries, read: RefCell::default() }
    }

    /// Creates the keys of a JSON object, without those whose value is null. `place` is named in messages.
    pub fn of_json(place: String, object: &serde_json::Map<String, serde_json::Value>) -> Keys {
        Keys { place, prefix: String::new(), entries: json_entries(object), read: RefCell::default() }
    }

    /// Returns an error about this file.
    pub fn wrong(&self, what: &str) -> Error {
        Error::corrupt(format!("{}: {what}", self.place))
    }

    /// Returns an error about something unsupported in this file.
    pub fn unsupported(&self, what: &str) -> Error {
        Error::unsupported(format!("{}: {what}", self.place))
    }

    /// Returns true if the key exists.
    pub fn has(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    fn entry(&self, key: &str) -> Option<&Entry> {
        self.read.borrow_mut().insert(key.to_string());
        self.entries.get(key)
    }

    fn plain<'a, T>(&'a self, key: &str, kind: &str, convert: fn(&'a Value) -> Option<T>) -> Result<Option<T>> {
        let converted = match self.entry(key) {
            None => return Ok(None),
            Some(Entry::Plain(value)) => convert(value),
            Some(Entry::Nested(_)) => None,
        };
        let wrong = || self.wrong(&format!("{}{key} is not {kind}", self.prefix));
        converted.map(Some).ok_or_else(wrong)
    }

    fn required<T>(&self, key: &str, value: Option<T>) -> Result<T> {
        value.ok_or_else(|| self.wrong(&format!("{}{key} is missing", self.prefix)))
    }

    /// Returns a size from 1 to `MAX_SIZE`.
    pub fn size(&self, key: &str) -> Result<usize> {
        let size = self.optional_size(key)?;
        self.required(key, size)
    }

    /// Returns an optional size.
    pub fn optional_size(&self, key: &str) -> Result<Option<usize>> {
        let Some(size) = self.plain(key, "a size", Value::as_usize)? else { return Ok(None) };
        if size == 0 || size > MAX_SIZE {
            return Err(self.wrong(&format!("{}{key} is {size}, not between 1 and {MAX_SIZE}", self.prefix)));
        }
        Ok(Some(size))
    }

    /// Returns an optional count, which can be 0.
    pub fn count(&self, key: &str) -> Result<usize> {
        Ok(self.plain(key, "a count", Value::as_usize)?.unwrap_or(0))
    }

    /// Returns a number.
    pub fn number(&self, key: &str) -> Result<f64> {
        let number = self.optional_number(key)?;
        self.required(key, number)
    }

    /// Returns an optional number.
    pub fn optional_number(&self, key: &str) -> Result<Option<f64>> {
        self.plain(key, "a number", Value::as_f64)
    }

    /// Returns a boolean, false if it is absent.
    pub fn flag(&self, key: &str) -> Result<bool> {
        Ok(self.optional_flag(key)?.unwrap_or(false))
    }

    /// Returns an optional boolean.
    pub fn optional_flag(&self, key: &str) -> Result<Option<bool>> {
        self.plain(key, "true or false", Value::as_bool)
    }

    /// Returns an optional text.
    pub fn text(&self, key: &str) -> Result<Option<&str>> {
        self.plain(key, "text", Value::as_str)
    }

    /// Returns an optional array.
    fn array<'a, T>(&'a self, key: &str, kind: &str, convert: fn(&'a Value) -> Option<T>) -> Result<Option<Vec<T>>> {
        let Some(values) = self.plain(key, kind, Value::as_array)? else { return Ok(None) };
        let values: Option<Vec<T>> = values.iter().map(convert).collect();
        values.map(Some).ok_or_else(|| self.wrong(&format!("{}{key} is not {kind}", self.prefix)))
    }

    /// Returns an optional array of numbers.
    pub fn numbers(&self, key: &str) -> Result<Option<Vec<f64>>> {
        self.array(key, "an array of numbers", Value::as_f64)
    }

    /// Returns an optional array of counts.
    pub fn counts(&self, key: &str) -> Result<Option<Vec<usize>>> {
        self.array(key, "an array of counts", Value::as_usize)
    }

    /// Returns an optional array of texts.
    pub fn texts(&self, key: &str) -> Result<Option<Vec<&str>>> {
        self.array(key, "an array of texts", Value::as_str)
    }

    /// Returns the nested keys of an optional key; a plain value there is an error.
    pub fn nested(&self, key: &str) -> Result<Option<Keys>> {
        match self.entry(key) {
            None => Ok(None),
            Some(Entry::Nested(entries)) => Ok(Some(Keys {
                place: self.place.clone(),
                prefix: format!("{}{key}.", self.prefix),
                entries: entries.clone(),
                read: RefCell::default(),
            })),
            Some(Entry::Plain(_)) => Err(self.wrong(&format!("{}{key} is not an object", self.prefix))),
        }
    }

    /// Checks that every key was read or is in `harmless`.
    ///
    /// # Errors
    ///
    /// If a key was not. The error names the first one.
    pub fn finish(&self, harmless: &[&str]) -> Result<()> {
        let read = self.read.borrow();
        let unread = self.entries.keys().find(|key| !read.contains(*key) && !harmless.contains(&key.as_str()));
        match unread {
            Some(key) => Err(self.unsupported(&format!("configuration key {}{key} is not supported", self.prefix))),
            None => Ok(()),
        }
    }
}

fn json_entries(object: &serde_json::Map<String, serde_json::Value>) -> BTreeMap<String, Entry> {
    let entry = |value: &serde_json::Value| match value {
        serde_json::Value::Object(nested) => Some(Entry::Nested(json_entries(nested))),
        other => plain_json(other).map(Entry::Plain),
    };
    object.iter().filter_map(|(key, value)| Some((key.clone(), entry(value)?))).collect()
}

/// A JSON value that is not an object, as GGUF's metadata have it; nothing for null. Objects in arrays become null too: no key that is
/// read here has any.
fn plain_json(value: &serde_json::Value) -> Option<Value> {
    Some(match value {
        serde_json::Value::Null | serde_json::Value::Object(_) => return None,
        serde_json::Value::Bool(value) => Value::Bool(*value),
        serde_json::Value::String(text) => Value::String(text.clone()),
        serde_json::Value::Array(values) => Value::Array(values.iter().filter_map(plain_json).collect()),
        serde_json::Value::Number(number) => match (number.as_u64(), number.as_i64()) {
            (Some(number), _) => Value::Unsigned(number),
            (None, Some(number)) => Value::Signed(number),
            (None, None) => Value::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
    })
}
