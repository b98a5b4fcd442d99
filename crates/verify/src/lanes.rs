//! Inner loops of the propagation of bounds, compiled for each instruction set of the processor.
//!
//! The lanes of a SIMD vector hold partial sums, and a product and its addition are one fused multiply-add where the processor has it. The
//! error bounds of the callers cover every order of summation, fused or not.

use panoply_host::simd::{Loop, vectorized};

/// Number of elements of a SIMD vector.
pub const LANES: usize = 8;
/// Maximum number of rows of a tile of a matrix product, such that the sums stay in sixteen 256-bit registers.
const ROWS: usize = 6;

/// The elements of a SIMD vector.
pub type Lane = [f64; LANES];

#[inline(always)]
fn mul_add(is_fused: bool, a: f64, b: f64, sum: f64) -> f64 {
    if is_fused { a.mul_add(b, sum) } else { a * b + sum }
}

/// Returns the sum of the lanes.
#[inline(always)]
fn total(lane: Lane) -> f64 {
    ((lane[0] + lane[4]) + (lane[1] + lane[5])) + ((lane[2] + lane[6]) + (lane[3] + lane[7]))
}

/// Returns up to [`LANES`] elements, padded with 0.
#[inline(always)]
fn padded(elements: &[f64]) -> Lane {
    let mut lane = [0.0; LANES];
    for (lane, element) in lane.iter_mut().zip(elements) {
        *lane = *element;
    }
    lane
}

/// Returns elements in chunks of [`LANES`], the last one padded with 0.
pub fn in_lanes(elements: impl IntoIterator<Item = f64>) -> Vec<Lane> {
    let mut lanes = Vec::new();
    for (at, element) in elements.into_iter().enumerate() {
        if at % LANES == 0 {
            lanes.push([0.0; LANES]);
        }
        if let Some(lane) = lanes.last_mut() {
            lane[at % LANES] = element;
        }
    }
    lanes
}

/// A row of a panel, aligned such that no vector register is loaded from two cache lines.
#[repr(align(64))]
#[derive(Clone, Copy, Debug)]
struct Row(Lane);

/// A batch of matrices `[batch, n, k]` in panels of [`LANES`] columns, padded with 0.
#[derive(Clone, Debug)]
pub struct Panels {
    n: usize,
    k: usize,
    elements: Vec<Row>,
}

impl Panels {
    /// Packs matrices `[batch, n, k]`; `element` returns an element by matrix, row and column.
    pub fn pack(batch: usize, n: usize, k: usize, element: impl Fn(usize, usize, usize) -> f64) -> Panels {
        let mut elements = Vec::with_capacity(batch * n * k.div_ceil(LANES));
        for matrix in 0..batch {
            for first in (0..k).step_by(LANES) {
                for row in 0..n {
                    let at = |lane: usize| if first + lane < k { element(matrix, row, first + lane) } else { 0.0 };
                    elements.push(Row(std::array::from_fn(at)));
                }
            }
        }
        Panels { n, k, elements }
    }

    /// Returns the panels of one matrix.
    fn of(&self, matrix: usize) -> &[Row] {
        let length = self.n * self.k.div_ceil(LANES);
        &self.elements[matrix * length..][..length]
    }
}

/// Returns `a` × matrix, `[rows, k]`, for the rows of `a` `[rows, n]`; row i is multiplied by the matrix `i / m % batch`. Coefficients of 0
/// are skipped.
pub fn multiply(a: &[f64], panels: &Panels, batch: usize, m: usize) -> Vec<f64> {
    let (n, k) = (panels.n, panels.k);
    let rows = a.len().checked_div(n).unwrap_or(0);
    let mut result = vec![0.0; rows * k];
    let mut from = 0;
    while from < rows {
        // Adjacent rows use the same matrix: m rows each, or all rows if there is only one matrix.
        let run = if batch <= 1 { rows - from } else { m - from % m };
        let to = (from + run).min(rows);
        let matrix = if batch <= 1 { 0 } else { from / m % batch };
        let (a, result) = (&a[from * n..to * n], &mut result[from * k..to * k]);
        vectorized(Multiply { a, panels: panels.of(matrix), n, k, result });
        from = to;
    }
    result
}

struct Multiply<'a> {
    a: &'a [f64],
    panels: &'a [Row],
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
        let (mut scratch, mut nonzero) = (vec![0.0; n], Vec::with_capacity(n));
        for (a, result) in a.chunks(ROWS * n).zip(result.chunks_mut(ROWS * k)) {
            list_nonzero_columns(a, n, &mut scratch, &mut nonzero);
            match a.len() / n {
                1 => tile::<1>(a, panels, &nonzero, (n, k), result, is_fused),
                2 => tile::<2>(a, panels, &nonzero, (n, k), result, is_fused),
                3 => tile::<3>(a, panels, &nonzero, (n, k), result, is_fused),
                4 => tile::<4>(a, panels, &nonzero, (n, k), result, is_fused),
                5 => tile::<5>(a, panels, &nonzero, (n, k), result, is_fused),
                _ => tile::<ROWS>(a, panels, &nonzero, (n, k), result, is_fused),
            }
        }
    }
}

/// Lists the columns in which any of the rows `[rows, n]` is not 0; `scratch` has n elements.
#[inline(always)]
fn list_nonzero_columns(a: &[f64], n: usize, scratch: &mut [f64], nonzero: &mut Vec<u32>) {
    scratch.fill(0.0);
    for row in a.chunks_exact(n) {
        for (is_nonzero, a) in scratch.iter_mut().zip(row) {
            *is_nonzero = if *a != 0.0 { 1.0 } else { *is_nonzero };
        }
    }
    nonzero.clear();
    for (column, is_nonzero) in scratch.iter().enumerate() {
        if *is_nonzero != 0.0 {
            nonzero.push(column as u32);
        }
    }
}

/// Multiplies R rows, of which only the columns `nonzero` are not 0.
#[inline(always)]
fn tile<const R: usize>(
    a: &[f64],
    panels: &[Row],
    nonzero: &[u32],
    (n, k): (usize, usize),
    result: &mut [f64],
    is_fused: bool,
) {
    let rows: [&[f64]; R] = std::array::from_fn(|row| &a[row * n..][..n]);
    for (panel, first) in panels.chunks_exact(n).zip((0..k).step_by(LANES)) {
        let mut sums = [[0.0; LANES]; R];
        for column in nonzero {
            let Row(weights) = panel[*column as usize];
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

/// Centers, radii and magnitudes of intervals.
pub type CenterRadiusMagnitude = [Vec<f64>; 3];

/// Multiplies a row of n intervals by a matrix w of the batch: returns center × w, radius × |w| and magnitude × |w|, `[k]` each.
pub fn multiply_interval(x: [&[f64]; 3], panels: &Panels, matrix: usize) -> CenterRadiusMagnitude {
    vectorized(MultiplyInterval { x, panels: panels.of(matrix), k: panels.k })
}

struct MultiplyInterval<'a> {
    x: [&'a [f64]; 3],
    panels: &'a [Row],
    k: usize,
}

impl Loop for MultiplyInterval<'_> {
    type Output = CenterRadiusMagnitude;

    #[inline(always)]
    fn run(self, is_fused: bool) -> CenterRadiusMagnitude {
        let MultiplyInterval { x: [centers, radii, magnitudes], panels, k } = self;
        let mut result = [(); 3].map(|()| Vec::with_capacity(k + LANES));
        for panel in panels.chunks_exact(centers.len().max(1)) {
            let mut sums = [[0.0; LANES]; 3];
            for (((Row(weights), center), radius), magnitude) in panel.iter().zip(centers).zip(radii).zip(magnitudes) {
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

/// Adds the error Σ |a| · `per_unit` to the sum of each row of `numel` coefficients; a coefficient of 0 adds nothing, even if the error
/// per unit is infinite.
pub fn add_errors(a: &[f64], numel: usize, per_unit: &[Lane], sums: &mut [f64]) {
    vectorized(AddErrors { a, numel, per_unit, sums });
}

struct AddErrors<'a> {
    a: &'a [f64],
    numel: usize,
    per_unit: &'a [Lane],
    sums: &'a mut [f64],
}

#[inline(always)]
fn add_error(a: &Lane, per_unit: &Lane, errors: &mut Lane) {
    for lane in 0..LANES {
        let error = a[lane].abs() * per_unit[lane];
        errors[lane] += if a[lane] == 0.0 { 0.0 } else { error };
    }
}

impl Loop for AddErrors<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self, _: bool) {
        let AddErrors { a, numel, per_unit, sums } = self;
        for (a, sum) in a.chunks_exact(numel.max(1)).zip(sums) {
            let mut errors = [0.0; LANES];
            let (whole, rest) = a.as_chunks::<LANES>();
            for (a, per_unit) in whole.iter().zip(per_unit) {
                add_error(a, per_unit, &mut errors);
            }
            if let (false, Some(per_unit)) = (rest.is_empty(), per_unit.get(whole.len())) {
                add_error(&padded(rest), per_unit, &mut errors);
            }
            *sum += total(errors);
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

/// Adds the minimum of Σ a·x over finite intervals to the constant of each row of `numel` coefficients; `endpoints` are the lower and upper
/// ends of the intervals.
pub fn add_minimum(a: &[f64], numel: usize, endpoints: &[[Lane; 2]], sums: &mut Sums) {
    vectorized(AddMinimum { a, numel, endpoints, sums });
}

struct AddMinimum<'a> {
    a: &'a [f64],
    numel: usize,
    endpoints: &'a [[Lane; 2]],
    sums: &'a mut Sums,
}

#[inline(always)]
fn add_minima(a: &Lane, [lo, hi]: &[Lane; 2], constant: &mut Lane, magnitude: &mut Lane) {
    for lane in 0..LANES {
        let minimizer = if a[lane] > 0.0 { lo[lane] } else { hi[lane] };
        let term = a[lane] * minimizer;
        constant[lane] += term;
        magnitude[lane] += term.abs();
    }
}

impl Loop for AddMinimum<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self, _: bool) {
        let AddMinimum { a, numel, endpoints, sums } = self;
        for (row, a) in a.chunks_exact(numel.max(1)).enumerate() {
            let (mut constant, mut magnitude) = ([0.0; LANES], [0.0; LANES]);
            let (whole, rest) = a.as_chunks::<LANES>();
            for (a, endpoints) in whole.iter().zip(endpoints) {
                add_minima(a, endpoints, &mut constant, &mut magnitude);
            }
            if let (false, Some(endpoints)) = (rest.is_empty(), endpoints.get(whole.len())) {
                add_minima(&padded(rest), endpoints, &mut constant, &mut magnitude);
            }
            sums.constant[row] += total(constant);
            sums.magnitude[row] += total(magnitude);
        }
    }
}

/// Linear relaxations of f: `lower_slope`·x + `lower_intercept` ≤ f(x) ≤ `upper_slope`·x + `upper_intercept`.
#[derive(Clone, Copy, Debug)]
pub struct RelaxationLanes {
    /// Slopes of the lower lines.
    pub lower_slope: Lane,
    /// Intercepts of the lower lines.
    pub lower_intercept: Lane,
    /// Slopes of the upper lines.
    pub upper_slope: Lane,
    /// Intercepts of the upper lines.
    pub upper_intercept: Lane,
    /// Rounding errors per unit of the coefficients of x.
    pub error_per_unit: Lane,
}

/// Replaces the coefficients of f(x) in each row of `numel` by those of x: a positive one takes the lower line, a negative one the upper
/// line. Intercepts and errors are added to `sums`. Without `LOWER_INTERCEPT` the intercepts of the lower lines are 0.
pub fn relax<const LOWER_INTERCEPT: bool>(
    a: &mut [f64],
    numel: usize,
    relaxations: &[RelaxationLanes],
    sums: &mut Sums,
) {
    vectorized(Relax::<LOWER_INTERCEPT> { a, numel, relaxations, sums });
}

struct Relax<'a, const LOWER_INTERCEPT: bool> {
    a: &'a mut [f64],
    numel: usize,
    relaxations: &'a [RelaxationLanes],
    sums: &'a mut Sums,
}

#[inline(always)]
fn relax_lanes<const LOWER_INTERCEPT: bool>(
    a: &mut Lane,
    relaxation: &RelaxationLanes,
    [constant, magnitude, error]: &mut [Lane; 3],
) {
    for lane in 0..LANES {
        let old = a[lane];
        let slope = if old > 0.0 { relaxation.lower_slope[lane] } else { relaxation.upper_slope[lane] };
        // NaN stays NaN, and a coefficient of 0 stays 0 even if there is no relaxation.
        let product = old * slope;
        let new = if old == 0.0 { 0.0 } else { product };
        let upper = old * relaxation.upper_intercept[lane];
        let term = if old < 0.0 { upper } else { 0.0 };
        let rounding = new.abs() * relaxation.error_per_unit[lane];
        a[lane] = new;
        constant[lane] += term;
        magnitude[lane] += term.abs();
        error[lane] += if new == 0.0 { 0.0 } else { rounding };
        // Separate, so that the rest is compiled to vector instructions without branches.
        if LOWER_INTERCEPT {
            let lower = old * relaxation.lower_intercept[lane];
            let term = if old > 0.0 { lower } else { 0.0 };
            constant[lane] += term;
            magnitude[lane] += term.abs();
        }
    }
}

impl<const LOWER_INTERCEPT: bool> Loop for Relax<'_, LOWER_INTERCEPT> {
    type Output = ();

    #[inline(always)]
    fn run(self, _: bool) {
        let Relax { a, numel, relaxations, sums } = self;
        for (row, a) in a.chunks_exact_mut(numel.max(1)).enumerate() {
            let mut totals = [[0.0; LANES]; 3];
            let (whole, rest) = a.as_chunks_mut::<LANES>();
            for (a, relaxation) in whole.iter_mut().zip(relaxations) {
                relax_lanes::<LOWER_INTERCEPT>(a, relaxation, &mut totals);
            }
            if let (false, Some(relaxation)) = (rest.is_empty(), relaxations.get(whole.len())) {
                let mut last = padded(rest);
                relax_lanes::<LOWER_INTERCEPT>(&mut last, relaxation, &mut totals);
                rest.copy_from_slice(&last[..rest.len()]);
            }
            sums.constant[row] += total(totals[0]);
            sums.magnitude[row] += total(totals[1]);
            sums.error[row] += total(totals[2]);
        }
    }
}
