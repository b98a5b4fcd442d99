//! Claims about a network in TOML: sets of inputs, and what holds for the output of every one of them.
//!
//! ```toml
//! [[claim]]
//! name = "the first digit"
//! point = [0.0, 0.5, 1.0]      # or `example = 3`, an example of the data that the caller knows
//! ball = 0.02                  # every element differs by at most this much
//! clip = [0.0, 1.0]            # and stays in this range
//! holds = "class unchanged"
//!
//! [[claim]]
//! inputs = [[0.0, 1.0]]        # a range for each element, or one for all
//! holds = "y[0] >= y[1] + 0.1 and 2*y[1] - x[0] < 3"
//! seconds = 10
//! ```
//!
//! `holds` is `finite`, `within 0..1`, `class unchanged` or a conjunction of linear comparisons. Numbers of the file are 64-bit floats, as
//! TOML defines them; decimals in `holds` are enclosed.

use std::path::Path;

use panoply_tensor::{Error, ReadBudget, Result};
use toml::{Table, Value};

use crate::decimal;
use crate::interval::Interval;
use crate::property::{Case, Constraint, Property, Range, check_size};

/// Maximum number of claims in a file.
const MAX_CLAIMS: usize = 1 << 14;
/// Maximum number of terms in `holds`.
const MAX_TERMS: usize = 1 << 12;
/// The keys of a claim.
const KEYS: [&str; 8] = ["name", "inputs", "point", "example", "ball", "clip", "holds", "seconds"];

/// A claim: for every input of a set, the output satisfies a condition.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// Name in reports: the key `name`, or the position in the file.
    pub name: String,
    /// The set of inputs.
    pub set: Set,
    /// The condition.
    pub holds: Holds,
    /// Time limit in seconds, if the claim has its own.
    pub seconds: Option<f64>,
}

/// A set of inputs.
#[derive(Clone, Debug, PartialEq)]
pub enum Set {
    /// A range for each element, or one for all of them.
    Ranges(Vec<(f64, f64)>),
    /// The inputs near a point, in the maximum norm.
    Ball {
        /// The point.
        center: Center,
        /// Maximum difference of an element.
        radius: f64,
        /// Range of all elements.
        clip: Option<(f64, f64)>,
    },
}

/// The center of a ball.
#[derive(Clone, Debug, PartialEq)]
pub enum Center {
    /// Elements of the input.
    Point(Vec<f32>),
    /// Index of an example of the data that belongs to the network.
    Example(usize),
}

/// The condition of a claim.
#[derive(Clone, Debug, PartialEq)]
pub enum Holds {
    /// The output is finite.
    Finite,
    /// Every output element is in this range.
    Within(Interval, Interval),
    /// The largest output element is the one at the center of the ball.
    ClassUnchanged,
    /// All of these comparisons.
    Comparisons(Vec<Comparison>),
}

/// The comparison Σ factor·variable + `constant` ≥ 0, or > 0.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Terms: true for an output, the index of the variable, and its factor.
    pub terms: Vec<(bool, usize, Interval)>,
    /// The constant.
    pub constant: Interval,
    /// True for >.
    pub is_strict: bool,
}

/// Reads a file of claims.
///
/// # Errors
/// If the file cannot be read or is not such a file.
pub fn read(path: &Path) -> Result<Vec<Claim>> {
    let budget = ReadBudget::for_file(path)?;
    let bytes = budget.read_file(path)?;
    let text = String::from_utf8(bytes).map_err(|_| Error::corrupt(format!("{}: not a text file", path.display())))?;
    // A value of a document takes up to this much memory per byte of text.
    budget.take_values(text.len(), 64, path)?;
    parse(&text).map_err(|error| Error::corrupt(format!("{}:{}", path.display(), error.message())))
}

/// Parses claims.
///
/// # Errors
/// If the text is not TOML or a claim is malformed; the message begins with the line, or names the claim.
pub fn parse(text: &str) -> Result<Vec<Claim>> {
    let table: Table = text.parse().map_err(|error: toml::de::Error| {
        let line = error.span().map_or(1, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        Error::corrupt(format!("{line}: {}", error.message().replace('\n', " ")))
    })?;
    if let Some(key) = table.keys().find(|key| *key != "claim") {
        return Err(Error::corrupt(format!(" unknown key `{}`; claims are tables `[[claim]]`", key.escape_debug())));
    }
    let claims = table.get("claim").and_then(Value::as_array).filter(|claims| !claims.is_empty());
    let claims = claims.ok_or_else(|| Error::corrupt(" `[[claim]]` is missing: a file of claims has at least one"))?;
    if claims.len() > MAX_CLAIMS {
        return Err(Error::corrupt(format!(" there are more than {MAX_CLAIMS} claims")));
    }
    let claim = |(at, value): (usize, &Value)| {
        claim(at, value).map_err(|why| Error::corrupt(format!(" claim {}: {why}", at + 1)))
    };
    claims.iter().enumerate().map(claim).collect()
}

type Parsed<T> = std::result::Result<T, String>;

fn claim(at: usize, value: &Value) -> Parsed<Claim> {
    let table = value.as_table().ok_or("not a table")?;
    if let Some(key) = table.keys().find(|key| !KEYS.contains(&key.as_str())) {
        return Err(format!("unknown key `{}`; the keys are {}", key.escape_debug(), KEYS.join(", ")));
    }
    let text = |key: &str| match table.get(key) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.as_str())),
        Some(_) => Err(format!("`{key}` is not a string")),
    };
    let holds = holds(text("holds")?.ok_or("`holds` is missing")?)?;
    let set = set(table)?;
    if holds == Holds::ClassUnchanged && !matches!(set, Set::Ball { .. }) {
        return Err("`class unchanged` needs a `point` or an `example`, and a `ball`".to_string());
    }
    let seconds = table.get("seconds").map(|value| number("seconds", value)).transpose()?;
    if seconds.is_some_and(|seconds| seconds < 0.0) {
        return Err("`seconds` is negative".to_string());
    }
    let name = text("name")?.map_or_else(|| format!("claim {}", at + 1), str::to_string);
    Ok(Claim { name, set, holds, seconds })
}

fn set(table: &Table) -> Parsed<Set> {
    let radius = table.get("ball").map(|value| number("ball", value)).transpose()?;
    let clip = table.get("clip").map(|value| range("clip", value)).transpose()?;
    let found = [table.get("inputs"), table.get("point"), table.get("example")];
    let center = match found {
        [Some(Value::Array(ranges)), None, None] if radius.is_none() && clip.is_none() && !ranges.is_empty() => {
            return Ok(Set::Ranges(ranges.iter().map(|value| range("inputs", value)).collect::<Parsed<_>>()?));
        }
        [Some(Value::Array(_)), None, None] => return Err("`inputs` needs ranges, and no `ball` or `clip`".to_string()),
        [Some(_), None, None] => return Err("`inputs` is not a list of ranges such as `[[0.0, 1.0]]`".to_string()),
        [None, Some(Value::Array(point)), None] => {
            let element = |value| number("point", value).map(|x| x as f32);
            Center::Point(point.iter().map(element).collect::<Parsed<_>>()?)
        }
        [None, Some(_), None] => return Err("`point` is not a list of numbers".to_string()),
        [None, None, Some(example)] => {
            let index = example.as_integer().and_then(|index| usize::try_from(index).ok());
            Center::Example(index.ok_or("`example` is not the index of an example")?)
        }
        _ => return Err("exactly one of `inputs`, `point` and `example` is needed".to_string()),
    };
    let radius = radius.ok_or("a `point` or an `example` needs a `ball`")?;
    if radius < 0.0 {
        return Err("`ball` is negative".to_string());
    }
    Ok(Set::Ball { center, radius, clip })
}

fn number(key: &str, value: &Value) -> Parsed<f64> {
    let number = match value {
        Value::Float(number) => *number,
        Value::Integer(number) if number.unsigned_abs() < 1 << 53 => *number as f64,
        _ => return Err(format!("`{key}` has a value that is not a number")),
    };
    if number.is_finite() { Ok(number) } else { Err(format!("`{key}` has a value that is not finite")) }
}

fn range(key: &str, value: &Value) -> Parsed<(f64, f64)> {
    let Some([lo, hi]) = value.as_array().map(Vec::as_slice) else {
        return Err(format!("`{key}` has a range that is not a pair of numbers"));
    };
    let (lo, hi) = (number(key, lo)?, number(key, hi)?);
    if lo <= hi { Ok((lo, hi)) } else { Err(format!("`{key}` has an empty range: {lo} is above {hi}")) }
}

fn holds(text: &str) -> Parsed<Holds> {
    match text.trim() {
        "finite" => Ok(Holds::Finite),
        "class unchanged" => Ok(Holds::ClassUnchanged),
        other => match other.strip_prefix("within ") {
            Some(range) => {
                let ends = range.split_once("..").ok_or("`within` needs a range such as `0..1`")?;
                let (lo, hi) = (decimal::enclose(ends.0.trim())?, decimal::enclose(ends.1.trim())?);
                if lo.lo > hi.hi { Err("`within` has an empty range".to_string()) } else { Ok(Holds::Within(lo, hi)) }
            }
            None => other.split(" and ").map(comparison).collect::<Parsed<_>>().map(Holds::Comparisons),
        },
    }
}

/// Parses one of the comparisons `<=`, `<`, `>=` and `>` of two linear expressions.
fn comparison(text: &str) -> Parsed<Comparison> {
    let expected = || {
        let shown: String = text.chars().take(60).collect();
        format!("expected `finite`, `within 0..1`, `class unchanged` or a comparison, found `{}`", shown.escape_debug())
    };
    let at = text.find(['<', '>']).ok_or_else(expected)?;
    let is_strict = text.as_bytes().get(at + 1) != Some(&b'=');
    let is_less = text.as_bytes()[at] == b'<';
    let (left, right) = (&text[..at], &text[at + if is_strict { 1 } else { 2 }..]);
    let mut comparison = Comparison { terms: Vec::new(), constant: Interval::point(0.0), is_strict };
    for (side, is_negative) in [(left, is_less), (right, !is_less)] {
        for (is_subtracted, term) in terms(side)? {
            comparison.add(term, is_subtracted != is_negative)?;
        }
        if comparison.terms.len() > MAX_TERMS {
            return Err(format!("`holds` has more than {MAX_TERMS} terms"));
        }
    }
    let reads_output = comparison.terms.iter().any(|(is_output, ..)| *is_output);
    if reads_output { Ok(comparison) } else { Err("a comparison reads no output, such as `y[0]`".to_string()) }
}

/// Splits a sum into terms, each with true if it is subtracted. The sign of an exponent does not separate terms.
fn terms(text: &str) -> Parsed<Vec<(bool, &str)>> {
    let mut terms = Vec::new();
    let (mut start, mut is_subtracted) = (0, false);
    for (at, letter) in text.char_indices().chain([(text.len(), '+')]) {
        if letter != '+' && letter != '-' {
            continue;
        }
        let before = text[start..at].trim();
        let is_exponent = before.ends_with(['e', 'E']) && before.starts_with(|first: char| first.is_ascii_digit());
        if is_exponent && at < text.len() {
            continue;
        }
        match (before.is_empty(), terms.is_empty() && letter == '-' && !is_subtracted && at < text.len()) {
            (false, _) => terms.push((is_subtracted, before)),
            (true, true) => {}
            (true, false) => return Err("a term is missing in a sum".to_string()),
        }
        (start, is_subtracted) = (at + letter.len_utf8(), letter == '-');
    }
    Ok(terms)
}

impl Comparison {
    fn add(&mut self, term: &str, is_subtracted: bool) -> Parsed<()> {
        let mut factor = Interval::point(if is_subtracted { -1.0 } else { 1.0 });
        let mut variable = None;
        for part in term.split('*').map(str::trim) {
            match self::variable(part) {
                Some(_) if variable.is_some() => return Err(format!("`{}` is not linear", term.escape_debug())),
                Some(found) => variable = Some(found),
                None => factor = factor * decimal::enclose(part)?,
            }
        }
        match variable {
            None => self.constant = self.constant + factor,
            Some((is_output, index)) => self.terms.push((is_output, index, factor)),
        }
        Ok(())
    }
}

/// Parses `x[0]` or `y[0]`; true is an output.
fn variable(text: &str) -> Option<(bool, usize)> {
    let (name, index) = text.strip_suffix(']')?.split_once('[')?;
    let is_output = match name.trim() {
        "x" => false,
        "y" => true,
        _ => return None,
    };
    Some((is_output, index.trim().parse().ok()?))
}

impl Claim {
    /// Returns the center of the ball; `example` returns the elements of an example of the data.
    ///
    /// # Errors
    /// If there is no such example.
    pub fn center(&self, example: &dyn Fn(usize) -> Result<Vec<f32>>) -> Result<Option<Vec<f32>>> {
        match &self.set {
            Set::Ranges(_) => Ok(None),
            Set::Ball { center: Center::Point(point), .. } => Ok(Some(point.clone())),
            Set::Ball { center: Center::Example(index), .. } => example(*index).map(Some),
        }
    }

    /// Returns the radius of the ball and the width of its range `clip`, infinite without one; `None` if the set is not a ball.
    pub fn radius(&self) -> Option<(f64, f64)> {
        match &self.set {
            Set::Ranges(_) => None,
            Set::Ball { radius, clip, .. } => Some((*radius, clip.map_or(f64::INFINITY, |(lo, hi)| hi - lo))),
        }
    }

    /// Returns the claim with another radius of the ball.
    pub fn with_radius(&self, radius: f64) -> Claim {
        let mut claim = self.clone();
        if let Set::Ball { radius: old, .. } = &mut claim.set {
            *old = radius;
        }
        claim
    }

    /// Returns the property of a network with this many inputs. `center` is the center of the ball, and `output` the output at the center,
    /// or at any input if the set is not a ball.
    ///
    /// # Errors
    /// If the sizes do not match, the set is empty, or the class of the center is not unique.
    pub fn property(&self, inputs: usize, center: Option<&[f32]>, output: &[f32]) -> Result<Property> {
        let fail = |why: String| Error::mistake(format!("{}: {why}", self.name));
        let constraints = match &self.holds {
            Holds::Finite | Holds::Within(..) => output.len().saturating_mul(2),
            Holds::Comparisons(all) => all.len(),
            Holds::ClassUnchanged => output.len(),
        };
        check_size(inputs, output.len(), constraints).map_err(fail)?;
        let ranges = self.set.ranges(inputs, center).map_err(fail)?;
        let outputs = output.len();
        let constraints = self.violations(inputs, output).map_err(fail)?;
        let case = |constraint| Case { ranges: ranges.clone(), constraints: vec![constraint] };
        let cases = constraints.into_iter().map(case).collect();
        Ok(Property { inputs, outputs, cases, requires_finite: self.holds == Holds::Finite })
    }

    /// Returns the constraints each of which violates the claim.
    fn violations(&self, inputs: usize, output: &[f32]) -> Parsed<Vec<Constraint>> {
        let outputs = output.len();
        let of = |terms: &[(bool, usize, Interval)], constant: Interval, is_strict: bool| {
            let mut constraint = Constraint {
                input: vec![Interval::point(0.0); inputs],
                output: vec![Interval::point(0.0); outputs],
                constant,
                is_strict,
            };
            for (is_output, index, factor) in terms {
                let (side, name) = match is_output {
                    true => (&mut constraint.output, "y"),
                    false => (&mut constraint.input, "x"),
                };
                let count = side.len();
                let element = side
                    .get_mut(*index)
                    .ok_or_else(|| format!("{name}[{index}] is out of range: {name} has {count} elements"))?;
                *element = *element + *factor;
            }
            Ok(constraint)
        };
        let one = Interval::point(1.0);
        let beyond = |lo: Interval, hi: Interval, is_strict: bool| {
            let element = |n: usize| [of(&[(true, n, one)], -lo, is_strict), of(&[(true, n, -one)], hi, is_strict)];
            (0..outputs).flat_map(element).collect::<Parsed<Vec<Constraint>>>()
        };
        match &self.holds {
            Holds::Finite => beyond(Interval::point(-f64::from(f32::MAX)), Interval::point(f64::from(f32::MAX)), true),
            Holds::Within(lo, hi) => beyond(*lo, *hi, true),
            Holds::Comparisons(all) => {
                all.iter().map(|comparison| of(&comparison.terms, comparison.constant, !comparison.is_strict)).collect()
            }
            Holds::ClassUnchanged => {
                let class = class(output)?;
                let others = (0..outputs).filter(|n| *n != class);
                others.map(|n| of(&[(true, class, one), (true, n, -one)], Interval::point(0.0), false)).collect()
            }
        }
    }
}

/// Returns the index of the largest element.
fn class(output: &[f32]) -> Parsed<usize> {
    if output.len() < 2 || output.iter().any(|y| y.is_nan()) {
        return Err("the output at the center has no class".to_string());
    }
    let best = (0..output.len()).fold(0, |best, n| if output[n] > output[best] { n } else { best });
    let is_unique = output.iter().filter(|y| **y == output[best]).count() == 1;
    if is_unique { Ok(best) } else { Err("two classes are equal at the center".to_string()) }
}

impl Set {
    fn ranges(&self, inputs: usize, center: Option<&[f32]>) -> Parsed<Vec<Range>> {
        let range = |lo, hi| Range { lo: Interval::point(lo), hi: Interval::point(hi) };
        match self {
            Set::Ranges(ranges) => match ranges[..] {
                [(lo, hi)] => Ok(vec![range(lo, hi); inputs]),
                _ if ranges.len() == inputs => Ok(ranges.iter().map(|(lo, hi)| range(*lo, *hi)).collect()),
                _ => Err(format!("there are {} ranges, but the network has {inputs} inputs", ranges.len())),
            },
            Set::Ball { radius, clip, .. } => {
                let center = center.unwrap_or(&[]);
                if center.len() != inputs {
                    return Err(format!(
                        "the point has {} elements, but the network has {inputs} inputs",
                        center.len()
                    ));
                }
                center.iter().map(|x| near(*x, *radius, *clip)).collect()
            }
        }
    }
}

/// Returns the range of the numbers near a point.
fn near(x: f32, radius: f64, clip: Option<(f64, f64)>) -> Parsed<Range> {
    let ball = Range::near(x, radius);
    let range = clip.map_or(ball, |(lo, hi)| ball.clipped(lo, hi));
    let none = || "no input is in the ball and in the range `clip`".to_string();
    range.is_valid().then_some(range).ok_or_else(none)
}
