//! Reads the tensors of a decoder by the names of its world, and remembers which.
//!
//! Fused tensors are taken apart, experts are put together, transposed matrices are turned: afterwards both worlds look alike. It must not
//! know what the tensors are for.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::Range;

use panoply_ir::Encoding;
use panoply_tensor::{Error, Result, Tensor};

use crate::architectures::Names;
use crate::packed::Packed;

/// A file or folder of tensors.
pub trait TensorFile {
    /// The path, for messages.
    fn place(&self) -> String;

    /// The names of all tensors.
    fn names(&self) -> Vec<&str>;

    /// The encoding and the shape of a tensor, its contiguous axis last; axes before the last two may be joined.
    fn shape(&self, name: &str) -> Option<(Encoding, [usize; 2])>;

    /// The bytes of a tensor of [`TensorFile::names`].
    ///
    /// # Errors
    ///
    /// If they cannot be read.
    fn bytes(&self, name: &str) -> Result<Cow<'_, [u8]>>;
}

/// A linear layer: the product with a matrix and a bias.
#[derive(Debug)]
pub(crate) struct Linear {
    pub weight: Packed,
    pub bias: Option<Tensor>,
}

impl Linear {
    /// f32 `[…, inputs]` to `[…, outputs]`.
    pub fn apply(&self, x: &Tensor) -> Tensor {
        let product = self.weight.matmul(x);
        match &self.bias {
            Some(bias) => product + bias,
            None => product,
        }
    }
}

/// Rows of a matrix in its encoding.
struct Rows<'a> {
    bytes: Cow<'a, [u8]>,
    encoding: Encoding,
    rows: usize,
    k: usize,
}

/// Reads tensors of one file.
pub(crate) struct WeightReader<'a> {
    file: &'a dyn TensorFile,
    names: &'a Names,
    read: RefCell<BTreeSet<String>>,
}

impl<'a> WeightReader<'a> {
    pub fn new(file: &'a dyn TensorFile, names: &'a Names) -> WeightReader<'a> {
        WeightReader { file, names, read: RefCell::default() }
    }

    /// The names of this world.
    pub fn names(&self) -> &'a Names {
        self.names
    }

    /// The name of a tensor as the file has it: with the prefix or without.
    fn find(&self, name: &str, ending: &str) -> Option<String> {
        let whole = format!("{}{name}{ending}", self.names.prefix);
        let short = format!("{name}{ending}");
        [whole, short].into_iter().find(|name| self.file.shape(name).is_some())
    }

    /// True if the file has the weight of a layer.
    pub fn has(&self, name: &str) -> bool {
        !name.is_empty() && self.find(name, ".weight").is_some()
    }

    fn wrong(&self, what: &str) -> Error {
        Error::corrupt(format!("{}: {what}", self.file.place()))
    }

    /// The rows of a tensor of this shape; an axis of length one may be absent.
    fn rows(&self, name: &str, ending: &str, [rows, k]: [usize; 2]) -> Result<Rows<'a>> {
        let missing = || self.wrong(&format!("tensor {}{name}{ending} is missing", self.names.prefix));
        let name = self.find(name, ending).ok_or_else(missing)?;
        let (encoding, shape) = self.file.shape(&name).ok_or_else(missing)?;
        if shape != [rows, k] {
            let [other_rows, other_k] = shape;
            let what = format!("tensor {name} is [{other_rows}, {other_k}]; the configuration asks for [{rows}, {k}]");
            return Err(self.wrong(&what));
        }
        let bytes = self.file.bytes(&name)?;
        self.read.borrow_mut().insert(name);
        Ok(Rows { bytes, encoding, rows, k })
    }

    fn packed(&self, rows: Rows<'_>) -> Result<Packed> {
        Packed::new(&rows.bytes, rows.encoding, rows.rows, rows.k)
    }

    /// A matrix, never transposed.
    pub fn matrix(&self, name: &str, shape: [usize; 2]) -> Result<Packed> {
        self.packed(self.rows(name, ".weight", shape)?)
    }

    /// Takes the weight of a layer as read, if it is there.
    pub fn skip(&self, name: &str) {
        self.read.borrow_mut().extend(self.find(name, ".weight"));
    }

    /// The matrix of a block's layer.
    fn layer_rows(&self, name: &str, [rows, k]: [usize; 2]) -> Result<Rows<'a>> {
        if !self.names.is_transposed {
            return self.rows(name, ".weight", [rows, k]);
        }
        let stored = self.rows(name, ".weight", [k, rows])?;
        let size = stored.encoding.block_bytes();
        if stored.encoding.block_elems() != 1 {
            return Err(self.wrong(&format!("tensor {name} is packed and transposed")));
        }
        let mut bytes = Vec::with_capacity(stored.bytes.len());
        for row in 0..rows {
            (0..k).for_each(|n| bytes.extend(&stored.bytes[(n * rows + row) * size..][..size]));
        }
        Ok(Rows { bytes: bytes.into(), encoding: stored.encoding, rows, k })
    }

    /// The numbers of a vector, plus `added`.
    fn numbers(&self, name: &str, ending: &str, length: usize, added: f32) -> Result<Vec<f32>> {
        let rows = self.rows(name, ending, [1, length])?;
        let mut values = vec![0.0; length];
        rows.encoding.decode(&rows.bytes, &mut values);
        values.iter_mut().for_each(|value| *value += added);
        Ok(values)
    }

    /// A vector f32 `[length]`, plus `added`.
    pub fn vector(&self, name: &str, ending: &str, length: usize, added: f32) -> Result<Tensor> {
        let values = self.numbers(name, ending, length, added)?;
        let vector = Tensor::from_slice(&values, [length]);
        vector.check()?;
        Ok(vector)
    }

    /// A linear layer of `[outputs, inputs]`.
    pub fn linear(&self, name: &str, shape: [usize; 2], has_bias: bool) -> Result<Linear> {
        let weight = self.packed(self.layer_rows(name, shape)?)?;
        let bias = has_bias.then(|| self.vector(name, ".bias", shape[0], 0.0)).transpose()?;
        Ok(Linear { weight, bias })
    }

    /// Linear layers of these numbers of outputs, in one tensor one after another.
    pub fn fused(&self, name: &str, outputs: &[usize], inputs: usize, has_bias: bool) -> Result<Vec<Linear>> {
        let all = outputs.iter().sum();
        let rows = self.layer_rows(name, [all, inputs])?;
        let bias = has_bias.then(|| self.numbers(name, ".bias", all, 0.0)).transpose()?;
        let row_bytes = rows.bytes.len() / all.max(1);
        let mut first = 0;
        let mut part = |count: usize| -> Result<Linear> {
            let range: Range<usize> = first..first + count;
            first = range.end;
            let bytes = &rows.bytes[range.start * row_bytes..range.end * row_bytes];
            let weight = Packed::new(bytes, rows.encoding, count, inputs)?;
            let bias = bias.as_ref().map(|bias| Tensor::from_slice(&bias[range.clone()], [count]));
            bias.iter().try_for_each(Tensor::check)?;
            Ok(Linear { weight, bias })
        };
        outputs.iter().map(|count| part(*count)).collect()
    }

    /// The matrices of all experts, one after another: `[experts · rows, k]`.
    pub fn experts(&self, name: &str, count: usize, [rows, k]: [usize; 2]) -> Result<Packed> {
        let all = count.checked_mul(rows).filter(|all| i32::try_from(*all).is_ok());
        let all = all.ok_or_else(|| self.wrong(&format!("{count} experts of {rows} rows are too many")))?;
        if !name.contains("{e}") {
            return self.matrix(name, [all, k]);
        }
        let one = |expert: usize| self.rows(&name.replace("{e}", &expert.to_string()), ".weight", [rows, k]);
        let mut joined = one(0)?;
        for expert in 1..count {
            let next = one(expert)?;
            if next.encoding != joined.encoding {
                return Err(self.wrong(&format!("experts of {name} differ in their encodings")));
            }
            joined.bytes.to_mut().extend_from_slice(&next.bytes);
        }
        self.packed(Rows { rows: all, ..joined })
    }

    /// Refuses tensors that were not read.
    pub fn finish(&self) -> Result<()> {
        let read = self.read.borrow();
        let is_ignored = |name: &str| self.names.ignored.iter().any(|ending| name.ends_with(ending));
        match self.file.names().into_iter().find(|name| !read.contains(*name) && !is_ignored(name)) {
            Some(name) => Err(Error::unsupported(format!(
                "{}: tensor {name} is not part of the architecture as the configuration describes it",
                self.file.place()
            ))),
            None => Ok(()),
        }
    }
}
