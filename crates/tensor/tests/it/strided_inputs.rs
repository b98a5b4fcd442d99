//! The op table on other inputs than it is written for: views of larger tensors, reversed and permuted, and floats of every width. On the
//! CPU, compared with the f64 graph interpreter.

use panoply_tensor::conformance::oracle::values;
use panoply_tensor::conformance::row::weighted;
use panoply_tensor::conformance::{Row, rows};
use panoply_tensor::{DType, Device, Tensor};

/// Returns the same elements as a view of a larger tensor: sliced, with permuted and reversed axes.
fn as_view(x: &Tensor) -> Tensor {
    let shape = x.shape().unwrap().clone();
    let rank = shape.ndim() as isize;
    let turned =
        |x: &Tensor| (0..rank).fold(if rank > 1 { x.transpose(0, -1) } else { x.clone() }, |x, axis| x.flip(axis));
    let stored = turned(&x.pad(&vec![(1, 2); shape.ndim()]));
    stored.eval().unwrap();
    shape
        .dims()
        .iter()
        .enumerate()
        .fold(turned(&stored.detach()), |view, (axis, len)| view.narrow(axis as isize, 1, *len))
}

/// Compares results of the CPU with those of the interpreter.
fn compare(row: &Row, what: &str, roots: &[Tensor], tolerance: f64) {
    let roots: Vec<Tensor> = roots.iter().map(|root| root.cast(DType::F64)).collect();
    let want = values(&roots.iter().collect::<Vec<&Tensor>>()).unwrap();
    for (root, want) in roots.iter().zip(want) {
        let have = root.to_vec::<f64>().unwrap();
        let scale = want.iter().filter(|x| x.is_finite()).fold(1.0f64, |top, x| top.max(x.abs()));
        let equal = |a: f64, b: f64| a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= tolerance * scale;
        let wrong = (0..want.len()).find(|at| !equal(have[*at], want[*at]));
        let pair = wrong.map(|at| (at, have[at], want[at]));
        assert_eq!((have.len(), pair), (want.len(), None), "{} {what}", row.name);
    }
}

/// Returns the value and its gradients with respect to the float inputs.
fn results(row: &Row, inputs: &[Tensor]) -> Vec<Tensor> {
    let value = (row.op)(inputs);
    let wanted: Vec<&Tensor> = inputs.iter().filter(|input| input.dtype().is_float()).collect();
    let gradients = row.differentiable.then(|| weighted(&value.cast(DType::F64)).unwrap().gradients(&wanted).unwrap());
    [value].into_iter().chain(gradients.into_iter().flatten()).collect()
}

#[test]
fn every_op_accepts_views() {
    Device::get("cpu").unwrap().scope(|| {
        for row in rows() {
            let inputs: Vec<Tensor> = row.tensors(DType::F32).iter().map(as_view).collect();
            compare(row, "of views", &results(row, &inputs), 4.0 * row.tolerance);
        }
    });
}

#[test]
fn every_op_accepts_floats_of_every_width() {
    Device::get("cpu").unwrap().scope(|| {
        for (dtype, tolerance) in [(DType::F64, 1e-11), (DType::F16, 5e-3), (DType::BF16, 4e-2)] {
            let mut refused = 0;
            for row in rows() {
                let narrow = |x: &Tensor| if x.dtype().is_float() { x.cast(dtype) } else { x.clone() };
                let inputs: Vec<Tensor> = row.tensors(DType::F64).iter().map(narrow).collect();
                match (row.op)(&inputs).check() {
                    Ok(()) => compare(row, &format!("in {dtype}"), &results(row, &inputs), tolerance),
                    Err(error) => {
                        let wide = error.message().contains("needs f32 or f64") || row.name == "bitcast";
                        assert!(wide, "{} in {dtype}: {error}", row.name);
                        refused += 1;
                    }
                }
            }
            // Factorizations and Fourier transforms need f32 or f64.
            let most = if dtype == DType::F64 { 0 } else { rows().count() / 5 };
            assert!(refused <= most, "{refused} operations reject {dtype}");
        }
    });
}
