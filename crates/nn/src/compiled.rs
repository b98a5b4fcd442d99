//! A trained network made ready for use: fewer layers, other precision, and, if asked, checked against another executor.

use panoply_tensor::{DType, Device, Error, Result, Rng, Tensor};

use crate::ensure::{Property, place};
use crate::layer::{Layer, Pass};
use crate::module::{Module, Param, VisitorMut};
use crate::network::{LayerSpec, Model, Network};

/// What to make of a network.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Whether batch norms go into the layer before them and what only training has goes away.
    pub fold: bool,
    /// What parameters are kept and layers compute in: f32, bf16 or f16.
    pub precision: DType,
    /// What every output must be; checked each time it is used.
    pub properties: Vec<Property>,
    /// Whether the result is compared with the network itself on another executor: on the CPU, or in its checked mode if this
    /// device is the CPU.
    pub verify: bool,
}

impl Default for Options {
    /// Folded, in f32, no properties, not verified.
    fn default() -> Options {
        Options { fold: true, precision: DType::F32, properties: Vec::new(), verify: false }
    }
}

/// A network ready for use. Its parameters are frozen.
#[derive(Clone, Debug)]
pub struct Compiled {
    model: Model,
    options: Options,
}

/// Examples that a verification looks at.
const SAMPLES: usize = 4;

/// Makes a trained network ready for use on the current device. With [`Options::verify`] it must agree with the network it was made
/// of on another executor and have its properties, on random examples; if not, that is the error.
pub fn compile(model: &Model, options: &Options) -> Result<Compiled> {
    let mut folded = if options.fold { fold(model)? } else { model.clone() };
    let mut freeze = |_: &str, param: &mut Param| {
        let value = if param.is_trained() { param.tensor().cast(options.precision) } else { param.tensor().clone() };
        let state = !param.is_trained() && !param.frozen;
        *param = if state { Param::state(value) } else { Param::new(value) };
        param.frozen = true;
        Ok(())
    };
    folded.visit_mut(&mut VisitorMut::new(&mut freeze))?;
    let params: Vec<Param> = folded.named_params().into_iter().map(|(_, param)| param).collect();
    panoply_tensor::eval(&params.iter().map(Param::tensor).collect::<Vec<&Tensor>>())?;
    let compiled = Compiled { model: folded, options: options.clone() };
    if options.verify {
        let shape = [&[SAMPLES], &model.network.input[..]].concat();
        compiled.verify(model, &Rng::seed(0).normal(shape))?;
    }
    Ok(compiled)
}

impl Compiled {
    /// What became of the network.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The outputs in f32 for some examples, with the declared properties checked.
    pub fn run(&self, input: &Tensor) -> Result<Tensor> {
        let output = self.output(input);
        self.options.properties.iter().try_for_each(|property| property.check("output", &output))?;
        Ok(output)
    }

    fn output(&self, input: &Tensor) -> Tensor {
        let mut pass = Pass::eval().in_precision(self.options.precision);
        self.model.forward(input, &mut pass).cast(DType::F32)
    }

    /// The largest difference from what `original` gives for these examples on another executor, as a share of the largest
    /// magnitude there. An error if it is more than the precision explains, or if a property does not hold.
    pub fn verify(&self, original: &Model, samples: &Tensor) -> Result<f64> {
        let device = Device::current()?;
        let reference = Device::get(if device.spelling() == "cpu" { "cpu:checked" } else { "cpu" })?;
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
        there.visit_mut(&mut VisitorMut::new(&mut carry))?;
        let want = reference.scope(|| {
            let samples = Tensor::from_slice(&numbers, shape);
            there.forward(&samples, &mut Pass::eval()).cast(DType::F32).to_vec::<f32>()
        })?;
        let scale = want.iter().fold(f32::MIN_POSITIVE, |top, x| top.max(x.abs()));
        let far = |at: usize| f64::from((have[at] - want[at]).abs() / scale);
        let allowed = self.tolerance();
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

    /// What rounding explains: a few hundred units in the last place of f32 through many layers, some tens of fewer digits.
    fn tolerance(&self) -> f64 {
        match self.options.precision {
            DType::F16 => 32.0 * 2f64.powi(-11),
            DType::BF16 => 32.0 * 2f64.powi(-8),
            _ => 256.0 * 2f64.powi(-23),
        }
    }
}

impl Layer for Compiled {
    /// Without the properties' check; [`Compiled::run`] has it.
    fn forward(&self, input: &Tensor, _: &mut Pass<'_>) -> Tensor {
        self.output(input)
    }
}

/// The same network in use with batch norms in the layer before them and without dropout.
/// w' = w · s and b' = (b - mean) · s + shift, where s = scale / √(variance + ε). [Jacob et al. 2018]
fn fold(model: &Model) -> Result<Model> {
    let mut network = Network { layers: Vec::new(), ..model.network.clone() };
    // For each kept layer its parameters by their last name.
    let mut kept: Vec<Vec<(String, Tensor)>> = Vec::new();
    for (at, layer) in model.network.layers.iter().enumerate() {
        let own = model.layers.layers[at].named_params();
        let own: Vec<(String, Tensor)> = own.into_iter().map(|(name, param)| (name, param.tensor().clone())).collect();
        let folds = matches!(network.layers.last(), Some(LayerSpec::Linear { .. } | LayerSpec::Conv { .. }));
        // A norm of [time, features] has its channels first, a dense layer its outputs last.
        let aligned = network.output()?.len() == 1 || !matches!(network.layers.last(), Some(LayerSpec::Linear { .. }));
        match (layer, network.layers.last_mut(), kept.last_mut()) {
            (layer, _, _) if !layer.is_used() => {}
            (LayerSpec::BatchNorm { epsilon }, Some(before), Some(params)) if folds && aligned => {
                let [scale, shift, mean, variance] =
                    ["weight", "bias", "running_mean", "running_var"].map(|name| get(&own, name));
                let factor = scale? / (variance? + *epsilon).sqrt();
                let weight = get(params, "weight")?;
                let bias = get(params, "bias").unwrap_or_else(|_| factor.zeros_like());
                let mut column = factor.clone();
                (1..weight.shape()?.rank()).for_each(|_| column = column.unsqueeze(-1));
                *params = vec![
                    ("weight".to_string(), (weight * column).detach()),
                    ("bias".to_string(), ((bias - mean?) * &factor + shift?).detach()),
                ];
                match before {
                    LayerSpec::Linear { bias, .. } | LayerSpec::Conv { bias, .. } => *bias = true,
                    _ => unreachable!("only layers with a weight are folded into"),
                }
            }
            _ => {
                network.layers.push(layer.clone());
                kept.push(own);
            }
        }
    }
    let mut folded = network.build(&mut Rng::seed(0))?;
    for (layer, params) in folded.layers.layers.iter_mut().zip(kept) {
        let mut put = |name: &str, param: &mut Param| param.set(&get(&params, name)?);
        layer.visit_mut(&mut VisitorMut::new(&mut put))?;
    }
    Ok(folded)
}

fn get(params: &[(String, Tensor)], name: &str) -> Result<Tensor> {
    let found = params.iter().find(|(known, _)| known == name).map(|(_, tensor)| tensor.clone());
    found.ok_or_else(|| Error::mistake(format!("there is no parameter {name} to fold")))
}
