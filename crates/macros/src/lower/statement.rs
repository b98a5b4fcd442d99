//! Statements, and the patterns of `let`.

use proc_macro2::{Ident, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::{Block, Expr, Item, Local, Pat, PatIdent, Stmt, UseName, UseRename, UseTree};

use super::probe::around;
use super::{Lower, Name, ours};
use crate::hints;
use crate::language;

impl Lower {
    /// Lowers statements in order, in the current scope.
    pub(super) fn statements(&mut self, stmts: &mut [Stmt]) -> TokenStream {
        stmts.iter_mut().map(|stmt| self.statement(stmt)).collect()
    }

    /// Lowers a block without a value, in its own scope.
    pub(super) fn block(&mut self, block: &mut Block) -> TokenStream {
        let stmts = self.scoped(|lower| lower.statements(&mut block.stmts));
        quote! {{ #stmts }}
    }

    fn statement(&mut self, stmt: &mut Stmt) -> TokenStream {
        let line = self.line(stmt);
        if let Some(TokenTree::Punct(first)) = stmt.to_token_stream().into_iter().next()
            && first.as_char() == '#'
        {
            // rustc would apply the attribute to the original code only, not to the building code.
            self.mistakes.outside_of(&*stmt, "an attribute", "put it on the kernel");
        }
        let code = match stmt {
            Stmt::Local(local) => self.local(local),
            Stmt::Item(item) => return self.item(item),
            Stmt::Expr(expr, _) => self.expression(expr),
            Stmt::Macro(mac) => {
                let (what, instead) = hints::macro_call(&mac.mac);
                self.mistakes.outside_of(&*mac, &what, instead);
                TokenStream::new()
            }
        };
        quote! { #line #code }
    }

    /// Copies constants and imports to the building code; rustc checks both.
    fn item(&mut self, item: &Item) -> TokenStream {
        match item {
            Item::Const(constant) => {
                self.name(&constant.ident, Name::Constant);
                quote! { #constant }
            }
            Item::Use(import) => {
                self.import(&import.tree, None);
                quote! { #import }
            }
            other => {
                self.mistakes.outside_of(other, "an item inside a kernel", hints::ITEM);
                TokenStream::new()
            }
        }
    }

    /// Reports imports that shadow a function of the language in the original code.
    fn import(&mut self, tree: &UseTree, module: Option<&Ident>) {
        let language = module.is_some_and(|module| module == "kernel" || module == "language" || module == "prelude");
        match tree {
            UseTree::Path(path) => self.import(&path.tree, Some(&path.ident)),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.import(tree, module)),
            UseTree::Name(UseName { ident, .. }) if language || !language::has_function(ident) => {}
            UseTree::Rename(UseRename { rename, .. }) if !language::has_function(rename) => {}
            UseTree::Name(UseName { ident: name, .. }) | UseTree::Rename(UseRename { rename: name, .. }) => {
                let what = format!("importing another `{name}`");
                self.mistakes.outside_of(name, &what, "import it under another name, `use … as …`");
            }
            // At the top level rustc reports conflicts with the language's own names.
            UseTree::Glob(_) if language || self.scopes.len() <= Lower::BODY_SCOPES => {}
            UseTree::Glob(glob) => {
                self.mistakes.outside_of(glob, "`*` in an import inside a block", "import the names");
            }
        }
    }

    /// Lowers an expression whose value is not used.
    pub(super) fn expression(&mut self, expr: &mut Expr) -> TokenStream {
        match expr {
            Expr::Paren(inner) => self.expression(&mut inner.expr),
            Expr::Group(inner) => self.expression(&mut inner.expr),
            Expr::Assign(assign) => self.assign(assign),
            Expr::Binary(binary) if super::assign::is_compound(&binary.op) => self.compound(binary),
            Expr::If(branch) => self.branch(branch),
            Expr::ForLoop(each) => self.for_loop(each),
            Expr::While(each) => self.while_loop(each),
            Expr::Loop(each) => self.endless_loop(each),
            Expr::Block(block) if block.label.is_none() => self.block(&mut block.block),
            Expr::Break(leave) => self.break_loop(leave),
            Expr::Continue(next) => self.continue_loop(next),
            Expr::Return(ret) => self.return_from(ret),
            Expr::Call(_) => self.call_statement(expr),
            other => {
                let value = self.value(other);
                quote! { let _ = #value; }
            }
        }
    }

    fn local(&mut self, local: &mut Local) -> TokenStream {
        let before = self.mistakes.count();
        let names = names(&local.pat);
        let code = self.introduction(local);
        if self.mistakes.count() > before {
            names.iter().for_each(|name| self.name(name, Name::Mistake));
        }
        code
    }

    fn introduction(&mut self, local: &mut Local) -> TokenStream {
        let Some(init) = &mut local.init else {
            self.mistakes.outside_of(&*local, "`let` without a value", "give the variable its first value");
            return TokenStream::new();
        };
        if let Some((_, other)) = &init.diverge {
            self.mistakes.outside_of(other, "`let … else`", "write an `if`");
            return TokenStream::new();
        }
        let pattern = match &local.pat {
            Pat::Type(typed) => &*typed.pat,
            pattern => pattern,
        };
        match pattern {
            Pat::Wild(_) => {
                let value = self.value(&mut init.expr);
                quote! { let _ = #value; }
            }
            Pat::Ident(ident) => {
                let ident = ident.clone();
                self.named(&ident, &mut init.expr)
            }
            Pat::Tuple(tuple) => {
                let names: Vec<Pat> = tuple.elems.iter().cloned().collect();
                self.destructured(&names, &mut init.expr)
            }
            other => {
                let what = format!("the pattern `{}`", quote!(#other));
                self.mistakes.outside_of(other, &what, "give each value a name");
                TokenStream::new()
            }
        }
    }

    fn named(&mut self, pattern: &PatIdent, init: &mut Expr) -> TokenStream {
        let ident = &pattern.ident;
        if let Some(word) = pattern.by_ref {
            self.mistakes.outside(word.span, "`ref`", "values are copied");
        }
        if let Some(code) = self.array(ident, init) {
            self.name(ident, Name::Array);
            return code;
        }
        if let Some((memory, name)) = self.alias(init) {
            self.name(ident, name);
            return quote! { let #ident = #memory; };
        }
        let value = self.value(init);
        self.introduce(ident, pattern.mutability.is_some(), value)
    }

    /// Declares a new value or local of the user.
    pub(super) fn introduce(&mut self, ident: &Ident, mutable: bool, value: TokenStream) -> TokenStream {
        let (emitter, text) = (self.emitter.clone(), plain(ident));
        self.name(ident, if mutable { Name::Local } else { Name::Value });
        if mutable {
            quote! { let #ident = #emitter.declare(#text, #value); }
        } else {
            quote! { let #ident = #emitter.bind(#text, #value); }
        }
    }

    fn destructured(&mut self, patterns: &[Pat], init: &mut Expr) -> TokenStream {
        let count = patterns.len();
        let values = self.values(init, count);
        let (emitter, rest) = (self.emitter.clone(), ours("rest"));
        let mut code = quote! { let mut #rest = #emitter.several(#values, #count).into_iter(); };
        for pattern in patterns {
            let next = quote! { #emitter.next(&mut #rest) };
            code.extend(match pattern {
                Pat::Wild(_) => quote! { let _ = #next; },
                Pat::Ident(ident) if ident.subpat.is_none() && ident.by_ref.is_none() => {
                    self.introduce(&ident.ident, ident.mutability.is_some(), next)
                }
                other => {
                    self.mistakes.outside_of(other, "a pattern within a pattern", "give each value a name");
                    TokenStream::new()
                }
            });
        }
        code
    }

    /// Lowers `[0.0; 8]`, `[a, b, c]` and `shared::<f32>(64)`.
    fn array(&mut self, ident: &Ident, init: &mut Expr) -> Option<TokenStream> {
        let (emitter, text) = (self.emitter.clone(), plain(ident));
        match init {
            Expr::Paren(inner) => self.array(ident, &mut inner.expr),
            Expr::Group(inner) => self.array(ident, &mut inner.expr),
            Expr::Repeat(repeat) => {
                let probe = self.probe();
                let len = self.constant(&repeat.len, "the length of an array");
                let value = self.value(&mut repeat.expr);
                *repeat.expr = around(&probe, (*repeat.expr).clone());
                Some(quote! { let #ident = #probe.filled(&#emitter, #text, #value, #len); })
            }
            Expr::Array(array) => {
                let probe = self.probe();
                let mut elems: Vec<&mut Expr> = array.elems.iter_mut().collect();
                let values = self.operands(&mut elems);
                if let Some(first) = array.elems.first_mut() {
                    *first = around(&probe, first.clone());
                }
                Some(quote! { let #ident = #probe.listed(&#emitter, #text, &[#(#values),*]); })
            }
            Expr::Call(call) => {
                let Expr::Path(path) = &*call.func else { return None };
                if !language::is_shared(&path.path) {
                    return None;
                }
                self.note(&path.path);
                self.note_group(&path.path);
                let ([len], probe) = (call.args.iter().collect::<Vec<_>>().try_into().ok()?, self.probe());
                let len = self.constant(len, "the length of a shared array");
                let written = init.clone();
                *init = syn::parse_quote! { #probe.boxed(#written) };
                Some(quote! { let #ident = #probe.shared(&#emitter, #text, #len); })
            }
            _ => None,
        }
    }

    /// Returns the memory if the initializer is another name for a slice.
    fn alias(&self, init: &Expr) -> Option<(Ident, Name)> {
        match init {
            Expr::Paren(inner) => self.alias(&inner.expr),
            Expr::Group(inner) => self.alias(&inner.expr),
            Expr::Reference(reference) => {
                let memory = self.memory(&reference.expr)?;
                Some((memory, Name::Slice(reference.mutability.is_some())))
            }
            Expr::Path(_) => {
                let memory = self.memory(init)?;
                let name = self.lookup(&memory)?;
                // An array would be copied, which is reported where it is used as a value.
                matches!(name, Name::Slice(_)).then_some((memory, name))
            }
            _ => None,
        }
    }
}

/// Returns the names that a pattern binds.
fn names(pattern: &Pat) -> Vec<Ident> {
    match pattern {
        Pat::Ident(ident) => vec![ident.ident.clone()],
        Pat::Type(typed) => names(&typed.pat),
        Pat::Tuple(tuple) => tuple.elems.iter().flat_map(names).collect(),
        _ => Vec::new(),
    }
}

/// Returns the name without `r#`.
pub fn plain(ident: &Ident) -> String {
    let text = ident.to_string();
    text.strip_prefix("r#").map_or(text.clone(), str::to_string)
}
