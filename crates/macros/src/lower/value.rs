//! Expressions with a value.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote};
use syn::{BinOp, Expr, ExprBinary, ExprCast, ExprIndex, ExprPath, ExprUnary, Type, UnOp};

use super::probe::around;
use super::{Lower, Name, order, ours};
use crate::hints;

impl Lower {
    /// Lowers an expression with one value.
    pub(super) fn value(&mut self, expr: &mut Expr) -> TokenStream {
        if order::is_number(expr) {
            return self.literal(expr);
        }
        match expr {
            Expr::Lit(_) => self.literal(expr),
            Expr::Path(path) => self.path(path),
            Expr::Paren(inner) => self.value(&mut inner.expr),
            Expr::Group(inner) => self.value(&mut inner.expr),
            Expr::Unary(unary) => self.unary(unary),
            Expr::Binary(binary) => self.binary(binary),
            Expr::Cast(_) => self.cast(expr),
            Expr::Index(index) => self.element(index),
            Expr::Call(_) => self.call(expr),
            Expr::MethodCall(call) => self.method(call),
            Expr::If(_) | Expr::Block(_) => {
                let values = self.values(expr, 1);
                let emitter = &self.emitter;
                quote! { #emitter.only(#values) }
            }
            other => self.no_value(other),
        }
    }

    /// Lowers an expression with `count` values, to a vector.
    pub(super) fn values(&mut self, expr: &mut Expr, count: usize) -> TokenStream {
        match expr {
            Expr::Paren(inner) => self.values(&mut inner.expr, count),
            Expr::Group(inner) => self.values(&mut inner.expr, count),
            Expr::If(_) => self.choice(expr, count),
            Expr::Block(block) if block.label.is_none() => {
                self.scoped(|lower| lower.block_values(&mut block.block, count))
            }
            Expr::Tuple(tuple) if count != 1 => {
                if tuple.elems.len() != count {
                    let message = format!("found {} values, expected {count}", tuple.elems.len());
                    self.mistakes.add(&*tuple, &message);
                }
                let mut elems: Vec<&mut Expr> = tuple.elems.iter_mut().collect();
                let elems = self.operands(&mut elems);
                quote! { ::std::vec![#(#elems),*] }
            }
            Expr::Call(_) if count != 1 => self.call_values(expr),
            _ if count != 1 => {
                self.mistakes.add(&*expr, "only a tuple, an `if` or a `#[kernel_fn]` can have several values");
                quote! { ::std::vec::Vec::new() }
            }
            _ => {
                let value = self.value(expr);
                quote! { ::std::vec![#value] }
            }
        }
    }

    fn path(&mut self, path: &ExprPath) -> TokenStream {
        let emitter = &self.emitter;
        let Some(ident) = path.path.get_ident() else { return self.host(&Expr::Path(path.clone())) };
        match self.lookup(ident) {
            Some(Name::Value) => quote! { #ident },
            Some(Name::Local) => quote! { #emitter.get(#ident) },
            Some(Name::Slice(_)) => self.memory_as_value(ident, "a slice", hints::SLICE),
            Some(Name::Array) => self.memory_as_value(ident, "an array", hints::ARRAY_VALUE),
            Some(Name::Mistake) => self.nothing(),
            Some(Name::Constant) | None => self.host(&Expr::Path(path.clone())),
        }
    }

    fn memory_as_value(&mut self, ident: &Ident, what: &str, instead: &str) -> TokenStream {
        self.mistakes.outside(ident.span(), &format!("{what} as a value (`{ident}`)"), instead);
        self.nothing()
    }

    fn unary(&mut self, unary: &mut ExprUnary) -> TokenStream {
        let emitter = self.emitter.clone();
        let name = match unary.op {
            UnOp::Neg(_) => "neg",
            UnOp::Not(_) => "not",
            _ => {
                self.mistakes.outside_of(&*unary, "`*`", hints::DEREF);
                return self.nothing();
            }
        };
        let (name, value) = (format_ident!("{name}"), self.value(&mut unary.expr));
        quote! { #emitter.#name(#value) }
    }

    fn binary(&mut self, binary: &mut ExprBinary) -> TokenStream {
        match binary.op {
            BinOp::And(_) | BinOp::Or(_) => self.short_circuit(binary),
            _ => match arithmetic(&binary.op) {
                Some(name) => {
                    let [left, right] = self.pair(&mut binary.left, &mut binary.right);
                    let emitter = &self.emitter;
                    quote! { #emitter.#name(#left, #right) }
                }
                None => self.no_value(&Expr::Binary(binary.clone())),
            },
        }
    }

    fn pair(&mut self, left: &mut Expr, right: &mut Expr) -> [TokenStream; 2] {
        let mut both = self.operands(&mut [left, right]).into_iter();
        std::array::from_fn(|_| both.next().unwrap_or_default())
    }

    fn cast(&mut self, expr: &mut Expr) -> TokenStream {
        let Expr::Cast(ExprCast { expr: inner, ty, .. }) = &mut *expr else { return self.nothing() };
        // The type of a literal is inferred from the cast, so both stay together.
        if order::is_number(inner) {
            return self.host(expr);
        }
        let emitter = self.emitter.clone();
        let ty = ty.clone();
        if !matches!(*ty, Type::Infer(_)) {
            let value = self.value(inner);
            return quote! { #emitter.cast::<#ty>(#value) };
        }
        let (probe, value) = (self.probe(), self.value(inner));
        let written = expr.clone();
        *expr = around(&probe, written);
        quote! { #probe.cast(&#emitter, #value) }
    }

    /// Lowers an element of a memory.
    fn element(&mut self, index: &mut ExprIndex) -> TokenStream {
        let Some(memory) = self.memory(&index.expr) else {
            let what = format!("indexing {}", hints::describe(&index.expr));
            self.mistakes.outside_of(&index.expr, &what, hints::INDEXED);
            return self.nothing();
        };
        let at = self.position(&mut index.index);
        let (emitter, load) = (&self.emitter, if self.unwanted > 0 { ours("load_unwanted") } else { ours("load") });
        quote! { #emitter.#load(#memory, #at) }
    }

    /// Lowers the index of an element.
    pub(super) fn position(&mut self, index: &mut Expr) -> TokenStream {
        if let Expr::Range(_) = index {
            self.mistakes.outside_of(&*index, "a part of a slice", hints::SUBSLICE);
            return self.nothing();
        }
        self.value(index)
    }

    /// Returns the memory that a name refers to.
    pub(super) fn memory(&self, expr: &Expr) -> Option<Ident> {
        match expr {
            Expr::Paren(inner) => self.memory(&inner.expr),
            Expr::Group(inner) => self.memory(&inner.expr),
            Expr::Path(path) => {
                let ident = path.path.get_ident()?;
                self.lookup(ident).is_some_and(Name::is_memory).then(|| ident.clone())
            }
            _ => None,
        }
    }

    fn no_value(&mut self, expr: &Expr) -> TokenStream {
        let (what, instead) = hints::expression(expr);
        self.mistakes.outside_of(expr, &what, &instead);
        self.nothing()
    }
}

/// Returns the emitter's method for an operator that does not short-circuit.
pub fn arithmetic(op: &BinOp) -> Option<Ident> {
    let name = match op {
        BinOp::Add(_) | BinOp::AddAssign(_) => "add",
        BinOp::Sub(_) | BinOp::SubAssign(_) => "sub",
        BinOp::Mul(_) | BinOp::MulAssign(_) => "mul",
        BinOp::Div(_) | BinOp::DivAssign(_) => "div",
        BinOp::Rem(_) | BinOp::RemAssign(_) => "rem",
        BinOp::BitAnd(_) | BinOp::BitAndAssign(_) => "and",
        BinOp::BitOr(_) | BinOp::BitOrAssign(_) => "or",
        BinOp::BitXor(_) | BinOp::BitXorAssign(_) => "xor",
        BinOp::Shl(_) | BinOp::ShlAssign(_) => "shl",
        BinOp::Shr(_) | BinOp::ShrAssign(_) => "shr",
        BinOp::Lt(_) => "lt",
        BinOp::Le(_) => "le",
        BinOp::Gt(_) => "gt",
        BinOp::Ge(_) => "ge",
        BinOp::Eq(_) => "eq",
        BinOp::Ne(_) => "ne",
        _ => return None,
    };
    Some(format_ident!("{name}"))
}
