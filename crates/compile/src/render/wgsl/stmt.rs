//! Renders statements as WGSL.

use panoply_ir::kernel::{Block, CollectiveOp, ExprId, LocalId, Op};
use panoply_ir::{Alu, DType};

use super::super::expr::Value;
use super::super::loop_overflow::never_wraps;
use super::super::ops::bare;
use super::expr::{Writer, is_literal};
use super::soft_float::Function;

impl Writer<'_> {
    /// Renders the statements of a block, in order. Statements after an exit are omitted: they are unreachable, and
    /// WGSL rejects them.
    pub fn block(&mut self, block: &Block) {
        for stmt in block {
            self.statement(&stmt.op);
            if matches!(stmt.op, Op::Return | Op::Break | Op::Continue) {
                return;
            }
        }
    }

    fn inner(&mut self, block: &Block) {
        self.depth += 1;
        self.block(block);
        self.depth -= 1;
    }

    fn statement(&mut self, op: &Op) {
        match op {
            Op::Let { local, value } => {
                let [value] = self.evaluate([*value]);
                self.declare(*local, &value);
            }
            Op::Assign { local, value } => {
                let [value] = self.evaluate([*value]);
                self.assign(*local, value);
            }
            Op::Store { mem, index, value, guard } => {
                let [index, value] = self.evaluate([*index, *value]);
                let index = self.named(self.type_name(self.index), &index);
                let ty = panoply_ir::Type::Scalar(self.kernel.mem(*mem).dtype);
                // A lane can read an element that another lane's store changes, so all are computed before any is
                // stored.
                let value = if value.atom || value.lanes.len() == 1 { value } else { self.name_lanes(ty, &value) };
                self.store(*mem, &index, &value, *guard);
            }
            Op::Atomic { op, mem, index, value, expected, old, guard } => {
                self.atomic(*op, *mem, *index, *value, *expected, *old, *guard);
            }
            Op::Collective { op: CollectiveOp::Shuffle(lane), value, result, .. } => {
                let [word, lane] = self.evaluate([*value, *lane]);
                let ty = self.register(self.kernel.exprs.ty(*value).dtype());
                let word = self.bitcast(Some(ty), Some(DType::U32), &word.lanes[0]);
                let items = self.kernel.group_size.map_or(1, |group| group.iter().product());
                let function = Function::Shuffle { subgroup: self.subgroup, items };
                let args = [word, lane.lanes[0].clone(), "local.x".into(), "own".into()];
                let theirs = self.soft(function, &args);
                let theirs = self.bitcast(Some(DType::U32), Some(ty), &theirs);
                self.declare(*result, &Value { lanes: vec![theirs], atom: false, fixed: false });
            }
            Op::Collective { .. } => unreachable!("other collectives were expanded before"),
            Op::Barrier => {
                self.line("storageBarrier();");
                self.line("workgroupBarrier();");
            }
            Op::If { condition, then, otherwise } => {
                let condition = self.scalar(*condition);
                self.line(format!("if {} {{", condition.lanes[0]));
                self.inner(then);
                if !otherwise.is_empty() {
                    self.line("} else {");
                    self.inner(otherwise);
                }
                self.line("}");
            }
            Op::For { counter, start, end, step, body } => {
                self.for_loop([*start, *end, *step], *counter);
                self.inner(body);
                self.line("}");
            }
            Op::While { condition, body } => {
                self.line("loop {");
                self.depth += 1;
                let condition = self.scalar(*condition);
                self.line(format!("if !{} {{ break; }}", condition.lanes[0]));
                self.block(body);
                self.depth -= 1;
                self.line("}");
            }
            Op::Break => self.line("break;"),
            Op::Continue => self.line("continue;"),
            Op::Return => self.line("return;"),
        }
    }

    /// Declares a local with its first value.
    fn declare(&mut self, local: LocalId, value: &Value) {
        let known = self.kernel.local(local);
        let names = self.introduce(local);
        let ty = self.register_name(known.ty);
        for (name, text) in names.iter().zip(&value.lanes) {
            // Some compilers look through `let` and evaluate constants.
            let keyword = if known.mutable || is_literal(text) { "var" } else { "let" };
            self.line(format!("{keyword} {name}: {ty} = {};", bare(text)));
        }
    }

    fn assign(&mut self, local: LocalId, value: Value) {
        let names = self.locals[local.index()].clone();
        // A lane's new value can depend on another lane, so all are computed before any is changed.
        let value = if names.len() > 1 { self.name_lanes(self.kernel.local(local).ty, &value) } else { value };
        for (name, text) in names.iter().zip(&value.lanes) {
            self.line(format!("{name} = {};", bare(text)));
        }
    }

    /// Renders the head of a counting loop; the counter never wraps around past the end.
    fn for_loop(&mut self, [start, end, step]: [ExprId; 3], counter: LocalId) {
        let ty = self.register(self.kernel.local(counter).ty.dtype());
        let first = self.fixed(start);
        let (last, by) = (self.fixed(end), self.fixed(step));
        let name = self.introduce(counter).swap_remove(0);
        let never_wraps = never_wraps(self.kernel, self.index, end, step);
        let mut more = format!("({name} < {last})");
        let next = if self.is_pair(ty) {
            more = self.alu(Alu::Lt, Some(ty), &[name.clone(), last.clone()]);
            let next = self.alu(Alu::Add, Some(ty), &[name.clone(), by.clone()]);
            // The distance to the end is unsigned, also for signed counters.
            let room = self.alu(Alu::Sub, Some(ty), &[last.clone(), name.clone()]);
            let fits = self.alu(Alu::Lt, Some(DType::U64), &[by, room]);
            if never_wraps { next } else { format!("select({last}, {next}, {fits})") }
        } else if never_wraps {
            format!("{name} + {by}")
        } else {
            let unsigned = |text: &str| match ty.is_signed() {
                true if ty.bytes() == 8 => format!("bitcast<u64>({})", bare(text)),
                true => format!("bitcast<u32>({})", bare(text)),
                false => text.to_string(),
            };
            let (room, by_bits) = (format!("{} - {}", unsigned(&last), unsigned(&name)), unsigned(&by));
            format!("select({last}, {name} + {by}, ({room} > {by_bits}))")
        };
        let ty = self.type_name(ty);
        self.line(format!("for (var {name}: {ty} = {}; {more}; {name} = {next}) {{", bare(&first)));
    }
}
