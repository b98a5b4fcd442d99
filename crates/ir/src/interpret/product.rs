//! Matrix products: assembles the fragments into whole matrices and multiplies those.

use half::{bf16, f16};

use super::Observer;
use super::group::{Mask, WorkGroup};
use super::plan::CompiledStmt;
use crate::dtype::DType;
use crate::error::Result;
use crate::kernel::*;

/// The row-major matrices of 32 work-items; fragments of inactive work-items are zero.
#[derive(Default)]
struct Matrices {
    a: [[f32; Mma::K as usize]; Mma::ROWS as usize],
    b: [[f32; Mma::COLUMNS as usize]; Mma::K as usize],
    c: [[f32; Mma::COLUMNS as usize]; Mma::ROWS as usize],
}

impl<O: Observer> WorkGroup<'_, '_, O> {
    pub(super) fn multiply(
        &mut self,
        step: &CompiledStmt<'_>,
        mask: &Mask,
        mma: &Mma,
        value: ExprId,
        result: LocalId,
    ) -> Result<()> {
        let together = Mma::LANES as usize;
        for first in (0..mask.len()).step_by(together) {
            let mut matrices = Matrices::default();
            let here: Vec<usize> = (0..together).filter(|number| mask[first + number]).collect();
            for number in &here {
                self.evaluate(step, first + number)?;
                let words = mma.a.iter().chain(&mma.b).map(|word| self.lanes(*word)[0] as u32);
                matrices.take(*number, mma.dtype, &words.collect::<Vec<u32>>(), self.lanes(value));
            }
            for (row, (a, c)) in matrices.a.iter().zip(&mut matrices.c).enumerate() {
                for (column, c) in c.iter_mut().enumerate() {
                    *c = a.iter().zip(&matrices.b).fold(*c, |sum, (a, b)| sum + a * b[column]);
                    let (g, t) = (row % 8, column / 2);
                    let (item, element) = (4 * g + t, 2 * (row / 8) + column % 2);
                    if mask[first + item] {
                        let own = (first + item) * Mma::ELEMENTS as usize + element;
                        self.locals[result.index()][own] = u64::from(c.to_bits());
                    }
                }
            }
        }
        Ok(())
    }
}

impl Matrices {
    /// Stores the fragments of a work-item at their positions.
    fn take(&mut self, number: usize, dtype: DType, words: &[u32], elements: &[u64]) {
        let (g, t) = (number / 4, number % 4);
        let halves = |word: u32| [word as u16, (word >> 16) as u16].map(|bits| float(dtype, bits));
        for (n, word) in words[..4].iter().enumerate() {
            let column = 2 * t + 8 * (n / 2);
            self.a[g + 8 * (n % 2)][column..column + 2].copy_from_slice(&halves(*word));
        }
        for (n, word) in words[4..].iter().enumerate() {
            let row = 2 * t + 8 * n;
            [self.b[row][g], self.b[row + 1][g]] = halves(*word);
        }
        for (n, bits) in elements.iter().enumerate() {
            self.c[g + 8 * (n / 2)][2 * t + n % 2] = f32::from_bits(*bits as u32);
        }
    }
}

fn float(dtype: DType, bits: u16) -> f32 {
    if dtype == DType::F16 { f16::from_bits(bits).to_f32() } else { bf16::from_bits(bits).to_f32() }
}
