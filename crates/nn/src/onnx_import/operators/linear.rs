//! Linear algebra.

use panoply_tensor::{DType, Result, Tensor};

use super::{Operands, Operator, Results, along_axis};

/// Name, attributes and rule of each operator.
pub const OPERATORS: &[Operator] = &[
    ("Det", &[], |o| o.map(Tensor::det)),
    ("Einsum", &["equation"], |o| {
        let equation: String = o.text("equation", "").chars().filter(|letter| !letter.is_whitespace()).collect();
        Ok(Tensor::einsum(&equation, &o.all()?).into())
    }),
    ("Gemm", &["alpha", "beta", "broadcast", "transA", "transB"], gemm),
    ("MatMul", &[], |o| o.zip(|a, b| a.matmul(b))),
    ("MatMulInteger", &[], |o| {
        let left = without_zero_point(o.x(0)?, o.optional(2), Side::Row)?;
        Ok(left.matmul(&without_zero_point(o.x(1)?, o.optional(3), Side::Column)?).into())
    }),
];

fn gemm(o: &Operands<'_>) -> Result<Results> {
    let turned = |n: usize, name: &str| {
        Ok::<_, panoply_tensor::Error>(if o.flag(name, false) { o.x(n)?.t() } else { o.x(n)?.clone() })
    };
    let scaled = |x: Tensor, by: f64| if by == 1.0 { x } else { x * by };
    let product = scaled(turned(0, "transA")?.matmul(&turned(1, "transB")?), o.float("alpha", 1.0));
    Ok(match o.optional(2) {
        Some(bias) => product + scaled(bias.clone(), o.float("beta", 1.0)),
        None => product,
    }
    .into())
}

/// The axis of a matrix that a vector of zero points or scales belongs to.
#[derive(Clone, Copy)]
pub enum Side {
    /// One number for each row.
    Row,
    /// One number for each column.
    Column,
}

/// Shapes a number, or a vector with one number for each row or column, to broadcast with a matrix.
pub fn beside_matrix(vector: &Tensor, rank: usize, side: Side) -> Result<Tensor> {
    let is_vector = vector.shape()?.ndim() == 1 && vector.numel()? > 1;
    Ok(match side {
        Side::Row if is_vector && rank >= 2 => along_axis(vector, rank - 2, rank),
        Side::Column if is_vector && rank >= 1 => along_axis(vector, rank - 1, rank),
        _ if vector.numel()? == 1 => vector.reshape(()),
        _ => vector.clone(),
    })
}

/// Returns integers less their zero point, as i32.
pub fn without_zero_point(x: &Tensor, zero: Option<&Tensor>, side: Side) -> Result<Tensor> {
    let (wide, rank) = (x.cast(DType::I32), x.shape()?.ndim());
    Ok(match zero {
        Some(zero) => wide - beside_matrix(&zero.cast(DType::I32), rank, side)?,
        None => wide,
    })
}
