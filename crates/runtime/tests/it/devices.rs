//! Tests of the runtime on every available device. Expected results are computed on the host.

use crate::support::all_devices;
use crate::support::test_device;

use std::sync::Arc;

use panoply_device::null::NullDevice;
use panoply_ir::builder::Builder;
use panoply_ir::kernel::{Access, Builtin, Guard, Kernel};
use panoply_ir::routine::{Gemm, Layout, Routine};
use panoply_ir::{Alu, DType, Element, Target, bf16, f16};
use panoply_runtime::env::PoolSetting;
use panoply_runtime::{
    Backend, Buffer, Command, CompiledKernel, Device, DeviceOptions, Epilogue, Launch, LaunchArg, Profiler, Result,
    Storage,
};
use test_device::{build_count, build_mix, build_step, saxpy};

#[test]
fn elements_of_every_type_round_trip() {
    fn check<T: Element>(device: &Device, values: [T; 3]) {
        let data: Vec<T> = values.iter().copied().cycle().take(1001).collect();
        let x = device.buffer(&data).unwrap();
        assert_eq!(x.to_vec().unwrap(), data, "{device}: {}", T::DTYPE);
        assert_eq!(x.read_async().unwrap().wait().unwrap(), data, "{device}: {}", T::DTYPE);
        let y = x.slice(1..1000).unwrap().to(device).unwrap();
        assert_eq!(y.to_vec().unwrap(), data[1..1000], "{device}: {}", T::DTYPE);
        let mut z = device.full(77, values[1]).unwrap();
        assert_eq!(z.to_vec().unwrap(), [values[1]; 77], "{device}: {}", T::DTYPE);
        z.slice_mut(3..6).unwrap().write(&values).unwrap();
        z.slice_mut(7..8).unwrap().fill(values[2]).unwrap();
        let found = z.to_vec().unwrap();
        assert_eq!(found[2..8], [values[1], values[0], values[1], values[2], values[1], values[2]]);
    }
    for device in all_devices::devices() {
        check(&device, [-1i8, 2, 3]);
        check(&device, [-1i16, 2, 3]);
        check(&device, [-1i32, 2, 3]);
        check(&device, [-1i64, 2, i64::MIN]);
        check(&device, [1u8, 2, 255]);
        check(&device, [1u16, 2, 65535]);
        check(&device, [1u32, 2, u32::MAX]);
        check(&device, [1u64, 2, u64::MAX]);
        check(&device, [1.5f32, -0.0, f32::MAX]);
        check(&device, [1.5f64, -0.0, f64::MIN_POSITIVE]);
        check(&device, [f16::from_f32(1.5), f16::MAX, f16::NEG_INFINITY]);
        check(&device, [bf16::from_f32(1.5), bf16::MAX, bf16::NEG_INFINITY]);
        assert_eq!(device.memory_stats().buffers, 0);
    }
}

#[test]
fn saxpy_with_lengths_around_the_group_size() {
    for device in all_devices::devices() {
        for len in [1, 2, 3, 31, 32, 33, 255, 256, 257, 511, 512, 513, 5000] {
            let x: Vec<f32> = (0..len).map(|i| i as f32 * 0.37 - 5.0).collect();
            let y: Vec<f32> = (0..len).map(|i| 1.0 / (i as f32 + 1.0)).collect();
            let (dx, mut dy) = (device.buffer(&x).unwrap(), device.buffer(&y).unwrap());
            saxpy(2.5, &dx, &mut dy).launch(len).unwrap();
            let expected: Vec<f32> = x.iter().zip(&y).map(|(x, y)| 2.5 * x + y).collect();
            assert_eq!(dy.to_vec().unwrap(), expected, "{device}, {len} elements");
            assert_eq!(dx.to_vec().unwrap(), x);
        }
        assert_eq!(device.program_cache_stats().compiled + device.program_cache_stats().disk_hits, 1, "{device}");
    }
}

#[test]
fn three_dimensional_grids_cover_every_item_once() {
    for device in all_devices::devices() {
        for (x, y, z) in [(7, 1, 1), (1, 7, 1), (1, 1, 7), (33, 9, 1), (5, 6, 7), (130, 3, 2), (2, 200, 3)] {
            let items = x * y * z;
            let mut numbers = device.full(items + 5, u32::MAX).unwrap();
            Launch::new(build_count, vec![1000usize.into(), (&mut numbers).into()]).launch((x, y, z)).unwrap();
            let expected: Vec<u32> = (1000..1000 + items as u32).chain([u32::MAX; 5]).collect();
            assert_eq!(numbers.to_vec().unwrap(), expected, "{device}, {x}×{y}×{z}");
        }
    }
}

#[test]
fn slices_are_offsets_into_their_buffer() {
    for device in all_devices::devices().into_iter().filter(|device| !all_devices::is_checked(device)) {
        let x = device.buffer(&(0..100u32).collect::<Vec<_>>()).unwrap();
        let mut y = device.full(100, 7u32).unwrap();
        let (from, mut to) = (x.slice(13..43).unwrap(), y.slice_mut(51..81).unwrap());
        Launch::new(build_step, vec![LaunchArg::from(&*from), LaunchArg::from(&mut *to)]).launch(50).unwrap();
        let mut expected = vec![7; 100];
        (0..30).for_each(|i| expected[51 + i] = (13 + i as u32) * 3 + 1);
        assert_eq!(y.to_vec().unwrap(), expected, "{device}: writes beyond a slice are dropped");
    }
}

#[test]
fn queues_are_ordered_by_buffer_accesses() {
    for device in all_devices::devices() {
        let queues = [device.default_queue(), device.queue().unwrap(), device.queue().unwrap()];
        let x = device.buffer(&vec![1u32; 10_000]).unwrap();
        let mut y = device.zeros::<u32>(10_000).unwrap();
        let mut expected = 0u32;
        for round in 0..30 {
            let queue = &queues[round % 3];
            Launch::new(build_mix, vec![(&x).into(), (&mut y).into()]).on(queue).launch(10_000).unwrap();
            expected = expected.wrapping_mul(5).wrapping_add(1);
        }
        assert_eq!(y.to_vec().unwrap(), vec![expected; 10_000], "{device}");
        let event =
            Launch::new(build_mix, vec![(&x).into(), (&mut y).into()]).on(&queues[1]).launch_timed(10_000).unwrap();
        event.wait().unwrap();
        assert!(event.elapsed_time().unwrap().is_some(), "{device}: an event has a duration");
        assert!(event.elapsed_time().unwrap().unwrap().as_secs() < 10, "{device}");
    }
}

#[test]
fn command_lists_run_in_order() {
    for device in all_devices::devices() {
        let (mix, step) = (device.compile_fn(build_mix).unwrap(), device.compile_fn(build_step).unwrap());
        let storage = |value: u32| device.upload(&value.to_ne_bytes().repeat(64)).unwrap();
        let (a, b, c) = (storage(2), storage(3), storage(0));
        let half = c.slice(0..128).unwrap();
        let args = |from, to| vec![LaunchArg::read(from, DType::U32), LaunchArg::write(to, DType::U32)];
        device
            .submit(&[
                Command::Kernel { prepared: &mix, grid: 64.into(), args: args(&a, &b) },
                Command::Kernel { prepared: &step, grid: 64.into(), args: args(&b, &a) },
                Command::Copy { from: &a, to: &c },
                Command::Fill { to: &half, pattern: &9u32.to_ne_bytes() },
            ])
            .unwrap();
        let numbers: Vec<u32> = bytemuck::pod_collect_to_vec(&c.read().unwrap());
        assert_eq!(numbers, [[9; 32], [(3 * 5 + 2) * 3 + 1; 32]].concat(), "{device}");
    }
}

#[test]
fn profiles_contain_device_times() {
    for device in all_devices::devices() {
        let x = device.buffer(&vec![1u32; 1 << 12]).unwrap();
        let mut y = device.zeros::<u32>(1 << 12).unwrap();
        let Ok(profile) = Profiler::start(&device) else { panic!("no other profile runs in this process") };
        for _ in 0..3 {
            Launch::new(build_mix, vec![(&x).into(), (&mut y).into()]).launch(1 << 12).unwrap();
        }
        let report = profile.finish().unwrap();
        let mix = report.work.iter().find(|work| work.name == "mix").unwrap();
        assert!(mix.calls >= 3 && !mix.time.is_zero(), "{device}: {report}");
        assert!(mix.time <= report.wall, "{device}: {report}");
    }
}

#[test]
fn threads_share_a_device() {
    for device in all_devices::devices() {
        std::thread::scope(|threads| {
            for thread in 0..4u32 {
                let device = &device;
                threads.spawn(move || {
                    let queue = if thread % 2 == 0 { device.default_queue() } else { device.queue().unwrap() };
                    for round in 0..25u32 {
                        let len = 100 + 37 * thread as usize;
                        let x = device.buffer(&vec![thread * 1000 + round; len]).unwrap();
                        let mut y = device.zeros::<u32>(len).unwrap();
                        for _ in 0..3 {
                            let args = vec![LaunchArg::from(&x), LaunchArg::from(&mut y)];
                            Launch::new(build_mix, args).on(&queue).launch(len).unwrap();
                        }
                        let expected = (thread * 1000 + round) * (25 + 5 + 1);
                        assert_eq!(
                            y.to_vec().unwrap(),
                            vec![expected; len],
                            "{device}, thread {thread}, round {round}"
                        );
                    }
                });
            }
        });
        assert_eq!(device.memory_stats().buffers, 0, "{device}");
        let counts = device.program_cache_stats();
        assert_eq!((counts.compiled, counts.memory_hits), (1, 299), "{device}: threads wait for one compilation");
    }
}

#[test]
fn memory_limit_holds_on_every_device() {
    const MIB: u64 = 1 << 20;
    for device in all_devices::devices() {
        device.set_memory_limit(Some(64 * MIB));
        let held: Vec<Storage> = (0..64).map(|_| device.allocate(MIB).unwrap()).collect();
        let error = device.allocate(MIB).unwrap_err();
        let expected = format!(
            "out of memory on {device}: needs 1.0 MiB, 0 B free under the pool's cap of 64.0 MiB; \
             largest: untagged 64.0 MiB; drop buffers or raise the cap"
        );
        assert_eq!(error.message(), expected);
        drop(held);
        let (x, mut y) = (device.full(8, 1.0f32).unwrap(), device.full(8, 2.0f32).unwrap());
        saxpy(3.0, &x, &mut y).launch(8).unwrap();
        assert_eq!(y.to_vec().unwrap(), [5.0; 8], "{device} still works");
    }
}

#[test]
fn programs_are_loaded_from_the_disk_cache() {
    let folder = std::env::temp_dir().join(format!("panoply-devices-{}", std::process::id()));
    let options = DeviceOptions { pool: PoolSetting::On, cache_dir: Some(folder.clone()), ..DeviceOptions::default() };
    let run = |device: &Device| {
        let (x, mut y) = (device.full(8, 1.0f32).unwrap(), device.full(8, 2.0f32).unwrap());
        saxpy(3.0, &x, &mut y).launch(8).unwrap();
        assert_eq!(y.to_vec().unwrap(), [5.0; 8], "{device}");
        (device.program_cache_stats().compiled, device.program_cache_stats().disk_hits)
    };
    for raw in all_devices::raw_devices() {
        let process = || Device::new(raw.clone(), options.clone());
        assert_eq!(run(&process()), (1, 0), "{:?}", raw.info());
        let keeps = raw.target().language != panoply_ir::target::Language::Ir;
        assert_eq!(run(&process()), if keeps { (0, 1) } else { (1, 0) }, "{:?}", raw.info());
    }
    let _ = std::fs::remove_dir_all(folder);
}

#[test]
fn supported_routines_compute_correct_results() {
    let (m, n, k) = (5, 7, 3);
    let layout = |row, column| Layout { offset: 0, batch: 0, row, column };
    let (a, b, c) = (layout(k, 1), layout(1, k), layout(n, 1));
    let routine = Routine::Gemm(Gemm { dtype: DType::F32, tf32: false, bias: false, batch: 1, m, n, k, a, b, c });
    let left: Vec<f32> = (0..m * k).map(|i| i as f32 - 7.0).collect();
    let right: Vec<f32> = (0..n * k).map(|i| 3.0 - i as f32).collect();
    let expected: Vec<f32> =
        (0..m * n).map(|i| (0..k).map(|j| left[i / n * k + j] * right[i % n * k + j]).sum()).collect();
    for device in all_devices::devices() {
        let (a, b) = (device.buffer(&left).unwrap(), device.buffer(&right).unwrap());
        let c = device.zeros::<f32>(m * n).unwrap();
        let run = |buffers| device.submit(&[Command::Routine { routine, buffers, epilogue: None }]);
        let done = run(vec![a.storage(), b.storage(), c.storage()]);
        if !device.supports_routine(&routine) {
            let error = done.unwrap_err();
            assert!(error.is_unsupported() && error.message().contains("does not support gemm"), "{error}");
            continue;
        }
        done.unwrap();
        assert_eq!(c.to_vec().unwrap(), expected, "{device}: small integers are exact");
        let refused = |buffers, message: &str| assert_eq!(run(buffers).unwrap_err().message(), message);
        refused(vec![a.storage(), b.storage()], "gemm takes 3 buffers (a, b, c), not 2");
        refused(vec![b.storage(), a.storage(), c.storage()], "gemm: b reaches 21 elements, its buffer has 15");
        refused(
            vec![c.storage(), b.storage(), c.storage()],
            "gemm: c is written and shares bytes with a; use a separate buffer",
        );
    }
}

/// Builds `y[i] = 2 c[i + shift] + r[i]`, which reads a neighbor of `c` unless `shift` is 0.
fn build_end(shift: u64) -> Result<Kernel> {
    let mut b = Builder::new("end");
    let [c, r] = ["c", "r"].map(|name| b.buffer(name, DType::F32, Access::In));
    let y = b.buffer("y", DType::F32, Access::Out);
    let (i, by) = (b.builtin(Builtin::GlobalId(0)), b.index(shift));
    let from = b.alu(Alu::Add, &[i, by]);
    let (product, row) = (b.load(c, from, Guard::Checked), b.load(r, i, Guard::Checked));
    let twice = b.alu(Alu::Add, &[product, product]);
    let sum = b.alu(Alu::Add, &[twice, row]);
    b.store(y, i, sum, Guard::Checked);
    b.finish()
}

#[test]
fn epilogues_must_read_elementwise() {
    // Large enough that a device can fuse both.
    let (m, n, k) = (700, 600, 3);
    let layout = |row, column| Layout { offset: 0, batch: 0, row, column };
    let gemm = Gemm {
        dtype: DType::F32,
        tf32: false,
        bias: false,
        batch: 1,
        m,
        n,
        k,
        a: layout(k, 1),
        b: layout(n, 1),
        c: layout(n, 1),
    };
    let numbers = |len: usize| (0..len).map(|i| (i % 13) as f32 - 6.0).collect::<Vec<f32>>();
    let (left, right, row) = (numbers(m * k), numbers(k * n), numbers(m * n));
    let product = |i: usize| -> f32 { (0..k).map(|j| left[i / n * k + j] * right[i % n + j * n]).sum() };
    for device in all_devices::devices().into_iter().filter(|device| device.supports_routine(&Routine::Gemm(gemm))) {
        let [a, b, r] = [&left, &right, &row].map(|of| device.buffer(of).unwrap());
        let (c, y) = (device.zeros::<f32>(m * n).unwrap(), device.zeros::<f32>(m * n).unwrap());
        let [end, shifted] =
            [|| build_end(0), || build_end(1)].map(|build: fn() -> _| device.compile_fn(build).unwrap());
        let run = |prepared: &Arc<CompiledKernel>,
                   grid: usize,
                   [c_read, r_read]: [&Buffer<f32>; 2],
                   y: &Buffer<f32>,
                   keeps| {
            let [c_read, r_read] = [c_read, r_read].map(|of| LaunchArg::read(of.storage(), DType::F32));
            let args = vec![c_read, r_read, LaunchArg::write(y.storage(), DType::F32)];
            let epilogue = Some(Box::new(Epilogue { prepared, grid: grid.into(), args, keep_output: keeps }));
            let buffers = vec![a.storage(), b.storage(), c.storage()];
            device.submit(&[Command::Routine { routine: Routine::Gemm(gemm), buffers, epilogue }])
        };
        for keeps in [false, true] {
            run(&end, m * n, [&c, &r], &y, keeps).unwrap();
            let wrong = (0..m * n).zip(y.to_vec().unwrap()).find(|(i, have)| *have != 2.0 * product(*i) + row[*i]);
            assert_eq!(wrong, None, "{device}");
            let kept = c.to_vec().unwrap();
            assert!(!keeps || (0..m * n).all(|i| kept[i] == product(i)), "{device}");
        }
        let refused = |done: Result<()>, message: &str| assert_eq!(done.unwrap_err().message(), message);
        let foreign = |items| {
            format!(
                "gemm: in its epilogue end over {items}×1×1 work-items, \
                 not every work-item reads the element at its own index of the output; \
                 launch it as a separate kernel"
            )
        };
        refused(run(&shifted, m * n, [&c, &r], &y, true), &foreign(m * n));
        refused(run(&end, 7, [&c, &r], &y, true), &foreign(7));
        refused(run(&end, m * n, [&r, &r], &y, true), &foreign(m * n));
        let shares = |name| {
            format!(
                "gemm: its epilogue end shares bytes with {name}, and one of them is written; use a separate buffer"
            )
        };
        refused(run(&end, m * n, [&c, &c], &y, true), &shares("c"));
        refused(run(&end, m * n, [&c, &r], &a, true), &shares("a"));
    }
}

#[test]
fn smoke_test_detects_a_device_that_does_not_compute() {
    for device in all_devices::devices() {
        device.smoke_test().unwrap();
    }
    Device::can_compute(Backend::Cpu).unwrap();
    assert!(Device::can_compute(Backend::WebGpu).is_err(), "no driver for WebGPU");
    let null = Device::new(Arc::new(NullDevice::new(Target::cpu())), DeviceOptions::default());
    let error = null.smoke_test().unwrap_err();
    assert!(error.message().starts_with("cpu:null: computed 0 for 0² + 1; run `panoply selftest"), "{error}");
    assert_eq!(null.memory_stats().buffers, 0);
}
