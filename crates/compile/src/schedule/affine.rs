//! Affine index expressions over loop variables: the index arithmetic of movement operations.
//!
//! An [`AffineExpr`] is `constant + Σ coefficient · term`. Slices, pads, permutations and expansions preserve affine
//! sums. A reshape can need quotients and remainders by constants, which are separate terms; every constructor
//! simplifies them away where the ranges of the variables allow it. Equal expressions compare equal, so two paths to
//! the same element are recognized as such.
//!
//! Expressions are over the integers. An index that a mask will discard can be negative; it is emitted with wrapping
//! arithmetic. The operand of a quotient or remainder is kept non-negative over the variables' ranges, so that unsigned
//! arithmetic gives the same value wherever the index is used.

use std::fmt;
use std::sync::Arc;

/// A loop variable with values in `0 .. extent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LoopVar {
    /// Identifier, unique within a kernel.
    pub id: u32,
    /// Number of values, at least 1.
    pub extent: u64,
}

/// A term of an affine sum.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AffineTerm {
    /// A loop variable.
    Var(LoopVar),
    /// An index loaded from memory, by its number within the kernel, and its extent. It is below the extent wherever it
    /// is used; a mask discards the rest.
    Read(u32, u64),
    /// Quotient by a constant, rounded down.
    Div(Arc<AffineExpr>, u64),
    /// Remainder by a constant, not negative.
    Rem(Arc<AffineExpr>, u64),
}

/// A constant plus multiples of terms.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AffineExpr {
    constant: i64,
    /// Sorted by term, each term once, no coefficient 0.
    terms: Vec<(AffineTerm, i64)>,
}

impl AffineExpr {
    /// Returns a constant expression.
    pub fn constant(value: i64) -> AffineExpr {
        AffineExpr { constant: value, terms: Vec::new() }
    }

    /// Returns a variable, or 0 if that is its only value.
    pub fn var(var: LoopVar) -> AffineExpr {
        if var.extent == 1 { AffineExpr::default() } else { AffineExpr::from_term(AffineTerm::Var(var)) }
    }

    /// Returns an index loaded from memory.
    pub fn read(number: u32, extent: u64) -> AffineExpr {
        AffineExpr::from_term(AffineTerm::Read(number, extent))
    }

    fn from_term(term: AffineTerm) -> AffineExpr {
        AffineExpr { constant: 0, terms: vec![(term, 1)] }
    }

    /// Returns the constant.
    pub fn offset(&self) -> i64 {
        self.constant
    }

    /// Returns the terms with their coefficients, sorted by term.
    pub fn terms(&self) -> &[(AffineTerm, i64)] {
        &self.terms
    }

    /// Returns the value if the expression is constant.
    pub fn as_constant(&self) -> Option<i64> {
        self.terms.is_empty().then_some(self.constant)
    }

    /// Returns the coefficient of a variable, or `None` if the variable also occurs in a quotient or remainder.
    pub fn coefficient(&self, var: LoopVar) -> Option<i64> {
        let mut coefficient = 0;
        for (term, factor) in &self.terms {
            match term {
                AffineTerm::Var(other) if *other == var => coefficient = *factor,
                AffineTerm::Var(_) | AffineTerm::Read(..) => {}
                AffineTerm::Div(inner, _) | AffineTerm::Rem(inner, _) if inner.uses(var) => return None,
                AffineTerm::Div(..) | AffineTerm::Rem(..) => {}
            }
        }
        Some(coefficient)
    }

    /// Returns the sum of two expressions.
    pub fn add(&self, other: &AffineExpr) -> AffineExpr {
        self.add_scaled(other, 1)
    }

    /// Returns `self + factor · other`.
    pub fn add_scaled(&self, other: &AffineExpr, factor: i64) -> AffineExpr {
        let mut sum = self.clone();
        sum.add_times(other, factor);
        sum.recombine_div_rem();
        sum
    }

    /// Returns the sum with a constant.
    pub fn add_const(&self, by: i64) -> AffineExpr {
        AffineExpr { constant: self.constant + by, terms: self.terms.clone() }
    }

    /// Returns `factor · self`.
    pub fn mul(&self, factor: i64) -> AffineExpr {
        AffineExpr::default().add_scaled(self, factor)
    }

    fn add_times(&mut self, other: &AffineExpr, factor: i64) {
        self.constant += other.constant * factor;
        other.terms.iter().for_each(|(term, coefficient)| self.add_term(term, coefficient * factor));
    }

    fn add_term(&mut self, term: &AffineTerm, coefficient: i64) {
        match self.terms.binary_search_by(|(known, _)| known.cmp(term)) {
            Ok(at) => {
                self.terms[at].1 += coefficient;
                if self.terms[at].1 == 0 {
                    self.terms.remove(at);
                }
            }
            Err(_) if coefficient == 0 => {}
            Err(at) => self.terms.insert(at, (term.clone(), coefficient)),
        }
    }

    /// Rewrites `n·(x / n) + x % n` to `x`.
    fn recombine_div_rem(&mut self) {
        let mut at = 0;
        while at < self.terms.len() {
            let (term, coefficient) = self.terms[at].clone();
            at += 1;
            let AffineTerm::Rem(inner, n) = &term else { continue };
            let quotient = inner.floor_div(*n);
            let factor = coefficient * *n as i64;
            let has = |(part, count): &(AffineTerm, i64)| {
                self.terms.iter().any(|(known, have)| known == part && *have == count * factor)
            };
            if !quotient.terms.is_empty() && quotient.terms.iter().all(has) {
                self.add_times(&quotient, -factor);
                self.add_term(&term, -coefficient);
                self.add_times(inner, coefficient);
                at = 0;
            }
        }
    }

    /// Returns the quotient by a constant, rounded down.
    pub fn floor_div(&self, n: u64) -> AffineExpr {
        if n == 1 {
            return self.clone();
        }
        let (whole, rest) = self.split(n);
        let (low, high) = rest.range();
        let step = n as i64;
        if low.div_euclid(step) == high.div_euclid(step) {
            return whole.add_const(low.div_euclid(step));
        }
        if let Some((unit, coarse, _)) = rest.split_unit(n) {
            return whole.add(&coarse.floor_div(n / unit));
        }
        if let [(term, 1)] = &rest.terms[..]
            && rest.constant == 0
        {
            match term {
                AffineTerm::Div(inner, m) => return whole.add(&inner.floor_div(m * n)),
                AffineTerm::Rem(inner, m) if m.is_multiple_of(n) => {
                    return whole.add(&inner.floor_div(n).rem_euclid(m / n));
                }
                AffineTerm::Var(_) | AffineTerm::Read(..) | AffineTerm::Rem(..) => {}
            }
        }
        let quotient = low.div_euclid(step).min(0);
        whole
            .add_const(quotient)
            .add(&AffineExpr::from_term(AffineTerm::Div(Arc::new(rest.add_const(-quotient * step)), n)))
    }

    /// Returns the remainder by a constant, not negative.
    pub fn rem_euclid(&self, n: u64) -> AffineExpr {
        if n == 1 {
            return AffineExpr::default();
        }
        let (mut rest, step) = (self.split(n).1, n as i64);
        let outer = |(term, coefficient): &(AffineTerm, i64)| match term {
            AffineTerm::Rem(inner, m) if (*m as i64 * coefficient) % step == 0 => Some((inner.clone(), *coefficient)),
            AffineTerm::Var(_) | AffineTerm::Read(..) | AffineTerm::Div(..) | AffineTerm::Rem(..) => None,
        };
        while let Some(at) = rest.terms.iter().position(|term| outer(term).is_some()) {
            let (inner, coefficient) = outer(&rest.terms[at]).expect("it was found");
            rest.terms.remove(at);
            rest.add_times(&inner, coefficient);
            rest = rest.split(n).1;
        }
        let (low, high) = rest.range();
        let quotient = low.div_euclid(step);
        if quotient == high.div_euclid(step) {
            return rest.add_const(-quotient * step);
        }
        if let Some((unit, coarse, fine)) = rest.split_unit(n) {
            return coarse.rem_euclid(n / unit).mul(unit as i64).add(&fine);
        }
        AffineExpr::from_term(AffineTerm::Rem(Arc::new(rest.add_const(-quotient.min(0) * step)), n))
    }

    /// Returns `(whole, rest)` with `self = n · whole + rest`, and the largest possible multiple in `whole`.
    fn split(&self, n: u64) -> (AffineExpr, AffineExpr) {
        let n = n as i64;
        let mut whole = AffineExpr::constant(self.constant.div_euclid(n));
        let mut rest = AffineExpr::constant(self.constant.rem_euclid(n));
        for (term, coefficient) in &self.terms {
            whole.add_term(term, coefficient / n);
            rest.add_term(term, coefficient % n);
        }
        (whole, rest)
    }

    /// Returns `(unit, coarse, fine)` with `self = unit · coarse + fine`. The unit is the largest divisor of `n` above
    /// 1 such that `fine` stays in `0 .. unit`; a division by `n` can then ignore `fine`.
    fn split_unit(&self, n: u64) -> Option<(u64, AffineExpr, AffineExpr)> {
        let mut units: Vec<u64> = self.terms.iter().map(|(_, factor)| gcd(n, factor.unsigned_abs())).collect();
        units.sort_unstable_by(|a, b| b.cmp(a));
        units.dedup();
        units.into_iter().filter(|unit| *unit > 1).find_map(|unit| {
            let (coarse, fine) = self.split(unit);
            let (low, high) = fine.range();
            (low >= 0 && high < unit as i64).then_some((unit, coarse, fine))
        })
    }

    /// Returns the minimum and maximum over all values of the variables, assuming that loaded indices are in range.
    pub fn range(&self) -> (i64, i64) {
        self.bounds(true).expect("loaded indices are bounded")
    }

    /// Returns the minimum and maximum for all contents of memory, or `None` if they depend on loaded indices.
    pub fn guaranteed_range(&self) -> Option<(i64, i64)> {
        self.bounds(false)
    }

    fn bounds(&self, trust: bool) -> Option<(i64, i64)> {
        let mut sum = (self.constant, self.constant);
        for (term, coefficient) in &self.terms {
            let (low, high) = match term {
                AffineTerm::Var(var) => (0, var.extent as i64 - 1),
                AffineTerm::Read(_, extent) if trust => (0, *extent as i64 - 1),
                AffineTerm::Read(..) => return None,
                AffineTerm::Div(inner, n) => {
                    let (low, high) = inner.bounds(trust)?;
                    (low.div_euclid(*n as i64), high.div_euclid(*n as i64))
                }
                AffineTerm::Rem(inner, n) => match inner.bounds(trust)? {
                    (low, high) if low >= 0 && high < *n as i64 => (low, high),
                    _ => (0, *n as i64 - 1),
                },
            };
            let ends = (low * coefficient, high * coefficient);
            sum = (sum.0 + ends.0.min(ends.1), sum.1 + ends.0.max(ends.1));
        }
        Some(sum)
    }

    /// Returns true if the expression depends on a variable.
    pub fn uses(&self, var: LoopVar) -> bool {
        self.any_term(&mut |term| *term == AffineTerm::Var(var))
    }

    /// Returns true if the expression depends on memory.
    pub fn reads(&self) -> bool {
        self.any_term(&mut |term| matches!(term, AffineTerm::Read(..)))
    }

    /// Returns the number of quotients and remainders.
    pub fn divisions(&self) -> usize {
        let mut count = 0;
        self.any_term(&mut |term| {
            count += usize::from(matches!(term, AffineTerm::Div(..) | AffineTerm::Rem(..)));
            false
        });
        count
    }

    /// Calls `f` for every term, outer terms before nested ones, until it returns true. Returns true if it did.
    pub fn any_term(&self, f: &mut dyn FnMut(&AffineTerm) -> bool) -> bool {
        self.terms.iter().any(|(term, _)| {
            f(term)
                || match term {
                    AffineTerm::Div(inner, _) | AffineTerm::Rem(inner, _) => inner.any_term(f),
                    AffineTerm::Var(_) | AffineTerm::Read(..) => false,
                }
        })
    }

    /// Returns the expression with variables and loaded indices replaced where `f` returns a replacement.
    pub fn substitute(&self, f: &dyn Fn(&AffineTerm) -> Option<AffineExpr>) -> AffineExpr {
        let mut result = AffineExpr::constant(self.constant);
        for (term, coefficient) in &self.terms {
            let next = match (f(term), term) {
                (Some(expr), _) => expr,
                (None, AffineTerm::Var(_) | AffineTerm::Read(..)) => AffineExpr::from_term(term.clone()),
                (None, AffineTerm::Div(inner, n)) => inner.substitute(f).floor_div(*n),
                (None, AffineTerm::Rem(inner, n)) => inner.substitute(f).rem_euclid(*n),
            };
            result.add_times(&next, *coefficient);
        }
        result.recombine_div_rem();
        result
    }

    /// Returns true if the expression depends only on these variables and different values of them give different
    /// results.
    pub fn is_injective(&self, vars: &[LoopVar]) -> bool {
        self.radix(vars).is_some_and(|steps| steps.windows(2).all(|pair| pair[0].0 * pair[0].1 <= pair[1].0))
    }

    /// Returns true if the values over these variables are exactly `0 .. elems`, each once.
    pub fn is_bijective(&self, vars: &[LoopVar], elems: u64) -> bool {
        let count: u64 = vars.iter().map(|var| var.extent).product();
        self.constant == 0 && count == elems && self.is_injective(vars) && self.range() == (0, elems as i64 - 1)
    }

    /// Returns the coefficient and extent of each variable with more than one value, in ascending order, or `None` if
    /// the expression is not a sum of positive multiples of exactly these variables.
    fn radix(&self, vars: &[LoopVar]) -> Option<Vec<(u64, u64)>> {
        let mut steps = Vec::new();
        for (term, coefficient) in &self.terms {
            match term {
                AffineTerm::Var(var) if *coefficient > 0 && vars.contains(var) => {
                    steps.push((*coefficient as u64, var.extent));
                }
                AffineTerm::Var(_) | AffineTerm::Read(..) | AffineTerm::Div(..) | AffineTerm::Rem(..) => return None,
            }
        }
        let counting = vars.iter().filter(|var| var.extent > 1).count();
        steps.sort_unstable();
        (steps.len() == counting).then_some(steps)
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

impl fmt::Display for AffineExpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, (term, coefficient)) in self.terms.iter().enumerate() {
            match (position, *coefficient) {
                (0, 1) => {}
                (0, -1) => write!(f, "-")?,
                (0, c) => write!(f, "{c}*")?,
                (_, 1) => write!(f, " + ")?,
                (_, -1) => write!(f, " - ")?,
                (_, c) if c < 0 => write!(f, " - {}*", -c)?,
                (_, c) => write!(f, " + {c}*")?,
            }
            match term {
                AffineTerm::Var(var) => write!(f, "v{}", var.id)?,
                AffineTerm::Read(number, _) => write!(f, "read{number}")?,
                AffineTerm::Div(inner, n) => write!(f, "({inner})/{n}")?,
                AffineTerm::Rem(inner, n) => write!(f, "({inner})%{n}")?,
            }
        }
        match (self.terms.is_empty(), self.constant) {
            (true, c) => write!(f, "{c}"),
            (false, 0) => Ok(()),
            (false, c) if c < 0 => write!(f, " - {}", -c),
            (false, c) => write!(f, " + {c}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(expr: &AffineExpr, at: &[i64]) -> i64 {
        let term = |term: &AffineTerm| match term {
            AffineTerm::Var(var) => at[var.id as usize],
            AffineTerm::Read(..) => unreachable!("the tests use no loaded indices"),
            AffineTerm::Div(inner, n) => {
                assert!(value(inner, at) >= 0, "{expr} has a negative dividend");
                value(inner, at) / *n as i64
            }
            AffineTerm::Rem(inner, n) => {
                assert!(value(inner, at) >= 0, "{expr} has a negative dividend");
                value(inner, at) % *n as i64
            }
        };
        expr.constant + expr.terms.iter().map(|(part, coefficient)| coefficient * term(part)).sum::<i64>()
    }

    /// Pseudo-random number generator (xorshift); a failing test prints the seed.
    struct Draw(u64);

    impl Draw {
        fn below(&mut self, n: u64) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0 % n
        }
    }

    #[test]
    fn simplification_keeps_the_value() {
        for seed in 1..3000 {
            let mut draw = Draw(seed * 0x9E37_79B9);
            let vars: Vec<LoopVar> = (0..3).map(|id| LoopVar { id, extent: 1 + draw.below(6) }).collect();
            let points: Vec<[i64; 3]> = (0..216)
                .map(|n: i64| [n % 6, n / 6 % 6, n / 36])
                .filter(|at| at.iter().zip(&vars).all(|(at, var)| *at < var.extent as i64))
                .collect();
            let mut expr = AffineExpr::default();
            let mut want = vec![0i64; points.len()];
            for _ in 0..6 {
                let n = 1 + draw.below(7);
                let var = draw.below(3) as usize;
                let factor = draw.below(9) as i64 - 2;
                let by = draw.below(20) as i64 - 6;
                let quotient = expr.floor_div(n);
                match draw.below(5) {
                    0 | 1 => {
                        expr = expr.add_scaled(&AffineExpr::var(vars[var]), factor).add_const(by);
                        want.iter_mut().zip(&points).for_each(|(want, at)| *want += at[var] * factor + by);
                    }
                    2 => {
                        expr = quotient;
                        want.iter_mut().for_each(|want| *want = want.div_euclid(n as i64));
                    }
                    3 => {
                        expr = expr.rem_euclid(n);
                        want.iter_mut().for_each(|want| *want = want.rem_euclid(n as i64));
                    }
                    _ => expr = quotient.mul(n as i64).add(&expr.rem_euclid(n)),
                }
                let (low, high) = expr.range();
                for (at, want) in points.iter().zip(&want) {
                    assert_eq!(value(&expr, at), *want, "seed {seed}: {expr} at {at:?}");
                    assert!((low..=high).contains(want), "seed {seed}: {expr} beyond {low} ..= {high}");
                }
            }
        }
    }

    #[test]
    fn reshape_simplifies_redundant_divisions() {
        let (a, b, c) = (LoopVar { id: 0, extent: 4 }, LoopVar { id: 1, extent: 6 }, LoopVar { id: 2, extent: 5 });
        let linear = AffineExpr::var(a).mul(30).add_scaled(&AffineExpr::var(b), 5).add(&AffineExpr::var(c));
        assert_eq!(linear.floor_div(30), AffineExpr::var(a));
        assert_eq!(linear.floor_div(5).rem_euclid(6), AffineExpr::var(b));
        assert_eq!(linear.rem_euclid(5), AffineExpr::var(c));
        assert_eq!(linear.rem_euclid(30).floor_div(10).to_string(), "(v1)/2");
        let whole = AffineExpr::var(LoopVar { id: 3, extent: 120 });
        let rejoined =
            whole.floor_div(30).mul(30).add(&whole.floor_div(5).rem_euclid(6).mul(5)).add(&whole.rem_euclid(5));
        assert_eq!(rejoined, whole);
        assert!(linear.is_bijective(&[a, b, c], 120));
        assert!(!linear.is_bijective(&[a, b], 120));
        assert!(!linear.add_const(1).is_bijective(&[a, b, c], 120));
        assert!(linear.mul(2).is_injective(&[a, b, c]));
        assert!(!AffineExpr::var(a).add(&AffineExpr::var(b)).is_injective(&[a, b]));
    }
}
