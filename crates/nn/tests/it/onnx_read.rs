//! Reading of ONNX files: files of our own exporter give the network's outputs, and operators that it does not write give those of
//! onnxruntime. The latter needs a Python with `onnxruntime` and `numpy`: the one named by PANOPLY_TEST_PYTHON, or `python3`.

use std::path::Path;
use std::process::Command;

use panoply_nn::data::npy;
use panoply_nn::onnx::{self, Imported, Input};
use panoply_nn::{ForwardContext, Layer, LayerSpec, Network};
use panoply_tensor::{DType, Device, Rng, Tensor};

/// A Protocol Buffers message.
#[derive(Clone, Default)]
pub struct Message(pub Vec<u8>);

impl Message {
    fn varint(mut self, mut value: u64) -> Message {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
        self
    }

    pub fn int(self, field: u64, value: i64) -> Message {
        self.varint(field << 3).varint(value as u64)
    }

    pub fn bytes(self, field: u64, bytes: &[u8]) -> Message {
        let mut message = self.varint(field << 3 | 2).varint(bytes.len() as u64);
        message.0.extend(bytes);
        message
    }

    pub fn text(self, field: u64, text: &str) -> Message {
        self.bytes(field, text.as_bytes())
    }

    pub fn message(self, field: u64, message: &Message) -> Message {
        self.bytes(field, &message.0)
    }
}

/// Shape, number of the element type, and bytes of a constant.
pub type Constant<'a> = (&'a [i64], i64, Vec<u8>);

/// An attribute of an operator.
pub enum Setting {
    Int(i64),
    Float(f32),
    Ints(Vec<i64>),
}

/// Returns a model of one operator `y = operator(x, constants…)` for an input of this shape.
pub fn model(
    (operator, opset): (&str, i64),
    dims: &[usize],
    constants: &[Constant<'_>],
    settings: &[(&str, Setting)],
) -> Vec<u8> {
    let mut node = Message::default().text(1, "x");
    for n in 0..constants.len() {
        node = node.text(1, &format!("c{n}"));
    }
    node = node.text(2, "y").text(4, operator);
    for (name, setting) in settings {
        let attribute = Message::default().text(1, name);
        let attribute = match setting {
            Setting::Int(value) => attribute.int(3, *value).int(20, 2),
            Setting::Float(value) => {
                let mut attribute = attribute.varint(2 << 3 | 5);
                attribute.0.extend(value.to_le_bytes());
                attribute.int(20, 1)
            }
            Setting::Ints(values) => values.iter().fold(attribute, |a, value| a.int(8, *value)).int(20, 7),
        };
        node = node.message(5, &attribute);
    }
    let mut graph = Message::default().message(1, &node).text(2, "test");
    for (n, (lengths, kind, raw)) in constants.iter().enumerate() {
        let tensor = lengths.iter().fold(Message::default(), |tensor, length| tensor.int(1, *length));
        graph = graph.message(5, &tensor.int(2, *kind).text(8, &format!("c{n}")).bytes(9, raw));
    }
    let shape = dims
        .iter()
        .fold(Message::default(), |shape, length| shape.message(1, &Message::default().int(1, *length as i64)));
    let described = |name: &str, tensor: &Message| {
        Message::default().text(1, name).message(2, &Message::default().message(1, tensor))
    };
    let input = described("x", &Message::default().int(1, 1).message(2, &shape));
    let output = described("y", &Message::default().int(1, 1));
    let graph = graph.message(11, &input).message(12, &output);
    Message::default().int(1, 8).message(7, &graph).message(8, &Message::default().text(1, "").int(2, opset)).0
}

pub fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

pub fn ints(values: &[i64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// Returns models of single operators with the shape of their input.
fn cases() -> Vec<(Vec<u8>, Vec<usize>)> {
    use Setting::{Float, Int, Ints};
    let weights =
        |rows: i64, columns: i64| floats(&(0..rows * columns).map(|n| (n as f32 * 0.7).sin()).collect::<Vec<f32>>());
    let row = || (&[3i64][..], 1, floats(&[0.5, -1.0, 2.0]));
    let with =
        |operator: &'static str, opset, dims: &[usize], constants: &[Constant<'_>], settings: &[(&str, Setting)]| {
            (model((operator, opset), dims, constants, settings), dims.to_vec())
        };
    let mut cases = vec![
        with("Gemm", 13, &[2, 3], &[(&[3, 4], 1, weights(3, 4)), (&[4], 1, weights(4, 1))], &[]),
        with(
            "Gemm",
            13,
            &[3, 2],
            &[(&[4, 3], 1, weights(4, 3))],
            &[("transA", Int(1)), ("transB", Int(1)), ("alpha", Float(0.5))],
        ),
        with("Gemm", 11, &[2, 3], &[(&[3, 4], 1, weights(3, 4)), (&[1], 1, weights(1, 1))], &[("beta", Float(2.0))]),
        with("MatMul", 13, &[2, 5, 3], &[(&[2, 3, 4], 1, weights(6, 4))], &[]),
        with("Add", 13, &[2, 3], &[row()], &[]),
        with("Sub", 13, &[2, 3], &[row()], &[]),
        with("Mul", 13, &[2, 3], &[row()], &[]),
        with("Div", 13, &[2, 3], &[row()], &[]),
        with("Max", 13, &[2, 3], &[row(), (&[], 1, floats(&[0.25]))], &[]),
        with("Min", 13, &[2, 3], &[row()], &[]),
        with("Clip", 13, &[2, 3], &[(&[], 1, floats(&[-0.25])), (&[], 1, floats(&[0.5]))], &[]),
        with("Clip", 7, &[2, 3], &[], &[("min", Float(-0.25)), ("max", Float(0.5))]),
        with("Concat", 13, &[2, 3], &[(&[2, 1], 1, floats(&[7.0, 8.0]))], &[("axis", Int(-1))]),
        with("Flatten", 13, &[2, 3, 4], &[], &[("axis", Int(2))]),
        with("Flatten", 13, &[2, 3, 4], &[], &[("axis", Int(-1))]),
        with("Reshape", 13, &[2, 3, 4], &[(&[3], 7, ints(&[0, -1, 6]))], &[]),
        with("Transpose", 13, &[2, 3, 4], &[], &[("perm", Ints(vec![2, 0, 1]))]),
        with("Transpose", 13, &[2, 3, 4], &[], &[]),
        with("Squeeze", 13, &[1, 3, 1, 2], &[(&[2], 7, ints(&[0, -2]))], &[]),
        with("Squeeze", 11, &[1, 3, 1, 2], &[], &[("axes", Ints(vec![2]))]),
        with("Unsqueeze", 13, &[3, 2], &[(&[2], 7, ints(&[0, -1]))], &[]),
        with("Cast", 13, &[2, 3], &[], &[("to", Int(1))]),
        with("Softmax", 13, &[2, 3], &[], &[("axis", Int(0))]),
        with("Softmax", 11, &[2, 3], &[], &[]),
        with("LeakyRelu", 13, &[2, 3], &[], &[]),
        with("Elu", 13, &[2, 3], &[], &[("alpha", Float(0.5))]),
        with("Selu", 13, &[2, 3], &[], &[("alpha", Float(0.5)), ("gamma", Float(3.0))]),
        with("Dropout", 13, &[2, 3], &[(&[], 1, floats(&[0.5])), (&[], 9, vec![0])], &[]),
    ];
    for operator in [
        "Relu",
        "Abs",
        "Neg",
        "Exp",
        "Sigmoid",
        "Tanh",
        "Erf",
        "Selu",
        "Softplus",
        "Softsign",
        "LogSoftmax",
        "Identity",
        "Elu",
    ] {
        cases.push(with(operator, 13, &[2, 3], &[], &[]));
    }
    cases
}

const SCRIPT: &str = "
import sys, numpy as np, onnxruntime
for i in range(int(sys.argv[2])):
    run = onnxruntime.InferenceSession(f'{sys.argv[1]}/{i}.onnx', providers=['CPUExecutionProvider'])
    want, = run.run(None, {'x': np.load(f'{sys.argv[1]}/{i}.in.npy')})
    output = np.load(f'{sys.argv[1]}/{i}.out.npy')
    assert output.shape == want.shape, (i, output.shape, want.shape)
    error = np.abs(output - want).max() / max(np.abs(want).max(), 1e-9)
    assert error < 1e-5, (i, error)
print('compared', sys.argv[2])
";

#[test]
fn onnxruntime_computes_the_same() {
    let python = std::env::var("PANOPLY_TEST_PYTHON").unwrap_or_else(|_| "python3".to_string());
    let there = Command::new(&python).args(["-c", "import onnxruntime, numpy"]).output();
    let folder = std::env::temp_dir().join(format!("panoply-onnx-read-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let cases = cases();
    Device::get("cpu").unwrap().scope(|| {
        for (at, (bytes, dims)) in cases.iter().enumerate() {
            let network = Imported::parse(Path::new("case"), bytes).unwrap();
            let dims_of: Vec<Option<usize>> = dims.iter().map(|dim| Some(*dim)).collect();
            assert_eq!(network.inputs, [Input { name: "x".to_string(), dtype: DType::F32, dims: dims_of }]);
            let x = Rng::seed_from_u64(at as u64).normal(dims.clone());
            let y = network.forward(std::slice::from_ref(&x)).unwrap().remove(0);
            std::fs::write(folder.join(format!("{at}.onnx")), bytes).unwrap();
            npy::save(&x, &folder.join(format!("{at}.in.npy"))).unwrap();
            npy::save(&y, &folder.join(format!("{at}.out.npy"))).unwrap();
        }
    });
    if there.is_ok_and(|output| output.status.success()) {
        let arguments = ["-c", SCRIPT, &folder.display().to_string(), &cases.len().to_string()];
        let output = Command::new(&python).args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    } else {
        eprintln!(
            "SKIPPED: ONNX operators in onnxruntime: {python} has no onnxruntime and numpy; set PANOPLY_TEST_PYTHON to another Python"
        );
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn exported_networks_are_read_back() {
    let networks = [
        Network::with_input_size(6)
            .add_layer(LayerSpec::Standardize {})
            .add_layer(LayerSpec::linear(8))
            .add_layer(LayerSpec::batch_norm())
            .add_layer(LayerSpec::Silu {})
            .add_layer(LayerSpec::Linear { out_features: 5, in_features: None, bias: false })
            .add_layer(LayerSpec::LeakyRelu { negative_slope: 0.3 })
            .add_layer(LayerSpec::Softmax {}),
        Network::with_input(&[4, 3])
            .add_layer(LayerSpec::Flatten {})
            .add_layer(LayerSpec::linear(12))
            .add_layer(LayerSpec::Gelu {})
            .add_layer(LayerSpec::Reshape { shape: vec![2, 6] })
            .add_layer(LayerSpec::Relu6 {})
            .add_layer(LayerSpec::Mish {})
            .add_layer(LayerSpec::Flatten {})
            .add_layer(LayerSpec::linear(3))
            .add_layer(LayerSpec::InverseStandardize {}),
    ];
    Device::get("cpu").unwrap().scope(|| {
        for network in networks {
            let model = network.build(&mut Rng::seed_from_u64(1)).unwrap();
            let read = Imported::parse(Path::new("model"), &onnx::to_bytes(&model).unwrap()).unwrap();
            assert_eq!(read.inputs[0].dims[0], None, "the batch dimension is dynamic");
            let x = Rng::seed_from_u64(2).normal([&[5], &network.input[..]].concat());
            let y = read.forward(std::slice::from_ref(&x)).unwrap().remove(0);
            let want = model.forward(&x, &mut ForwardContext::eval());
            let error = (&y - &want).abs().max(..).item::<f64>().unwrap();
            assert!(error < 1e-5, "{network:?}: {error}");
        }
    });
}

#[test]
fn unsupported_features_are_named() {
    let read_error = |bytes: &[u8]| {
        let read = Imported::parse(Path::new("m.onnx"), bytes);
        read.and_then(|network| network.forward(&[Tensor::from_slice(&[1f32; 6], [2, 3])]).map(|_| ())).unwrap_err()
    };
    let (none, shape): (&[Constant<'_>], &[usize]) = (&[], &[2, 3]);
    let mut two = model(("Strange", 13), shape, none, &[]);
    // Fields of a graph can be split: this message adds a node of another domain.
    let node = Message::default().text(1, "y").text(2, "z").text(4, "Fused").text(7, "com.microsoft");
    let graph = Message::default().message(1, &node).message(1, &Message::default().text(4, "Odd"));
    two.extend(Message::default().message(7, &graph).0);
    let error = read_error(&two);
    assert_eq!(error.message(), "m.onnx: operators that are not supported: Odd, com.microsoft.Fused");
    for (bytes, expected) in [
        (model(("Strange", 13), shape, none, &[]), "operators that are not supported: Strange"),
        (model(("Relu", 99), shape, none, &[]), "operator set 99 is not supported"),
        (
            model(("Add", 13), shape, &[(&[3], 1, floats(&[1.0]))], &[]),
            "the constant `c0` of shape [3] in f32 has 4 bytes",
        ),
        (model(("Add", 13), shape, &[(&[1 << 60], 1, vec![])], &[]), "has 0 bytes"),
        (model(("Add", 13), shape, &[(&[-1], 1, vec![])], &[]), "has an invalid shape"),
        (model(("Add", 13), shape, &[(&[1], 8, vec![])], &[]), "the element type 8 is not supported"),
        (model(("Add", 13), shape, none, &[]), "operand 1 is missing"),
        (model(("Reshape", 13), shape, &[(&[1], 7, ints(&[5]))], &[]), "[2, 3] cannot be reshaped to [5]"),
        (model(("MatMul", 13), shape, &[(&[2, 2], 1, floats(&[0.0; 4]))], &[]), "inner dimensions 3 and 2 differ"),
        (
            model(("Relu", 13), shape, none, &[("axis", Setting::Int(0))]),
            "attributes that are not supported: axis of Relu",
        ),
        (
            model(("Dropout", 13), shape, &[(&[], 1, floats(&[0.5])), (&[], 9, vec![1])], &[]),
            "the training mode is not supported",
        ),
        (
            model(
                ("BatchNormalization", 15),
                shape,
                &[(); 4].map(|()| (&[3i64][..], 1, floats(&[1.0; 3]))),
                &[("training_mode", Setting::Int(1))],
            ),
            "the training mode is not supported",
        ),
        (b"\x08\x08".to_vec(), "it has no graph"),
        (b"\x3a\xff\xff\xff\xff\x0f".to_vec(), "a field of 4294967295 bytes does not fit the 0 left"),
    ] {
        let error = read_error(&bytes);
        assert!(error.message().contains(expected), "{expected}: {error}");
    }
}
