//! Probes in the original code: wrappers around expressions that pass inferred types to the building code.

use quote::quote_spanned;
use syn::spanned::Spanned;
use syn::{Expr, Ident};

/// Returns `*probe.of(&value)` with the span of the value, so that rustc refers to the original code.
pub fn around(probe: &Ident, value: Expr) -> Expr {
    let span = value.span();
    // Hygiene keeps the probe's name distinct from the user's; its position is the value's, or rustc would point
    // elsewhere.
    let probe = Ident::new(&probe.to_string(), probe.span().located_at(span));
    let value = match value {
        Expr::Lit(_) | Expr::Path(_) | Expr::Call(_) | Expr::MethodCall(_) | Expr::Paren(_) => {
            quote_spanned!(span=> #value)
        }
        other => quote_spanned!(span=> (#other)),
    };
    syn::parse_quote_spanned! { span=> *#probe.of(&#value) }
}
