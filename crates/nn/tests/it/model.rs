//! Behavior of models, forward contexts and optimizers beyond their numbers: names, buffers, atomic updates, and accumulation.

use panoply_nn::data::Dataset;
use panoply_nn::{
    AdamW, AdaptiveAvgPool, AveragedModel, BatchNorm, Conv2d, Dropout, Embedding, Flatten, ForwardContext, Lambda,
    Layer, Linear, Loss, LossKind, Lstm, MaxPool, Module, MultiHeadAttention, Param, ParamGroup, ParamVisitor,
    ParamVisitorMut, Sequential, Sgd, TransformerConfig, TransformerEncoderLayer, evaluate, init,
    sinusoidal_positional_encoding,
};
use panoply_tensor::{DType, Device, Reduction, Result, Rng, Tensor};

fn on_cpu(work: impl FnOnce()) {
    Device::get("cpu").unwrap().scope(work);
}

fn network(rng: &mut Rng) -> Sequential {
    Sequential::new()
        .add(Conv2d::new(1, 4, [3, 3], rng))
        .add(BatchNorm::new(4))
        .add(Lambda(Tensor::relu))
        .add(MaxPool::new([2, 2]))
        .add(AdaptiveAvgPool([1, 1]))
        .add(Flatten)
        .add(Linear::new(4, 2, rng))
}

fn images(count: usize) -> Tensor {
    Rng::seed_from_u64(7).normal([count, 1, 8, 8])
}

fn values(model: &dyn Module) -> Vec<f32> {
    model.named_parameters().iter().flat_map(|(_, param)| param.tensor().to_vec::<f32>().unwrap()).collect()
}

#[test]
fn a_sequential_names_its_parameters() {
    on_cpu(|| {
        let model = network(&mut Rng::seed_from_u64(0));
        let names: Vec<String> = model.named_parameters().into_iter().map(|(name, _)| name).collect();
        let norm = ["1.weight", "1.bias", "1.running_mean", "1.running_var"];
        assert_eq!(names, [&["0.weight", "0.bias"][..], &norm, &["6.weight", "6.bias"]].concat());
        assert_eq!(model.num_parameters(), 4 * 9 + 4 + 2 * 4 + 2 * 4 + 2);
        let summary = model.summary();
        assert!(summary.contains("1.running_var") && summary.contains("frozen or buffer"), "{summary}");
        assert!(summary.ends_with("58 trainable parameters\n"), "{summary}");
        assert_eq!(model.forward(&images(3), &mut ForwardContext::eval()).dims().unwrap(), [3, 2]);
    });
}

#[test]
fn a_pass_of_another_model_is_rejected_and_nothing_changes() {
    on_cpu(|| {
        let mut rng = Rng::seed_from_u64(0);
        let mut model = network(&mut rng);
        let copy = model.clone();
        let before = values(&model);
        let mut optimizer = Sgd::new(0.1);
        let mut pass = ForwardContext::train(&mut rng);
        let loss = copy.forward(&images(4), &mut pass).square().mean(..);
        let error = optimizer.step_keeping_graph(&mut model, &loss, pass).unwrap_err();
        assert!(error.message().contains("2 buffers were updated, 0 of them belong to this model"), "{error}");
        // A mistake in the loss does not change the running statistics either.
        let mut pass = ForwardContext::train(&mut rng);
        let wrong = model.forward(&images(4), &mut pass).matmul(&images(1));
        assert!(optimizer.step(&mut model, wrong.mean(..), pass).unwrap_err().is_mistake());
        assert_eq!((values(&model), optimizer.steps), (before, 0));
    });
}

/// As in `torch.nn.BatchNorm1d` ("Expected more than 1 value per channel when training"). A step that would store NaN in a buffer is
/// rejected.
#[test]
fn batch_norm_of_one_value_per_channel_is_rejected() {
    on_cpu(|| {
        let mut rng = Rng::seed_from_u64(0);
        let layer = BatchNorm::new(4);
        for shape in [&[1, 4][..], &[1, 4, 1], &[1, 4, 1, 1], &[0, 4]] {
            let input = Tensor::zeros(shape, DType::F32);
            let error = layer.forward(&input, &mut ForwardContext::train(&mut rng)).check().unwrap_err();
            assert!(error.message().contains("expected more than 1 value per channel when training"), "{error}");
            layer.forward(&input, &mut ForwardContext::eval()).check().unwrap();
        }
        layer.forward(&Tensor::zeros([1, 4, 3], DType::F32), &mut ForwardContext::train(&mut rng)).check().unwrap();
        // The mean of values close to the f32 maximum is not finite, although the loss and all gradients are.
        let mut layer = BatchNorm::new(1);
        let before = values(&layer);
        let input = Tensor::from_slice(&[3e38f32, 3e38, 3e38], [3, 1]);
        for accumulate in [false, true] {
            let mut pass = ForwardContext::train(&mut rng);
            let _ = layer.forward(&input, &mut pass);
            let loss = layer.weight.tensor().sum(..) + layer.bias.tensor().sum(..);
            let mut optimizer = Sgd::new(0.1);
            let error = match accumulate {
                true => optimizer.accumulate(&mut layer, &loss, pass).unwrap_err(),
                false => optimizer.step_keeping_graph(&mut layer, &loss, pass).unwrap_err(),
            };
            assert!(error.is_diverged() && error.message().contains("the buffer running_mean would hold"), "{error}");
            assert_eq!((values(&layer), optimizer.steps), (before.clone(), 0));
        }
    });
}

#[test]
fn a_layer_used_twice_in_a_pass_updates_its_statistics_twice() {
    on_cpu(|| {
        let (mut rng, input) = (Rng::seed_from_u64(0), Tensor::from_slice(&[1f32, 3.0, 5.0, 7.0], [4, 1]));
        let mut layer = BatchNorm::new(1);
        let mut pass = ForwardContext::train(&mut rng);
        let loss = layer.forward(&input, &mut pass).sum(..) + layer.forward(&(&input * 2.0), &mut pass).sum(..);
        Sgd::new(0.0).step_keeping_graph(&mut layer, &loss, pass).unwrap();
        let mean = layer.running_mean.tensor().item::<f64>().unwrap();
        assert!((mean - (0.1 * 4.0 * 0.9 + 0.1 * 8.0)).abs() < 1e-6, "{mean}");
    });
}

#[test]
fn accumulated_parts_equal_the_whole_batch() {
    on_cpu(|| {
        let start = Linear::new(5, 3, &mut Rng::seed_from_u64(1));
        let (x, y) = (Rng::seed_from_u64(2).normal([8, 5]), Rng::seed_from_u64(3).normal([8, 3]));
        let loss = |model: &Linear, from: usize, count: usize, pass: &mut ForwardContext<'_>| {
            model.forward(&x.narrow(0, from, count), pass).mse_loss(&y.narrow(0, from, count), Reduction::Mean)
        };
        let mut rng = Rng::seed_from_u64(0);
        let (mut whole, mut parts) = (start.clone(), start.clone());
        let (mut one, mut two) = (AdamW::new(0.1).clip_grad_norm(0.5), AdamW::new(0.1).clip_grad_norm(0.5));
        for _ in 0..3 {
            let mut pass = ForwardContext::train(&mut rng);
            let value = loss(&whole, 0, 8, &mut pass);
            one.step_keeping_graph(&mut whole, &value, pass).unwrap();
            let mut pass = ForwardContext::train(&mut rng);
            let half = loss(&parts, 0, 4, &mut pass) * 0.5;
            two.accumulate(&mut parts, &half, pass).unwrap();
            let mut pass = ForwardContext::train(&mut rng);
            let half = loss(&parts, 4, 4, &mut pass) * 0.5;
            two.step_keeping_graph(&mut parts, &half, pass).unwrap();
        }
        for (a, b) in values(&whole).iter().zip(values(&parts)) {
            assert!((a - b).abs() < 1e-5, "{a} in one step, {b} in parts");
        }
        assert!(two.accumulated_grads.is_empty());
    });
}

#[test]
fn param_groups_have_their_own_learning_rate() {
    on_cpu(|| {
        let mut rng = Rng::seed_from_u64(0);
        let mut model = Linear::new(2, 2, &mut rng);
        let before = values(&model);
        // All gradients are zero: only weight decay changes parameters, and the bias is exempt.
        let mut optimizer = AdamW::new(0.1)
            .weight_decay(0.5)
            .param_group(ParamGroup::new(|name, _| name.ends_with("bias")).no_weight_decay());
        let pass = ForwardContext::train(&mut rng);
        let loss = ((model.weight.tensor() * 0.0).sum(..)) + (model.bias.as_ref().unwrap().tensor() * 0.0).sum(..);
        optimizer.step_keeping_graph(&mut model, &loss, pass).unwrap();
        for (i, (before, after)) in before.iter().zip(values(&model)).enumerate() {
            let want = if i < 4 { before * 0.95 } else { *before };
            assert!((after - want).abs() < 1e-6, "element {i} went from {before} to {after}");
        }
    });
}

/// A module with parameters only.
#[derive(Clone)]
struct Bare(Vec<Param>);

impl Module for Bare {
    fn visit(&self, visitor: &mut ParamVisitor<'_>) {
        self.0.iter().zip(["a", "b", "c"]).for_each(|(param, name)| visitor.field(name, param));
    }

    fn visit_mut(&mut self, visitor: &mut ParamVisitorMut<'_>) -> Result<()> {
        self.0.iter_mut().zip(["a", "b", "c"]).try_for_each(|(param, name)| visitor.field(name, param))
    }
}

/// Takes a step with learning rate 1 and gradients equal to these numbers, clipped to a norm.
fn slid(gradients: &[(DType, f64)], longest: f64) -> Result<Vec<f64>> {
    let numbers = gradients.iter().map(|(dtype, _)| Param::new(Tensor::zeros([1], *dtype)));
    let mut model = Bare(numbers.collect());
    let parts = model.0.iter().zip(gradients);
    let loss = parts.map(|(param, (_, gradient))| (param.tensor().cast(DType::F64) * *gradient).sum(..));
    let loss = loss.reduce(|sum, part| sum + part).expect("there are parameters");
    let mut rng = Rng::seed_from_u64(0);
    Sgd::new(1.0).clip_grad_norm(longest).step(&mut model, loss, ForwardContext::train(&mut rng))?;
    model.0.iter().map(|param| param.tensor().item::<f64>()).collect()
}

#[test]
fn the_gradient_norm_covers_parameters_of_all_types() {
    on_cpu(|| {
        let gradients = [(DType::F16, 300.0), (DType::F64, 400.0), (DType::F32, 1200.0)];
        for (slid, (_, gradient)) in slid(&gradients, 13.0).unwrap().iter().zip(gradients) {
            assert!((slid + gradient / 100.0).abs() < 1e-3 * gradient / 100.0, "{slid} along {gradient}");
        }
        let halves = [(DType::BF16, 3.0), (DType::F16, 4.0)];
        let half = slid(&halves, 2.5).unwrap();
        assert!((half[0] + 1.5).abs() < 1e-2 && (half[1] + 2.0).abs() < 1e-3, "{half:?}");
        // Each gradient is finite, but their norm overflows f32.
        let error = slid(&[(DType::F32, 1e20), (DType::F32, 1.0)], 1.0).unwrap_err();
        assert!(error.message().contains("but the gradient norm is not finite"), "{error}");
        assert!(slid(&[(DType::F32, 1e20), (DType::F64, 1.0)], 1.0).is_ok());
    });
}

#[test]
fn an_averaged_model_follows_slowly() {
    on_cpu(|| {
        let mut model = Linear::new(2, 2, &mut Rng::seed_from_u64(0));
        model.weight.set(&Tensor::from_slice(&[0f32; 4], [2, 2])).unwrap();
        let mut average = AveragedModel::new(&model, 0.9);
        model.weight.set(&Tensor::from_slice(&[1f32; 4], [2, 2])).unwrap();
        (0..3).for_each(|_| average.update_parameters(&model).unwrap());
        let have = average.model.weight.tensor().to_vec::<f32>().unwrap();
        assert!(have.iter().all(|x| (x - (1.0 - 0.729)).abs() < 1e-6), "{have:?}");
    });
}

#[test]
fn initial_weights_have_the_expected_moments() {
    on_cpu(|| {
        let rng = &mut Rng::seed_from_u64(5);
        let shape = [64, 32, 3, 3];
        let (inputs, outputs): (f64, f64) = (32.0 * 9.0, 64.0 * 9.0);
        for (name, tensor, variance) in [
            ("kaiming_uniform", init::kaiming_uniform(&shape, 0.0, rng), 2.0 / inputs),
            ("kaiming_normal", init::kaiming_normal(&shape, 1.0, rng), 1.0 / inputs),
            ("xavier_uniform", init::xavier_uniform(&shape, rng), 2.0 / (inputs + outputs)),
            ("xavier_normal", init::xavier_normal(&shape, rng), 2.0 / (inputs + outputs)),
            // Of a normal distribution truncated at two standard deviations.
            ("truncated_normal", init::trunc_normal(&shape, 0.1, rng), 0.01 * 0.773_741),
        ] {
            let (mean, have) = (tensor.mean(..).item::<f64>().unwrap(), tensor.var(.., 0).item::<f64>().unwrap());
            assert!(mean.abs() < 0.02 * f64::sqrt(variance), "{name}: mean {mean}");
            assert!((have / variance - 1.0).abs() < 0.03, "{name}: variance {have}, expected {variance}");
        }
        assert!(init::trunc_normal(&shape, 0.1, rng).abs().max(..).item::<f64>().unwrap() <= 0.2 + 1e-7);
        for shape in [[20, 30], [30, 20]] {
            let q = init::orthogonal(&shape, 2.0, rng);
            let product = if shape[0] < shape[1] { q.matmul(&q.t()) } else { q.t().matmul(&q) };
            let off = (product - Tensor::eye(20, q.dtype()) * 4.0).abs().max(..).item::<f64>().unwrap();
            assert!(off < 1e-5, "{shape:?} is off by {off}");
        }
    });
}

#[test]
fn a_non_finite_loss_changes_nothing() {
    Device::get("cpu").unwrap().scope(|| {
        let mut rng = Rng::seed_from_u64(2);
        let mut model = Linear::new(2, 1, &mut rng);
        let before = model.weight.tensor().to_vec::<f32>().unwrap();
        let mut optimizer = AdamW::new(0.1);
        for bad in [f32::NAN, f32::INFINITY] {
            let x = Tensor::from_slice(&[1.0, bad], [1, 2]);
            let mut pass = ForwardContext::train(&mut rng);
            let loss = model.forward(&x, &mut pass).square().mean(..);
            let error = optimizer.step_keeping_graph(&mut model, &loss, pass).unwrap_err();
            assert!(error.message().contains("in step 1; the parameters from before the step are kept"), "{error}");
        }
        assert_eq!(model.weight.tensor().to_vec::<f32>().unwrap(), before);
        assert_eq!((optimizer.steps, optimizer.state.len()), (0, 0));
    });
}

/// Predictions 2, 2, 2, 6 for targets 3, 1, 2, 6: a residual sum of squares of 2, and a total of 14 around the mean; in any unit.
#[test]
fn the_score_is_independent_of_the_unit() {
    on_cpu(|| {
        for unit in [1e-30f32, 1e-24, 1.0, 1e24, 1e30] {
            let scaled = |numbers: [f32; 4]| numbers.map(|x| x * unit).to_vec();
            let data = Dataset::regression(scaled([2.0, 2.0, 2.0, 6.0]), scaled([3.0, 1.0, 2.0, 6.0])).build().unwrap();
            let model = Lambda(|x: &Tensor| x.clone());
            let score = evaluate(&model, &data, &Loss::new(LossKind::L1)).unwrap().score;
            assert!((score - (1.0 - 2.0 / 14.0)).abs() < 1e-5, "{unit}: {score}");
        }
    });
}

/// A weight shared by two places is one parameter: it is saved once, and its gradient is the sum of both.
#[test]
fn tied_weights_are_one_parameter() {
    on_cpu(|| {
        let mut rng = Rng::seed_from_u64(3);
        let mut tied = Embedding::new(5, 4, &mut rng);
        let start = tied.weight.tensor().clone();
        let words = Tensor::from_slice(&[0i32, 3, 3, 1], [4]);
        let next = Tensor::from_slice(&[3i32, 3, 1, 0], [4]);
        let loss =
            |read: &Tensor, output: &Tensor| read.index_select(0, &words).matmul(&output.t()).cross_entropy(&next);
        let (read, output) = (start.detach() * 1.0, start.detach() * 1.0);
        let apart = loss(&read, &output).gradients(&[&read, &output]).unwrap();
        let want = (&start - (&apart[0] + &apart[1]) * 0.5).to_vec::<f32>().unwrap();
        let mut pass = ForwardContext::train(&mut rng);
        let hidden = tied.forward(&words, &mut pass);
        let value = hidden.matmul(&tied.weight.tensor().t()).cross_entropy(&next);
        Sgd::new(0.5).step_keeping_graph(&mut tied, &value, pass).unwrap();
        assert_eq!(tied.named_parameters().len(), 1);
        for (have, want) in values(&tied).iter().zip(want) {
            assert!((have - want).abs() < 1e-6, "{have}, expected {want}");
        }
    });
}

/// The generator draws again between the forward pass and the step; the step is that of an undisturbed pass.
#[test]
fn a_pass_without_its_generator_makes_the_same_step() {
    on_cpu(|| {
        let x = Tensor::ones([5, 3], DType::F32);
        let trained = |released: bool| {
            let mut rng = Rng::seed_from_u64(3);
            let mut model =
                Sequential::new().add(Linear::new(3, 4, &mut rng)).add(BatchNorm::new(4)).add(Dropout { p: 0.5 });
            let mut pass = ForwardContext::train(&mut rng);
            let loss = model.forward(&x, &mut pass).square().mean(..);
            if released {
                let pass = pass.without_rng();
                assert!(pass.is_training());
                rng.normal([2]);
                Sgd::new(0.1).step(&mut model, loss, pass).unwrap();
            } else {
                Sgd::new(0.1).step(&mut model, loss, pass).unwrap();
            }
            values(&model)
        };
        assert_eq!(trained(true), trained(false));
        // A layer that needs the generator does not silently compute as in evaluation.
        let mut rng = Rng::seed_from_u64(3);
        let output = Dropout { p: 0.5 }.forward(&x, &mut ForwardContext::train(&mut rng).without_rng());
        let error = output.to_vec::<f32>().unwrap_err();
        assert!(error.message().contains("without_rng"), "{error}");
    });
}

/// Frozen parameters keep every bit and need no optimizer state; the others are updated as if nothing had been frozen.
#[test]
fn frozen_parameters_are_unchanged() {
    on_cpu(|| {
        let mut rng = Rng::seed_from_u64(3);
        let mut model =
            Sequential::new().add(Linear::new(3, 4, &mut rng)).add(BatchNorm::new(4)).add(Linear::new(4, 2, &mut rng));
        let x = rng.normal([5, 3]);
        let bits = |model: &Sequential| -> Vec<(String, Vec<f32>)> {
            model.named_parameters().into_iter().map(|(name, param)| (name, param.tensor().to_vec().unwrap())).collect()
        };
        let step = |model: &mut Sequential| {
            let mut optimizer = Sgd::new(0.1).momentum(0.9);
            let mut rng = Rng::seed_from_u64(0);
            let mut pass = ForwardContext::train(&mut rng);
            let loss = model.forward(&x, &mut pass).square().mean(..);
            optimizer.step_keeping_graph(model, &loss, pass).unwrap();
            optimizer.state.into_keys().collect::<Vec<String>>()
        };
        let mut free = model.clone();
        assert_eq!(step(&mut free).len(), 6);
        model.layers[0].freeze().unwrap();
        model.layers[1].freeze().unwrap();
        let before = bits(&model);
        assert_eq!(
            (model.num_parameters(), step(&mut model)),
            (10, vec!["2.bias".to_string(), "2.weight".to_string()])
        );
        for (((name, before), (_, now)), (_, moved)) in before.iter().zip(bits(&model)).zip(bits(&free)) {
            let frozen = name.starts_with("0.") || name == "1.weight" || name == "1.bias";
            assert_eq!(&now, if frozen { before } else { &moved }, "{name}");
            // A norm removes the bias of the layer before it.
            assert!(name == "0.bias" || before != &moved, "{name}");
        }
        model.unfreeze().unwrap();
        assert_eq!(step(&mut model).len(), 6);
    });
}

/// Source: Vaswani et al., Attention Is All You Need, section 3.5: sin and cos of position / 10000^(2i / width), interleaved.
#[test]
fn positional_encoding_matches_the_paper() {
    on_cpu(|| {
        let (length, width) = (50, 6);
        let have = sinusoidal_positional_encoding(length, width).to_vec::<f32>().unwrap();
        for (at, have) in have.into_iter().enumerate() {
            let (position, feature) = ((at / width) as f64, at % width);
            let angle = position / 10_000f64.powf((feature / 2 * 2) as f64 / width as f64);
            let want = if feature % 2 == 0 { angle.sin() } else { angle.cos() };
            assert!((f64::from(have) - want).abs() < 1e-5, "{have} at {position}, {feature}, expected {want}");
        }
    });
}

/// A model whose second layer does not fit its first one.
struct Two {
    fc1: Linear,
    fc2: Linear,
}

/// Line of the call of `fc2`.
const FC2: u32 = line!() + 5;

impl Layer for Two {
    fn forward(&self, input: &Tensor, pass: &mut ForwardContext<'_>) -> Tensor {
        let hidden = self.fc1.forward(input, pass).relu();
        self.fc2.forward(&hidden, pass).tanh()
    }
}

impl Module for Two {
    fn visit(&self, visitor: &mut ParamVisitor<'_>) {
        visitor.field("fc1", &self.fc1);
        visitor.field("fc2", &self.fc2);
    }

    fn visit_mut(&mut self, visitor: &mut ParamVisitorMut<'_>) -> Result<()> {
        visitor.field("fc1", &mut self.fc1)?;
        visitor.field("fc2", &mut self.fc2)
    }
}

#[test]
fn an_input_that_does_not_fit_names_the_layer_and_the_line() {
    on_cpu(|| {
        let mut rng = Rng::seed_from_u64(0);
        let mut two = Two { fc1: Linear::new(8, 16, &mut rng), fc2: Linear::new(32, 10, &mut rng) };
        let x = rng.normal([4, 8]);
        let place = format!("{}:{FC2}", file!());
        let note = "axis -1 of its input must have the length 32, not 16";
        let error = two.forward(&x, &mut ForwardContext::eval()).check().unwrap_err();
        assert_eq!(error.to_string(), format!("Linear(32 → 10) got [4, 16]\n  {note}\n  {place}"));
        let mut pass = ForwardContext::train(&mut rng);
        let loss = two.forward(&x, &mut pass).mean(..);
        let error = Sgd::new(0.1).step(&mut two, loss, pass).unwrap_err();
        assert_eq!(error.to_string(), format!("fc2: Linear(32 → 10) got [4, 16]\n  {note}\n  {place}"));

        // Sequences call their layers through trait objects, and blocks through closures: the line is that of the sequence's call.
        let config = TransformerConfig { d_model: 6, num_heads: 2, dim_feedforward: 8, ..TransformerConfig::default() };
        let rng = &mut rng;
        let models: [(Sequential, &[usize], &str); 5] = [
            (
                Sequential::new().add(Linear::new(4, 8, rng)).add(TransformerEncoderLayer::new(config, rng)),
                &[2, 5, 4],
                "1.norms.0: LayerNorm(6) got [2, 5, 8]",
            ),
            (
                Sequential::new().add(MultiHeadAttention::new(6, 2, rng)),
                &[2, 5, 8],
                "0.query: Linear(6 → 6) got [2, 5, 8]",
            ),
            (
                Sequential::new().add(Lambda(Tensor::relu)).add(Conv2d::with_groups(4, 8, [3, 2], 2, rng)),
                &[2, 3, 5, 5],
                "1: Conv2d(4 → 8, [3, 2]) got [2, 3, 5, 5]",
            ),
            (
                Sequential::new().add(Sequential::new().add(Lstm::new(3, 4, rng))),
                &[2, 5, 6],
                "0.0: Lstm(3 → 4) got [2, 5, 6]",
            ),
            (Sequential::new().add(BatchNorm::new(3)), &[4, 2], "0: BatchNorm(3) got [4, 2]"),
        ];
        for (mut model, shape, message) in models {
            let x = rng.normal(shape);
            let mut pass = ForwardContext::train(rng);
            let line = line!() + 1;
            let loss = model.forward(&x, &mut pass).mean(..);
            let error = Sgd::new(0.1).step(&mut model, loss, pass).unwrap_err();
            assert_eq!(error.message(), message);
            assert!(error.to_string().ends_with(&format!("{}:{line}", file!())), "{error}");
        }
        // A mistake of the program's own keeps its line, also in a sequence.
        let line = line!() + 1;
        let model = Sequential::new().add(Lambda(|x| x.matmul(&Tensor::zeros([3, 3], DType::F32))));
        let error = model.forward(&x, &mut ForwardContext::eval()).check().unwrap_err();
        assert!(error.to_string().ends_with(&format!("{}:{line}", file!())), "{error}");
    });
}
