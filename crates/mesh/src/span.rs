//! A region along one axis: positions at equal distances.

/// The `len` positions `start`, `start + step`, ….
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first position.
    pub start: usize,
    /// Number of positions.
    pub len: usize,
    /// Distance between neighbors, at least 1.
    pub step: usize,
}

impl Span {
    /// Returns all positions of an axis.
    pub fn whole(len: usize) -> Span {
        Span { start: 0, len, step: 1 }
    }

    /// Returns the position at an index.
    pub fn at(self, index: usize) -> usize {
        self.start + index * self.step
    }

    /// Returns the index of a position, if it is in the span.
    pub fn index_of(self, position: usize) -> Option<usize> {
        let distance = position.checked_sub(self.start)?;
        let index = distance / self.step;
        (distance.is_multiple_of(self.step) && index < self.len).then_some(index)
    }

    /// Returns the intersection, if it is not empty.
    ///
    /// Both are arithmetic progressions, so their intersection is one: its first element solves
    /// `start + i * step = other.start + j * other.step` by the extended Euclidean algorithm, its step is the least common
    /// multiple of both. [Knuth, The Art of Computer Programming 2, 4.5.2]
    pub fn intersect(self, other: Span) -> Option<Span> {
        if self.len == 0 || other.len == 0 {
            return None;
        }
        let (a, b) = (self.step as i128, other.step as i128);
        let (divisor, inverse) = extended_gcd(a, b);
        let distance = other.start as i128 - self.start as i128;
        if distance % divisor != 0 {
            return None;
        }
        let step = a / divisor * b;
        // The smallest i for which self.at(i) is congruent to other.start.
        let index = (distance / divisor * inverse).rem_euclid(b / divisor);
        let common = self.start as i128 + index * a;
        let last = self.at(self.len - 1).min(other.at(other.len - 1)) as i128;
        // Both progressions have started at this position.
        let from = self.start.max(other.start) as i128;
        let first = common + (from - common).max(0).div_euclid(step) * step;
        let first = if first < from { first + step } else { first };
        let len = if first > last { 0 } else { (last - first) / step + 1 };
        (len > 0).then_some(Span { start: first as usize, len: len as usize, step: step as usize })
    }

    /// Returns true if all positions of another span are in this one.
    pub fn contains(self, other: Span) -> bool {
        other.len == 0 || self.intersect(other).is_some_and(|both| both.len == other.len)
    }
}

/// Returns the greatest common divisor of two positive numbers, and x with `a * x` congruent to it modulo b.
fn extended_gcd(a: i128, b: i128) -> (i128, i128) {
    let ((mut r, mut next_r), (mut x, mut next_x)) = ((a, b), (1, 0));
    while next_r != 0 {
        let quotient = r / next_r;
        (r, next_r) = (next_r, r - quotient * next_r);
        (x, next_x) = (next_x, x - quotient * next_x);
    }
    (r, x)
}

/// Returns true if two regions, one span per axis, have a common element.
pub fn overlap(a: &[Span], b: &[Span]) -> bool {
    a.iter().zip(b).all(|(a, b)| a.intersect(*b).is_some())
}

/// Returns true if the first region contains the second.
pub fn contains(a: &[Span], b: &[Span]) -> bool {
    a.iter().zip(b).all(|(a, b)| a.contains(*b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn positions(span: Span) -> Vec<usize> {
        (0..span.len).map(|index| span.at(index)).collect()
    }

    #[test]
    fn span_operations_equal_set_operations() {
        let spans =
            || (0..7).flat_map(|start| (0..5).flat_map(move |len| (1..6).map(move |step| Span { start, len, step })));
        for a in spans() {
            for b in spans() {
                let both: Vec<usize> = positions(a).into_iter().filter(|at| positions(b).contains(at)).collect();
                let found = a.intersect(b).map_or(Vec::new(), positions);
                assert_eq!(found, both, "{a:?} and {b:?}");
                assert_eq!(a.contains(b), both.len() == b.len, "{a:?} contains {b:?}");
            }
            for at in 0..40 {
                assert_eq!(a.index_of(at), positions(a).iter().position(|own| *own == at), "{a:?} at {at}");
            }
        }
    }
}
