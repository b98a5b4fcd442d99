//! Runs that released versions wrote can be loaded, give the same results, and can be resumed (see `saved_runs/README.md`).

use std::path::{Path, PathBuf};

use crate::support::temp_dir::{TempDir, text};
use panoply::nn::data::reader;
use panoply::nn::{Loss, Network, checkpoint, evaluate};
use panoply::{Device, Rng};
use serde_json::Value;

/// Returns the folders of all runs of all versions.
fn runs() -> Vec<PathBuf> {
    let folders = |path: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
        let mut folders: Vec<PathBuf> = entries.filter(|path| path.is_dir()).collect();
        folders.sort();
        folders
    };
    let all = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/saved_runs");
    folders(&all).iter().flat_map(|version| folders(version)).collect()
}

fn manifest(run: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(run.join("manifest.json")).unwrap()).unwrap()
}

#[test]
fn saved_models_give_the_recorded_loss() {
    Device::get("cpu").unwrap().scope(|| {
        let mut seen = 0;
        for run in runs() {
            let manifest = manifest(&run);
            if manifest["data"]["path"] != "digits" {
                continue;
            }
            let network: Network = serde_json::from_value(manifest["network"].clone()).unwrap();
            // The same split as in `panoply train`.
            let mut rng = Rng::seed_from_u64(manifest["settings"]["seed"].as_u64().unwrap());
            let (_, held) = reader::digits().unwrap().dataset.train_test_split(0.2, &mut rng).unwrap();
            let mut model = network.build(&mut rng).unwrap();
            checkpoint::load(&mut model, &run.join("model.safetensors")).unwrap();
            let found = evaluate(&model, &held, &Loss::default()).unwrap();
            let want = manifest["result"]["best_epoch_report"]["val_loss"].as_f64().unwrap();
            assert!((found.loss - want).abs() < 1e-4 * want, "{}: loss {}, expected {want}", run.display(), found.loss);
            seen += 1;
        }
        assert!(seen >= 4, "{seen} runs");
    });
}

#[test]
fn saved_runs_are_used_exported_and_resumed() {
    let dir = TempDir::new("released");
    dir.write("wine.csv", include_str!("../data/wine.csv"));
    for (at, run) in runs().into_iter().enumerate() {
        let name = format!("run{at}");
        std::fs::create_dir_all(dir.0.join(&name)).unwrap();
        for file in ["manifest.json", "model.safetensors", "checkpoint.safetensors"] {
            std::fs::copy(run.join(file), dir.0.join(&name).join(file)).unwrap();
        }
        let mut manifest = manifest(&run);
        if manifest["data"]["path"].as_str().unwrap().ends_with("wine.csv") {
            // The table was in another folder.
            manifest["data"]["path"] = "wine.csv".into();
            dir.write(&format!("{name}/manifest.json"), manifest.to_string());
        }
        assert!(dir.json(&["predict", &name, "--num-examples", "3"])["labeled"] == 3, "{}", run.display());
        let exported = std::process::Command::new(env!("CARGO_BIN_EXE_panoply"))
            .args(["export", &name])
            .current_dir(&dir.0)
            .output()
            .unwrap();
        assert!(exported.status.success(), "{}: {}", run.display(), text(&exported.stderr));
        let before = manifest["result"]["epochs"].as_u64().unwrap();
        let longer = dir.json(&["train", "--resume", &name, "--epochs", &(before + 1).to_string()]);
        let history = longer["history"].as_array().unwrap();
        assert_eq!(history.len() as u64, before + 1);
        let (last, best) = (&history[before as usize], &manifest["result"]["best_epoch_report"]["val_loss"]);
        assert!(last["val_loss"].as_f64() < best.as_f64().map(|best| 1.2 * best), "{}: {longer}", run.display());
    }
}
