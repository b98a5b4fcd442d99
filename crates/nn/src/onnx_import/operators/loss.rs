//! Losses.

use panoply_tensor::{DType, Error, Result, Tensor};

use super::{Operands, Operator, along_axis};

/// Name, attributes and rule of each operator.
pub const OPERATORS: &[Operator] = &[
    ("NegativeLogLikelihoodLoss", &["ignore_index", "reduction"], |o| Ok(nll_loss(o, o.x(0)?)?.into())),
    ("SoftmaxCrossEntropyLoss", &["ignore_index", "reduction"], |o| {
        let log_probabilities = o.x(0)?.log_softmax(1);
        Ok([nll_loss(o, &log_probabilities)?, log_probabilities].into())
    }),
];

/// Returns the weighted negative logarithmic probability of the target classes.
fn nll_loss(o: &Operands<'_>, x: &Tensor) -> Result<Tensor> {
    let dims = o.dims(0)?;
    let (Some(classes), target) = (dims.get(1), o.x(1)?.cast(DType::I64)) else {
        return Err(Error::corrupt("the scores have no axis of classes"));
    };
    let weight = match o.optional(2) {
        Some(weight) => weight.clone(),
        None => Tensor::ones([*classes], x.dtype()),
    };
    // Classes out of range read zeros.
    let mut weights = weight.index_select(0, &target);
    if let Some(ignored) = o.attributes.get("ignore_index") {
        weights = weights.where_self(&target.ne(ignored.int), &weights.zeros_like());
    }
    let hit = target.unsqueeze(1).eq(along_axis(&Tensor::arange(*classes).cast(DType::I64), 1, dims.len()));
    let picked = x.where_self(&hit, x.zeros_like()).sum(1);
    let losses = -picked * &weights;
    match o.text("reduction", "mean") {
        "none" => Ok(losses),
        "sum" => Ok(losses.sum(..)),
        "mean" => Ok(losses.sum(..) / weights.sum(..)),
        other => Err(Error::corrupt(format!("the reduction `{other}` is not none, sum or mean"))),
    }
}
