//! Renders statements as instructions and labels.

use panoply_ir::kernel::{AtomicOp, Block, CollectiveOp, ExprId, LocalId, Mma, Op};

use super::writer::{Class, Writer, int_name};
use crate::render::assembler::{Assembler, Value};

impl Writer<'_> {
    /// Renders the statements of a block, in order.
    pub fn block(&mut self, block: &Block) {
        for stmt in block {
            self.statement(&stmt.op);
        }
    }

    fn statement(&mut self, op: &Op) {
        match op {
            Op::Let { local, value } => {
                let [value] = self.evaluate([*value]);
                self.declare(*local, value);
            }
            Op::Assign { local, value } => {
                let [value] = self.evaluate([*value]);
                self.assign(*local, &value);
            }
            Op::Store { mem, index, value, guard } => {
                let [index, value] = self.evaluate([*index, *value]);
                self.store(*mem, &index[0], &value, *guard);
            }
            Op::Atomic { op, mem, index, value, expected, old, guard } => {
                let [index, value, expected] = self.evaluate([*index, *value, expected.unwrap_or(*value)]);
                // An exchange operates on untyped bits.
                let class = Class::of(self.kernel.mem(*mem).dtype);
                let value =
                    if *op == AtomicOp::Exchange { self.in_register(class, &value[0]) } else { value[0].clone() };
                let before = self.guarded_atomic(*op, *mem, &index[0], &value, &expected[0], *guard);
                if let Some(old) = old {
                    self.locals[old.index()] = vec![before];
                }
            }
            Op::Collective { op: CollectiveOp::Shuffle(lane), value, result, .. } => {
                let class = self.class(self.kernel.exprs.ty(*value));
                let [value, lane] = self.evaluate([*value, *lane]);
                let theirs = self.shuffle(class, &value[0], &lane[0]);
                self.declare(*result, vec![theirs]);
            }
            Op::Collective { op: CollectiveOp::Mma(mma), value, result, .. } => {
                let product = self.multiply(mma, *value);
                self.declare(*result, product);
            }
            Op::Collective { .. } => unreachable!("other collectives were expanded before"),
            Op::Barrier => self.line("bar.sync 0"),
            Op::If { condition, then, otherwise } => {
                let condition = self.scalar(*condition);
                let (other, end) = (self.label(), self.label());
                self.branch(&condition, false, &other);
                self.block(then);
                if otherwise.is_empty() {
                    return self.bind_label(&other);
                }
                self.line(format_args!("bra {end}"));
                self.bind_label(&other);
                self.block(otherwise);
                self.bind_label(&end);
            }
            Op::For { counter, start, end, step, body } => {
                let [start, end, step] = self.evaluate([*start, *end, *step]);
                self.for_loop(*counter, [&start[0], &end[0], &step[0]], body);
            }
            Op::While { condition, body } => {
                let (head, end) = (self.label(), self.label());
                self.bind_label(&head);
                let condition = self.scalar(*condition);
                self.branch(&condition, false, &end);
                self.loops.push((head.clone(), end.clone()));
                self.block(body);
                self.loops.pop();
                self.line(format_args!("bra {head}"));
                self.bind_label(&end);
            }
            Op::Break => {
                let (_, end) = self.loops.last().expect("the verifier rejects a break outside of a loop");
                self.line(format!("bra {end}"));
            }
            Op::Continue => {
                let (next, _) = self.loops.last().expect("the verifier rejects a continue outside of a loop");
                self.line(format!("bra {next}"));
            }
            Op::Return => self.line("ret"),
        }
    }

    /// Renders a matrix multiply-accumulate: the fragments have exactly the layout of the instruction.
    fn multiply(&mut self, mma: &Mma, value: ExprId) -> Value {
        let ([a0, a1, a2, a3], [b0, b1]) = (mma.a, mma.b);
        let [sums, words @ ..] = self.evaluate([value, a0, a1, a2, a3, b0, b1]);
        let words = words.map(|word| self.in_register(Class::B32, &word[0]));
        let sums: Vec<String> = sums.iter().map(|sum| self.in_register(Class::F32, sum)).collect();
        let results: Value = sums.iter().map(|_| self.register(Class::F32)).collect();
        let of = mma.dtype.name();
        let [d, a, b, c] = [&results, &words[..4], &words[4..], &sums].map(|of: &[String]| of.join(", "));
        self.line(format_args!(
            "mma.sync.aligned.m16n8k16.row.col.f32.{of}.{of}.f32 {{{d}}}, {{{a}}}, {{{b}}}, {{{c}}}"
        ));
        results
    }

    /// Returns the 32-bit value of another lane of the warp.
    fn shuffle(&mut self, class: Class, value: &str, lane: &str) -> String {
        // An untyped operand takes no floating-point literal.
        let value = &self.in_register(class, value);
        if self.capability < 70 {
            // On these devices a warp runs in lockstep, and the instruction has no member mask.
            return self.op(class, "shfl.idx.b32", &[value, lane, "31"]);
        }
        let items: u32 = self.kernel.group_size.map_or(1, |group| group.iter().product());
        let (whole, last) = (u32::MAX.to_string(), items % 32);
        let mask = if last == 0 { whole } else { self.present(items - last, (1 << last) - 1) };
        self.op(class, "shfl.sync.idx.b32", &[value, lane, "31", &mask])
    }

    /// Returns the mask of existing lanes: all lanes, but only `some` in the subgroup of threads from `first` on.
    fn present(&mut self, first: u32, some: u32) -> String {
        let [width, height, _] = self.kernel.group_size.unwrap_or([1; 3]);
        let [x, y, z] = ["x", "y", "z"].map(|axis| self.op(Class::B32, "mov.u32", &[&format!("%tid.{axis}")]));
        let row = self.op(Class::B32, "mad.lo.u32", &[&z, &height.to_string(), &y]);
        let id = self.op(Class::B32, "mad.lo.u32", &[&row, &width.to_string(), &x]);
        let in_last = self.compare("setp.ge.u32", &[&id, &first.to_string()]);
        self.op(Class::B32, "selp.b32", &[&some.to_string(), &u32::MAX.to_string(), &in_last])
    }

    /// Declares a local with separate registers, initialized with the value.
    fn declare(&mut self, local: LocalId, value: Value) {
        let known = self.kernel.local(local);
        let class = self.class(known.ty);
        self.locals[local.index()] = value
            .into_iter()
            .map(|value| {
                let own = self.register(class);
                self.set(class, &own, &value);
                own
            })
            .collect();
    }

    fn assign(&mut self, local: LocalId, value: &Value) {
        let class = self.class(self.kernel.local(local).ty);
        let registers = self.locals[local.index()].clone();
        // A lane's new value can be another lane's register, so all are copied before any is changed.
        let value: Value = match registers.len() {
            1 => value.clone(),
            _ => value.iter().map(|lane| self.op(class, &format!("mov.{}", class.name()), &[lane])).collect(),
        };
        for (register, value) in registers.iter().zip(&value) {
            self.set(class, register, value);
        }
    }

    /// Renders a counting loop; the counter never wraps around past the end.
    fn for_loop(&mut self, counter: LocalId, [start, end, step]: [&str; 3], body: &Block) {
        let dtype = self.element(self.kernel.local(counter).ty.dtype());
        let (class, ty) = (Class::of(dtype), int_name(dtype));
        // The bounds are those at the start, so values of mutable locals are copied.
        let [count, end, step] = [start, end, step].map(|value| {
            let own = self.register(class);
            self.set(class, &own, value);
            own
        });
        self.locals[counter.index()] = vec![count.clone()];
        let (head, next, after) = (self.label(), self.label(), self.label());
        let none = self.compare(&format!("setp.ge.{ty}"), &[&count, &end]);
        self.branch(&none, true, &after);
        self.bind_label(&head);
        self.loops.push((next.clone(), after.clone()));
        self.block(body);
        self.loops.pop();
        self.bind_label(&next);
        let left = self.op(class, &format!("sub.{ty}"), &[&end, &count]);
        let more =
            self.compare(&format!("setp.gt.{}", if class == Class::B64 { "u64" } else { "u32" }), &[&left, &step]);
        self.line(format_args!("add.{ty} {count}, {count}, {step}"));
        self.branch(&more, true, &head);
        self.bind_label(&after);
    }
}
