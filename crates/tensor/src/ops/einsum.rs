//! Einstein's summation: `einsum("bij,bjk->bik", [x, y])`.
//!
//! Operands are combined from the left, each time by one matrix product over the labels that no later operand and not the
//! result needs.

use panoply_ir::{Error, Shape};

use crate::tensor::Tensor;

impl Tensor {
    /// Sums products of elements over the labels that the result does not name. Labels are letters; a label twice within
    /// an operand takes its diagonal; without `->` the result has the labels named once, in alphabetical order.
    #[track_caller]
    pub fn einsum(formula: &str, operands: &[&Tensor]) -> Tensor {
        if let Some(mistake) = operands.iter().find(|operand| operand.is_mistake()) {
            return (*mistake).clone();
        }
        let (inputs, result) = match parse(formula, operands) {
            Ok(parsed) => parsed,
            Err(what) => {
                let mut error = Error::mistake(format!("einsum: `{formula}`: {what}"));
                for operand in operands {
                    error = error.note(format!("operand {operand:?}"));
                }
                return Tensor::mistake(error);
            }
        };
        let mut terms = operands.iter().zip(&inputs).map(|(operand, labels)| Term::new(operand, labels));
        let Some(mut product) = terms.next() else { return Tensor::mistake(Error::mistake("einsum: no operands")) };
        for (at, term) in terms.enumerate() {
            let later = |label: &char| result.contains(label) || inputs[at + 2..].iter().any(|l| l.contains(label));
            product = product.times(&term, &later);
        }
        product.over(&result).ordered(&result).tensor
    }
}

/// The labels of each operand and of the result.
fn parse(formula: &str, operands: &[&Tensor]) -> Result<(Vec<Vec<char>>, Vec<char>), String> {
    let formula: String = formula.chars().filter(|c| !c.is_whitespace()).collect();
    let (left, right) = match formula.split_once("->") {
        Some((left, right)) => (left, Some(right)),
        None => (formula.as_str(), None),
    };
    let inputs: Vec<Vec<char>> = left.split(',').map(|labels| labels.chars().collect()).collect();
    let mut named: Vec<char> = inputs.concat();
    named.sort_unstable();
    let result: Vec<char> = match right {
        Some(labels) => labels.chars().collect(),
        None => named.iter().copied().filter(|label| named.iter().filter(|l| *l == label).count() == 1).collect(),
    };
    if let Some(odd) = named.iter().chain(&result).find(|label| !label.is_alphabetic()) {
        return Err(format!("`{odd}` is no label; labels are letters"));
    }
    if inputs.len() != operands.len() {
        return Err(format!("it names {} operands, {} are given", inputs.len(), operands.len()));
    }
    if let Some(label) = result.iter().find(|label| !named.contains(label)) {
        return Err(format!("no operand has `{label}`"));
    }
    if (1..result.len()).any(|i| result[..i].contains(&result[i])) {
        return Err("the result names a label twice".to_string());
    }
    let mut lengths: Vec<(char, usize)> = Vec::new();
    for (labels, operand) in inputs.iter().zip(operands) {
        let dims = operand.0.shape.dims();
        if labels.len() != dims.len() {
            return Err(format!("{} labels for {} axes", labels.len(), dims.len()));
        }
        for (label, length) in labels.iter().zip(dims) {
            match lengths.iter().find(|(known, _)| known == label) {
                Some((_, known)) if known != length => return Err(format!("`{label}` is {known} and {length} long")),
                Some(_) => {}
                None => lengths.push((*label, *length)),
            }
        }
    }
    Ok((inputs, result))
}

/// A tensor whose axes have labels, each once.
struct Term {
    tensor: Tensor,
    labels: Vec<char>,
}

impl Term {
    fn new(tensor: &Tensor, labels: &[char]) -> Term {
        let mut term = Term { tensor: tensor.clone(), labels: labels.to_vec() };
        while let Some(second) = (1..term.labels.len()).find(|i| term.labels[..*i].contains(&term.labels[*i])) {
            let label = term.labels[second];
            let first = term.labels.iter().position(|l| *l == label).expect("it was found before");
            let rest: Vec<usize> = (0..term.labels.len()).filter(|i| *i != first && *i != second).collect();
            let order = rest.iter().copied().chain([first, second]).collect();
            term.tensor = term.tensor.permuted(order).diagonal();
            term.labels = rest.iter().map(|i| term.labels[*i]).chain([label]).collect();
        }
        term
    }

    fn length(&self, label: char) -> usize {
        let axis = self.labels.iter().position(|l| *l == label).expect("the label is this term's");
        self.tensor.0.shape.dims()[axis]
    }

    /// Summed over the labels that are not in `kept`.
    fn over(&self, kept: &[char]) -> Term {
        let (stay, go): (Vec<usize>, Vec<usize>) =
            (0..self.labels.len()).partition(|i| kept.contains(&self.labels[*i]));
        let shape: Vec<usize> = stay.iter().map(|i| self.tensor.0.shape.dims()[*i]).collect();
        let tensor = self.tensor.reduced(panoply_ir::kernel::ReduceOp::Sum, go).reshaped(Shape::new(shape));
        Term { tensor, labels: stay.iter().map(|i| self.labels[*i]).collect() }
    }

    /// With the axes in this order.
    fn ordered(&self, labels: &[char]) -> Term {
        let place = |label: &char| self.labels.iter().position(|l| l == label).expect("the label is this term's");
        Term { tensor: self.tensor.permuted(labels.iter().map(place).collect()), labels: labels.to_vec() }
    }

    /// The product, summed over the labels that are not needed later.
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
        let product = |term: &Term, labels: &[char]| labels.iter().map(|l| term.length(*l)).product::<usize>();
        let (m, k, n) = (product(&left, &rows), product(&left, &inner), product(&right, &columns));
        let outer = product(&left, &batch);
        let a = left.ordered(&[&batch[..], &rows, &inner].concat()).tensor.reshaped([outer, m, k].into());
        let b = right.ordered(&[&batch[..], &inner, &columns].concat()).tensor.reshaped([outer, k, n].into());
        let dims = batch.iter().chain(&rows).map(|l| left.length(*l)).chain(columns.iter().map(|l| right.length(*l)));
        let shape = Shape::new(dims.collect::<Vec<usize>>());
        Term { tensor: a.matmul(&b).reshaped(shape), labels: [batch, rows, columns].concat() }
    }
}
