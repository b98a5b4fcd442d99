//! Expressions to instructions, each shared node once.

use std::collections::{BTreeSet, HashMap};

use panoply_ir::Type;
use panoply_ir::kernel::{Expr, ExprId};
use panoply_ir::{DType, Scalar};

use super::entry::literal;
use super::writer::{Class, Writer};

/// Registers or literals, one for each lane.
pub(super) type Value = Vec<String>;

impl Writer<'_> {
    /// Evaluates expressions here.
    pub fn evaluate<const N: usize>(&mut self, roots: [ExprId; N]) -> [Value; N] {
        let mut nodes = BTreeSet::new();
        let mut pending = roots.to_vec();
        while let Some(id) = pending.pop() {
            if nodes.insert(id) {
                pending.extend(self.kernel.exprs.get(id).operands().iter());
            }
        }
        let mut values: HashMap<ExprId, Value> = HashMap::new();
        for id in nodes {
            let value = self.node(id, &values);
            values.insert(id, value);
        }
        roots.map(|root| values[&root].clone())
    }

    /// One expression of one lane.
    pub fn scalar(&mut self, root: ExprId) -> String {
        let [mut value] = self.evaluate([root]);
        value.swap_remove(0)
    }

    fn node(&mut self, id: ExprId, values: &HashMap<ExprId, Value>) -> Value {
        let exprs = &self.kernel.exprs;
        let to = self.element(exprs.ty(id).dtype());
        match exprs.get(id) {
            Expr::Const(value) => vec![self.constant(value)],
            Expr::Index(value) => vec![self.index_literal(value)],
            Expr::Param(position) => vec![self.params[position as usize].clone().expect("a scalar has a value")],
            Expr::Local(local) => self.locals[local.index()].clone(),
            Expr::Builtin(builtin) => vec![self.builtins[&builtin].clone()],
            Expr::Len(mem) => vec![self.lens[mem.index()].clone()],
            Expr::Load { mem, index, lanes, guard } => self.load(mem, &values[&index][0], lanes, guard),
            Expr::Alu(op, args) => {
                // The type of a comparison is that of its operands, of a select that of its choices.
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
        }
    }

    /// A constant as an operand.
    pub fn constant(&mut self, value: Scalar) -> String {
        if value.dtype == DType::Bool {
            return self.op(Class::Pred, "mov.pred", &[if value.bits != 0 { "-1" } else { "0" }]);
        }
        literal(value)
    }

    pub fn index_literal(&self, value: u64) -> String {
        if self.index == DType::U32 { (value as u32).to_string() } else { value.to_string() }
    }

    /// The class of a local's registers.
    pub fn class(&self, ty: Type) -> Class {
        Class::of(self.element(ty.dtype()))
    }
}
