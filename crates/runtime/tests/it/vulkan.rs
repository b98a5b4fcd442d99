//! Vulkan-specific tests: missing loader or driver, limits, device loss, and exact arithmetic where the device has none.

use std::process::Command;
use std::sync::Arc;

use panoply_device::{DeviceCommand, Driver, QueueId, RawDevice, Region};
use panoply_driver::WgpuDriver;
use panoply_driver::wgpu::{Trust, WgpuDevice};
use panoply_ir::interpret::{Arg, run_in_subgroups};
use panoply_ir::verify::verify;
use panoply_ir::{DType, text};
use panoply_runtime::{Backend, Device, DeviceOptions, LaunchArg};

/// Returns the first Vulkan device that keeps subnormal numbers, with this level of trust. SwiftShader flushes them to zero; the tests that
/// run on every device cover it.
fn raw(trust: Trust) -> Option<Arc<WgpuDevice>> {
    let hidden = std::env::var_os("PANOPLY_TEST_NO_VULKAN").is_some();
    // SAFETY: only `runtime` uses the devices, and it validates its arguments.
    let found = match unsafe { (WgpuDriver { trust, ..WgpuDriver::new(Backend::Vulkan) }).devices() } {
        Ok(_) if hidden => Err("PANOPLY_TEST_NO_VULKAN is set".to_string()),
        Ok(devices) => devices
            .into_iter()
            .find(|device| !device.info().name.contains("SwiftShader"))
            .ok_or_else(|| "only SwiftShader is available, which flushes subnormal numbers".to_string()),
        Err(error) => Err(error.message().to_string()),
    };
    found.map_err(|why| eprintln!("SKIPPED: no Vulkan-specific test ran: {why}")).ok()
}

fn device(trust: Trust, without_f64: bool) -> Option<Device> {
    let raw = raw(trust)?;
    let narrowed = Arc::try_unwrap(raw).ok()?.with_target(|target| target.f64 &= !without_f64);
    Some(Device::new(Arc::new(narrowed), DeviceOptions::default()))
}

/// Runs a kernel with one work-item per element of the first buffer and returns the output.
fn run(device: &Device, source: &str, inputs: &[Vec<u8>], dtype: DType) -> Vec<u8> {
    let kernel = verify(text::parse(source).expect("the source parses")).expect("the kernel verifies");
    let prepared = device.compile(&Arc::new(kernel)).expect("the kernel compiles");
    let storages: Vec<_> = inputs.iter().map(|bytes| device.upload(bytes).unwrap()).collect();
    let out = device.upload(&vec![0; inputs[0].len()]).unwrap();
    let mut args: Vec<LaunchArg<'_>> = storages.iter().map(|storage| LaunchArg::read(storage, dtype)).collect();
    args.push(LaunchArg::write(&out, dtype));
    let grid = (inputs[0].len() / dtype.bytes()).into();
    device.submit(&[panoply_runtime::Command::Kernel { prepared: &prepared, grid, args }]).unwrap();
    out.read().unwrap()
}

/// Returns pseudo-random numbers with every exponent (SplitMix64).
fn bits(seed: u64, count: usize) -> Vec<u64> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    };
    (0..count).map(|_| next()).collect()
}

/// Returns operands whose sums cancel, overflow and underflow, and that include every special value.
fn operands_f32(count: usize) -> [Vec<f32>; 3] {
    const SPECIAL: [f32; 8] =
        [0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 1e-45, f32::MIN_POSITIVE, f32::MAX];
    let any = |seed| bits(seed, count).into_iter().map(|bits| f32::from_bits(bits as u32)).collect::<Vec<f32>>();
    let near = |seed| -> Vec<f32> {
        bits(seed, count).into_iter().map(|bits| f32::from_bits(bits as u32 & 0x81FF_FFFF | 0x3E00_0000)).collect()
    };
    let (mut a, mut b, mut c) = (near(1), near(2), near(3));
    let (wild_a, wild_b, wild_c) = (any(4), any(5), any(6));
    for i in 0..count {
        match i % 5 {
            0 => c[i] = -(a[i] * b[i]),
            1 => (a[i], b[i], c[i]) = (wild_a[i], wild_b[i], wild_c[i]),
            // Products near the smallest numbers.
            2 => (b[i], c[i]) = (wild_b[i], f32::from_bits(wild_c[i].to_bits() & 0x80FF_FFFF)),
            3 => a[i] = f32::from_bits(bits(i as u64, 1)[0] as u32 & 0x81FF_FFFF),
            _ => (a[i], c[i]) = (SPECIAL[i / 5 % 8], SPECIAL[i / 40 % 8]),
        }
    }
    [a, b, c]
}

#[test]
fn fma_rounds_once_for_all_operands() {
    let text = |dtype| {
        format!(
            "kernel k(a: &[{dtype}], b: &[{dtype}], c: &[{dtype}], y: &out [{dtype}]) {{\n    \
             y[global_id.x] = fma(a[global_id.x], b[global_id.x], c[global_id.x])\n}}\n"
        )
    };
    for (trust, without_f64) in [(Trust::Measured, false), (Trust::Nothing, false), (Trust::Nothing, true)] {
        let Some(device) = device(trust, without_f64) else { return };
        let [a, b, c] = operands_f32(100_000);
        let bytes = |x: &[f32]| x.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
        let found = run(&device, &text("f32"), &[bytes(&a), bytes(&b), bytes(&c)], DType::F32);
        for (i, found) in found.chunks_exact(4).enumerate() {
            let found = f32::from_le_bytes(found.try_into().unwrap());
            let expected = a[i].mul_add(b[i], c[i]);
            let same = found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan();
            assert!(same, "{trust:?}: {:e} × {:e} + {:e} is {expected:e}, not {found:e}", a[i], b[i], c[i]);
        }
        if !device.target().f64 {
            continue;
        }
        let wide = |x: &[f32], salt: u64| -> Vec<f64> {
            let more = bits(salt, x.len());
            let widened = |(x, more): (&f32, u64)| f64::from_bits(f64::from(*x).to_bits() ^ (more >> 35));
            x.iter().zip(more).map(widened).collect()
        };
        let [a, b, mut c] = [wide(&a, 7), wide(&b, 8), wide(&c, 9)];
        (0..c.len()).step_by(5).for_each(|i| c[i] = -(a[i] * b[i]));
        let bytes = |x: &[f64]| x.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
        let found = run(&device, &text("f64"), &[bytes(&a), bytes(&b), bytes(&c)], DType::F64);
        for (i, found) in found.chunks_exact(8).enumerate() {
            let found = f64::from_le_bytes(found.try_into().unwrap());
            let expected = a[i].mul_add(b[i], c[i]);
            let same = found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan();
            assert!(same, "{trust:?}: {:e} × {:e} + {:e} is {expected:e}, not {found:e}", a[i], b[i], c[i]);
        }
    }
}

/// A quotient, a root, or a NaN that is selected because no comparison with it is true.
type Formula = (&'static str, fn(f32, f32) -> f32);

#[test]
fn quotients_roots_and_nan_are_exact_for_all_operands() {
    let below = |a: f32, b: f32| if a < b { b } else { a };
    let formulas: [Formula; 3] = [
        ("div(a[global_id.x], b[global_id.x])", |a, b| a / b),
        ("sqrt(a[global_id.x])", |a, _| a.sqrt()),
        ("select(lt(a[global_id.x], b[global_id.x]), b[global_id.x], a[global_id.x])", below),
    ];
    for trust in [Trust::Measured, Trust::Nothing] {
        let Some(device) = device(trust, false) else { return };
        let [a, b, c] = operands_f32(100_000);
        // Products of the operands have every exponent; half of the roots are of positive numbers.
        let (a, b) = ([&a[..], &c].concat(), [&b[..], &a].concat());
        let bytes = |x: &[f32]| x.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
        for (formula, expected) in formulas {
            let source =
                format!("kernel k(a: &[f32], b: &[f32], y: &out [f32]) {{\n    y[global_id.x] = {formula}\n}}\n");
            let found = run(&device, &source, &[bytes(&a), bytes(&b)], DType::F32);
            for (i, found) in found.chunks_exact(4).enumerate() {
                let (found, expected) = (f32::from_le_bytes(found.try_into().unwrap()), expected(a[i], b[i]));
                let same = found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan();
                assert!(same, "{trust:?}: {formula} of {:e} and {:e} is {expected:e}, not {found:e}", a[i], b[i]);
            }
        }
    }
}

/// A function that rounds to an integer.
type Rounding = (&'static str, fn(f64) -> f64);

#[test]
fn f64_is_rounded_to_integers_exactly() {
    let Some(device) = device(Trust::Measured, false) else { return };
    if !device.target().f64 {
        return;
    }
    let mut numbers = vec![40_204_520.5, 3e9 + 0.25, 1e15 + 0.5, 1_048_577.75, 0.3, 0.5, 0.0, 1.0, 1.5, 2.5, 3.5];
    numbers.extend([0.5f64.next_down(), 0.5f64.next_up(), 1f64.next_down(), 1.5f64.next_down(), 2.5f64.next_up()]);
    numbers.extend([f64::NAN, f64::INFINITY, f64::MAX, f64::MIN_POSITIVE, 5e-324]);
    for exponent in 0..55 {
        let power = f64::from(exponent).exp2();
        numbers.extend([power.next_down(), power, power.next_up(), power + 0.5, power + 1.5, power - 0.5]);
    }
    let random = bits(1, 20_000);
    // Half of them have every exponent, the other half those of numbers with a fraction.
    numbers.extend(random.iter().map(|bits| f64::from_bits(*bits)));
    let fractions =
        random.iter().map(|bits| (bits & 0x800F_FFFF_FFFF_FFFF) | ((1018 + (bits >> 52 & 0x7FF) % 60) << 52));
    numbers.extend(fractions.map(f64::from_bits));
    let numbers: Vec<f64> = numbers.iter().flat_map(|x| [*x, -x]).collect();
    let bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
    let functions: [Rounding; 4] =
        [("trunc", f64::trunc), ("round", f64::round_ties_even), ("floor", f64::floor), ("ceil", f64::ceil)];
    for (name, function) in functions {
        let text = format!("kernel k(a: &[f64], y: &out [f64]) {{\n    y[global_id.x] = {name}(a[global_id.x])\n}}\n");
        let found = run(&device, &text, std::slice::from_ref(&bytes), DType::F64);
        for (x, found) in numbers.iter().zip(found.chunks_exact(8)) {
            let (expected, found) = (function(*x), f64::from_le_bytes(found.try_into().unwrap()));
            let same = found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan();
            assert!(same, "{name} of {x:e} is {expected:e}, not {found:e}");
        }
    }
}

#[test]
fn comparisons_of_64_bit_integers_are_exact() {
    let Some(device) = device(Trust::Measured, false) else { return };
    if !device.target().int64 {
        return eprintln!("SKIPPED: the device has no 64-bit integers");
    }
    let near: [i64; 12] = [0, 1, 4, 5, 6, -1, i64::MAX, i64::MIN, 1 << 32, -(1 << 32), (1 << 32) + 3, 3 - (1 << 40)];
    let numbers: Vec<i64> = (0..3).flat_map(|_| near).collect();
    let source = "kernel k(a: &[i64], y: &out [i64]) {\n    \
                  y[global_id.x] = select(and(le(0i64, a[global_id.x]), lt(a[global_id.x], 5i64)), 1i64, -1i64)\n}\n";
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    let found = run(&device, source, &[bytes], DType::I64);
    for (number, found) in numbers.iter().zip(found.chunks_exact(8)) {
        let expected = if (0..5).contains(number) { 1 } else { -1 };
        assert_eq!(i64::from_le_bytes(found.try_into().unwrap()), expected, "of {number}");
    }
    // The same, and the smaller and the absolute value, of numbers that were extended.
    let numbers: Vec<i32> = (0..70).map(|n| n * 7 % 12 - 3).collect();
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    type IntFormula = (&'static str, fn(i32) -> i32);
    let formulas: [IntFormula; 4] = [
        ("select(and(le(0i64, v), lt(v, 5i64)), cast<i32>(v), -1i32)", |v| if (0..5).contains(&v) { v } else { -1 }),
        ("cast<i32>(min(v, 5i64))", |v| v.min(5)),
        ("cast<i32>(max(v, 2i64))", |v| v.max(2)),
        ("cast<i32>(abs(v))", i32::abs),
    ];
    for (formula, expected) in formulas {
        let source = format!(
            "kernel k(a: &[i32], y: &out [i32]) {{\n    let v: i64 = cast<i64>(a[global_id.x])\n    \
             y[global_id.x] = {formula}\n}}\n"
        );
        let found = run(&device, &source, std::slice::from_ref(&bytes), DType::I32);
        for (number, found) in numbers.iter().zip(found.chunks_exact(4)) {
            assert_eq!(i32::from_le_bytes(found.try_into().unwrap()), expected(*number), "{formula} of {number}");
        }
    }
}

#[test]
fn products_and_sums_are_not_contracted() {
    let Some(device) = device(Trust::Measured, false) else { return };
    let [a, b, c] = operands_f32(50_000);
    let bytes = |x: &[f32]| x.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    let source = "kernel k(a: &[f32], b: &[f32], c: &[f32], y: &out [f32]) {\n    \
                  y[global_id.x] = add(mul(a[global_id.x], b[global_id.x]), c[global_id.x])\n}\n";
    let found = run(&device, source, &[bytes(&a), bytes(&b), bytes(&c)], DType::F32);
    for (i, found) in found.chunks_exact(4).enumerate() {
        let (found, expected) = (f32::from_le_bytes(found.try_into().unwrap()), a[i] * b[i] + c[i]);
        let same = found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan();
        assert!(same, "{:e} × {:e} + {:e} is {expected:e}, not {found:e}", a[i], b[i], c[i]);
    }
    // Operations that a compiler might remove.
    let source = "kernel k(a: &[f32], y: &out [f32]) {\n    \
                  y[global_id.x] = add(mul(a[global_id.x], 0.0f32), sub(add(a[global_id.x], 3e7f32), 3e7f32))\n}\n";
    let found = run(&device, source, &[bytes(&a)], DType::F32);
    for (a, found) in a.iter().zip(found.chunks_exact(4)) {
        let (found, expected) = (f32::from_le_bytes(found.try_into().unwrap()), a * 0.0 + ((a + 3e7) - 3e7));
        let same = found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan();
        assert!(same, "of {a:e}: {expected:e}, not {found:e}");
    }
}

#[test]
fn subgroups_consist_of_consecutive_work_items() {
    let counts = [1, 2, 3, 7, 8, 13, 16, 20, 64, 100, 256];
    // The device's subgroups, halves of them, and without trust in their order.
    for (trust, part) in [(Trust::Measured, 1), (Trust::Measured, 2), (Trust::Nothing, 1)] {
        let Some(raw) = raw(trust) else { return };
        let own = raw.target().subgroup;
        if own < 4 {
            return eprintln!("SKIPPED: {raw:?} has no subgroups");
        }
        let narrowed = Arc::try_unwrap(raw).expect("the only reference").with_target(|target| target.subgroup /= part);
        let device = Device::new(Arc::new(narrowed), DeviceOptions::default());
        for items in counts {
            let source = format!(
                "kernel k(x: &[u32], y: &out [u32]) group({items}, 1, 1) {{
                    let i: index = global_id.x
                    let sum: u32 = group_sum(x[i])
                    let most: u32 = subgroup_max(x[i])
                    let before: u32 = subgroup_exclusive_sum(x[i])
                    let other: u32 = subgroup_shuffle(x[i], xor(cast<u32>(subgroup_lane_id()), rem(cast<u32>(group_id.x), {own}u32)))
                    y[i] = add(sum, mul(31u32, add(most, mul(31u32, add(before, mul(31u32, other))))))
                }}"
            );
            let numbers: Vec<u8> = bits(11, 40 * items).iter().flat_map(|x| (*x as u32 % 1000).to_le_bytes()).collect();
            let found = run(&device, &source, std::slice::from_ref(&numbers), DType::U32);
            let kernel = verify(text::parse(&source).expect("it parses")).expect("it verifies");
            let mut expected = vec![0; numbers.len()];
            let args = &mut [Arg::Read(&numbers), Arg::Write(&mut expected)];
            let (grid, group) = ([40 * items as u64, 1, 1], [items as u32, 1, 1]);
            run_in_subgroups(&kernel, grid, group, own / part, args, &mut ()).expect("the interpreter runs it");
            assert_eq!(found, expected, "{trust:?}, subgroups of {own} / {part} in groups of {items}");
        }
    }
}

#[test]
fn copies_and_fills_beyond_the_binding_limit() {
    let Some(raw) = raw(Trust::Measured) else { return };
    let raw = Arc::try_unwrap(raw).expect("the only reference").with_target(|target| target.max_binding_bytes = 1024);
    const BYTES: usize = 20_000;
    let bytes = |seed| bits(seed, BYTES).iter().map(|bits| *bits as u8).collect::<Vec<u8>>();
    let (mut ours, theirs) = (bytes(1), bytes(2));
    let [to, from] = [&ours, &theirs].map(|bytes| {
        let all = Region { alloc: raw.allocate(BYTES as u64).unwrap(), offset: 0, bytes: BYTES as u64 };
        raw.write(QueueId::DEFAULT, all, bytes).unwrap();
        all
    });
    let part = |of: Region, offset: usize, bytes: usize| Region { offset: offset as u64, bytes: bytes as u64, ..of };
    for (start, place, count) in [(1, 2, 3), (7, 4093, 9001), (255, 511, 4099), (3, 3, 12_345), (4, 8, 16_384)] {
        let copy = DeviceCommand::Copy { from: part(from, place, count), to: part(to, start, count) };
        raw.submit(QueueId::DEFAULT, &[copy], false).unwrap();
        ours[start..start + count].copy_from_slice(&theirs[place..place + count]);
        let found = raw.read(QueueId::DEFAULT, to).and_then(|ticket| ticket.take()).unwrap();
        assert!(found == ours, "{count} bytes from {place} on to {start}");
    }
    for (start, count, pattern) in
        [(5, 9000, &[1u8, 2, 3, 4, 5, 6, 7, 8][..]), (513, 16_002, &[9, 7]), (2, 19_997, &[3])]
    {
        let fill = DeviceCommand::Fill { to: part(to, start, count), pattern: pattern.to_vec() };
        raw.submit(QueueId::DEFAULT, &[fill], false).unwrap();
        let repeated = pattern.iter().copied().cycle();
        ours[start..start + count].iter_mut().zip(repeated).for_each(|(byte, pattern)| *byte = pattern);
        let found = raw.read(QueueId::DEFAULT, to).and_then(|ticket| ticket.take()).unwrap();
        assert!(found == ours, "{pattern:?} over {count} bytes from {start} on");
    }
    // Within one buffer, and writes whose ends are not whole words.
    let copy = DeviceCommand::Copy { from: part(to, 1, 7000), to: part(to, 9003, 7000) };
    raw.submit(QueueId::DEFAULT, &[copy], false).unwrap();
    ours.copy_within(1..7001, 9003);
    raw.write(QueueId::DEFAULT, part(to, 4097, 3001), &theirs[..3001]).unwrap();
    ours[4097..7098].copy_from_slice(&theirs[..3001]);
    let found = raw.read(QueueId::DEFAULT, to).and_then(|ticket| ticket.take()).unwrap();
    assert!(found == ours, "a copy within a buffer, and a write");
    [to, from].iter().for_each(|region| raw.free(region.alloc));
}

#[test]
fn launches_beyond_the_group_count_limit_are_split() {
    let Some(device) = device(Trust::Measured, false) else { return };
    let source = "kernel k(y: &out [u32], n: index) group(1, 1, 1) {\n    \
                  y[add(global_id.x, mul(n, add(global_id.y, mul(global_size.y, global_id.z))))] = \
                  cast<u32>(add(group_id.x, add(mul(num_groups.x, 3), add(group_id.y, group_id.z))))\n}\n";
    let kernel = verify(text::parse(source).expect("it parses")).expect("it verifies");
    let prepared = device.compile(&Arc::new(kernel)).unwrap();
    for [x, y, z] in [[140_001usize, 1, 1], [1, 70_000, 2], [2, 1, 65_537]] {
        let out = device.upload(&vec![0; 4 * x * y * z]).unwrap();
        let args = vec![LaunchArg::write(&out, DType::U32), LaunchArg::Index(x as u64)];
        device
            .submit(&[panoply_runtime::Command::Kernel { prepared: &prepared, grid: (x, y, z).into(), args }])
            .unwrap();
        let found = out.read().unwrap();
        for (at, word) in found.chunks_exact(4).enumerate() {
            let (i, j, k) = (at % x, at / x % y, at / x / y);
            assert_eq!(u32::from_le_bytes(word.try_into().unwrap()) as usize, i + 3 * x + j + k, "{at} of {x}×{y}×{z}");
        }
    }
}

#[test]
fn unbindable_buffers_are_not_allocated() {
    let Some(raw) = raw(Trust::Measured) else { return };
    let largest = raw.target().max_buffer_bytes;
    let error = raw.allocate(largest + 4).unwrap_err();
    assert!(error.is_out_of_memory() && error.message().contains(&format!("has {largest}")), "{error}");
    let device = Device::new(raw, DeviceOptions::default());
    let error = device.allocate(largest + 4).unwrap_err();
    assert!(
        error.is_mistake() && error.message().contains(&format!("exceeds the maximum buffer size on {device}")),
        "{error}"
    );
}

#[test]
fn lost_device_is_reported_and_releases_everything() {
    let Some(raw) = raw(Trust::Measured) else { return };
    let taken = raw.taken();
    let alloc = raw.allocate(1 << 20).unwrap();
    raw.write(QueueId::DEFAULT, Region { alloc, offset: 0, bytes: 4 }, &[1, 2, 3, 4]).unwrap();
    assert_eq!(taken(), 1 << 20);
    raw.lose().unwrap();
    let region = Region { alloc, offset: 0, bytes: 4 };
    let answers = [
        raw.write(QueueId::DEFAULT, region, &[1, 2, 3, 4]),
        raw.read(QueueId::DEFAULT, region).and_then(|ticket| ticket.take()).map(drop),
        raw.submit(QueueId::DEFAULT, &[], false).map(drop),
        raw.synchronize(),
    ];
    for answer in answers {
        let error = answer.expect_err("the device is gone");
        assert!(error.is_device_lost() && error.message().contains("restart the program"), "{error}");
    }
    raw.free(alloc);
    drop(raw);
    assert_eq!(taken(), 0);
}

/// Body of a child process: prints the driver's result.
#[test]
fn answer() {
    if std::env::var_os("PANOPLY_TEST_ANSWER").is_none() {
        return;
    }
    // SAFETY: only `runtime` uses the devices, and it validates its arguments.
    match unsafe { WgpuDriver::new(Backend::Vulkan).probe() } {
        Ok(devices) => println!("ANSWER {} devices", devices.len()),
        Err(error) => {
            println!("ANSWER {} {}", if error.is_unavailable() { "unavailable" } else { "?" }, error.message())
        }
    }
}

#[test]
fn missing_loader_and_driver_are_reported() {
    if !cfg!(target_os = "linux") {
        return;
    }
    let hiding = std::env::temp_dir().join(format!("panoply-no-vulkan-{}", std::process::id()));
    std::fs::create_dir_all(&hiding).unwrap();
    ["libvulkan.so.1", "libvulkan.so"].iter().for_each(|name| std::fs::write(hiding.join(name), "").unwrap());
    let child = |variables: &[(&str, &std::ffi::OsStr)]| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "vulkan::answer", "--nocapture"]).env("PANOPLY_TEST_ANSWER", "1");
        let output = command.envs(variables.iter().copied()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let answer = child(&[("LD_LIBRARY_PATH", hiding.as_os_str())]);
    assert!(
        answer.contains("ANSWER unavailable vulkan: its loader libvulkan.so.1 cannot be opened; install"),
        "{answer}"
    );
    let nothing = std::ffi::OsStr::new("/nonexistent.json");
    let answer = child(&[("VK_ICD_FILENAMES", nothing), ("VK_DRIVER_FILES", nothing)]);
    let absent = answer.contains("ANSWER unavailable vulkan: the loader found no driver; install");
    assert!(absent || answer.contains("its loader"), "{answer}");
    let _ = std::fs::remove_dir_all(hiding);
}

#[test]
fn backends_of_other_systems_name_their_system() {
    for (kind, message) in [
        (Backend::Metal, "metal: Metal exists on macOS only"),
        (Backend::Dx12, "dx12: DirectX 12 exists on Windows only"),
    ] {
        if cfg!(target_os = "linux") {
            // SAFETY: only `runtime` uses the devices, and it validates its arguments.
            assert_eq!(unsafe { WgpuDriver::new(kind).probe() }.expect_err("it is not here").message(), message);
        }
    }
}
