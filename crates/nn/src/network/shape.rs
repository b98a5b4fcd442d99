//! Shape inference and validation of layers. `{before}` in a message is replaced by the name of the previous layer.

use super::layer_spec::{
    ConvTransposeSpec, LayerSpec, RnnSpec, Sublayers, TransformerDecoderSpec, TransformerEncoderSpec,
};
use super::size;
use crate::layers::Nonlinearity;

/// Largest allowed size; a larger one is considered a typing error.
const MAX_SIZE: usize = 1 << 24;

/// Maximum number of decoder blocks.
const MAX_BLOCKS: usize = 1 << 12;

/// Returns the input shape of each layer followed by the output shape, or the position and message of the first layer that does not fit.
pub(crate) fn through(layers: &[LayerSpec], input: &[usize]) -> Result<Vec<Vec<usize>>, (usize, String)> {
    let mut shapes = vec![input.to_vec()];
    for (at, layer) in layers.iter().enumerate() {
        let next = layer.output(&shapes[at]).map_err(|what| (at, what))?;
        shapes.push(next);
    }
    Ok(shapes)
}

/// Returns an error message about a layer with its position, counted from 0 as in parameter names, its kind and the layer before it.
pub(super) fn complaint(layers: &[LayerSpec], at: usize, what: &str) -> String {
    let before = match at.checked_sub(1) {
        Some(before) => format!("layer {before} ({})", layers[before].kind()),
        None => "the input".to_string(),
    };
    format!("layer {at} ({}): {}", layers[at].kind(), what.replace("{before}", &before))
}

/// Returns the output shape of sublayers.
fn of_part(part: &Sublayers<'_>, input: &[usize]) -> Result<Vec<usize>, String> {
    let shapes = through(part.layers, input);
    let wrong = |(at, what): (usize, String)| format!("{}: {}", part.name, complaint(part.layers, at, &what));
    Ok(shapes.map_err(wrong)?.pop().unwrap_or_default())
}

impl LayerSpec {
    /// Returns the output shape for an input shape, both without the batch.
    pub(super) fn output(&self, input: &[usize]) -> Result<Vec<usize>, String> {
        let output = match self {
            LayerSpec::Linear { out_features: outputs, in_features: inputs, .. } => {
                let (last, rest) = input.split_last().ok_or("needs at least one axis")?;
                taken("in_features", *inputs, *last)?;
                [rest, &[within("out_features", *outputs)?]].concat()
            }
            LayerSpec::Conv {
                out_channels: outputs,
                in_channels: inputs,
                kernel_size: size,
                stride,
                padding,
                dilation,
                groups,
                ..
            } => {
                let lengths = images("kernel_size", input, size)?;
                taken("in_channels", *inputs, input[0])?;
                let dilation = along("dilation", dilation, size, 1)?;
                dilation.iter().try_for_each(|apart| within("dilation", *apart).map(|_| ()))?;
                padding.check(size, stride, &dilation)?;
                let moved = Moved::new(size, stride, &padding.zeros(size, &dilation), 1)?;
                let spread: Vec<usize> = (0..size.len()).map(|axis| (size[axis] - 1) * dilation[axis] + 1).collect();
                [&[grouped(*groups, input[0], *outputs)?][..], &moved.positions(lengths, &spread)?].concat()
            }
            LayerSpec::ConvTranspose(transposed) => transposed.output(input)?,
            LayerSpec::MaxPool(windows) | LayerSpec::AvgPool(windows) => {
                let lengths = images("kernel_size", input, &windows.kernel_size)?;
                let moved = Moved::new(&windows.kernel_size, &windows.stride, &windows.padding, 0)?;
                if let Some(axis) =
                    (0..lengths.len()).find(|axis| 2 * moved.padding[*axis] > windows.kernel_size[*axis])
                {
                    return Err(format!(
                        "padding {} is more than half of the kernel size {}",
                        moved.padding[axis], windows.kernel_size[axis]
                    ));
                }
                [&input[..1], &moved.positions(lengths, &windows.kernel_size)?].concat()
            }
            LayerSpec::AdaptiveAvgPool { output_size: size } | LayerSpec::AdaptiveMaxPool { output_size: size } => {
                images("output_size", input, size)?;
                [&input[..1], size].concat()
            }
            LayerSpec::GlobalAvgPool {} | LayerSpec::GlobalMaxPool {} => match input {
                [channels, _, ..] => vec![*channels],
                _ => return Err(format!("expected [channels, lengths], got {input:?} from {{before}}")),
            },
            LayerSpec::BatchNorm { epsilon }
            | LayerSpec::LayerNorm { epsilon }
            | LayerSpec::RmsNorm { epsilon }
            | LayerSpec::GroupNorm { epsilon, .. } => {
                positive("epsilon", *epsilon)?;
                if let LayerSpec::GroupNorm { num_groups: groups, .. } = self
                    && (*groups == 0 || !input[0].is_multiple_of(*groups))
                {
                    return Err(format!("num_groups {groups} does not divide {} channels", input[0]));
                }
                input.to_vec()
            }
            LayerSpec::RandomShift { max_shift: by } => {
                if let Some(length) = lengths(input)?.iter().find(|length| *by >= **length) {
                    return Err(format!("max_shift {by} is not smaller than the axis length {length}"));
                }
                input.to_vec()
            }
            LayerSpec::GaussianNoise { stddev: deviation } => {
                if !deviation.is_finite() || *deviation < 0.0 {
                    return Err(format!("stddev {deviation} must be at least 0"));
                }
                input.to_vec()
            }
            LayerSpec::LeakyRelu { negative_slope: slope } => {
                if !slope.is_finite() {
                    return Err(format!("negative_slope {slope} is not a finite number"));
                }
                input.to_vec()
            }
            LayerSpec::Embedding { num_embeddings: count, embedding_dim: width } => {
                within("num_embeddings", *count)?;
                [input, &[within("embedding_dim", *width)?]].concat()
            }
            LayerSpec::Dropout { p: probability } => {
                share("p", *probability)?;
                input.to_vec()
            }
            LayerSpec::RandomHorizontalFlip { p: probability } => {
                if !(0.0..=1.0).contains(probability) {
                    return Err(format!("p {probability} is not in [0, 1]"));
                }
                lengths(input)?;
                input.to_vec()
            }
            LayerSpec::Standardize {}
            | LayerSpec::InverseStandardize {}
            | LayerSpec::Elu {}
            | LayerSpec::Softplus {}
            | LayerSpec::Mish {}
            | LayerSpec::Relu {}
            | LayerSpec::Gelu {}
            | LayerSpec::Silu {}
            | LayerSpec::Sigmoid {}
            | LayerSpec::Tanh {}
            | LayerSpec::GeluTanh {}
            | LayerSpec::Selu {}
            | LayerSpec::Relu6 {}
            | LayerSpec::Hardsigmoid {}
            | LayerSpec::Hardswish {}
            | LayerSpec::Softsign {}
            | LayerSpec::Logsigmoid {}
            | LayerSpec::LogSoftmax {}
            | LayerSpec::Softmax {} => input.to_vec(),
            LayerSpec::Onnx(spec) => spec.output(input).map_err(|error| error.message().to_string())?,
            LayerSpec::Flatten {} => vec![input.iter().product()],
            LayerSpec::Reshape { shape: lengths } => {
                if lengths.is_empty() || size(lengths) != size(input) {
                    return Err(format!(
                        "shape {lengths:?} needs the same number of elements as {input:?} of {{before}}"
                    ));
                }
                lengths.clone()
            }
            LayerSpec::Lstm(memory) | LayerSpec::Gru(memory) if memory.nonlinearity != Nonlinearity::Tanh => {
                return Err("nonlinearity: only rnn layers have this option; remove it".to_string());
            }
            LayerSpec::Rnn(memory) | LayerSpec::Lstm(memory) | LayerSpec::Gru(memory) => memory.output(input)?,
            LayerSpec::LastTimeStep {} | LayerSpec::TimeMean {} => vec![sequence(input)?.1],
            LayerSpec::PositionalEncoding {} => {
                let (time, features) = sequence(input)?;
                if !features.is_multiple_of(2) {
                    return Err(format!("needs an even number of features, not {features}"));
                }
                vec![time, features]
            }
            LayerSpec::Narrow { start, length } => {
                let end = start.checked_add(within("length", *length)?).filter(|end| *end <= input[0]);
                end.ok_or_else(|| format!("length {length} at start {start} exceeds {input:?} of {{before}}"))?;
                [&[*length], &input[1..]].concat()
            }
            LayerSpec::MultiHeadAttention {
                num_heads: heads,
                num_kv_heads: key_heads,
                is_causal: causal,
                memory: source,
            } => {
                let (time, features) = self::heads(*heads, input)?;
                if *causal && !source.is_empty() {
                    return Err("is_causal applies to self-attention, but this layer has a memory".to_string());
                }
                self.sublayers().iter().try_for_each(|source| looked_at(source, input, features))?;
                if let Some(shared) = key_heads.filter(|shared| *shared == 0 || !heads.is_multiple_of(*shared)) {
                    return Err(format!("num_kv_heads {shared} does not divide num_heads {heads}"));
                }
                vec![time, features]
            }
            LayerSpec::Residual { layers, .. } | LayerSpec::ActivationCheckpoint { layers } => {
                if layers.is_empty() {
                    return Err("layers: the list is empty".to_string());
                }
                let outputs =
                    self.sublayers().iter().map(|part| of_part(part, input)).collect::<Result<Vec<_>, _>>()?;
                match &outputs[..] {
                    [added, around] if added != around => {
                        let given =
                            if self.sublayers()[1].layers.is_empty() { "the input is" } else { "shortcut outputs" };
                        return Err(format!(
                            "layers output {added:?}, but {given} {around:?}; the shapes must be equal"
                        ));
                    }
                    _ => outputs[0].clone(),
                }
            }
            LayerSpec::TransformerEncoderLayer(block) => block.output(input)?,
            LayerSpec::TransformerDecoder(decoder) => {
                let [layers, source] = &self.sublayers()[..] else { unreachable!("a decoder has two parts") };
                if source.layers.is_empty() {
                    return Err("memory: the list is empty".to_string());
                }
                if !(1..=MAX_BLOCKS).contains(&decoder.num_layers) {
                    return Err(format!("num_layers {} is not in 1 ..= {MAX_BLOCKS}", decoder.num_layers));
                }
                let decoded = of_part(layers, input)?;
                let output = decoder.block().output(&decoded)?;
                looked_at(source, input, output[1])?;
                output
            }
        };
        size(&output).ok_or_else(|| format!("the output {output:?} is too large"))?;
        Ok(output)
    }
}

/// Fails unless the memory sublayers output a sequence with this number of features.
fn looked_at(source: &Sublayers<'_>, input: &[usize], features: usize) -> Result<(), String> {
    match of_part(source, input)?[..] {
        [_, given] if given == features => Ok(()),
        ref given => Err(format!("memory outputs {given:?}, expected [time, {features}] as in the queries")),
    }
}

impl TransformerEncoderSpec {
    fn output(&self, input: &[usize]) -> Result<Vec<usize>, String> {
        let (time, features) = heads(self.num_heads, input)?;
        within("dim_feedforward", self.dim_feedforward)?;
        share("dropout", self.dropout)?;
        positive("epsilon", self.epsilon)?;
        Ok(vec![time, features])
    }
}

impl TransformerDecoderSpec {
    /// Returns the settings of each block.
    pub(crate) fn block(&self) -> TransformerEncoderSpec {
        let TransformerDecoderSpec {
            num_heads: heads,
            dim_feedforward: inner,
            dropout,
            norm_first,
            activation,
            epsilon,
            ..
        } = *self;
        TransformerEncoderSpec {
            num_heads: heads,
            dim_feedforward: inner,
            dropout,
            norm_first,
            is_causal: true,
            activation,
            epsilon,
        }
    }
}

impl RnnSpec {
    fn output(&self, input: &[usize]) -> Result<Vec<usize>, String> {
        let (time, features) = sequence(input)?;
        taken("input_size", self.input_size, features)?;
        let hidden = within("hidden_size", self.hidden_size)?;
        if !(1..=64).contains(&self.num_layers) {
            return Err(format!("num_layers {} is not in 1 ..= 64", self.num_layers));
        }
        Ok(vec![time, if self.bidirectional { 2 * hidden } else { hidden }])
    }
}

impl ConvTransposeSpec {
    fn output(&self, input: &[usize]) -> Result<Vec<usize>, String> {
        let lengths = images("kernel_size", input, &self.kernel_size)?;
        taken("in_channels", self.in_channels, input[0])?;
        let moved = Moved::new(&self.kernel_size, &self.stride, &self.padding, 1)?;
        let extra = along("output_padding", &self.output_padding, &self.kernel_size, 0)?;
        if let Some(axis) = (0..extra.len()).find(|axis| extra[*axis] >= moved.stride[*axis]) {
            // As in PyTorch and ONNX: a larger output padding would be equal to another stride.
            return Err(format!(
                "output_padding {} is not smaller than the stride {}",
                extra[axis], moved.stride[axis]
            ));
        }
        let mut result = vec![grouped(self.groups, input[0], self.out_channels)?];
        for axis in 0..lengths.len() {
            let whole = (lengths[axis] - 1) * moved.stride[axis]
                + self.kernel_size[axis]
                + within_or_zero("output_padding", extra[axis])?;
            result.push(whole.checked_sub(2 * moved.padding[axis]).filter(|length| *length > 0).ok_or_else(|| {
                format!("padding {:?} leaves no output: {lengths:?} is upsampled to {whole}", moved.padding)
            })?);
        }
        Ok(result)
    }
}

/// Stride and padding of a kernel or a pooling window.
struct Moved<'a> {
    size: &'a [usize],
    stride: Vec<usize>,
    padding: Vec<usize>,
}

impl Moved<'_> {
    /// Expands stride and padding to all axes. `otherwise` is the default stride; 0 is the window size.
    fn new<'a>(size: &'a [usize], stride: &[usize], padding: &[usize], otherwise: usize) -> Result<Moved<'a>, String> {
        let stride = match (stride, otherwise) {
            ([], 0) => size.to_vec(),
            _ => along("stride", stride, size, otherwise)?,
        };
        if stride.contains(&0) {
            return Err(format!("stride {stride:?} must be at least 1 along each axis"));
        }
        let padding = along("padding", padding, size, 0)?;
        stride.iter().try_for_each(|step| within("stride", *step).map(|_| ()))?;
        padding.iter().try_for_each(|zeros| within_or_zero("padding", *zeros).map(|_| ()))?;
        Ok(Moved { size, stride, padding })
    }

    /// Returns the number of windows along each axis, for windows of the dilated size `spread`.
    fn positions(&self, lengths: &[usize], spread: &[usize]) -> Result<Vec<usize>, String> {
        let along = |axis: usize| {
            let room = (lengths[axis] + 2 * self.padding[axis]).checked_sub(spread[axis]);
            let wrong = || format!("kernel_size {:?} does not fit into the axes {lengths:?} of {{before}}", self.size);
            Ok(room.ok_or_else(wrong)? / self.stride[axis] + 1)
        };
        (0..lengths.len()).map(along).collect()
    }
}

/// Returns the number of output channels if `groups` divides input and output channels.
fn grouped(groups: usize, inputs: usize, outputs: usize) -> Result<usize, String> {
    let outputs = within("out_channels", outputs)?;
    if groups == 0 || !inputs.is_multiple_of(groups) || !outputs.is_multiple_of(groups) {
        return Err(format!("groups {groups} does not divide {inputs} input channels and {outputs} output channels"));
    }
    Ok(outputs)
}

fn within(field: &str, count: usize) -> Result<usize, String> {
    if count == 0 { Err(format!("{field} 0 is not in 1 ..= {MAX_SIZE}")) } else { within_or_zero(field, count) }
}

fn within_or_zero(field: &str, count: usize) -> Result<usize, String> {
    if count <= MAX_SIZE { Ok(count) } else { Err(format!("{field} {count} is above {MAX_SIZE}")) }
}

fn positive(field: &str, number: f64) -> Result<(), String> {
    if number.is_finite() && number > 0.0 { Ok(()) } else { Err(format!("{field} {number} is not a positive number")) }
}

fn share(field: &str, share: f64) -> Result<(), String> {
    if (0.0..1.0).contains(&share) { Ok(()) } else { Err(format!("{field} {share} is not in [0, 1)")) }
}

fn taken(field: &str, declared: Option<usize>, given: usize) -> Result<(), String> {
    match declared {
        Some(declared) if declared != given => {
            Err(format!("{field} {declared} does not match the {given} of {{before}}"))
        }
        _ => Ok(()),
    }
}

/// Returns time and features of an input whose features are divisible by `heads`.
fn heads(heads: usize, input: &[usize]) -> Result<(usize, usize), String> {
    let (time, features) = sequence(input)?;
    if heads == 0 || !features.is_multiple_of(heads) {
        return Err(format!("num_heads {heads} does not divide {features} features"));
    }
    Ok((time, features))
}

fn sequence(input: &[usize]) -> Result<(usize, usize), String> {
    match input {
        [time, features] => Ok((*time, *features)),
        _ => Err(format!("expected [time, features], got {input:?} from {{before}}")),
    }
}

/// Returns the axes after the channels if there are as many as in `size`.
fn images<'a>(field: &str, input: &'a [usize], size: &[usize]) -> Result<&'a [usize], String> {
    if !(1..=3).contains(&size.len()) {
        return Err(format!("{field} {size:?} has {} axes, not 1, 2 or 3", size.len()));
    }
    size.iter().try_for_each(|length| within(field, *length).map(|_| ()))?;
    match input {
        [_, lengths @ ..] if lengths.len() == size.len() => Ok(lengths),
        _ => Err(format!(
            "kernel_size {size:?} expects [channels, {} lengths], got {input:?} from {{before}}",
            size.len()
        )),
    }
}

/// Returns the axes after the channels.
fn lengths(input: &[usize]) -> Result<&[usize], String> {
    match input {
        [_, lengths @ ..] if (1..=3).contains(&lengths.len()) => Ok(lengths),
        _ => Err(format!("expected [channels, lengths], got {input:?} from {{before}}")),
    }
}

fn along(field: &str, declared: &[usize], size: &[usize], otherwise: usize) -> Result<Vec<usize>, String> {
    match declared {
        [] => Ok(vec![otherwise; size.len()]),
        _ if declared.len() == size.len() => Ok(declared.to_vec()),
        _ => Err(format!("{field} {declared:?} needs one number for each axis of kernel_size {size:?}")),
    }
}
