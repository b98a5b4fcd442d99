//! From the author's statements to calls that build them.
//!
//! One walk does two things at once: it returns the building code of what it meets, and it plants the probes into the
//! author's own code, which is why everything is taken by `&mut`. What a name stands for (a value, a local, a slice) is
//! known here by scope alone; types never are.
//!
//! Expressions of the kernel IR have no position, Rust's do. Whatever could be changed by a later operand is therefore
//! held in a local first; [`order`] says which operands those are.

mod assign;
mod call;
mod chain;
mod condition;
mod control;
mod function;
mod literal;
mod order;
mod probe;
mod statement;
mod value;

use std::collections::{BTreeMap, HashMap};

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, format_ident, quote};
use syn::{Ident, Path};

pub use function::Returns;
pub use statement::plain;

/// Every mistake of one marked function, so that all are reported at once.
pub struct Mistakes {
    owner: String,
    count: usize,
    found: Option<syn::Error>,
}

impl Mistakes {
    /// None yet; `owner` is how the function is called in messages, `kernel saxpy`.
    pub fn new(owner: String) -> Mistakes {
        Mistakes { owner, count: 0, found: None }
    }

    /// A sentence about some code.
    pub fn add(&mut self, tokens: impl ToTokens, message: &str) {
        self.keep(syn::Error::new_spanned(tokens, format!("{}: {message}", self.owner)));
    }

    /// Something the language does not have, and what to write.
    pub fn outside(&mut self, span: Span, what: &str, instead: &str) {
        self.keep(syn::Error::new(span, outside(&self.owner, what, instead)));
    }

    /// As [`Mistakes::outside`], underlining some code.
    pub fn outside_of(&mut self, tokens: impl ToTokens, what: &str, instead: &str) {
        self.keep(syn::Error::new_spanned(tokens, outside(&self.owner, what, instead)));
    }

    /// How the function is called in messages.
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// A mistake that is ready.
    pub fn keep(&mut self, mistake: syn::Error) {
        self.count += 1;
        match &mut self.found {
            Some(found) => found.combine(mistake),
            None => self.found = Some(mistake),
        }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// All of them as compile errors, or nothing.
    pub fn finish(self) -> Option<TokenStream> {
        self.found.map(|found| found.into_compile_error())
    }
}

fn outside(owner: &str, what: &str, instead: &str) -> String {
    format!("{owner}: {what} is outside the kernel language; {instead}")
}

/// What a name stands for in the building code.
#[derive(Clone, Copy, PartialEq)]
pub enum Name {
    /// An expression that never changes.
    Value,
    /// A local that may change.
    Local,
    /// A slice of a parameter or another memory; whether it is `&mut`.
    Slice(bool),
    /// A shared or private array.
    Array,
    /// A constant item inside the body.
    Constant,
    /// Something that was reported where it was introduced; nothing more is said about it.
    Mistake,
}

impl Name {
    /// Whether it is indexed rather than computed with.
    pub fn is_memory(self) -> bool {
        matches!(self, Name::Slice(_) | Name::Array | Name::Mistake)
    }
}

/// The walk over one function.
pub struct Lower {
    /// What was found wrong.
    pub mistakes: Mistakes,
    /// Where the facade is.
    pub krate: Path,
    /// The emitter in the building code; its span keeps it apart from the author's names.
    pub emitter: Ident,
    /// Every probe that was planted.
    pub probes: Vec<Ident>,
    /// The functions of the language that are called by their bare name.
    pub called: BTreeMap<String, Ident>,
    /// `kernel` of `kernel::maximum`, where one is called so.
    pub module: Option<Ident>,
    /// The first use of what only a group can do, and its name.
    pub needs_group: Option<(Span, String)>,
    scopes: Vec<HashMap<String, Name>>,
    returns: Returns,
    loops: usize,
    /// Whether the body is a loop of one turn, which `return` leaves.
    leaves_loop: bool,
    /// Expressions around this one that are computed although their value may not be wanted.
    unwanted: usize,
}

impl Lower {
    /// Scopes around the statements of a body: its parameters' and its own.
    const BODY_SCOPES: usize = 2;

    /// A walk over the body of the function that messages call `owner`.
    pub fn new(owner: String, krate: Path, returns: Returns) -> Lower {
        Lower {
            mistakes: Mistakes::new(owner),
            krate,
            emitter: ours("emitter"),
            probes: Vec::new(),
            called: BTreeMap::new(),
            module: None,
            needs_group: None,
            scopes: vec![HashMap::new()],
            returns,
            loops: 0,
            leaves_loop: false,
            unwanted: 0,
        }
    }

    /// Makes a name known in the innermost scope.
    pub fn name(&mut self, ident: &Ident, name: Name) {
        let scope = self.scopes.last_mut().expect("the scope of the parameters stays open");
        scope.insert(ident.to_string(), name);
    }

    fn lookup(&self, ident: &Ident) -> Option<Name> {
        let text = ident.to_string();
        self.scopes.iter().rev().find_map(|scope| scope.get(&text).copied())
    }

    fn scoped<R>(&mut self, walk: impl FnOnce(&mut Lower) -> R) -> R {
        self.scopes.push(HashMap::new());
        let result = walk(self);
        self.scopes.pop();
        result
    }

    /// Walks code whose value may not be wanted.
    fn maybe<R>(&mut self, walk: impl FnOnce(&mut Lower) -> R) -> R {
        self.unwanted += 1;
        let result = walk(self);
        self.unwanted -= 1;
        result
    }

    /// A new probe.
    fn probe(&mut self) -> Ident {
        let probe = format_ident!("probe{}", self.probes.len(), span = Span::mixed_site());
        self.probes.push(probe.clone());
        probe
    }

    /// Building code that says on which line the next statements were written.
    fn line(&self, tokens: &impl ToTokens) -> TokenStream {
        let emitter = &self.emitter;
        let line = first_span(tokens).unwrap().line() as u32;
        quote! { #emitter.line(#line); }
    }

    /// Building code where there is none because of a mistake that was reported.
    fn nothing(&self) -> TokenStream {
        let emitter = &self.emitter;
        quote! { #emitter.host(false) }
    }
}

/// A name in the building code that none of the author's can be confused with.
fn ours(name: &str) -> Ident {
    Ident::new(name, Span::mixed_site())
}

/// The span of the first token.
fn first_span(tokens: &impl ToTokens) -> Span {
    tokens.to_token_stream().into_iter().next().map_or_else(Span::call_site, |token| token.span())
}
