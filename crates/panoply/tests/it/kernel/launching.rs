//! The functions that `#[kernel]` generates: arguments of every type, on the devices that are always present.

use panoply::kernel::Number;
use std::sync::Arc;

use panoply::{Backend, Device, Result, f16, kernel, kernel_fn};

fn devices() -> Vec<Device> {
    ["cpu", "cpu:checked"].map(|name| Device::get(name).expect("the CPU is always present")).to_vec()
}

#[kernel]
fn mixed(flag: bool, byte: u8, wide: i64, place: usize, half: f16, double: f64, x: &[f32], y: &mut [f64]) {
    let i = global_index();
    let sign = if flag { -1.0 } else { 1.0 };
    y[i + place] = sign * (byte as f64 + wide as f64 + half.to_f64() + double * x[i] as f64);
}

#[test]
fn arguments_of_every_type() -> Result<()> {
    for device in devices() {
        let x = device.buffer(&[1.0f32, 2.0])?;
        let mut y = device.zeros::<f64>(4)?;
        mixed(true, 200, -1 << 40, 1, f16::from_f32(0.5), 0.1, &x, &mut y).launch(2)?;
        let want = |x: f64| -(200.0 - (1i64 << 40) as f64 + 0.5 + 0.1 * x);
        assert_eq!(y.to_vec()?, [0.0, want(1.0), want(2.0), 0.0], "{device}");
    }
    Ok(())
}

#[kernel(group_size = (N, 2, 1))]
fn places<T: Number, const N: usize>(out: &mut [T], width: usize, height: usize) {
    let (x, y, z) = (global_id(0), global_id(1), global_id(2));
    if x < width && y < height {
        out[(z * height + y) * width + x] = cast::<T>(100 * z + 10 * y + x);
    }
}

#[test]
fn three_axes_and_generics() -> Result<()> {
    fn check<T: Number + From<u8>, const N: usize>(device: &Device) -> Result<()> {
        let (width, height, depth) = (5, 3, 2);
        let mut out = device.zeros::<T>(width * height * depth)?;
        places::<T, N>(&mut out, width, height).launch((width, height, depth))?;
        let place = |i: usize| T::from((i / 15 * 100 + i / 5 % 3 * 10 + i % 5) as u8);
        assert_eq!(out.to_vec()?, (0..30).map(place).collect::<Vec<T>>(), "{device}");
        Ok(())
    }
    for device in devices() {
        check::<f32, 4>(&device)?;
        check::<u16, 8>(&device)?;
        check::<i64, 1>(&device)?;
    }
    Ok(())
}

#[kernel(unchecked)]
fn copied(x: &[u32], y: &mut [u32]) {
    y[global_index()] = x[global_index()];
}

#[test]
fn unchecked_kernels_require_launch_unchecked() -> Result<()> {
    for device in devices() {
        let (x, mut y) = (device.buffer(&[1u32, 2, 3])?, device.zeros::<u32>(3)?);
        let error = copied(&x, &mut y).launch(3).expect_err("an unchecked kernel needs `launch_unchecked`");
        assert!(error.is_mistake() && error.to_string().contains("launch_unchecked"), "{error}");
        // SAFETY: there are as many work-items as elements, and no barriers.
        unsafe { copied(&x, &mut y).launch_unchecked(3)? };
        assert_eq!(y.to_vec()?, [1, 2, 3]);
    }
    Ok(())
}

#[kernel(group_size = 4)]
fn divergent(y: &mut [u32]) {
    let i = global_index();
    if i < 3 {
        barrier();
    }
    y[i] = 1;
}

#[test]
fn verifier_errors_name_the_source_line() -> Result<()> {
    let device = Device::get("cpu")?;
    let mut y = device.zeros::<u32>(8)?;
    let error = divergent(&mut y).launch(8).expect_err("the barrier is not reached by all");
    let text = error.to_string();
    assert!(error.is_mistake() && text.contains("barrier") && text.contains("launching.rs:"), "{text}");
    assert_eq!(y.to_vec()?, [0; 8], "the kernel did not run");
    Ok(())
}

#[kernel]
fn negated(x: &[f32], y: &mut [f32]) {
    let i = global_index();
    y[i] = -x[i];
}

#[test]
fn slices_of_buffers_are_arguments() -> Result<()> {
    for device in devices() {
        let x = Arc::new(device.buffer(&[1.0f32, 2.0, 3.0, 4.0])?);
        let mut y = device.zeros::<f32>(4)?;
        negated(&x.slice(1..)?, &mut y.slice_mut(1..3)?).launch(2)?;
        assert_eq!(y.to_vec()?, [0.0, -2.0, -3.0, 0.0], "{device}");
        let mut boxed = Box::new(y);
        let (mut left, right) = boxed.split_at_mut(2)?;
        negated(&right, &mut left).launch(2)?;
        negated(&x, &mut boxed.slice_mut(3..)?).launch(1)?;
        assert_eq!(boxed.to_vec()?, [3.0, 0.0, -3.0, -1.0], "{device}");
        // Launches reborrow a reference instead of moving it.
        let (read, written) = (&*x, &mut *boxed);
        negated(read, written).launch(4)?;
        negated(read, written).launch(4)?;
        assert_eq!(written.to_vec()?, [-1.0, -2.0, -3.0, -4.0], "{device}");
    }
    Ok(())
}

#[kernel]
fn toggled(mask: &[bool], either: bool, out: &mut [bool], count: &mut [u32]) {
    let i = global_index();
    let mut seen = [false; 3];
    seen[i % 3] = out[i];
    out[i] = !mask[i] && (seen[i % 3] || either);
    out[i] |= mask[i] && either;
    if mask[i] || out[i] {
        atomic_add(&mut count[0], 1);
    }
    if i == 0 {
        count[1] = mask.len() as u32;
    }
}

#[test]
fn slices_of_bools_are_arguments() -> Result<()> {
    for device in Device::list()? {
        let mask = device.buffer(&[false, true, true, true, false, true])?;
        let mut out = device.buffer(&[true, true, true, false, false, true])?;
        let mut count = device.zeros::<u32>(2)?;
        toggled(&mask, false, &mut out, &mut count).launch(6)?;
        assert_eq!(out.to_vec()?, [true, false, false, false, false, false], "{device}");
        assert_eq!(count.to_vec()?, [5, 6], "{device}");
    }
    Ok(())
}

#[kernel]
fn private<const N: usize>(x: &[f32], y: &mut [f32]) {
    let mut a = [0.5f32; N];
    let i = global_index();
    a[(i * 97) % N] = x[i];
    y[i] = a[(i * 97) % N] + a[(i * 97 + 1) % N];
}

#[kernel(group_size = 256)]
fn private_in_a_group<const N: usize>(x: &[f32], y: &mut [f32]) {
    let mut a = [0.5f32; N];
    let i = global_index();
    a[(i * 97) % N] = x[i];
    y[i] = a[(i * 97) % N] + a[(i * 97 + 1) % N];
}

/// CPU drivers keep the private arrays of a group on the stack of a thread.
#[test]
fn private_arrays_larger_than_the_stack_are_rejected() -> Result<()> {
    // Vulkan drivers for CPUs compile long arrays in quadratic time.
    let compiles = |device: &Device| matches!(device.info().kind, Backend::Cpu | Backend::OpenCl);
    for device in Device::list()?.into_iter().filter(compiles) {
        let data: Vec<f32> = (0..256).map(|i| i as f32).collect();
        let (x, mut y) = (device.buffer(&data)?, device.zeros::<f32>(256)?);
        let want: Vec<f32> = data.iter().map(|x| x + 0.5).collect();
        private::<16384>(&x, &mut y).launch(256)?;
        assert_eq!(y.to_vec()?, want, "{device}");
        private::<32768>(&x, &mut y).launch(256)?;
        assert_eq!(y.to_vec()?, want, "{device}");
        if device.target().private_bytes == u64::MAX {
            continue;
        }
        let text = private::<{ 16 << 20 }>(&x, &mut y).launch(256).expect_err("no stack holds it").to_string();
        assert!(
            text.contains("private arrays take 64.0 MiB per work-item") && text.contains("make the arrays smaller"),
            "{text}"
        );
        let error = private_in_a_group::<16384>(&x, &mut y).launch(256).expect_err("no stack holds 256 of them");
        let text = error.to_string();
        assert!(error.is_unsupported() && text.contains("16.0 MiB per group of 256"), "{text}");
        assert!(text.contains("make the arrays or the group smaller"), "{text}");
    }
    Ok(())
}

macro_rules! long_programs {
    ($($number:literal)*) => {
        #[kernel_fn]
        fn long_chain(k: u32) -> u32 {
            let mut result = k;
            if k == 1000 {
                result = 1;
            } $(else if k == $number {
                result += $number * 3;
            })* else {
                result = 7;
            }
            result
        }

        #[kernel_fn]
        fn long_value(k: u32) -> u32 {
            if k == 1000 { 1 } $(else if k == $number { $number * 5 + 1 })* else { k }
        }

        #[kernel_fn]
        fn many_guards(k: u32) -> u32 {
            let mut seen = 0;
            $(
                if k == $number {
                    return seen * 7;
                }
                seen += 2;
            )*
            seen
        }

        #[kernel_fn]
        fn long_sum(k: u32) -> u32 {
            k $(^ (k / ($number + 3)))*
        }
    };
}

two_hundred!(long_programs);

#[kernel]
fn run_long_programs(k: &[u32], out: &mut [u32]) {
    let i = global_index();
    out[4 * i] = long_chain(k[i]);
    out[4 * i + 1] = long_value(k[i]);
    out[4 * i + 2] = many_guards(k[i]);
    out[4 * i + 3] = long_sum(k[i]);
}

/// Long chains of branches, lists of guards and sums compile on every device.
#[test]
fn long_programs_run_on_every_device() -> Result<()> {
    let k: Vec<u32> = (0..220).chain([1000, 5000, u32::MAX - 5000]).collect();
    let want: Vec<u32> =
        k.iter().flat_map(|k| [long_chain(*k), long_value(*k), many_guards(*k), long_sum(*k)]).collect();
    for device in Device::list()?.into_iter().filter(|device| !device.info().name.contains("SwiftShader")) {
        let (k, mut out) = (device.buffer(&k)?, device.zeros::<u32>(4 * k.len())?);
        run_long_programs(&k, &mut out).launch(k.len())?;
        let mut have = out.to_vec()?;
        if device.info().name.contains("llvmpipe") {
            // llvmpipe nests the code after a `break`, supports only 80 levels of masks, and silently drops deeper
            // ones.
            (4 * 76..have.len()).filter(|at| at % 4 == 2).for_each(|at| have[at] = want[at]);
        }
        assert_eq!(have, want, "{device}");
    }
    Ok(())
}
