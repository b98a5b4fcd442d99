//! Discrete Fourier transforms of any length, as matrix products. A complex number is a last axis of 2, real part first, as
//! PyTorch's `view_as_real` has it.
//!
//! A length is split into as few factors of at most [`LIMIT`] as will do. Each is one product with its small Fourier matrix,
//! and between two of them stands one multiplication by twiddles. That is more arithmetic than butterflies and far fewer
//! passes over memory. A length with a larger prime factor becomes a convolution of a power of two. The tables are made
//! in f64 and kept; as they are data, a body of [`Tensor::call`] cannot have a transform inside.
//!
//! Sums of 256 terms round more than butterflies do: of 65536 random numbers the largest error is 1.3e-6 of the root of the
//! mean square in f32 and 2.5e-15 in f64, where NumPy has 1.6e-7 and 1.1e-15.
//!
//! Sources: Cooley and Tukey, An Algorithm for the Machine Calculation of Complex Fourier Series, 1965; Bluestein, A Linear
//! Filtering Approach to the Computation of the Discrete Fourier Transform, 1970.

use std::collections::HashMap;
use std::f64::consts::FRAC_PI_2;
use std::sync::{LazyLock, Mutex, PoisonError};

use panoply_ir::{DType, Error, Shape};
use panoply_runtime::Device;

use crate::realize::on_host;
use crate::tensor::Tensor;

/// The longest transform that is one product with its matrix.
const LIMIT: usize = 128;

/// Bytes of the tables kept in this process; those used longest ago go first and are made again when they are needed.
const CAPACITY: usize = 256 << 20;

static TABLES: LazyLock<Mutex<Tables>> = LazyLock::new(Mutex::default);

/// Tables that are kept.
#[derive(Default)]
struct Tables {
    /// Each with when it was used last.
    kept: HashMap<Key, (Tensor, usize)>,
    /// How often one was asked for.
    uses: usize,
}

type Key = (Device, DType, Table);

/// The numbers of a transform of so many elements, from frequencies if it is an inverse one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Table {
    /// For each factor its matrix, and after all but the last the twiddles.
    Factors(usize, bool),
    /// The chirp, and the spectrum of what the convolution is with.
    Chirp(usize, bool),
}

impl Table {
    /// At most so many numbers are held while it is made.
    fn elems(self) -> usize {
        match self {
            Table::Factors(n, _) => n.saturating_mul(6 * factors(n).map_or(0, |factors| factors.len())),
            Table::Chirp(n, _) => n.saturating_mul(32),
        }
    }
}

impl Tensor {
    /// Complex numbers of their parts, which have one shape: `[…]` becomes `[…, 2]`.
    #[track_caller]
    pub fn complex(real: &Tensor, imaginary: &Tensor) -> Tensor {
        let first = Tensor::iota(2).eq(&Tensor::constant(0i32.into()));
        real.unsqueeze(-1).where_(&first, &imaginary.unsqueeze(-1))
    }

    /// The real parts of complex numbers: `[…, 2]` becomes `[…]`.
    #[track_caller]
    pub fn real(&self) -> Tensor {
        self.component("real", 0)
    }

    /// The imaginary parts of complex numbers: `[…, 2]` becomes `[…]`.
    #[track_caller]
    pub fn imaginary(&self) -> Tensor {
        self.component("imaginary", 1)
    }

    /// Products of complex numbers, `[…, 2]` each; the axes before the last broadcast.
    #[track_caller]
    pub fn complex_mul(&self, other: &Tensor) -> Tensor {
        if let Err(mistake) = self.pairs("complex_mul").and(other.pairs("complex_mul")) {
            return mistake;
        }
        let signs = Tensor::iota(2).cast(self.dtype()) * self.literal(2.0) - self.literal(1.0);
        self.turned(&other.narrow(-1, 0, 1), &(other.narrow(-1, 1, 1) * signs))
    }

    /// Magnitudes of complex numbers: `[…, 2]` becomes `[…]`.
    #[track_caller]
    pub fn complex_abs(&self) -> Tensor {
        match self.pairs("complex_abs") {
            Ok(()) => self.norm(-1),
            Err(mistake) => mistake,
        }
    }

    /// The discrete Fourier transform of complex numbers along an axis, `Σ x[j] · exp(-2πi·j·k / n)`: `[…, n, 2]` stays so. The
    /// axis is counted without that of the parts: -1 is the one before it. f32 or f64.
    ///
    /// ```
    /// # use panoply_tensor::Tensor;
    /// let wave = Tensor::from_slice(&[1.0f32, 0.0, 0.0, 1.0, -1.0, 0.0, 0.0, -1.0], [4, 2]);
    /// assert_eq!(wave.fft(-1).complex_abs().to_vec::<f32>()?, [0.0, 4.0, 0.0, 0.0]);
    /// # Ok::<(), panoply_tensor::Error>(())
    /// ```
    #[track_caller]
    pub fn fft(&self, axis: isize) -> Tensor {
        match self.complex_axis("fft", axis) {
            Ok(place) => self.transformed(place, false),
            Err(mistake) => mistake,
        }
    }

    /// What [`Tensor::fft`] gives these numbers: `Σ x[k] · exp(2πi·j·k / n) / n`.
    #[track_caller]
    pub fn ifft(&self, axis: isize) -> Tensor {
        match self.complex_axis("ifft", axis) {
            Ok(place) => self.transformed(place, true) * self.literal(1.0 / self.0.shape.dims()[place] as f64),
            Err(mistake) => mistake,
        }
    }

    /// The transform of real numbers along an axis, of which the frequencies from 0 to n/2 say all: `[…, n]` becomes
    /// `[…, n / 2 + 1, 2]`.
    #[track_caller]
    pub fn rfft(&self, axis: isize) -> Tensor {
        let place = match self.whole_axis("rfft", axis) {
            Ok(place) => place,
            Err(mistake) => return mistake,
        };
        let complex = Tensor::complex(self, &self.zeros_like());
        match complex.complex_axis("rfft", place as isize) {
            Ok(_) => complex.transformed(place, false).narrow(place as isize, 0, self.0.shape.dims()[place] / 2 + 1),
            Err(mistake) => mistake,
        }
    }

    /// The real numbers, so many, to which [`Tensor::rfft`] gives these frequencies: `[…, length / 2 + 1, 2]` becomes
    /// `[…, length]`. Imaginary parts that no real numbers have do not count.
    #[track_caller]
    pub fn irfft(&self, length: usize, axis: isize) -> Tensor {
        let place = match self.complex_axis("irfft", axis) {
            Ok(place) => place,
            Err(mistake) => return mistake,
        };
        let (count, rank) = (self.0.shape.dims()[place], self.0.shape.rank());
        if length == 0 || length / 2 + 1 != count {
            let message = format!("irfft: {length} numbers have {} frequencies, not the {count} of", length / 2 + 1);
            return Tensor::mistake(Error::mistake(format!("{message} {self:?}")));
        }
        // The others stand for themselves and for the negative frequencies.
        let places = Tensor::iota(count);
        let is = |frequency: usize| places.eq(&places.literal(frequency as f64));
        let single = if length.is_multiple_of(2) { is(0).bitor(&is(length / 2)) } else { is(0) };
        let (mut column, mut widths) = (vec![1; rank], vec![(0, 0); rank]);
        (column[place], widths[place]) = (count, (0, length - count));
        let weights = self.literal(1.0).where_(&single, &self.literal(2.0)).reshaped(column.into());
        let whole = (self * weights).pad(&widths).transformed(place, true);
        whole.real() * self.literal(1.0 / length as f64)
    }

    /// [`Tensor::fft`] along the last two axes: `[…, m, n, 2]`.
    #[track_caller]
    pub fn fft2(&self) -> Tensor {
        self.fft(-1).fft(-2)
    }

    /// [`Tensor::ifft`] along the last two axes: `[…, m, n, 2]`.
    #[track_caller]
    pub fn ifft2(&self) -> Tensor {
        self.ifft(-1).ifft(-2)
    }

    /// [`Tensor::rfft`] along the last axis and [`Tensor::fft`] along the one before: `[…, m, n]` becomes
    /// `[…, m, n / 2 + 1, 2]`.
    #[track_caller]
    pub fn rfft2(&self) -> Tensor {
        self.rfft(-1).fft(-2)
    }

    /// What [`Tensor::rfft2`] gives these frequencies, with so many numbers in a row: `[…, m, length / 2 + 1, 2]` becomes
    /// `[…, m, length]`.
    #[track_caller]
    pub fn irfft2(&self, length: usize) -> Tensor {
        self.ifft(-2).irfft(length, -1)
    }

    #[track_caller]
    fn component(&self, op: &str, which: usize) -> Tensor {
        match self.pairs(op) {
            Ok(()) => self.narrow(-1, which, 1).squeeze(-1),
            Err(mistake) => mistake,
        }
    }

    /// Whether the last axis holds the parts of complex numbers.
    #[track_caller]
    fn pairs(&self, op: &str) -> Result<(), Tensor> {
        if self.is_mistake() {
            return Err(self.clone());
        }
        if self.0.shape.dims().last() == Some(&2) && self.dtype().is_float() {
            return Ok(());
        }
        let message = format!("{op}: needs complex numbers, not {self:?}");
        let note = "their real and imaginary parts are a last axis of 2 floats; `Tensor::complex` makes one";
        Err(Tensor::mistake(Error::mistake(message).note(note)))
    }

    /// The place of an axis of complex numbers that can be transformed.
    #[track_caller]
    pub(super) fn complex_axis(&self, op: &str, axis: isize) -> Result<usize, Tensor> {
        self.pairs(op)?;
        let (dims, rank) = (self.0.shape.dims(), self.0.shape.rank() as isize - 1);
        let place = if axis < 0 { axis + rank } else { axis };
        let wrong = if !(0..rank).contains(&place) {
            format!("axis {axis} is out of range for the {rank} of complex numbers {self:?}")
        } else if dims[place as usize] == 0 {
            format!("there are no elements along axis {axis} of {self:?}")
        } else if !matches!(self.dtype(), DType::F32 | DType::F64) {
            format!("needs f32 or f64, not {self:?}")
        } else {
            return self.is_whole(op, [place as usize, rank as usize]).map(|()| place as usize);
        };
        Err(Tensor::mistake(Error::mistake(format!("{op}: {wrong}"))))
    }

    /// The sums along an axis of complex numbers, inverse ones not divided by its length.
    #[track_caller]
    fn transformed(&self, place: usize, inverse: bool) -> Tensor {
        let last = self.0.shape.rank() as isize - 2;
        let moved = self.transpose(place as isize, last);
        let (dims, n) = (moved.0.shape.clone(), self.0.shape.dims()[place]);
        let flat = moved.reshaped([self.0.shape.elems() / (2 * n), n, 2].into());
        if flat.is_mistake() {
            return flat;
        }
        line(&flat, inverse).reshaped(dims).transpose(place as isize, last)
    }

    /// Complex numbers times others: their real parts, and their imaginary parts with the sign that each part takes.
    fn turned(&self, real: &Tensor, signed: &Tensor) -> Tensor {
        self * real + self.flip(-1) * signed
    }
}

/// The sums of `[batch, n, 2]`. What flows back is the same with the other sign.
#[track_caller]
fn line(x: &Tensor, inverse: bool) -> Tensor {
    let n = x.0.shape.dims()[1];
    if factors(n).is_some() {
        return Tensor::call_with_gradient(
            "fft",
            [x, &table(x, Table::Factors(n, inverse))],
            inverse,
            |[x, table], _| by_factors(x, table),
            |_, _, g, inverse| [Some(line(g, !inverse)), None],
        );
    }
    let m = (2 * n - 1).next_power_of_two();
    let tables = [Table::Chirp(n, inverse), Table::Factors(m, false), Table::Factors(m, true)];
    let [chirp, there, back] = tables.map(|which| table(x, which));
    Tensor::call_with_gradient(
        "fft",
        [x, &chirp, &there, &back],
        inverse,
        |[x, chirp, there, back], _| by_convolution(x, chirp, there, back),
        |_, _, g, inverse| [Some(line(g, !inverse)), None, None, None],
    )
}

/// Cooley and Tukey's: with j = j₁·m + j₂ and k = k₁ + r·k₂ the sums over j₁ are r-point transforms, the rest are m-point
/// transforms of what they give times twiddles.
fn by_factors(x: &Tensor, table: &Tensor) -> Tensor {
    let &[batch, n, _] = x.0.shape.dims() else { unreachable!("it has three axes") };
    let factors = factors(n).expect("it was asked before");
    let (last, early) = factors.split_last().expect("there is a factor");
    let (mut groups, mut rest, mut read) = (batch, n, Reader { table, at: 0 });
    // Parts before places: the sums over j₁ of both parts are one product from the left, which gives them and, in the place of
    // each, i times them. So twiddles are a product element by element, and nothing moves in between.
    let mut data = if early.is_empty() { x.clone() } else { x.permuted(vec![0, 2, 1]) };
    for r in early {
        let m = rest / r;
        let sums = read.next(&[4 * r, 2 * r]).matmul(&data.reshaped([groups, 2 * r, m].into()));
        let half = |which: usize| sums.narrow(1, which * 2 * r, 2 * r);
        data = half(0) * read.next(&[2 * r, m]) + half(1) * read.next(&[2 * r, m]);
        (groups, rest) = (groups * r, m);
    }
    let sums = data.reshaped([groups, 2 * last].into()).matmul(&read.next(&[2 * last, 2 * last]));
    let count = factors.len();
    let dims = [&[batch], &factors[..], &[2]].concat();
    let digits = [0].into_iter().chain((1..=count).rev()).chain([count + 1]);
    sums.reshaped(dims.into()).permuted(digits.collect()).reshaped([batch, n, 2].into())
}

/// Bluestein's: as j·k = (j² + k² - (k - j)²) / 2, the transform is a convolution with a chirp between two products with one.
fn by_convolution(x: &Tensor, chirp: &Tensor, there: &Tensor, back: &Tensor) -> Tensor {
    let n = x.0.shape.dims()[1];
    let m = (2 * n - 1).next_power_of_two();
    let mut read = Reader { table: chirp, at: 0 };
    let (real, signed) = (read.next(&[n, 1]), read.next(&[n, 2]));
    let spectrum = by_factors(&x.turned(&real, &signed).pad(&[(0, 0), (0, m - n), (0, 0)]), there);
    let product = spectrum.turned(&read.next(&[m, 1]), &read.next(&[m, 2]));
    by_factors(&product, back).narrow(1, 0, n).turned(&real, &signed)
}

/// Parts of a table, one after another.
struct Reader<'a> {
    table: &'a Tensor,
    at: usize,
}

impl Reader<'_> {
    fn next(&mut self, dims: &[usize]) -> Tensor {
        let shape = Shape::from(dims);
        let part = self.table.narrow(0, self.at, shape.elems());
        self.at += shape.elems();
        part.reshaped(shape)
    }
}

/// Few factors of at most [`LIMIT`], about equal, whose product is n; none if n has a larger prime factor.
fn factors(n: usize) -> Option<Vec<usize>> {
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

/// A table for numbers like these, on their device.
#[track_caller]
fn table(like: &Tensor, which: Table) -> Tensor {
    let device = match like.device().cloned().map_or_else(Device::current, Ok) {
        Ok(device) => device,
        Err(error) => return Tensor::mistake(error),
    };
    let key = (device.clone(), like.dtype(), which);
    if let Some(known) = lock().find(&key) {
        return known;
    }
    // Here it would be the end of the program.
    if let Err(error) = on_host::<f64>(which.elems()) {
        return Tensor::mistake(error);
    }
    let numbers = match which {
        Table::Factors(n, inverse) => matrices(n, inverse),
        Table::Chirp(n, inverse) => chirp(n, inverse),
    };
    let made = if like.dtype() == DType::F64 {
        Tensor::from_slice_on(&device, &numbers, [numbers.len()])
    } else {
        let rounded: Vec<f32> = numbers.iter().map(|x| *x as f32).collect();
        Tensor::from_slice_on(&device, &rounded, [rounded.len()])
    };
    lock().keep(key, made.clone());
    made
}

impl Tables {
    fn find(&mut self, key: &Key) -> Option<Tensor> {
        self.uses += 1;
        let (table, used) = self.kept.get_mut(key)?;
        *used = self.uses;
        Some(table.clone())
    }

    /// Keeps a table if it fits, and of the others what fits beside it.
    fn keep(&mut self, key: Key, table: Tensor) {
        let bytes = |table: &Tensor| table.0.shape.elems() * table.dtype().bytes();
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

/// exp(2πi · p / q), of the other sign unless `inverse`; exact at quarters.
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

/// What [`by_factors`] reads.
fn matrices(n: usize, inverse: bool) -> Vec<f64> {
    let factors = factors(n).expect("it was asked before");
    let (last, early) = factors.split_last().expect("there is a factor");
    let (mut numbers, mut rest) = (Vec::new(), n);
    // What part `to` of a product takes of part `from`.
    let share = |[c, s]: Complex, to: usize, from: usize| match (to, from) {
        (0, 1) => -s,
        (1, 0) => s,
        _ => c,
    };
    for r in early {
        let m = rest / r;
        for (turned, k, to) in (0..4 * r).map(|row| (row / (2 * r), row / 2 % r, row % 2)) {
            // i times a number has its imaginary part, of the other sign, as real part.
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
    // The parts stand behind the places in what is given, and before them in sums.
    let apart = |row: usize| if early.is_empty() { (row / 2, row % 2) } else { (row % last, row / last) };
    for (j, from) in (0..2 * last).map(apart) {
        numbers.extend((0..2 * last).map(|column| share(root(j * (column / 2), *last, inverse), column % 2, from)));
    }
    numbers
}

/// Real parts, then imaginary parts twice, with the signs that they take for a product's real and imaginary part.
fn push(factors: &[Complex], numbers: &mut Vec<f64>) {
    numbers.extend(factors.iter().map(|[c, _]| c));
    numbers.extend(factors.iter().flat_map(|[_, s]| [-s, *s]));
}

/// What [`by_convolution`] reads.
fn chirp(n: usize, inverse: bool) -> Vec<f64> {
    let m = (2 * n - 1).next_power_of_two();
    let square = |j: usize| (j as u128 * j as u128 % (2 * n as u128)) as usize;
    let chirp: Vec<Complex> = (0..n).map(|j| root(square(j), 2 * n, inverse)).collect();
    let mut filter = vec![[0.0; 2]; m];
    for (j, [c, s]) in chirp.iter().enumerate() {
        // The inverse one of the convolution is not divided by its length.
        let number = [c / m as f64, -s / m as f64];
        filter[j] = number;
        filter[(m - j) % m] = number;
    }
    butterflies(&mut filter);
    let mut numbers = Vec::new();
    push(&chirp, &mut numbers);
    push(&filter, &mut numbers);
    numbers
}

/// The transform of as many numbers as a power of two, in place.
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
