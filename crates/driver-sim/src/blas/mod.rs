//! Simulated libraries for matrix products: NVIDIA's cuBLASLt and AMD's hipBLASLt ([`lt`]) and rocBLAS ([`rocblas`]). They check their
//! arguments according to the vendors' documentation, and multiply with three nested loops when the stream executes the work.

mod lt;
mod rocblas;
#[cfg(test)]
mod tests;

use half::{bf16, f16};

use crate::cuda::state::{Answer, State};
use crate::ptx::memory::Memory;
use crate::ptx::run::ILLEGAL_ADDRESS;

pub use lt::Objects;
pub use rocblas::Handle;

/// Calls a library function that needs a device; failures of the driver become the library's own code.
fn on_device(name: &'static str, own: i32, f: impl FnOnce(&mut State, usize) -> Answer) -> i32 {
    let code = State::on_device(name, f);
    if code < 100 { code } else { own }
}

/// An element type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ty {
    F16,
    BF16,
    F32,
    F64,
}

impl Ty {
    fn bytes(self) -> u64 {
        match self {
            Ty::F16 | Ty::BF16 => 2,
            Ty::F32 => 4,
            Ty::F64 => 8,
        }
    }

    fn read(self, bytes: &[u8]) -> f64 {
        match self {
            Ty::F16 => f16::from_le_bytes([bytes[0], bytes[1]]).to_f64(),
            Ty::BF16 => bf16::from_le_bytes([bytes[0], bytes[1]]).to_f64(),
            Ty::F32 => f64::from(f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])),
            Ty::F64 => f64::from_le_bytes(bytes.try_into().expect("eight bytes")),
        }
    }

    fn write(self, value: f64, to: &mut [u8]) {
        match self {
            Ty::F16 => to.copy_from_slice(&f16::from_f64(value).to_le_bytes()),
            Ty::BF16 => to.copy_from_slice(&bf16::from_f64(value).to_le_bytes()),
            Ty::F32 => to.copy_from_slice(&(value as f32).to_le_bytes()),
            Ty::F64 => to.copy_from_slice(&value.to_le_bytes()),
        }
    }

    fn round(self, value: f64) -> f64 {
        let mut bytes = [0; 8];
        let bytes = &mut bytes[..self.bytes() as usize];
        self.write(value, bytes);
        self.read(bytes)
    }
}

/// A column-major matrix in a device's memory.
#[derive(Clone, Copy, Debug)]
pub struct Matrix {
    pub address: u64,
    pub ty: Ty,
    /// Rows of the stored matrix.
    pub rows: u64,
    pub columns: u64,
    pub leading: u64,
    pub stride: u64,
    /// True if the stored matrix is the transpose of the logical one.
    pub transposed: bool,
}

impl Matrix {
    fn at(&self, i: u64, row: u64, column: u64) -> usize {
        let (row, column) = if self.transposed { (column, row) } else { (row, column) };
        ((i * self.stride + column * self.leading + row) * self.ty.bytes()) as usize
    }

    /// Returns the number of bytes from the first element to the end of the last.
    fn reach(&self, batch: u64) -> u64 {
        ((batch - 1) * self.stride + (self.columns - 1) * self.leading + self.rows) * self.ty.bytes()
    }
}

/// The way in which a sum is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sum {
    /// In f64.
    F64,
    /// In f32.
    F32,
    /// In f32, of factors with the eleven significant bits of TF32.
    Tf32,
    /// In f32, split into partial sums that are stored in the type of the result.
    Parts,
    /// In f32, split into partial sums that are added in a different order each time.
    Unordered(u64),
}

/// A product that a stream executes: `c = alpha · a × b + beta · c + bias`.
#[derive(Clone, Debug)]
pub struct Product {
    pub batch: u64,
    pub depth: u64,
    pub a: Matrix,
    pub b: Matrix,
    pub c: Matrix,
    pub alpha: f64,
    pub beta: f64,
    pub sum: Sum,
    /// The address of a vector that is added to every column of the result.
    pub bias: Option<u64>,
    /// Address and size of the workspace, which is overwritten.
    pub workspace: (u64, u64),
}

impl Product {
    /// Computes the product.
    pub fn run(&self, memory: &mut Memory) -> Answer {
        let Product { batch, depth, a, b, c, alpha, beta, .. } = self;
        let (from, bytes) = self.workspace;
        if bytes > 0 {
            memory.at(from, bytes).ok_or(ILLEGAL_ADDRESS)?.fill(0xEE);
        }
        let mut read = |matrix: &Matrix| Some(memory.at(matrix.address, matrix.reach(*batch))?.to_vec());
        let (left, right) = (read(a).ok_or(ILLEGAL_ADDRESS)?, read(b).ok_or(ILLEGAL_ADDRESS)?);
        let width = c.ty.bytes();
        let bias = match self.bias {
            Some(at) => memory
                .at(at, c.rows * width)
                .ok_or(ILLEGAL_ADDRESS)?
                .chunks_exact(width as usize)
                .map(|x| c.ty.read(x))
                .collect(),
            None => Vec::new(),
        };
        let to = memory.at(c.address, c.reach(*batch)).ok_or(ILLEGAL_ADDRESS)?;
        let element = |matrix: &Matrix, bytes: &[u8], place: usize| {
            matrix.ty.read(&bytes[place..place + matrix.ty.bytes() as usize])
        };
        for i in 0..*batch {
            for column in 0..c.columns {
                for row in 0..c.rows {
                    let factors = |p: u64| (element(a, &left, a.at(i, row, p)), element(b, &right, b.at(i, p, column)));
                    let place = c.at(i, row, column);
                    let before = if *beta == 0.0 { 0.0 } else { beta * element(c, to, place) };
                    let value = alpha * self.summed(*depth, factors) + before;
                    // The sum is in f64 or f32, and the bias is added in that type.
                    let value = bias.get(row as usize).map_or(value, |bias| value + bias);
                    c.ty.write(value, &mut to[place..place + c.ty.bytes() as usize]);
                }
            }
        }
        Ok(())
    }

    fn summed(&self, depth: u64, factors: impl Fn(u64) -> (f64, f64)) -> f64 {
        let f32s = |from: u64, to: u64| (from..to).map(&factors).fold(0f32, |sum, (x, y)| sum + x as f32 * y as f32);
        match self.sum {
            Sum::F64 => (0..depth).map(&factors).fold(0.0, |sum, (x, y)| sum + x * y),
            Sum::F32 => f64::from(f32s(0, depth)),
            Sum::Tf32 => {
                let short = |x: f64| f32::from_bits((x as f32).to_bits() & !0x1FFF);
                f64::from((0..depth).map(&factors).fold(0f32, |sum, (x, y)| sum + short(x) * short(y)))
            }
            Sum::Unordered(call) => {
                let part = depth.div_ceil(8);
                let parts = (0..8).map(|i| (i + call) % 8);
                let parts = parts.map(|i| f32s((i * part).min(depth), ((i + 1) * part).min(depth)));
                f64::from(parts.fold(0f32, |sum, part| sum + part))
            }
            Sum::Parts => {
                let part = depth.div_ceil(8);
                let parts = (0..8).map(|i| f32s((i * part).min(depth), ((i + 1) * part).min(depth)));
                parts.fold(0.0, |sum, part| self.c.ty.round(sum + self.c.ty.round(f64::from(part))))
            }
        }
    }
}
