//! Attention.

use panoply_tensor::{DType, Error, Result, Tensor};

use super::shape::{Padding, padded};
use super::{Operands, Operator, Results, scalar, unsupported};

/// Name, attributes and rule of each operator.
pub const OPERATORS: &[Operator] = &[
    (
        "Attention",
        &["is_causal", "kv_num_heads", "q_num_heads", "qk_matmul_output_mode", "scale", "softcap", "softmax_precision"],
        attention,
    ),
    ("RotaryEmbedding", &["interleaved", "num_heads", "rotary_embedding_dim"], rotary_embedding),
];

/// Splits the last axis into heads: `[batch, length, heads · size]` becomes `[batch, heads, length, size]`.
fn heads(x: &Tensor, count: i64) -> Result<Tensor> {
    let dims = x.shape()?.dims().to_vec();
    if dims.len() == 4 {
        return Ok(x.clone());
    }
    let [batch, length, width] = x.dims::<3>()?;
    let count = usize::try_from(count).ok().filter(|count| *count > 0 && width.is_multiple_of(*count));
    let count = count.ok_or_else(|| Error::corrupt(format!("{width} elements are not divisible into heads")))?;
    Ok(x.reshape([batch, length, count, width / count]).permute([0, 2, 1, 3]))
}

/// Operands: query, key, value, mask, earlier keys and values.
fn attention(o: &Operands<'_>) -> Result<Results> {
    let is_3d = o.dims(0)?.len() == 3;
    let query = heads(o.x(0)?, o.int("q_num_heads", 0))?;
    let [key, value] = [1, 2].map(|n| heads(o.x(n)?, o.int("kv_num_heads", 0)));
    let with_past = |n: usize, new: Tensor| match o.optional(n) {
        Some(past) => Tensor::concat([past.clone(), new], 2),
        None => new,
    };
    let (key, value) = (with_past(4, key?), with_past(5, value?));
    let [batch, count, queries, size] = query.dims::<4>()?;
    let kv_count = key.dims::<4>()?[1];
    if kv_count == 0 || !count.is_multiple_of(kv_count) {
        return Err(Error::corrupt(format!("{count} heads of queries do not fit {kv_count} of keys")));
    }
    let repeated = |x: &Tensor| x.repeat_interleave(count / kv_count, 1);
    let scale = o.float("scale", 1.0 / (size as f64).sqrt());
    if scale < 0.0 {
        return Err(unsupported("a negative scale"));
    }
    let root = scale.sqrt();
    let mut scores = (&query * root).matmul(&(repeated(&key) * root).t());
    let products = scores.clone();
    scores = masked(o, scores)?;
    let biased = scores.clone();
    // The specification applies the cap after the mask.
    let softcap = o.float("softcap", 0.0);
    if softcap > 0.0 {
        scores = (scores / softcap).tanh() * softcap;
    }
    let wide = o.dtype("softmax_precision")?.unwrap_or(scores.dtype());
    let probabilities = scores.cast(wide).softmax(-1).cast(value.dtype());
    let stages = [products, biased, scores, probabilities.clone()];
    let y = probabilities.matmul(&repeated(&value));
    let width = y.shape()?.dims()[3];
    let y = if is_3d { y.permute([0, 2, 1, 3]).reshape([batch, queries, count * width]) } else { y };
    let stage = usize::try_from(o.int("qk_matmul_output_mode", 0)).ok().and_then(|mode| stages.get(mode).cloned());
    let stage = stage.ok_or_else(|| Error::corrupt("qk_matmul_output_mode is not 0, 1, 2 or 3"))?;
    Ok([y, key, value, stage].into())
}

/// Applies the causal mask, the numbers of valid keys and the mask operand to scores `[batch, heads, queries, keys]`.
fn masked(o: &Operands<'_>, mut scores: Tensor) -> Result<Tensor> {
    let [_, _, queries, keys] = scores.dims::<4>()?;
    let low = scalar(f64::NEG_INFINITY, scores.dtype());
    if o.flag("is_causal", false) {
        let offset = o.optional(4).map_or(Ok(0), |past| past.dims::<4>().map(|dims| dims[2]))?;
        let allowed = (Tensor::arange(queries).unsqueeze(1) + offset).ge(Tensor::arange(keys).unsqueeze(0));
        scores = scores.where_self(&allowed, &low);
    }
    if let Some(valid) = o.optional(6) {
        if o.flag("is_causal", false) {
            return Err(unsupported("nonpad_kv_seqlen with is_causal"));
        }
        let inside = valid.cast(DType::I64).reshape([-1, 1, 1, 1]).gt(Tensor::arange(keys).cast(DType::I64));
        scores = scores.where_self(&inside, &low);
    }
    let Some(mask) = o.optional(3) else { return Ok(scores) };
    let axis = mask.shape()?.ndim().saturating_sub(1);
    let missing = keys.saturating_sub(mask.shape()?.dims().last().copied().unwrap_or(0)) as i64;
    let none = if mask.dtype() == DType::Bool { scalar(0.0, DType::Bool) } else { low.clone() };
    let mask = padded(mask, axis, (0, missing), &Padding::Constant(none))?;
    Ok(if mask.dtype() == DType::Bool { scores.where_self(&mask, &low) } else { scores + mask })
}

/// Rotates pairs of elements by the angle of their position. Operands: x, cosines, sines, positions.
fn rotary_embedding(o: &Operands<'_>) -> Result<Results> {
    let (dims, is_3d) = (o.dims(0)?, o.dims(0)?.len() == 3);
    // [batch, length, heads, size]
    let x = match is_3d {
        true => heads(o.x(0)?, o.int("num_heads", 0))?.permute([0, 2, 1, 3]),
        false => o.x(0)?.permute([0, 2, 1, 3]),
    };
    let [batch, length, count, size] = x.dims::<4>()?;
    let rotated = usize::try_from(o.int("rotary_embedding_dim", 0)).ok().filter(|width| *width <= size);
    let rotated = match rotated.ok_or_else(|| Error::corrupt("rotary_embedding_dim is larger than a head"))? {
        0 => size,
        width => width,
    };
    let half = rotated / 2;
    let table = |n: usize| {
        let table = o.x(n)?;
        let rows = match o.optional(3) {
            Some(positions) => table.index_select(0, &positions.cast(DType::I64)),
            None => table.clone(),
        };
        Ok::<Tensor, Error>(rows.narrow(-1, 0, half).unsqueeze(2))
    };
    let (cos, sin) = (table(1)?, table(2)?);
    let (turned, rest) = (x.narrow(-1, 0, rotated), x.narrow(-1, rotated, size - rotated));
    let is_interleaved = o.flag("interleaved", false);
    let pairs = match is_interleaved {
        true => turned.reshape([batch, length, count, half, 2]),
        false => turned.reshape([batch, length, count, 2, half]).transpose(3, 4),
    };
    let [a, b] = [0, 1].map(|n| pairs.narrow(-1, n, 1).squeeze(-1isize));
    let (real, imaginary) = (&cos * &a - &sin * &b, &sin * &a + &cos * &b);
    let turned = match is_interleaved {
        true => Tensor::stack([real, imaginary], -1).reshape([batch, length, count, rotated]),
        false => Tensor::concat([real, imaginary], -1),
    };
    let y = Tensor::concat([turned, rest], -1);
    Ok(if is_3d { y.reshape(dims) } else { y.permute([0, 2, 1, 3]) }.into())
}
