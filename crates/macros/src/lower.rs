//! Lowering of statements to calls that build them.
//!
//! One traversal does two things: it returns the building code, and it inserts the probes into the original code, so
//! everything is taken by `&mut`. The role of a name (value, local, slice) is known here from scopes alone; types are
//! not known.
//!
//! Expressions of the kernel IR are evaluated where they are used, Rust's where they are written. Therefore an
//! operand that a later operand can change is first stored in a local; [`order`] determines these operands.

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

/// The mistakes in one marked function, collected so that all are reported at once.
pub struct Mistakes {
    owner: String,
    count: usize,
    found: Option<syn::Error>,
}

impl Mistakes {
    /// Creates an empty list; `owner` is the function's name in messages, such as `kernel saxpy`.
    pub fn new(owner: String) -> Mistakes {
        Mistakes { owner, count: 0, found: None }
    }

    /// Adds a message about some code.
    pub fn add(&mut self, tokens: impl ToTokens, message: &str) {
        self.keep(syn::Error::new_spanned(tokens, format!("{}: {message}", self.owner)));
    }

    /// Reports a construct that the language lacks, and its replacement.
    pub fn outside(&mut self, span: Span, what: &str, instead: &str) {
        self.keep(syn::Error::new(span, outside(&self.owner, what, instead)));
    }

    /// Like [`Mistakes::outside`], underlining some code.
    pub fn outside_of(&mut self, tokens: impl ToTokens, what: &str, instead: &str) {
        self.keep(syn::Error::new_spanned(tokens, outside(&self.owner, what, instead)));
    }

    /// Returns the function's name in messages.
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// Adds an error.
    pub fn keep(&mut self, mistake: syn::Error) {
        self.count += 1;
        match &mut self.found {
            Some(found) => found.combine(mistake),
            None => self.found = Some(mistake),
        }
    }

    /// Returns the number of mistakes.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns all mistakes as compile errors, or `None`.
    pub fn finish(self) -> Option<TokenStream> {
        self.found.map(|found| found.into_compile_error())
    }
}

fn outside(owner: &str, what: &str, instead: &str) -> String {
    format!("{owner}: {what} is outside the kernel language; {instead}")
}

/// Role of a name in the building code.
#[derive(Clone, Copy, PartialEq)]
pub enum Name {
    /// An immutable value.
    Value,
    /// A mutable local.
    Local,
    /// A slice of a parameter or another memory; true if it is `&mut`.
    Slice(bool),
    /// A shared or private array.
    Array,
    /// A constant item inside the body.
    Constant,
    /// An invalid name, reported where it was introduced; later uses are not reported.
    Mistake,
}

impl Name {
    /// Returns true if it is indexed rather than used as a value.
    pub fn is_memory(self) -> bool {
        matches!(self, Name::Slice(_) | Name::Array | Name::Mistake)
    }
}

/// State of the lowering of one function.
pub struct Lower {
    /// The mistakes found so far.
    pub mistakes: Mistakes,
    /// Path of the facade crate.
    pub krate: Path,
    /// The emitter in the building code; hygiene keeps it distinct from the user's names.
    pub emitter: Ident,
    /// The inserted probes.
    pub probes: Vec<Ident>,
    /// The functions of the language that are called by their bare name.
    pub called: BTreeMap<String, Ident>,
    /// `kernel` of `kernel::maximum`, if a function is called like that.
    pub module: Option<Ident>,
    /// Span and name of the first function that needs a group size.
    pub needs_group: Option<(Span, String)>,
    scopes: Vec<HashMap<String, Name>>,
    returns: Returns,
    loops: usize,
    /// True if the body is a loop with a single iteration, which `return` leaves.
    leaves_loop: bool,
    /// Number of enclosing expressions that are computed speculatively.
    unwanted: usize,
}

impl Lower {
    /// Number of scopes around the statements of a body: the parameters' and its own.
    const BODY_SCOPES: usize = 2;

    /// Creates the state for the body of the function named `owner` in messages.
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

    /// Declares a name in the innermost scope.
    pub fn name(&mut self, ident: &Ident, name: Name) {
        let scope = self.scopes.last_mut().expect("the scope of the parameters remains open");
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

    /// Lowers code that is computed speculatively.
    fn maybe<R>(&mut self, walk: impl FnOnce(&mut Lower) -> R) -> R {
        self.unwanted += 1;
        let result = walk(self);
        self.unwanted -= 1;
        result
    }

    /// Creates a new probe.
    fn probe(&mut self) -> Ident {
        let probe = format_ident!("probe{}", self.probes.len(), span = Span::mixed_site());
        self.probes.push(probe.clone());
        probe
    }

    /// Returns building code that records the source line of the next statements.
    fn line(&self, tokens: &impl ToTokens) -> TokenStream {
        let emitter = &self.emitter;
        let line = first_span(tokens).unwrap().line() as u32;
        quote! { #emitter.line(#line); }
    }

    /// Returns placeholder code in place of code with a reported mistake.
    fn nothing(&self) -> TokenStream {
        let emitter = &self.emitter;
        quote! { #emitter.host(false) }
    }
}

/// Creates a name in the building code that cannot collide with the user's names.
fn ours(name: &str) -> Ident {
    Ident::new(name, Span::mixed_site())
}

/// Returns the span of the first token.
fn first_span(tokens: &impl ToTokens) -> Span {
    tokens.to_token_stream().into_iter().next().map_or_else(Span::call_site, |token| token.span())
}
