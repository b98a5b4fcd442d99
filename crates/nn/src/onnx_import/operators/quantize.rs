//! Quantization to integers and back.

use panoply_tensor::{DType, Error, Result, Tensor};

use super::linear::{Side, beside_matrix, without_zero_point};
use super::reduce::{highest, lowest};
use super::{Operands, Operator, Results, along_axis, axis_of, convolution, scalar, unsupported};

/// Name, attributes and rule of each operator.
pub const OPERATORS: &[Operator] = &[
    ("DequantizeLinear", &["axis", "block_size", "output_dtype"], dequantize),
    ("DynamicQuantizeLinear", &[], dynamic_quantize),
    ("QLinearConv", &["auto_pad", "dilations", "group", "kernel_shape", "pads", "strides"], qlinear_conv),
    ("QLinearMatMul", &[], qlinear_matmul),
    ("QuantizeLinear", &["axis", "block_size", "output_dtype", "precision", "saturate"], quantize),
];

/// Rounds to integers (ties to even), adds the zero point and clips to the element type.
fn rounded(x: &Tensor, zero: Option<&Tensor>, dtype: DType) -> Tensor {
    let wide = x.round();
    let wide = match zero {
        Some(zero) => &wide + zero.cast(wide.dtype()),
        None => wide,
    };
    wide.maximum(scalar(lowest(dtype), wide.dtype())).minimum(scalar(highest(dtype), wide.dtype())).cast(dtype)
}

/// Returns scales or zero points with a shape that broadcasts with the input.
fn beside(o: &Operands<'_>, vector: &Tensor) -> Result<Tensor> {
    let (dims, own) = (o.dims(0)?, vector.shape()?.dims().to_vec());
    if vector.numel()? == 1 {
        return Ok(vector.reshape(()));
    }
    let axis = axis_of(o.int("axis", 1), dims.len())?;
    let block = usize::try_from(o.int("block_size", 0)).map_err(|_| Error::corrupt("the block size is negative"))?;
    match own.len() {
        1 if dims.len() != 1 || block == 0 => Ok(along_axis(vector, axis, dims.len())),
        rank if rank == dims.len() && block > 0 => {
            Ok(vector.repeat_interleave(block, axis as isize).narrow(axis as isize, 0, dims[axis]))
        }
        _ => Err(Error::corrupt(format!("scales of shape {own:?} do not fit the input {dims:?}"))),
    }
}

/// Checks that an element type is an integer type that quantization supports.
fn integer(dtype: DType) -> Result<DType> {
    match dtype {
        DType::I8 | DType::U8 | DType::I16 | DType::U16 => Ok(dtype),
        _ => Err(unsupported(format!("quantization to {dtype}"))),
    }
}

fn quantize(o: &Operands<'_>) -> Result<Results> {
    // 0 is the default, 1 is f32, in which the division is computed.
    if !(0..=1).contains(&o.int("precision", 0)) {
        return Err(unsupported("a precision other than f32"));
    }
    let named = o.attributes.get("output_dtype").filter(|attribute| attribute.int != 0);
    let dtype = match (o.optional(2), named) {
        (Some(zero), _) => zero.dtype(),
        (None, Some(_)) => o.dtype("output_dtype")?.unwrap_or(DType::U8),
        (None, None) => DType::U8,
    };
    let zero = o.optional(2).map(|zero| beside(o, zero)).transpose()?;
    let scale = beside(o, o.x(1)?)?;
    let x = o.x(0)?.cast(DType::F32);
    Ok(rounded(&(x / scale.cast(DType::F32)), zero.as_ref(), integer(dtype)?).into())
}

fn dequantize(o: &Operands<'_>) -> Result<Results> {
    let scale = beside(o, o.x(1)?)?;
    let x = o.x(0)?.cast(DType::F32);
    let centered = match o.optional(2) {
        Some(zero) => x - beside(o, zero)?.cast(DType::F32),
        None => x,
    };
    let named = o.attributes.get("output_dtype").filter(|attribute| attribute.int != 0);
    let dtype = if named.is_some() { o.dtype("output_dtype")?.unwrap_or(scale.dtype()) } else { scale.dtype() };
    Ok((centered * scale.cast(DType::F32)).cast(dtype).into())
}

/// Quantizes to u8 with a scale and a zero point that cover the elements and 0.
fn dynamic_quantize(o: &Operands<'_>) -> Result<Results> {
    let x = o.x(0)?;
    let zero = scalar(0.0, x.dtype());
    let (low, high) = (x.min(..).minimum(&zero), x.max(..).maximum(&zero));
    let scale = (high - &low) / 255.0;
    let safe = scale.where_self(&scale.ne(&zero), scale.ones_like());
    let point = rounded(&(-low / &safe), None, DType::U8);
    Ok([rounded(&(x / &safe), Some(&point), DType::U8), scale, point].into())
}

/// Operands: a, scale and zero point of a; the same of b; scale and zero point of the result.
fn qlinear_matmul(o: &Operands<'_>) -> Result<Results> {
    let a = without_zero_point(o.x(0)?, Some(o.x(2)?), Side::Row)?;
    let b = without_zero_point(o.x(3)?, Some(o.x(5)?), Side::Column)?;
    let product = a.matmul(&b);
    let rank = product.shape()?.ndim();
    let scale = |n: usize, side: Side| beside_matrix(&o.x(n)?.cast(DType::F32), rank, side);
    let y = product.cast(DType::F32) * (scale(1, Side::Row)? * scale(4, Side::Column)? / scale(6, Side::Row)?);
    let zero = beside_matrix(o.x(7)?, rank, Side::Row)?;
    Ok(rounded(&y, Some(&zero), integer(zero.dtype())?).into())
}

/// Operands: x, its scale and zero point; filters, their scale and zero point; scale and zero point of the result; bias.
fn qlinear_conv(o: &Operands<'_>) -> Result<Results> {
    let x = without_zero_point(o.x(0)?, Some(o.x(2)?), Side::Row)?;
    let weight = convolution::filters_without_zero_point(o.x(3)?, Some(o.x(5)?))?;
    let mut sums = convolution::convolve(o, &x, &weight)?;
    if let Some(bias) = o.optional(8) {
        sums = &sums + bias.unsqueeze_like_channels(&sums);
    }
    let scale = o.x(4)?.cast(DType::F32);
    let scale = if scale.numel()? == 1 { scale.reshape(()) } else { scale.unsqueeze_like_channels(&sums) };
    let factor = scale * o.x(1)?.cast(DType::F32).reshape(()) / o.x(6)?.cast(DType::F32).reshape(());
    let zero = o.x(7)?.reshape(());
    Ok(rounded(&(sums.cast(DType::F32) * factor), Some(&zero), integer(zero.dtype())?).into())
}
