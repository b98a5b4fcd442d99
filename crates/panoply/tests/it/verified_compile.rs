//! `verify::compile`: claims about compiled networks against dense grids, and devices with one wrong kernel each, which are noticed.

use std::sync::Arc;

use panoply::nn::compiled::{OptLevel, Precision};
use panoply::nn::{LayerSpec, Model, Module, Network, ParamVisitorMut};
use panoply::runtime::DeviceOptions;
use panoply::verify::{self, Arithmetic, CompileOptions, InputBox, Options, Verdict, claim, prove};
use panoply::{AttentionOptions, Device, MathMode, Result, Rng, Tensor};
use panoply_cpu::{CpuDriver, CpuOptions};
use panoply_device::{Driver, RawDevice};

use crate::faulty_device::FaultyDevice;

/// Number of points of a grid along each axis.
const GRID: usize = 41;

/// Returns a network with these layers, whose parameters are the same on every device.
fn model(layers: &[LayerSpec]) -> Model {
    let network = layers.iter().cloned().fold(Network::with_input_size(2), Network::add_layer);
    let mut model = network.build(&mut Rng::seed_from_u64(0)).unwrap();
    let mut seed = 0.3f32;
    let mut set = |name: &str, param: &mut panoply::nn::Param| {
        let shape = param.tensor().shape()?.clone();
        let mut next = || {
            seed += 0.7;
            if name.ends_with("running_var") { 0.5 + seed.sin().abs() } else { 0.9 * seed.sin() }
        };
        let values: Vec<f32> = (0..shape.numel()).map(|_| next()).collect();
        param.set(&Tensor::from_slice(&values, shape))
    };
    model.visit_mut(&mut ParamVisitorMut::new(&mut set)).unwrap();
    model
}

fn options(seconds: f64) -> CompileOptions {
    CompileOptions { verify: Options { seconds, ..Options::default() }, ..CompileOptions::default() }
}

/// A claim about both inputs in -1..1.
fn claim(holds: &str) -> String {
    format!("[[claim]]\nname = '{holds}'\ninputs = [[-1, 1]]\nholds = '{holds}'\n")
}

fn grid() -> Vec<f32> {
    let at = |n: usize| n as f32 / (GRID - 1) as f32 * 2.0 - 1.0;
    (0..GRID * GRID).flat_map(|n| [at(n / GRID), at(n % GRID)]).collect()
}

#[test]
fn claims_of_compiled_networks_agree_with_a_grid() {
    Device::get("cpu").unwrap().scope(|| {
        let relu = [
            LayerSpec::linear(10),
            LayerSpec::batch_norm(),
            LayerSpec::Relu {},
            LayerSpec::Dropout { p: 0.2 },
            LayerSpec::linear(2),
        ];
        let smooth = [LayerSpec::linear(8), LayerSpec::Tanh {}, LayerSpec::linear(2)];
        for model in [model(&relu), model(&smooth)] {
            for opt_level in [OptLevel::None, OptLevel::Default] {
                // The original network is the oracle for the folded one.
                let outputs = grid_outputs(&model).unwrap();
                let largest = outputs.iter().step_by(2).fold(f32::NEG_INFINITY, |top, y| top.max(*y));
                let mut options = options(20.0);
                options.compile.opt_level = opt_level;
                let holds = claim(&format!("y[0] <= {}", largest + 0.1));
                let holds = claim::parse(&(holds + &claim("finite"))).unwrap();
                let compiled = verify::compile(&model, &options, &holds).unwrap();
                let at_center = compiled.run(&Tensor::from_slice(&[0f32; 4], [2, 2])).unwrap();
                assert!(at_center.to_vec::<f32>().unwrap().iter().step_by(2).all(|y| *y <= largest + 0.1));

                let text = format!("y[0] <= {}", largest - 0.1);
                let fails = claim::parse(&(claim("finite") + &claim(&text))).unwrap();
                let error = verify::compile(&model, &options, &fails).unwrap_err();
                assert_eq!(error.message(), format!("{text}: does not hold: a counterexample was found"));
                assert!(error.notes()[0].starts_with("the input is ["), "{error}");
                let reports = verify::verify_claims(&compiled, &options.verify, &fails).unwrap();
                assert_eq!(reports[0].verdict, Verdict::Proven);
                let Verdict::Counterexample(found) = &reports[1].verdict else { panic!("{:?}", reports[1].verdict) };
                assert!(found.input.iter().all(|x| x.abs() <= 1.0) && found.output[0] > largest - 0.1, "{found:?}");
                let again = compiled.run(&Tensor::from_slice(&found.input, [1, 2])).unwrap().to_vec::<f32>().unwrap();
                assert_eq!(again, found.output);
            }
        }
    });
}

fn grid_outputs(model: &Model) -> Result<Vec<f32>> {
    let points = Tensor::from_slice(&grid(), [GRID * GRID, 2]);
    let mut pass = panoply::nn::ForwardContext::eval();
    panoply::nn::Layer::forward(model, &points, &mut pass).to_vec::<f32>()
}

#[test]
fn claims_that_cannot_be_proven_are_named() {
    Device::get("cpu").unwrap().scope(|| {
        let model = model(&[LayerSpec::linear(8), LayerSpec::Tanh {}, LayerSpec::linear(2)]);
        let compile = |options: &CompileOptions, text: &str| {
            verify::compile(&model, options, &claim::parse(text).unwrap()).unwrap_err()
        };
        let outputs = grid_outputs(&model).unwrap();
        let largest = outputs.iter().step_by(2).fold(f32::NEG_INFINITY, |top, y| top.max(*y));
        let tight = format!("y[0] <= {}", largest + 0.005);
        let error = compile(&options(0.0), &claim(&tight));
        let message = format!("{tight}: undecided: the time limit of 0 s is reached");
        assert!(error.message().starts_with(&message), "{error}");
        let error = compile(&options(5.0), &claim("y[7] <= 4"));
        assert_eq!(error.message(), "y[7] <= 4: y[7] is out of range: y has 2 elements");
        let error = compile(&options(5.0), "[[claim]]\nname = 'a'\nexample = 1\nball = 0.1\nholds = 'class unchanged'");
        assert!(error.message().starts_with("a compiled network has no examples"), "{error}");
        let mut half = options(5.0);
        half.compile.precision = Precision::BF16;
        let error = compile(&half, &claim("y[0] <= 4"));
        assert!(error.is_unsupported() && error.message().contains("no error bounds are known"), "{error}");
        half.verify.arithmetic = Arithmetic::Real;
        verify::compile(&model, &half, &claim::parse(&claim("y[0] <= 9")).unwrap()).unwrap();
    });
}

/// Kernels for attention rescale partial sums, except in exact mode; in fast mode nothing is proven; only NVIDIA devices have TF32.
#[test]
fn proofs_depend_on_the_math_mode() {
    let device = Device::new(cpu(), DeviceOptions::default());
    let attend = |x: &Tensor| {
        let x = x.reshape([1, 1, 2, 2]);
        x.scaled_dot_product_attention(&x, &x, &AttentionOptions::default())
    };
    let attention = || prove!(|x in InputBox::new([4], 0.0, 0.1)| attend(x) <= 5.0);
    let sum = || prove!(|x in InputBox::new([4], 0.0, 0.1)| x.sum(0) <= 5.0);
    device.scope(|| {
        let error = attention().unwrap_err();
        assert!(error.message().contains("PANOPLY_MATH_MODE=exact"), "{error}");
        device.set_math_mode(MathMode::Exact);
        attention().unwrap();
        device.set_math_mode(MathMode::Fast);
        let error = sum().unwrap_err();
        assert!(error.message().contains("`fast`"), "{error}");
        device.set_math_mode(MathMode::Standard);
        device.set_allow_tf32(true);
        sum().unwrap();
    });
}

/// Returns the CPU below the runtime.
pub fn cpu() -> Arc<dyn RawDevice> {
    // SAFETY: only `runtime` uses the device, and it validates what it passes on.
    unsafe { CpuDriver::new(CpuOptions::default()).probe() }.unwrap().swap_remove(0)
}

/// Replaces the first call of a function in the body of a kernel, given the call and its arguments.
pub fn wrapped(kernel: String, name: &str, replace: impl Fn(&str, &str) -> String) -> String {
    let body = kernel.find('{').unwrap();
    let Some(at) = kernel[body..].find(name) else { return kernel };
    let (before, rest) = kernel.split_at(body + at);
    let depths = rest.char_indices().scan(0, |depth, (n, letter)| {
        *depth += i32::from(letter == '(') - i32::from(letter == ')');
        Some((n, letter, *depth))
    });
    let end = depths.filter(|(_, letter, depth)| *letter == ')' && *depth == 0).map(|(n, ..)| n).next().unwrap();
    let (call, after) = rest.split_at(end + 1);
    format!("{before}{}{after}", replace(call, &call[name.len()..end]))
}

/// A change of the text of kernels: its name, a layer whose kernel it changes, and the change.
type Fault = (&'static str, LayerSpec, fn(String) -> String);

/// Claims that hold for the graph are not proven on a device whose compiler makes one operation wrong.
#[test]
fn wrong_kernels_are_noticed() {
    let faults: [Fault; 7] = [
        ("a sine for a hyperbolic tangent", LayerSpec::Tanh {}, |kernel| {
            wrapped(kernel, "tanh(", |_, x| format!("sin({x})"))
        }),
        ("another base of the exponential function", LayerSpec::Sigmoid {}, |kernel| {
            wrapped(kernel, "exp(", |_, x| format!("exp2({x})"))
        }),
        ("a quotient of another number", LayerSpec::Sigmoid {}, |kernel| {
            wrapped(kernel, "div(", |call, _| format!("mul({call}, 1.00001f32)"))
        }),
        ("a sum for a product", LayerSpec::Silu {}, |kernel| wrapped(kernel, "mul(", |_, x| format!("add({x})"))),
        ("a difference for a sum", LayerSpec::Relu {}, |kernel| kernel.replace(": f32 = add(", ": f32 = sub(")),
        ("the other branch", LayerSpec::Relu {}, |kernel| wrapped(kernel, "select(", |call, _| format!("neg({call})"))),
        ("a function that is off by 16 ULP", LayerSpec::Tanh {}, |kernel| {
            wrapped(kernel, "tanh(", |call, _| format!("mul({call}, 1.000002f32)"))
        }),
    ];
    for (name, layer, text) in faults {
        let attempt = |device: Device| {
            device.scope(|| {
                let model = model(&[LayerSpec::linear(6), layer.clone(), LayerSpec::linear(2)]);
                verify::compile(&model, &options(10.0), &claim::parse(&claim("within -100..100")).unwrap()).map(drop)
            })
        };
        attempt(Device::new(cpu(), DeviceOptions::default())).unwrap();
        let raw = cpu();
        let wrong = FaultyDevice { target: raw.target().clone(), cpu: raw, text };
        let result = attempt(Device::new(Arc::new(wrong), DeviceOptions::default()));
        let error = result.expect_err(name);
        assert!(
            error.message().starts_with("cpu computes ") && error.message().ends_with("nothing is proven"),
            "{error}"
        );
    }
}
