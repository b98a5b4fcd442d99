//! Renders expressions as instructions.

use panoply_ir::kernel::{Expr, ExprId, Guard, Kernel, MemId};
use panoply_ir::{Alu, DType, Scalar, Type};

use super::entry::literal;
use super::writer::{Class, Writer};
use crate::render::assembler::{Assembler, Value};

impl<'k> Assembler<'k> for Writer<'k> {
    fn kernel(&self) -> &'k Kernel {
        self.kernel
    }

    fn index(&self) -> DType {
        self.index
    }

    fn leaf(&mut self, expr: Expr, _dtype: DType) -> Value {
        match expr {
            Expr::Const(value) => vec![self.constant(value)],
            Expr::Index(value) => vec![self.index_literal(value)],
            Expr::Param(position) => vec![self.params[position as usize].clone().expect("a scalar has a value")],
            Expr::Local(local) => self.locals[local.index()].clone(),
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

    fn load(&mut self, mem: MemId, index: (ExprId, &str), lanes: u8, guard: Guard) -> Value {
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

impl Writer<'_> {
    /// Renders a constant as an operand.
    pub fn constant(&mut self, value: Scalar) -> String {
        if value.dtype == DType::Bool {
            return self.op(Class::Pred, "mov.pred", &[if value.bits != 0 { "-1" } else { "0" }]);
        }
        literal(value)
    }

    pub fn index_literal(&self, value: u64) -> String {
        if self.index == DType::U32 { (value as u32).to_string() } else { value.to_string() }
    }

    /// Returns the register class of a type.
    pub fn class(&self, ty: Type) -> Class {
        Class::of(self.element(ty.dtype()))
    }
}
