//! Renders statements as C.

use panoply_ir::kernel::{AtomicOp, Block, Builtin, CollectiveOp, ExprId, Guard, LocalId, MemId, Op, Param, Space};
use panoply_ir::{Scalar, Type};

use super::expr::{Value, Writer, plus};
use super::literal::literal;
use super::loop_overflow::never_wraps;
use super::ops::{bare, in_memory};
use super::prelude::atomic_add_f32;

impl Writer<'_> {
    /// Renders the statements of a block, in order.
    pub fn block(&mut self, block: &Block) {
        for stmt in block {
            self.statement(&stmt.op);
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
                self.store(*mem, index, value, *guard);
            }
            Op::Atomic { op, mem, index, value, expected, old, guard } => {
                self.atomic(*op, *mem, *index, *value, *expected, *old, *guard);
            }
            Op::Collective { op: CollectiveOp::Shuffle(lane), value, result, .. } => {
                let [value, lane] = self.evaluate([*value, *lane]);
                let theirs = (self.ops.dialect.shuffle)(value.bare(), lane.bare());
                self.declare(*result, &Value::atom(theirs));
            }
            Op::Collective { .. } => unreachable!("other collectives were expanded before"),
            Op::Barrier => self.line(self.ops.dialect.barrier),
            Op::If { condition, then, otherwise } => {
                let condition = self.scalar(*condition);
                self.line(format!("if ({}) {{", condition.bare()));
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
            Op::While { condition, body } => self.repeat(*condition, body),
            Op::Break => self.line("break;"),
            Op::Continue => self.line("continue;"),
            Op::Return => self.line("return;"),
        }
    }

    /// Declares a local with its first value.
    fn declare(&mut self, local: LocalId, value: &Value) {
        let known = self.kernel.local(local);
        let names = self.introduce(local);
        let ty = self.ops.name(self.ops.register(known.ty.dtype()));
        let constant = if known.mutable { "" } else { "const " };
        for (name, text) in names.iter().zip(&value.lanes) {
            self.line(format!("{constant}{ty} {name} = {};", bare(text)));
        }
    }

    /// Allocates names for a local.
    fn introduce(&mut self, local: LocalId) -> Vec<String> {
        let known = self.kernel.local(local);
        let name = self.names.pick(&known.name);
        let names: Vec<String> = match known.ty.lanes() {
            1 => vec![name],
            lanes => (0..lanes).map(|lane| format!("{name}l{lane}")).collect(),
        };
        self.locals[local.index()].clone_from(&names);
        names
    }

    fn assign(&mut self, local: LocalId, value: Value) {
        let names = self.locals[local.index()].clone();
        let ty = self.ops.name(self.ops.register(self.kernel.local(local).ty.dtype()));
        // A lane's new value can depend on another lane, so all are computed before any is changed.
        let many = names.len() > 1;
        let staged: Vec<String> =
            names.iter().map(|name| if many { format!("next_{name}") } else { name.clone() }).collect();
        if many {
            self.line("{");
            self.depth += 1;
        }
        for (name, text) in staged.iter().zip(&value.lanes) {
            let declare = if many { format!("const {ty} ") } else { String::new() };
            self.line(format!("{declare}{name} = {};", bare(text)));
        }
        if many {
            for (name, next) in names.iter().zip(&staged) {
                self.line(format!("{name} = {next};"));
            }
            self.depth -= 1;
            self.line("}");
        }
    }

    fn store(&mut self, mem: MemId, index: Value, value: Value, guard: Guard) {
        let dtype = self.kernel.mem(mem).dtype;
        let name = self.mems[mem.index()].clone();
        if let [text] = &value.lanes[..] {
            let text = self.ops.convert_stored(dtype, text);
            let place = if guard == Guard::Checked { self.named_index(index) } else { index };
            let write = format!("{name}[{}] = {text};", place.bare());
            return self.guarded(guard, &self.inside(mem, &place.lanes[0]), &write);
        }
        let index = self.named_index(index).lanes.swap_remove(0);
        // A lane can read an element that another lane's store changes, so all are computed before any is stored.
        let value = if value.atom { value } else { self.name_value(Type::Scalar(dtype), value) };
        if guard == Guard::Checked || in_memory(dtype) != dtype {
            let room = if guard == Guard::Checked { self.room(mem, &index) } else { String::new() };
            for (lane, text) in value.lanes.iter().enumerate() {
                let text = self.ops.convert_stored(dtype, text);
                let write = format!("{name}[{}] = {text};", plus(&index, lane as u8));
                self.guarded(guard, &format!("{lane} < {room}"), &write);
            }
            return;
        }
        let width = value.lanes.len().min(self.ops.dialect.max_lanes as usize);
        for (part, lanes) in value.lanes.chunks(width).enumerate() {
            let pointer = format!("{name} + {}", plus(&index, (part * width) as u8));
            let lanes: Vec<String> = lanes.iter().map(|lane| bare(lane).to_string()).collect();
            let vector = self.ops.dialect.vector_name(dtype, lanes.len() as u8);
            self.line((self.ops.dialect.store_vector)(&vector, &lanes, &pointer));
        }
    }

    fn guarded(&mut self, guard: Guard, inside: &str, write: &str) {
        match guard {
            Guard::Checked => self.line(format!("if ({inside}) {write}")),
            Guard::Proven | Guard::Unchecked => self.line(write),
        }
    }

    fn named_index(&mut self, index: Value) -> Value {
        if index.atom { index } else { self.name_value(Type::Index, index) }
    }

    #[allow(clippy::too_many_arguments, reason = "these are the fields of one statement")]
    fn atomic(
        &mut self,
        op: AtomicOp,
        mem: MemId,
        index: ExprId,
        value: ExprId,
        expected: Option<ExprId>,
        old: Option<LocalId>,
        guard: Guard,
    ) {
        let dtype = self.kernel.mem(mem).dtype;
        let [index, value, expected] = self.evaluate([index, value, expected.unwrap_or(value)]);
        let index = self.named_index(index).lanes.swap_remove(0);
        let function = match (self.ops.dialect.atomic)(op, dtype) {
            Some(function) => function.to_string(),
            None => self.ops.prelude.call(atomic_add_f32(self.kernel.mem(mem).space)),
        };
        let compared = match op {
            AtomicOp::CompareExchange => format!("{}, ", expected.bare()),
            AtomicOp::Add | AtomicOp::Min | AtomicOp::Max | AtomicOp::Exchange => String::new(),
        };
        let call = format!("{function}({} + {index}, {compared}{});", self.mems[mem.index()], value.bare());
        let inside = self.inside(mem, &index);
        let Some(old) = old else { return self.guarded(guard, &inside, &call) };
        let name = self.introduce(old).swap_remove(0);
        let ty = self.ops.name(dtype);
        match guard {
            Guard::Checked => {
                let zero = literal(self.ops.dialect, Scalar::from_i128(dtype, 0));
                self.line(format!("{ty} {name} = {zero};"));
                self.line(format!("if ({inside}) {name} = {call}"));
            }
            Guard::Proven | Guard::Unchecked => self.line(format!("const {ty} {name} = {call}")),
        }
    }

    /// Renders the head of a counting loop; the counter never wraps around past the end.
    fn for_loop(&mut self, [start, end, step]: [ExprId; 3], counter: LocalId) {
        let ty = self.kernel.local(counter).ty;
        let first = self.fixed(start);
        let (last, by) = (self.fixed(end), self.fixed(step));
        let name = self.introduce(counter).swap_remove(0);
        let next = if never_wraps(self.kernel, self.ops.index, end, step) {
            format!("{name} += {by}")
        } else {
            let wide = self.ops.name(super::prelude::unsigned(self.ops.register(ty.dtype())));
            format!("{name} = ({wide}){last} - ({wide}){name} > ({wide}){by} ? {name} + {by} : {last}")
        };
        let ty = self.ops.name(self.ops.register(ty.dtype()));
        self.line(format!("for ({ty} {name} = {first}; {name} < {last}; {next}) {{"));
    }

    fn repeat(&mut self, condition: ExprId, body: &Block) {
        let head = self.lines.len();
        self.depth += 1;
        let condition = self.scalar(condition);
        if self.lines.len() > head {
            // Temporaries of the condition are computed again before each iteration.
            self.line(format!("if (!{}) break;", condition.lanes[0]));
        }
        self.depth -= 1;
        let open =
            if self.lines.len() > head { "for (;;) {".to_string() } else { format!("while ({}) {{", condition.bare()) };
        self.line(open);
        let open = self.lines.pop().expect("the line was just appended");
        self.lines.insert(head, open);
        self.inner(body);
        self.line("}");
    }

    /// Renders the start of the function: launch builtins, adjusted pointers, arrays, converted scalars.
    pub fn prologue(&mut self, builtins: &[Builtin]) {
        let index = self.ops.name(self.ops.index);
        for builtin in builtins {
            let text = (self.ops.dialect.builtin)(*builtin, self.kernel.group_size);
            self.line(format!("const {index} {} = {text};", super::expr::builtin_name(*builtin)));
        }
        if self.kernel.group_size.is_none() {
            // Launches are rounded up to whole groups, but this kernel has an exact grid size.
            self.line("if (gid0 >= size0 || gid1 >= size1 || gid2 >= size2) return;");
        }
        for (mem, name) in self.kernel.mems.iter().zip(self.mems.clone()) {
            let ty = self.ops.name(in_memory(mem.dtype));
            match mem.space {
                Space::Buffer(_) => self.line(format!("{name} += {name}off;")),
                Space::Shared(len) => self.line(format!("{}{ty} {name}[{len}];", self.ops.dialect.shared)),
                Space::Private(len) => self.line(format!("{ty} {name}[{len}];")),
            }
        }
        for (param, value) in self.kernel.params.iter().zip(self.params.clone()) {
            let (Param::Scalar { ty, .. }, Some(value)) = (param, value) else { continue };
            let Some(dtype) = ty.dtype().filter(|dtype| in_memory(*dtype) != *dtype) else { continue };
            let name = &value.lanes[0];
            let text = self.ops.convert_loaded(dtype, format!("{name}bits"));
            self.line(format!("const {} {name} = {};", self.ops.name(self.ops.register(Some(dtype))), bare(&text)));
        }
    }
}
