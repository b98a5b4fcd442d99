//! Probes in the author's program: what stands around an expression so that the building code learns its type.

use quote::quote_spanned;
use syn::spanned::Spanned;
use syn::{Expr, Ident};

/// `*probe.of(&value)`, spanned as the value, so that rustc speaks of the author's code.
pub fn around(probe: &Ident, value: Expr) -> Expr {
    let span = value.span();
    // Hygiene keeps the probe's name apart from the author's; its place is the value's, or rustc would point elsewhere.
    let probe = Ident::new(&probe.to_string(), probe.span().located_at(span));
    let value = match value {
        Expr::Lit(_) | Expr::Path(_) | Expr::Call(_) | Expr::MethodCall(_) | Expr::Paren(_) => {
            quote_spanned!(span=> #value)
        }
        other => quote_spanned!(span=> (#other)),
    };
    syn::parse_quote_spanned! { span=> *#probe.of(&#value) }
}
