//! Checkpointed layers train identically with less memory.

use panoply_nn::{
    ActivationCheckpoint, AdamW, ForwardContext, Layer, Module, Sequential, TransformerConfig, TransformerEncoderLayer,
};
use panoply_tensor::{Device, Rng, Tensor};

const SHAPE: TransformerConfig = TransformerConfig {
    d_model: 32,
    num_heads: 4,
    dim_feedforward: 128,
    norm_first: true,
    dropout: 0.1,
    is_causal: false,
};

fn network(checkpointed: bool) -> Sequential {
    let mut rng = Rng::seed_from_u64(3);
    (0..6).fold(Sequential::new(), |network, _| {
        let block = TransformerEncoderLayer::new(SHAPE, &mut rng);
        if checkpointed { network.add(ActivationCheckpoint(block)) } else { network.add(block) }
    })
}

fn input() -> Tensor {
    Rng::seed_from_u64(5).normal([8, 64, SHAPE.d_model])
}

fn loss(network: &Sequential, input: &Tensor, pass: &mut ForwardContext<'_>) -> Tensor {
    network.forward(input, pass).square().mean(..)
}

fn on_cpu(work: impl FnOnce()) {
    Device::get("cpu").unwrap().scope(work);
}

#[test]
fn a_checkpointed_transformer_trains_identically() {
    on_cpu(|| {
        let trained = |checkpointed| {
            let (mut network, mut optimizer, mut rng) =
                (network(checkpointed), AdamW::new(0.01), Rng::seed_from_u64(9));
            let (input, mut losses) = (input(), Vec::new());
            for _ in 0..3 {
                let mut pass = ForwardContext::train(&mut rng);
                let loss = loss(&network, &input, &mut pass);
                losses.push(optimizer.step_keeping_graph(&mut network, &loss, pass).unwrap());
            }
            let params = network.named_parameters().into_iter();
            let values: Vec<(String, Vec<f32>)> =
                params.map(|(name, param)| (name, param.tensor().to_vec().unwrap())).collect();
            (losses, values)
        };
        let (kept, anew) = (trained(false), trained(true));
        assert!(kept.0[0] != kept.0[2], "the loss does not change");
        assert_eq!((kept.0.len(), kept.1.len()), (anew.0.len(), anew.1.len()));
        for (kept, anew) in kept.0.iter().zip(&anew.0) {
            assert!((kept - anew).abs() <= 1e-6, "losses {kept} and {anew}");
        }
        for ((name, kept), (other, anew)) in kept.1.iter().zip(&anew.1) {
            let apart = kept.iter().zip(anew).map(|(a, b)| (a - b).abs()).fold(0f32, f32::max);
            // The gradient of a key bias is only rounding error, which the optimizer scales to full steps.
            let limit = if name.ends_with("key.bias") { 1e-3 } else { 1e-5 };
            assert!(name == other && apart <= limit, "{name} and {other} are {apart} apart");
        }
    });
}

#[test]
fn a_checkpointed_step_needs_half_the_memory() {
    on_cpu(|| {
        let scratch = |checkpointed| {
            let (network, input, mut rng) = (network(checkpointed), input(), Rng::seed_from_u64(9));
            // State that exists before a training step.
            input.eval().unwrap();
            network.named_parameters().iter().for_each(|(_, param)| param.tensor().eval().unwrap());
            let mut pass = ForwardContext::train(&mut rng);
            let loss = loss(&network, &input, &mut pass);
            AdamW::new(0.01).memory_plan(&network, &loss, &pass).unwrap().temp
        };
        let (kept, anew) = (scratch(false), scratch(true));
        println!("temporaries of a step: {kept} bytes without checkpoints, {anew} with");
        assert!(2 * anew < kept, "{anew} bytes with checkpoints, {kept} without");
    });
}
