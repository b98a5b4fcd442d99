//! A trained network made ready for use: fewer layers, other precision, and, if asked, checked against another executor.

use std::sync::Arc;

use panoply_tensor::{DType, Device, Error, JitFunction, Result, Rng, Tensor, jit};

use crate::layer::{ForwardContext, Layer};
use crate::module::{Module, Param, ParamVisitorMut};
use crate::network::{LayerSpec, Model, Network, through};
use crate::property::{Property, place};

/// How much is made of a network's layers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum OptLevel {
    /// The layers stay what they are, and each is computed before the next begins: what tells which one is slow or wrong.
    None,
    /// What only training has goes away, batch norms go into the layer before them, and all of it is captured.
    #[default]
    Default,
    /// Standardizing and restoring numbers go into the dense layers beside them, too: with inputs far from 0 that costs digits.
    Aggressive,
}

/// What a network in use computes in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// Parameters and products in f32.
    #[default]
    F32,
    /// Both in bf16, norms in f32.
    BF16,
    /// Both in f16, norms in f32.
    F16,
    /// Parameters in f32 and products in bf16, as in training with mixed precision.
    Mixed,
}

impl Precision {
    /// What parameters are kept in, and what layers compute in.
    fn dtypes(self) -> (DType, DType) {
        match self {
            Precision::F32 => (DType::F32, DType::F32),
            Precision::BF16 => (DType::BF16, DType::BF16),
            Precision::F16 => (DType::F16, DType::F16),
            Precision::Mixed => (DType::F32, DType::BF16),
        }
    }

    /// How far outputs may be off, as a share of the largest: a few hundred units in the last place of f32 through many layers, some
    /// tens of fewer digits.
    fn tolerance(self) -> f64 {
        match self {
            Precision::F32 => 256.0 * 2f64.powi(-23),
            Precision::F16 => 32.0 * 2f64.powi(-11),
            Precision::BF16 | Precision::Mixed => 32.0 * 2f64.powi(-8),
        }
    }
}

/// What to make of a network.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CompileOptions {
    /// How much is made of its layers.
    pub opt_level: OptLevel,
    /// What it computes in.
    pub precision: Precision,
    /// What every output must be; checked each time it is used.
    pub properties: Vec<Property>,
    /// Whether the result is compared with the network itself on another executor: on the CPU, or in its checked mode if this
    /// device is the CPU.
    pub verify: bool,
}

/// A network ready for use. Its parameters are frozen.
#[derive(Clone, Debug)]
pub struct CompiledModel {
    model: Model,
    options: CompileOptions,
    /// What [`CompiledModel::run`] replays, unless each layer is computed by itself.
    captured: Option<Arc<JitFunction<'static, 1, 1>>>,
}

/// Examples that a verification looks at.
const SAMPLES: usize = 4;

/// Makes a trained network ready for use on the current device. With [`CompileOptions::verify`] it must agree with the network it was made
/// of on another executor and have its properties, on random examples; if not, that is the error.
///
/// From [`OptLevel::Default`] on the forward pass is captured, for each shape of examples apart: the first [`CompiledModel::run`] with a
/// shape builds and plans it, later ones replay it. The parameters are held as they are now; what is loaded into the network later is
/// in what is compiled later.
pub fn compile(model: &Model, options: &CompileOptions) -> Result<CompiledModel> {
    let mut folded = fold(model, options.opt_level)?;
    let (kept, _) = options.precision.dtypes();
    let mut freeze = |_: &str, param: &mut Param| {
        *param = match param.state {
            true => Param::state(param.tensor().clone()),
            false => Param::new(param.tensor().cast(kept)),
        };
        param.frozen = true;
        Ok(())
    };
    folded.visit_mut(&mut ParamVisitorMut::new(&mut freeze))?;
    let params: Vec<Param> = folded.named_parameters().into_iter().map(|(_, param)| param).collect();
    panoply_tensor::eval(&params.iter().map(Param::tensor).collect::<Vec<&Tensor>>())?;
    let captured = (options.opt_level != OptLevel::None).then(|| {
        let (model, options) = (folded.clone(), options.clone());
        Arc::new(jit(move |[input]: [&Tensor; 1]| [output(&model, &options, input, None)]))
    });
    let compiled = CompiledModel { model: folded, options: options.clone(), captured };
    if options.verify {
        let shape = [&[SAMPLES], &model.network.input[..]].concat();
        compiled.verify(model, &Rng::seed_from_u64(0).normal(shape))?;
    }
    Ok(compiled)
}

impl CompiledModel {
    /// What became of the network.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The outputs in f32 for some examples, with the declared properties checked. Without properties a shape that was seen before
    /// is only replayed. The result is a value, without a history for gradients; as a layer the network is a part of an expression.
    #[track_caller]
    pub fn run(&self, input: &Tensor) -> Result<Tensor> {
        let output = match &self.captured {
            Some(captured) => {
                let [output] = captured.call([input])?;
                output
            }
            None => {
                let output = output(&self.model, &self.options, input, None);
                output.check()?;
                output
            }
        };
        self.options.properties.iter().try_for_each(|property| property.check("output", &output))?;
        Ok(output)
    }

    /// The largest difference from what `original` gives for these examples on another executor, as a share of the largest
    /// magnitude there. An error if it is more than the precision explains, or if a property does not hold.
    pub fn verify(&self, original: &Model, samples: &Tensor) -> Result<f64> {
        let device = Device::current()?;
        let reference = Device::get(if device.device_string() == "cpu" { "cpu:checked" } else { "cpu" })?;
        let output = self.run(samples)?;
        let have = output.to_vec::<f32>()?;
        let (numbers, shape) = (samples.to_vec::<f32>()?, samples.shape()?.dims().to_vec());
        let mut there = original.clone();
        let mut carry = |_: &str, param: &mut Param| {
            let moved = param.tensor().to(&reference);
            moved.check()?;
            *param = Param::new(moved);
            Ok(())
        };
        there.visit_mut(&mut ParamVisitorMut::new(&mut carry))?;
        let want = reference.scope(|| {
            let samples = Tensor::from_slice(&numbers, shape);
            there.forward(&samples, &mut ForwardContext::eval()).cast(DType::F32).to_vec::<f32>()
        })?;
        let scale = want.iter().fold(f32::MIN_POSITIVE, |top, x| top.max(x.abs()));
        let far = |at: usize| f64::from((have[at] - want[at]).abs() / scale);
        let allowed = self.options.precision.tolerance();
        if let Some(at) = (0..want.len()).find(|at| far(*at).is_nan() || far(*at) > allowed) {
            let message = format!(
                "verification failed: {device} gives {} at {:?} of the output, {reference} gives {}; \
                 {:.1e} of the largest apart, {allowed:.1e} are allowed",
                have[at],
                place(at, output.shape()?.dims()),
                want[at],
                far(at)
            );
            return Err(
                Error::mistake(message).note(format!("`panoply selftest --device {device}` tells which operation"))
            );
        }
        Ok((0..want.len()).map(far).fold(0.0, f64::max))
    }
}

impl Layer for CompiledModel {
    /// As a part of an expression, not captured, and without the properties' check; [`CompiledModel::run`] has both.
    fn forward(&self, input: &Tensor, pass: &mut ForwardContext<'_>) -> Tensor {
        output(&self.model, &self.options, input, pass.seq_lengths())
    }
}

/// What a network in use makes of examples, in f32.
fn output(model: &Model, options: &CompileOptions, input: &Tensor, times: Option<&Tensor>) -> Tensor {
    let (_, computed) = options.precision.dtypes();
    let mut pass = ForwardContext::eval().autocast(computed).with_seq_lengths(times);
    if options.opt_level == OptLevel::None {
        pass = pass.eager();
    }
    model.forward(input, &mut pass).cast(DType::F32)
}

/// Parameters by their dotted names.
type Params = Vec<(String, Tensor)>;

/// The same network in use.
fn fold(model: &Model, optimize: OptLevel) -> Result<Model> {
    if optimize == OptLevel::None {
        return Ok(model.clone());
    }
    let params = model.named_parameters().into_iter().map(|(name, param)| (name, param.tensor().clone())).collect();
    let (layers, params) = fold_layers(&model.network.layers, &model.network.input, &params, optimize)?;
    let mut result = Network { layers, ..model.network.clone() }.build(&mut Rng::seed_from_u64(0))?;
    let mut put = |name: &str, param: &mut Param| param.set(&get(&params, name)?);
    result.visit_mut(&mut ParamVisitorMut::new(&mut put))?;
    Ok(result)
}

/// Layers over inputs of these lengths, those within others too, as they are in use, with their parameters.
fn fold_layers(
    layers: &[LayerSpec],
    input: &[usize],
    params: &Params,
    optimize: OptLevel,
) -> Result<(Vec<LayerSpec>, Params)> {
    let shapes = through(layers, input).map_err(|(_, what)| Error::mistake(what))?;
    let mut kept: Vec<(LayerSpec, Params)> = Vec::new();
    for (at, layer) in layers.iter().enumerate().filter(|(_, layer)| layer.is_active_in_eval()) {
        let (layer, own) = fold_sublayers(layer, &shapes[at], under(params, &format!("{at}.")), optimize)?;
        // A norm of [time, features] has its channels first, a dense layer its outputs last.
        let flat = shapes[at].len() == 1;
        match (&layer, kept.last_mut()) {
            (LayerSpec::BatchNorm { epsilon }, Some((before, into))) if can_absorb_scale(before, flat) => {
                let [scale, shift, mean, variance] =
                    ["weight", "bias", "running_mean", "running_var"].map(|name| get(&own, name));
                // [Jacob et al. 2018]
                let factor = scale? / (variance? + *epsilon).sqrt();
                let term = shift? - mean? * &factor;
                scale_outputs(before, into, &factor, &term)?;
            }
            (LayerSpec::InverseStandardize {}, Some((before, into)))
                if optimize == OptLevel::Aggressive && can_absorb_scale(before, flat) =>
            {
                scale_outputs(before, into, &get(&own, "std")?, &get(&own, "mean")?)?;
            }
            (LayerSpec::Linear { .. }, Some((LayerSpec::Standardize {}, before)))
                if optimize == OptLevel::Aggressive && flat =>
            {
                let weight = get(&own, "weight")? / get(before, "std")?;
                let moved = weight.matmul(&get(before, "mean")?.unsqueeze(1)).squeeze(1);
                let bias = get(&own, "bias").map_or_else(|_| -&moved, |bias| bias - &moved);
                kept.pop();
                kept.push((with_bias(&layer), named(weight, bias)));
            }
            _ => kept.push((layer, own)),
        }
    }
    let (layers, params): (Vec<LayerSpec>, Vec<Params>) = kept.into_iter().unzip();
    let params = params.into_iter().enumerate().flat_map(|(at, own)| prefixed(own, &format!("{at}.")));
    Ok((layers, params.collect()))
}

/// A layer whose own layers are folded, unless nothing would be left of them.
fn fold_sublayers(
    layer: &LayerSpec,
    input: &[usize],
    params: Params,
    optimize: OptLevel,
) -> Result<(LayerSpec, Params)> {
    let (parts, mut result) = (layer.sublayers(), layer.clone());
    let of_a_part = |name: &str| parts.iter().any(|part| name.starts_with(part.params));
    let mut own: Params = params.iter().filter(|(name, _)| !of_a_part(name)).cloned().collect();
    for (part, list) in parts.iter().zip(result.lists()) {
        let before = under(&params, part.params);
        let (layers, after) = fold_layers(part.layers, input, &before, optimize)?;
        let vain = layers.is_empty();
        own.extend(prefixed(if vain { before } else { after }, part.params));
        if !vain {
            *list = layers;
        }
    }
    Ok((result, own))
}

/// Whether what comes out of a layer can be scaled in its own parameters.
fn can_absorb_scale(layer: &LayerSpec, flat: bool) -> bool {
    match layer {
        LayerSpec::Linear { .. } => flat,
        LayerSpec::Conv { .. } => true,
        _ => false,
    }
}

/// w · factor and b · factor + term: what the layer gave, scaled and moved.
fn scale_outputs(layer: &mut LayerSpec, params: &mut Params, factor: &Tensor, term: &Tensor) -> Result<()> {
    let weight = get(params, "weight")?;
    let column = (1..weight.shape()?.ndim()).fold(factor.clone(), |column, _| column.unsqueeze(-1));
    let bias = get(params, "bias").map_or_else(|_| term.clone(), |bias| bias * factor + term);
    *params = named(weight * column, bias);
    *layer = with_bias(layer);
    Ok(())
}

fn with_bias(layer: &LayerSpec) -> LayerSpec {
    let mut layer = layer.clone();
    if let LayerSpec::Linear { bias, .. } | LayerSpec::Conv { bias, .. } = &mut layer {
        *bias = true;
    }
    layer
}

fn named(weight: Tensor, bias: Tensor) -> Params {
    vec![("weight".to_string(), weight.detach()), ("bias".to_string(), bias.detach())]
}

/// The parameters whose names begin so, without it.
fn under(params: &Params, prefix: &str) -> Params {
    params.iter().filter_map(|(name, x)| Some((name.strip_prefix(prefix)?.to_string(), x.clone()))).collect()
}

fn prefixed(params: Params, prefix: &str) -> Params {
    params.into_iter().map(|(name, x)| (format!("{prefix}{name}"), x)).collect()
}

fn get(params: &[(String, Tensor)], name: &str) -> Result<Tensor> {
    let found = params.iter().find(|(known, _)| known == name).map(|(_, tensor)| tensor.clone());
    found.ok_or_else(|| Error::mistake(format!("there is no parameter {name} to fold")))
}
