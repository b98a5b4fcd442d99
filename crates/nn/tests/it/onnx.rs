//! onnxruntime computes the same from an exported file as the network. Needs a Python with `onnxruntime` and `numpy`: the one named by
//! PANOPLY_TEST_PYTHON, or `python3`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use panoply_nn::data::npy;
use panoply_nn::network::layer_spec::{
    ConvTransposeSpec, PoolSpec, RnnSpec, TransformerDecoderSpec, TransformerEncoderSpec,
};
use panoply_nn::{
    Activation, ForwardContext, Layer, LayerSpec, Loss, Model, Module, Network, Nonlinearity, Padding, ParamVisitorMut,
    Sgd, Standardize, onnx,
};
use panoply_tensor::{DType, Device, Rng, Tensor};

const SCRIPT: &str = "
import sys, numpy as np, onnxruntime
folder, count = sys.argv[1], int(sys.argv[2])
for i in range(count):
    run = onnxruntime.InferenceSession(f'{folder}/{i}.onnx', providers=['CPUExecutionProvider'])
    x, want = np.load(f'{folder}/{i}.in.npy'), np.load(f'{folder}/{i}.out.npy')
    output, = run.run(None, {'input': x})
    assert output.shape == want.shape, (i, output.shape, want.shape)
    empty, = run.run(None, {'input': x[:0]})
    assert empty.shape == (0,) + want.shape[1:], (i, empty.shape, want.shape)
    error = np.abs(output - want).max() / np.abs(want).max()
    print(i, error)
    assert error < 1e-5, (i, error)
";

/// Returns a convolution with stride 2.
fn strided(outputs: usize, size: usize, padding: usize) -> LayerSpec {
    LayerSpec::Conv {
        out_channels: outputs,
        in_channels: None,
        kernel_size: vec![size; 2],
        stride: vec![2; 2],
        padding: [padding; 2].into(),
        dilation: vec![],
        groups: 1,
        bias: false,
    }
}

/// Networks in which every layer occurs.
pub fn networks() -> Vec<Network> {
    let memory = |both, layers| RnnSpec { bidirectional: both, num_layers: layers, ..RnnSpec::new(5) };
    let image = Network::with_input(&[4, 9, 8]);
    let rows = Network::with_input(&[7, 6]);
    vec![
        Network::with_input_size(6)
            .add_layer(LayerSpec::Standardize {})
            .add_layer(LayerSpec::linear(8))
            .add_layer(LayerSpec::batch_norm())
            .add_layer(LayerSpec::Gelu {})
            .add_layer(LayerSpec::Dropout { p: 0.5 })
            .add_layer(LayerSpec::Linear { out_features: 5, in_features: None, bias: false })
            .add_layer(LayerSpec::Silu {})
            .add_layer(LayerSpec::Softmax {}),
        image
            .clone()
            .add_layer(LayerSpec::conv(6, &[3, 3]).with_padding(Padding::Same))
            .add_layer(LayerSpec::batch_norm())
            .add_layer(LayerSpec::Relu {})
            .add_layer(LayerSpec::max_pool(&[2, 2]))
            .add_layer(LayerSpec::Conv {
                out_channels: 4,
                in_channels: None,
                kernel_size: vec![2, 3],
                stride: vec![2, 1],
                padding: Padding::default(),
                dilation: vec![],
                groups: 2,
                bias: false,
            })
            .add_layer(LayerSpec::avg_pool(&[2, 1]))
            .add_layer(LayerSpec::Flatten {})
            .add_layer(LayerSpec::linear(3)),
        image
            .clone()
            .add_layer(LayerSpec::Conv {
                out_channels: 6,
                in_channels: None,
                kernel_size: vec![3, 2],
                stride: vec![],
                padding: [2, 0].into(),
                dilation: vec![2, 3],
                groups: 1,
                bias: true,
            })
            .add_layer(LayerSpec::GroupNorm { num_groups: 3, epsilon: 1e-3 })
            .add_layer(LayerSpec::LeakyRelu { negative_slope: 0.3 })
            .add_layer(LayerSpec::ConvTranspose(ConvTransposeSpec {
                padding: vec![1, 0],
                output_padding: vec![1, 0],
                groups: 2,
                ..ConvTransposeSpec::new(4, &[3, 2], &[2, 1])
            }))
            .add_layer(LayerSpec::Elu {})
            .add_layer(LayerSpec::MaxPool(PoolSpec {
                kernel_size: vec![3, 3],
                stride: vec![2, 1],
                padding: vec![1, 1],
            }))
            .add_layer(LayerSpec::AvgPool(PoolSpec {
                kernel_size: vec![2, 2],
                stride: vec![1, 1],
                padding: vec![1, 0],
            }))
            .add_layer(LayerSpec::RandomShift { max_shift: 1 })
            .add_layer(LayerSpec::RandomHorizontalFlip { p: 0.5 })
            .add_layer(LayerSpec::GaussianNoise { stddev: 0.1 })
            .add_layer(LayerSpec::AdaptiveMaxPool { output_size: vec![5, 5] })
            .add_layer(LayerSpec::AdaptiveAvgPool { output_size: vec![1, 5] })
            .add_layer(LayerSpec::RmsNorm { epsilon: 1e-4 })
            .add_layer(LayerSpec::Mish {})
            .add_layer(LayerSpec::GlobalMaxPool {})
            .add_layer(LayerSpec::Softplus {})
            .add_layer(LayerSpec::InverseStandardize {}),
        Network::with_input(&[7]).add_layer(LayerSpec::Embedding { num_embeddings: 3, embedding_dim: 4 }).add_layer(
            LayerSpec::TransformerEncoderLayer(TransformerEncoderSpec {
                is_causal: true,
                ..TransformerEncoderSpec::new(2, 8)
            }),
        ),
        // A downsampling block of a residual network.
        image
            .clone()
            .add_layer(LayerSpec::Residual {
                layers: vec![
                    strided(6, 3, 1),
                    LayerSpec::batch_norm(),
                    LayerSpec::Relu {},
                    LayerSpec::conv(6, &[3, 3]).with_padding(Padding::Same),
                    LayerSpec::batch_norm(),
                ],
                shortcut: vec![strided(6, 1, 0), LayerSpec::batch_norm()],
            })
            .add_layer(LayerSpec::Hardswish {})
            .add_layer(LayerSpec::Residual {
                layers: vec![LayerSpec::ActivationCheckpoint {
                    layers: vec![LayerSpec::conv(6, &[3, 3]).with_padding(Padding::Same), LayerSpec::Selu {}],
                }],
                shortcut: vec![],
            })
            .add_layer(LayerSpec::Flatten {})
            .add_layer(LayerSpec::linear(5))
            .add_layer(LayerSpec::Relu6 {})
            .add_layer(LayerSpec::LogSoftmax {}),
        rows.clone()
            .add_layer(LayerSpec::MultiHeadAttention {
                num_heads: 6,
                num_kv_heads: Some(2),
                is_causal: true,
                memory: vec![],
            })
            .add_layer(LayerSpec::GeluTanh {})
            .add_layer(LayerSpec::multi_head_attention(2))
            .add_layer(LayerSpec::Hardsigmoid {})
            .add_layer(LayerSpec::Softsign {})
            .add_layer(LayerSpec::linear(3))
            .add_layer(LayerSpec::Logsigmoid {}),
        image.add_layer(LayerSpec::GlobalAvgPool {}).add_layer(LayerSpec::Sigmoid {}),
        rows.clone().add_layer(LayerSpec::Rnn(memory(false, 2))).add_layer(LayerSpec::LastTimeStep {}),
        rows.clone().add_layer(LayerSpec::Lstm(memory(true, 2))).add_layer(LayerSpec::TimeMean {}),
        rows.clone().add_layer(LayerSpec::Gru(memory(true, 1))).add_layer(LayerSpec::Tanh {}),
        rows.clone().add_layer(LayerSpec::Rnn(RnnSpec { nonlinearity: Nonlinearity::Relu, ..memory(true, 2) })),
        rows.clone()
            .add_layer(LayerSpec::TransformerEncoderLayer(TransformerEncoderSpec {
                activation: Activation::Relu,
                epsilon: 1e-2,
                ..TransformerEncoderSpec::new(2, 9)
            }))
            .add_layer(LayerSpec::TransformerDecoder(TransformerDecoderSpec {
                activation: Activation::Relu,
                epsilon: 1e-2,
                ..TransformerDecoderSpec::new(2, 7, vec![LayerSpec::RmsNorm { epsilon: 1e-5 }])
            })),
        rows.clone()
            .add_layer(LayerSpec::conv(5, &[3]).with_padding(Padding::Same))
            .add_layer(LayerSpec::Reshape { shape: vec![3, 10] }),
        // A sequence of four steps, decoded with attention to the three before it.
        rows.clone()
            .add_layer(LayerSpec::TransformerDecoder(TransformerDecoderSpec {
                num_heads: 2,
                dim_feedforward: 9,
                num_layers: 2,
                dropout: 0.1,
                norm_first: true,
                activation: Activation::Gelu,
                epsilon: 1e-5,
                target: vec![LayerSpec::Narrow { start: 3, length: 4 }, LayerSpec::PositionalEncoding {}],
                memory: vec![
                    LayerSpec::Narrow { start: 0, length: 3 },
                    LayerSpec::TransformerEncoderLayer(TransformerEncoderSpec {
                        norm_first: false,
                        ..TransformerEncoderSpec::new(3, 7)
                    }),
                ],
            }))
            .add_layer(LayerSpec::TransformerDecoder(TransformerDecoderSpec {
                num_heads: 3,
                dim_feedforward: 5,
                num_layers: 1,
                dropout: 0.0,
                norm_first: false,
                activation: Activation::Gelu,
                epsilon: 1e-5,
                target: vec![],
                memory: vec![LayerSpec::RmsNorm { epsilon: 1e-5 }],
            }))
            .add_layer(LayerSpec::MultiHeadAttention {
                num_heads: 6,
                num_kv_heads: Some(3),
                is_causal: false,
                memory: vec![LayerSpec::Narrow { start: 1, length: 2 }],
            }),
        rows.add_layer(LayerSpec::PositionalEncoding {})
            .add_layer(LayerSpec::TransformerEncoderLayer(TransformerEncoderSpec {
                dropout: 0.2,
                ..TransformerEncoderSpec::new(3, 10)
            }))
            .add_layer(LayerSpec::layer_norm())
            .add_layer(LayerSpec::TimeMean {}),
    ]
}

/// Inputs at which ONNX's operators and ours could differ: indices outside an embedding, and scores so large that a finite mask value does
/// not hide later positions.
fn extremes() -> Vec<(Network, Tensor)> {
    let places = [-1.0, 0.0, 2.0, 3.0, -0.5, 2.7, f32::NAN, 1e30, -1e30, f32::INFINITY, f32::NEG_INFINITY, -2.0];
    let attention = LayerSpec::MultiHeadAttention { num_heads: 2, num_kv_heads: None, is_causal: true, memory: vec![] };
    let rows = Rng::seed_from_u64(7).normal([3, 5, 4]);
    vec![
        (
            Network::with_input(&[4]).add_layer(LayerSpec::Embedding { num_embeddings: 3, embedding_dim: 2 }),
            Tensor::from_slice(&places, [3, 4]),
        ),
        (Network::with_input(&[5, 4]).add_layer(attention.clone()), &rows * 1e15),
        (Network::with_input(&[5, 4]).add_layer(attention), &rows * 1e17),
    ]
}

/// Returns the Python that has onnxruntime, or prints that the test is skipped.
pub fn python(what: &str) -> Option<String> {
    let python = std::env::var("PANOPLY_TEST_PYTHON").unwrap_or_else(|_| "python3".to_string());
    let there = Command::new(&python).args(["-c", "import onnxruntime, numpy"]).output();
    if there.is_ok_and(|output| output.status.success()) {
        return Some(python);
    }
    eprintln!(
        "SKIPPED: {what} in onnxruntime: {python} has no onnxruntime and numpy; set PANOPLY_TEST_PYTHON to another Python"
    );
    None
}

/// Returns an empty folder for a test.
pub fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("panoply-onnx-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Returns a model after one training step, with inputs for it.
pub fn trained(network: &Network, seed: u64) -> (Model, Tensor) {
    let mut rng = Rng::seed_from_u64(seed);
    let mut model = network.build(&mut rng).unwrap();
    let mut x = (rng.normal([&[3], &network.input[..]].concat()) + 0.3).detach();
    if let Some(LayerSpec::Embedding { num_embeddings: count, .. }) = network.layers.first() {
        x = (rng.uniform([&[3], &network.input[..]].concat()) * *count as f64).cast(DType::I32).cast(DType::F32);
    }
    if let Some(LayerSpec::Standardize {}) = network.layers.first() {
        model.layers.layers[0] = Box::new(Standardize::from_rows(&x.to_vec::<f32>().unwrap(), &network.input));
    }
    // The step gives norms non-default statistics.
    let mut pass = ForwardContext::train(&mut rng);
    let logits = model.forward(&x, &mut pass).flatten(1, -1);
    if network.layers.iter().any(|layer| layer.kind() == "linear") {
        let loss = Loss::default().compute(&logits, &Tensor::from_slice(&[0i32, 1, 2], [3]));
        Sgd::new(0.1).step_keeping_graph(&mut model, &loss, pass).unwrap();
    }
    (model, x)
}

/// Options with this largest size of one file.
fn limit(max_bytes: u64) -> onnx::ExportOptions {
    onnx::ExportOptions { max_bytes, ..Default::default() }
}

/// Writes inputs and outputs of a model for [`SCRIPT`].
fn write_case(folder: &Path, at: usize, model: &Model, x: &Tensor) {
    let y = model.forward(x, &mut ForwardContext::eval());
    npy::save(x, &folder.join(format!("{at}.in.npy"))).unwrap();
    npy::save(&y, &folder.join(format!("{at}.out.npy"))).unwrap();
}

/// Runs onnxruntime on the cases of a folder.
#[track_caller]
fn compare(python: &str, folder: &Path, count: usize) {
    let arguments = ["-c", SCRIPT, &folder.display().to_string(), &count.to_string()];
    let output = Command::new(python).args(arguments).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    let compared = text.lines().filter(|line| line.chars().next().is_some_and(|c| c.is_ascii_digit())).count();
    assert_eq!(compared, count, "{text}");
    eprintln!("{text}");
}

#[test]
fn onnxruntime_computes_the_same() {
    let Some(python) = python("ONNX files") else { return };
    let folder = folder("same");
    let networks = networks();
    let mut count = 0;
    Device::get("cpu").unwrap().scope(|| {
        for network in &networks {
            let (model, x) = trained(network, count as u64);
            onnx::export(&model, &folder.join(format!("{count}.onnx"))).unwrap();
            write_case(&folder, count, &model, &x);
            let empty = model.forward(&x.narrow(0, 0, 0), &mut ForwardContext::eval());
            assert_eq!(empty.size(0).unwrap(), 0, "an empty batch of {network:?}");
            count += 1;
        }
        for (network, x) in extremes() {
            let model = network.build(&mut Rng::seed_from_u64(1)).unwrap();
            onnx::export(&model, &folder.join(format!("{count}.onnx"))).unwrap();
            write_case(&folder, count, &model, &x);
            count += 1;
        }
    });
    compare(&python, &folder, count);
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Parameters in a second file: each array is at the location that the first file names, with the bytes that a single file would contain,
/// and onnxruntime reads both. From 2 GiB on this is the only way.
#[test]
fn large_networks_are_exported_as_two_files() {
    let folder = folder("external");
    let networks = [
        Network::with_input_size(6)
            .add_layer(LayerSpec::linear(70))
            .add_layer(LayerSpec::Gelu {})
            .add_layer(LayerSpec::linear(50)),
        Network::with_input(&[4, 9, 8])
            .add_layer(LayerSpec::conv(16, &[3, 3]).with_padding(Padding::Same))
            .add_layer(LayerSpec::batch_norm())
            .add_layer(LayerSpec::Flatten {})
            .add_layer(LayerSpec::linear(3)),
        Network::with_input(&[7])
            .add_layer(LayerSpec::Embedding { num_embeddings: 99, embedding_dim: 4 })
            .add_layer(LayerSpec::Lstm(RnnSpec::new(20)))
            .add_layer(LayerSpec::transformer_encoder_layer(2, 30)),
    ];
    Device::get("cpu").unwrap().scope(|| {
        for (at, network) in networks.iter().enumerate() {
            let (model, x) = trained(network, at as u64);
            let path = folder.join(format!("{at}.onnx"));
            let whole = onnx::to_bytes(&model).unwrap();
            let saved = onnx::export_with_options(&model, &path, &limit(100)).unwrap();
            let written = std::fs::read(&path).unwrap();
            assert_eq!(saved.bytes, written.len() as u64);
            let (inside, beside) = (initializers(&whole), initializers(&written));
            assert_eq!(inside.keys().collect::<Vec<_>>(), beside.keys().collect::<Vec<_>>());
            let (second, bytes) = saved.data.expect("there is a second file");
            assert_eq!(second, folder.join(format!("{at}.onnx.data")));
            let second = std::fs::read(second).unwrap();
            assert_eq!(second.len() as u64, bytes);
            let mut external = 0;
            for (name, initializer) in &beside {
                let Stored::Beside { location, offset, length } = &initializer.values else {
                    assert_eq!(initializer, &inside[name], "{name}");
                    continue;
                };
                let Stored::Inside(values) = &inside[name].values else { panic!("{name} is external") };
                assert_eq!((location, offset % 4096), (&format!("{at}.onnx.data"), 0), "{name}");
                assert_eq!(&second[*offset..offset + length], &values[..], "{name}");
                assert_eq!((&initializer.dims, initializer.kind), (&inside[name].dims, inside[name].kind), "{name}");
                external += 1;
            }
            assert!(external > 0 && external < beside.len(), "network {at} has large arrays and small ones");
            write_case(&folder, at, &model, &x);
        }
        let (model, _) = trained(&networks[1], 1);
        let size = onnx::to_bytes(&model).unwrap().len() as u64;
        let one = onnx::export_with_options(&model, &folder.join("one.onnx"), &limit(size + (1 << 16))).unwrap();
        assert_eq!((one.bytes, one.data), (size, None));
        assert_eq!(std::fs::read(folder.join("one.onnx")).unwrap(), onnx::to_bytes(&model).unwrap());
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink("one.onnx", folder.join("link.onnx")).unwrap();
            let error = onnx::export_with_options(&model, &folder.join("link.onnx"), &limit(100)).unwrap_err();
            assert!(error.message().contains("needs a second file beside it"), "{error}");
        }
    });
    if let Some(python) = python("ONNX files with external data") {
        compare(&python, &folder, networks.len());
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

/// The real size: 2 GB of parameters, read by onnxruntime. It needs 10 GB of memory, so it only runs with `PANOPLY_TEST_FULL=1`.
#[test]
fn parameters_of_two_gigabytes_are_exported() {
    if std::env::var("PANOPLY_TEST_FULL").is_err() {
        return;
    }
    let Some(python) = python("an ONNX file of 2 GB") else { return };
    let folder = folder("large");
    const COUNT: usize = 8_500_000;
    Device::get("cpu").unwrap().scope(|| {
        let network = Network::with_input(&[3])
            .add_layer(LayerSpec::Embedding { num_embeddings: COUNT, embedding_dim: 64 })
            .add_layer(LayerSpec::TimeMean {});
        let mut model = network.build(&mut Rng::seed_from_u64(0)).unwrap();
        let rows = Tensor::arange(COUNT).cast(DType::F32).unsqueeze(1) * Tensor::from_slice(&[1f32; 64], [1, 64]);
        model.visit_mut(&mut ParamVisitorMut::new(&mut |_, param| param.set(&rows))).unwrap();
        let error = onnx::to_bytes(&model).unwrap_err();
        assert!(error.message().starts_with("an ONNX file must be smaller than 2 GiB"), "{error}");
        let saved = onnx::export(&model, &folder.join("0.onnx")).unwrap();
        assert_eq!(saved.data.map(|(_, bytes)| bytes), Some(COUNT as u64 * 256));
        let places: Vec<f32> = (0..9).map(|at| (at * 944_444) as f32).collect();
        write_case(&folder, 0, &model, &Tensor::from_slice(&places, [3, 3]));
    });
    compare(&python, &folder, 1);
    std::fs::remove_dir_all(&folder).unwrap();
}

/// A constant of an ONNX file, read by the field numbers of `onnx.proto`.
#[derive(Debug, Default, PartialEq)]
struct Initializer {
    dims: Vec<u64>,
    kind: u64,
    values: Stored,
}

#[derive(Debug, Default, PartialEq)]
enum Stored {
    #[default]
    Missing,
    Inside(Vec<u8>),
    Beside {
        location: String,
        offset: usize,
        length: usize,
    },
}

/// A field of a Protocol Buffers message.
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// Returns the fields of a message with their numbers.
fn fields(mut bytes: &[u8]) -> Vec<(u64, Field<'_>)> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let length = bytes.iter().position(|byte| byte & 0x80 == 0).unwrap() + 1;
        let (number, rest) = bytes.split_at(length);
        *bytes = rest;
        number.iter().rev().fold(0, |number, byte| number << 7 | u64::from(byte & 0x7f))
    }
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let head = varint(&mut bytes);
        let value = varint(&mut bytes);
        fields.push((
            head >> 3,
            match head & 7 {
                0 => Field::Number(value),
                2 => {
                    let (content, rest) = bytes.split_at(value as usize);
                    bytes = rest;
                    Field::Bytes(content)
                }
                other => panic!("wire type {other} occurs only in nodes"),
            },
        ));
    }
    fields
}

/// Returns the constants of a model by name.
fn initializers(model: &[u8]) -> BTreeMap<String, Initializer> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let parts = |bytes: &[u8], wanted: u64| -> Vec<Vec<u8>> {
        let of = |(number, field)| match field {
            Field::Bytes(content) if number == wanted => Some(content.to_vec()),
            Field::Bytes(_) | Field::Number(_) => None,
        };
        fields(bytes).into_iter().filter_map(of).collect()
    };
    let mut all = BTreeMap::new();
    for tensor in parts(&parts(model, 7)[0], 5) {
        let (mut initializer, mut name, mut place) = (Initializer::default(), String::new(), BTreeMap::new());
        for (number, field) in fields(&tensor) {
            match (number, field) {
                (1, Field::Number(dim)) => initializer.dims.push(dim),
                (2, Field::Number(kind)) => initializer.kind = kind,
                (8, Field::Bytes(content)) => name = text(content),
                (9, Field::Bytes(content)) => initializer.values = Stored::Inside(content.to_vec()),
                (13, Field::Bytes(entry)) => {
                    place.insert(text(&parts(entry, 1)[0]), text(&parts(entry, 2)[0]));
                }
                (14, Field::Number(1)) => {
                    let number = |key: &str| place[key].parse().unwrap();
                    let location = place["location"].clone();
                    initializer.values =
                        Stored::Beside { location, offset: number("offset"), length: number("length") };
                }
                (number, _) => panic!("field {number} of a constant"),
            }
        }
        assert!(all.insert(name.clone(), initializer).is_none(), "duplicate constant {name}");
    }
    all
}

#[test]
fn layers_that_onnx_lacks_are_errors_that_name_the_layer() {
    Device::get("cpu").unwrap().scope(|| {
        let network = Network::with_input(&[2, 7]).add_layer(LayerSpec::AdaptiveMaxPool { output_size: vec![3] });
        let error = onnx::to_bytes(&network.build(&mut Rng::seed_from_u64(0)).unwrap()).unwrap_err();
        assert_eq!(error.message(), "layer 0: ONNX has no adaptive pooling of [7] to [3]");
    });
}
