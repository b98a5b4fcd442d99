//! Compiled ONNX networks with several inputs and outputs, and with element types other than f32.

use std::path::Path;

use panoply_nn::compiled::{CompileOptions, OptLevel, Precision};
use panoply_nn::onnx::Imported;
use panoply_nn::property::Property;
use panoply_nn::{CompiledOnnx, Module, compile};
use panoply_tensor::{DType, Device, Tensor};

use crate::onnx_read::{Message, floats, ints};

/// Numbers of element types in ONNX.
const F32: i64 = 1;
const I32: i64 = 6;
const I64: i64 = 7;
const BOOL: i64 = 9;
const F64: i64 = 11;

/// Name, element type and shape of an input; a length of 0 is dynamic.
type Named<'a> = (&'a str, i64, &'a [i64]);

/// Returns a network of nodes (operator, operands, result) with these inputs, outputs and constants.
fn network(
    nodes: &[(&str, &[&str], &str)],
    inputs: &[Named<'_>],
    outputs: &[Named<'_>],
    constants: &[Message],
) -> Imported {
    let node = |(operator, operands, result): &(&str, &[&str], &str)| {
        let node = operands.iter().fold(Message::default(), |node, name| node.text(1, name));
        node.text(2, result).text(4, operator)
    };
    let described = |(name, kind, dims): &Named<'_>| {
        let dim = |length: &i64| match length {
            0 => Message::default().text(2, "batch"),
            _ => Message::default().int(1, *length),
        };
        let shape = dims.iter().fold(Message::default(), |shape, length| shape.message(1, &dim(length)));
        let tensor = Message::default().int(1, *kind).message(2, &shape);
        Message::default().text(1, name).message(2, &Message::default().message(1, &tensor))
    };
    let graph = nodes.iter().fold(Message::default(), |graph, of| graph.message(1, &node(of)));
    let graph = constants.iter().fold(graph.text(2, "test"), |graph, constant| graph.message(5, constant));
    let graph = inputs.iter().fold(graph, |graph, of| graph.message(11, &described(of)));
    let graph = outputs.iter().fold(graph, |graph, of| graph.message(12, &described(of)));
    let opset = Message::default().text(1, "").int(2, 18);
    let model = Message::default().int(1, 8).message(7, &graph).message(8, &opset);
    Imported::parse(Path::new("m.onnx"), &model.0).unwrap()
}

fn constant(name: &str, kind: i64, dims: &[i64], bytes: &[u8]) -> Message {
    let tensor = dims.iter().fold(Message::default(), |tensor, length| tensor.int(1, *length));
    tensor.int(2, kind).text(8, name).bytes(9, bytes)
}

/// Tokens and a mask: rows of a table where the mask holds, otherwise 0, scaled by `scale`, and the tokens plus 1.
fn masked() -> Imported {
    network(
        &[
            ("Gather", &["table", "tokens"], "rows"),
            ("Where", &["mask", "rows", "zero"], "kept"),
            ("Mul", &["kept", "scale"], "scaled"),
            ("Add", &["tokens", "one"], "next"),
        ],
        &[("tokens", I64, &[0, 2]), ("mask", BOOL, &[0, 2, 1]), ("scale", F32, &[1])],
        &[("scaled", F32, &[0, 2, 2]), ("next", I64, &[0, 2])],
        &[
            constant("table", F32, &[3, 2], &floats(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])),
            constant("zero", F32, &[], &floats(&[0.0])),
            constant("one", I64, &[], &ints(&[1])),
        ],
    )
}

fn compiled(network: &Imported, opt_level: OptLevel) -> CompiledOnnx {
    compile(network, &CompileOptions { opt_level, verify: true, ..CompileOptions::default() }).unwrap()
}

/// Returns the inputs of [`masked`].
fn inputs(tokens: &[i64], mask: &[bool], scale: f32) -> Vec<Tensor> {
    let rows = tokens.len() / 2;
    vec![
        Tensor::from_slice(tokens, [rows, 2]),
        Tensor::from_slice(mask, [rows, 2, 1]),
        Tensor::from_slice(&[scale], [1]),
    ]
}

fn on_cpu(test: impl FnOnce()) {
    Device::get("cpu").unwrap().scope(test);
}

#[test]
fn several_inputs_and_outputs_have_the_types_of_the_file() {
    on_cpu(|| {
        for opt_level in [OptLevel::None, OptLevel::Default] {
            let compiled = compiled(&masked(), opt_level);
            let names: Vec<&str> = compiled.inputs().iter().map(|input| &input.name[..]).collect();
            assert_eq!(names, ["tokens", "mask", "scale"]);
            assert_eq!(compiled.outputs(), ["scaled", "next"]);
            // The first shape twice with other values, which are not kept from the first run, then another shape.
            for (tokens, mask, scale, scaled, next) in [
                (&[2i64, 0][..], &[true, false][..], 10.0f32, &[50.0f32, 60.0, 0.0, 0.0][..], &[3i64, 1][..]),
                (&[1, 1], &[false, true], -1.0, &[0.0, 0.0, -3.0, -4.0], &[2, 2]),
                (
                    &[0, 1, 2, 2],
                    &[true, true, false, true],
                    2.0,
                    &[2.0, 4.0, 6.0, 8.0, 0.0, 0.0, 10.0, 12.0],
                    &[1, 2, 3, 3],
                ),
            ] {
                let outputs = compiled.run(&inputs(tokens, mask, scale)).unwrap();
                let have = outputs[0].to_vec::<f32>().unwrap();
                assert!(have.iter().zip(scaled).all(|(a, b)| a == b) && have.len() == scaled.len(), "{have:?}");
                assert_eq!(outputs[0].shape().unwrap().dims(), [tokens.len() / 2, 2, 2]);
                assert_eq!((outputs[1].dtype(), outputs[1].to_vec::<i64>().unwrap()), (DType::I64, next.to_vec()));
            }
            let [tokens, mask, scale] = <[Tensor; 3]>::try_from(inputs(&[2, 0], &[true, false], 10.0)).unwrap();
            let named = [("scale", scale.clone()), ("tokens", tokens.clone()), ("mask", mask)];
            assert_eq!(compiled.run_named(&named).unwrap()[0].to_vec::<f32>().unwrap(), [50.0, 60.0, 0.0, 0.0]);
            let message = |inputs: &[(&str, Tensor)]| compiled.run_named(inputs).unwrap_err().message().to_string();
            assert_eq!(message(&named[..2]), "the input `mask` of the ONNX network is missing");
            assert_eq!(
                message(&[("x", tokens)]),
                "the ONNX network has no input `x`; its inputs are `tokens`, `mask`, `scale`"
            );
            let twice = [("scale", scale.clone()), ("scale", scale)];
            assert_eq!(message(&twice), "the input `scale` of the ONNX network was passed twice");
        }
    });
}

#[test]
fn inputs_that_do_not_fit_the_file_are_refused() {
    on_cpu(|| {
        let compiled = compiled(&masked(), OptLevel::Default);
        let good = inputs(&[2, 0], &[true, false], 1.0);
        let with = |at: usize, tensor: Tensor| {
            let mut all = good.clone();
            all[at] = tensor;
            compiled.run(&all).unwrap_err().to_string()
        };
        let error = compiled.run(&good[..2]).unwrap_err();
        assert_eq!(error.message(), "the ONNX network has 3 inputs (`tokens`, `mask`, `scale`), but 2 were passed");
        let error = with(0, Tensor::from_slice(&[1i32, 0], [1, 2]));
        assert!(error.contains("the input `tokens` of the ONNX network holds i64, but i32 was passed"), "{error}");
        let error = with(0, Tensor::from_slice(&[1i64, 0, 1], [1, 3]));
        assert!(
            error.contains("the input `tokens` of the ONNX network has the shape [dynamic, 2], got [1, 3]"),
            "{error}"
        );
        let error = with(1, Tensor::from_slice(&[true, false], [1, 2]));
        assert!(
            error.contains("the input `mask` of the ONNX network has the shape [dynamic, 2, 1], got [1, 2]"),
            "{error}"
        );
        // Lengths that the file leaves open, but that do not fit each other.
        let mut rows = inputs(&[2, 0, 1, 1], &[true; 4], 1.0);
        rows[1] = Tensor::from_slice(&[true; 6], [3, 2, 1]);
        let error = compiled.run(&rows).unwrap_err();
        assert!(error.is_mistake(), "{error}");
        let options = CompileOptions { precision: Precision::F16, ..CompileOptions::default() };
        let error = compile(&masked(), &options).unwrap_err();
        assert_eq!(error.message(), "an imported ONNX network computes in the element types of its file");
        let options = CompileOptions { properties: vec![Property::InRange(0.0, 5.0)], ..CompileOptions::default() };
        let checked = compile(&masked(), &options).unwrap();
        assert!(checked.run(&inputs(&[0, 1], &[true, true], 1.0)).is_ok());
        let error = checked.run(&inputs(&[0, 2], &[true, true], 1.0)).unwrap_err();
        assert!(error.message().starts_with("scaled [1, 2, 2] is not within 0 ..= 5"), "{error}");
    });
}

/// f64 keeps more digits than f32, and i32 is exact above 2²⁴.
#[test]
fn other_element_types_are_computed_exactly() {
    on_cpu(|| {
        let bytes = |values: &[f64]| -> Vec<u8> { values.iter().flat_map(|value| value.to_le_bytes()).collect() };
        let doubles = network(
            &[("Mul", &["x", "w"], "product"), ("Add", &["product", "y"], "z")],
            &[("x", F64, &[0, 2]), ("y", F64, &[2])],
            &[("z", F64, &[0, 2])],
            &[constant("w", F64, &[2], &bytes(&[0.1, 3.0]))],
        );
        let integers = network(&[("Mul", &["n", "n"], "m")], &[("n", I32, &[2])], &[("m", I32, &[2])], &[]);
        for opt_level in [OptLevel::None, OptLevel::Default] {
            let run = compiled(&doubles, opt_level);
            for (x, y) in [([0.2, 1e-17], [0.3, 0.0]), ([7.0, 1.0 / 3.0], [0.01, 2.0])] {
                let inputs = [Tensor::from_slice(&x, [1, 2]), Tensor::from_slice(&y, [2])];
                let found = run.run(&inputs).unwrap()[0].to_vec::<f64>().unwrap();
                let want = [x[0] * 0.1 + y[0], x[1] * 3.0 + y[1]];
                assert!(found.iter().zip(want).all(|(a, b)| (a - b).abs() <= 1e-15 * b.abs()), "{found:?}, {want:?}");
            }
            let run = compiled(&integers, opt_level);
            for (n, m) in [([4097, -3], [16_785_409, 9]), ([40_001, 0], [1_600_080_001, 0])] {
                let outputs = run.run(&[Tensor::from_slice(&n, [2])]).unwrap();
                assert_eq!((outputs[0].dtype(), outputs[0].to_vec::<i32>().unwrap()), (DType::I32, m.to_vec()));
            }
        }
    });
}

/// The compiled network keeps its parameters, and the comparison with another executor finds other ones.
#[test]
fn compiled_network_keeps_its_parameters() {
    on_cpu(|| {
        let mut network = network(
            &[("MatMul", &["a", "w"], "product"), ("Sub", &["product", "b"], "y")],
            &[("a", F32, &[0, 2]), ("b", F32, &[0, 1])],
            &[("y", F32, &[0, 1])],
            &[constant("w", F32, &[2, 1], &floats(&[2.0, -1.0]))],
        );
        let run = compiled(&network, OptLevel::Default);
        let inputs = [Tensor::from_slice(&[1f32, 2.0, 3.0, 4.0], [2, 2]), Tensor::from_slice(&[0.5f32, 1.0], [2, 1])];
        // 1·2 - 2 - 0.5 and 3·2 - 4 - 1.
        assert_eq!(run.run(&inputs).unwrap()[0].to_vec::<f32>().unwrap(), [-0.5, 1.0]);
        assert!(run.verify(&network, &inputs).unwrap() < 1e-6);
        let mut change = |name: &str, param: &mut panoply_nn::Param| {
            assert_eq!(name, "w");
            param.set(&Tensor::from_slice(&[3f32, -1.0], [2, 1]))
        };
        network.visit_mut(&mut panoply_nn::module::ParamVisitorMut::new(&mut change)).unwrap();
        assert_eq!(run.run(&inputs).unwrap()[0].to_vec::<f32>().unwrap(), [-0.5, 1.0]);
        let error = run.verify(&network, &inputs).unwrap_err();
        assert!(error.message().starts_with("verification failed: cpu gives -0.5 at [0, 0]"), "{error}");
    });
}

/// Returns the convolution of `[inputs, 5 or 3, …]` with filters `[outputs, inputs, size, size]` without padding, in f64.
fn convolved(x: &[f64], length: usize, filters: &[f32], [outputs, inputs, size]: [usize; 3]) -> Vec<f64> {
    let positions = length - size + 1;
    let mut y = Vec::new();
    for output in 0..outputs {
        for (row, column) in (0..positions).flat_map(|row| (0..positions).map(move |column| (row, column))) {
            let terms = (0..inputs * size * size).map(|at| {
                let (input, a, b) = (at / (size * size), at / size % size, at % size);
                let weight = f64::from(filters[output * inputs * size * size + at]);
                weight * x[(input * length + row + a) * length + column + b]
            });
            y.push(terms.sum());
        }
    }
    y
}

/// Two batch norms are folded, one after a convolution with bias and one after one without. A third is not: the output of its convolution
/// is used again.
#[test]
fn batch_norms_are_folded_into_convolutions() {
    const EPSILON: f64 = 1e-5f32 as f64;
    let mut state = 1u32;
    let mut random = |count: usize, low: f32| -> Vec<f32> {
        let mut next = || {
            state = state.wrapping_mul(1664525).wrapping_add(1013904223);
            low + (state >> 8) as f32 / (1 << 24) as f32
        };
        (0..count).map(|_| next()).collect()
    };
    let x = random(2 * 25, -0.5);
    let sizes = [[3usize, 2, 3], [4, 3, 1], [2, 4, 2]];
    let filters = sizes.map(|[outputs, inputs, size]| random(outputs * inputs * size * size, -0.5));
    let bias = random(3, -0.5);
    // Scale, bias, mean and variance of each norm.
    let norms = sizes.map(|[outputs, ..]| [0.5, -0.5, -0.5, 0.1].map(|low| random(outputs, low)));
    let normal = |x: &[f64], [scale, shift, mean, variance]: &[Vec<f32>; 4]| -> Vec<f64> {
        let each = x.len() / scale.len();
        let number = |(at, x): (usize, &f64)| {
            let [scale, shift, mean, variance] = [scale, shift, mean, variance].map(|of| f64::from(of[at / each]));
            (x - mean) / (variance + EPSILON).sqrt() * scale + shift
        };
        x.iter().enumerate().map(number).collect()
    };
    let wide: Vec<f64> = x.iter().map(|x| f64::from(*x)).collect();
    let mut first = convolved(&wide, 5, &filters[0], sizes[0]);
    first.iter_mut().enumerate().for_each(|(at, y)| *y += f64::from(bias[at / 9]));
    let active: Vec<f64> = normal(&first, &norms[0]).iter().map(|y| y.max(0.0)).collect();
    let second = normal(&convolved(&active, 3, &filters[1], sizes[1]), &norms[1]);
    let third = convolved(&second, 3, &filters[2], sizes[2]);
    let want: Vec<f64> = normal(&third, &norms[2]).iter().zip(&third).map(|(a, b)| a + b).collect();

    let names: Vec<String> = (0..3).map(|n| format!("w{n}")).collect();
    // The last bias has the name of the first norm's output with "/bias", as some exporters name the bias of that norm.
    let part = |n: usize, part: &str| if (n, part) == (2, "b") { "n0/bias".to_string() } else { format!("{part}{n}") };
    let parts: Vec<[String; 4]> = (0..3).map(|n| ["s", "b", "m", "v"].map(|name| part(n, name))).collect();
    let norm = |n: usize, x: &'static str| {
        let [scale, shift, mean, variance] = &parts[n];
        vec![x, scale, shift, mean, variance]
    };
    let mut constants = vec![constant("bias", F32, &[3], &floats(&bias))];
    for n in 0..3 {
        let [outputs, inputs, size] = sizes[n].map(|length| length as i64);
        constants.push(constant(&names[n], F32, &[outputs, inputs, size, size], &floats(&filters[n])));
        let named = parts[n].iter().zip(&norms[n]);
        constants.extend(named.map(|(name, values)| constant(name, F32, &[outputs], &floats(values))));
    }
    let network = network(
        &[
            ("Conv", &["x", &names[0], "bias"], "c0"),
            ("BatchNormalization", &norm(0, "c0"), "n0"),
            ("Relu", &["n0"], "r0"),
            ("Conv", &["r0", &names[1]], "c1"),
            ("BatchNormalization", &norm(1, "c1"), "n1"),
            ("Conv", &["n1", &names[2]], "c2"),
            ("BatchNormalization", &norm(2, "c2"), "n2"),
            ("Add", &["n2", "c2"], "y"),
        ],
        &[("x", F32, &[1, 2, 5, 5])],
        &[("y", F32, &[1, 2, 2, 2])],
        &constants,
    );
    on_cpu(|| {
        for (opt_level, folded) in [(OptLevel::None, 0), (OptLevel::Default, 2)] {
            let compiled = compiled(&network, opt_level);
            assert_eq!(compiled.folded_batch_norms(), folded);
            let y = compiled.run(&[Tensor::from_slice(&x, [1, 2, 5, 5])]).unwrap()[0].to_vec::<f32>().unwrap();
            let largest = want.iter().fold(0f64, |top, y| top.max(y.abs()));
            let far = y.iter().zip(&want).fold(0f64, |far, (y, want)| far.max((f64::from(*y) - want).abs()));
            assert!(y.len() == want.len() && far <= 1e-6 * largest, "{far:e} of {largest}");
        }
        // The parameters of the file stay as they are.
        let compiled = compiled(&network, OptLevel::Default);
        let names = |of: &Imported| of.named_parameters().into_iter().map(|(name, _)| name).collect::<Vec<String>>();
        assert_eq!(names(compiled.network()), names(&network));
    });
}

#[test]
fn batch_norm_with_one_element_for_all_channels_is_refused_at_every_level() {
    let one = |name: &'static str| constant(name, F32, &[1], &floats(&[2.0]));
    let network = network(
        &[("Conv", &["x", "w"], "c"), ("BatchNormalization", &["c", "s", "b", "m", "v"], "y")],
        &[("x", F32, &[1, 1, 1, 2])],
        &[("y", F32, &[1, 2, 1, 2])],
        &[constant("w", F32, &[2, 1, 1, 1], &floats(&[1.0, -3.0])), one("s"), one("b"), one("m"), one("v")],
    );
    on_cpu(|| {
        for opt_level in [OptLevel::None, OptLevel::Default] {
            let options = CompileOptions { opt_level, verify: true, ..CompileOptions::default() };
            let error = compile(&network, &options).unwrap_err().to_string();
            assert!(error.contains("f32[1] is not one number for each channel"), "{error}");
        }
    });
}
