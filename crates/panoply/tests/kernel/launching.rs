//! The functions that `#[kernel]` makes: arguments by type, on the devices that are always here.

use panoply::kernel::Number;
use panoply::{Device, Result, f16, kernel};

fn devices() -> Vec<Device> {
    ["cpu", "cpu:checked"].map(|name| Device::get(name).expect("the CPU is always here")).to_vec()
}

#[kernel]
fn mixed(flag: bool, byte: u8, wide: i64, place: usize, half: f16, double: f64, x: &[f32], y: &mut [f64]) {
    let i = global_index();
    let sign = if flag { -1.0 } else { 1.0 };
    y[i + place] = sign * (byte as f64 + wide as f64 + half.to_f64() + double * x[i] as f64);
}

#[test]
fn arguments_of_every_kind() -> Result<()> {
    for device in devices() {
        let x = device.buffer(&[1.0f32, 2.0])?;
        let mut y = device.zeros::<f64>(4)?;
        mixed(true, 200, -1 << 40, 1, f16::from_f32(0.5), 0.1, &x, &mut y).launch(2)?;
        let want = |x: f64| -(200.0 - (1i64 << 40) as f64 + 0.5 + 0.1 * x);
        assert_eq!(y.to_vec()?, [0.0, want(1.0), want(2.0), 0.0], "{device}");
    }
    Ok(())
}

#[kernel(group = (N, 2, 1))]
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
fn unchecked_kernels_are_launched_by_a_promise() -> Result<()> {
    for device in devices() {
        let (x, mut y) = (device.buffer(&[1u32, 2, 3])?, device.zeros::<u32>(3)?);
        let error = copied(&x, &mut y).launch(3).expect_err("it needs the promise");
        assert!(error.is_mistake() && error.to_string().contains("launch_unchecked"), "{error}");
        // SAFETY: there are as many work-items as elements, and no barriers.
        unsafe { copied(&x, &mut y).launch_unchecked(3)? };
        assert_eq!(y.to_vec()?, [1, 2, 3]);
    }
    Ok(())
}

#[kernel(group = 4)]
fn divergent(y: &mut [u32]) {
    let i = global_index();
    if i < 3 {
        barrier();
    }
    y[i] = 1;
}

#[test]
fn what_only_the_verifier_sees_is_an_error_with_its_line() -> Result<()> {
    let device = Device::get("cpu")?;
    let mut y = device.zeros::<u32>(8)?;
    let error = divergent(&mut y).launch(8).expect_err("the barrier is not reached by all");
    let text = error.to_string();
    assert!(error.is_mistake() && text.contains("barrier") && text.contains("launching.rs:"), "{text}");
    assert_eq!(y.to_vec()?, [0; 8], "nothing ran");
    Ok(())
}
