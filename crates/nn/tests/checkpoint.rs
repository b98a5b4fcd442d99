//! Checkpointed layers train to the same bits in less memory.

use panoply_nn::{AdamW, BlockShape, Checkpoint, EncoderBlock, Layer, Module, Pass, Sequential};
use panoply_tensor::{Device, Rng, Tensor};

const SHAPE: BlockShape = BlockShape { width: 32, heads: 4, inner: 128, norm_first: true, dropout: 0.1, causal: false };

fn network(checkpointed: bool) -> Sequential {
    let mut rng = Rng::seed(3);
    (0..6).fold(Sequential::new(), |network, _| {
        let block = EncoderBlock::new(SHAPE, &mut rng);
        if checkpointed { network.then(Checkpoint(block)) } else { network.then(block) }
    })
}

fn loss(network: &Sequential, pass: &mut Pass<'_>) -> Tensor {
    network.forward(&Rng::seed(5).normal([8, 64, SHAPE.width]), pass).square().mean(..)
}

fn on_cpu(work: impl FnOnce()) {
    Device::get("cpu").unwrap().scope(work);
}

#[test]
fn a_checkpointed_transformer_trains_to_the_same_bits() {
    on_cpu(|| {
        let trained = |checkpointed| {
            let (mut network, mut optimiser, mut rng) = (network(checkpointed), AdamW::new(0.01), Rng::seed(9));
            let mut losses = Vec::new();
            for _ in 0..3 {
                let mut pass = Pass::train(&mut rng);
                let loss = loss(&network, &mut pass);
                losses.push(optimiser.step(&mut network, &loss, pass).unwrap());
            }
            let params = network.named_params().into_iter();
            let values: Vec<(String, Vec<f32>)> =
                params.map(|(name, param)| (name, param.tensor().to_vec().unwrap())).collect();
            (losses, values)
        };
        let (kept, anew) = (trained(false), trained(true));
        assert!(kept.0[0] != kept.0[2], "it trains");
        assert_eq!(kept, anew);
    });
}

#[test]
fn a_checkpointed_step_takes_half_the_memory() {
    on_cpu(|| {
        let scratch = |checkpointed| {
            let (network, mut rng) = (network(checkpointed), Rng::seed(9));
            let mut pass = Pass::train(&mut rng);
            let loss = loss(&network, &mut pass);
            AdamW::new(0.01).memory(&network, &loss, &pass).unwrap().scratch
        };
        let (kept, anew) = (scratch(false), scratch(true));
        println!("a step's temporaries: {kept} bytes kept, {anew} computed anew");
        assert!(2 * anew < kept, "{anew} bytes with checkpoints, {kept} without");
    });
}
