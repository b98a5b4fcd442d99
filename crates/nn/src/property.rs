//! Run-time checks of tensor values.

use panoply_tensor::{DType, Error, Result, Tensor};

/// A property that every element of a tensor must have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Property {
    /// Neither NaN nor infinite.
    Finite,
    /// At least the first and at most the second bound.
    InRange(f64, f64),
    /// Not below 0, with a sum of 1 along the last axis within 0.002.
    Probabilities,
}

/// Tolerance of a sum of probabilities: the rounding error of sums over thousands of elements, f16 included.
const SUM: f64 = 2e-3;

impl Property {
    /// Checks a tensor; `name` identifies it in the error.
    ///
    /// # Errors
    /// If an element does not have the property. The message has the number of such elements and the position of the first.
    pub fn check(&self, name: &str, value: &Tensor) -> Result<()> {
        let wide = value.cast(DType::F32);
        let number = |x: f64| Tensor::scalar(x as f32);
        let within = |low: f64, high: f64| wide.ge(&number(low)).bitwise_and(&number(high).ge(&wide));
        let good = match self {
            Property::Finite => wide.is_finite(),
            Property::InRange(low, high) => within(*low, *high),
            Property::Probabilities => {
                let sums = wide.sum(-1).unsqueeze(-1);
                within(0.0, 1.0 + SUM).bitwise_and(&(sums - 1.0).abs().le(&number(SUM)))
            }
        };
        if good.all(..).item()? {
            return Ok(());
        }
        let (good, numbers) = (good.cast(DType::U8).to_vec::<u8>()?, wide.to_vec::<f32>()?);
        let bad = good.iter().filter(|good| **good == 0).count();
        let first = good.iter().position(|good| *good == 0).unwrap_or(0);
        let place = place(first, value.shape()?.dims());
        let message = format!(
            "{name} {} is not {self}: {bad} of {} elements, the first {} at {place:?}",
            value.shape()?,
            good.len(),
            numbers[first]
        );
        Err(Error::mistake(message))
    }
}

impl std::fmt::Display for Property {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Property::Finite => f.write_str("finite"),
            Property::InRange(low, high) => write!(f, "within {low} ..= {high}"),
            Property::Probabilities => f.write_str("probabilities"),
        }
    }
}

/// Returns the index along each axis of an element with this row-major position.
pub(crate) fn place(mut element: usize, dims: &[usize]) -> Vec<usize> {
    let mut place = vec![0; dims.len()];
    for (axis, length) in dims.iter().enumerate().rev() {
        place[axis] = element % length.max(&1);
        element /= length.max(&1);
    }
    place
}

/// Evaluates a tensor and checks properties of its elements: `ensure!(y, finite, probabilities, within(0.0, 1.0))?`. The check runs on
/// the tensor's device. An error has the number of wrong elements and the position of the first.
///
/// ```
/// # use panoply_nn::ensure;
/// # use panoply_tensor::Tensor;
/// let y = Tensor::from_slice(&[1.0f32, 2.0], [1, 2]).softmax(-1);
/// ensure!(y, finite, probabilities)?;
/// let error = ensure!(y * 2.0, within(0.0, 1.0)).unwrap_err();
/// assert!(error.message().contains("is not within 0 ..= 1: 1 of 2 elements, the first 1.46"));
/// # Ok::<(), panoply_tensor::Error>(())
/// ```
#[macro_export]
macro_rules! ensure {
    (@property finite) => { $crate::property::Property::Finite };
    (@property probabilities) => { $crate::property::Property::Probabilities };
    (@property within($low:expr, $high:expr)) => { $crate::property::Property::InRange($low, $high) };
    ($value:expr, $($property:ident $(($($argument:expr),*))?),+ $(,)?) => {{
        let value = &$value;
        let properties = [$($crate::ensure!(@property $property $(($($argument),*))?)),+];
        properties.iter().try_for_each(|property| property.check(stringify!($value), value))
    }};
}
