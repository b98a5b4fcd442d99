//! Each layer in ONNX's operators.

use std::collections::BTreeMap;

use panoply_tensor::{Error, Result, Tensor};

use super::proto::{Graph, Value};
use crate::layers::{Cell, sinusoidal_positions};
use crate::network::LayerSpec;
use crate::network::layer_spec::Memory;

/// Writes one layer.
pub struct Writer<'a> {
    /// Where to.
    pub graph: &'a mut Graph,
    /// All parameters of the network.
    pub params: &'a BTreeMap<String, Tensor>,
    /// Its position.
    pub layer: usize,
    /// Values named so far.
    pub count: usize,
}

fn ints(values: &[usize]) -> Value {
    Value::Ints(values.iter().map(|value| *value as i64).collect())
}

impl Writer<'_> {
    /// The operators of a layer over `input`, whose lengths behind the batch are these; the name of what comes out.
    pub fn write(&mut self, layer: &LayerSpec, lengths: &[usize], input: &str) -> Result<String> {
        match layer {
            LayerSpec::Linear { bias, .. } => self.linear("", *bias, input),
            LayerSpec::Conv { size, stride, padding, groups, bias, .. } => {
                let axes = |said: &[usize], otherwise: usize| {
                    if said.is_empty() { vec![otherwise; size.len()] } else { said.to_vec() }
                };
                let padding = axes(padding, 0);
                let attributes = [
                    ("kernel_shape", ints(size)),
                    ("strides", ints(&axes(stride, 1))),
                    ("pads", ints(&[&padding[..], &padding].concat())),
                    ("group", Value::Int(*groups as i64)),
                ];
                let mut inputs = vec![input.to_string(), self.param("weight")?];
                if *bias {
                    inputs.push(self.param("bias")?);
                }
                Ok(self.op("Conv", &inputs.iter().map(String::as_str).collect::<Vec<&str>>(), &attributes))
            }
            LayerSpec::MaxPool { size } => {
                Ok(self.op("MaxPool", &[input], &[("kernel_shape", ints(size)), ("strides", ints(size))]))
            }
            LayerSpec::AveragePool { size } => {
                Ok(self.op("AveragePool", &[input], &[("kernel_shape", ints(size)), ("strides", ints(size))]))
            }
            LayerSpec::GlobalAveragePool {} => {
                let mean = self.op("GlobalAveragePool", &[input], &[]);
                Ok(self.op("Flatten", &[&mean], &[("axis", Value::Int(1))]))
            }
            LayerSpec::BatchNorm { epsilon } => {
                let names = ["weight", "bias", "running_mean", "running_var"];
                let params = names.into_iter().map(|name| self.param(name)).collect::<Result<Vec<String>>>()?;
                let inputs = [input, &params[0], &params[1], &params[2], &params[3]];
                Ok(self.op("BatchNormalization", &inputs, &[("epsilon", Value::Float(*epsilon))]))
            }
            LayerSpec::LayerNorm { epsilon } => self.layer_norm("", *epsilon, input),
            LayerSpec::Standardise {} => {
                let (mean, deviation) = (self.param("mean")?, self.param("deviation")?);
                let centred = self.op("Sub", &[input, &mean], &[]);
                Ok(self.op("Div", &[&centred, &deviation], &[]))
            }
            LayerSpec::Dropout { .. } => Ok(input.to_string()),
            LayerSpec::Relu {} => Ok(self.op("Relu", &[input], &[])),
            LayerSpec::Gelu {} => Ok(self.gelu(input)),
            LayerSpec::Silu {} => {
                let share = self.op("Sigmoid", &[input], &[]);
                Ok(self.op("Mul", &[input, &share], &[]))
            }
            LayerSpec::Sigmoid {} => Ok(self.op("Sigmoid", &[input], &[])),
            LayerSpec::Tanh {} => Ok(self.op("Tanh", &[input], &[])),
            LayerSpec::Softmax {} => Ok(self.op("Softmax", &[input], &[("axis", Value::Int(-1))])),
            LayerSpec::Flatten {} => Ok(self.op("Flatten", &[input], &[("axis", Value::Int(1))])),
            LayerSpec::Reshape { lengths } => Ok(self.reshape(input, &[&[-1], &signed(lengths)[..]].concat())),
            LayerSpec::Rnn(memory) => self.recurrent(Cell::Plain, memory, input),
            LayerSpec::Lstm(memory) => self.recurrent(Cell::Lstm, memory, input),
            LayerSpec::Gru(memory) => self.recurrent(Cell::Gru, memory, input),
            LayerSpec::Last {} => {
                let last = self.name();
                self.graph.integers(&last, &[-1], true);
                Ok(self.op("Gather", &[input, &last], &[("axis", Value::Int(1))]))
            }
            LayerSpec::MeanOverTime {} => {
                Ok(self.op("ReduceMean", &[input], &[("axes", Value::Ints(vec![1])), ("keepdims", Value::Int(0))]))
            }
            LayerSpec::Positions {} => {
                let positions = self.tensor(&sinusoidal_positions(lengths[0], lengths[1]))?;
                Ok(self.op("Add", &[input, &positions], &[]))
            }
            LayerSpec::Encoder { heads, .. } => self.encoder(lengths, *heads, input),
        }
    }

    fn name(&mut self) -> String {
        self.count += 1;
        format!("{}.{}", self.layer, self.count)
    }

    fn op(&mut self, operator: &str, inputs: &[&str], attributes: &[(&str, Value)]) -> String {
        let output = self.name();
        self.graph.node(operator, inputs, &output, attributes);
        output
    }

    fn param_tensor(&self, name: &str) -> Result<Tensor> {
        let name = format!("{}.{name}", self.layer);
        let missing = || Error::mistake(format!("{name} is no parameter of the model that is exported"));
        self.params.get(&name).cloned().ok_or_else(missing)
    }

    /// A parameter under its own name.
    fn param(&mut self, name: &str) -> Result<String> {
        let tensor = self.param_tensor(name)?;
        let name = format!("{}.{name}", self.layer);
        self.graph.floats(&name, tensor.shape()?.dims(), &tensor.to_bytes()?);
        Ok(name)
    }

    /// A constant made of parameters.
    fn tensor(&mut self, tensor: &Tensor) -> Result<String> {
        let name = self.name();
        self.graph.floats(&name, tensor.shape()?.dims(), &tensor.to_bytes()?);
        Ok(name)
    }

    fn scalar(&mut self, value: f64) -> String {
        let name = self.name();
        self.graph.floats(&name, &[], &(value as f32).to_le_bytes());
        name
    }

    fn reshape(&mut self, input: &str, dims: &[i64]) -> String {
        let shape = self.name();
        self.graph.integers(&shape, dims, false);
        self.op("Reshape", &[input, &shape], &[])
    }

    /// x · weightᵀ + bias of the parameters under a prefix.
    fn linear(&mut self, prefix: &str, bias: bool, input: &str) -> Result<String> {
        let weight = self.param_tensor(&format!("{prefix}weight"))?.t();
        let weight = self.tensor(&weight)?;
        let product = self.op("MatMul", &[input, &weight], &[]);
        if !bias {
            return Ok(product);
        }
        let bias = self.param(&format!("{prefix}bias"))?;
        Ok(self.op("Add", &[&product, &bias], &[]))
    }

    fn layer_norm(&mut self, prefix: &str, epsilon: f64, input: &str) -> Result<String> {
        let (weight, bias) = (self.param(&format!("{prefix}weight"))?, self.param(&format!("{prefix}bias"))?);
        let attributes = [("axis", Value::Int(-1)), ("epsilon", Value::Float(epsilon))];
        Ok(self.op("LayerNormalization", &[input, &weight, &bias], &attributes))
    }

    /// x · (1 + erf(x / √2)) / 2.
    fn gelu(&mut self, input: &str) -> String {
        let [root, one, half] = [std::f64::consts::FRAC_1_SQRT_2, 1.0, 0.5].map(|value| self.scalar(value));
        let scaled = self.op("Mul", &[input, &root], &[]);
        let erf = self.op("Erf", &[&scaled], &[]);
        let sum = self.op("Add", &[&erf, &one], &[]);
        let product = self.op("Mul", &[input, &sum], &[]);
        self.op("Mul", &[&product, &half], &[])
    }

    /// ONNX wants the time first and its gates in another order: input, output, forget, cell; update, reset, new.
    fn recurrent(&mut self, cell: Cell, memory: &Memory, input: &str) -> Result<String> {
        let (operator, gates): (&str, &[usize]) = match cell {
            Cell::Plain => ("RNN", &[0]),
            Cell::Lstm => ("LSTM", &[0, 3, 1, 2]),
            Cell::Gru => ("GRU", &[1, 0, 2]),
        };
        let directions = if memory.both { 2 } else { 1 };
        let mut value = self.op("Transpose", &[input], &[("perm", Value::Ints(vec![1, 0, 2]))]);
        for depth in 0..memory.layers {
            let gathered = |writer: &Self, names: &[&str]| -> Result<Tensor> {
                let mut sides = Vec::new();
                for side in 0..directions {
                    let mut parts = Vec::new();
                    for name in names {
                        let all = writer.param_tensor(&format!("layers.{depth}.directions.{side}.{name}"))?;
                        parts.extend(gates.iter().map(|gate| all.narrow(0, gate * memory.hidden, memory.hidden)));
                    }
                    sides.push(Tensor::concat(&parts, 0));
                }
                Ok(Tensor::stack(&sides, 0))
            };
            let [weight, back, bias] = [&["input_weight"][..], &["hidden_weight"], &["input_bias", "hidden_bias"]]
                .map(|names| gathered(self, names));
            let [weight, back, bias] = [self.tensor(&weight?)?, self.tensor(&back?)?, self.tensor(&bias?)?];
            let mut attributes = vec![
                ("hidden_size", Value::Int(memory.hidden as i64)),
                ("direction", Value::Text(if memory.both { "bidirectional" } else { "forward" })),
            ];
            if let Cell::Gru = cell {
                attributes.push(("linear_before_reset", Value::Int(1)));
            }
            let outputs = self.op(operator, &[&value, &weight, &back, &bias], &attributes);
            // [time, directions, batch, hidden] to [time, batch, directions · hidden].
            let beside = self.op("Transpose", &[&outputs], &[("perm", Value::Ints(vec![0, 2, 1, 3]))]);
            value = self.reshape(&beside, &[0, 0, -1]);
        }
        Ok(self.op("Transpose", &[&value], &[("perm", Value::Ints(vec![1, 0, 2]))]))
    }

    fn encoder(&mut self, lengths: &[usize], heads: usize, input: &str) -> Result<String> {
        let (time, width) = (lengths[0], lengths[1]);
        let normal = self.layer_norm("norms.0.", 1e-5, input)?;
        let apart = |writer: &mut Self, name: &str, perm: [i64; 4]| -> Result<String> {
            let value = writer.linear(&format!("attention.{name}."), true, &normal)?;
            let heads = writer.reshape(&value, &signed(&[0, time, heads, width / heads]));
            Ok(writer.op("Transpose", &[&heads], &[("perm", Value::Ints(perm.to_vec()))]))
        };
        let query = apart(self, "query", [0, 2, 1, 3])?;
        let key = apart(self, "key", [0, 2, 3, 1])?;
        let value = apart(self, "value", [0, 2, 1, 3])?;
        let scores = self.op("MatMul", &[&query, &key], &[]);
        let scale = self.scalar(1.0 / ((width / heads) as f64).sqrt());
        let scaled = self.op("Mul", &[&scores, &scale], &[]);
        let shares = self.op("Softmax", &[&scaled], &[("axis", Value::Int(-1))]);
        let taken = self.op("MatMul", &[&shares, &value], &[]);
        let beside = self.op("Transpose", &[&taken], &[("perm", Value::Ints(vec![0, 2, 1, 3]))]);
        let joined = self.reshape(&beside, &signed(&[0, time, width]));
        let seen = self.linear("attention.output.", true, &joined)?;
        let sum = self.op("Add", &[input, &seen], &[]);
        let normal = self.layer_norm("norms.1.", 1e-5, &sum)?;
        let up = self.linear("dense.up.", true, &normal)?;
        let inner = self.gelu(&up);
        let down = self.linear("dense.down.", true, &inner)?;
        Ok(self.op("Add", &[&sum, &down], &[]))
    }
}

fn signed(lengths: &[usize]) -> Vec<i64> {
    lengths.iter().map(|length| *length as i64).collect()
}
