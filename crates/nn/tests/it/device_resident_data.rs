//! Location of the examples during training: on the device permanently if they fit, otherwise on the host, with the same steps. The devices
//! are those of this process, so that their statistics include nothing else.

use std::ops::ControlFlow;
use std::sync::Arc;

use panoply_cpu::{CpuDriver, CpuOptions};
use panoply_device::Driver;
use panoply_nn::data::{Dataset, digits, npy, reader};
use panoply_nn::optim::AdamWRule;
use panoply_nn::trainer::Callback;
use panoply_nn::{AdamW, EpochReport, LayerSpec, Model, Module, Network, TrainConfig, Trainer};
use panoply_runtime::DeviceOptions;
use panoply_tensor::{Device, Rng, Tensor};

use crate::support::faulty_device::FaultyDevice;

fn run() -> Trainer<Model, AdamWRule> {
    let mut rng = Rng::seed_from_u64(0);
    let network = Network::with_input_size(64)
        .add_layer(LayerSpec::linear(8))
        .add_layer(LayerSpec::Relu {})
        .add_layer(LayerSpec::Dropout { p: 0.2 })
        .add_layer(LayerSpec::linear(10));
    let model = network.build(&mut rng).unwrap();
    Trainer::new(model, AdamW::new(1e-2), rng)
}

/// Bytes that were uploaded to the device by the end of each epoch.
#[derive(Default)]
struct Uploads(Vec<u64>);

impl Callback for Uploads {
    fn on_epoch_end(&mut self, _: &EpochReport) -> ControlFlow<()> {
        self.0.push(Device::current().unwrap().memory_stats().uploaded);
        ControlFlow::Continue(())
    }
}

#[test]
fn after_the_first_epoch_only_the_order_is_uploaded() {
    Device::get("cpu").unwrap().scope(|| {
        let (train, held) = digits::load().unwrap().train_test_split(0.2, &mut Rng::seed_from_u64(1)).unwrap();
        let mut uploads = Uploads::default();
        let before = Device::current().unwrap().memory_stats().uploaded;
        run().fit(&TrainConfig::new(5, 64), &train, &held, &mut uploads).unwrap();
        let each: Vec<u64> = uploads.0.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(each, vec![4 * train.len() as u64; 4], "four bytes for each example and epoch");
        let first = uploads.0[0] - before;
        assert!(first > 4 * (train.features.len() + held.features.len()) as u64, "{first}");
    });
}

/// A device with memory for a step, but not for four times the examples, leaves them on the host.
#[test]
fn training_is_identical_with_examples_on_host_or_device() {
    let device = Device::get("cpu:checked").unwrap();
    device.scope(|| {
        let all = digits::load().unwrap();
        let part = |from: usize, count: usize| all.select(&(from..from + count).collect::<Vec<usize>>());
        let (train, held): (Dataset, Dataset) = (part(0, 100), part(100, 20));
        let training = TrainConfig::new(2, 48);
        let bits = |run: &Trainer<Model, AdamWRule>| -> Vec<u32> {
            let params = run.model.named_parameters();
            params.iter().flat_map(|(_, param)| param.tensor().to_vec::<f32>().unwrap()).map(f32::to_bits).collect()
        };
        let mut here = run();
        let mut uploads = Uploads::default();
        here.fit(&training, &train, &held, &mut uploads).unwrap();
        assert_eq!(uploads.0[1] - uploads.0[0], 4 * 100);
        let want = bits(&here);
        drop(here);
        let mut there = run();
        device.trim();
        device.set_memory_limit(Some(device.memory_stats().allocated + 100_000));
        let mut uploads = Uploads::default();
        there.fit(&training, &train, &held, &mut uploads).unwrap();
        device.set_memory_limit(None);
        assert!(uploads.0[1] - uploads.0[0] >= 4 * 64 * 100, "{uploads:?}", uploads = uploads.0);
        assert_eq!(bits(&there), want);
    });
}

/// A device whose largest buffer holds a batch but not all examples: they stay on the host, also when read from a file.
#[test]
fn training_is_identical_with_examples_larger_than_a_buffer() {
    // SAFETY: only `runtime` uses the devices, and it validates what it passes on.
    let cpu = unsafe { CpuDriver::new(CpuOptions::default()).probe() }.unwrap().swap_remove(0);
    let target = panoply_ir::Target { max_buffer_bytes: 60_000, ..cpu.target().clone() };
    let narrow = Arc::new(FaultyDevice { cpu: cpu.clone(), target, text: |kernel| kernel });
    let all = digits::load().unwrap();
    let part = |from: usize, count: usize| all.select(&(from..from + count).collect::<Vec<usize>>());
    let (train, held): (Dataset, Dataset) = (part(0, 300), part(300, 20));
    assert!(4 * train.features.len() > 60_000);
    let learned = [cpu, narrow].map(|raw| {
        Device::new(raw, DeviceOptions::default()).scope(|| {
            let (mut run, mut uploads) = (run(), Uploads::default());
            run.fit(&TrainConfig::new(2, 48), &train, &held, &mut uploads).unwrap();
            let params = run.model.named_parameters();
            let bits: Vec<u32> = params
                .iter()
                .flat_map(|(_, param)| param.tensor().to_vec::<f32>().unwrap())
                .map(f32::to_bits)
                .collect();
            (uploads.0[1] - uploads.0[0], bits)
        })
    });
    assert_eq!(learned[0].0, 4 * 300, "the examples fit on the device");
    assert!(learned[1].0 >= 4 * 64 * 300, "{}", learned[1].0);
    assert_eq!(learned[0].1, learned[1].1);
}

/// The same for a file of arrays, which is read without a device.
#[test]
fn arrays_larger_than_a_buffer_are_read() {
    let folder = std::env::temp_dir().join(format!("panoply-feed-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    // SAFETY: only `runtime` uses the devices, and it validates what it passes on.
    let cpu = unsafe { CpuDriver::new(CpuOptions::default()).probe() }.unwrap().swap_remove(0);
    let rows: Vec<u8> = (0..4000u32).map(|i| (i % 251) as u8).collect();
    Device::new(cpu.clone(), DeviceOptions::default()).scope(|| {
        npy::save(&Tensor::from_slice(&rows, [500, 8]), &folder.join("x.npy")).unwrap();
        let classes: Vec<i32> = (0..500).map(|i| i % 3).collect();
        npy::save(&Tensor::from_slice(&classes, [500]), &folder.join("y.npy")).unwrap();
    });
    let target = panoply_ir::Target { max_buffer_bytes: 1000, ..cpu.target().clone() };
    let narrow = FaultyDevice { cpu, target, text: |kernel| kernel };
    Device::new(Arc::new(narrow), DeviceOptions::default()).scope(|| {
        let read = reader::open(&folder, &reader::ReadOptions::default()).unwrap();
        assert_eq!((read.dataset.len(), read.dataset.features[250]), (500, 250.0 / 255.0));
        // As a tensor it does not fit.
        let whole = npy::load(&folder.join("x.npy")).and_then(|x| panoply_tensor::eval(&[&(x + 1.0)]));
        assert!(whole.unwrap_err().message().contains("exceeds the maximum buffer size"));
    });
    std::fs::remove_dir_all(&folder).unwrap();
}
