//! Translation of layers to ONNX operators.

use std::collections::BTreeMap;

use panoply_tensor::{Error, Result, Tensor};

use super::proto::{Graph, Value};
use crate::layers::{Activation, Nonlinearity, sinusoidal_positional_encoding};
use crate::network::layer_spec::{
    ConvTransposeSpec, PoolSpec, RnnSpec, Sublayers, TransformerDecoderSpec, TransformerEncoderSpec,
};
use crate::network::{LayerSpec, Network};
use crate::onnx_import::onnx_proto::data_type::INT64;

/// Writer of one layer.
pub struct Writer<'a> {
    /// Graph that is written.
    pub graph: &'a mut Graph,
    /// All parameters of the network.
    pub params: &'a BTreeMap<String, Tensor>,
    /// Prefix of the layer's parameter names: its position and those of the layers around it.
    pub place: String,
    /// Number of values named so far.
    pub count: usize,
}

/// A value of the graph with the shape of an example.
#[derive(Clone, Copy)]
struct Sequence<'a> {
    value: &'a str,
    lengths: &'a [usize],
}

fn ints(values: &[usize]) -> Value {
    Value::Ints(values.iter().map(|value| *value as i64).collect())
}

/// Returns a setting of each axis, or its default.
fn or_default(values: &[usize], default: &[usize]) -> Vec<usize> {
    if values.is_empty() { default.to_vec() } else { values.to_vec() }
}

/// Returns the attributes of a kernel or pooling window.
fn window_attributes(
    size: &[usize],
    stride: &[usize],
    padding: &[usize],
    default_stride: &[usize],
) -> Vec<(&'static str, Value)> {
    let padding = or_default(padding, &vec![0; size.len()]);
    vec![
        ("kernel_shape", ints(size)),
        ("strides", ints(&or_default(stride, default_stride))),
        ("pads", ints(&[&padding[..], &padding].concat())),
    ]
}

impl Writer<'_> {
    /// Writes the operators of a layer for `input` with this shape (without the batch). Returns the name of the output.
    pub fn write(&mut self, layer: &LayerSpec, lengths: &[usize], input: &str) -> Result<String> {
        match layer {
            LayerSpec::Linear { bias, .. } => self.linear("", *bias, input),
            LayerSpec::Conv { kernel_size: size, stride, padding, dilation, groups, bias, .. } => {
                let padding = padding.zeros(size, dilation);
                let mut attributes = window_attributes(size, stride, &padding, &vec![1; size.len()]);
                attributes.push(("dilations", ints(&or_default(dilation, &vec![1; size.len()]))));
                attributes.push(("group", Value::Int(*groups as i64)));
                self.filters("Conv", *bias, input, &attributes)
            }
            LayerSpec::ConvTranspose(ConvTransposeSpec {
                kernel_size: size,
                stride,
                padding,
                output_padding: extra,
                groups,
                bias,
                ..
            }) => {
                let mut attributes = window_attributes(size, stride, padding, &vec![1; size.len()]);
                attributes.push(("output_padding", ints(&or_default(extra, &vec![0; size.len()]))));
                attributes.push(("group", Value::Int(*groups as i64)));
                self.filters("ConvTranspose", *bias, input, &attributes)
            }
            LayerSpec::MaxPool(PoolSpec { kernel_size: size, stride, padding }) => {
                Ok(self.op("MaxPool", &[input], &window_attributes(size, stride, padding, size)))
            }
            LayerSpec::AvgPool(PoolSpec { kernel_size: size, stride, padding }) => {
                let mut attributes = window_attributes(size, stride, padding, size);
                attributes.push(("count_include_pad", Value::Int(1)));
                Ok(self.op("AveragePool", &[input], &attributes))
            }
            LayerSpec::AdaptiveAvgPool { output_size: size } => self.adaptive("AveragePool", lengths, size, input),
            LayerSpec::AdaptiveMaxPool { output_size: size } => self.adaptive("MaxPool", lengths, size, input),
            LayerSpec::GlobalMaxPool {} => {
                let largest = self.op("GlobalMaxPool", &[input], &[]);
                Ok(self.op("Flatten", &[&largest], &[("axis", Value::Int(1))]))
            }
            LayerSpec::GlobalAvgPool {} => {
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
            LayerSpec::Standardize {} => {
                let (mean, deviation) = (self.buffer("mean")?, self.buffer("std")?);
                let centered = self.op("Sub", &[input, &mean], &[]);
                Ok(self.op("Div", &[&centered, &deviation], &[]))
            }
            LayerSpec::InverseStandardize {} => {
                let (mean, deviation) = (self.buffer("mean")?, self.buffer("std")?);
                let scaled = self.op("Mul", &[input, &deviation], &[]);
                Ok(self.op("Add", &[&scaled, &mean], &[]))
            }
            LayerSpec::GroupNorm { num_groups: groups, epsilon } => self.group_norm(*groups, *epsilon, lengths, input),
            LayerSpec::RmsNorm { epsilon } => {
                let square = self.op("Mul", &[input, input], &[]);
                let mean = self.op("ReduceMean", &[&square], &[("axes", Value::Ints(vec![-1]))]);
                let epsilon = self.scalar(*epsilon);
                let sum = self.op("Add", &[&mean, &epsilon], &[]);
                let root = self.op("Sqrt", &[&sum], &[]);
                let normal = self.op("Div", &[input, &root], &[]);
                let weight = self.param("weight")?;
                Ok(self.op("Mul", &[&normal, &weight], &[]))
            }
            LayerSpec::Dropout { .. }
            | LayerSpec::RandomShift { .. }
            | LayerSpec::RandomHorizontalFlip { .. }
            | LayerSpec::GaussianNoise { .. } => Ok(input.to_string()),
            LayerSpec::LeakyRelu { negative_slope: slope } => {
                Ok(self.op("LeakyRelu", &[input], &[("alpha", Value::Float(*slope))]))
            }
            LayerSpec::Elu {} => Ok(self.op("Elu", &[input], &[])),
            LayerSpec::Softplus {} => Ok(self.op("Softplus", &[input], &[])),
            LayerSpec::Mish {} => {
                let soft = self.op("Softplus", &[input], &[]);
                let share = self.op("Tanh", &[&soft], &[]);
                Ok(self.op("Mul", &[input, &share], &[]))
            }
            LayerSpec::GeluTanh {} => Ok(self.gelu_tanh(input)),
            LayerSpec::Selu {} => Ok(self.op("Selu", &[input], &[])),
            LayerSpec::Relu6 {} => Ok(self.clipped(0.0, 6.0, input)),
            LayerSpec::Hardsigmoid {} => Ok(self.hard_sigmoid(input)),
            LayerSpec::Hardswish {} => {
                let share = self.hard_sigmoid(input);
                Ok(self.op("Mul", &[input, &share], &[]))
            }
            LayerSpec::Softsign {} => Ok(self.op("Softsign", &[input], &[])),
            LayerSpec::Logsigmoid {} => {
                let turned = self.op("Neg", &[input], &[]);
                let soft = self.op("Softplus", &[&turned], &[]);
                Ok(self.op("Neg", &[&soft], &[]))
            }
            LayerSpec::LogSoftmax {} => Ok(self.op("LogSoftmax", &[input], &[("axis", Value::Int(-1))])),
            LayerSpec::Embedding { num_embeddings: count, .. } => self.embedding(*count, input),
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
            LayerSpec::Reshape { shape: lengths } => Ok(self.reshape(input, &[&[-1], &signed(lengths)[..]].concat())),
            LayerSpec::Rnn(memory) => {
                let directions = if memory.bidirectional { 2 } else { 1 };
                let relu = ("activations", Value::Texts(vec!["Relu"; directions]));
                let is_relu = memory.nonlinearity == Nonlinearity::Relu;
                self.recurrent(("RNN", &[0]), memory, is_relu.then_some(relu), input)
            }
            // The gates in ONNX's order: input, output, forget, cell; update, reset, new.
            LayerSpec::Lstm(memory) => self.recurrent(("LSTM", &[0, 3, 1, 2]), memory, None, input),
            LayerSpec::Gru(memory) => {
                self.recurrent(("GRU", &[1, 0, 2]), memory, Some(("linear_before_reset", Value::Int(1))), input)
            }
            LayerSpec::LastTimeStep {} => {
                let last = self.integers(&[-1], true);
                Ok(self.op("Gather", &[input, &last], &[("axis", Value::Int(1))]))
            }
            LayerSpec::TimeMean {} => {
                Ok(self.op("ReduceMean", &[input], &[("axes", Value::Ints(vec![1])), ("keepdims", Value::Int(0))]))
            }
            LayerSpec::PositionalEncoding {} => {
                let positions = self.constant(&sinusoidal_positional_encoding(lengths[0], lengths[1]))?;
                Ok(self.op("Add", &[input, &positions], &[]))
            }
            LayerSpec::Narrow { start, length } => {
                let bounds = [*start, start + length, 1].map(|number| self.integers(&[number as i64], false));
                let [start, end, axis] = bounds;
                Ok(self.op("Slice", &[input, &start, &end, &axis], &[]))
            }
            LayerSpec::TransformerEncoderLayer(block) => self.encoder(block, lengths, input),
            LayerSpec::TransformerDecoder(decoder) => self.decoder(decoder, &layer.sublayers(), lengths, input),
            LayerSpec::MultiHeadAttention { num_heads: heads, num_kv_heads: key_heads, is_causal: causal, .. } => {
                let heads = [*heads, key_heads.unwrap_or(*heads)];
                let own = Sequence { value: input, lengths };
                match &layer.sublayers()[..] {
                    [source] => {
                        let (value, lengths) = self.part(source, lengths, input)?;
                        self.attention("attention.", own, Sequence { value: &value, lengths: &lengths }, heads, false)
                    }
                    _ => self.attention("", own, own, heads, *causal),
                }
            }
            LayerSpec::Onnx(_) => {
                let message =
                    format!("layer {}: an imported ONNX network can only be exported as the only layer", self.number());
                Err(Error::unsupported(message))
            }
            LayerSpec::Residual { .. } | LayerSpec::ActivationCheckpoint { .. } => {
                let values = layer.sublayers().into_iter().map(|part| Ok(self.part(&part, lengths, input)?.0));
                match &values.collect::<Result<Vec<String>>>()?[..] {
                    [added, around] => Ok(self.op("Add", &[around, added], &[])),
                    values => Ok(values.concat()),
                }
            }
        }
    }

    /// Writes a convolution.
    fn filters(
        &mut self,
        operator: &str,
        bias: bool,
        input: &str,
        attributes: &[(&'static str, Value)],
    ) -> Result<String> {
        let mut inputs = vec![input.to_string(), self.param("weight")?];
        if bias {
            inputs.push(self.param("bias")?);
        }
        Ok(self.op(operator, &inputs.iter().map(String::as_str).collect::<Vec<&str>>(), attributes))
    }

    /// Writes an embedding. ONNX counts negative indices from the end and rejects others. Here rows out of range are zeros, and NaN is
    /// index 0.
    fn embedding(&mut self, count: usize, input: &str) -> Result<String> {
        let weight = self.param("weight")?;
        let zero = self.scalar(0.0);
        let unknown = self.op("IsNaN", &[input], &[]);
        let known = self.op("Where", &[&unknown, &zero, input], &[]);
        // The conversion of a float outside the integer's range is undefined.
        let near = self.clipped(-1.0, count as f64, &known);
        let places = self.op("Cast", &[&near], &[("to", Value::Int(INT64))]);
        let [first, last] = [0, count - 1].map(|place| self.integers(&[place as i64], true));
        let inside = self.op("Clip", &[&places, &first, &last], &[]);
        let rows = self.op("Gather", &[&weight, &inside], &[]);
        let kept = self.op("Equal", &[&places, &inside], &[]);
        let axis = self.integers(&[-1], false);
        let kept = self.op("Unsqueeze", &[&kept, &axis], &[]);
        Ok(self.op("Where", &[&kept, &rows, &zero], &[]))
    }

    /// Writes adaptive pooling as plain pooling, which requires windows of equal length.
    fn adaptive(&mut self, operator: &str, lengths: &[usize], parts: &[usize], input: &str) -> Result<String> {
        let lengths = &lengths[1..];
        if lengths.iter().zip(parts).any(|(length, parts)| !length.is_multiple_of(*parts)) {
            let message = format!("layer {}: ONNX has no adaptive pooling of {lengths:?} to {parts:?}", self.number());
            return Err(Error::mistake(message).note("output sizes that divide the input lengths can be exported"));
        }
        let size: Vec<usize> = lengths.iter().zip(parts).map(|(length, parts)| length / parts).collect();
        Ok(self.op(operator, &[input], &window_attributes(&size, &[], &[], &size)))
    }

    /// Writes a group norm as an instance norm with one channel per group, followed by the channels' scale and shift.
    fn group_norm(&mut self, groups: usize, epsilon: f64, lengths: &[usize], input: &str) -> Result<String> {
        // All lengths are explicit: inferring one divides by the batch, which fails for an empty batch.
        let apart = self.reshape(input, &signed(&[0, groups, lengths.iter().product::<usize>() / groups]));
        let ones = self.constant(&Tensor::from_slice(&vec![1f32; groups], [groups]))?;
        let zeros = self.constant(&Tensor::from_slice(&vec![0f32; groups], [groups]))?;
        let attributes = [("epsilon", Value::Float(epsilon))];
        let normal = self.op("InstanceNormalization", &[&apart, &ones, &zeros], &attributes);
        let normal = self.reshape(&normal, &[&[-1], &signed(lengths)[..]].concat());
        let column = |writer: &mut Self, name: &str| -> Result<String> {
            let values = (1..lengths.len()).fold(writer.param_tensor(name)?, |values, _| values.unsqueeze(-1));
            writer.tensor(&values)
        };
        let (weight, bias) = (column(self, "weight")?, column(self, "bias")?);
        let scaled = self.op("Mul", &[&normal, &weight], &[]);
        Ok(self.op("Add", &[&scaled, &bias], &[]))
    }

    /// Returns the number of the outermost layer, counted from 0.
    fn number(&self) -> usize {
        self.place.split('.').next().and_then(|at| at.parse::<usize>().ok()).unwrap_or(0)
    }

    /// Writes sublayers over `input`. Returns the name of the output and its shape, without the batch.
    fn part(&mut self, part: &Sublayers<'_>, lengths: &[usize], input: &str) -> Result<(String, Vec<usize>)> {
        let mut shapes = Network { layers: part.layers.to_vec(), ..Network::with_input(lengths) }.layer_shapes()?;
        let mut value = input.to_string();
        for (at, layer) in part.layers.iter().enumerate() {
            let place = format!("{}.{}{at}", self.place, part.params);
            let mut inner = Writer { graph: self.graph, params: self.params, place, count: 0 };
            value = inner.write(layer, &shapes[at], &value)?;
        }
        Ok((value, shapes.pop().unwrap_or_default()))
    }

    fn name(&mut self) -> String {
        self.count += 1;
        format!("{}.{}", self.place, self.count)
    }

    fn op(&mut self, operator: &str, inputs: &[&str], attributes: &[(&str, Value)]) -> String {
        let output = self.name();
        self.graph.node(operator, inputs, &output, attributes);
        output
    }

    fn param_tensor(&self, name: &str) -> Result<Tensor> {
        let name = format!("{}.{name}", self.place);
        let missing = || Error::mistake(format!("parameter {name} is missing in the exported model"));
        self.params.get(&name).cloned().ok_or_else(missing)
    }

    /// Adds a parameter to the graph under its own name.
    fn param(&mut self, name: &str) -> Result<String> {
        let tensor = self.param_tensor(name)?;
        let name = format!("{}.{name}", self.place);
        self.graph.floats(&name, &tensor)?;
        Ok(name)
    }

    /// Adds a parameter that is not trained under its own name.
    fn buffer(&mut self, name: &str) -> Result<String> {
        let name = self.param(name)?;
        self.graph.buffer(&name);
        Ok(name)
    }

    /// Adds a constant that does not depend on parameters.
    fn constant(&mut self, tensor: &Tensor) -> Result<String> {
        let name = self.tensor(tensor)?;
        self.graph.buffer(&name);
        Ok(name)
    }

    /// Adds a constant that is computed from parameters.
    fn tensor(&mut self, tensor: &Tensor) -> Result<String> {
        let name = self.name();
        self.graph.floats(&name, tensor)?;
        Ok(name)
    }

    fn scalar(&mut self, value: f64) -> String {
        let name = self.name();
        self.graph.float(&name, value as f32);
        name
    }

    fn integers(&mut self, values: &[i64], scalar: bool) -> String {
        let name = self.name();
        self.graph.integers(&name, values, scalar);
        name
    }

    fn reshape(&mut self, input: &str, dims: &[i64]) -> String {
        let shape = self.integers(dims, false);
        self.op("Reshape", &[input, &shape], &[])
    }

    /// Writes x · weightᵀ + bias with the parameters under a prefix.
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

    /// Writes GELU: x · (1 + erf(x / √2)) / 2.
    fn gelu(&mut self, input: &str) -> String {
        let [root, one, half] = [std::f64::consts::FRAC_1_SQRT_2, 1.0, 0.5].map(|value| self.scalar(value));
        let scaled = self.op("Mul", &[input, &root], &[]);
        let erf = self.op("Erf", &[&scaled], &[]);
        let sum = self.op("Add", &[&erf, &one], &[]);
        let product = self.op("Mul", &[input, &sum], &[]);
        self.op("Mul", &[&product, &half], &[])
    }

    /// Writes GELU in the tanh approximation: x / 2 · (1 + tanh(√(2/π) · (x + 0.044715 x³))).
    fn gelu_tanh(&mut self, input: &str) -> String {
        let root = (2.0 / std::f64::consts::PI).sqrt();
        let [cubic, one, root, half] = [0.044715, 1.0, root, 0.5].map(|value| self.scalar(value));
        let square = self.op("Mul", &[input, input], &[]);
        let bent = self.op("Mul", &[&square, &cubic], &[]);
        let factor = self.op("Add", &[&bent, &one], &[]);
        let inner = self.op("Mul", &[input, &factor], &[]);
        let scaled = self.op("Mul", &[&inner, &root], &[]);
        let tanh = self.op("Tanh", &[&scaled], &[]);
        let sum = self.op("Add", &[&tanh, &one], &[]);
        let product = self.op("Mul", &[input, &sum], &[]);
        self.op("Mul", &[&product, &half], &[])
    }

    fn clipped(&mut self, low: f64, high: f64, input: &str) -> String {
        let [low, high] = [low, high].map(|value| self.scalar(value));
        self.op("Clip", &[input, &low, &high], &[])
    }

    /// Writes the hard sigmoid: (x + 3) / 6 clipped to 0 ..= 1.
    fn hard_sigmoid(&mut self, input: &str) -> String {
        let [three, six] = [3.0, 6.0].map(|value| self.scalar(value));
        let sum = self.op("Add", &[input, &three], &[]);
        let clipped = self.clipped(0.0, 6.0, &sum);
        self.op("Div", &[&clipped, &six], &[])
    }

    /// Writes recurrent layers with an operator of ONNX, which expects time-major sequences, and the positions of its gates among ours.
    fn recurrent(
        &mut self,
        (operator, gates): (&str, &[usize]),
        memory: &RnnSpec,
        attribute: Option<(&'static str, Value)>,
        input: &str,
    ) -> Result<String> {
        let directions = if memory.bidirectional { 2 } else { 1 };
        let turned = self.op("Transpose", &[input], &[("perm", Value::Ints(vec![1, 0, 2]))]);
        let (mut value, batch) = self.at_least_one(&turned);
        for depth in 0..memory.num_layers {
            let gathered = |writer: &Self, names: &[&str]| -> Result<Tensor> {
                let mut sides = Vec::new();
                for side in 0..directions {
                    let mut parts = Vec::new();
                    for name in names {
                        let all = writer.param_tensor(&format!("layers.{depth}.directions.{side}.{name}"))?;
                        parts.extend(
                            gates.iter().map(|gate| all.narrow(0, gate * memory.hidden_size, memory.hidden_size)),
                        );
                    }
                    sides.push(Tensor::concat(&parts, 0));
                }
                Ok(Tensor::stack(&sides, 0))
            };
            let [weight, back, bias] =
                [&["weight_ih"][..], &["weight_hh"], &["bias_ih", "bias_hh"]].map(|names| gathered(self, names));
            let [weight, back, bias] = [self.tensor(&weight?)?, self.tensor(&back?)?, self.tensor(&bias?)?];
            let mut attributes = vec![
                ("hidden_size", Value::Int(memory.hidden_size as i64)),
                ("direction", Value::Text(if memory.bidirectional { "bidirectional" } else { "forward" })),
            ];
            attributes.extend(attribute.clone());
            let outputs = self.op(operator, &[&value, &weight, &back, &bias], &attributes);
            // [time, directions, batch, hidden] to [time, batch, directions · hidden].
            let beside = self.op("Transpose", &[&outputs], &[("perm", Value::Ints(vec![0, 2, 1, 3]))]);
            value = self.reshape(&beside, &signed(&[0, 0, directions * memory.hidden_size]));
        }
        let (first, axis) = (self.integers(&[0], false), self.integers(&[1], false));
        let value = self.op("Slice", &[&value, &first, &batch, &axis], &[]);
        Ok(self.op("Transpose", &[&value], &[("perm", Value::Ints(vec![1, 0, 2]))]))
    }

    /// Pads an empty batch of sequences `[time, batch, features]` with one sequence of zeros, since onnxruntime's recurrent operators crash
    /// on an empty batch. Also returns the original batch size.
    fn at_least_one(&mut self, sequences: &str) -> (String, String) {
        let shape = self.op("Shape", &[sequences], &[]);
        let [one, axis] = [1, 1].map(|number| self.integers(&[number], false));
        let batch = self.op("Gather", &[&shape, &axis], &[]);
        let there = self.op("Min", &[&batch, &one], &[]);
        let absent = self.op("Sub", &[&one, &there], &[]);
        let (before, behind) = (self.integers(&[0; 4], false), self.integers(&[0], false));
        let pads = self.op("Concat", &[&before, &absent, &behind], &[("axis", Value::Int(0))]);
        (self.op("Pad", &[sequences, &pads], &[]), batch)
    }

    /// Writes attention with `heads` query heads and `shared` key and value heads; neighboring query heads share the latter.
    fn attention(
        &mut self,
        prefix: &str,
        queries: Sequence<'_>,
        source: Sequence<'_>,
        [heads, shared]: [usize; 2],
        causal: bool,
    ) -> Result<String> {
        let (time, width) = (queries.lengths[0], queries.lengths[1]);
        let (group, size) = (heads / shared, width / heads);
        let mut apart = |name: &str, from: Sequence<'_>, group: usize, perm: [i64; 5]| -> Result<String> {
            let value = self.linear(&format!("{prefix}{name}."), true, from.value)?;
            let heads = self.reshape(&value, &signed(&[0, from.lengths[0], shared, group, size]));
            Ok(self.op("Transpose", &[&heads], &[("perm", Value::Ints(perm.to_vec()))]))
        };
        let query = apart("query", queries, group, [0, 2, 3, 1, 4])?;
        let key = apart("key", source, 1, [0, 2, 3, 4, 1])?;
        let value = apart("value", source, 1, [0, 2, 3, 1, 4])?;
        let scores = self.op("MatMul", &[&query, &key], &[]);
        let scale = self.scalar(1.0 / (size as f64).sqrt());
        let mut scaled = self.op("Mul", &[&scores, &scale], &[]);
        if causal {
            let seen: Vec<bool> = (0..time * time).map(|place| place % time <= place / time).collect();
            let mask = self.name();
            self.graph.bools(&mask, &[time, time], &seen);
            let hidden = self.scalar(f64::NEG_INFINITY);
            scaled = self.op("Where", &[&mask, &scaled, &hidden], &[]);
        }
        let weights = self.op("Softmax", &[&scaled], &[("axis", Value::Int(-1))]);
        let taken = self.op("MatMul", &[&weights, &value], &[]);
        let beside = self.op("Transpose", &[&taken], &[("perm", Value::Ints(vec![0, 3, 1, 2, 4]))]);
        let joined = self.reshape(&beside, &signed(&[0, time, width]));
        self.linear(&format!("{prefix}output."), true, &joined)
    }

    fn encoder(&mut self, block: &TransformerEncoderSpec, lengths: &[usize], input: &str) -> Result<String> {
        let seen = self.added("norms.0.", block, input, |writer, value| {
            let own = Sequence { value, lengths };
            writer.attention("attention.", own, own, [block.num_heads; 2], block.is_causal)
        })?;
        self.added("norms.1.", block, &seen, |writer, value| writer.dense("", block.activation, value))
    }

    fn decoder(
        &mut self,
        decoder: &TransformerDecoderSpec,
        parts: &[Sublayers<'_>],
        lengths: &[usize],
        input: &str,
    ) -> Result<String> {
        let (mut value, own_lengths) = self.part(&parts[0], lengths, input)?;
        let (source, source_lengths) = self.part(&parts[1], lengths, input)?;
        let source = Sequence { value: &source, lengths: &source_lengths };
        let (heads, block) = ([decoder.num_heads; 2], decoder.block());
        for at in 0..decoder.num_layers {
            let of = |name: &str| format!("layers.{at}.{name}.");
            value = self.added(&of("norms.0"), &block, &value, |writer, value| {
                let own = Sequence { value, lengths: &own_lengths };
                writer.attention(&of("attention"), own, own, heads, true)
            })?;
            value = self.added(&of("norms.1"), &block, &value, |writer, value| {
                let own = Sequence { value, lengths: &own_lengths };
                writer.attention(&of("cross"), own, source, heads, false)
            })?;
            let prefix = format!("layers.{at}.");
            value = self.added(&of("norms.2"), &block, &value, |writer, value| {
                writer.dense(&prefix, block.activation, value)
            })?;
        }
        Ok(value)
    }

    /// Writes a residual connection with a norm before the layer or after the sum.
    fn added(
        &mut self,
        norm: &str,
        block: &TransformerEncoderSpec,
        input: &str,
        layer: impl FnOnce(&mut Self, &str) -> Result<String>,
    ) -> Result<String> {
        let (first, epsilon) = (block.norm_first, block.epsilon);
        let into = if first { self.layer_norm(norm, epsilon, input)? } else { input.to_string() };
        let made = layer(self, &into)?;
        let sum = self.op("Add", &[input, &made], &[]);
        if first { Ok(sum) } else { self.layer_norm(norm, epsilon, &sum) }
    }

    /// Writes the feed-forward network of a block.
    fn dense(&mut self, prefix: &str, activation: Activation, input: &str) -> Result<String> {
        let up = self.linear(&format!("{prefix}dense.up."), true, input)?;
        let inner = match activation {
            Activation::Relu => self.op("Relu", &[&up], &[]),
            Activation::Gelu => self.gelu(&up),
        };
        self.linear(&format!("{prefix}dense.down."), true, &inner)
    }
}

fn signed(lengths: &[usize]) -> Vec<i64> {
    lengths.iter().map(|length| *length as i64).collect()
}
