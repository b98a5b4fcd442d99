//! Expands matrix products for targets without an instruction for them.
//!
//! Fragments of both factors are stored in shared memory, A by rows and B by columns. Then every work-item accumulates
//! its four elements, product by product in the order defined by the IR. The layout is that of
//! [`panoply_ir::collective`].

use panoply_ir::kernel::{Block, CollectiveOp, Expr, ExprId, Guard, Kernel, Loc, LocalId, MemId, Memory, Mma, Op};
use panoply_ir::kernel::{Space, Stmt};
use panoply_ir::{Alu, DType, Scalar, Target, Type};

use super::expand_collectives::linear_id;
use super::walk::KernelExt;

/// Words per row of A or column of B.
const WORDS: u64 = Mma::K as u64 / 2;

/// Returns true if [`expand`] would change the kernel.
pub(crate) fn applies(kernel: &Kernel, target: &Target) -> bool {
    let mut products = false;
    kernel.walk(&mut |stmt| products |= matches!(stmt.op, Op::Collective { op: CollectiveOp::Mma(_), .. }));
    products && !target.mma
}

/// Returns the kernel without matrix products, unless the target supports them.
pub(crate) fn expand(mut kernel: Kernel, target: &Target) -> Kernel {
    let Some(group) = kernel.group_size.filter(|_| applies(&kernel, target)) else { return kernel };
    let mut body = std::mem::take(&mut kernel.body);
    let id = linear_id(&mut kernel, group);
    let sets = group.iter().product::<u32>() / Mma::LANES;
    let mut expander = Expander::new(kernel, id, sets);
    expander.block(&mut body);
    body.splice(0..0, std::mem::take(&mut expander.first));
    Kernel { body, ..expander.kernel }
}

struct Expander {
    kernel: Kernel,
    /// Statements at the start of the kernel.
    first: Block,
    /// Words of A, consecutively for each set of 32 work-items.
    a: MemId,
    /// Words of B.
    b: MemId,
    /// A work-item's elements: vectors are assembled in memory.
    sums: MemId,
    /// Start of row g of A, from which this work-item's words are addressed.
    a_row: ExprId,
    /// Start of column g of B.
    b_column: ExprId,
    /// Start of column 2 t of B.
    own_column: ExprId,
    /// t.
    word: ExprId,
}

impl Expander {
    fn new(mut kernel: Kernel, id: ExprId, sets: u32) -> Expander {
        let mut memory = |name: &str, dtype, space| {
            kernel.mems.push(Memory { name: name.into(), dtype, space });
            MemId(kernel.mems.len() as u32 - 1)
        };
        let words = |lines: u32| Space::Shared(sets * lines * WORDS as u32);
        let (a, b) = (memory("left", DType::U32, words(Mma::ROWS)), memory("right", DType::U32, words(Mma::COLUMNS)));
        let sums = memory("sums", DType::F32, Space::Private(Mma::ELEMENTS.into()));
        let none = ExprId(0);
        let mut expander = Expander {
            kernel,
            first: Block::new(),
            a,
            b,
            sums,
            a_row: none,
            b_column: none,
            own_column: none,
            word: none,
        };
        let item = expander.bind("item", id);
        let set = expander.over(Alu::Div, item, Mma::LANES as u64);
        let number = expander.over(Alu::Rem, item, Mma::LANES as u64);
        let (g, t) = (expander.over(Alu::Div, number, 4), expander.over(Alu::Rem, number, 4));
        let line = |expander: &mut Expander, lines: u32, line: ExprId| {
            let before = expander.over(Alu::Mul, set, lines as u64);
            let line = expander.kernel.alu(Alu::Add, &[before, line]);
            let start = expander.over(Alu::Mul, line, WORDS);
            expander.bind("line", start)
        };
        expander.a_row = line(&mut expander, Mma::ROWS, g);
        expander.b_column = line(&mut expander, Mma::COLUMNS, g);
        let own = expander.over(Alu::Mul, t, 2);
        expander.own_column = line(&mut expander, Mma::COLUMNS, own);
        expander.word = expander.bind("word", t);
        expander
    }

    fn over(&mut self, op: Alu, x: ExprId, by: u64) -> ExprId {
        let by = self.kernel.index(by);
        self.kernel.alu(op, &[x, by])
    }

    /// Stores a value needed by all products in a local.
    fn bind(&mut self, name: &str, value: ExprId) -> ExprId {
        let local = self.kernel.new_local(name, Type::Index, false);
        self.first.push(Stmt { op: Op::Let { local, value }, at: Loc::default() });
        self.kernel.expr(Expr::Local(local))
    }

    fn block(&mut self, block: &mut Block) {
        for stmt in std::mem::take(block) {
            let Stmt { mut op, at } = stmt;
            op.blocks_mut().into_iter().for_each(|inner| self.block(inner));
            match op {
                Op::Collective { op: CollectiveOp::Mma(mma), value, result, .. } => {
                    let written = self.product(&mma, value, result);
                    block.extend(written.into_iter().map(|op| Stmt { op, at }));
                }
                _ => block.push(Stmt { op, at }),
            }
        }
    }

    fn product(&mut self, mma: &Mma, value: ExprId, result: LocalId) -> Vec<Op> {
        let mut ops = Vec::new();
        let store = |mem: MemId, index: ExprId, value: ExprId| Op::Store { mem, index, value, guard: Guard::Proven };
        for (n, word) in (0..).zip(mma.a) {
            let place = self.kernel.alu(Alu::Add, &[self.a_row, self.word]);
            let place = self.over(Alu::Add, place, 8 * (n % 2) * WORDS + 4 * (n / 2));
            ops.push(store(self.a, place, word));
        }
        for (n, word) in (0..).zip(mma.b) {
            let place = self.kernel.alu(Alu::Add, &[self.b_column, self.word]);
            let place = self.over(Alu::Add, place, 4 * n);
            ops.push(store(self.b, place, word));
        }
        let sums: Vec<LocalId> = (0..Mma::ELEMENTS)
            .map(|element| {
                let local = self.kernel.new_local("sum", DType::F32.into(), true);
                let value = self.kernel.expr(Expr::Extract(value, element));
                ops.push(Op::Let { local, value });
                local
            })
            .collect();
        ops.push(Op::Barrier);
        ops.push(self.walk(mma.dtype, &sums));
        ops.push(Op::Barrier);
        for (element, sum) in (0..).zip(sums) {
            let (place, sum) = (self.kernel.index(element), self.kernel.expr(Expr::Local(sum)));
            ops.push(store(self.sums, place, sum));
        }
        let start = self.kernel.index(0);
        let whole = Expr::Load { mem: self.sums, index: start, lanes: Mma::ELEMENTS, guard: Guard::Proven };
        ops.push(Op::Let { local: result, value: self.kernel.expr(whole) });
        ops
    }

    /// Builds the loop over words that adds the products of both their halves.
    fn walk(&mut self, dtype: DType, sums: &[LocalId]) -> Op {
        let counter = self.kernel.new_local("pair", Type::Index, false);
        let pair = self.kernel.expr(Expr::Local(counter));
        let mut body = Block::new();
        let lines = [(self.a, self.a_row), (self.b, self.own_column)].into_iter().zip([8, 1]);
        let words: Vec<ExprId> = lines
            .flat_map(|((mem, line), apart)| [(mem, line, 0), (mem, line, apart)])
            .map(|(mem, line, lines)| {
                let place = self.kernel.alu(Alu::Add, &[line, pair]);
                let index = self.over(Alu::Add, place, lines * WORDS);
                let word = self.kernel.expr(Expr::Load { mem, index, lanes: 1, guard: Guard::Proven });
                self.hold(&mut body, word)
            })
            .collect();
        for low in [0, 16] {
            let elements: Vec<ExprId> = words.iter().map(|word| self.half(dtype, *word, low)).collect();
            let elements: Vec<ExprId> = elements.into_iter().map(|element| self.hold(&mut body, element)).collect();
            for (n, local) in sums.iter().enumerate() {
                let before = self.kernel.expr(Expr::Local(*local));
                let product = self.kernel.alu(Alu::Mul, &[elements[n / 2], elements[2 + n % 2]]);
                let value = self.kernel.alu(Alu::Add, &[before, product]);
                body.push(Stmt { op: Op::Assign { local: *local, value }, at: Loc::default() });
            }
        }
        let [start, end, step] = [0, WORDS, 1].map(|number| self.kernel.index(number));
        Op::For { counter, start, end, step, body }
    }

    /// Stores a value needed by several products of an iteration in a local.
    fn hold(&mut self, body: &mut Block, value: ExprId) -> ExprId {
        let local = self.kernel.new_local("pair", self.kernel.exprs.ty(value), false);
        body.push(Stmt { op: Op::Let { local, value }, at: Loc::default() });
        self.kernel.expr(Expr::Local(local))
    }

    /// Returns the element in one half of a word, as f32.
    fn half(&mut self, dtype: DType, word: ExprId, low: u32) -> ExprId {
        let by = self.kernel.expr(Expr::Const(Scalar::from(low)));
        let word = if low == 0 { word } else { self.kernel.alu(Alu::Shr, &[word, by]) };
        let bits = self.kernel.expr(Expr::Cast(DType::U16.into(), word));
        let element = self.kernel.expr(Expr::Bitcast(dtype.into(), bits));
        self.kernel.expr(Expr::Cast(DType::F32.into(), element))
    }
}
