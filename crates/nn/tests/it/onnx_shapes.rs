//! Shape arithmetic of ONNX models on the host, graphs within attributes, and constants in other files.

use std::path::Path;

use panoply_nn::onnx::Imported;
use panoply_tensor::{DType, Device, Tensor, jit};

use crate::onnx_read::{Message, floats, ints};

/// Number of an element type in ONNX.
const F32: i64 = 1;
const I64: i64 = 7;

/// A node: operator, operands, results, integer attributes.
type Node<'a> = (&'a str, &'a [&'a str], &'a [&'a str], &'a [(&'a str, i64)]);

fn node((operator, inputs, outputs, attributes): &Node<'_>) -> Message {
    let node = inputs.iter().fold(Message::default(), |node, name| node.text(1, name));
    let node = outputs.iter().fold(node, |node, name| node.text(2, name)).text(4, operator);
    let attribute = |(name, value): &(&str, i64)| Message::default().text(1, name).int(3, *value).int(20, 2);
    attributes.iter().fold(node, |node, setting| node.message(5, &attribute(setting)))
}

fn tensor(name: &str, dims: &[i64], kind: i64) -> Message {
    dims.iter().fold(Message::default(), |tensor, length| tensor.int(1, *length)).int(2, kind).text(8, name)
}

fn value(name: &str, kind: i64) -> Message {
    Message::default().text(1, name).message(2, &Message::default().message(1, &Message::default().int(1, kind)))
}

/// Returns a graph with inputs of these element types, constants and the output `y`.
fn graph(nodes: &[Node<'_>], inputs: &[(&str, i64)], constants: &[Message]) -> Message {
    let graph = nodes.iter().fold(Message::default(), |graph, of| graph.message(1, &node(of)));
    let graph = constants.iter().fold(graph.text(2, "test"), |graph, constant| graph.message(5, constant));
    let graph = inputs.iter().fold(graph, |graph, (name, kind)| graph.message(11, &value(name, *kind)));
    graph.message(12, &value("y", F32))
}

fn model(graph: &Message) -> Vec<u8> {
    Message::default().int(1, 8).message(7, graph).message(8, &Message::default().text(1, "").int(2, 18)).0
}

fn parse(graph: &Message) -> Imported {
    Imported::parse(Path::new("m.onnx"), &model(graph)).unwrap()
}

fn first_output(network: &Imported, inputs: &[Tensor]) -> Tensor {
    network.forward(inputs).map(|mut outputs| outputs.remove(0)).unwrap_or_else(Tensor::from_mistake)
}

fn on_cpu(test: impl FnOnce()) {
    Device::get("cpu").unwrap().scope(test);
}

/// The flattening that PyTorch's exporter writes for `x.view(x.size(0), -1)`, and a range from the shape.
#[test]
fn shapes_are_computed_when_a_function_is_traced() {
    let constants = [
        tensor("zero", &[], I64).bytes(9, &ints(&[0])),
        tensor("zeros", &[1], I64).bytes(9, &ints(&[0])),
        tensor("minus", &[1], I64).bytes(9, &ints(&[-1])),
        tensor("two", &[], I64).bytes(9, &ints(&[2])),
        tensor("half", &[], F32).bytes(9, &floats(&[0.5])),
    ];
    let nodes: &[Node<'_>] = &[
        ("Shape", &["x"], &["shape"], &[]),
        ("Gather", &["shape", "zero"], &["batch"], &[("axis", 0)]),
        ("Mul", &["batch", "two"], &["twice"], &[]),
        // Some exporters compute lengths in f32.
        ("Cast", &["twice"], &["real"], &[("to", 1)]),
        ("Mul", &["real", "half"], &["product"], &[]),
        ("Floor", &["product"], &["floor"], &[]),
        ("Cast", &["floor"], &["again"], &[("to", 7)]),
        ("Unsqueeze", &["again", "zeros"], &["first"], &[]),
        ("Concat", &["first", "minus"], &["wanted"], &[("axis", 0)]),
        ("Reshape", &["x", "wanted"], &["y"], &[]),
    ];
    let network = parse(&graph(nodes, &[("x", F32)], &constants));
    on_cpu(|| {
        let x = Tensor::arange(24).cast(DType::F32).reshape([2, 3, 4]);
        let traced = jit(move |[x]| [first_output(&network, std::slice::from_ref(x))]);
        let [y] = traced.call([&x]).unwrap();
        assert_eq!(y.dims().unwrap(), [2, 12]);
        assert_eq!(y.to_vec::<f32>().unwrap(), x.to_vec::<f32>().unwrap());
    });
}

#[test]
fn shapes_that_depend_on_the_inputs_are_read_back_but_not_in_a_compiled_function() {
    let nodes: &[Node<'_>] = &[("Reshape", &["x", "shape"], &["y"], &[])];
    let network = parse(&graph(nodes, &[("x", F32), ("shape", I64)], &[]));
    on_cpu(|| {
        let (x, shape) = (Tensor::arange(6).cast(DType::F32), Tensor::from_slice(&[3i64, -1], [2]));
        assert_eq!(network.forward(&[x.clone(), shape.clone()]).unwrap()[0].dims().unwrap(), [3, 2]);
        let error = network.forward(&[x.clone(), shape.cast(DType::I32)]).unwrap_err();
        assert_eq!(error.message(), "the input shape holds i64, but i32 was passed");
        let traced = jit(move |[x, shape]| [first_output(&network, &[x.clone(), shape.clone()])]);
        let error = traced.call([&x, &shape]).unwrap_err();
        assert!(error.message().contains("decides about shapes"), "{error}");
    });
}

/// Every operator that is folded gives the result of its rule.
#[test]
fn integers_on_the_host_equal_those_of_the_device() {
    let (a, b) = ([7i64, -7, 3, 0, -2, 12], [2i64, 2, -2, 5, -2, 7]);
    let operators = [
        "Add",
        "Sub",
        "Mul",
        "Div",
        "Mod",
        "Max",
        "Min",
        "Equal",
        "Greater",
        "Less",
        "Neg",
        "Abs",
        "ReduceSum",
        "ReduceProd",
    ];
    let other: &[Node<'_>] = &[
        ("Concat", &["a", "b"], &["y"], &[("axis", 0)]),
        ("Gather", &["a", "at"], &["y"], &[]),
        ("Slice", &["a", "at", "b3", "zeros", "two"], &["y"], &[]),
        ("Where", &["holds", "a", "b"], &["y"], &[]),
        ("Cast", &["a"], &["y"], &[("to", 9)]),
        ("Range", &["one", "five", "two0"], &["y"], &[]),
        ("Expand", &["two", "six"], &["y"], &[]),
        ("Unsqueeze", &["a", "zeros"], &["y"], &[]),
    ];
    let given: &[(&str, &[i64], &[i64])] = &[
        ("a", &[6], &a),
        ("b", &[6], &b),
        ("at", &[1], &[-2]),
        ("b3", &[1], &[-7]),
        ("zeros", &[1], &[0]),
        ("two", &[1], &[-2]),
        ("one", &[], &[9]),
        ("five", &[], &[2]),
        ("two0", &[], &[-3]),
        ("six", &[2], &[2, 3]),
    ];
    on_cpu(|| {
        let check = |of: &Node<'_>| {
            let holds = tensor("holds", &[6], 9).bytes(9, &[1, 0, 1, 1, 0, 0]);
            let constants: Vec<Message> =
                given.iter().map(|(name, dims, values)| tensor(name, dims, I64).bytes(9, &ints(values))).collect();
            let folded = parse(&graph(&[*of], &[], &[&constants[..], std::slice::from_ref(&holds)].concat()));
            let used: Vec<&(&str, &[i64], &[i64])> = given.iter().filter(|(name, ..)| of.1.contains(name)).collect();
            let inputs: Vec<(&str, i64)> = used.iter().map(|(name, ..)| (*name, I64)).collect();
            let computed = parse(&graph(&[*of], &inputs, &[holds]));
            let tensors: Vec<Tensor> = used
                .iter()
                .map(|(_, dims, values)| {
                    Tensor::from_slice(values, dims.iter().map(|length| *length as usize).collect::<Vec<usize>>())
                })
                .collect();
            let (host, device) =
                (folded.forward(&[]).unwrap().remove(0), computed.forward(&tensors).unwrap().remove(0));
            assert_eq!((host.dtype(), host.shape().unwrap()), (device.dtype(), device.shape().unwrap()), "{}", of.0);
            assert_eq!(host.to_bytes().unwrap(), device.to_bytes().unwrap(), "{}", of.0);
        };
        for operator in operators {
            let two = !matches!(operator, "Neg" | "Abs") && !operator.starts_with("Reduce");
            check(&(operator, if two { &["a", "b"] } else { &["a"] }, &["y"], &[]));
        }
        other.iter().for_each(check);
    });
}

#[test]
fn branches_and_their_unknown_operators() {
    let branch = |operator: &str| graph(&[(operator, &["x"], &["y"], &[])], &[], &[]);
    let with = |other: &str| {
        let attribute = |name: &str, graph: &Message| Message::default().text(1, name).message(6, graph).int(20, 5);
        let choice = node(&("If", &["holds"], &["y"], &[]))
            .message(5, &attribute("then_branch", &branch("Neg")))
            .message(5, &attribute("else_branch", &branch(other)));
        let graph =
            Message::default().message(1, &choice).message(11, &value("x", F32)).message(11, &value("holds", 9));
        model(&graph.message(12, &value("y", F32)))
    };
    on_cpu(|| {
        let network = Imported::parse(Path::new("m.onnx"), &with("Abs")).unwrap();
        let x = Tensor::from_slice(&[-1f32, 2.0], [2]);
        for (holds, expected) in [(true, [1.0f32, -2.0]), (false, [1.0, 2.0])] {
            let y = network.forward(&[x.clone(), Tensor::from_slice(&[holds], [])]).unwrap().remove(0);
            assert_eq!(y.to_vec::<f32>().unwrap(), expected);
        }
    });
    let error = Imported::parse(Path::new("m.onnx"), &with("Strange")).unwrap_err();
    assert_eq!(error.message(), "m.onnx: operators that are not supported: Strange");
    let deep = (0..20).fold(branch("Abs"), |inner, _| {
        let attribute = Message::default().text(1, "then_branch").message(6, &inner).int(20, 5);
        Message::default()
            .message(1, &Message::default().text(4, "If").message(5, &attribute))
            .message(12, &value("y", F32))
    });
    let error = Imported::parse(Path::new("m.onnx"), &model(&deep)).unwrap_err();
    assert!(error.message().contains("graphs are nested more than 8 deep"), "{error}");
}

/// Nested loops whose rounds multiply end with an error instead of running for hours.
#[test]
fn operators_in_nested_loops_are_counted() {
    let body = |node: &Message| {
        let inputs = [("round", I64), ("condition", 9), ("v", I64)];
        let graph = inputs
            .iter()
            .fold(Message::default().message(1, node), |graph, (name, kind)| graph.message(11, &value(name, *kind)));
        graph.message(12, &value("condition", 9)).message(12, &value("w", I64))
    };
    let repeat = |inner: &Message, from: &str, to: &str| {
        let attribute = Message::default().text(1, "body").message(6, inner).int(20, 5);
        node(&("Loop", &["most", "", from], &[to], &[])).message(5, &attribute)
    };
    let negation = body(&node(&("Neg", &["v"], &["w"], &[])));
    let count = |most: i64| tensor("most", &[], I64).bytes(9, &ints(&[most]));
    let start = tensor("x", &[], I64).bytes(9, &ints(&[5]));
    let inner = body(&repeat(&negation, "v", "w"));
    let nested = |most: i64| {
        let graph = Message::default().message(1, &repeat(&inner, "x", "y"));
        let graph = graph.message(5, &count(most)).message(5, &start);
        parse(&graph.message(12, &value("y", I64))).forward(&[])
    };
    on_cpu(|| {
        assert_eq!(nested(3).unwrap()[0].to_vec::<i64>().unwrap(), [-5], "nine changes of sign");
        let error = nested(60_000).unwrap_err();
        assert_eq!(error.message(), "the ONNX model runs more than 1048576 operators, which is not supported");
    });
}

/// A function with an attribute that its nodes refer to, a default, and an input that one call omits.
#[test]
fn functions_of_the_model_are_called() {
    let text = |message: Message, field: u64, names: &[&str]| {
        names.iter().fold(message, |message, name| message.text(field, name))
    };
    let float = |name: &str, value: f32| {
        let mut attribute = Message::default().text(1, name).int(20, 1);
        attribute.0.push(2 << 3 | 5);
        attribute.0.extend(value.to_le_bytes());
        attribute
    };
    let leaky = node(&("LeakyRelu", &["a"], &["b"], &[]))
        .message(5, &Message::default().text(1, "alpha").text(21, "slope").int(20, 1));
    let function = text(text(Message::default().text(1, "Leaky"), 4, &["a", "low"]), 5, &["c"]);
    let function = function.message(7, &leaky).message(7, &node(&("Clip", &["b", "low"], &["c"], &[])));
    let function = function.message(11, &float("slope", 0.5)).text(10, "local");
    let call = |inputs: &[&str], output: &str, slope: Option<f32>| {
        let call = node(&("Leaky", inputs, &[output], &[])).text(7, "local");
        slope.iter().fold(call, |call, slope| call.message(5, &float("slope", *slope)))
    };
    let graph =
        Message::default().message(1, &call(&["x"], "z", None)).message(1, &call(&["z", "least"], "y", Some(2.0)));
    let graph = graph.message(11, &value("x", F32)).message(11, &value("least", F32)).message(12, &value("y", F32));
    let mut bytes = model(&graph);
    bytes.extend(Message::default().message(25, &function).0);
    on_cpu(|| {
        let network = Imported::parse(Path::new("m.onnx"), &bytes).unwrap();
        let inputs = [Tensor::from_slice(&[-8f32, -2.0, 3.0], [3]), Tensor::from_slice(&[-5f32], []).reshape(())];
        let y = first_output(&network, &inputs);
        assert_eq!(y.to_vec::<f32>().unwrap(), [-5.0, -2.0, 3.0]);
    });
    // A function that calls itself.
    let recursive = text(text(Message::default().text(1, "Leaky").text(10, "local"), 4, &["a"]), 5, &["c"]);
    let mut bytes = model(&graph);
    bytes.extend(Message::default().message(25, &recursive.message(7, &call(&["a"], "c", None))).0);
    let error = Imported::parse(Path::new("m.onnx"), &bytes).unwrap_err();
    assert!(error.message().contains("graphs are nested more than 8 deep"), "{error}");
}

#[test]
fn external_data_is_read_from_the_folder_of_the_model_only() {
    let folder = std::env::temp_dir().join(format!("panoply-onnx-external-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("inside")).unwrap();
    let path = folder.join("inside").join("m.onnx");
    std::fs::write(folder.join("inside").join("weights"), floats(&[9.0, 1.0, 2.0, 3.0])).unwrap();
    std::fs::write(folder.join("outside"), floats(&[1.0, 2.0, 3.0])).unwrap();
    let open = |location: &str, offset: i64| {
        let entry = |key: &str, text: &str| Message::default().text(1, key).text(2, text);
        let constant = tensor("c", &[3], F32)
            .message(13, &entry("location", location))
            .message(13, &entry("offset", &offset.to_string()))
            .message(13, &entry("length", "12"))
            .int(14, 1);
        let bytes = model(&graph(&[("Add", &["x", "c"], &["y"], &[])], &[("x", F32)], &[constant]));
        std::fs::write(&path, &bytes).unwrap();
        (Imported::open(&path), Imported::parse(&path, &bytes).unwrap_err())
    };
    on_cpu(|| {
        let (network, error) = open("weights", 4);
        let y = network.unwrap().forward(&[Tensor::zeros([3], DType::F32)]).unwrap().remove(0);
        assert_eq!(y.to_vec::<f32>().unwrap(), [1.0, 2.0, 3.0]);
        assert!(error.message().contains("needs a model that is read from a file"), "{error}");
        let absolute = folder.join("outside").display().to_string();
        for (location, offset, expected) in [
            ("../outside", 0, "which is not a file in the folder of the model"),
            (&absolute, 0, "which is not a file in the folder of the model"),
            ("absent", 0, "which cannot be read"),
            ("weights", 8, "needs bytes 8 to 8 + 12"),
            ("weights", -1, "has the invalid offset `-1`"),
        ] {
            let error = open(location, offset).0.unwrap_err();
            assert!(error.message().contains(expected), "{location}: {error}");
        }
    });
    std::fs::remove_dir_all(&folder).unwrap();
}
