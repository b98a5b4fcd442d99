//! Validation of routine descriptions.
//!
//! Devices compute addresses from the fields of a description without further checks, so code that accepts one from outside must call
//! [`Routine::check`] first. The lengths of the buffers, given by [`Routine::operands`], are checked where the buffers are known.

use super::{
    Attention, CachedAttention, Conv, ConvAxis, ExpertMatmul, Gemm, Layout, Pool, PoolAxis, QuantizedMatmul, Routine,
    Scatter,
};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::quant::INTERLEAVED_ROWS;

/// Maximum of strides, dilations and paddings, so that addresses computed from two of them stay within 64 bits.
const MAX_STEP: usize = i32::MAX as usize;
/// Maximum inner length of a matrix product whose operands both repeat one element along it; no buffer limits it.
const MAX_REPEATED: usize = i32::MAX as usize;

impl Routine {
    /// Checks that the fields are consistent: types, divisibility, windows within their input, results without overlapping elements, and
    /// sizes within 64 bits.
    ///
    /// # Errors
    /// The violated rule, with the routine, the field and the valid values.
    pub fn check(&self) -> Result<()> {
        let checked = match self {
            Routine::Gemm(of) => gemm(of),
            Routine::Conv(of) | Routine::ConvBackwardData(of) | Routine::ConvBackwardFilter(of) => conv(of),
            Routine::Attention(of) | Routine::AttentionBackward(of) => attention(of),
            Routine::MaxPoolBackward(of) => pool(of),
            Routine::Sort(of) => number(of.dtype)
                .and_then(|()| at_most("count", of.count, "length", of.length))
                .and_then(|()| at_most("length", of.length, "the largest i32", i32::MAX as usize)),
            Routine::SolveTriangular(of) => float(of.dtype),
            Routine::Cholesky(of) => float(of.dtype),
            Routine::Lu(of) => {
                float(of.dtype).and_then(|()| at_most("size", of.size, "the largest i32", i32::MAX as usize))
            }
            Routine::Qr(of) => float(of.dtype).and_then(|()| at_most("columns", of.columns, "rows", of.rows)),
            Routine::Eigh(of) => float(of.dtype),
            Routine::Scatter(of) => scatter(of),
            Routine::Fourier(of) => rule(matches!(of.dtype, DType::F32 | DType::F64), || {
                format!("dtype is {}; it must be f32 or f64", of.dtype)
            })
            .and_then(|()| same_dtype("scale", of.scale.dtype, of.dtype)),
            Routine::QuantizedMatmul(of) => quantized_matmul(of),
            Routine::ExpertMatmul(of) => expert_matmul(of),
            Routine::CachedAttention(of) => cached_attention(of),
        };
        checked.and_then(|()| self.check_sizes()).map_err(|why| Error::mistake(format!("{}: {why}", self.name())))
    }

    /// Checks that the size of every buffer in bytes fits into an address.
    fn check_sizes(&self) -> Result<(), String> {
        for operand in self.operands() {
            let bytes = operand.elems.and_then(|elems| elems.checked_mul(operand.dtype.bytes() as u64));
            rule(bytes.is_some_and(|bytes| bytes <= isize::MAX as u64), || {
                format!("{} has more than {} bytes; use smaller sizes or strides", operand.name, isize::MAX)
            })?;
        }
        Ok(())
    }
}

fn rule(holds: bool, message: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(message()) }
}

fn at_most(name: &str, value: usize, limit_name: &str, limit: usize) -> Result<(), String> {
    rule(value <= limit, || format!("{name} is {value}; it must be at most {limit_name}, {limit}"))
}

fn at_least_one(name: &str, value: usize) -> Result<(), String> {
    rule(value >= 1, || format!("{name} is 0; it must be at least 1"))
}

fn number(dtype: DType) -> Result<(), String> {
    rule(dtype != DType::Bool, || "dtype is bool; it must be an integer or a float".to_string())
}

fn float(dtype: DType) -> Result<(), String> {
    rule(dtype.is_float(), || format!("dtype is {dtype}; it must be a float"))
}

fn same_dtype(name: &str, dtype: DType, wanted: DType) -> Result<(), String> {
    rule(dtype == wanted, || format!("{name} is {dtype}; it must be {wanted}, like the buffers"))
}

fn gemm(of: &Gemm) -> Result<(), String> {
    let Gemm { dtype, tf32, batch, m, n, k, a, b, c, .. } = *of;
    rule(dtype.is_float() || dtype == DType::I8, || format!("dtype is {dtype}; it must be a float or i8"))?;
    rule(!tf32 || dtype == DType::F32, || format!("tf32 is set for {dtype}; it requires f32"))?;
    for (name, layout, lengths) in [("a", a, [batch, m, k]), ("b", b, [batch, k, n]), ("c", c, [batch, m, n])] {
        // Axes without elements are included, because strides are multiplied by lengths.
        let Layout { offset, batch, row, column } = layout;
        let strides = [batch, row, column].into_iter().zip(lengths);
        let end = strides.map(|(stride, length)| stride as u128 * length.max(1) as u128).sum::<u128>();
        rule(end + offset as u128 <= isize::MAX as u128 / 8, || {
            format!("offset and strides of {name} exceed the largest address; use smaller ones")
        })?;
    }
    rule(k <= MAX_REPEATED || a.column > 0 || b.row > 0, || {
        format!("k is {k} and both operands repeat one element along it; it must be at most {MAX_REPEATED} then")
    })?;
    rule(distinct(c, [batch, m, n]), || {
        let Layout { batch: by_batch, row, column, .. } = c;
        format!(
            "c has strides {by_batch}, {row}, {column} for {batch}×{m}×{n} elements, some of which overlap; each stride must exceed the \
             end of the axes with smaller strides, as {}, {n}, 1 do",
            m.saturating_mul(n)
        )
    })
}

/// Returns true if no two elements of a result overlap, because each stride exceeds the end of the axes with smaller strides.
fn distinct(layout: Layout, lengths: [usize; 3]) -> bool {
    let mut axes: Vec<(usize, usize)> =
        [layout.batch, layout.row, layout.column].into_iter().zip(lengths).filter(|(_, length)| *length > 1).collect();
    axes.sort_unstable();
    let mut end = 0u128;
    lengths.contains(&0)
        || axes.into_iter().all(|(stride, length)| {
            let passes = stride as u128 > end;
            end = end.saturating_add((length as u128 - 1).saturating_mul(stride as u128));
            passes
        })
}

fn conv(of: &Conv) -> Result<(), String> {
    float(of.dtype)?;
    at_least_one("groups", of.groups)?;
    of.axes.iter().enumerate().try_for_each(|(at, axis)| {
        let ConvAxis { length, size, positions, stride, dilation, padding } = *axis;
        let name = |field: &str| format!("{field} of axis {at}");
        at_most(&name("padding"), padding, "the largest i32", MAX_STEP)?;
        let whole = length.saturating_add(2 * padding);
        let wanted = windows(&name, whole, size, stride, dilation)?;
        rule(positions == wanted, || {
            format!(
                "{} is {positions}; {wanted} windows of {size} elements, stride {stride} and dilation {dilation} fit {length} elements \
                 with padding {padding}",
                name("positions")
            )
        })
    })
}

/// Returns the number of windows that fit an axis, possibly 0.
fn windows(
    name: &dyn Fn(&str) -> String,
    length: usize,
    size: usize,
    stride: usize,
    dilation: usize,
) -> Result<usize, String> {
    for (field, value) in [("size", size), ("stride", stride), ("dilation", dilation)] {
        at_least_one(&name(field), value)?;
    }
    for (field, value) in [("stride", stride), ("dilation", dilation)] {
        at_most(&name(field), value, "the largest i32", MAX_STEP)?;
    }
    let span = (size - 1).saturating_mul(dilation).saturating_add(1);
    Ok(length.checked_sub(span).map_or(0, |rest| rest / stride + 1))
}

fn attention(of: &Attention) -> Result<(), String> {
    let Attention { dtype, heads, key_heads, queries, past, scale, mask, .. } = *of;
    float(dtype)?;
    same_dtype("scale", scale.dtype, dtype)?;
    rule(key_heads > 0 && heads.is_multiple_of(key_heads), || {
        format!("heads is {heads}; it must be a multiple of key_heads, {key_heads}, which must be at least 1")
    })?;
    let last = past.unwrap_or(0).checked_add(queries);
    rule(last.is_some_and(|last| last < isize::MAX as usize), || {
        format!("past is {}; the sum of past and queries must be below {}", past.unwrap_or(0), isize::MAX)
    })?;
    mask.map_or(Ok(()), |mask| {
        rule(mask.dtype == DType::Bool || mask.dtype == dtype, || {
            format!("mask is {}; it must be bool, or {dtype} like the scores", mask.dtype)
        })
    })
}

fn pool(of: &Pool) -> Result<(), String> {
    float(of.dtype)?;
    of.axes.iter().enumerate().try_for_each(|(at, axis)| {
        let PoolAxis { length, size, positions, stride, dilation } = *axis;
        let name = |field: &str| format!("{field} of axis {at}");
        let most = windows(&name, length, size, stride, dilation)?;
        rule(positions <= most, || {
            format!(
                "{} is {positions}; at most {most} windows of {size} elements, stride {stride} and dilation {dilation} fit {length} elements",
                name("positions")
            )
        })
    })
}

fn scatter(of: &Scatter) -> Result<(), String> {
    let Scatter { dtype, positions, accumulate: adds, .. } = *of;
    rule(matches!(positions, DType::I32 | DType::I64), || format!("positions is {positions}; it must be i32 or i64"))?;
    if adds { number(dtype) } else { Ok(()) }
}

fn expert_matmul(of: &ExpertMatmul) -> Result<(), String> {
    let ExpertMatmul { slots, used, experts, .. } = *of;
    rule(slots == 1 || slots == used, || format!("slots is {slots}; it must be 1 or used, {used}"))?;
    at_most("experts", experts, "the largest i32", i32::MAX as usize)?;
    quantized_matmul(&of.of_one(1))
}

fn quantized_matmul(of: &QuantizedMatmul) -> Result<(), String> {
    let QuantizedMatmul { dtype, encoding, n, k, interleaved, .. } = *of;
    rule(matches!(dtype, DType::F32 | DType::F16 | DType::BF16), || {
        format!("dtype is {dtype}; it is f32, f16 or bf16")
    })?;
    rule(k.is_multiple_of(encoding.block_elems()), || {
        format!("k is {k}; it is a multiple of {}, the block of {}", encoding.block_elems(), encoding.name())
    })?;
    rule(!interleaved || encoding.can_interleave(n), || {
        format!(
            "{n} rows of {} are interleaved; only whole groups of {INTERLEAVED_ROWS} rows of some encodings are",
            encoding.name()
        )
    })
}

fn cached_attention(of: &CachedAttention) -> Result<(), String> {
    let CachedAttention { heads, key_heads, scale, soft_cap, window, .. } = *of;
    rule(key_heads > 0 && heads.is_multiple_of(key_heads), || {
        format!("heads is {heads}; it must be a multiple of key_heads, {key_heads}, which must be at least 1")
    })?;
    same_dtype("scale", scale.dtype, DType::F32)?;
    soft_cap.map_or(Ok(()), |cap| same_dtype("soft_cap", cap.dtype, DType::F32))?;
    window.map_or(Ok(()), |window| at_least_one("window", window))?;
    rule(of.rows().is_some_and(|rows| rows <= i32::MAX as usize), || {
        format!("slots and slot_rows have more than {} rows; use fewer or shorter slots", i32::MAX)
    })
}
