//! Evaluation of graphs; no other module runs them.
//!
//! [Tracing](tracing) copies the part without values into a dense graph, from which [`plan_cache`] makes a plan.

mod tracing;

use std::panic::Location;
use std::sync::Arc;

use panoply_ir::{Element, Error, ErrorKind, Result, Scalar};
use panoply_runtime::{Buffer, Device, Readback, Storage};

pub use self::tracing::TracedGraph;
use self::tracing::upload;
pub(crate) use self::tracing::{
    Leaf, Number, TraceBindings, TracedFunction, TracedNodes, describe, topological_order, upload_table,
};
use crate::hasher::NodeSet;
use crate::plan_cache::{self, OutputParts};
use crate::tensor::{NodeKind, Tensor};

impl Tensor {
    /// Computes the value now if it is not computed yet.
    ///
    /// # Errors
    /// A mistake in the expression, or a failure of the device.
    pub fn eval(&self) -> Result<()> {
        eval(&[self])
    }

    /// Returns true if the value is computed, so that reading it computes nothing.
    pub fn is_evaluated(&self) -> bool {
        self.0.value.get().is_some()
    }

    /// Returns the buffer of the value, row-major, computing it first if necessary. The buffer is the tensor's
    /// memory: writing to it changes the tensor.
    ///
    /// # Errors
    /// As [`Tensor::eval`].
    pub fn storage(&self) -> Result<Storage> {
        let whole = self.whole_storage()?;
        let Some(valid_lengths) = &self.0.valid_lengths else { return Ok(whole) };
        match valid_lengths.is_prefix(self)? {
            true => whole.slice(0..(self.shape()?.numel() * self.dtype().bytes()) as u64),
            false => self.to_static_shape().storage(),
        }
    }

    /// Returns the buffer including the padding of dynamic dimensions.
    fn whole_storage(&self) -> Result<Storage> {
        self.eval()?;
        Ok(self.0.value.get().expect("an evaluated tensor has its value").clone())
    }

    /// Copies the value to the host: elements in row-major order, little-endian.
    ///
    /// # Errors
    /// As [`Tensor::eval`], or the host is out of memory.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        // Evaluated before the host allocation, so that the device reports a tensor that is too large.
        self.eval()?;
        let mut bytes = on_host(self.shape()?.numel() * self.dtype().bytes())?;
        self.read_into(&mut bytes)?;
        Ok(bytes)
    }

    /// Copies the bytes of the valid elements into `bytes`.
    fn read_into(&self, bytes: &mut [u8]) -> Result<()> {
        match &self.0.valid_lengths {
            Some(valid_lengths) if !valid_lengths.is_prefix(self)? => {
                let mut whole = on_host(self.0.shape.numel() * self.dtype().bytes())?;
                self.whole_storage()?.read_bytes(&mut whole)?;
                valid_lengths.gather(self, &whole, bytes)
            }
            _ => self.storage()?.read_bytes(bytes),
        }
    }

    /// Copies the elements to the host in row-major order.
    ///
    /// # Errors
    /// `T` is not the element type, or [`Tensor::to_bytes`] fails.
    #[doc(alias = "tolist")]
    #[doc(alias = "numpy")]
    #[track_caller]
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        self.check_holds::<T>("to_vec")?;
        self.eval()?;
        let mut elements = on_host(self.shape()?.numel())?;
        T::read_into(&mut elements, |bytes| self.read_into(bytes))?;
        Ok(elements)
    }

    /// Copies the elements in row-major order into `elements`, which has as many.
    ///
    /// # Errors
    /// `T` is not the element type, the numbers of elements differ, or the evaluation fails.
    #[doc(alias = "copyto")]
    #[track_caller]
    pub fn copy_to_slice<T: Element>(&self, elements: &mut [T]) -> Result<()> {
        self.check_holds::<T>("copy_to_slice")?;
        let count = self.shape()?.numel();
        if elements.len() != count {
            let message = format!("copy_to_slice: {self:?} has {count} elements, the slice has {}", elements.len());
            return Err(Error::mistake(message).with_location(Location::caller()));
        }
        self.eval()?;
        T::read_into(elements, |bytes| self.read_into(bytes))
    }

    /// Starts an asynchronous copy of the elements to the host, in row-major order. Block on it with `wait` or
    /// `.await` it; browsers require `.await`.
    ///
    /// ```
    /// # use panoply_tensor::Tensor;
    /// let reading = (Tensor::from_slice(&[1.0f32, 2.0], [2]) * 3.0).read_async::<f32>()?;
    /// assert_eq!(reading.wait()?, [3.0, 6.0]);
    /// # Ok::<(), panoply_tensor::Error>(())
    /// ```
    ///
    /// # Errors
    /// `T` is not the element type, or the evaluation fails.
    #[doc(alias = "non_blocking")]
    #[track_caller]
    pub fn read_async<T: Element>(&self) -> Result<Readback<T>> {
        self.check_holds::<T>("read")?;
        Buffer::from_storage(self.storage()?)?.read_async()
    }

    #[track_caller]
    fn check_holds<T: Element>(&self, what: &str) -> Result<()> {
        self.check()?;
        if T::DTYPE != self.dtype() {
            let message = format!("{what}: {self:?} does not hold {}; cast it first", T::DTYPE);
            return Err(Error::mistake(message).with_location(Location::caller()));
        }
        Ok(())
    }

    /// Returns the only element as a number of any type that can represent it: floats round to any float type, integers
    /// convert without loss, bools only to `bool`.
    ///
    /// ```
    /// # use panoply_tensor::Tensor;
    /// let x = Tensor::from_slice(&[3i64, 9], [2]);
    /// assert_eq!(x.argmax(..).item::<usize>()?, 1);
    /// assert_eq!(x.sum(..).item::<f64>()?, 12.0);
    /// assert!(x.eq(3).any(..).item::<bool>()?);
    /// # Ok::<(), panoply_tensor::Error>(())
    /// ```
    ///
    /// # Errors
    /// The tensor does not have exactly one element, `T` cannot represent it, or the evaluation fails.
    #[track_caller]
    pub fn item<T: TryFrom<Scalar, Error = Error>>(&self) -> Result<T> {
        self.check()?;
        if self.shape()?.numel() != 1 {
            let message = format!("item: {self:?} is not a single number");
            return Err(Error::mistake(message).with_location(Location::caller()));
        }
        let mut word = [0; 8];
        self.read_into(&mut word[..self.dtype().bytes()])?;
        let place = Location::caller();
        let number = T::try_from(Scalar { dtype: self.dtype(), bits: u64::from_le_bytes(word) });
        number.map_err(|error| Error::mistake(format!("item: {}", error.message())).with_location(place))
    }

    /// Copies the tensor to another device. Returns the same handle if it is there already.
    #[track_caller]
    pub fn to(&self, device: &Device) -> Tensor {
        if self.is_mistake() || self.device().is_none_or(|here| here == device) {
            return self.clone();
        }
        let copied = self.whole_storage().and_then(|storage| {
            let copy = device.allocate(storage.bytes())?;
            copy.copy_from(&storage)?;
            let valid_lengths =
                self.0.valid_lengths.as_ref().map(|valid_lengths| valid_lengths.resolve(self)).transpose()?.flatten();
            Ok((copy, valid_lengths))
        });
        match copied {
            Ok((storage, valid_lengths)) => {
                Tensor::from_storage_unchecked_shape(storage, self.0.shape.clone(), self.dtype(), valid_lengths)
            }
            Err(error) => Tensor::mistake(error),
        }
    }
}

/// Allocates `count` zeros on the host.
pub(crate) fn on_host<T: bytemuck::Zeroable + Clone>(count: usize) -> Result<Vec<T>> {
    let short = |_| {
        let bytes = count.saturating_mul(size_of::<T>());
        Error::new(
            ErrorKind::OutOfMemory,
            format!("the host cannot allocate {bytes} bytes for the elements of a tensor"),
        )
    };
    Vec::<T>::new().try_reserve_exact(count).map_err(short)?;
    // Not the memory allocated above: zeroed memory from the system is not written again.
    Ok(vec![T::zeroed(); count])
}

/// Evaluates several tensors, in one plan for each device. On error either all or none of the tensors of a device
/// have values.
///
/// # Errors
/// A mistake in an expression, or a failure of a device.
pub fn eval(roots: &[&Tensor]) -> Result<()> {
    roots.iter().try_for_each(|root| root.check())?;
    let mut waiting: Vec<&Tensor> = roots.iter().copied().filter(|root| root.0.value.get().is_none()).collect();
    while let Some(first) = waiting.first() {
        let device = first.0.device.clone().map_or_else(Device::current, Ok)?;
        let (here, elsewhere): (Vec<&Tensor>, Vec<&Tensor>) =
            waiting.into_iter().partition(|root| root.0.device.as_ref().is_none_or(|other| *other == device));
        eval_on(&device, &here, |_| Vec::new())?;
        waiting = elsewhere;
    }
    Ok(())
}

/// Evaluates the tensors of several parts in one plan, and calls `on_part` with the number of each part, in order, once its tensors have
/// values. A CPU computes the tensors of later parts after the call, unless it tries variants of kernels in this run. Another device computes
/// all of them first, and tensors on several devices are all evaluated before the first call.
///
/// # Errors
/// As [`eval`], or `on_part` failed, which ends the evaluation.
pub fn eval_in_parts(parts: &[&[&Tensor]], mut on_part: impl FnMut(usize) -> Result<()>) -> Result<()> {
    let roots = parts.concat();
    roots.iter().try_for_each(|root| root.check())?;
    let device = roots.iter().find_map(|root| root.0.device.clone()).map_or_else(Device::current, Ok)?;
    if roots.iter().any(|root| root.0.device.as_ref().is_some_and(|other| *other != device)) {
        eval(&roots)?;
        return (0..parts.len()).try_for_each(on_part);
    }
    eval_parts_on(&device, parts, |_| Vec::new(), &mut on_part)
}

/// Evaluates tensors on one device. `donated` returns the donated leaves of the traced graph.
pub(crate) fn eval_on(
    device: &Device,
    roots: &[&Tensor],
    donated: impl FnOnce(&TracedNodes<'_>) -> Vec<u32>,
) -> Result<()> {
    eval_parts_on(device, &[roots], donated, &mut |_| Ok(()))
}

fn eval_parts_on(
    device: &Device,
    parts: &[&[&Tensor]],
    donated: impl FnOnce(&TracedNodes<'_>) -> Vec<u32>,
    on_part: &mut dyn FnMut(usize) -> Result<()>,
) -> Result<()> {
    let mut roots = parts.concat();
    // Uploads need no plan.
    for root in &roots {
        match &root.0.source {
            NodeKind::Host(bytes) => drop(upload(device, &root.0, bytes)?),
            NodeKind::Table(_) => drop(upload_table(device, root)?),
            _ => {}
        }
    }
    roots.retain(|root| root.0.value.get().is_none());
    if roots.is_empty() {
        return (0..parts.len()).try_for_each(on_part);
    }
    let mut traced = TracedGraph::with_donation(device, &roots, donated)?;
    let ready = plan_cache::lookup_or_compile(device, std::mem::take(&mut traced.graph))?;
    traced.upload_tables(device, |leaf| ready.reads(leaf))?;
    let TracedGraph { leaves, slots, roots, .. } = traced;
    let ends = part_ends(parts, &roots);
    let mut on_outputs = |part: usize, outputs: &[Storage]| {
        for (root, storage) in roots.iter().zip(outputs) {
            let _ = root.0.value.set(storage.clone());
        }
        on_part(part)
    };
    ready.run_in_parts(device, leaves, &slots, &mut OutputParts::new(&ends, &mut on_outputs))
}

/// Returns for each part the number of roots up to its end. The roots are in the order of the parts, each once.
fn part_ends(parts: &[&[&Tensor]], roots: &[&Tensor]) -> Vec<usize> {
    let Some((_, earlier)) = parts.split_last() else { return Vec::new() };
    let mut end = 0;
    let ends = earlier.iter().map(|part| {
        let own: NodeSet = part.iter().map(|root| Arc::as_ptr(&root.0)).collect();
        end += roots[end..].iter().take_while(|root| own.contains(&Arc::as_ptr(&root.0))).count();
        end
    });
    ends.collect::<Vec<usize>>().into_iter().chain([roots.len()]).collect()
}
