//! Expressions as text: `softmax(x @ w + b)`, as in mathematics, as in Python or as in Rust.
//!
//! A name is a tensor of random numbers; what a word before `(` means is a row of [`operations`], whose arguments may be named. A method is an
//! operation whose first argument stands before the dot, and `&` means nothing, so that a line of a program can be given as it is. Every
//! mistake names its column, those that the tensors find as well.

mod operations;
mod value;

use std::collections::BTreeMap;

use panoply::{DType, Error, Result, Rng, Tensor, TensorIndex};

use self::operations::OPERATIONS;
use self::value::{Argument, Value, beside};
use super::given;

/// What a tensor is without a shape of its own.
const SHAPE: [usize; 2] = [64, 64];

/// How deep brackets and signs may be within each other.
const DEPTH: usize = 64;

/// What is said of tensors without the lines of this program that made them.
fn without_places(text: &str) -> String {
    let mut said = String::new();
    for word in text.split(' ').filter(|word| *word != "pending,") {
        match word.split_once(".rs:") {
            // What stands behind a place stands behind what was before it.
            Some((_, behind)) => {
                said.truncate(said.trim_end_matches(',').len());
                said += behind.trim_start_matches(|letter: char| letter.is_ascii_digit());
            }
            None => {
                said += if said.is_empty() { "" } else { " " };
                said += word;
            }
        }
    }
    said
}

/// An expression that was read: what it is and the tensors it names.
pub struct Expression {
    pub values: Vec<Tensor>,
    pub names: BTreeMap<String, Tensor>,
}

/// Whether this is more than a name.
pub fn is_expression(text: &str) -> bool {
    text.contains(|letter: char| !(letter.is_alphanumeric() || letter == '_'))
}

/// Reads an expression over tensors of these shapes (`x=64x128`), and of one shape where none is said.
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
        Some(name) => Err(Error::mistake(format!("explain: --shape is of {name}, which `{text}` does not name"))),
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
    let wrong = |shape| Error::mistake(format!("explain: --shape {shape} is not a name and lengths, such as x=64x128"));
    shapes.iter().map(|shape| read(shape).ok_or_else(|| wrong(shape))).collect()
}

struct Parser<'t> {
    text: &'t str,
    /// Bytes that were read.
    at: usize,
    depth: usize,
    shapes: BTreeMap<String, Vec<usize>>,
    names: BTreeMap<String, Tensor>,
    rng: Rng,
}

impl Parser<'_> {
    fn error(&self, at: usize, what: String) -> Error {
        let column = self.text[..at].chars().count() + 1;
        Error::mistake(format!("explain: column {column} of `{}`: {what}", self.text))
    }

    fn trailing(&self, letter: char) -> Error {
        self.error(self.at, format!("`{letter}` does not go on with what stands before it"))
    }

    /// A tensor that is none is said with the place where it would have been made.
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

    /// Whether this comes next; if so it is read.
    fn accept(&mut self, sign: &str) -> bool {
        let there = self.peek().is_some() && self.text[self.at..].starts_with(sign);
        self.at += if there { sign.len() } else { 0 };
        there
    }

    /// The letters from here on that belong together.
    fn word(&mut self, belongs: impl Fn(char) -> bool) -> String {
        let rest = &self.text[self.at..];
        let word = &rest[..rest.find(|letter| !belongs(letter)).unwrap_or(rest.len())];
        self.at += word.len();
        word.to_string()
    }

    /// What may stand in brackets.
    fn whole(&mut self) -> Result<Value> {
        self.chain(&["<=", ">=", "==", "!=", "<", ">"], Parser::sum)
    }

    fn sum(&mut self) -> Result<Value> {
        self.chain(&["+", "-"], Parser::product)
    }

    fn product(&mut self) -> Result<Value> {
        self.chain(&["*", "/", "%", "@"], Parser::signed)
    }

    /// Parts with signs between them, from the left.
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
                _ => return Err(self.error(at, format!("`{sign}` is not between tensors"))),
            };
            return Ok(Value::Number(number));
        }
        let sides = [left, right];
        // A matrix is no number.
        let fits = sides.iter().all(|side| sign != "@" || matches!(side, Value::Tensor(_)));
        let beside = beside(&sides, &[]);
        let [Some(x), Some(y)] = sides.map(|side| Tensor::of(&side, beside.as_ref()).filter(|_| fits)) else {
            return Err(self.error(at, format!("`{sign}` is not between tensors")));
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

    /// What may have a sign before it, and methods, places and a power behind it.
    fn signed(&mut self) -> Result<Value> {
        self.peek();
        let at = self.at;
        self.depth += 1;
        if self.depth > DEPTH {
            return Err(self.error(at, format!("more than {DEPTH} brackets and signs are within each other")));
        }
        let value = if self.accept("-") {
            match self.signed()? {
                Value::Tensor(x) => self.made(at, (-x).into())?,
                Value::Number(number) => Value::Number(-number),
                value => return Err(self.error(at, format!("{} has no sign", value.in_words()))),
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
            // It needs no logarithm, which some devices have too coarse a one for.
            (Value::Tensor(x), Value::Number(2.0)) => self.made(at, x.square().into()),
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
                    let what = "after a dot stands an operation with brackets, such as `.relu()`";
                    return Err(self.error(at, what.to_string()));
                };
            } else {
                return Ok(value);
            }
        }
    }

    /// Elements of a tensor, as in `x[1:3, ::2]`, or one of several tensors.
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
            (_, []) => Err(self.error(opened, "no place stands in these brackets".to_string())),
            (Value::Tensor(x), _) => self.made(opened, x.slice(ranges).into()),
            (Value::List(values), [TensorIndex::Index(place)]) => {
                let found = usize::try_from(*place).ok().and_then(|place| values.get(place).cloned());
                found.ok_or_else(|| self.error(opened, format!("there is no {place} among {} values", values.len())))
            }
            (value, _) => Err(self.error(opened, format!("{} has no such places", value.in_words()))),
        }
    }

    /// Positions along one axis: `1`, `-3:`, `::2`, `1..3` or `..`.
    fn range(&mut self) -> Result<TensorIndex> {
        let start = self.position()?;
        let is_span = self.accept("..") || self.accept(":");
        if !is_span {
            let what = "a place is a whole number or a range, such as 1:3 or ::2";
            return start.map(TensorIndex::Index).ok_or_else(|| self.error(self.at, what.to_string()));
        }
        let end = self.position()?;
        let is_stepped = self.accept(":");
        let at = self.at;
        let step = if is_stepped { self.position()?.unwrap_or(1) } else { 1 };
        let step = usize::try_from(step).ok().filter(|step| *step > 0);
        let step = step.ok_or_else(|| self.error(at, "a step is at least 1; flip turns an axis around".to_string()))?;
        Ok(TensorIndex::Slice { start, end, step })
    }

    /// A whole number, if one comes next.
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

    /// A number, a name, an operation or something in brackets.
    fn part(&mut self) -> Result<Value> {
        let letter = self.peek();
        let at = self.at;
        match letter {
            Some('(') => {
                self.at += 1;
                let mut values = self.values(at, ")")?;
                match values.len() {
                    0 => Err(self.error(at, "nothing stands in these brackets".to_string())),
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
                is_closed.then_some(Value::Text(text)).ok_or_else(|| self.error(at, "this text is not closed".into()))
            }
            Some('.') if self.accept("..") => Ok(Value::All),
            Some(letter) if letter.is_ascii_digit() || letter == '.' => self.number(),
            Some(letter) if letter.is_alphabetic() || letter == '_' => {
                let name = self.word(|letter| letter.is_alphanumeric() || letter == '_');
                if self.accept("(") { self.call(at, &name, Vec::new()) } else { self.named(at, name) }
            }
            Some(letter) => Err(self.error(at, format!("`{letter}` begins no tensor and no number"))),
            None => Err(self.error(at, "a tensor or a number is missing".to_string())),
        }
    }

    fn number(&mut self) -> Result<Value> {
        let at = self.at;
        let mut word = self.word(|letter| letter.is_ascii_digit() || letter == '.');
        if word.len() > 1 && word.ends_with('.') {
            // The dot of a method.
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

    /// A tensor, but for the words that mean something already.
    fn named(&mut self, at: usize, name: String) -> Result<Value> {
        match name.as_str() {
            "true" | "True" => return Ok(Value::Truth(true)),
            "false" | "False" => return Ok(Value::Truth(false)),
            "none" | "None" => return Ok(Value::Nothing),
            _ => {}
        }
        if DType::ALL.iter().any(|dtype| dtype.name() == name) {
            return Ok(Value::Text(name));
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
            None => self.error(opened, "this bracket is not closed".to_string()),
        }
    }

    /// What stands between brackets, of which the first was read.
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

    /// The name before a `=`, if that comes next.
    fn keyword(&mut self) -> Option<String> {
        self.peek();
        let start = self.at;
        let name = self.word(|letter| letter.is_alphanumeric() || letter == '_');
        let is_keyword = !name.is_empty() && self.peek() == Some('=') && !self.text[self.at..].starts_with("==");
        self.at = if is_keyword { self.at + 1 } else { start };
        is_keyword.then_some(name)
    }

    /// An operation of what stood before the dot and of what stands before the bracket that closes.
    fn call(&mut self, at: usize, name: &str, mut by_place: Vec<Value>) -> Result<Value> {
        let (opened, mut by_name) = (self.at - 1, Vec::new());
        while !self.accept(")") {
            self.peek();
            let at = self.at;
            match self.keyword() {
                Some(name) => by_name.push((name, self.whole()?)),
                None if by_name.is_empty() => by_place.push(self.whole()?),
                None => return Err(self.error(at, "what has no name stands before what has one".to_string())),
            }
            if !self.accept(",") && self.peek() != Some(')') {
                return Err(self.not_closed(opened));
            }
        }
        self.applied(at, name, by_place, by_name)
    }

    fn applied(&self, at: usize, name: &str, by_place: Vec<Value>, by_name: Vec<(String, Value)>) -> Result<Value> {
        let Some(operation) = OPERATIONS.iter().find(|operation| operation.name == name) else {
            let mut known: Vec<&str> = OPERATIONS.iter().map(|operation| operation.name).collect();
            known.sort_unstable();
            return Err(self.error(at, format!("no operation is called `{name}`; one of {}", known.join(", "))));
        };
        let made = operation.applied(by_place, by_name).map_err(|what| self.error(at, format!("{name}: {what}")))?;
        self.made(at, made)
    }
}
