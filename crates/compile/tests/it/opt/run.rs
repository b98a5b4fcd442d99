//! Runs two kernels with the same parameters on the interpreter and compares the resulting bytes.

use panoply_ir::interpret::{Arg, run};
use panoply_ir::kernel::{Kernel, Param};
use panoply_ir::{DType, Scalar, Type, Verified};

/// Number of elements of every buffer.
const LEN: usize = 23;

/// Runs both kernels over several grids and compares their results.
pub fn compare(before: &Verified<Kernel>, after: &Verified<Kernel>) {
    for (seed, grid) in [(1, [LEN as u64, 1, 1]), (2, [7, 5, 1]), (3, [40, 1, 2])] {
        let (one, other) = (results(before, seed, grid), results(after, seed, grid));
        for (position, (one, other)) in one.iter().zip(&other).enumerate() {
            assert!(
                one == other,
                "seed {seed}, grid {grid:?}, argument {position}: {one:?} became {other:?}\n{}\n{}",
                **before,
                **after
            );
        }
    }
}

/// Returns the elements of every buffer after a run, with all NaNs mapped to one value.
fn results(kernel: &Verified<Kernel>, seed: u64, grid: [u64; 3]) -> Vec<Vec<u64>> {
    let mut random = Random(seed);
    let mut buffers: Vec<(DType, Vec<u8>)> = Vec::new();
    for mem in kernel.mems.iter().filter(|mem| matches!(mem.space, panoply_ir::kernel::Space::Buffer(_))) {
        let elements = (0..LEN).flat_map(|_| {
            let bits = random.element(mem.dtype).bits.to_ne_bytes();
            bits[..mem.dtype.bytes()].to_vec()
        });
        buffers.push((mem.dtype, elements.collect()));
    }
    let mut rest = buffers.iter_mut();
    let mut args: Vec<Arg<'_>> = Vec::new();
    for param in &kernel.params {
        args.push(match param {
            Param::Buffer(_) => Arg::Write(&mut rest.next().expect("every parameter has a buffer").1),
            Param::Scalar { ty: Type::Index, .. } => Arg::Index(random.next() % 30),
            Param::Scalar { ty, .. } => Arg::Scalar(random.element(ty.dtype().expect("not an index"))),
        });
    }
    let group = kernel.group_size.unwrap_or([4, 2, 1]);
    run(kernel, grid, group, &mut args, &mut ()).unwrap_or_else(|error| panic!("{error}\n{}", **kernel));
    let elements = |(dtype, bytes): &(DType, Vec<u8>)| -> Vec<u64> {
        let one = |chunk: &[u8]| {
            let mut bits = [0; 8];
            bits[..chunk.len()].copy_from_slice(chunk);
            let value = Scalar { dtype: *dtype, bits: u64::from_ne_bytes(bits) };
            if dtype.is_float() && value.to_f64().is_nan() { u64::MAX } else { value.bits }
        };
        bytes.chunks(dtype.bytes()).map(one).collect()
    };
    buffers.iter().map(elements).collect()
}

/// SplitMix64: Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns mostly small numbers, sometimes random bits, so that both ordinary and unusual operands occur.
    fn element(&mut self, dtype: DType) -> Scalar {
        let (choice, bits) = (self.next() % 8, self.next());
        match choice {
            0 if dtype.bits() < 64 => Scalar { dtype, bits: bits & ((1 << dtype.bits()) - 1) },
            0 => Scalar { dtype, bits },
            1 => Scalar::from_f64(dtype, [0.0, -0.0, 1.0, f64::INFINITY, f64::NAN, -1.0][bits as usize % 6]),
            _ => Scalar::from_f64(dtype, (bits % 64) as f64 / 4.0 - if dtype.is_signed() { 6.0 } else { 0.0 }),
        }
    }
}
