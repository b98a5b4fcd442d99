//! Where examples are while a network learns: on the device once and for all where they fit, on the host otherwise; the same steps.
//! Devices here are the process's own, so that their counts are nobody else's.

use panoply_nn::data::{Dataset, digits};
use panoply_nn::fit::{StepReport, Watch};
use panoply_nn::optimiser::AdamWRule;
use panoply_nn::{AdamW, EpochReport, LayerSpec, Model, Module, Network, Run, Training};
use panoply_tensor::{Device, Rng};

fn run() -> Run<Model, AdamWRule> {
    let mut rng = Rng::seed(0);
    let network = Network::with_input_size(64)
        .add_layer(LayerSpec::linear(8))
        .add_layer(LayerSpec::Relu {})
        .add_layer(LayerSpec::Dropout { probability: 0.2 })
        .add_layer(LayerSpec::linear(10));
    let model = network.build(&mut rng).unwrap();
    Run::new(model, AdamW::new(1e-2), rng)
}

/// Bytes that had gone to the device at the end of each epoch.
#[derive(Default)]
struct Uploads(Vec<u64>);

impl Watch for Uploads {
    fn step(&mut self, _: &StepReport) -> bool {
        true
    }

    fn epoch(&mut self, _: &EpochReport) -> bool {
        self.0.push(Device::current().unwrap().stats().uploaded);
        true
    }
}

#[test]
fn after_the_first_epoch_only_the_order_goes_to_the_device() {
    Device::get("cpu").unwrap().scope(|| {
        let (train, held) = digits::load().unwrap().split(0.2, &mut Rng::seed(1)).unwrap();
        let mut uploads = Uploads::default();
        let before = Device::current().unwrap().stats().uploaded;
        run().fit(&Training::new(5, 64), (&train, &held), &mut uploads).unwrap();
        let each: Vec<u64> = uploads.0.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(each, vec![4 * train.len() as u64; 4], "four bytes for an example of an epoch");
        let first = uploads.0[0] - before;
        assert!(first > 4 * (train.features.len() + held.features.len()) as u64, "{first}");
    });
}

/// A device with room for a step but not for four times the examples leaves them on the host.
#[test]
fn examples_on_the_host_and_on_the_device_are_learned_alike() {
    let device = Device::get("cpu:checked").unwrap();
    device.scope(|| {
        let all = digits::load().unwrap();
        let part = |from: usize, count: usize| all.select(&(from..from + count).collect::<Vec<usize>>());
        let (train, held): (Dataset, Dataset) = (part(0, 100), part(100, 20));
        let training = Training::new(2, 48);
        let bits = |run: &Run<Model, AdamWRule>| -> Vec<u32> {
            let params = run.model.named_params();
            params.iter().flat_map(|(_, param)| param.tensor().to_vec::<f32>().unwrap()).map(f32::to_bits).collect()
        };
        let mut here = run();
        let mut uploads = Uploads::default();
        here.fit(&training, (&train, &held), &mut uploads).unwrap();
        assert_eq!(uploads.0[1] - uploads.0[0], 4 * 100);
        let want = bits(&here);
        drop(here);
        let mut there = run();
        device.trim();
        device.set_memory_cap(Some(device.stats().allocated + 100_000));
        let mut uploads = Uploads::default();
        there.fit(&training, (&train, &held), &mut uploads).unwrap();
        device.set_memory_cap(None);
        assert!(uploads.0[1] - uploads.0[0] >= 4 * 64 * 100, "{uploads:?}", uploads = uploads.0);
        assert_eq!(bits(&there), want);
    });
}
