//! Buffer donation: results written to donated memory equal results in fresh memory, and memory that is still referenced is not
//! overwritten.

use std::sync::{Mutex, MutexGuard, PoisonError};

use panoply_runtime::{Device, device_report};
use panoply_tensor::{DType, Tensor, eval, eval_donated, jit_with_state};

/// Statistics and memory limits are global to the process, so tests run one at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `work` on every device present, and on the checked device, which detects work-items that overwrite each other's data.
fn everywhere(work: impl Fn(&Device)) {
    let _alone = alone();
    let here: Vec<Device> = device_report().expect("the environment variables are valid").devices().cloned().collect();
    for device in here.iter().chain(&[Device::get("cpu:checked").unwrap()]) {
        match device.info().name.contains("SwiftShader") {
            true => eprintln!("SKIPPED: buffer donation on {device}: SwiftShader is too slow"),
            false => device.scope(|| work(device)),
        }
    }
}

fn data(seed: usize, shape: [usize; 2]) -> Tensor {
    let values: Vec<f32> = (0..shape[0] * shape[1]).map(|i| ((i * 31 + seed * 17) % 127) as f32 / 64.0 - 1.0).collect();
    let tensor = Tensor::from_slice(&values, shape);
    tensor.eval().unwrap();
    tensor.detach()
}

fn bits(tensor: &Tensor) -> Vec<u8> {
    tensor.to_bytes().unwrap()
}

struct Draw(u64);

impl Draw {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 20) % n as u64) as usize
    }

    /// Returns new tensors of the same shapes, each computed from a random subset of the tensors.
    fn next(&mut self, of: &[Tensor]) -> Vec<Tensor> {
        let mut all = of.to_vec();
        for _ in 0..6 {
            let (x, y) = (all[self.below(all.len())].clone(), all[self.below(all.len())].clone());
            all.push(match self.below(8) {
                0 => (&x + &y) * 0.5,
                1 => x.tanh() - &y,
                2 => x.t() * 0.5 + &y,
                3 => x.matmul(&y).tanh(),
                4 => x.softmax(-1) + &y,
                5 => &x * 0.9 + y.sum(0) * 0.01,
                6 => x.maximum(&y),
                _ => x.slice((1..3, ..)).mean(0) + &y * 0.25,
            });
        }
        let made = all.len();
        (0..of.len()).map(|at| if self.below(5) == 0 { of[at].clone() } else { all[made - 1 - at].tanh() }).collect()
    }
}

/// The oracle is evaluation into fresh memory, with other tensors, which never overwrites anything.
#[test]
fn donated_evaluation_equals_plain_evaluation() {
    everywhere(|device| {
        // Every program is compiled with and without donation.
        let seeds = if device.device_string() == "cpu" { 16 } else { 3 };
        for seed in 1..=seeds {
            let start: Vec<Tensor> = (0..3).map(|at| data(at + seed as usize, [12, 12])).collect();
            let mut kept: Vec<Tensor> = start.iter().map(|tensor| data(0, [12, 12]) * 0.0 + tensor).collect();
            let mut given: Vec<Tensor> = kept.iter().map(|tensor| tensor * 1.0).collect();
            for turn in 0..5 {
                let draw = || Draw(seed * 1000 + 7);
                let next = draw().next(&kept);
                eval(&next.iter().collect::<Vec<&Tensor>>()).unwrap();
                kept = next;
                let next = draw().next(&given);
                // Sometimes one of the tensors is still referenced.
                let held = (turn == 2).then(|| (given[0].clone(), bits(&given[0])));
                given = eval_donated(&mut given, next).unwrap();
                for (at, (have, want)) in given.iter().zip(&kept).enumerate() {
                    assert!(bits(have) == bits(want), "{device}, seed {seed}, turn {turn}, tensor {at}");
                }
                if let Some((held, before)) = held {
                    assert!(bits(&held) == before, "{device}, seed {seed}: a referenced tensor was overwritten");
                }
            }
        }
    });
}

const LEN: usize = 1 << 16;

fn state() -> Vec<Tensor> {
    vec![data(1, [256, LEN / 256]), data(2, [256, LEN / 256])]
}

/// One step of momentum.
fn step([value, mean]: [&Tensor; 2]) -> Vec<Tensor> {
    let mean = mean * 0.9 + value.square();
    vec![value - &mean * 0.01, mean]
}

#[test]
fn a_loop_needs_no_more_memory_than_its_state() {
    everywhere(|device| {
        let mut old = state();
        device.reset_peak_memory_stats();
        let before = device.memory_stats().allocated;
        for _ in 0..4 {
            let next = step([&old[0], &old[1]]);
            old = eval_donated(&mut old, next).unwrap();
        }
        assert_eq!(device.memory_stats().peak_allocated, before, "{device}: the state is allocated twice");
        let step = jit_with_state(|state: &mut Vec<Tensor>, []| {
            *state = step([&state[0], &state[1]]);
            []
        });
        for _ in 0..4 {
            step.call_with_state(&mut old, []).unwrap();
        }
        assert_eq!(
            device.memory_stats().peak_allocated,
            before,
            "{device}: a captured function allocates the state twice"
        );
        let mut plain = state();
        for _ in 0..8 {
            plain = apart(&plain);
        }
        assert!(bits(&old[0]) == bits(&plain[0]) && bits(&old[1]) == bits(&plain[1]), "{device}");
    });
}

/// Computes a step into fresh memory.
fn apart(old: &[Tensor]) -> Vec<Tensor> {
    let next = step([&old[0], &old[1]]);
    eval(&[&next[0], &next[1]]).unwrap();
    next.iter().map(Tensor::detach).collect()
}

#[test]
fn referenced_memory_is_not_overwritten() {
    everywhere(|device| {
        type Keep = fn(&Tensor) -> Box<dyn Fn() -> Vec<u8>>;
        let ways: [(&str, Keep); 4] = [
            ("a clone", |x| {
                let x = x.clone();
                Box::new(move || bits(&x))
            }),
            ("a view without history", |x| {
                let x = x.detach();
                Box::new(move || bits(&x))
            }),
            ("a part of the memory", |x| {
                let x = x.storage().unwrap().slice(0..64).unwrap();
                Box::new(move || x.read().unwrap())
            }),
            ("something not computed yet", |x| {
                let y = x * 2.0 - x;
                Box::new(move || bits(&y))
            }),
        ];
        for (name, keep) in ways {
            let mut old = state();
            let look = keep(&old[0]);
            let (before, want) = (look(), apart(&state()));
            let next = step([&old[0], &old[1]]);
            let new = eval_donated(&mut old, next).unwrap();
            assert!(look() == before, "{device}: {name}");
            assert!(
                bits(&new[0]) == bits(&want[0]) && bits(&new[1]) == bits(&want[1]),
                "{device}: results with {name}"
            );
        }
        // A loss that is differentiated twice.
        let mut old = state();
        let loss = old[0].square().sum(..);
        let grad = bits(&loss.gradients(&[&old[0]]).unwrap()[0]);
        let kept = (loss, old[0].clone());
        let next = step([&old[0], &old[1]]);
        eval_donated(&mut old, next).unwrap();
        assert!(bits(&kept.0.gradients(&[&kept.1]).unwrap()[0]) == grad, "{device}");
    });
}

#[test]
fn data_and_duplicates_among_the_outputs_keep_their_values() {
    everywhere(|device| {
        let fresh = Tensor::from_slice(&[1.0f32, 2.0, 3.0], [3]);
        let twice = &fresh * 2.0;
        let new = eval_donated(&mut Vec::new(), vec![fresh.detach(), twice.clone(), twice]).unwrap();
        drop(fresh);
        let have: Vec<Vec<f32>> = new.iter().map(|tensor| tensor.to_vec().unwrap()).collect();
        assert_eq!(have, [[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [2.0, 4.0, 6.0]], "{device}");
        let mut old = vec![Tensor::from_slice(&[1i32, 2], [2])];
        let same = old[0].clone();
        let next = old[0].cast(DType::F32);
        let new = eval_donated(&mut old, vec![same, next]).unwrap();
        assert!(old.is_empty());
        assert_eq!(
            (new[0].to_vec().unwrap(), new[1].to_vec().unwrap()),
            (vec![1i32, 2], vec![1.0f32, 2.0]),
            "{device}"
        );
    });
}

#[test]
fn running_out_of_memory_changes_nothing() {
    let _alone = alone();
    for device in [Device::get("cpu").unwrap(), Device::get("cpu:checked").unwrap()] {
        device.scope(|| {
            let mut old = state();
            let before = [bits(&old[0]), bits(&old[1])];
            let row = data(3, [1, 16]);
            let make = |old: &[Tensor]| {
                let mut next = step([&old[0], &old[1]]);
                next.push((next[0].reshape([-1, 1]) * &row).cumsum(0));
                next
            };
            device.trim();
            device.set_memory_limit(Some(device.memory_stats().reserved + 4096));
            let next = make(&old);
            let error = eval_donated(&mut old, next).unwrap_err();
            device.set_memory_limit(None);
            assert!(error.is_out_of_memory(), "{error}");
            assert_eq!(old.len(), 2);
            assert!([bits(&old[0]), bits(&old[1])] == before, "{device}");
            let next = make(&old);
            let new = eval_donated(&mut old, next).unwrap();
            let want = apart(&state());
            assert!(bits(&new[0]) == bits(&want[0]) && bits(&new[1]) == bits(&want[1]), "{device}");
        });
    }
}

/// If a product is fused into the update as its epilogue, each element of the donated tensor is updated exactly once.
#[test]
fn an_epilogue_updates_donated_memory_once() {
    everywhere(|device| {
        // Only the CPU computes products in bands, which need many rows.
        let large: &[[usize; 3]] =
            if device.device_string() == "cpu" { &[[130, 420, 33], [600, 1030, 3]] } else { &[] };
        for [m, n, k] in [[40, 50, 60], [3, 5, 7]].iter().chain(large).copied() {
            let (x, grad) = (data(1, [k, m]), data(2, [k, n]));
            let step = |w: &Tensor| w * 0.9 - x.t().matmul(&grad) * 0.01;
            let (mut old, mut plain) = (vec![data(3, [m, n])], data(3, [m, n]));
            for turn in 0..3 {
                let next = step(&old[0]);
                old = eval_donated(&mut old, vec![next]).unwrap();
                plain = step(&plain);
                plain.eval().unwrap();
                plain = plain.detach();
                assert!(bits(&old[0]) == bits(&plain), "{device}, {m}×{n}×{k}, turn {turn}");
            }
        }
    });
}

/// Host memory that a device uses in place is never donated, though nothing else holds it.
#[test]
fn memory_used_in_place_is_not_donated() {
    let _alone = alone();
    let device = Device::get("cpu").unwrap();
    device.scope(|| {
        let path = std::env::temp_dir().join(format!("panoply-donated-{}", std::process::id()));
        let numbers: Vec<f32> = (0..64).map(|i| i as f32).collect();
        std::fs::write(&path, numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>()).unwrap();
        let adopted = || {
            let map = std::sync::Arc::new(panoply_tensor::map_file(&path).unwrap());
            Tensor::from_storage(device.adopt(&map).unwrap().unwrap(), [64], DType::F32)
        };
        let doubled: Vec<f32> = numbers.iter().map(|number| number * 2.0).collect();
        let mut old = vec![adopted()];
        let new = &old[0] * 2.0;
        assert_eq!(eval_donated(&mut old, vec![new]).unwrap()[0].to_vec::<f32>().unwrap(), doubled);
        let step = jit_with_state(|state: &mut Vec<Tensor>, []| {
            state[0] = &state[0] * 2.0;
            [state[0].sum(0)]
        });
        let mut state = vec![adopted()];
        let [sum] = step.call_with_state(&mut state, []).unwrap();
        assert_eq!(sum.to_vec::<f32>().unwrap(), [doubled.iter().sum::<f32>()]);
        assert_eq!(state[0].to_vec::<f32>().unwrap(), doubled);
        std::fs::remove_file(&path).unwrap();
    });
}
