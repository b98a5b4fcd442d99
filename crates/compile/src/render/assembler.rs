//! Expression evaluation for assembly languages: each shared node once, vectors lane by lane.

use std::collections::HashMap;

use panoply_ir::kernel::{Expr, ExprId, Guard, Kernel, MemId};
use panoply_ir::{Alu, DType};

use crate::opt::walk::transitive_operands;

/// Names of results or constants, one per lane.
pub(super) type Value = Vec<String>;

/// A writer of instructions, each of which has a named scalar result.
pub(super) trait Assembler<'k> {
    fn kernel(&self) -> &'k Kernel;

    /// Returns the type of an index.
    fn index(&self) -> DType;

    /// Evaluates an expression without operands.
    fn leaf(&mut self, expr: Expr, dtype: DType) -> Value;

    /// Loads `lanes` elements starting at an index, which is passed as an expression and as its value.
    fn load(&mut self, mem: MemId, index: (ExprId, &str), lanes: u8, guard: Guard) -> Value;

    fn alu(&mut self, op: Alu, dtype: DType, args: &[&str]) -> String;

    fn cast(&mut self, from: DType, to: DType, x: &str) -> String;

    fn bitcast(&mut self, from: DType, to: DType, x: &str) -> String;

    /// Returns the element type of a computation, which for an index is the index type.
    fn element(&self, dtype: Option<DType>) -> DType {
        dtype.unwrap_or(self.index())
    }

    /// Evaluates expressions at the current position.
    fn evaluate<const N: usize>(&mut self, roots: [ExprId; N]) -> [Value; N] {
        let mut values: HashMap<ExprId, Value> = HashMap::new();
        for id in transitive_operands(self.kernel(), &roots) {
            let value = self.node(id, &values);
            values.insert(id, value);
        }
        roots.map(|root| values[&root].clone())
    }

    /// Evaluates a scalar expression.
    fn scalar(&mut self, root: ExprId) -> String {
        let [mut value] = self.evaluate([root]);
        value.swap_remove(0)
    }

    /// Evaluates an expression whose operands have values.
    fn node(&mut self, id: ExprId, values: &HashMap<ExprId, Value>) -> Value {
        let exprs = &self.kernel().exprs;
        let to = self.element(exprs.ty(id).dtype());
        match exprs.get(id) {
            Expr::Load { mem, index, lanes, guard } => self.load(mem, (index, &values[&index][0]), lanes, guard),
            Expr::Alu(op, args) => {
                // The relevant type of a comparison is that of its operands, and of a select that of its alternatives.
                let of = self.element(exprs.ty(args[args.len() - 1]).dtype());
                let lane = |lane: usize| args.iter().map(|arg| values[arg][lane].as_str()).collect::<Vec<&str>>();
                (0..values[&args[0]].len()).map(|at| self.alu(op, of, &lane(at))).collect()
            }
            Expr::Cast(_, x) => {
                let from = self.element(exprs.ty(x).dtype());
                values[&x].iter().map(|x| self.cast(from, to, x)).collect()
            }
            Expr::Bitcast(_, x) => {
                let from = self.element(exprs.ty(x).dtype());
                values[&x].iter().map(|x| self.bitcast(from, to, x)).collect()
            }
            Expr::Splat(x, lanes) => vec![values[&x][0].clone(); lanes as usize],
            Expr::Extract(x, lane) => vec![values[&x][lane as usize].clone()],
            leaf @ (Expr::Const(_)
            | Expr::Index(_)
            | Expr::Param(_)
            | Expr::Local(_)
            | Expr::Builtin(_)
            | Expr::Len(_)) => self.leaf(leaf, to),
        }
    }
}
