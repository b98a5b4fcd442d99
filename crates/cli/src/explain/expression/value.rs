//! Values of an expression, and their conversion to positional and keyword arguments of an operation.

use std::collections::BTreeMap;
use std::mem::discriminant;

use panoply::{Axes, DType, Eig, Eigh, FftNorm, Lu, Operand, Qr, Reduction, Slogdet, Svd, Tensor, ValuesWithIndices};

/// A value in an expression.
#[derive(Clone)]
pub enum Value {
    Tensor(Tensor),
    Number(f64),
    String(String),
    Bool(bool),
    List(Vec<Value>),
    /// `..`, all axes.
    All,
    /// `none`, an omitted argument.
    None,
}

impl Value {
    /// Returns the value as it appears in a message.
    pub fn summary(&self) -> String {
        match self {
            Value::Tensor(_) => "a tensor".to_string(),
            Value::Number(number) => number.to_string(),
            Value::String(text) => format!("\"{text}\""),
            Value::Bool(value) => value.to_string(),
            Value::List(values) => format!("[{}]", values.iter().map(Value::summary).collect::<Vec<_>>().join(", ")),
            Value::All => "`..`".to_string(),
            Value::None => "none".to_string(),
        }
    }

    /// Returns the tensors in the value.
    pub fn tensors(&self) -> Vec<Tensor> {
        match self {
            Value::Tensor(tensor) => vec![tensor.clone()],
            Value::List(values) => values.iter().flat_map(Value::tensors).collect(),
            Value::Number(_) | Value::String(_) | Value::Bool(_) | Value::All | Value::None => Vec::new(),
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

/// Results with several tensors become lists in the order of their fields.
macro_rules! lists {
    ($($result:ident { $($field:ident),+ })*) => {$(
        impl From<$result> for Value {
            fn from($result { $($field),+ }: $result) -> Value {
                vec![$($field),+].into()
            }
        }
    )*};
}

lists! {
    Eig { values, vectors }
    Eigh { values, vectors }
    Lu { perm, l, u }
    Qr { q, r }
    Slogdet { sign, logabsdet }
    Svd { u, s, vh }
    ValuesWithIndices { values, indices }
}

/// Axes of a reduction; `None` for all.
pub struct AxesArg(pub Option<Vec<isize>>);

impl AxesArg {
    /// Returns the axes as an argument of the library.
    pub fn into_axes(self, keepdim: bool) -> Axes {
        Axes { axes: self.0, keepdim }
    }
}

/// A type that an operation accepts as an argument.
pub trait Argument: Sized {
    /// Description of the type in messages.
    const EXPECTED: &'static str;
    /// True if several consecutive positional values can form the argument, as in `permute(x, 1, 0)`.
    const IS_VARIADIC: bool = false;
    /// Converts a value; `None` if it has another type. A number that becomes a tensor takes the element type of `like`, or its error.
    fn of(value: &Value, like: Option<&Tensor>) -> Option<Self>;
}

impl Argument for Tensor {
    const EXPECTED: &'static str = "a tensor";

    fn of(value: &Value, like: Option<&Tensor>) -> Option<Tensor> {
        match value {
            Value::Tensor(tensor) => Some(tensor.clone()),
            Value::Number(number) => {
                Some(like.map_or_else(|| Tensor::scalar(*number as f32), |like| like.scalar_like(*number)))
            }
            Value::String(_) | Value::Bool(_) | Value::List(_) | Value::All | Value::None => None,
        }
    }
}

impl Argument for Operand {
    const EXPECTED: &'static str = "a tensor or a number";

    fn of(value: &Value, like: Option<&Tensor>) -> Option<Operand> {
        match value {
            Value::Number(number) => Some((*number).into()),
            Value::Tensor(_) | Value::String(_) | Value::Bool(_) | Value::List(_) | Value::All | Value::None => {
                Tensor::of(value, like).map(Operand::Tensor)
            }
        }
    }
}

impl Argument for f64 {
    const EXPECTED: &'static str = "a number";

    fn of(value: &Value, _: Option<&Tensor>) -> Option<f64> {
        match value {
            Value::Number(number) => Some(*number),
            Value::Tensor(_) | Value::String(_) | Value::Bool(_) | Value::List(_) | Value::All | Value::None => None,
        }
    }
}

impl Argument for isize {
    const EXPECTED: &'static str = "an integer";

    fn of(value: &Value, like: Option<&Tensor>) -> Option<isize> {
        f64::of(value, like).filter(|number| number.fract() == 0.0 && number.abs() < 1e15).map(|number| number as isize)
    }
}

impl Argument for usize {
    const EXPECTED: &'static str = "a non-negative integer";

    fn of(value: &Value, like: Option<&Tensor>) -> Option<usize> {
        isize::of(value, like).and_then(|number| number.try_into().ok())
    }
}

impl Argument for bool {
    const EXPECTED: &'static str = "true or false";

    fn of(value: &Value, _: Option<&Tensor>) -> Option<bool> {
        match value {
            Value::Bool(value) => Some(*value),
            Value::Tensor(_) | Value::String(_) | Value::Number(_) | Value::List(_) | Value::All | Value::None => None,
        }
    }
}

impl Argument for String {
    const EXPECTED: &'static str = "a string in quotes";

    fn of(value: &Value, _: Option<&Tensor>) -> Option<String> {
        match value {
            Value::String(text) => Some(text.clone()),
            Value::Tensor(_) | Value::Bool(_) | Value::Number(_) | Value::List(_) | Value::All | Value::None => None,
        }
    }
}

impl Argument for DType {
    const EXPECTED: &'static str = "an element type, such as f16";

    fn of(value: &Value, like: Option<&Tensor>) -> Option<DType> {
        let name = String::of(value, like)?;
        DType::ALL.into_iter().find(|dtype| dtype.name().eq_ignore_ascii_case(&name))
    }
}

impl Argument for FftNorm {
    const EXPECTED: &'static str = "\"backward\", \"forward\" or \"ortho\"";

    fn of(value: &Value, like: Option<&Tensor>) -> Option<FftNorm> {
        match String::of(value, like)?.as_str() {
            "backward" => Some(FftNorm::Backward),
            "forward" => Some(FftNorm::Forward),
            "ortho" => Some(FftNorm::Ortho),
            _ => None,
        }
    }
}

impl Argument for Reduction {
    const EXPECTED: &'static str = "\"none\", \"mean\" or \"sum\"";

    fn of(value: &Value, like: Option<&Tensor>) -> Option<Reduction> {
        match String::of(value, like)?.as_str() {
            "none" => Some(Reduction::None),
            "mean" => Some(Reduction::Mean),
            "sum" => Some(Reduction::Sum),
            _ => None,
        }
    }
}

/// Algorithm of `interpolate2d`, by the names of PyTorch.
pub enum ResizeMode {
    Nearest,
    Bilinear,
}

impl Argument for ResizeMode {
    const EXPECTED: &'static str = "\"nearest\" or \"bilinear\"";

    fn of(value: &Value, like: Option<&Tensor>) -> Option<ResizeMode> {
        match String::of(value, like)?.as_str() {
            "nearest" => Some(ResizeMode::Nearest),
            "bilinear" => Some(ResizeMode::Bilinear),
            _ => None,
        }
    }
}

impl<T: Argument> Argument for Vec<T> {
    const EXPECTED: &'static str = "a list, such as [2, 3]";
    const IS_VARIADIC: bool = true;

    fn of(value: &Value, like: Option<&Tensor>) -> Option<Vec<T>> {
        match value {
            Value::List(values) => values.iter().map(|value| T::of(value, like)).collect(),
            Value::Tensor(_) | Value::String(_) | Value::Bool(_) | Value::Number(_) | Value::All | Value::None => {
                Some(vec![T::of(value, like)?])
            }
        }
    }
}

/// A single number is repeated for each axis.
impl<T: Argument + Copy, const N: usize> Argument for [T; N] {
    const EXPECTED: &'static str = "a number or one per axis, such as [2, 3]";

    fn of(value: &Value, like: Option<&Tensor>) -> Option<[T; N]> {
        match T::of(value, like) {
            Some(number) => Some([number; N]),
            None => Vec::<T>::of(value, like)?.try_into().ok(),
        }
    }
}

impl<T: Argument> Argument for Option<T> {
    const EXPECTED: &'static str = T::EXPECTED;

    fn of(value: &Value, like: Option<&Tensor>) -> Option<Option<T>> {
        match value {
            Value::None => Some(None),
            Value::Tensor(_) | Value::String(_) | Value::Bool(_) | Value::Number(_) | Value::List(_) | Value::All => {
                T::of(value, like).map(Some)
            }
        }
    }
}

impl Argument for AxesArg {
    const EXPECTED: &'static str = "an axis, a list of axes, or `..` for all";

    fn of(value: &Value, like: Option<&Tensor>) -> Option<AxesArg> {
        match value {
            Value::All => Some(AxesArg(None)),
            Value::Tensor(_) | Value::String(_) | Value::Bool(_) | Value::Number(_) | Value::List(_) | Value::None => {
                Vec::of(value, like).map(|axes| AxesArg(Some(axes)))
            }
        }
    }
}

/// A parameter of an operation.
pub struct Parameter {
    pub name: &'static str,
    /// The default value as written in the table of operations.
    pub default: Option<&'static str>,
    /// See [`Argument::IS_VARIADIC`].
    pub is_variadic: bool,
}

/// An operation that can be called in an expression.
pub struct Operation {
    pub name: &'static str,
    pub parameters: &'static [Parameter],
    pub apply: fn(&CallArgs) -> Result<Value, String>,
}

impl Operation {
    /// Returns the parameters with their defaults, in parentheses.
    pub fn signature(&self) -> String {
        let with_default = |parameter: &Parameter| match parameter.default {
            Some("ALL") => format!("{} = ..", parameter.name),
            Some(default) => format!("{} = {}", parameter.name, default.to_lowercase().replace("- ", "-")),
            None => parameter.name.to_string(),
        };
        format!("({})", self.parameters.iter().map(with_default).collect::<Vec<_>>().join(", "))
    }

    /// Applies the operation to positional and keyword arguments.
    ///
    /// # Errors
    /// If arguments are missing, unknown, repeated or of another type.
    pub fn call(&self, positional: Vec<Value>, keywords: Vec<(String, Value)>) -> Result<Value, String> {
        let mut args = CallArgs { values: BTreeMap::new(), like: first_tensor(&positional, &keywords) };
        let count = positional.len();
        let mut positional = positional.into_iter().peekable();
        for (index, parameter) in self.parameters.iter().enumerate() {
            let Some(value) = positional.next() else { break };
            // A variadic parameter consumes the following values of the same type, except those that later parameters without a
            // default need.
            let is_needed =
                |later: &&Parameter| later.default.is_none() && keywords.iter().all(|(name, _)| name != later.name);
            let needed = self.parameters[index + 1..].iter().filter(is_needed).count();
            let is_variadic = parameter.is_variadic && !matches!(value, Value::List(_) | Value::All);
            let variant = discriminant(&value);
            let mut values = vec![value];
            while positional.len() > needed {
                let Some(next) = positional.next_if(|next| is_variadic && discriminant(next) == variant) else { break };
                values.push(next);
            }
            let value = if values.len() == 1 { values.remove(0) } else { Value::List(values) };
            args.values.insert(parameter.name, value);
        }
        if positional.next().is_some() {
            return Err(format!("it takes {}, but {count} values were given", self.signature()));
        }
        for (name, value) in keywords {
            let Some(parameter) = self.parameters.iter().find(|parameter| parameter.name == name) else {
                return Err(format!("unknown argument {name}; it takes {}", self.signature()));
            };
            if args.values.insert(parameter.name, value).is_some() {
                return Err(format!("{name} is given twice"));
            }
        }
        let missing = |parameter: &&Parameter| parameter.default.is_none() && !args.values.contains_key(parameter.name);
        match self.parameters.iter().find(missing) {
            Some(parameter) => Err(format!("{} is missing; it takes {}", parameter.name, self.signature())),
            None => (self.apply)(&args),
        }
    }
}

/// Returns the first tensor that is not of bools, whose element type numbers take.
pub fn first_tensor(positional: &[Value], keywords: &[(String, Value)]) -> Option<Tensor> {
    let mut values = positional.iter().chain(keywords.iter().map(|(_, value)| value)).flat_map(Value::tensors);
    values.find(|tensor| tensor.dtype() != DType::Bool)
}

/// The arguments of a call.
pub struct CallArgs {
    values: BTreeMap<&'static str, Value>,
    /// The tensor whose element type numbers take.
    like: Option<Tensor>,
}

impl CallArgs {
    /// Returns the argument of this name, or its default.
    ///
    /// # Errors
    /// If it has another type, or is missing and has no default.
    pub fn get<T: Argument>(&self, name: &str, default: Option<T>) -> Result<T, String> {
        match (self.values.get(name), default) {
            (Some(value), _) => T::of(value, self.like.as_ref())
                .ok_or_else(|| format!("{name} must be {}, not {}", T::EXPECTED, value.summary())),
            (None, Some(default)) => Ok(default),
            (None, None) => Err(format!("{name} is missing")),
        }
    }
}
