//! Operators on tensors, compared with the same operators in Rust.

use panoply_tensor::{DType, Device, KeepDim, Scalar, SortOrder, Tensor, TensorIndex, ValuesWithIndices, bf16, f16};

const X: [f32; 4] = [1.5, -2.0, 0.25, 7.0];

fn on_cpu(work: impl FnOnce()) {
    Device::get("cpu").unwrap().scope(work);
}

#[track_caller]
fn check(tensor: Tensor, expected: [f32; 4]) {
    assert_eq!(tensor.to_vec::<f32>().unwrap(), expected);
}

#[test]
fn scalars_can_be_on_either_side() {
    on_cpu(|| {
        let x = Tensor::from_slice(&X, [4]);
        check(3.0 + &x, X.map(|x| 3.0 + x));
        check(3.0 - &x, X.map(|x| 3.0 - x));
        check(3.0 * &x, X.map(|x| 3.0 * x));
        check(3.0 / &x, X.map(|x| 3.0 / x));
        check(3.0 % &x, X.map(|x| 3.0 % x));
        check(1.0 - x.clone(), X.map(|x| 1.0 - x));
        check(2.0 / x.clone(), X.map(|x| 2.0 / x));
        check(&x - 3.0, X.map(|x| x - 3.0));
        check(x.clone() % 3.0, X.map(|x| x % 3.0));
        check(-(1.0 - &x) * 2.0, X.map(|x| -(1.0 - x) * 2.0));
        check(x.rsub(3.0), X.map(|x| 3.0 - x));
        // A scalar takes the type of the tensor, if that can represent it.
        assert_eq!((10.0 - Tensor::arange(3)).to_vec::<i32>().unwrap(), [10, 9, 8]);
        let wrong = (0.5 * Tensor::arange(3)).check().unwrap_err();
        assert!(wrong.message().starts_with("0.5 is not a valid i32: cast i32[3]"), "{wrong}");
        assert!(wrong.to_string().contains(file!()), "{wrong}");
    });
}

#[test]
fn numbers_of_every_rust_type_take_the_type_of_the_tensor() {
    on_cpu(|| {
        let x = Tensor::from_slice(&X, [4]);
        let twice = X.map(|x| x * 2.0);
        for right in
            [&x * 2f64, &x * 2f32, &x * 2i8, &x * 2i32, &x * 2i64, &x * 2isize, &x * 2u8, &x * 2u64, &x * 2usize]
        {
            check(right, twice);
        }
        check(&x * f16::from_f32(2.0) * bf16::from_f32(1.0) * Scalar::from(1u16), twice);
        for left in [2f64 * &x, 2 * &x, Scalar::from(2usize) * &x, Scalar::from(2f32) * x.clone()] {
            check(left, twice);
        }
        check(7 - &x, X.map(|x| 7.0 - x));
        // Literals keep their inference on the left of an operator.
        check((1.0 - &x).abs() + (1 - &x).abs(), X.map(|x| 2.0 * (1.0 - x).abs()));
        let mut sum = x.clone();
        sum += 1usize;
        sum -= 0.5f32;
        check(sum, X.map(|x| x + 0.5));
        check(x.maximum(1) + x.minimum(0.25f32), X.map(|x| x.max(1.0) + x.min(0.25)));
        check(x.where_self(&x.gt(0), 9u8), X.map(|x| if x > 0.0 { x } else { 9.0 }));
        check(x.clamp(-1, 2i64), X.map(|x| x.clamp(-1.0, 2.0)));
        check(x.clamp_max(0.5).clamp_min(&Tensor::from_slice(&[0f32, -3.0, 0.0, 0.0], [4])), [0.5, -2.0, 0.25, 0.5]);
        check(x.abs().pow(2) * x.full_like(0.5), X.map(|x| x * x / 2.0));
        check(x.masked_fill(&x.lt(0), 3), [1.5, 3.0, 0.25, 7.0]);
        assert_eq!(x.ge(0.25).to_vec::<bool>().unwrap(), X.map(|x| x >= 0.25));
        assert_eq!(x.eq(7usize).to_vec::<bool>().unwrap(), X.map(|x| x == 7.0));
    });
}

#[test]
fn integer_tensors_take_integers_without_loss() {
    on_cpu(|| {
        let big = (1i64 << 53) + 1;
        let x = Tensor::from_slice(&[big, -big], [2]);
        assert_eq!((&x + big).to_vec::<i64>().unwrap(), [2 * big, 0]);
        assert_eq!(x.eq(big).to_vec::<bool>().unwrap(), [true, false]);
        assert_eq!((Tensor::from_slice(&[u64::MAX], [1]) - u64::MAX).to_vec::<u64>().unwrap(), [0]);
        assert_eq!((Tensor::arange(3) * 3.0 - 1usize).to_vec::<i32>().unwrap(), [-1, 2, 5]);
        for (wrong, part) in [
            (Tensor::from_slice(&[1u8], [1]) + 256, "256 is not a valid u8"),
            (Tensor::from_slice(&[1u8], [1]) * -1, "-1 is not a valid u8"),
            (Tensor::arange(3) + 0.5, "0.5 is not a valid i32"),
            (Tensor::arange(3) + f64::NAN, "NaN is not a valid i32"),
            (Tensor::arange(3) + (1u64 << 31), "2147483648 is not a valid i32"),
            (Tensor::arange(3) + true, "true is not a number: use 1 or 0 beside i32[3]"),
            (Tensor::arange(3).gt(0) & 2, "2 is not a valid bool"),
        ] {
            let error = wrong.check().unwrap_err();
            assert!(error.message().contains(part) && error.to_string().contains(file!()), "{error}");
        }
    });
}

#[test]
fn bit_operators_equal_those_of_rust() {
    on_cpu(|| {
        let (a, b) = ([12i32, -7, 255, 1], [10i32, 3, 1, 2]);
        let (x, y) = (Tensor::from_slice(&a, [4]), Tensor::from_slice(&b, [4]));
        let of = |f: fn(i32, i32) -> i32| -> Vec<i32> { a.into_iter().zip(b).map(|(a, b)| f(a, b)).collect() };
        for (found, expected) in [
            (&x & &y, of(|a, b| a & b)),
            (&x | y.clone(), of(|a, b| a | b)),
            (x.clone() ^ &y, of(|a, b| a ^ b)),
            (&x << &y, of(|a, b| a << b)),
            (&x >> &y, of(|a, b| a >> b)),
            (!&x, of(|a, _| !a)),
            (&x & 6, of(|a, _| a & 6)),
            (6 | &x, of(|a, _| 6 | a)),
            (&x >> 1usize, of(|a, _| a >> 1)),
            (1 << &y, of(|_, b| 1 << b)),
        ] {
            assert_eq!(found.to_vec::<i32>().unwrap(), expected);
        }
        let (p, q) = (x.gt(0), y.gt(2));
        assert_eq!((&p & &q).to_vec::<bool>().unwrap(), [true, false, false, false]);
        assert_eq!((&p | &q).to_vec::<bool>().unwrap(), [true; 4]);
        assert_eq!((!&p ^ true).to_vec::<bool>().unwrap(), [true, false, true, true]);
        assert_eq!((false | &p).to_vec::<bool>().unwrap(), [true, false, true, true]);
        let mut mask = p;
        mask &= q;
        mask |= x.eq(255);
        assert_eq!(mask.to_vec::<bool>().unwrap(), [true, false, true, false]);
        let wrong = (Tensor::from_slice(&X, [4]) & 1).check().unwrap_err();
        assert!(wrong.message().contains("and is not defined for f32"), "{wrong}");
    });
}

#[test]
fn division_and_remainder_round_down_as_in_python() {
    on_cpu(|| {
        // Python: [a // b for a, b in zip(…)] and a % b.
        let (a, b) = ([7i32, -7, 7, -7, 6, 0, 5], [2i32, 2, -2, -2, -3, 4, 0]);
        let (x, y) = (Tensor::from_slice(&a, [7]), Tensor::from_slice(&b, [7]));
        assert_eq!(x.floor_divide(&y).to_vec::<i32>().unwrap(), [3, -4, -4, 3, -2, 0, 0]);
        assert_eq!(x.remainder(&y).to_vec::<i32>().unwrap(), [1, 1, -1, -1, 0, 0, 5]);
        assert_eq!(x.floor_divide(3).to_vec::<i32>().unwrap(), [2, -3, 2, -3, 2, 0, 1]);
        assert_eq!(Tensor::from_slice(&[200u8, 7], [2]).remainder(9).to_vec::<u8>().unwrap(), [2, 7]);
        // numpy.floor_divide and numpy.remainder of float64, and of an infinite divisor.
        let (a, b) = ([7.5f64, -7.5, 7.5, -7.5, -1e-20, 1.0, -5.0], [2f64, 2.0, -2.0, -2.0, 1.0, 0.1, f64::INFINITY]);
        let (x, y) = (Tensor::from_slice(&a, [7]), Tensor::from_slice(&b, [7]));
        assert_eq!(x.floor_divide(&y).to_vec::<f64>().unwrap(), [3.0, -4.0, -4.0, 3.0, -1.0, 9.0, -1.0]);
        let rest = [1.5, 0.5, -0.5, -1.5, 1.0, 0.09999999999999995, f64::INFINITY];
        assert_eq!(x.remainder(&y).to_vec::<f64>().unwrap(), rest);
        let beside_zero = Tensor::from_slice(&[1f32, -1.0, 0.0], [3]).floor_divide(0).to_vec::<f32>().unwrap();
        assert!(beside_zero[..2] == [f32::INFINITY, f32::NEG_INFINITY] && beside_zero[2].is_nan());
    });
}

#[test]
fn infinities_and_nan_are_found_and_replaced() {
    on_cpu(|| {
        let x = Tensor::from_slice(&[f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 2.0], [4]);
        assert_eq!(x.is_inf().to_vec::<bool>().unwrap(), [false, true, true, false]);
        check(x.nan_to_num(0.0, None, None), [0.0, f32::MAX, f32::MIN, 2.0]);
        check(x.nan_to_num(-1.0, Some(9.0), Some(-8.0)), [-1.0, 9.0, -8.0, 2.0]);
        let half = x.cast(DType::F16).nan_to_num(0.0, None, None).cast(DType::F32);
        check(half, [0.0, 65504.0, -65504.0, 2.0]);
        check(x.nan_to_num(0.0, None, None).sum(..).gradients(&[&x]).unwrap().remove(0), [0.0, 0.0, 0.0, 1.0]);
        let whole = Tensor::arange(3);
        assert_eq!(whole.nan_to_num(7.0, None, None).to_vec::<i32>().unwrap(), [0, 1, 2]);
        assert_eq!(whole.is_inf().to_vec::<bool>().unwrap(), [false; 3]);
    });
}

#[test]
fn a_single_element_is_read_as_any_type_that_can_represent_it() {
    on_cpu(|| {
        let big = (1i64 << 53) + 1;
        let x = Tensor::scalar(big);
        assert_eq!((x.item::<i64>().unwrap(), x.item::<usize>().unwrap()), (big, big as usize));
        assert!(Tensor::scalar(true).item::<bool>().unwrap());
        assert_eq!(Tensor::scalar(0.1f64).item::<f32>().unwrap(), 0.1f32);
        assert_eq!(Tensor::scalar(3u8).item::<f32>().unwrap(), 3.0);
        for (error, message) in [
            (
                x.item::<i32>().unwrap_err(),
                "item: 9007199254740993i64 does not convert to i32 without loss; cast it first",
            ),
            (
                x.item::<f64>().unwrap_err(),
                "item: 9007199254740993i64 does not convert to f64 without loss; cast it first",
            ),
            (Tensor::scalar(-1i32).item::<usize>().unwrap_err(), "item: -1i32 does not convert to usize"),
            (Tensor::scalar(2.0f32).item::<i32>().unwrap_err(), "item: 2.0f32 does not convert to i32"),
            (Tensor::scalar(true).item::<f64>().unwrap_err(), "item: true does not convert to f64"),
            (Tensor::scalar(1i32).item::<bool>().unwrap_err(), "item: 1i32 does not convert to bool"),
            (Tensor::arange(2).item::<i32>().unwrap_err(), "item: i32[2]"),
        ] {
            assert!(error.message().starts_with(message) && error.to_string().contains(file!()), "{error}");
        }
    });
}

#[test]
fn compound_assignment_operators() {
    on_cpu(|| {
        let x = Tensor::from_slice(&X, [4]);
        let mut y = x.clone();
        y += &x;
        y *= 3.0;
        y -= x.clone();
        y /= &x + 1.0;
        y %= 2.0;
        check(y, X.map(|x| ((x + x) * 3.0 - x) / (x + 1.0) % 2.0));
        check(x.clone(), X);
        // Gradients flow through all of the assignments.
        let mut sum = x.square();
        sum *= &x;
        let grad = sum.sum(..).gradients(&[&x]).unwrap().remove(0);
        check(grad, X.map(|x| 3.0 * x * x));
        let mut wrong = x;
        wrong += Tensor::ones([3], DType::F32);
        let error = wrong.check().unwrap_err();
        assert_eq!(error.message(), "add: shapes [4] and [3] do not broadcast");
        assert!(error.to_string().contains(file!()), "{error}");
    });
}

#[test]
fn indices_can_be_usize() {
    on_cpu(|| {
        let x = Tensor::from_slice(&X, [4]);
        let taken = x.index_select(0, &Tensor::from_indices(&[3, 0, 0]));
        assert_eq!(taken.to_vec::<f32>().unwrap(), [7.0, 1.5, 1.5]);
        let order: Vec<usize> = (0..4).rev().collect();
        check(x.take_along_dim(&Tensor::from_indices(&order), 0), [7.0, 0.25, -2.0, 1.5]);
        assert_eq!(x.index_select(0, &Tensor::from_indices(&[])).to_vec::<f32>().unwrap(), [0f32; 0]);
        let wrong = Tensor::from_indices(&[1, 1 << 31]).check().unwrap_err();
        assert_eq!(wrong.message(), "from_indices: 2147483648 is more than 2147483647, the largest i32");
    });
}

#[test]
fn concat_and_stack_accept_any_iterator() {
    on_cpu(|| {
        let x = Tensor::from_slice(&X, [2, 2]);
        let parts = vec![x.clone(), &x * 2.0];
        let joined = [1.5, -2.0, 0.25, 7.0, 3.0, -4.0, 0.5, 14.0];
        assert_eq!(Tensor::concat(&parts, 0).to_vec::<f32>().unwrap(), joined);
        assert_eq!(Tensor::concat([&x, &parts[1]], 0).to_vec::<f32>().unwrap(), joined);
        assert_eq!(Tensor::stack((1..3).map(|n| &x * f64::from(n)), 0).to_vec::<f32>().unwrap(), joined);
        assert_eq!(Tensor::stack(parts, 1).dims().unwrap(), [2, 2, 2]);
        let none = Tensor::concat(Vec::<Tensor>::new(), 0).check().unwrap_err();
        assert_eq!(none.message(), "concat: no tensors were given");
    });
}

#[test]
fn elements_are_copied_into_a_slice() {
    on_cpu(|| {
        let x = Tensor::from_slice(&[1f32, 2.0, 3.0, 4.0, 5.0, 6.0], [2, 3]);
        let mut elements = [9f32; 6];
        x.transpose(0, 1).copy_to_slice(&mut elements).unwrap();
        assert_eq!(elements, [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
        let error = x.copy_to_slice(&mut elements[1..]).unwrap_err();
        assert!(error.message().contains("has 6 elements, the slice has 5"), "{error}");
        assert!(x.copy_to_slice(&mut [0i32; 6]).unwrap_err().message().contains("does not hold i32"));
        let failed = x.sum(7).copy_to_slice(&mut elements).unwrap_err();
        assert!(failed.message().contains("sum"), "{failed}");
        assert_eq!(elements, [1.0, 4.0, 2.0, 5.0, 3.0, 6.0], "an error writes nothing");
    });
}

#[test]
fn bools_are_copied_to_a_device_and_back() {
    on_cpu(|| {
        let x = Tensor::from_slice(&[true, false, true], [3]);
        assert_eq!((x.dtype(), x.to_vec::<bool>().unwrap()), (DType::Bool, vec![true, false, true]));
        assert_eq!(x.bitwise_not().read_async::<bool>().unwrap().wait().unwrap(), [false, true, false]);
        assert_eq!(x.cast(DType::I32).to_vec::<i32>().unwrap(), [1, 0, 1]);
        assert!(x.to_vec::<u8>().unwrap_err().message().contains("does not hold u8"));
        // Any nonzero byte is true.
        let bytes = Tensor::from_slice(&[0u8, 1, 2, 255], [4]).bitcast(DType::I8);
        assert_eq!(bytes.ne(&bytes.zeros_like()).to_vec::<bool>().unwrap(), [false, true, true, true]);
        let raw = Tensor::from_bytes(&[0, 2, 255], [3], DType::Bool);
        assert_eq!(raw.to_vec::<bool>().unwrap(), [false, true, true]);
        let device = Device::get("cpu").unwrap();
        let mut buffer = device.buffer(&[true, false]).unwrap();
        assert_eq!(buffer.to_vec().unwrap(), [true, false]);
        buffer.write(&[false, true]).unwrap();
        let mut read = [true; 2];
        buffer.read_into(&mut read).unwrap();
        assert_eq!(read, [false, true]);
        buffer.fill(true).unwrap();
        assert_eq!(buffer.read_async().unwrap().wait().unwrap(), [true, true]);
        assert_eq!(device.zeros::<bool>(3).unwrap().to_vec().unwrap(), [false; 3]);
    });
}

#[test]
fn bools_are_ordered_as_in_rust() {
    on_cpu(|| {
        let (x, y) = ([false, false, true, true], [false, true, false, true]);
        let (a, b) = (Tensor::from_slice(&x, [4]), Tensor::from_slice(&y, [4]));
        let of = |f: fn(bool, bool) -> bool| -> Vec<bool> { x.into_iter().zip(y).map(|(x, y)| f(x, y)).collect() };
        for (found, expected) in [
            (a.lt(&b), of(|x, y| !x & y)),
            (a.le(&b), of(|x, y| x <= y)),
            (a.gt(&b), of(|x, y| x & !y)),
            (a.ge(&b), of(|x, y| x >= y)),
            (a.minimum(&b), of(|x, y| x.min(y))),
            (a.maximum(&b), of(|x, y| x.max(y))),
        ] {
            assert_eq!(found.to_vec::<bool>().unwrap(), expected);
        }
        let rows = Tensor::from_slice(&[false, true, false, false, false, false], [2, 3]);
        assert_eq!(rows.max(1).to_vec::<bool>().unwrap(), [true, false]);
        assert_eq!(rows.min(0).to_vec::<bool>().unwrap(), [false; 3]);
        assert_eq!(rows.argmax(1).to_vec::<i32>().unwrap(), [1, 0]);
        assert_eq!(rows.argmin(1).to_vec::<i32>().unwrap(), [0, 0]);
        assert_eq!(rows.cummax(1).to_vec::<bool>().unwrap(), [false, true, true, false, false, false]);
        let line = rows.reshape([6]);
        assert_eq!(
            line.sort(0, SortOrder::Descending).to_vec::<bool>().unwrap(),
            [true, false, false, false, false, false]
        );
        assert_eq!(line.argsort(0, SortOrder::Ascending).to_vec::<i32>().unwrap(), [0, 2, 3, 4, 5, 1]);
        let ValuesWithIndices { values, indices: places } = line.topk(2, 0);
        assert_eq!(
            (values.to_vec::<bool>().unwrap(), places.to_vec::<i32>().unwrap()),
            (vec![true, false], vec![1, 0])
        );
        assert_eq!(line.median(0).to_vec::<bool>().unwrap(), [false]);
    });
}

#[test]
fn axes_and_shapes_are_arrays_slices_or_vectors() {
    on_cpu(|| {
        let x = Tensor::arange(6).reshape(vec![1usize, 2, 3]);
        for same in
            [x.reshape([1, 2, -1]), x.reshape(&[1usize, 2, 3]), x.permute(&[0isize, 1, 2][..]), x.tile([1, 1, 1])]
        {
            assert_eq!(same.dims().unwrap(), [1, 2, 3]);
        }
        assert_eq!(x.numel().unwrap(), 6);
        assert_eq!(x.squeeze(..).dims().unwrap(), [2, 3]);
        assert_eq!(x.flatten(1, -1).dims().unwrap(), [1, 6]);
        assert_eq!(x.sum(KeepDim(vec![0usize, 2])).to_vec::<i32>().unwrap(), [3, 12]);
        assert_eq!(x.max(KeepDim(-1)).dims().unwrap(), [1, 2, 1]);
        assert_eq!(x.argmax(..).item::<usize>().unwrap(), 5);
        assert_eq!(x.argmin(KeepDim(..)).dims().unwrap(), [1, 1, 1]);
        assert_eq!(x.flip(..).to_vec::<i32>().unwrap(), [5, 4, 3, 2, 1, 0]);
        let found = x.max_with_indices(1);
        assert_eq!(found.values.to_vec::<i32>().unwrap(), [3, 4, 5]);
        assert_eq!(found.indices.to_vec::<i32>().unwrap(), [1, 1, 1]);
        let lengths = |parts: Vec<Tensor>| parts.iter().map(|part| part.size(-1).unwrap()).collect::<Vec<usize>>();
        assert_eq!(lengths(Tensor::arange(7).chunk(3, 0)), [3, 3, 1]);
        assert_eq!(lengths(x.unbind(1)), [3, 3]);
        assert_eq!(x.slice((TensorIndex::Ellipsis, 1..=2)).to_vec::<i32>().unwrap(), [1, 2, 4, 5]);
        assert_eq!(x.slice((0, TensorIndex::NewAxis, 1usize)).dims().unwrap(), [1, 3]);
        for (wrong, part) in [
            (x.flip(KeepDim(0)), "flip: `KeepDim` is for reductions"),
            (x.argmax([0, 1]), "argmax: takes one axis of i32[1, 2, 3]"),
            (x.squeeze(1), "squeeze: axis 1 of i32[1, 2, 3]"),
            (x.flatten(2, 1), "flatten: axis 2 of i32[1, 2, 3]"),
            (x.chunk(0, 0).remove(0), "chunk: i32[1, 2, 3]"),
            (x.slice((0, 0, 0, 0)), "slice: 4 indices for i32[1, 2, 3]"),
        ] {
            let error = wrong.check().unwrap_err();
            assert!(error.message().starts_with(part) && error.to_string().contains(file!()), "{error}");
        }
    });
}
