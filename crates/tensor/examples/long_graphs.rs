//! Times graphs of many operations on the CPU: a chain of additions with its gradient, and layers of a product and a ReLU.
//! The time of an operation should not depend on their number. Each line has the graph, the number of operations, and microseconds for each.
//!
//! `long_graphs [MAX_NODES]`

use std::time::Instant;

use panoply_tensor::{Device, Result, Rng, Tensor};

fn main() -> Result<()> {
    let max_nodes = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(200_000);
    Device::get("cpu")?.scope(|| measure(max_nodes))
}

fn measure(max_nodes: usize) -> Result<()> {
    let mut rng = Rng::seed_from_u64(1);
    let x = rng.uniform([8, 8]);
    let weight = rng.uniform([8, 8]) * 0.1;
    x.eval()?;
    weight.eval()?;
    let (x, weight) = (x.detach(), weight.detach());
    type Graph = fn(&Tensor, &Tensor) -> Tensor;
    let graphs: [(&str, Graph); 2] = [("x + w", |x, w| x + w), ("(x @ w).relu()", |x, w| x.matmul(w).relu())];
    for (name, layer) in graphs {
        for count in [400, 4_000, 40_000, 200_000].into_iter().filter(|count| *count <= max_nodes) {
            let started = Instant::now();
            let y = (0..count).fold(x.clone(), |x, _| layer(&x, &weight));
            y.sum(..).item::<f32>()?;
            let forward = started.elapsed();
            let gradient = y.sum(..).gradients(&[&weight])?.remove(0);
            gradient.eval()?;
            let all = started.elapsed();
            let each = |time: std::time::Duration| time.as_secs_f64() * 1e6 / count as f64;
            println!("{name}\t{count}\tforward {:.2}\twith gradient {:.2}", each(forward), each(all));
        }
    }
    Ok(())
}
