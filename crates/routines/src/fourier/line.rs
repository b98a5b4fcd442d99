//! The transform of one line. `rustfft` transforms complex lines; a real line of even length is transformed as half as
//! many complex numbers, which are separated afterwards. Plans and twiddle factors are cached by length.
//!
//! Source: Press et al., Numerical Recipes, 3rd ed. 2007, section 12.3.2.

use std::collections::HashMap;
use std::f64::consts::TAU;
use std::slice;
use std::sync::{Arc, Mutex, PoisonError};

use panoply_host::isa::Isa;
use panoply_host::simd::Real;
use panoply_ir::routine::FourierKind;
use rustfft::num_complex::Complex;
use rustfft::{Fft, FftDirection, FftNum, FftPlannerAvx, FftPlannerNeon, FftPlannerScalar};

/// Maximum sum of the cached lengths; if it is exceeded, the cache is cleared.
pub const KEPT: usize = 1 << 22;

/// Cache of FFT plans.
#[derive(Default)]
pub struct FftPlans {
    single: Mutex<PlanCache<f32>>,
    double: Mutex<PlanCache<f64>>,
}

type PlanCache<T> = HashMap<(Isa, FourierKind, usize), Arc<FftPlan<T>>>;

/// A type of the real and imaginary parts of complex numbers.
pub trait Element: Real + FftNum {
    /// Returns the cache of this type.
    fn kept(of: &FftPlans) -> &Mutex<PlanCache<Self>>;

    /// Returns the plan of a transform of `length` numbers, from the cache if possible.
    fn line(of: &FftPlans, isa: Isa, kind: FourierKind, length: usize) -> Arc<FftPlan<Self>> {
        let kept = || Self::kept(of).lock().unwrap_or_else(PoisonError::into_inner);
        let key = (isa, kind, length);
        if let Some(known) = kept().get(&key) {
            return known.clone();
        }
        // Created without the lock: a long plan takes a while.
        let made = Arc::new(FftPlan::new(isa, kind, length));
        let mut kept = kept();
        if kept.keys().map(|(.., length)| length).sum::<usize>() + length > KEPT {
            kept.clear();
        }
        kept.entry(key).or_insert(made).clone()
    }
}

impl Element for f32 {
    fn kept(of: &FftPlans) -> &Mutex<PlanCache<f32>> {
        &of.single
    }
}

impl Element for f64 {
    fn kept(of: &FftPlans) -> &Mutex<PlanCache<f64>> {
        &of.double
    }
}

/// The plan of a transform.
pub struct FftPlan<T: Element> {
    kind: FourierKind,
    /// Number of complex numbers, or of real ones for transforms between real and complex.
    pub length: usize,
    /// The transform of that many complex numbers, or of half as many for real lines of even length.
    fft: Arc<dyn Fft<T>>,
    /// The twiddle factors exp(-2πi·k / length), which separate real lines of even length.
    twiddles: Vec<Complex<T>>,
}

impl<T: Element> FftPlan<T> {
    fn new(isa: Isa, kind: FourierKind, length: usize) -> FftPlan<T> {
        let direction = match kind {
            FourierKind::Forward | FourierKind::RealToComplex => FftDirection::Forward,
            FourierKind::Backward | FourierKind::ComplexToReal => FftDirection::Inverse,
        };
        let halves = match kind {
            FourierKind::Forward | FourierKind::Backward => false,
            FourierKind::RealToComplex | FourierKind::ComplexToReal => length.is_multiple_of(2),
        };
        let twiddle = |k: usize| {
            let (sine, cosine) = (-TAU * k as f64 / length as f64).sin_cos();
            Complex::new(T::of(cosine), T::of(sine))
        };
        let twiddles = if halves { (0..=length / 4).map(twiddle).collect() } else { Vec::new() };
        FftPlan { kind, length, fft: planned(isa, if halves { length / 2 } else { length }, direction), twiddles }
    }

    /// Returns the number of elements per number of the input, and of the output.
    pub fn parts(&self) -> [usize; 2] {
        match self.kind {
            FourierKind::Forward | FourierKind::Backward => [2, 2],
            FourierKind::RealToComplex => [1, 2],
            FourierKind::ComplexToReal => [2, 1],
        }
    }

    /// Returns the number of elements of scratch memory that a transform needs.
    pub fn scratch(&self) -> usize {
        let (apart, within) = (self.fft.get_immutable_scratch_len(), self.fft.get_inplace_scratch_len());
        2 * match (self.kind, self.is_halved()) {
            (FourierKind::Forward | FourierKind::Backward, _) | (FourierKind::RealToComplex, true) => apart,
            (FourierKind::ComplexToReal, true) => within,
            (FourierKind::RealToComplex | FourierKind::ComplexToReal, false) => self.length + within,
        }
    }

    fn is_halved(&self) -> bool {
        self.fft.len() < self.length
    }

    /// Transforms a line, using `scratch` of [`FftPlan::scratch`] elements; the result is multiplied by `scale`.
    pub fn transform(&self, from: &[T], to: &mut [T], scale: T, scratch: &mut [T]) {
        let scratch = pairs_mut(scratch);
        match (self.kind, self.is_halved()) {
            (FourierKind::Forward | FourierKind::Backward, _) => {
                self.fft.process_immutable_with_scratch(pairs(from), pairs_mut(to), scratch);
            }
            (FourierKind::RealToComplex, true) => {
                let to = pairs_mut(to);
                let half = to.len() - 1;
                self.fft.process_immutable_with_scratch(pairs(from), &mut to[..half], scratch);
                self.take_apart(to);
            }
            (FourierKind::ComplexToReal, true) => {
                let to = pairs_mut(to);
                self.put_together(pairs(from), to);
                self.fft.process_with_scratch(to, scratch);
            }
            (FourierKind::RealToComplex, false) => {
                let (line, scratch) = scratch.split_at_mut(self.length);
                line.iter_mut().zip(from).for_each(|(z, x)| *z = Complex::new(*x, T::default()));
                self.fft.process_with_scratch(line, scratch);
                pairs_mut(to).copy_from_slice(&line[..=self.length / 2]);
            }
            (FourierKind::ComplexToReal, false) => {
                let (line, scratch) = scratch.split_at_mut(self.length);
                let (from, half) = (pairs(from), self.length / 2);
                line[0] = Complex::new(from[0].re, T::default());
                line[1..=half].copy_from_slice(&from[1..]);
                line[half + 1..].iter_mut().zip(from[1..].iter().rev()).for_each(|(z, x)| *z = x.conj());
                self.fft.process_with_scratch(line, scratch);
                to.iter_mut().zip(line).for_each(|(x, z)| *x = z.re);
            }
        }
        if scale != T::of(1.0) {
            to.iter_mut().for_each(|x| *x = *x * scale);
        }
    }

    /// Converts the transform of complex numbers whose parts are the real numbers at even and odd positions into the
    /// transform of the real numbers. The last element of `z` is an output only.
    fn take_apart(&self, z: &mut [Complex<T>]) {
        let (half, first, two) = (z.len() - 1, z[0], T::of(0.5));
        (z[0], z[half]) =
            (Complex::new(first.re + first.im, T::default()), Complex::new(first.re - first.im, T::default()));
        let (low, high) = z[1..half].split_at_mut(half / 2);
        // The middle element is its own partner.
        if let Some(middle) = low.last_mut().filter(|_| half.is_multiple_of(2)) {
            *middle = middle.conj();
        }
        for ((a, b), w) in low.iter_mut().zip(high.iter_mut().rev()).zip(&self.twiddles[1..]) {
            let (sum, difference) = (*a + b.conj(), *a - b.conj());
            let rotated = *w * Complex::new(difference.im, -difference.re);
            (*a, *b) = ((sum + rotated) * two, (sum - rotated).conj() * two);
        }
    }

    /// Computes the inverse of `take_apart`, times two.
    fn put_together(&self, x: &[Complex<T>], z: &mut [Complex<T>]) {
        let half = z.len();
        let (first, last) = (x[0].re, x[half].re);
        z[0] = Complex::new(first + last, first - last);
        let (low, high) = z[1..].split_at_mut(half / 2);
        if let Some(middle) = low.last_mut().filter(|_| half.is_multiple_of(2)) {
            *middle = x[half / 2].conj() * T::of(2.0);
        }
        let pairs = x[1..half].iter().zip(x[1..half].iter().rev());
        for (((to, other), (a, b)), w) in low.iter_mut().zip(high.iter_mut().rev()).zip(pairs).zip(&self.twiddles[1..])
        {
            let (sum, difference) = (*a + b.conj(), *a - b.conj());
            let rotated = w.conj() * Complex::new(-difference.im, difference.re);
            (*to, *other) = (sum + rotated, (sum - rotated).conj());
        }
    }
}

/// Reinterprets real and imaginary parts as complex numbers.
fn pairs<T: Element>(parts: &[T]) -> &[Complex<T>] {
    // SAFETY: a complex number is `repr(C)` and consists of its two parts.
    unsafe { slice::from_raw_parts(parts.as_ptr().cast(), parts.len() / 2) }
}

/// Reinterprets real and imaginary parts as complex numbers.
fn pairs_mut<T: Element>(parts: &mut [T]) -> &mut [Complex<T>] {
    // SAFETY: as above.
    unsafe { slice::from_raw_parts_mut(parts.as_mut_ptr().cast(), parts.len() / 2) }
}

/// Plans a transform of `length` complex numbers for an instruction set.
fn planned<T: Element>(isa: Isa, length: usize, direction: FftDirection) -> Arc<dyn Fft<T>> {
    let vectors = match isa {
        Isa::Portable => None,
        Isa::Neon => FftPlannerNeon::new().ok().map(|mut planner| planner.plan_fft(length, direction)),
        Isa::Avx2 | Isa::Avx512 => FftPlannerAvx::new().ok().map(|mut planner| planner.plan_fft(length, direction)),
    };
    vectors.unwrap_or_else(|| FftPlannerScalar::new().plan_fft(length, direction))
}
