//! Data that tasks share: tensors of which regions are read and written.
//!
//! A datum is a list of *pieces*: regions with the values that a task wrote there, each on the device of its task. Values
//! are immutable; a write appends a piece and removes those that it covers. So tasks that write disjoint regions on different
//! devices share nothing, and only regions that a task reads are copied. The graph is responsible for the order: a read sees
//! the pieces that exist when it starts.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use panoply_tensor::ops::view::{IntoTensorIndices, TensorIndex};
use panoply_tensor::{DType, Device, Error, Result, Tensor, eval};

use crate::move_counter::MoveCounter;
use crate::span::{self, Span};

/// Maximum number of pieces that one kernel combines.
const MAX_FUSED: usize = 8;

/// A handle to data that tasks share. Clones refer to the same data.
#[derive(Clone, Debug)]
pub struct Data(pub(crate) Arc<Datum>);

/// A region of data: one span per axis.
#[derive(Clone, Debug)]
pub struct View {
    pub(crate) data: Data,
    pub(crate) region: Vec<Span>,
}

/// The result of a task, as an argument of later tasks: [`In`](crate::In)`(&future)`. Clones refer to the same result.
#[derive(Clone, Debug)]
pub struct Future(pub(crate) Data);

/// The state of [`Data`].
#[derive(Debug)]
pub(crate) struct Datum {
    /// Shape and element type; `None` for the result of a task, which has no axes for regions.
    form: Option<(Vec<usize>, DType)>,
    /// The task that created it.
    owner: Option<u64>,
    /// Pieces in the order of writes; the first one covers everything. A result has none until its task is finished.
    pieces: Mutex<Vec<Piece>>,
}

/// Values that were written together.
#[derive(Clone, Debug)]
struct Piece {
    region: Vec<Span>,
    /// The same values, one tensor on each device that has them.
    copies: Vec<Tensor>,
}

impl Data {
    /// Creates data with the values of a tensor.
    pub(crate) fn new(values: &Tensor, owner: Option<u64>) -> Result<Data> {
        let values = on_its_device(&values.detach())?;
        let shape = values.shape()?.dims().to_vec();
        let first = Piece { region: whole(&shape), copies: vec![values.clone()] };
        let form = Some((shape, values.dtype()));
        Ok(Data(Arc::new(Datum { form, owner, pieces: Mutex::new(vec![first]) })))
    }

    /// Creates data without values for the result of a task.
    pub(crate) fn unknown(owner: Option<u64>) -> Data {
        Data(Arc::new(Datum { form: None, owner, pieces: Mutex::default() }))
    }

    /// Creates the data of a result that is known already.
    pub(crate) fn of_result(value: &Tensor, owner: Option<u64>) -> Result<Data> {
        let first = Piece { region: Vec::new(), copies: vec![on_its_device(value)?] };
        Ok(Data(Arc::new(Datum { form: None, owner, pieces: Mutex::new(vec![first]) })))
    }

    /// Returns the lengths of the axes.
    pub fn shape(&self) -> &[usize] {
        self.0.form.as_ref().map_or(&[], |(shape, _)| shape)
    }

    /// Returns the element type.
    pub fn dtype(&self) -> DType {
        self.0.form.as_ref().map_or(DType::F32, |(_, dtype)| *dtype)
    }

    /// Returns a region: one range per leading axis, as for [`Tensor::slice`]; the other axes are complete. Steps are those of
    /// [`TensorIndex::Slice`].
    ///
    /// # Errors
    /// A range does not fit its axis, or is a single index, which would remove the axis.
    pub fn view(&self, ranges: impl IntoTensorIndices) -> Result<View> {
        Ok(View { data: self.clone(), region: region(self.shape(), ranges)? })
    }
}

/// Returns the region of ranges, one per leading axis, of an array of this shape.
pub(crate) fn region(shape: &[usize], ranges: impl IntoTensorIndices) -> Result<Vec<Span>> {
    let ranges = ranges.into_indices();
    if ranges.len() > shape.len() {
        return Err(Error::mistake(format!("view: {} ranges for data of shape {shape:?}", ranges.len())));
    }
    let mut region = whole(shape);
    for (axis, (range, span)) in ranges.iter().zip(&mut region).enumerate() {
        *span = resolve(range, shape[axis]).ok_or_else(|| {
            let message = format!("view: {range:?} does not fit axis {axis} of data of shape {shape:?}");
            Error::mistake(message).note("each axis needs a range, not a single index")
        })?;
    }
    Ok(region)
}

/// Returns the computed values of a tensor, which name the device of their memory: an expression without inputs fits every device,
/// its values do not.
pub(crate) fn on_its_device(values: &Tensor) -> Result<Tensor> {
    eval(&[values])?;
    match values.device() {
        Some(_) => Ok(values.clone()),
        None => Ok(Tensor::from_storage(values.storage()?, values.shape()?.clone(), values.dtype())),
    }
}

/// Returns the span of a range on an axis of this length.
fn resolve(range: &TensorIndex, len: usize) -> Option<Span> {
    let TensorIndex::Slice { start, end, step } = *range else { return None };
    let place = |position: isize| {
        let counted = if position < 0 { position + len as isize } else { position };
        usize::try_from(counted).ok().filter(|counted| *counted <= len)
    };
    let (start, end) = (start.map_or(Some(0), place)?, end.map_or(Some(len), place)?);
    (step > 0).then(|| Span { start, len: end.saturating_sub(start).div_ceil(step), step })
}

fn whole(shape: &[usize]) -> Vec<Span> {
    shape.iter().map(|len| Span::whole(*len)).collect()
}

impl From<&Data> for View {
    fn from(data: &Data) -> View {
        View { data: data.clone(), region: whole(data.shape()) }
    }
}

impl From<Data> for View {
    fn from(data: Data) -> View {
        View::from(&data)
    }
}

impl From<Future> for View {
    fn from(future: Future) -> View {
        View::from(&future.0)
    }
}

impl From<&Future> for View {
    fn from(future: &Future) -> View {
        View::from(&future.0)
    }
}

impl From<&View> for View {
    fn from(view: &View) -> View {
        view.clone()
    }
}

impl View {
    /// Returns the lengths of the axes.
    pub fn shape(&self) -> Vec<usize> {
        self.region.iter().map(|span| span.len).collect()
    }

    /// Returns shape and element type; `None` for the result of a task.
    pub(crate) fn form(&self) -> Option<(Vec<usize>, DType)> {
        self.data.0.form.as_ref().map(|(_, dtype)| (self.shape(), *dtype))
    }

    /// Returns the address of the data, which identifies them.
    pub(crate) fn datum(&self) -> usize {
        Arc::as_ptr(&self.data.0) as usize
    }

    /// Returns the task that created the data.
    pub(crate) fn owner(&self) -> Option<u64> {
        self.data.0.owner
    }

    /// Returns true if both are regions of the same data with a common element.
    pub fn overlaps(&self, other: &View) -> bool {
        Arc::ptr_eq(&self.data.0, &other.data.0) && span::overlap(&self.region, &other.region)
    }

    /// Returns the values on a device, which must be the current one; values on other devices are copied.
    pub(crate) fn read(&self, device: &Device, moves: &MoveCounter) -> Result<Tensor> {
        if self.region.iter().any(|span| span.len == 0) {
            return Ok(Tensor::zeros(self.shape(), self.data.dtype()));
        }
        let pieces = self.data.0.lock().clone();
        let covering = pieces.iter().rposition(|piece| span::contains(&piece.region, &self.region));
        // A result that the task of a dropped mesh left out has no piece.
        let covering = covering.ok_or_else(|| Error::mistake("the task of this result never ran"))?;
        let mut values = pieces[covering].read(&self.region, device, moves)?;
        let newer =
            pieces[covering + 1..].iter().filter_map(|piece| Some((piece, common(&piece.region, &self.region)?)));
        for (number, (piece, both)) in newer.enumerate() {
            let part = piece.read(&both, device, moves)?;
            values = overlaid(&values, &self.region, &part, &both);
            if number % MAX_FUSED == MAX_FUSED - 1 {
                eval(&[&values])?;
            }
        }
        eval(&[&values])?;
        self.keep(&pieces, &values);
        Ok(values)
    }

    /// Caches values for the next read, unless an overlapping region was written in the meantime.
    fn keep(&self, read: &[Piece], values: &Tensor) {
        let mut pieces = self.data.0.lock();
        let known = |piece: &Piece| read.iter().any(|read| read.copies[0].ptr_eq(&piece.copies[0]));
        if !pieces.iter().filter(|piece| span::overlap(&piece.region, &self.region)).all(known) {
            return;
        }
        match pieces.iter_mut().rfind(|piece| span::overlap(&piece.region, &self.region)) {
            Some(last) if last.region == self.region => {
                if last.copies.iter().all(|copy| copy.device() != values.device()) {
                    last.copies.push(values.clone());
                }
            }
            Some(last) if span::contains(&last.region, &self.region) => {}
            _ => Piece::add(&mut pieces, &self.region, values),
        }
    }

    /// Writes values, which have the shape and type of this view.
    pub(crate) fn write(&self, values: &Tensor) {
        if self.region.iter().any(|span| span.len == 0) {
            return;
        }
        Piece::add(&mut self.data.0.lock(), &self.region, values);
    }
}

impl Datum {
    fn lock(&self) -> MutexGuard<'_, Vec<Piece>> {
        self.pieces.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Piece {
    /// Adds a piece with the newest values of a region, and removes those that it covers.
    fn add(pieces: &mut Vec<Piece>, region: &[Span], values: &Tensor) {
        pieces.retain(|piece| !span::contains(region, &piece.region));
        pieces.push(Piece { region: region.to_vec(), copies: vec![values.clone()] });
    }

    /// Returns the values of a contained region, on a device.
    fn read(&self, region: &[Span], device: &Device, moves: &MoveCounter) -> Result<Tensor> {
        let here = self.copies.iter().find(|copy| copy.device().is_none_or(|other| other == device));
        let copy = here.unwrap_or(&self.copies[0]);
        let ranges: Vec<TensorIndex> = self.region.iter().zip(region).map(|(own, part)| within(*own, *part)).collect();
        let part = copy.slice(ranges);
        if here.is_some() {
            return Ok(part);
        }
        let from = copy.device().unwrap_or(device);
        let bytes = (part.shape()?.numel() * part.dtype().bytes()) as u64;
        moves.count(bytes, from, device, || {
            let moved = part.to(device);
            moved.check().map(|()| moved)
        })
    }
}

/// Returns the index range of `part` within a span that contains it.
pub(crate) fn within(own: Span, part: Span) -> TensorIndex {
    let index = |position| own.index_of(position).expect("the span contains the part") as isize;
    let (start, last) = (index(part.start), index(part.at(part.len - 1)));
    let step = if part.len > 1 { part.step / own.step } else { 1 };
    TensorIndex::Slice { start: Some(start), end: Some(last + 1), step }
}

/// Returns the intersection of two regions.
fn common(a: &[Span], b: &[Span]) -> Option<Vec<Span>> {
    a.iter().zip(b).map(|(a, b)| a.intersect(*b)).collect()
}

/// Returns the values of a region, replaced by `part` where both overlap.
///
/// Along each axis, an index vector selects the element of the part for each position, and a mask marks the positions that
/// have one.
fn overlaid(values: &Tensor, region: &[Span], part: &Tensor, both: &[Span]) -> Tensor {
    let (mut spread, mut covered) = (part.clone(), None::<Tensor>);
    for (axis, (own, both)) in region.iter().zip(both).enumerate() {
        let found: Vec<Option<usize>> = (0..own.len).map(|index| both.index_of(own.at(index))).collect();
        let indices: Vec<i32> = found.iter().map(|index| index.unwrap_or(0) as i32).collect();
        let mask: Vec<bool> = found.iter().map(Option::is_some).collect();
        spread = spread.index_select(axis as isize, &Tensor::from_slice(&indices, [own.len]));
        let mut around = vec![1; region.len()];
        around[axis] = own.len;
        let mask = Tensor::from_slice(&mask, around);
        covered = Some(covered.map_or(mask.clone(), |covered| covered.where_self(&mask, &Tensor::scalar(false))));
    }
    // Data without axes are covered completely or not at all.
    covered.map_or(spread.clone(), |covered| spread.where_self(&covered, values))
}
