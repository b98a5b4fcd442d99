//! Sorting on every device, compared with Rust's stable sort: rows sorted by counting and rows sorted by a network, with NaN, signed zeros,
//! infinities and ties, in every 32-bit type and in types of other widths.

use std::cmp::Ordering;

use panoply_runtime::device_report;
use panoply_tensor::{DType, Side, SortOrder, Tensor};

const ODD: [f64; 6] = [f64::NAN, -0.0, 0.0, f64::INFINITY, f64::NEG_INFINITY, -1.5];

/// Returns numbers with many ties, including the special values.
fn numbers(length: usize, float: bool) -> Vec<f64> {
    let number = |i: usize| ((i * 7919) % 101) as f64 - if float { 50.0 } else { 0.0 };
    (0..length).map(|i| if float && i % 11 == 3 { ODD[i % 6] } else { number(i) }).collect()
}

/// NaN is larger than everything, and both zeros are equal.
fn compare(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

fn expected(row: &[f64], order: SortOrder) -> Vec<usize> {
    let mut places: Vec<usize> = (0..row.len()).collect();
    places.sort_by(|i, j| match order {
        SortOrder::Ascending => compare(row[*i], row[*j]),
        SortOrder::Descending => compare(row[*j], row[*i]),
    });
    places
}

#[test]
fn sort_argsort_and_topk_agree_with_rust_on_every_device() {
    let report = device_report().expect("the environment variables are valid");
    for device in report.devices() {
        device.scope(|| {
            for dtype in [DType::F32, DType::I32, DType::U32, DType::U8, DType::F16, DType::I64] {
                if !device.target().computes(dtype) {
                    continue;
                }
                let lengths: &[usize] = if dtype == DType::F32 { &[1, 64, 65, 600] } else { &[70] };
                for &length in lengths {
                    let row = numbers(length, dtype.is_float());
                    let values: Vec<f32> = [&row[..], &row].concat().iter().map(|x| *x as f32).collect();
                    let x = Tensor::from_slice(&values, [2, length]).cast(dtype);
                    for order in [SortOrder::Ascending, SortOrder::Descending] {
                        let (what, places) = (format!("{device}, {dtype}, {length}, {order:?}"), expected(&row, order));
                        let found = x.argsort(1, order).to_vec::<i32>().unwrap();
                        let whole: Vec<i32> = [&places[..], &places].concat().iter().map(|i| *i as i32).collect();
                        assert_eq!(found, whole, "{what}");
                        let found = x.sort(1, order).cast(DType::F32).to_vec::<f32>().unwrap();
                        for (found, place) in found.iter().zip(&places) {
                            let expected = row[*place] as f32;
                            assert!(
                                *found == expected || found.is_nan() && expected.is_nan(),
                                "{what}: {found} {expected}"
                            );
                        }
                    }
                    let count = length.min(5);
                    let found = x.topk(count, 1).indices.to_vec::<i32>().unwrap();
                    let places = expected(&row, SortOrder::Descending);
                    assert!(
                        found[..count].iter().zip(&places).all(|(i, j)| *i as usize == *j),
                        "{device}, {dtype}, {length}"
                    );
                }
            }
        });
    }
}

#[test]
fn searchsorted_orders_nan_last_like_sort() {
    let report = device_report().expect("the environment variables are valid");
    for device in report.devices() {
        device.scope(|| {
            for dtype in [DType::F32, DType::F16, DType::BF16, DType::F64] {
                if !device.target().computes(dtype) {
                    continue;
                }
                for length in [3, 64, 65, 5000] {
                    // As in NumPy: numpy.searchsorted(x, v, side).
                    let mut sorted: Vec<f64> = (0..length).map(|i| (i / 50) as f64).collect();
                    sorted[length - 1] = f64::NAN;
                    sorted[length - 2] = f64::INFINITY;
                    let values = [f64::NAN, f64::INFINITY, -1.0, f64::NEG_INFINITY, 0.0];
                    let single = |values: &[f64]| values.iter().map(|x| *x as f32).collect::<Vec<f32>>();
                    let x = Tensor::from_slice(&single(&sorted), [length]).cast(dtype);
                    let v = Tensor::from_slice(&single(&values), [values.len()]).cast(dtype);
                    for or_equal in [false, true] {
                        let before = |x: f64, v: f64| match compare(x, v) {
                            Ordering::Less => true,
                            Ordering::Equal => or_equal,
                            Ordering::Greater => false,
                        };
                        let count = |v: &f64| sorted.iter().filter(|x| before(**x, *v)).count() as i32;
                        let expected: Vec<i32> = values.iter().map(count).collect();
                        let side = if or_equal { Side::Right } else { Side::Left };
                        let found = x.searchsorted(&v, side).to_vec::<i32>().expect("it is computed");
                        assert_eq!(found, expected, "{length} of {dtype}, {or_equal}, on {device}");
                    }
                }
            }
        });
    }
}
