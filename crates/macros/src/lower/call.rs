//! Calls: functions of the language, associated functions, methods, and kernel functions, which are inlined.

use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Expr, ExprCall, ExprMethodCall, Ident, Path, PathArguments, Type};

use super::probe::around;
use super::{Lower, Name};
use crate::hints;
use crate::language::{self, Function};

/// Target of a call.
enum Callee {
    /// A function of the language.
    Language(Function),
    /// `f32::max(a, b)`: the type and the method name.
    Method(Type, Ident),
    /// `f32::from(x)`.
    From(Type),
    /// `f16::from_f32(x)`: the type and the function name.
    FromFloat(Type, Ident),
    /// `f32::from_bits(x)`: the type and the function name.
    FromBits(Type, Ident),
    /// A kernel function.
    Inlined,
    /// Anything else, which was reported.
    Mistake,
}

impl Lower {
    /// Lowers a call with one result.
    pub(super) fn call(&mut self, expr: &mut Expr) -> TokenStream {
        if self.is_constant(expr) {
            return self.host(expr);
        }
        let emitter = self.emitter.clone();
        match self.callee(expr) {
            Callee::Language(function) => self.language_call(expr, function),
            Callee::Inlined => {
                let inlined = self.inlined(expr);
                quote! { #emitter.only(#inlined.into_values()) }
            }
            callee => {
                let Expr::Call(call) = expr else { return self.nothing() };
                let mut args: Vec<&mut Expr> = call.args.iter_mut().collect();
                match callee {
                    Callee::Method(ty, name) => {
                        let (args, checked) = (self.operands(&mut args), self.built_in_of(&ty, &name));
                        quote! { #checked.#name(#(#args),*) }
                    }
                    Callee::From(ty) => {
                        let values = self.operands(&mut args);
                        let probe = self.probe();
                        args.into_iter().for_each(|arg| *arg = around(&probe, arg.clone()));
                        quote! { #probe.converted::<#ty>(&#emitter, #(#values),*) }
                    }
                    Callee::FromFloat(ty, name) => {
                        let (args, checked) = (self.operands(&mut args), self.built_in_of(&ty, &name));
                        quote! { #checked.cast::<#ty>(#(#args),*) }
                    }
                    Callee::FromBits(ty, name) => {
                        let (args, checked) = (self.operands(&mut args), self.built_in_of(&ty, &name));
                        quote! { #checked.from_bits::<#ty>(#(#args),*) }
                    }
                    Callee::Language(_) | Callee::Inlined | Callee::Mistake => self.nothing(),
                }
            }
        }
    }

    /// Lowers a call with several results.
    pub(super) fn call_values(&mut self, expr: &mut Expr) -> TokenStream {
        match self.callee(expr) {
            Callee::Inlined => {
                let inlined = self.inlined(expr);
                quote! { #inlined.into_values() }
            }
            Callee::Mistake => quote! { ::std::vec![] },
            _ => {
                let value = self.call(expr);
                quote! { ::std::vec![#value] }
            }
        }
    }

    /// Lowers a call whose result is not used.
    pub(super) fn call_statement(&mut self, expr: &mut Expr) -> TokenStream {
        match self.callee(expr) {
            Callee::Inlined => {
                let inlined = self.inlined(expr);
                quote! { let _ = #inlined; }
            }
            Callee::Mistake => TokenStream::new(),
            Callee::Language(Function::Barrier) => {
                self.group_of_call(expr);
                let emitter = &self.emitter;
                quote! { #emitter.barrier(); }
            }
            _ => {
                let value = self.call(expr);
                quote! { let _ = #value; }
            }
        }
    }

    /// Lowers `x.max(y)`, `x.len()`.
    pub(super) fn method(&mut self, call: &mut ExprMethodCall) -> TokenStream {
        let (emitter, name) = (self.emitter.clone(), call.method.to_string());
        if let Some(memory) = self.memory(&call.receiver) {
            match (name.as_str(), call.args.len()) {
                ("len", 0) => return quote! { #emitter.len(#memory) },
                ("is_empty", 0) => return quote! { #emitter.is_empty(#memory) },
                _ => {}
            }
        } else if language::is_method(&name, call.args.len()) {
            let mut operands: Vec<&mut Expr> = vec![&mut *call.receiver];
            operands.extend(call.args.iter_mut());
            let operands = self.operands(&mut operands);
            let (probe, span) = (self.probe(), of_ours_at(call.method.span()));
            let receiver = around(&probe, (*call.receiver).clone());
            *call.receiver = syn::parse_quote_spanned! { call.receiver.span()=> (#receiver) };
            let [probe, emitter, method] =
                [&probe, &emitter, &call.method].map(|name| Ident::new(&name.to_string(), span));
            let name = self.method_name(&method);
            return quote_spanned! { span=> #probe.built_in(&#emitter, #name).#method(#(#operands),*) };
        }
        let (what, instead) = hints::method(&name);
        self.mistakes.outside_of(&call.method, &what, instead);
        self.nothing()
    }

    fn callee(&mut self, expr: &Expr) -> Callee {
        let Expr::Call(ExprCall { func, args, .. }) = expr else { return Callee::Mistake };
        let Expr::Path(path) = &**func else {
            self.mistakes.outside_of(func, "calling a value", "call a function by its name");
            return Callee::Mistake;
        };
        if path.qself.is_some() {
            self.mistakes.outside_of(path, "a path in `<…>`", "write `f32::max(a, b)` or `a.max(b)`");
            return Callee::Mistake;
        }
        let path = &path.path;
        if let Some(function) = language::function(path) {
            self.note(path);
            return Callee::Language(function);
        }
        let Some(last) = path.segments.last().map(|last| last.ident.clone()) else { return Callee::Mistake };
        let name = last.to_string();
        if is_of_a_trait(path) {
            let what = quote!(#path).to_string().replace(' ', "");
            self.mistakes.outside_of(path, &format!("`{what}`"), "write it as a method, `a.max(b)`");
            return Callee::Mistake;
        } else if language::is_of_a_type(path) {
            let ty = type_of(path);
            match (name.as_str(), args.len()) {
                ("from", 1) => return Callee::From(ty),
                ("from_f32" | "from_f64", 1) => return Callee::FromFloat(ty, last),
                ("from_bits", 1) => return Callee::FromBits(ty, last),
                (_, count) if count > 0 && language::is_method(&name, count - 1) => return Callee::Method(ty, last),
                _ => {}
            }
        } else if !is_foreign(path) && name.starts_with(|first: char| !first.is_uppercase()) {
            return Callee::Inlined;
        }
        let written: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        let (what, instead) = hints::associated(&written.join("::"), &name);
        self.mistakes.outside_of(path, &what, instead);
        Callee::Mistake
    }

    fn language_call(&mut self, expr: &mut Expr, function: Function) -> TokenStream {
        self.group_of_call(expr);
        let emitter = self.emitter.clone();
        let Expr::Call(call) = &mut *expr else { return self.nothing() };
        let Expr::Path(path) = &*call.func else { return self.nothing() };
        let Some(last) = path.path.segments.last().cloned() else { return self.nothing() };
        let name = last.ident;
        match function {
            Function::LaunchValue => quote! { #emitter.#name() },
            Function::LaunchValueOfAxis => {
                let axes: Vec<TokenStream> = call.args.iter().map(|axis| self.constant(axis, "an axis")).collect();
                quote! { #emitter.#name(#(#axes),*) }
            }
            Function::Pure | Function::Cheap | Function::Collective => {
                let mut args: Vec<&mut Expr> = call.args.iter_mut().collect();
                let args = self.operands(&mut args);
                quote! { #emitter.#name(#(#args),*) }
            }
            Function::Broadcast => {
                let mut args = call.args.iter_mut();
                let value = args.next().map(|value| self.value(value));
                let lane = args.next().map(|lane| self.constant(lane, "the lane of a broadcast"));
                quote! { #emitter.#name(#value, #lane) }
            }
            Function::Atomic => self.atomic(call, &name),
            Function::Cast => {
                let value = match call.args.first_mut() {
                    Some(value) => self.value(value),
                    None => self.nothing(),
                };
                let probe = self.probe();
                let written = expr.clone();
                *expr = around(&probe, written);
                quote! { #probe.cast(&#emitter, #value) }
            }
            Function::Barrier => {
                self.mistakes.add(&*expr, "`barrier()` has no value");
                self.nothing()
            }
            Function::Shared => {
                self.mistakes.add(&*expr, "a shared array needs a name, `let mut tile = shared::<f32>(64);`");
                self.nothing()
            }
        }
    }

    /// Lowers `atomic_add(&mut x[i], value)`.
    fn atomic(&mut self, call: &mut ExprCall, name: &Ident) -> TokenStream {
        let emitter = self.emitter.clone();
        let mut args = call.args.iter_mut();
        let place = args.next();
        let memory = match &place {
            Some(Expr::Reference(reference)) => match &*reference.expr {
                Expr::Index(index) => self.memory(&index.expr),
                _ => None,
            },
            _ => None,
        };
        let (Some(memory), Some(Expr::Reference(reference))) = (memory, place) else {
            self.mistakes.add(&call.func, &format!("the first argument of `{name}` is an element, `&mut x[i]`"));
            return self.nothing();
        };
        let Expr::Index(index) = &mut *reference.expr else { return self.nothing() };
        let mut operands: Vec<&mut Expr> = vec![&mut *index.index];
        operands.extend(args);
        let operands = self.operands(&mut operands);
        quote! { #emitter.#name(#memory, #(#operands),*) }
    }

    /// Returns the building code of a kernel function's results.
    fn inlined(&mut self, expr: &mut Expr) -> TokenStream {
        let emitter = self.emitter.clone();
        let Expr::Call(call) = &mut *expr else { return self.nothing() };
        let Expr::Path(path) = &*call.func else { return self.nothing() };
        let inline = inline_path(&path.path);
        let memories: Vec<Option<(Ident, bool)>> = call.args.iter().map(|arg| self.memory_argument(arg)).collect();
        let values = call.args.iter_mut().zip(&memories).filter(|(_, memory)| memory.is_none()).map(|(arg, _)| arg);
        let mut values = self.operands(&mut values.collect::<Vec<_>>()).into_iter();
        let mut passed = Vec::new();
        for (arg, memory) in call.args.iter_mut().zip(memories) {
            let (probe, written) = (self.probe(), arg.clone());
            let span = written.span();
            match memory {
                Some((memory, mutable)) => {
                    let method = format_ident!("{}", if mutable { "slice_mut" } else { "slice" });
                    *arg = syn::parse_quote_spanned! { span=> #probe.#method(#written) };
                    passed.push(quote_spanned! { span=> #probe.memory(#memory) });
                }
                None => {
                    let value = values.next();
                    *arg = around(&probe, written);
                    passed.push(quote_spanned! { span=> #probe.typed(#value) });
                }
            }
        }
        let (probe, written) = (self.probe(), expr.clone());
        *expr = around(&probe, written);
        quote! { #probe.same(#inline(&#emitter, #(#passed),*)) }
    }

    /// Returns the memory if an argument is one; true if it is passed as `&mut`.
    fn memory_argument(&self, arg: &Expr) -> Option<(Ident, bool)> {
        match arg {
            Expr::Reference(reference) => Some((self.memory(&reference.expr)?, reference.mutability.is_some())),
            _ => {
                let memory = self.memory(arg)?;
                let mutable = self.lookup(&memory) == Some(Name::Slice(true));
                Some((memory, mutable))
            }
        }
    }

    /// Returns the emitter, after rustc has checked that the type's function of this name is the one of the kernel
    /// language.
    fn built_in_of(&self, ty: &Type, name: &Ident) -> TokenStream {
        let (emitter, method) = (&self.emitter, self.method_name(name));
        quote_spanned! { name.span()=> #emitter.built_in_of::<#ty, _>(#method) }
    }

    /// Returns the name of a method as a value, at its original position.
    fn method_name(&self, name: &Ident) -> TokenStream {
        let (krate, span) = (&self.krate, name.span());
        let located = quote!(#krate).into_iter().map(|mut token| {
            token.set_span(span);
            token
        });
        let krate: TokenStream = located.collect();
        quote_spanned! { span=> #krate::kernel::emit::method::#name }
    }

    /// Records a called function of the language, whose name must not refer to another function in the scope of the
    /// kernel.
    pub(super) fn note(&mut self, path: &Path) {
        let Some(last) = path.segments.last() else { return };
        let name = last.ident.clone();
        if path.segments.len() == 1 && path.leading_colon.is_none() {
            self.called.entry(name.to_string()).or_insert(name);
            return;
        }
        let mut module = path.clone();
        module.segments.pop();
        module.segments.pop_punct();
        if let Some(bare) = module.get_ident() {
            self.module = Some(bare.clone());
            return;
        }
        let krate = &self.krate;
        let [written, known] = [quote!(#module), quote!(#krate::kernel)].map(|path| path.to_string());
        if written.trim_start_matches(":: ") != known.trim_start_matches(":: ") {
            let instead = format!("write `{name}` alone, or `kernel::{name}`");
            self.mistakes.outside_of(path, "another module called `kernel`", &instead);
        }
    }

    fn group_of_call(&mut self, expr: &Expr) {
        if let Expr::Call(ExprCall { func, .. }) = expr
            && let Expr::Path(path) = &**func
        {
            self.note_group(&path.path);
        }
    }

    /// Records a function that needs a group size.
    pub(super) fn note_group(&mut self, path: &Path) {
        if let Some(last) = path.segments.last()
            && language::needs_group(path)
        {
            self.needs_group.get_or_insert((last.ident.span(), last.ident.to_string()));
        }
    }
}

/// Returns a hygienic span at an original position. All building code of one expression must have one span, or rustc
/// cannot report its position.
fn of_ours_at(place: Span) -> Span {
    Span::mixed_site().located_at(place)
}

/// Returns `f32` of `f32::max`.
fn type_of(path: &Path) -> Type {
    let mut ty = path.clone();
    ty.segments.pop();
    ty.segments.pop_punct();
    syn::parse_quote! { #ty }
}

/// Returns true if the path is a function of a trait with methods of numbers, such as `Ord::max`.
fn is_of_a_trait(path: &Path) -> bool {
    const TRAITS: [&str; 6] = ["Float", "From", "Int", "Number", "Ord", "PartialOrd"];
    path.segments.iter().rev().nth(1).is_some_and(|ty| TRAITS.iter().any(|name| ty.ident == name))
}

/// Returns true if a path leads into the standard library, which has no kernel functions.
fn is_foreign(path: &Path) -> bool {
    path.segments.len() > 1
        && path.segments.first().is_some_and(|first| ["std", "core", "alloc"].iter().any(|name| first.ident == name))
}

/// Converts `math::norm::<f32>` to `math::norm::inline::<f32>`.
fn inline_path(path: &Path) -> TokenStream {
    let mut function = path.clone();
    let mut arguments = PathArguments::None;
    let mut span = path.span();
    if let Some(last) = function.segments.last_mut() {
        span = last.ident.span();
        arguments = std::mem::replace(&mut last.arguments, PathArguments::None);
    }
    let generics = match arguments {
        PathArguments::AngleBracketed(mut arguments) => {
            arguments.colon2_token = Some(Default::default());
            quote! { #arguments }
        }
        _ => TokenStream::new(),
    };
    quote_spanned! { span=> #function::inline #generics }
}
