//! The operations of expressions: each row has the name, the parameters and the call of the library.

use panoply::DType::F32;
use panoply::FftNorm::Backward;
use panoply::Reduction::{self, Mean};
use panoply::{
    AlignCorners, AttentionOptions, BceOptions, ConvOptions, ConvTransposeOptions, CrossEntropyOptions, DType, Error,
    FftNorm, FftOptions, InterpolateMode, Operand, Result, RopeOptions, RopeStyle, ScatterReduce, Side, SortOrder,
    Tensor, Triangle, Window,
};

use super::value::ResizeMode::{self, Nearest};
use super::value::{Argument, AxesArg, CallArgs, Operation, Parameter, Value};

const ALL: AxesArg = AxesArg(None);

macro_rules! operations {
    (
        of one tensor: $($one:ident)*;
        of two tensors: $($two:ident)*;
        losses: $($loss:ident)*;
        along an axis: $($along:ident)*;
        over axes: $($over:ident)*;
        $($name:ident($($parameter:ident: $kind:ty $(= $default:expr)?),*) => $made:expr;)*
    ) => {
        &[
            $(operations!(@row $one(x: Tensor) => x.$one()),)*
            $(operations!(@row $two(x: Tensor, y: Tensor) => x.$two(&y)),)*
            $(operations!(@row $loss(x: Tensor, y: Tensor, reduction: Reduction = Mean) => x.$loss(&y, reduction)),)*
            $(operations!(@row $along(x: Tensor, axis: isize = -1) => x.$along(axis)),)*
            $(operations!(@row $over(x: Tensor, axis: AxesArg = ALL, keepdim: bool = false) =>
                x.$over(axis.into_axes(keepdim))),)*
            $(operations!(@row $name($($parameter: $kind $(= $default)?),*) => $made),)*
        ]
    };
    (@row $name:ident($($parameter:ident: $kind:ty $(= $default:expr)?),*) => $made:expr) => {
        Operation {
            name: stringify!($name),
            parameters: &[$(Parameter {
                name: stringify!($parameter),
                default: operations!(@shown $($default)?),
                is_variadic: <$kind as Argument>::IS_VARIADIC,
            }),*],
            apply: |args: &CallArgs| {
                $(let $parameter: $kind = args.get(stringify!($parameter), operations!(@default $($default)?))?;)*
                Ok(Value::from($made))
            },
        }
    };
    (@shown) => { None };
    (@shown $default:expr) => { Some(stringify!($default)) };
    (@default) => { None };
    (@default $default:expr) => { Some($default) };
}

#[rustfmt::skip]
pub const OPERATIONS: &[Operation] = operations! {
    of one tensor:
        abs acos acosh asin asinh atan atanh ceil cholesky complex_abs cos cosh detach det diag_embed
        eig eigh eigvalsh elu erf erfinv exp exp2 expm1 fft2 floor gelu gelu_tanh hardsigmoid hardswish ifft2 imag inv is_finite is_inf is_nan lgamma
        log log10 log1p log2 logsigmoid bitwise_not lu mish ones_like qr real reciprocal relu relu6 rfft2 round rsqrt selu sigmoid sign silu sin
        sinh slogdet softplus softsign sqrt square svd svdvals t tan tanh trace trunc zeros_like;
    of two tensors:
        atan2 bitwise_and bitwise_or bitwise_xor unsqueeze_like_channels complex_mul cross_entropy dot eq ge gt hypot kron le
        lstsq logaddexp lt matmul maximum minimum ne outer bitwise_left_shift bitwise_right_shift floor_divide remainder solve;
    losses:
        binary_cross_entropy hinge_loss kl_div l1_loss mse_loss nll_loss;
    along an axis:
        cummax cummin cumprod cumsum diff fft glu ifft log_softmax logcumsumexp rfft softmax softmin unsqueeze;
    over axes:
        all any argmax argmin count_nonzero logsumexp max mean median min nanmean nansum norm prod sum;

    // Shapes and element types.
    cast(x: Tensor, dtype: DType) => x.cast(dtype);
    bitcast(x: Tensor, dtype: DType) => x.bitcast(dtype);
    concat(tensors: Vec<Tensor>, axis: isize = 0) => Tensor::concat(&tensors, axis);
    stack(tensors: Vec<Tensor>, axis: isize = 0) => Tensor::stack(&tensors, axis);
    diagonal(x: Tensor, offset: isize = 0) => x.diagonal(offset);
    broadcast_to(x: Tensor, shape: Vec<usize>) => x.broadcast_to(shape);
    chunk(x: Tensor, chunks: usize, axis: isize = 0) => x.chunk(chunks, axis);
    flatten(x: Tensor, start_dim: isize = 0, end_dim: isize = -1) => x.flatten(start_dim, end_dim);
    flip(x: Tensor, axis: AxesArg = ALL) => x.flip(axis.into_axes(false));
    meshgrid(vectors: Vec<Tensor>) => Tensor::meshgrid(&vectors.iter().collect::<Vec<_>>());
    movedim(x: Tensor, source: isize, destination: isize) => x.movedim(source, destination);
    narrow(x: Tensor, axis: isize, start: usize, len: usize) => x.narrow(axis, start, len);
    pad(x: Tensor, widths: Vec<[usize; 2]>) => x.pad(&widths.iter().map(|[before, after]| (*before, *after)).collect::<Vec<_>>());
    permute(x: Tensor, axes: Vec<isize>) => x.permute(axes);
    repeat_interleave(x: Tensor, repeats: usize, axis: isize = -1) => x.repeat_interleave(repeats, axis);
    reshape(x: Tensor, dims: Vec<isize>) => x.reshape(dims);
    roll(x: Tensor, shift: isize, axis: isize = -1) => x.roll(shift, axis);
    split(x: Tensor, lengths: Vec<usize>, axis: isize = 0) => x.split(lengths, axis);
    squeeze(x: Tensor, axis: AxesArg = ALL) => x.squeeze(axis.into_axes(false));
    tile(x: Tensor, repeats: Vec<usize>) => x.tile(repeats);
    transpose(x: Tensor, a: isize = -2, b: isize = -1) => x.transpose(a, b);
    tril(x: Tensor, diagonal: isize = 0) => x.tril(diagonal);
    triu(x: Tensor, diagonal: isize = 0) => x.triu(diagonal);
    unbind(x: Tensor, axis: isize = 0) => x.unbind(axis);
    unflatten(x: Tensor, axis: isize, sizes: Vec<usize>) => x.unflatten(axis, sizes);

    // Constant tensors.
    eye(size: usize, dtype: DType = F32) => Tensor::eye(size, dtype);
    full(shape: Vec<usize>, value: f64) => Tensor::full(shape, value as f32);
    arange(end: usize) => Tensor::arange(end);
    arange_step(start: f64, end: f64, step: f64 = 1.0) => Tensor::arange_step(start as f32, end as f32, step as f32);
    linspace(start: f64, end: f64, steps: usize, dtype: DType = F32) => Tensor::linspace(start, end, steps, dtype);
    ones(shape: Vec<usize>, dtype: DType = F32) => Tensor::ones(shape, dtype);
    zeros(shape: Vec<usize>, dtype: DType = F32) => Tensor::zeros(shape, dtype);

    // Element-wise operations with numbers or conditions.
    clamp(x: Tensor, min: Operand, max: Operand) => x.clamp(min, max);
    clamp_max(x: Tensor, max: Operand) => x.clamp_max(max);
    clamp_min(x: Tensor, min: Operand) => x.clamp_min(min);
    complex(real: Tensor, imaginary: Tensor) => Tensor::complex(&real, &imaginary);
    leaky_relu(x: Tensor, negative_slope: f64 = 0.01) => x.leaky_relu(negative_slope);
    full_like(x: Tensor, value: f64) => x.full_like(value);
    nan_to_num(x: Tensor, nan: f64 = 0.0, posinf: Option<f64> = None, neginf: Option<f64> = None) => x.nan_to_num(nan, posinf, neginf);
    pow(x: Tensor, exponent: Operand) => x.pow(exponent);
    lerp(x: Tensor, end: Tensor, weight: f64) => x.lerp(&end, weight);
    masked_fill(x: Tensor, mask: Tensor, value: Operand) => x.masked_fill(&mask, value);
    rsub(x: Tensor, other: Operand) => x.rsub(other);
    scalar_like(x: Tensor, value: f64) => x.scalar_like(value);
    where(condition: Tensor, x: Tensor, y: Tensor) => x.where_self(&condition, &y);
    where_self(x: Tensor, condition: Tensor, y: Tensor) => x.where_self(&condition, &y);

    // Norms and reductions.
    batch_norm(x: Tensor, mean: Tensor, variance: Tensor, epsilon: f64 = 1e-5) => x.batch_norm(&mean, &variance, epsilon);
    group_norm(x: Tensor, num_groups: usize, epsilon: f64 = 1e-5) => x.group_norm(num_groups, epsilon);
    layer_norm(x: Tensor, epsilon: f64 = 1e-5) => x.layer_norm(epsilon);
    max_with_indices(x: Tensor, axis: isize = -1, keepdim: bool = false) => x.max_with_indices(AxesArg(Some(vec![axis])).into_axes(keepdim));
    min_with_indices(x: Tensor, axis: isize = -1, keepdim: bool = false) => x.min_with_indices(AxesArg(Some(vec![axis])).into_axes(keepdim));
    quantile(x: Tensor, q: f64, axis: AxesArg = ALL, keepdim: bool = false) => x.quantile(q, axis.into_axes(keepdim));
    rms_norm(x: Tensor, epsilon: f64 = 1e-5) => x.rms_norm(epsilon);
    std(x: Tensor, axis: AxesArg = ALL, correction: usize = 1, keepdim: bool = false) => x.std(axis.into_axes(keepdim), correction);
    var(x: Tensor, axis: AxesArg = ALL, correction: usize = 1, keepdim: bool = false) => x.var(axis.into_axes(keepdim), correction);

    // Sorting and indexing.
    argsort(x: Tensor, axis: isize = -1, descending: bool = false) => x.argsort(axis, order(descending));
    bincount(x: Tensor, length: usize) => x.bincount(length);
    index(x: Tensor, indices: Vec<Tensor>) => x.index(&indices.iter().collect::<Vec<_>>());
    index_put(x: Tensor, indices: Vec<Tensor>, values: Tensor, add: bool = false) =>
        x.index_put(&indices.iter().collect::<Vec<_>>(), &values, scatter_reduce(add));
    index_select(x: Tensor, axis: isize, index: Tensor) => x.index_select(axis, &index);
    one_hot(x: Tensor, num_classes: usize, dtype: DType = F32) => x.one_hot(num_classes, dtype);
    gather(x: Tensor, axis: isize, index: Tensor) => x.gather(axis, &index);
    scatter(x: Tensor, axis: isize, index: Tensor, src: Tensor, add: bool = false) =>
        x.scatter(axis, &index, &src, scatter_reduce(add));
    scatter_add(x: Tensor, axis: isize, index: Tensor, src: Tensor) => x.scatter_add(axis, &index, &src);
    index_add(x: Tensor, axis: isize, index: Tensor, source: Tensor) => x.index_add(axis, &index, &source);
    searchsorted(x: Tensor, values: Tensor, right: bool = false) => x.searchsorted(&values, if right { Side::Right } else { Side::Left });
    sort(x: Tensor, axis: isize = -1, descending: bool = false) => x.sort(axis, order(descending));
    take_along_dim(x: Tensor, indices: Tensor, axis: isize = -1) => x.take_along_dim(&indices, axis);
    topk(x: Tensor, k: usize, axis: isize = -1) => x.topk(k, axis);
    slice_scatter(x: Tensor, src: Tensor, axis: isize, start: Tensor) => x.slice_scatter(&src, axis, &start);

    // Matrices, filters and attention.
    adaptive_avg_pool2d(x: Tensor, output_size: [usize; 2]) => x.adaptive_avg_pool(output_size);
    adaptive_max_pool2d(x: Tensor, output_size: [usize; 2]) => x.adaptive_max_pool(output_size);
    scaled_dot_product_attention(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = false, past_len: usize = 0, attn_mask: Option<Tensor> = None, scale: Option<f64> = None) =>
        q.scaled_dot_product_attention(&k, &v, &AttentionOptions { is_causal, past_len, attn_mask: attn_mask.as_ref(), scale });
    avg_pool1d(x: Tensor, kernel_size: [usize; 1], stride: Option<[usize; 1]> = None, padding: [usize; 1] = [0], dilation: [usize; 1] = [1]) =>
        x.avg_pool(&Window { kernel_size, stride: stride.unwrap_or(kernel_size), padding, dilation });
    avg_pool2d(x: Tensor, kernel_size: [usize; 2], stride: Option<[usize; 2]> = None, padding: [usize; 2] = [0, 0], dilation: [usize; 2] = [1, 1]) =>
        x.avg_pool(&Window { kernel_size, stride: stride.unwrap_or(kernel_size), padding, dilation });
    cdist(x: Tensor, y: Tensor, p: f64 = 2.0) => x.cdist(&y, p);
    conv1d(x: Tensor, weight: Tensor, stride: [usize; 1] = [1], padding: [usize; 1] = [0], dilation: [usize; 1] = [1], groups: usize = 1) =>
        x.conv(&weight, &ConvOptions { stride, padding, dilation, groups });
    conv2d(x: Tensor, weight: Tensor, stride: [usize; 2] = [1, 1], padding: [usize; 2] = [0, 0], dilation: [usize; 2] = [1, 1], groups: usize = 1) =>
        x.conv(&weight, &ConvOptions { stride, padding, dilation, groups });
    conv3d(x: Tensor, weight: Tensor, stride: [usize; 3] = [1, 1, 1], padding: [usize; 3] = [0, 0, 0], dilation: [usize; 3] = [1, 1, 1], groups: usize = 1) =>
        x.conv(&weight, &ConvOptions { stride, padding, dilation, groups });
    conv_transpose1d(x: Tensor, weight: Tensor, stride: [usize; 1] = [1], padding: [usize; 1] = [0], output_padding: [usize; 1] = [0], groups: usize = 1, dilation: [usize; 1] = [1]) =>
        x.conv_transpose(&weight, &ConvTransposeOptions { stride, padding, output_padding, dilation, groups });
    conv_transpose2d(x: Tensor, weight: Tensor, stride: [usize; 2] = [1, 1], padding: [usize; 2] = [0, 0], output_padding: [usize; 2] = [0, 0], groups: usize = 1, dilation: [usize; 2] = [1, 1]) =>
        x.conv_transpose(&weight, &ConvTransposeOptions { stride, padding, output_padding, dilation, groups });
    cross(x: Tensor, y: Tensor, axis: isize = -1) => x.cross(&y, axis);
    einsum(equation: String, operands: Vec<Tensor>) => Tensor::einsum(&equation, &operands.iter().collect::<Vec<_>>());
    matrix_power(x: Tensor, n: isize) => x.matrix_power(n as i64);
    max_pool1d(x: Tensor, kernel_size: [usize; 1], stride: Option<[usize; 1]> = None, padding: [usize; 1] = [0], dilation: [usize; 1] = [1]) =>
        x.max_pool(&Window { kernel_size, stride: stride.unwrap_or(kernel_size), padding, dilation });
    max_pool2d(x: Tensor, kernel_size: [usize; 2], stride: Option<[usize; 2]> = None, padding: [usize; 2] = [0, 0], dilation: [usize; 2] = [1, 1]) =>
        x.max_pool(&Window { kernel_size, stride: stride.unwrap_or(kernel_size), padding, dilation });
    interpolate2d(x: Tensor, size: [usize; 2], mode: ResizeMode = Nearest, align_corners: bool = false) => interpolate2d(&x, size, mode, align_corners);
    rope(x: Tensor, positions: Tensor, base: f64 = 10000.0, interleaved: bool = false) =>
        x.rope(&positions, &RopeOptions { base, style: if interleaved { RopeStyle::Interleaved } else { RopeStyle::RotateHalf } });
    pinv(x: Tensor, rtol: Option<f64> = None) => x.pinv(rtol);
    solve_triangular(x: Tensor, right: Tensor, upper: bool = false) =>
        x.solve_triangular(&right, if upper { Triangle::Upper } else { Triangle::Lower });
    unfold2d(x: Tensor, kernel_size: [usize; 2], stride: [usize; 2] = [1, 1], padding: [usize; 2] = [0, 0], dilation: [usize; 2] = [1, 1]) =>
        x.unfold(&Window { kernel_size, stride, padding, dilation });

    // Fourier transforms.
    fft_with_options(x: Tensor, axis: isize = -1, n: Option<usize> = None, norm: FftNorm = Backward) => x.fft_with_options(axis, &FftOptions { n, norm });
    ifft_with_options(x: Tensor, axis: isize = -1, n: Option<usize> = None, norm: FftNorm = Backward) => x.ifft_with_options(axis, &FftOptions { n, norm });
    irfft(x: Tensor, n: usize, axis: isize = -1) => x.irfft(n, axis);
    irfft2(x: Tensor, n: usize) => x.irfft2(n);
    irfft_with_options(x: Tensor, axis: isize = -1, n: Option<usize> = None, norm: FftNorm = Backward) => x.irfft_with_options(axis, &FftOptions { n, norm });
    rfft_with_options(x: Tensor, axis: isize = -1, n: Option<usize> = None, norm: FftNorm = Backward) => x.rfft_with_options(axis, &FftOptions { n, norm });

    // Losses and gradients.
    binary_cross_entropy_with_logits(x: Tensor, y: Tensor, weight: Option<Tensor> = None, pos_weight: Option<Tensor> = None, reduction: Reduction = Mean) =>
        x.binary_cross_entropy_with_logits(&y, &BceOptions { weight: weight.as_ref(), pos_weight: pos_weight.as_ref(), reduction });
    cosine_embedding_loss(x: Tensor, y: Tensor, target: Tensor, margin: f64 = 0.0, reduction: Reduction = Mean) => x.cosine_embedding_loss(&y, &target, margin, reduction);
    cosine_similarity(x: Tensor, y: Tensor, axis: isize = -1, epsilon: f64 = 1e-8) => x.cosine_similarity(&y, axis, epsilon);
    cross_entropy_with_options(x: Tensor, y: Tensor, label_smoothing: f64 = 0.0, weight: Option<Tensor> = None, ignore_index: Option<isize> = None, reduction: Reduction = Mean) =>
        x.cross_entropy_with_options(&y, &CrossEntropyOptions { label_smoothing, weight: weight.as_ref(), ignore_index: ignore_index.map(|class| class as i64), reduction });
    ctc_loss(x: Tensor, targets: Tensor, input_lengths: Tensor, target_lengths: Tensor, blank: usize = 0, reduction: Reduction = Mean) =>
        x.ctc_loss(&targets, &input_lengths, &target_lengths, blank, reduction);
    gradient(loss: Tensor, inputs: Tensor) => or_mistake(loss.gradients(&[&inputs]).map(|mut gradients| gradients.remove(0)));
    hessian(loss: Tensor, inputs: Tensor) => or_mistake(loss.hessian(&inputs));
    huber_loss(x: Tensor, y: Tensor, delta: f64 = 1.0, reduction: Reduction = Mean) => x.huber_loss(&y, delta, reduction);
    jacobian(x: Tensor, inputs: Tensor) => or_mistake(x.jacobian(&inputs));
};

fn or_mistake(result: Result<Tensor>) -> Tensor {
    result.unwrap_or_else(Tensor::from_mistake)
}

fn order(descending: bool) -> SortOrder {
    if descending { SortOrder::Descending } else { SortOrder::Ascending }
}

fn scatter_reduce(add: bool) -> ScatterReduce {
    if add { ScatterReduce::Add } else { ScatterReduce::Assign }
}

fn interpolate2d(x: &Tensor, size: [usize; 2], mode: ResizeMode, align_corners: bool) -> Tensor {
    let mode = match (mode, align_corners) {
        (ResizeMode::Nearest, false) => InterpolateMode::Nearest,
        (ResizeMode::Bilinear, false) => InterpolateMode::Linear(AlignCorners::No),
        (ResizeMode::Bilinear, true) => InterpolateMode::Linear(AlignCorners::Yes),
        (ResizeMode::Nearest, true) => {
            let message = "interpolate2d: align_corners applies to mode=\"bilinear\" only";
            return Tensor::from_mistake(Error::mistake(message));
        }
    };
    x.interpolate(size, mode)
}
