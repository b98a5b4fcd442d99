//! Operators on tensors, compared with the same operators in Rust.

use panoply_tensor::{DType, Device, SortOrder, Tensor};

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
        let slope = sum.sum(..).gradients(&[&x]).unwrap().remove(0);
        check(slope, X.map(|x| 3.0 * x * x));
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
        let (values, places) = line.topk(2, 0);
        assert_eq!(
            (values.to_vec::<bool>().unwrap(), places.to_vec::<i32>().unwrap()),
            (vec![true, false], vec![1, 0])
        );
        assert_eq!(line.median(0).to_vec::<bool>().unwrap(), [false]);
    });
}
