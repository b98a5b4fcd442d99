//! The items that are generated for a marked function.
//!
//! For `fn saxpy` these are a function that prepares a launch and, under the same name in the type namespace, an
//! empty enum with the function `build`. Unlike a module, the enum is in the scope of the marked function, also
//! inside a function body. For a kernel function these are the function itself and an enum with `inline`.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote};
use syn::punctuated::Punctuated;
use syn::{Attribute, Expr, GenericParam, Generics, ItemFn, Path, Token};

use crate::language;
use crate::lower::{Lower, Name, Returns};
use crate::options::Options;
use crate::signature::{self, Param, ParamKind};

/// Generates the items of a kernel.
pub fn kernel(options: TokenStream, item: TokenStream) -> TokenStream {
    let function = match syn::parse2::<ItemFn>(item.clone()) {
        Ok(function) => function,
        Err(mistake) => return beside(mistake, item),
    };
    let (options, mistake) = read_options(options);
    let name = &function.sig.ident;
    let mut lower = Lower::new(format!("kernel {name}"), options.krate.clone(), Returns::Kernel);
    signature::returns_nothing(&function.sig.output, &mut lower.mistakes);
    let params = signature::read(&function.sig, &mut lower.mistakes);
    let launch = launch(&function, &options, &params);
    let build = build(&function, &options, &params, lower, mistake);
    items(&function, launch, build)
}

/// Generates the items of a kernel function.
pub fn kernel_fn(options: TokenStream, item: TokenStream) -> TokenStream {
    let function = match syn::parse2::<ItemFn>(item.clone()) {
        Ok(function) => function,
        Err(mistake) => return beside(mistake, item),
    };
    let (options, mut mistake) = read_options(options);
    if mistake.is_none() && (options.group.is_some() || options.unchecked) {
        let message = "`group` and `unchecked` belong to the kernel that calls the function";
        mistake = Some(syn::Error::new(function.sig.ident.span(), message));
    }
    let name = &function.sig.ident;
    if mistake.is_none() && language::has_function(name) {
        let message = format!("`{name}` is a function of the kernel language; give the function another name");
        mistake = Some(syn::Error::new(name.span(), message));
    }
    let returns = Returns::of(&function.sig.output);
    let mut lower = Lower::new(format!("kernel function {name}"), options.krate.clone(), returns);
    let params = signature::read(&function.sig, &mut lower.mistakes);
    let (inline, mistaken) = inline(&function, &params, lower, mistake);
    let plain = plain(&function, &options.krate, mistaken);
    items(&function, plain, inline)
}

fn read_options(options: TokenStream) -> (Options, Option<syn::Error>) {
    match syn::parse2(options) {
        Ok(options) => (options, None),
        Err(mistake) => (Options::none(), Some(mistake)),
    }
}

/// Reports an item that is not a function, and keeps it unchanged.
fn beside(mistake: syn::Error, item: TokenStream) -> TokenStream {
    let mistake =
        syn::Error::new(mistake.span(), format!("only a function can be a kernel; {mistake}")).into_compile_error();
    quote! { #mistake #item }
}

/// Returns all mistakes as compile errors. They become the body of the function that cannot be built, so that its
/// callers still compile.
fn mistakes(lower: Lower, options: Option<syn::Error>) -> Option<TokenStream> {
    let found = lower.mistakes.finish();
    let options = options.map(|mistake| mistake.into_compile_error());
    (found.is_some() || options.is_some()).then(|| quote! { #options #found })
}

/// Generates the function and the enum of the same name.
fn items(function: &ItemFn, outer: TokenStream, inner: TokenStream) -> TokenStream {
    let (name, vis) = (&function.sig.ident, &function.vis);
    let about = format!("Kernel builder of `{name}`.");
    let conditions: Vec<&Attribute> = function.attrs.iter().filter(|attr| attr.path().is_ident("cfg")).collect();
    quote! {
        #outer

        #(#conditions)*
        #[doc = #about]
        #[allow(non_camel_case_types, dead_code)]
        #vis enum #name {}

        #(#conditions)*
        #[allow(dead_code, clippy::all)]
        impl #name { #inner }
    }
}

/// Generates `saxpy::build`.
fn build(
    function: &ItemFn,
    options: &Options,
    params: &[Param],
    mut lower: Lower,
    mistake: Option<syn::Error>,
) -> TokenStream {
    let (name, krate) = (&function.sig.ident, &options.krate);
    let mut body = (*function.block).clone();
    declare(params, &mut lower);
    let code = lower.body(&mut body);
    let group = group(options, &mut lower);
    let unchecked = options.unchecked.then(|| {
        let emitter = &lower.emitter;
        quote! { #emitter.unchecked(); }
    });
    let emitter = lower.emitter.clone();
    let setup = params.iter().map(|param| parameter(param, &emitter));
    let (generics, _) = plain_generics(&function.sig.generics);
    let clause = &function.sig.generics.where_clause;
    let (probes, program) = (probes(&lower), program(function, &body.stmts, &lower));
    let text = name.to_string();
    let about = format!("Builds the kernel `{name}`.");
    let body = mistakes(lower, mistake).unwrap_or_else(|| {
        quote! {
            #probes
            #program
            let #emitter = #krate::kernel::emit::Emitter::new(#text, file!());
            #[allow(unused, non_snake_case, overflowing_literals)]
            {
                #group
                #unchecked
                #(#setup)*
                #code
            }
            #emitter.finish()
        }
    });
    quote! {
        #[doc = #about]
        pub fn build #generics () -> #krate::Result<#krate::kernel::Kernel> #clause { #body }
    }
}

/// Generates `helper::inline`; true if its body only reports mistakes.
fn inline(function: &ItemFn, params: &[Param], mut lower: Lower, mistake: Option<syn::Error>) -> (TokenStream, bool) {
    let (name, krate) = (&function.sig.ident, lower.krate.clone());
    let mut body = (*function.block).clone();
    declare(params, &mut lower);
    let code = lower.body(&mut body);
    let emitter = lower.emitter.clone();
    let takes = params.iter().map(|param| {
        let name = &param.name;
        match &param.kind {
            ParamKind::Scalar(ty) => quote! { #name: #krate::kernel::emit::Typed<#ty> },
            ParamKind::Slice { element, .. } => quote! { #name: #krate::kernel::emit::Memory<#element> },
            ParamKind::Mistake(ty) => quote! { #name: #ty },
        }
    });
    let setup = params.iter().map(|param| {
        let (name, text) = (&param.name, crate::lower::plain(&param.name));
        match &param.kind {
            ParamKind::Scalar(_) if param.mutable => {
                quote! { let #name = #emitter.declare(#text, #emitter.only(#name.into_values())); }
            }
            ParamKind::Scalar(_) => quote! { let #name = #emitter.bind(#text, #emitter.only(#name.into_values())); },
            ParamKind::Slice { .. } => quote! { let #name = #name.id(); },
            ParamKind::Mistake(_) => TokenStream::new(),
        }
    });
    let (generics, _) = plain_generics(&function.sig.generics);
    let clause = &function.sig.generics.where_clause;
    let output = match &function.sig.output {
        syn::ReturnType::Default => quote! { () },
        syn::ReturnType::Type(_, ty) => quote! { #ty },
    };
    let (probes, program) = (probes(&lower), program(function, &body.stmts, &lower));
    let text = name.to_string();
    let about = format!("Inlines `{name}` into a kernel that is being built.");
    let mistakes = mistakes(lower, mistake);
    let mistaken = mistakes.is_some();
    let body = mistakes.unwrap_or_else(|| {
        quote! {
            #probes
            #program
            if !#emitter.enter(#text, file!()) {
                return #emitter.absent();
            }
            let values = {
                #(#setup)*
                #code
            };
            #emitter.leave();
            #krate::kernel::emit::Typed::new(values)
        }
    });
    let inline = quote! {
        #[doc = #about]
        #[doc(hidden)]
        #[allow(unused, non_snake_case, overflowing_literals)]
        pub fn inline #generics (
            #emitter: &#krate::kernel::emit::Emitter,
            #(#takes),*
        ) -> #krate::kernel::emit::Typed<#output> #clause { #body }
    };
    (inline, mistaken)
}

/// Generates the marked function's body for rustc to check; it is never called.
///
/// The functions of the language are imported by a glob, which items of the same names near the marked function would
/// silently shadow. Importing such a name explicitly is an error then, so each called function is imported once more
/// by name.
fn program(function: &ItemFn, stmts: &[syn::Stmt], lower: &Lower) -> TokenStream {
    let (params, krate, called) = (&function.sig.inputs, &lower.krate, lower.called.values());
    let module = lower.module.as_ref().map(|kernel| {
        quote! { #[allow(unused_imports)] const _: () = { use #krate::*; use #kernel as _; }; }
    });
    let output = match &function.sig.output {
        syn::ReturnType::Default => quote! { -> () },
        output => quote! { #output },
    };
    quote! {
        let _ = |#params| #output {
            #[allow(unused_imports)]
            use #krate::kernel::language::*;
            #module
            #(#[allow(unused_imports)] use #called as _;)*
            #(#stmts)*
        };
    }
}

/// Generates the kernel function as an ordinary function.
fn plain(function: &ItemFn, krate: &Path, mistaken: bool) -> TokenStream {
    let ItemFn { attrs, vis, sig, block } = function;
    let stmts = &block.stmts;
    let body = if mistaken {
        quote! { loop {} }
    } else {
        quote! { #[allow(unused_imports)] use #krate::kernel::language::*; #(#stmts)* }
    };
    let unused = mistaken.then(|| quote! { #[allow(unused)] });
    quote! {
        #(#attrs)*
        #unused
        // The kernel language lacks what clippy suggests here.
        #[allow(
            dead_code,
            clippy::explicit_counter_loop,
            clippy::manual_memcpy,
            clippy::manual_swap,
            clippy::needless_range_loop,
            clippy::too_many_arguments
        )]
        #vis #sig { #body }
    }
}

/// Generates the function that prepares a launch.
fn launch(function: &ItemFn, options: &Options, params: &[Param]) -> TokenStream {
    let (krate, attrs, vis, name) = (&options.krate, &function.attrs, &function.vis, &function.sig.ident);
    let takes = params.iter().map(|Param { name, kind, .. }| match kind {
        ParamKind::Scalar(ty) => quote! { #name: #ty },
        ParamKind::Slice { element, mutable } => match mutable {
            false => quote! { #name: &'launch (impl #krate::kernel::argument::AsBuffer<#element> + ?Sized) },
            true => quote! { #name: &'launch mut (impl #krate::kernel::argument::AsBufferMut<#element> + ?Sized) },
        },
        ParamKind::Mistake(ty) => quote! { #name: #ty },
    });
    let passes = params.iter().filter_map(|Param { name, kind, .. }| match kind {
        ParamKind::Scalar(_) => Some(quote! { #krate::kernel::argument::scalar(#name) }),
        ParamKind::Slice { element, mutable } => {
            let way = format_ident!("{}", if *mutable { "write" } else { "read" });
            Some(quote! { #krate::kernel::argument::#way::<#element>(#name) })
        }
        ParamKind::Mistake(_) => None,
    });
    let (plain, arguments) = plain_generics(&function.sig.generics);
    let own: Punctuated<GenericParam, Token![,]> = match syn::parse2::<Generics>(plain) {
        Ok(generics) => generics.params,
        Err(_) => Punctuated::new(),
    };
    let own = own.iter();
    let unused = params.iter().filter(|param| matches!(param.kind, ParamKind::Mistake(_))).map(|param| &param.name);
    let clause = &function.sig.generics.where_clause;
    quote! {
        #(#attrs)*
        #[allow(dead_code, clippy::too_many_arguments)]
        #[track_caller]
        #vis fn #name<'launch, #(#own),*>(#(#takes),*) -> #krate::Launch<'launch> #clause {
            #(let _ = #unused;)*
            #krate::kernel::argument::launch(#name::build #arguments, ::std::vec![#(#passes),*])
        }
    }
}

/// Generates the group size; reports a kernel that needs one and has none.
fn group(options: &Options, lower: &mut Lower) -> TokenStream {
    let Some(axes) = &options.group else {
        if let Some((span, what)) = lower.needs_group.take() {
            let message =
                format!("{}: `{what}` needs a group size; write `#[kernel(group_size = 256)]`", lower.mistakes.owner());
            lower.mistakes.keep(syn::Error::new(span, message));
        }
        return TokenStream::new();
    };
    let mut axes: Vec<Expr> = axes.clone();
    while axes.len() < 3 {
        axes.push(syn::parse_quote!(1));
    }
    let emitter = &lower.emitter;
    quote! { #emitter.group([#(#axes),*]); }
}

fn declare(params: &[Param], lower: &mut Lower) {
    for param in params {
        let name = match &param.kind {
            ParamKind::Scalar(_) if param.mutable => Name::Local,
            ParamKind::Scalar(_) => Name::Value,
            ParamKind::Slice { mutable, .. } => Name::Slice(*mutable),
            ParamKind::Mistake(_) => Name::Mistake,
        };
        lower.name(&param.name, name);
    }
}

/// Generates the code that declares a parameter of a kernel.
fn parameter(param: &Param, emitter: &Ident) -> TokenStream {
    let (name, text) = (&param.name, crate::lower::plain(&param.name));
    match &param.kind {
        ParamKind::Scalar(ty) if param.mutable => {
            quote! { let #name = #emitter.declare(#text, #emitter.scalar::<#ty>(#text)); }
        }
        ParamKind::Scalar(ty) => quote! { let #name = #emitter.scalar::<#ty>(#text); },
        ParamKind::Slice { element, mutable } => {
            quote! { let #name = #emitter.buffer::<#element>(#text, #mutable); }
        }
        ParamKind::Mistake(_) => TokenStream::new(),
    }
}

fn probes(lower: &Lower) -> TokenStream {
    let (probes, krate) = (&lower.probes, &lower.krate);
    quote! { #(let #probes = #krate::kernel::emit::Probe::new();)* }
}

/// Returns the generics as declared, without lifetimes and defaults, and as arguments: `<T, N>`.
fn plain_generics(generics: &Generics) -> (TokenStream, TokenStream) {
    let kept = generics.params.iter().filter(|param| !matches!(param, GenericParam::Lifetime(_)));
    let names: Vec<Ident> = kept
        .clone()
        .map(|param| match param {
            GenericParam::Type(ty) => ty.ident.clone(),
            GenericParam::Const(constant) => constant.ident.clone(),
            GenericParam::Lifetime(_) => format_ident!("_"),
        })
        .collect();
    if names.is_empty() {
        return (TokenStream::new(), TokenStream::new());
    }
    (quote! { <#(#kept),*> }, quote! { ::<#(#names),*> })
}
