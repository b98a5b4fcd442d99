//! Einstein summation as in NumPy: `einsum("bij,bjk->bik", [x, y])`, `einsum("...ij,...j", [x, y])`.
//!
//! Operands are contracted pairwise: by one matrix product over the labels that no other operand and not the result
//! uses, or element by element if there are none. The next pair is always the one with the fewest multiplications,
//! the leftmost of equal ones. f16 and bf16 accumulate in f32 and are rounded once.

use std::collections::BTreeMap;

use panoply_ir::kernel::ReduceOp;
use panoply_ir::{DType, Error, Shape};

use crate::dynamic_dim;
use crate::tensor::Tensor;

impl Tensor {
    /// Sums products of elements over the labels that the result does not name. Labels are letters. A label that
    /// occurs twice within an operand takes its diagonal. `...` represents all other axes of an operand, which
    /// broadcast from the right. An axis of length 1 broadcasts to the length of the other axes with its label.
    /// Without `->` the result has the axes of `...` and then the labels named once, in alphabetical order.
    ///
    /// ```
    /// # use panoply_tensor::Tensor;
    /// let x = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0], [2, 2]);
    /// assert_eq!(Tensor::einsum("ii", &[&x]).item::<f64>()?, 5.0);
    /// assert_eq!(Tensor::einsum("...i->...", &[&x]).to_vec::<f32>()?, [3.0, 7.0]);
    /// # Ok::<(), panoply_tensor::Error>(())
    /// ```
    #[track_caller]
    pub fn einsum(equation: &str, operands: &[&Tensor]) -> Tensor {
        if let Some(mistake) = operands.iter().find(|operand| operand.is_mistake()) {
            return (*mistake).clone();
        }
        let Equation { inputs, result, lengths } = match Equation::new(equation, operands) {
            Ok(equation) => equation,
            Err(what) => {
                let mut error = Error::mistake(format!("einsum: `{equation}`: {what}"));
                for operand in operands {
                    error = error.note(format!("operand {operand:?}"));
                }
                return Tensor::mistake(error);
            }
        };
        let first = operands.first().map_or(DType::F32, |operand| operand.dtype());
        if let Some(other) = operands.iter().find(|operand| operand.dtype() != first || first == DType::Bool) {
            let message = format!(
                "einsum: `{equation}`: operands must be numbers of one type, not {first} and {}",
                other.dtype()
            );
            return Tensor::mistake(Error::mistake(message).note(format!("operand {other:?}")));
        }
        for label in lengths.keys() {
            let named = |labels: &Vec<char>| (0..labels.len()).find(|axis| labels[*axis] == *label);
            let axes = operands.iter().zip(&inputs).filter_map(|(operand, labels)| Some((*operand, named(labels)?)));
            let long = axes.filter(|(operand, axis)| operand.0.shape.dims()[*axis] > 1);
            if let Err(error) = dynamic_dim::meet("einsum", &long.collect::<Vec<(&Tensor, usize)>>()) {
                return Tensor::mistake(error);
            }
        }
        // A single matrix product of f16 or bf16 accumulates in f32 already; everything else is computed in f32 and
        // rounded once.
        let single = |x: &Tensor| if is_one_product(&inputs, &result) { x.clone() } else { x.widened() };
        let operands: Vec<Tensor> = operands.iter().map(|operand| single(operand)).collect();
        let terms = operands.iter().zip(&inputs).map(|(operand, labels)| Term::new(operand, labels, &lengths));
        let mut terms: Vec<Term> = terms.collect();
        if let Some(wrong) = terms.iter().find(|term| term.tensor.is_mistake()) {
            return wrong.tensor.clone();
        }
        while let Some((left, right)) = cheapest(&terms, &lengths) {
            let (right, left) = (terms.remove(right), terms.remove(left));
            let later = |label: &char| result.contains(label) || terms.iter().any(|term| term.labels.contains(label));
            let product = left.times(&right, &later);
            if product.tensor.is_mistake() {
                return product.tensor;
            }
            terms.push(product);
        }
        match terms.pop() {
            Some(product) => product.over(&result).ordered(&result).tensor.cast(first),
            None => Tensor::mistake(Error::mistake("einsum: no operands were given")),
        }
    }
}

/// Returns true if the equation is a single matrix or elementwise product, without other sums.
fn is_one_product(inputs: &[Vec<char>], result: &[char]) -> bool {
    let [left, right] = inputs else { return inputs.len() < 2 };
    let twice = |labels: &Vec<char>| (1..labels.len()).any(|i| labels[..i].contains(&labels[i]));
    let alone = |labels: &[char], other: &[char]| labels.iter().any(|l| !result.contains(l) && !other.contains(l));
    let inner = left.iter().any(|label| right.contains(label) && !result.contains(label));
    let outer = |labels: &[char], other: &[char]| labels.iter().any(|label| !other.contains(label));
    let sums_alone = twice(left) || twice(right) || alone(left, right) || alone(right, left);
    !sums_alone && (!inner || outer(left, right) || outer(right, left))
}

/// Returns the two terms whose product has the fewest multiplications; `None` for fewer than two terms.
fn cheapest(terms: &[Term], lengths: &BTreeMap<char, usize>) -> Option<(usize, usize)> {
    let pairs = (0..terms.len()).flat_map(|left| (left + 1..terms.len()).map(move |right| (left, right)));
    pairs.min_by_key(|(left, right)| {
        let (left, right) = (&terms[*left].labels, &terms[*right].labels);
        let all = left.iter().chain(right.iter().filter(|label| !left.contains(label)));
        all.fold(1usize, |product, label| product.saturating_mul(lengths[label]))
    })
}

/// A parsed equation with its operands.
struct Equation {
    /// Labels of each operand's axes.
    inputs: Vec<Vec<char>>,
    /// Labels of the result, each once.
    result: Vec<char>,
    lengths: BTreeMap<char, usize>,
}

impl Equation {
    fn new(equation: &str, operands: &[&Tensor]) -> Result<Equation, String> {
        let equation: String = equation.chars().filter(|c| !c.is_whitespace()).collect();
        let (left, right) = match equation.split_once("->") {
            Some((left, right)) => (left, Some(right)),
            None => (equation.as_str(), None),
        };
        let parts: Vec<&str> = left.split(',').collect();
        if parts.len() != operands.len() {
            return Err(format!("it names {} operands, but {} are given", parts.len(), operands.len()));
        }
        let dims = || operands.iter().map(|operand| operand.0.shape.dims());
        let inputs = parts.iter().zip(dims()).map(|(part, dims)| labels(part, Some(dims.len())));
        let inputs = inputs.collect::<Result<Vec<Vec<char>>, String>>()?;
        let lengths = lengths(&inputs, dims())?;
        let broadcast = lengths.keys().filter(|label| is_unnamed(label)).count();
        let result = match right {
            Some(right) => labels(right, right.contains("...").then(|| broadcast + right.len() - 3))?,
            None => implied(&inputs, broadcast),
        };
        if let Some(label) = result.iter().find(|label| !lengths.contains_key(label)) {
            return Err(format!("no operand has `{label}`"));
        }
        if (1..result.len()).any(|i| result[..i].contains(&result[i])) {
            return Err("the result names a label twice".to_string());
        }
        if broadcast > 0 && !result.iter().any(is_unnamed) {
            return Err("the `...` of the operands has axes, but the result has no `...`".to_string());
        }
        Ok(Equation { inputs, result, lengths })
    }
}

/// Returns the label of an axis of `...`, counted from the right: not a letter.
fn unnamed(from_right: usize) -> char {
    char::from_u32(0xE000 + from_right as u32).expect("ranks are small, and there are 6400 private characters")
}

fn is_unnamed(label: &char) -> bool {
    *label >= unnamed(0)
}

/// Parses the labels of an operand with `rank` axes, or of the result. Without a rank there is one axis for each
/// letter.
fn labels(part: &str, rank: Option<usize>) -> Result<Vec<char>, String> {
    let (before, after, open) = match part.split_once("...") {
        Some((before, after)) => (before, after, true),
        None => (part, "", false),
    };
    if let Some(odd) = before.chars().chain(after.chars()).find(|label| !label.is_ascii_alphabetic()) {
        return Err(format!("`{odd}` is not a label; labels are letters, and `...` occurs once, for all other axes"));
    }
    let letters = before.len() + after.len();
    let rank = rank.unwrap_or(letters);
    if letters > rank || (letters < rank && !open) {
        return Err(format!("{letters} labels for {rank} axes"));
    }
    Ok(before.chars().chain((0..rank - letters).rev().map(unnamed)).chain(after.chars()).collect())
}

/// Returns the length of each label. Axes of length 1 broadcast, but not within an operand.
fn lengths<'a>(inputs: &[Vec<char>], dims: impl Iterator<Item = &'a [usize]>) -> Result<BTreeMap<char, usize>, String> {
    let mut lengths = BTreeMap::new();
    for (labels, dims) in inputs.iter().zip(dims) {
        for (at, (label, length)) in labels.iter().zip(dims).enumerate() {
            let known = lengths.entry(*label).or_insert(*length);
            let twin = labels[..at].iter().position(|other| other == label).map(|twin| dims[twin]);
            let clash = twin.filter(|twin| twin != length);
            if let Some(known) = clash.or((*known != *length && *known != 1 && *length != 1).then_some(*known)) {
                let label = if is_unnamed(label) { "an axis of `...`".to_string() } else { format!("`{label}`") };
                return Err(format!("{label} has lengths {known} and {length}"));
            }
            if *known == 1 {
                *known = *length;
            }
        }
    }
    Ok(lengths)
}

/// Returns the labels of the result of an equation without `->`.
fn implied(inputs: &[Vec<char>], broadcast: usize) -> Vec<char> {
    let mut named: Vec<char> = inputs.concat();
    named.retain(|label| !is_unnamed(label));
    named.sort_unstable();
    let once = |label: &char| named.iter().filter(|other| *other == label).count() == 1;
    (0..broadcast).rev().map(unnamed).chain(named.iter().copied().filter(once)).collect()
}

/// A tensor with a distinct label for each axis.
struct Term {
    tensor: Tensor,
    labels: Vec<char>,
}

impl Term {
    /// Creates a term from an operand: takes diagonals and removes axes of length 1 that broadcast.
    fn new(tensor: &Tensor, labels: &[char], lengths: &BTreeMap<char, usize>) -> Term {
        let mut term = Term { tensor: tensor.clone(), labels: labels.to_vec() };
        while let Some(second) = (1..term.labels.len()).find(|i| term.labels[..*i].contains(&term.labels[*i])) {
            let label = term.labels[second];
            let first = term.labels.iter().position(|l| *l == label).expect("it was found before");
            let rest: Vec<usize> = (0..term.labels.len()).filter(|i| *i != first && *i != second).collect();
            let order = rest.iter().copied().chain([first, second]).collect();
            term.tensor = term.tensor.permuted(order).diagonal(0);
            term.labels = rest.iter().map(|i| term.labels[*i]).chain([label]).collect();
        }
        if term.tensor.is_mistake() {
            return term;
        }
        let kept: Vec<char> = term.labels.iter().copied().filter(|l| term.length(*l) == lengths[l]).collect();
        term.over(&kept)
    }

    fn length(&self, label: char) -> usize {
        let axis = self.labels.iter().position(|l| *l == label).expect("the label is this term's");
        self.tensor.0.shape.dims()[axis]
    }

    /// Sums over the labels that are not in `kept`.
    #[track_caller]
    fn over(&self, kept: &[char]) -> Term {
        if self.tensor.is_mistake() {
            return Term { tensor: self.tensor.clone(), labels: kept.to_vec() };
        }
        let (stay, go): (Vec<usize>, Vec<usize>) =
            (0..self.labels.len()).partition(|i| kept.contains(&self.labels[*i]));
        let shape: Vec<usize> = stay.iter().map(|i| self.tensor.0.shape.dims()[*i]).collect();
        let tensor = self.tensor.reduced(ReduceOp::Sum, go).reshaped(Shape::new(shape));
        Term { tensor, labels: stay.iter().map(|i| self.labels[*i]).collect() }
    }

    /// Permutes the axes to this order of labels.
    #[track_caller]
    fn ordered(&self, labels: &[char]) -> Term {
        let place = |label: &char| self.labels.iter().position(|l| l == label).expect("the label is this term's");
        Term { tensor: self.tensor.permuted(labels.iter().map(place).collect()), labels: labels.to_vec() }
    }

    /// Multiplies two terms and sums over the labels that are not used later.
    #[track_caller]
    fn times(&self, other: &Term, later: &dyn Fn(&char) -> bool) -> Term {
        let alone = |term: &Term, with: &Term| {
            let kept: Vec<char> = term.labels.iter().copied().filter(|l| later(l) || with.labels.contains(l)).collect();
            term.over(&kept)
        };
        let (left, right) = (alone(self, other), alone(other, self));
        let chosen = |term: &Term, which: &dyn Fn(&char) -> bool| -> Vec<char> {
            term.labels.iter().copied().filter(|label| which(label)).collect()
        };
        let shared = |label: &char| right.labels.contains(label);
        let batch = chosen(&left, &|label| shared(label) && later(label));
        let inner = chosen(&left, &|label| shared(label) && !later(label));
        let rows = chosen(&left, &|label| !shared(label));
        let columns = chosen(&right, &|label| !left.labels.contains(label));
        if inner.is_empty() || (rows.is_empty() && columns.is_empty()) {
            let labels = [&batch[..], &rows, &columns, &inner].concat();
            let tensor = left.spread(&labels) * right.spread(&labels);
            return Term { tensor, labels }.over(&[&batch[..], &rows, &columns].concat());
        }
        let product = |term: &Term, labels: &[char]| labels.iter().map(|l| term.length(*l)).product::<usize>();
        let (m, k, n) = (product(&left, &rows), product(&left, &inner), product(&right, &columns));
        let outer = product(&left, &batch);
        let a = left.ordered(&[&batch[..], &rows, &inner].concat()).tensor.reshaped([outer, m, k].into());
        let b = right.ordered(&[&batch[..], &inner, &columns].concat()).tensor.reshaped([outer, k, n].into());
        let dims = batch.iter().chain(&rows).map(|l| left.length(*l)).chain(columns.iter().map(|l| right.length(*l)));
        let shape = Shape::new(dims.collect::<Vec<usize>>());
        Term { tensor: a.matmul(&b).reshaped(shape), labels: [batch, rows, columns].concat() }
    }

    /// Returns the tensor with its axes in the order of these labels, with an axis of length 1 for each label that it
    /// does not have.
    #[track_caller]
    fn spread(&self, labels: &[char]) -> Tensor {
        let own: Vec<char> = labels.iter().copied().filter(|label| self.labels.contains(label)).collect();
        let ordered = self.ordered(&own);
        let dims = labels.iter().map(|label| if own.contains(label) { ordered.length(*label) } else { 1 });
        ordered.tensor.reshaped(Shape::new(dims.collect::<Vec<usize>>()))
    }
}
