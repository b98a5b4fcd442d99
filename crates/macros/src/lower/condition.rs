//! Conditional values: `if … else …`, `&&` and `||`.

use proc_macro2::{Ident, TokenStream};
use quote::quote;
use syn::{BinOp, Block, Expr, ExprBinary, ExprIf, Stmt};

use super::probe::around;
use super::{Lower, order, ours};
use crate::hints;

impl Lower {
    /// Lowers an `if` with `count` values.
    pub(super) fn choice(&mut self, expr: &mut Expr, count: usize) -> TokenStream {
        let Expr::If(branch) = &mut *expr else { return self.nothing() };
        if branch.else_branch.is_none() {
            self.mistakes.add(&*branch, "an `if` with a value needs an `else`");
            return quote! { ::std::vec![] };
        }
        if count == 1 && order::is_selection(branch) {
            return self.selection(branch);
        }
        let (probe, results) = (self.probe(), ours("results"));
        let body = self.give_branch(branch, &results, count);
        let written = expr.clone();
        *expr = around(&probe, written);
        let emitter = &self.emitter;
        quote! {{
            let #results = #probe.results(&#emitter);
            #body
            #emitter.taken(&#results)
        }}
    }

    /// Lowers a block with `count` values.
    pub(super) fn block_values(&mut self, block: &mut Block, count: usize) -> TokenStream {
        let Some((Stmt::Expr(value, None), before)) = block.stmts.split_last_mut() else {
            self.mistakes.add(&*block, "a block with a value ends with an expression");
            return quote! { ::std::vec![] };
        };
        let before = self.statements(before);
        let line = self.line(value);
        let values = self.values(value, count);
        quote! {{ #before #line #values }}
    }

    /// Assigns the values of `expr` to `results`.
    pub(super) fn give(&mut self, expr: &mut Expr, results: &Ident, count: usize) -> TokenStream {
        match expr {
            Expr::Paren(inner) => self.give(&mut inner.expr, results, count),
            Expr::Group(inner) => self.give(&mut inner.expr, results, count),
            Expr::If(branch) if branch.else_branch.is_some() && !(count == 1 && order::is_selection(branch)) => {
                self.give_branch(branch, results, count)
            }
            Expr::Block(block) => self.scoped(|lower| lower.give_block(&mut block.block, results, count)),
            Expr::Return(_) | Expr::Break(_) | Expr::Continue(_) => self.expression(expr),
            _ => {
                let values = self.values(expr, count);
                let emitter = &self.emitter;
                quote! { #emitter.give(&#results, #values); }
            }
        }
    }

    pub(super) fn give_block(&mut self, block: &mut Block, results: &Ident, count: usize) -> TokenStream {
        let leaves = order::block_diverges(block);
        match block.stmts.split_last_mut() {
            Some((Stmt::Expr(value, None), before)) => {
                let before = self.statements(before);
                let line = self.line(value);
                let given = self.give(value, results, count);
                quote! {{ #before #line #given }}
            }
            _ if leaves => {
                let all = self.statements(&mut block.stmts);
                quote! {{ #all }}
            }
            _ => {
                self.mistakes.add(&*block, "a block with a value ends with an expression");
                TokenStream::new()
            }
        }
    }

    /// Lowers an `if` to a select: both branches are computed.
    fn selection(&mut self, branch: &mut ExprIf) -> TokenStream {
        let condition = self.value(&mut branch.cond);
        let then = self.maybe(|lower| lower.side(&mut branch.then_branch));
        let otherwise = match branch.else_branch.as_mut().map(|(_, other)| &mut **other) {
            Some(Expr::Block(block)) => self.maybe(|lower| lower.side(&mut block.block)),
            Some(other) => self.maybe(|lower| lower.value(other)),
            None => self.nothing(),
        };
        let emitter = &self.emitter;
        quote! { ::std::vec![#emitter.select(#condition, #then, #otherwise)] }
    }

    fn side(&mut self, block: &mut Block) -> TokenStream {
        match block.stmts.as_mut_slice() {
            [Stmt::Expr(value, None)] => self.value(value),
            _ => self.nothing(),
        }
    }

    /// Lowers a condition of `if` or `while`.
    pub(super) fn condition(&mut self, expr: &mut Expr) -> TokenStream {
        if let Expr::Let(pattern) = expr {
            self.mistakes.outside_of(&*pattern, "`let` as a condition", hints::CONDITION_LET);
            return self.nothing();
        }
        self.value(expr)
    }

    /// Lowers `&&` and `||`. The right side is computed conditionally, unless computing it always is cheap and has no
    /// side effects.
    pub(super) fn short_circuit(&mut self, binary: &mut ExprBinary) -> TokenStream {
        let emitter = self.emitter.clone();
        let and = matches!(binary.op, BinOp::And(_));
        let cheap = order::is_cheap(&binary.right);
        let left = self.condition(&mut binary.left);
        let right = if cheap {
            self.maybe(|lower| lower.condition(&mut binary.right))
        } else {
            self.condition(&mut binary.right)
        };
        match (cheap, and) {
            (true, true) => quote! { #emitter.and(#left, #right) },
            (true, false) => quote! { #emitter.or(#left, #right) },
            (false, _) => {
                let (result, right_value) = (ours("condition"), ours("right"));
                let wanted = if and {
                    quote! { #emitter.get(#result) }
                } else {
                    quote! { #emitter.not(#emitter.get(#result)) }
                };
                quote! {{
                    let #result = #emitter.declare("condition", #left);
                    #emitter.begin_if(#wanted);
                    { let #right_value = #right; #emitter.assign(#result, #right_value); }
                    #emitter.end();
                    #emitter.get(#result)
                }}
            }
        }
    }
}
