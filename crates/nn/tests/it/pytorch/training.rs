//! CTC loss, and a forward pass in bf16 compared with PyTorch's autocast.

use panoply_nn::{ForwardContext, Layer, LayerNorm, Linear, Param};
use panoply_tensor::{DType, Reduction, Rng, Tensor};

use super::{Fixture, close, on_cpu, set_linear, weighted};

const TRAINING: &[u8] = include_bytes!("../../../../tensor/tests/fixtures/training.safetensors");

fn whole(file: &Fixture, name: &str) -> Tensor {
    let view = file.file.tensor(&format!("{}/{name}", file.part)).unwrap();
    Tensor::from_bytes(view.data(), view.shape().to_vec(), DType::I32)
}

#[test]
fn ctc_loss() {
    on_cpu(|| {
        let file = Fixture::new(TRAINING, "ctc");
        let logits = file.get("logits");
        let of = |logits: &Tensor| {
            let [targets, times, lengths] = ["targets", "inputs", "lengths"].map(|name| whole(&file, name));
            logits.log_softmax(-1).ctc_loss(&targets, &times, &lengths, 0, Reduction::None)
        };
        let loss = of(&logits);
        close("ctc", &loss, &file.get("none"), 2e-6);
        // PyTorch's mean first divides by the lengths, at least 1.
        let lengths = whole(&file, "lengths").cast(DType::F32).maximum(&Tensor::scalar(1f32));
        close("ctc mean", &(&loss / lengths).mean(..), &file.get("mean"), 2e-6);
        let gradient = weighted(&loss).gradients(&[&logits]).unwrap().remove(0);
        close("ctc gradient", &gradient, &file.get("grad"), 4e-6);
        // Five equal labels need four blanks between them, which is nine time steps, but there are only eight.
        let (targets, eight, five) = (
            Tensor::from_slice(&[1i32; 5], [1, 5]),
            Tensor::from_slice(&[8i32], [1]),
            Tensor::from_slice(&[5i32], [1]),
        );
        let loss =
            Tensor::zeros([9, 1, 2], DType::F32).log_softmax(-1).ctc_loss(&targets, &eight, &five, 0, Reduction::None);
        assert_eq!(loss.item::<f64>().unwrap(), f64::INFINITY);
        let wrong = logits.ctc_loss(&targets, &eight, &five, 0, Reduction::None).check().unwrap_err();
        assert!(wrong.message().starts_with("ctc_loss: needs log-probabilities [time, batch, classes]"), "{wrong}");
    });
}

/// Both round to bf16 at the same places, so their distances to f32 are similar, and their distance to each other is at most twice that.
#[test]
fn bf16_is_as_accurate_as_autocast() {
    on_cpu(|| {
        let file = Fixture::new(TRAINING, "autocast");
        let mut rng = Rng::seed_from_u64(0);
        let (mut first, mut last) = (Linear::new(16, 24, &mut rng), Linear::new(24, 5, &mut rng));
        let state = |name: &str| file.get(&format!("state/{name}"));
        set_linear(&mut first, &state("0.weight"), &state("0.bias"));
        set_linear(&mut last, &state("3.weight"), &state("3.bias"));
        let norm =
            LayerNorm { weight: Param::new(state("2.weight")), bias: Param::new(state("2.bias")), epsilon: 1e-5 };
        let mut pass = ForwardContext::train(&mut rng).autocast(DType::BF16);
        let hidden = first.forward(&file.get("x"), &mut pass).relu();
        assert_eq!(hidden.dtype(), DType::BF16);
        let logits = last.forward(&norm.forward(&hidden, &mut pass), &mut pass);
        let loss = logits.cast(DType::F32).cross_entropy(&whole(&file, "y"));
        let of = |precision: &str, name: &str| file.get(&format!("{precision}/{name}"));
        let exact = of("f32", "loss").item::<f64>().unwrap();
        assert!((loss.item::<f64>().unwrap() - exact).abs() < 4e-3 * exact, "{} {exact}", loss.item::<f64>().unwrap());
        let params = [
            ("0.weight", first.weight.tensor()),
            ("0.bias", first.bias.as_ref().unwrap().tensor()),
            ("2.weight", norm.weight.tensor()),
            ("2.bias", norm.bias.tensor()),
            ("3.weight", last.weight.tensor()),
            ("3.bias", last.bias.as_ref().unwrap().tensor()),
        ];
        let wanted = params.map(|(_, tensor)| tensor);
        for ((name, _), ours) in params.iter().zip(loss.gradients(&wanted).unwrap()) {
            assert_eq!(ours.dtype(), DType::F32);
            let (exact, theirs) = (of("f32", &format!("grad/{name}")), of("bf16", &format!("grad/{name}")));
            let far =
                |from: &Tensor| (from - &exact).norm(..).item::<f64>().unwrap() / exact.norm(..).item::<f64>().unwrap();
            eprintln!("{name}: ours {:.4}, autocast {:.4} from f32", far(&ours), far(&theirs));
            assert!(
                far(&ours) < 2.0 * far(&theirs) + 2e-3,
                "{name}: distance {} to f32, autocast {}",
                far(&ours),
                far(&theirs)
            );
        }
    });
}
