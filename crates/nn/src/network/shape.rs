//! What comes out of a layer, and what is wrong with it. `{before}` in a message stands for the layer before.

use super::layer_spec::{LayerSpec, Memory};
use super::size;

/// More of anything is taken for a slip of the pen.
const MOST: usize = 1 << 24;

impl LayerSpec {
    /// Lengths of what comes out, the batch aside, when this goes in.
    pub(super) fn output(&self, input: &[usize]) -> Result<Vec<usize>, String> {
        let output = match self {
            LayerSpec::Linear { outputs, inputs, .. } => {
                let (last, rest) = input.split_last().ok_or("needs at least one axis")?;
                taken("numbers", *inputs, *last)?;
                [rest, &[within("outputs", *outputs)?]].concat()
            }
            LayerSpec::Conv { outputs, inputs, size, stride, padding, groups, .. } => {
                let lengths = images(input, size)?;
                taken("channels", *inputs, input[0])?;
                let outputs = within("outputs", *outputs)?;
                if *groups == 0 || !input[0].is_multiple_of(*groups) || !outputs.is_multiple_of(*groups) {
                    return Err(format!("groups {groups} do not divide {} channels in and {outputs} out", input[0]));
                }
                let stride = along("stride", stride, size, 1)?;
                if stride.contains(&0) {
                    return Err(format!("stride {stride:?} needs numbers of at least 1"));
                }
                let padding = along("padding", padding, size, 0)?;
                let mut result = vec![outputs];
                for axis in 0..size.len() {
                    let length = lengths[axis] + 2 * within_or_zero("padding", padding[axis])?;
                    result.push(positions(length, size[axis], stride[axis], size, lengths)?);
                }
                result
            }
            LayerSpec::MaxPool { size } | LayerSpec::AveragePool { size } => {
                let lengths = images(input, size)?;
                let pooled =
                    (0..size.len()).map(|axis| positions(lengths[axis], size[axis], size[axis], size, lengths));
                [input[0]].into_iter().map(Ok).chain(pooled).collect::<Result<Vec<usize>, String>>()?
            }
            LayerSpec::GlobalAveragePool {} => match input {
                [channels, _, ..] => vec![*channels],
                _ => return Err(format!("needs [channels, lengths], not the {input:?} of {{before}}")),
            },
            LayerSpec::BatchNorm { epsilon } | LayerSpec::LayerNorm { epsilon } => {
                if !epsilon.is_finite() || *epsilon <= 0.0 {
                    return Err(format!("epsilon {epsilon} is not a positive number"));
                }
                input.to_vec()
            }
            LayerSpec::Dropout { probability } => {
                share("probability", *probability)?;
                input.to_vec()
            }
            LayerSpec::Standardise {}
            | LayerSpec::Relu {}
            | LayerSpec::Gelu {}
            | LayerSpec::Silu {}
            | LayerSpec::Sigmoid {}
            | LayerSpec::Tanh {}
            | LayerSpec::Softmax {} => input.to_vec(),
            LayerSpec::Flatten {} => vec![input.iter().product()],
            LayerSpec::Reshape { lengths } => {
                if lengths.is_empty() || size(lengths) != size(input) {
                    return Err(format!("lengths {lengths:?} do not hold the {input:?} of {{before}}"));
                }
                lengths.clone()
            }
            LayerSpec::Rnn(memory) | LayerSpec::Lstm(memory) | LayerSpec::Gru(memory) => memory.output(input)?,
            LayerSpec::Last {} | LayerSpec::MeanOverTime {} => vec![sequence(input)?.1],
            LayerSpec::Positions {} => {
                let (time, features) = sequence(input)?;
                if !features.is_multiple_of(2) {
                    return Err(format!("needs an even number of features, not {features}"));
                }
                vec![time, features]
            }
            LayerSpec::Encoder { heads, inner, dropout } => {
                let (time, features) = sequence(input)?;
                if *heads == 0 || !features.is_multiple_of(*heads) {
                    return Err(format!("heads {heads} do not divide {features} features"));
                }
                within("inner", *inner)?;
                share("dropout", *dropout)?;
                vec![time, features]
            }
        };
        size(&output).ok_or_else(|| format!("gives {output:?}, which is too large"))?;
        Ok(output)
    }
}

impl Memory {
    fn output(&self, input: &[usize]) -> Result<Vec<usize>, String> {
        let (time, features) = sequence(input)?;
        taken("features", self.inputs, features)?;
        let hidden = within("hidden", self.hidden)?;
        if !(1..=64).contains(&self.layers) {
            return Err(format!("layers {} is not in 1 ..= 64", self.layers));
        }
        Ok(vec![time, if self.both { 2 * hidden } else { hidden }])
    }
}

fn within(field: &str, count: usize) -> Result<usize, String> {
    if count == 0 { Err(format!("{field} 0 is not in 1 ..= {MOST}")) } else { within_or_zero(field, count) }
}

fn within_or_zero(field: &str, count: usize) -> Result<usize, String> {
    if count <= MOST { Ok(count) } else { Err(format!("{field} {count} is above {MOST}")) }
}

fn share(field: &str, share: f64) -> Result<(), String> {
    if (0.0..1.0).contains(&share) { Ok(()) } else { Err(format!("{field} {share} is not in 0 .. 1")) }
}

fn taken(what: &str, said: Option<usize>, given: usize) -> Result<(), String> {
    match said {
        Some(said) if said != given => Err(format!("inputs {said} are not the {given} {what} that {{before}} gives")),
        _ => Ok(()),
    }
}

fn sequence(input: &[usize]) -> Result<(usize, usize), String> {
    match input {
        [time, features] => Ok((*time, *features)),
        _ => Err(format!("needs [time, features], not the {input:?} of {{before}}")),
    }
}

/// The lengths behind the channels, as many as a size has.
fn images<'a>(input: &'a [usize], size: &[usize]) -> Result<&'a [usize], String> {
    if !(1..=3).contains(&size.len()) {
        return Err(format!("size {size:?} has {} axes, not 1, 2 or 3", size.len()));
    }
    size.iter().try_for_each(|length| within("size", *length).map(|_| ()))?;
    match input {
        [_, lengths @ ..] if lengths.len() == size.len() => Ok(lengths),
        _ => Err(format!("size {size:?} needs [channels, {} lengths], not the {input:?} of {{before}}", size.len())),
    }
}

fn along(field: &str, said: &[usize], size: &[usize], otherwise: usize) -> Result<Vec<usize>, String> {
    match said {
        [] => Ok(vec![otherwise; size.len()]),
        _ if said.len() == size.len() => Ok(said.to_vec()),
        _ => Err(format!("{field} {said:?} has not one number for each axis of size {size:?}")),
    }
}

fn positions(length: usize, size: usize, stride: usize, sizes: &[usize], lengths: &[usize]) -> Result<usize, String> {
    match length.checked_sub(size) {
        Some(room) => Ok(room / stride + 1),
        None => Err(format!("size {sizes:?} does not fit into the lengths {lengths:?} of {{before}}")),
    }
}
