//! Random graphs: plans give the graph interpreter's values, independent of fusion.
//!
//! `PANOPLY_GRAPHS` sets their number (some hundred by default) and `PANOPLY_SEED` the first seed; a failure prints the
//! seed.

use panoply_ir::DType;
use panoply_ir::alu::{Alu, Math};
use panoply_ir::graph::{Graph, NodeId};
use panoply_ir::reduce::ReduceOp;

use crate::plan::build::Build;
use crate::plan::execute::check;

/// Pseudo-random numbers determined by a seed.
pub struct Draw(u64);

impl Draw {
    pub fn new(seed: u64) -> Draw {
        Draw(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 20) % n as u64) as usize
    }

    pub fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

/// Nodes with upper bounds of their magnitude, which limit rounding errors.
struct Maker {
    b: Build,
    draw: Draw,
    floats: Vec<(NodeId, f64)>,
    ints: Vec<NodeId>,
}

/// Maximum number of elements of a node, limited because the interpreters are slow.
const MAX_ELEMS: usize = 1000;

impl Maker {
    fn shape(&mut self) -> Vec<usize> {
        // Occasionally a long axis, so that groups share rows.
        let rank = 1 + self.draw.below(3);
        (0..rank).map(|_| self.draw.one(&[1, 2, 3, 4, 5, 7, 7, 64])).collect()
    }

    fn add(&mut self, id: NodeId, bound: f64) {
        if self.b.shape(id).iter().product::<usize>() > MAX_ELEMS {
            return;
        }
        let (id, bound) = if bound > 40.0 { (self.b.alu(Alu::Math(Math::Tanh), &[id]), 1.0) } else { (id, bound) };
        self.floats.push((id, bound));
    }

    /// Returns a float node of this shape, an existing one if possible.
    fn of_shape(&mut self, shape: &[usize]) -> (NodeId, f64) {
        let fit: Vec<(NodeId, f64)> =
            self.floats.iter().copied().filter(|(id, _)| self.b.shape(*id) == shape).collect();
        if fit.is_empty() || self.draw.below(8) == 0 {
            (self.b.leaf(shape, DType::F32), 2.0)
        } else {
            self.draw.one(&fit)
        }
    }

    fn step(&mut self) {
        // Prefer recent nodes, so that chains grow.
        let recent = self.floats.len().saturating_sub(6);
        let from = if self.draw.below(3) > 0 { recent } else { 0 };
        let (x, bound) = self.floats[from + self.draw.below(self.floats.len() - from)];
        let shape = self.b.shape(x);
        let axis = self.draw.below(shape.len().max(1));
        let count = shape.iter().product::<usize>() as f64;
        match self.draw.below(18) {
            0..=2 => {
                let (y, other) = self.of_shape(&shape);
                let (op, bound) = match self.draw.below(5) {
                    0 => (Alu::Add, bound + other),
                    1 => (Alu::Sub, bound + other),
                    2 => (Alu::Mul, bound * other),
                    3 => (Alu::Max, bound.max(other)),
                    _ => (Alu::Min, bound.max(other)),
                };
                let y = self.b.alu(op, &[x, y]);
                self.add(y, bound);
            }
            3 | 4 => {
                let (op, bound) = match self.draw.below(5) {
                    0 => (Alu::Neg, bound),
                    1 => (Alu::Abs, bound),
                    2 => (Alu::Math(Math::Tanh), 1.0),
                    3 => (Alu::Math(Math::Sin), 1.0),
                    _ if bound < 3.0 => (Alu::Math(Math::Exp), bound.exp()),
                    _ => (Alu::Math(Math::Atan), 1.6),
                };
                let y = self.b.alu(op, &[x]);
                self.add(y, bound);
            }
            5 | 6 => {
                let axes: Vec<usize> = (0..shape.len()).filter(|at| *at == axis || self.draw.below(2) == 0).collect();
                let op = self.draw.one(&[ReduceOp::Sum, ReduceOp::Max, ReduceOp::Min]);
                let combined: usize = axes.iter().map(|axis| shape[*axis]).product();
                let y = self.b.reduce(op, x, &axes);
                let bound = if op == ReduceOp::Sum { bound * combined as f64 } else { bound };
                self.add(y, bound);
                if self.draw.below(2) == 0 {
                    let (y, bound) = *self.floats.last().expect("a node was just added");
                    let reduced = self.b.shape(y);
                    if reduced.len() == shape.len() && reduced.iter().zip(&shape).all(|(a, b)| a == b || *a == 1) {
                        let back = self.b.expand(y, &shape);
                        self.add(back, bound);
                    }
                }
            }
            7 => {
                let op = self.draw.one(&[ReduceOp::Sum, ReduceOp::Max]);
                let y = self.b.scan(op, x, axis);
                self.add(y, if op == ReduceOp::Sum { bound * shape[axis] as f64 } else { bound });
            }
            8 => {
                let mut perm: Vec<usize> = (0..shape.len()).collect();
                perm.rotate_left(axis);
                let y = self.b.permute(x, &perm);
                self.add(y, bound);
            }
            9 => {
                let elems = count as usize;
                let first = (1..=elems).filter(|d| elems.is_multiple_of(*d)).nth(self.draw.below(3)).unwrap_or(elems);
                let y = self.b.reshape(x, &[elems / first, first]);
                self.add(y, bound);
            }
            10 => {
                let widths: Vec<(usize, usize)> =
                    shape.iter().map(|_| (self.draw.below(3), self.draw.below(2))).collect();
                let y = self.b.pad(x, &widths);
                self.add(y, bound);
            }
            11 => {
                let mut slices: Vec<(usize, isize, usize)> = shape.iter().map(|dim| (0, 1, *dim)).collect();
                let dim = shape[axis];
                slices[axis] = match self.draw.below(3) {
                    0 => (dim - 1, -1, dim),
                    1 => (0, 2, dim.div_ceil(2)),
                    _ => (dim / 2, 1, dim - dim / 2),
                };
                let y = self.b.slice(x, &slices);
                self.add(y, bound);
            }
            12 => {
                let mut wide = shape.clone();
                wide.insert(axis, 1);
                let flat = self.b.reshape(x, &wide);
                wide[axis] = 1 + self.draw.below(4);
                let y = self.b.expand(flat, &wide);
                self.add(y, bound);
            }
            13 => {
                let at = self.draw.one(&self.ints.clone());
                let y = self.b.gather(x, at, axis);
                self.add(y, bound);
                if self.draw.below(2) == 0 {
                    let shape = self.b.shape(y);
                    let (rows, other) = self.of_shape(&shape);
                    let many = self.b.shape(at).iter().product::<usize>() as f64;
                    let z = self.b.scatter_add(x, at, rows, axis);
                    self.add(z, bound + many * other);
                }
            }
            15 if !shape.is_empty() && shape[axis] > 1 => {
                let mut part = shape.clone();
                part[axis] = 1 + self.draw.below(shape[axis] - 1);
                let (y, other) = self.of_shape(&part);
                let at = match self.draw.below(3) {
                    0 => self.b.number(self.draw.below(shape[axis] + 2) as i64 - 1),
                    _ => {
                        let at = self.draw.one(&self.ints.clone());
                        let first = self.b.reduce(ReduceOp::Max, at, &(0..self.b.shape(at).len()).collect::<Vec<_>>());
                        self.b.reshape(first, &[])
                    }
                };
                let z = self.b.write(x, y, at, axis);
                self.add(z, bound.max(other));
            }
            16 => {
                let before = self.draw.one(&self.floats.clone()).0;
                let y = self.b.after(x, before);
                self.add(y, bound);
            }
            14 if shape.len() > 1 => {
                let mut other = shape.clone();
                let rank = shape.len();
                (other[rank - 2], other[rank - 1]) = (shape[rank - 1], 1 + self.draw.below(5));
                let (y, other_bound) = self.of_shape(&other);
                let z = self.b.matmul(x, y);
                self.add(z, bound * other_bound * shape[rank - 1] as f64);
            }
            _ => {
                let y = match self.draw.below(2) {
                    0 => self.b.softmax(x, axis),
                    _ => {
                        let mean = self.b.mean_keep(x, axis);
                        self.b.with(Alu::Sub, x, mean)
                    }
                };
                self.add(y, bound * 2.0);
            }
        }
    }
}

fn graph(seed: u64) -> Graph {
    let mut maker = Maker { b: Build::default(), draw: Draw::new(seed), floats: Vec::new(), ints: Vec::new() };
    for _ in 0..2 {
        let shape = maker.shape();
        let x = maker.b.f32(&shape);
        maker.floats.push((x, 2.0));
    }
    for shape in [&[3][..], &[2, 2]] {
        let at = maker.b.leaf(shape, DType::I32);
        maker.ints.push(at);
    }
    for _ in 0..3 + maker.draw.below(14) {
        maker.step();
    }
    let mut outputs = vec![maker.floats.last().expect("the list contains leaves").0];
    for _ in 0..maker.draw.below(3) {
        outputs.push(maker.draw.one(&maker.floats).0);
    }
    maker.b.done(&outputs)
}

#[test]
fn random_graphs_match_interpreter() {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let first = number("PANOPLY_SEED").unwrap_or(0);
    let count = if number("PANOPLY_TEST_QUICK") == Some(1) { 40 } else { 150 };
    for seed in first..first + number("PANOPLY_GRAPHS").unwrap_or(count) {
        check(&format!("random graph, seed {seed}"), &graph(seed));
    }
}
