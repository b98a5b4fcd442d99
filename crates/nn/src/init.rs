//! Weight initialization. Shapes are `[outputs, inputs, …]`, as in layers; the axes after the inputs are the kernel size.

use panoply_tensor::{Rng, Tensor};

/// Returns fan-in and fan-out of a weight of this shape.
fn fans(shape: &[usize]) -> (f64, f64) {
    let filter: usize = shape.iter().skip(2).product();
    let of = |axis: usize| (shape.get(axis).copied().unwrap_or(1) * filter).max(1) as f64;
    (of(1), of(0))
}

/// Samples uniformly from ±`bound`.
#[doc(alias = "uniform_")]
pub fn uniform(shape: &[usize], bound: f64, rng: &mut Rng) -> Tensor {
    rng.uniform(shape) * (2.0 * bound) - bound
}

/// Kaiming (He) initialization, uniform with variance 2 / ((1 + negative_slope²) · fan-in), for leaky ReLU (0 for ReLU). [He et al. 2015]
#[doc(alias = "kaiming_uniform_")]
pub fn kaiming_uniform(shape: &[usize], negative_slope: f64, rng: &mut Rng) -> Tensor {
    let deviation = (2.0 / ((1.0 + negative_slope * negative_slope) * fans(shape).0)).sqrt();
    uniform(shape, deviation * 3f64.sqrt(), rng)
}

/// Kaiming (He) initialization, normal with variance 2 / ((1 + negative_slope²) · fan-in), for leaky ReLU (0 for ReLU). [He et al. 2015]
#[doc(alias = "kaiming_normal_")]
pub fn kaiming_normal(shape: &[usize], negative_slope: f64, rng: &mut Rng) -> Tensor {
    rng.normal(shape) * (2.0 / ((1.0 + negative_slope * negative_slope) * fans(shape).0)).sqrt()
}

/// Xavier (Glorot) initialization, uniform with variance 2 / (fan-in + fan-out), for tanh and sigmoid. [Glorot and Bengio 2010]
#[doc(alias = "xavier_uniform_")]
pub fn xavier_uniform(shape: &[usize], rng: &mut Rng) -> Tensor {
    let (inputs, outputs) = fans(shape);
    uniform(shape, (6.0 / (inputs + outputs)).sqrt(), rng)
}

/// Xavier (Glorot) initialization, normal with variance 2 / (fan-in + fan-out), for tanh and sigmoid. [Glorot and Bengio 2010]
#[doc(alias = "xavier_normal_")]
pub fn xavier_normal(shape: &[usize], rng: &mut Rng) -> Tensor {
    let (inputs, outputs) = fans(shape);
    rng.normal(shape) * (2.0 / (inputs + outputs)).sqrt()
}

/// Samples from the normal distribution with this standard deviation, truncated at two deviations by resampling. Runs on the host.
#[doc(alias = "trunc_normal_")]
pub fn trunc_normal(shape: &[usize], std: f64, rng: &mut Rng) -> Tensor {
    let mut numbers = Normals::default();
    let mut next = || loop {
        let number = numbers.next(rng);
        if number.abs() <= 2.0 {
            return (number * std) as f32;
        }
    };
    let values: Vec<f32> = (0..shape.iter().product()).map(|_| next()).collect();
    Tensor::from_slice(&values, shape)
}

/// Returns a random matrix with orthogonal rows (or columns, if there are more rows) of length `gain`, uniformly distributed over all such
/// matrices. Axes after the first are flattened. Runs on the host. [Saxe et al. 2014]
#[doc(alias = "orthogonal_")]
pub fn orthogonal(shape: &[usize], gain: f64, rng: &mut Rng) -> Tensor {
    let rows = shape.first().copied().unwrap_or(1);
    let columns: usize = shape.iter().skip(1).product();
    let (count, length) = (rows.min(columns), rows.max(columns));
    let mut numbers = Normals::default();
    let mut vectors: Vec<Vec<f64>> = Vec::with_capacity(count);
    while vectors.len() < count {
        let mut vector: Vec<f64> = (0..length).map(|_| numbers.next(rng)).collect();
        // Gram-Schmidt twice: one pass is not accurate for nearly parallel vectors. [Giraud et al. 2005]
        for _ in 0..2 {
            for before in &vectors {
                let along: f64 = vector.iter().zip(before).map(|(x, y)| x * y).sum();
                vector.iter_mut().zip(before).for_each(|(x, y)| *x -= along * y);
            }
        }
        let norm = vector.iter().map(|x| x * x).sum::<f64>().sqrt();
        if norm > 1e-6 {
            vector.iter_mut().for_each(|x| *x /= norm);
            vectors.push(vector);
        }
    }
    let element = |row: usize, column: usize| if rows <= columns { vectors[row][column] } else { vectors[column][row] };
    let values = (0..rows * columns).map(|i| (element(i / columns, i % columns) * gain) as f32);
    Tensor::from_slice(&values.collect::<Vec<f32>>(), shape)
}

/// Generator of normal numbers on the host, two at a time. [Box and Muller 1958]
#[derive(Default)]
struct Normals {
    spare: Option<f64>,
}

impl Normals {
    fn next(&mut self, rng: &mut Rng) -> f64 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        let [a, b, c, d] = rng.next_words();
        let unit = |high: u32, low: u32| (f64::from(high) + (f64::from(low) + 0.5) / 4294967296.0) / 4294967296.0;
        let radius = (-2.0 * unit(a, b).ln()).sqrt();
        let angle = std::f64::consts::TAU * unit(c, d);
        self.spare = Some(radius * angle.sin());
        radius * angle.cos()
    }
}
