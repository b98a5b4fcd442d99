//! Parser for VNN-LIB 1.0: the set of inputs and the forbidden outputs.
//!
//! A file declares `X_i` and `Y_j` and asserts the conditions of a counterexample: comparisons (`<=`, `>=`) of linear expressions, combined
//! by `and` and `or`. The result is a list of cases, each a box of inputs with linear constraints. Decimals are enclosed, never rounded.
//! The file is untrusted: its nesting depth and number of cases are limited, and memory is counted before it is allocated.

use std::collections::BTreeMap;
use std::ops::{Add, Mul, Neg};
use std::path::Path;

use panoply_tensor::{Error, ReadBudget, Result};

use crate::decimal;
use crate::interval::Interval;
use crate::property::{Case, Constraint, Property, Range};
use crate::vnncomp;

/// Maximum nesting depth of brackets.
const MAX_DEPTH: usize = 64;
/// Maximum number of cases of a property, and of comparisons in all cases.
const MAX_CASES: usize = 1 << 14;
const MAX_COMPARISONS: usize = 1 << 20;
/// Maximum number of inputs and of outputs.
const MAX_VARIABLES: usize = 1 << 20;

/// Reads a file, which is decompressed with gzip if its name ends in `.gz`.
///
/// # Errors
/// If the file cannot be read or is not VNN-LIB 1.0; the message contains line and column.
pub fn read(path: &Path) -> Result<Property> {
    let budget = ReadBudget::for_file(path)?;
    let bytes = vnncomp::read_within(path, &budget)?;
    let text = String::from_utf8(bytes).map_err(|_| Error::corrupt(format!("{}: not a text file", path.display())))?;
    property(&text, &Memory { budget: &budget, path }).map_err(|(place, why)| match budget.is_exceeded() {
        true => budget.exceeded(path),
        false => Error::corrupt(format!("{}:{}:{}: {why}", path.display(), place.line, place.column)),
    })
}

/// Parses a property.
///
/// # Errors
/// If the text is not VNN-LIB 1.0; the message begins with line and column.
pub fn parse(text: &str) -> Result<Property> {
    let memory = Memory { budget: &ReadBudget::for_size(text.len() as u64)?, path: Path::new("the property") };
    property(text, &memory).map_err(|(place, why)| Error::corrupt(format!("{}:{}: {why}", place.line, place.column)))
}

/// The memory that parsing a property may take.
struct Memory<'a> {
    budget: &'a ReadBudget,
    path: &'a Path,
}

impl Memory<'_> {
    /// Counts values that are about to be allocated.
    fn take<T>(&self, count: usize) -> std::result::Result<(), String> {
        let taken = self.budget.take_values(count, size_of::<T>(), self.path);
        taken.map_err(|error| error.message().to_string())
    }
}

/// A position in the text, from 1.
#[derive(Clone, Copy, Debug)]
struct Place {
    line: usize,
    column: usize,
}

type Parsed<T> = std::result::Result<T, (Place, String)>;

/// An atom or a parenthesized list.
enum Term<'t> {
    Word(Place, &'t str),
    List(Place, Vec<Term<'t>>),
}

impl Term<'_> {
    fn place(&self) -> Place {
        match self {
            Term::Word(place, _) | Term::List(place, _) => *place,
        }
    }

    /// Returns the term as it appears in a message.
    fn named(&self) -> String {
        match self {
            Term::Word(_, word) => format!("`{}`", word.chars().take(40).collect::<String>().escape_debug()),
            Term::List(..) => "a list".to_string(),
        }
    }
}

/// Splits a text into terms.
fn terms<'t>(text: &'t str, memory: &Memory<'_>) -> Parsed<Vec<Term<'t>>> {
    let mut open: Vec<(Place, Vec<Term<'_>>)> = Vec::new();
    let mut done = Vec::new();
    for (line, content) in text.lines().enumerate() {
        let content = content.split_once(';').map_or(content, |(before, _)| before);
        let mut rest = content;
        loop {
            rest = rest.trim_start();
            let Some(first) = rest.chars().next() else { break };
            let column = content[..content.len() - rest.len()].chars().count() + 1;
            let place = Place { line: line + 1, column };
            let length = match first {
                '(' | ')' => 1,
                _ => rest
                    .find(|letter: char| letter.is_whitespace() || letter == '(' || letter == ')')
                    .unwrap_or(rest.len()),
            };
            let (word, after) = rest.split_at(length);
            rest = after;
            if word == "(" {
                open.push((place, Vec::new()));
                if open.len() > MAX_DEPTH {
                    return Err((place, format!("more than {MAX_DEPTH} nested brackets")));
                }
                continue;
            }
            let term = if word == ")" {
                let (begin, list) = open.pop().ok_or((place, "unexpected `)`".to_string()))?;
                Term::List(begin, list)
            } else {
                Term::Word(place, word)
            };
            // A vector takes up to four times the memory of its values.
            memory.take::<[Term<'_>; 4]>(1).map_err(|why| (place, why))?;
            open.last_mut().map_or(&mut done, |(_, list)| list).push(term);
        }
    }
    match open.pop() {
        Some((place, _)) => Err((place, "unclosed bracket".to_string())),
        None => Ok(done),
    }
}

/// An input or an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Variable {
    Input(usize),
    Output(usize),
}

/// Σ coefficient · variable + constant.
#[derive(Clone, Debug)]
struct Linear {
    coefficients: BTreeMap<Variable, Interval>,
    constant: Interval,
}

impl Linear {
    fn constant(constant: Interval) -> Linear {
        Linear { coefficients: BTreeMap::new(), constant }
    }

    fn plus(mut self, other: Linear) -> Linear {
        // Adding 0 is exact; skipping it keeps a bound that is a point.
        let sum = |a: Interval, b: Interval| {
            let zero = Interval::point(0.0);
            if a == zero {
                b
            } else if b == zero {
                a
            } else {
                a.add(b)
            }
        };
        self.constant = sum(self.constant, other.constant);
        for (variable, coefficient) in other.coefficients {
            let own = self.coefficients.entry(variable).or_insert(Interval::point(0.0));
            *own = sum(*own, coefficient);
        }
        self
    }

    fn times(mut self, by: Interval) -> Linear {
        let one = Interval::point(1.0);
        let product = |x: Interval| {
            if x == one {
                by
            } else if by == one {
                x
            } else {
                x.mul(by)
            }
        };
        self.constant = product(self.constant);
        self.coefficients.values_mut().for_each(|coefficient| *coefficient = product(*coefficient));
        self
    }

    fn negated(mut self) -> Linear {
        self.constant = self.constant.neg();
        self.coefficients.values_mut().for_each(|coefficient| *coefficient = coefficient.neg());
        self
    }
}

/// Conditions of a counterexample; a comparison states that its expression is at most 0.
enum Formula {
    Comparison(Linear),
    And(Vec<Formula>),
    Or(Vec<Formula>),
}

/// Declared variables.
#[derive(Default)]
struct Declared {
    inputs: Vec<bool>,
    outputs: Vec<bool>,
}

impl Declared {
    fn variable(word: &str) -> Option<Variable> {
        let (kind, number) = word.split_once('_')?;
        let plain = !number.is_empty() && number.bytes().all(|letter| letter.is_ascii_digit());
        let number = number.parse().ok().filter(|number| plain && *number < MAX_VARIABLES)?;
        match kind {
            "X" => Some(Variable::Input(number)),
            "Y" => Some(Variable::Output(number)),
            _ => None,
        }
    }

    fn flag(&mut self, variable: Variable) -> &mut bool {
        let (flags, number) = match variable {
            Variable::Input(number) => (&mut self.inputs, number),
            Variable::Output(number) => (&mut self.outputs, number),
        };
        flags.resize(flags.len().max(number + 1), false);
        &mut flags[number]
    }

    fn has(&self, variable: Variable) -> bool {
        let flag = match variable {
            Variable::Input(number) => self.inputs.get(number),
            Variable::Output(number) => self.outputs.get(number),
        };
        flag.copied().unwrap_or(false)
    }
}

fn property(text: &str, memory: &Memory<'_>) -> Parsed<Property> {
    let mut declared = Declared::default();
    let mut asserted = Vec::new();
    let mut end = Place { line: 1, column: 1 };
    for term in terms(text, memory)? {
        end = term.place();
        let Term::List(place, list) = &term else { return Err((end, format!("unexpected {}", term.named()))) };
        match &list[..] {
            [Term::Word(_, "declare-const"), name, Term::Word(_, "Real")] => {
                let variable = match name {
                    Term::Word(_, word) => Declared::variable(word),
                    Term::List(..) => None,
                };
                let named = || format!("{} is not a variable `X_0` or `Y_0` with a small number", name.named());
                let flag = declared.flag(variable.ok_or_else(|| (name.place(), named()))?);
                if std::mem::replace(flag, true) {
                    return Err((name.place(), format!("{} is declared twice", name.named())));
                }
            }
            [Term::Word(_, "assert"), term] => asserted.push(formula(term, &declared, memory)?),
            _ => return Err((*place, "expected `(declare-const NAME Real)` or `(assert …)`".to_string())),
        }
    }
    let whole = |kind: &str, flags: &[bool]| match flags.iter().position(|flag| !flag) {
        Some(missing) => Err((end, format!("{kind}_{missing} is not declared"))),
        None if flags.is_empty() => Err((end, format!("no variable {kind}_0 is declared"))),
        None => Ok(flags.len()),
    };
    let (inputs, outputs) = (whole("X", &declared.inputs)?, whole("Y", &declared.outputs)?);
    let asserted = Formula::And(asserted);
    let cases = cases(&asserted).map_err(|why| (end, why))?;
    let case = |comparisons: &Vec<&Linear>| case(comparisons, (inputs, outputs), memory);
    let found = cases.iter().map(case).collect::<std::result::Result<Vec<_>, _>>();
    let cases: Vec<Case> = found.map_err(|why| (end, why))?.into_iter().flatten().collect();
    if cases.is_empty() {
        return Err((end, "the set of inputs is empty: a lower bound is above its upper bound".to_string()));
    }
    Ok(Property { inputs, outputs, cases, requires_finite: false })
}

fn formula(term: &Term<'_>, declared: &Declared, memory: &Memory<'_>) -> Parsed<Formula> {
    let expected = || (term.place(), format!("expected `<=`, `>=`, `and` or `or` in brackets, found {}", term.named()));
    let Term::List(place, list) = term else { return Err(expected()) };
    let (Term::Word(_, operator), operands) = list.split_first().ok_or_else(expected)? else { return Err(expected()) };
    let all = || operands.iter().map(|operand| formula(operand, declared, memory)).collect::<Parsed<Vec<Formula>>>();
    let compared = |below: &Term<'_>, above: &Term<'_>| {
        let linear = linear(below, declared)?.plus(linear(above, declared)?.negated());
        // A node of a map has room for eleven entries, of which at least five are used except in a map of one node.
        let nodes = linear.coefficients.len() / 5 + 1;
        memory.take::<[(Variable, Interval); 12]>(nodes).map_err(|why| (*place, why))?;
        memory.take::<[Formula; 4]>(1).map_err(|why| (*place, why))?;
        Ok(Formula::Comparison(linear))
    };
    match (*operator, operands) {
        ("and", _) => Ok(Formula::And(all()?)),
        ("or", [_, ..]) => Ok(Formula::Or(all()?)),
        ("<=", [a, b]) => compared(a, b),
        (">=", [a, b]) => compared(b, a),
        ("<=" | ">=" | "or", _) => Err((*place, format!("`{operator}` has {} operands", operands.len()))),
        _ => Err(expected()),
    }
}

fn linear(term: &Term<'_>, declared: &Declared) -> Parsed<Linear> {
    let (place, list) = match term {
        Term::List(place, list) => (*place, list),
        Term::Word(place, word) => return atom(word, declared).map_err(|why| (*place, why)),
    };
    let expected = || (place, "expected a number, a variable, `+`, `-` or `*`".to_string());
    let (Term::Word(_, operator), operands) = list.split_first().ok_or_else(expected)? else { return Err(expected()) };
    let operands = operands.iter().map(|operand| linear(operand, declared)).collect::<Parsed<Vec<Linear>>>()?;
    let mut rest = operands.into_iter();
    let first = rest.next().ok_or_else(expected)?;
    match *operator {
        "+" => Ok(rest.fold(first, Linear::plus)),
        "-" if rest.len() == 0 => Ok(first.negated()),
        "-" => Ok(rest.fold(first, |sum, next| sum.plus(next.negated()))),
        "*" => rest.try_fold(first, |product, next| {
            match (product.coefficients.is_empty(), next.coefficients.is_empty()) {
                (true, _) => Ok(next.times(product.constant)),
                (_, true) => Ok(product.times(next.constant)),
                _ => Err((place, "a product of two variables is not linear".to_string())),
            }
        }),
        _ => Err(expected()),
    }
}

fn atom(word: &str, declared: &Declared) -> std::result::Result<Linear, String> {
    match Declared::variable(word) {
        Some(variable) if declared.has(variable) => {
            let coefficients = BTreeMap::from([(variable, Interval::point(1.0))]);
            Ok(Linear { coefficients, constant: Interval::point(0.0) })
        }
        Some(_) => Err(format!("`{word}` is not declared")),
        None => decimal::enclose(word).map(Linear::constant),
    }
}

/// Converts a formula to disjunctive normal form: alternatives of conjunctions of comparisons.
fn cases(formula: &Formula) -> std::result::Result<Vec<Vec<&Linear>>, String> {
    let count = |cases: &[Vec<&Linear>]| cases.iter().map(Vec::len).sum::<usize>();
    // Checked before the result is built.
    let limited = |cases: usize, comparisons: usize| match cases <= MAX_CASES && comparisons <= MAX_COMPARISONS {
        true => Ok(()),
        false => Err(format!("the property has more than {MAX_CASES} cases or {MAX_COMPARISONS} comparisons")),
    };
    match formula {
        Formula::Comparison(linear) => Ok(vec![vec![linear]]),
        Formula::Or(any) => any.iter().try_fold(Vec::new(), |mut all: Vec<Vec<&Linear>>, formula| {
            let next = cases(formula)?;
            limited(all.len() + next.len(), count(&all) + count(&next))?;
            all.extend(next);
            Ok(all)
        }),
        Formula::And(all) => all.iter().try_fold(vec![Vec::new()], |mut before: Vec<Vec<&Linear>>, formula| {
            let next = cases(formula)?;
            if let [one] = &next[..]
                && one.is_empty()
            {
                return Ok(before);
            }
            let comparisons = count(&before).saturating_mul(next.len());
            let comparisons = comparisons.saturating_add(count(&next).saturating_mul(before.len()));
            limited(before.len().saturating_mul(next.len()), comparisons)?;
            if let [one] = &next[..] {
                // Without copies of what is already joined, which would take quadratic time.
                before.iter_mut().for_each(|before| before.extend(one));
                return Ok(before);
            }
            let joined = before.iter().flat_map(|before| next.iter().map(|next| [&before[..], next].concat()));
            Ok(joined.collect())
        }),
    }
}

/// Returns a case from its comparisons; `None` if its box is certainly empty.
fn case(
    comparisons: &[&Linear],
    (inputs, outputs): (usize, usize),
    memory: &Memory<'_>,
) -> std::result::Result<Option<Case>, String> {
    memory.take::<Range>(inputs)?;
    let mut lows: Vec<Option<Interval>> = vec![None; inputs];
    let mut highs: Vec<Option<Interval>> = vec![None; inputs];
    let mut constraints = Vec::new();
    for linear in comparisons {
        let mut variables = linear.coefficients.iter();
        match (variables.next(), variables.next()) {
            (Some((Variable::Input(n), factor)), None) => {
                let (above, bound) = bound(*factor, linear.constant)?;
                // The certainly tighter enclosure of two, or the intersection.
                let (bounds, tighter): (_, fn(Interval, Interval) -> Interval) = match above {
                    true => (&mut highs, |a, b| Interval { lo: a.lo.min(b.lo), hi: a.hi.min(b.hi) }),
                    false => (&mut lows, |a, b| Interval { lo: a.lo.max(b.lo), hi: a.hi.max(b.hi) }),
                };
                bounds[*n] = Some(bounds[*n].map_or(bound, |old| tighter(old, bound)));
            }
            _ if linear.coefficients.keys().any(|variable| matches!(variable, Variable::Output(_))) => {
                memory.take::<Interval>(inputs.saturating_add(outputs))?;
                constraints.push(constraint(linear, inputs, outputs));
            }
            _ => return Err("a comparison of several inputs, or of no variable, is not supported".to_string()),
        }
    }
    if constraints.is_empty() {
        return Err("a case has no comparison of an output".to_string());
    }
    let range = |n: usize| {
        let missing = |side: &str| format!("X_{n} has no {side} bound");
        Ok(Range { lo: lows[n].ok_or_else(|| missing("lower"))?, hi: highs[n].ok_or_else(|| missing("upper"))? })
    };
    let ranges = (0..inputs).map(range).collect::<std::result::Result<Vec<Range>, String>>()?;
    let empty = ranges.iter().any(|range| range.lo.lo > range.hi.hi);
    Ok((!empty).then_some(Case { ranges, constraints }))
}

/// Returns the bound of x from `factor`·x + `constant` ≤ 0, and true if it is an upper bound.
fn bound(factor: Interval, constant: Interval) -> std::result::Result<(bool, Interval), String> {
    let (one, negative) = (Interval::point(1.0), Interval::point(-1.0));
    let found = match factor {
        _ if factor == one => (true, constant.neg()),
        _ if factor == negative => (false, constant),
        _ => (factor.lo > 0.0, constant.neg().mul(factor.recip())),
    };
    if found.1.is_finite() { Ok(found) } else { Err("an input is compared with a factor of 0".to_string()) }
}

fn constraint(linear: &Linear, inputs: usize, outputs: usize) -> Constraint {
    let mut constraint = Constraint {
        input: vec![Interval::point(0.0); inputs],
        output: vec![Interval::point(0.0); outputs],
        constant: linear.constant,
        is_strict: false,
    };
    for (variable, coefficient) in &linear.coefficients {
        match variable {
            Variable::Input(n) => constraint.input[*n] = *coefficient,
            Variable::Output(n) => constraint.output[*n] = *coefficient,
        }
    }
    constraint
}
