//! Autotuning on a device that computes nothing and whose timings depend on the group size of a launch.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use panoply::internal::NullDevice;
use panoply::runtime::{DeviceOptions, ProgramCacheStats};
use panoply::{Device, Tensor, plan_cache_stats};
use panoply_device::{DeviceCommand, Dispatch};
use panoply_ir::Target;

/// A folder for this test, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        let folder = std::env::temp_dir().join(format!("panoply-tuning-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut fs::DirBuilder::new(), 0o700).create(&folder).unwrap();
        #[cfg(not(unix))]
        fs::create_dir(&folder).unwrap();
        Folder(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Launches with groups of 64 take time proportional to the number of groups, all others very long.
fn takes_ns(dispatch: &Dispatch) -> u64 {
    let items = dispatch.group_size.iter().product::<u32>();
    let groups: u64 =
        dispatch.grid.iter().zip(dispatch.group_size).map(|(grid, group)| grid.div_ceil(group.into())).product();
    if items == 64 { groups } else { 1_000_000 }
}

fn process(folder: &Path, tune: bool) -> (Device, Arc<NullDevice>) {
    let null = Arc::new(NullDevice::new(Target::cuda_minimum(80)).with_timing(takes_ns));
    let options = DeviceOptions { cache_dir: Some(folder.to_path_buf()), autotune: tune, ..DeviceOptions::default() };
    (Device::new(null.clone(), options), null)
}

/// Returns group size and number of groups of each launch of a 512 × 256 × 512 product.
fn launches(device: &Device, null: &NullDevice) -> Vec<([u32; 3], u64)> {
    device.scope(|| {
        let [x, w] =
            [[512, 256], [256, 512]].map(|shape| Tensor::from_slice(&vec![0.5f32; shape[0] * shape[1]], shape));
        panoply::eval(&[&x, &w]).unwrap();
        null.take_steps();
        x.matmul(&w).eval().unwrap();
    });
    let dispatched = |(_, step): (_, DeviceCommand)| match step {
        DeviceCommand::Dispatch(dispatch) => {
            let [x, y, z] = dispatch.group_size;
            Some((dispatch.group_size, dispatch.grid.iter().product::<u64>() / u64::from(x * y * z)))
        }
        _ => None,
    };
    null.take_steps().into_iter().filter_map(dispatched).collect()
}

#[test]
fn the_fastest_variant_is_kept_for_later_processes() {
    let folder = Folder::new();
    let measured = |device: &Device| device.program_cache_stats().autotuned;

    let (device, null) = process(&folder.0, false);
    let usual = launches(&device, &null);
    assert_eq!((usual.len(), measured(&device)), (1, 0), "autotuning is off by default");
    assert_ne!(usual[0].0, [8, 8, 1]);

    let (device, null) = process(&folder.0, true);
    let first = launches(&device, &null);
    assert!(first.len() > 4 * 5, "each of several variants runs several times: {first:?}");
    // The larger of the two tiles with groups of 64: 64 × 64 elements.
    let best = ([8, 8, 1], 8 * 8);
    assert!(first.contains(&best));
    assert_eq!(measured(&device), 1);
    assert_eq!(launches(&device, &null), [best], "later runs use it immediately");
    let replays = plan_cache_stats().replays;
    assert_eq!(launches(&device, &null), [best], "and so does the recorded command buffer");
    assert_eq!(plan_cache_stats().replays, replays + 1);
    device.set_autotune(false);
    assert_eq!(launches(&device, &null), usual, "without autotuning the default is used");

    let (device, null) = process(&folder.0, true);
    assert_eq!(launches(&device, &null), [best], "the choice of the earlier process is used");
    assert_eq!(
        device.program_cache_stats(),
        ProgramCacheStats { disk_hits: 2, ..ProgramCacheStats::default() },
        "and its compiled programs"
    );

    // A damaged record is measured again.
    drop((device, null));
    for file in fs::read_dir(folder.0.join("programs")).unwrap() {
        let path = file.unwrap().path();
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    }
    let (device, null) = process(&folder.0, true);
    assert!(launches(&device, &null).len() > 20);
    assert_eq!(measured(&device), 1);
}
