//! Activation checkpointing: the same values and gradients with less memory.

use panoply_tensor::{Device, MemoryPlan, Rng, Tensor, eval};

const WIDTH: usize = 64;
const ROWS: usize = 1024;

fn block(x: &Tensor, w: &Tensor) -> Tensor {
    let inner = (x.matmul(w) * 0.1).tanh();
    let inner = (inner.matmul(w) + &inner).gelu().layer_norm(1e-5);
    x + (inner.matmul(w) * 0.1).sin()
}

struct Net {
    x: Tensor,
    weights: Vec<Tensor>,
}

impl Net {
    fn new() -> Net {
        let mut rng = Rng::seed_from_u64(7);
        let x = rng.normal([ROWS, WIDTH]);
        Net { x, weights: (0..8).map(|_| rng.normal([WIDTH, WIDTH]) * 0.1).collect() }
    }

    fn loss(&self, checkpointed: bool) -> Tensor {
        let mut y = self.x.clone();
        for w in &self.weights {
            y = if checkpointed { Tensor::checkpoint([&y], |[y]| block(y, w)) } else { block(&y, w) };
        }
        y.square().mean(..)
    }

    /// Returns the loss, and its gradients with respect to weights and input.
    fn step(&self, checkpointed: bool) -> Vec<Tensor> {
        let loss = self.loss(checkpointed);
        let wanted: Vec<&Tensor> = self.weights.iter().chain([&self.x]).collect();
        let gradients = loss.gradients(&wanted).unwrap();
        [loss].into_iter().chain(gradients).collect()
    }
}

fn floats(tensors: &[Tensor]) -> Vec<Vec<f32>> {
    eval(&tensors.iter().collect::<Vec<&Tensor>>()).unwrap();
    tensors.iter().map(|tensor| tensor.to_vec().unwrap()).collect()
}

fn on(name: &str, work: impl FnOnce()) {
    match Device::get(name) {
        Ok(device) => device.scope(work),
        Err(error) => eprintln!("SKIPPED: checkpoints on {name}: {error}"),
    }
}

#[test]
fn gradients_are_bitwise_identical() {
    for name in ["cpu", "opencl:0"] {
        on(name, || {
            let net = Net::new();
            assert_eq!(floats(&net.step(true)), floats(&net.step(false)), "{name}");
        });
    }
}

#[test]
fn second_derivatives_through_checkpoints() {
    on("cpu", || {
        let x = Tensor::from_slice(&[0.3f64, -1.2, 2.0], [3]);
        let of = |y: Tensor| {
            let first = y.sum(..).gradients(&[&x]).unwrap().remove(0);
            let second = first.square().sum(..).gradients(&[&x]).unwrap().remove(0);
            second.to_vec::<f64>().unwrap()
        };
        let plain = of((x.sin() * &x).exp());
        assert_eq!(of(Tensor::checkpoint([&x], |[x]| (x.sin() * x).exp())), plain);
        assert_eq!(of(Tensor::checkpoint([&x], |[x]| (Tensor::checkpoint([x], |[x]| x.sin()) * x).exp())), plain);
    });
}

#[test]
fn activations_inside_are_not_kept() {
    on("cpu", || {
        let net = Net::new();
        eval(&net.weights.iter().chain([&net.x]).collect::<Vec<&Tensor>>()).unwrap();
        let temporaries = |checkpointed| {
            let step = net.step(checkpointed);
            MemoryPlan::for_eval(&step.iter().collect::<Vec<&Tensor>>()).unwrap().temp
        };
        let (kept, anew) = (temporaries(false), temporaries(true));
        let activation = (ROWS * WIDTH * 4) as u64;
        println!("temporaries: {} activations without checkpoints, {} with", kept / activation, anew / activation);
        assert!(anew * 2 < kept, "{anew} bytes with checkpoints, {kept} without");
    });
}

#[test]
fn outputs_that_depend_on_no_input() {
    on("cpu", || {
        let (x, w) = (Tensor::from_slice(&[1.0f32], [1]), Tensor::from_slice(&[2.0f32], [1]));
        let y = Tensor::checkpoint([&x], |_| &w * 3.0);
        assert_eq!(y.sum(..).gradients(&[&w]).unwrap()[0].to_vec::<f32>().unwrap(), [3.0]);
        assert!(y.sum(..).gradients(&[&x]).is_err(), "there is no gradient path");
        let same = Tensor::checkpoint([&x], |[x]| x.clone());
        assert_eq!(same.sum(..).gradients(&[&x]).unwrap()[0].to_vec::<f32>().unwrap(), [1.0]);
        let wrong = Tensor::checkpoint([&x], |[x]| x.reshape([7]));
        assert!(wrong.check().unwrap_err().message().contains("reshape"));
    });
}

#[test]
fn evaluated_checkpoints_can_be_differentiated_later() {
    on("cpu", || {
        let x = Tensor::from_slice(&[0.5f32, 1.5], [2]);
        let y = Tensor::checkpoint([&x], |[x]| x.exp().sin());
        y.eval().unwrap();
        let gradient = y.sum(..).gradients(&[&x]).unwrap().remove(0).to_vec::<f32>().unwrap();
        let plain = x.exp().sin().sum(..).gradients(&[&x]).unwrap().remove(0).to_vec::<f32>().unwrap();
        assert_eq!(gradient, plain);
    });
}
