//! Proofs about a trained network: a network learns a curve, then its error is bounded for all inputs, not only for those of a test.
//!
//! `verify::compile` proves claims about the compiled network before it is used.

use panoply::nn::{ForwardContext, Layer, LayerSpec, Loss, LossKind, Network, Sgd};
use panoply::verify::{self, CompileOptions, InputBox, claim, prove};
use panoply::{Result, Rng, Tensor};

/// The curve that the network learns.
fn curve(x: &Tensor) -> Tensor {
    x * x * 0.5 + x * 0.25
}

/// Trains a network and proves claims about it.
pub fn main() -> Result<()> {
    let mut rng = Rng::seed_from_u64(0);
    let network = Network::with_input_size(1)
        .add_layer(LayerSpec::linear(16))
        .add_layer(LayerSpec::Tanh {})
        .add_layer(LayerSpec::linear(1));
    let mut model = network.build(&mut rng)?;
    let mut optimizer = Sgd::new(0.1);
    let x = (Tensor::arange(64).cast(panoply::DType::F32) / 31.5 - 1.0).reshape([64, 1]);
    for _ in 0..400 {
        let mut pass = ForwardContext::train(&mut rng);
        let loss = Loss::new(LossKind::Mse).compute(&model.forward(&x, &mut pass), &curve(&x));
        optimizer.step_keeping_graph(&mut model, &loss, pass)?;
    }

    // For every input in -1..1, the network is near the curve, in real numbers and in f32 on this device.
    let output = |x: &Tensor| model.forward(&x.reshape([1, 1]), &mut ForwardContext::eval()).flatten(0, -1);
    prove!(|x in InputBox::new([1], -1.0, 1.0)| (output(x) - curve(x)).abs() <= 0.2)?;
    let refuted = prove!(|x in InputBox::new([1], -1.0, 1.0)| output(x) >= 0.5).unwrap_err();
    println!("{refuted}");

    // The compiled network is only returned if the claims about it are proven.
    let claims = claim::parse("[[claim]]\nname = 'bounded'\ninputs = [[-1, 1]]\nholds = 'within -1..1'")?;
    let compiled = verify::compile(&model, &CompileOptions::default(), &claims)?;
    println!("{:?}", compiled.run(&x)?.to_vec::<f32>()?);
    Ok(())
}
