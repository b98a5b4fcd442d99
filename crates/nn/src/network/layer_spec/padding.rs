//! Zero padding of a convolution, in files a list of numbers or `"same"`.

use std::fmt;

use serde::de::value::SeqAccessDeserializer;
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Zero padding of a convolution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Padding {
    /// Number of zeros on both sides of each axis; an empty list is 0 for all axes.
    Explicit(Vec<usize>),
    /// The zeros that keep the lengths at stride 1: dilation · (kernel size − 1) / 2 on both sides. The product must be even, since
    /// both sides are padded alike; PyTorch puts an odd zero at the end.
    Same,
}

impl Padding {
    /// Returns true for 0 on all axes without a number.
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Padding::Explicit(zeros) if zeros.is_empty())
    }

    /// Returns the number of zeros on both sides of each axis of a kernel. Missing dilations are 1, missing zeros 0.
    pub(crate) fn zeros(&self, kernel_size: &[usize], dilation: &[usize]) -> Vec<usize> {
        match self {
            Padding::Explicit(zeros) if zeros.is_empty() => vec![0; kernel_size.len()],
            Padding::Explicit(zeros) => zeros.clone(),
            Padding::Same => added(kernel_size, dilation).map(|zeros| zeros / 2).collect(),
        }
    }

    /// Fails unless a kernel with this stride and dilation can have this padding.
    pub(crate) fn check(&self, kernel_size: &[usize], stride: &[usize], dilation: &[usize]) -> Result<(), String> {
        if *self != Padding::Same {
            return Ok(());
        }
        if stride.iter().any(|stride| *stride != 1) {
            return Err(format!("padding \"same\" needs stride 1, not {stride:?}; give a number for each axis"));
        }
        match added(kernel_size, dilation).any(|zeros| zeros % 2 == 1) {
            true => Err(format!(
                "padding \"same\" of kernel_size {kernel_size:?} is not equal on both sides; use odd sizes, or give a number for each axis"
            )),
            false => Ok(()),
        }
    }
}

/// Returns the number of zeros that keep the length of each axis, those of both sides together.
fn added(kernel_size: &[usize], dilation: &[usize]) -> impl Iterator<Item = usize> {
    let apart = |axis: usize| dilation.get(axis).copied().unwrap_or(1);
    kernel_size.iter().enumerate().map(move |(axis, size)| size.saturating_sub(1).saturating_mul(apart(axis)))
}

impl Default for Padding {
    /// 0 for all axes.
    fn default() -> Padding {
        Padding::Explicit(Vec::new())
    }
}

impl<const N: usize> From<[usize; N]> for Padding {
    fn from(zeros: [usize; N]) -> Padding {
        Padding::Explicit(zeros.to_vec())
    }
}

impl From<Vec<usize>> for Padding {
    fn from(zeros: Vec<usize>) -> Padding {
        Padding::Explicit(zeros)
    }
}

impl Serialize for Padding {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Padding::Explicit(zeros) => zeros.serialize(serializer),
            Padding::Same => serializer.serialize_str("same"),
        }
    }
}

impl<'de> Deserialize<'de> for Padding {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Padding, D::Error> {
        struct Written;

        impl<'de> Visitor<'de> for Written {
            type Value = Padding;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number for each axis, such as [1, 1], or \"same\"")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Padding, E> {
                match text {
                    "same" => Ok(Padding::Same),
                    _ => Err(E::invalid_value(serde::de::Unexpected::Str(text), &self)),
                }
            }

            fn visit_seq<A: SeqAccess<'de>>(self, numbers: A) -> Result<Padding, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(numbers)).map(Padding::Explicit)
            }
        }

        deserializer.deserialize_any(Written)
    }
}
