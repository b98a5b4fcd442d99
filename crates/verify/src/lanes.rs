//! Inner loops of bounding, compiled for each instruction set of the processor.
//!
//! Sums are split over lanes, and products are fused into sums where the processor can. The error bounds of the callers cover every order
//! of summation, fused or not.

use panoply_host::simd::{Loop, vectorized};

/// Number of elements that are processed together.
pub const LANES: usize = 8;
/// Number of rows of a tile of a matrix product: as many as keep their sums in sixteen 256-bit registers.
const ROWS: usize = 6;

/// Elements that are processed together.
pub type Lane = [f64; LANES];

#[inline(always)]
fn mul_add(is_fused: bool, a: f64, b: f64, sum: f64) -> f64 {
    if is_fused { a.mul_add(b, sum) } else { a * b + sum }
}

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

/// Returns elements in lanes, padded with 0.
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
    /// Packs matrices `[batch, n, k]` whose elements are given by product, row and column.
    pub fn pack(batch: usize, n: usize, k: usize, element: impl Fn(usize, usize, usize) -> f64) -> Panels {
        let mut elements = Vec::with_capacity(batch * n * k.div_ceil(LANES));
        for product in 0..batch {
            for first in (0..k).step_by(LANES) {
                for row in 0..n {
                    let at = |lane: usize| if first + lane < k { element(product, row, first + lane) } else { 0.0 };
                    elements.push(Row(std::array::from_fn(at)));
                }
            }
        }
        Panels { n, k, elements }
    }

    /// Returns the panels of one matrix.
    fn of(&self, product: usize) -> &[Row] {
        let length = self.n * self.k.div_ceil(LANES);
        &self.elements[product * length..][..length]
    }
}

/// Returns `a` × matrix for consecutive lines of `a`; line i uses the product `i / m % batch`. Coefficients of 0 are skipped.
pub fn multiply(a: &[f64], panels: &Panels, batch: usize, m: usize) -> Vec<f64> {
    let (n, k) = (panels.n, panels.k);
    let lines = a.len().checked_div(n).unwrap_or(0);
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
        let (mut seen, mut used) = (vec![0.0; n], Vec::with_capacity(n));
        for (a, result) in a.chunks(ROWS * n).zip(result.chunks_mut(ROWS * k)) {
            mark(a, n, &mut seen, &mut used);
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

/// Lists the columns in which a row is not 0; `seen` is scratch memory of a row.
#[inline(always)]
fn mark(a: &[f64], n: usize, seen: &mut [f64], used: &mut Vec<u32>) {
    seen.fill(0.0);
    for row in a.chunks_exact(n) {
        for (seen, a) in seen.iter_mut().zip(row) {
            *seen = if *a != 0.0 { 1.0 } else { *seen };
        }
    }
    used.clear();
    for (column, seen) in seen.iter().enumerate() {
        if *seen != 0.0 {
            used.push(column as u32);
        }
    }
}

/// Multiplies a few rows, of which only the columns `used` are not 0.
#[inline(always)]
fn tile<const R: usize>(
    a: &[f64],
    panels: &[Row],
    used: &[u32],
    (n, k): (usize, usize),
    result: &mut [f64],
    is_fused: bool,
) {
    let rows: [&[f64]; R] = std::array::from_fn(|row| &a[row * n..][..n]);
    for (panel, first) in panels.chunks_exact(n).zip((0..k).step_by(LANES)) {
        let mut sums = [[0.0; LANES]; R];
        for column in used {
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

/// Centers, radii and magnitudes.
pub type Triple = [Vec<f64>; 3];

/// Returns x × w, r × |w| and s × |w| for one line each of the product's matrix.
pub fn spread(x: [&[f64]; 3], panels: &Panels, product: usize) -> Triple {
    vectorized(Spread { x, panels: panels.of(product), k: panels.k })
}

struct Spread<'a> {
    x: [&'a [f64]; 3],
    panels: &'a [Row],
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

/// Adds Σ |a| · `per_unit` to the sum of each row of `numel` coefficients; a coefficient of 0 adds nothing.
pub fn add_costs(a: &[f64], numel: usize, per_unit: &[Lane], sums: &mut [f64]) {
    vectorized(Costs { a, numel, per_unit, sums });
}

struct Costs<'a> {
    a: &'a [f64],
    numel: usize,
    per_unit: &'a [Lane],
    sums: &'a mut [f64],
}

#[inline(always)]
fn cost(a: &Lane, per_unit: &Lane, costs: &mut Lane) {
    for lane in 0..LANES {
        let cost = a[lane].abs() * per_unit[lane];
        costs[lane] += if a[lane] == 0.0 { 0.0 } else { cost };
    }
}

impl Loop for Costs<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self, _: bool) {
        let Costs { a, numel, per_unit, sums } = self;
        for (a, sum) in a.chunks_exact(numel.max(1)).zip(sums) {
            let mut costs = [0.0; LANES];
            let (whole, rest) = a.as_chunks::<LANES>();
            for (a, per_unit) in whole.iter().zip(per_unit) {
                cost(a, per_unit, &mut costs);
            }
            if let (false, Some(per_unit)) = (rest.is_empty(), per_unit.get(whole.len())) {
                cost(&padded(rest), per_unit, &mut costs);
            }
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

/// Adds the minimum of Σ a·x over finite intervals, given by their ends, to the constant of each row of `numel` coefficients.
pub fn add_minimum(a: &[f64], numel: usize, ends: &[[Lane; 2]], sums: &mut Sums) {
    vectorized(Minimum { a, numel, ends, sums });
}

struct Minimum<'a> {
    a: &'a [f64],
    numel: usize,
    ends: &'a [[Lane; 2]],
    sums: &'a mut Sums,
}

#[inline(always)]
fn minimum(a: &Lane, [lo, hi]: &[Lane; 2], constant: &mut Lane, magnitude: &mut Lane) {
    for lane in 0..LANES {
        let end = if a[lane] > 0.0 { lo[lane] } else { hi[lane] };
        let term = a[lane] * end;
        constant[lane] += term;
        magnitude[lane] += term.abs();
    }
}

impl Loop for Minimum<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self, _: bool) {
        let Minimum { a, numel, ends, sums } = self;
        for (row, a) in a.chunks_exact(numel.max(1)).enumerate() {
            let (mut constant, mut magnitude) = ([0.0; LANES], [0.0; LANES]);
            let (whole, rest) = a.as_chunks::<LANES>();
            for (a, ends) in whole.iter().zip(ends) {
                minimum(a, ends, &mut constant, &mut magnitude);
            }
            if let (false, Some(ends)) = (rest.is_empty(), ends.get(whole.len())) {
                minimum(&padded(rest), ends, &mut constant, &mut magnitude);
            }
            sums.constant[row] += total(constant);
            sums.magnitude[row] += total(magnitude);
        }
    }
}

/// Linear relaxations: `below`·x + `base` ≤ f(x) ≤ `above`·x + `offset`, and the error per unit of coefficient of x.
#[derive(Clone, Copy, Debug)]
pub struct Lines {
    /// Slopes of the lower lines.
    pub below: Lane,
    /// Constants of the lower lines.
    pub base: Lane,
    /// Slopes of the upper lines.
    pub above: Lane,
    /// Constants of the upper lines.
    pub offset: Lane,
    /// Errors per unit of coefficient.
    pub per_unit: Lane,
}

/// Replaces the coefficients of f(x) by those of x: the lower line if positive, the upper line if negative. Without `BASE` the constants of
/// the lower lines are 0.
pub fn relax<const BASE: bool>(a: &mut [f64], numel: usize, lines: &[Lines], sums: &mut Sums) {
    vectorized(Relax::<BASE> { a, numel, lines, sums });
}

struct Relax<'a, const BASE: bool> {
    a: &'a mut [f64],
    numel: usize,
    lines: &'a [Lines],
    sums: &'a mut Sums,
}

#[inline(always)]
fn relaxed<const BASE: bool>(a: &mut Lane, lines: &Lines, [constant, magnitude, error]: &mut [Lane; 3]) {
    for lane in 0..LANES {
        let old = a[lane];
        let line = if old > 0.0 { lines.below[lane] } else { lines.above[lane] };
        // NaN stays NaN, and a coefficient of 0 stays 0 even if there is no relaxation.
        let product = old * line;
        let new = if old == 0.0 { 0.0 } else { product };
        let moved = old * lines.offset[lane];
        let term = if old < 0.0 { moved } else { 0.0 };
        let cost = new.abs() * lines.per_unit[lane];
        a[lane] = new;
        constant[lane] += term;
        magnitude[lane] += term.abs();
        error[lane] += if new == 0.0 { 0.0 } else { cost };
        // Apart from the rest, which is compiled to vector instructions without branches.
        if BASE {
            let raised = old * lines.base[lane];
            let term = if old > 0.0 { raised } else { 0.0 };
            constant[lane] += term;
            magnitude[lane] += term.abs();
        }
    }
}

impl<const BASE: bool> Loop for Relax<'_, BASE> {
    type Output = ();

    #[inline(always)]
    fn run(self, _: bool) {
        let Relax { a, numel, lines, sums } = self;
        for (row, a) in a.chunks_exact_mut(numel.max(1)).enumerate() {
            let mut totals = [[0.0; LANES]; 3];
            let (whole, rest) = a.as_chunks_mut::<LANES>();
            for (a, lines) in whole.iter_mut().zip(lines) {
                relaxed::<BASE>(a, lines, &mut totals);
            }
            if let (false, Some(lines)) = (rest.is_empty(), lines.get(whole.len())) {
                let mut last = padded(rest);
                relaxed::<BASE>(&mut last, lines, &mut totals);
                rest.copy_from_slice(&last[..rest.len()]);
            }
            sums.constant[row] += total(totals[0]);
            sums.magnitude[row] += total(totals[1]);
            sums.error[row] += total(totals[2]);
        }
    }
}
