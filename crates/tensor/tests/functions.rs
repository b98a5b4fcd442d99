//! Functions where they bend: on the axes, at infinities, beside NaN and in halves; by hand and by the standard library.

use panoply_tensor::{DType, Device, Order, Tensor, eval};

fn on_cpu(work: impl FnOnce()) {
    Device::get("cpu").unwrap().scope(work);
}

fn numbers(tensor: &Tensor) -> Vec<f64> {
    tensor.cast(DType::F64).to_vec().unwrap()
}

fn vector(values: &[f32]) -> Tensor {
    Tensor::from_slice(values, [values.len()])
}

#[test]
fn angles_and_their_slopes_on_the_axes_and_at_infinity() {
    const LONG: f32 = f32::INFINITY;
    on_cpu(|| {
        let (y, x) = ([1.0, 0.0, -1.0, 0.0, 1e-30, 3.0], [0.0, 1.0, 0.0, -1.0, 1e-30, 1e30]);
        let (up, along) = (vector(&y), vector(&x));
        let slopes = up.atan2(&along).sum(..).gradients(&[&up, &along]).unwrap();
        for (i, (y, x)) in y.into_iter().zip(x).enumerate() {
            let (y, x) = (f64::from(y), f64::from(x));
            let square = x * x + y * y;
            for (slope, expected) in slopes.iter().zip([x / square, -y / square]) {
                let found = numbers(slope)[i];
                assert!(
                    (found - expected).abs() <= 1e-6 * expected.abs() + 1e-40,
                    "({y}, {x}): {found}, not {expected}"
                );
            }
        }
        let (origin, x) = (vector(&[0.0]), vector(&[0.0]));
        assert_eq!(numbers(&origin.atan2(&x).sum(..).gradients(&[&origin]).unwrap()[0]), [0.0]);
        for (y, x) in [(LONG, LONG), (LONG, -LONG), (-LONG, -LONG), (1.0, LONG), (LONG, 1.0), (-0.0, -1.0), (0.0, -1.0)]
        {
            let (found, expected) = (numbers(&vector(&[y]).atan2(&vector(&[x])))[0], f64::from(y.atan2(x)));
            assert!((found - expected).abs() < 1e-6, "({y}, {x}): {found}, not {expected}");
        }
        // Each row with each column, and back.
        let (column, row) = (Tensor::from_slice(&[1f32, 2.0], [2, 1]), vector(&[1.0, -1.0, 2.0]));
        let slope = column.atan2(&row).sum(..).gradients(&[&column]).unwrap().remove(0);
        let expected = [1.0, 2.0].map(|y: f64| [1.0, -1.0, 2.0].map(|x| x / (x * x + y * y)).iter().sum::<f64>());
        assert_eq!(slope.shape().unwrap().dims(), [2, 1]);
        assert!(numbers(&slope).iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6));
    });
}

#[test]
fn odd_functions_have_a_slope_at_zero_and_far_out() {
    on_cpu(|| {
        let x = vector(&[0.0, 89.0, -2.0, 1e30]);
        let slope = |f: fn(&Tensor) -> Tensor| numbers(&f(&x).sum(..).gradients(&[&x]).unwrap()[0]);
        let near =
            |found: f64, expected: f64| assert!((found / expected - 1.0).abs() < 1e-5, "{found}, not {expected}");
        let (steep, flat) = (slope(Tensor::sinh), slope(Tensor::asinh));
        for (i, x) in [0f64, 89.0, -2.0].into_iter().enumerate() {
            near(steep[i], x.cosh());
            near(flat[i], 1.0 / x.hypot(1.0));
        }
        near(flat[3], 1e-30);
    });
}

#[test]
fn what_is_missing_stays_missing_and_halves_keep_their_digits() {
    on_cpu(|| {
        let a = Tensor::from_slice(&[f32::NAN, 1.0, f32::NAN, f32::NAN, 0.0, 3.0], [3, 2]);
        for power in [0.5, 1.0, 2.0, 3.0, f64::INFINITY] {
            let apart = numbers(&a.cdist(&Tensor::from_slice(&[0f32, 3.0], [1, 2]), power));
            assert!(apart[0].is_nan() && apart[1].is_nan() && apart[2] == 0.0, "power {power}: {apart:?}");
        }
        for x in [3f32, 5.0, f32::NEG_INFINITY] {
            // ln 2 and ln 24, rounded to 11 bits.
            let expected = [(3.0, 0.693_359_375), (5.0, 3.177_734_375)].into_iter().find(|known| known.0 == x);
            let found = numbers(&vector(&[x]).cast(DType::F16).lgamma())[0];
            assert_eq!(found, expected.map_or(f64::INFINITY, |known| known.1), "lgamma of {x}");
        }
        let line = Tensor::linspace(0.0, 1.0, 200_000, DType::F16);
        let line = numbers(&line);
        assert!(line.is_sorted() && line[0] == 0.0 && line[100_000] == 0.5 && line[199_999] == 1.0);
    });
}

#[test]
fn ranks_that_differ_and_rows_that_are_not_there() {
    on_cpu(|| {
        let (matrix, one) = (Tensor::iota(9).cast(DType::F32).reshape([3, 3]), vector(&[1.0, 2.0, 4.0]));
        let error = matrix.cross(&one, 0).to_vec::<f32>().unwrap_err();
        assert!(error.message().contains("count it from the end"), "{error}");
        // (0, 1, 2) × (1, 2, 4).
        assert_eq!(numbers(&matrix.cross(&one, -1))[..3], [0.0, 2.0, -1.0]);
        let none = Tensor::zeros([0, 100], DType::F32);
        let (first, places) = none.top_k(3, 1);
        eval(&[&none.sort(1, Order::Ascending), &none.argsort(1, Order::Descending), &first, &places]).unwrap();
        assert_eq!(places.shape().unwrap().dims(), [0, 3]);
    });
}
