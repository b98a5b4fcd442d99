//! Proofs of properties of networks: the crate `panoply-verify`, and [`compile`], which proves claims about a compiled network.

use panoply_ir::{Error, Result};
use panoply_nn::compiled::Precision;
use panoply_nn::{CompiledModel, ForwardContext, Layer, Model};
use panoply_tensor::Tensor;

pub use panoply_macros::prove;
#[doc(inline)]
pub use panoply_verify::*;

/// Options of [`compile`].
#[derive(Clone, Debug, Default)]
pub struct CompileOptions {
    /// Options of the compilation.
    pub compile: panoply_nn::compiled::CompileOptions,
    /// Options of the proofs. A claim with its own time limit has that one.
    pub verify: Options,
}

/// Compiles a trained network for inference on the current device, as [`panoply_nn::compile`] does, and proves claims about the compiled
/// network.
///
/// The bounds are those of the compiled graph, after layers were folded, with the element types and constants that the device computes with.
/// With [`Arithmetic::Float`] a proof assumes that each operation of the device is within its error bounds; the compiled network is run, for
/// one input and for a batch, and its outputs are compared with the bounds that follow. A claim is about one example, a row of a batch.
///
/// ```
/// use panoply::nn::{LayerSpec, Network};
/// use panoply::verify::{self, CompileOptions, claim};
/// use panoply::{Result, Rng, Tensor};
///
/// # fn main() -> Result<()> {
/// let network = Network::with_input(&[2]).add_layer(LayerSpec::linear(8)).add_layer(LayerSpec::Tanh {}).add_layer(LayerSpec::linear(2));
/// let model = network.build(&mut Rng::seed_from_u64(0))?;
/// let claims = claim::parse("[[claim]]\ninputs = [[-1, 1]]\nholds = 'within -10..10'")?;
/// let compiled = verify::compile(&model, &CompileOptions::default(), &claims)?;
/// let output = compiled.run(&Tensor::from_slice(&[0.5f32, -0.25], [1, 2]))?;
/// # assert!(output.to_vec::<f32>()?.iter().all(|y| y.abs() < 10.0));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// If the compilation fails, a claim does not hold or is undecided (the error names the claim; see [`verify_claims`] for the reports), or the
/// device computes an output outside of its bounds.
pub fn compile(model: &Model, options: &CompileOptions, claims: &[claim::Claim]) -> Result<CompiledModel> {
    if options.compile.precision != Precision::F32 && options.verify.arithmetic == Arithmetic::Float {
        let message =
            format!("no error bounds are known for products in the precision {:?}", options.compile.precision);
        return Err(
            Error::unsupported(message).note("use `Precision::F32`, or prove the claims with `Arithmetic::Real`")
        );
    }
    let compiled = panoply_nn::compile(model, &options.compile)?;
    for (claim, report) in claims.iter().zip(verify_claims(&compiled, &options.verify, claims)?) {
        report.ensure_proven(&claim.name)?;
    }
    Ok(compiled)
}

/// Verifies claims about a compiled network, as [`compile`] does, and returns a report for each of them.
///
/// # Errors
/// If a claim does not fit the network or refers to an example of data, or the device computes an output outside of its bounds.
pub fn verify_claims(compiled: &CompiledModel, options: &Options, claims: &[claim::Claim]) -> Result<Vec<Report>> {
    let shape = [&[1], &compiled.model().network.input[..]].concat();
    let inputs: usize = shape.iter().product();
    let run = |x: &Tensor| Ok(compiled.forward(x, &mut ForwardContext::eval()));
    let replay = |x: &Tensor| compiled.run(x);
    let no_example =
        |_: usize| Err(Error::unsupported("a compiled network has no examples; give the center as a `point`"));
    let verify = |claim: &claim::Claim| {
        let center = claim.center(&no_example)?;
        // Without a ball, the number of outputs is all that is needed of the output.
        let point = center.clone().filter(|center| center.len() == inputs).unwrap_or_else(|| vec![0.0; inputs]);
        let output = compiled.run(&Tensor::from_slice(&point, shape.clone()))?.to_vec::<f32>()?;
        let property = claim.property(inputs, center.as_deref(), &output)?;
        let options = Options { seconds: claim.seconds.unwrap_or(options.seconds), ..options.clone() };
        let function = Function { run: &run, shape: shape.clone().into(), compiled: Some(&replay) };
        verify_function(&function, &property, &options, &mut |_| {})
    };
    claims.iter().map(verify).collect()
}
