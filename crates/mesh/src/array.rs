//! Distributed arrays: blocks that live on the devices of a mesh and on the ranks of a launcher.
//!
//! All ranks make the same calls in the same order. Each rank creates and computes only its own blocks, as tasks on the device of
//! each block; a block that another rank needs is sent to it. Which block is sent when follows from shapes and layouts alone. Sums
//! over blocks are added in the order of blocks, so results do not depend on the number of places.

mod blocks;
mod exchange;
mod layout;
mod linalg;
mod random;
mod reduce;

use std::fmt;
use std::panic::Location;
use std::sync::Arc;

use panoply_ir::Scalar;
use panoply_tensor::ops::view::IntoTensorIndices;
use panoply_tensor::{DType, Error, Result, Shape, Tensor};

use crate::arguments::In;
use crate::data::{self, Future};
use crate::mesh::Mesh;
use crate::place::Place;
use crate::span::Span;

pub use layout::Layout;

/// Largest number of elements of a random array: positions are 32-bit numbers.
const MAX_RANDOM: usize = 1 << 32;

/// A distributed array. Operations return at once, as those of tensors do; a failure is reported when values are read. Clones
/// refer to the same blocks.
///
/// ```
/// use panoply_mesh::{DArray, Layout, Mesh};
///
/// let mesh = Mesh::open()?;
/// let a = DArray::uniform(&mesh, 7, [100, 80], &Layout::blocks([32, 32]))?;
/// let b = DArray::uniform(&mesh, 8, [80, 60], &Layout::blocks([32, 32]))?;
/// let product = a.matmul(&b)?.collect()?;
/// let plain = a.collect()?.matmul(&b.collect()?);
/// assert!((product - plain).abs().max(..).item::<f64>()? < 1e-4);
/// # Ok::<(), panoply_tensor::Error>(())
/// ```
#[derive(Clone)]
pub struct DArray {
    mesh: Mesh,
    places: Arc<[Place]>,
    shape: Vec<usize>,
    dtype: DType,
    layout: Layout,
    /// The blocks in row-major order; `None` on other ranks.
    blocks: Vec<Option<Future>>,
}

impl fmt::Debug for DArray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (blocks, places) = (self.blocks.len(), self.places.len());
        write!(f, "DArray({} {:?}, {blocks} blocks on {places} places)", self.dtype, self.shape)
    }
}

impl DArray {
    // Creation.

    /// Creates an array whose elements equal `value`, allocated where its blocks live.
    ///
    /// # Errors
    /// The layout does not fit the shape.
    #[track_caller]
    pub fn full(mesh: &Mesh, shape: impl Into<Shape>, value: impl Into<Scalar>, layout: &Layout) -> Result<DArray> {
        let (shape, value) = (shape.into().dims().to_vec(), value.into());
        record(mesh, || format!("full({shape:?}, {value:?}, {:?})", layout.block()));
        let make = move |region: &[Span]| Tensor::full(lengths(region), value);
        DArray::create(mesh, shape, value.dtype, layout, "full", make)
    }

    /// Creates an array of zeros.
    ///
    /// # Errors
    /// As of [`DArray::full`].
    #[track_caller]
    pub fn zeros(mesh: &Mesh, shape: impl Into<Shape>, dtype: DType, layout: &Layout) -> Result<DArray> {
        DArray::full(mesh, shape, Scalar::from_i128(dtype, 0), layout)
    }

    /// Creates an array of ones.
    ///
    /// # Errors
    /// As of [`DArray::full`].
    #[track_caller]
    pub fn ones(mesh: &Mesh, shape: impl Into<Shape>, dtype: DType, layout: &Layout) -> Result<DArray> {
        DArray::full(mesh, shape, Scalar::from_i128(dtype, 1), layout)
    }

    /// Creates f32 numbers uniformly distributed in [0, 1): those of [`panoply_tensor::Rng::uniform`] with this seed, in every layout.
    ///
    /// # Errors
    /// The layout does not fit the shape, or the array has more than 2³² elements.
    #[track_caller]
    pub fn uniform(mesh: &Mesh, seed: u64, shape: impl Into<Shape>, layout: &Layout) -> Result<DArray> {
        let shape = random_shape(shape)?;
        let whole = shape.clone();
        record(mesh, || format!("uniform({seed}, {shape:?}, {:?})", layout.block()));
        DArray::create(mesh, shape, DType::F32, layout, "uniform", move |region| random::uniform(seed, &whole, region))
    }

    /// Creates f32 numbers with mean 0 and variance 1: those of [`panoply_tensor::Rng::normal`] with this seed, in every layout.
    ///
    /// # Errors
    /// As of [`DArray::uniform`].
    #[track_caller]
    pub fn normal(mesh: &Mesh, seed: u64, shape: impl Into<Shape>, layout: &Layout) -> Result<DArray> {
        let shape = random_shape(shape)?;
        let whole = shape.clone();
        record(mesh, || format!("normal({seed}, {shape:?}, {:?})", layout.block()));
        DArray::create(mesh, shape, DType::F32, layout, "normal", move |region| random::normal(seed, &whole, region))
    }

    /// Distributes a tensor, which all ranks must have. Each rank copies only its own blocks.
    ///
    /// # Errors
    /// The layout does not fit the shape, or the tensor cannot be computed.
    #[track_caller]
    pub fn distribute(mesh: &Mesh, values: &Tensor, layout: &Layout) -> Result<DArray> {
        let shape = values.shape()?.dims().to_vec();
        record(mesh, || format!("distribute({shape:?}, {:?})", layout.block()));
        let whole = mesh.data(values)?;
        let mut array = DArray::unfilled(mesh, mesh.places()?, shape, values.dtype(), layout)?;
        for (number, at) in array.block_positions().into_iter().enumerate() {
            if let Some(m) = array.mesh_at(&at) {
                let view = data::View { data: whole.clone(), region: array.region(&at) };
                array.blocks[number] = Some(m.spawn(&name("distribute", &at), In(view), |part| part.clone())?);
            }
        }
        Ok(array)
    }

    /// Creates an array of zeros with the same shape, type and layout.
    ///
    /// # Errors
    /// None at present; a failure is reported when values are read.
    pub fn similar(&self) -> Result<DArray> {
        let dtype = self.dtype;
        self.fill("similar", dtype, move |region| Tensor::zeros(lengths(region), dtype))
    }

    // Properties.

    /// Returns the lengths of the axes.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Returns the element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns the layout.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns the number of blocks along each axis.
    pub fn block_counts(&self) -> Vec<usize> {
        self.layout.counts(&self.shape)
    }

    /// Returns the place where a block lives.
    ///
    /// # Errors
    /// The block does not exist.
    pub fn place(&self, block: &[usize]) -> Result<&Place> {
        let counts = self.block_counts();
        if block.len() != counts.len() || block.iter().zip(&counts).any(|(at, count)| at >= count) {
            return Err(Error::mistake(format!(
                "place: block {block:?} does not exist; the array has {counts:?} blocks"
            )));
        }
        Ok(self.place_of(block))
    }

    // Element-wise operations.

    /// Applies a function to each block, which must keep the shape: `a.map(|x| x.exp() + 1.0)`.
    ///
    /// # Errors
    /// The function changes the shape, or its expression is wrong.
    #[track_caller]
    pub fn map<F>(&self, function: F) -> Result<DArray>
    where
        F: Fn(&Tensor) -> Tensor + Clone + Send + 'static,
    {
        record(&self.mesh, || format!("map({:?})", self.shape));
        let example = function(&self.example());
        check_example("map", &example, self.shape.len())?;
        let mut result = self.unfilled_like(example.dtype());
        for (number, at) in self.block_positions().into_iter().enumerate() {
            if let (Some(m), Some(block)) = (self.mesh_at(&at), &self.blocks[number]) {
                let (function, form) = (function.clone(), result.form(&at));
                let body = move |x: &Tensor| checked(function(x), &form);
                result.blocks[number] = Some(m.spawn(&name("map", &at), In(block), body)?);
            }
        }
        Ok(result)
    }

    /// Applies a function to the blocks of two arrays at the same position: `a.zip(&b, |x, y| x * y)`. Axes of length 1 of the
    /// second array are broadcast. If its blocks differ, it is moved to the layout of the first one.
    ///
    /// # Errors
    /// The shapes do not fit, or the expression of the function is wrong.
    #[track_caller]
    pub fn zip<F>(&self, other: &DArray, function: F) -> Result<DArray>
    where
        F: Fn(&Tensor, &Tensor) -> Tensor + Clone + Send + 'static,
    {
        record(&self.mesh, || format!("zip({:?}, {:?})", self.shape, other.shape));
        let fits = |(a, b): (&usize, &usize)| a == b || *b == 1;
        if self.shape.len() != other.shape.len() || !self.shape.iter().zip(&other.shape).all(fits) {
            let message = format!("zip: an array of shape {:?} does not fit one of {:?}", other.shape, self.shape);
            return Err(Error::mistake(message).note("only axes of length 1 of the second array are broadcast"));
        }
        let example = function(&self.example(), &other.example());
        check_example("zip", &example, self.shape.len())?;
        let blocks =
            self.layout.block().iter().zip(&other.shape).map(|(block, len)| if *len == 1 { 1 } else { *block });
        let aligned = other.to(&self.layout.with_block(blocks.collect()))?;
        let mut result = self.unfilled_like(example.dtype());
        for (number, at) in self.block_positions().into_iter().enumerate() {
            let there: Vec<usize> =
                at.iter().zip(&other.shape).map(|(at, len)| if *len == 1 { 0 } else { *at }).collect();
            let own = self.place_of(&at).rank;
            let second = aligned.share(&there, |rank| rank == own, "zip")?;
            if let (Some(m), Some(first), Some(second)) = (self.mesh_at(&at), &self.blocks[number], second) {
                let (function, form) = (function.clone(), result.form(&at));
                let body = move |(x, y): (&Tensor, &Tensor)| checked(function(x, y), &form);
                result.blocks[number] = Some(m.spawn(&name("zip", &at), (In(first), In(&second)), body)?);
            }
        }
        Ok(result)
    }

    // Rearrangement.

    /// Moves the array to another layout.
    ///
    /// # Errors
    /// The layout does not fit the shape.
    #[track_caller]
    pub fn to(&self, layout: &Layout) -> Result<DArray> {
        record(&self.mesh, || format!("to({:?}, {:?})", self.shape, layout.block()));
        let layout = layout.resolved(&self.shape, self.places.len())?;
        if layout == self.layout {
            return Ok(self.clone());
        }
        let whole: Vec<Span> = self.shape.iter().map(|len| Span::whole(*len)).collect();
        self.select(&whole, &layout, "to")
    }

    /// Returns a region, one range per leading axis as for [`data::Data::view`], in blocks of the same lengths.
    ///
    /// # Errors
    /// A range does not fit its axis, or is a single index.
    #[track_caller]
    pub fn slice(&self, ranges: impl IntoTensorIndices) -> Result<DArray> {
        let region = data::region(&self.shape, ranges)?;
        record(&self.mesh, || format!("slice({:?}, {region:?})", self.shape));
        self.select(&region, &self.layout, "slice")
    }

    /// Transposes a matrix. No block moves to another place.
    ///
    /// # Errors
    /// The array does not have two axes.
    #[track_caller]
    pub fn t(&self) -> Result<DArray> {
        record(&self.mesh, || format!("t({:?})", self.shape));
        let &[rows, columns] = self.shape.as_slice() else {
            return Err(Error::mistake(format!("t: the array has shape {:?}, not two axes", self.shape)));
        };
        let layout = self.layout.transposed();
        let mut result = DArray::unfilled(&self.mesh, self.places.clone(), vec![columns, rows], self.dtype, &layout)?;
        for (number, at) in self.block_positions().into_iter().enumerate() {
            if let (Some(m), Some(block)) = (self.mesh_at(&at), &self.blocks[number]) {
                let other = result.number(&[at[1], at[0]]);
                result.blocks[other] = Some(m.spawn(&name("t", &at), In(block), Tensor::t)?);
            }
        }
        Ok(result)
    }

    /// Returns all elements as a tensor on the first device of the mesh, on every rank.
    ///
    /// # Errors
    /// A task that computes a block failed.
    #[track_caller]
    pub fn collect(&self) -> Result<Tensor> {
        record(&self.mesh, || format!("collect({:?})", self.shape));
        let mut parts = Vec::new();
        for at in self.block_positions() {
            parts.push(self.share_value(&at, |_| true, "collect")?);
        }
        let device = self.mesh.first_device();
        let parts = parts.into_iter().flatten().map(|part| Ok(part?.to(&device)));
        let parts = parts.collect::<Result<Vec<Tensor>>>()?;
        device.scope(|| {
            let joined = match parts.is_empty() {
                true => Tensor::zeros(self.shape.clone(), self.dtype),
                false => blocks::join(parts, &self.block_counts()),
            };
            joined.eval()?;
            Ok(joined)
        })
    }
}

/// Records an operation that all ranks begin, with the line that calls it, so that ranks that run different programs are found.
#[track_caller]
fn record(mesh: &Mesh, operation: impl FnOnce() -> String) {
    let place = Location::caller();
    // Tasks run within their rank.
    if let Some(group) = mesh.group().filter(|_| mesh.task().is_none()) {
        let operation = operation();
        let name = format!("{operation} at {}:{}", place.file(), place.line());
        group.record(&operation, name);
    }
}

/// Names a task after an operation and a block: `map(0,1)`.
fn name(operation: &str, at: &[usize]) -> String {
    let at: Vec<String> = at.iter().map(usize::to_string).collect();
    format!("{operation}({})", at.join(","))
}

fn lengths(region: &[Span]) -> Vec<usize> {
    region.iter().map(|span| span.len).collect()
}

fn random_shape(shape: impl Into<Shape>) -> Result<Vec<usize>> {
    let shape = shape.into();
    if shape.numel() > MAX_RANDOM {
        return Err(Error::mistake(format!("a random array has at most {MAX_RANDOM} elements, not {}", shape.numel())));
    }
    Ok(shape.dims().to_vec())
}

/// Checks the result of a function on an example with axes of length 1.
fn check_example(operation: &str, result: &Tensor, axes: usize) -> Result<()> {
    if *result.shape()?.dims() != *vec![1; axes] {
        let message = format!("{operation}: the function changes the shape of a block to {:?}", result.shape()?.dims());
        return Err(Error::mistake(message).note("use a function of each element"));
    }
    Ok(())
}

/// Returns a value that has this shape and type.
fn checked(value: Tensor, (shape, dtype): &(Vec<usize>, DType)) -> Result<Tensor> {
    if value.shape()?.dims() != shape || value.dtype() != *dtype {
        return Err(Error::mistake(format!("a block of {dtype} of shape {shape:?} cannot become {value:?}")));
    }
    Ok(value)
}
