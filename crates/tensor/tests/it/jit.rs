//! Captured functions return the same results as the functions. A call that was already traced builds no graph, does not look up plans, and
//! allocates no memory.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use panoply_runtime::{Device, device_report};
use panoply_tensor::{DType, Error, Rng, State, StateLeaf, Tensor, eval, jit, jit_with_state, plan_cache_stats};

/// Statistics are global to the process, so tests run one at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn devices() -> Vec<Device> {
    device_report().expect("the environment variables are valid").devices().cloned().collect()
}

fn data(turn: usize, len: usize) -> Vec<f32> {
    (0..len).map(|i| ((i * 7 + turn * 13) % 97) as f32 / 8.0 - 6.0).collect()
}

fn tensor(turn: usize, len: usize) -> Tensor {
    let tensor = Tensor::from_slice(&data(turn, len), [len]);
    tensor.eval().unwrap();
    tensor
}

/// Returns the number of allocations that reached the driver.
fn asked(device: &Device) -> u64 {
    let stats = device.memory_stats();
    stats.allocations - stats.reused
}

#[test]
fn traced_calls_only_replay() {
    let _alone = alone();
    for device in devices() {
        device.scope(|| replays(&device));
    }
}

fn replays(device: &Device) {
    const LEN: usize = 300;
    let runs = AtomicUsize::new(0);
    let held = tensor(50, LEN);
    let function = jit(|[x, by]| {
        runs.fetch_add(1, Ordering::Relaxed);
        let scaled = (x - x.mean(..)) * by + &held;
        [scaled.max(..), scaled]
    });
    let mut before = None;
    for turn in 0..8 {
        let (x, by) = (data(turn, LEN), 0.5 + turn as f32);
        let given = tensor(turn, LEN);
        let counts = || (plan_cache_stats(), asked(device), device.memory_stats().uploaded);
        let started = counts();
        let [most, scaled] = function.call([&given, &Tensor::scalar(by)]).unwrap();
        let ended = counts();
        let mean = x.iter().map(|x| f64::from(*x)).sum::<f64>() / LEN as f64;
        let expected: Vec<f64> = x
            .iter()
            .zip(data(50, LEN))
            .map(|(x, held)| (f64::from(*x) - mean) * f64::from(by) + f64::from(held))
            .collect();
        for (found, expected) in scaled.to_vec::<f32>().unwrap().iter().zip(&expected) {
            assert!((f64::from(*found) - expected).abs() < 1e-5 * expected.abs().max(1.0), "{device}, turn {turn}");
        }
        let greatest = expected.iter().copied().fold(f64::MIN, f64::max);
        assert!((most.item::<f64>().unwrap() - greatest).abs() < 1e-4, "{device}, turn {turn}");
        if turn > 1 {
            let (plans, memory, uploaded) = (ended.0, ended.1, ended.2);
            assert_eq!((plans.misses, plans.hits), (started.0.misses, started.0.hits), "{device}, turn {turn}");
            assert_eq!(plans.replays, started.0.replays + 1, "{device}, turn {turn}");
            assert_eq!((memory, uploaded), (started.1, started.2), "{device}, turn {turn}");
        }
        before = Some((most, scaled));
    }
    assert_eq!(runs.load(Ordering::Relaxed), 1, "{device}");
    drop(before);
}

/// A step of gradient descent for a line, as an ordinary function.
fn descend((w, b): &mut (Tensor, Tensor), [x, y, rate]: [&Tensor; 3]) -> [Tensor; 1] {
    let loss = (&*w * x + &*b - y).square().mean(..);
    match loss.gradients(&[w, b]) {
        Err(error) => return [Tensor::from_mistake(error)],
        Ok(gradients) => (*w, *b) = (&*w - &gradients[0] * rate, &*b - &gradients[1] * rate),
    }
    [loss]
}

#[test]
fn state_updates_are_visible_in_the_next_call() {
    let _alone = alone();
    for device in devices() {
        device.scope(|| {
            let start = || (Tensor::from_slice(&[0.1f32], [1]), Tensor::from_slice(&[0.0f32], [1]));
            let (x, rate) = (tensor(3, 64), Tensor::scalar(0.01f32));
            let y = &x * 2.0 + 1.0;
            let step = jit_with_state(descend);
            let (mut captured, mut plain) = (start(), start());
            let mut last = f64::INFINITY;
            for turn in 0..20 {
                let [loss] = step.call_with_state(&mut captured, [&x, &y, &rate]).unwrap();
                let [expected] = descend(&mut plain, [&x, &y, &rate]);
                eval(&[&expected, &plain.0, &plain.1]).unwrap();
                plain = (plain.0.detach(), plain.1.detach());
                let (loss, expected) = (loss.item::<f64>().unwrap(), expected.item::<f64>().unwrap());
                assert!((loss - expected).abs() <= 1e-6 * expected, "{device}, turn {turn}: {loss} and {expected}");
                assert!(loss < last, "{device}, turn {turn}");
                last = loss;
            }
            let values = |(w, b): &(Tensor, Tensor)| (w.item::<f64>().unwrap(), b.item::<f64>().unwrap());
            let (found, expected) = (values(&captured), values(&plain));
            assert!((found.0 - expected.0).abs() < 1e-5 && (found.1 - expected.1).abs() < 1e-5, "{device}");
        });
    }
}

#[test]
fn random_numbers_equal_those_of_the_uncaptured_function() {
    let _alone = alone();
    fn noisy(rng: &mut Rng, [x]: [&Tensor; 1]) -> [Tensor; 2] {
        let kept = rng.uniform([40]).ge(&Tensor::scalar(0.5f32));
        [kept.cast(x.dtype()) * x, rng.bits([7])]
    }
    for device in devices() {
        device.scope(|| {
            let (mut captured, mut plain) = (Rng::seed_from_u64(u64::MAX - 3), Rng::seed_from_u64(u64::MAX - 3));
            (captured.counter, plain.counter) = (u64::from(u32::MAX) - 20, u64::from(u32::MAX) - 20);
            let function = jit_with_state(noisy);
            let mut seen = Vec::new();
            for turn in 0..5 {
                let x = tensor(turn, 40);
                let [dropped, bits] = function.call_with_state(&mut captured, [&x]).unwrap();
                let [expected, words] = noisy(&mut plain, [&x]);
                assert_eq!(dropped.to_vec::<f32>().unwrap(), expected.to_vec::<f32>().unwrap(), "{device}");
                assert_eq!(bits.to_vec::<u32>().unwrap(), words.to_vec::<u32>().unwrap(), "{device}");
                assert_eq!(captured, plain, "{device}");
                seen.push(bits.to_vec::<u32>().unwrap());
            }
            seen.dedup();
            assert_eq!(seen.len(), 5, "{device}");
        });
    }
}

#[test]
fn each_shape_has_a_trace_and_the_least_recently_used_is_evicted() {
    let _alone = alone();
    let runs = AtomicUsize::new(0);
    let sum = jit(|[x]| {
        runs.fetch_add(1, Ordering::Relaxed);
        [x.sum(..)]
    });
    let check = |len: usize, expected: usize| {
        let [total] = sum.call([&Tensor::from_slice(&vec![1.0f32; len], [len])]).unwrap();
        assert_eq!((total.item::<f64>().unwrap(), runs.load(Ordering::Relaxed)), (len as f64, expected), "{len}");
    };
    (1..=16).for_each(|len| check(len, len));
    // The first trace was used last, so the second one is evicted.
    check(1, 16);
    check(17, 17);
    check(1, 17);
    check(2, 18);
    // A scalar differs from a tensor with one element, and so do types.
    let before = runs.load(Ordering::Relaxed);
    for given in [Tensor::scalar(2.0f32), Tensor::from_slice(&[2.0f32], []), Tensor::scalar(2.0f64)] {
        assert_eq!(sum.call([&given]).unwrap()[0].item::<f64>().unwrap(), 2.0);
    }
    assert_eq!(runs.load(Ordering::Relaxed), before + 3);
}

#[test]
fn captured_tensors_are_computed_once() {
    let _alone = alone();
    let base = Tensor::from_slice(&[1.0f32, 2.0, 3.0], [3]);
    let held = (&base * 2.0).cumsum(0);
    let function = jit(|[x]| [x + &held, held.clone(), x.clone()]);
    for _ in 0..3 {
        let x = Tensor::from_slice(&[10.0f32; 3], [3]);
        let [sum, same, given] = function.call([&x]).unwrap();
        assert_eq!(sum.to_vec::<f32>().unwrap(), [12.0, 16.0, 22.0]);
        assert_eq!(same.to_vec::<f32>().unwrap(), [2.0, 6.0, 12.0]);
        assert!(given.ptr_eq(&x));
    }
}

#[test]
fn tensors_without_a_device_are_computed_where_the_function_runs() {
    let _alone = alone();
    for (current, device) in devices().iter().flat_map(|one| devices().into_iter().map(move |other| (one, other))) {
        let w = device.scope(|| tensor(1, 2));
        let held = Tensor::zeros([2], DType::F32).cumsum(0) + 1.0;
        let add = jit_with_state(|(w, sum): &mut (Tensor, Tensor), []| {
            *sum = &*sum + &*w + &held;
            [sum.sum(..)]
        });
        let mut state = (w.clone(), Tensor::zeros([2], DType::F32));
        let expected = w.to_vec::<f32>().unwrap().iter().map(|w| w + 1.0).collect::<Vec<f32>>();
        current
            .scope(|| add.call_with_state(&mut state, []))
            .unwrap_or_else(|error| panic!("{current}, {device}: {error}"));
        assert_eq!(state.1.to_vec::<f32>().unwrap(), expected, "{current}, {device}");
        assert_eq!(state.1.device(), Some(&device));
    }
}

#[test]
fn an_unmodified_state_stays_the_same_tensor() {
    let _alone = alone();
    let function = jit_with_state(|(kept, written): &mut (Tensor, Tensor), [x]: [&Tensor; 1]| {
        *written = &*kept + x;
        [written.sum(..)]
    });
    let kept = Tensor::from_slice(&[1.0f32, 2.0], [2]);
    let mut state = (kept.clone(), Tensor::from_slice(&[0.0f32; 2], [2]));
    let [sum] = function.call_with_state(&mut state, [&Tensor::scalar(1.0f32)]).unwrap();
    assert!(state.0.ptr_eq(&kept));
    assert_eq!((sum.item::<f64>().unwrap(), state.1.to_vec::<f32>().unwrap()), (5.0, vec![2.0, 3.0]));
}

fn message<T>(result: Result<T, Error>) -> String {
    result.err().map_or_else(|| "no error".to_string(), |error| format!("{error}"))
}

#[test]
fn mistakes_are_one_sentence_and_change_no_state() {
    let _alone = alone();
    let (x, y) = (Tensor::from_slice(&[0.0f32; 6], [2, 3]), Tensor::from_slice(&[0.0f32; 8], [4, 2]));
    let product = jit(|[x, y]| [x.matmul(y)]);
    for _ in 0..2 {
        let text = message(product.call([&x, &y]));
        assert!(text.contains("matmul: inner dimensions 3 and 4 differ"), "{text}");
        assert!(text.contains("f32[2, 3]") && text.contains("f32[4, 2]") && text.contains("jit.rs"), "{text}");
    }
    let text = message(product.call([&x, &x.matmul(&y)]));
    assert!(text.contains("inner dimensions 3 and 4 differ"), "{text}");
    let read = jit(|[x]: [&Tensor; 1]| match x.sum(..).item::<f64>() {
        Ok(sum) if sum > 0.0 => [x.clone()],
        Ok(_) => [-x],
        Err(error) => [Tensor::from_mistake(error)],
    });
    let text = message(read.call([&x]));
    assert!(text.contains("is an input of a function under trace") && text.contains("read it outside"), "{text}");
    let mut state = (Tensor::from_slice(&[1.0f32], [1]), Rng::seed_from_u64(4));
    state.1.counter = 9;
    let check = |function: fn(&mut (Tensor, Rng), [&Tensor; 0]) -> [Tensor; 1], expected: &str| {
        let captured = jit_with_state(function);
        let (mut tried, before) = (state.clone(), state.clone());
        let text = message(captured.call_with_state(&mut tried, []));
        assert!(text.contains(expected), "{text}");
        assert!(tried.0.ptr_eq(&before.0) && tried.1 == before.1, "{expected}: the state changed");
    };
    check(
        |(w, rng), []| {
            *w = rng.uniform([1]);
            [w.matmul(&Tensor::from_slice(&[0.0f32; 4], [2, 2]))]
        },
        "matmul",
    );
    check(|(w, rng), []| [&*w * f64::from(rng.random_below(7))], "draws or forks on the host");
    check(|(_, rng), []| [rng.fork().uniform([2])], "draws or forks on the host");
    check(|(w, rng), []| [&*w * f64::from(rng.clone().random_below(7))], "draws or forks on the host");
    check(
        |(_, rng), []| {
            let mut other = rng.clone();
            other.seed ^= 1;
            [rng.uniform([2]) + other.uniform([2])]
        },
        "sets its fields",
    );
    check(
        |(_, rng), []| {
            let drawn = rng.uniform([2]);
            rng.counter = 0;
            [drawn]
        },
        "sets its fields",
    );
    check(
        |(_, rng), []| {
            rng.counter = 5;
            [rng.uniform([2])]
        },
        "sets its fields",
    );
    check(
        |(w, rng), []| {
            *rng = Rng::seed_from_u64(1);
            [w.clone()]
        },
        "replaces it",
    );
    check(
        |(_, rng), []| {
            let drawn = rng.uniform([2]);
            [drawn.eval().map_or_else(Tensor::from_mistake, |()| drawn)]
        },
        "drawn in it",
    );
    state.0 = Tensor::from_slice(&[1.0f32], [1]);
    let mut many = vec![state.0.clone()];
    let grows = jit_with_state(|many: &mut Vec<Tensor>, []| {
        many.push(many[0].clone());
        [many[0].clone()]
    });
    let text = message(grows.call_with_state(&mut many, []));
    assert!(text.contains("had 1 tensors and generators before the function and has 2 after"), "{text}");
    assert_eq!(many.len(), 1);
}

#[test]
fn a_call_that_runs_out_of_memory_changes_nothing_and_works_later() {
    let _alone = alone();
    let device = Device::current().unwrap();
    let mut state = tensor(1, 1 << 20);
    let double = jit_with_state(|x: &mut Tensor, []| {
        *x = &*x * 2.0;
        [x.max(..)]
    });
    double.call_with_state(&mut state, []).unwrap();
    let before = state.clone();
    // The memory of the last value is referenced, and the pool keeps that of the value before.
    device.trim();
    device.set_memory_limit(Some(device.memory_stats().reserved));
    let error = double.call_with_state(&mut state, []).unwrap_err();
    device.set_memory_limit(None);
    assert!(error.is_out_of_memory() && state.ptr_eq(&before), "{error}");
    let expected: Vec<f32> = data(1, 1 << 20).iter().map(|x| x * 4.0).collect();
    double.call_with_state(&mut state, []).unwrap();
    assert_eq!(state.to_vec::<f32>().unwrap(), expected);
}

#[test]
fn custom_states_list_their_leaves() {
    let _alone = alone();
    #[derive(Clone)]
    struct Cache {
        keys: Tensor,
        rng: Rng,
    }
    impl State for Cache {
        fn visit_leaves(&mut self, visitor: &mut dyn FnMut(StateLeaf<'_>)) {
            visitor(StateLeaf::Tensor(&mut self.keys));
            visitor(StateLeaf::Rng(&mut self.rng));
        }
    }
    // A cache that grows by a row at a runtime position, as in text generation.
    let append = jit_with_state(|cache: &mut Cache, [position, row]: [&Tensor; 2]| {
        cache.keys = cache.keys.slice_scatter(row, 0, position);
        [cache.rng.bits([1])]
    });
    let mut cache = Cache { keys: Tensor::from_slice(&[0.0f32; 8], [4, 2]), rng: Rng::seed_from_u64(0) };
    let before = plan_cache_stats().misses;
    for position in 0..4i32 {
        let row = Tensor::from_slice(&[position as f32 + 1.0; 2], [1, 2]);
        append.call_with_state(&mut cache, [&Tensor::scalar(position), &row]).unwrap();
    }
    assert_eq!(cache.keys.to_vec::<f32>().unwrap(), [1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0]);
    assert_eq!((plan_cache_stats().misses - before, cache.rng.counter), (1, 4));
}
