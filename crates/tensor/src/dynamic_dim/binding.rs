//! Patterns of dynamic lengths, without the values of the lengths: part of the keys of traces.

use panoply_ir::{DType, Result};

use super::{Dim, DynamicDim, DynamicDims, ValidLengths};
use crate::eval::topological_order;
use crate::tensor::{NodeKind, Tensor};

/// For each tensor its dynamic axes, with indices into [`lengths`] in place of the lengths, and its data-free axes;
/// empty if no tensor is dynamic.
pub(crate) type LengthPattern = Vec<(DynamicDims<u32>, Vec<usize>)>;

/// Returns the distinct dynamic lengths of the tensors.
pub(crate) fn lengths<'a>(tensors: impl IntoIterator<Item = &'a Tensor>) -> Vec<Tensor> {
    let mut found: Vec<Tensor> = Vec::new();
    let dynamic_dims = tensors
        .into_iter()
        .filter_map(|tensor| tensor.0.valid_lengths.as_ref())
        .flat_map(|valid_lengths| &valid_lengths.dynamic_dims);
    for DynamicDim { length, .. } in dynamic_dims.flatten() {
        if number(&found, length).is_none() {
            found.push(length.clone());
        }
    }
    found
}

/// Returns the pattern of tensors with these lengths.
pub(crate) fn pattern<'a>(tensors: impl Iterator<Item = &'a Tensor> + Clone, lengths: &[Tensor]) -> LengthPattern {
    if lengths.is_empty() {
        return Vec::new();
    }
    let bounds = |of: &Tensor| -> Vec<usize> {
        let dynamic_dims = of.dynamic_dims().into_iter().zip(of.0.shape.dims());
        dynamic_dims.filter_map(|(part, length)| part.map(|_| *length)).collect()
    };
    let bounds: Vec<usize> = tensors.clone().flat_map(bounds).collect();
    let one = |tensor: &Tensor| {
        let dynamic_dims: DynamicDims<u32> =
            tensor.dynamic_dims().iter().map(|part| Some(part.as_ref()?.resolve(lengths))).collect();
        let dims = tensor.0.shape.dims();
        let any =
            |axis: &usize| dynamic_dims[*axis].is_none() && bounds.contains(&dims[*axis]) && tensor.is_free(*axis);
        let any = (0..dims.len()).filter(any).collect();
        (dynamic_dims, any)
    };
    tensors.map(one).collect()
}

/// Returns which inputs are dynamic lengths of nodes that the results depend on, with their dims.
pub(crate) fn measured(results: &[Tensor], inputs: &[Tensor]) -> Vec<(usize, Dim)> {
    let single = |(_, input): &(usize, &Tensor)| input.0.shape.ndim() == 0 && input.dtype() == DType::I32;
    let singles: Vec<(usize, &Tensor)> = inputs.iter().enumerate().filter(single).collect();
    let mut found: Vec<(usize, Dim)> = Vec::new();
    if singles.is_empty() {
        return found;
    }
    let mut add = |length: &Tensor, dim: &Dim| {
        let known = singles.iter().find(|(_, input)| input.ptr_eq(length)).map(|(at, _)| (*at, dim.clone()));
        found.extend(known.filter(|known| !found.contains(known)));
    };
    let roots: Vec<&Tensor> = results.iter().collect();
    for tensor in topological_order(&roots, |tensor| tensor.0.value.get().is_some()) {
        let dynamic_dims =
            tensor.0.valid_lengths.iter().flat_map(|valid_lengths| valid_lengths.dynamic_dims.iter().flatten());
        dynamic_dims.for_each(|part| add(&part.length, &part.dim));
        if let NodeKind::Call(body, _) = &tensor.0.source {
            body.length_inputs.iter().for_each(|(at, dim)| add(&tensor.0.inputs[*at], dim));
        }
    }
    found
}

/// Returns an error if an input used as a length is a number out of range of its dim.
pub(crate) fn check_lengths<'a>(measured: &[(usize, Dim)], inputs: impl Fn(usize) -> &'a Tensor) -> Result<()> {
    let checked = |(at, dim): &(usize, Dim)| {
        inputs(*at).number().map_or(Ok(()), |length| dim.checked(length.to_i128()).map(drop))
    };
    measured.iter().try_for_each(checked)
}

fn number(lengths: &[Tensor], length: &Tensor) -> Option<u32> {
    lengths.iter().position(|known| known.is_same_length(length)).map(|at| at as u32)
}

impl DynamicDim<Tensor> {
    fn resolve(&self, lengths: &[Tensor]) -> DynamicDim<u32> {
        let length = number(lengths, &self.length).expect("the list contains every length");
        DynamicDim { dim: self.dim.clone(), multiple: self.multiple, length }
    }
}

impl ValidLengths {
    /// Returns the valid lengths of a placeholder, with `lengths` in place of the indices; `None` if it has no
    /// dynamic or data-free axes.
    pub fn bind_placeholder(
        (dynamic_dims, any): &(DynamicDims<u32>, Vec<usize>),
        lengths: &[Tensor],
    ) -> Option<Box<ValidLengths>> {
        if any.is_empty() && dynamic_dims.iter().all(Option::is_none) {
            return None;
        }
        let part = |part: &DynamicDim<u32>| DynamicDim {
            dim: part.dim.clone(),
            multiple: part.multiple,
            length: lengths[part.length as usize].clone(),
        };
        let dynamic_dims = dynamic_dims.iter().map(|own| own.as_ref().map(part)).collect();
        Some(Box::new(ValidLengths { dynamic_dims, data_free_axes: any.clone(), known: Default::default() }))
    }

    /// Returns the same with computed lengths replaced by their values.
    pub fn resolve(&self, of: &Tensor) -> Result<Option<Box<ValidLengths>>> {
        self.shape(of)?;
        let part = |part: &DynamicDim<Tensor>| {
            let length = Tensor::scalar(part.length.item::<i32>()?);
            Ok(DynamicDim { dim: part.dim.clone(), multiple: part.multiple, length })
        };
        let dynamic_dims: Result<DynamicDims> =
            self.dynamic_dims.iter().map(|own| own.as_ref().map(part).transpose()).collect();
        dynamic_dims.map(ValidLengths::of)
    }

    /// Returns the same with each length mapped.
    pub fn map_lengths(&self, to: impl Fn(&Tensor) -> Tensor) -> Option<Box<ValidLengths>> {
        let part = |part: &DynamicDim<Tensor>| DynamicDim {
            dim: part.dim.clone(),
            multiple: part.multiple,
            length: to(&part.length),
        };
        ValidLengths::of(self.dynamic_dims.iter().map(|own| own.as_ref().map(part)).collect())
    }
}

impl Tensor {
    /// Returns true if two lengths are known to be equal.
    pub(super) fn is_same_length(&self, other: &Tensor) -> bool {
        self.ptr_eq(other) || self.number().is_some_and(|number| other.number() == Some(number))
    }
}
