//! Blocks that other ranks need. All ranks make these calls in the same order with the same arguments.

use panoply_tensor::{DType, Result, Tensor};

use super::{DArray, name};
use crate::data::{Data, Future};

impl DArray {
    /// Returns a block on the ranks for which `needs` is true and on its owner; it is sent to the others among them.
    pub(super) fn share(&self, at: &[usize], needs: impl Fn(usize) -> bool, operation: &str) -> Result<Option<Future>> {
        self.share_of(at, self.blocks[self.number(at)].clone(), &self.form(at), needs, operation)
    }

    /// Like [`DArray::share`], for a value of the rank of a block that is not the block itself.
    pub(super) fn share_of(
        &self,
        at: &[usize],
        own: Option<Future>,
        form: &(Vec<usize>, DType),
        needs: impl Fn(usize) -> bool,
        operation: &str,
    ) -> Result<Option<Future>> {
        let received = self.transfer(at, own.as_ref(), form, needs, operation)?;
        let received = received.map(|value| match value {
            Ok(value) => Ok(Future(Data::of_result(&value, self.mesh.task())?)),
            // Whatever needs the value fails with the error of the rank that sent it.
            Err(error) => self.mesh.spawn(&name("receive", at), (), move |()| -> Result<Tensor> { Err(error) }),
        });
        Ok(own.or(received.transpose()?))
    }

    /// Returns the values of a block on the ranks for which `needs` is true.
    pub(super) fn share_value(
        &self,
        at: &[usize],
        needs: impl Fn(usize) -> bool,
        operation: &str,
    ) -> Result<Option<Result<Tensor>>> {
        let block = &self.blocks[self.number(at)];
        let received = self.transfer(at, block.as_ref(), &self.form(at), &needs, operation)?;
        Ok(match (self.mesh_at(at), block) {
            (Some(m), Some(block)) if needs(self.mesh.rank()) => Some(m.fetch(block)),
            _ => received,
        })
    }

    /// Sends a value from the rank of a block to the ranks that need it. Returns what this rank received. A value that failed is
    /// sent as its error, so that no rank waits for it.
    fn transfer(
        &self,
        at: &[usize],
        own: Option<&Future>,
        (shape, dtype): &(Vec<usize>, DType),
        needs: impl Fn(usize) -> bool,
        operation: &str,
    ) -> Result<Option<Result<Tensor>>> {
        let Some(group) = self.mesh.group() else { return Ok(None) };
        let (owner, rank, label) = (self.place_of(at).rank, self.mesh.rank(), name(operation, at));
        if let (Some(m), Some(own)) = (self.mesh_at(at), own) {
            let others: Vec<usize> = (0..group.size()).filter(|other| *other != rank && needs(*other)).collect();
            if !others.is_empty() {
                let bytes = m.fetch(own).and_then(|value| value.to_bytes());
                others.iter().try_for_each(|other| group.send_value(*other, &label, &bytes))?;
            }
            return Ok(None);
        }
        if rank == owner || !needs(rank) {
            return Ok(None);
        }
        let expected = shape.iter().product::<usize>() * dtype.bytes();
        let bytes = group.receive_value(owner, &label, expected)?;
        let device = self.mesh.first_device();
        Ok(Some(bytes.and_then(|bytes| {
            device.scope(|| {
                let value = Tensor::from_bytes(&bytes, shape.clone(), *dtype);
                value.eval()?;
                Ok(value)
            })
        })))
    }
}
