//! `sequential![Linear(784, 128), relu, Linear(128, 10)]`: a network whose literal sizes are checked at compile time.
//!
//! Each layer is a name, most with arguments; [`LAYERS`] lists them. Convolutions also take `padding = "same"` or
//! `padding = [1, 1]`. Sizes that are not literals are checked when the network is built, which checks all sizes
//! again. This module does not know what a layer computes.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote};
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Error, Expr, ExprArray, ExprAssign, ExprLit, Ident, Lit, Token, bracketed, parenthesized};

/// Names of the layers with their arguments.
const LAYERS: &[(&str, &[&str])] = &[
    ("Linear", &["in_features", "out_features"]),
    ("Conv1d", &["in_channels", "out_channels", "[length]"]),
    ("Conv2d", &["in_channels", "out_channels", "[rows, columns]"]),
    ("Conv3d", &["in_channels", "out_channels", "[planes, rows, columns]"]),
    ("MaxPool", &["[kernel_size]"]),
    ("AvgPool", &["[kernel_size]"]),
    ("BatchNorm", &["channels"]),
    ("LayerNorm", &["width"]),
    ("Rnn", &["input_size", "hidden_size"]),
    ("Lstm", &["input_size", "hidden_size"]),
    ("Gru", &["input_size", "hidden_size"]),
    ("MultiHeadAttention", &["num_heads"]),
    ("TransformerEncoderLayer", &["num_heads", "dim_feedforward"]),
    ("Reshape", &["[shape]"]),
    ("dropout", &["p"]),
    ("relu", &[]),
    ("gelu", &[]),
    ("silu", &[]),
    ("sigmoid", &[]),
    ("tanh", &[]),
    ("softmax", &[]),
    ("elu", &[]),
    ("selu", &[]),
    ("relu6", &[]),
    ("gelu_tanh", &[]),
    ("mish", &[]),
    ("softplus", &[]),
    ("softsign", &[]),
    ("hardsigmoid", &[]),
    ("hardswish", &[]),
    ("logsigmoid", &[]),
    ("log_softmax", &[]),
    ("flatten", &[]),
    ("last_time_step", &[]),
    ("time_mean", &[]),
    ("positional_encoding", &[]),
    ("global_avg_pool", &[]),
];

/// Layers that keep the shape of their input: messages name the layer before them instead.
const KEEPING: &[&str] = &[
    "BatchNorm",
    "LayerNorm",
    "MultiHeadAttention",
    "TransformerEncoderLayer",
    "dropout",
    "relu",
    "gelu",
    "silu",
    "sigmoid",
    "tanh",
    "softmax",
    "elu",
    "selu",
    "relu6",
    "gelu_tanh",
    "mish",
    "softplus",
    "softsign",
    "hardsigmoid",
    "hardswish",
    "logsigmoid",
    "log_softmax",
    "positional_encoding",
];

/// `input = [1, 28, 28]`, if given, and the layers.
struct Layers {
    input: Option<Sizes>,
    layers: Vec<Item>,
}

/// A layer as written.
struct Item {
    name: Ident,
    arguments: Vec<Expr>,
    padding: Option<Padding>,
}

/// Padding of a convolution.
enum Padding {
    /// The zeros that keep the lengths.
    Same,
    /// Zeros on both sides of each axis.
    Explicit(Expr),
}

/// Numbers in brackets, with their values if all of them are literals.
struct Sizes {
    tokens: TokenStream,
    known: Option<Vec<usize>>,
}

impl Parse for Layers {
    fn parse(input: ParseStream<'_>) -> Result<Layers, Error> {
        let mut declared = None;
        if input.peek(Ident) && input.peek2(Token![=]) {
            let name: Ident = input.parse()?;
            if name != "input" {
                return Err(Error::new(
                    name.span(),
                    "sequential!: only `input = [lengths]` is allowed before the layers",
                ));
            }
            input.parse::<Token![=]>()?;
            let inner;
            bracketed!(inner in input);
            let lengths = Punctuated::<Expr, Token![,]>::parse_terminated(&inner)?;
            declared = Some(Sizes::of(lengths.iter()));
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        let layers = Punctuated::<Item, Token![,]>::parse_terminated(input)?;
        Ok(Layers { input: declared, layers: layers.into_iter().collect() })
    }
}

impl Parse for Item {
    fn parse(input: ParseStream<'_>) -> Result<Item, Error> {
        let name: Ident = input.parse()?;
        let Some((_, wanted)) = LAYERS.iter().find(|(known, _)| name == known) else {
            let known: Vec<&str> = LAYERS.iter().map(|(known, _)| *known).collect();
            let message = format!("sequential!: there is no layer `{name}`; there are {}", known.join(", "));
            return Err(Error::new(name.span(), message));
        };
        let mut arguments = Vec::new();
        if input.peek(syn::token::Paren) {
            let inner;
            parenthesized!(inner in input);
            arguments = Punctuated::<Expr, Token![,]>::parse_terminated(&inner)?.into_iter().collect();
        }
        let padding =
            match arguments.pop_if(|last| name.to_string().starts_with("Conv") && matches!(last, Expr::Assign(_))) {
                Some(Expr::Assign(assignment)) => Some(Padding::of(&assignment)?),
                _ => None,
            };
        if arguments.len() != wanted.len() {
            let takes = if wanted.is_empty() { name.to_string() } else { format!("{name}({})", wanted.join(", ")) };
            return Err(Error::new(name.span(), format!("sequential!: write it as `{takes}`")));
        }
        for (argument, wanted) in arguments.iter().zip(*wanted) {
            if wanted.starts_with('[') && !matches!(argument, Expr::Array(_)) {
                return Err(Error::new_spanned(
                    argument,
                    format!("sequential!: {name} takes numbers in brackets here"),
                ));
            }
        }
        Ok(Item { name, arguments, padding })
    }
}

impl Padding {
    fn of(assignment: &ExprAssign) -> Result<Padding, Error> {
        let wrong = || {
            let message = "sequential!: write it as `padding = \"same\"` or as numbers in brackets, `padding = [1, 1]`";
            Error::new_spanned(assignment, message)
        };
        match &*assignment.right {
            _ if assignment.left.to_token_stream().to_string() != "padding" => Err(wrong()),
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) if text.value() == "same" => Ok(Padding::Same),
            Expr::Array(_) => Ok(Padding::Explicit((*assignment.right).clone())),
            _ => Err(wrong()),
        }
    }

    /// Returns the length of an axis after a convolution with stride 1; `None` if the kernel does not fit.
    fn length(padding: Option<&Padding>, axis: usize, length: usize, size: usize) -> Option<usize> {
        let zeros = match padding {
            // An even size is reported when the network is built.
            Some(Padding::Same) => return Some(length).filter(|_| size > 0),
            Some(Padding::Explicit(zeros)) => literals(zeros)?.get(axis).copied()?,
            None => 0,
        };
        (length + 2 * zeros + 1).checked_sub(size).filter(|positions| size > 0 && *positions > 0)
    }
}

impl Sizes {
    fn of<'a>(lengths: impl Iterator<Item = &'a Expr>) -> Sizes {
        let lengths: Vec<&Expr> = lengths.collect();
        Sizes { tokens: quote!([#(#lengths),*]), known: lengths.iter().map(|length| literal(length)).collect() }
    }
}

/// Returns the value of a literal.
fn literal(expr: &Expr) -> Option<usize> {
    match expr {
        Expr::Lit(lit) => match &lit.lit {
            Lit::Int(int) => int.base10_parse().ok(),
            _ => None,
        },
        _ => None,
    }
}

fn literals(expr: &Expr) -> Option<Vec<usize>> {
    match expr {
        Expr::Array(ExprArray { elems, .. }) => elems.iter().map(literal).collect(),
        _ => None,
    }
}

/// Known part of the shape between two layers.
enum Known {
    /// All lengths.
    Lengths(Vec<usize>),
    /// The channels, or the features of a row.
    Count(usize),
    /// Nothing.
    Nothing,
}

/// Generates the expression of the network, or reports the first two layers that do not fit.
pub fn expand(input: TokenStream) -> Result<TokenStream, Error> {
    let Layers { input, layers } = syn::parse2(input)?;
    let (lengths, mut known) = match (&input, layers.first()) {
        (Some(sizes), _) => (sizes.tokens.clone(), sizes.known.clone().map_or(Known::Nothing, Known::Lengths)),
        (None, Some(first)) if first.name == "Linear" => {
            let size = &first.arguments[0];
            (quote!([#size]), literal(size).map_or(Known::Nothing, |size| Known::Lengths(vec![size])))
        }
        (None, first) => {
            let span = first.map_or_else(Span::call_site, |first| first.name.span());
            let message = "sequential!: the input shape is missing; begin with it, such as `input = [1, 28, 28]`";
            return Err(Error::new(span, message));
        }
    };
    let mut before = "the input".to_string();
    for layer in &layers {
        known = after(layer, known, &before)?;
        if !KEEPING.contains(&&*layer.name.to_string()) {
            before = layer.shown();
        }
    }
    let layers = layers.iter().map(Item::description);
    Ok(quote!(::panoply::nn::Network::with_input(&#lengths)#(.add_layer(#layers))*))
}

/// Returns the shape after a layer.
fn after(layer: &Item, known: Known, before: &str) -> Result<Known, Error> {
    let arguments = &layer.arguments;
    let name = layer.name.to_string();
    let given = |at_end: bool| match &known {
        Known::Lengths(lengths) => if at_end { lengths.last() } else { lengths.first() }.copied(),
        Known::Count(count) => Some(*count),
        Known::Nothing => None,
    };
    let check = |at: usize, at_end: bool| match (literal(&arguments[at]), given(at_end)) {
        (Some(declared), Some(given)) if declared != given => {
            let message = format!("sequential!: {} takes {declared}, but {before} gives {given}", layer.shown());
            Err(Error::new_spanned(&arguments[at], message))
        }
        _ => Ok(()),
    };
    let count = |at: usize| literal(&arguments[at]);
    let windows = |step: &dyn Fn(usize, usize, usize) -> Option<usize>, first: Option<usize>, sizes: &Expr| {
        let (Known::Lengths(lengths), Some(sizes), Some(first)) = (&known, literals(sizes), first) else {
            return Ok(first.or(given(false)).map_or(Known::Nothing, Known::Count));
        };
        let fit = lengths.len() == sizes.len() + 1;
        let axes = lengths.iter().skip(1).zip(&sizes).enumerate();
        let next: Option<Vec<usize>> = axes.map(|(axis, (length, size))| step(axis, *length, *size)).collect();
        match next {
            Some(next) if fit => Ok(Known::Lengths([&[first], &next[..]].concat())),
            _ => {
                let message = format!("sequential!: {} does not fit {before}, which gives {lengths:?}", layer.shown());
                Err(Error::new_spanned(sizes_of(layer), message))
            }
        }
    };
    Ok(match name.as_str() {
        "Linear" | "Rnn" | "Lstm" | "Gru" => {
            check(0, true)?;
            match (known, count(1)) {
                (Known::Lengths(lengths), Some(outputs)) => {
                    Known::Lengths([&lengths[..lengths.len().saturating_sub(1)], &[outputs]].concat())
                }
                (_, outputs) => outputs.map_or(Known::Nothing, Known::Count),
            }
        }
        "Conv1d" | "Conv2d" | "Conv3d" => {
            check(0, false)?;
            let padding = layer.padding.as_ref();
            if let (Some(Padding::Explicit(Expr::Array(zeros))), Expr::Array(size)) = (padding, &arguments[2])
                && zeros.elems.len() != size.elems.len()
            {
                let (numbers, axes) = (zeros.to_token_stream(), size.to_token_stream());
                let message = format!("sequential!: padding = {numbers} needs one number for each axis of {axes}");
                return Err(Error::new_spanned(zeros, message));
            }
            let is_literal = !matches!(padding, Some(Padding::Explicit(zeros)) if literals(zeros).is_none());
            let length = |axis: usize, length: usize, size: usize| Padding::length(padding, axis, length, size);
            match count(1) {
                Some(outputs) if is_literal => windows(&length, Some(outputs), &arguments[2])?,
                outputs => outputs.map_or(Known::Nothing, Known::Count),
            }
        }
        "MaxPool" | "AvgPool" => {
            let apart =
                |_: usize, length: usize, size: usize| length.checked_div(size).filter(|positions| *positions > 0);
            windows(&apart, given(false), &arguments[0])?
        }
        "BatchNorm" => check(0, false).map(|()| known)?,
        "LayerNorm" => check(0, true).map(|()| known)?,
        "Reshape" => match (&known, literals(&arguments[0])) {
            (Known::Lengths(lengths), Some(others))
                if lengths.iter().product::<usize>() != others.iter().product::<usize>() =>
            {
                let message = format!(
                    "sequential!: {} does not have the number of elements of {lengths:?}, which {before} gives",
                    layer.shown()
                );
                return Err(Error::new_spanned(&arguments[0], message));
            }
            (_, others) => others.map_or(Known::Nothing, Known::Lengths),
        },
        "flatten" => match known {
            Known::Lengths(lengths) => Known::Lengths(vec![lengths.iter().product()]),
            Known::Count(_) | Known::Nothing => Known::Nothing,
        },
        "last_time_step" | "time_mean" => given(true).map_or(Known::Nothing, |features| Known::Lengths(vec![features])),
        "global_avg_pool" => given(false).map_or(Known::Nothing, |channels| Known::Lengths(vec![channels])),
        _ => known,
    })
}

fn sizes_of(layer: &Item) -> TokenStream {
    layer.arguments.last().map_or_else(|| layer.name.to_token_stream(), ToTokens::to_token_stream)
}

impl Item {
    /// Formats the layer as written, on one line.
    fn shown(&self) -> String {
        if self.arguments.is_empty() {
            return self.name.to_string();
        }
        let mut arguments: Vec<String> =
            self.arguments.iter().map(|argument| argument.to_token_stream().to_string()).collect();
        arguments.extend(self.padding.as_ref().map(|padding| match padding {
            Padding::Same => "padding = \"same\"".to_string(),
            Padding::Explicit(zeros) => format!("padding = {}", zeros.to_token_stream()),
        }));
        format!("{}({})", self.name, arguments.join(", ").replace(" ,", ","))
    }

    /// Generates the expression that describes the layer.
    fn description(&self) -> TokenStream {
        let spec = quote!(::panoply::nn::LayerSpec);
        let a = &self.arguments;
        let name = self.name.to_string();
        match name.as_str() {
            "Linear" => {
                let (inputs, outputs) = (&a[0], &a[1]);
                quote!(#spec::linear(#outputs).with_inputs(#inputs))
            }
            "Conv1d" | "Conv2d" | "Conv3d" => {
                let (channels, outputs, size) = (&a[0], &a[1], &a[2]);
                let padding = self.padding.as_ref().map(|padding| match padding {
                    Padding::Same => quote!(.with_padding(::panoply::nn::Padding::Same)),
                    Padding::Explicit(zeros) => quote!(.with_padding(#zeros)),
                });
                quote!(#spec::conv(#outputs, &#size).with_inputs(#channels)#padding)
            }
            "Rnn" | "Lstm" | "Gru" => {
                let (kind, inputs, hidden) = (&self.name, &a[0], &a[1]);
                quote!(#spec::#kind(::panoply::nn::network::layer_spec::RnnSpec::new(#hidden)).with_inputs(#inputs))
            }
            "MaxPool" | "AvgPool" => {
                let make = Ident::new(if name == "MaxPool" { "max_pool" } else { "avg_pool" }, self.name.span());
                let size = &a[0];
                quote!(#spec::#make(&#size))
            }
            "BatchNorm" => quote!(#spec::batch_norm()),
            "LayerNorm" => quote!(#spec::layer_norm()),
            "MultiHeadAttention" => {
                let heads = &a[0];
                quote!(#spec::multi_head_attention(#heads))
            }
            "TransformerEncoderLayer" => {
                let (heads, inner) = (&a[0], &a[1]);
                quote!(#spec::transformer_encoder_layer(#heads, #inner))
            }
            "Reshape" => {
                let lengths = &a[0];
                quote!(#spec::Reshape { shape: ::std::vec::Vec::from(#lengths) })
            }
            "dropout" => {
                let probability = &a[0];
                quote!(#spec::Dropout { p: #probability })
            }
            // The other layers are named as in files: `time_mean` is `TimeMean {}`.
            _ => {
                let words = name.split('_').map(|word| word[..1].to_uppercase() + &word[1..]);
                let kind = Ident::new(&words.collect::<String>(), self.name.span());
                quote!(#spec::#kind {})
            }
        }
    }
}
