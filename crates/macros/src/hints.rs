//! Messages about Rust that is outside the kernel language: names of constructs, and replacements.

use syn::{Expr, Macro, Path};

pub const TEXT: &str = "a kernel computes with numbers and bools";
pub const SLICE: &str = "index it, `x[i]`, or pass it to a `#[kernel_fn]`";
pub const ARRAY_VALUE: &str = "index it, or copy it element by element";
pub const DEREF: &str = "values need no dereference, slices are indexed";
pub const INDEXED: &str = "index a parameter, an array or a shared array by its name";
pub const SUBSLICE: &str = "index the whole slice and add the offset";
pub const CONDITION_LET: &str = "compare values";
pub const ITEM: &str = "move it out; only `const` and `use` are allowed here";
pub const LABEL: &str = "set a variable and test it in the outer loop";
pub const RETURN: &str = "assign to a variable and return it at the end";
pub const STATIC: &str = "write through a `&mut [T]` argument";
const LOOP: &str = "loop over indices, `for i in 0..x.len()`";
const COPIED: &str = "values are copied";

/// Returns the name of a kind of expression.
pub fn describe(expr: &Expr) -> &'static str {
    match expr {
        Expr::Array(_) | Expr::Repeat(_) => "an array without a name",
        Expr::Assign(_) => "an assignment as a value",
        Expr::Async(_) | Expr::Await(_) => "`async`",
        Expr::Binary(_) => "a compound assignment as a value",
        Expr::Block(block) if block.label.is_some() => "a label",
        Expr::Break(_) | Expr::Continue(_) | Expr::Return(_) => "leaving in the middle of an expression",
        Expr::Call(_) => "the result of a call",
        Expr::Closure(_) => "a closure",
        Expr::Field(_) => "a field",
        Expr::ForLoop(_) | Expr::Loop(_) | Expr::While(_) => "a loop as a value",
        Expr::Index(_) => "an element",
        Expr::Let(_) => "`let` as a condition",
        Expr::Macro(_) => "a macro",
        Expr::Match(_) => "`match`",
        Expr::MethodCall(_) => "the result of a method",
        Expr::Path(_) => "a name that is not a slice",
        Expr::Range(_) => "a range as a value",
        Expr::Reference(_) => "a reference as a value",
        Expr::Struct(_) => "a struct",
        Expr::Try(_) => "`?`",
        Expr::Tuple(_) => "a tuple as a value",
        Expr::Unsafe(_) => "`unsafe`",
        _ => "this expression",
    }
}

/// Returns the name of an expression that is not allowed, and its replacement.
pub fn expression(expr: &Expr) -> (String, String) {
    let instead = match expr {
        Expr::Macro(mac) => {
            let (what, instead) = macro_call(&mac.mac);
            return (what, instead.to_string());
        }
        Expr::Array(_) | Expr::Repeat(_) => "name it, `let mut a = [0.0; 8];`",
        Expr::Assign(_) | Expr::Binary(_) => "make it a statement",
        Expr::Block(_) => LABEL,
        Expr::Closure(_) => "write a `#[kernel_fn]`",
        Expr::Field(_) | Expr::Struct(_) => "take the fields as separate values",
        Expr::ForLoop(_) | Expr::Loop(_) | Expr::While(_) => "assign to a variable inside the loop",
        Expr::Match(_) => "write `if … else if …`",
        Expr::Range(_) => "loop over it, `for i in a..b`",
        Expr::Reference(_) => "take the value itself",
        Expr::Try(_) => "write a flag through a `&mut [T]` argument",
        Expr::Tuple(_) => "take it apart at once, `let (a, b) = …`",
        Expr::Unsafe(_) => "mark the kernel `#[kernel(unchecked)]` to drop the comparisons with the length",
        Expr::Path(_) | Expr::Index(_) | Expr::Call(_) | Expr::MethodCall(_) => INDEXED,
        _ => "keep to values, slices, `if` and loops",
    };
    (describe(expr).to_string(), instead.to_string())
}

/// Returns the name of a macro call, and its replacement.
pub fn macro_call(mac: &Macro) -> (String, &'static str) {
    let name = mac.path.segments.last().map(|last| last.ident.to_string()).unwrap_or_default();
    let instead = match name.as_str() {
        "print" | "println" | "eprint" | "eprintln" | "dbg" | "format" | "write" | "writeln" => {
            "write the value through a `&mut [T]` argument and print it on the host"
        }
        "vec" => "use an array, `let mut a = [0.0; 8];`",
        "assert" | "assert_eq" | "debug_assert" | "debug_assert_eq" | "panic" | "todo" | "unreachable" => {
            "a kernel cannot stop the program; write a flag through a `&mut [T]` argument"
        }
        _ => "write what it expands to, or a `#[kernel_fn]`",
    };
    (format!("the macro `{name}!`"), instead)
}

/// Returns the name of a method that kernels do not support, and its replacement.
pub fn method(name: &str) -> (String, &'static str) {
    let instead = match name {
        "push" | "extend" | "insert" | "pop" | "remove" | "resize" | "truncate" | "clear" | "append" => {
            return (format!("`Vec::{name}`"), "write through a `&mut [T]` argument");
        }
        "iter" | "iter_mut" | "into_iter" | "chunks" | "windows" | "zip" | "enumerate" | "map" | "for_each" | "sum"
        | "fold" | "filter" | "step_by" | "rev" | "fill" | "copy_from_slice" => LOOP,
        "clone" | "to_owned" | "to_vec" | "as_ref" | "as_mut" | "borrow" => COPIED,
        "swap" => "swap with a variable, `let t = x[i]; x[i] = x[j]; x[j] = t;`",
        "get" | "get_mut" | "first" | "last" | "get_unchecked" | "get_unchecked_mut" => {
            "index it, `x[i]`; a read beyond the length gives zero"
        }
        "unwrap" | "expect" | "unwrap_or" | "is_some" | "is_none" | "ok" => "there are no options; test with `if`",
        "into" | "try_into" => "write `as`, or `cast::<T>(x)`",
        "log10" | "log" => "write `x.log2()` times a constant",
        "sinh" | "cosh" | "asin" | "acos" | "atan2" | "hypot" | "cbrt" | "sin_cos" => {
            "compose it of sqrt, exp, ln, sin, cos, atan and tanh"
        }
        _ if name.starts_with("checked_") || name.starts_with("overflowing_") => "there are no options; integers wrap",
        _ => "the methods are listed in `panoply::kernel`",
    };
    (format!("the method `{name}`"), instead)
}

const ALLOCATING: &[&str] = &["Vec", "Box", "String", "HashMap", "BTreeMap", "HashSet", "VecDeque", "Rc", "Arc"];

/// Returns true if a path is a function of a type that allocates.
pub fn allocates(path: &Path) -> bool {
    let ty = path.segments.iter().rev().nth(1);
    ty.is_some_and(|ty| ALLOCATING.iter().any(|name| ty.ident == name))
}

/// Returns the name of an associated function that kernels do not support, and its replacement.
pub fn associated(written: &str, name: &str) -> (String, &'static str) {
    let instead = match written.split("::").next().unwrap_or_default() {
        ty if ALLOCATING.contains(&ty) => {
            "a kernel allocates nothing; use an array, `let mut a = [0.0; 8];`, or a `&mut [T]` argument"
        }
        _ => match name {
            "swap" | "replace" | "take" => "assign through a variable",
            _ => "write a `#[kernel_fn]`",
        },
    };
    (format!("`{written}`"), instead)
}
