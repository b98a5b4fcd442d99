//! Expressions to instructions, each shared node once.

use std::collections::HashMap;

use panoply_ir::Scalar;
use panoply_ir::kernel::{Builtin, Expr, ExprId};

use super::module::Writer;
use crate::opt::walk::below;

/// Results or constants, one for each lane.
pub(super) type Value = Vec<String>;

impl Writer<'_> {
    /// Evaluates expressions here.
    pub fn evaluate<const N: usize>(&mut self, roots: [ExprId; N]) -> [Value; N] {
        let mut values: HashMap<ExprId, Value> = HashMap::new();
        for id in below(self.kernel, &roots) {
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
        let kernel = self.kernel;
        let exprs = &kernel.exprs;
        let to = self.element(exprs.ty(id).dtype());
        match exprs.get(id) {
            Expr::Const(value) => vec![self.constant(value)],
            Expr::Index(value) => vec![self.constant(Scalar::from_i128(self.index, value.into()))],
            Expr::Param(position) => vec![self.params[position as usize].clone().expect("a scalar has a value")],
            Expr::Local(local) if kernel.local(local).mutable => {
                let ty = self.ty(to);
                self.locals[local.index()].clone().iter().map(|lane| self.op(&ty, "OpLoad", &[lane])).collect()
            }
            Expr::Local(local) => self.locals[local.index()].clone(),
            Expr::Builtin(Builtin::GroupSize(axis)) if kernel.group.is_some() => {
                let size = kernel.group.map_or(1, |group| group[axis as usize]);
                vec![self.int(self.index, size.into())]
            }
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
}
