//! Activation functions.

use panoply_tensor::{DType, Error, Result, Tensor};

use super::{Operands, Operator, Results, as_matrix, axis_of, scalar, shaped};

/// An activation function with its parameters.
pub type Activation = Box<dyn Fn(&Tensor) -> Tensor>;

/// Default attributes of `Selu`.
const SELU_ALPHA: f64 = 1.673_263_192_176_818_8;
const SELU_GAMMA: f64 = 1.050_701_022_148_132_3;

/// Name, attributes and rule of each operator.
pub const OPERATORS: &[Operator] = &[
    ("Celu", &["alpha"], |o| {
        let alpha = o.float("alpha", 1.0);
        o.map(|x| x.maximum(x.zeros_like()) + (((x / alpha).exp() - 1.0) * alpha).minimum(x.zeros_like()))
    }),
    ("Elu", &["alpha"], |o| o.map(|x| elu(x, o.float("alpha", 1.0)))),
    ("Gelu", &["approximate"], |o| match o.text("approximate", "none") {
        "none" => o.map(Tensor::gelu),
        "tanh" => o.map(Tensor::gelu_tanh),
        other => Err(Error::corrupt(format!("the approximation `{other}` is neither none nor tanh"))),
    }),
    ("HardSigmoid", &["alpha", "beta"], |o| {
        let (alpha, beta) = (o.float("alpha", f64::from(0.2f32)), o.float("beta", 0.5));
        o.map(|x| hard_sigmoid(x, alpha, beta))
    }),
    ("HardSwish", &[], |o| o.map(|x| x * hard_sigmoid(x, 1.0 / 6.0, 0.5))),
    ("Hardmax", &["axis"], |o| over_axis(o, hardmax)),
    ("LeakyRelu", &["alpha"], |o| o.map(|x| x.leaky_relu(o.float("alpha", f64::from(0.01f32))))),
    ("LogSoftmax", &["axis"], |o| over_axis(o, Tensor::log_softmax)),
    ("Mish", &[], |o| o.map(Tensor::mish)),
    ("PRelu", &[], prelu),
    ("Relu", &[], |o| o.map(|x| if x.dtype().is_float() { x.relu() } else { x.maximum(x.zeros_like()) })),
    ("Selu", &["alpha", "gamma"], |o| {
        let [alpha, gamma] = [o.float("alpha", SELU_ALPHA), o.float("gamma", SELU_GAMMA)];
        o.map(|x| if o.attributes.is_empty() { x.selu() } else { elu(x, alpha) * gamma })
    }),
    ("Shrink", &["bias", "lambd"], |o| {
        let (bias, lambda) = (o.float("bias", 0.0), o.float("lambd", 0.5));
        o.map(|x| {
            let above = (x - bias).where_self(&x.gt(lambda), x.zeros_like());
            (x + bias).where_self(&x.lt(-lambda), above)
        })
    }),
    ("Sigmoid", &[], |o| o.map(Tensor::sigmoid)),
    ("Softmax", &["axis"], |o| over_axis(o, Tensor::softmax)),
    ("Softplus", &[], |o| o.map(Tensor::softplus)),
    ("Softsign", &[], |o| o.map(Tensor::softsign)),
    ("Swish", &["alpha"], |o| o.map(|x| x * (x * o.float("alpha", 1.0)).sigmoid())),
    ("ThresholdedRelu", &["alpha"], |o| o.map(|x| x.where_self(&x.gt(o.float("alpha", 1.0)), x.zeros_like()))),
];

/// Returns x where it is positive, and alpha · (exp(x) − 1) elsewhere.
fn elu(x: &Tensor, alpha: f64) -> Tensor {
    let below = x.elu();
    if alpha == 1.0 { below } else { x.where_self(&x.gt(&x.zeros_like()), &(below * alpha)) }
}

/// Multiplies negative elements by a slope. In opset 6 a vector of slopes has one for each channel.
fn prelu(o: &Operands<'_>) -> Result<Results> {
    let (x, slope) = (o.x(0)?, o.x(1)?);
    let of_channels = o.opset < 7 && slope.shape()?.ndim() == 1 && slope.numel()? > 1;
    let slope = if of_channels { slope.unsqueeze_like_channels(x) } else { slope.clone() };
    Ok(x.where_self(&x.ge(x.zeros_like()), x * slope).into())
}

/// Returns alpha · x + beta, clipped to 0 … 1.
fn hard_sigmoid(x: &Tensor, alpha: f64, beta: f64) -> Tensor {
    (x * alpha + beta).maximum(x.zeros_like()).minimum(x.ones_like())
}

/// Returns 1 at the first maximum along an axis, and 0 elsewhere.
fn hardmax(x: &Tensor, axis: isize) -> Tensor {
    let Ok(length) = x.shape().map(|shape| shape.dims()[axis as usize]) else { return x.clone() };
    let best = x.argmax(axis).one_hot(length, DType::F32).cast(x.dtype());
    best.movedim(-1, axis)
}

/// Applies a function along an axis. Before opset 13 this axis and all later ones count as one.
fn over_axis(o: &Operands<'_>, f: impl Fn(&Tensor, isize) -> Tensor) -> Result<Results> {
    let (x, dims) = (o.x(0)?, o.dims(0)?);
    let rank = dims.len();
    if o.opset >= 13 {
        return Ok(f(x, o.axis(-1)? as isize).into());
    }
    let axis = match o.int("axis", 1) {
        axis if axis == rank as i64 => rank,
        axis => axis_of(axis, rank)?,
    };
    if axis + 1 == rank {
        return Ok(f(x, axis as isize).into());
    }
    Ok(shaped(&f(&shaped(x, &as_matrix(&dims, axis)), 1), &dims).into())
}

/// Returns the activation function of a recurrent network with this name.
pub fn by_name(name: &str, alpha: Option<f64>, beta: Option<f64>) -> Result<Activation> {
    let (a, b) = (move |default: f64| alpha.unwrap_or(default), move |default: f64| beta.unwrap_or(default));
    Ok(match name.to_ascii_lowercase().as_str() {
        "relu" => Box::new(Tensor::relu),
        "tanh" => Box::new(Tensor::tanh),
        "sigmoid" => Box::new(Tensor::sigmoid),
        "softsign" => Box::new(Tensor::softsign),
        "softplus" => Box::new(Tensor::softplus),
        "affine" => Box::new(move |x| x * a(1.0) + b(0.0)),
        "leakyrelu" => Box::new(move |x| x.leaky_relu(a(0.01))),
        "thresholdedrelu" => Box::new(move |x| x.where_self(&x.gt(scalar(a(1.0), x.dtype())), x.zeros_like())),
        "scaledtanh" => Box::new(move |x| (x * b(1.0)).tanh() * a(1.0)),
        "hardsigmoid" => Box::new(move |x| hard_sigmoid(x, a(0.2), b(0.5))),
        "elu" => Box::new(move |x| elu(x, a(1.0))),
        other => return Err(super::unsupported(format!("the activation {other}"))),
    })
}
