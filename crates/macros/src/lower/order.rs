//! Side effects of expressions, determined from their syntax.
//!
//! All answers are conservative: a call that is not in the table is assumed to have any side effect.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{BinOp, Block, Expr, Ident, Stmt};

use super::chain::NESTED;
use super::{Lower, literal};
use crate::language;

impl Lower {
    /// Lowers operands in order. An operand that a later one can change is first stored in a local.
    pub(super) fn operands(&mut self, operands: &mut [&mut Expr]) -> Vec<TokenStream> {
        let emit: Vec<bool> = operands.iter().map(|operand| emits(operand)).collect();
        let emitter = self.emitter.clone();
        let mut lowered = Vec::with_capacity(operands.len());
        for (position, operand) in operands.iter_mut().enumerate() {
            let fixed = self.is_constant(operand);
            let value = self.value(operand);
            let overtaken = !fixed && emit[position + 1..].contains(&true);
            lowered.push(if overtaken {
                quote! { #emitter.hold(#value) }
            } else {
                value
            });
        }
        lowered
    }
}

/// Returns true if building the expression creates statements.
pub fn emits(expr: &Expr) -> bool {
    match expr {
        Expr::Lit(_) | Expr::Path(_) => false,
        Expr::Paren(inner) => emits(&inner.expr),
        Expr::Group(inner) => emits(&inner.expr),
        Expr::Reference(inner) => emits(&inner.expr),
        Expr::Unary(unary) => emits(&unary.expr),
        Expr::Cast(cast) => emits(&cast.expr),
        Expr::Index(index) => emits(&index.index),
        Expr::Tuple(tuple) => tuple.elems.iter().any(emits),
        Expr::Binary(binary) => {
            let branches = matches!(binary.op, BinOp::And(_) | BinOp::Or(_)) && !is_cheap(&binary.right);
            branches || emits(&binary.left) || emits(&binary.right)
        }
        Expr::MethodCall(call) => {
            loops(&call.method, call.args.last()) || emits(&call.receiver) || call.args.iter().any(emits)
        }
        Expr::Call(call) => match &*call.func {
            Expr::Path(path) if path.path.segments.last().is_some_and(|last| loops(&last.ident, call.args.last())) => {
                true
            }
            Expr::Path(path) => !language::is_pure(&path.path) || call.args.iter().any(emits),
            _ => true,
        },
        Expr::If(branch) => !is_selection(branch),
        _ => true,
    }
}

/// Returns true if a method becomes a loop: a power whose exponent is not a literal.
fn loops(method: &Ident, exponent: Option<&Expr>) -> bool {
    method == "powi" && !exponent.is_some_and(is_number)
}

/// Returns true if the expression can be computed speculatively because its cost is negligible. It can read an
/// element at a computed position, but not at one that was itself read. A speculative read is always bounds-checked,
/// even in an unchecked kernel.
pub fn is_cheap(expr: &Expr) -> bool {
    match expr {
        Expr::Lit(_) | Expr::Path(_) => true,
        Expr::Paren(inner) => is_cheap(&inner.expr),
        Expr::Group(inner) => is_cheap(&inner.expr),
        Expr::Unary(unary) => is_cheap(&unary.expr),
        Expr::Cast(cast) => is_cheap(&cast.expr),
        Expr::Binary(binary) => {
            !matches!(binary.op, BinOp::Div(_) | BinOp::Rem(_)) && is_cheap(&binary.left) && is_cheap(&binary.right)
        }
        Expr::Index(index) => is_cheap(&index.index) && !reads(&index.index),
        Expr::MethodCall(call) => {
            language::is_cheap_method(&call.method.to_string())
                && is_cheap(&call.receiver)
                && call.args.iter().all(is_cheap)
        }
        Expr::Call(call) => match &*call.func {
            Expr::Path(path) => language::is_cheap(&path.path) && call.args.iter().all(is_cheap),
            _ => false,
        },
        Expr::If(branch) => is_selection(branch),
        _ => false,
    }
}

/// Returns true if a cheap expression reads memory.
fn reads(expr: &Expr) -> bool {
    match expr {
        Expr::Index(_) | Expr::If(_) => true,
        Expr::Paren(inner) => reads(&inner.expr),
        Expr::Group(inner) => reads(&inner.expr),
        Expr::Unary(unary) => reads(&unary.expr),
        Expr::Cast(cast) => reads(&cast.expr),
        Expr::Binary(binary) => reads(&binary.left) || reads(&binary.right),
        Expr::MethodCall(call) => reads(&call.receiver) || call.args.iter().any(reads),
        Expr::Call(call) => call.args.iter().any(reads),
        _ => false,
    }
}

/// Returns true if an `if` with a value can be lowered to a select.
pub fn is_selection(branch: &syn::ExprIf) -> bool {
    if chained(branch) > NESTED {
        return false;
    }
    let side = |block: &Block| only_value(block).is_some_and(is_cheap);
    let other = branch.else_branch.as_ref().is_some_and(|(_, other)| match &**other {
        Expr::Block(block) => side(&block.block),
        other => is_cheap(other),
    });
    !matches!(*branch.cond, Expr::Let(_)) && !emits(&branch.cond) && side(&branch.then_branch) && other
}

/// Returns the number of conditions in a chain of `else if`.
fn chained(branch: &syn::ExprIf) -> usize {
    let (mut count, mut next) = (1, branch);
    while let Some((_, other)) = &next.else_branch
        && let Expr::If(other) = &**other
    {
        count += 1;
        next = other;
    }
    count
}

/// Returns the value of a block that contains only an expression.
pub fn only_value(block: &Block) -> Option<&Expr> {
    match block.stmts.as_slice() {
        [Stmt::Expr(value, None)] => Some(value),
        _ => None,
    }
}

/// Returns true if control never passes the end of a statement's expression.
pub fn diverges(expr: &Expr) -> bool {
    match expr {
        Expr::Return(_) | Expr::Break(_) | Expr::Continue(_) => true,
        Expr::Block(block) => block_diverges(&block.block),
        Expr::If(branch) => {
            let other = branch.else_branch.as_ref().is_some_and(|(_, other)| diverges(other));
            block_diverges(&branch.then_branch) && other
        }
        _ => false,
    }
}

/// Returns true if control never passes the end of a block.
pub fn block_diverges(block: &Block) -> bool {
    block.stmts.iter().any(|stmt| matches!(stmt, Stmt::Expr(expr, _) if diverges(expr)))
}

/// Returns true if the expression is a numeric literal, possibly negated; only its type can change.
pub fn is_number(expr: &Expr) -> bool {
    literal::number(expr).is_some()
}
