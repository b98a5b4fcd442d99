//! The rows of `panoply bench training` in Burn and in candle, on the CPU: whole training steps with AdamW, including the readback of the
//! loss.
//!
//!     peers SECONDS
//!
//! Each row is a line of JSON with the median of warm steps. `RAYON_NUM_THREADS` sets the number of threads of both. Networks that a
//! framework cannot train have no row.

mod in_burn;
mod in_candle;

use std::error::Error;
use std::time::{Duration, Instant};

/// A training step; returns the loss before it.
type Step = Box<dyn FnMut() -> Result<f32, Box<dyn Error>>>;

/// A network and a batch to train on.
struct Row {
    name: &'static str,
    make: fn() -> Result<Step, Box<dyn Error>>,
}

/// Names of the rows, equal to those of PyTorch.
mod name {
    pub const MLP_64: &str = "MLP 784-512-256-10, batch 64";
    pub const MLP_1024: &str = "MLP 784-512-256-10, batch 1024";
    pub const CNN: &str = "CNN 28×28, batch 64";
    pub const LSTM: &str = "LSTM 64→128, T = 50, batch 32";
    pub const TRANSFORMER: &str = "transformer, d 256, 4 layers, 8 × 128";
}

/// Learning rate of every row.
const RATE: f64 = 1e-3;

fn main() -> Result<(), Box<dyn Error>> {
    let seconds = std::env::args().nth(1).map_or(Ok(1.0), |seconds| seconds.parse())?;
    for (framework, rows) in [("Burn", in_burn::ROWS), ("candle", in_candle::ROWS)] {
        for row in rows {
            match (row.make)().and_then(|step| median(step, Duration::from_secs_f64(seconds))) {
                Ok(median) => {
                    let seconds = median.as_secs_f64();
                    println!("{}", serde_json::json!({"framework": framework, "name": row.name, "seconds": seconds}));
                }
                Err(error) => eprintln!("{framework}: {}: {error}", row.name),
            }
        }
    }
    Ok(())
}

/// Returns the median time of a step after three warm-up steps; an error if a loss is not finite.
fn median(mut step: Step, budget: Duration) -> Result<Duration, Box<dyn Error>> {
    let mut losses = vec![step()?, step()?, step()?];
    let mut times = Vec::new();
    while times.len() < 3 || (times.len() < 10_000 && times.iter().sum::<Duration>() < budget) {
        let start = Instant::now();
        losses.push(step()?);
        times.push(start.elapsed());
    }
    if let Some(at) = losses.iter().position(|loss| !loss.is_finite()) {
        return Err(format!("the loss became {} at step {at}", losses[at]).into());
    }
    times.sort_unstable();
    Ok(times[times.len() / 2])
}
