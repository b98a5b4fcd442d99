//! What onnxruntime computes from an exported file is what the network computes. It needs a Python with `onnxruntime` and `numpy`:
//! the one that PANOPLY_TEST_PYTHON names, or `python3`.

use std::process::Command;

use panoply_nn::network::layer_spec::{Block, Decoder, Memory, Transposed, Windows};
use panoply_nn::{Layer, LayerSpec, Loss, Network, Pass, Sgd, Standardise, onnx};
use panoply_tensor::{DType, Device, Rng, Tensor};

const SCRIPT: &str = "
import sys, numpy as np, onnxruntime
folder, count = sys.argv[1], int(sys.argv[2])
for i in range(count):
    run = onnxruntime.InferenceSession(f'{folder}/{i}.onnx', providers=['CPUExecutionProvider'])
    output, = run.run(None, {'input': np.load(f'{folder}/{i}.in.npy')})
    want = np.load(f'{folder}/{i}.out.npy')
    assert output.shape == want.shape, (i, output.shape, want.shape)
    error = np.abs(output - want).max() / np.abs(want).max()
    print(i, error)
    assert error < 1e-5, (i, error)
";

/// Filters that take every second point.
fn strided(outputs: usize, size: usize, padding: usize) -> LayerSpec {
    LayerSpec::Conv {
        outputs,
        inputs: None,
        size: vec![size; 2],
        stride: vec![2; 2],
        padding: vec![padding; 2],
        dilation: vec![],
        groups: 1,
        bias: false,
    }
}

fn networks() -> Vec<Network> {
    let memory = |both, layers| Memory { both, layers, ..Memory::new(5) };
    let image = Network::with_input(&[4, 9, 8]);
    let rows = Network::with_input(&[7, 6]);
    vec![
        Network::with_input_size(6)
            .add_layer(LayerSpec::Standardise {})
            .add_layer(LayerSpec::linear(8))
            .add_layer(LayerSpec::batch_norm())
            .add_layer(LayerSpec::Gelu {})
            .add_layer(LayerSpec::Dropout { probability: 0.5 })
            .add_layer(LayerSpec::Linear { outputs: 5, inputs: None, bias: false })
            .add_layer(LayerSpec::Silu {})
            .add_layer(LayerSpec::Softmax {}),
        image
            .clone()
            .add_layer(LayerSpec::conv(6, &[3, 3]))
            .add_layer(LayerSpec::batch_norm())
            .add_layer(LayerSpec::Relu {})
            .add_layer(LayerSpec::max_pool(&[2, 2]))
            .add_layer(LayerSpec::Conv {
                outputs: 4,
                inputs: None,
                size: vec![2, 3],
                stride: vec![2, 1],
                padding: vec![],
                dilation: vec![],
                groups: 2,
                bias: false,
            })
            .add_layer(LayerSpec::average_pool(&[2, 1]))
            .add_layer(LayerSpec::Flatten {})
            .add_layer(LayerSpec::linear(3)),
        image
            .clone()
            .add_layer(LayerSpec::Conv {
                outputs: 6,
                inputs: None,
                size: vec![3, 2],
                stride: vec![],
                padding: vec![2, 0],
                dilation: vec![2, 3],
                groups: 1,
                bias: true,
            })
            .add_layer(LayerSpec::GroupNorm { groups: 3, epsilon: 1e-3 })
            .add_layer(LayerSpec::LeakyRelu { slope: 0.3 })
            .add_layer(LayerSpec::ConvTransposed(Transposed {
                padding: vec![1, 0],
                extra: vec![1, 0],
                groups: 2,
                ..Transposed::new(4, &[3, 2], &[2, 1])
            }))
            .add_layer(LayerSpec::Elu {})
            .add_layer(LayerSpec::MaxPool(Windows { size: vec![3, 3], stride: vec![2, 1], padding: vec![1, 1] }))
            .add_layer(LayerSpec::AveragePool(Windows { size: vec![2, 2], stride: vec![1, 1], padding: vec![1, 0] }))
            .add_layer(LayerSpec::Shift { by: 1 })
            .add_layer(LayerSpec::AdaptiveMaxPool { size: vec![5, 5] })
            .add_layer(LayerSpec::AdaptiveAveragePool { size: vec![1, 5] })
            .add_layer(LayerSpec::RmsNorm { epsilon: 1e-4 })
            .add_layer(LayerSpec::Mish {})
            .add_layer(LayerSpec::GlobalMaxPool {})
            .add_layer(LayerSpec::Softplus {})
            .add_layer(LayerSpec::Restore {}),
        Network::with_input(&[7])
            .add_layer(LayerSpec::Embedding { count: 3, width: 4 })
            .add_layer(LayerSpec::Encoder(Block { causal: true, ..Block::new(2, 8) })),
        // A block of a residual network that makes images smaller.
        image
            .clone()
            .add_layer(LayerSpec::Residual {
                layers: vec![
                    strided(6, 3, 1),
                    LayerSpec::batch_norm(),
                    LayerSpec::Relu {},
                    LayerSpec::conv(6, &[3, 3]),
                    LayerSpec::batch_norm(),
                ],
                shortcut: vec![strided(6, 1, 0), LayerSpec::batch_norm()],
            })
            .add_layer(LayerSpec::HardSwish {})
            .add_layer(LayerSpec::Residual {
                layers: vec![LayerSpec::Checkpoint { layers: vec![LayerSpec::conv(6, &[3, 3]), LayerSpec::Selu {}] }],
                shortcut: vec![],
            })
            .add_layer(LayerSpec::Flatten {})
            .add_layer(LayerSpec::linear(5))
            .add_layer(LayerSpec::Relu6 {})
            .add_layer(LayerSpec::LogSoftmax {}),
        rows.clone()
            .add_layer(LayerSpec::Attention { heads: 6, key_heads: Some(2), causal: true, source: vec![] })
            .add_layer(LayerSpec::GeluTanh {})
            .add_layer(LayerSpec::attention(2))
            .add_layer(LayerSpec::HardSigmoid {})
            .add_layer(LayerSpec::Softsign {})
            .add_layer(LayerSpec::linear(3))
            .add_layer(LayerSpec::LogSigmoid {}),
        image.add_layer(LayerSpec::GlobalAveragePool {}).add_layer(LayerSpec::Sigmoid {}),
        rows.clone().add_layer(LayerSpec::Rnn(memory(false, 2))).add_layer(LayerSpec::Last {}),
        rows.clone().add_layer(LayerSpec::Lstm(memory(true, 2))).add_layer(LayerSpec::MeanOverTime {}),
        rows.clone().add_layer(LayerSpec::Gru(memory(true, 1))).add_layer(LayerSpec::Tanh {}),
        rows.clone().add_layer(LayerSpec::conv(5, &[3])).add_layer(LayerSpec::Reshape { lengths: vec![3, 10] }),
        // A sequence of four, decoded while looking at the three before it.
        rows.clone()
            .add_layer(LayerSpec::Decoder(Decoder {
                heads: 2,
                inner: 9,
                blocks: 2,
                dropout: 0.1,
                norm_first: true,
                layers: vec![LayerSpec::Narrow { start: 3, length: 4 }, LayerSpec::Positions {}],
                source: vec![
                    LayerSpec::Narrow { start: 0, length: 3 },
                    LayerSpec::Encoder(Block { norm_first: false, ..Block::new(3, 7) }),
                ],
            }))
            .add_layer(LayerSpec::Decoder(Decoder {
                heads: 3,
                inner: 5,
                blocks: 1,
                dropout: 0.0,
                norm_first: false,
                layers: vec![],
                source: vec![LayerSpec::RmsNorm { epsilon: 1e-5 }],
            }))
            .add_layer(LayerSpec::Attention {
                heads: 6,
                key_heads: Some(3),
                causal: false,
                source: vec![LayerSpec::Narrow { start: 1, length: 2 }],
            }),
        rows.add_layer(LayerSpec::Positions {})
            .add_layer(LayerSpec::Encoder(Block { dropout: 0.2, ..Block::new(3, 10) }))
            .add_layer(LayerSpec::layer_norm())
            .add_layer(LayerSpec::MeanOverTime {}),
    ]
}

#[test]
fn onnxruntime_computes_the_same() {
    let python = std::env::var("PANOPLY_TEST_PYTHON").unwrap_or_else(|_| "python3".to_string());
    let there = Command::new(&python).args(["-c", "import onnxruntime, numpy"]).output();
    if !there.is_ok_and(|output| output.status.success()) {
        eprintln!(
            "SKIPPED: ONNX files in onnxruntime: {python} has no onnxruntime and numpy; PANOPLY_TEST_PYTHON names another"
        );
        return;
    }
    let folder = std::env::temp_dir().join(format!("panoply-onnx-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let networks = networks();
    Device::get("cpu").unwrap().scope(|| {
        for (i, network) in networks.iter().enumerate() {
            let mut rng = Rng::seed(i as u64);
            let mut model = network.build(&mut rng).unwrap();
            let mut x = (rng.normal([&[3], &network.input[..]].concat()) + 0.3).detach();
            if let Some(LayerSpec::Embedding { count, .. }) = network.layers.first() {
                x = (rng.uniform([&[3], &network.input[..]].concat()) * *count as f64)
                    .cast(DType::I32)
                    .cast(DType::F32);
            }
            if let Some(LayerSpec::Standardise {}) = network.layers.first() {
                model.layers.layers[0] = Box::new(Standardise::measured(&x.to_vec::<f32>().unwrap(), &network.input));
            }
            // A step gives norms statistics of their own.
            let mut pass = Pass::train(&mut rng);
            let logits = model.forward(&x, &mut pass).flatten(1);
            if network.layers.iter().any(|layer| layer.kind() == "linear") {
                let loss = Loss::default().of(&logits, &Tensor::from_slice(&[0i32, 1, 2], [3]));
                Sgd::new(0.1).step(&mut model, &loss, pass).unwrap();
            }
            onnx::save(&model, &folder.join(format!("{i}.onnx"))).unwrap();
            let y = model.forward(&x, &mut Pass::eval());
            panoply_nn::data::npy::save(&x, &folder.join(format!("{i}.in.npy"))).unwrap();
            panoply_nn::data::npy::save(&y, &folder.join(format!("{i}.out.npy"))).unwrap();
        }
    });
    let count = networks.len().to_string();
    let output = Command::new(&python).args(["-c", SCRIPT, &folder.display().to_string(), &count]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert_eq!(
        said.lines().filter(|line| line.chars().next().is_some_and(|c| c.is_ascii_digit())).count(),
        networks.len(),
        "{said}"
    );
    eprintln!("{said}");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn what_onnx_cannot_say_is_an_error_that_names_the_layer() {
    Device::get("cpu").unwrap().scope(|| {
        let network = Network::with_input(&[2, 7]).add_layer(LayerSpec::AdaptiveMaxPool { size: vec![3] });
        let error = onnx::to_bytes(&network.build(&mut Rng::seed(0)).unwrap()).unwrap_err();
        assert_eq!(error.message(), "layer 1: ONNX has no pooling of lengths [7] into [3]");
    });
}
