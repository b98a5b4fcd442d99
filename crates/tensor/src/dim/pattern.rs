//! Where tensors end, apart from how long they are: what functions that are traced once are kept under.

use super::{Live, Part, Parts};
use crate::tensor::Tensor;

/// What is there of several tensors, with numbers of [`lengths`] in place of them, and which axes are as good for any length; empty
/// if all is there.
pub(crate) type Pattern = Vec<(Parts<u32>, Vec<usize>)>;

/// The lengths that tensors have, each once.
pub(crate) fn lengths<'a>(tensors: impl IntoIterator<Item = &'a Tensor>) -> Vec<Tensor> {
    let mut found: Vec<Tensor> = Vec::new();
    let parts = tensors.into_iter().filter_map(|tensor| tensor.0.live.as_ref()).flat_map(|live| &live.parts);
    for Part { length, .. } in parts.flatten() {
        if number(&found, length).is_none() {
            found.push(length.clone());
        }
    }
    found
}

/// Where tensors of these lengths end.
pub(crate) fn pattern<'a>(tensors: impl Iterator<Item = &'a Tensor> + Clone, lengths: &[Tensor]) -> Pattern {
    if lengths.is_empty() {
        return Vec::new();
    }
    let bounds = |of: &Tensor| -> Vec<usize> {
        let parts = of.parts().into_iter().zip(of.0.shape.dims());
        parts.filter_map(|(part, length)| part.map(|_| *length)).collect()
    };
    let bounds: Vec<usize> = tensors.clone().flat_map(bounds).collect();
    let one = |tensor: &Tensor| {
        let parts: Parts<u32> = tensor.parts().iter().map(|part| Some(part.as_ref()?.numbered(lengths))).collect();
        let dims = tensor.0.shape.dims();
        let any = |axis: &usize| parts[*axis].is_none() && bounds.contains(&dims[*axis]) && tensor.is_free(*axis);
        let any = (0..dims.len()).filter(any).collect();
        (parts, any)
    };
    tensors.map(one).collect()
}

fn number(lengths: &[Tensor], length: &Tensor) -> Option<u32> {
    lengths.iter().position(|known| known.is_same_length(length)).map(|at| at as u32)
}

impl Part<Tensor> {
    fn numbered(&self, lengths: &[Tensor]) -> Part<u32> {
        let length = number(lengths, &self.length).expect("every length is among them");
        Part { dim: self.dim.clone(), each: self.each, length }
    }
}

impl Live {
    /// What is there of a stand-in for a tensor, with these in place of the lengths.
    pub fn standing((parts, any): &(Parts<u32>, Vec<usize>), lengths: &[Tensor]) -> Box<Live> {
        let part = |part: &Part<u32>| Part {
            dim: part.dim.clone(),
            each: part.each,
            length: lengths[part.length as usize].clone(),
        };
        let parts = parts.iter().map(|own| own.as_ref().map(part)).collect();
        Box::new(Live { parts, any: any.clone(), known: Default::default() })
    }

    /// The same with other lengths.
    pub fn moved(&self, to: impl Fn(&Tensor) -> Tensor) -> Option<Box<Live>> {
        let part = |part: &Part<Tensor>| Part { dim: part.dim.clone(), each: part.each, length: to(&part.length) };
        Live::of(self.parts.iter().map(|own| own.as_ref().map(part)).collect())
    }
}

impl Tensor {
    /// Whether two lengths are known to be equal.
    pub(super) fn is_same_length(&self, other: &Tensor) -> bool {
        self.is_same(other) || self.number().is_some_and(|number| other.number() == Some(number))
    }
}
