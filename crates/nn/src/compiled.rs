//! Compilation of a trained network for inference: folded layers, reduced precision, graph capture and optional verification.

use std::sync::Arc;

use panoply_tensor::{DType, Device, Error, JitFunction, Result, Rng, Tensor, jit};

use crate::layer::{ForwardContext, Layer};
use crate::module::{Module, Param, ParamVisitorMut};
use crate::network::{LayerSpec, Model, Network, through};
use crate::property::{Property, place};

/// Level of optimization of a network's layers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum OptLevel {
    /// Keeps all layers and evaluates each before the next: for debugging and profiling.
    None,
    /// Removes training-only layers, folds batch norms into the preceding layer and captures the forward pass.
    #[default]
    Default,
    /// Also folds standardization and its inverse into adjacent linear layers, which loses precision if inputs are far from 0.
    Aggressive,
}

/// Numeric precision of inference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// Parameters and products in f32.
    #[default]
    F32,
    /// Parameters and products in bf16, norms in f32.
    BF16,
    /// Parameters and products in f16, norms in f32.
    F16,
    /// Parameters in f32 and products in bf16, as in mixed-precision training.
    Mixed,
}

impl Precision {
    /// Returns the element types of the parameters and of the computation.
    fn dtypes(self) -> (DType, DType) {
        match self {
            Precision::F32 => (DType::F32, DType::F32),
            Precision::BF16 => (DType::BF16, DType::BF16),
            Precision::F16 => (DType::F16, DType::F16),
            Precision::Mixed => (DType::F32, DType::BF16),
        }
    }

    /// Fails if an ONNX network would not compute in the element types of its file.
    pub(crate) fn check_imported(self) -> Result<()> {
        if self == Precision::F32 {
            return Ok(());
        }
        let message = "an imported ONNX network computes in the element types of its file";
        Err(Error::unsupported(message).note("use the precision f32"))
    }

    /// Returns the tolerance of outputs relative to the largest: a few hundred ULP of f32 over many layers, some tens of ULP of the smaller
    /// types.
    fn tolerance(self) -> f64 {
        match self {
            Precision::F32 => 256.0 * 2f64.powi(-23),
            Precision::F16 => 32.0 * 2f64.powi(-11),
            Precision::BF16 | Precision::Mixed => 32.0 * 2f64.powi(-8),
        }
    }
}

/// Options of [`compile`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CompileOptions {
    /// Level of optimization.
    pub opt_level: OptLevel,
    /// Numeric precision.
    pub precision: Precision,
    /// Properties of the outputs, checked on every run.
    pub properties: Vec<Property>,
    /// True to compare the result with the original network on another executor: the CPU, or the CPU's checked mode if the current device
    /// is the CPU.
    pub verify: bool,
}

/// A network compiled for inference. Its parameters are frozen.
#[derive(Clone, Debug)]
pub struct CompiledModel {
    model: Model,
    options: CompileOptions,
    /// Captured forward pass that [`CompiledModel::run`] replays; `None` with [`OptLevel::None`].
    captured: Option<Arc<JitFunction<'static, 1, 1>>>,
}

/// Number of random examples in a verification.
const SAMPLES: usize = 4;

/// A network that [`compile`] takes: a [`Model`], or an ONNX network with any number of inputs and outputs
/// ([`Imported`](crate::onnx::Imported)).
pub trait Compile {
    /// The network compiled for inference.
    type Compiled;

    /// Compiles the network, as [`compile`] does.
    ///
    /// # Errors
    /// As for [`compile`].
    fn compile(&self, options: &CompileOptions) -> Result<Self::Compiled>;
}

/// Compiles a trained network for inference on the current device: a [`Model`], or an ONNX network
/// ([`Imported`](crate::onnx::Imported)), which computes in the element types of its file. With [`CompileOptions::verify`], it is run on random
/// examples and must agree with the original network on another executor.
///
/// From [`OptLevel::Default`] on the forward pass is captured once for each input shape: the first run with a shape builds and plans it, later
/// ones replay it. The compiled network keeps the current parameters; later changes to the original network have no effect on it.
///
/// # Errors
/// If the network is invalid, or the verification or a property check fails.
pub fn compile<N: Compile>(network: &N, options: &CompileOptions) -> Result<N::Compiled> {
    network.compile(options)
}

impl Compile for Model {
    type Compiled = CompiledModel;

    fn compile(&self, options: &CompileOptions) -> Result<CompiledModel> {
        compile_model(self, options)
    }
}

fn compile_model(model: &Model, options: &CompileOptions) -> Result<CompiledModel> {
    let is_imported = has_imported(&model.network.layers);
    if is_imported {
        options.precision.check_imported()?;
    }
    let mut folded = fold(model, options.opt_level)?;
    let (kept, _) = options.precision.dtypes();
    let mut freeze = |_: &str, param: &mut Param| {
        *param = match param.state {
            true => Param::state(param.tensor().clone()),
            false if is_imported => Param::new(param.tensor().clone()),
            false => Param::new(param.tensor().cast(kept)),
        };
        param.frozen = true;
        Ok(())
    };
    folded.visit_mut(&mut ParamVisitorMut::new(&mut freeze))?;
    eval_parameters(&folded)?;
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

/// Evaluates all parameters, in one plan for each device.
pub(crate) fn eval_parameters(network: &impl Module) -> Result<()> {
    let params: Vec<Param> = network.named_parameters().into_iter().map(|(_, param)| param).collect();
    panoply_tensor::eval(&params.iter().map(Param::tensor).collect::<Vec<&Tensor>>())
}

/// Returns true if a layer, or a sublayer, is an imported network.
fn has_imported(layers: &[LayerSpec]) -> bool {
    let within = |layer: &LayerSpec| layer.sublayers().iter().any(|part| has_imported(part.layers));
    layers.iter().any(|layer| matches!(layer, LayerSpec::Onnx(_)) || within(layer))
}

impl CompiledModel {
    /// Returns the optimized network.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Runs the network on a batch and checks the declared properties. Returns the outputs in f32, detached from any graph. Without
    /// properties, a shape that was seen before is only replayed. To use the network within a larger expression, call it as a [`Layer`].
    ///
    /// # Errors
    /// If the input does not fit the network, or a property does not hold.
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

    /// Compares the outputs for these examples with those of `original` on another executor. Returns the largest difference relative to the
    /// largest magnitude of the reference.
    ///
    /// # Errors
    /// If the difference exceeds the tolerance of the precision, or a property does not hold.
    pub fn verify(&self, original: &Model, samples: &Tensor) -> Result<f64> {
        let device = Device::current()?;
        let reference = reference_for(&device)?;
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
        let found = Computed { numbers: &have, dims: output.shape()?.dims(), device: &device };
        compare(&found, &want, &reference, self.options.precision)
    }
}

/// Outputs that a device computed.
pub(crate) struct Computed<'a> {
    /// The elements.
    pub numbers: &'a [f32],
    /// The shape.
    pub dims: &'a [usize],
    /// The device.
    pub device: &'a Device,
}

/// Returns the executor with which those of a device are compared.
pub(crate) fn reference_for(device: &Device) -> Result<Device> {
    Device::get(if device.device_string() == "cpu" { "cpu:checked" } else { "cpu" })
}

/// Compares outputs with those of another executor. Returns the largest difference relative to the largest magnitude of the reference.
pub(crate) fn compare(found: &Computed<'_>, want: &[f32], reference: &Device, precision: Precision) -> Result<f64> {
    let Computed { numbers: have, dims, device } = found;
    let scale = want.iter().fold(f32::MIN_POSITIVE, |top, x| top.max(x.abs()));
    let far = |at: usize| f64::from((have[at] - want[at]).abs() / scale);
    let allowed = precision.tolerance();
    if let Some(at) = (0..want.len()).find(|at| far(*at).is_nan() || far(*at) > allowed) {
        let message = format!(
            "verification failed: {device} gives {} at {:?} of the output, {reference} gives {}; \
             relative difference {:.1e}, tolerance {allowed:.1e}",
            have[at],
            place(at, dims),
            want[at],
            far(at)
        );
        return Err(
            Error::mistake(message).note(format!("run `panoply selftest --device {device}` to find the operation"))
        );
    }
    Ok((0..want.len()).map(far).fold(0.0, f64::max))
}

impl Layer for CompiledModel {
    /// Runs the network as part of an expression, without capture and property checks; [`CompiledModel::run`] has both.
    #[track_caller]
    fn forward(&self, input: &Tensor, pass: &mut ForwardContext<'_>) -> Tensor {
        output(&self.model, &self.options, input, pass.seq_lengths())
    }
}

/// Returns the outputs of the network in f32.
fn output(model: &Model, options: &CompileOptions, input: &Tensor, times: Option<&Tensor>) -> Tensor {
    let (_, computed) = options.precision.dtypes();
    let mut pass = ForwardContext::eval().autocast(computed).with_seq_lengths(times);
    if options.opt_level == OptLevel::None {
        pass = pass.eager();
    }
    model.forward(input, &mut pass).cast(DType::F32)
}

/// Parameters by dotted name.
type Params = Vec<(String, Tensor)>;

/// Folds the layers of a network.
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

/// Folds layers, and their sublayers, over inputs of this shape. Returns the remaining layers with their parameters.
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
        // For inputs [time, features] the channel axis of a norm is the first, the output axis of a linear layer the last.
        let flat = shapes[at].len() == 1;
        match (&layer, kept.last_mut()) {
            (LayerSpec::BatchNorm { epsilon }, Some((before, into))) if can_absorb_scale(before, flat) => {
                let [scale, shift, mean, variance] =
                    ["weight", "bias", "running_mean", "running_var"].map(|name| get(&own, name));
                let [factor, term] = affine_of_batch_norm([&scale?, &shift?, &mean?, &variance?], *epsilon);
                scale_layer(before, into, &factor, &term)?;
            }
            (LayerSpec::InverseStandardize {}, Some((before, into)))
                if optimize == OptLevel::Aggressive && can_absorb_scale(before, flat) =>
            {
                scale_layer(before, into, &get(&own, "std")?, &get(&own, "mean")?)?;
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

/// Folds the sublayers of a layer. A list that would become empty is kept.
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

/// Returns true if a scale and shift of the layer's outputs can be folded into its parameters.
fn can_absorb_scale(layer: &LayerSpec, flat: bool) -> bool {
    match layer {
        LayerSpec::Linear { .. } => flat,
        LayerSpec::Conv { .. } => true,
        _ => false,
    }
}

/// Returns the factor and the term, each one number a channel, that a batch norm in evaluation mode multiplies by and adds. `statistics` are
/// its scale, bias, mean and variance. [Jacob et al. 2018]
pub(crate) fn affine_of_batch_norm(statistics: [&Tensor; 4], epsilon: f64) -> [Tensor; 2] {
    let [scale, shift, mean, variance] = statistics;
    let factor = scale / (variance + epsilon).sqrt();
    let term = shift - mean * &factor;
    [factor, term]
}

/// Folds a factor and a term of each output into filters or a matrix, whose first axis are the outputs, and a bias: returns
/// w · factor and b · factor + term.
///
/// # Errors
/// If the shape of the weight is not known because of a mistake.
pub(crate) fn scale_outputs(
    weight: &Tensor,
    bias: Option<&Tensor>,
    factor: &Tensor,
    term: &Tensor,
) -> Result<[Tensor; 2]> {
    let column = (1..weight.shape()?.ndim()).fold(factor.clone(), |column, _| column.unsqueeze(-1));
    Ok([weight * column, bias.map_or_else(|| term.clone(), |bias| bias * factor + term)])
}

/// Folds a factor and a term of each output into a layer.
fn scale_layer(layer: &mut LayerSpec, params: &mut Params, factor: &Tensor, term: &Tensor) -> Result<()> {
    let bias = get(params, "bias").ok();
    let [weight, bias] = scale_outputs(&get(params, "weight")?, bias.as_ref(), factor, term)?;
    *params = named(weight, bias);
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

/// Returns the parameters whose names begin with a prefix, without the prefix.
fn under(params: &Params, prefix: &str) -> Params {
    params.iter().filter_map(|(name, x)| Some((name.strip_prefix(prefix)?.to_string(), x.clone()))).collect()
}

fn prefixed(params: Params, prefix: &str) -> Params {
    params.into_iter().map(|(name, x)| (format!("{prefix}{name}"), x)).collect()
}

fn get(params: &[(String, Tensor)], name: &str) -> Result<Tensor> {
    let found = params.iter().find(|(known, _)| known == name).map(|(_, tensor)| tensor.clone());
    found.ok_or_else(|| Error::mistake(format!("cannot fold: parameter {name} not found")))
}
