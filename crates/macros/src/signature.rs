//! Parameters of kernels and kernel functions.

use syn::{FnArg, GenericParam, Generics, Ident, Pat, ReturnType, Signature, Type};

use crate::lower::Mistakes;

/// One parameter.
pub struct Param {
    /// Name.
    pub name: Ident,
    /// True if it is declared `mut`.
    pub mutable: bool,
    /// Type.
    pub kind: ParamKind,
}

/// Type of a parameter.
pub enum ParamKind {
    /// A value of this type.
    Scalar(Type),
    /// `&[T]` or `&mut [T]`.
    Slice {
        /// `T`.
        element: Type,
        /// True if it is `&mut`.
        mutable: bool,
    },
    /// Anything else, which was reported.
    Mistake(Type),
}

/// Parses the parameters, and reports everything in the signature that the language does not allow.
pub fn read(signature: &Signature, mistakes: &mut Mistakes) -> Vec<Param> {
    let qualifiers = [
        signature.constness.map(|word| (word.span, "const")),
        signature.asyncness.map(|word| (word.span, "async")),
        signature.unsafety.map(|word| (word.span, "unsafe")),
        signature.abi.as_ref().map(|abi| (abi.extern_token.span, "extern")),
    ];
    for (span, word) in qualifiers.into_iter().flatten() {
        mistakes.outside(span, &format!("`{word} fn`"), "write a plain `fn`");
    }
    generics(&signature.generics, mistakes);
    signature.inputs.iter().filter_map(|input| param(input, mistakes)).collect()
}

/// Reports the return type of a kernel.
pub fn returns_nothing(output: &ReturnType, mistakes: &mut Mistakes) {
    let ReturnType::Type(_, ty) = output else { return };
    let unit = matches!(&**ty, Type::Tuple(tuple) if tuple.elems.is_empty());
    if !unit {
        mistakes.add(ty, "a kernel returns nothing; write through a `&mut [T]` argument");
    }
}

fn generics(generics: &Generics, mistakes: &mut Mistakes) {
    for param in &generics.params {
        if let GenericParam::Lifetime(lifetime) = param {
            mistakes.outside_of(lifetime, "a lifetime parameter", "write `&[T]` or `&mut [T]`");
        }
    }
}

fn param(input: &FnArg, mistakes: &mut Mistakes) -> Option<Param> {
    let FnArg::Typed(typed) = input else {
        mistakes.outside_of(input, "`self`", "take the values themselves");
        return None;
    };
    let Pat::Ident(pattern) = &*typed.pat else {
        mistakes.outside_of(&typed.pat, "a pattern as a parameter", "give the parameter a name");
        return None;
    };
    let kind = kind(&typed.ty).unwrap_or_else(|| {
        let ty = &typed.ty;
        let written = quote::quote!(#ty).to_string().replace(' ', "").replace("&mut", "&mut ").replace(';', "; ");
        let what = format!("a parameter of type `{written}`");
        mistakes.outside_of(ty, &what, "take a scalar, `&[T]` or `&mut [T]`");
        ParamKind::Mistake((**ty).clone())
    });
    Some(Param { name: pattern.ident.clone(), mutable: pattern.mutability.is_some(), kind })
}

fn kind(ty: &Type) -> Option<ParamKind> {
    match ty {
        Type::Group(group) => kind(&group.elem),
        Type::Paren(paren) => kind(&paren.elem),
        // `Vec<f32>` and similar types have arguments, scalars and `T` have none; rustc checks the rest.
        Type::Path(path) if path.path.segments.iter().all(|segment| segment.arguments.is_none()) => {
            let last = path.path.segments.last()?;
            (last.ident != "String").then(|| ParamKind::Scalar(ty.clone()))
        }
        Type::Reference(reference) => match &*reference.elem {
            Type::Slice(slice) => {
                Some(ParamKind::Slice { element: (*slice.elem).clone(), mutable: reference.mutability.is_some() })
            }
            _ => None,
        },
        _ => None,
    }
}
