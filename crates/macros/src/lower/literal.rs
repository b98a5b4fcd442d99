//! Literals, and expressions that are constant while a kernel is built.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Expr, ExprLit, Lit, LitFloat, LitInt, UnOp};

use super::probe::around;
use super::{Lower, Name};
use crate::{hints, language};

fn signed(negative: bool, literal: impl ToTokens) -> TokenStream {
    if negative {
        quote! { -#literal }
    } else {
        quote! { #literal }
    }
}

/// Returns the literal of a number, possibly negated.
pub fn number(expr: &Expr) -> Option<&Lit> {
    match expr {
        Expr::Lit(ExprLit { lit, .. }) if matches!(lit, Lit::Int(_) | Lit::Float(_)) => Some(lit),
        Expr::Unary(unary) if matches!(unary.op, UnOp::Neg(_)) => match &*unary.expr {
            Expr::Lit(_) => number(&unary.expr),
            _ => None,
        },
        _ => None,
    }
}

impl Lower {
    /// Lowers a literal; its type is the one that rustc infers for the original literal.
    pub(super) fn literal(&mut self, expr: &mut Expr) -> TokenStream {
        let Some(lit) = number(expr) else {
            if let Expr::Lit(ExprLit { lit: Lit::Bool(_) | Lit::Byte(_), .. }) = expr {
                return self.host(expr);
            }
            self.mistakes.outside_of(&*expr, "a string or character", hints::TEXT);
            return self.nothing();
        };
        let (negative, emitter) = (matches!(expr, Expr::Unary(_)), self.emitter.clone());
        let number = match lit {
            Lit::Int(int) if int.suffix().is_empty() => {
                let value = format!("{}i128", int.base10_digits());
                let value = signed(negative, LitInt::new(&value, int.span()));
                quote! { whole(&#emitter, #value) }
            }
            Lit::Float(float) if float.suffix().is_empty() => {
                let typed =
                    |ty| signed(negative, LitFloat::new(&format!("{}{ty}", float.base10_digits()), float.span()));
                let (single, double) = (typed("f32"), typed("f64"));
                quote! { fraction(&#emitter, #single, #double) }
            }
            _ => return self.host(expr),
        };
        let (probe, written) = (self.probe(), expr.clone());
        *expr = around(&probe, written);
        quote! { #probe.#number }
    }

    /// Lowers a value that is the same for every launch, written as Rust.
    pub(super) fn host(&self, value: &Expr) -> TokenStream {
        let emitter = &self.emitter;
        quote_spanned! { value.span()=> #emitter.host(#value) }
    }

    /// Returns true if an expression is constant while the kernel is built: it does not depend on the launch.
    pub(super) fn is_constant(&self, expr: &Expr) -> bool {
        match expr {
            Expr::Lit(_) => true,
            Expr::Path(path) => match path.path.get_ident() {
                Some(ident) => matches!(self.lookup(ident), None | Some(Name::Constant)),
                None => true,
            },
            Expr::Paren(inner) => self.is_constant(&inner.expr),
            Expr::Group(inner) => self.is_constant(&inner.expr),
            Expr::Unary(unary) => self.is_constant(&unary.expr),
            Expr::Cast(cast) => self.is_constant(&cast.expr),
            Expr::Binary(binary) => self.is_constant(&binary.left) && self.is_constant(&binary.right),
            Expr::Call(call) => {
                let associated = matches!(&*call.func, Expr::Path(path) if language::is_of_a_type(&path.path) && !hints::allocates(&path.path));
                associated && call.args.iter().all(|arg| self.is_constant(arg))
            }
            _ => false,
        }
    }

    /// Lowers an expression that must be constant, such as the length of a shared array.
    pub(super) fn constant(&mut self, expr: &Expr, what: &str) -> TokenStream {
        if self.is_constant(expr) {
            return quote! { #expr };
        }
        let message =
            format!("{what} is fixed when the kernel is built; use a constant or a `const N: usize` parameter");
        self.mistakes.add(expr, &message);
        quote! { 0 }
    }
}
