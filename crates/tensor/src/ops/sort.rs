//! Sorting along an axis, with a library routine where a device has one. Elsewhere short rows are sorted by counting:
//! the position of an element is the number of elements before it. This takes two fused sums without data-dependent
//! movement; its work is quadratic in the row length. Longer rows use the [`bitonic`] network, except 64-bit types,
//! which are counted. Sorting is stable and deterministic on every device.

mod bitonic;

use panoply_ir::kernel::ReduceOp;
use panoply_ir::routine::{Routine, Sort};
use panoply_ir::{DType, Error};

use super::axes::{Axes, ReduceAxes};
use crate::call::CompositeOp;
use crate::tensor::Tensor;

/// Maximum row length that is sorted by counting on devices without a sorting routine.
const COUNTED: usize = 64;

/// Direction of sorting. NaN counts as larger than everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SortOrder {
    /// Ascending, NaN last.
    Ascending,
    /// Descending, NaN first.
    Descending,
}

/// Elements along an axis and their positions.
#[derive(Clone, Debug)]
pub struct ValuesWithIndices {
    /// The elements.
    pub values: Tensor,
    /// The position of each along the axis, as i32.
    pub indices: Tensor,
}

impl ValuesWithIndices {
    pub(crate) fn mistake(mistake: Tensor) -> ValuesWithIndices {
        ValuesWithIndices { values: mistake.clone(), indices: mistake }
    }
}

impl Tensor {
    /// Sorts the elements along an axis. The sort is stable. [`Tensor::argsort`] gives the positions.
    #[track_caller]
    pub fn sort(&self, axis: isize, order: SortOrder) -> Tensor {
        self.sorted("sort", axis, order, None).0
    }

    /// Returns the positions (i32) of the elements along an axis in sorted order.
    #[track_caller]
    pub fn argsort(&self, axis: isize, order: SortOrder) -> Tensor {
        self.sorted("argsort", axis, order, None).1
    }

    /// Returns the `k` largest elements along an axis in descending order, and their positions.
    #[track_caller]
    pub fn topk(&self, k: usize, axis: isize) -> ValuesWithIndices {
        let (values, indices) = self.sorted("topk", axis, SortOrder::Descending, Some(k));
        ValuesWithIndices { values, indices }
    }

    /// Returns the median over axes: the lower of two middle elements, NaN if one element is NaN. Along one axis,
    /// [`Tensor::argsort`] gives its position.
    #[track_caller]
    pub fn median(&self, axes: impl Into<Axes>) -> Tensor {
        let (axes, merged) = match self.merged_over("median", axes) {
            Ok(merged) => merged,
            Err(mistake) => return mistake,
        };
        if let Some(axis) = axes.axes.iter().find(|axis| self.0.shape.dims()[**axis] == 0) {
            return self.nothing_along("median", *axis);
        }
        let (sorted, length) = (merged.sorted("median", -1, SortOrder::Ascending, None).0, rows_of(&merged).1);
        let at = |place: usize| sorted.narrow(-1, place, 1).squeeze(-1);
        let middle = at((length - 1) / 2);
        // NaN is last.
        let last = at(length - 1);
        let median = if self.dtype().is_float() { last.where_self(&last.ne(&last), &middle) } else { middle };
        median.with_merged(self, &axes)
    }

    /// Returns the `q`-quantile over axes, with linear interpolation; `q` is from 0 to 1. NaN if one element is NaN.
    #[track_caller]
    pub fn quantile(&self, q: f64, axes: impl Into<Axes>) -> Tensor {
        let (axes, merged) = match self.merged_over("quantile", axes) {
            Ok(merged) => merged,
            Err(mistake) => return mistake,
        };
        let length = rows_of(&merged).1;
        if !(0.0..=1.0).contains(&q) || length == 0 || !self.dtype().is_float() {
            let along = match &axes.axes[..] {
                [axis] => format!("axis {axis}"),
                axes => format!("axes {axes:?}"),
            };
            let message = format!("quantile: {self:?} has no quantile {q} along {along}");
            let note = "it needs q from 0 to 1 and at least one float";
            return Tensor::mistake(Error::mistake(message).note(note));
        }
        let (sorted, at) = (merged.sorted("quantile", -1, SortOrder::Ascending, None).0, q * (length - 1) as f64);
        let element = |place: usize| sorted.narrow(-1, place, 1).squeeze(-1);
        let [low, high] = [at.floor(), at.ceil()].map(|at| element(at as usize));
        let between = if at == at.floor() { low } else { low.lerp(&high, at - at.floor()) };
        // NaN is last.
        let last = element(length - 1);
        between.where_self(&last.eq(&last), &last).with_merged(self, &axes)
    }

    /// Returns the axes of a reduction, and this tensor with them merged into a last axis.
    #[track_caller]
    fn merged_over(&self, op: &str, axes: impl Into<Axes>) -> Result<(ReduceAxes, Tensor), Tensor> {
        let axes = self.reduce_axes(op, axes)?;
        let merged = self.merged_last(op, &axes)?;
        if merged.is_mistake() { Err(merged) } else { Ok((axes, merged)) }
    }

    #[track_caller]
    fn sorted(&self, op: &str, axis: isize, order: SortOrder, count: Option<usize>) -> (Tensor, Tensor) {
        let place = match self.static_axis(op, axis) {
            Ok(place) => place,
            Err(mistake) => return (mistake.clone(), mistake),
        };
        let length = self.0.shape.dims()[place];
        let wanted = count.unwrap_or(length);
        if wanted > length {
            let message =
                format!("{op}: axis {axis} of {self:?} has {length} elements, fewer than the requested {wanted}");
            let mistake = Tensor::mistake(Error::mistake(message));
            return (mistake.clone(), mistake);
        }
        if let Err(mistake) = self.has_positions(op, place) {
            return (mistake.clone(), mistake);
        }
        // Bools are sorted as the numbers 0 and 1.
        if self.dtype() == DType::Bool {
            let (values, positions) = self.cast(DType::U8).sorted(op, axis, order, count);
            return (values.cast(DType::Bool), positions);
        }
        let count = wanted;
        let last = self.transpose(place as isize, -1);
        let [values, positions] = in_order(&last, order, count);
        (values.transpose(place as isize, -1), positions.transpose(place as isize, -1))
    }

    /// Returns the number of elements of the last axis that come before each element.
    fn ranks(&self, order: SortOrder) -> Tensor {
        let (mine, theirs) = (self.unsqueeze(-1), self.unsqueeze(-2));
        let (mine_nan, theirs_nan) = (mine.ne(&mine), theirs.ne(&theirs));
        let less = match order {
            SortOrder::Ascending => theirs.lt(&mine).bitwise_or(&mine_nan.bitwise_and(&theirs_nan.bitwise_not())),
            SortOrder::Descending => mine.lt(&theirs).bitwise_or(&theirs_nan.bitwise_and(&mine_nan.bitwise_not())),
        };
        let places = Tensor::arange(self.0.shape.dims()[self.0.shape.ndim() - 1]);
        let earlier = places.unsqueeze(0).lt(&places.unsqueeze(1));
        let equal = mine.eq(&theirs).bitwise_or(&mine_nan.bitwise_and(&theirs_nan));
        let before = less.bitwise_or(&equal.bitwise_and(&earlier)).cast(DType::I32);
        before.reduced(ReduceOp::Sum, vec![self.0.shape.ndim()]).squeeze(-1)
    }
}

/// Returns the first `count` elements of the last axis in sorted order, and their positions.
#[track_caller]
fn in_order(x: &Tensor, order: SortOrder, count: usize) -> [Tensor; 2] {
    CompositeOp {
        name: "sort",
        body: |[x], (descending, count): &(bool, usize)| {
            let way = if rows_of(x).1 > COUNTED && bitonic::takes(x) { bitonic::in_order } else { by_counting };
            way(x, order_of(*descending), *count)
        },
        gradient: Some(|[x], _, g, (descending, count)| {
            let [_, positions] = in_order(x, order_of(*descending), *count);
            [Some(backward(x, &positions, g))]
        }),
        routine: |[x], (descending, count)| {
            let (rows, length) = rows_of(x);
            Some(Routine::Sort(Sort { dtype: x.dtype(), rows, length, count: *count, descending: *descending }))
        },
    }
    .apply_batched([x], (order == SortOrder::Descending, count))
}

fn order_of(descending: bool) -> SortOrder {
    if descending { SortOrder::Descending } else { SortOrder::Ascending }
}

/// Returns the number of rows along the last axis, and their length.
fn rows_of(x: &Tensor) -> (usize, usize) {
    let (length, lead) = x.0.shape.dims().split_last().expect("there is an axis to sort along");
    (lead.iter().product(), *length)
}

/// Returns the gradient: scatters `g` to these positions.
fn backward(x: &Tensor, positions: &Tensor, g: &Tensor) -> Tensor {
    let (_, length) = rows_of(x);
    if rows_of(positions).1 == length {
        // Sorting the positions gives the inverse permutation.
        let [_, places] = in_order(positions, SortOrder::Ascending, length);
        return g.take_along_dim(&places, -1);
    }
    let hit = positions.unsqueeze(-2).eq(&Tensor::arange(length).unsqueeze(1));
    g.unsqueeze(-2).where_self(&hit, &g.literal(0.0)).sum(-1)
}

/// Sorts by counting the elements before each.
fn by_counting(x: &Tensor, order: SortOrder, count: usize) -> [Tensor; 2] {
    // Result positions along the second last axis, elements along the last one.
    let hit = x.ranks(order).unsqueeze(-2).eq(&Tensor::arange(count).unsqueeze(1));
    let gathered = |values: Tensor| values.where_self(&hit, &values.literal(0.0)).sum(-1);
    [gathered(x.unsqueeze(-2)), gathered(Tensor::arange(rows_of(x).1))]
}
