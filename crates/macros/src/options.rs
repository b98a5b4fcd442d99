//! Options of `#[kernel(…)]`.

use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Expr, ExprTuple, Ident, Path, Token};

/// Options of one attribute.
pub struct Options {
    /// Group size along each axis, as written.
    pub group: Option<Vec<Expr>>,
    /// True if reads and writes are not bounds-checked; launching is unsafe then.
    pub unchecked: bool,
    /// Path of the facade crate.
    pub krate: Path,
}

impl Options {
    /// Returns the options of an attribute without arguments.
    pub fn none() -> Options {
        Options { group: None, unchecked: false, krate: syn::parse_quote!(::panoply) }
    }
}

impl Parse for Options {
    fn parse(input: ParseStream) -> syn::Result<Options> {
        let mut options = Options::none();
        while !input.is_empty() {
            if input.peek(Token![crate]) {
                input.parse::<Token![crate]>()?;
                input.parse::<Token![=]>()?;
                options.krate = input.call(Path::parse_mod_style)?;
            } else {
                let name: Ident = input.parse()?;
                match name.to_string().as_str() {
                    "group_size" => {
                        input.parse::<Token![=]>()?;
                        options.group = Some(axes(input.parse()?)?);
                    }
                    "unchecked" => options.unchecked = true,
                    other => {
                        let message = format!(
                            "`{other}` is not an option of a kernel; the options are `group_size = 256`, `group_size = (16, 16)`, \
                             `unchecked` and `crate = path`"
                        );
                        return Err(syn::Error::new(name.span(), message));
                    }
                }
            }
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(options)
    }
}

/// Parses `256`, `(16, 16)` or `(8, 8, 4)`.
fn axes(group: Expr) -> syn::Result<Vec<Expr>> {
    let elems: Punctuated<Expr, Token![,]> = match group {
        Expr::Tuple(ExprTuple { elems, .. }) => elems,
        Expr::Paren(inner) => [*inner.expr].into_iter().collect(),
        single => [single].into_iter().collect(),
    };
    if elems.is_empty() || elems.len() > 3 {
        let message = format!("a group has 1 to 3 axes, not {}", elems.len());
        return Err(syn::Error::new_spanned(elems, message));
    }
    Ok(elems.into_iter().collect())
}
