//! Every word that may stand before `(`: one row each, which is its name, what it takes and what the library makes of that.

use panoply::DType::F32;
use panoply::Norm::Inverse;
use panoply::{
    Attention, Conv, CrossEntropy, DType, Ends, Fft, Norm, Order, Put, Result, Rotary, Tensor, Triangle, Window,
};

use super::value::{Argument, Given, Operation, Over, Parameter, Value};

const ALL: Over = Over(None);

macro_rules! operations {
    (
        of one tensor: $($one:ident)*;
        of two tensors: $($two:ident)*;
        along an axis: $($along:ident)*;
        over axes: $($over:ident)*;
        $($name:ident($($parameter:ident: $kind:ty $(= $default:expr)?),*) => $made:expr;)*
    ) => {
        &[
            $(operations!(@row $one(x: Tensor) => x.$one()),)*
            $(operations!(@row $two(x: Tensor, y: Tensor) => x.$two(&y)),)*
            $(operations!(@row $along(x: Tensor, axis: isize = -1) => x.$along(axis)),)*
            $(operations!(@row $over(x: Tensor, axis: Over = ALL) => over!(x, axis, |axes| x.$over(axes))),)*
            $(operations!(@row $name($($parameter: $kind $(= $default)?),*) => $made),)*
        ]
    };
    (@row $name:ident($($parameter:ident: $kind:ty $(= $default:expr)?),*) => $made:expr) => {
        Operation {
            name: stringify!($name),
            parameters: &[$(Parameter {
                name: stringify!($parameter),
                default: operations!(@shown $($default)?),
                many: <$kind as Argument>::MANY,
            }),*],
            apply: |given: &Given| {
                $(let $parameter: $kind = given.take(stringify!($parameter), operations!(@default $($default)?))?;)*
                Ok(Value::from($made))
            },
        }
    };
    (@shown) => { None };
    (@shown $default:expr) => { Some(stringify!($default)) };
    (@default) => { None };
    (@default $default:expr) => { Some($default) };
}

/// With as many numbers as there are: lists are arrays in the library.
macro_rules! counted {
    ($list:ident, |$array:ident| $made:expr) => {
        match *$list.as_slice() {
            [] => {
                let $array = [];
                $made
            }
            [a] => {
                let $array = [a];
                $made
            }
            [a, b] => {
                let $array = [a, b];
                $made
            }
            [a, b, c] => {
                let $array = [a, b, c];
                $made
            }
            [a, b, c, d] => {
                let $array = [a, b, c, d];
                $made
            }
            [a, b, c, d, e] => {
                let $array = [a, b, c, d, e];
                $made
            }
            [a, b, c, d, e, f] => {
                let $array = [a, b, c, d, e, f];
                $made
            }
            _ => return Err(format!("{} numbers are more than 6 axes have", $list.len())),
        }
    };
}

/// Over these axes, or over all.
macro_rules! over {
    ($x:ident, $over:ident, |$axes:ident| $made:expr) => {
        match $over.0 {
            None => {
                let $axes = ..;
                $made
            }
            Some(list) => counted!(list, |$axes| $made),
        }
    };
}

#[rustfmt::skip]
pub const OPERATIONS: &[Operation] = operations! {
    of one tensor:
        abs acos acosh asin asinh atan atanh ceil cholesky complex_abs cos cosh count_nonzero detach determinant diagonal diagonal_matrix
        eigh elu erf erfinv exp exp2 expm1 fft2 floor gelu gelu_tanh hard_sigmoid hard_swish ifft2 imaginary inverse is_finite is_nan lgamma
        ln log10 log1p log2 log_sigmoid logical_not lu mish ones_like qr real recip relu relu6 rfft2 round rsqrt selu sigmoid sign silu sin
        sinh slogdet softplus softsign sqrt square t tan tanh trace trunc zeros_like;
    of two tensors:
        atan2 bce bce_with_logits bitand bitor bitxor by_channel complex_mul cross_entropy dot eq ge gt hinge hypot kl_divergence kron l1 le
        least_squares logaddexp lt matmul maximum minimum mse ne nll outer pow shl shr solve;
    along an axis:
        argmax argmin cummax cummin cumprod cumsum diff fft flip glu ifft log_softmax logcumsumexp logsumexp logsumexp_keep mean_keep median
        rfft softmax softmin squeeze unsqueeze variance_keep;
    over axes:
        all any max mean min nanmean nansum norm prod sum;

    // Movement.
    cast(x: Tensor, dtype: DType) => x.cast(dtype);
    bitcast(x: Tensor, dtype: DType) => x.bitcast(dtype);
    concat(tensors: Vec<Tensor>, axis: isize = 0) => Tensor::concat(&tensors, axis);
    stack(tensors: Vec<Tensor>, axis: isize = 0) => Tensor::stack(&tensors, axis);
    diagonal_at(x: Tensor, offset: isize) => x.diagonal_at(offset);
    expand_to(x: Tensor, shape: Vec<usize>) => x.expand_to(&shape.into());
    flatten(x: Tensor, from: isize = 0) => x.flatten(from);
    meshgrid(vectors: Vec<Tensor>) => Tensor::meshgrid(&vectors.iter().collect::<Vec<_>>());
    move_axis(x: Tensor, from: isize, to: isize) => x.move_axis(from, to);
    narrow(x: Tensor, axis: isize, start: usize, len: usize) => x.narrow(axis, start, len);
    pad(x: Tensor, widths: Vec<[usize; 2]>) => x.pad(&widths.iter().map(|[before, after]| (*before, *after)).collect::<Vec<_>>());
    permute(x: Tensor, axes: Vec<isize>) => counted!(axes, |axes| x.permute(axes));
    repeat_each(x: Tensor, times: usize, axis: isize = -1) => x.repeat_each(times, axis);
    reshape(x: Tensor, dims: Vec<isize>) => counted!(dims, |dims| x.reshape(dims));
    roll(x: Tensor, shift: isize, axis: isize = -1) => x.roll(shift, axis);
    split(x: Tensor, lengths: Vec<usize>, axis: isize = 0) => x.split(&lengths, axis);
    tile(x: Tensor, times: usize, axis: isize = -1) => x.tile(times, axis);
    transpose(x: Tensor, a: isize = -2, b: isize = -1) => x.transpose(a, b);
    tril(x: Tensor, diagonal: isize = 0) => x.tril(diagonal);
    triu(x: Tensor, diagonal: isize = 0) => x.triu(diagonal);
    unflatten(x: Tensor, axis: isize, into: Vec<usize>) => x.unflatten(axis, &into);

    // Tensors of numbers that are known.
    eye(size: usize, dtype: DType = F32) => Tensor::eye(size, dtype);
    full(shape: Vec<usize>, value: f64) => Tensor::full(shape, value as f32);
    iota(len: usize) => Tensor::iota(len);
    linspace(start: f64, end: f64, count: usize, dtype: DType = F32) => Tensor::linspace(start, end, count, dtype);
    ones(shape: Vec<usize>, dtype: DType = F32) => Tensor::ones(shape, dtype);
    zeros(shape: Vec<usize>, dtype: DType = F32) => Tensor::zeros(shape, dtype);

    // Element by element, with numbers or conditions.
    clamp(x: Tensor, low: f64, high: f64) => x.clamp(low, high);
    complex(real: Tensor, imaginary: Tensor) => Tensor::complex(&real, &imaginary);
    leaky_relu(x: Tensor, slope: f64 = 0.01) => x.leaky_relu(slope);
    powf(x: Tensor, exponent: f64) => x.powf(exponent);
    lerp(x: Tensor, end: Tensor, share: f64) => x.lerp(&end, share);
    log(x: Tensor) => x.ln();
    masked_fill(x: Tensor, condition: Tensor, number: f64) => x.masked_fill(&condition, number);
    rsub(x: Tensor, number: f64) => x.rsub(number);
    scalar_like(x: Tensor, number: f64) => x.scalar_like(number);
    where(condition: Tensor, x: Tensor, y: Tensor) => x.where_(&condition, &y);
    where_(x: Tensor, condition: Tensor, y: Tensor) => x.where_(&condition, &y);

    // Norms and what reduces.
    batch_norm(x: Tensor, mean: Tensor, variance: Tensor, epsilon: f64 = 1e-5) => x.batch_norm(&mean, &variance, epsilon);
    group_norm(x: Tensor, groups: usize, epsilon: f64 = 1e-5) => x.group_norm(groups, epsilon);
    layer_norm(x: Tensor, epsilon: f64 = 1e-5) => x.layer_norm(epsilon);
    quantile(x: Tensor, share: f64, axis: isize = -1) => x.quantile(share, axis);
    rms_norm(x: Tensor, epsilon: f64 = 1e-5) => x.rms_norm(epsilon);
    std(x: Tensor, axis: Over = ALL, correction: usize = 1) => over!(x, axis, |axes| x.std(axes, correction));
    var(x: Tensor, axis: Over = ALL, correction: usize = 1) => over!(x, axis, |axes| x.var(axes, correction));

    // Order and places.
    argsort(x: Tensor, axis: isize = -1, descending: bool = false) => x.argsort(axis, order(descending));
    bin_count(x: Tensor, classes: usize) => x.bin_count(classes);
    index(x: Tensor, positions: Vec<Tensor>) => x.index(&positions.iter().collect::<Vec<_>>());
    index_put(x: Tensor, positions: Vec<Tensor>, values: Tensor, add: bool = false) =>
        x.index_put(&positions.iter().collect::<Vec<_>>(), &values, put(add));
    index_select(x: Tensor, axis: isize, positions: Tensor) => x.index_select(axis, &positions);
    one_hot(x: Tensor, classes: usize, dtype: DType = F32) => x.one_hot(classes, dtype);
    put_along(x: Tensor, positions: Tensor, values: Tensor, axis: isize = -1, add: bool = false) =>
        x.put_along(&positions, &values, axis, put(add));
    scatter_add(x: Tensor, axis: isize, positions: Tensor, rows: Tensor) => x.scatter_add(axis, &positions, &rows);
    search_sorted(x: Tensor, values: Tensor, or_equal: bool = false) => x.search_sorted(&values, or_equal);
    sort(x: Tensor, axis: isize = -1, descending: bool = false) => x.sort(axis, order(descending));
    take_along(x: Tensor, positions: Tensor, axis: isize = -1) => x.take_along(&positions, axis);
    top_k(x: Tensor, count: usize, axis: isize = -1) => x.top_k(count, axis);
    write(x: Tensor, axis: isize, position: Tensor, part: Tensor) => x.write(axis, &position, &part);

    // Matrices, filters and attention.
    adaptive_average_pool2d(x: Tensor, sizes: [usize; 2]) => x.adaptive_average_pool(sizes);
    adaptive_max_pool2d(x: Tensor, sizes: [usize; 2]) => x.adaptive_max_pool(sizes);
    attention(q: Tensor, k: Tensor, v: Tensor, causal: bool = false, past: usize = 0, mask: Option<Tensor> = None, scale: Option<f64> = None) =>
        q.attention(&k, &v, &Attention { causal, past, mask: mask.as_ref(), scale });
    average_pool1d(x: Tensor, size: [usize; 1], stride: Option<[usize; 1]> = None, padding: [usize; 1] = [0], dilation: [usize; 1] = [1]) =>
        x.average_pool(&Window { size, stride: stride.unwrap_or(size), dilation }, padding);
    average_pool2d(x: Tensor, size: [usize; 2], stride: Option<[usize; 2]> = None, padding: [usize; 2] = [0, 0], dilation: [usize; 2] = [1, 1]) =>
        x.average_pool(&Window { size, stride: stride.unwrap_or(size), dilation }, padding);
    cdist(x: Tensor, y: Tensor, power: f64 = 2.0) => x.cdist(&y, power);
    conv1d(x: Tensor, w: Tensor, stride: [usize; 1] = [1], padding: [usize; 1] = [0], dilation: [usize; 1] = [1], groups: usize = 1) =>
        x.conv(&w, &Conv { stride, padding, dilation, groups });
    conv2d(x: Tensor, w: Tensor, stride: [usize; 2] = [1, 1], padding: [usize; 2] = [0, 0], dilation: [usize; 2] = [1, 1], groups: usize = 1) =>
        x.conv(&w, &Conv { stride, padding, dilation, groups });
    conv3d(x: Tensor, w: Tensor, stride: [usize; 3] = [1, 1, 1], padding: [usize; 3] = [0, 0, 0], dilation: [usize; 3] = [1, 1, 1], groups: usize = 1) =>
        x.conv(&w, &Conv { stride, padding, dilation, groups });
    conv_transposed1d(x: Tensor, w: Tensor, stride: [usize; 1] = [1], padding: [usize; 1] = [0], extra: [usize; 1] = [0], groups: usize = 1, dilation: [usize; 1] = [1]) =>
        x.conv_transposed(&w, &Conv { stride, padding, dilation, groups }, extra);
    conv_transposed2d(x: Tensor, w: Tensor, stride: [usize; 2] = [1, 1], padding: [usize; 2] = [0, 0], extra: [usize; 2] = [0, 0], groups: usize = 1, dilation: [usize; 2] = [1, 1]) =>
        x.conv_transposed(&w, &Conv { stride, padding, dilation, groups }, extra);
    cross(x: Tensor, y: Tensor, axis: isize = -1) => x.cross(&y, axis);
    einsum(formula: String, operands: Vec<Tensor>) => Tensor::einsum(&formula, &operands.iter().collect::<Vec<_>>());
    max_pool1d(x: Tensor, size: [usize; 1], stride: Option<[usize; 1]> = None, padding: [usize; 1] = [0], dilation: [usize; 1] = [1]) =>
        x.max_pool(&Window { size, stride: stride.unwrap_or(size), dilation }, padding);
    max_pool2d(x: Tensor, size: [usize; 2], stride: Option<[usize; 2]> = None, padding: [usize; 2] = [0, 0], dilation: [usize; 2] = [1, 1]) =>
        x.max_pool(&Window { size, stride: stride.unwrap_or(size), dilation }, padding);
    resize_linear2d(x: Tensor, lengths: [usize; 2], middles: bool = false) =>
        x.resize_linear(lengths, if middles { Ends::Middles } else { Ends::Edges });
    resize_nearest2d(x: Tensor, lengths: [usize; 2]) => x.resize_nearest(lengths);
    rope(x: Tensor, positions: Tensor, base: f64 = 10000.0, pairs: bool = false) =>
        x.rope(&positions, base, if pairs { Rotary::Pairs } else { Rotary::Halves });
    solve_triangular(x: Tensor, right: Tensor, upper: bool = false) =>
        x.solve_triangular(&right, if upper { Triangle::Upper } else { Triangle::Lower });
    windows2d(x: Tensor, size: [usize; 2], stride: [usize; 2] = [1, 1], dilation: [usize; 2] = [1, 1]) =>
        x.windows(&Window { size, stride, dilation });

    // Fourier transforms.
    fft_with(x: Tensor, axis: isize = -1, length: Option<usize> = None, norm: Norm = Inverse) => x.fft_with(axis, &Fft { length, norm });
    ifft_with(x: Tensor, axis: isize = -1, length: Option<usize> = None, norm: Norm = Inverse) => x.ifft_with(axis, &Fft { length, norm });
    irfft(x: Tensor, length: usize, axis: isize = -1) => x.irfft(length, axis);
    irfft2(x: Tensor, length: usize) => x.irfft2(length);
    irfft_with(x: Tensor, axis: isize = -1, length: Option<usize> = None, norm: Norm = Inverse) => x.irfft_with(axis, &Fft { length, norm });
    rfft_with(x: Tensor, axis: isize = -1, length: Option<usize> = None, norm: Norm = Inverse) => x.rfft_with(axis, &Fft { length, norm });

    // Losses and gradients.
    cosine_embedding(x: Tensor, y: Tensor, alike: Tensor, margin: f64 = 0.0) => x.cosine_embedding(&y, &alike, margin);
    cosine_similarity(x: Tensor, y: Tensor, epsilon: f64 = 1e-8) => x.cosine_similarity(&y, epsilon);
    cross_entropy_with(x: Tensor, y: Tensor, smoothing: f64 = 0.0, weights: Option<Tensor> = None, ignore: Option<isize> = None) =>
        x.cross_entropy_with(&y, &CrossEntropy { smoothing, weights: weights.as_ref(), ignore: ignore.map(|class| class as i64) });
    ctc(x: Tensor, targets: Tensor, times: Tensor, lengths: Tensor, blank: usize = 0) => x.ctc(&targets, &times, &lengths, blank);
    gradient(loss: Tensor, by: Tensor) => or_mistake(loss.gradients(&[&by]).map(|mut gradients| gradients.remove(0)));
    hessian(loss: Tensor, by: Tensor) => or_mistake(loss.hessian(&by));
    huber(x: Tensor, y: Tensor, delta: f64 = 1.0) => x.huber(&y, delta);
    jacobian(x: Tensor, by: Tensor) => or_mistake(x.jacobian(&by));
};

fn or_mistake(made: Result<Tensor>) -> Tensor {
    made.unwrap_or_else(Tensor::from_mistake)
}

fn order(descending: bool) -> Order {
    if descending { Order::Descending } else { Order::Ascending }
}

fn put(add: bool) -> Put {
    if add { Put::Add } else { Put::Replace }
}
