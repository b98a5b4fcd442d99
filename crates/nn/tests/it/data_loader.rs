//! Batches prepared by worker threads: results are independent of the threads, loading resumes from any batch, and errors name the example.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use panoply_nn::data::{Batch, DataLoader, Dataset, Targets, digits};
use panoply_nn::trainer::{Callback, NoCallback, StepReport};
use panoply_nn::{AdamW, ForwardContext, Layer, Linear, Module, Sequential, Sgd, TrainConfig, Trainer};
use panoply_tensor::{Device, Error, Result, Rng};

fn on_cpu(work: impl FnOnce()) {
    Device::get("cpu").unwrap().scope(work);
}

/// Example `i` is `[i, 100 + i]`, of class `i % 3`.
fn numbered(count: usize) -> Dataset {
    let features = (0..count).flat_map(|i| [i as f32, 100.0 + i as f32]).collect();
    Dataset::classification(features, (0..count).map(|i| (i % 3) as i32).collect()).num_classes(3).build().unwrap()
}

fn numbers(batch: &Batch) -> (Vec<f32>, Vec<i32>) {
    (batch.inputs.to_vec().unwrap(), batch.targets.to_vec().unwrap())
}

fn all(loader: &DataLoader, epoch: u64, from: usize) -> Vec<(Vec<f32>, Vec<i32>)> {
    loader.epoch(epoch).skip_batches(from).map(|batch| numbers(&batch.unwrap())).collect()
}

#[test]
fn without_shuffling_the_order_is_that_of_the_examples() {
    on_cpu(|| {
        let data = numbered(10);
        let batches = all(&DataLoader::new(data.clone(), 4), 5, 0);
        let whole: Vec<(Vec<f32>, Vec<i32>)> =
            data.chunks(4).map(|part| (part.features.clone(), part.labels().to_vec())).collect();
        assert_eq!(batches, whole);
        assert_eq!((batches.len(), batches[2].1.len()), (3, 2));
        assert!(DataLoader::new(data.select(&[]), 4).epoch(0).next().is_none());
    });
}

/// The batches are the same for every number of threads, each example occurs once, and other epochs and seeds have other orders.
#[test]
fn threads_do_not_change_the_batches() {
    on_cpu(|| {
        let loader = |threads: usize| {
            let noisy = DataLoader::new(numbered(50), 4).shuffle(7).num_workers(threads);
            noisy.map(|record, rng| {
                record.features[1] += rng.random_below(1000) as f32 / 1000.0;
                // Some examples take longer than those after them.
                (0..if record.index % 7 == 0 { 20_000 } else { 0 }).for_each(|_| std::thread::yield_now());
                Ok(())
            })
        };
        let want: Vec<_> = (0..3).map(|epoch| all(&loader(0), epoch, 0)).collect();
        for threads in [1, 3, 8] {
            assert_eq!((0..3).map(|epoch| all(&loader(threads), epoch, 0)).collect::<Vec<_>>(), want, "{threads}");
        }
        let mut seen: Vec<f32> = want[0].iter().flat_map(|(numbers, _)| numbers.iter().step_by(2)).copied().collect();
        assert!(!seen.is_sorted());
        seen.sort_by(f32::total_cmp);
        assert_eq!(seen, (0..50).map(|i| i as f32).collect::<Vec<f32>>());
        assert!(want[0] != want[1] && want[0] != all(&loader(0).shuffle(8), 0, 0));
        // The random numbers of an example differ between examples and between epochs.
        let drawn = |epoch: usize| {
            let numbers: Vec<f32> = want[epoch].iter().flat_map(|(numbers, _)| numbers.clone()).collect();
            let mut drawn: Vec<(f32, f32)> = numbers.chunks(2).map(|pair| (pair[0], pair[1] - pair[0])).collect();
            drawn.sort_by(|a, b| a.0.total_cmp(&b.0));
            drawn
        };
        let same = drawn(0).iter().zip(drawn(1)).filter(|(a, b)| a.1 == b.1).count();
        assert!(same < 5, "{same} of 50");
    });
}

/// Loading resumes from any batch of an epoch, also from a partially consumed iterator.
#[test]
fn loading_resumes_in_the_middle_of_an_epoch() {
    on_cpu(|| {
        let loader = DataLoader::new(numbered(23), 4).shuffle(3).num_workers(2).map(|record, rng| {
            record.features[0] += rng.random_below(100) as f32;
            Ok(())
        });
        let whole = all(&loader, 2, 0);
        for from in 0..=7 {
            assert_eq!(all(&loader, 2, from), whole[from.min(6)..], "{from}");
        }
        let mut begun = loader.epoch(2);
        (0..3).for_each(|_| assert!(begun.next().unwrap().is_ok()));
        assert_eq!((begun.batch_index(), begun.len()), (3, 3));
        assert_eq!(begun.map(|batch| numbers(&batch.unwrap())).collect::<Vec<_>>(), whole[3..]);
    });
}

/// Training that is interrupted within an epoch gives the same bits as uninterrupted training.
#[test]
fn a_custom_loop_resumes() {
    on_cpu(|| {
        let loader = DataLoader::new(digits::load().unwrap(), 256).shuffle(1).num_workers(2);
        let learn =
            |model: &mut Linear, optimizer: &mut Sgd, rng: &mut Rng, epoch: u64, steps: std::ops::Range<usize>| {
                for batch in loader.epoch(epoch).skip_batches(steps.start).take(steps.len()) {
                    let batch = batch.unwrap();
                    let mut pass = ForwardContext::train(rng);
                    let loss = model.forward(&batch.inputs, &mut pass).cross_entropy(&batch.targets);
                    optimizer.step_keeping_graph(model, &loss, pass).unwrap();
                }
            };
        let learned = |stops: &[(u64, std::ops::Range<usize>)]| -> Vec<u32> {
            let mut rng = Rng::seed_from_u64(0);
            let (mut model, mut optimizer) = (Linear::new(64, 10, &mut rng), Sgd::new(0.3));
            for (epoch, steps) in stops {
                learn(&mut model, &mut optimizer, &mut rng, *epoch, steps.clone());
            }
            let params = model.named_parameters();
            params.iter().flat_map(|(_, param)| param.tensor().to_vec::<f32>().unwrap()).map(f32::to_bits).collect()
        };
        let batches = loader.num_batches();
        assert_eq!(learned(&[(0, 0..3), (0, 3..batches), (1, 0..2)]), learned(&[(0, 0..batches), (1, 0..2)]));
    });
}

#[test]
fn batches_of_sequences_have_their_lengths() {
    on_cpu(|| {
        let data = numbered(5).with_seq_lengths(vec![1, 2, 2, 1, 2]).unwrap();
        let lengths = |batch: Result<Batch>| batch.unwrap().seq_lengths.unwrap().to_vec::<i32>().unwrap();
        let ends: Vec<i32> = DataLoader::new(data.clone(), 2).epoch(0).flat_map(lengths).collect();
        assert_eq!(ends, [1, 2, 2, 1, 2]);
        // Batches in random order have the lengths of their own examples; the first feature of example `i` is `i`.
        let mut seen = 0;
        for batch in data.batches(2, &mut Rng::seed_from_u64(0)) {
            let batch = batch.unwrap();
            let numbers = batch.inputs.to_vec::<f32>().unwrap();
            let ends = batch.seq_lengths.unwrap().to_vec::<i32>().unwrap();
            for (example, end) in numbers.chunks(2).zip(&ends) {
                assert_eq!(*end, [1, 2, 2, 1, 2][example[0] as usize]);
                seen += 1;
            }
        }
        assert_eq!(seen, 5);
    });
}

/// Errors and panics belong to their batch, name the example, and do not affect other batches.
#[test]
fn errors_name_the_example() {
    on_cpu(|| {
        for threads in [0, 1, 3] {
            let loader = DataLoader::new(numbered(20), 4).num_workers(threads).map(|record, _| match record.index {
                5 => Err(Error::corrupt("it is not an image").note("take another")),
                14 => panic!("a picture of {} sides", 3),
                _ => Ok(()),
            });
            let batches: Vec<_> = loader.epoch(0).collect();
            let wrong: Vec<usize> = (0..5).filter(|at| batches[*at].is_err()).collect();
            assert_eq!((batches.len(), &wrong[..]), (5, &[1, 3][..]));
            let error = batches[1].as_ref().unwrap_err();
            assert_eq!((error.message(), error.is_corrupt()), ("example 5: it is not an image", true));
            assert_eq!(error.notes(), ["take another"]);
            let error = batches[3].as_ref().unwrap_err();
            assert_eq!(error.message(), "example 14: its transform panicked: a picture of 3 sides");
        }
    });
}

/// A thread that panics for another reason ends the epoch with an error, instead of as if it were complete.
#[test]
fn a_worker_thread_that_panics_is_an_error() {
    on_cpu(|| {
        let mut data = numbered(20);
        // Examples from the tenth on have no label.
        data.targets = Targets::Classes { labels: vec![0; 10], num_classes: 3, labels_per_example: 1 };
        for threads in [1, 3] {
            let mut batches = DataLoader::new(data.clone(), 4).num_workers(threads).epoch(0);
            let made: Vec<_> = batches.by_ref().collect();
            let (last, before) = made.split_last().unwrap();
            assert!(before.len() <= 2 && before.iter().all(Result::is_ok), "{made:?}");
            let error = last.as_ref().unwrap_err();
            assert!(error.message().starts_with("a data loading thread panicked: range "), "{error}");
            assert!(batches.next().is_none() && batches.len() == 0);
        }
    });
}

/// Threads prepare only a few batches ahead, and end when the iterator is dropped.
#[test]
fn worker_threads_are_bounded() {
    on_cpu(|| {
        let seen = Arc::new(AtomicUsize::new(0));
        let counted = seen.clone();
        let loader = DataLoader::new(numbered(4000), 1).num_workers(3).map(move |_, _| {
            counted.fetch_add(1, Ordering::SeqCst);
            Ok(())
        });
        let mut loading = loader.epoch(0);
        for taken in 1..=20 {
            loading.next().unwrap().unwrap();
            let made = seen.load(Ordering::SeqCst);
            assert!(made <= taken + 6, "{made} made, {taken} taken");
        }
        drop(loading);
        let made = seen.load(Ordering::SeqCst);
        assert!(made <= 26, "{made}");
        // An unreasonable number of threads is limited.
        assert!(format!("{:?}", loader.num_workers(usize::MAX)).contains("64 threads"));
    });
}

/// Digits that are randomly shifted while they are loaded.
fn moved_digits(threads: usize) -> DataLoader {
    let (train, _) = digits::load().unwrap().train_test_split(0.7, &mut Rng::seed_from_u64(3)).unwrap();
    DataLoader::new(train, 50).shuffle(11).num_workers(threads).map(|digit, rng| {
        digit.features.rotate_right(rng.random_below(3) as usize);
        Ok(())
    })
}

fn bits(model: &dyn Module) -> Vec<u32> {
    let params = model.named_parameters();
    params.iter().flat_map(|(_, param)| param.tensor().to_vec::<f32>().unwrap()).map(f32::to_bits).collect()
}

/// The steps of a run equal those of a loop over the loader, in the loader's order and with its transforms.
#[test]
fn a_trainer_uses_the_batches_of_a_loader() {
    on_cpu(|| {
        let held = digits::load().unwrap().select(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        let start = Linear::new(64, 10, &mut Rng::seed_from_u64(1));
        let (mut model, mut optimizer, mut rng) = (start.clone(), AdamW::new(1e-2), Rng::seed_from_u64(5));
        for epoch in 0..2 {
            for batch in moved_digits(0).epoch(epoch) {
                let batch = batch.unwrap();
                let pass = ForwardContext::train(&mut rng);
                let loss = model.forward(&batch.inputs, &mut ForwardContext::eval()).cross_entropy(&batch.targets);
                optimizer.step_keeping_graph(&mut model, &loss, pass).unwrap();
            }
        }
        let mut run = Trainer::new(start, AdamW::new(1e-2), Rng::seed_from_u64(9));
        run.fit(&TrainConfig::new(2, 50), &moved_digits(2), &held, &mut NoCallback).unwrap();
        assert_eq!(bits(&run.model), bits(&model));

        let error = run.fit(&TrainConfig::new(3, 32), &moved_digits(0), &held, &mut NoCallback).unwrap_err();
        assert!(error.message().contains("the loader's batch size is 50, that of the training 32"), "{error}");
        let broken = moved_digits(1).map(|digit, _| match digit.index {
            7 => Err(Error::mistake("it is damaged")),
            _ => Ok(()),
        });
        let before = run.optimizer.steps;
        let error = run.fit(&TrainConfig::new(3, 50), &broken, &held, &mut NoCallback).unwrap_err();
        assert!(error.message().contains("example 7: it is damaged"), "{error}");
        assert_eq!(run.optimizer.steps - before, run.state.step as u64);
    });
}

/// Stops at a step of an epoch.
struct StopAt(usize, usize);

impl Callback for StopAt {
    fn on_train_batch_end(&mut self, report: &StepReport) -> ControlFlow<()> {
        match (report.epoch, report.step) == (self.0, self.1) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}

#[test]
fn a_run_over_a_loader_resumes_in_the_middle_of_an_epoch() {
    on_cpu(|| {
        let held = digits::load().unwrap().select(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        let fresh = |seed: u64| {
            let mut rng = Rng::seed_from_u64(seed);
            let model = Sequential::new()
                .add(Linear::new(64, 16, &mut rng))
                .add(panoply_nn::Dropout { p: 0.2 })
                .add(Linear::new(16, 10, &mut rng));
            Trainer::new(model, AdamW::new(1e-2), rng)
        };
        let folder = std::env::temp_dir().join(format!("panoply-loader-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("run.safetensors");
        let mut whole = fresh(1);
        whole.fit(&TrainConfig::new(3, 50), &moved_digits(2), &held, &mut NoCallback).unwrap();
        let saved = TrainConfig { checkpoint_path: Some(file.clone()), ..TrainConfig::new(3, 50) };
        fresh(1).fit(&saved, &moved_digits(0), &held, &mut StopAt(2, 3)).unwrap();
        let mut again = fresh(77);
        again.load_checkpoint(&file).unwrap();
        assert_eq!((again.state.history.len(), again.state.step), (1, 3));
        again.fit(&saved, &moved_digits(3), &held, &mut NoCallback).unwrap();
        assert_eq!((bits(&again.model), again.optimizer.steps), (bits(&whole.model), whole.optimizer.steps));
        let losses = |run: &Trainer<Sequential, _>| -> Vec<f64> {
            run.state.history.iter().map(|epoch| epoch.train_loss).collect()
        };
        assert_eq!(losses(&again), losses(&whole));
        std::fs::remove_dir_all(&folder).unwrap();
    });
}
