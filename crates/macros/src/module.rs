//! `#[derive(Module)]`: visits the fields of a struct in order, by name.
//!
//! Every field must be a `Module`: a layer, a `Param`, a `Vec` or `Option` of them, or a plain number or flag, which
//! has no parameters. The macro does not know types; rustc reports a field that is none of these.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Data, DeriveInput, Error, Fields, Index, Member, parse2};

/// Generates the methods that visit the fields.
pub fn derive(input: TokenStream) -> Result<TokenStream, Error> {
    let input: DeriveInput = parse2(input)?;
    let Data::Struct(data) = &input.data else {
        return Err(Error::new_spanned(
            &input.ident,
            "derive(Module): only a struct of modules and parameters is supported",
        ));
    };
    let members: Vec<Member> = match &data.fields {
        Fields::Named(fields) => {
            fields.named.iter().filter_map(|field| field.ident.clone()).map(Member::Named).collect()
        }
        Fields::Unnamed(fields) => (0..fields.unnamed.len()).map(|i| Member::Unnamed(Index::from(i))).collect(),
        Fields::Unit => Vec::new(),
    };
    let names: Vec<String> = members
        .iter()
        .map(|member| match member {
            Member::Named(name) => name.to_string(),
            Member::Unnamed(index) => index.index.to_string(),
        })
        .collect();
    let root = crate_path(&input)?;
    let name = &input.ident;
    let (generics, arguments, bounds) = input.generics.split_for_impl();
    Ok(quote! {
        #[automatically_derived]
        impl #generics #root::nn::Module for #name #arguments #bounds {
            fn visit(&self, visitor: &mut #root::nn::ParamVisitor<'_>) {
                #(visitor.field(#names, &self.#members);)*
            }

            fn visit_mut(&mut self, visitor: &mut #root::nn::ParamVisitorMut<'_>) -> #root::Result<()> {
                #(visitor.field(#names, &mut self.#members)?;)*
                ::core::result::Result::Ok(())
            }
        }
    })
}

/// Returns `::panoply`, or the path of `#[module(crate = path)]`.
fn crate_path(input: &DeriveInput) -> Result<TokenStream, Error> {
    let mut path = quote!(::panoply);
    for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("module")) {
        attribute.parse_nested_meta(|meta| {
            if !meta.path.is_ident("crate") {
                return Err(meta.error("derive(Module): the only option is `crate = path`"));
            }
            let given: syn::Path = meta.value()?.parse()?;
            path = quote!(#given);
            Ok(())
        })?;
    }
    Ok(path)
}
