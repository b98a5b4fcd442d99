//! Parser for expressions such as `softmax(x @ w + b)`, in mathematical, Python or Rust notation.
//!
//! A name is a tensor of random numbers. A name before `(` is an operation, listed in [`operations`], whose arguments can be passed by
//! name. A method is an operation whose first argument precedes the dot. `&` is ignored, so that Rust code can be pasted. Every error
//! names its column, including errors of tensor operations.

mod operations;
mod value;

use std::collections::BTreeMap;

use panoply::{DType, Error, Result, Rng, Tensor, TensorIndex};

use self::operations::OPERATIONS;
use self::value::{Argument, Value, first_tensor};
use super::{given, unknown};

/// Default shape of a tensor.
const SHAPE: [usize; 2] = [64, 64];

/// Maximum nesting depth of brackets and signs.
const DEPTH: usize = 64;

/// Removes source locations of this program from an error message.
fn without_places(text: &str) -> String {
    let mut words = String::new();
    for word in text.split(' ').filter(|word| *word != "pending,") {
        match word.split_once(".rs:") {
            // The text after a location follows the text before it.
            Some((_, behind)) => {
                words.truncate(words.trim_end_matches(',').len());
                words += behind.trim_start_matches(|letter: char| letter.is_ascii_digit());
            }
            None => {
                words += if words.is_empty() { "" } else { " " };
                words += word;
            }
        }
    }
    words
}

/// A parsed expression: its values and the tensors it names.
pub struct Expression {
    pub values: Vec<Tensor>,
    pub names: BTreeMap<String, Tensor>,
}

/// Returns true if the text is more than a name.
pub fn is_expression(text: &str) -> bool {
    text.contains(|letter: char| !(letter.is_alphanumeric() || letter == '_'))
}

/// Parses an expression over tensors of these shapes (`x=64x128`); the others have the default shape.
pub fn read(text: &str, shapes: &[String]) -> Result<Expression> {
    let mut parser =
        Parser { text, at: 0, depth: 0, shapes: of_names(shapes)?, names: BTreeMap::new(), rng: Rng::seed_from_u64(0) };
    let value = parser.whole()?;
    if let Some(letter) = parser.peek() {
        return Err(parser.trailing(letter));
    }
    let values = value.tensors();
    if values.is_empty() {
        return Err(parser.error(0, "the expression has no tensor".to_string()));
    }
    let names = parser.names;
    match parser.shapes.keys().find(|name| !names.contains_key(*name)) {
        Some(name) => Err(Error::mistake(format!("explain: --shape: `{text}` has no tensor named {name}"))),
        None => Ok(Expression { values, names }),
    }
}

fn of_names(shapes: &[String]) -> Result<BTreeMap<String, Vec<usize>>> {
    let read = |shape: &String| {
        let (name, lengths) = shape.split_once('=')?;
        let lengths = if lengths.is_empty() { Vec::new() } else { lengths.split('x').collect() };
        let lengths = lengths.into_iter().map(|length| length.trim().parse().ok());
        Some((name.trim().to_string(), lengths.collect::<Option<Vec<usize>>>()?))
    };
    let wrong =
        |shape| Error::mistake(format!("explain: --shape {shape}: expected a name and a shape, such as x=64x128"));
    shapes.iter().map(|shape| read(shape).ok_or_else(|| wrong(shape))).collect()
}

struct Parser<'t> {
    text: &'t str,
    /// Position in bytes.
    at: usize,
    depth: usize,
    shapes: BTreeMap<String, Vec<usize>>,
    names: BTreeMap<String, Tensor>,
    rng: Rng,
}

impl Parser<'_> {
    fn error(&self, at: usize, what: String) -> Error {
        Error::mistake(self.message(at, &what))
    }

    fn message(&self, at: usize, what: &str) -> String {
        let column = self.text[..at].chars().count() + 1;
        format!("explain: column {column} of `{}`: {what}", self.text)
    }

    fn trailing(&self, letter: char) -> Error {
        self.error(self.at, format!("unexpected `{letter}`"))
    }

    /// Returns the value, or the error of a tensor in it with the column of the operation.
    fn made(&self, at: usize, value: Value) -> Result<Value> {
        let wrong = |error: Error| {
            let notes = error.notes().iter().map(|note| without_places(note));
            notes.fold(self.error(at, without_places(error.message())), Error::note)
        };
        value.tensors().iter().try_for_each(Tensor::check).map_err(wrong)?;
        Ok(value)
    }

    fn peek(&mut self) -> Option<char> {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
        self.text[self.at..].chars().next()
    }

    /// Consumes this text if it comes next, and returns true if so.
    fn accept(&mut self, sign: &str) -> bool {
        let there = self.peek().is_some() && self.text[self.at..].starts_with(sign);
        self.at += if there { sign.len() } else { 0 };
        there
    }

    /// Consumes the following characters that satisfy the predicate.
    fn word(&mut self, belongs: impl Fn(char) -> bool) -> String {
        let rest = &self.text[self.at..];
        let word = &rest[..rest.find(|letter| !belongs(letter)).unwrap_or(rest.len())];
        self.at += word.len();
        word.to_string()
    }

    /// Parses an expression of the lowest precedence.
    fn whole(&mut self) -> Result<Value> {
        self.chain(&["<=", ">=", "==", "!=", "<", ">"], Parser::sum)
    }

    fn sum(&mut self) -> Result<Value> {
        self.chain(&["+", "-"], Parser::product)
    }

    fn product(&mut self) -> Result<Value> {
        self.chain(&["*", "/", "%", "@"], Parser::signed)
    }

    /// Parses operands of left-associative binary operators.
    fn chain(&mut self, signs: &[&'static str], part: fn(&mut Self) -> Result<Value>) -> Result<Value> {
        let mut left = part(self)?;
        loop {
            self.peek();
            let at = self.at;
            let Some(sign) = signs.iter().find(|sign| self.accept(sign)) else { return Ok(left) };
            let right = part(self)?;
            left = self.joined(at, sign, left, right)?;
        }
    }

    fn joined(&self, at: usize, sign: &str, left: Value, right: Value) -> Result<Value> {
        if let (Value::Number(x), Value::Number(y)) = (&left, &right) {
            let number = match sign {
                "+" => x + y,
                "-" => x - y,
                "*" => x * y,
                "/" => x / y,
                "%" => x % y,
                "**" => x.powf(*y),
                _ => return Err(self.error(at, format!("invalid operands for `{sign}`"))),
            };
            return Ok(Value::Number(number));
        }
        let sides = [left, right];
        // `@` does not accept numbers.
        let fits = sides.iter().all(|side| sign != "@" || matches!(side, Value::Tensor(_)));
        let like = first_tensor(&sides, &[]);
        let [Some(x), Some(y)] = sides.map(|side| Tensor::of(&side, like.as_ref()).filter(|_| fits)) else {
            return Err(self.error(at, format!("invalid operands for `{sign}`")));
        };
        let tensor = match sign {
            "+" => x + y,
            "-" => x - y,
            "*" => x * y,
            "/" => x / y,
            "%" => x % y,
            "**" => x.pow(&y),
            "@" => x.matmul(&y),
            "<" => x.lt(&y),
            "<=" => x.le(&y),
            ">" => x.gt(&y),
            ">=" => x.ge(&y),
            "==" => x.eq(&y),
            _ => x.ne(&y),
        };
        self.made(at, tensor.into())
    }

    /// Parses an operand with an optional sign.
    fn signed(&mut self) -> Result<Value> {
        self.peek();
        let at = self.at;
        self.depth += 1;
        if self.depth > DEPTH {
            return Err(self.error(at, format!("more than {DEPTH} nested brackets and signs")));
        }
        let value = if self.accept("-") {
            match self.signed()? {
                Value::Tensor(x) => self.made(at, (-x).into())?,
                Value::Number(number) => Value::Number(-number),
                value => return Err(self.error(at, format!("cannot negate {}", value.summary()))),
            }
        } else if self.accept("&") {
            self.signed()?
        } else {
            self.power()?
        };
        self.depth -= 1;
        Ok(value)
    }

    fn power(&mut self) -> Result<Value> {
        let base = self.with_methods()?;
        self.peek();
        let at = self.at;
        if !self.accept("**") {
            return Ok(base);
        }
        match (base, self.signed()?) {
            // The exponent as a constant, so that a square needs no logarithm.
            (Value::Tensor(x), Value::Number(exponent)) => self.made(at, x.pow(exponent).into()),
            (base, exponent) => self.joined(at, "**", base, exponent),
        }
    }

    fn with_methods(&mut self) -> Result<Value> {
        let mut value = self.part()?;
        loop {
            let letter = self.peek();
            if letter == Some('[') {
                value = self.places(value)?;
            } else if letter == Some('.') && !self.text[self.at..].starts_with("..") {
                self.at += 1;
                self.peek();
                let at = self.at;
                let name = self.word(|letter| letter.is_alphanumeric() || letter == '_');
                let is_turned = name == "T" && self.peek() != Some('(');
                value = if is_turned {
                    self.applied(at, "t", vec![value], Vec::new())?
                } else if self.accept("(") {
                    self.call(at, &name, vec![value])?
                } else {
                    let what = "expected a method call after the dot, such as `.relu()`";
                    return Err(self.error(at, what.to_string()));
                };
            } else {
                return Ok(value);
            }
        }
    }

    /// Indexes a tensor, as in `x[1:3, ::2]`, or a list of tensors.
    fn places(&mut self, value: Value) -> Result<Value> {
        let opened = self.at;
        self.at += 1;
        let mut ranges = Vec::new();
        while !self.accept("]") {
            if !ranges.is_empty() && !self.accept(",") {
                return Err(self.not_closed(opened));
            }
            ranges.push(self.range()?);
        }
        match (value, ranges.as_slice()) {
            (_, []) => Err(self.error(opened, "empty index".to_string())),
            (Value::Tensor(x), _) => self.made(opened, x.slice(ranges).into()),
            (Value::List(values), [TensorIndex::Index(place)]) => {
                let found = usize::try_from(*place).ok().and_then(|place| values.get(place).cloned());
                found.ok_or_else(|| self.error(opened, format!("index {place} out of range 0..{}", values.len())))
            }
            (value, _) => Err(self.error(opened, format!("{} cannot be indexed like this", value.summary()))),
        }
    }

    /// Parses an index along one axis: `1`, `-3:`, `::2`, `1..3` or `..`.
    fn range(&mut self) -> Result<TensorIndex> {
        let start = self.position()?;
        let is_span = self.accept("..") || self.accept(":");
        if !is_span {
            let what = "an index must be an integer or a range, such as 1:3 or ::2";
            return start.map(TensorIndex::Index).ok_or_else(|| self.error(self.at, what.to_string()));
        }
        let end = self.position()?;
        let is_stepped = self.accept(":");
        let at = self.at;
        let step = if is_stepped { self.position()?.unwrap_or(1) } else { 1 };
        let step = usize::try_from(step).ok().filter(|step| *step > 0);
        let step =
            step.ok_or_else(|| self.error(at, "a step must be at least 1; use flip to reverse an axis".to_string()))?;
        Ok(TensorIndex::Slice { start, end, step })
    }

    /// Parses an integer, if one comes next.
    fn position(&mut self) -> Result<Option<isize>> {
        self.peek();
        let at = self.at;
        let is_below = self.accept("-");
        self.peek();
        let digits = self.word(|letter| letter.is_ascii_digit());
        if digits.is_empty() && !is_below {
            return Ok(None);
        }
        let number: Option<isize> = digits.parse().ok();
        let number = number.ok_or_else(|| self.error(at, format!("invalid index `{}`", &self.text[at..self.at])))?;
        Ok(Some(if is_below { -number } else { number }))
    }

    /// Parses a number, a name, a call or a bracketed expression.
    fn part(&mut self) -> Result<Value> {
        let letter = self.peek();
        let at = self.at;
        match letter {
            Some('(') => {
                self.at += 1;
                let mut values = self.values(at, ")")?;
                match values.len() {
                    0 => Err(self.error(at, "empty brackets".to_string())),
                    1 => Ok(values.remove(0)),
                    _ => Ok(Value::List(values)),
                }
            }
            Some('[') => {
                self.at += 1;
                self.values(at, "]").map(Value::List)
            }
            Some(quote @ ('"' | '\'')) => {
                self.at += 1;
                let text = self.word(|letter| letter != quote);
                let is_closed = self.text[self.at..].starts_with(quote);
                self.at += usize::from(is_closed);
                is_closed.then_some(Value::String(text)).ok_or_else(|| self.error(at, "unterminated string".into()))
            }
            Some('.') if self.accept("..") => Ok(Value::All),
            Some(letter) if letter.is_ascii_digit() || letter == '.' => self.number(),
            Some(letter) if letter.is_alphabetic() || letter == '_' => {
                let name = self.word(|letter| letter.is_alphanumeric() || letter == '_');
                if self.accept("(") { self.call(at, &name, Vec::new()) } else { self.named(at, name) }
            }
            Some(letter) => Err(self.error(at, format!("expected a tensor or a number, found `{letter}`"))),
            None => Err(self.error(at, "expected a tensor or a number".to_string())),
        }
    }

    fn number(&mut self) -> Result<Value> {
        let at = self.at;
        let mut word = self.word(|letter| letter.is_ascii_digit() || letter == '.');
        if word.len() > 1 && word.ends_with('.') {
            // The dot belongs to a method call.
            word.pop();
            self.at -= 1;
        }
        if self.text[self.at..].starts_with(['e', 'E']) {
            self.at += 1;
            self.at += usize::from(self.text[self.at..].starts_with(['-', '+']));
            self.word(|letter| letter.is_ascii_digit());
            word = self.text[at..self.at].to_string();
        }
        word.parse().map(Value::Number).map_err(|_| self.error(at, format!("invalid number `{word}`")))
    }

    /// Returns the value of a name: a keyword, an element type or a tensor.
    fn named(&mut self, at: usize, name: String) -> Result<Value> {
        match name.as_str() {
            "true" | "True" => return Ok(Value::Bool(true)),
            "false" | "False" => return Ok(Value::Bool(false)),
            "none" | "None" => return Ok(Value::None),
            _ => {}
        }
        if DType::ALL.iter().any(|dtype| dtype.name() == name) {
            return Ok(Value::String(name));
        }
        if let Some(tensor) = self.names.get(&name) {
            return Ok(tensor.clone().into());
        }
        let shape = self.shapes.get(&name).map_or(&SHAPE[..], Vec::as_slice);
        let tensor = given(&mut self.rng, shape);
        self.names.insert(name, tensor.clone());
        self.made(at, tensor.into())
    }

    fn not_closed(&mut self, opened: usize) -> Error {
        match self.peek() {
            Some(letter) => self.trailing(letter),
            None => self.error(opened, "unclosed bracket".to_string()),
        }
    }

    /// Parses comma-separated values up to the closing bracket; the opening one is already consumed.
    fn values(&mut self, opened: usize, closed: &str) -> Result<Vec<Value>> {
        let mut values = Vec::new();
        while !self.accept(closed) {
            values.push(self.whole()?);
            if !self.accept(",") && !self.text[self.at..].starts_with(closed) {
                return Err(self.not_closed(opened));
            }
        }
        Ok(values)
    }

    /// Parses the name before a `=`, if that comes next.
    fn keyword(&mut self) -> Option<String> {
        self.peek();
        let start = self.at;
        let name = self.word(|letter| letter.is_alphanumeric() || letter == '_');
        let is_keyword = !name.is_empty() && self.peek() == Some('=') && !self.text[self.at..].starts_with("==");
        self.at = if is_keyword { self.at + 1 } else { start };
        is_keyword.then_some(name)
    }

    /// Parses the arguments of a call, up to the closing bracket, and applies the operation.
    fn call(&mut self, at: usize, name: &str, mut positional: Vec<Value>) -> Result<Value> {
        let (opened, mut keywords) = (self.at - 1, Vec::new());
        while !self.accept(")") {
            self.peek();
            let at = self.at;
            match self.keyword() {
                Some(name) => keywords.push((name, self.whole()?)),
                None if keywords.is_empty() => positional.push(self.whole()?),
                None => return Err(self.error(at, "positional argument follows keyword argument".to_string())),
            }
            if !self.accept(",") && self.peek() != Some(')') {
                return Err(self.not_closed(opened));
            }
        }
        self.applied(at, name, positional, keywords)
    }

    fn applied(&self, at: usize, name: &str, positional: Vec<Value>, keywords: Vec<(String, Value)>) -> Result<Value> {
        let Some(operation) = OPERATIONS.iter().find(|operation| operation.name == name) else {
            let known = OPERATIONS.iter().map(|operation| operation.name).collect();
            return Err(unknown(&self.message(at, &format!("unknown operation `{name}`")), name, known));
        };
        let made = operation.call(positional, keywords).map_err(|what| self.error(at, format!("{name}: {what}")))?;
        self.made(at, made)
    }
}
