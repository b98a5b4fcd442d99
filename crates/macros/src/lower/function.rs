//! Function bodies, and `return`.
//!
//! In a kernel `return` ends the work-item. In a kernel function, which is inlined, it assigns the result and jumps
//! to the end of the function. Statements after an `if` that returns become its `else` branch. Where that would nest
//! too deep, or an `if` returns on only some of its paths, the body becomes a loop with a single iteration, which
//! `return` leaves. A `return` inside a loop of the user is reported.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Block, Expr, ExprIf, ExprReturn, Ident, Stmt, Type};

use super::chain::NESTED;
use super::{Lower, order, ours};
use crate::hints;

/// Return values of a function.
#[derive(Clone)]
pub enum Returns {
    /// A kernel: no values, and `return` ends the work-item.
    Kernel,
    /// A kernel function with this number of values, of this type.
    Values(usize, Box<Type>),
}

impl Returns {
    /// Returns the return values of a kernel function with this return type.
    pub fn of(output: &syn::ReturnType) -> Returns {
        match output {
            syn::ReturnType::Default => Returns::Values(0, syn::parse_quote!(())),
            syn::ReturnType::Type(_, ty) => match &**ty {
                Type::Tuple(tuple) => Returns::Values(tuple.elems.len(), ty.clone()),
                _ => Returns::Values(1, ty.clone()),
            },
        }
    }
}

impl Lower {
    /// Lowers a function body. For a kernel function the building code evaluates to a vector of its values.
    pub fn body(&mut self, body: &mut Block) -> TokenStream {
        let Returns::Values(count, ty) = self.returns.clone() else {
            return self.scoped(|lower| lower.statements(&mut body.stmts));
        };
        self.scoped(|lower| {
            if !has_return(&body.stmts) {
                return if count == 0 {
                    let stmts = lower.statements(&mut body.stmts);
                    quote! {{ #stmts ::std::vec![] }}
                } else {
                    lower.block_values(body, count)
                };
            }
            let (emitter, results) = (lower.emitter.clone(), ours("returned"));
            let code = if depth(&body.stmts).is_some_and(|depth| depth <= NESTED) {
                lower.tail(&mut body.stmts, &results, count)
            } else {
                lower.leaves_loop = true;
                let code = lower.last(&mut body.stmts, &results, count);
                quote! { #emitter.begin_while(#emitter.host(true)); { #code } #emitter.break_loop(); #emitter.end(); }
            };
            quote! {{
                let #results = #emitter.results_of::<#ty>();
                { #code }
                #emitter.taken(&#results)
            }}
        })
    }

    /// Lowers a `return` statement: in a kernel, or where [`Lower::tail`] does not apply.
    pub(super) fn return_from(&mut self, ret: &mut ExprReturn) -> TokenStream {
        match self.returns {
            Returns::Kernel => {
                if let Some(value) = &ret.expr {
                    self.mistakes.add(value, "a kernel returns nothing; write through a `&mut [T]` argument");
                }
                let emitter = &self.emitter;
                quote! { #emitter.ret(); }
            }
            Returns::Values(count, _) if self.leaves_loop && self.loops == 0 => {
                let given = ret.expr.as_mut().map(|value| self.give(value, &ours("returned"), count));
                let emitter = &self.emitter;
                quote! { #given #emitter.break_loop(); }
            }
            Returns::Values(..) => {
                let what = if self.loops > 0 { "`return` inside a loop of a kernel function" } else { "`return` here" };
                self.mistakes.outside_of(&*ret, what, hints::RETURN);
                TokenStream::new()
            }
        }
    }

    /// Lowers the statements up to the end of the function.
    fn tail(&mut self, stmts: &mut [Stmt], results: &Ident, count: usize) -> TokenStream {
        let Some(position) = stmts.iter().position(|stmt| has_return(std::slice::from_ref(stmt))) else {
            return self.last(stmts, results, count);
        };
        let (before, rest) = stmts.split_at_mut(position);
        let before = self.statements(before);
        let Some((returning, after)) = rest.split_first_mut() else { return before };
        let line = self.line(returning);
        let code = match returning {
            Stmt::Expr(expr, _) => self.tail_expression(expr, after, results, count),
            other => {
                self.mistakes.outside_of(&*other, "`return` within `let`", hints::RETURN);
                TokenStream::new()
            }
        };
        quote! { #before #line #code }
    }

    fn tail_expression(&mut self, expr: &mut Expr, after: &mut [Stmt], results: &Ident, count: usize) -> TokenStream {
        match expr {
            Expr::Return(ret) => match &mut ret.expr {
                Some(value) => self.give(value, results, count),
                None => TokenStream::new(),
            },
            Expr::If(branch) => self.tail_branch(branch, after, results, count),
            Expr::Block(block) if after.is_empty() => {
                self.scoped(|lower| lower.tail(&mut block.block.stmts, results, count))
            }
            Expr::ForLoop(_) | Expr::While(_) | Expr::Loop(_) => self.expression(expr),
            other => {
                self.mistakes.outside_of(&*other, "`return` here", hints::RETURN);
                TokenStream::new()
            }
        }
    }

    fn tail_branch(&mut self, branch: &mut ExprIf, after: &mut [Stmt], results: &Ident, count: usize) -> TokenStream {
        let emitter = self.emitter.clone();
        let leaves = order::block_diverges(&branch.then_branch);
        let other_leaves = branch.else_branch.as_ref().is_some_and(|(_, other)| order::diverges(other));
        let ends = after.is_empty();
        if !ends && !leaves && !other_leaves {
            self.mistakes.outside_of(&branch.cond, "an `if` that returns on some paths only", hints::RETURN);
            return TokenStream::new();
        }
        let condition = self.condition(&mut branch.cond);
        let then = &mut branch.then_branch.stmts;
        let then = if leaves || ends {
            self.scoped(|lower| lower.tail(then, results, count))
        } else {
            let own = self.scoped(|lower| lower.statements(then));
            let rest = self.tail(after, results, count);
            quote! { { #own } #rest }
        };
        let mut other = branch.else_branch.as_mut().map(|(_, other)| &mut **other);
        let otherwise = if other_leaves || ends {
            match &mut other {
                Some(Expr::Block(block)) => self.scoped(|lower| lower.tail(&mut block.block.stmts, results, count)),
                Some(Expr::If(nested)) => self.tail_branch(nested, &mut [], results, count),
                _ => TokenStream::new(),
            }
        } else {
            let own = other.map(|other| self.expression(other));
            let rest = self.tail(after, results, count);
            quote! { { #own } #rest }
        };
        quote! {
            #emitter.begin_if(#condition);
            { #then }
            #emitter.begin_else();
            { #otherwise }
            #emitter.end();
        }
    }

    /// Lowers statements without `return`; the last one can be the value.
    fn last(&mut self, stmts: &mut [Stmt], results: &Ident, count: usize) -> TokenStream {
        match stmts.split_last_mut() {
            Some((Stmt::Expr(value, None), before)) if count > 0 => {
                let before = self.statements(before);
                let line = self.line(value);
                let given = self.give(value, results, count);
                quote! { #before #line #given }
            }
            _ => self.statements(stmts),
        }
    }
}

/// Returns the nesting depth if statements after an `if` that returns become its `else` branch; `None` if this form
/// cannot express the returns.
fn depth(stmts: &[Stmt]) -> Option<usize> {
    let position = stmts.iter().position(|stmt| has_return(std::slice::from_ref(stmt)));
    let Some((Stmt::Expr(expr, _), after)) = position.and_then(|position| stmts[position..].split_first()) else {
        return position.is_none().then_some(0);
    };
    match expr {
        Expr::Return(_) | Expr::ForLoop(_) | Expr::While(_) | Expr::Loop(_) => Some(0),
        Expr::If(branch) => branch_depth(branch, after),
        Expr::Block(block) if after.is_empty() => depth(&block.block.stmts),
        _ => None,
    }
}

/// Returns [`depth`] of an `if` and the statements after it.
fn branch_depth(branch: &ExprIf, after: &[Stmt]) -> Option<usize> {
    let other = branch.else_branch.as_ref().map(|(_, other)| &**other);
    let (leaves, other_leaves) = (order::block_diverges(&branch.then_branch), other.is_some_and(order::diverges));
    let ends = after.is_empty();
    if !ends && !leaves && !other_leaves {
        return None;
    }
    let then = &branch.then_branch.stmts;
    let then = match leaves || ends {
        true => depth(then)?,
        false if has_return(then) => return None,
        false => depth(after)?,
    };
    let otherwise = match (other, other_leaves || ends) {
        (Some(Expr::Block(block)), true) => depth(&block.block.stmts)?,
        (Some(Expr::If(nested)), true) => branch_depth(nested, &[])?,
        (Some(other), false) if has_return(&[Stmt::Expr(other.clone(), None)]) => return None,
        (_, false) => depth(after)?,
        (_, true) => 0,
    };
    Some(1 + then.max(otherwise))
}

/// Returns true if the statements contain `return`.
fn has_return(stmts: &[Stmt]) -> bool {
    fn within(tokens: TokenStream) -> bool {
        tokens.into_iter().any(|token| match token {
            proc_macro2::TokenTree::Ident(ident) => ident == "return",
            proc_macro2::TokenTree::Group(group) => within(group.stream()),
            _ => false,
        })
    }
    within(quote! { #(#stmts)* })
}
