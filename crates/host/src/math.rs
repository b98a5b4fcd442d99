//! Scalar functions that become vector code.
//!
//! Every function takes and returns one number, has no branch, no trapping table look-up and no call, and is
//! `#[inline(always)]`. Inlined into a loop inside a `#[target_feature]` function, it is vectorized by LLVM for the
//! features of that function. Called directly it is a scalar function with the same result, bit for bit, because
//! nothing depends on the vector width. The result depends only on [`MathIsa`], that is, on whether multiply-add is one
//! fused instruction. (Two functions are calls nevertheless: `double::rem`, and `double::fma` where there is no such
//! instruction.)
//!
//! ```
//! use panoply_host::math::{Portable, single};
//!
//! assert_eq!(single::exp::<Portable>(1.0), std::f32::consts::E);
//! ```
//!
//! The contract: at most 2 ULP from the true value for every `f32` (`tests/it/ulp.rs` looks at all of them) and at most 4 for
//! `f64`; NaN, infinities, denormals and the sign of zero as IEEE 754 and C's Annex F have them. The measured maxima stand
//! in `docs/measured/2026-11-20-math-ulp.md`. Floating-point exceptions and rounding modes other than to nearest are not
//! supported.
//!
//! The module does not depend on blocks, registers or the kernel IR.
//!
//! # Sources
//! The methods are standard; the polynomials were computed for this crate (`minimax.sollya`).
//! - J.-M. Muller, *Elementary Functions*, 3rd ed., 2016: the general approach; Cody and Waite's argument reduction
//!   with split constants; the table-free logarithm; error-free transformations (Dekker; Knuth).
//! - FreeBSD's msun (Sun's fdlibm): `log` through `s = f / (2 + f)`, the correction of `log1p`, `atan` on three intervals.
//! - M. Payne, R. Hanek, *Radian reduction for trigonometric functions*, SIGNUM 18, 1983: `sin`, `cos`, `tan` of large
//!   arguments, in the floating-point form explained in `payne_hanek`.
//! - N. Shibata, F. Petrogalli, *SLEEF*, IEEE TPDS 31, 2020: evaluating both sides of a case and selecting.
//! - S. Boldo, G. Melquiond, *Emulation of a FMA and correctly rounded sums*, IEEE TC 57, 2008: rounding to odd, for `fma`.

pub mod double;
mod isa;
mod payne_hanek;
mod power;
pub mod single;

pub use isa::{Fused, MathIsa, Portable};
