//! Inner loops of bounding, compiled for each instruction set of the processor.
//!
//! Sums are split over lanes, and products are fused into sums where the processor can. The error bounds of the callers cover every order
//! of summation, fused or not.

use panoply_cpu::simd::{Loop, vectorized};

/// Number of elements that are processed together.
pub const LANES: usize = 8;
/// Number of rows of a tile of a matrix product: as many as keep their sums in sixteen 256-bit registers.
const ROWS: usize = 6;

type Lane = [f64; LANES];

#[inline(always)]
fn mul_add(is_fused: bool, a: f64, b: f64, sum: f64) -> f64 {
    if is_fused { a.mul_add(b, sum) } else { a * b + sum }
}

#[inline(always)]
fn total(lane: Lane) -> f64 {
    ((lane[0] + lane[4]) + (lane[1] + lane[5])) + ((lane[2] + lane[6]) + (lane[3] + lane[7]))
}

/// Calls `add(lane, index)` for every index, with lanes in fixed positions so that the calls are vectorized.
#[inline(always)]
fn each(count: usize, mut add: impl FnMut(usize, usize)) {
    let whole = count / LANES * LANES;
    for first in (0..whole).step_by(LANES) {
        (0..LANES).for_each(|lane| add(lane, first + lane));
    }
    (whole..count).for_each(|index| add(index - whole, index));
}

/// A batch of matrices `[batch, n, k]` in panels of [`LANES`] columns, padded with 0.
#[derive(Clone, Debug)]
pub struct Panels {
    n: usize,
    k: usize,
    elements: Vec<Lane>,
}

impl Panels {
    /// Packs matrices `[batch, n, k]` whose elements are given by product, row and column.
    pub fn pack(batch: usize, n: usize, k: usize, element: impl Fn(usize, usize, usize) -> f64) -> Panels {
        let mut elements = Vec::with_capacity(batch * n * k.div_ceil(LANES));
        for product in 0..batch {
            for first in (0..k).step_by(LANES) {
                for row in 0..n {
                    let at = |lane: usize| if first + lane < k { element(product, row, first + lane) } else { 0.0 };
                    elements.push(std::array::from_fn(at));
                }
            }
        }
        Panels { n, k, elements }
    }

    /// Returns the panels of one matrix.
    fn of(&self, product: usize) -> &[Lane] {
        let length = self.n * self.k.div_ceil(LANES);
        &self.elements[product * length..][..length]
    }
}

/// Returns `a` × matrix for consecutive lines of `a`; line i uses the product `i / m % batch`. Coefficients of 0 are skipped.
pub fn multiply(a: &[f64], panels: &Panels, batch: usize, m: usize) -> Vec<f64> {
    let (n, k) = (panels.n, panels.k);
    let lines = if n == 0 { 0 } else { a.len() / n };
    let mut result = vec![0.0; lines * k];
    let mut from = 0;
    while from < lines {
        // Lines of one product are adjacent, except that a single product serves all of them.
        let run = if batch <= 1 { lines - from } else { m - from % m };
        let to = (from + run).min(lines);
        let product = if batch <= 1 { 0 } else { from / m % batch };
        let (a, result) = (&a[from * n..to * n], &mut result[from * k..to * k]);
        vectorized(Multiply { a, panels: panels.of(product), n, k, result });
        from = to;
    }
    result
}

struct Multiply<'a> {
    a: &'a [f64],
    panels: &'a [Lane],
    n: usize,
    k: usize,
    result: &'a mut [f64],
}

impl Loop for Multiply<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self, is_fused: bool) {
        let Multiply { a, panels, n, k, result } = self;
        if n == 0 || k == 0 {
            return;
        }
        let mut used: Vec<u32> = Vec::with_capacity(n);
        for (a, result) in a.chunks(ROWS * n).zip(result.chunks_mut(ROWS * k)) {
            used.clear();
            used.extend((0..n as u32).filter(|column| a[*column as usize..].iter().step_by(n).any(|a| *a != 0.0)));
            match a.len() / n {
                1 => tile::<1>(a, panels, &used, (n, k), result, is_fused),
                2 => tile::<2>(a, panels, &used, (n, k), result, is_fused),
                3 => tile::<3>(a, panels, &used, (n, k), result, is_fused),
                4 => tile::<4>(a, panels, &used, (n, k), result, is_fused),
                5 => tile::<5>(a, panels, &used, (n, k), result, is_fused),
                _ => tile::<ROWS>(a, panels, &used, (n, k), result, is_fused),
            }
        }
    }
}

/// Multiplies a few rows, of which only the columns `used` are not 0.
#[inline(always)]
fn tile<const R: usize>(
    a: &[f64],
    panels: &[Lane],
    used: &[u32],
    (n, k): (usize, usize),
    result: &mut [f64],
    is_fused: bool,
) {
    let rows: [&[f64]; R] = std::array::from_fn(|row| &a[row * n..][..n]);
    for (panel, first) in panels.chunks_exact(n).zip((0..k).step_by(LANES)) {
        let mut sums = [[0.0; LANES]; R];
        for column in used {
            let weights = panel[*column as usize];
            for row in 0..R {
                let a = rows[row][*column as usize];
                for lane in 0..LANES {
                    sums[row][lane] = mul_add(is_fused, a, weights[lane], sums[row][lane]);
                }
            }
        }
        let width = LANES.min(k - first);
        for (row, sums) in sums.iter().enumerate() {
            result[row * k + first..][..width].copy_from_slice(&sums[..width]);
        }
    }
}

/// Centers, radii and magnitudes.
pub type Triple = [Vec<f64>; 3];

/// Returns x × w, r × |w| and s × |w| for one line each of the product's matrix.
pub fn spread(x: [&[f64]; 3], panels: &Panels, product: usize) -> Triple {
    vectorized(Spread { x, panels: panels.of(product), k: panels.k })
}

struct Spread<'a> {
    x: [&'a [f64]; 3],
    panels: &'a [Lane],
    k: usize,
}

impl Loop for Spread<'_> {
    type Output = Triple;

    #[inline(always)]
    fn run(self, is_fused: bool) -> Triple {
        let Spread { x: [centers, radii, magnitudes], panels, k } = self;
        let mut result = [(); 3].map(|()| Vec::with_capacity(k + LANES));
        for panel in panels.chunks_exact(centers.len().max(1)) {
            let mut sums = [[0.0; LANES]; 3];
            for (((weights, center), radius), magnitude) in panel.iter().zip(centers).zip(radii).zip(magnitudes) {
                for lane in 0..LANES {
                    let weight = weights[lane];
                    sums[0][lane] = mul_add(is_fused, weight, *center, sums[0][lane]);
                    sums[1][lane] = mul_add(is_fused, weight.abs(), *radius, sums[1][lane]);
                    sums[2][lane] = mul_add(is_fused, weight.abs(), *magnitude, sums[2][lane]);
                }
            }
            result.iter_mut().zip(sums).for_each(|(result, sums)| result.extend(sums));
        }
        result.iter_mut().for_each(|result| result.resize(k, 0.0));
        result
    }
}

/// Adds Σ |a| · `per_unit` to the element of `sums` of each row; a coefficient of 0 adds nothing.
pub fn add_costs(a: &[f64], per_unit: &[f64], sums: &mut [f64]) {
    vectorized(Costs { a, per_unit, sums });
}

struct Costs<'a> {
    a: &'a [f64],
    per_unit: &'a [f64],
    sums: &'a mut [f64],
}

impl Loop for Costs<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self, _: bool) {
        let numel = self.per_unit.len();
        for (a, sum) in self.a.chunks_exact(numel.max(1)).zip(self.sums) {
            let mut costs = [0.0; LANES];
            each(numel, |lane, at| {
                let cost = a[at].abs() * self.per_unit[at];
                costs[lane] += if a[at] == 0.0 { 0.0 } else { cost };
            });
            *sum += total(costs);
        }
    }
}

/// Sums per row: the constant of a linear bound, the magnitude of its terms, and its rounding error.
#[derive(Clone, Debug)]
pub struct Sums {
    /// Constants.
    pub constant: Vec<f64>,
    /// Sums of the magnitudes of the terms of the constants.
    pub magnitude: Vec<f64>,
    /// Bounds of the rounding errors of coefficients.
    pub error: Vec<f64>,
}

/// Adds the minimum of Σ a·x over finite intervals `lo`..`hi` to the constant of each row.
pub fn add_minimum(a: &[f64], lo: &[f64], hi: &[f64], sums: &mut Sums) {
    vectorized(Minimum { a, lo, hi, sums });
}

struct Minimum<'a> {
    a: &'a [f64],
    lo: &'a [f64],
    hi: &'a [f64],
    sums: &'a mut Sums,
}

impl Loop for Minimum<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self, _: bool) {
        let numel = self.lo.len();
        for (row, a) in self.a.chunks_exact(numel.max(1)).enumerate() {
            let (mut constant, mut magnitude) = ([0.0; LANES], [0.0; LANES]);
            each(numel, |lane, at| {
                let term = a[at] * if a[at] > 0.0 { self.lo[at] } else { self.hi[at] };
                constant[lane] += term;
                magnitude[lane] += term.abs();
            });
            self.sums.constant[row] += total(constant);
            self.sums.magnitude[row] += total(magnitude);
        }
    }
}

/// Linear relaxations: `below`·x ≤ f(x) ≤ `above`·x + `offset`, and the error per unit of coefficient of x.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    /// Slopes of the lower lines.
    pub below: Vec<f64>,
    /// Slopes of the upper lines.
    pub above: Vec<f64>,
    /// Constants of the upper lines.
    pub offset: Vec<f64>,
    /// Errors per unit of coefficient.
    pub per_unit: Vec<f64>,
}

/// Replaces the coefficients of f(x) by those of x: the lower line if positive, the upper line if negative.
pub fn relax(a: &mut [f64], lines: &Lines, sums: &mut Sums) {
    vectorized(Relax { a, lines, sums });
}

struct Relax<'a> {
    a: &'a mut [f64],
    lines: &'a Lines,
    sums: &'a mut Sums,
}

impl Loop for Relax<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self, _: bool) {
        let Lines { below, above, offset, per_unit } = self.lines;
        let numel = below.len();
        let (above, offset, per_unit) = (&above[..numel], &offset[..numel], &per_unit[..numel]);
        for (row, a) in self.a.chunks_exact_mut(numel.max(1)).enumerate() {
            let [mut constant, mut magnitude, mut error] = [[0.0; LANES]; 3];
            each(numel, |lane, at| {
                let old = a[at];
                let line = if old > 0.0 { below[at] } else { above[at] };
                // NaN stays NaN, and a coefficient of 0 stays 0 even if there is no relaxation.
                let new = if old == 0.0 { 0.0 } else { old * line };
                let term = if old < 0.0 { old * offset[at] } else { 0.0 };
                let cost = new.abs() * per_unit[at];
                a[at] = new;
                constant[lane] += term;
                magnitude[lane] += term.abs();
                error[lane] += if new == 0.0 { 0.0 } else { cost };
            });
            self.sums.constant[row] += total(constant);
            self.sums.magnitude[row] += total(magnitude);
            self.sums.error[row] += total(error);
        }
    }
}
