//! Every primitive with operands in every form, at sizes on both sides of the thresholds of scheduling and lowering. A
//! stored operand with arbitrary elements is the easy case.
//!
//! `PANOPLY_TEST_FULL=1` runs every pair of forms several times. A failure prints the primitive, the forms and the
//! seed.

use std::collections::BTreeSet;
use std::sync::Arc;

use panoply_compile::{lower, schedule};
use panoply_ir::alu::Alu;
use panoply_ir::custom_kernel::CustomKernel;
use panoply_ir::graph::{NodeId, Op};
use panoply_ir::reduce::ReduceOp;
use panoply_ir::verify::verify;
use panoply_ir::{DType, Scalar, Shape, text};

use crate::plan::build::Build;
use crate::plan::execute::{check, targets};
use crate::plan::random::Draw;

/// Origin of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// A leaf.
    Stored,
    /// Computed from leaves.
    Lazy,
    /// A broadcast constant.
    Constant,
    /// A broadcast scalar slot.
    Slot,
    /// Indices along an axis.
    Counted,
    /// A leaf broadcast along one axis, or along all.
    Expanded,
    /// A leaf reversed along an axis.
    Reversed,
    /// A slice with step 1 or 2 of a longer leaf.
    Sliced,
    /// A leaf with permuted axes.
    Permuted,
}

const FORMS: [Form; 9] = [
    Form::Stored,
    Form::Lazy,
    Form::Constant,
    Form::Slot,
    Form::Counted,
    Form::Expanded,
    Form::Reversed,
    Form::Sliced,
    Form::Permuted,
];

/// Maximum number of elements of an array, limited because the interpreters are slow.
const MAX_ELEMS: usize = 1200;
const MAX_ELEMS_FULL: usize = 9000;

/// A graph under construction.
struct Case {
    b: Build,
    draw: Draw,
    most: usize,
    lengths: Vec<usize>,
    slots: u32,
}

impl Case {
    /// Returns a length, mostly near a threshold, such that `times` arrays of it stay within the maximum.
    fn length(&mut self, times: usize) -> usize {
        let short = 1 + self.draw.below(7);
        let fitting: Vec<usize> = self.lengths.iter().copied().filter(|length| length * times <= self.most).collect();
        if fitting.is_empty() || self.draw.below(4) == 0 { short } else { self.draw.one(&fitting) }
    }

    fn matrix(&mut self) -> [usize; 2] {
        let long = self.length(1);
        let other = self.length(long);
        if self.draw.below(2) == 0 { [long, other] } else { [other, long] }
    }

    fn number(&mut self, dtype: DType) -> Scalar {
        match dtype.is_float() {
            true => Scalar::from_f64(dtype, self.draw.one(&[0.75, 1.0, 0.0, -0.0, -1.5])),
            false => Scalar::from_i128(dtype, self.draw.one(&[0, 1, 2, 5, -1])),
        }
    }

    /// Adds an operand of a form.
    fn operand(&mut self, form: Form, shape: &[usize], dtype: DType) -> NodeId {
        let axis = self.draw.below(shape.len().max(1));
        match form {
            _ if shape.is_empty() && !matches!(form, Form::Constant | Form::Slot | Form::Lazy) => {
                self.b.leaf(shape, dtype)
            }
            Form::Stored => self.b.leaf(shape, dtype),
            // An empty axis has no last element.
            Form::Reversed if shape[axis] == 0 => self.b.leaf(shape, dtype),
            Form::Lazy => {
                let (x, y) = (self.b.leaf(shape, dtype), self.b.leaf(shape, dtype));
                self.b.alu(Alu::Max, &[x, y])
            }
            Form::Constant => {
                let value = self.number(dtype);
                let one = self.b.graph.push(Op::Const(value), &[], Shape::default(), dtype);
                self.b.spread(one, shape)
            }
            Form::Slot => {
                let one = self.b.slot(self.slots, dtype);
                self.slots += 1;
                self.b.spread(one, shape)
            }
            Form::Counted => {
                let (mut flat, counted) = (vec![1; shape.len()], self.b.iota(shape[axis]));
                flat[axis] = shape[axis];
                let counted = self.b.cast(counted, dtype);
                let eighth = self.b.like(counted, if dtype.is_float() { 0.125 } else { 1.0 });
                let counted = self.b.alu(Alu::Mul, &[counted, eighth]);
                let counted = self.b.reshape(counted, &flat);
                self.b.expand(counted, shape)
            }
            Form::Expanded => {
                let all = self.draw.below(2) == 0;
                let short: Vec<usize> =
                    shape.iter().enumerate().map(|(at, dim)| if all || at == axis { 1 } else { *dim }).collect();
                let x = self.b.leaf(&short, dtype);
                self.b.expand(x, shape)
            }
            Form::Reversed => {
                let x = self.b.leaf(shape, dtype);
                let mut slices: Vec<(usize, isize, usize)> = shape.iter().map(|dim| (0, 1, *dim)).collect();
                slices[axis] = (shape[axis] - 1, -1, shape[axis]);
                self.b.slice(x, &slices)
            }
            Form::Sliced => {
                let (mut longer, step) = (shape.to_vec(), 1 + self.draw.below(2));
                longer[axis] = longer[axis] * step + 1;
                let x = self.b.leaf(&longer, dtype);
                let mut slices: Vec<(usize, isize, usize)> = shape.iter().map(|dim| (0, 1, *dim)).collect();
                slices[axis] = (1, step as isize, shape[axis]);
                self.b.slice(x, &slices)
            }
            Form::Permuted => {
                let mut perm: Vec<usize> = (0..shape.len()).collect();
                perm.rotate_left(axis);
                let mut stored = vec![0; shape.len()];
                perm.iter().enumerate().for_each(|(to, from)| stored[*from] = shape[to]);
                let x = self.b.leaf(&stored, dtype);
                self.b.permute(x, &perm)
            }
        }
    }

    fn f32(&mut self, form: Form, shape: &[usize]) -> NodeId {
        self.operand(form, shape, DType::F32)
    }
}

/// A primitive on operands of three forms; unused forms are ignored.
type Primitive = (&'static str, fn(&mut Case, [Form; 3]) -> NodeId);

const PRIMITIVES: &[Primitive] = &[
    ("add", |c, [x, y, _]| {
        let shape = c.matrix();
        let (x, y) = (c.f32(x, &shape), c.f32(y, &shape));
        c.b.alu(Alu::Add, &[x, y])
    }),
    ("mul of i32", |c, [x, y, _]| {
        let shape = c.matrix();
        let (x, y) = (c.operand(x, &shape, DType::I32), c.operand(y, &shape, DType::I32));
        c.b.alu(Alu::Mul, &[x, y])
    }),
    ("select", |c, [x, y, z]| {
        let shape = c.matrix();
        let (x, y, z) = (c.f32(x, &shape), c.f32(y, &shape), c.f32(z, &shape));
        let less = c.b.alu(Alu::Lt, &[x, y]);
        c.b.alu(Alu::Select, &[less, z, x])
    }),
    ("casts", |c, [x, ..]| {
        let shape = c.matrix();
        let x = c.f32(x, &shape);
        let whole = c.b.cast(x, DType::I64);
        c.b.cast(whole, DType::F16)
    }),
    ("bitcast", |c, [x, ..]| {
        let shape = c.matrix();
        let x = c.f32(x, &shape);
        c.b.graph.push(Op::Bitcast, &[x], shape, DType::I32)
    }),
    ("reshape of permute", |c, [x, ..]| {
        let [rows, columns] = c.matrix();
        let x = c.f32(x, &[rows, columns]);
        let transposed = c.b.permute(x, &[1, 0]);
        let flat = c.b.reshape(transposed, &[rows * columns]);
        c.b.alu(Alu::Neg, &[flat])
    }),
    ("pad", |c, [x, y, _]| {
        let [rows, columns] = c.matrix();
        let x = c.f32(x, &[rows, columns]);
        let x = c.b.pad(x, &[(1, 2), (0, 3)]);
        let y = c.f32(y, &[rows + 3, columns + 3]);
        c.b.alu(Alu::Add, &[x, y])
    }),
    ("slice", |c, [x, y, _]| {
        let [rows, columns] = c.matrix();
        let x = c.f32(x, &[rows, 2 * columns]);
        let x = c.b.slice(x, &[(rows - 1, -1, rows), (1, 2, columns)]);
        let y = c.f32(y, &[rows, columns]);
        c.b.alu(Alu::Mul, &[x, y])
    }),
    ("sum of rows", |c, [x, y, _]| {
        let shape = c.matrix();
        let (x, y) = (c.f32(x, &shape), c.f32(y, &shape));
        let product = c.b.alu(Alu::Mul, &[x, y]);
        c.b.sum(product, &[1])
    }),
    ("sum of columns", |c, [x, y, _]| {
        let shape = c.matrix();
        let (x, y) = (c.f32(x, &shape), c.f32(y, &shape));
        let sum = c.b.alu(Alu::Add, &[x, y]);
        c.b.sum(sum, &[0])
    }),
    ("sum of all", |c, [x, ..]| {
        let shape = c.matrix();
        let x = c.operand(x, &shape, DType::F16);
        c.b.sum(x, &[0, 1])
    }),
    ("max of rows", |c, [x, ..]| {
        let shape = c.matrix();
        let x = c.f32(x, &shape);
        c.b.reduce(ReduceOp::Max, x, &[1])
    }),
    ("min of columns", |c, [x, ..]| {
        let shape = c.matrix();
        let x = c.operand(x, &shape, DType::I32);
        c.b.reduce(ReduceOp::Min, x, &[0])
    }),
    ("softmax", |c, [x, y, _]| {
        let shape = c.matrix();
        let (x, y) = (c.f32(x, &shape), c.f32(y, &shape));
        let axis = c.draw.below(2);
        let softmax = c.b.softmax(x, axis);
        c.b.alu(Alu::Mul, &[softmax, y])
    }),
    ("running sum", |c, [x, ..]| {
        let shape = c.matrix();
        let x = c.f32(x, &shape);
        let axis = c.draw.below(2);
        c.b.scan(ReduceOp::Sum, x, axis)
    }),
    ("running max", |c, [x, ..]| {
        let shape = c.matrix();
        let x = c.operand(x, &shape, DType::I32);
        let axis = c.draw.below(2);
        c.b.scan(ReduceOp::Max, x, axis)
    }),
    ("matmul", |c, [x, y, z]| {
        let [m, k] = c.matrix();
        let n = c.length(m.max(k));
        let (x, y, z) = (c.f32(x, &[m, k]), c.f32(y, &[k, n]), c.f32(z, &[m, n]));
        let product = c.b.matmul(x, y);
        c.b.alu(Alu::Add, &[product, z])
    }),
    ("gather", |c, [at, x, y]| {
        let ([length, columns], count) = (c.matrix(), c.draw.below(6));
        let (at, x) = (c.operand(at, &[2, 1 + count], DType::I32), c.f32(x, &[length, columns]));
        let found = c.b.gather(x, at, 0);
        let y = c.f32(y, &[2, 1 + count, columns]);
        c.b.alu(Alu::Add, &[found, y])
    }),
    ("gather of columns", |c, [at, x, _]| {
        let ([length, rows], count) = (c.matrix(), c.draw.below(9));
        let (at, x) = (c.operand(at, &[1 + count], DType::I64), c.f32(x, &[rows, length]));
        c.b.gather(x, at, 1)
    }),
    ("index_add", |c, [at, rows, x]| {
        let ([length, columns], count) = (c.matrix(), 1 + c.draw.below(6));
        let at = c.operand(at, &[2, count], DType::I32);
        let (rows, x) = (c.f32(rows, &[2, count, columns]), c.f32(x, &[length, columns]));
        c.b.scatter_add(x, at, rows, 0)
    }),
    ("index_add of halves along the last axis", |c, [at, rows, x]| {
        let ([length, columns], count) = (c.matrix(), c.draw.below(9));
        let at = c.operand(at, &[count], DType::I64);
        let rows = c.operand(rows, &[columns, count], DType::F16);
        let x = c.operand(x, &[columns, length], DType::F16);
        c.b.scatter_add(x, at, rows, 1)
    }),
    ("index_add at one position", |c, [at, rows, x]| {
        let [length, columns] = c.matrix();
        let at = c.operand(at, &[], DType::I32);
        let (rows, x) = (c.operand(rows, &[columns], DType::I32), c.operand(x, &[length, columns], DType::I32));
        c.b.scatter_add(x, at, rows, 0)
    }),
    ("index_add of what was reduced", |c, [at, rows, x]| {
        let ([length, columns], count) = (c.matrix(), 1 + c.draw.below(5));
        let at = c.operand(at, &[count], DType::I32);
        let rows = c.f32(rows, &[count, columns]);
        let mean = c.b.mean_keep(rows, 0);
        let rows = c.b.expand(mean, &[count, columns]);
        let x = c.f32(x, &[length, columns]);
        c.b.scatter_add(x, at, rows, 0)
    }),
    ("write", |c, [at, part, x]| {
        let [length, columns] = c.matrix();
        let at = c.operand(at, &[], DType::I32);
        let (part, x) = (c.f32(part, &[length.div_ceil(2), columns]), c.f32(x, &[length, columns]));
        c.b.write(x, part, at, 0)
    }),
    ("writes of parts", |c, [part, x, _]| {
        let [length, columns] = c.matrix();
        let mut joined = c.f32(x, &[5 * length, columns]);
        for number in 0..2 + c.draw.below(4) {
            let (part, at) = (c.f32(part, &[length, columns]), c.b.number((number * length) as i64));
            joined = c.b.write(joined, part, at, 0);
        }
        joined
    }),
    ("after", |c, [x, y, _]| {
        let shape = c.matrix();
        let (x, y) = (c.f32(x, &shape), c.f32(y, &shape));
        let before = c.b.alu(Alu::Neg, &[y]);
        let x = c.b.after(x, before);
        c.b.alu(Alu::Add, &[x, y])
    }),
    ("a custom kernel", |c, [x, total, _]| {
        let length = c.length(1);
        let (x, total) = (c.f32(x, &[length]), c.f32(total, &[7]));
        let kernel = verify(text::parse(COUNT).unwrap()).unwrap();
        let custom_kernel = CustomKernel::new(Arc::new(kernel), [7, 1, 1], vec![Shape::new([7])]).unwrap();
        c.b.graph.push(Op::CustomCall(Arc::new(custom_kernel), 0), &[x, total], [7], DType::F32)
    }),
];

/// Adds the first element of an array and its length.
const COUNT: &str = "
kernel count(x: &[f32], total: &mut [f32]) {
    let i: index = global_id.x
    total[i] = add(add(total[i], x[0]), cast<f32>(cast<i32>(len(x))))
}
";

/// Returns lengths around every threshold that arrays with `most` elements can reach.
fn lengths(most: usize) -> Vec<usize> {
    let styles = targets().map(|target| target.style);
    let thresholds =
        styles.into_iter().flat_map(|style| [schedule::thresholds(style), lower::thresholds(style)].concat());
    let around: BTreeSet<usize> = thresholds.flat_map(|(_, size)| [size - 1, size, size + 1]).collect();
    around.into_iter().filter(|length| (1..=most).contains(length)).collect()
}

fn is_full() -> bool {
    std::env::var("PANOPLY_TEST_FULL").is_ok_and(|value| value == "1")
}

fn run((name, primitive): Primitive, forms: [Form; 3], seed: u64) {
    let most = if is_full() { MAX_ELEMS_FULL } else { MAX_ELEMS };
    let mut case = Case { b: Build::default(), draw: Draw::new(seed), most, lengths: lengths(most), slots: 0 };
    let made = primitive(&mut case, forms);
    let mut outputs = vec![made];
    // Users can be fused with the primitive, and share its inputs.
    if case.draw.below(2) == 0 {
        let again = case.b.alu(Alu::Add, &[made, made]);
        outputs.push(again);
    }
    if case.draw.below(3) == 0 && !case.b.shape(made).is_empty() {
        let total = case.b.reduce(ReduceOp::Max, made, &[0]);
        outputs.push(total);
    }
    check(&format!("{name} of {forms:?}, seed {seed}"), &case.b.done(&outputs));
}

#[test]
fn primitives_accept_operands_of_every_form() {
    let (full, mut draw) = (is_full(), Draw::new(3));
    for (number, primitive) in PRIMITIVES.iter().enumerate() {
        for (at, first) in FORMS.iter().enumerate() {
            for second in FORMS {
                let third = draw.one(&FORMS);
                let seed = (number * 1000 + draw.below(1000)) as u64;
                // Each form of each operand is always tested; all pairs only in the full run.
                if full || second == FORMS[(at + number) % FORMS.len()] {
                    run(*primitive, [*first, second, third], seed);
                }
            }
        }
    }
}

/// Uniform positions and rows: adding the row only once would be wrong.
#[test]
fn scatters_of_uniform_rows_count_every_position() {
    let uniform = [Form::Constant, Form::Slot, Form::Expanded];
    let scatters = PRIMITIVES.iter().filter(|(name, _)| name.starts_with("index_add"));
    for primitive in scatters {
        for at in uniform {
            for (seed, rows) in uniform.into_iter().enumerate() {
                run(*primitive, [at, rows, Form::Stored], seed as u64);
            }
        }
    }
}
