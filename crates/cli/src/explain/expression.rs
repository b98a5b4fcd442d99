//! Expressions as text: `softmax(x @ w + b)`, as in mathematics, as in Python or as in Rust.
//!
//! A name is a tensor of random numbers; what a word before `(` means is a row of [`OPERATIONS`]. A method is an operation whose first
//! argument stands before the dot, and `&` means nothing, so that a line of a program can be given as it is. Every mistake names
//! its column, those that the tensors find as well.

use std::collections::BTreeMap;

use panoply::{Attention, Error, Order, Result, Rng, Tensor};

use super::given;

/// What a tensor is without a shape of its own.
const SHAPE: [usize; 2] = [64, 64];

/// How deep brackets and signs may be within each other.
const DEPTH: usize = 64;

/// What an operation takes.
enum Operation {
    One(fn(&Tensor) -> Tensor),
    Two(fn(&Tensor, &Tensor) -> Tensor),
    Three(fn(&Tensor, &Tensor, &Tensor) -> Tensor),
    /// Along an axis, the last if none is said.
    Along(fn(&Tensor, isize) -> Tensor),
    /// Over an axis, and over all if none is said.
    Over(fn(&Tensor, isize) -> Tensor, fn(&Tensor) -> Tensor),
    /// With a number, this one if none is said.
    With(fn(&Tensor, f64) -> Tensor, f64),
}

use Operation::{Along, One, Over, Three, Two, With};

/// Every word that may stand before `(`.
#[rustfmt::skip]
const OPERATIONS: &[(&str, Operation)] = &[
    ("abs", One(Tensor::abs)), ("acos", One(Tensor::acos)), ("asin", One(Tensor::asin)), ("atan", One(Tensor::atan)),
    ("ceil", One(Tensor::ceil)), ("cos", One(Tensor::cos)), ("cosh", One(Tensor::cosh)), ("erf", One(Tensor::erf)),
    ("exp", One(Tensor::exp)), ("exp2", One(Tensor::exp2)), ("expm1", One(Tensor::expm1)), ("floor", One(Tensor::floor)),
    ("ln", One(Tensor::ln)), ("log", One(Tensor::ln)), ("log10", One(Tensor::log10)), ("log1p", One(Tensor::log1p)),
    ("log2", One(Tensor::log2)), ("recip", One(Tensor::recip)), ("round", One(Tensor::round)), ("rsqrt", One(Tensor::rsqrt)),
    ("sign", One(Tensor::sign)), ("sin", One(Tensor::sin)), ("sinh", One(Tensor::sinh)), ("sqrt", One(Tensor::sqrt)),
    ("square", One(Tensor::square)), ("tan", One(Tensor::tan)), ("tanh", One(Tensor::tanh)), ("trunc", One(Tensor::trunc)),
    ("elu", One(Tensor::elu)), ("gelu", One(Tensor::gelu)), ("gelu_tanh", One(Tensor::gelu_tanh)),
    ("hard_sigmoid", One(Tensor::hard_sigmoid)), ("hard_swish", One(Tensor::hard_swish)), ("log_sigmoid", One(Tensor::log_sigmoid)),
    ("mish", One(Tensor::mish)), ("relu", One(Tensor::relu)), ("relu6", One(Tensor::relu6)), ("selu", One(Tensor::selu)),
    ("sigmoid", One(Tensor::sigmoid)), ("silu", One(Tensor::silu)), ("softplus", One(Tensor::softplus)),
    ("softsign", One(Tensor::softsign)), ("cholesky", One(Tensor::cholesky)), ("inverse", One(Tensor::inverse)), ("t", One(Tensor::t)),
    ("atan2", Two(Tensor::atan2)), ("dot", Two(Tensor::dot)), ("gradient", Two(gradient)), ("hypot", Two(Tensor::hypot)),
    ("l1", Two(Tensor::l1)), ("matmul", Two(Tensor::matmul)), ("maximum", Two(Tensor::maximum)), ("minimum", Two(Tensor::minimum)),
    ("mse", Two(Tensor::mse)), ("outer", Two(Tensor::outer)), ("pow", Two(Tensor::pow)), ("solve", Two(Tensor::solve)),
    ("attention", Three(|q, k, v| q.attention(k, v, &Attention::default()))),
    ("argmax", Along(Tensor::argmax)), ("argmin", Along(Tensor::argmin)), ("cummax", Along(Tensor::cummax)),
    ("cumprod", Along(Tensor::cumprod)), ("cumsum", Along(Tensor::cumsum)), ("diff", Along(Tensor::diff)), ("flip", Along(Tensor::flip)),
    ("glu", Along(Tensor::glu)), ("log_softmax", Along(Tensor::log_softmax)), ("logsumexp", Along(Tensor::logsumexp)),
    ("median", Along(Tensor::median)), ("softmax", Along(Tensor::softmax)), ("softmin", Along(Tensor::softmin)),
    ("sort", Along(|x, axis| x.sort(axis, Order::Ascending))), ("squeeze", Along(Tensor::squeeze)), ("unsqueeze", Along(Tensor::unsqueeze)),
    ("max", Over(|x, axis| x.max(axis), |x| x.max(..))), ("mean", Over(|x, axis| x.mean(axis), |x| x.mean(..))),
    ("min", Over(|x, axis| x.min(axis), |x| x.min(..))), ("norm", Over(|x, axis| x.norm(axis), |x| x.norm(..))),
    ("prod", Over(|x, axis| x.prod(axis), |x| x.prod(..))), ("sum", Over(|x, axis| x.sum(axis), |x| x.sum(..))),
    ("layer_norm", With(Tensor::layer_norm, 1e-5)), ("leaky_relu", With(Tensor::leaky_relu, 0.01)), ("rms_norm", With(Tensor::rms_norm, 1e-5)),
];

/// What flows from a single number to a tensor that it was computed from.
fn gradient(loss: &Tensor, by: &Tensor) -> Tensor {
    loss.gradients(&[by]).map_or_else(Tensor::from_mistake, |mut gradients| gradients.remove(0))
}

/// What is said of tensors without the lines of this program that made them.
fn without_places(text: &str) -> String {
    let words: Vec<&str> = text.split(' ').filter(|word| !word.contains(".rs:") && *word != "pending,").collect();
    words.join(" ").trim_end_matches(',').to_string()
}

/// What a part of an expression is.
enum Value {
    Tensor(Tensor),
    Number(f64),
    /// `..`, all axes.
    All,
}

/// An expression that was read: what it is and the tensors it names.
pub struct Expression {
    pub value: Tensor,
    pub names: BTreeMap<String, Tensor>,
}

/// Whether this is more than a name.
pub fn is_expression(text: &str) -> bool {
    text.contains(|letter: char| !(letter.is_alphanumeric() || letter == '_'))
}

/// Reads an expression over tensors of these shapes (`x=64x128`), and of one shape where none is said.
pub fn read(text: &str, shapes: &[String]) -> Result<Expression> {
    let mut parser =
        Parser { text, at: 0, depth: 0, shapes: of_names(shapes)?, names: BTreeMap::new(), rng: Rng::seed(0) };
    let value = parser.sum()?;
    if let Some(letter) = parser.peek() {
        return Err(parser.wrong(parser.at, format!("`{letter}` does not go on with what stands before it")));
    }
    let Value::Tensor(value) = value else {
        return Err(parser.wrong(0, "there is no tensor in this".to_string()));
    };
    let names = parser.names;
    match parser.shapes.keys().find(|name| !names.contains_key(*name)) {
        Some(name) => Err(Error::mistake(format!("explain: --shape is of {name}, which `{text}` does not name"))),
        None => Ok(Expression { value, names }),
    }
}

fn of_names(shapes: &[String]) -> Result<BTreeMap<String, Vec<usize>>> {
    let read = |shape: &String| {
        let (name, lengths) = shape.split_once('=')?;
        let lengths = lengths.split('x').filter(|length| !length.is_empty()).map(|length| length.trim().parse().ok());
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
    fn wrong(&self, at: usize, what: String) -> Error {
        let column = self.text[..at].chars().count() + 1;
        Error::mistake(format!("explain: column {column} of `{}`: {what}", self.text))
    }

    /// A tensor that is none is said with the place where it would have been made.
    fn made(&self, at: usize, tensor: Tensor) -> Result<Value> {
        let wrong = |error: Error| {
            let notes = error.notes().iter().map(|note| without_places(note));
            notes.fold(self.wrong(at, without_places(error.message())), Error::note)
        };
        tensor.check().map_err(wrong)?;
        Ok(Value::Tensor(tensor))
    }

    fn peek(&mut self) -> Option<char> {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
        self.text[self.at..].chars().next()
    }

    /// Whether this comes next; if so it is read.
    fn takes(&mut self, sign: &str) -> bool {
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

    fn sum(&mut self) -> Result<Value> {
        self.chain(&["+", "-"], Parser::product)
    }

    fn product(&mut self) -> Result<Value> {
        self.chain(&["*", "/", "@"], Parser::signed)
    }

    /// Parts with signs between them, from the left.
    fn chain(&mut self, signs: &[&'static str], part: fn(&mut Self) -> Result<Value>) -> Result<Value> {
        let mut left = part(self)?;
        loop {
            self.peek();
            let at = self.at;
            let Some(sign) = signs.iter().find(|sign| self.takes(sign)) else { return Ok(left) };
            let right = part(self)?;
            left = self.joined(at, sign, left, right)?;
        }
    }

    fn joined(&self, at: usize, sign: &str, left: Value, right: Value) -> Result<Value> {
        let tensor = match (sign, &left, &right) {
            ("+", Value::Tensor(x), Value::Tensor(y)) => x + y,
            ("-", Value::Tensor(x), Value::Tensor(y)) => x - y,
            ("*", Value::Tensor(x), Value::Tensor(y)) => x * y,
            ("/", Value::Tensor(x), Value::Tensor(y)) => x / y,
            ("@", Value::Tensor(x), Value::Tensor(y)) => x.matmul(y),
            ("+", Value::Tensor(x), Value::Number(n)) | ("+", Value::Number(n), Value::Tensor(x)) => x + *n,
            ("-", Value::Tensor(x), Value::Number(n)) => x - *n,
            ("-", Value::Number(n), Value::Tensor(x)) => x.rsub(*n),
            ("*", Value::Tensor(x), Value::Number(n)) | ("*", Value::Number(n), Value::Tensor(x)) => x * *n,
            ("/", Value::Tensor(x), Value::Number(n)) => x / *n,
            ("/", Value::Number(n), Value::Tensor(x)) => x.recip() * *n,
            ("+", Value::Number(x), Value::Number(y)) => return Ok(Value::Number(x + y)),
            ("-", Value::Number(x), Value::Number(y)) => return Ok(Value::Number(x - y)),
            ("*", Value::Number(x), Value::Number(y)) => return Ok(Value::Number(x * y)),
            ("/", Value::Number(x), Value::Number(y)) => return Ok(Value::Number(x / y)),
            _ => return Err(self.wrong(at, format!("`{sign}` is not between tensors"))),
        };
        self.made(at, tensor)
    }

    /// What may have a sign before it, and methods behind it.
    fn signed(&mut self) -> Result<Value> {
        self.peek();
        let at = self.at;
        self.depth += 1;
        if self.depth > DEPTH {
            return Err(self.wrong(at, format!("more than {DEPTH} brackets and signs are within each other")));
        }
        let value = if self.takes("-") {
            match self.signed()? {
                Value::Tensor(x) => self.made(at, -x)?,
                Value::Number(number) => Value::Number(-number),
                Value::All => return Err(self.wrong(at, "`..` has no sign".to_string())),
            }
        } else if self.takes("&") {
            self.signed()?
        } else {
            self.with_methods()?
        };
        self.depth -= 1;
        Ok(value)
    }

    fn with_methods(&mut self) -> Result<Value> {
        let mut value = self.part()?;
        while self.peek() == Some('.') && !self.text[self.at..].starts_with("..") {
            self.at += 1;
            self.peek();
            let at = self.at;
            let name = self.word(|letter| letter.is_alphanumeric() || letter == '_');
            if !self.takes("(") {
                return Err(
                    self.wrong(at, "after a dot stands an operation with brackets, such as `.relu()`".to_string())
                );
            }
            let arguments = self.arguments(vec![value])?;
            value = self.applied(at, &name, arguments)?;
        }
        Ok(value)
    }

    /// A number, a name, an operation or something in brackets.
    fn part(&mut self) -> Result<Value> {
        let letter = self.peek();
        let at = self.at;
        match letter {
            Some('(') => {
                self.at += 1;
                let value = self.sum()?;
                if self.takes(")") { Ok(value) } else { Err(self.wrong(at, "this bracket is not closed".to_string())) }
            }
            Some('.') if self.takes("..") => Ok(Value::All),
            Some(letter) if letter.is_ascii_digit() || letter == '.' => self.number(),
            Some(letter) if letter.is_alphabetic() || letter == '_' => {
                let name = self.word(|letter| letter.is_alphanumeric() || letter == '_');
                if self.takes("(") {
                    let arguments = self.arguments(Vec::new())?;
                    return self.applied(at, &name, arguments);
                }
                self.named(at, name)
            }
            Some(letter) => Err(self.wrong(at, format!("`{letter}` begins no tensor and no number"))),
            None => Err(self.wrong(at, "a tensor or a number is missing".to_string())),
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
        word.parse().map(Value::Number).map_err(|_| self.wrong(at, format!("`{word}` is no number")))
    }

    fn named(&mut self, at: usize, name: String) -> Result<Value> {
        if let Some(tensor) = self.names.get(&name) {
            return Ok(Value::Tensor(tensor.clone()));
        }
        let shape = self.shapes.get(&name).map_or(&SHAPE[..], Vec::as_slice);
        let tensor = given(&mut self.rng, shape);
        self.names.insert(name, tensor.clone());
        self.made(at, tensor)
    }

    /// What stands before the bracket that closes, after what stood before the dot.
    fn arguments(&mut self, mut arguments: Vec<Value>) -> Result<Vec<Value>> {
        let opened = self.at - 1;
        if self.takes(")") {
            return Ok(arguments);
        }
        loop {
            arguments.push(self.sum()?);
            if self.takes(")") {
                return Ok(arguments);
            }
            if !self.takes(",") {
                return Err(self.wrong(opened, "this bracket is not closed".to_string()));
            }
        }
    }

    fn applied(&self, at: usize, name: &str, arguments: Vec<Value>) -> Result<Value> {
        let Some((_, operation)) = OPERATIONS.iter().find(|(known, _)| *known == name) else {
            let mut known: Vec<&str> = OPERATIONS.iter().map(|(known, _)| *known).collect();
            known.sort_unstable();
            return Err(self.wrong(at, format!("no operation is called `{name}`; one of {}", known.join(", "))));
        };
        let axis = |number: f64| (number.fract() == 0.0).then_some(number as isize);
        let (tensor, takes) = match (operation, arguments.as_slice()) {
            (One(f), [Value::Tensor(x)]) => (Some(f(x)), ""),
            (Two(f), [Value::Tensor(x), Value::Tensor(y)]) => (Some(f(x, y)), ""),
            (Three(f), [Value::Tensor(x), Value::Tensor(y), Value::Tensor(z)]) => (Some(f(x, y, z)), ""),
            (Along(f), [Value::Tensor(x)]) => (Some(f(x, -1)), ""),
            (Along(f), [Value::Tensor(x), Value::Number(n)]) => (axis(*n).map(|axis| f(x, axis)), "a whole axis"),
            (Over(_, f), [Value::Tensor(x)] | [Value::Tensor(x), Value::All]) => (Some(f(x)), ""),
            (Over(f, _), [Value::Tensor(x), Value::Number(n)]) => (axis(*n).map(|axis| f(x, axis)), "a whole axis"),
            (With(f, n), [Value::Tensor(x)]) => (Some(f(x, *n)), ""),
            (With(f, _), [Value::Tensor(x), Value::Number(n)]) => (Some(f(x, *n)), ""),
            (One(_), _) => (None, "one tensor"),
            (Two(_), _) => (None, "two tensors"),
            (Three(_), _) => (None, "three tensors"),
            (Along(_), _) => (None, "a tensor and perhaps an axis"),
            (Over(..), _) => (None, "a tensor and perhaps an axis, `..` for all"),
            (With(..), _) => (None, "a tensor and perhaps a number"),
        };
        match tensor {
            Some(tensor) => self.made(at, tensor),
            None => Err(self.wrong(at, format!("{name} takes {takes}"))),
        }
    }
}
