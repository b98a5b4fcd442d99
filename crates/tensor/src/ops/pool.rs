//! Pooling over windows, and adaptive pooling to a given size.

mod options;

use panoply_ir::graph::Slice;
use panoply_ir::kernel::ReduceOp;
use panoply_ir::routine::{self, PoolAxis, Routine};
use panoply_ir::{DType, Error, Shape};

use super::window::Window;
use crate::call::CompositeOp;
use crate::tensor::Tensor;
pub use options::{AvgPoolOptions, MaxPoolOptions};

/// Maximum number of window elements that are combined by an expression with a term for each; larger windows use a
/// loop.
const MAX_ELEMS: usize = 32;

impl Tensor {
    /// Returns the maximum of each window over the last N axes; padding is -∞. Equal maxima share the gradient.
    #[doc(alias = "max_pool1d")]
    #[doc(alias = "max_pool2d")]
    #[doc(alias = "max_pool3d")]
    #[track_caller]
    pub fn max_pool<const N: usize>(&self, window: &Window<N>) -> Tensor {
        self.max_pool_with_options(window, &MaxPoolOptions::default())
    }

    /// [`Tensor::max_pool`] with the options of PyTorch's `max_pool1d` to `max_pool3d`.
    #[track_caller]
    pub fn max_pool_with_options<const N: usize>(&self, window: &Window<N>, options: &MaxPoolOptions) -> Tensor {
        let padded = match self.pool_widths("max_pool", window, options.ceil_mode) {
            Ok(widths) => self.padded_around(&widths, f64::NEG_INFINITY),
            Err(mistake) => return mistake,
        };
        let window = &window.of_padded();
        if window.elems() > MAX_ELEMS {
            return padded.unfold(window).over_last::<N>(ReduceOp::Max);
        }
        Tensor::call_with_vjp(
            "max_pool",
            [&padded],
            *window,
            |[x], window| x.pooled(window, |a, b| a.maximum(b)),
            |[x], y, g, window| [Some(max_pool_backward(x, y, g, window))],
        )
    }

    /// Returns the mean of each window over the last N axes of floats; padding is zeros, which count as elements.
    #[doc(alias = "avg_pool1d")]
    #[doc(alias = "avg_pool2d")]
    #[doc(alias = "avg_pool3d")]
    #[track_caller]
    pub fn avg_pool<const N: usize>(&self, window: &Window<N>) -> Tensor {
        if let Err(mistake) = self.check_float("avg_pool") {
            return mistake;
        }
        let (padded, window) = (self.padded_with(&window.padding, 0.0), &window.of_padded());
        padded.in_f32(|padded| {
            if window.elems() > MAX_ELEMS {
                let sums = padded.unfold(window).over_last::<N>(ReduceOp::Sum);
                return &sums / sums.literal(window.elems() as f64);
            }
            Tensor::call_with_vjp(
                "avg_pool",
                [padded],
                *window,
                |[x], window| x.pooled(window, |a, b| a + b) / x.literal(window.elems() as f64),
                |[x], _, g, window| [Some(avg_pool_backward(x, g, window))],
            )
        })
    }

    /// Returns means over the last N axes of floats, divided into `output_size` parts. If a length is not a multiple of its
    /// size, the parts overlap, as in PyTorch.
    #[doc(alias = "adaptive_avg_pool1d")]
    #[doc(alias = "adaptive_avg_pool2d")]
    #[doc(alias = "adaptive_avg_pool3d")]
    #[track_caller]
    pub fn adaptive_avg_pool<const N: usize>(&self, output_size: [usize; N]) -> Tensor {
        if let Err(mistake) = self.check_float("adaptive_avg_pool") {
            return mistake;
        }
        self.in_f32(|x| x.adaptive_pool(output_size, ReduceOp::Sum))
    }

    /// Returns maxima over the last N axes, divided into `output_size` parts; see [`Tensor::adaptive_avg_pool`].
    #[doc(alias = "adaptive_max_pool1d")]
    #[doc(alias = "adaptive_max_pool2d")]
    #[doc(alias = "adaptive_max_pool3d")]
    #[track_caller]
    pub fn adaptive_max_pool<const N: usize>(&self, output_size: [usize; N]) -> Tensor {
        self.adaptive_pool(output_size, ReduceOp::Max)
    }

    #[track_caller]
    fn adaptive_pool<const N: usize>(&self, sizes: [usize; N], op: ReduceOp) -> Tensor {
        if self.is_mistake() {
            return self.clone();
        }
        let rank = self.0.shape.ndim();
        if rank < N || sizes.contains(&0) || self.0.shape.dims()[rank - N..].contains(&0) {
            return Tensor::mistake(Error::mistake(format!("adaptive pool: {self:?} cannot be pooled to {sizes:?}")));
        }
        if let Err(mistake) = self.check_static("adaptive pool", rank - N..rank) {
            return mistake;
        }
        // Parts of equal length are disjoint, and are combined by one reduction.
        let (outer, lengths) = self.0.shape.dims().split_at(rank - N);
        let even = |along: usize| lengths[along].is_multiple_of(sizes[along]);
        let split = |along: usize| {
            if even(along) { [sizes[along], lengths[along] / sizes[along]] } else { [lengths[along], 1] }
        };
        let apart: Vec<usize> = outer.iter().copied().chain((0..N).flat_map(split)).collect();
        let parts = (0..N).map(|along| rank - N + 2 * along + 1);
        let length: usize = (0..N).map(|along| split(along)[1]).product();
        let kept: Vec<usize> = outer.iter().copied().chain((0..N).map(|along| split(along)[0])).collect();
        // The axes are reduced one after another, from the outermost, which reads contiguous rows and leaves less for
        // the others. A single part is reduced at once.
        let apart = self.reshaped(apart.into());
        let combined = if sizes == [1; N] {
            apart.reduced(op, parts.collect())
        } else {
            parts.fold(apart, |combined, axis| combined.reduced(op, vec![axis]))
        };
        let mut pooled = combined.reshaped(kept.into());
        if op == ReduceOp::Sum && length > 1 {
            pooled = &pooled / pooled.literal(length as f64);
        }
        for along in (0..N).filter(|along| !even(*along)) {
            if pooled.is_mistake() {
                return pooled;
            }
            pooled = pooled.parts_along(rank - N + along, sizes[along], op);
        }
        pooled
    }

    /// Pools an axis of length n: part p covers `floor(p · n / parts) .. ceil((p + 1) · n / parts)`.
    #[track_caller]
    fn parts_along(&self, axis: usize, parts: usize, op: ReduceOp) -> Tensor {
        let dims = self.0.shape.dims();
        let length = dims[axis];
        let part = Tensor::places(parts, length).unsqueeze(1);
        let number = |value: usize| part.literal(value as f64);
        let start = &part * number(length) / number(parts);
        let end = ((&part + number(1)) * number(length) + number(parts - 1)) / number(parts);
        let place = Tensor::arange(length).cast(part.dtype()).unsqueeze(0);
        let inside = place.ge(&start).bitwise_and(&place.lt(&end));
        let mut around = vec![1; dims.len() + 1];
        (around[axis], around[axis + 1]) = (parts, length);
        let inside = inside.reshaped(Shape::new(around));
        let neutral = if op == ReduceOp::Max && self.dtype() != DType::Bool { f64::NEG_INFINITY } else { 0.0 };
        let chosen = self.unsqueeze(axis as isize).where_self(&inside, &self.literal(neutral));
        let combined = chosen.reduced(op, vec![axis + 1]).squeeze(axis as isize + 1);
        if op == ReduceOp::Max {
            return combined;
        }
        let mut counts = vec![1; dims.len()];
        counts[axis] = parts;
        combined / (end - start).reshaped(Shape::new(counts)).cast(self.dtype())
    }

    /// Returns the sum of each window over the last N axes.
    #[track_caller]
    fn window_sums<const N: usize>(&self, window: &Window<N>) -> Tensor {
        if window.elems() > MAX_ELEMS {
            return self.unfold(window).over_last::<N>(ReduceOp::Sum);
        }
        Tensor::call_with_vjp(
            "sum_pool",
            [self],
            *window,
            |[x], window| x.pooled(window, |a, b| a + b),
            |[x], _, g, window| [Some(sum_gradient(x, g, window))],
        )
    }

    /// Combines the elements of each window over the last N axes, one axis after another. For windows of a few
    /// elements this is elementwise work on strided views without a loop inside a work-item.
    #[track_caller]
    fn pooled<const N: usize>(&self, window: &Window<N>, combine: fn(&Tensor, &Tensor) -> Tensor) -> Tensor {
        let counts = match self.window_counts(window) {
            Ok(counts) => counts,
            Err(mistake) => return mistake,
        };
        let lead = self.0.shape.ndim() - N;
        let mut pooled = self.clone();
        for (along, count) in counts.into_iter().enumerate() {
            if pooled.is_mistake() {
                return pooled;
            }
            let part = |element: usize| {
                let mut slices = pooled.whole();
                let start = element * window.dilation[along];
                slices[lead + along] = Slice { start, step: window.stride[along] as isize, len: count };
                pooled.sliced(slices)
            };
            pooled = (1..window.kernel_size[along]).fold(part(0), |sum, element| combine(&sum, &part(element)));
        }
        pooled
    }

    /// Reduces the last N axes, which are removed.
    fn over_last<const N: usize>(&self, op: ReduceOp) -> Tensor {
        if self.is_mistake() {
            return self.clone();
        }
        let kept = self.0.shape.ndim() - N;
        let shape = Shape::from(&self.0.shape.dims()[..kept]);
        self.reduced(op, (kept..kept + N).collect()).reshaped(shape)
    }

    /// Returns the element at `place` of each window.
    fn part<const N: usize>(&self, window: &Window<N>, place: [usize; N]) -> Tensor {
        let Ok(counts) = self.window_counts(window) else { return self.clone() };
        let lead = self.0.shape.ndim() - N;
        let mut slices = self.whole();
        for (along, count) in counts.into_iter().enumerate() {
            let step = window.stride[along] as isize;
            slices[lead + along] = Slice { start: place[along], step, len: count };
        }
        self.sliced(slices)
    }

    /// Scatters one number for each window to the window's element at `place`, in a tensor like `whole` with zeros
    /// elsewhere.
    fn put_at<const N: usize>(&self, window: &Window<N>, place: [usize; N], whole: &Tensor) -> Tensor {
        let lead = self.0.shape.ndim() - N;
        let mut put = self.clone();
        let mut widths = vec![(0, 0); lead];
        for (along, before) in place.into_iter().enumerate() {
            put = put.spread_along(lead + along, window.stride[along]);
            let (length, filled) = (whole.0.shape.dims()[lead + along], put.0.shape.dims()[lead + along]);
            widths.push((before, length - before - filled));
        }
        put.pad(&widths)
    }

    /// Scatters one number for each window to all elements of the window, in a tensor like `whole`; windows are
    /// adjacent and disjoint.
    fn put_at_all<const N: usize>(&self, window: &Window<N>, whole: &Tensor) -> Tensor {
        let lead = self.0.shape.ndim() - N;
        let mut put = self.clone();
        let mut widths = vec![(0, 0); lead];
        for along in 0..N {
            let axis = lead + along;
            let dims = put.0.shape.dims().to_vec();
            let size = window.kernel_size[along];
            let apart = Shape::new([&dims[..axis + 1], &[size], &dims[axis + 1..]].concat());
            let joined = Shape::new([&dims[..axis], &[dims[axis] * size], &dims[axis + 1..]].concat());
            put = put.unsqueeze(axis as isize + 1).expanded(&apart).reshaped(joined);
            widths.push((0, whole.0.shape.dims()[axis] - dims[axis] * size));
        }
        put.pad(&widths)
    }

    /// Pads the last N axes with `value` on both sides.
    #[track_caller]
    pub(crate) fn padded_with(&self, padding: &[usize], value: f64) -> Tensor {
        self.padded_around(&padding.iter().map(|width| (*width, *width)).collect::<Vec<_>>(), value)
    }

    /// Pads the last axes with `value` before and after; bools with false, their minimum.
    #[track_caller]
    pub(super) fn padded_around(&self, padding: &[(usize, usize)], value: f64) -> Tensor {
        if self.is_mistake() || padding.iter().all(|widths| *widths == (0, 0)) {
            return self.clone();
        }
        let Some(lead) = self.0.shape.ndim().checked_sub(padding.len()) else {
            return Tensor::mistake(Error::mistake(format!("{} paddings for {self:?}", padding.len())));
        };
        let widths: Vec<(usize, usize)> = std::iter::repeat_n((0, 0), lead).chain(padding.iter().copied()).collect();
        let padded = self.pad(&widths);
        if value == 0.0 || self.dtype() == DType::Bool {
            return padded;
        }
        let inside = Tensor::ones(self.0.shape.clone(), DType::Bool).pad(&widths);
        padded.where_self(&inside, &self.literal(value))
    }
}

/// Computes [`max_gradient`], with a routine where a device has one.
fn max_pool_backward<const N: usize>(x: &Tensor, y: &Tensor, g: &Tensor, window: &Window<N>) -> Tensor {
    let [grad] = CompositeOp {
        name: "max_pool_gradient",
        body: |[x, y, g], window: &Window<N>| [max_gradient(x, y, g, window)],
        gradient: None,
        routine: |[x, y, _], window| routine(x, y, window).map(Routine::MaxPoolBackward),
    }
    .apply([x, y, g], *window);
    grad
}

/// Returns the parameters of the equivalent routine; `None` for more than three axes.
fn routine<const N: usize>(x: &Tensor, y: &Tensor, window: &Window<N>) -> Option<routine::Pool> {
    let (lengths, positions) = (x.0.shape.dims(), y.0.shape.dims());
    let (lead, missing) = (lengths.len() - N, 3usize.checked_sub(N)?);
    let axes = std::array::from_fn(|axis| match axis.checked_sub(missing) {
        None => PoolAxis::NONE,
        Some(along) => PoolAxis {
            length: lengths[lead + along],
            size: window.kernel_size[along],
            positions: positions[lead + along],
            stride: window.stride[along],
            dilation: window.dilation[along],
        },
    });
    Some(routine::Pool { dtype: x.dtype(), planes: lengths[..lead].iter().product(), axes })
}

/// Returns the gradient of max pooling: each window's cotangent goes to its largest elements, shared equally.
fn max_gradient<const N: usize>(x: &Tensor, y: &Tensor, g: &Tensor, window: &Window<N>) -> Tensor {
    let hit = |place: [usize; N]| x.part(window, place).eq(y);
    let hits = window.places().map(|place| hit(place).cast(g.dtype())).reduce(|sum, hit| sum + hit);
    let share = hits.map_or_else(|| g.clone(), |hits| g / hits);
    let zero = g.literal(0.0);
    if window.is_apart() {
        let largest = x.eq(&y.put_at_all(window, x));
        return share.put_at_all(window, x).where_self(&largest, &zero);
    }
    let parts = window.places().map(|place| share.where_self(&hit(place), &zero).put_at(window, place, x));
    parts.reduce(|sum, part| sum + part).unwrap_or_else(|| x.zeros_like())
}

/// Returns the gradient of average pooling: each window's cotangent is distributed equally over its elements.
fn avg_pool_backward<const N: usize>(x: &Tensor, g: &Tensor, window: &Window<N>) -> Tensor {
    sum_gradient(x, &(g / g.literal(window.elems() as f64)), window)
}

/// Returns the gradient of sums over windows: each window's cotangent goes to each of its elements.
fn sum_gradient<const N: usize>(x: &Tensor, share: &Tensor, window: &Window<N>) -> Tensor {
    if window.is_apart() {
        return share.put_at_all(window, x);
    }
    let parts = window.places().map(|place| share.put_at(window, place, x));
    parts.reduce(|sum, part| sum + part).unwrap_or_else(|| x.zeros_like())
}
