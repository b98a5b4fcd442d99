//! Random kernel functions as Rust source.
//!
//! Every program is valid for all inputs: on the host nothing overflows, divides by zero or indexes out of bounds,
//! because operands are masked or the operation wraps. Floats use operations that the numeric contract defines as
//! exact. What Rust leaves unspecified (the sign of a NaN, the sign of the zero that `min` returns) never reaches a
//! result.

use std::fmt::Write;

/// Number of functions of a kernel.
const FUNCTIONS: usize = 6;

/// The types of the language.
#[derive(Clone, Copy, PartialEq)]
enum Ty {
    Int { bits: u32, signed: bool },
    Usize,
    Bool,
    Float(&'static str),
}

const INTS: [Ty; 8] = {
    const fn int(bits: u32, signed: bool) -> Ty {
        Ty::Int { bits, signed }
    }
    [
        int(8, true),
        int(16, true),
        int(32, true),
        int(64, true),
        int(8, false),
        int(16, false),
        int(32, false),
        int(64, false),
    ]
};
const FLOATS: [Ty; 4] = [Ty::Float("f32"), Ty::Float("f64"), Ty::Float("f16"), Ty::Float("bf16")];
const U32: Ty = Ty::Int { bits: 32, signed: false };

impl Ty {
    fn name(self) -> String {
        match self {
            Ty::Int { bits, signed } => format!("{}{bits}", if signed { 'i' } else { 'u' }),
            Ty::Usize => "usize".into(),
            Ty::Bool => "bool".into(),
            Ty::Float(name) => name.into(),
        }
    }

    fn is_half(self) -> bool {
        matches!(self, Ty::Float("f16" | "bf16"))
    }
}

/// A variable in scope.
#[derive(Clone)]
struct Variable {
    name: String,
    ty: Ty,
    mutable: bool,
}

/// Generator of functions.
struct Generator {
    state: u64,
    text: String,
    names: usize,
    depth: usize,
    scope: Vec<Variable>,
    arrays: Vec<(String, Ty)>,
    result: Ty,
    loops: usize,
}

/// Returns a module with `kernels` kernels, the same for the same seed.
pub fn module(seed: u64, kernels: usize) -> String {
    let mut all = String::from("// Written by `UPDATE_GOLDEN=1 cargo test -p panoply --test it kernel random`.\n\n");
    for kernel in 0..kernels {
        let mut generator = Generator {
            state: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ kernel as u64,
            text: String::new(),
            names: 0,
            depth: 0,
            scope: Vec::new(),
            arrays: Vec::new(),
            result: Ty::Bool,
            loops: 0,
        };
        all.push_str(&generator.kernel(kernel));
    }
    let list: Vec<String> = (0..kernels).map(|kernel| format!("run_{kernel}")).collect();
    writeln!(all, "pub const ALL: [inputs::Run; {kernels}] = [{}];", list.join(", "))
        .expect("writing to a string succeeds");
    all
}

impl Generator {
    fn below(&mut self, count: usize) -> usize {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.state ^ (self.state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % count as u64) as usize
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    fn fresh(&mut self) -> String {
        self.names += 1;
        format!("v{}", self.names)
    }

    fn line(&mut self, line: &str) {
        let indent = "    ".repeat(self.depth);
        writeln!(self.text, "{indent}{line}").expect("writing to a string succeeds");
    }

    /// Returns functions of three parameters, a kernel that calls them, and the code that runs both.
    fn kernel(&mut self, kernel: usize) -> String {
        let types: Vec<Ty> = (0..3).map(|_| self.any()).collect();
        let (mut stores, mut wanted) = (String::new(), String::new());
        for function in 0..FUNCTIONS {
            let name = format!("f_{kernel}_{function}");
            self.function(&name, &types);
            let call = format!("{name}(a, b, c)");
            let result = self.result;
            let bits = |call: &str| match result {
                Ty::Float(_) => {
                    format!("{{ let r = {call}; if r.is_nan() {{ 1u64 }} else {{ r.to_bits() as u64 }} }}")
                }
                _ => format!("{call} as u64"),
            };
            writeln!(stores, "    out[i * {FUNCTIONS} + {function}] = {};", bits(&call))
                .expect("writing to a string succeeds");
            writeln!(wanted, "        want.push({});", bits(&call)).expect("writing to a string succeeds");
        }
        // A bool is passed as a byte, an index as a number that every device supports.
        let held = |ty: Ty| match ty {
            Ty::Bool => "u8".to_string(),
            Ty::Usize => "u32".to_string(),
            other => other.name(),
        };
        let read = |ty: Ty, element: &str| match ty {
            Ty::Bool => format!("{element} & 1 == 1"),
            Ty::Usize => format!("({element} % 1000) as usize"),
            _ => element.to_string(),
        };
        let letters = ["a", "b", "c"];
        let params: Vec<String> =
            letters.iter().zip(&types).map(|(letter, ty)| format!("x{letter}: &[{}]", held(*ty))).collect();
        let lets: String = letters
            .iter()
            .zip(&types)
            .map(|(letter, ty)| format!("let {letter} = {}; ", read(*ty, &format!("x{letter}[i]"))))
            .collect();
        let inputs: String = letters
            .iter()
            .enumerate()
            .map(|(at, letter)| {
                format!("    let x{letter} = inputs::some::<{}>(rows, {});\n", held(types[at]), 10 * kernel + at)
            })
            .collect();
        let functions = std::mem::take(&mut self.text);
        let wide = functions.contains("f64");
        format!(
            "{functions}#[kernel]\nfn kernel_{kernel}({}, out: &mut [u64]) {{\n    let i = global_index();\n    {lets}\n{stores}}}\n\n\
             fn run_{kernel}(device: &Device, rows: usize) -> inputs::Ran {{\n    if {wide} && !device.target().f64 {{\n        \
             return Ok(None);\n    }}\n{inputs}    let mut out = device.zeros::<u64>(rows * {FUNCTIONS})?;\n    \
             kernel_{kernel}(&device.buffer(&xa)?, &device.buffer(&xb)?, &device.buffer(&xc)?, &mut out).launch(rows)?;\n    \
             let mut want = Vec::new();\n    for i in 0..rows {{\n        {lets}\n{wanted}    }}\n    \
             Ok(Some((out.to_vec()?, want)))\n}}\n\n",
            params.join(", ")
        )
    }

    fn any(&mut self) -> Ty {
        match self.below(10) {
            0 => Ty::Bool,
            1 => Ty::Usize,
            2..=5 => *self.pick(&INTS),
            6 | 7 => FLOATS[0],
            _ => *self.pick(&FLOATS),
        }
    }

    fn function(&mut self, name: &str, types: &[Ty]) {
        self.result = self.any();
        if self.result == Ty::Usize {
            self.result = U32;
        }
        self.scope = ["a", "b", "c"]
            .iter()
            .zip(types)
            .map(|(name, ty)| Variable { name: (*name).to_string(), ty: *ty, mutable: false })
            .collect();
        self.arrays.clear();
        self.names = 0;
        let params: Vec<String> =
            self.scope.iter().map(|param| format!("{}: {}", param.name, param.ty.name())).collect();
        let result = self.result;
        self.line("#[kernel_fn]");
        self.line(&format!("fn {name}({}) -> {} {{", params.join(", "), result.name()));
        self.depth += 1;
        for ty in [result, U32] {
            let (value, name) = (self.expression(ty, 2), self.fresh());
            self.line(&format!("let mut {name}: {} = {value};", ty.name()));
            self.scope.push(Variable { name, ty, mutable: true });
        }
        for _ in 0..3 + self.below(3) {
            self.statement(2);
        }
        let last = self.expression(result, 3);
        let operator = match result {
            Ty::Float(_) => "+",
            Ty::Int { .. } | Ty::Usize | Ty::Bool => "^",
        };
        self.line(&format!("v1 {operator} {last}"));
        self.depth -= 1;
        self.line("}");
        self.text.push('\n');
    }

    fn block(&mut self, statements: usize, nesting: usize) {
        let (scope, arrays) = (self.scope.clone(), self.arrays.clone());
        self.depth += 1;
        for _ in 0..statements {
            self.statement(nesting);
        }
        self.depth -= 1;
        (self.scope, self.arrays) = (scope, arrays);
    }

    fn statement(&mut self, nesting: usize) {
        match self.below(if nesting == 0 { 7 } else { 12 }) {
            0 => {
                let ty = self.any();
                let value = self.expression(ty, 3);
                let (name, mutable) = (self.fresh(), self.one_in(2));
                let word = if mutable { "mut " } else { "" };
                self.line(&format!("let {word}{name}: {} = {value};", ty.name()));
                self.scope.push(Variable { name, ty, mutable });
            }
            1..=4 => self.assignment(),
            5 => self.array(),
            6 if nesting == 0 => self.assignment(),
            6 | 7 => self.branch(nesting - 1),
            8 if self.loops == 0 => {
                let (condition, result) = (self.expression(Ty::Bool, 2), self.expression(self.result, 2));
                self.line(&format!("if {condition} {{"));
                self.line(&format!("    return {result};"));
                self.line("}");
            }
            8 | 9 => self.range(nesting - 1),
            10 => self.countdown(nesting - 1),
            _ => {
                let (first, second) = (self.any(), self.any());
                let (condition, a, b, c, d) = (
                    self.expression(Ty::Bool, 2),
                    self.expression(first, 2),
                    self.expression(second, 2),
                    self.expression(first, 2),
                    self.expression(second, 2),
                );
                let (p, q) = (self.fresh(), self.fresh());
                let types = format!("({}, {})", first.name(), second.name());
                self.line(&format!("let ({p}, {q}): {types} = if {condition} {{ ({a}, {b}) }} else {{ ({c}, {d}) }};"));
                self.scope.push(Variable { name: p, ty: first, mutable: false });
                self.scope.push(Variable { name: q, ty: second, mutable: false });
            }
        }
    }

    fn assignment(&mut self) {
        let places: Vec<Variable> = self.scope.iter().filter(|variable| variable.mutable).cloned().collect();
        if places.is_empty() {
            return;
        }
        let Variable { name, ty, .. } = self.pick(&places).clone();
        let value = self.expression(ty, 3);
        let operator = match ty {
            Ty::Int { .. } => *self.pick(&["=", "&=", "|=", "^=", "="]),
            Ty::Bool => *self.pick(&["=", "&=", "|=", "^="]),
            Ty::Float("f32" | "f64") => *self.pick(&["=", "+=", "-=", "*="]),
            _ => "=",
        };
        self.line(&format!("{name} {operator} {value};"));
    }

    fn array(&mut self) {
        let known = self.arrays.clone();
        if !known.is_empty() && self.one_in(2) {
            let (name, ty) = self.pick(&known).clone();
            let (at, value) = (self.expression(Ty::Usize, 1), self.expression(ty, 2));
            self.line(&format!("{name}[{at} & 3] = {value};"));
            return;
        }
        let ty = self.any();
        let name = self.fresh();
        let ty = if matches!(ty, Ty::Bool | Ty::Usize) { U32 } else { ty };
        let values: Vec<String> = (0..4).map(|_| self.expression(ty, 1)).collect();
        let values = if self.one_in(2) { format!("{}; 4", values[0]) } else { values.join(", ") };
        self.line(&format!("let mut {name} = [{values}];"));
        self.arrays.push((name, ty));
    }

    fn branch(&mut self, nesting: usize) {
        let condition = self.expression(Ty::Bool, 2);
        self.line(&format!("if {condition} {{"));
        let count = 1 + self.below(2);
        self.block(count, nesting);
        while self.one_in(3) {
            let condition = self.expression(Ty::Bool, 2);
            self.line(&format!("}} else if {condition} {{"));
            self.block(1, nesting);
        }
        if self.one_in(2) {
            self.line("} else {");
            self.block(1, nesting);
        }
        self.line("}");
    }

    /// Emits a loop over a short range, also with steps of any length.
    fn range(&mut self, nesting: usize) {
        let ty = if self.one_in(3) { Ty::Usize } else { *self.pick(&INTS) };
        let (start, length) = (self.expression(ty, 1), self.expression(ty, 1));
        let (name, text) = (self.fresh(), ty.name());
        let shape = match (ty, self.below(3)) {
            (Ty::Int { bits: 8, .. }, 0) => {
                let (end, step) = (self.expression(ty, 1), self.expression(Ty::Usize, 1));
                format!("({start}..{end}).step_by({step} % 300 + 10)")
            }
            (_, 0) => {
                let step = self.expression(Ty::Usize, 1);
                format!("(({start}) & 15..20 as {text}).step_by({step} % 70000 + 1)")
            }
            (_, 1) => format!("(({start}) & 7..({length}) & 7).rev()"),
            _ => format!("({start}) & 7..({length}) & 7"),
        };
        self.line(&format!("for {name} in {shape} {{"));
        self.scope.push(Variable { name, ty, mutable: false });
        self.loops += 1;
        if self.one_in(3) {
            let (condition, word) = (self.expression(Ty::Bool, 2), *self.pick(&["break", "continue"]));
            self.line(&format!("    if {condition} {{ {word}; }}"));
        }
        let count = 1 + self.below(2);
        self.block(count, nesting);
        self.loops -= 1;
        self.scope.pop();
        self.line("}");
    }

    fn countdown(&mut self, nesting: usize) {
        let (name, start) = (self.fresh(), self.expression(U32, 1));
        self.line(&format!("let mut {name}: u32 = ({start}) & 7;"));
        let condition = self.expression(Ty::Bool, 1);
        self.line(&format!("while {name} > 0 && ({condition} || {name} > 2) {{"));
        self.line(&format!("    {name} -= 1;"));
        self.loops += 1;
        self.block(1, nesting);
        self.loops -= 1;
        self.line("}");
    }
}

/// Expressions.
impl Generator {
    fn expression(&mut self, ty: Ty, depth: usize) -> String {
        if depth == 0 || self.one_in(5) {
            return self.leaf(ty);
        }
        if self.one_in(8) {
            let (condition, a, b) =
                (self.expression(Ty::Bool, depth - 1), self.expression(ty, depth - 1), self.expression(ty, depth - 1));
            return match self.below(2) {
                0 => format!("(if {condition} {{ {a} }} else {{ {b} }})"),
                _ => format!("select({condition}, {a}, {b})"),
            };
        }
        match ty {
            Ty::Int { bits, signed } => self.integer(ty, bits, signed, depth - 1),
            Ty::Usize => {
                let from = *self.pick(&INTS);
                let from = if let Ty::Int { bits, .. } = from { Ty::Int { bits, signed: false } } else { from };
                format!("(({} & 63) as usize)", self.expression(from, depth - 1))
            }
            Ty::Bool => self.condition(depth - 1),
            Ty::Float(_) => self.float(ty, depth - 1),
        }
    }

    fn leaf(&mut self, ty: Ty) -> String {
        let known: Vec<String> =
            self.scope.iter().filter(|known| known.ty == ty).map(|known| known.name.clone()).collect();
        let arrays: Vec<String> =
            self.arrays.iter().filter(|(_, of)| *of == ty).map(|(name, _)| name.clone()).collect();
        if !arrays.is_empty() && self.one_in(3) {
            let name = self.pick(&arrays).clone();
            return format!("{name}[{} & 3]", self.leaf(Ty::Usize));
        }
        if !known.is_empty() && !self.one_in(4) {
            return self.pick(&known).clone();
        }
        if self.one_in(3) { self.literal(ty) } else { self.converted(ty) }
    }

    /// Returns a variable in scope, converted to a type.
    fn converted(&mut self, ty: Ty) -> String {
        let scope = self.scope.clone();
        let Variable { name, ty: from, .. } = self.pick(&scope).clone();
        let value = match from {
            _ if from == ty => return name,
            Ty::Bool => format!("({name} as u32)"),
            _ if from.is_half() => format!("{name}.to_f32()"),
            _ => name,
        };
        match ty {
            Ty::Int { .. } | Ty::Float("f32" | "f64") => format!("({value} as {})", ty.name()),
            Ty::Usize => format!("(({value} as u32 & 63) as usize)"),
            Ty::Bool => format!("({value} as i32 & 1 == 1)"),
            Ty::Float(name) => format!("{name}::from_f32({value} as f32)"),
        }
    }

    fn literal(&mut self, ty: Ty) -> String {
        match ty {
            Ty::Int { bits, signed } => {
                let most = if signed { (1u64 << (bits - 1)) - 1 } else { u64::MAX >> (64 - bits) };
                let value = match self.below(4) {
                    0 => most,
                    1 => most / 3,
                    _ => self.below(20) as u64,
                };
                if signed && self.one_in(3) {
                    format!("(-{value}{})", ty.name())
                } else {
                    format!("{value}{}", ty.name())
                }
            }
            Ty::Usize => format!("{}usize", self.below(12)),
            Ty::Bool => (*self.pick(&["true", "false"])).to_string(),
            Ty::Float(name) if ty.is_half() => {
                let value = *self.pick(&["0.5f32", "-1.25f32", "3.0f32", "100.0f32"]);
                format!("{name}::from_f32({value})")
            }
            Ty::Float(name) => format!("{}{name}", self.pick(&["0.5", "(-1.25)", "3.0", "1e10", "0.1", "0.0"]))
                .replace("(-1.25)f", "-1.25f"),
        }
    }

    /// Returns a number from 1 to 8 of an integer type.
    fn divisor(&mut self, ty: Ty, depth: usize) -> String {
        format!("(({} & 7) + 1)", self.expression(ty, depth))
    }

    fn integer(&mut self, ty: Ty, bits: u32, signed: bool, depth: usize) -> String {
        let name = ty.name();
        let (a, plain, shift) = (self.expression(ty, depth), self.expression(ty, depth), self.expression(U32, depth));
        match self.below(22) {
            0 => format!("({a}).wrapping_add({plain})"),
            1 => format!("({a}).wrapping_sub({plain})"),
            2 => format!("({a}).wrapping_mul({plain})"),
            3 => format!("({a} & {plain})"),
            4 => format!("({a} | {plain})"),
            5 => format!("({a} ^ {plain})"),
            6 => format!("(!{a})"),
            7 => format!("({a}).wrapping_shl({shift})"),
            8 => format!("({a}).wrapping_shr({shift})"),
            9 => format!("({a}).{}({shift})", self.pick(&["rotate_left", "rotate_right"])),
            10 => format!("({a} / {})", self.divisor(ty, depth)),
            11 => format!("({a} % {})", self.divisor(ty, depth)),
            12 => format!("({a}).{}({plain})", self.pick(&["min", "max", "saturating_add", "saturating_sub"])),
            13 => format!("({name}::max({a}, {plain})).clamp(3, 100)"),
            14 => format!("(({a} >> 2) + ({plain} >> 2))"),
            15 => format!("({a} << {})", self.below(bits as usize)),
            16 => format!("({a}).rem_euclid({})", self.divisor(ty, depth)),
            17 if signed => format!("(({a} >> 1).abs() - ({plain} >> 2) ^ {a}.signum())"),
            17 => format!("({a} >> 1).{}({})", self.pick(&["div_ceil", "next_multiple_of"]), self.divisor(ty, depth)),
            18 => format!("({a} & 3).pow(3)"),
            19 => {
                let from = self.any();
                format!("({} as {name})", self.castable(from, depth))
            }
            20 => {
                let of = *self.pick(&INTS);
                let of_value = self.expression(of, depth);
                let method = *self.pick(&["count_ones", "count_zeros", "leading_zeros", "trailing_zeros"]);
                format!("(({of_value}).{method}() as {name})")
            }
            _ => format!("(({a}).abs_diff({plain}) as {name})"),
        }
    }

    /// Returns a value that `as` accepts: f16 and bf16 are not primitive types of Rust.
    fn castable(&mut self, from: Ty, depth: usize) -> String {
        let value = self.expression(from, depth);
        if from.is_half() { format!("({value}).to_f32()") } else { format!("({value})") }
    }

    fn condition(&mut self, depth: usize) -> String {
        let ty = self.any();
        let operator = *self.pick(&["<", "<=", ">", ">=", "==", "!="]);
        match self.below(8) {
            0..=3 => {
                let (a, b) = (self.expression(ty, depth), self.expression(ty, depth));
                format!("(({a}) {operator} ({b}))")
            }
            4 => {
                let (a, b) = (self.expression(Ty::Bool, depth), self.expression(Ty::Bool, depth));
                format!("({a} {} {b})", self.pick(&["&&", "||", "&", "|", "^"]))
            }
            5 => format!("(!{})", self.expression(Ty::Bool, depth)),
            6 => {
                let of = *self.pick(&FLOATS);
                let value = self.expression(of, depth);
                format!("({value}).{}()", self.pick(&["is_nan", "is_finite", "is_infinite"]))
            }
            _ => {
                let of = *self.pick(&INTS[4..]);
                format!("({}).is_power_of_two()", self.expression(of, depth))
            }
        }
    }

    fn float(&mut self, ty: Ty, depth: usize) -> String {
        let name = ty.name();
        let a = self.expression(ty, depth);
        let b = self.expression(ty, depth);
        if ty.is_half() {
            return match self.below(7) {
                0..=3 => format!("({a} {} {b})", self.pick(&["+", "-", "*", "/"])),
                4 => format!("(-{a})"),
                _ => {
                    let from = self.any();
                    let from = if from == Ty::Bool { U32 } else { from };
                    format!("{name}::from_f32({} as f32)", self.castable(from, depth))
                }
            };
        }
        match self.below(14) {
            0..=3 => format!("({a} {} {b})", self.pick(&["+", "-", "*", "/"])),
            4 => format!("({a}).abs().sqrt()"),
            5 => format!(
                "({a}).{}()",
                self.pick(&["floor", "ceil", "trunc", "round", "round_ties_even", "abs", "recip"])
            ),
            6 => format!("(-{a})"),
            7 => format!("(({a}).{}({b}) + 0.0)", self.pick(&["min", "max"])),
            8 => format!("({a}).mul_add({b}, 0.3)"),
            9 => format!("({a}).clamp(-2.5, 1e6)"),
            10 => {
                let n = self.expression(Ty::Int { bits: 32, signed: true }, depth);
                format!("({a}).powi({n} % 40)")
            }
            11 => format!("({a}).powi({})", self.below(7) as i32 - 3),
            _ => {
                let from = self.any();
                let from = if from == Ty::Bool { U32 } else { from };
                format!("({} as {name})", self.castable(from, depth))
            }
        }
    }
}
