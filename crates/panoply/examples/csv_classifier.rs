//! A classifier of the rows of a CSV file, with text labels and a fifth of the rows held out.
//!
//! `cargo run --release --example csv_classifier TABLE.csv`; without a file it writes a small table.

use std::path::{Path, PathBuf};

use panoply::nn::{AdamW, BatchNorm, Loss, Mlp, Sequential, data::reader, train};
use panoply::{Error, Result, Rng};

/// Trains on a table and returns the accuracy on the rows that are held out.
pub fn accuracy(table: &Path) -> Result<f64> {
    let (data, mut rng) = (reader::open(table, &reader::ReadOptions::default())?.dataset, Rng::seed_from_u64(0));
    let widths = [data.num_features, 32, data.num_classes()];
    let model = Sequential::new().add(BatchNorm::new(widths[0])).add(Mlp::new(&widths, 0.0, &mut rng));
    let history = train(model, &data, AdamW::new(1e-2), Loss::default(), 40)?.state.history;
    assert!(history[39].train_loss < history[0].train_loss, "the network did not learn");
    Ok(history[39].val_score)
}

/// Writes a table of points that are labeled by whether they are inside a circle, and returns its path.
pub fn example_table() -> Result<PathBuf> {
    let points: Vec<f32> = Rng::seed_from_u64(1).uniform([800, 2]).to_vec()?;
    let label = |x: f32, y: f32| if (x - 0.5).hypot(y - 0.5) < 0.4 { "inside" } else { "outside" };
    let rows: String = points.chunks(2).map(|p| format!("{},{},{}\n", p[0], p[1], label(p[0], p[1]))).collect();
    let path = std::env::temp_dir().join(format!("panoply-points-{}.csv", std::process::id()));
    std::fs::write(&path, format!("x,y,label\n{rows}")).map_err(|error| Error::io("cannot write a table", error))?;
    Ok(path)
}

/// Trains on the file in the arguments, or on the example table.
pub fn main() -> Result<()> {
    let table = std::env::args().nth(1).map_or_else(example_table, |path| Ok(path.into()))?;
    println!("{:.1} % of the held-out rows of {} are correct", accuracy(&table)? * 100.0, table.display());
    Ok(())
}
