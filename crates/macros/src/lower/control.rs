//! Loops, `break` and `continue`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{
    Block, Expr, ExprBreak, ExprContinue, ExprForLoop, ExprLoop, ExprMethodCall, ExprRange, ExprWhile, Ident, Label,
    Pat, RangeLimits,
};

use super::statement::plain;
use super::{Lower, Name, order, ours};
use crate::hints;

/// An index range and its iteration order.
struct Walk<'a> {
    start: &'a mut Expr,
    end: &'a mut Expr,
    step: Option<&'a mut Expr>,
    reversed: bool,
}

impl Lower {
    /// Lowers `while condition { … }`.
    pub(super) fn while_loop(&mut self, each: &mut ExprWhile) -> TokenStream {
        self.no_label(&each.label);
        let emits = order::emits(&each.cond);
        let condition = self.condition(&mut each.cond);
        let body = self.repeated(&mut each.body);
        let emitter = &self.emitter;
        if !emits {
            return quote! { #emitter.begin_while(#condition); #body #emitter.end(); };
        }
        // A condition that needs statements is evaluated inside the loop, so that `continue` evaluates it again.
        quote! {
            #emitter.begin_while(#emitter.host(true));
            #emitter.begin_if(#emitter.not(#condition));
            #emitter.break_loop();
            #emitter.end();
            #body
            #emitter.end();
        }
    }

    /// Lowers `loop { … }`.
    pub(super) fn endless_loop(&mut self, each: &mut ExprLoop) -> TokenStream {
        self.no_label(&each.label);
        let body = self.repeated(&mut each.body);
        let emitter = &self.emitter;
        quote! { #emitter.begin_while(#emitter.host(true)); #body #emitter.end(); }
    }

    /// Lowers `for i in a..b { … }`, also with `.step_by(s)` or `.rev()`.
    pub(super) fn for_loop(&mut self, each: &mut ExprForLoop) -> TokenStream {
        self.no_label(&each.label);
        let counter = match &*each.pat {
            Pat::Ident(pattern) if pattern.mutability.is_none() && pattern.by_ref.is_none() => {
                Some(pattern.ident.clone())
            }
            Pat::Wild(_) => None,
            other => {
                self.mistakes.outside_of(other, "this pattern in `for`", "name the counter, `for i in 0..n`");
                None
            }
        };
        let over = if self.memory(&each.expr).is_some() { "a slice" } else { hints::describe(&each.expr) };
        let mistaken = format!("`for` over {over}");
        let Some(walk) = walk(&mut each.expr) else {
            let (what, instead) = match &*each.expr {
                Expr::Range(_) => ("this range".to_string(), "write `a..b`, and `a..b + 1` for `a..=b`"),
                _ => (mistaken, "loop over indices, `for i in 0..x.len()`"),
            };
            self.mistakes.outside_of(&each.expr, &what, instead);
            return TokenStream::new();
        };
        let (head, value) = self.head(walk, counter.as_ref());
        let body = self.scoped(|lower| {
            let named = counter.map(|counter| {
                lower.name(&counter, Name::Value);
                quote! { let #counter = #value; }
            });
            let body = lower.repeated(&mut each.body);
            quote! {{ #named #body }}
        });
        let emitter = &self.emitter;
        quote! {{ #head #body #emitter.end(); }}
    }

    /// Returns the code that begins the loop, and the value of the user's counter.
    fn head(&mut self, walk: Walk, counter: Option<&Ident>) -> (TokenStream, TokenStream) {
        let Walk { start, end, step, reversed } = walk;
        let text = counter.map_or_else(|| "_".to_string(), plain);
        let (emitter, first, bound, count) = (self.emitter.clone(), ours("first"), ours("bound"), ours("count"));
        let mut operands: Vec<&mut Expr> = [start, end].into_iter().chain(step).collect();
        let stepped = operands.len() == 3;
        let operands = self.operands(&mut operands);
        let (start, end) = (&operands[0], &operands[1]);
        if reversed {
            let head = quote! {
                let #first = #emitter.hold(#start);
                let #bound = #emitter.hold(#end);
                let #count = #emitter.begin_for(#text, #first, #bound, #emitter.one(#first));
            };
            return (head, quote! { #emitter.bind(#text, #emitter.mirrored(#first, #bound, #count)) });
        }
        let begin = if stepped {
            let step = &operands[2];
            quote! { #emitter.begin_steps(#text, #first, #bound, #step) }
        } else {
            quote! { #emitter.begin_for(#text, #first, #bound, #emitter.one(#first)) }
        };
        let head = quote! {
            let #first = #start;
            let #bound = #end;
            let #count = #begin;
        };
        (head, quote! { #count })
    }

    fn repeated(&mut self, body: &mut Block) -> TokenStream {
        self.loops += 1;
        let body = self.block(body);
        self.loops -= 1;
        body
    }

    /// Lowers `break`.
    pub(super) fn break_loop(&mut self, leave: &mut ExprBreak) -> TokenStream {
        if let Some(label) = &leave.label {
            self.mistakes.outside_of(label, "a label", hints::LABEL);
        }
        if let Some(value) = &leave.expr {
            self.mistakes.outside_of(value, "`break` with a value", "assign to a variable before `break`");
        }
        let emitter = &self.emitter;
        quote! { #emitter.break_loop(); }
    }

    /// Lowers `continue`.
    pub(super) fn continue_loop(&mut self, next: &mut ExprContinue) -> TokenStream {
        if let Some(label) = &next.label {
            self.mistakes.outside_of(label, "a label", hints::LABEL);
        }
        let emitter = &self.emitter;
        quote! { #emitter.continue_loop(); }
    }

    fn no_label(&mut self, label: &Option<Label>) {
        if let Some(label) = label {
            self.mistakes.outside_of(label, "a label", hints::LABEL);
        }
    }
}

/// Parses `a..b`, `(a..b).step_by(s)` and `(a..b).rev()`.
fn walk(expr: &mut Expr) -> Option<Walk<'_>> {
    match expr {
        Expr::Paren(inner) => walk(&mut inner.expr),
        Expr::Group(inner) => walk(&mut inner.expr),
        Expr::Range(ExprRange { start: Some(start), end: Some(end), limits: RangeLimits::HalfOpen(_), .. }) => {
            Some(Walk { start, end, step: None, reversed: false })
        }
        Expr::MethodCall(ExprMethodCall { receiver, method, args, .. }) => {
            let plain = walk(receiver).filter(|walk| walk.step.is_none() && !walk.reversed)?;
            match (method.to_string().as_str(), args.len()) {
                ("step_by", 1) => Some(Walk { step: args.first_mut(), ..plain }),
                ("rev", 0) => Some(Walk { reversed: true, ..plain }),
                _ => None,
            }
        }
        _ => None,
    }
}
