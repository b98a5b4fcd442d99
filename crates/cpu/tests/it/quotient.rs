//! Quotients by multiplication against division.

use panoply_cpu::vm::ops::quotient::each;

#[test]
fn quotients_are_exact() {
    let mut state = 7u64;
    let mut draw = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for round in 0..20_000 {
        let n = draw() >> (draw() % 64);
        let shift = 14 + draw() % 50;
        let mut lanes = [0u64; 32];
        lanes.iter_mut().for_each(|lane| *lane = draw() >> shift);
        // Values next to multiples reveal rounding errors.
        for lane in lanes.iter_mut().take(16) {
            *lane = (*lane / n.max(1) * n).wrapping_add(draw() % 3).wrapping_sub(1) & (u64::MAX >> 14);
        }
        let (mut quotients, mut remainders) = ([0; 32], [0; 32]);
        each(&mut quotients, &lanes, n, |_, quotient| quotient);
        each(&mut remainders, &lanes, n, |x, quotient| x - quotient * n);
        for ((x, quotient), remainder) in lanes.iter().zip(quotients).zip(remainders) {
            let want = x.checked_div(n).map_or((0, *x), |quotient| (quotient, x % n));
            assert_eq!((quotient, remainder), want, "round {round}: {x} by {n}");
        }
    }
}
