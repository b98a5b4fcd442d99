//! What parts of an expression are, and how an operation is given them: by place, by name or not at all.

use std::collections::BTreeMap;
use std::mem::discriminant;

use panoply::{DType, FftNorm, Tensor};

/// What a part of an expression is.
#[derive(Clone)]
pub enum Value {
    Tensor(Tensor),
    Number(f64),
    Text(String),
    Truth(bool),
    List(Vec<Value>),
    /// `..`, all axes.
    All,
    /// `none`, what is left out.
    Nothing,
}

impl Value {
    /// In a sentence.
    pub fn in_words(&self) -> String {
        match self {
            Value::Tensor(_) => "a tensor".to_string(),
            Value::Number(number) => number.to_string(),
            Value::Text(text) => format!("\"{text}\""),
            Value::Truth(truth) => truth.to_string(),
            Value::List(values) => format!("[{}]", values.iter().map(Value::in_words).collect::<Vec<_>>().join(", ")),
            Value::All => "`..`".to_string(),
            Value::Nothing => "none".to_string(),
        }
    }

    /// The tensors it holds.
    pub fn tensors(&self) -> Vec<Tensor> {
        match self {
            Value::Tensor(tensor) => vec![tensor.clone()],
            Value::List(values) => values.iter().flat_map(Value::tensors).collect(),
            Value::Number(_) | Value::Text(_) | Value::Truth(_) | Value::All | Value::Nothing => Vec::new(),
        }
    }
}

impl From<Tensor> for Value {
    fn from(tensor: Tensor) -> Value {
        Value::Tensor(tensor)
    }
}

impl From<Vec<Tensor>> for Value {
    fn from(tensors: Vec<Tensor>) -> Value {
        Value::List(tensors.into_iter().map(Value::Tensor).collect())
    }
}

impl From<(Tensor, Tensor)> for Value {
    fn from((one, two): (Tensor, Tensor)) -> Value {
        vec![one, two].into()
    }
}

impl From<(Tensor, Tensor, Tensor)> for Value {
    fn from((one, two, three): (Tensor, Tensor, Tensor)) -> Value {
        vec![one, two, three].into()
    }
}

/// Axes to reduce over; none is all.
pub struct AxesArg(pub Option<Vec<isize>>);

/// What an operation may ask for.
pub trait Argument: Sized {
    /// In a sentence.
    const WHAT: &'static str;
    /// Whether several values that stand one after the other may be it.
    const MANY: bool = false;
    /// What this value is; a number beside a tensor is one of its element type, or that tensor's mistake.
    fn of(value: &Value, beside: Option<&Tensor>) -> Option<Self>;
}

impl Argument for Tensor {
    const WHAT: &'static str = "a tensor";

    fn of(value: &Value, beside: Option<&Tensor>) -> Option<Tensor> {
        match value {
            Value::Tensor(tensor) => Some(tensor.clone()),
            Value::Number(number) => {
                Some(beside.map_or_else(|| Tensor::scalar(*number as f32), |beside| beside.scalar_like(*number)))
            }
            Value::Text(_) | Value::Truth(_) | Value::List(_) | Value::All | Value::Nothing => None,
        }
    }
}

impl Argument for f64 {
    const WHAT: &'static str = "a number";

    fn of(value: &Value, _: Option<&Tensor>) -> Option<f64> {
        match value {
            Value::Number(number) => Some(*number),
            Value::Tensor(_) | Value::Text(_) | Value::Truth(_) | Value::List(_) | Value::All | Value::Nothing => None,
        }
    }
}

impl Argument for isize {
    const WHAT: &'static str = "a whole number";

    fn of(value: &Value, beside: Option<&Tensor>) -> Option<isize> {
        f64::of(value, beside)
            .filter(|number| number.fract() == 0.0 && number.abs() < 1e15)
            .map(|number| number as isize)
    }
}

impl Argument for usize {
    const WHAT: &'static str = "a whole number from 0 on";

    fn of(value: &Value, beside: Option<&Tensor>) -> Option<usize> {
        isize::of(value, beside).and_then(|number| number.try_into().ok())
    }
}

impl Argument for bool {
    const WHAT: &'static str = "true or false";

    fn of(value: &Value, _: Option<&Tensor>) -> Option<bool> {
        match value {
            Value::Truth(truth) => Some(*truth),
            Value::Tensor(_) | Value::Text(_) | Value::Number(_) | Value::List(_) | Value::All | Value::Nothing => None,
        }
    }
}

impl Argument for String {
    const WHAT: &'static str = "text in quotes";

    fn of(value: &Value, _: Option<&Tensor>) -> Option<String> {
        match value {
            Value::Text(text) => Some(text.clone()),
            Value::Tensor(_) | Value::Truth(_) | Value::Number(_) | Value::List(_) | Value::All | Value::Nothing => {
                None
            }
        }
    }
}

impl Argument for DType {
    const WHAT: &'static str = "an element type, such as f16";

    fn of(value: &Value, beside: Option<&Tensor>) -> Option<DType> {
        let name = String::of(value, beside)?;
        DType::ALL.into_iter().find(|dtype| dtype.name().eq_ignore_ascii_case(&name))
    }
}

impl Argument for FftNorm {
    const WHAT: &'static str = "\"backward\", \"forward\" or \"ortho\"";

    fn of(value: &Value, beside: Option<&Tensor>) -> Option<FftNorm> {
        match String::of(value, beside)?.as_str() {
            "backward" => Some(FftNorm::Backward),
            "forward" => Some(FftNorm::Forward),
            "ortho" => Some(FftNorm::Ortho),
            _ => None,
        }
    }
}

impl<T: Argument> Argument for Vec<T> {
    const WHAT: &'static str = "a list, such as [2, 3]";
    const MANY: bool = true;

    fn of(value: &Value, beside: Option<&Tensor>) -> Option<Vec<T>> {
        match value {
            Value::List(values) => values.iter().map(|value| T::of(value, beside)).collect(),
            Value::Tensor(_) | Value::Text(_) | Value::Truth(_) | Value::Number(_) | Value::All | Value::Nothing => {
                Some(vec![T::of(value, beside)?])
            }
        }
    }
}

/// One number is that along each of the axes.
impl<T: Argument + Copy, const N: usize> Argument for [T; N] {
    const WHAT: &'static str = "a number or one for each axis, such as [2, 3]";

    fn of(value: &Value, beside: Option<&Tensor>) -> Option<[T; N]> {
        match T::of(value, beside) {
            Some(number) => Some([number; N]),
            None => Vec::<T>::of(value, beside)?.try_into().ok(),
        }
    }
}

impl<T: Argument> Argument for Option<T> {
    const WHAT: &'static str = T::WHAT;

    fn of(value: &Value, beside: Option<&Tensor>) -> Option<Option<T>> {
        match value {
            Value::Nothing => Some(None),
            Value::Tensor(_) | Value::Text(_) | Value::Truth(_) | Value::Number(_) | Value::List(_) | Value::All => {
                T::of(value, beside).map(Some)
            }
        }
    }
}

impl Argument for AxesArg {
    const WHAT: &'static str = "a whole axis, several or `..` for all";

    fn of(value: &Value, beside: Option<&Tensor>) -> Option<AxesArg> {
        match value {
            Value::All => Some(AxesArg(None)),
            Value::Tensor(_)
            | Value::Text(_)
            | Value::Truth(_)
            | Value::Number(_)
            | Value::List(_)
            | Value::Nothing => Vec::of(value, beside).map(|axes| AxesArg(Some(axes))),
        }
    }
}

/// What an operation has a name for.
pub struct Parameter {
    pub name: &'static str,
    /// What it is if nothing is said, as its row has it.
    pub default: Option<&'static str>,
    pub many: bool,
}

/// An operation: a word that may stand before `(`.
pub struct Operation {
    pub name: &'static str,
    pub parameters: &'static [Parameter],
    pub apply: fn(&CallArgs) -> Result<Value, String>,
}

impl Operation {
    /// What it takes, in brackets.
    pub fn signature(&self) -> String {
        let with_default = |parameter: &Parameter| match parameter.default {
            Some("ALL") => format!("{} = ..", parameter.name),
            Some(default) => format!("{} = {}", parameter.name, default.to_lowercase().replace("- ", "-")),
            None => parameter.name.to_string(),
        };
        format!("({})", self.parameters.iter().map(with_default).collect::<Vec<_>>().join(", "))
    }

    /// What it makes of values by place and by name.
    pub fn applied(&self, by_place: Vec<Value>, by_name: Vec<(String, Value)>) -> Result<Value, String> {
        let mut given = CallArgs { values: BTreeMap::new(), beside: beside(&by_place, &by_name) };
        let count = by_place.len();
        let mut places = by_place.into_iter().peekable();
        for (index, parameter) in self.parameters.iter().enumerate() {
            let Some(value) = places.next() else { break };
            // Several where one may be: those of the same sort that follow and that nobody behind needs.
            let is_needed =
                |later: &&Parameter| later.default.is_none() && by_name.iter().all(|(name, _)| name != later.name);
            let needed = self.parameters[index + 1..].iter().filter(is_needed).count();
            let is_open = parameter.many && !matches!(value, Value::List(_) | Value::All);
            let sort = discriminant(&value);
            let mut run = vec![value];
            while places.len() > needed {
                let Some(next) = places.next_if(|next| is_open && discriminant(next) == sort) else { break };
                run.push(next);
            }
            let value = if run.len() == 1 { run.remove(0) } else { Value::List(run) };
            given.values.insert(parameter.name, value);
        }
        if places.next().is_some() {
            return Err(format!("it takes {}, and {count} were given", self.signature()));
        }
        for (name, value) in by_name {
            let Some(parameter) = self.parameters.iter().find(|parameter| parameter.name == name) else {
                return Err(format!("nothing it takes is called {name}; it takes {}", self.signature()));
            };
            if given.values.insert(parameter.name, value).is_some() {
                return Err(format!("{name} is given twice"));
            }
        }
        let missing =
            |parameter: &&Parameter| parameter.default.is_none() && !given.values.contains_key(parameter.name);
        match self.parameters.iter().find(missing) {
            Some(parameter) => Err(format!("{} is missing; it takes {}", parameter.name, self.signature())),
            None => (self.apply)(&given),
        }
    }
}

/// Whose element type the numbers beside these have: the first tensor that is no condition.
pub fn beside(by_place: &[Value], by_name: &[(String, Value)]) -> Option<Tensor> {
    let mut values = by_place.iter().chain(by_name.iter().map(|(_, value)| value)).flat_map(Value::tensors);
    values.find(|tensor| tensor.dtype() != DType::Bool)
}

/// What an operation was given.
pub struct CallArgs {
    values: BTreeMap<&'static str, Value>,
    beside: Option<Tensor>,
}

impl CallArgs {
    /// The value of this name, or what stands for it.
    pub fn take<T: Argument>(&self, name: &str, default: Option<T>) -> Result<T, String> {
        match (self.values.get(name), default) {
            (Some(value), _) => T::of(value, self.beside.as_ref())
                .ok_or_else(|| format!("{name} is {}, not {}", T::WHAT, value.in_words())),
            (None, Some(default)) => Ok(default),
            (None, None) => Err(format!("{name} is missing")),
        }
    }
}
