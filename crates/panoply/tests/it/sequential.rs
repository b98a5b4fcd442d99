//! `sequential!`: the networks that it builds, and the compiler errors for mismatched sizes.

use panoply::nn::{LayerSpec, Module, Network};
use panoply::{Device, Rng, sequential};

#[test]
fn invalid_networks_are_reported_at_their_source() {
    crate::compile_fail::check("network");
}

#[test]
fn sequential_equals_the_builder() {
    const WIDTH: usize = 32;
    let network = sequential![Linear(784, WIDTH), relu, dropout(0.1), Linear(WIDTH, 10)];
    let built = Network::with_input_size(784)
        .add_layer(LayerSpec::linear(32).with_inputs(784))
        .add_layer(LayerSpec::Relu {})
        .add_layer(LayerSpec::Dropout { p: 0.1 })
        .add_layer(LayerSpec::linear(10).with_inputs(32));
    assert_eq!(network, built);
    let images = sequential![
        input = [1, 8, 8],
        Conv2d(1, 8, [3, 3], padding = "same"),
        BatchNorm(8),
        relu,
        MaxPool([2, 2]),
        Reshape([8, 16]),
        Gru(16, 6),
        positional_encoding,
        TransformerEncoderLayer(2, 12),
        LayerNorm(6),
        time_mean,
        Linear(6, 10),
        softmax,
    ];
    assert_eq!(images.output_shape().unwrap(), [10]);
    let shapes = |network: Network| network.output_shape().unwrap();
    assert_eq!(shapes(sequential![input = [1, 8, 8], Conv2d(1, 4, [3, 5])]), [4, 6, 4]);
    assert_eq!(shapes(sequential![input = [1, 8, 8], Conv2d(1, 4, [3, 5], padding = [2, 0])]), [4, 10, 4]);
    let words = sequential![
        input = [8, 6],
        MultiHeadAttention(3),
        elu,
        selu,
        relu6,
        gelu_tanh,
        mish,
        softplus,
        softsign,
        hardsigmoid,
        hardswish,
        logsigmoid,
        log_softmax,
        Linear(6, 2),
    ];
    assert_eq!((words.output_shape().unwrap(), words.layers[10].kind()), (vec![8, 2], "logsigmoid"));
    assert_eq!(words.layers[0], LayerSpec::multi_head_attention(3));
    // Sizes that are not literals are checked when the network is built.
    let error = sequential![Linear(4, WIDTH), Linear(31, 2)].build(&mut Rng::seed_from_u64(0)).unwrap_err();
    assert_eq!(error.message(), "layer 1 (linear): in_features 31 does not match the 32 of layer 0 (linear)");
    Device::get("cpu").unwrap().scope(|| {
        let model = network.build(&mut Rng::seed_from_u64(0)).unwrap();
        assert_eq!(model.num_parameters(), 784 * 32 + 32 + 32 * 10 + 10);
    });
}
