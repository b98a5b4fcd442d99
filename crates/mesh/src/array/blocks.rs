//! Blocks of a distributed array: creation, and regions that are put together from several blocks.

use std::sync::Arc;

use panoply_tensor::{DType, Result, Tensor};

use super::layout::{Layout, positions, strides};
use super::{DArray, checked, lengths, name};
use crate::arguments::In;
use crate::data::{Future, within};
use crate::mesh::Mesh;
use crate::place::Place;
use crate::span::Span;

impl DArray {
    /// Creates an array whose blocks `make` computes from their regions.
    pub(super) fn create(
        mesh: &Mesh,
        shape: Vec<usize>,
        dtype: DType,
        layout: &Layout,
        operation: &str,
        make: impl Fn(&[Span]) -> Tensor + Clone + Send + 'static,
    ) -> Result<DArray> {
        DArray::unfilled(mesh, mesh.places()?, shape, dtype, layout)?.fill(operation, dtype, make)
    }

    /// Returns an array with the same shape and layout whose blocks `make` computes from their regions.
    pub(super) fn fill(
        &self,
        operation: &str,
        dtype: DType,
        make: impl Fn(&[Span]) -> Tensor + Clone + Send + 'static,
    ) -> Result<DArray> {
        let mut array = self.unfilled_like(dtype);
        for (number, at) in self.block_positions().into_iter().enumerate() {
            if let Some(m) = self.mesh_at(&at) {
                let (region, make, form) = (self.region(&at), make.clone(), array.form(&at));
                array.blocks[number] =
                    Some(m.spawn(&name(operation, &at), (), move |()| checked(make(&region), &form))?);
            }
        }
        Ok(array)
    }

    /// Creates an array without blocks.
    pub(super) fn unfilled(
        mesh: &Mesh,
        places: Arc<[Place]>,
        shape: Vec<usize>,
        dtype: DType,
        layout: &Layout,
    ) -> Result<DArray> {
        let layout = layout.resolved(&shape, places.len())?;
        let blocks = vec![None; layout.counts(&shape).iter().product()];
        Ok(DArray { mesh: mesh.clone(), places, shape, dtype, layout, blocks })
    }

    /// Creates an array without blocks of the same shape and layout.
    pub(super) fn unfilled_like(&self, dtype: DType) -> DArray {
        DArray { dtype, blocks: vec![None; self.blocks.len()], ..self.clone() }
    }

    /// Returns the positions of all blocks in row-major order.
    pub(super) fn block_positions(&self) -> Vec<Vec<usize>> {
        positions(&self.block_counts())
    }

    /// Returns the number of a block.
    pub(super) fn number(&self, at: &[usize]) -> usize {
        at.iter().zip(strides(&self.block_counts())).map(|(at, stride)| at * stride).sum()
    }

    pub(super) fn region(&self, at: &[usize]) -> Vec<Span> {
        self.layout.region(&self.shape, at)
    }

    /// Returns shape and type of a block.
    pub(super) fn form(&self, at: &[usize]) -> (Vec<usize>, DType) {
        (lengths(&self.region(at)), self.dtype)
    }

    pub(super) fn place_of(&self, at: &[usize]) -> &Place {
        &self.places[self.layout.place(at)]
    }

    /// Returns the mesh with the device of a block as its scope, if the block belongs to this rank.
    pub(super) fn mesh_at(&self, at: &[usize]) -> Option<Mesh> {
        let place = self.place_of(at);
        (place.rank == self.mesh.rank()).then(|| self.mesh.only(place.index))
    }

    /// Returns a tensor with the number of axes and the type of this array, for tracing a function.
    pub(super) fn example(&self) -> Tensor {
        Tensor::zeros(vec![1; self.shape.len()], self.dtype)
    }

    /// Returns a region in a layout. Each block is put together from the blocks that it overlaps.
    pub(super) fn select(&self, region: &[Span], layout: &Layout, operation: &str) -> Result<DArray> {
        let mut result = DArray::unfilled(&self.mesh, self.places.clone(), lengths(region), self.dtype, layout)?;
        for (number, at) in result.block_positions().into_iter().enumerate() {
            // The part of this array that the block consists of.
            let inside = result.region(&at);
            let wanted = region.iter().zip(&inside);
            let wanted: Vec<Span> = wanted
                .map(|(whole, part)| Span { start: whole.at(part.start), len: part.len, step: whole.step })
                .collect();
            let touched: Vec<Vec<usize>> =
                wanted.iter().enumerate().map(|(axis, span)| self.touched(axis, *span)).collect();
            let counts: Vec<usize> = touched.iter().map(Vec::len).collect();
            let owner = result.place_of(&at).rank;
            let mut parts: Vec<Future> = Vec::new();
            for pick in positions(&counts) {
                let source: Vec<usize> = pick.iter().zip(&touched).map(|(pick, blocks)| blocks[*pick]).collect();
                let part = self.part(&source, &wanted, owner, operation)?;
                parts.extend(part);
            }
            if let Some(m) = result.mesh_at(&at) {
                let form = result.form(&at);
                let inputs: Vec<In<Future>> = parts.into_iter().map(In).collect();
                let body =
                    move |parts: Vec<&Tensor>| checked(join(parts.into_iter().cloned().collect(), &counts), &form);
                result.blocks[number] = Some(m.spawn(&name(operation, &at), inputs, body)?);
            }
        }
        Ok(result)
    }

    /// Returns the indices along an axis of the blocks that contain positions of a span.
    fn touched(&self, axis: usize, span: Span) -> Vec<usize> {
        let (block, count) = (self.layout.block()[axis], self.block_counts()[axis]);
        let of = |at: usize| Span { start: at * block, len: block.min(self.shape[axis] - at * block), step: 1 };
        (0..count).filter(|at| of(*at).intersect(span).is_some()).collect()
    }

    /// Returns the common part of a block and a region on the rank that needs it.
    fn part(&self, source: &[usize], wanted: &[Span], to: usize, operation: &str) -> Result<Option<Future>> {
        let own = self.region(source);
        let common: Option<Vec<Span>> = own.iter().zip(wanted).map(|(own, wanted)| own.intersect(*wanted)).collect();
        let Some(common) = common else { return Ok(None) };
        let form = (lengths(&common), self.dtype);
        let mut part = None;
        if let (Some(m), Some(block)) = (self.mesh_at(source), &self.blocks[self.number(source)]) {
            part = Some(match common == own {
                true => block.clone(),
                false => {
                    let ranges: Vec<_> = own.iter().zip(&common).map(|(own, part)| within(*own, *part)).collect();
                    m.spawn(&name(operation, source), In(block), move |x| x.slice(ranges))?
                }
            });
        }
        self.share_of(source, part, &form, |rank| rank == to, operation)
    }
}

/// Joins tensors that are the parts of one, in row-major order of their positions.
pub(super) fn join(mut parts: Vec<Tensor>, counts: &[usize]) -> Tensor {
    for (axis, count) in counts.iter().enumerate().rev().filter(|(_, count)| **count > 1) {
        parts = parts.chunks(*count).map(|parts| Tensor::concat(parts, axis as isize)).collect();
    }
    parts.swap_remove(0)
}
