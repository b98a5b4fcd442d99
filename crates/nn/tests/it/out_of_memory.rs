//! Steps that do not fit into memory and full disks are reported before anything is lost. The devices are those of this process, so a
//! memory limit affects only its own tests.

#[cfg(unix)]
use std::path::Path;
#[cfg(unix)]
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use panoply_nn::data::{Dataset, digits};
use panoply_nn::trainer::NoCallback;
use panoply_nn::{AdamW, LayerSpec, Model, Module, Network, TrainConfig, Trainer};
use panoply_tensor::{Device, Rng};

fn wide() -> (Trainer<Model, panoply_nn::optim::AdamWRule>, Dataset) {
    let mut rng = Rng::seed_from_u64(0);
    let network = Network::with_input_size(64)
        .add_layer(LayerSpec::linear(512))
        .add_layer(LayerSpec::Relu {})
        .add_layer(LayerSpec::linear(10));
    let model = network.build(&mut rng).unwrap();
    (Trainer::new(model, AdamW::new(1e-3), rng), digits::load().unwrap())
}

/// The memory limit is shared by all tests of this program, so they run one at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn a_step_that_cannot_fit_is_rejected_before_it_starts() {
    let _alone = alone();
    let device = Device::get("cpu").unwrap();
    device.scope(|| {
        let (mut run, data) = wide();
        let training = TrainConfig::new(1, 1024);
        let plan = run.memory_plan(&training, &data, 1024).unwrap();
        assert!(plan.allocated_bytes() > 1024 * 512 * 4, "{plan:?}");
        assert_eq!(run.optimizer.steps, 0);
        let half = run.memory_plan(&training, &data, 512).unwrap();
        assert!(half.allocated_bytes() < plan.allocated_bytes());
        // Enough memory for a step of half the size, but not of the full size.
        device.trim();
        device.set_memory_limit(Some(
            device.memory_stats().allocated + (plan.allocated_bytes() + half.allocated_bytes()) / 2,
        ));
        let before: Vec<f32> = run.model.named_parameters()[0].1.tensor().to_vec().unwrap();
        let error = run.fit(&training, &data, &data, &mut NoCallback).unwrap_err();
        assert!(error.is_out_of_memory(), "{error}");
        let message = error.message();
        let suggested: usize =
            message.split("a batch of ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap().parse().unwrap();
        assert!(message.starts_with("out of memory on cpu: a step of 1024 examples needs "), "{message}");
        assert!((64..=512).contains(&suggested), "{message}");
        assert_eq!((before, run.optimizer.steps), (run.model.named_parameters()[0].1.tensor().to_vec().unwrap(), 0));
        // The suggested batch size fits.
        let few = data.select(&(0..suggested).collect::<Vec<usize>>());
        run.fit(&TrainConfig::new(1, suggested), &few, &few, &mut NoCallback).unwrap();
        assert_eq!(run.optimizer.steps, 1);
        device.trim();
        device.set_memory_limit(Some(device.memory_stats().allocated + 200_000));
        let error = run.fit(&TrainConfig::new(2, 64), &data, &data, &mut NoCallback).unwrap_err();
        assert!(error.message().ends_with("not even one example fits; use a smaller network"), "{error}");
        device.set_memory_limit(None);
    });
}

/// Accumulated gradients and averaged weights each need the memory of the parameters in addition to a step.
#[test]
fn memory_between_steps_is_counted() {
    let _alone = alone();
    let device = Device::get("cpu").unwrap();
    device.scope(|| {
        let (run, data) = wide();
        let few = data.select(&(0..64).collect::<Vec<usize>>());
        let step = run.memory_plan(&TrainConfig::new(0, 32), &few, 32).unwrap().allocated_bytes();
        let params = 4 * (64 * 512 + 512 + 512 * 10 + 10);
        device.trim();
        // In addition, three times 64 examples of 260 bytes are resident.
        device.set_memory_limit(Some(device.memory_stats().allocated + step + 3 * 64 * 260 + params / 2));
        let fits = |training: TrainConfig| run.clone().fit(&training, &few, &few, &mut NoCallback);
        let error = |training: TrainConfig| fits(training).unwrap_err().to_string();
        fits(TrainConfig::new(0, 32)).unwrap();
        for training in [
            TrainConfig { accumulate_grad_batches: 2, ..TrainConfig::new(0, 32) },
            TrainConfig { ema_decay: Some(0.9), ..TrainConfig::new(0, 32) },
        ] {
            let message = error(training);
            assert!(message.starts_with("out of memory on cpu: a step of 32 examples needs "), "{message}");
        }
        device.set_memory_limit(None);
    });
}

/// Validation data take memory on the device as well: with large validation data the suggested batch is smaller.
#[test]
fn a_suggested_batch_leaves_room_for_validation_data() {
    let _alone = alone();
    let device = Device::get("cpu").unwrap();
    device.scope(|| {
        let (run, data) = wide();
        let all: Vec<usize> = (0..data.len()).collect();
        let (train, few) = (data.select(&all[..400]), data.select(&all[400..420]));
        // Twice the remaining examples: 2754 examples of 260 bytes.
        let many: Vec<usize> = all[420..].iter().cycle().take(2 * (data.len() - 420)).copied().collect();
        let many = data.select(&many);
        let step = run.memory_plan(&TrainConfig::new(1, 256), &train, 256).unwrap().allocated_bytes();
        device.trim();
        // Memory for that step and for a few examples. The large validation set is also copied to the device, because it is smaller than a
        // quarter of the limit.
        let cap = step * 8 / 7 + 300_000;
        assert!((260 * many.len()) as u64 + 60_000 < cap / 4, "{cap}");
        device.set_memory_limit(Some(device.memory_stats().allocated + cap));
        let suggested =
            |held: &Dataset| run.suggest_batch_size(&TrainConfig::new(1, 64), &train, held).unwrap().unwrap();
        let (beside_few, beside_many) = (suggested(&few), suggested(&many));
        assert!(beside_many < beside_few, "{beside_many} beside many, {beside_few} beside few");
        // A run with the suggested size fits; validation runs in parts that fit.
        let mut run = run.clone();
        run.fit(&TrainConfig::new(1, beside_many), &train, &many, &mut NoCallback).unwrap();
        assert!(run.optimizer.steps > 0);
        device.set_memory_limit(None);
    });
}

#[cfg(unix)]
#[test]
fn a_full_disk_keeps_the_previous_file() {
    let _alone = alone();
    if let Some(file) = std::env::var_os(LIMITED) {
        return Device::get("cpu").unwrap().scope(|| cannot_save(Path::new(&file)));
    }
    Device::get("cpu").unwrap().scope(|| {
        let folder = std::env::temp_dir().join(format!("panoply-full-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("run.safetensors");
        let (mut run, data) = wide();
        let part = data.select(&(0..128).collect::<Vec<usize>>());
        let training = TrainConfig { checkpoint_path: Some(file.clone()), ..TrainConfig::new(2, 64) };
        run.fit(&TrainConfig { epochs: 1, ..training.clone() }, &part, &part, &mut NoCallback).unwrap();
        let before = std::fs::read(&file).unwrap();
        // A process that may write no more than a few KiB to a file: its write fails as on a full disk.
        let limited = "trap '' XFSZ; ulimit -f 8; exec \"$0\" --exact out_of_memory::a_full_disk_keeps_the_previous_file --nocapture";
        let program = std::env::current_exe().unwrap();
        let output = Command::new("sh").args(["-c", limited]).arg(program).env(LIMITED, &file).output().unwrap();
        let ran = String::from_utf8_lossy(&output.stdout).contains("1 passed");
        assert!(output.status.success() && ran, "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(std::fs::read(&file).unwrap(), before);
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "no temporary file remains");
        let (mut again, _) = wide();
        again.load_checkpoint(&file).unwrap();
        assert_eq!(again.state.history.len(), 1);
        std::fs::remove_dir_all(&folder).unwrap();
    });
}

/// Environment variable with the file of a process that cannot write all of it.
#[cfg(unix)]
const LIMITED: &str = "PANOPLY_TEST_LIMITED_FILE";

/// Resumes a run whose checkpoint cannot be written.
#[cfg(unix)]
fn cannot_save(file: &Path) {
    let (mut run, data) = wide();
    run.load_checkpoint(file).unwrap();
    let part = data.select(&(0..128).collect::<Vec<usize>>());
    let training = TrainConfig { checkpoint_path: Some(file.to_path_buf()), ..TrainConfig::new(2, 64) };
    let error = run.fit(&training, &part, &part, &mut NoCallback).unwrap_err();
    assert!(error.message().starts_with("cannot write ") && error.to_string().contains("File too large"), "{error}");
    assert!(error.notes().iter().any(|note| note == "the file is unchanged"), "{error}");
}
