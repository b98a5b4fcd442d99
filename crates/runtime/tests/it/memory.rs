//! Tests of buffers, the memory pool and its statistics. The simulated device counts the driver calls.

use crate::support::all_devices;
use crate::support::test_device;

use std::sync::Arc;

use panoply_ir::DType;
use panoply_ir::random::Random;
use panoply_runtime::env::PoolSetting;
use panoply_runtime::{
    AlignedBuffer, Buffer, Command, Device, DeviceOptions, Grid, HostBytes, Launch, LaunchArg, Storage, map_file,
};
use test_device::{Options, build_mix, test_device};

const MIB: u64 = 1 << 20;

fn capped(cap: u64) -> (Device, std::sync::Arc<test_device::TestDevice>) {
    let test_device = test_device::TestDevice::new(Options::default());
    (
        Device::new(test_device.clone(), DeviceOptions { pool: PoolSetting::Cap(cap), ..DeviceOptions::default() }),
        test_device,
    )
}

#[test]
fn buffer_contents_round_trip() {
    let (device, _) = test_device(Options::default());
    let data: Vec<f32> = (0..1000).map(|i| i as f32 / 7.0).collect();
    let mut x = device.buffer(&data).unwrap();
    assert_eq!(x.len(), 1000);
    assert_eq!(x.to_vec().unwrap(), data);
    assert_eq!(x.to(&device).unwrap().to_vec().unwrap(), data);
    x.slice_mut(10..=11).unwrap().fill(9.0).unwrap();
    assert_eq!(x.slice(9..13).unwrap().to_vec().unwrap(), [data[9], 9.0, 9.0, data[12]]);
    let mut y = device.zeros(1000).unwrap();
    assert_eq!(y.to_vec().unwrap(), [0.0; 1000]);
    y.copy_from(&x).unwrap();
    assert_eq!(y.to_vec().unwrap()[10..12], [9.0, 9.0]);
    assert_eq!(format!("{x:?}"), "f32[1000] on cpu");
    let (low, mut high) = y.split_at_mut(400).unwrap();
    high.slice_mut(..400).unwrap().copy_from(&low).unwrap();
    assert_eq!(y.slice(400..800).unwrap().to_vec().unwrap(), y.slice(..400).unwrap().to_vec().unwrap());
    assert_eq!(device.full(3, -2i64).unwrap().to_vec().unwrap(), [-2; 3]);
}

#[test]
fn empty_buffers_are_supported() {
    let (device, _) = test_device(Options::default());
    let mut x = device.buffer::<f32>(&[]).unwrap();
    assert!(x.is_empty());
    x.write(&[]).unwrap();
    x.fill(1.0).unwrap();
    assert!(x.to_vec().unwrap().is_empty());
    assert!(x.read_async().unwrap().wait().unwrap().is_empty());
    assert_eq!(x.to(&device).unwrap().len(), 0);
    assert!(device.buffer(&[1u8]).unwrap().slice(1..).unwrap().is_empty());
}

#[test]
fn copies_between_devices_pass_through_the_host() {
    let ((one, _), (two, _)) =
        (test_device(Options::default()), test_device(Options { index: 1, ..Options::default() }));
    let x = one.buffer(&[1u16, 2, 3]).unwrap();
    let y = x.to(&two).unwrap();
    assert_eq!(y.device(), &two);
    assert_eq!(y.to_vec().unwrap(), [1, 2, 3]);
    assert_eq!((one.memory_stats().downloaded, two.memory_stats().uploaded), (6, 6));
}

#[test]
fn freed_memory_is_reused() {
    let (device, test_device) = test_device(Options::default());
    for bytes in [1, 300, 700, 5000, 100_000, 3_000_000] {
        drop(device.allocate(bytes).unwrap());
        drop(device.allocate(bytes).unwrap());
    }
    assert_eq!(test_device.counts().allocations, 6);
    assert_eq!(device.memory_stats().reused, 6);
    drop(device.allocate(2_700_000).unwrap());
    assert_eq!(device.memory_stats().reused, 7, "a large request reuses a block up to a seventh larger");
    drop(device.allocate(2_000_000).unwrap());
    assert_eq!(device.memory_stats().reused, 7, "larger blocks are not reused");
}

/// One buffer at a time, each slightly longer than the previous one, whose memory it therefore cannot reuse.
#[test]
fn reserved_memory_is_bounded_by_peak_use() {
    let (device, test_device) = test_device(Options::default());
    for count in 1..500u64 {
        drop(device.allocate(count * 24_000).unwrap());
        let stats = device.memory_stats();
        assert!(stats.reserved <= 4 * stats.peak_allocated.next_multiple_of(64) + 64 * MIB, "{stats}");
        assert_eq!(stats.reserved, test_device.counts().used);
    }
    assert!(device.memory_stats().peak_reserved <= 4 * 12 * MIB + 64 * MIB);
    // The block freed last is still in the pool.
    let (reused, before) = (device.memory_stats().reused, test_device.counts().allocations);
    drop(device.allocate(499 * 24_000).unwrap());
    assert_eq!((device.memory_stats().reused, test_device.counts().allocations), (reused + 1, before));
    // Two buffers at a time with two growing sizes, one of them older.
    let mut held = Vec::new();
    for count in 1..2000u64 {
        held.push(device.allocate(70_000 + count * 900).unwrap());
        if held.len() > 20 {
            held.remove(0);
        }
        let stats = device.memory_stats();
        assert!(stats.reserved <= 4 * stats.peak_allocated.next_multiple_of(64) + 64 * MIB, "{stats}");
    }
}

/// Sizes that repeat in each step are allocated from the driver only once.
#[test]
fn steady_loop_reuses_all_allocations() {
    let (device, test_device) = test_device(Options::default());
    let mut random = Random::new(5);
    let steps: Vec<(u64, usize)> = (0..300).map(|_| (1 + random.below(4 << 20), random.below(12) as usize)).collect();
    let mut asked = Vec::new();
    for _ in 0..6 {
        let mut held: Vec<Storage> = Vec::new();
        for (bytes, keep) in &steps {
            held.push(device.allocate(*bytes).unwrap());
            held.truncate(1 + keep);
        }
        drop(held);
        asked.push(test_device.counts().allocations);
    }
    assert!(asked[2..].iter().all(|count| *count == asked[2]), "{asked:?}");
}

#[test]
fn statistics_are_consistent() {
    let (device, test_device) = test_device(Options::default());
    let mut random = Random::new(7);
    let mut held: Vec<Storage> = Vec::new();
    let mut most = 0;
    for _ in 0..2000 {
        if random.chance(45) && !held.is_empty() {
            held.swap_remove(random.below(held.len() as u64) as usize);
        } else {
            let doubling = random.below(18);
            held.push(device.allocate(1 + random.below(1 << doubling)).unwrap());
        }
        let stats = device.memory_stats();
        most = most.max(held.iter().map(Storage::bytes).sum());
        assert_eq!(stats.allocated, held.iter().map(Storage::bytes).sum::<u64>());
        assert_eq!(stats.peak_allocated, most);
        assert_eq!(stats.buffers, held.len() as u64);
        assert_eq!(stats.reserved, test_device.counts().used, "bytes allocated by the driver");
        assert_eq!(stats.allocations - stats.reused, test_device.counts().allocations);
    }
    drop(held);
    let stats = device.memory_stats();
    assert_eq!((stats.allocated, stats.buffers), (0, 0));
    assert_eq!(device.memory_by_tag(), []);
    assert!(stats.reserved > 0);
    assert_eq!(device.trim(), stats.reserved);
    assert_eq!((device.memory_stats().reserved, test_device.counts().used), (0, 0));
}

#[test]
fn pool_can_be_filled_to_the_cap_exactly() {
    for megabyte in [MIB, 1_000_000] {
        let (device, test_device) = capped(64 * megabyte);
        let held: Vec<Storage> = (0..64).map(|_| device.allocate(megabyte).unwrap()).collect();
        assert!(device.allocate(megabyte).unwrap_err().is_out_of_memory());
        assert_eq!(test_device.counts().used, 64 * megabyte);
        drop(held);
        device.allocate(64 * megabyte).unwrap();
    }
}

#[test]
fn exceeding_the_cap_names_the_largest_tags() {
    let (device, _) = capped(64 * MIB);
    let weights = Device::with_memory_tag("weights", || device.allocate(40 * MIB)).unwrap();
    let _moments: Vec<Storage> =
        Device::with_memory_tag("adam.m", || (0..2).map(|_| device.allocate(8 * MIB).unwrap()).collect());
    let _rest = device.allocate(4 * MIB).unwrap();
    let error = device.allocate(5 * MIB).unwrap_err();
    assert!(error.is_out_of_memory());
    assert_eq!(
        error.message(),
        "out of memory on cpu: needs 5.0 MiB, 4.0 MiB free under the pool's cap of 64.0 MiB; \
         largest: weights 40.0 MiB, adam.m 16.0 MiB, untagged 4.0 MiB; drop buffers or raise the cap"
    );
    drop(weights);
    device.allocate(5 * MIB).unwrap();
    let error = device.allocate(65 * MIB).unwrap_err();
    assert!(error.message().contains("needs 65.0 MiB, 44.0 MiB free under the pool's cap of 64.0 MiB"), "{error}");
    device.set_memory_limit(None);
    device.allocate(65 * MIB).unwrap();
}

#[test]
fn pool_is_trimmed_when_the_device_is_out_of_memory() {
    let (device, test_device) = test_device(Options { memory: 10 * MIB, ..Options::default() });
    drop(device.allocate(6 * MIB).unwrap());
    let big = device.allocate(8 * MIB).unwrap();
    assert_eq!(test_device.counts().used, 8 * MIB);
    let error = device.allocate(3 * MIB).unwrap_err();
    assert!(error.is_out_of_memory());
    assert_eq!(
        error.message(),
        "out of memory on cpu: needs 3.0 MiB, 2.0 MiB free of 10.0 MiB; largest: untagged 8.0 MiB; \
         drop buffers or use smaller ones"
    );
    assert_eq!(device.memory_stats().reserved, 8 * MIB, "a failed allocation reserves nothing");
    drop(big);
    device.allocate(3 * MIB).unwrap();
}

/// Lists of allocations on partly used pools: the estimate equals the statistics afterwards.
#[test]
fn memory_estimate_matches_the_pool_statistics() {
    let mut random = Random::new(11);
    let (mut fitted, mut refused) = (0, 0);
    for round in 0..400u64 {
        let cap = [PoolSetting::On, PoolSetting::Off, PoolSetting::Cap(6 * MIB)][round as usize % 3];
        let test_device = test_device::TestDevice::new(Options { memory: (4 + round % 8) * MIB, ..Options::default() });
        let device = Device::new(test_device.clone(), DeviceOptions { pool: cap, ..DeviceOptions::default() });
        let mut sizes = |most: u64| -> Vec<u64> {
            let count = random.below(most);
            let size = |random: &mut Random| {
                let doubling = random.below(15);
                random.below(256 << doubling)
            };
            (0..count).map(|_| size(&mut random)).collect()
        };
        let held: Vec<_> = sizes(8).into_iter().map(|bytes| device.allocate(bytes)).collect();
        drop(sizes(8).into_iter().map(|bytes| device.allocate(bytes)).collect::<Vec<_>>());
        let wanted = sizes(24);
        let (before, asked) = (device.memory_stats(), test_device.counts());
        let estimate = device.estimate_memory(wanted.iter().copied()).unwrap();
        assert_eq!(
            (device.memory_stats(), test_device.counts().allocations),
            (before, asked.allocations),
            "nothing was allocated"
        );
        assert_eq!((estimate.buffers, estimate.requested), (wanted.len() as u64, wanted.iter().sum()));
        let made: Result<Vec<_>, _> = wanted.iter().map(|bytes| device.allocate(*bytes)).collect();
        assert_eq!(estimate.fits, made.is_ok(), "{estimate}; {made:?}");
        match made {
            Ok(_) => {
                assert_eq!(
                    (estimate.reserved, estimate.reserved),
                    (device.memory_stats().reserved, test_device.counts().used)
                );
                fitted += 1;
            }
            Err(error) => {
                assert!(error.is_out_of_memory() && estimate.reserved > estimate.limit, "{error}; {estimate}");
                refused += 1;
            }
        }
        drop(held);
    }
    assert!(fitted > 100 && refused > 50, "{fitted} and {refused}");
    // The estimate also accounts for blocks returned beyond the bound.
    let (device, test_device) = self::test_device(Options::default());
    for count in 1..40 {
        drop(device.allocate(count * MIB / 2).unwrap());
    }
    let wanted: Vec<u64> = (40..70).map(|count| count * MIB / 2).collect();
    let estimate = device.estimate_memory(wanted.iter().copied()).unwrap();
    let held: Vec<Storage> = wanted.iter().map(|bytes| device.allocate(*bytes).unwrap()).collect();
    assert_eq!((estimate.reserved, estimate.reserved), (device.memory_stats().reserved, test_device.counts().used));
    drop(held);
    let (device, _) = capped(64 * MIB);
    let estimate = device.estimate_memory([48 * MIB, 100]).unwrap();
    assert_eq!(estimate.to_string(), "48.0 MiB in 2 buffers fits: 48.0 MiB reserved of 64.0 MiB available");
    assert!(!device.estimate_memory([48 * MIB, 17 * MIB]).unwrap().fits);
    let target = panoply_ir::Target { max_buffer_bytes: 1000, ..panoply_ir::Target::cpu() };
    let error =
        test_device::test_device(Options { target, ..Options::default() }).0.estimate_memory([8, 1001]).unwrap_err();
    assert_eq!(error.message(), "a buffer of 1001 B exceeds the maximum buffer size on cpu, 1000 B; split it");
}

#[test]
fn memory_is_freed_immediately_without_a_pool() {
    let test_device = test_device::TestDevice::new(Options::default());
    let device = Device::new(test_device.clone(), DeviceOptions { pool: PoolSetting::Off, ..DeviceOptions::default() });
    drop(device.allocate(1000).unwrap());
    drop(device.allocate(1000).unwrap());
    assert_eq!((test_device.counts().allocations, test_device.counts().used), (2, 0));
    assert_eq!((device.memory_stats().reused, device.memory_stats().reserved), (0, 0));
}

#[test]
fn tags_nest_and_are_restored_after_panics() {
    let (device, _) = test_device(Options::default());
    let holder = |storage: Storage| {
        let tag = device.memory_by_tag()[0].tag.clone();
        drop(storage);
        tag.as_deref().map(str::to_string)
    };
    Device::with_memory_tag("outer", || {
        let inner = Device::with_memory_tag("inner", || holder(device.allocate(1).unwrap()));
        assert_eq!(inner.as_deref(), Some("inner"));
        let panicked = std::panic::catch_unwind(|| Device::with_memory_tag("lost", || panic!("on purpose")));
        assert!(panicked.is_err());
        assert_eq!(holder(device.allocate(1).unwrap()).as_deref(), Some("outer"));
    });
    assert_eq!(holder(device.allocate(1).unwrap()), None);
}

#[test]
fn readbacks_are_futures() {
    for defer in [None, Some(11)] {
        awaited(&test_device(Options { defer, ..Options::default() }).0);
    }
    all_devices::devices().iter().for_each(awaited);
}

fn awaited(device: &Device) {
    let x = device.buffer(&[1u32, 2, 3]).unwrap();
    assert_eq!(block_on(x.read_async().unwrap()).unwrap(), [1, 2, 3], "{device}");
    let mut y = device.zeros::<u32>(3).unwrap();
    let event = Launch::new(build_mix, vec![(&x).into(), (&mut y).into()]).launch_timed(3).unwrap();
    block_on(event).unwrap();
    assert_eq!(block_on(y.read_async().unwrap()).unwrap(), [1, 2, 3], "{device}");
}

/// A minimal executor that parks the thread until it is woken.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = std::sync::Arc::new(Unpark(std::thread::current())).into();
    let mut context = std::task::Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            std::task::Poll::Ready(output) => return output,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn buffer_beyond_the_maximum_size_is_rejected() {
    let target = panoply_ir::Target { max_buffer_bytes: 1000, ..panoply_ir::Target::cpu() };
    let (device, test_device) = test_device(Options { target, ..Options::default() });
    assert_eq!(
        device.zeros::<f32>(251).unwrap_err().message(),
        "a buffer of 1004 B exceeds the maximum buffer size on cpu, 1000 B; split it"
    );
    let x: Buffer<f32> = device.zeros(250).unwrap();
    assert_eq!(test_device.counts().used, 1000, "no rounding beyond the limit");
    drop(x);
    device.zeros::<f32>(240).unwrap();
    assert_eq!(device.memory_stats().reused, 1);
}

#[test]
fn host_copies_are_counted() {
    let (device, _) = test_device(Options::default());
    let x = device.buffer(&[0u8; 100]).unwrap();
    x.to_vec().unwrap();
    x.slice(..10).unwrap().to_vec().unwrap();
    x.to(&device).unwrap();
    assert_eq!((device.memory_stats().uploaded, device.memory_stats().downloaded), (100, 110));
}

/// The other tests of this module use devices of their own, so `cpu` counts only this.
#[test]
fn mapped_files_are_read_in_place_and_never_written() {
    let device = Device::get("cpu").unwrap();
    let path = std::env::temp_dir().join(format!("panoply-mapped-{}", std::process::id()));
    let numbers: Vec<f32> = (0..3000).map(|i| i as f32).collect();
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    std::fs::write(&path, &bytes).unwrap();
    let map = Arc::new(map_file(&path).unwrap());
    assert_eq!((map.as_slice(), map.is_mapped()), (&bytes[..], true));
    let before = device.memory_stats();
    let whole = device.adopt(&map).unwrap().unwrap();
    let after = device.memory_stats();
    assert_eq!((after.in_place, after.allocated, after.uploaded), (12_000, before.allocated, before.uploaded));
    let part = whole.slice(8..4008).unwrap();
    assert_eq!(part.read().unwrap(), &bytes[8..4008]);
    // Every way to write is refused, and copies can be written.
    let copy = part.to(&device).unwrap();
    let message = part.write_bytes(&bytes[..4000]).unwrap_err().to_string();
    assert!(message.contains("used in place and cannot be written"), "{message}");
    assert!(part.copy_from(&copy).is_err());
    let prepared = device.compile_fn(test_device::build_step).unwrap();
    let launch = |from: &Storage, to: &Storage| {
        let args = vec![LaunchArg::read(from, DType::U32), LaunchArg::write(to, DType::U32)];
        device.submit(&[Command::Kernel { prepared: &prepared, grid: Grid::from(1000), args }])
    };
    assert!(launch(&copy, &part).unwrap_err().to_string().contains("cannot be written"));
    launch(&part, &copy).unwrap();
    let step = |word: &[u8]| u32::from_le_bytes(word.try_into().unwrap()).wrapping_mul(3).wrapping_add(1).to_le_bytes();
    assert_eq!(copy.read().unwrap(), bytes[8..4008].chunks(4).flat_map(step).collect::<Vec<u8>>());
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
    drop((whole, part));
    assert_eq!(device.memory_stats().in_place, 0);
    std::fs::remove_file(&path).unwrap();
    // An aligned buffer of any length can be used in place, and its memory comes back.
    let mut buffer = AlignedBuffer::default();
    for len in [3, 1000, 17] {
        buffer.resize(len);
        buffer.copy_from_slice(&numbers[..len]);
        let (address, shared) = (buffer.as_ptr(), Arc::new(HostBytes::from(buffer)));
        let whole = device.adopt(&shared).unwrap().unwrap();
        assert_eq!(whole.read().unwrap(), &bytes[..4 * len]);
        drop(whole);
        buffer = Arc::into_inner(shared).unwrap().into_aligned_buffer().unwrap();
        assert_eq!((buffer.as_ptr(), &buffer[..]), (address, &numbers[..len]));
    }
    // Only the device that can use host memory adopts it, and only aligned memory.
    assert!(test_device(Options::default()).0.adopt(&map).unwrap().is_none());
    assert!(device.adopt(&Arc::new(HostBytes::from(Vec::new()))).unwrap().is_none());
    assert!(map_file(&path).unwrap_err().to_string().contains("cannot read"));
    assert!(map_file(&std::env::temp_dir()).unwrap_err().to_string().contains("is not a regular file"));
}
