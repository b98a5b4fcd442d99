//! What several batches come to: steps of accumulated gradients, averages of parameters, rates that fall on a plateau; and that all of it
//! goes on bit for bit after a stop.

use panoply_nn::data::{Dataset, digits};
use panoply_nn::fit::{Quiet, StepReport, Watch};
use panoply_nn::optimiser::SgdRule;
use panoply_nn::{AdamW, EpochReport, Linear, Map, Module, Plateau, Run, Schedule, Sequential, Sgd, Training};
use panoply_tensor::{Device, Rng, Tensor};

/// Stops after a step of an epoch.
struct StopAt(usize, usize);

impl Watch for StopAt {
    fn step(&mut self, report: &StepReport) -> bool {
        (report.epoch, report.step) != (self.0, self.1)
    }

    fn epoch(&mut self, _: &EpochReport) -> bool {
        true
    }
}

fn network(rng: &mut Rng) -> Sequential {
    Sequential::new().then(Linear::new(64, 12, rng)).then(Map(Tensor::tanh)).then(Linear::new(12, 10, rng))
}

fn fresh() -> Run<Sequential, SgdRule> {
    let mut rng = Rng::seed(4);
    Run::new(network(&mut rng), Sgd::new(0.2).momentum(0.5), rng)
}

fn parts() -> (Dataset, Dataset) {
    let all = digits::load().unwrap();
    let part = |from: usize, count: usize| all.select(&(from..from + count).collect::<Vec<usize>>());
    (part(0, 150), part(1000, 60))
}

fn numbers(model: &dyn Module) -> Vec<f32> {
    model.named_params().iter().flat_map(|(_, param)| param.tensor().to_vec::<f32>().unwrap()).collect()
}

fn on_cpu(work: impl FnOnce()) {
    Device::get("cpu").unwrap().scope(work);
}

/// Three batches of 16 a step are a batch of 48, the short ones at the end of the epoch included: 150 is three times 48 and 6.
#[test]
fn accumulated_batches_are_one() {
    on_cpu(|| {
        let (train, held) = parts();
        let (mut whole, mut parts) = (fresh(), fresh());
        let schedule = Schedule::Cosine { steps: 8, floor: 0.0 };
        let of = |batch, accumulate| Training { accumulate, schedule: schedule.clone(), ..Training::new(2, batch) };
        whole.fit(&of(48, 1), (&train, &held), &mut Quiet).unwrap();
        parts.fit(&of(16, 3), (&train, &held), &mut Quiet).unwrap();
        assert_eq!((whole.optimiser.steps, parts.optimiser.steps), (8, 8));
        assert_eq!((of(48, 1).updates(150), of(16, 3).updates(150)), (8, 8));
        for (a, b) in numbers(&whole.model).iter().zip(numbers(&parts.model)) {
            assert!((a - b).abs() < 1e-5, "{a} at once, {b} in parts");
        }
        let losses = |run: &Run<_, _>| run.progress.history.iter().map(|epoch| epoch.loss).collect::<Vec<f64>>();
        for (a, b) in losses(&whole).iter().zip(losses(&parts)) {
            assert!((a - b).abs() < 1e-5, "{a} at once, {b} in parts");
        }
    });
}

/// The average is the one that is computed by hand from the models after each step: a tenth is kept of what was before the first,
/// more and more later, and never more than was said.
#[test]
fn an_average_is_kept_and_measured() {
    on_cpu(|| {
        let (train, held) = parts();
        let training = Training { average: Some(0.3), ..Training::new(1, 50) };
        let mut want: Vec<f64> = numbers(&fresh().model).into_iter().map(f64::from).collect();
        for step in 1..=3 {
            let mut run = fresh();
            run.fit(&Training::new(1, 50), (&train, &held), &mut StopAt(1, step)).unwrap();
            let kept = 0.3f64.min((1.0 + step as f64) / (10.0 + step as f64));
            for (average, now) in want.iter_mut().zip(numbers(&run.model)) {
                *average = *average * kept + f64::from(now) * (1.0 - kept);
            }
        }
        let mut run = fresh();
        run.fit(&training, (&train, &held), &mut Quiet).unwrap();
        for (have, want) in numbers(&run.average.as_ref().unwrap().model).iter().zip(&want) {
            assert!((f64::from(*have) - want).abs() < 1e-6, "{have}, not {want}");
        }
        assert_eq!(numbers(run.best_model()), numbers(&run.average.as_ref().unwrap().model));
        let judged = panoply_nn::evaluate(run.best_model(), &held, &training.loss).unwrap();
        assert!((judged.loss - run.progress.history[0].validation_loss).abs() < 1e-9);
    });
}

/// A run that learns nothing lowers its rate after three epochs without a better loss, and after three more.
#[test]
fn a_plateau_lowers_the_rate() {
    on_cpu(|| {
        let (train, held) = parts();
        let mut rng = Rng::seed(4);
        let mut run = Run::new(network(&mut rng), Sgd::new(1e-9), rng);
        let rates: Vec<f64> = (1..=8)
            .map(|epochs| {
                let plateau = Some(Plateau::new(0.5, 2));
                run.fit(&Training { plateau, ..Training::new(epochs, 75) }, (&train, &held), &mut Quiet).unwrap();
                run.optimiser.learning_rate
            })
            .collect();
        assert_eq!(rates, [1.0, 1.0, 1.0, 1.0, 0.5, 0.5, 0.5, 0.25].map(|factor| factor * 1e-9));
    });
}

/// Stopped between two batches of one step, with an average and on a plateau, it goes on bit for bit.
#[test]
fn all_of_it_goes_on_after_a_stop() {
    on_cpu(|| {
        let (train, held) = parts();
        let folder = std::env::temp_dir().join(format!("panoply-steps-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("run.safetensors");
        let mut plateau = Plateau::new(0.1, 0);
        plateau.threshold = 0.5;
        let training = Training {
            accumulate: 4,
            average: Some(0.9),
            plateau: Some(plateau),
            file: Some(file.clone()),
            ..Training::new(4, 16)
        };
        let run = || {
            let mut rng = Rng::seed(9);
            Run::new(network(&mut rng), AdamW::new(1e-2).weight_decay(0.1).sparing_vectors(), rng)
        };
        let mut whole = run();
        whole.fit(&training, (&train, &held), &mut Quiet).unwrap();
        assert!(whole.optimiser.learning_rate < 1e-3, "the plateau was reached");
        let mut part = run();
        for stop in [StopAt(1, 2), StopAt(2, 7), StopAt(3, 9), StopAt(0, 0)] {
            let StopAt(_, step) = stop;
            part.fit(&training, (&train, &held), &mut { stop }).unwrap();
            assert_eq!(part.optimiser.waiting.is_empty(), [0, 4, 8].contains(&step), "{step}");
            part = run();
            part.load(&file).unwrap();
        }
        let bits = |model: &dyn Module| numbers(model).into_iter().map(f32::to_bits).collect::<Vec<u32>>();
        assert_eq!(bits(&part.model), bits(&whole.model));
        assert_eq!(bits(part.best_model()), bits(whole.best_model()));
        let average = |run: &Run<Sequential, _>| bits(&run.average.as_ref().unwrap().model);
        assert_eq!(average(&part), average(&whole));
        assert_eq!(part.progress.history.len(), 4);
        std::fs::remove_dir_all(&folder).unwrap();
    });
}

/// With no gradient only decay moves anything: matrices do, biases do not.
#[test]
fn weight_decay_spares_vectors() {
    on_cpu(|| {
        let mut rng = Rng::seed(0);
        let mut model = network(&mut rng);
        let before = model.named_params();
        let nothing = before.iter().map(|(_, param)| (param.tensor() * 0.0).sum(..)).reduce(|a, b| a + b).unwrap();
        let mut optimiser = AdamW::new(0.1).weight_decay(0.5).sparing_vectors();
        optimiser.step(&mut model, &nothing, panoply_nn::Pass::train(&mut rng)).unwrap();
        for ((name, old), (_, new)) in before.iter().zip(model.named_params()) {
            let factor = if name.ends_with("weight") { 0.95 } else { 1.0 };
            let [old, new] = [old, &new].map(|param| param.tensor().to_vec::<f32>().unwrap());
            assert!(old.iter().zip(new).all(|(old, new)| (old * factor - new).abs() < 1e-6), "{name}");
        }
    });
}
