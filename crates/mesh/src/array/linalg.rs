//! Matrix products and factorizations of distributed arrays.

use std::collections::BTreeSet;

use panoply_tensor::ops::linalg_factor::Triangle;
use panoply_tensor::{DType, Error, Result, Tensor};

use super::layout::positions;
use super::{DArray, name, record};
use crate::arguments::In;
use crate::data::Future;

impl DArray {
    /// Returns the matrix product of `[m, k]` and `[k, n]`, with the block rows of the first operand and the block columns of the
    /// second one. Partial products are added in the order of blocks of k.
    ///
    /// The algorithm is SUMMA: for each block of k, a column of blocks and a row of blocks are sent to the ranks that need them. A
    /// rank holds its blocks and at most two such panels of each operand. [van de Geijn and Watts 1997]
    ///
    /// # Errors
    /// The operands are not matrices that fit each other.
    #[track_caller]
    pub fn matmul(&self, other: &DArray) -> Result<DArray> {
        record(&self.mesh, || format!("matmul({:?}, {:?})", self.shape, other.shape));
        let (&[m, k], &[other_k, n]) = (self.shape.as_slice(), other.shape.as_slice()) else {
            let message = format!("matmul: shapes {:?} and {:?} are not two matrices", self.shape, other.shape);
            return Err(Error::mistake(message));
        };
        if k != other_k || self.dtype != other.dtype {
            let message = format!("matmul: {self:?} does not fit {other:?}");
            return Err(Error::mistake(message).note("the columns of the first must be the rows of the second"));
        }
        let blocks = [self.layout.block()[0], self.layout.block()[1], other.layout.block()[1]];
        let other = other.to(&other.layout.with_block(vec![blocks[1], blocks[2]]))?;
        let layout = self.layout.with_block(vec![blocks[0], blocks[2]]);
        let mut result = DArray::unfilled(&self.mesh, self.places.clone(), vec![m, n], self.dtype, &layout)?;
        if k == 0 {
            return result.similar();
        }
        let [rows, columns] = [result.block_counts()[0], result.block_counts()[1]];
        let mut before: Vec<Future> = Vec::new();
        for step in 0..self.block_counts()[1] {
            let ranks = |cells: &mut dyn Iterator<Item = [usize; 2]>| -> BTreeSet<usize> {
                cells.map(|at| result.place_of(&at).rank).collect()
            };
            let mut left = Vec::new();
            for row in 0..rows {
                let needed = ranks(&mut (0..columns).map(|column| [row, column]));
                left.push(self.share(&[row, step], |rank| needed.contains(&rank), "matmul")?);
            }
            let mut right = Vec::new();
            for column in 0..columns {
                let needed = ranks(&mut (0..rows).map(|row| [row, column]));
                right.push(other.share(&[step, column], |rank| needed.contains(&rank), "matmul")?);
            }
            // Received panels are kept until the tasks of their step are done.
            self.wait_for(&before);
            before.clear();
            for at in positions(&[rows, columns]) {
                let (Some(mesh), Some(a), Some(b)) = (result.mesh_at(&at), &left[at[0]], &right[at[1]]) else {
                    continue;
                };
                let number = result.number(&at);
                let task = name("matmul", &at);
                let sum = match &result.blocks[number] {
                    None => mesh.spawn(&task, (In(a), In(b)), |(a, b)| a.matmul(b))?,
                    Some(sum) => mesh.spawn(&task, (In(sum), In(a), In(b)), |(sum, a, b)| sum + a.matmul(b))?,
                };
                before.push(sum.clone());
                result.blocks[number] = Some(sum);
            }
        }
        Ok(result)
    }

    /// Returns the lower triangular L with L · Lᵀ = A, for a symmetric positive definite matrix in square blocks, of f32 or f64.
    /// Only the blocks of the lower triangle are read. If the matrix is not positive definite, elements of L are NaN, as of
    /// [`Tensor::cholesky`].
    ///
    /// The algorithm is the right-looking one by tiles; the next column of tiles is updated first. [Buttari et al. 2009]
    ///
    /// # Errors
    /// The array is not a square matrix in square blocks.
    #[track_caller]
    pub fn cholesky(&self) -> Result<DArray> {
        record(&self.mesh, || format!("cholesky({:?})", self.shape));
        let [square, blocks] =
            [&self.shape[..], self.layout.block()].map(|lengths| lengths.len() == 2 && lengths[0] == lengths[1]);
        if !square || !blocks || !matches!(self.dtype, DType::F32 | DType::F64) {
            let message = format!("cholesky: {self:?} in blocks of {:?} does not fit", self.layout.block());
            return Err(Error::mistake(message).note("a square matrix of f32 or f64 in square blocks is needed"));
        }
        let mut l = self.clone();
        let count = self.block_counts()[0];
        for step in 0..count {
            l.spawn_one(&[step, step], |m, task, block| m.spawn(task, In(block), Tensor::cholesky))?;
            let below: BTreeSet<usize> = (step + 1..count).map(|row| l.place_of(&[row, step]).rank).collect();
            let diagonal = l.share(&[step, step], |rank| below.contains(&rank), "cholesky")?;
            for row in step + 1..count {
                l.spawn_one(&[row, step], |m, task, block| {
                    let Some(diagonal) = &diagonal else { return Ok(block.clone()) };
                    // L[row, step] · L[step, step]ᵀ = A[row, step]
                    let solve = |(l, a): (&Tensor, &Tensor)| l.solve_triangular(&a.t(), Triangle::Lower).t();
                    m.spawn(task, (In(diagonal), In(block)), solve)
                })?;
            }
            let mut panel = vec![None; count];
            for (row, panel) in panel.iter_mut().enumerate().skip(step + 1) {
                let needs = (step + 1..=row).map(|column| [row, column]).chain((row..count).map(|other| [other, row]));
                let needed: BTreeSet<usize> = needs.map(|at| l.place_of(&at).rank).collect();
                *panel = l.share(&[row, step], |rank| needed.contains(&rank), "cholesky")?;
            }
            for column in step + 1..count {
                for row in column..count {
                    l.spawn_one(&[row, column], |m, task, block| {
                        let (Some(a), Some(b)) = (&panel[row], &panel[column]) else { return Ok(block.clone()) };
                        let update = |(c, a, b): (&Tensor, &Tensor, &Tensor)| c - a.matmul(&b.t());
                        m.spawn(task, (In(block), In(a), In(b)), update)
                    })?;
                }
            }
        }
        for row in 0..count {
            for column in row + 1..count {
                l.spawn_one(&[row, column], |m, task, block| m.spawn(task, In(block), Tensor::zeros_like))?;
            }
        }
        Ok(l)
    }

    /// Replaces a block of this rank by the result of a task.
    fn spawn_one(
        &mut self,
        at: &[usize],
        task: impl FnOnce(&crate::Mesh, &str, &Future) -> Result<Future>,
    ) -> Result<()> {
        let number = self.number(at);
        if let (Some(m), Some(block)) = (self.mesh_at(at), &self.blocks[number]) {
            self.blocks[number] = Some(task(&m, &name("cholesky", at), block)?);
        }
        Ok(())
    }

    /// Waits for results if there are several ranks. Failures are reported by whatever reads the results.
    fn wait_for(&self, results: &[Future]) {
        if self.mesh.group().is_some() {
            results.iter().for_each(|result| drop(self.mesh.settle(result)));
        }
    }
}
