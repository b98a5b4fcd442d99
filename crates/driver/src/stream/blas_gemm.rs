//! A matrix product in terms of BLAS, whose matrices are column-major.
//!
//! A row-major matrix is its column-major transpose, so a row-major `c = a × b` is a column-major `cᵀ = bᵀ × aᵀ`. Layouts that BLAS cannot
//! express (both strides other than 1, overlapping rows, an element repeated along an axis) are rejected.

use panoply_device::{DType, Gemm, Layout};

/// `result[i] = left[i] × right[i]`: m×k times k×n gives m×n.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Product {
    /// Element type of all three matrices; f16 and bf16 are accumulated in f32.
    pub dtype: DType,
    /// True if f32 factors can be rounded to TF32.
    pub tf32: bool,
    /// True if a vector is added to every stored column of the result; never in a batch.
    pub bias: bool,
    /// Number of independent products.
    pub batch: usize,
    /// Number of rows of the left factor and the result.
    pub m: usize,
    /// Number of columns of the right factor and the result.
    pub n: usize,
    /// Number of columns of the left factor and rows of the right one.
    pub k: usize,
    /// The left factor.
    pub left: Matrix,
    /// The right factor.
    pub right: Matrix,
    /// The result, which is not transposed.
    pub result: Matrix,
}

/// A column-major matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matrix {
    /// Index of the routine's buffer that holds it.
    pub buffer: usize,
    /// Offset of the first element, in elements.
    pub offset: usize,
    /// True if the stored matrix is the transpose of the logical one.
    pub transposed: bool,
    /// Leading dimension: elements from one stored column to the next, at least the length of a column.
    pub leading: usize,
    /// Batch stride in elements.
    pub batch: usize,
}

/// Length and stride of the rows' axis and of the columns' axis of the logical matrix.
type Axes = [(usize, usize); 2];

impl Product {
    /// Converts a routine; `None` if BLAS cannot express it, or a count exceeds 32 bits.
    pub fn of(gemm: &Gemm) -> Option<Product> {
        let Gemm { dtype, tf32, bias, batch, m, n, k, a, b, c } = folded(gemm);
        if [batch, m, n, k].contains(&0) {
            return None;
        }
        // The axes of the column-major result, and of its factors.
        let by_rows = || {
            let result = Matrix::new(2, c, [(n, c.column), (m, c.row)]).filter(|matrix| !matrix.transposed)?;
            let left = Matrix::new(1, b, [(n, b.column), (k, b.row)])?;
            let right = Matrix::new(0, a, [(k, a.column), (m, a.row)])?;
            Some(Product { dtype, tf32, bias, batch, m: n, n: m, k, left, right, result })
        };
        let by_columns = || {
            let result = Matrix::new(2, c, [(m, c.row), (n, c.column)]).filter(|matrix| !matrix.transposed)?;
            let left = Matrix::new(0, a, [(m, a.row), (k, a.column)])?;
            let right = Matrix::new(1, b, [(k, b.row), (n, b.column)])?;
            Some(Product { dtype, tf32, bias, batch, m, n, k, left, right, result })
        };
        // A bias varies along the columns of the logical matrix, so they must be contiguous.
        let product =
            if bias { by_rows().filter(|product| product.batch == 1) } else { by_rows().or_else(by_columns) }?;
        let [left, right, result] = product.matrices().map(|matrix| matrix.leading);
        let counts = [product.batch, product.m, product.n, product.k, left, right, result];
        counts.iter().all(|count| i32::try_from(*count).is_ok()).then_some(product)
    }

    /// Returns both factors and the result.
    pub fn matrices(&self) -> [Matrix; 3] {
        [self.left, self.right, self.result]
    }

    /// Returns rows and columns of the matrices as they are stored.
    pub fn stored(&self) -> [(usize, usize); 3] {
        let Product { m, n, k, left, right, .. } = *self;
        let transposed =
            |matrix: Matrix, (rows, columns)| if matrix.transposed { (columns, rows) } else { (rows, columns) };
        [transposed(left, (m, k)), transposed(right, (k, n)), (m, n)]
    }
}

impl Matrix {
    fn new(buffer: usize, layout: Layout, [(rows, down), (columns, across)]: Axes) -> Option<Matrix> {
        // The stride of an axis of length 1 is irrelevant.
        let straight = (rows == 1 || down == 1) && (columns == 1 || across >= rows);
        let transposed = (columns == 1 || across == 1) && (rows == 1 || down >= columns);
        let leading = match (straight, transposed) {
            (true, _) if columns == 1 => rows,
            (true, _) => across,
            (false, true) => down,
            (false, false) => return None,
        };
        Some(Matrix { buffer, offset: layout.offset, transposed: !straight, leading, batch: layout.batch })
    }
}

/// Folds a batch that shares its right factor into the rows of a single product.
fn folded(gemm: &Gemm) -> Gemm {
    let Gemm { batch, m, a, b, c, .. } = *gemm;
    let follows = |layout: Layout| Some(layout.batch) == layout.row.checked_mul(m);
    match batch.checked_mul(m) {
        Some(m) if batch > 1 && b.batch == 0 && follows(a) && follows(c) => Gemm { batch: 1, m, ..*gemm },
        Some(_) | None => *gemm,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the address of element (i, row, column) of the logical matrix.
    fn place(matrix: Matrix, i: usize, row: usize, column: usize) -> usize {
        let (row, column) = if matrix.transposed { (column, row) } else { (row, column) };
        matrix.offset + i * matrix.batch + row + column * matrix.leading
    }

    fn at(layout: Layout, i: usize, row: usize, column: usize) -> usize {
        layout.offset + i * layout.batch + row * layout.row + column * layout.column
    }

    /// Returns the elements that are multiplied for each element of the result, by address.
    fn meant(gemm: &Gemm) -> Vec<(usize, usize, usize)> {
        let mut all = Vec::new();
        for i in 0..gemm.batch {
            for row in 0..gemm.m {
                for column in 0..gemm.n {
                    let sum = (0..gemm.k).map(|p| (at(gemm.a, i, row, p), at(gemm.b, i, p, column)));
                    all.extend(sum.map(|(a, b)| (at(gemm.c, i, row, column), a, b)));
                }
            }
        }
        all.sort_unstable();
        all
    }

    fn indices(product: &Product) -> Vec<(usize, usize, usize)> {
        let mut all = Vec::new();
        let swapped = product.left.buffer == 1;
        for i in 0..product.batch {
            for row in 0..product.m {
                for column in 0..product.n {
                    let sum = (0..product.k)
                        .map(|p| (place(product.left, i, row, p), place(product.right, i, p, column)))
                        .map(|(left, right)| if swapped { (right, left) } else { (left, right) });
                    all.extend(sum.map(|(a, b)| (place(product.result, i, row, column), a, b)));
                }
            }
        }
        all.sort_unstable();
        all
    }

    fn layout(batch: usize, row: usize, column: usize) -> Layout {
        Layout { offset: 3, batch, row, column }
    }

    /// Checks that all layouts of factors and result and all small shapes lead to the same addresses.
    #[test]
    fn product_addresses_match_the_gemm() {
        let shapes = [1, 2, 5].into_iter().flat_map(|m| [1, 3].map(|n| (m, n)));
        for (m, n, k) in shapes.flat_map(|(m, n)| [1, 4].map(|k| (m, n, k))) {
            let layouts = |rows: usize, columns: usize| {
                let (wide, high) = (columns + 2, rows + 1);
                [layout(rows * wide, wide, 1), layout(high * columns, 1, high), layout(0, wide, 1)]
            };
            for a in layouts(m, k) {
                for b in layouts(k, n) {
                    for c in &layouts(m, n)[..2] {
                        for batch in [1, 3] {
                            let gemm =
                                Gemm { dtype: DType::F32, tf32: false, bias: false, batch, m, n, k, a, b, c: *c };
                            let product = Product::of(&gemm).unwrap_or_else(|| panic!("{gemm:?}"));
                            assert_eq!(indices(&product), meant(&gemm), "{gemm:?} as {product:?}");
                            for (matrix, (rows, _)) in product.matrices().into_iter().zip(product.stored()) {
                                assert!(matrix.leading >= rows, "{gemm:?} as {product:?}");
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn batch_with_shared_right_factor_folds_into_one_product() {
        let gemm = |a, c| Gemm {
            dtype: DType::F32,
            tf32: false,
            bias: false,
            batch: 7,
            m: 4,
            n: 5,
            k: 6,
            a,
            b: layout(0, 5, 1),
            c,
        };
        let whole = Product::of(&gemm(layout(24, 6, 1), layout(20, 5, 1))).unwrap();
        assert_eq!((whole.batch, whole.m, whole.n), (1, 5, 28));
        let apart = Product::of(&gemm(layout(30, 6, 1), layout(20, 5, 1))).unwrap();
        assert_eq!((apart.batch, apart.m, apart.n), (7, 5, 4), "there are rows between the batches");
    }

    #[test]
    fn product_rejects_layouts_that_blas_cannot_express() {
        let plain = Gemm {
            dtype: DType::F32,
            tf32: false,
            bias: false,
            batch: 2,
            m: 4,
            n: 5,
            k: 6,
            a: layout(24, 6, 1),
            b: layout(30, 5, 1),
            c: layout(20, 5, 1),
        };
        assert!(Product::of(&plain).is_some());
        for gemm in [
            Gemm { a: layout(96, 12, 2), ..plain },
            Gemm { a: layout(0, 0, 1), ..plain },
            Gemm { a: layout(24, 1, 0), ..plain },
            Gemm { b: layout(30, 3, 1), ..plain },
            Gemm { c: layout(80, 10, 2), ..plain },
            Gemm { k: 0, ..plain },
            Gemm { m: 0, ..plain },
            Gemm { batch: 0, ..plain },
            Gemm { m: 1 << 31, ..plain },
            Gemm { bias: true, ..plain },
            Gemm { bias: true, batch: 1, c: layout(20, 1, 4), ..plain },
            Gemm { a: layout(24, 1 << 31, 1), ..plain },
        ] {
            assert_eq!(Product::of(&gemm), None, "{gemm:?}");
        }
    }
}
