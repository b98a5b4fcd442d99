//! Kernels are compiled once: within a process by build function and content, across processes through the disk cache.

use crate::support::test_device;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use panoply_ir::verify::verify;
use panoply_ir::{Error, ErrorKind, Target};
use panoply_runtime::{Device, DeviceOptions, ExternalKernel, Launch, LaunchArg, ProgramCacheStats};
use test_device::{Options, TestDevice, build_count, build_mix, build_saxpy, build_step, test_device};

#[test]
fn build_function_is_called_once_per_device() {
    let (device, test_device) = test_device(Options::default());
    let first = device.compile_fn(build_mix).unwrap();
    let second = device.compile_fn(build_mix).unwrap();
    assert!(Arc::ptr_eq(&first, &second));
    assert_eq!(
        device.program_cache_stats(),
        ProgramCacheStats { compiled: 1, memory_hits: 1, ..ProgramCacheStats::default() }
    );
    let kernel = Arc::new(verify(build_mix().unwrap()).unwrap());
    assert!(Arc::ptr_eq(&first, &device.compile(&kernel).unwrap()), "an equal kernel is the same program");
    assert_eq!(format!("{first:?}"), "kernel mix(from: &[u32], to: &mut [u32]) on cpu");
    assert_eq!(test_device.state().programs.len(), 1);
}

#[test]
fn unused_programs_are_trimmed() {
    let (device, test_device) = test_device(Options::default());
    let held = device.compile_fn(build_mix).unwrap();
    device.compile_fn(build_step).unwrap();
    device.trim();
    assert_eq!(test_device.state().programs.len(), 1);
    assert!(Arc::ptr_eq(&held, &device.compile_fn(build_mix).unwrap()));
    drop(held);
    drop(device);
    assert!(test_device.state().programs.is_empty());
}

/// Creates a kernel per number, like a program whose constant differs in each step.
fn numbered(number: usize) -> ExternalKernel {
    let source = format!("kernel void own(global float *y) {{ y[0] = {number}; }}");
    ExternalKernel::new("own", [64, 1, 1]).output::<f32>("y").opencl_c(&source)
}

#[test]
fn unused_programs_are_bounded() {
    let (device, test_device) = self::test_device(Options { target: Target::opencl_minimum(), ..Options::default() });
    let held = device.load_external(&numbered(0)).unwrap();
    let mut most = 0;
    for number in 1..5000 {
        device.load_external(&numbered(number)).unwrap();
        most = most.max(test_device.state().programs.len());
    }
    assert!(most <= 1026, "{most} programs");
    let compiled = test_device.counts().texts_compiled;
    assert!(Arc::ptr_eq(&held, &device.load_external(&numbered(0)).unwrap()), "programs in use stay");
    (4900..5000).for_each(|number| drop(device.load_external(&numbered(number)).unwrap()));
    assert_eq!(test_device.counts().texts_compiled, compiled, "the most recent programs stay");
    device.load_external(&numbered(1)).unwrap();
    assert_eq!(test_device.counts().texts_compiled, compiled + 1);
    let held: Vec<_> = (1..3000).map(|number| device.load_external(&numbered(number)).unwrap()).collect();
    assert!(test_device.state().programs.len() > held.len(), "programs in use are not bounded");
    drop(held);
    (6000..8100).for_each(|number| drop(device.load_external(&numbered(number)).unwrap()));
    assert!(test_device.state().programs.len() <= 1026, "{} programs", test_device.state().programs.len());
}

#[test]
fn warm_up_compiles_all_kernels() {
    let (device, _) = test_device(Options::default());
    device.warm_up(&[build_mix, build_step, build_saxpy]).unwrap();
    device.warm_up(&[]).unwrap();
    assert_eq!(device.program_cache_stats().compiled, 3);
    let (device, test_device) = self::test_device(Options::default());
    test_device.state().refuse_program = Some(Error::new(ErrorKind::CompileFailed, "no"));
    assert!(device.warm_up(&[build_mix, build_step]).unwrap_err().is_compile_failed());
}

/// The results are in order and each kernel is compiled once. After a failure, the same kernels can be compiled.
#[test]
fn compile_all_deduplicates_and_keeps_order() {
    let (device, test_device) = self::test_device(Options { target: Target::opencl_minimum(), ..Options::default() });
    let kernels = [build_mix, build_step, build_saxpy, build_count, build_mix]
        .map(|build| Arc::new(verify(build().unwrap()).unwrap()));
    let kernels = kernels.each_ref();
    test_device.state().refuse_program = Some(Error::new(ErrorKind::CompileFailed, "no"));
    assert_eq!(device.compile_all(&kernels).unwrap_err().message(), "no");
    let prepared = device.compile_all(&kernels).unwrap();
    let names: Vec<&str> = prepared.iter().map(|one| one.name()).collect();
    assert_eq!(names, ["mix", "step", "saxpy", "count", "mix"]);
    assert!(Arc::ptr_eq(&prepared[0], &prepared[4]));
    assert_eq!((test_device.counts().texts_compiled, device.compile_all(&[]).unwrap().len()), (4, 0));
}

#[test]
fn index_width_depends_on_the_launch() {
    let (device, test_device) = self::test_device(Options { target: Target::opencl_minimum(), ..Options::default() });
    let launch = |n: usize, grid: usize| {
        let mut y = device.zeros::<u32>(8).unwrap();
        Launch::new(build_count, vec![n.into(), (&mut y).into()]).launch(grid)
    };
    for (n, grid, compiled) in [
        (0, 8, 1),
        (7, 8, 1),
        (1 << 33, 8, 2),
        (1 << 33, 8, 2),
        (1 << 40, 9, 2),
        ((1 << 31) - 8, 8, 2),
        (0, 1 << 32, 2),
        (5, 8, 2),
    ] {
        launch(n, grid).unwrap();
        assert_eq!(test_device.counts().texts_compiled, compiled, "n = {n} over {grid}");
    }
    drop(device);
    assert!(test_device.state().programs.is_empty(), "both were released");

    let target = Target { int64: false, ..Target::opencl_minimum() };
    let (device, test_device) = self::test_device(Options { target, ..Options::default() });
    let mut y = device.zeros::<u32>(8).unwrap();
    let mut launch = |n: LaunchArg<'static>, grid: usize| {
        Launch::new(build_count, vec![n, (&mut y).into()]).launch(grid).map_err(|error| error.message().to_string())
    };
    launch(3usize.into(), 8).unwrap();
    assert_eq!(
        launch((1usize << 31).into(), 8).unwrap_err(),
        "kernel count: n reaches 2147483648, but the index limit of cpu is 2147483647; launch it in parts"
    );
    assert_eq!(
        launch(3usize.into(), 1 << 31).unwrap_err(),
        "kernel count: a grid of 2147483648×1×1 exceeds the index range of cpu; launch it in parts"
    );
    assert_eq!(test_device.counts().texts_compiled, 1);
}

/// A temporary folder, removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder = std::env::temp_dir().join(format!("panoply-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap();
        #[cfg(unix)]
        permit(&folder, 0o700);
        Folder(folder)
    }

    fn files(&self) -> Vec<PathBuf> {
        let Ok(listing) = fs::read_dir(self.0.join("programs")) else { return Vec::new() };
        listing.map(|file| file.unwrap().path()).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(unix)]
fn permit(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Returns a device that takes source text, in the state of a new process.
fn process(folder: &Path, driver: &str) -> (Device, Arc<TestDevice>) {
    let target = Target { name: driver.into(), ..Target::opencl_minimum() };
    let test_device = TestDevice::new(Options { target, ..Options::default() });
    (
        Device::new(
            test_device.clone(),
            DeviceOptions { cache_dir: Some(folder.to_path_buf()), ..DeviceOptions::default() },
        ),
        test_device,
    )
}

#[test]
fn next_process_loads_programs_from_disk() {
    let folder = Folder::new("next-process");
    let (device, test_device) = process(&folder.0, "driver 1");
    device.compile_fn(build_mix).unwrap();
    device.compile_fn(build_step).unwrap();
    assert_eq!((test_device.counts().texts_compiled, test_device.counts().binaries_loaded), (2, 0));
    assert_eq!(folder.files().len(), 2, "{:?}", folder.files());

    let (device, test_device) = process(&folder.0, "driver 1");
    device.compile_fn(build_mix).unwrap();
    assert_eq!((test_device.counts().texts_compiled, test_device.counts().binaries_loaded), (0, 1));
    assert_eq!(device.program_cache_stats(), ProgramCacheStats { disk_hits: 1, ..ProgramCacheStats::default() });

    let (device, test_device) = process(&folder.0, "driver 2");
    device.compile_fn(build_mix).unwrap();
    assert_eq!(
        (test_device.counts().texts_compiled, test_device.counts().binaries_loaded),
        (1, 0),
        "another driver, another program"
    );
    assert_eq!(folder.files().len(), 3);
}

#[test]
fn external_source_is_cached_on_disk() {
    let folder = Folder::new("own-source");
    let external =
        ExternalKernel::new("own", [64, 1, 1]).output::<f32>("y").opencl_c("kernel void own(global float *y) {}");
    for (compiled, loaded) in [(1, 0), (0, 1)] {
        let (device, test_device) = process(&folder.0, "driver");
        device.load_external(&external).unwrap();
        assert_eq!((test_device.counts().texts_compiled, test_device.counts().binaries_loaded), (compiled, loaded));
    }
    let (device, test_device) = process(&folder.0, "driver");
    device.load_external(&external.clone().opencl_c("kernel void another() {}")).unwrap();
    assert_eq!(test_device.counts().binaries_loaded, 1, "its first program is the same");
    test_device.state().refuse_program =
        Some(Error::new(ErrorKind::CompileFailed, "no").note("own.cl:1:13: error: no"));
    let error = device.load_external(&external.input::<f32>("x")).unwrap_err();
    assert_eq!(error.notes().last().map(String::as_str), Some("line 1: kernel void own(global float *y) {}"));
}

#[test]
fn damaged_cache_files_are_replaced() {
    let folder = Folder::new("damaged");
    let (device, _) = process(&folder.0, "driver");
    device.compile_fn(build_mix).unwrap();
    let file = folder.files().remove(0);
    let good = fs::read(&file).unwrap();
    let flipped = |at: usize| {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        bytes
    };
    let every_byte = (0..good.len()).map(flipped);
    let every_length = (0..good.len()).map(|len| good[..len].to_vec());
    let others = [[&good[..], b"more"].concat(), b"not ours at all".to_vec()];
    for damaged in every_byte.chain(every_length).chain(others) {
        fs::write(&file, &damaged).unwrap();
        let (device, test_device) = process(&folder.0, "driver");
        device.compile_fn(build_mix).unwrap();
        assert_eq!(test_device.counts().binaries_loaded, 0, "{damaged:?} was loaded");
        assert_eq!(
            device.program_cache_stats(),
            ProgramCacheStats { compiled: 1, rejected_files: 1, ..ProgramCacheStats::default() }
        );
        assert_eq!(fs::read(&file).unwrap(), good, "replaced by a good one");
    }
    // A file of another program with this name.
    device.compile_fn(build_step).unwrap();
    let other = folder.files().into_iter().find(|other| *other != file).unwrap();
    fs::copy(&other, &file).unwrap();
    let (device, test_device) = process(&folder.0, "driver");
    device.compile_fn(build_mix).unwrap();
    assert_eq!(test_device.counts().binaries_loaded, 0);
    assert_eq!(fs::read(&file).unwrap(), good);
    assert_eq!(folder.files().len(), 2, "no temporary files are left: {:?}", folder.files());
}

#[test]
fn disk_cache_size_is_bounded_during_a_process() {
    let folder = Folder::new("bounded");
    let (device, _) = process(&folder.0, "driver");
    device.load_external(&numbered(0)).unwrap();
    // Four sparse files that count as 200 MiB each, older than the following ones.
    for number in 0..4 {
        let file = fs::File::create(folder.0.join("programs").join(format!("{number:032x}"))).unwrap();
        file.set_len(200 << 20).unwrap();
        file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(1000 + number)).unwrap();
    }
    (1..=300).for_each(|number| drop(device.load_external(&numbered(number)).unwrap()));
    let bytes: u64 = folder.files().iter().map(|file| fs::metadata(file).unwrap().len()).sum();
    assert!(bytes <= 384 << 20, "{bytes} bytes");
    assert_eq!(folder.files().len(), 302, "the oldest were removed");
}

#[test]
fn leftover_files_of_the_same_process_id_are_harmless() {
    let folder = Folder::new("left");
    let programs = folder.0.join("programs");
    fs::create_dir(&programs).unwrap();
    #[cfg(unix)]
    permit(&programs, 0o700);
    for stem in [".probe", ".new"] {
        for number in 0..400 {
            fs::write(programs.join(format!("{stem}-{}-{number}", std::process::id())), b"").unwrap();
        }
    }
    process(&folder.0, "driver").0.compile_fn(build_mix).unwrap();
    let (device, _) = process(&folder.0, "driver");
    device.compile_fn(build_mix).unwrap();
    assert_eq!(device.program_cache_stats(), ProgramCacheStats { disk_hits: 1, ..ProgramCacheStats::default() });
}

#[test]
fn folder_in_place_of_a_cache_file_is_harmless() {
    let folder = Folder::new("folder");
    process(&folder.0, "driver").0.compile_fn(build_mix).unwrap();
    let file = folder.files().remove(0);
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    let (device, test_device) = process(&folder.0, "driver");
    device.compile_fn(build_mix).unwrap();
    assert_eq!(test_device.counts().texts_compiled, 1);
    assert_eq!(folder.files(), [file], "the attempt to store left nothing");
}

#[cfg(unix)]
#[test]
fn cache_is_disabled_unless_private() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new("private");
    process(&folder.0, "driver").0.compile_fn(build_mix).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&folder.0.join("programs")), 0o700);
    assert_eq!(mode(&folder.files()[0]), 0o600);
    for open in [folder.0.clone(), folder.0.join("programs")] {
        permit(&open, 0o777);
        let (device, test_device) = process(&folder.0, "driver");
        device.compile_fn(build_mix).unwrap();
        assert_eq!(test_device.counts().binaries_loaded, 0, "a folder writable by others is not trusted");
        permit(&open, 0o700);
    }
    let linked = Folder::new("linked");
    std::os::unix::fs::symlink(folder.0.join("programs"), linked.0.join("programs")).unwrap();
    let (device, test_device) = process(&linked.0, "driver");
    device.compile_fn(build_mix).unwrap();
    assert_eq!(test_device.counts().binaries_loaded, 0, "a symbolic link is not trusted");
}

#[test]
fn uncreatable_cache_folder_is_not_an_error() {
    let folder = Folder::new("unmakable");
    fs::write(folder.0.join("file"), b"").unwrap();
    let (device, test_device) = process(&folder.0.join("file"), "driver");
    device.compile_fn(build_mix).unwrap();
    assert_eq!(test_device.counts().texts_compiled, 1);
}
