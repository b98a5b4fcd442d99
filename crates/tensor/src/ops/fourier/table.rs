//! Tables of transforms by matrix products: computed in f64 when a plan first reads them, and cached.

use std::collections::HashMap;
use std::f64::consts::FRAC_PI_2;
use std::sync::{LazyLock, Mutex, PoisonError};

use panoply_ir::{DType, Result, Shape};
use panoply_runtime::Device;

use crate::eval::on_host;
use crate::tensor::{NodeKind, Tensor};

/// Maximum length of a transform that is one product with its matrix.
const LIMIT: usize = 128;

/// Maximum bytes of cached tables in this process; the least recently used ones are dropped and recomputed on demand.
const CAPACITY: usize = 256 << 20;

static TABLES: LazyLock<Mutex<Tables>> = LazyLock::new(Mutex::default);

/// The table of a transform.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Table {
    /// Number of complex numbers to transform.
    length: usize,
    /// True for an inverse transform.
    backward: bool,
}

impl Table {
    /// Returns the number of elements.
    fn elems(self) -> usize {
        match factors(self.length) {
            Some(factors) => matrices_elems(&factors),
            None => {
                let m = padded(self.length);
                let products = matrices_elems(&factors_of_two(m));
                3 * self.length + 3 * m + 2 * products
            }
        }
    }

    /// Computes the elements, rounded to f32 or f64.
    pub fn bytes(self, dtype: DType) -> Result<Vec<u8>> {
        // Checks the memory first: the allocations below would abort. A convolution needs memory beside its elements.
        on_host::<f64>(self.elems().saturating_mul(3))?;
        let numbers = match factors(self.length) {
            Some(factors) => matrices(&factors, self.backward),
            None => chirp(self.length, self.backward),
        };
        assert_eq!(numbers.len(), self.elems(), "a table has as many elements as its tensor");
        Ok(match dtype {
            DType::F64 => bytemuck::cast_slice(&numbers).to_vec(),
            _ => bytemuck::cast_slice(&numbers.iter().map(|x| *x as f32).collect::<Vec<f32>>()).to_vec(),
        })
    }
}

/// The cached tables.
#[derive(Default)]
struct Tables {
    /// Each table with the time of its last use.
    kept: HashMap<Key, (Tensor, usize)>,
    /// Number of lookups.
    uses: usize,
}

type Key = (Device, DType, Table);

/// Reads the parts of a table in order.
pub(super) struct Reader<'a> {
    table: &'a Tensor,
    at: usize,
}

impl<'a> Reader<'a> {
    pub fn of(table: &'a Tensor) -> Reader<'a> {
        Reader { table, at: 0 }
    }

    /// Returns the next elements as an array of these dims.
    pub fn next(&mut self, dims: &[usize]) -> Tensor {
        let shape = Shape::from(dims);
        let part = self.table.narrow(0, self.at, shape.numel());
        self.at += shape.numel();
        part.reshaped(shape)
    }
}

/// Splits n into the fewest factors of at most [`LIMIT`], about equal; `None` if n has a larger prime factor.
pub(super) fn factors(n: usize) -> Option<Vec<usize>> {
    let (mut primes, mut rest) = (Vec::new(), n);
    while let Some(prime) = (2..=LIMIT.min(rest)).find(|p| rest.is_multiple_of(*p)) {
        primes.push(prime);
        rest /= prime;
    }
    if rest > 1 {
        return None;
    }
    (1..).find_map(|count| {
        let mut factors = vec![1; count];
        for prime in primes.iter().rev() {
            *factors.iter_mut().min().expect("there is one") *= prime;
        }
        factors.iter().all(|factor| *factor <= LIMIT).then_some(factors)
    })
}

/// Splits a power of two.
pub(super) fn factors_of_two(n: usize) -> Vec<usize> {
    factors(n).expect("2 is its only prime factor")
}

/// Returns the length of the convolution that computes a transform of `n` numbers.
pub(super) fn padded(n: usize) -> usize {
    (2 * n - 1).next_power_of_two()
}

/// Returns the table for numbers of this type and device.
#[track_caller]
pub(super) fn table(like: &Tensor, length: usize, backward: bool) -> Tensor {
    let device = match like.device().cloned().map_or_else(Device::current, Ok) {
        Ok(device) => device,
        Err(error) => return Tensor::mistake(error),
    };
    let which = Table { length, backward };
    let key = (device.clone(), like.dtype(), which);
    if let Some(known) = lock().find(&key) {
        return known;
    }
    let shape = Shape::from([which.elems()]);
    let table = Tensor::new(NodeKind::Table(which), Vec::new(), shape, like.dtype(), Some(device));
    lock().keep(key, table.clone());
    table
}

impl Tables {
    fn find(&mut self, key: &Key) -> Option<Tensor> {
        self.uses += 1;
        let (table, used) = self.kept.get_mut(key)?;
        *used = self.uses;
        Some(table.clone())
    }

    /// Caches a table if it fits, and drops the least recently used ones to make room.
    fn keep(&mut self, key: Key, table: Tensor) {
        let bytes = |table: &Tensor| table.0.shape.numel() * table.dtype().bytes();
        let mut room = CAPACITY.saturating_sub(self.kept.values().map(|(table, _)| bytes(table)).sum());
        if bytes(&table) > CAPACITY {
            return;
        }
        while room < bytes(&table) {
            let oldest = self.kept.iter().min_by_key(|(_, (_, used))| *used).map(|(key, _)| key.clone());
            let Some((gone, _)) = oldest.and_then(|key| self.kept.remove(&key)) else { break };
            room += bytes(&gone);
        }
        self.kept.insert(key, (table, self.uses));
    }
}

fn lock() -> std::sync::MutexGuard<'static, Tables> {
    TABLES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A complex number.
type Complex = [f64; 2];

/// Returns exp(±2πi · p / q), positive if `inverse`; exact at quarters of a turn.
fn root(p: usize, q: usize, inverse: bool) -> Complex {
    let (quarter, rest) = (4 * (p % q) / q, 4 * (p % q) % q);
    let angle = |part: usize| FRAC_PI_2 * part as f64 / q as f64;
    let [c, s] = if 2 * rest <= q {
        [angle(rest).cos(), angle(rest).sin()]
    } else {
        [angle(q - rest).sin(), angle(q - rest).cos()]
    };
    let [c, s] = [[c, s], [-s, c], [-c, -s], [s, -c]][quarter];
    [c, if inverse { s } else { -s }]
}

/// Returns the number of elements of [`matrices`].
fn matrices_elems(factors: &[usize]) -> usize {
    let (last, early) = factors.split_last().expect("there is a factor");
    let rests =
        early.iter().scan(factors.iter().product::<usize>(), |rest, r| Some(std::mem::replace(rest, *rest / r)));
    let between: usize = early.iter().zip(rests).map(|(r, rest)| 8 * r * r + 4 * rest).sum();
    between + 4 * last * last
}

/// Computes the elements that [`super::by_factors`] reads: the matrix of each factor, and twiddle factors after each
/// but the last.
fn matrices(factors: &[usize], inverse: bool) -> Vec<f64> {
    let (last, early) = factors.split_last().expect("there is a factor");
    let (mut numbers, mut rest) = (Vec::with_capacity(matrices_elems(factors)), factors.iter().product::<usize>());
    // Coefficient of component `from` in component `to` of a product.
    let share = |[c, s]: Complex, to: usize, from: usize| match (to, from) {
        (0, 1) => -s,
        (1, 0) => s,
        _ => c,
    };
    for r in early {
        let m = rest / r;
        for (turned, k, to) in (0..4 * r).map(|row| (row / (2 * r), row / 2 % r, row % 2)) {
            // The real part of i times a number is its negated imaginary part.
            let (sign, to) = if turned == 0 { (1.0, to) } else { (if to == 0 { -1.0 } else { 1.0 }, 1 - to) };
            let places = (0..2).flat_map(|from| (0..*r).map(move |j| (from, j)));
            numbers.extend(places.map(|(from, j)| sign * share(root(j * k, *r, inverse), to, from)));
        }
        for part in 0..2 {
            let twiddle = |k: usize, j: usize| root(k * j, rest, inverse)[part];
            numbers.extend((0..2 * r).flat_map(|row| (0..m).map(move |j| twiddle(row / 2, j))));
        }
        rest = m;
    }
    // Input components come after positions; in partial sums they come before.
    let apart = |row: usize| if early.is_empty() { (row / 2, row % 2) } else { (row % last, row / last) };
    for (j, from) in (0..2 * last).map(apart) {
        numbers.extend((0..2 * last).map(|column| share(root(j * (column / 2), *last, inverse), column % 2, from)));
    }
    numbers
}

/// Appends real parts, then imaginary parts twice, with their signs in the real and imaginary part of a product.
fn push(factors: &[Complex], numbers: &mut Vec<f64>) {
    numbers.extend(factors.iter().map(|[c, _]| c));
    numbers.extend(factors.iter().flat_map(|[_, s]| [-s, *s]));
}

/// Computes the elements that [`super::by_convolution`] reads: the chirp, the forward matrices, the spectrum of the
/// filter, and the backward matrices.
fn chirp(n: usize, inverse: bool) -> Vec<f64> {
    let m = padded(n);
    let square = |j: usize| (j as u128 * j as u128 % (2 * n as u128)) as usize;
    let chirp: Vec<Complex> = (0..n).map(|j| root(square(j), 2 * n, inverse)).collect();
    let mut filter = vec![[0.0; 2]; m];
    for (j, [c, s]) in chirp.iter().enumerate() {
        // The inverse transform of the convolution does not divide by its length.
        let number = [c / m as f64, -s / m as f64];
        filter[j] = number;
        filter[(m - j) % m] = number;
    }
    butterflies(&mut filter);
    let mut numbers = Vec::new();
    push(&chirp, &mut numbers);
    numbers.extend(matrices(&factors_of_two(m), false));
    push(&filter, &mut numbers);
    numbers.extend(matrices(&factors_of_two(m), true));
    numbers
}

/// Transforms in place; the length is a power of two.
fn butterflies(x: &mut [Complex]) {
    let n = x.len();
    let bits = n.trailing_zeros();
    for i in 1..n {
        let j = i.reverse_bits() >> (usize::BITS - bits);
        if i < j {
            x.swap(i, j);
        }
    }
    let mut half = 1;
    while half < n {
        let roots: Vec<Complex> = (0..half).map(|k| root(k, 2 * half, false)).collect();
        for pair in x.chunks_exact_mut(2 * half) {
            let (low, high) = pair.split_at_mut(half);
            for ((a, b), [c, s]) in low.iter_mut().zip(high).zip(&roots) {
                let turned = [b[0] * c - b[1] * s, b[0] * s + b[1] * c];
                (*a, *b) = ([a[0] + turned[0], a[1] + turned[1]], [a[0] - turned[0], a[1] - turned[1]]);
            }
        }
        half *= 2;
    }
}
