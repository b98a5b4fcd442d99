//! Assignments to locals and memory.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{BinOp, Expr, ExprAssign, ExprBinary, Ident};

use super::{Lower, Name, order, ours, value};
use crate::hints;

/// Target of an assignment.
enum AssignTarget {
    /// A mutable local.
    Local(Ident),
    /// An element: the memory, and the building code of the index.
    Element(Ident, TokenStream),
    /// An immutable name, which rustc reports.
    Fixed,
}

impl Lower {
    /// Lowers `place = value`. As in Rust the value is evaluated first.
    pub(super) fn assign(&mut self, assign: &mut ExprAssign) -> TokenStream {
        let value = self.new_value(&mut assign.right, &assign.left);
        if matches!(*assign.left, Expr::Infer(_)) {
            return quote! { let _ = #value; };
        }
        let (emitter, new, at) = (self.emitter.clone(), ours("new"), ours("at"));
        let change = match self.place(&mut assign.left) {
            Some(AssignTarget::Local(local)) => quote! { #emitter.assign(#local, #new); },
            Some(AssignTarget::Element(memory, index)) => {
                quote! { let #at = #index; #emitter.store(#memory, #at, #new); }
            }
            Some(AssignTarget::Fixed) | None => TokenStream::new(),
        };
        quote! {{ let #new = #value; #change }}
    }

    /// Lowers `place += value` and other compound assignments. The place is evaluated once, after the value.
    pub(super) fn compound(&mut self, binary: &mut ExprBinary) -> TokenStream {
        let Some(op) = value::arithmetic(&binary.op) else { return TokenStream::new() };
        let value = self.new_value(&mut binary.right, &binary.left);
        let (emitter, new, at) = (self.emitter.clone(), ours("new"), ours("at"));
        let change = match self.place(&mut binary.left) {
            Some(AssignTarget::Local(local)) => {
                quote! { #emitter.assign(#local, #emitter.#op(#emitter.get(#local), #new)); }
            }
            Some(AssignTarget::Element(memory, index)) => quote! {
                let #at = #index;
                #emitter.store(#memory, #at, #emitter.#op(#emitter.load(#memory, #at), #new));
            },
            Some(AssignTarget::Fixed) | None => TokenStream::new(),
        };
        quote! {{ let #new = #value; #change }}
    }

    fn new_value(&mut self, value: &mut Expr, place: &Expr) -> TokenStream {
        let overtaken = !matches!(place, Expr::Infer(_)) && order::emits(place);
        let (emitter, value) = (self.emitter.clone(), self.value(value));
        if overtaken {
            quote! { #emitter.hold(#value) }
        } else {
            value
        }
    }

    fn place(&mut self, place: &mut Expr) -> Option<AssignTarget> {
        match place {
            Expr::Paren(inner) => self.place(&mut inner.expr),
            Expr::Group(inner) => self.place(&mut inner.expr),
            Expr::Index(index) => {
                let Some(memory) = self.memory(&index.expr) else {
                    let what = format!("indexing {}", hints::describe(&index.expr));
                    self.mistakes.outside_of(&index.expr, &what, hints::INDEXED);
                    return None;
                };
                let at = self.position(&mut index.index);
                Some(AssignTarget::Element(memory, at))
            }
            Expr::Path(path) => {
                let ident = path.path.get_ident();
                match ident.and_then(|ident| self.lookup(ident)) {
                    Some(Name::Local) => ident.cloned().map(AssignTarget::Local),
                    Some(Name::Value | Name::Constant | Name::Mistake) => Some(AssignTarget::Fixed),
                    Some(Name::Slice(_) | Name::Array) => {
                        self.mistakes.outside_of(path, "assigning a whole slice or array", hints::SLICE);
                        None
                    }
                    None if ident.is_some() => Some(AssignTarget::Fixed),
                    None => {
                        self.mistakes.outside_of(path, "assigning to a static", hints::STATIC);
                        None
                    }
                }
            }
            other => {
                let (what, instead) = hints::expression(other);
                self.mistakes.outside_of(other, &format!("assigning to {what}"), &instead);
                None
            }
        }
    }
}

/// Returns true for `+=` and other compound assignments.
pub fn is_compound(op: &BinOp) -> bool {
    matches!(
        op,
        BinOp::AddAssign(_)
            | BinOp::SubAssign(_)
            | BinOp::MulAssign(_)
            | BinOp::DivAssign(_)
            | BinOp::RemAssign(_)
            | BinOp::BitAndAssign(_)
            | BinOp::BitOrAssign(_)
            | BinOp::BitXorAssign(_)
            | BinOp::ShlAssign(_)
            | BinOp::ShrAssign(_)
    )
}
