//! What values must be, checked while a program runs.

use panoply_tensor::{DType, Error, Result, Tensor};

/// What every number of a tensor must be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Property {
    /// Neither NaN nor infinite.
    Finite,
    /// At least the first and at most the second.
    InRange(f64, f64),
    /// Not below 0, and 1 in sum along the last axis, to 0.002.
    Probabilities,
}

/// How far a sum of probabilities may be from 1: what rounding leaves of thousands of shares, f16 included.
const SUM: f64 = 2e-3;

impl Property {
    /// The error of a value that does not have the property, with the first place where it has not; `name` says what it is.
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
        if good.all(..).cast(DType::F32).item()? != 0.0 {
            return Ok(());
        }
        let (good, numbers) = (good.cast(DType::U8).to_vec::<u8>()?, wide.to_vec::<f32>()?);
        let bad = good.iter().filter(|good| **good == 0).count();
        let first = good.iter().position(|good| *good == 0).unwrap_or(0);
        let place = place(first, value.shape()?.dims());
        let message = format!(
            "{name} {} is not {self}: {bad} of {} numbers, the first {} at {place:?}",
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

/// The position along each axis of an element counted in row-major order.
pub(crate) fn place(mut element: usize, dims: &[usize]) -> Vec<usize> {
    let mut place = vec![0; dims.len()];
    for (axis, length) in dims.iter().enumerate().rev() {
        place[axis] = element % length.max(&1);
        element /= length.max(&1);
    }
    place
}

/// Checks what a value must be: `ensure!(shares, finite, probabilities, within(0.0, 1.0))?`. The value is computed, what it must be
/// is checked where it is, and an error says how many numbers are wrong and where the first is.
///
/// ```
/// # use panoply_nn::ensure;
/// # use panoply_tensor::Tensor;
/// let shares = Tensor::from_slice(&[1.0f32, 2.0], [1, 2]).softmax(-1);
/// ensure!(shares, finite, probabilities)?;
/// let error = ensure!(shares * 2.0, within(0.0, 1.0)).unwrap_err();
/// assert!(error.message().contains("is not within 0 ..= 1: 1 of 2 numbers, the first 1.46"));
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
