//! Verdicts on many random small networks, some with planted counterexamples, compared with dense grids: 300 by default, 100,000 with
//! `PANOPLY_TEST_FULL=1`, which also limits each to 1 s. `PANOPLY_TEST_SEED` sets the first seed.

use panoply_tensor::{Device, Result, Rng, Tensor};
use panoply_verify::attack::uniform;
use panoply_verify::{Options, Verdict};

use super::{Mlp, property, report};

/// An activation as a tensor operation and in f64.
type Activation = (fn(&Tensor) -> Tensor, fn(f64) -> f64);

const ACTIVATIONS: [Activation; 5] = [
    (Tensor::relu, |x| x.max(0.0)),
    (Tensor::relu, |x| x.max(0.0)),
    (|x| x.leaky_relu(0.25), |x| x.max(0.25 * x)),
    (Tensor::sigmoid, |x| 1.0 / (1.0 + (-x).exp())),
    (Tensor::tanh, f64::tanh),
];

/// A network with a property: an output reaches a threshold above another one.
struct Random {
    network: Mlp,
    activation: Activation,
    inputs: usize,
    /// The property forbids y₀ - `other`·y₁ ≥ `threshold`.
    other: f64,
    threshold: f64,
    /// The largest value at a point of the grid or a planted point.
    largest: f64,
}

impl Random {
    fn new(seed: u64) -> Random {
        let mut rng = Rng::seed_from_u64(seed);
        let mut below = |count: usize| (uniform(&mut rng) * count as f64) as usize;
        let inputs = 1 + below(3);
        let hidden: Vec<usize> = (0..1 + below(3)).map(|_| 2 + below(9)).collect();
        let (activation, kind, margin) = (ACTIVATIONS[below(ACTIVATIONS.len())], below(4), below(3));
        let network = Mlp::random(&[&[inputs], &hidden[..], &[2]].concat(), &mut rng);
        let other = if seed.is_multiple_of(2) { 1.0 } else { 0.0 };
        let mut random = Random { network, activation, inputs, other, threshold: 0.0, largest: f64::NEG_INFINITY };
        let mut least = f64::INFINITY;
        let count = [1001usize, 41, 13][inputs - 1];
        for n in 0..count.pow(inputs as u32) {
            let at = |axis: u32| (n / count.pow(axis) % count) as f64 / (count - 1) as f64 * 2.0 - 1.0;
            let y = random.value(&(0..inputs as u32).map(at).collect::<Vec<f64>>());
            (random.largest, least) = (random.largest.max(y), least.min(y));
        }
        let size = random.largest - least;
        random.threshold = match kind {
            // A planted counterexample: a random point reaches the threshold.
            0 => {
                let point: Vec<f64> =
                    (0..inputs).map(|_| f64::from((uniform(&mut rng) * 1.99 - 0.99) as f32)).collect();
                let planted = random.value(&point);
                random.largest = random.largest.max(planted);
                planted - 1e-3 * size
            }
            1 => random.largest - 0.02 * size,
            _ => random.largest + [0.02, 0.2, 1.0][margin] * size + 1e-3,
        };
        random
    }

    fn value(&self, x: &[f64]) -> f64 {
        let mut value = x.to_vec();
        for (n, (weight, bias)) in self.network.layers.iter().enumerate() {
            let hidden: Vec<f64> = if n == 0 { value } else { value.into_iter().map(self.activation.1).collect() };
            let term =
                |j: usize| (0..hidden.len()).map(|i| hidden[i] * f64::from(weight[i * bias.len() + j])).sum::<f64>();
            value = (0..bias.len()).map(|j| term(j) + f64::from(bias[j])).collect();
        }
        value[0] - self.other * value[1]
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut value = x.unsqueeze(0);
        for (n, (weight, bias)) in self.network.layers.iter().enumerate() {
            let hidden = if n == 0 { value } else { (self.activation.0)(&value) };
            let sizes = [weight.len() / bias.len(), bias.len()];
            value = hidden.matmul(&Tensor::from_slice(weight, sizes)) + Tensor::from_slice(bias, [bias.len()]);
        }
        Ok(value.squeeze(0))
    }

    /// Returns true if the verdict is right; false if it is undecided.
    fn decided(&self, seed: u64, seconds: f64) -> bool {
        let asserted = format!("(assert (>= (- Y_0 (* {} Y_1)) {}))", self.other, self.threshold);
        let property = property(self.inputs, 2, (-1.0, 1.0), &asserted);
        let options = Options { seconds, threads: Some(1), seed, ..Options::default() };
        let tolerance = 1e-9 * (1.0 + self.threshold.abs());
        match report(&|x| self.forward(x), &property, &options).verdict {
            Verdict::Proven => {
                let (largest, threshold) = (self.largest, self.threshold);
                assert!(largest < threshold + tolerance, "seed {seed}: proven, but {largest} reaches {threshold}");
                true
            }
            Verdict::Counterexample(found) => {
                let x: Vec<f64> = found.input.iter().map(|x| f64::from(*x)).collect();
                assert!(x.iter().all(|x| x.abs() <= 1.0), "seed {seed}: {x:?} is outside of the set");
                let (value, threshold) = (self.value(&x), self.threshold);
                assert!(value >= threshold - tolerance, "seed {seed}: {x:?} has {value}, below {threshold}");
                true
            }
            Verdict::Undecided(_) => false,
        }
    }
}

#[test]
fn verdicts_on_random_networks_agree_with_grids() {
    let is_full = std::env::var("PANOPLY_TEST_FULL").is_ok_and(|value| value == "1");
    let first: u64 = std::env::var("PANOPLY_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0);
    let (count, seconds) = if is_full { (100_000, 1.0) } else { (300, 10.0) };
    let run = |from: u64| {
        Device::get("cpu").unwrap().scope(|| {
            let seeds = (first + from..first + count).step_by(2);
            seeds.filter(|seed| Random::new(*seed).decided(*seed, seconds)).count()
        })
    };
    let decided: usize = std::thread::scope(|scope| {
        let threads = [0, 1].map(|from| scope.spawn(move || run(from)));
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    println!("{decided} of {count} random networks are decided within {seconds} s each, from seed {first}");
    assert!(decided as f64 >= 0.95 * count as f64, "only {decided} of {count} are decided");
}
