//! The frame of a random kernel: launch, parameters, memories, and the final statements.

use super::data::Random;
use super::{Case, CaseArg, Options, types, with_lanes};
use crate::alu::Alu;
use crate::builder::Builder;
use crate::dtype::{DType, Scalar, Type};
use crate::kernel::*;
use crate::verify::verify_rules;

/// A kernel under construction, and what statements and expressions can use.
pub(super) struct Generator<'o> {
    pub(super) random: Random,
    pub(super) options: &'o Options,
    pub(super) dtypes: Vec<DType>,
    pub(super) b: Builder,
    seed: u64,
    grid: [u64; 3],
    group: [u32; 3],
    /// True if the kernel fixes the work-group size.
    pub(super) grouped: bool,
    args: Vec<CaseArg>,
    /// Lanes of this kernel's vectors; 1 if there are none.
    pub(super) lanes: u8,
    /// Linear global id of the work-item, and the number of work-items.
    pub(super) me: ExprId,
    pub(super) items: u64,
    /// Linear local id of the work-item, and the number of work-items in a work-group.
    pub(super) me_in_group: Option<ExprId>,
    pub(super) group_items: u64,
    /// Immutable values: parameters and immutable locals in scope.
    pub(super) values: Vec<(ExprId, Type)>,
    /// Immutable indices, each with its largest value.
    pub(super) indices: Vec<(ExprId, u64)>,
    /// Mutable locals in scope.
    pub(super) variables: Vec<(LocalId, Type)>,
    /// Values that are uniform in a work-group.
    pub(super) uniform: Vec<(ExprId, DType)>,
    /// Read-only buffers with their lengths.
    pub(super) inputs: Vec<(MemId, u64)>,
    /// Buffers with this many elements for each work-item.
    pub(super) own: Vec<(MemId, u8)>,
    /// Write-only buffers; each work-item writes its element exactly once.
    outs: Vec<MemId>,
    /// Buffer for transcendental results.
    approximate: Option<MemId>,
    /// Buffers with one atomic operation each.
    pub(super) atomics: Vec<(MemId, AtomicOp, u64)>,
    pub(super) private: Vec<(MemId, u64)>,
    pub(super) shared: Vec<MemId>,
    /// True if all work-items of a work-group are active.
    pub(super) together: bool,
    /// Number of statements left to generate.
    pub(super) budget: u32,
    pub(super) depth: u32,
    line: u32,
}

impl<'o> Generator<'o> {
    pub(super) fn new(seed: u64, options: &'o Options) -> Generator<'o> {
        let mut random = Random::new(seed);
        let grouped = options.groups && random.chance(60);
        let (grid, mut group) = launch(&mut random);
        if options.matrices && grouped && random.chance(50) {
            group = random.pick(&[[32, 1, 1], [8, 4, 1], [4, 8, 2]]);
        }
        let whole = |axis: usize| match grouped {
            true => grid[axis].next_multiple_of(group[axis] as u64),
            false => grid[axis],
        };
        let items = whole(0) * whole(1) * whole(2);
        let lanes = if options.vectors && random.chance(50) { random.pick(&[2, 2, 4, 4, 8, 16]) } else { 1 };
        Generator {
            options,
            dtypes: types(options, &mut random),
            b: Builder::new(format!("random_{seed}")),
            seed,
            grid,
            group,
            grouped,
            args: Vec::new(),
            lanes,
            me: ExprId(0),
            items,
            me_in_group: None,
            group_items: group.iter().map(|size| *size as u64).product(),
            values: Vec::new(),
            indices: Vec::new(),
            variables: Vec::new(),
            uniform: Vec::new(),
            inputs: Vec::new(),
            own: Vec::new(),
            outs: Vec::new(),
            approximate: None,
            atomics: Vec::new(),
            private: Vec::new(),
            shared: Vec::new(),
            together: grouped,
            budget: random.between(options.statements as u64 / 2, options.statements as u64) as u32,
            depth: 0,
            line: 0,
            random,
        }
    }

    /// Generates the whole case.
    pub(super) fn case(mut self) -> Case {
        if self.grouped {
            self.b.group_size(self.group);
        }
        self.parameters();
        self.arrays();
        self.ids();
        self.fill_private();
        self.statements(self.budget);
        self.write_outs();
        if self.random.chance(30) {
            self.leave();
        }
        let approximate = self.approximate.map(|mem| mem.index());
        let kernel = self.b.finish().and_then(|mut kernel| {
            forget_old(&mut self.random, &mut kernel.body);
            verify_rules(kernel)
        });
        let kernel = kernel.unwrap_or_else(|error| panic!("random kernel {} does not verify: {error}", self.seed));
        let is = |param: &Param| matches!(param, Param::Buffer(mem) if Some(mem.index()) == approximate);
        let approximate = kernel.params.iter().position(is);
        Case { seed: self.seed, kernel, grid: self.grid, group: self.group, args: self.args, approximate }
    }

    pub(super) fn next_line(&mut self) {
        self.line += 1;
        self.b.loc("random.rs", self.line);
    }

    /// Chooses an element type.
    pub(super) fn dtype(&mut self) -> DType {
        self.random.pick(&self.dtypes)
    }

    fn parameters(&mut self) {
        for i in 0..self.random.between(0, 3) {
            let dtype = self.dtype();
            let value = self.b.scalar(&format!("a{i}"), dtype);
            self.values.push((value, dtype.into()));
            self.uniform.push((value, dtype));
            let given = self.random.element(dtype);
            self.args.push(CaseArg::Scalar(given));
        }
        if self.random.chance(50) {
            let n = self.b.scalar("n", Type::Index);
            let given = self.random.below(20);
            self.indices.push((n, given));
            self.args.push(CaseArg::Index(given));
        }
        for i in 0..self.random.between(1, 3) {
            let dtype = self.dtype();
            let len = self.random.between(1, 90);
            let mem = self.buffer(&format!("x{i}"), dtype, Access::In, len);
            self.inputs.push((mem, len));
            self.indices.push((self.b.len(mem), len));
        }
        for i in 0..self.random.between(1, 3) {
            let (dtype, lanes) = (self.dtype(), if self.random.chance(50) { self.lanes } else { 1 });
            let all = self.items * lanes as u64;
            let len = self.about(all, 3);
            let mem = self.buffer(&format!("y{i}"), dtype, Access::InOut, len);
            self.own.push((mem, lanes));
        }
        for i in 0..self.random.below(3) {
            let dtype = self.dtype();
            let len = self.about(self.items, 0);
            let mem = self.buffer(&format!("z{i}"), dtype, Access::Out, len);
            self.outs.push(mem);
        }
        let floats: Vec<DType> = self.dtypes.iter().copied().filter(|dtype| dtype.is_float()).collect();
        if self.options.transcendentals && !floats.is_empty() {
            let dtype = self.random.pick(&floats);
            self.approximate = Some(self.buffer("t", dtype, Access::Out, self.items));
        }
        for i in 0..if self.options.atomics { self.random.below(3) } else { 0 } {
            let signed = self.dtypes.contains(&DType::I32) && self.random.chance(50);
            let dtype = if signed { DType::I32 } else { DType::U32 };
            let len = self.random.between(1, 9);
            let mem = self.buffer(&format!("c{i}"), dtype, Access::InOut, len);
            let op = self.random.pick(&[AtomicOp::Add, AtomicOp::Min, AtomicOp::Max]);
            self.atomics.push((mem, op, len));
        }
    }

    /// Chooses a length: `elems`, up to `more` more, or a few less if accesses out of bounds are enabled.
    fn about(&mut self, elems: u64, more: u64) -> u64 {
        let least = if self.options.out_of_bounds { elems.saturating_sub(3).max(1) } else { elems };
        self.random.between(least, elems + more)
    }

    fn buffer(&mut self, name: &str, dtype: DType, access: Access, len: u64) -> MemId {
        let bytes = self.random.elements(dtype, len);
        self.args.push(CaseArg::Buffer(bytes));
        self.b.buffer(name, dtype, access)
    }

    fn arrays(&mut self) {
        if self.random.chance(40) {
            let (dtype, len) = (self.dtype(), self.random.between(1, 6));
            let mem = self.b.private("p", dtype, len as u32);
            self.private.push((mem, len));
        }
        for i in 0..if self.grouped { self.random.below(3) } else { 0 } {
            let dtype = self.dtype();
            let mem = self.b.shared(&format!("s{i}"), dtype, self.group_items as u32);
            self.shared.push(mem);
        }
    }

    /// Computes the linear ids, as locals or as expressions.
    fn ids(&mut self) {
        self.next_line();
        let extent = |g: &mut Self, axis: u8| match g.grouped {
            true => {
                let (count, size) = (Builtin::GroupCount(axis), Builtin::GroupSize(axis));
                let (count, size) = (g.b.builtin(count), g.b.builtin(size));
                g.b.alu(Alu::Mul, &[count, size])
            }
            false => g.b.builtin(Builtin::GlobalSize(axis)),
        };
        let (x, y) = (extent(self, 0), extent(self, 1));
        let all = self.linear(Builtin::GlobalId, x, y);
        self.me = if self.random.chance(50) { self.b.bind("i", all) } else { all };
        self.indices.push((self.me, self.items - 1));
        if self.grouped {
            let (x, y) = (self.b.builtin(Builtin::GroupSize(0)), self.b.builtin(Builtin::GroupSize(1)));
            let within = self.linear(Builtin::LocalId, x, y);
            let within = if self.random.chance(50) { self.b.bind("l", within) } else { within };
            self.me_in_group = Some(within);
            self.indices.push((within, self.group_items - 1));
            let id = self.b.builtin(Builtin::GroupId(0));
            self.indices.push((id, self.grid[0]));
            let id = self.b.cast(DType::U32, id);
            self.uniform.push((id, DType::U32));
        }
    }

    fn linear(&mut self, id: fn(u8) -> Builtin, x: ExprId, y: ExprId) -> ExprId {
        let ids = [self.b.builtin(id(0)), self.b.builtin(id(1)), self.b.builtin(id(2))];
        let plane = self.b.alu(Alu::Mul, &[ids[2], y]);
        let row = self.b.alu(Alu::Add, &[plane, ids[1]]);
        let row = self.b.alu(Alu::Mul, &[row, x]);
        self.b.alu(Alu::Add, &[row, ids[0]])
    }

    fn fill_private(&mut self) {
        for (mem, len) in self.private.clone() {
            self.next_line();
            let (start, end, step) = (self.b.index(0), self.b.index(len), self.b.index(1));
            let j = self.b.begin_for("j", start, end, step);
            let private = std::mem::take(&mut self.private);
            let value = self.value(Type::Scalar(self.b.mem_dtype(mem)), 2);
            self.private = private;
            self.b.store(mem, j, value, Guard::Checked);
            self.b.end();
        }
    }

    /// Writes every element of the write-only buffers; no work-item has returned before.
    pub(super) fn write_outs(&mut self) {
        for mem in std::mem::take(&mut self.outs) {
            self.next_line();
            let value = self.value(with_lanes(self.b.mem_dtype(mem), 1), 4);
            self.b.store(mem, self.me, value, Guard::Checked);
        }
        if let Some(mem) = self.approximate
            && self.depth == 0
        {
            self.next_line();
            let value = self.transcendental(self.b.mem_dtype(mem));
            self.b.store(mem, self.me, value, Guard::Checked);
        }
    }

    /// Lets some work-items return, followed by statements for the others.
    fn leave(&mut self) {
        self.next_line();
        let condition = self.value(Type::BOOL, 2);
        self.b.begin_if(condition);
        self.b.return_();
        self.b.end();
        self.together = false;
        let some = self.random.between(1, 4) as u32;
        self.statements(some);
    }

    /// Returns a constant of a type.
    pub(super) fn constant(&mut self, ty: Type) -> ExprId {
        let dtype = ty.dtype().unwrap_or(DType::U64);
        let value: Scalar = self.random.element(dtype);
        let constant = self.b.constant(value);
        if ty.lanes() > 1 { self.b.splat(constant, ty.lanes()) } else { constant }
    }
}

/// Removes the unused previous value from some atomics.
fn forget_old(random: &mut Random, block: &mut Block) {
    for stmt in block {
        match &mut stmt.op {
            Op::Atomic { old, .. } if random.chance(50) => *old = None,
            Op::If { then, otherwise, .. } => {
                forget_old(random, then);
                forget_old(random, otherwise);
            }
            Op::For { body, .. } | Op::While { body, .. } => forget_old(random, body),
            Op::Let { .. }
            | Op::Assign { .. }
            | Op::Store { .. }
            | Op::Atomic { .. }
            | Op::Collective { .. }
            | Op::Barrier
            | Op::Break
            | Op::Continue
            | Op::Return => {}
        }
    }
}

/// Chooses a grid with one to three axes and up to about a hundred work-items, and work-groups of up to 32.
fn launch(random: &mut Random) -> ([u64; 3], [u32; 3]) {
    let (grid, group) = match random.below(4) {
        0 | 1 => ([random.between(1, 80), 1, 1], [random.pick(&[1, 2, 3, 8, 16, 32]), 1, 1]),
        2 => ([random.between(1, 11), random.between(1, 7), 1], [random.pick(&[1, 2, 4]), random.pick(&[1, 3, 4]), 1]),
        _ => {
            let grid = [random.between(1, 5), random.between(1, 4), random.between(1, 3)];
            (grid, [random.pick(&[1, 2, 4]), random.pick(&[1, 2]), random.pick(&[1, 2, 3])])
        }
    };
    (grid, group)
}
