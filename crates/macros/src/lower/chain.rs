//! `if` and chains of `else if`.
//!
//! In the kernel each `else if` is an `if` nested in the previous `else`, and the nesting depth of blocks is limited.
//! A long chain is therefore divided into consecutive short ones: if no condition of a short chain holds, it sets a
//! local, and the next one runs if that local is set.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Expr, ExprIf, Ident};

use super::{Lower, order, ours};

/// Maximum depth of nested `if`s.
pub(super) const NESTED: usize = 16;

/// One condition of a chain, with the code that runs if it is the first that holds.
struct Arm {
    /// Code that records the source line.
    line: TokenStream,
    condition: TokenStream,
    then: TokenStream,
}

impl Lower {
    /// Lowers an `if` whose value is not used.
    pub(super) fn branch(&mut self, branch: &mut ExprIf) -> TokenStream {
        let (mut arms, mut next) = (Vec::new(), branch);
        let otherwise = loop {
            let line = self.line(next);
            let condition = self.condition(&mut next.cond);
            let then = self.block(&mut next.then_branch);
            arms.push(Arm { line, condition, then });
            match next.else_branch.as_mut().map(|(_, other)| &mut **other) {
                Some(Expr::If(other)) => next = other,
                Some(other) => {
                    let line = self.line(other);
                    let code = self.expression(other);
                    break Some(quote! { #line #code });
                }
                None => break None,
            }
        };
        self.chain(arms, otherwise)
    }

    /// Lowers an `if` whose branches assign their values to `results`.
    pub(super) fn give_branch(&mut self, branch: &mut ExprIf, results: &Ident, count: usize) -> TokenStream {
        let (mut arms, mut next) = (Vec::new(), branch);
        let otherwise = loop {
            let line = self.line(next);
            let condition = self.condition(&mut next.cond);
            let then = self.scoped(|lower| lower.give_block(&mut next.then_branch, results, count));
            arms.push(Arm { line, condition, then });
            let Some((_, other)) = &mut next.else_branch else { break TokenStream::new() };
            let goes_on = matches!(&**other, Expr::If(other) if other.else_branch.is_some() && !(count == 1 && order::is_selection(other)));
            if !goes_on {
                let line = self.line(other);
                let given = self.give(other, results, count);
                break quote! { #line #given };
            }
            let Expr::If(other) = &mut **other else { break TokenStream::new() };
            next = other;
        };
        self.chain(arms, Some(otherwise))
    }

    /// Returns the building code of a chain.
    fn chain(&self, mut arms: Vec<Arm>, otherwise: Option<TokenStream>) -> TokenStream {
        let emitter = &self.emitter;
        let (mut code, mut before): (TokenStream, Option<Ident>) = Default::default();
        while arms.len() > NESTED {
            let rest = arms.split_off(NESTED);
            let open = ours(&format!("open{}", rest.len()));
            let nested = self.nested(arms, Some(quote! { #emitter.assign(#open, #emitter.host(true)); }));
            let nested = self.if_open(before.as_ref(), nested);
            code.extend(quote! { let #open = #emitter.declare("open", #emitter.host(false)); #nested });
            (arms, before) = (rest, Some(open));
        }
        let nested = self.nested(arms, otherwise);
        code.extend(self.if_open(before.as_ref(), nested));
        quote! {{ #code }}
    }

    fn if_open(&self, open: Option<&Ident>, code: TokenStream) -> TokenStream {
        let Some(open) = open else { return code };
        let emitter = &self.emitter;
        quote! { #emitter.begin_if(#emitter.get(#open)); { #code } #emitter.end(); }
    }

    fn nested(&self, arms: Vec<Arm>, otherwise: Option<TokenStream>) -> TokenStream {
        let emitter = &self.emitter;
        let around = |inner: Option<TokenStream>, Arm { line, condition, then }: Arm| {
            let otherwise = inner.map(|inner| quote! { #emitter.begin_else(); { #inner } });
            Some(quote! { #line #emitter.begin_if(#condition); #then #otherwise #emitter.end(); })
        };
        arms.into_iter().rev().fold(otherwise, around).unwrap_or_default()
    }
}
