//! Matrix products by the work-items of a work-group (MMA): fragment layout and accuracy.

use panoply_ir::alu::Alu;
use panoply_ir::builder::Builder;
use panoply_ir::kernel::{Access, Builtin, CollectiveOp, Guard, Mma, Scope};
use panoply_ir::{DType, Result, Scalar};

use super::bench::{Bench, launch};
use super::{Case, Requirement, broken, expect_all};
use crate::command::Arg;

pub const CASES: &[Case] = &[
    Case {
        name: "integer matrices are multiplied exactly",
        needs: &[Requirement::Computing, Requirement::Mma],
        run: whole,
    },
    Case {
        name: "matrix products are within the error bound",
        needs: &[Requirement::Computing, Requirement::Mma],
        run: close,
    },
];

const ROWS: usize = Mma::ROWS as usize;
const COLUMNS: usize = Mma::COLUMNS as usize;
const INNER: usize = Mma::K as usize;
/// Number of products in a launch.
const COUNT: usize = 3;

/// Builds `C += A B` for every work-group of 32. A is row-major and B column-major, with two elements per word. The four elements of C
/// of each work-item are contiguous.
fn kernel(dtype: DType) -> Builder {
    let mut b = Builder::new("multiply");
    b.group_size([Mma::LANES, 1, 1]);
    let [left, right] = ["a", "b"].map(|name| b.buffer(name, DType::U32, Access::In));
    let sums = b.buffer("c", DType::F32, Access::InOut);
    let [group, item, number] =
        [Builtin::GroupId(0), Builtin::LocalId(0), Builtin::GlobalId(0)].map(|number| b.builtin(number));
    let [four, eight] = [4, 8].map(|number| b.index(number));
    let (g, t) = (b.alu(Alu::Div, &[item, four]), b.alu(Alu::Rem, &[item, four]));
    let mut words = |mem, lines: usize, places: &[u64]| -> Vec<_> {
        let lines = b.index(lines as u64);
        let before = b.alu(Alu::Mul, &[group, lines]);
        let line = b.alu(Alu::Add, &[before, g]);
        let start = b.alu(Alu::Mul, &[line, eight]);
        let start = b.alu(Alu::Add, &[start, t]);
        let word = |place: &u64| {
            let place = b.index(*place);
            let at = b.alu(Alu::Add, &[start, place]);
            b.load(mem, at, Guard::Checked)
        };
        places.iter().map(word).collect()
    };
    let a = words(left, ROWS, &[0, 64, 4, 68]);
    let of_b = words(right, COLUMNS, &[0, 4]);
    let first = b.alu(Alu::Mul, &[number, four]);
    // A guarded vector load makes clang emit a saturating subtraction, which oclgrind does not support.
    let before = b.load_vector(sums, first, Mma::ELEMENTS, Guard::Unchecked);
    let mma = Mma { dtype, a: [a[0], a[1], a[2], a[3]], b: [of_b[0], of_b[1]] };
    let after = b.collective(CollectiveOp::Mma(mma), Scope::Group, before);
    b.store(sums, first, after, Guard::Unchecked);
    b
}

/// Matrices whose numbers are representable in the element type: A row-major, B column-major, C in the order of the work-items.
struct Matrices {
    dtype: DType,
    a: Vec<f64>,
    b: Vec<f64>,
    c: Vec<f32>,
}

impl Matrices {
    fn new(dtype: DType, number: impl Fn(usize) -> f64) -> Matrices {
        let halves = |count: usize, seed: usize| {
            (0..COUNT * count).map(|i| Scalar::from_f64(dtype, number(i + seed)).to_f64()).collect()
        };
        let c = (0..COUNT * ROWS * COLUMNS).map(|i| number(i + 31) as f32).collect();
        Matrices { dtype, a: halves(ROWS * INNER, 0), b: halves(INNER * COLUMNS, 1000), c }
    }

    /// Returns C after the product on the device.
    fn multiplied(&self, bench: &Bench<'_>) -> Result<Vec<f32>> {
        let bits = |value: &f64| Scalar::from_f64(self.dtype, *value).bits as u32;
        let words =
            |values: &[f64]| values.chunks(2).map(|two| bits(&two[0]) | bits(&two[1]) << 16).collect::<Vec<u32>>();
        let program = bench.compile(kernel(self.dtype))?;
        let memories = [bench.holding(&words(&self.a))?, bench.holding(&words(&self.b))?, bench.holding(&self.c)?];
        let args = memories.iter().map(|memory| Arg::Buffer(memory.all())).collect();
        let items = u64::from(Mma::LANES);
        bench.run(&[launch(&program, [COUNT as u64 * items, 1, 1], [Mma::LANES, 1, 1], args)])?;
        Ok(memories[2].words()?.into_iter().map(f32::from_bits).collect())
    }

    /// Returns the exact n-th element of the result, and the sum of the magnitudes of its terms.
    fn sum(&self, n: usize) -> (f64, f64) {
        let (item, element) = (n / 4, n % 4);
        let (set, g, t) = (item / 32, item % 32 / 4, item % 4);
        let (row, column) = (set * ROWS + g + element / 2 * 8, set * COLUMNS + 2 * t + element % 2);
        let products = (0..INNER).map(|k| self.a[row * INNER + k] * self.b[column * INNER + k]);
        let parts = products.chain([f64::from(self.c[n])]);
        parts.fold((0.0, 0.0), |(sum, size), part| (sum + part, size + part.abs()))
    }
}

/// Tests the layout with integers, whose sums are exact in every order.
fn whole(bench: &Bench<'_>) -> Result<()> {
    for dtype in [DType::F16, DType::BF16] {
        let matrices = Matrices::new(dtype, |i| (i * 37 % 61) as f64 - 30.0);
        let expected: Vec<f32> = (0..matrices.c.len()).map(|n| matrices.sum(n).0 as f32).collect();
        expect_all(format_args!("C + A B of {dtype}"), &matrices.multiplied(bench)?, &expected)?;
    }
    Ok(())
}

/// Tests the accuracy with rounded sums, against the worst-case bound for any order and rounding.
fn close(bench: &Bench<'_>) -> Result<()> {
    for dtype in [DType::F16, DType::BF16] {
        let matrices = Matrices::new(dtype, |i| ((i * 7919 % 1009) as f64 / 300.0 - 1.7) * [1.0, 30.0, 0.02][i % 3]);
        for (n, found) in matrices.multiplied(bench)?.into_iter().enumerate() {
            let (sum, size) = matrices.sum(n);
            // One ulp per addition, the error of truncation.
            let bound = (INNER + 1) as f64 * f64::from(f32::EPSILON) * size;
            if (f64::from(found) - sum).abs() > bound {
                return Err(broken(format_args!(
                    "C + A B of {dtype}, element {n}: {found} is not within {bound} of {sum}"
                )));
            }
        }
    }
    Ok(())
}
