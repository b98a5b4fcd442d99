//! Renders expressions as instructions.

use panoply_ir::kernel::{Builtin, Expr, ExprId, Guard, Kernel, MemId};
use panoply_ir::{Alu, DType, Scalar};

use super::module::Writer;
use crate::render::assembler::{Assembler, Value};

impl<'k> Assembler<'k> for Writer<'k> {
    fn kernel(&self) -> &'k Kernel {
        self.kernel
    }

    fn index(&self) -> DType {
        self.index
    }

    fn leaf(&mut self, expr: Expr, dtype: DType) -> Value {
        let kernel = self.kernel;
        match expr {
            Expr::Const(value) => vec![self.constant(value)],
            Expr::Index(value) => vec![self.constant(Scalar::from_i128(self.index, value.into()))],
            Expr::Param(position) => vec![self.params[position as usize].clone().expect("a scalar has a value")],
            Expr::Local(local) if kernel.local(local).mutable => {
                let ty = self.ty(dtype);
                self.locals[local.index()].clone().iter().map(|lane| self.op(&ty, "OpLoad", &[lane])).collect()
            }
            Expr::Local(local) => self.locals[local.index()].clone(),
            Expr::Builtin(Builtin::GroupSize(axis)) if kernel.group_size.is_some() => {
                let size = kernel.group_size.map_or(1, |group| group[axis as usize]);
                vec![self.int(self.index, size.into())]
            }
            Expr::Builtin(builtin) => vec![self.builtins[&builtin].clone()],
            Expr::Len(mem) => vec![self.lens[mem.index()].clone()],
            Expr::Load { .. }
            | Expr::Alu(..)
            | Expr::Cast(..)
            | Expr::Bitcast(..)
            | Expr::Splat(..)
            | Expr::Extract(..) => {
                unreachable!("the expression has operands")
            }
        }
    }

    fn load(&mut self, mem: MemId, (_, index): (ExprId, &str), lanes: u8, guard: Guard) -> Value {
        Writer::load(self, mem, index, lanes, guard)
    }

    fn alu(&mut self, op: Alu, dtype: DType, args: &[&str]) -> String {
        Writer::alu(self, op, dtype, args)
    }

    fn cast(&mut self, from: DType, to: DType, x: &str) -> String {
        Writer::cast(self, from, to, x)
    }

    fn bitcast(&mut self, from: DType, to: DType, x: &str) -> String {
        Writer::bitcast(self, from, to, x)
    }
}
