//! `prove!(|x in set| condition)`: a claim about all inputs of a set.
//!
//! The condition becomes a function that is traced: comparisons, `argmax(axis) == class` and `is_finite()`, joined by `&&`, become calls of
//! the facade's `verify::Condition`. Everything else is kept as written, so rustc reports its errors.

use proc_macro2::{Span, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::parse::{Parse, ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::{BinOp, Error, Expr, ExprBinary, ExprMethodCall, Ident, Result, Stmt, Token};

const EXPECTED: &str = "expected a condition: a comparison of tensors or numbers (`y <= 1.0`), `y.argmax(axis) == class` or \
                        `y.is_finite()`; conditions are joined by `&&`";

/// `|x in set, d in other| condition, options`.
struct Claim {
    variables: Vec<(Ident, Expr)>,
    condition: Expr,
    options: Option<Expr>,
}

/// `x in set`.
struct Variable(Ident, Expr);

impl Parse for Variable {
    fn parse(input: ParseStream<'_>) -> Result<Variable> {
        let name = input.parse()?;
        input.parse::<Token![in]>()?;
        Ok(Variable(name, input.parse()?))
    }
}

impl Parse for Claim {
    fn parse(input: ParseStream<'_>) -> Result<Claim> {
        input.parse::<Token![|]>()?;
        // Everything up to the next bar; an expression would take the bar as an operator.
        let mut variables = TokenStream::new();
        while !input.peek(Token![|]) {
            variables.extend([input.parse::<TokenTree>()?]);
        }
        input.parse::<Token![|]>()?;
        let variables = Punctuated::<Variable, Token![,]>::parse_terminated.parse2(variables)?;
        if variables.is_empty() {
            return Err(input.error("prove!: expected a variable and its set between the bars: `|x in set|`"));
        }
        for (at, Variable(name, _)) in variables.iter().enumerate() {
            if variables.iter().take(at).any(|Variable(other, _)| other == name) {
                return Err(Error::new_spanned(name, format!("prove!: the variable `{name}` has two sets")));
            }
        }
        let condition = input.parse()?;
        let has_options = input.parse::<Option<Token![,]>>()?.is_some() && !input.is_empty();
        let options = if has_options { Some(input.parse()?) } else { None };
        input.parse::<Option<Token![,]>>()?;
        let variables = variables.into_iter().map(|Variable(name, set)| (name, set)).collect();
        Ok(Claim { variables, condition, options })
    }
}

/// Generates the call of `verify::prove`.
pub fn expand(input: TokenStream) -> Result<TokenStream> {
    let Claim { variables, condition, options } = syn::parse2(input)?;
    let (statements, last) = match &condition {
        Expr::Block(block) if block.attrs.is_empty() && block.label.is_none() => match block.block.stmts.split_last() {
            Some((Stmt::Expr(last, None), statements)) => (statements, last),
            _ => return Err(Error::new_spanned(&condition, EXPECTED)),
        },
        other => (&[][..], other),
    };
    // Invisible to the user's expressions.
    let [inputs, result] = ["inputs", "result"].map(|name| Ident::new(name, Span::mixed_site()));
    let mut calls = TokenStream::new();
    conjunct(last, &result, &mut calls)?;
    let sets = variables.iter().map(|(name, set)| {
        let name = name.to_string();
        quote!((#name, #set))
    });
    let bindings = variables.iter().enumerate().map(|(at, (name, _))| quote!(let #name = &#inputs[#at];));
    let options = options.map_or_else(|| quote!(::panoply::verify::Options::default()), ToTokens::into_token_stream);
    Ok(quote! {
        ::panoply::verify::prove(
            ::core::stringify!(#condition),
            &[#(#sets),*],
            &|#inputs: &[::panoply::Tensor]| -> ::panoply::Result<::panoply::verify::Condition> {
                #(#bindings)*
                #(#statements)*
                let mut #result = ::panoply::verify::Condition::new();
                #calls
                ::core::result::Result::Ok(#result)
            },
            &#options,
        )
    })
}

/// Appends the calls that add a condition to `result`.
fn conjunct(condition: &Expr, result: &Ident, calls: &mut TokenStream) -> Result<()> {
    let call = match condition {
        Expr::Paren(inner) => return conjunct(&inner.expr, result, calls),
        Expr::Binary(ExprBinary { left, op: BinOp::And(_), right, .. }) => {
            conjunct(left, result, calls)?;
            return conjunct(right, result, calls);
        }
        Expr::Binary(ExprBinary { left, op, right, .. }) => match op {
            BinOp::Le(_) => quote!(#result.at_most(&(#left), &(#right))?;),
            BinOp::Lt(_) => quote!(#result.below(&(#left), &(#right))?;),
            BinOp::Ge(_) => quote!(#result.at_most(&(#right), &(#left))?;),
            BinOp::Gt(_) => quote!(#result.below(&(#right), &(#left))?;),
            BinOp::Eq(_) => match (&**left, &**right) {
                (Expr::MethodCall(method), class) if method.method == "argmax" => largest(method, class, result)?,
                (class, Expr::MethodCall(method)) if method.method == "argmax" => largest(method, class, result)?,
                _ => return Err(Error::new_spanned(condition, EXPECTED)),
            },
            _ => return Err(Error::new_spanned(condition, EXPECTED)),
        },
        Expr::MethodCall(method) if method.method == "is_finite" && method.args.is_empty() => {
            let tensor = &method.receiver;
            quote!(#result.finite(&(#tensor))?;)
        }
        other => return Err(Error::new_spanned(other, EXPECTED)),
    };
    calls.extend(call);
    Ok(())
}

/// Returns the call for `y.argmax(axis) == class`.
fn largest(method: &ExprMethodCall, class: &Expr, result: &Ident) -> Result<TokenStream> {
    match (method.args.first(), method.args.len()) {
        (Some(axis), 1) => {
            let tensor = &method.receiver;
            Ok(quote!(#result.argmax(&(#tensor), #axis, #class)?;))
        }
        _ => Err(Error::new_spanned(method, EXPECTED)),
    }
}
