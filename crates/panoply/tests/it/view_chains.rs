//! Chains of views, and in-place writes to viewed data, compared with ndarray: no view changes another, and none
//! changes when the data beneath it is overwritten. Conversion between buffers and tensors; types that cross threads.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ndarray::{ArrayD, Axis, Slice};
use panoply::nn::{Model, Sequential};
use panoply::{
    Buffer, DType, Device, Dim, Error, JitFunction, Rng, Tensor, TensorIndex, eval, eval_donated, jit_with_state,
};

/// Checks at compile time that these types are `Send` and `Sync`.
const _: () = {
    const fn shared<T: Send + Sync>() {}
    shared::<Tensor>();
    shared::<JitFunction<'static, 1, 1, (Tensor, Rng)>>();
    shared::<Device>();
    shared::<Rng>();
    shared::<Dim>();
    shared::<Buffer<f32>>();
    shared::<Error>();
    shared::<Model>();
    shared::<Sequential>();
};

/// Statistics are global to the process, so tests run one at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A random number generator.
struct Draw(u64);

impl Draw {
    fn below(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % below
    }

    fn axis(&mut self, array: &ArrayD<f32>) -> usize {
        self.below(array.ndim())
    }

    /// Returns integers of a random shape with 1 to 3 axes; their sums are exact.
    fn data(&mut self) -> Pair {
        let dims: Vec<usize> = (0..1 + self.below(3)).map(|_| 1 + self.below(6)).collect();
        let values: Vec<f32> = (0..dims.iter().product()).map(|_| self.below(200) as f32 - 100.0).collect();
        let array = ArrayD::from_shape_vec(dims.clone(), values.clone()).unwrap();
        Pair { tensor: Tensor::from_slice(&values, dims), array }
    }
}

/// A tensor and the equal ndarray.
#[derive(Clone)]
struct Pair {
    tensor: Tensor,
    array: ArrayD<f32>,
}

/// Maximum number of elements; larger arrays would not test more.
const MAX_ELEMS: usize = 3000;

impl Pair {
    fn check(&self, what: &str) {
        assert_eq!(self.tensor.shape().unwrap().dims(), self.array.shape(), "{what}");
        let want: Vec<f32> = self.array.iter().copied().collect();
        assert_eq!(self.tensor.to_vec::<f32>().unwrap(), want, "{what}");
    }

    /// Returns a random view.
    fn view(&self, draw: &mut Draw) -> Pair {
        let Pair { tensor, array } = self;
        let (axis, rank) = (draw.axis(array), array.ndim());
        let (along, length) = (axis as isize, array.shape()[axis]);
        match draw.below(8) {
            0 => {
                let other = draw.axis(array);
                let mut turned = array.clone();
                turned.swap_axes(axis, other);
                Pair { tensor: tensor.transpose(along, other as isize), array: turned }
            }
            1 | 2 if length > 0 => {
                let (start, step) = (draw.below(length), 1 + draw.below(3));
                let end = start + 1 + draw.below(length - start);
                let mut ranges = vec![TensorIndex::FULL; rank];
                ranges[axis] = TensorIndex::Slice { start: Some(start as isize), end: Some(end as isize), step };
                let part = array.slice_axis(Axis(axis), Slice::new(start as isize, Some(end as isize), step as isize));
                Pair { tensor: tensor.slice(ranges), array: part.to_owned() }
            }
            3 => {
                let mut turned = array.clone();
                turned.invert_axis(Axis(axis));
                Pair { tensor: tensor.flip(along), array: turned }
            }
            4 if rank < 5 && array.len() < MAX_ELEMS / 3 => {
                let wide = array.clone().insert_axis(Axis(axis));
                let mut dims = wide.shape().to_vec();
                dims[axis] = 1 + draw.below(3);
                let wide = wide.broadcast(dims.clone()).unwrap().to_owned();
                Pair { tensor: tensor.unsqueeze(along).broadcast_to(dims), array: wide }
            }
            5 => {
                let merged: usize = array.shape()[axis..].iter().product();
                let dims: Vec<usize> = array.shape()[..axis].iter().copied().chain([merged]).collect();
                Pair { tensor: tensor.flatten(along, -1), array: array.to_shape(dims).unwrap().to_owned() }
            }
            6 if length.is_multiple_of(2) && rank < 5 => {
                let mut dims = array.shape().to_vec();
                dims.splice(axis..=axis, [length / 2, 2]);
                let split = array.to_shape(dims).unwrap().to_owned();
                Pair { tensor: tensor.unflatten(along, &[length / 2, 2]), array: split }
            }
            _ if array.len() < MAX_ELEMS / 2 => {
                let (before, after) = (draw.below(3), draw.below(3));
                let mut widths = vec![(0, 0); rank];
                widths[axis] = (before, after);
                let mut dims = array.shape().to_vec();
                dims[axis] += before + after;
                let mut padded = ArrayD::zeros(dims);
                padded.slice_axis_mut(Axis(axis), Slice::from(before..before + length)).assign(array);
                Pair { tensor: tensor.pad(&widths), array: padded }
            }
            _ => self.clone(),
        }
    }

    /// Returns the array with a slice of itself, reversed, written to another position along an axis.
    fn written(&self, draw: &mut Draw, at: &Tensor, position: usize, axis: usize) -> Pair {
        let Pair { tensor, array } = self;
        let length = array.shape()[axis];
        let (start, len) = (draw.below(length), 1 + draw.below(length - position));
        let len = len.min(length - start);
        let mut part = array.slice_axis(Axis(axis), Slice::from(start..start + len)).to_owned();
        part.invert_axis(Axis(axis));
        let mut array = array.clone();
        array.slice_axis_mut(Axis(axis), Slice::from(position..position + len)).assign(&part);
        let view = tensor.narrow(axis as isize, start, len).flip(axis as isize);
        Pair { tensor: tensor.slice_scatter(&view, axis as isize, at), array }
    }
}

/// Creates views of data and of other views, some of them evaluated early. Then the data are overwritten in place,
/// while views of the old contents are still pending.
fn chain(seed: u64) {
    let mut draw = Draw(seed);
    let mut pairs: VecDeque<Pair> = (0..2).map(|_| draw.data()).collect();
    let what = format!("seed {seed}");
    for _ in 0..14 {
        let from = pairs[draw.below(pairs.len())].clone();
        let mut next = from.view(&mut draw).view(&mut draw);
        if draw.below(3) == 0 && next.array.len() < MAX_ELEMS {
            let mut turned = next.array.clone();
            turned.invert_axis(Axis(0));
            next = Pair { tensor: &next.tensor + next.tensor.flip(0), array: &next.array + &turned };
        }
        if draw.below(3) == 0 {
            eval(&[&next.tensor]).unwrap();
        }
        if draw.below(2) == 0 && !next.array.is_empty() {
            let axis = draw.axis(&next.array);
            let position = draw.below(next.array.shape()[axis]);
            next = overwritten(next, &mut draw, axis, position);
        }
        pairs.push_back(next);
        if pairs.len() > 8 {
            pairs.pop_front().unwrap().check(&what);
        }
    }
    let tensors: Vec<&Tensor> = pairs.iter().map(|pair| &pair.tensor).collect();
    eval(&tensors).unwrap();
    pairs.iter().for_each(|pair| pair.check(&what));
}

/// Returns a tensor after an in-place change, in one of three ways.
fn overwritten(old: Pair, draw: &mut Draw, axis: usize, position: usize) -> Pair {
    let at = Tensor::scalar(position as i32);
    let Pair { tensor, array } = old.written(draw, &at, position, axis);
    match draw.below(3) {
        0 => Pair { tensor, array },
        1 => {
            let mut given = vec![old.tensor];
            let tensor = eval_donated(&mut given, vec![tensor]).unwrap().remove(0);
            Pair { tensor, array }
        }
        _ => {
            // Updates the same position of a state twice; the second call overwrites the result of the first.
            drop(tensor);
            let step = jit_with_state(move |held: &mut Tensor, [at]: [&Tensor; 1]| {
                let part = held.index_select(axis as isize, &at.reshape([1]));
                *held = held.slice_scatter(&(&part + &part), axis as isize, at);
                [part]
            });
            let (mut held, mut want) = (old.tensor, old.array);
            for _ in 0..2 {
                step.call_with_state(&mut held, [&at]).unwrap();
                want.index_axis_mut(Axis(axis), position).mapv_inplace(|x| 2.0 * x);
            }
            Pair { tensor: held, array: want }
        }
    }
}

#[test]
fn views_and_in_place_writes_agree_with_ndarray() {
    let _alone = alone();
    for (name, chains) in [("cpu", 200), ("cpu:checked", 60), ("opencl:0", 1)] {
        match Device::get(name) {
            Ok(device) => device.scope(|| (0..chains).for_each(chain)),
            Err(error) => eprintln!("SKIPPED: views on {name}: {}", error.message()),
        }
    }
}

#[test]
fn buffers_and_tensors_convert_without_copying() {
    let _alone = alone();
    for name in ["cpu", "opencl:0"] {
        let device = match Device::get(name) {
            Ok(device) => device,
            Err(error) => {
                eprintln!("SKIPPED: buffers on {name}: {}", error.message());
                continue;
            }
        };
        let numbers: Vec<f32> = (0..12).map(|i| i as f32 / 4.0).collect();
        let buffer = device.buffer(&numbers).unwrap();
        let copied = device.memory_stats().uploaded;
        let tensor = Tensor::from_storage(buffer.into_storage(), [3, 4], DType::F32);
        assert_eq!(tensor.device(), Some(&device));
        let turned = tensor.t();
        let mut back = Buffer::<f32>::from_storage(turned.storage().unwrap()).unwrap();
        let want: Vec<f32> = (0..12).map(|i| numbers[i % 3 * 4 + i / 3]).collect();
        assert_eq!(back.to_vec().unwrap(), want);
        assert_eq!(device.memory_stats().uploaded, copied, "no byte passes through the host");
        // A custom kernel writes to the memory of the tensor: both share one allocation.
        back.fill(7.0).unwrap();
        assert_eq!(turned.to_vec::<f32>().unwrap(), [7.0; 12]);
        assert_eq!(tensor.to_vec::<f32>().unwrap(), numbers);
        let wrong = Tensor::from_storage(back.into_storage(), [5], DType::F32);
        assert_eq!(wrong.check().unwrap_err().message(), "a buffer of 48 bytes does not hold f32[5]");
    }
}
