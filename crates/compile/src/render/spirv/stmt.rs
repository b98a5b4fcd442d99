//! Renders statements as instructions and labels.

use panoply_ir::DType;
use panoply_ir::kernel::{Block, CollectiveOp, ExprId, LocalId, Op};

use super::module::Writer;
use crate::render::assembler::{Assembler, Value};
use crate::render::loop_overflow::never_wraps;

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
                let before = self.guarded_atomic(*op, *mem, &index[0], [&value[0], &expected[0]], *guard);
                if let Some(old) = old {
                    self.declare(*old, vec![before]);
                }
            }
            Op::Collective { op: CollectiveOp::Shuffle(lane), value, result, .. } => {
                let ty = self.kernel.exprs.ty(*value).dtype();
                let ty = self.ty(self.element(ty));
                let [value, lane] = self.evaluate([*value, *lane]);
                self.uses_subgroups();
                let theirs = self.op(&ty, "OpSubgroupShuffleINTEL", &[&value[0], &lane[0]]);
                self.declare(*result, vec![theirs]);
            }
            Op::Collective { .. } => unreachable!("other collectives were expanded before"),
            Op::Barrier => {
                // Sequentially consistent, over shared memory and buffers, like OpenCL's barrier.
                let [group, order] = [2, 0x310].map(|value| self.int(DType::U32, value));
                self.line(format_args!("OpControlBarrier {group} {group} {order}"));
            }
            Op::If { condition, then, otherwise } => self.if_else(*condition, then, otherwise),
            Op::For { counter, start, end, step, body } => self.for_loop(*counter, [*start, *end, *step], body),
            Op::While { condition, body } => {
                let [head, inside, after] = [(); 3].map(|()| self.label());
                self.bind_label(&head);
                let condition = self.scalar(*condition);
                self.branch(&condition, &inside, &after);
                self.bind_label(&inside);
                self.loop_body((head.clone(), after.clone()), body);
                self.bind_label(&after);
            }
            Op::Break => {
                let (_, after) = self.loops.last().expect("the verifier rejects a break outside of a loop").clone();
                self.jump(&after);
            }
            Op::Continue => {
                let (next, _) = self.loops.last().expect("the verifier rejects a continue outside of a loop").clone();
                self.jump(&next);
            }
            Op::Return => self.emit_return(),
        }
    }

    fn if_else(&mut self, condition: ExprId, then: &Block, otherwise: &Block) {
        let condition = self.scalar(condition);
        if otherwise.is_empty() {
            return self.if_then(&condition, |writer| writer.block(then));
        }
        let [yes, no, end] = [(); 3].map(|()| self.label());
        self.branch(&condition, &yes, &no);
        self.bind_label(&yes);
        self.block(then);
        self.fall_through(&end);
        self.bind_label(&no);
        self.block(otherwise);
        self.bind_label(&end);
    }

    /// Renders a loop's body, followed by a branch to the first of two labels.
    fn loop_body(&mut self, labels: (String, String), body: &Block) {
        let next = labels.0.clone();
        self.loops.push(labels);
        self.block(body);
        self.loops.pop();
        self.fall_through(&next);
    }

    /// Renders a counting loop; the counter never wraps around past the end.
    fn for_loop(&mut self, counter: LocalId, [start, end, step]: [ExprId; 3], body: &Block) {
        let wraps = !never_wraps(self.kernel, self.index, end, step);
        let dtype = self.element(self.kernel.local(counter).ty.dtype());
        let (ty, less) = (self.ty(dtype), if dtype.is_signed() { "OpSLessThan" } else { "OpULessThan" });
        let [start, end, step] = self.evaluate([start, end, step]).map(|mut value| value.swap_remove(0));
        let [head, next, after] = [(); 3].map(|()| self.label());
        let any = self.compare(less, &[&start, &end]);
        let (before, following) = (self.block.clone(), self.result());
        self.branch(&any, &head, &after);
        self.bind_label(&head);
        let count = self.op(&ty, "OpPhi", &[&start, &before, &following, &next]);
        self.locals[counter.index()] = vec![count.clone()];
        self.loop_body((next.clone(), after.clone()), body);
        self.bind_label(&next);
        self.line(format_args!("{following} = OpIAdd {ty} {count} {step}"));
        let more = if wraps {
            let left = self.op(&ty, "OpISub", &[&end, &count]);
            self.compare("OpUGreaterThan", &[&left, &step])
        } else {
            self.compare(less, &[&following, &end])
        };
        self.branch(&more, &head, &after);
        self.bind_label(&after);
    }

    /// Declares a local with its first value.
    fn declare(&mut self, local: LocalId, value: Value) {
        let known = self.kernel.local(local);
        if !known.mutable {
            self.locals[local.index()] = value;
            return;
        }
        let ty = self.ty(self.element(known.ty.dtype()));
        self.locals[local.index()] = value.iter().map(|_| self.variable(&ty)).collect();
        self.assign(local, &value);
    }

    fn assign(&mut self, local: LocalId, value: &Value) {
        for (variable, value) in self.locals[local.index()].clone().iter().zip(value) {
            self.line(format_args!("OpStore {variable} {value}"));
        }
    }
}
