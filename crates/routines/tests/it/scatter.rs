//! Scatters against a loop: types, positions out of range, batches, one thread and several.

use std::fmt::Debug;

use panoply_host::isa::Isa;
use panoply_host::pool::Pool;
use panoply_ir::routine::{Routine, Scatter};
use panoply_ir::{Element, f16};
use panoply_routines::{offers, run};

fn check<T: Element + Debug + PartialEq, I: Element>(of: fn(i64) -> T, at: fn(i64) -> I, plus: Option<fn(T, T) -> T>) {
    for (batch, length, count, columns) in
        [(1, 1, 1, 1), (1, 7, 50, 1), (3, 50, 9, 5), (1, 300, 20_000, 3), (9, 4, 5000, 1)]
    {
        let array: Vec<T> = (0..batch * length * columns).map(|i| of(i as i64 * 7919 % 1009)).collect();
        let rows: Vec<T> = (0..batch * count * columns).map(|i| of(i as i64 * 104_729 % 2003)).collect();
        // Some positions are before the first row or after the last.
        let places: Vec<i64> = (0..count).map(|i| (i as i64 * 31 % (length as i64 + 4)) - 2).collect();
        let mut want = array.clone();
        for b in 0..batch {
            for (i, place) in places.iter().enumerate().filter(|(_, place)| (0..length as i64).contains(*place)) {
                for c in 0..columns {
                    let to = (b * length + *place as usize) * columns + c;
                    let row = rows[(b * count + i) * columns + c];
                    want[to] = plus.map_or(row, |plus| plus(want[to], row));
                }
            }
        }
        for threads in [1, 2, 5] {
            let (dtype, positions) = (T::DTYPE, I::DTYPE);
            let routine = Routine::Scatter(Scatter {
                dtype,
                positions,
                accumulate: plus.is_some(),
                batch,
                length,
                count,
                columns,
            });
            assert!(offers(&routine));
            let (mut array, mut rows, mut output) = (array.clone(), rows.clone(), vec![of(-1); want.len()]);
            let mut places: Vec<I> = places.iter().map(|place| at(*place)).collect();
            let buffers: [*mut u8; 4] = [
                array.as_mut_ptr().cast(),
                places.as_mut_ptr().cast(),
                rows.as_mut_ptr().cast(),
                output.as_mut_ptr().cast(),
            ];
            // SAFETY: the vectors have the lengths of the routine.
            unsafe { run(&Pool::new(threads), Isa::best(), &routine, &buffers) };
            assert!(output == want, "{routine} on {threads} threads");
        }
    }
}

#[test]
fn rows_are_added_in_order() {
    check(|n| n as f32 * 1e-3, |at| at as i32, Some(|a, b| a + b));
    check(|n| n as f64 * 1e-3, |at| at, Some(|a, b| a + b));
    check(|n| (n as i32).wrapping_mul(0x0100_0193), |at| at as i32, Some(i32::wrapping_add));
    check(|n| n.wrapping_mul(0x0100_0000_01B3_0000), |at| at, Some(i64::wrapping_add));
}

#[test]
fn the_last_row_wins() {
    check(|n| n as u8, |at| at as i32, None);
    check(|n| f16::from_f64(n as f64), |at| at, None);
    check(|n| n as f32, |at| at as i32, None);
    check(|n| n, |at| at, None);
}
